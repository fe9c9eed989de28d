"""From classes to counts: n, k, the units of one arm and its numbers (STATISTICS.md section 1)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from scipy.stats import beta

from prefillgate.core.cells import BASELINE, CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.freshness import classify
from prefillgate.core.units import UnitLedger, build_ledger, count_arm, floor_of_sum
from tests.support.cell_logs import cell, copy, fresh

NONCE = ColdProof.NONCE


def ledger(*cells: Cell, flag: str | None = None) -> UnitLedger:
    return build_ledger(classify(cells), CANDIDATE, flag)


def k(*cells: Cell) -> int:
    return ledger(*cells).bad


def n(*cells: Cell) -> int:
    return ledger(*cells).decision_prefills


def unproven(case: str = "p", **more: Any) -> Cell:
    """A copy by its cached share whose counters do not agree."""
    return cell(case, cached=996, **({"processed_tokens": 1000} | more))


def unknown(**more: Any) -> Cell:
    return cell(cached=None, **more)


# n


def test_n_is_the_floor_of_the_summed_shares_that_were_prefilled() -> None:
    half_percent = [fresh(cached=5) for _ in range(3)]
    assert n(*half_percent) == 2  # 3 x .995
    assert n(*(fresh(cached=50) for _ in range(20))) == 19  # 20 x .95 = 19 exactly
    assert n(*(fresh(cached=50) for _ in range(19))) == 18  # 18.05
    assert n(*(fresh() for _ in range(7))) == 7
    assert n() == 0


def test_n_is_exact_where_doubles_are_not() -> None:
    assert n(*(fresh(cached=1, length=30) for _ in range(30))) == 29  # 30 x 29/30
    assert sum(29 / 30 for _ in range(30)) < 29
    assert n(*(cell(cached=None, cold_proof=NONCE) for _ in range(20))) == 19
    assert n(*(cell(cached=None, cold_proof=NONCE) for _ in range(40))) == 38


@pytest.mark.parametrize(
    ("weights", "floor"),
    [
        ([], 0),
        ([Fraction(1)], 1),
        ([Fraction(1, 3)] * 3, 1),
        ([Fraction(1, 3)] * 2, 0),
        ([Fraction(1, 3)] * 5, 1),
        ([Fraction(1, 2), Fraction(499_999, 1_000_000)], 0),
        ([Fraction(1, 2), Fraction(1, 2) - Fraction(1, 10**30)], 0),
        ([Fraction(1, 2), Fraction(1, 2) + Fraction(1, 10**30)], 1),
        ([Fraction(10**7 - 1, 10**7)], 0),
        ([Fraction(1)] * 9 + [Fraction(10**9 - 1, 10**9)], 9),
    ],
)
def test_a_sum_near_a_whole_number_is_taken_exactly(weights: list[Fraction], floor: int) -> None:
    assert floor_of_sum(weights) == floor
    assert floor_of_sum(iter(weights)) == floor


def test_a_unit_whose_own_outcome_is_unknown_is_no_clean_evidence() -> None:
    assert n(fresh(bad=None), fresh()) == 1
    assert n(fresh(bad=None), copy(), copy(bad=True)) == 0
    seen = count_arm(classify([fresh(bad=None), copy(), fresh()]), CANDIDATE)
    assert (seen.requests, seen.prefills, seen.copies, seen.decision_prefills) == (3, 2, 1, 1)


def test_copies_change_no_n_and_clean_ones_no_k() -> None:
    assert (n(fresh(), *[copy()] * 11), k(fresh(), *[copy()] * 11)) == (1, 0)


def test_only_fresh_cells_enter_n() -> None:
    assert n(fresh(), copy(), fresh(cached=100), copy("q"), unknown(), cell(processed_tokens=4)) == 1


# k


def test_a_unit_is_bad_once_by_its_own_cell_or_by_proven_copies() -> None:
    assert k(fresh(bad=True), copy(bad=True), copy(bad=True)) == 1
    assert k(fresh(), copy(), copy(bad=True), copy(bad=True)) == 1
    assert k(fresh(bad=True), copy()) == 1
    assert k(fresh(bad=True), fresh(bad=True)) == 2


def test_a_unit_keeps_its_own_outcome_beside_that_of_its_copies() -> None:
    unit = ledger(fresh(), copy(bad=True)).units[0]
    assert (unit.own_outcome, unit.copy_bad, unit.bad, unit.copies) == (False, True, True, 1)
    unit = ledger(fresh(bad=None), copy(bad=None), copy()).units[0]
    assert (unit.own_outcome, unit.copy_bad, unit.bad, unit.copies) == (None, False, None, 2)
    assert ledger(fresh(bad=None), copy(bad=True)).units[0].bad is True
    assert ledger(fresh(bad=True)).units[0].bad is True
    assert ledger(fresh()).units[0].bad is False


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_bad_copies_without_proof_never_merge_whatever_their_order(order: tuple[int, ...]) -> None:
    copies = [copy(bad=True), unproven(bad=True), unproven(bad=True)]
    assert k(fresh(bad=True), *(copies[place] for place in order)) == 3
    assert k(fresh(), *(copies[place] for place in order)) == 3


def test_a_bad_copy_without_proof_is_no_part_of_its_unit() -> None:
    seen = ledger(fresh(), unproven(bad=True))
    assert (seen.bad, seen.suspects, seen.units[0].bad, seen.units[0].copies) == (1, 1, False, 1)
    assert ledger(fresh(), unproven()).bad == 0


def test_bad_partial_unknown_and_contradicted_cells_count_each_once() -> None:
    partial, contradicted = fresh(cached=100, bad=True), cell(processed_tokens=4, bad=True)
    assert k(fresh(), partial, partial) == 2
    assert k(fresh(), contradicted, contradicted, contradicted) == 3
    assert k(unknown(bad=True), unknown(bad=True)) == 2
    assert k(fresh(), fresh(cached=100), cell(processed_tokens=4), unknown(), unknown(bad=None)) == 0


@pytest.mark.parametrize(
    "kind",
    [{"cached": 100, "processed_tokens": 900}, {"cached": None}, {"processed_tokens": 4}],
    ids=["partial", "unknown", "contradicted"],
)
def test_a_strict_log_whose_timeouts_are_unproven_counts_every_one(kind: dict[str, Any]) -> None:
    """Merged they would be one bad unit of twelve prompts, and a candidate that times out would be promoted."""
    assert k(fresh(), *(cell(bad=True, **kind) for _ in range(9))) == 9


def test_a_bad_orphan_prompt_counts_once_for_all_its_proven_copies() -> None:
    assert k(copy(bad=True), copy(bad=True), copy()) == 1
    assert k(copy(), copy(bad=True)) == 1
    assert k(copy(bad=True), copy("q", bad=True)) == 2
    assert k(copy(bad=True), copy(bad=True, server_epoch="f")) == 2
    assert k(copy(), copy("q")) == 0


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_bad_orphans_without_proof_count_each_whatever_their_order(order: tuple[int, ...]) -> None:
    orphans = [copy(bad=True), fresh(cached=100, bad=True)]
    assert k(*(orphans[place] for place in order)) == 2
    assert k(fresh(cached=100, bad=True), fresh(cached=200, bad=True)) == 2
    assert ledger(unproven(bad=True), unproven(bad=True)).bad_orphans == 2
    assert k(fresh(cached=100)) == 0


def test_an_orphan_prompt_is_apart_from_a_unit_that_comes_later() -> None:
    assert k(copy(bad=True), fresh(), copy(bad=True)) == 2
    assert k(copy(bad=True), fresh(bad=True), copy(bad=True)) == 2


def test_failed_cells_are_bad_with_and_without_cold_proof() -> None:
    dead = unknown(bad=None, status=Status.FAILED)
    proven = unknown(bad=None, status=Status.FAILED, cold_proof=ColdProof.CACHE_OFF)
    assert (n(proven), k(proven), len(ledger(proven).units)) == (1, 1, 1)
    assert (n(dead), k(dead), len(ledger(dead).units)) == (0, 1, 0)
    assert k(fresh(bad=False, status=Status.FAILED)) == 1


def test_invalid_cells_are_never_scored() -> None:
    seen = count_arm(classify([fresh(bad=True, status=Status.INVALID), fresh()]), CANDIDATE, invalid=1)
    assert (seen.requests, seen.prefills, seen.bad_for_promotion, seen.invalid) == (1, 1, 0, 1)
    assert count_arm(classify([fresh()]), CANDIDATE).invalid == 0


def test_the_arms_are_apart() -> None:
    classified = classify([fresh(bad=True), fresh(arm=BASELINE), fresh(arm=BASELINE, bad=True), unknown(bad=True)])
    assert (build_ledger(classified, CANDIDATE).bad, build_ledger(classified, BASELINE).bad) == (2, 1)
    assert len(build_ledger(classified, BASELINE).units) == 2


def test_each_flag_has_its_own_units() -> None:
    told = fresh(bad=True, flag_outcomes=(("slow", False), ("wrong", True), ("odd", None)))
    assert [ledger(told, flag=flag).bad for flag in (None, "slow", "wrong", "odd")] == [1, 0, 1, 0]
    assert ledger(told, flag="odd").decision_prefills == 0
    assert ledger(told, flag="slow").decision_prefills == 1


# Start order


def test_the_timeline_has_units_and_bad_cells_outside_of_them_in_start_order() -> None:
    cells = [
        fresh("a"),
        copy("a", bad=True),
        unknown(bad=True),
        unknown(),
        fresh("b", arm=BASELINE, bad=True),
        fresh("b", replicate=1, bad=True),
        unproven("a", bad=True),
        copy("z", bad=True),
        copy("z", bad=True),
        fresh("c", bad=None),
        fresh("d"),
    ]
    seen = ledger(*cells)
    assert [(position, replicate, unit is not None) for position, replicate, unit in seen.timeline] == [
        (0, 0, True),
        (2, 0, False),
        (5, 1, True),
        (6, 0, False),
        (7, 0, False),
        (9, 0, True),
        (10, 0, True),
    ]
    assert [unit.number for unit in seen.units] == [0, 1, 2, 3]
    assert seen.outcomes() == [True, True, True, True, False]
    assert seen.outcomes(after=0) == [True, True, True, False]
    assert seen.outcomes(after=6) == [True, False]
    assert seen.outcomes(after=10) == []


def test_weights_are_told_by_case() -> None:
    seen = ledger(fresh("a", cached=10), fresh("a", bad=True), fresh("b"), copy("b", bad=True), fresh("c", bad=None))
    assert seen.weights_by_case() == {"a": [Fraction(99, 100), Fraction(1)], "b": [Fraction(1)]}


# One arm restated


def test_an_arm_is_restated_in_requests_and_in_prefills() -> None:
    cells = [
        fresh("a"),
        copy("a", bad=True),
        copy("a"),
        fresh("b", bad=True),
        fresh("c", cached=50, bad=None),
        fresh("a", cached=100, bad=True),
        unknown(bad=True),
        cell("b", processed_tokens=3),
        copy("z", bad=True),
        copy("z"),
        fresh("a", arm=BASELINE),
    ]
    seen = count_arm(classify(cells), CANDIDATE)
    assert (seen.requests, seen.prefills, seen.decision_prefills) == (10, 3, 2)
    assert (seen.copies, seen.partial, seen.unknown, seen.orphans) == (2, 1, 2, 2)
    assert (seen.bad_requests, seen.bad_prefills, seen.bad_for_promotion) == (5, 2, 5)
    assert seen.request_interval == pytest.approx((beta.ppf(0.025, 5, 5), beta.ppf(0.975, 6, 4)), rel=1e-9)
    assert seen.prefill_interval == pytest.approx((beta.ppf(0.025, 2, 1), 1.0), rel=1e-9)
    assert seen.effective_prefills == pytest.approx(25 / 11)  # clusters of 3, 1, 1


def test_an_arm_that_was_never_asked_has_zeros_and_no_interval() -> None:
    seen = count_arm(classify([fresh()]), BASELINE)
    assert (seen.requests, seen.prefills, seen.decision_prefills, seen.bad_for_promotion) == (0, 0, 0, 0)
    assert (seen.request_interval, seen.prefill_interval, seen.effective_prefills) == (None, None, None)


def test_unknown_outcomes_are_in_no_interval() -> None:
    seen = count_arm(classify([fresh(bad=None), fresh()]), CANDIDATE)
    assert seen.request_interval == pytest.approx((0.0, 0.975), rel=1e-9)
    assert seen.prefill_interval == pytest.approx((0.0, 0.975), rel=1e-9)
    assert count_arm(classify([fresh(bad=None)]), CANDIDATE).prefill_interval is None


@pytest.mark.parametrize(("sizes", "expected"), [((6, 6), 2.0), ((11, 1), 144 / 122)])
def test_kish_is_told_beside_n(sizes: tuple[int, ...], expected: float) -> None:
    cells = [
        each for place, size in enumerate(sizes) for each in (fresh(f"p{place}"), *[copy(f"p{place}")] * (size - 1))
    ]
    assert count_arm(classify(cells), CANDIDATE).effective_prefills == pytest.approx(expected)
