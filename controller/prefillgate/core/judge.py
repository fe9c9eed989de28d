"""The verdict: a decision with everything that stands behind it, computed from the journal alone."""

from __future__ import annotations

from collections.abc import Mapping

from prefillgate.core.agreement import judge_notes
from prefillgate.core.budget import budget_needed
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.decision import ERRORS, decide
from prefillgate.core.differences import differences_of
from prefillgate.core.facts import Facts
from prefillgate.core.floor import own_floor
from prefillgate.core.freshness import Classified
from prefillgate.core.gate import Gate
from prefillgate.core.gateway import gateway_notes, gateway_views
from prefillgate.core.journal import CellMeasured
from prefillgate.core.pairs import throughput_view
from prefillgate.core.reply_notes import reply_notes
from prefillgate.core.sent import sent_note
from prefillgate.core.sentences import distinct_outputs, sentences, what_would_change
from prefillgate.core.servers import server_name, shape_notes
from prefillgate.core.snapshot import clean_prefills_needed, take_snapshot
from prefillgate.core.verdict import ArmCounts, CellView, Decision, Outcome, Verdict
from prefillgate.core.watching import watch_view
from prefillgate.core.windows import window_notes


def judge(gate: Gate) -> Verdict:
    """The verdict on a run as its journal stands now. Deterministic: the same events give the same verdict."""
    return write_verdict(facts_of(gate))


def facts_of(gate: Gate) -> Facts:
    """Everything the verdict on a run is written from."""
    plan, snapshot = gate.plan, take_snapshot(gate)
    ruling, speed = decide(snapshot), throughput_view(gate)
    level, limit = gate.alarm_state()
    cause = gate.cause.cause if gate.cause is not None else "Unverified"
    note = "" if gate.overridden is None else f"{gate.overridden.actor}: {gate.overridden.reason}"
    return Facts(
        title=plan.replay_set_name,
        policy=plan.policy,
        cases=tuple(case.case_id for case in plan.cases),
        classified=gate.classified(),
        ledgers=gate.candidate_ledgers(),
        cells=_views(gate),
        replicates=gate.replicates,
        snapshot=snapshot,
        ruling=ruling,
        throughput=speed,
        clean_prefills_needed=clean_prefills_needed(gate),
        alarm_level=level,
        alarm_at=limit,
        ever_alarmed=gate.ever_alarmed,
        plan=plan,
        differences=differences_of(gate),
        cause=cause,
        notes=notes_of(gate),
        override_note=note,
        invalid=tuple((arm, _invalid(gate, arm)) for arm in plan.shape.arms),
        budget=gate.budget,
        budget_needed=budget_needed(gate, ruling, speed),
        arms=plan.shape.arms,
        baseline_shown=gate.baseline_shown,
        floor=plan.floor or own_floor(gate),
        watch=watch_view(gate),
        gateway=gateway_views(gate),
    )


def _invalid(gate: Gate, arm: str) -> int:
    return sum(1 for e in gate.measured.values() if e.cell.arm == arm and e.cell.status is Status.INVALID)


def notes_of(gate: Gate) -> tuple[str, ...]:
    """Each once: what is known of the way to a server, of judges, and of whose word told the arms apart, then findings
    of probes and run; last what the gate changed in the requests. What must not be missed stands first: a screen shows
    two."""
    epochs = [seen for arm in gate.epochs.values() for seen in arm]
    notes = [f"{seen.arm}: {finding}" for seen in epochs for finding in seen.access_findings]
    notes += [note for name, asked in gate.judges.items() for note in judge_notes(name, asked.agreement)]
    if gate.plan.shape.sequential:
        notes += window_notes(gate.windows)
    notes += [f"{seen.arm}: {finding}" for seen in epochs for finding in seen.findings]
    for arm, seen in gate.epochs.items():
        for lane in range(gate.plan.shape.lanes(arm)):
            lives = len({epoch.server_epoch for epoch in seen if epoch.lane == lane})  # a resumed run meets it again
            if lives > 1:
                notes.append(f"{arm}: {lives} lives of {server_name(gate, arm, lane)} were measured")
    notes += reply_notes(gate)
    notes += shape_notes(gate)
    if gate.unchecked():
        notes.append(f"{len(gate.unchecked())} cell measured but not checked yet: resume the run")
    notes += gateway_notes(gate)
    changed = sent_note(event.cell for event in gate.measured.values())
    if changed is not None:
        notes.append(changed)
    return tuple(dict.fromkeys(notes))


def write_verdict(facts: Facts) -> Verdict:
    """The verdict written from its facts."""
    baseline = facts.counts(BASELINE) if BASELINE in facts.arms else None
    candidate = facts.counts(CANDIDATE)
    started_at, ended_at = _span(facts)
    plan = facts.plan
    return Verdict(
        title=facts.title,
        decision=_decision(facts, (baseline, candidate)),
        policy_name=facts.policy.name,
        margin=facts.policy.margin,
        acceptance=facts.policy.acceptance,
        baseline=baseline,
        candidate=candidate,
        comparison=facts.comparison(),
        cells=facts.cells,
        path=facts.path(),
        alarm=facts.snapshot.alarm or facts.snapshot.replicate_running,
        alarm_level=facts.alarm_level,
        alarm_at=facts.alarm_at,
        replicates=tuple(replicate.view() for replicate in facts.replicates),
        throughput=facts.throughput,
        differences=facts.differences,
        prompts=len(facts.cases),
        cases=facts.cases,
        bad_cases=facts.counted.bad_cases if facts.counted else (),
        distinct_outputs=distinct_outputs(facts),
        prefills_used=_log_prefills(baseline, candidate) if facts.from_log else len(facts.classified),
        budget=facts.budget,
        gateway=facts.gateway,
        budget_needed=None if facts.budget_needed is None else facts.budget_needed.budget,
        notes=facts.notes,
        replay_set_name=facts.title,
        replay_set_sha256="" if plan is None else plan.replay_set_sha256,
        baseline_name="baseline" if plan is None or plan.baseline_url is None else plan.baseline_url,
        candidate_name="candidate" if plan is None else plan.candidate_url,
        started_at=started_at,
        ended_at=ended_at,
        shape=None if plan is None else plan.shape,
        baseline_shown=facts.baseline_shown,
        floor=facts.floor,
        watch=facts.watch,
        trigger=None if plan is None else plan.trigger,
    )


def _span(facts: Facts) -> tuple[float | None, float | None]:
    """From when to when was measured, in seconds since the epoch."""
    begun, ended = facts.span()
    return begun if facts.plan is None else facts.plan.started_at, ended


def _decision(facts: Facts, arms: tuple[ArmCounts | None, ArmCounts]) -> Decision:
    ruling = facts.ruling
    return Decision(
        # What is asked now ends here: a run that would go on has not decided, and that is a hold.
        decision=Outcome.HOLD if ruling.decision is Outcome.CONTINUE else ruling.decision,
        measured=ruling.reason not in ERRORS,
        promotion=ruling.promotion,
        rollback=ruling.rollback,
        reason=str(ruling.reason),
        sentences=sentences(facts, arms),
        cause=facts.cause,
        what_would_change=what_would_change(facts),
    )


def _log_prefills(baseline: ArmCounts | None, candidate: ArmCounts) -> int:
    return candidate.prefills + (0 if baseline is None else baseline.prefills)


def _views(gate: Gate) -> tuple[CellView, ...]:
    """Every cell as shown, in the order it was measured."""
    scored = {event.cell_id: event for event in gate.scored}
    classes = {id(item.cell): item for item in gate.classified()}
    return tuple(_view(scored.get(event.cell_id, event), classes, gate) for event in gate.measured.values())


def _view(event: CellMeasured, classes: Mapping[int, Classified], gate: Gate) -> CellView:
    item = classes.get(id(event.cell))
    return CellView(
        cell_id=event.cell_id,
        cell=event.cell,
        purpose=event.purpose,
        pair=event.pair,
        cell_class=None if item is None else item.cell_class,
        unit=None if item is None or item.unit is None else item.unit + 1,
        bad=event.cell.outcome() if item is not None else None,
        witness="" if item is None else item.witness,
        outcomes=gate.outcomes.get(event.cell_id, ()),
        reason=event.reason,
        detail=event.detail,
    )
