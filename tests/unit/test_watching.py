"""From the store of a small replay after a promotion to the next one, and to the replicate that answers its alarm."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.alarm import increments
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.earlier import Trigger, Watching
from prefillgate.core.gate import Gate
from prefillgate.core.schedule import last_bad_end
from prefillgate.core.verdict import WatchView
from prefillgate.core.watching import NoWatch, after_replay, trigger_of, watch_sentence, watch_view
from tests.support.journals import cell, planned, score
from tests.unit.test_watch import watching_gate

BAD, CLEAN = increments(STANDARD.alarm)
BEFORE = Watching(8, (1.0,), 4, 30, 2, 1, ("c9",), "run-4", True)


def replayed(*outcomes: bool, watching: Watching = BEFORE) -> Gate:
    """A replay whose cells took a minute each, on servers e0, e1, ... in turn."""
    gate = watching_gate(watching)
    for number, bad in enumerate(outcomes):
        made = cell(
            case=f"c{number}", server_epoch=f"e{number}", started_at=60.0 * number, ended_at=60.0 * number + 50.0
        )
        score(gate, made, bad)
    return gate


def test_the_next_replay_begins_where_this_one_ended() -> None:
    found = after_replay(replayed(True, False), "http://c", 1, 6)
    assert found == Watching(
        6,
        (pytest.approx(1.0 + BAD + CLEAN),),
        5,
        32,
        3,
        1,
        ("c0", "c9"),
        "run",
        True,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("gate", "candidate", "flags", "words"),
    [
        (replayed(True), "http://d", 1, "it is of http://c, now http://d is asked for"),
        (replayed(True), "http://c", 2, "it has 1 flags, now there are 2: their levels do not go on"),
    ],
)
def test_a_replay_of_another_profile_or_of_other_flags_is_not_gone_on_from(
    gate: Gate, candidate: str, flags: int, words: str
) -> None:
    with pytest.raises(NoWatch, match=words):
        after_replay(gate, candidate, flags, 8)


def test_a_run_that_is_no_replay_is_not_gone_on_from_and_triggers_nothing() -> None:
    gate = Gate()
    gate.apply(planned())
    gate.alarm = gate.ever_alarmed = True
    with pytest.raises(NoWatch, match="it is no small replay after a promotion"):
        after_replay(gate, "http://c", 1, 8)
    with pytest.raises(NoWatch, match="it raised no alarm after a promotion"):
        trigger_of(gate)


def test_a_replay_without_an_alarm_triggers_nothing() -> None:
    with pytest.raises(NoWatch, match="it raised no alarm after a promotion"):
        trigger_of(replayed(True, False))


def test_a_replicate_is_told_names_and_times_of_its_trigger() -> None:
    gate = replayed(True, False, True, True, False)
    assert trigger_of(gate) == Trigger("run", ("c0", "c2", "c3", "c9"), 230.0, ("e0", "e2", "e3"), 35, 5, True)


def test_the_last_bad_cell_of_an_arm_ends_or_at_least_began() -> None:
    gate = watching_gate()
    assert last_bad_end(gate, CANDIDATE) is None
    score(gate, cell(started_at=5.0, ended_at=7.0), True)
    score(gate, cell(started_at=8.0, ended_at=9.0), False)
    score(gate, cell(BASELINE, started_at=90.0, ended_at=99.0), True)
    assert (last_bad_end(gate, CANDIDATE), last_bad_end(gate, BASELINE)) == (7.0, 99.0)
    score(gate, cell(started_at=11.0), True)
    assert last_bad_end(gate, CANDIDATE) == 11.0
    score(gate, cell(), True)
    assert last_bad_end(gate, CANDIDATE) is None


def test_a_view_adds_this_replay_to_those_before_it() -> None:
    assert watch_view(replayed(True, False, True)) == WatchView(8, 3, 2, 5, 33, 4, 1)
    assert watch_view(replayed(True, True, True)) == WatchView(8, 3, 3, 5, 33, 5, 2)


def test_a_sentence_tells_levels_as_what_is_multiplied() -> None:
    view = WatchView(8, 3, 1, 5, 33, 4, 0)
    assert watch_sentence(view, math.log(6), math.log(100)) == (
        "Watch: replay 5 since the promotion took 3 of 8 fresh prefills, 1 bad; all replays 4 of 33 bad, no alarm. The "
        "level is 6, and 100 alarms."
    )
    for alarms, words in ((1, ", 1 alarm. The"), (2, ", 2 alarms. The")):
        assert words in watch_sentence(replace(view, alarms_since=alarms), 0.0, 1.0)
