"""The text log of the real llama.cpp server, read back: it tells of each request what the server's reply told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from prefillgate.core.cells import Cell
from prefillgate.hosts.llama_server import LlamaServer
from prefillgate.importers.registry import find_format
from prefillgate.importers.source import Source
from tests.support.imports import cells_of
from tests.support.llama import SMALL, record, wait_for_releases

PROMPT = "The ferry crosses the sound four times a day and carries mail and milk. " * 3


@pytest.mark.parametrize("verbosity", ["3", "4"])
def test_the_log_of_a_real_server_tells_what_its_replies_told(
    verbosity: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "server.log"
    with LlamaServer((*SMALL, "--no-warmup", "-lv", verbosity), log_path=path) as server:
        record(request, server)
        replies = [ask(server), ask(server), ask(server, cache_prompt=False)]
        wait_for_releases(path, len(replies))
    with path.open("rb") as file:
        source = Source(file, "log")
        found = find_format(source)
        assert found.name == "llama-server-log"
        cells = cells_of(list(found.read(source)))
    assert [told(cell) for cell in cells] == [told_by(reply) for reply in replies]
    lengths = [(cell.prompt_tokens, cell.cached_tokens) for cell in cells]
    usage = [(reply["usage"]["prompt_tokens"], reply["timings"]["cache_n"]) for reply in replies]
    assert lengths == usage, "told by a line of its own, or by what the slot held at its release"
    assert usage[1][1] > 0, "the second was a copy"


def ask(server: LlamaServer, **more: Any) -> Any:
    body = {"prompt": PROMPT, "max_tokens": 3, "temperature": 0, **more}
    return httpx.post(server.url + "/v1/completions", json=body, timeout=60, trust_env=False).json()


def told(cell: Cell) -> tuple[Any, ...]:
    return cell.processed_tokens, cell.output_tokens, cell.prefill_ms, cell.decode_ms


def told_by(reply: Any) -> tuple[Any, ...]:
    timings = reply["timings"]
    times = (pytest.approx(timings["prompt_ms"], abs=0.006), pytest.approx(timings["predicted_ms"], abs=0.006))
    return timings["prompt_n"], timings["predicted_n"], *times
