"""The fresh paired replicate: its plan, the order of its halves, and its five endings."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.evalue import pair_factor
from prefillgate.core.policy import ReplicatePolicy
from prefillgate.core.replicate import (
    Ending,
    Half,
    PromptTurns,
    Replicate,
    ReplicatePlan,
    plan_replicate,
    prefills_needed,
)

POLICY = ReplicatePolicy()
CB, GOOD, BB, BO = (pair_factor(c, b, 0.02, 0.40) for c, b in ((1, 0), (0, 0), (1, 1), (0, 1)))  # type: ignore[arg-type]


def plan(number: int = 1, coins: bool = True, flags: int = 1, policy: ReplicatePolicy = POLICY) -> ReplicatePlan:
    prompts = tuple(f"p{i}" for i in range(policy.max_pairs))
    return ReplicatePlan(number, prompts, tuple(coins for _ in prompts), flags)


def replicate(separated: bool = True, **more: object) -> Replicate:
    policy = more.pop("policy", POLICY)
    assert isinstance(policy, ReplicatePolicy)
    made = Replicate(plan(policy=policy, **more), policy)  # type: ignore[arg-type]
    made.separation = "gap" if separated else None
    return made


def feed(made: Replicate, candidate: str, baseline: str) -> list[Half]:
    """Answer every half asked for from two strings of outcomes, x is bad; stops where a string ends."""
    asked = []
    while (half := made.next_half()) is not None:
        outcomes = candidate if half.arm == CANDIDATE else baseline
        if half.pair >= len(outcomes):
            break
        asked.append(half)
        made.record(half.pair, half.arm, (outcomes[half.pair] == "x",) * made.plan.flags)
    return asked


def order(halves: list[Half]) -> str:
    return " ".join(f"{half.arm[0]}{half.pair}" for half in halves)


# The plan


def test_half_of_the_units_go_to_the_prompts_that_failed_and_half_to_the_next_in_turn() -> None:
    made = plan_replicate(1, 5, PromptTurns(("f1", "f2", "f3"), ("o1", "o2")), POLICY)
    assert made.prompts[:8] == ("f1", "o1", "f2", "o2", "f3", "o1", "f1", "o2")
    assert len(made.prompts) == len(made.candidate_first) == 30
    assert sum(prompt.startswith("f") for prompt in made.prompts) == 15
    assert (made.number, made.flags) == (1, 1)
    assert ReplicatePlan(1, (), ()).flags == 1


def test_where_every_prompt_failed_or_none_is_known_to_have_the_other_list_stands_in() -> None:
    assert plan_replicate(1, 5, PromptTurns(("f",), ()), POLICY).prompts == ("f",) * 30
    assert plan_replicate(1, 5, PromptTurns((), ("a", "b")), POLICY).prompts[:4] == ("a", "a", "b", "b")


def test_a_replicate_needs_a_prompt() -> None:
    with pytest.raises(ValueError, match="a replicate needs at least one prompt"):
        plan_replicate(1, 5, PromptTurns((), ()), POLICY)


def test_the_coins_are_fair_and_fixed_by_seed_and_number() -> None:
    turns = PromptTurns(("f",), ())
    coins = [coin for seed in range(400) for coin in plan_replicate(1, seed, turns, POLICY).candidate_first]
    assert abs(sum(coins) - 6000) < 4 * (12000 / 4) ** 0.5
    for number, seed in ((1, 5), (2, 5), (1, 6)):
        generator = random.Random(f"{seed}/replicate/{number}")
        expected = tuple(generator.random() < 0.5 for _ in range(30))
        assert plan_replicate(number, seed, turns, POLICY).candidate_first == expected


# The order of the halves


def test_candidate_units_run_first_and_eight_clean_ones_end_it_without_a_baseline_prefill() -> None:
    made = replicate()
    assert order(feed(made, "." * 30, "")) == "c0 c1 c2 c3 c4 c5 c6 c7"
    assert made.ending() is Ending.CLEAN
    assert made.next_half() is None
    assert made.baseline == {}


def test_seven_clean_ones_do_not_end_it() -> None:
    made = replicate()
    feed(made, ".......", "")
    assert made.ending() is None
    assert made.next_half() == Half(7, CANDIDATE, "p7", 1)


def test_at_the_first_bad_unit_its_own_mate_comes_first_then_the_mates_of_all_units_so_far() -> None:
    made = replicate()
    assert order(feed(made, "..x..", ".....")) == "c0 c1 c2 b2 b0 b1 c3 b3 c4 b4"


def test_the_coin_orders_each_later_pair() -> None:
    coins = replicate(coins=False)
    assert order(feed(coins, "x...", "....")) == "c0 b0 b1 c1 b2 c2 b3 c3"
    mixed = replicate()
    mixed.plan = replace(mixed.plan, candidate_first=(False, True, False, *[True] * 27))
    assert order(feed(mixed, "x...", "....")) == "c0 b0 c1 b1 b2 c2 c3 b3"


def test_a_bad_last_leading_unit_still_starts_the_pairs() -> None:
    made = replicate()
    assert order(feed(made, ".......x.", "." * 9)).startswith("c0 c1 c2 c3 c4 c5 c6 c7 b7 b0 b1 b2 b3 b4 b5 b6 c8 b8")


def test_a_half_names_its_prompt() -> None:
    made = replicate()
    assert made.next_half() == Half(0, CANDIDATE, "p0", 1)
    made.record(0, CANDIDATE, (True,))
    assert made.next_half() == Half(0, BASELINE, "p0", 1)


def test_an_invalid_half_is_planned_again_alone_and_the_other_half_stays() -> None:
    made = replicate()
    made.record(0, CANDIDATE, (True,))
    made.invalidate(0, BASELINE)
    assert made.next_half() == Half(0, BASELINE, "p0", 2)
    made.record(0, BASELINE, (False,))
    assert made.next_half() == Half(1, CANDIDATE, "p1", 1)
    assert made.candidate == {0: (True,)}


def test_the_third_invalid_try_of_one_half_aborts() -> None:
    made = replicate()
    made.record(0, CANDIDATE, (True,))
    made.invalidate(0, BASELINE)
    made.invalidate(0, BASELINE)
    made.invalidate(1, BASELINE)
    assert made.ending() is None
    made.invalidate(0, BASELINE)
    assert made.ending() is Ending.ABORTED
    assert made.aborted == "pair 0, baseline: 3 tries without a measurement"
    assert made.next_half() is None


def test_a_busy_server_is_waited_for_and_is_none_of_the_three_tries() -> None:
    made = replicate()
    for _ in range(4):
        made.invalidate(0, CANDIDATE, busy=True)
    assert made.ending() is None
    assert made.next_half() == Half(0, CANDIDATE, "p0", 5)
    made.invalidate(0, CANDIDATE)
    made.invalidate(0, CANDIDATE)
    assert made.next_half() == Half(0, CANDIDATE, "p0", 7)
    made.invalidate(0, CANDIDATE)
    assert made.ending() is Ending.ABORTED


@pytest.mark.parametrize("arm", [CANDIDATE, BASELINE])
def test_a_half_has_one_outcome(arm: str) -> None:
    made = replicate()
    made.record(0, arm, (True,))
    with pytest.raises(ValueError, match=f"pair 0 of replicate 1 has its {arm} half already"):
        made.record(0, arm, (False,))
    assert {CANDIDATE: made.candidate, BASELINE: made.baseline}[arm] == {0: (True,)}


# E


def test_e_stops_at_the_first_incomplete_pair_and_no_pair_is_skipped() -> None:
    made = replicate()
    for pair, arm in ((0, CANDIDATE), (1, CANDIDATE), (2, CANDIDATE), (0, BASELINE), (2, BASELINE)):
        made.record(pair, arm, (arm == CANDIDATE,))
    assert made.complete_pairs() == 1
    assert made.e_path() == [pytest.approx(CB)]
    made.record(1, BASELINE, (True,))
    assert made.e_path() == [pytest.approx(CB), pytest.approx(CB * BB), pytest.approx(CB * BB * CB)]


def test_two_pairs_of_a_bad_candidate_and_a_good_baseline_stand_at_5_58() -> None:
    made = replicate()
    feed(made, "xx", "..")
    assert made.e_path()[-1] == pytest.approx(5.58, abs=0.005)
    assert made.ending() is None


def test_the_four_pairs_multiply_in_planned_order() -> None:
    made = replicate()
    feed(made, "x.x.x", "..xx.")
    assert made.e_path() == [
        pytest.approx(CB),
        pytest.approx(CB * GOOD),
        pytest.approx(CB * GOOD * BB),
        pytest.approx(CB * GOOD * BB * BO),
    ]  # the fourth ends it: E is below 0.05


# The endings


@pytest.mark.parametrize(("number", "pairs"), [(1, 5), (2, 6), (3, 6), (4, 8)])
def test_pairs_of_a_bad_candidate_and_a_good_baseline_that_confirm(number: int, pairs: int) -> None:
    made = replicate(number=number)
    feed(made, "x" * (pairs - 1), "." * 30)
    assert made.ending() is None
    feed(made, "x" * pairs, "." * 30)
    assert made.ending() is Ending.CONFIRMED
    assert made.threshold == {1: 40, 2: 80, 3: 160, 4: 480}[number]
    assert made.next_half() is None


def test_reaching_the_threshold_exactly_confirms_and_a_last_bit_below_does_not() -> None:
    reached = CB * CB
    for threshold, ending in ((reached, Ending.CONFIRMED), (reached * (1 + 1e-12), None)):
        made = replicate(policy=replace(POLICY, threshold=threshold))
        feed(made, "xx", "..")
        assert made.ending() is ending


def test_without_separation_nothing_is_confirmed() -> None:
    made = replicate(separated=False)
    feed(made, "x" * 30, "." * 30)
    assert max(made.e_path()) > 1e10
    assert made.ending() is Ending.CAPPED
    late = replicate(separated=False)
    feed(late, "xxxxx", ".....")
    assert late.ending() is None
    late.separation = "restart"
    assert late.ending() is Ending.CONFIRMED


def test_it_is_futile_at_one_twentieth() -> None:
    made = replicate()
    feed(made, "x.", "xx")  # 0.181 * 0.072
    assert made.ending() is Ending.FUTILE
    assert made.next_half() is None
    exactly = CB * BO
    for futility, ending in ((exactly, Ending.FUTILE), (exactly * (1 - 1e-12), None)):
        other = replicate(policy=replace(POLICY, futility=futility))
        feed(other, "x.", ".x")
        assert other.ending() is ending


def test_it_is_capped_at_thirty_pairs() -> None:
    made = replicate()
    candidate, baseline = "x........" * 4, "." * 40
    feed(made, candidate[:29], baseline)
    assert made.ending() is None
    feed(made, candidate[:30], baseline)
    assert made.complete_pairs() == 30
    assert made.ending() is Ending.CAPPED
    assert made.next_half() is None


def test_the_thirtieth_pair_may_still_confirm() -> None:
    made = replicate(policy=replace(POLICY, max_pairs=5))
    feed(made, "xxxxx", ".....")
    assert made.ending() is Ending.CONFIRMED


@pytest.mark.parametrize(
    ("candidate", "baseline", "ending"),
    [
        ("x." + "x" * 9, "xx" + "." * 9, Ending.FUTILE),
        ("xxxxx" + "." * 9, "....." + "x" * 9, Ending.CONFIRMED),
        ("." * 8 + "x" * 8, "." * 16, Ending.CLEAN),
        ("x........" * 3 + "...xxxxxxxxxxxxxxxxx", "." * 60, Ending.CAPPED),
    ],
)
def test_what_a_log_holds_beyond_the_ending_changes_nothing(candidate: str, baseline: str, ending: Ending) -> None:
    made = replicate()
    for pair, (x, y) in enumerate(zip(candidate, baseline, strict=False)):
        made.record(pair, CANDIDATE, (x == "x",))
        made.record(pair, BASELINE, (y == "x",))
    assert made.ending() is ending


def test_an_abort_ends_it_but_does_not_undo_a_confirmation() -> None:
    made = replicate()
    made.aborted = "deadline"
    assert made.ending() is Ending.ABORTED
    confirmed = replicate()
    feed(confirmed, "xxxxx", ".....")
    confirmed.aborted = "deadline"
    assert confirmed.ending() is Ending.CONFIRMED
    futile = replicate()
    feed(futile, "x.", "xx")
    futile.aborted = "deadline"
    assert futile.ending() is Ending.ABORTED
    clean = replicate()
    feed(clean, "." * 8, "")
    clean.aborted = "separation impossible"
    assert clean.ending() is Ending.ABORTED


# Several flags


def test_with_flags_the_threshold_is_multiplied_and_any_flag_confirms() -> None:
    made = replicate(flags=2)
    assert made.threshold == 80
    for pair in range(6):
        assert made.ending() is None
        made.record(pair, CANDIDATE, (False, True))
        made.record(pair, BASELINE, (False, False))
    assert made.ending() is Ending.CONFIRMED
    assert made.leading_flag() == 1
    assert made.e_path(0)[-1] == pytest.approx(GOOD**6)
    assert made.view().e_value == pytest.approx(CB**6)


def test_with_flags_clean_means_clean_in_all() -> None:
    made = replicate(flags=2)
    for pair in range(8):
        made.record(pair, CANDIDATE, (False, pair == 7))
    assert made.ending() is None
    assert made.next_half() == Half(7, BASELINE, "p7", 1)
    assert made.candidate_bad() == 1


def test_with_flags_it_is_futile_only_when_every_e_is() -> None:
    made = replicate(flags=2)
    made.record(0, CANDIDATE, (True, True))
    made.record(0, BASELINE, (True, True))
    made.record(1, CANDIDATE, (False, True))
    made.record(1, BASELINE, (True, False))
    assert made.ending() is None
    made.record(2, CANDIDATE, (False, False))
    made.record(2, BASELINE, (True, True))
    assert made.ending() is Ending.FUTILE


# What a report says


def test_the_view_of_a_fresh_replicate() -> None:
    view = replicate().view()
    assert (view.number, view.threshold, view.ending, view.e_value) == (1, 40, None, 1.0)
    assert (view.candidate_units, view.candidate_bad, view.pairs, view.carrying_prompts) == (0, 0, (), ())
    assert view.candidate_rate_upper is None
    assert (view.separation, view.separation_detail, view.futility) == ("gap", "", 0.05)


def test_eight_clean_units_bound_the_rate_below_0_312() -> None:
    made = replicate()
    feed(made, "." * 8, "")
    view = made.view()
    assert (view.ending, view.candidate_units, view.candidate_bad) == ("clean", 8, 0)
    assert view.candidate_rate_upper == pytest.approx(0.3123, abs=5e-5)


def test_the_view_names_pairs_and_the_prompts_that_carry_e() -> None:
    made = replicate()
    made.plan = replace(made.plan, prompts=("a", "b", "a", "c", *["d"] * 26))
    made.separation, made.separation_detail = "restart", "e1 before, e2 after"
    feed(made, "x.xx", "....")
    view = made.view()
    assert view.candidate_rate_upper is None
    assert (view.candidate_units, view.candidate_bad) == (4, 3)
    assert view.carrying_prompts == ("a", "c")
    assert [(p.pair, p.case_id, p.candidate_bad, p.baseline_bad) for p in view.pairs] == [
        (0, "a", True, False),
        (1, "b", False, False),
        (2, "a", True, False),
        (3, "c", True, False),
    ]
    assert [p.factor for p in view.pairs] == [pytest.approx(f) for f in (CB, GOOD, CB, CB)]
    assert view.pairs[-1].e_value == view.e_value == pytest.approx(CB**3 * GOOD)
    assert (view.separation, view.separation_detail) == ("restart", "e1 before, e2 after")


@pytest.mark.parametrize(("planned", "carries"), [((0.02, 0.10), True), ((0.20, 0.20), False)])
def test_a_prompt_carries_e_if_its_pair_raised_it_however_little(planned: tuple[float, float], carries: bool) -> None:
    policy = replace(POLICY, planned_baseline_rate=planned[0], planned_candidate_rate=planned[1])
    made = replicate(policy=policy)
    feed(made, "x", ".")
    assert made.view().pairs[0].factor == pytest.approx(1.7376 if carries else 1, abs=1e-4)
    assert made.view().carrying_prompts == (("p0",) if carries else ())


def test_the_leading_flag_is_the_one_whose_e_rose_highest_not_the_last_one() -> None:
    made = replicate(flags=2)
    made.record(0, CANDIDATE, (False, True))
    made.record(0, BASELINE, (False, False))
    assert made.leading_flag() == 1
    assert replicate(flags=2).leading_flag() == 0
    peaked = replicate(flags=2)
    for pair in range(2):
        peaked.record(pair, CANDIDATE, (pair == 0, False))
        peaked.record(pair, BASELINE, (pair == 1, False))
    assert peaked.e_path(0)[-1] < peaked.e_path(1)[-1]
    assert peaked.leading_flag() == 0


@pytest.mark.parametrize(
    ("number", "flags", "prefills"), [(1, 1, 10), (2, 1, 12), (3, 1, 12), (4, 1, 16), (1, 2, 12), (2, 2, 12)]
)
def test_the_budget_a_replicate_must_find(number: int, flags: int, prefills: int) -> None:
    assert prefills_needed(number, POLICY, flags) == prefills
    if flags == 1:
        assert prefills_needed(number, POLICY) == prefills


@given(st.integers(0, 2**32), st.floats(0, 0.6), st.floats(0, 0.6))
def test_stepping_any_replicate_ends_it_within_its_cap(seed: int, candidate: float, baseline: float) -> None:
    generator = random.Random(seed)
    made = replicate()
    made.plan = plan_replicate(1, seed, PromptTurns(("a",), ("b",)), POLICY)
    asked: Counter[str] = Counter()
    while (half := made.next_half()) is not None:
        asked[half.arm] += 1
        made.record(half.pair, half.arm, (generator.random() < (candidate if half.arm == CANDIDATE else baseline),))
    assert made.ending() in (Ending.CONFIRMED, Ending.CLEAN, Ending.FUTILE, Ending.CAPPED)
    assert asked[CANDIDATE] <= 30
    assert asked[BASELINE] <= asked[CANDIDATE]
    assert (asked[BASELINE] == 0) == (made.ending() is Ending.CLEAN)


def test_units_that_end_out_of_order_wait_for_the_earlier_ones_then_every_mate_is_run() -> None:
    made = replicate()
    assert [half.pair for half in made.wanted({(0, CANDIDATE), (2, CANDIDATE)})] == [1, 3, 4, 5, 6, 7]
    made.record(2, CANDIDATE, (True,))
    made.record(3, CANDIDATE, (False,))
    assert [(half.pair, half.arm) for half in made.wanted()] == [(0, CANDIDATE), (1, CANDIDATE)]
    assert [(half.pair, half.arm) for half in made.wanted({(0, CANDIDATE)})] == [(1, CANDIDATE)]
    made.record(1, CANDIDATE, (False,))
    made.record(0, CANDIDATE, (False,))
    wanted = [(half.pair, half.arm) for half in made.wanted()]
    assert wanted[:4] == [(2, BASELINE), (0, BASELINE), (1, BASELINE), (3, BASELINE)]
    assert not made.has_mate(Half(4, CANDIDATE, "p4", 1))
    assert made.has_mate(Half(3, BASELINE, "p3", 1))
    made.record(5, BASELINE, (False,))
    assert made.has_mate(Half(5, CANDIDATE, "p5", 1))
    assert made.complete_pairs() == 0
