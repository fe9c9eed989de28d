"""Bundles of runs that asked a gateway: its answers are made, read and judged again from what was kept of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefillgate.bundle import content
from tests.support.bundles import Bundle, Document, exported
from tests.support.gateways import passing
from tests.support.runs import bench
from tests.support.simulated import start_simulated

Change = Callable[[Document], object]


@pytest.fixture(scope="module")
def store_of_gateway(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose one bad cell was asked again, straight and through a gateway."""
    folder = tmp_path_factory.mktemp("gateway")
    work = bench(folder, marginPercent=30, acceptance=[10], budgetPrefills=12)
    with (
        start_simulated(seed=1, text_seed=9) as baseline,
        start_simulated(seed=2, text_seed=9, fault=["bad-prompt=1"]) as candidate,
        passing(candidate.url) as gateway,
    ):
        work.child(*work.arguments(baseline.url, candidate.url, "--store", "run.db", "--gateway", gateway))
    return folder / "run.db"


@pytest.fixture(scope="module")
def bundle_of_gateway(store_of_gateway: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(store_of_gateway, tmp_path_factory.mktemp("bundles") / "bundle").folder


@pytest.fixture
def bundle(bundle_of_gateway: Path, tmp_path: Path) -> Bundle:
    shutil.copytree(bundle_of_gateway, tmp_path / "bundle")
    return Bundle(tmp_path / "bundle")


def test_its_answers_are_recomputed_and_counted(bundle: Bundle, store_of_gateway: Path, tmp_path: Path) -> None:
    told = bundle.verify()
    assert told.code == 0, told.text
    assert "3 answers of the gateway check" in told.text
    told = exported(store_of_gateway, tmp_path / "redacted", "--redact").verify()
    assert told.code == 0, told.text
    assert "not recomputed: answers of the gateway check, whose texts were left out (--redact)" in told.text


def field(way: str, name: str, value: Any) -> Change:
    return lambda event: event[way].update({name: value})


def text(way: str, name: str, change: Callable[[str], str]) -> Change:
    return lambda event: event[way]["texts"].update({name: change(event[way]["texts"][name])})


CHANGES: dict[str, tuple[Change, str]] = {
    "prompt tokens": (field("through", "prompt_tokens", 7), "through: prompt_tokens is 7, the reply tells "),
    "cached tokens": (field("direct", "cached_tokens", 7), "direct: cached_tokens is 7, the reply tells 0"),
    "output tokens": (field("repeat", "output_tokens", 7), "repeat: output_tokens is 7, the reply tells "),
    "the model": (field("through", "model", "m"), 'through: model is "m", the reply tells '),
    "the request's id": (field("repeat", "request_id", "m"), 'repeat: request_id is "m", the reply tells '),
    "the model asked for": (field("through", "asked_model", "m"), 'through: asked_model is "m", the request has '),
    "a nonce": (field("direct", "nonce", "0" * 32), "direct: nonce is "),
    "the output's digest": (field("direct", "output_sha256", "0" * 64), "direct: output_sha256 is "),
    "an outcome": (lambda event: event["direct"]["outcomes"][0].update(bad=None), "direct: "),
    "the text": (text("direct", "content", lambda was: was + "!"), "direct: output_sha256 is "),
    "the prompt": (
        text("through", "request", lambda was: was.replace("case-", "Case-")),
        "through: request.prompt is ",
    ),
    "the reply": (
        text("direct", "response", lambda was: was.replace('"completion_tokens":', '"completion_tokens":9')),
        "direct: output_tokens is ",
    ),
    "the repeat": (
        text("repeat", "request", lambda was: was.replace("{", "{ ", 1)),
        "repeat.texts.request is not the gateway's request to the byte",
    ),
    "another cell": (lambda event: event.update(cell_id=0), "cell 0 is not among the bad cells that a gateway is "),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_changed_is_named_with_its_line(bundle: Bundle, what: str) -> None:
    change, words = CHANGES[what]
    line = bundle.line_of("GatewayCompared")

    def made(lines: list[Document], texts: list[Document]) -> None:
        before = json.dumps(lines[line - 1])
        change(lines[line - 1]["event"])
        assert json.dumps(lines[line - 1]) != before

    told = bundle.forge(made)
    assert told.code == 10
    assert told.first.startswith(f"{content.EVENTS}:{line}: ")
    assert words in told.text, told.text
