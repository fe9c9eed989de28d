"""What the rules answer from a log alone: acceptance, alarm, distrust, replicates and their separation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.acceptance import QUICK, STANDARD, STRICT
from prefillgate.core.audit import NO_THROUGHPUT, audit_facts, clean_needed
from prefillgate.core.cells import BASELINE, CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.facts import Facts
from prefillgate.core.freshness import classify
from prefillgate.core.journal import Purpose
from prefillgate.core.judge import write_verdict
from prefillgate.core.policy import Policy
from prefillgate.core.units import build_ledger
from prefillgate.core.verdict import ReplicateView, Verdict
from tests.support.cell_logs import START, cell, copy, fresh, pairs

TRIGGER = START - 10_000.0
# STATISTICS.md section 4: planned at .02 and .40, so the mean is .21; candidate then baseline, b bad, g good.
FACTORS = {
    "bg": 0.40 / 0.21 * 0.98 / 0.79,
    "gg": 0.60 / 0.79 * 0.98 / 0.79,
    "bb": 0.40 / 0.21 * 0.02 / 0.21,
    "gb": 0.60 / 0.79 * 0.02 / 0.21,
}
CACHE_OFF, SALT, NONCE = ColdProof.CACHE_OFF, ColdProof.SALT, ColdProof.NONCE


def facts(cells: list[Cell], policy: Policy = STANDARD) -> Facts:
    return audit_facts(cells, policy, "log")


def verdict(cells: list[Cell], policy: Policy = STANDARD) -> Verdict:
    return write_verdict(facts(cells, policy))


def answer(cells: list[Cell], policy: Policy = STANDARD) -> tuple[str, str]:
    decision = verdict(cells, policy).decision
    return decision.decision.value, decision.reason


def screen(count: int, prompts: int = 12, bad: int = 0, **more: Any) -> list[Cell]:
    """Fresh candidate cells over prompts in turn, the first `bad` of them bad."""
    return [fresh(f"c{place % prompts}", bad=place < bad, **more) for place in range(count)]


def trigger(**more: Any) -> list[Cell]:
    """Two bad prefills: an alarm."""
    return [fresh("c0", bad=True, **({"started_at": TRIGGER + place} | more)) for place in range(2)]


# Promote


@pytest.mark.parametrize(
    ("policy", "units", "bad", "expected"),
    [
        (STANDARD, 32, 0, "promote"),
        (STANDARD, 31, 0, "hold"),
        (QUICK, 16, 0, "promote"),
        (QUICK, 15, 0, "hold"),
        (STRICT, 67, 0, "promote"),
        (STRICT, 66, 0, "hold"),
    ],
)
def test_a_clean_log_is_promoted_at_the_first_entry(policy: Policy, units: int, bad: int, expected: str) -> None:
    assert answer(screen(units, prompts=4, bad=bad), policy)[0] == expected


def spread(units: int, bad_at: tuple[int, ...], prompts: int = 12) -> list[Cell]:
    """Bad cells far enough apart that no alarm is raised."""
    return [fresh(f"c{place % prompts}", bad=place in bad_at) for place in range(units)]


@pytest.mark.parametrize(
    ("units", "bad_at", "expected"),
    [
        (56, (5,), ("promote", "AcceptanceReached")),
        (55, (5,), ("hold", "MoreEvidenceNeeded")),
        (75, (5, 40), ("promote", "AcceptanceReached")),
        (74, (5, 40), ("hold", "MoreEvidenceNeeded")),
        (99, (5, 40, 70), ("hold", "ReplicateDue")),
        (75, (), ("promote", "AcceptanceReached")),
    ],
)
def test_more_bad_prefills_need_more_clean_ones(units: int, bad_at: tuple[int, ...], expected: tuple[str, str]) -> None:
    assert answer(spread(units, bad_at)) == expected


def test_what_is_still_missing_is_told() -> None:
    assert facts(spread(20, (5,))).clean_prefills_needed == 36
    assert facts(spread(74, (5, 40))).clean_prefills_needed == 1
    assert facts(spread(99, (5, 40, 70))).clean_prefills_needed is None
    assert "1 more clean fresh prefills would promote." in verdict(spread(74, (5, 40))).decision.what_would_change


def test_why_more_are_missing_than_n_says_is_told_of_prefills_on_few_prompts() -> None:
    share = "In a log the gate did not plan one prompt supplies at most {} prefills to that."
    crowded = [*(fresh("c0") for _ in range(40)), *(fresh(f"c{number}") for number in range(1, 12))]
    assert verdict(crowded).decision.what_would_change[:2] == (
        "18 more clean fresh prefills would promote.",
        share.format(3),
    )
    assert not any("one prompt supplies" in part for part in verdict(spread(20, (5,))).decision.what_would_change)
    assert share.format(5) in verdict([fresh("c0", bad=True), *crowded]).decision.what_would_change


def test_a_log_without_a_baseline_says_so() -> None:
    alone = "Baseline: no cell in this log; the candidate is judged by the acceptance table alone."
    assert alone in verdict(spread(20, ())).decision.sentences
    assert alone not in verdict([*spread(20, ()), fresh("c0", arm=BASELINE)]).decision.sentences


def test_n_is_the_floor_that_acceptance_looks_at() -> None:
    slightly = screen(32, cached=1)
    assert answer(slightly) == ("hold", "MoreEvidenceNeeded")
    assert answer([*slightly, fresh("c8", cached=1)])[0] == "promote"


def test_one_prompt_supplies_at_most_its_share_of_the_units() -> None:
    """P = 4: at most ceil(32/4) = 8 units of one prompt count at the first entry."""
    three = [fresh(f"c{place % 3}") for place in range(24)]
    seven, eight = ([fresh("c3")] * count for count in (7, 8))
    assert answer([*three, *eight])[0] == "promote"
    assert answer([*three, *seven])[0] == "hold"
    assert answer([*three, *[fresh("c0")] * 20, *seven])[0] == "hold"
    assert facts([*three, *[fresh("c0")] * 20, *seven]).clean_prefills_needed == 1


def test_units_beyond_a_prompts_share_count_against_it_when_they_are_bad() -> None:
    cells = [*(fresh(f"c{place % 4}") for place in range(56)), fresh("c0", bad=True)]
    ledger = build_ledger(classify(cells), CANDIDATE)
    assert ledger.bad == 1
    assert clean_needed(ledger, ["c0", "c1", "c2", "c3"], STANDARD) == 0  # ceil(56/4) = 14 of the 15 of c0
    two = [*(fresh(f"c{place % 4}") for place in range(56)), *[fresh("c0", bad=True)] * 2]
    assert clean_needed(build_ledger(classify(two), CANDIDATE), ["c0", "c1", "c2", "c3"], STANDARD) == 17


def test_the_share_is_filled_with_the_units_that_prefilled_most() -> None:
    cells = [fresh("c0", cached=50)] * 16 + [fresh("c0")] * 16 + [fresh("c1")] * 16
    assert facts(cells).clean_prefills_needed == 0
    assert facts([each for each in cells if each.cached_tokens or each.case_id == "c1"]).clean_prefills_needed == 1


def test_bad_units_fill_the_share_of_their_prompt() -> None:
    """P = 40: ceil(75/40) = 2 units of one prompt count at the last entry, here the two bad ones."""
    filled = [*[fresh("c0", bad=True)] * 2, *[fresh("c0")] * 5]
    others = [fresh(f"c{place}") for place in range(1, 40)] + [fresh(f"c{place}") for place in range(1, 34)]
    assert facts([*filled, *others]).clean_prefills_needed == 1
    assert facts([*filled, *others, fresh("c34")]).clean_prefills_needed == 0


def test_a_bad_unit_never_takes_the_place_of_a_clean_one_that_prefilled_more() -> None:
    """Else taking its proof from the bad cell, so that it is no unit, would raise n."""
    clean = [fresh(f"c{place % 4}") for place in range(56)]
    with_unit = [*clean, fresh("c0", cached=50, bad=True)]
    without = [*clean, cell("c0", cached=None, bad=True)]
    assert facts(with_unit).clean_prefills_needed == facts(without).clean_prefills_needed == 0


def test_a_later_entry_may_be_nearer_where_prompts_are_few() -> None:
    """With more units allowed at one prompt, the entry for 2 bad can be reached before the entry for none."""
    cells = [fresh("c0")] * 74 + [fresh("c1")]
    assert facts(cells).clean_prefills_needed == 15  # n_0: 16 of c0, 1 of c1
    assert facts([fresh("c0")] * 40).clean_prefills_needed == 0


def test_every_prompt_must_have_been_fresh() -> None:
    unseen = [fresh("never", arm=BASELINE)]
    assert answer([*screen(44), *unseen]) == ("hold", "MoreEvidenceNeeded")
    assert facts([*screen(44), *unseen]).clean_prefills_needed == 1
    assert answer([*screen(44), *unseen, cell("never", cached=None)])[0] == "hold"
    assert answer([*screen(44), *unseen, fresh("never", bad=None)])[0] == "hold"
    assert answer([*screen(44), *unseen, fresh("never")])[0] == "promote"
    assert answer([*screen(44), fresh("never", arm=BASELINE, status=Status.INVALID)])[0] == "promote"


def test_with_more_prompts_than_the_table_every_one_is_needed_once() -> None:
    assert facts(screen(80, prompts=80)).clean_prefills_needed == 0
    assert facts([*screen(79, prompts=80), fresh("c79", arm=BASELINE)]).clean_prefills_needed == 1


def test_bad_cells_that_are_no_units_count_against_promotion() -> None:
    assert answer([*screen(55), cell("c0", cached=None, bad=True)])[0] == "hold"
    assert answer([*screen(56), cell("c0", cached=None, bad=True)])[0] == "promote"
    assert facts([*screen(40), *[cell("c0", cached=None, bad=True)] * 3]).clean_prefills_needed is None


def test_copies_promote_nobody() -> None:
    assert answer([*screen(12), *[copy("c0")] * 100])[0] == "hold"


def test_a_log_without_a_candidate_decides_nothing() -> None:
    seen = verdict([fresh("a", arm=BASELINE)] * 40)
    assert (seen.decision.decision.value, seen.decision.reason) == ("hold", "MoreEvidenceNeeded")
    assert (seen.candidate.requests, seen.candidate.prefill_interval) == (0, None)


def test_a_log_of_invalid_cells_alone_decides_nothing() -> None:
    seen = facts([fresh(status=Status.INVALID)])
    assert seen.clean_prefills_needed is None
    assert seen.cases == ()
    assert seen.invalid == ((CANDIDATE, 1),)


# Alarm


def test_two_bad_prefills_near_each_other_raise_an_alarm() -> None:
    assert answer(screen(10, bad=2)) == ("hold", "ReplicateDue")
    assert answer(screen(10, bad=1)) == ("hold", "MoreEvidenceNeeded")
    assert facts([*screen(1, bad=1), *screen(4), fresh("c5", bad=True)]).snapshot.alarm
    seen = facts([*screen(1, bad=1), *screen(5), fresh("c5", bad=True)])
    assert not seen.snapshot.alarm
    assert not seen.ever_alarmed
    assert seen.alarm_level == pytest.approx(2 * 1.791759469228055 - 5 * 0.30538164955118186)
    assert seen.alarm_at == pytest.approx(2.302585092994046)


def test_an_alarm_stays_after_clean_prefills() -> None:
    assert answer([*screen(2, bad=2), *screen(90)]) == ("hold", "ReplicateDue")


def test_more_bad_than_the_table_allows_is_an_alarm() -> None:
    apart = spread(99, (5, 40, 70))
    assert facts(apart).snapshot.alarm
    assert facts(apart).snapshot.more_bad_than_allowed
    assert not facts(spread(99, (5, 40))).snapshot.alarm
    assert not facts(spread(99, (5, 40))).snapshot.more_bad_than_allowed


# Distrust


def test_a_log_without_any_proof_is_not_trusted() -> None:
    seen = verdict([cell(f"c{place}", cached=None) for place in range(40)])
    assert (seen.decision.reason, seen.decision.promotion.value) == ("IndependenceUnknown", "Blocked")
    assert "none of 40 candidate requests is proven to be a prefill of its own" in seen.decision.sentences[0]
    assert seen.decision.measured
    assert verdict([cell(processed_tokens=3)]).decision.reason == "IndependenceUnknown"
    assert verdict([cell(cached=None), fresh()]).decision.reason == "MoreEvidenceNeeded"
    assert verdict([copy()]).decision.reason == "MoreEvidenceNeeded"
    assert verdict([cell(arm=BASELINE, cached=None)]).decision.reason == "MoreEvidenceNeeded"


@pytest.mark.parametrize("proof", [CACHE_OFF, SALT])
@pytest.mark.parametrize("cached", [51, 996])
def test_a_cell_that_came_from_the_cache_though_the_request_forbade_it_is_not_trusted(
    proof: ColdProof, cached: int
) -> None:
    for cells in ([*screen(40), fresh("c0", cached, cold_proof=proof)], [fresh("z", cached, cold_proof=proof)]):
        assert answer(cells) == ("hold", "KnobNotHonoured")
    assert answer([*screen(40), fresh("c0", cached, cold_proof=proof, arm=BASELINE)]) == ("hold", "KnobNotHonoured")


def test_a_nonce_leaves_something_in_the_cache_and_choices_are_copies_by_nature() -> None:
    assert answer([*screen(40), fresh("c0", 100, cold_proof=NONCE)])[0] == "promote"
    assert answer([*screen(40), fresh("c0", 50, cold_proof=CACHE_OFF)])[0] == "promote"
    choices = [fresh("c0", request_id="r", choice_index=index, cold_proof=CACHE_OFF) for index in range(4)]
    assert answer([*screen(40), *choices])[0] == "promote"
    assert answer([*screen(40), cell("c0", cached=1200, cold_proof=CACHE_OFF)])[0] == "promote"


def invalid(count: int, case: str = "c0", **more: Any) -> list[Cell]:
    return [cell(case, cached=None, status=Status.INVALID, bad=None, **more)] * count


def test_three_invalid_cells_in_a_row_for_one_case_are_an_error() -> None:
    seen = verdict([*screen(40), *invalid(3)])
    assert (seen.decision.reason, seen.decision.measured) == ("InvalidCells", False)
    assert "3 invalid cells in a row for c0 on the candidate" in seen.decision.sentences[0]
    assert answer([*screen(40), *invalid(3), fresh("c0")]) == ("hold", "InvalidCells")
    assert answer([*screen(40), *invalid(2)])[0] == "promote"
    assert answer([*screen(40), *invalid(2), fresh("c0"), *invalid(2)])[0] == "promote"
    assert answer([*screen(40), *invalid(2), fresh("c1"), *invalid(1)]) == ("hold", "InvalidCells")
    assert answer([*screen(40), *invalid(2), *invalid(2, arm=BASELINE), *invalid(2, case="c1")])[0] == "promote"


def test_cells_of_a_server_that_asked_to_wait_are_not_among_the_three() -> None:
    cells = [*screen(40), *invalid(3)]
    assert audit_facts(cells, STANDARD, "log", {41}).ruling.reason.value == "AcceptanceReached"
    assert audit_facts(cells, STANDARD, "log", {0}).ruling.reason.value == "InvalidCells"
    assert audit_facts(cells, STANDARD, "log", {41}).invalid == ((CANDIDATE, 3),)


@pytest.mark.parametrize(("arm", "other"), [(CANDIDATE, BASELINE), (BASELINE, CANDIDATE)])
def test_invalid_cells_on_one_arm_alone_are_not_trusted(arm: str, other: str) -> None:
    """Fisher's p of 8 of 40 against 0 of 32 is .0065, of 7 of 39 against 0 of 32 .0117."""

    def log(count: int) -> list[Cell]:
        bad = [each for place in range(count) for each in invalid(1, f"c{place}", arm=arm)]
        return [*screen(32, arm=arm), *screen(32, arm=other), *bad]

    seen = verdict(log(8))
    assert (seen.decision.reason, seen.decision.measured) == ("ErrorsLopsided", True)
    assert f"8 of 40 cells of the {arm} were invalid, 0 of 32 of the {other}" in seen.decision.sentences[0]
    assert answer(log(7))[0] == "promote"
    assert answer([each for each in log(8) if each.arm == arm])[1] != "ErrorsLopsided"


# Replicates in a log


def replicate(cells: list[Cell], policy: Policy = STANDARD) -> ReplicateView:
    return verdict(cells, policy).replicates[-1]


def test_five_pairs_with_only_the_candidate_bad_allow_a_rollback() -> None:
    seen = verdict([*trigger(), *pairs("bg bg bg bg bg")])
    decision = seen.decision
    assert (decision.decision.value, decision.reason) == ("rollback", "RegressionConfirmed")
    assert (decision.rollback.value, decision.promotion.value) == ("Allowed", "Blocked")
    (view,) = seen.replicates
    assert (view.number, view.threshold, view.ending, view.separation) == (1, 40.0, "confirmed", "gap")
    assert view.e_value == pytest.approx(FACTORS["bg"] ** 5)
    assert view.e_value == pytest.approx(73.654, abs=0.001)
    assert [pair.case_id for pair in view.pairs] == ["c0", "c1", "c2", "c3", "c0"]
    assert view.carrying_prompts == ("c0", "c1", "c2", "c3")


@pytest.mark.parametrize(
    ("outcomes", "ending"),
    [
        ("bg bg bg bg", None),
        ("bg bg bg bg gg", None),
        ("bg bg bg bg gg bg", "confirmed"),
        ("bb", None),
        ("bb bb", "futile"),
        ("gb", None),
        ("gb gb", "futile"),
    ],
)
def test_the_e_value_of_a_log_is_that_of_its_pairs(outcomes: str, ending: str | None) -> None:
    view = replicate([*trigger(), *pairs(outcomes)])
    assert view.ending == ending
    assert view.e_value == pytest.approx(math.prod(FACTORS[pair] for pair in outcomes.split()))
    assert [pair.factor for pair in view.pairs] == pytest.approx([FACTORS[pair] for pair in outcomes.split()])


def test_eight_clean_candidate_prefills_end_it_without_a_baseline() -> None:
    assert replicate([*trigger(), *pairs("g- " * 8)]).ending == "clean"
    assert replicate([*trigger(), *pairs("g- " * 7)]).ending is None
    assert answer([*trigger(), *pairs("g- " * 7)]) == ("hold", "ReplicateRunning")
    view = replicate([*trigger(), *pairs("g- " * 8 + "bg " * 8)])
    assert view.ending == "clean"
    assert answer([*trigger(), *pairs("g- " * 8 + "bg " * 8)])[0] == "hold"


def test_a_replicate_that_ended_stays_ended() -> None:
    assert replicate([*trigger(), *pairs("gb gb " + "bg " * 20)]).ending == "futile"


def test_the_pairs_end_at_the_cap() -> None:
    level = "bg gg bg gg gg bb " * 6
    assert replicate([*trigger(), *pairs(level)]).ending == "capped"


def test_an_incomplete_pair_stops_the_e_value_and_no_pair_is_skipped() -> None:
    cells = [*trigger(), *pairs("bg bg b- bg bg bg bg bg", prompts=8)]
    view = replicate(cells)
    assert (view.ending, len(view.pairs), view.candidate_units) == (None, 2, 8)
    assert answer(cells) == ("hold", "ReplicateRunning")
    for unknown in ("bu", "ug"):
        view = replicate([*trigger(), *pairs(f"bg bg {unknown} bg bg bg bg bg", prompts=8)])
        assert (view.ending, len(view.pairs)) == (None, 2)


def test_mates_are_the_next_unused_baseline_cells_of_the_same_case() -> None:
    candidates = [each for each in pairs("bg bg bg bg bg bg") if each.arm == CANDIDATE]
    mates = [each for each in pairs("bg bg bg bg bg bg") if each.arm == BASELINE]
    assert replicate([*trigger(), *candidates, *mates]).ending == "confirmed"
    assert replicate([*trigger(), *candidates, *reversed(mates)]).ending == "confirmed"
    elsewhere = [replace(each, case_id="elsewhere") for each in mates]
    assert replicate([*trigger(), *candidates, *elsewhere]).pairs == ()
    other = verdict([*trigger(), *candidates, *(replace(each, replicate=2) for each in mates)])
    assert other.replicates[0].pairs == ()
    order = [replace(mates[0], bad=True), replace(mates[0], bad=False)]
    seen = replicate([*trigger(), candidates[0], candidates[0], *order])
    assert [pair.baseline_bad for pair in seen.pairs] == [True, False]


def test_mates_only_where_the_candidate_failed_confirm_nothing() -> None:
    """Every clean candidate unit without a mate is an incomplete pair: choosing the mates is not valid."""
    view = replicate([*trigger(), *pairs("bg g- bg g- bg g- bg bg bg")])
    assert (view.ending, len(view.pairs)) == (None, 1)


@pytest.mark.parametrize(("cached", "expected"), [(32, "confirmed"), (33, None)])
def test_a_replicate_takes_units_with_at_most_32_cached_tokens(cached: int, expected: str | None) -> None:
    warm = {"cached_tokens": cached, "processed_tokens": 1000 - cached}
    assert replicate([*trigger(), *pairs("bg bg bg bg bg", **warm)]).ending == expected


@pytest.mark.parametrize("arm", [CANDIDATE, BASELINE])
def test_a_half_that_is_no_unit_leaves_its_pair_incomplete(arm: str) -> None:
    """Copies, partials and unknowns never enter, and no pair is skipped for one."""
    good = pairs("bg bg bg bg bg bg", prompts=6)
    place = next(place for place, each in enumerate(good) if each.arm == arm and each.case_id == "c3")
    for told in (
        {"cached_tokens": 996, "processed_tokens": 4},
        {"cached_tokens": 100, "processed_tokens": 900},
        {"cached_tokens": None, "processed_tokens": None},
        {"processed_tokens": 3},
        {"status": Status.FAILED, "cached_tokens": None, "processed_tokens": None},
    ):
        view = replicate([*trigger(), *good[:place], replace(good[place], **told), *good[place + 1 :]])
        assert (view.ending, len(view.pairs)) == (None, 3)
        assert view.candidate_units == (5 if arm == CANDIDATE else 6)


def test_copies_after_their_pairs_change_nothing_and_before_them_nothing_is_confirmed() -> None:
    good = pairs("bg bg bg bg bg")
    late = START + 1000
    copies = [replace(each, cached_tokens=996, processed_tokens=4, started_at=late) for each in good]
    assert replicate([*trigger(), *good, *copies]).ending == "confirmed"
    mixed = [half for pair in zip(good, copies, strict=True) for half in pair]
    view = replicate([*trigger(), *(replace(each, started_at=START) for each in mixed)])
    assert (view.ending, len(view.pairs)) == (None, 1)


def test_a_failed_half_that_was_sent_cold_is_bad() -> None:
    dead = {
        "status": Status.FAILED,
        "cached_tokens": None,
        "processed_tokens": None,
        "bad": None,
        "cold_proof": CACHE_OFF,
    }
    good = pairs("bg bg", prompts=2)
    assert replicate([*trigger(), *good[:3], replace(good[3], **dead)]).pairs[1].baseline_bad
    assert replicate([*trigger(), *good[:2], replace(good[2], **dead), good[3]]).pairs[1].candidate_bad


def test_the_second_replicate_confirms_at_80() -> None:
    first = pairs("g- " * 8)
    later = {"number": 2, "start": START + 10_000}
    seen = verdict([*trigger(), *first, *pairs("bg bg bg bg bg", **later)])
    assert [view.ending for view in seen.replicates] == ["clean", None]
    assert seen.replicates[1].threshold == 80.0
    assert (seen.decision.reason, seen.decision.rollback.value) == ("ReplicateRunning", "Refused")
    seen = verdict([*trigger(), *first, *pairs("bg bg bg bg bg bg", **later)])
    assert [view.ending for view in seen.replicates] == ["clean", "confirmed"]
    assert seen.decision.rollback.value == "Allowed"


def test_a_confirmed_replicate_stands_whatever_follows() -> None:
    later = pairs("g- " * 8, number=2, start=START + 10_000)
    assert answer([*trigger(), *pairs("bg bg bg bg bg"), *later]) == ("rollback", "RegressionConfirmed")


def test_two_replicates_that_confirmed_nothing_leave_it_to_a_person() -> None:
    cells = [*trigger(), *pairs("g- " * 8), *pairs("g- " * 8, number=2, start=START + 10_000), *screen(80)]
    assert answer(cells) == ("hold", "RegressionNotConfirmed")


def test_a_replicate_broken_off_by_the_next_one_uses_up_its_attempt() -> None:
    cells = [*trigger(), *pairs("g- " * 3), *pairs("g- " * 8, number=2, start=START + 10_000)]
    seen = verdict([*cells, *screen(80, started_at=START + 20_000)])
    assert [view.ending for view in seen.replicates] == ["aborted", "clean"]
    assert seen.decision.reason == "RegressionNotConfirmed"


def test_after_a_replicate_that_was_not_confirmed_collection_goes_on() -> None:
    cells = [*trigger(), *pairs("g- " * 8)]
    assert answer(cells) == ("hold", "MoreEvidenceNeeded")
    late = {"started_at": START + 20_000}
    more = [
        fresh(f"c{case}", **late)
        for case, count in ((4, 7), (5, 7), (6, 7), (7, 7), (8, 7), (9, 7), (10, 7), (11, 7), (1, 5), (2, 4))
        for _ in range(count)
    ]
    assert answer([*cells, *more]) == ("promote", "AcceptanceReached")
    assert answer([*cells, *more[1:]]) == ("hold", "MoreEvidenceNeeded")
    assert answer([*cells, fresh("c9", bad=True, **late)]) == ("hold", "RegressionNotConfirmed")
    assert facts(cells).ever_alarmed


def test_a_new_alarm_after_a_replicate_asks_for_the_second() -> None:
    """The CUSUM starts anew at the replicate; its own cells do not enter."""
    first = fresh("c0", bad=True, started_at=TRIGGER)
    once = [first, *pairs("g- " * 8)]
    assert facts(once).alarm_level == 0.0
    assert answer([*once, fresh("c5", bad=True, started_at=START + 20_000)]) == ("hold", "MoreEvidenceNeeded")
    wide = replace(STANDARD, acceptance=(32, 56, 75, 99, 120))
    twice = [*once, *(fresh(f"c{place}", bad=True, started_at=START + 20_000 + place) for place in range(2))]
    assert facts(twice, wide).snapshot.alarm
    assert answer(twice, wide) == ("hold", "ReplicateDue")
    inside = [first, *pairs("bu bu " + "g- " * 8)]
    assert facts(inside, wide).alarm_level == 0.0


def test_a_replicate_alone_in_a_log_confirms_nothing() -> None:
    view = replicate(pairs("bg bg bg bg bg"))
    assert (view.ending, view.separation) == ("aborted", None)
    assert view.separation_detail == "no bad candidate cell before it: nothing triggered it"
    clean = [fresh("c0", started_at=TRIGGER), fresh("c0", arm=BASELINE, bad=True, started_at=TRIGGER)]
    assert replicate([*clean, *pairs("bg bg bg bg bg")]).ending == "aborted"


@pytest.mark.parametrize(("gap", "ending", "separation"), [(600.0, "confirmed", "gap"), (599.9, "aborted", None)])
def test_a_gap_of_ten_minutes_keeps_a_replicate_apart(gap: float, ending: str, separation: str | None) -> None:
    view = replicate([*trigger(), *pairs("bg bg bg bg bg", start=TRIGGER + 1 + gap)])
    assert (view.ending, view.separation) == (ending, separation)
    if separation is None:
        assert view.separation_detail == "only 600 s after the last bad cell, in the same server epoch"
    else:
        assert view.separation_detail == "600 s after the last bad cell"


def test_the_gap_runs_from_the_end_of_the_last_bad_cell_where_that_is_known() -> None:
    ended = trigger(ended_at=TRIGGER + 50.0)
    assert replicate([*ended, *pairs("bg bg bg bg bg", start=TRIGGER + 650.0)]).separation == "gap"
    assert replicate([*ended, *pairs("bg bg bg bg bg", start=TRIGGER + 649.9)]).separation is None


def test_the_gap_runs_to_the_first_cell_of_either_arm() -> None:
    early = fresh("c0", arm=BASELINE, replicate=1, started_at=TRIGGER + 300)
    assert replicate([*trigger(), early, *pairs("bg bg bg bg bg")]).separation is None


def test_the_gap_runs_from_the_last_bad_candidate_cell_before_it() -> None:
    good = {"start": TRIGGER + 1000}
    assert replicate([*trigger(), *pairs("bg bg bg bg bg", **good)]).separation == "gap"
    late = fresh("c0", bad=True, started_at=TRIGGER + 900)
    assert replicate([*trigger(), late, *pairs("bg bg bg bg bg", **good)]).separation is None
    for harmless in (replace(late, bad=False), replace(late, arm=BASELINE), replace(late, started_at=TRIGGER + 1100)):
        assert replicate([*trigger(), harmless, *pairs("bg bg bg bg bg", **good)]).separation == "gap"


def test_a_bad_cell_of_an_earlier_replicate_is_part_of_the_trigger() -> None:
    first = pairs("bg gg", start=TRIGGER + 1000)
    assert replicate([*trigger(), *first, *pairs("bg " * 6, number=2, start=TRIGGER + 1500)]).separation is None
    assert replicate([*trigger(), *first, *pairs("bg " * 6, number=2, start=TRIGGER + 1600)]).separation == "gap"


def test_a_restarted_candidate_keeps_a_replicate_apart() -> None:
    soon = pairs("bg bg bg bg bg", start=TRIGGER + 60)
    new = [replace(each, server_epoch="f") if each.arm == CANDIDATE else each for each in soon]
    view = replicate([*trigger(), *new])
    assert (view.ending, view.separation) == ("confirmed", "restart")
    assert view.separation_detail == "candidate epoch e before, f after"
    assert replicate([*trigger(), *new[:2]]).separation == "restart"
    assert replicate([*trigger(), *soon]).separation is None
    baseline = [replace(each, server_epoch="f") if each.arm == BASELINE else each for each in soon]
    assert replicate([*trigger(), *baseline]).separation is None


def test_every_cell_of_a_restarted_candidate_must_be_of_another_life() -> None:
    soon = pairs("bg bg bg bg bg", start=TRIGGER + 60, server_epoch="f")
    for other in ("e", None):
        mixed = [*soon[:-2], replace(soon[-2], server_epoch=other), soon[-1]]
        assert replicate([*trigger(), *mixed]).separation is None
    assert replicate([*trigger(server_epoch=None), *soon]).separation is None
    assert replicate([*trigger(), *soon]).separation == "restart"


def test_a_log_without_times_and_epochs_keeps_nothing_apart() -> None:
    told = {"started_at": None, "server_epoch": None}
    silent = [replace(each, **told) for each in (*trigger(), *pairs("bg bg bg bg bg"))]
    view = replicate(silent)
    assert (view.ending, view.separation) == ("aborted", None)
    assert view.separation_detail == "neither started_at nor server_epoch tells it apart from its trigger"
    half = [*trigger(), *(replace(each, **told) for each in pairs("bg bg bg bg bg"))]
    assert replicate(half).separation_detail == view.separation_detail
    late = [*(replace(each, **told) for each in trigger()), *pairs("bg bg bg bg bg")]
    assert replicate(late).separation_detail == view.separation_detail


def test_a_replicate_of_the_baseline_alone_has_no_candidate() -> None:
    view = replicate([*trigger(), *pairs("-g -g")])
    assert (view.ending, view.separation_detail) == ("aborted", "no candidate cell in it")


# What is told


def test_every_cell_is_shown_with_its_class_its_unit_and_why() -> None:
    cells = [fresh("a"), copy("a", bad=True), fresh("b", replicate=1), cell(status=Status.INVALID, bad=True)]
    views = facts(cells).cells
    assert [view.cell_id for view in views] == [0, 1, 2, 3]
    assert [view.cell_class and view.cell_class.value for view in views] == ["fresh", "copy", "fresh", None]
    assert [view.unit for view in views] == [1, 1, 2, None]
    assert [view.bad for view in views] == [False, True, False, None]
    assert [view.purpose for view in views] == [Purpose.SCREEN, Purpose.SCREEN, Purpose.REPLICATE, Purpose.SCREEN]
    assert [view.pair for view in views] == [None] * 4
    assert views[1].witness == "cached 996 of 1000"
    assert views[3].witness == ""


def test_quality_alone_is_judged_and_that_is_said() -> None:
    seen = verdict(screen(32))
    assert seen.throughput is NO_THROUGHPUT
    assert "Quality alone was judged; decode throughput was not compared." in seen.decision.sentences
    empty = (NO_THROUGHPUT.pairs, NO_THROUGHPUT.pairs_used, NO_THROUGHPUT.prompts_in_pairs, NO_THROUGHPUT.margin)
    assert empty == ((), 0, 0, 0.0)
    assert (NO_THROUGHPUT.e_not_worse, NO_THROUGHPUT.e_worse) == (1.0, 1.0)


def test_a_log_is_titled_and_spends_no_budget() -> None:
    seen = verdict([*screen(32), copy("c0"), fresh("c0", arm=BASELINE)])
    assert (seen.title, seen.prefills_used, seen.prompts) == ("log", 33, 12)
    assert facts(screen(300)).ruling.reason.value == "AcceptanceReached"
    assert facts(screen(1)).from_log
