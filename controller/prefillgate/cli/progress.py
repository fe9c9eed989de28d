"""What a run says while it runs: one line for each fact, on standard error."""

from __future__ import annotations

import math
import time
from typing import Any

from prefillgate.cli.outcome import say
from prefillgate.core.cells import ARMS, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import (
    CellChecked,
    CellMeasured,
    DeadlinePassed,
    EpochSeen,
    Event,
    ReplicateAborted,
    ReplicateStarted,
    SeparationKept,
    WindowOpened,
)
from prefillgate.core.pairs import throughput_standing
from prefillgate.core.replicate import Replicate
from prefillgate.core.schedule import Separate
from prefillgate.core.servers import named_server
from prefillgate.core.snapshot import acceptance_reached, clean_prefills_needed
from prefillgate.core.verdict import ThroughputState

WAITING_EVERY_SECONDS = 60.0
SPEED = {
    ThroughputState.NOT_WORSE: "not worse",
    ThroughputState.WORSE: "worse",
    ThroughputState.OPEN: "still open",
    ThroughputState.NOT_COMPARED: "not compared",
}


class Progress:
    """A watcher that prints. `quiet` keeps the lines of single cells back."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._alarm = False
        self._endings: dict[int, str] = {}
        self._said_waiting = 0.0
        self._seconds: list[float] = []
        self._lost: dict[str, set[int]] = {arm: set() for arm in ARMS}
        self._told = {""}  # what had to be believed of who is up

    def event(self, gate: Gate, event: Event) -> None:
        """Say what happened, and what is known now."""
        match event:
            case EpochSeen():
                proof = event.cold_proof or "no way to force a fresh prefill was shown to work"
                who = named_server(gate, event.arm, event.lane)
                told = f"{who}: {event.engine} {event.build or ''} {event.model or ''}, fresh prefill by {proof}"
                facts: dict[str, Any] = {"server": event.lane + 1, "cold_proof": event.cold_proof, "build": event.build}
                say(told, "server_met", arm=event.arm, **facts)
                for finding in (*event.access_findings, *event.findings):
                    say(f"{event.arm}: {finding}", "finding", "warning", arm=event.arm)
            case CellMeasured() if event.cell.status is not Status.OK:
                self._cell(gate, event)
            case CellChecked():
                self._cell(gate, gate.measured[event.cell_id])
            case ReplicateStarted():
                say(f"replicate {event.number}: started, with fresh prefills only", "replicate_started")
            case SeparationKept():
                say(f"replicate {event.number}: kept apart by {event.how} ({event.detail})", "replicate_apart")
            case ReplicateAborted():
                say(f"replicate {event.number}: aborted ({event.why})", "replicate_aborted", "warning")
            case WindowOpened():
                known = event.detail in self._told
                self._told.add(event.detail)
                say(window_line(event) + ("" if known else f"; {event.detail}"), "window")
            case DeadlinePassed():
                say("the deadline passed", "deadline", "warning")
        self._transitions(gate)

    def _transitions(self, gate: Gate) -> None:
        if gate.alarm and not self._alarm:
            alone, after = gate.plan.shape.candidate_alone, gate.plan.watching is not None
            until = (
                "since a replicate needs a baseline"
                if alone and not after
                else "until a replicate with fresh prefills confirms it"
            )
            blocked = "rollback is" if after else "promotion is blocked, rollback"
            say(f"ALARM: {blocked} refused {until}", "alarm", "warning")
        self._alarm = gate.alarm
        for arm in ARMS:
            for lane in set(gate.lost_lanes(arm)) - self._lost[arm]:
                lost = f"{named_server(gate, arm, lane)} takes no requests any more; the others go on"
                say(lost, "server_lost", "warning", arm=arm, server=lane + 1)
            self._lost[arm] = set(gate.lost_lanes(arm))
        for replicate in gate.replicates:
            ending = replicate.ending()
            if ending is not None and self._endings.get(replicate.plan.number) != str(ending):
                self._endings[replicate.plan.number] = str(ending)
                path = replicate.e_path(replicate.leading_flag())
                e_value = f"E = {path[-1]:.3g}" if path else "no pair was needed"
                told = (
                    f"replicate {replicate.plan.number}: ended {ending} ({e_value}, threshold {replicate.threshold:g})"
                )
                say(told, "replicate_ended", ending=str(ending))

    def waiting(self, gate: Gate, step: Separate) -> None:
        """Say now and then what the replicate waits for."""
        now = time.monotonic()
        if self._said_waiting and now - self._said_waiting < WAITING_EVERY_SECONDS:
            return
        self._said_waiting = now
        until = "" if step.not_before is None else time.strftime(", or until %H:%M:%S", time.localtime(step.not_before))
        told = f"replicate {step.number}: waits for a restarted candidate{until}, to stand apart from what triggered it"
        say(told, "waiting", until=step.not_before)

    def _cell(self, gate: Gate, event: CellMeasured) -> None:
        if self._quiet:
            return
        cell = event.cell
        if cell.started_at is not None and cell.ended_at is not None:
            self._seconds = [*self._seconds[-19:], cell.ended_at - cell.started_at]
        who = named_server(gate, cell.arm, event.lane)
        what = f"{event.cell_id:>4} {who:<9} {cell.case_id:<18} {_seen(event)} {_result(gate, event):<8}"
        say(f"{what} {self._now(gate)}", "cell", **_facts(gate, event))

    def _now(self, gate: Gate) -> str:
        """Units, bad, e-value, what is missing, time left."""
        if gate.open_replicate is not None:
            return self._replicate_now(gate.open_replicate)
        if gate.plan.shape.baseline_alone:
            done, total = gate.places.passed + gate.places.passed_again, 2 * len(gate.plan.cases)
            return f"| {done} of {total}{self._left(total - done)}"
        if gate.plan.watching is not None:
            seen, wanted = gate.watched(gate.plan.watching), gate.plan.watching.prefills
            level, alarm_at = (math.exp(nats) for nats in gate.alarm_state())
            return f"| fresh {seen.prefills} of {wanted}, bad {seen.bad_prefills}, level {level:.3g} of {alarm_at:.3g}"
        ledgers = gate.candidate_ledgers()
        units, bad = min(x.decision_prefills for x in ledgers), max(x.bad for x in ledgers)
        missing = clean_prefills_needed(gate)
        if missing is None:
            return f"| n {units}, bad {bad}"
        if not missing and not acceptance_reached(gate):
            return f"| n {units}, bad {bad}, 0 more clean"
        if not missing:
            standing, unpaired = throughput_standing(gate)
            speed = speed_words(standing, len(unpaired), gate.plan.policy.throughput.required)
            return f"| n {units}, bad {bad}, enough clean; decode speed {speed}"
        return f"| n {units}, bad {bad}, {missing} more clean{self._left(missing)}"

    def _replicate_now(self, running: Replicate) -> str:
        path = running.e_path(running.leading_flag())
        e_value = path[-1] if path else 1.0
        units, bad = running.candidate_units(), running.candidate_bad()
        known = f"| replicate {running.plan.number}: {units} units, bad {bad}, E {e_value:.3g}/{running.threshold:g}"
        missing = running.policy.clean_units - units
        return known if bad or missing <= 0 else f"{known}, {missing} more clean end it{self._left(missing)}"

    def _left(self, cells: int) -> str:
        """The time so many cells take, by the mean of the last ones."""
        if not self._seconds:
            return ""
        minutes = cells * sum(self._seconds) / len(self._seconds) / 60
        return f", about {minutes:.0f} min" if minutes >= 1 else ", under 1 min"


def speed_words(standing: ThroughputState, unpaired: int, required: bool) -> str:
    """How the speeds compare, and what a promotion still waits for: nothing where the policy only reports them."""
    if standing is ThroughputState.NOT_COMPARED:
        return SPEED[standing]
    if not required:
        return "only reported" if standing is ThroughputState.OPEN else f"{SPEED[standing]}, only reported"
    return SPEED[standing] + (f", {unpaired} prompts without a pair" if unpaired else "")


def _facts(gate: Gate, event: CellMeasured) -> dict[str, Any]:
    """A cell for a program: null is unknown."""
    cell = event.cell
    return {
        "cell_id": event.cell_id,
        "arm": cell.arm,
        "server": event.lane + 1,
        "case_id": cell.case_id,
        "replicate": cell.replicate,
        "status": str(cell.status),
        "bad": next((item.cell.bad for item in reversed(gate.scored) if item.cell_id == event.cell_id), None),
        "prompt_tokens": cell.prompt_tokens,
        "cached_tokens": cell.cached_tokens,
        "processed_tokens": cell.processed_tokens,
        "reason": event.reason,
    }


def window_line(event: WindowOpened) -> str:
    """Which window begins or goes on."""
    parts = [f"window: the {event.arm} is up ({event.how})"]
    if event.replicate:
        parts.append(f"replicate {event.replicate}")
    if event.pair is not None:
        parts.append(f"window pair {event.pair + 1}")
    return ", ".join(parts)


def _seen(event: CellMeasured) -> str:
    cell = event.cell
    cached = "?" if cell.cached_tokens is None else cell.cached_tokens
    processed = "?" if cell.processed_tokens is None else cell.processed_tokens
    seconds = ""
    if cell.started_at is not None and cell.ended_at is not None:
        seconds = f"{cell.ended_at - cell.started_at:.1f} s"
    return f"cached {cached:>5}, processed {processed:>5}, {seconds:>7}"


def _result(gate: Gate, event: CellMeasured) -> str:
    if event.cell.status is not Status.OK:
        return f"{event.cell.status} {event.reason or ''}: {event.detail or ''}"[:100]
    scored = next((item for item in reversed(gate.scored) if item.cell_id == event.cell_id), None)
    bad = None if scored is None else scored.cell.bad
    if bad:
        failing = [outcome.check for outcome in gate.outcomes.get(event.cell_id, ()) if outcome.bad]
        return "bad: " + ", ".join(failing)
    return "clean" if bad is False else "unknown"
