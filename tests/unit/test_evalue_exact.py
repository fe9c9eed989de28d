"""The shipped replicate against the exact law of one: chances of its endings, prefills, and false rollbacks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.policy import ReplicatePolicy
from prefillgate.core.replicate import Replicate, ReplicatePlan
from tests.support.replicate_law import Law, Rule, false_rollback, law_of, static

SHIPPED = Rule("shipped", static())
SECOND = replace(SHIPPED, threshold=80.0)


def enumerated(policy: ReplicatePolicy, baseline: float, candidate: float) -> Law:
    """Every way the shipped replicate can go, with its chance."""
    ends: dict[str, float] = defaultdict(float)
    spent: dict[str, float] = defaultdict(float)
    plan = ReplicatePlan(1, ("p",) * policy.max_pairs, tuple(pair % 2 == 0 for pair in range(policy.max_pairs)))

    def walk(path: tuple[tuple[int, str, bool], ...], chance: float) -> None:
        made = Replicate(plan, policy, separation="gap")
        for pair, arm, bad in path:
            made.record(pair, arm, (bad,))
        half = made.next_half()
        if half is None:
            ends[str(made.ending())] += chance
            spent[str(made.ending())] += chance * len(path)
            return
        rate = candidate if half.arm == CANDIDATE else baseline
        for bad, weight in ((True, rate), (False, 1 - rate)):
            walk((*path, (half.pair, half.arm, bad)), chance * weight)

    walk((), 1.0)
    return Law(
        ends["confirmed"], ends["clean"], ends["futile"], ends["capped"], sum(spent.values()), spent["confirmed"]
    )


@pytest.mark.parametrize(("baseline", "candidate"), [(0.1, 0.3), (0.5, 0.5), (0.02, 0.9)])
def test_the_shipped_replicate_follows_the_exact_law(baseline: float, candidate: float) -> None:
    policy = ReplicatePolicy(threshold=5.0, max_pairs=5, clean_units=3)
    rule = Rule("short", static(), threshold=5.0, clean_units=3, max_pairs=5)
    shipped, law = enumerated(policy, baseline, candidate), law_of(rule, baseline, candidate)
    for name in ("confirmed", "clean", "futile", "capped", "prefills", "prefills_confirmed"):
        assert getattr(shipped, name) == pytest.approx(getattr(law, name), abs=1e-12), name
    assert shipped.confirmed + shipped.clean + shipped.futile + shipped.capped == pytest.approx(1)


def test_arms_are_the_two_of_a_pair() -> None:
    assert {BASELINE, CANDIDATE} == {"baseline", "candidate"}


def test_the_worst_false_rollback_of_two_replicates_is_0_0246() -> None:
    sums = {
        percent: law_of(SHIPPED, percent / 100, percent / 100).confirmed
        + law_of(SECOND, percent / 100, percent / 100).confirmed
        for percent in (18, 22, 23, 24, 28)
    }
    assert max(sums.values()) == pytest.approx(0.0246, abs=5e-5)
    assert sums[18] < sums[22] < sums[23] > sums[24] > sums[28]


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.23, 0.5])
def test_a_candidate_no_worse_is_confirmed_within_the_bounds(rate: float) -> None:
    assert law_of(SHIPPED, rate, rate).confirmed <= 1 / 40
    assert law_of(SECOND, rate, rate).confirmed <= 1 / 80
    assert law_of(SHIPPED, rate, rate / 2).confirmed <= law_of(SHIPPED, rate, rate).confirmed
    assert false_rollback(SHIPPED, SECOND, rate, rate) <= 0.0375


def test_a_candidate_bad_nine_times_in_ten_is_confirmed_in_about_eleven_prefills() -> None:
    law = law_of(SHIPPED, 0.0, 0.9)
    assert law.confirmed == pytest.approx(1, abs=1e-7)
    assert law.prefills == pytest.approx(11.11, abs=0.005)
