"""The sets that come with the package: what the demo and the tests rely on."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from prefillgate.api.check_type import CheckType
from prefillgate.api.policy import load_policy
from prefillgate.core.acceptance import NAMED_POLICIES
from prefillgate.replay.checks import CheckSuite
from prefillgate.replay.replay_set import load_replay_set, packaged_sets

POLICIES = Path(__file__).resolve().parents[2] / "policies"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, POLICIES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["demo", "short", "four"])
def test_the_packaged_sets_are_those_of_the_policies_folder_and_of_their_script(name: str) -> None:
    packaged = packaged_sets()[name].read_bytes()
    assert (POLICIES / f"{name}.jsonl").read_bytes() == packaged
    assert script("few_shot_sets").sets()[f"{name}.jsonl"] == packaged


@pytest.mark.parametrize(("name", "cases", "kind", "max_tokens"), [("demo", 16, "json", 64), ("short", 8, "exact", 24)])
def test_every_few_shot_case_expects_an_answer_and_is_greedy(name: str, cases: int, kind: str, max_tokens: int) -> None:
    found = load_replay_set(name).cases
    assert len(found) == cases
    for case in found:
        assert case.path == "/v1/completions"
        assert case.expect is not None and case.expect.kind == kind
        assert (case.max_tokens, case.greedy, case.body["stop"]) == (max_tokens, True, ["\n"])
        assert not case.body["prompt"].endswith(" ")


def test_no_two_cases_of_four_begin_alike() -> None:
    beginnings = {case.body["prompt"][:60] for case in load_replay_set("four").cases}
    assert len(beginnings) == 4


@pytest.mark.parametrize("name", ["quick", "standard", "strict"])
def test_the_policy_files_are_the_named_policies(name: str) -> None:
    assert load_policy(POLICIES / f"{name}.yaml").policy == NAMED_POLICIES[name]
    assert load_policy(POLICIES / f"{name}.yaml").digest == load_policy(name).digest


def test_the_review_bot_set_is_twelve_pull_requests_two_of_them_long() -> None:
    replay_set = load_replay_set(POLICIES / "review-bot.jsonl")
    assert len(replay_set.cases) == 12
    assert (POLICIES / "review-bot.jsonl").read_bytes() == script("review_bot_set").text()
    lengths = sorted(case.characters for case in replay_set.cases)
    assert sum(length > 30_000 for length in lengths) == 2
    for case in replay_set.cases:
        assert case.path == "/v1/chat/completions"
        assert "VERDICT: LGTM" in case.body["messages"][0]["content"]
        assert case.canary is not None and case.canary in case.prompt_text


def test_the_review_bot_policy_judges_the_review_bot_set() -> None:
    replay_set = load_replay_set(POLICIES / "review-bot.jsonl")
    policy = load_policy(POLICIES / "review-bot.yaml")
    suite = CheckSuite.from_policy(policy, replay_set)
    names = [check.name for check in suite.checks_for(replay_set.cases[0])]
    assert names == [
        "not_empty",
        "bare_verdict",
        "loop",
        "template_tokens",
        "finish_reason",
        "no-refusal",
        "equal_to_baseline",
        "cut",
        "foreign_text",
    ]
    assert policy.checks is not None and policy.checks[1].type is CheckType.BARE_VERDICT
