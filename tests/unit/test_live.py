"""Counting prefills while they happen: what moves the alarm, what does not, and how much is remembered."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core import live
from prefillgate.core.alarm import cusum
from prefillgate.core.cells import Cell, ColdProof, Status
from prefillgate.core.freshness import classify
from prefillgate.core.live import LiveClassifier, LiveWatch, Series, slow
from prefillgate.core.policy import AlarmPolicy
from prefillgate.core.verdict import CellClass

POLICY = AlarmPolicy()
BAD, CLEAN = math.log(6), math.log(0.7 / 0.95)


def fresh(prompt: str, bad: bool | None = False, **more: Any) -> Cell:
    values = {"prompt_tokens": 100, "cached_tokens": 0, "processed_tokens": 100, "bad": bad, **more}
    return Cell("candidate", prompt, **values)


def copy(prompt: str, bad: bool | None = False, **more: Any) -> Cell:
    return fresh(prompt, bad, cached_tokens=99, processed_tokens=1, **more)


def watched(*cells: Cell, policy: AlarmPolicy = POLICY) -> tuple[LiveWatch, list[int]]:
    """The watch, and the numbers of the cells that alarmed."""
    watch = LiveWatch(policy)
    return watch, [number for number, cell in enumerate(cells) if watch.take(cell, "a") is not None]


def test_three_bad_prefills_in_a_row_alarm_at_ln_100_and_two_do_not() -> None:
    watch, alarms = watched(*(fresh(f"p{number}", True) for number in range(3)))
    assert alarms == [2]
    assert watch.series["a"] == Series(3, 0, 3, 0, 0, 3, 3, 3, 0, 0.0, 0, 0, 1)


def test_the_alarm_tells_its_series_and_what_was_seen_since_the_level_was_zero() -> None:
    watch = LiveWatch(POLICY)
    cells = [fresh("z"), fresh("a", True), fresh("b"), copy("b", True), fresh("c", True), fresh("d", True)]
    (alarm,) = [found for cell in cells if (found := watch.take(cell, "model")) is not None]
    assert alarm.series == "model" and alarm.number == 1
    assert alarm.level == pytest.approx(3 * BAD + CLEAN) and alarm.alarm_at == pytest.approx(math.log(100))
    assert (alarm.since_prefills, alarm.since_bad) == (4, 3)
    assert (alarm.requests, alarm.prefills, alarm.bad_prefills, alarm.copies) == (6, 5, 3, 1)


def test_reaching_the_level_exactly_alarms() -> None:
    exact = AlarmPolicy(0.05, 0.30, watch_threshold=0.30 / 0.05)
    assert watched(fresh("a", True), policy=exact)[1] == [0]
    above = AlarmPolicy(0.05, 0.30, watch_threshold=math.nextafter(6.0, 7.0))
    assert watched(fresh("a", True), policy=above)[1] == []


def test_after_an_alarm_it_takes_new_evidence_for_another() -> None:
    watch, alarms = watched(*(fresh(f"p{number}", True) for number in range(7)))
    assert alarms == [2, 5]
    assert watch.series["a"].alarms == 2
    assert watch.series["a"].level == pytest.approx(BAD)
    assert (watch.series["a"].since_prefills, watch.series["a"].since_bad) == (1, 1)


def test_a_thousand_bad_copies_are_one_prefill_and_no_alarm() -> None:
    watch, alarms = watched(fresh("a", True), *[copy("a", True)] * 1000)
    assert alarms == []
    series = watch.series["a"]
    assert (series.requests, series.prefills, series.copies) == (1001, 1, 1000)
    assert (series.bad_requests, series.bad_prefills, series.bad_copies) == (1001, 1, 1000)
    assert series.level == pytest.approx(BAD)


def test_copies_of_a_clean_prefill_do_not_make_it_bad() -> None:
    watch, alarms = watched(*(cell for number in range(9) for cell in (fresh(f"p{number}"), copy(f"p{number}", True))))
    assert alarms == [] and watch.series["a"].level == 0.0
    assert watch.series["a"].bad_copies == 9


@pytest.mark.parametrize(
    "cell",
    [
        Cell("candidate", "x", bad=True),
        Cell("candidate", "x", status=Status.FAILED),
        fresh("x", True, processed_tokens=50),
        fresh("x", True, cached_tokens=20, processed_tokens=80),
        copy("x", True),
    ],
)
def test_what_is_not_shown_to_be_a_prefill_moves_nothing(cell: Cell) -> None:
    watch, alarms = watched(*(replace(cell, case_id=f"x{number}") for number in range(50)))
    assert alarms == []
    series = watch.series["a"]
    assert (series.requests, series.prefills, series.copies, series.others) == (50, 0, 0, 50)
    assert (series.bad_requests, series.bad_prefills, series.level) == (50, 0, 0.0)


def test_an_unknown_outcome_moves_nothing_and_is_no_known_one() -> None:
    watch, _ = watched(fresh("a", True), fresh("b", None), copy("b", None))
    series = watch.series["a"]
    assert series.level == pytest.approx(BAD)
    assert (series.prefills, series.known, series.bad_prefills, series.since_prefills) == (2, 1, 1, 1)


def test_a_failed_prefill_is_bad_and_an_invalid_request_is_none() -> None:
    watch, _ = watched(fresh("a", status=Status.FAILED), fresh("b", True, status=Status.INVALID))
    series = watch.series["a"]
    assert (series.requests, series.invalid, series.bad_prefills, series.known) == (1, 1, 1, 0)


def test_clean_prefills_bring_the_level_back_to_zero_and_the_count_with_it() -> None:
    watch, _ = watched(fresh("a", True), *(fresh(f"p{number}") for number in range(5)))
    assert watch.series["a"].level == pytest.approx(BAD + 5 * CLEAN)
    assert (watch.series["a"].since_prefills, watch.series["a"].since_bad) == (6, 1)
    watch.take(fresh("last"), "a")
    assert watch.series["a"].level == 0.0
    assert (watch.series["a"].since_prefills, watch.series["a"].since_bad) == (0, 0)


def test_series_are_watched_apart_and_too_many_share_one() -> None:
    watch = LiveWatch(POLICY)
    for name in ("a", "b", "c"):
        for number in range(2):
            assert watch.take(fresh(f"{name}{number}", True), name) is None
    assert live.SERIES == 32
    for number in range(40):
        watch.take(fresh(f"more{number}", True), f"s{number}")
    assert len(watch.series) == 33
    assert watch.series[live.OTHER_SERIES].requests == 11
    assert watch.take(fresh("again", True), "a") is not None
    assert watch.series["a"].requests == 3


def cells_of_a_log(seed: int, count: int) -> list[Cell]:
    """Cells whose classes do not hang on what comes later: in time order, with sign of life first."""
    source = random.Random(seed)
    cells = [copy("first", server_epoch=f"e{number}", counter_alive=True) for number in range(2)]
    for number in range(count):
        prompt, epoch = f"p{source.randrange(30)}", f"e{source.randrange(2)}"
        kind = source.randrange(8)
        cell = fresh(prompt, source.random() < 0.2, server_epoch=epoch, started_at=float(number))
        if kind == 0:
            cell = replace(cell, cached_tokens=99, processed_tokens=1)
        elif kind == 1:
            cell = replace(cell, cached_tokens=30, processed_tokens=70)
        elif kind == 2:
            cell = replace(cell, cached_tokens=None, cold_proof=source.choice([None, ColdProof.NONCE]))
        elif kind == 3:
            cell = replace(cell, request_id=f"r{source.randrange(5)}", choice_index=source.randrange(3))
        elif kind == 4:
            cell = replace(cell, shares_blocks=True, ended_at=number + source.random() * 5)
        elif kind == 5:
            cell = replace(cell, processed_tokens=None)
        cells.append(cell)
    return cells


@pytest.mark.parametrize("seed", range(5))
def test_classes_are_those_of_the_whole_log(seed: int) -> None:
    cells = [replace(cell, request_id=None, choice_index=None) for cell in cells_of_a_log(seed, 400)]
    classifier = LiveClassifier()
    found = [classifier.take(cell) for cell in cells]
    assert found == classify(cells)
    assert {item.cell_class for item in found} >= {CellClass.FRESH, CellClass.COPY, CellClass.UNKNOWN, CellClass.ORPHAN}


def test_another_choice_of_a_request_is_a_copy() -> None:
    classifier = LiveClassifier()
    found = [classifier.take(fresh("a", request_id="r", choice_index=number)) for number in range(3)]
    assert [item.cell_class for item in found] == [CellClass.FRESH, CellClass.COPY, CellClass.COPY]


def test_prefills_too_fast_for_fresh_ones_are_contradicted_by_the_latest_times() -> None:
    classifier = LiveClassifier()
    slow_ones = [fresh(f"s{number}", prefill_ms=100.0) for number in range(4)]
    assert {classifier.take(cell).cell_class for cell in slow_ones} == {CellClass.FRESH}
    assert classifier.take(fresh("quick", prefill_ms=49.0)).cell_class is CellClass.CONTRADICTED
    assert classifier.take(fresh("half", prefill_ms=50.0)).cell_class is CellClass.FRESH
    assert classifier.take(fresh("far", prefill_ms=49.0, prompt_tokens=200, processed_tokens=200)).cell_class is (
        CellClass.FRESH
    )
    proven = [fresh(f"c{number}", prefill_ms=20.0, cold_proof=ColdProof.CACHE_OFF) for number in range(3)]
    for cell in proven:
        classifier.take(cell)
    assert classifier.take(fresh("as proven", prefill_ms=10.0)).cell_class is CellClass.FRESH
    assert classifier.take(fresh("less", prefill_ms=9.9)).cell_class is CellClass.CONTRADICTED


def test_old_times_are_forgotten() -> None:
    classifier = LiveClassifier()
    for number in range(live.TIMES + 5):
        classifier.take(fresh(f"a{number}", prefill_ms=1000.0, cold_proof=ColdProof.NONCE))
    (epoch,) = classifier.state()["epochs"]
    assert live.TIMES == 128 and len(epoch[4]) == len(epoch[5]) == 128
    for number in range(live.TIMES):
        classifier.take(fresh(f"b{number}", prefill_ms=100.0, cold_proof=ColdProof.NONCE))
    assert classifier.take(fresh("now", prefill_ms=60.0)).cell_class is CellClass.FRESH


def test_what_is_remembered_is_bounded_and_the_longest_unmet_goes_first() -> None:
    assert live.PROMPTS == 4096
    classifier = LiveClassifier()
    for number in range(4096):
        classifier.take(fresh(f"p{number}", request_id=f"r{number}", ended_at=1.0))
    classifier.take(copy("p0"))  # met again
    classifier.take(fresh("one more", request_id="more", ended_at=1.0))
    state = classifier.state()
    assert len(state["parent"]) == len(state["in_flight"]) == len(state["primary"]) == 4096
    assert classifier.take(copy("p0")).cell_class is CellClass.COPY
    assert classifier.take(copy("p1")).cell_class is CellClass.ORPHAN
    assert classifier.take(copy("p2")).cell_class is CellClass.COPY


def test_server_lives_are_bounded_too() -> None:
    assert live.EPOCHS == 32
    classifier = LiveClassifier()
    for number in range(32):
        classifier.take(copy("x", server_epoch=f"e{number}", counter_alive=True, prefill_ms=1.0))
    classifier.take(copy("x", server_epoch="e0"))
    classifier.take(copy("x", server_epoch="new"))
    state = classifier.state()
    assert [epoch[1] for epoch in state["epochs"]] == [*(f"e{number}" for number in range(2, 32)), "e0", "new"]
    silent = replace(fresh("y"), processed_tokens=None)
    assert classifier.take(replace(silent, server_epoch="e0")).cell_class is CellClass.FRESH
    assert classifier.take(replace(silent, server_epoch="e1")).cell_class is CellClass.UNKNOWN


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cut", [0, 1, 57, 399])
def test_a_watch_that_goes_on_from_its_state_counts_as_one_that_never_stopped(seed: int, cut: int) -> None:
    cells = cells_of_a_log(seed, 400)
    cells = [replace(cell, prefill_ms=float(cell.prompt_tokens or 1)) for cell in cells]
    whole, first = LiveWatch(POLICY), LiveWatch(POLICY)
    expected = [whole.take(cell, cell.server_epoch or "") for cell in cells]
    found = [first.take(cell, cell.server_epoch or "") for cell in cells[:cut]]
    second = LiveWatch(POLICY)
    second.restore(json.loads(json.dumps(first.state())))
    found += [second.take(cell, cell.server_epoch or "") for cell in cells[cut:]]
    assert found == expected
    assert second.state() == whole.state()


def test_the_state_holds_what_was_probed_hit_and_numbered() -> None:
    classifier = LiveClassifier()
    classifier.take(copy("x", server_epoch="e", counter_alive=True))
    classifier.take(fresh("y", server_epoch="f"))
    assert classifier.state() == {
        "units": [("candidate", 1)],
        "parent": [["candidate", "f", "y", 0]],
        "in_flight": [],
        "primary": [],
        "epochs": [["candidate", "e", True, 1, [], []], ["candidate", "f", False, 0, [], []]],
    }
    other = LiveClassifier()
    other.restore(classifier.state())
    placed = other.take(fresh("z", server_epoch="e", processed_tokens=None))
    assert placed.cell_class is CellClass.FRESH and placed.unit == 1


@pytest.mark.parametrize("seed", range(4))
def test_over_prefills_alone_it_is_the_watch_rule_up_to_the_first_alarm(seed: int) -> None:
    source = random.Random(seed)
    outcomes = [source.random() < 0.3 for _ in range(60)]
    watch = LiveWatch(POLICY)
    for number, bad in enumerate(outcomes):
        alarm = watch.take(fresh(f"p{number}", bad), "a")
        whole = cusum(outcomes[: number + 1], POLICY, watch=True)
        assert whole.alarmed is (alarm is not None)
        if alarm is not None:
            assert alarm.level == whole.level
            break
        assert watch.series["a"].level == whole.level
    assert watch.series["a"].alarms == 1


@pytest.mark.parametrize(
    ("tokens", "decode_ms", "expected"),
    [
        (16, 150.0, False),
        (16, 150.1, True),
        (15, 9999.0, None),
        (16, None, None),
        (None, 100.0, None),
        (16, 0.0, None),
    ],
)
def test_slow_is_more_than_so_many_milliseconds_a_token_after_the_first(
    tokens: int | None, decode_ms: float | None, expected: bool | None
) -> None:
    assert slow(fresh("a", output_tokens=tokens, decode_ms=decode_ms), 10.0, 16) is expected


def test_a_request_met_again_is_remembered_longer_than_one_that_was_not() -> None:
    classifier = LiveClassifier()
    for number in range(4096):
        classifier.take(fresh("same", request_id=f"r{number}"))
    assert classifier.take(fresh("same", request_id="r0", choice_index=1)).cell_class is CellClass.COPY
    classifier.take(fresh("same", request_id="one more"))
    assert classifier.take(fresh("same", request_id="r0", choice_index=2)).cell_class is CellClass.COPY
    assert classifier.take(fresh("same", request_id="r1", choice_index=1)).cell_class is CellClass.FRESH
