"""The numbers a run is judged by when nobody says otherwise."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from prefillgate.core.acceptance import NAMED_POLICIES
from prefillgate.core.policy import (
    DEFAULT_FLAG,
    AlarmPolicy,
    Flag,
    Policy,
    ReplicatePolicy,
    ThroughputPolicy,
)


def test_the_alarm_is_a_cusum_of_five_against_thirty_percent_at_ten() -> None:
    assert asdict(AlarmPolicy()) == {
        "healthy_rate": 0.05,
        "bad_rate": 0.30,
        "threshold": 10.0,
        "watch_threshold": 100.0,
    }


def test_the_replicate_is_planned_at_two_against_forty_percent() -> None:
    assert asdict(ReplicatePolicy()) == {
        "planned_baseline_rate": 0.02,
        "planned_candidate_rate": 0.40,
        "threshold": 40.0,
        "futility": 0.05,
        "clean_units": 8,
        "max_pairs": 30,
        "max_cached_tokens": 32,
        "gap_seconds": 600.0,
        "max_attempts": 2,
    }


def test_throughput_is_required_at_minus_five_percent() -> None:
    assert asdict(ThroughputPolicy()) == {
        "required": True,
        "margin": -0.05,
        "alpha": 0.05,
        "min_pairs": 6,
        "max_pairs": 40,
        "min_output_tokens": 32,
        "planned_cv": 0.04,
        "max_prompts": 12,
        "slow_ratio": 0.8,
    }


def test_a_policy_has_one_flag_and_the_healthy_rate_of_one_percent() -> None:
    policy = Policy("p", 0.1, 0.05, (32,), 200)
    assert (policy.healthy_rate, policy.baseline_pass, policy.refusals) == (0.01, 8, 3)
    assert (policy.deadline_seconds, policy.aa_check) == (None, False)
    assert policy.flags == (Flag("bad", ()),)
    assert DEFAULT_FLAG == "bad"


@pytest.mark.parametrize(
    ("name", "margin", "entries", "budget"),
    [
        ("quick", 0.20, (16, 25, 35), 150),
        ("standard", 0.10, (32, 56, 75), 200),
        ("strict", 0.05, (67, 105, 175), 300),
    ],
)
def test_the_named_profiles_are_those_of_the_page(
    name: str, margin: float, entries: tuple[int, ...], budget: int
) -> None:
    policy = NAMED_POLICIES[name]
    assert policy == Policy(name, margin, 0.05, entries, budget)


def test_there_are_three_named_profiles() -> None:
    assert list(NAMED_POLICIES) == ["quick", "standard", "strict"]
