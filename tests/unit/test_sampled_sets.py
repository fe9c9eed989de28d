"""Sampled cases are warned of until the policy says how often a healthy server fails on them; streams are as asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefillgate.api.policy import load_policy
from prefillgate.api.replay_set import Case
from prefillgate.cli.main import main
from prefillgate.engines.openai_compatible import OpenAICompatible
from prefillgate.replay.request import Sending, prepare
from tests.support.runs import write_policy, write_set

WARNING = "are sampled (temperature above 0 or not set)"


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().err


@pytest.mark.parametrize("temperature", [0.7, 0])
def test_lint_warns_of_sampled_cases_until_a_healthy_rate_is_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], temperature: float
) -> None:
    replay_set = str(write_set(tmp_path / "set.jsonl", temperature=temperature))
    plain = str(write_policy(tmp_path / "plain.yaml"))
    known = str(write_policy(tmp_path / "known.yaml", healthyRateBasisPoints=100))
    sampled = temperature != 0
    assert (WARNING in told(capsys, "replayset", "lint", replay_set)) is sampled
    for policy in (plain, "standard"):
        warned = told(capsys, "policy", "lint", policy, "--replay-set", replay_set)
        assert (WARNING in warned) is sampled
        assert ("prefillgate replayset try" in warned) is sampled
        assert ("healthyRateBasisPoints" in warned) is sampled
    assert WARNING not in told(capsys, "policy", "lint", known, "--replay-set", replay_set)


def test_a_policy_tells_whether_its_healthy_rate_was_written_down(tmp_path: Path) -> None:
    written = load_policy(write_policy(tmp_path / "a.yaml", healthyRateBasisPoints=100))
    left_out = load_policy(write_policy(tmp_path / "a.yaml"))
    assert (written.healthy_rate_given, left_out.healthy_rate_given) == (True, False)
    assert written.policy == left_out.policy
    assert written.digest == left_out.digest
    assert not load_policy("standard").healthy_rate_given


@pytest.mark.parametrize(
    ("stream", "sent"), [({}, True), ({"stream": True}, True), ({"stream": None}, True), ({"stream": False}, False)]
)
def test_a_case_is_streamed_unless_its_body_says_false(stream: dict[str, bool | None], sent: bool) -> None:
    case = Case("a", "/v1/completions", {"prompt": "q", **stream})
    prepared = prepare(case, OpenAICompatible("http://h"), Sending("m", 1, "0" * 32, "nonce"))
    assert prepared.body["stream"] is sent
    assert ("stream_options" in prepared.body) is sent
    changed = [name for name, _, _ in prepared.changes]
    assert ("stream" in changed) is (stream.get("stream") is not sent)
    assert json.dumps(prepared.body)
