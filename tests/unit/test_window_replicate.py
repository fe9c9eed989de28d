"""The replicate in windows: its plan, its order, when a window ends, and the exact law of its endings."""

from __future__ import annotations

from collections import defaultdict

import pytest

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.policy import ReplicatePolicy
from prefillgate.core.replicate import Ending, Half, PromptTurns, ReplicatePlan
from prefillgate.core.window_replicate import (
    WindowReplicate,
    later_size,
    plan_window_replicate,
    window_pairs_needed,
    window_prefills_needed,
)
from tests.support.replicate_law import Law, Rule, law_of, static

POLICY = ReplicatePolicy()


def replicate(policy: ReplicatePolicy = POLICY, flags: int = 1, coins: bool = True) -> WindowReplicate:
    units = policy.clean_units + later_size(policy) * (policy.max_pairs - 1)
    plan = ReplicatePlan(1, tuple(f"p{i}" for i in range(units)), (coins,) * policy.max_pairs, flags)
    return WindowReplicate(plan, policy, separation="restart")


def feed(made: WindowReplicate, candidate: str, baseline: str = "", limit: int = 500) -> list[Half]:
    """Answer every half by arm and window: x is a window whose first unit is bad, . a clean one."""
    asked: list[Half] = []
    while (half := made.next_half()) is not None and len(asked) < limit:
        told = candidate if half.arm == CANDIDATE else baseline
        if half.pair >= len(told):
            break
        asked.append(half)
        made.record(half.pair, half.arm, (told[half.pair] == "x",) * made.plan.flags)
    return asked


def runs(asked: list[Half]) -> str:
    """The windows in the order asked, with the units each took."""
    seen: dict[str, int] = defaultdict(int)
    for half in asked:
        seen[f"{half.arm[0]}{half.pair}"] += 1
    return " ".join(f"{name}x{count}" for name, count in seen.items())


def test_the_first_window_is_as_long_as_the_leading_units_and_later_ones_half_of_it() -> None:
    plan = plan_window_replicate(2, 5, PromptTurns(("f1", "f2"), ("o1", "o2", "o3")), POLICY, flags=2)
    assert len(plan.prompts) == 8 + 29 * 4
    assert len(plan.candidate_first) == 30
    assert (plan.number, plan.flags) == (2, 2)
    assert plan.prompts[:8] == ("f1", "o1", "f2", "o2", "f1", "o3", "f2", "o1")
    assert plan_window_replicate(1, 5, PromptTurns(("f",), ()), POLICY).flags == 1
    made = WindowReplicate(plan, POLICY)
    assert made.window(0) == plan.prompts[:8]
    assert made.window(1) == plan.prompts[8:12]
    assert made.window(29) == plan.prompts[120:124]
    assert [later_size(ReplicatePolicy(clean_units=units)) for units in (1, 2, 3, 4, 8)] == [1, 1, 1, 2, 4]


def test_eight_clean_units_of_the_first_window_end_it() -> None:
    made = replicate()
    asked = feed(made, ".")
    assert [(half.pair, half.unit, half.case_id) for half in asked] == [(0, i, f"p{i}") for i in range(8)]
    assert made.ending() is Ending.CLEAN
    assert made.candidate_units() == 8
    view = made.view()
    assert view.candidate_rate_upper == pytest.approx(0.3123, abs=1e-4)
    assert view.pairs == () and view.candidate_units == 8 and view.candidate_bad == 0


def test_a_window_ends_at_its_first_bad_unit_and_the_baseline_runs_the_same_prompts() -> None:
    made = replicate()
    assert runs(feed(made, "xxxxx", ".....")) == "c0x1 b0x8 c1x1 b1x4 c2x1 b2x4 c3x1 b3x4 c4x1 b4x4"
    assert made.ending() is Ending.CONFIRMED
    assert made.view().e_value == pytest.approx(2.362869198312236**5)
    assert made.view().carrying_prompts == ("p0", "p8", "p12", "p16", "p20")
    assert made.view().pairs[1].case_id == "p8, p9, p10, p11"
    assert made.candidate_units() == made.candidate_bad() == 5
    assert window_prefills_needed(1, POLICY) == 5 + 8 + 16


def test_the_coin_orders_the_windows_after_the_first_pair() -> None:
    assert runs(feed(replicate(coins=False), "xx", "..")) == "c0x1 b0x8 b1x4 c1x1"


def test_one_bad_window_raises_e_once_however_many_of_its_cells_are_bad() -> None:
    made = replicate()
    feed(made, "x" + "." * 29, "." * 30)
    assert made.e_path()[0] == pytest.approx(2.3629, abs=1e-4)
    assert max(made.e_path()) < 40


def test_windows_count_any_unit_and_a_later_bad_one_is_told_by_its_prompt() -> None:
    made = replicate()
    for bad in (False, False, True):
        made.record(0, CANDIDATE, (bad,))
    for _ in range(8):
        made.record(0, BASELINE, (False,))
    view = made.view()
    assert [(pair.candidate_bad, pair.baseline_bad) for pair in view.pairs] == [(True, False)]
    assert view.carrying_prompts == ("p2",)
    assert (made.candidate_units(), made.candidate_bad()) == (3, 1)
    with pytest.raises(ValueError, match="pair 0 of replicate 1 has its candidate window already"):
        made.record(0, CANDIDATE, (False,))
    with pytest.raises(ValueError, match="pair 0 of replicate 1 has its baseline window already"):
        made.record(0, BASELINE, (False,))


def test_with_several_flags_a_window_goes_on_until_each_of_them_is_settled() -> None:
    made = replicate(flags=2)
    made.record(0, CANDIDATE, (True, False))
    assert 0 not in made.candidate
    half = made.next_half()
    assert half is not None and (half.unit, half.case_id) == (1, "p1")
    made.record(0, CANDIDATE, (False, True))
    assert made.candidate[0] == (True, True)
    assert made.candidate_bad() == 2
    feed(made, "", ".")
    assert made.baseline[0] == (False, False)
    assert made._carrying(0, 0) == ["p0"] and made._carrying(0, 1) == ["p1"]


def test_three_tries_without_a_measurement_abort_it_and_a_measured_unit_starts_the_count_anew() -> None:
    made = replicate()
    for _ in range(2):
        made.invalidate(0, CANDIDATE)
    half = made.next_half()
    assert half is not None and (half.unit, half.tries) == (0, 3)
    made.record(0, CANDIDATE, (False,))
    half = made.next_half()
    assert half is not None and (half.unit, half.tries) == (1, 1)
    for _ in range(3):
        made.invalidate(0, CANDIDATE)
    assert made.ending() is Ending.ABORTED


def test_nothing_confirms_that_was_not_separated() -> None:
    made = replicate()
    made.separation = None
    feed(made, "xxxxxx", "......")
    assert made.ending() is None


def enumerated(policy: ReplicatePolicy, baseline: float, candidate: float) -> Law:
    """Every way the shipped replicate can go, unit by unit, with its chance; prefills are counted in windows."""
    ends: dict[str, float] = defaultdict(float)
    spent: dict[str, float] = defaultdict(float)

    def walk(path: tuple[tuple[int, str, bool], ...], chance: float) -> None:
        made = replicate(policy)
        for pair, arm, bad in path:
            made.record(pair, arm, (bad,))
        half = made.next_half()
        if half is None:
            ends[str(made.ending())] += chance
            spent[str(made.ending())] += chance * len({(pair, arm) for pair, arm, _ in path})
            return
        rate = candidate if half.arm == CANDIDATE else baseline
        for bad, weight in ((True, rate), (False, 1 - rate)):
            walk((*path, (half.pair, half.arm, bad)), chance * weight)

    walk((), 1.0)
    return Law(
        ends["confirmed"], ends["clean"], ends["futile"], ends["capped"], sum(spent.values()), spent["confirmed"]
    )


@pytest.mark.parametrize(("baseline", "candidate"), [(0.1, 0.3), (0.5, 0.5), (0.02, 0.9)])
def test_it_follows_the_exact_law_of_single_pairs_at_the_rates_of_whole_windows(
    baseline: float, candidate: float
) -> None:
    policy = ReplicatePolicy(threshold=5.0, max_pairs=3, clean_units=2)  # later windows hold one unit
    shipped = enumerated(policy, baseline, candidate)
    whole = ReplicatePolicy(threshold=5.0, max_pairs=3, clean_units=1)
    rule = Rule("windows", static(), threshold=5.0, clean_units=1, max_pairs=3)
    same = law_of(rule, baseline, candidate)
    ones = enumerated(whole, baseline, candidate)
    for name in ("confirmed", "clean", "futile", "capped", "prefills", "prefills_confirmed"):
        assert getattr(ones, name) == pytest.approx(getattr(same, name), abs=1e-12), name
    assert shipped.clean == pytest.approx((1 - candidate) ** 2)  # any of two
    assert shipped.confirmed + shipped.clean + shipped.futile + shipped.capped == pytest.approx(1)


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.2, 0.3, 0.5, 0.9])
def test_windows_alike_confirm_within_the_bound_whatever_their_rate(rate: float) -> None:
    """The exact law of windows of which each arm's is bad with the same chance, whatever happens inside."""
    rule = Rule("windows", static(), clean_units=1)
    assert law_of(rule, rate, rate).confirmed <= 1 / 40
    assert law_of(Rule("second", static(), threshold=80.0, clean_units=1), rate, rate).confirmed <= 1 / 80


@pytest.mark.parametrize(("number", "flags", "pairs"), [(1, 1, 5), (2, 1, 6), (3, 1, 6), (4, 1, 8), (1, 2, 6)])
def test_the_fewest_windows_and_prefills_that_can_confirm(number: int, flags: int, pairs: int) -> None:
    assert window_pairs_needed(number, POLICY, flags) == pairs
    assert window_prefills_needed(number, POLICY, flags) == pairs + 8 + 4 * (pairs - 1)
    if number == 1 and flags == 1:
        assert window_prefills_needed(number, POLICY) == window_prefills_needed(number, POLICY, 1) == 29
        assert window_pairs_needed(number, POLICY) == 5
