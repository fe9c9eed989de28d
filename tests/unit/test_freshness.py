"""Every row of the table of STATISTICS.md section 1, on both sides of each boundary."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from prefillgate.core.cells import BASELINE, Cell, ColdProof, Status
from prefillgate.core.freshness import Classified, Classifier, claims_reuse, classify, in_time_order
from tests.support.cell_logs import cell, copy, fresh

CACHE_OFF, SALT, NONCE = ColdProof.CACHE_OFF, ColdProof.SALT, ColdProof.NONCE


def classes(*cells: Cell) -> list[str]:
    return [item.cell_class.value for item in classify(cells)]


def units(*cells: Cell) -> list[int | None]:
    return [item.unit for item in classify(cells)]


def last(*cells: Cell) -> Classified:
    return classify(cells)[-1]


def only(what: Cell) -> str:
    return classify([what])[0].cell_class.value


# Fresh: a small share by the cell's own counter, and something that speaks for the counter


@pytest.mark.parametrize(
    ("cached", "expected"),
    [(0, "fresh"), (50, "fresh"), (51, "partial"), (499, "partial"), (500, "copy"), (999, "copy"), (1000, "copy")],
)
def test_the_cached_share_decides_between_fresh_partial_and_copy(cached: int, expected: str) -> None:
    seen = last(fresh(), fresh(cached=cached))
    assert seen.cell_class.value == expected
    assert seen.witness == f"cached {cached} of 1000" + (f", processed {1000 - cached}" if expected == "fresh" else "")


@pytest.mark.parametrize(("cached", "share"), [(0, Fraction(0)), (1, Fraction(1, 1000)), (50, Fraction(1, 20))])
def test_a_fresh_cell_keeps_its_cached_share_exactly(cached: int, share: Fraction) -> None:
    assert last(fresh(cached=cached)).reused_share == share


def test_what_is_not_fresh_has_no_share() -> None:
    cells = [fresh(), copy(), fresh(cached=100), copy("q"), cell(processed_tokens=4)]
    assert [item.reused_share for item in classify(cells)] == [0, 0, 0, 0, 0]


def test_a_counter_that_nothing_speaks_for_is_unknown() -> None:
    seen = last(cell())
    assert (seen.cell_class.value, seen.unit, seen.proven) == ("unknown", None, False)
    assert seen.witness == "cached 0 of 1000, but no second witness and no sign of life of the counter"


@pytest.mark.parametrize(("processed", "expected"), [(999, "contradicted"), (1000, "fresh"), (1001, "contradicted")])
def test_processed_tokens_must_make_up_the_prompt(processed: int, expected: str) -> None:
    assert only(cell(processed_tokens=processed)) == expected
    assert only(cell(cached=10, length=1010, processed_tokens=processed)) == expected


@pytest.mark.parametrize(("moved", "expected"), [(959, "contradicted"), (960, "fresh"), (961, "contradicted")])
def test_the_delta_of_the_servers_counter_must_make_up_the_prompt(moved: int, expected: str) -> None:
    assert only(cell(cached=40, counter_processed_tokens=moved)) == expected
    assert only(cell(cached=40, processed_tokens=960, counter_processed_tokens=moved)) == expected


def test_a_contradiction_says_which_witness_spoke_against_it() -> None:
    assert last(cell(processed_tokens=4)).witness == "cached 0 of 1000, but processed 4"
    moved = last(cell(counter_processed_tokens=4))
    assert moved.witness == "cached 0 of 1000, but the server's counter moved by 4"
    assert (moved.unit, moved.proven) == (None, False)


def test_every_second_witness_is_named() -> None:
    assert last(cell(counter_processed_tokens=1000)).witness == "cached 0 of 1000, the server's counter moved by 1000"
    assert last(cell(cold_proof=SALT)).witness == "cached 0 of 1000, cold proof salt"
    assert last(cell(counter_alive=True)).witness == "cached 0 of 1000, the counter seen alive in this epoch"


def test_a_counter_that_the_probe_saw_alive_is_believed_in_its_epoch_alone() -> None:
    assert classes(cell(counter_alive=True), cell("q")) == ["fresh", "fresh"]
    assert classes(cell("q"), cell(counter_alive=True)) == ["fresh", "fresh"]
    assert classes(cell(counter_alive=True), cell(server_epoch="f")) == ["fresh", "unknown"]
    assert classes(cell(counter_alive=True), cell(arm=BASELINE)) == ["fresh", "unknown"]


def test_a_counter_that_another_cell_saw_above_zero_is_believed() -> None:
    assert classes(cell(), copy("q")) == ["fresh", "orphan"]
    assert classes(cell(), copy("q", server_epoch="f")) == ["unknown", "orphan"]
    assert classes(cell(), copy("q", arm=BASELINE)) == ["unknown", "orphan"]


def test_its_own_count_above_zero_is_no_sign_of_life() -> None:
    assert classes(cell(cached=10)) == ["unknown"]
    assert classes(cell(cached=10), cell("q", cached=10)) == ["fresh", "fresh"]
    assert classes(cell(cached=10), cell("q")) == ["unknown", "fresh"]


def test_fresh_cells_open_units_numbered_within_their_arm() -> None:
    seen = classify([fresh(), fresh("q"), fresh(arm=BASELINE), fresh(), fresh("q", arm=BASELINE)])
    assert [item.unit for item in seen] == [0, 1, 0, 2, 1]
    assert all(item.proven for item in seen)


# Copy: joins the latest fresh unit of its arm, epoch and prompt


def test_a_copy_joins_the_latest_fresh_unit_of_its_prompt() -> None:
    assert units(fresh(), copy(), fresh(), copy(), fresh("q"), copy()) == [0, 0, 1, 1, 2, 1]


@pytest.mark.parametrize("other", [{"server_epoch": "f"}, {"arm": BASELINE}, {"prompt_sha256": "another"}])
def test_a_copy_without_a_parent_in_its_arm_epoch_and_prompt_is_an_orphan(other: dict[str, Any]) -> None:
    seen = last(fresh(), copy(**other))
    assert (seen.cell_class.value, seen.unit) == ("orphan", None)
    assert seen.witness == "cached 996 of 1000, its fresh parent never seen"


def test_the_digest_tells_prompts_apart_and_the_case_does_where_there_is_none() -> None:
    assert units(fresh("a", prompt_sha256="x"), copy("b", prompt_sha256="x")) == [0, 0]
    assert units(fresh("a"), copy("a")) == [0, 0]
    assert units(fresh("a"), copy("b")) == [0, None]


def test_only_a_copy_whose_counters_agree_is_proven() -> None:
    assert last(fresh(), copy()).proven
    assert last(fresh(), cell(cached=996)).proven
    assert not last(fresh(), cell(cached=996, processed_tokens=1000)).proven
    assert last(fresh(), cell(cached=996, processed_tokens=1000)).unit == 0


def test_an_orphan_keeps_whether_it_is_proven() -> None:
    assert last(copy()).proven
    assert not last(cell(cached=996, processed_tokens=1000)).proven
    assert not last(fresh(cached=100)).proven


def test_other_choices_of_a_request_are_copies_whatever_their_counters_say() -> None:
    first, *others = (fresh(request_id="r", choice_index=index) for index in range(4))
    seen = classify([first, *others])
    assert [item.cell_class.value for item in seen] == ["fresh", "copy", "copy", "copy"]
    assert [item.unit for item in seen] == [0, 0, 0, 0]
    assert seen[1].witness == "another choice of one request"
    assert seen[1].proven


def test_choices_join_the_unit_of_their_own_request() -> None:
    assert units(fresh(request_id="r"), fresh(request_id="s"), fresh(request_id="r", choice_index=1)) == [0, 0, 1]
    assert units(fresh(request_id="r"), copy(request_id="s"), fresh(request_id="s", choice_index=1)) == [0, 0, 0]


def test_a_copy_joins_the_latest_unit_even_after_a_choice_of_an_earlier_one() -> None:
    assert units(fresh(request_id="r"), fresh(), fresh(request_id="r", choice_index=1), copy()) == [0, 0, 1, 1]
    late = fresh(request_id="r", choice_index=1, started_at=9.0)
    assert units(fresh(request_id="r"), fresh(), copy(), late) == [0, 0, 1, 1]


def test_choices_of_a_request_that_is_no_unit_are_orphans() -> None:
    assert classes(cell(request_id="r"), fresh(request_id="r", choice_index=1)) == ["unknown", "orphan"]


def test_one_request_has_one_arm_epoch_and_prompt() -> None:
    mine = fresh(request_id="r")
    assert classes(mine, fresh("q", request_id="r")) == ["fresh", "fresh"]
    assert classes(mine, fresh(request_id="r", server_epoch="f")) == ["fresh", "fresh"]
    assert classes(mine, fresh(request_id="r", arm=BASELINE)) == ["fresh", "fresh"]
    assert classes(mine, fresh("q", request_id="r", prompt_sha256="p")) == ["fresh", "copy"]


def test_a_later_choice_without_a_request_id_rides_on_the_latest_prefill() -> None:
    assert units(fresh(choice_index=0), fresh(choice_index=1), fresh(choice_index=0)) == [0, 0, 1]
    assert classes(fresh(choice_index=1)) == ["orphan"]
    assert last(fresh(choice_index=1)).witness == "another choice of one request, its fresh parent never seen"


# In flight: only where the engine shares blocks


def flying(started: float, ended: float | None, **more: Any) -> Cell:
    return fresh(**({"started_at": started, "ended_at": ended, "shares_blocks": True} | more))


def test_the_same_prompt_in_flight_on_a_server_that_shares_blocks_is_a_copy() -> None:
    seen = last(flying(0, 10), flying(9.5, 20))
    assert (seen.cell_class.value, seen.unit, seen.proven) == ("copy", 0, True)
    assert seen.witness == "in flight beside the same prompt"


def test_a_request_that_starts_when_the_other_ends_is_not_in_flight_beside_it() -> None:
    assert classes(flying(0, 10), flying(10, 20)) == ["fresh", "fresh"]


@pytest.mark.parametrize("other", [{"shares_blocks": False}, {"case": "q"}, {"server_epoch": "f"}, {"arm": BASELINE}])
def test_in_flight_needs_shared_blocks_and_the_same_prompt_on_the_same_server(other: dict[str, Any]) -> None:
    assert classes(flying(0, 10), flying(5, 20, **other)) == ["fresh", "fresh"]


def test_without_a_start_or_an_end_nothing_is_in_flight() -> None:
    assert classes(flying(0, None), flying(5, 20)) == ["fresh", "fresh"]
    assert classes(flying(0, 10), replace(flying(5, 20), started_at=None)) == ["fresh", "fresh"]


def test_a_prompt_is_in_flight_until_the_last_of_its_requests_ended() -> None:
    assert classes(flying(0, 30), flying(5, 10), flying(20, 40)) == ["fresh", "copy", "copy"]
    assert classes(flying(0, 10), flying(5, 30), flying(20, 40)) == ["fresh", "copy", "copy"]


def test_in_flight_beside_what_is_no_unit_is_an_orphan() -> None:
    assert classes(flying(0, 10, processed_tokens=None), flying(5, 20)) == ["unknown", "orphan"]


# Partial and orphan


def test_a_partial_is_one_only_beside_its_parent() -> None:
    assert classes(fresh(cached=100)) == ["orphan"]
    assert last(fresh(cached=100)).witness == "cached 100 of 1000, its fresh parent never seen"
    seen = last(fresh(), fresh(cached=100))
    assert (seen.cell_class.value, seen.unit, seen.proven) == ("partial", None, False)


# Unknown: no counter, fresh only with cold proof


def test_without_a_counter_only_cold_proof_makes_fresh() -> None:
    assert last(cell(cached=None)).cell_class.value == "unknown"
    assert last(cell(cached=None)).witness == "no cached-token counter and no cold proof"
    assert last(cell(cached=None, counter_alive=True, processed_tokens=1000)).cell_class.value == "unknown"


@pytest.mark.parametrize(("proof", "share"), [(CACHE_OFF, Fraction(0)), (SALT, Fraction(0)), (NONCE, Fraction(1, 20))])
def test_a_nonce_leaves_what_stands_before_it_in_the_cache(proof: ColdProof, share: Fraction) -> None:
    seen = last(cell(cached=None, cold_proof=proof))
    assert (seen.cell_class.value, seen.unit, seen.reused_share) == ("fresh", 0, share)
    assert seen.witness == f"no counter; cold proof {proof}"


@pytest.mark.parametrize(
    ("moved", "length", "told"),
    [
        (950, 1000, "fresh"),
        (949, 1000, "contradicted"),
        (1100, 1000, "fresh"),
        (1, None, "fresh"),
        (None, 1000, "fresh"),
    ],
)
def test_cold_proof_does_not_stand_against_the_servers_own_total(
    moved: int | None, length: int | None, told: str
) -> None:
    seen = last(cell(cached=None, length=length, cold_proof=SALT, counter_processed_tokens=moved))
    assert seen.cell_class.value == told
    if told == "contradicted":
        assert seen.witness == "no counter, and the server's counter moved by 949 of 1000 prompt tokens"


def test_a_counter_that_was_told_is_used_with_a_nonce_too() -> None:
    assert last(cell(cached=10, cold_proof=NONCE)).reused_share == Fraction(1, 100)
    assert last(cell(cached=0, cold_proof=NONCE)).reused_share == 0


@pytest.mark.parametrize(
    ("cached", "length", "told"), [(0, None, "unknown"), (0, 0, "0"), (0, -1, "-1"), (1001, 1000, "1000")]
)
def test_a_count_that_cannot_be_read_is_unknown(cached: int, length: int | None, told: str) -> None:
    seen = last(cell(cached=cached, length=length, cold_proof=CACHE_OFF, counter_alive=True))
    assert seen.cell_class.value == "unknown"
    assert seen.witness == f"cached {cached} of {told} prompt tokens cannot be read"


def test_a_prompt_of_one_token_can_be_read() -> None:
    assert only(fresh(length=1)) == "fresh"
    assert classes(fresh(), fresh(cached=1, length=1)) == ["fresh", "copy"]


# Failed and invalid


@pytest.mark.parametrize(("proof", "share"), [(CACHE_OFF, Fraction(0)), (SALT, Fraction(0)), (NONCE, Fraction(1, 20))])
def test_a_failed_cell_that_was_sent_cold_is_a_fresh_unit(proof: ColdProof, share: Fraction) -> None:
    for told in ({}, {"cached": None}, {"cached": None, "length": None}, {"length": None}, {"processed_tokens": 17}):
        seen = last(cell(status=Status.FAILED, cold_proof=proof, **told))
        known = told.get("cached", 0) == 0 and told.get("length", 1000) is not None
        assert (seen.cell_class.value, seen.unit) == ("fresh", 0)
        assert seen.reused_share == (0 if known else share)
        assert seen.witness == f"failed; cold proof {proof}"


def test_a_failed_cell_without_cold_proof_is_judged_by_its_counters() -> None:
    assert only(cell(cached=None, status=Status.FAILED)) == "unknown"
    assert only(fresh(status=Status.FAILED)) == "fresh"
    assert only(cell(processed_tokens=17, status=Status.FAILED)) == "contradicted"


@pytest.mark.parametrize(("cached", "length"), [(51, 1000), (1, None)])
def test_a_failed_cell_whose_counter_says_cache_is_not_fresh(cached: int, length: int | None) -> None:
    assert only(cell(cached=cached, length=length, status=Status.FAILED, cold_proof=CACHE_OFF)) != "fresh"


def test_a_failed_cell_at_the_limit_of_a_fresh_one_is_fresh() -> None:
    seen = last(cell(cached=50, status=Status.FAILED, cold_proof=NONCE))
    assert (seen.cell_class.value, seen.reused_share) == ("fresh", Fraction(1, 20))


def test_an_invalid_cell_is_never_scored_and_shows_nothing() -> None:
    invalid = copy("q", status=Status.INVALID, counter_alive=True)
    assert classes(invalid, cell()) == ["unknown"]
    assert classify([invalid]) == []


@pytest.mark.parametrize(
    ("cached", "length", "expected"), [(None, 1000, False), (0, None, False), (50, 1000, False), (51, 1000, True)]
)
def test_only_a_count_above_the_fresh_share_claims_reuse(cached: int, length: int, expected: bool) -> None:
    assert claims_reuse(cell(cached=cached, length=length)) is expected


# Contradicted by its time


def timed(ms_per_token: float, length: int = 1000, **more: Any) -> Cell:
    """A consistent fresh claim whose prefill took this long per token."""
    return fresh(f"p{length}", length=length, **({"prefill_ms": ms_per_token * length} | more))


@pytest.mark.parametrize(("rate", "expected"), [(0.99, "contradicted"), (1.0, "fresh"), (9.0, "fresh")])
def test_a_prefill_under_half_the_median_of_cold_cells_is_contradicted(rate: float, expected: str) -> None:
    cold = [timed(value, cold_proof=CACHE_OFF) for value in (1.5, 2.0, 30.0)]
    seen = last(*cold, timed(rate))
    assert seen.cell_class.value == expected
    if expected == "contradicted":
        assert seen.witness == "cached 0 of 1000, but prefill too fast for a fresh one"
        assert (seen.unit, seen.proven) == (None, False)


@pytest.mark.parametrize(("rate", "expected"), [(1.49, "contradicted"), (1.5, "fresh")])
def test_the_median_of_two_is_their_middle(rate: float, expected: str) -> None:
    cold = [timed(value, cold_proof=CACHE_OFF) for value in (2.0, 4.0)]
    assert last(*cold, timed(rate)).cell_class.value == expected


# 75th percentile of the claims, the judged one among them, interpolated: rates r, 4, 8, 8 (sorted) give 8;
# r, 4, 8 gives 6; r, 2, 4, 6, 9 gives 6.
@pytest.mark.parametrize(
    ("others", "limit"),
    [((4.0, 8.0, 8.0), 4.0), ((4.0, 8.0), 3.0), ((3.1, 4.0, 6.0, 9.0), 3.0), ((2.5, 4.0, 10.0), 2.75)],
)
def test_without_cold_cells_the_upper_quartile_of_the_claims_is_the_reference(
    others: tuple[float, ...], limit: float
) -> None:
    assert last(*map(timed, others), timed(limit)).cell_class.value == "fresh"
    assert last(*map(timed, others), timed(limit - 0.01)).cell_class.value == "contradicted"


def test_a_claim_at_the_limit_of_a_fresh_one_is_among_the_claims() -> None:
    for cached, expected in ((50, "contradicted"), (51, "fresh")):
        slow = [fresh("p1000", cached, prefill_ms=8.0 * (1000 - cached)) for _ in range(3)]
        assert last(*slow, timed(1.0)).cell_class.value == expected


def test_one_claim_alone_is_its_own_reference() -> None:
    assert only(timed(0.001)) == "fresh"


def test_cold_cells_are_the_reference_before_any_claims() -> None:
    assert classes(*(timed(8.0) for _ in range(5)), timed(1.0, cold_proof=CACHE_OFF), timed(0.5))[-1] == "fresh"


@pytest.mark.parametrize(
    ("length", "expected"), [(799, "fresh"), (800, "contradicted"), (1333, "contradicted"), (1334, "fresh")]
)
def test_only_cells_within_a_quarter_of_the_prompts_length_are_compared(length: int, expected: str) -> None:
    cold = timed(2.0, length=1000, cold_proof=CACHE_OFF)
    assert last(cold, timed(0.5, length=length)).cell_class.value == expected


@pytest.mark.parametrize(("length", "expected"), [(1000, "contradicted"), (1001, "fresh")])
def test_a_shorter_cell_at_exactly_a_quarter_is_compared(length: int, expected: str) -> None:
    cold = timed(2.0, length=750, cold_proof=CACHE_OFF)
    assert last(cold, timed(0.5, length=length)).cell_class.value == expected


def test_the_window_slides_over_the_lengths_exactly() -> None:
    lengths = [100, 110, 125, 150, 188, 235, 290, 300]
    cold = [timed(1.0 + place, length, cold_proof=CACHE_OFF) for place, length in enumerate(lengths)]
    for length in lengths:
        near = sorted(1.0 + place for place, other in enumerate(lengths) if abs(other - length) <= 0.25 * length)
        middle = (near[(len(near) - 1) // 2] + near[len(near) // 2]) / 2
        assert last(*cold, timed(middle / 2 * 1.001, length)).cell_class.value == "fresh"
        assert last(*cold, timed(middle / 2 * 0.999, length)).cell_class.value == "contradicted"


@pytest.mark.parametrize("other", [{"arm": BASELINE}, {"server_epoch": "f"}])
def test_only_cells_of_the_same_arm_and_epoch_are_compared(other: dict[str, Any]) -> None:
    assert last(timed(2.0, cold_proof=CACHE_OFF), timed(0.5, **other)).cell_class.value == "fresh"


def test_a_cell_without_a_counter_is_held_to_its_time_too() -> None:
    cold = [timed(2.0, cold_proof=SALT) for _ in range(3)]
    slow, fast = (
        {"cached_tokens": None, "processed_tokens": None, "cold_proof": SALT, "prefill_ms": ms}
        for ms in (1000.0, 999.0)
    )
    assert last(*cold, timed(1, **slow)).cell_class.value == "fresh"
    seen = last(*cold, timed(1, **fast))
    assert (seen.cell_class.value, seen.witness) == ("contradicted", "prefill too fast for a fresh one")


def test_time_is_taken_per_processed_token() -> None:
    cold = [timed(2.0, cold_proof=CACHE_OFF) for _ in range(3)]
    for told in ({"processed_tokens": 960}, {"processed_tokens": None, "counter_alive": True}):
        assert last(*cold, fresh("p1000", 40, prefill_ms=960.0, **told)).cell_class.value == "fresh"
        assert last(*cold, fresh("p1000", 40, prefill_ms=959.0, **told)).cell_class.value == "contradicted"


def test_a_cold_cell_that_reports_reuse_is_no_reference() -> None:
    broken = [fresh("p1000", 900, prefill_ms=100_000.0, cold_proof=CACHE_OFF) for _ in range(3)]
    assert last(*broken, timed(1.0)).cell_class.value == "fresh"


def test_copies_are_no_reference() -> None:
    assert last(*(fresh("p1000", 900, prefill_ms=100_000.0) for _ in range(3)), timed(1.0)).cell_class.value == "fresh"


@pytest.mark.parametrize("unusable", [{"prefill_ms": 0.0}, {"prefill_ms": None}, {"prompt_tokens": None}])
def test_a_time_that_cannot_be_used_contradicts_nothing(unusable: dict[str, Any]) -> None:
    cold = [timed(2.0, cold_proof=CACHE_OFF) for _ in range(3)]
    silent = cell("p1000", cached=None, cold_proof=CACHE_OFF, **({"prefill_ms": 0.5} | unusable))
    assert last(*cold, silent).cell_class.value == "fresh"


def test_a_cell_that_processed_nothing_has_no_time_per_token() -> None:
    cold = [timed(2.0, cold_proof=CACHE_OFF) for _ in range(3)]
    assert last(*cold, cell("p1000", cached=None, processed_tokens=0, cold_proof=SALT, prefill_ms=1.0)).unit == 3
    one = cell("p1000", cached=None, processed_tokens=1, cold_proof=SALT, prefill_ms=0.9)
    assert last(*cold, one).cell_class.value == "contradicted"


# Time order


def names(*cells: Cell) -> list[str]:
    return [each.case_id for each in in_time_order(cells)]


def test_lines_are_in_time_order_unless_they_say_otherwise() -> None:
    assert names(cell("a"), cell("b"), cell("c")) == ["a", "b", "c"]
    assert names(cell("a", started_at=3.0), cell("b", started_at=1.0), cell("c", started_at=2.0)) == ["b", "c", "a"]
    assert names(cell("a", started_at=1.0), cell("b", started_at=1.0)) == ["a", "b"]


def test_a_line_without_a_start_stays_behind_the_one_it_followed() -> None:
    assert names(cell("a", started_at=3.0), cell("b"), cell("c", started_at=1.0), cell("d")) == ["c", "d", "a", "b"]
    assert names(cell("a"), cell("b", started_at=-5.0)) == ["a", "b"]


def test_the_choices_of_a_request_stand_together_where_the_earliest_does() -> None:
    two, one = (cell(f"r{index}", prompt_sha256="x", request_id="r", choice_index=index) for index in (2, 1))
    zero = replace(one, case_id="r0", choice_index=None)
    assert names(two, cell("a"), one, cell("b"), zero) == ["r0", "r1", "r2", "a", "b"]
    late = replace(two, started_at=9.0)
    assert names(late, cell("a", started_at=5.0), replace(one, started_at=4.0)) == ["r1", "r2", "a"]
    assert names(cell("a"), two, cell("b", prompt_sha256="y", request_id="r")) == ["a", "r2", "b"]


def test_a_fresh_cell_written_after_its_copies_is_their_parent_when_it_started_before() -> None:
    assert units(copy(started_at=5.0), fresh(started_at=1.0)) == [0, 0]


# One cell at a time comes to the same as all at once


def test_adding_cells_one_by_one_gives_what_all_at_once_gives() -> None:
    cells = [
        cell("a"),
        cell("b", cached=None, cold_proof=CACHE_OFF),
        cell("c", started_at=50.0),
        copy("a", started_at=60.0),
        fresh("d", started_at=40.0),
        timed(4.0, started_at=70.0),
        timed(1.0, started_at=80.0),
        timed(4.0, started_at=90.0),
        cell("e", started_at=91.0, server_epoch="f"),
        cell("e", started_at=92.0, server_epoch="f", counter_alive=True),
        cell("e", started_at=93.0, server_epoch="f", counter_alive=True),
        fresh("e", started_at=None, server_epoch="g"),
        fresh("h", started_at=94.0, request_id="r", choice_index=1),
        fresh("h", started_at=95.0, request_id="r", choice_index=0),
        fresh("i", started_at=1.0),
        copy("i", started_at=96.0),
        copy("i", status=Status.INVALID),
    ]
    step = Classifier()
    for count, each in enumerate(cells, start=1):
        step.add(each)
        assert step.classified() == classify(cells[:count])
    assert [item.cell_class.value for item in step.classified()].count("fresh") == 12


def test_adding_several_before_looking_gives_the_same() -> None:
    cells = [cell("a"), copy("b"), cell("c"), fresh("d"), cell("a", started_at=1.0), cell("e", started_at=0.5)]
    several = Classifier()
    for each in cells:
        several.add(each)
    assert several.classified() == classify(cells)
    assert several.classified() == several.classified()


@pytest.mark.parametrize(
    ("before", "added"),
    [
        ([], fresh()),
        ([fresh(started_at=2.0)], fresh(started_at=2.0)),
        ([fresh(started_at=2.0)], fresh(started_at=2.5)),
        ([fresh(started_at=2.0)], fresh()),
        ([fresh(counter_alive=True)], fresh(counter_alive=True)),
        ([fresh()], cell(cached=None)),
        ([fresh(counter_alive=True)], copy()),
        ([timed(1.0), timed(1.1)], timed(2.0)),
        ([timed(1.0), timed(1.1)], timed(0.1)),
        ([fresh(request_id="r")], fresh(request_id="s")),
    ],
)
def test_a_cell_that_changes_no_earlier_class_is_added_without_a_second_look(before: list[Cell], added: Cell) -> None:
    """A run asks after every cell: a log of that kind costs the time of one pass, not of one for every cell."""
    step = Classifier()
    for each in before:
        step.add(each)
    seen = step.classified()
    step.add(added)
    assert step.classified() is seen
    assert seen == classify([*before, added])


@pytest.mark.parametrize(
    ("before", "added"),
    [
        ([fresh(started_at=2.0)], fresh(started_at=1.9)),
        ([fresh(started_at=2.0), fresh()], fresh(started_at=1.0)),
        ([cell()], copy("q")),
        ([cell()], cell("q", cached=1)),
        ([cell()], cell("q", counter_alive=True)),
        ([timed(1.0), timed(1.1)], timed(9.0)),
        ([fresh(request_id="r", choice_index=1)], fresh(request_id="r", choice_index=0)),
    ],
)
def test_a_cell_that_may_change_earlier_classes_makes_them_anew(before: list[Cell], added: Cell) -> None:
    step = Classifier()
    for each in before:
        step.add(each)
    seen = step.classified()
    step.add(added)
    assert step.classified() is not seen
    assert step.classified() == classify([*before, added])
    again = step.classified()
    assert step.classified() is again
