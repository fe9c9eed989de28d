"""The gate: every fact of a run folded into what is known now.

`Gate.apply` takes the journal's events in order; nothing else changes it. Whatever is latched (an alarm, a confirmed
replicate) is latched by folding the same events again, so a decision recomputed from the store is the decision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from prefillgate.core.alarm import alarm_level, cusum
from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE, Cell, Status
from prefillgate.core.earlier import Watching
from prefillgate.core.flags import CONDITIONAL, counts, flag_outcome, worst
from prefillgate.core.freshness import Classified, Classifier
from prefillgate.core.journal import (
    BaselineShown,
    BudgetRaised,
    CandidateUnavailable,
    CauseNoted,
    CellChecked,
    CellMeasured,
    CheckOutcome,
    DeadlinePassed,
    EpochSeen,
    Event,
    GatewayCompared,
    JournalError,
    JudgeCompared,
    MeasurementLost,
    Overridden,
    OverrideEnded,
    Planned,
    Purpose,
    ReplicateAborted,
    ReplicateStarted,
    RunResumed,
    SeparationKept,
    WindowOpened,
)
from prefillgate.core.places import Places
from prefillgate.core.policy import Flag
from prefillgate.core.replicate import Ending, PromptTurns, Replicate, is_replicate_unit, paired_replicate
from prefillgate.core.units import UnitLedger
from prefillgate.core.watch import Watched, watched
from prefillgate.core.window_replicate import window_replicate
from prefillgate.core.windows import Windows

BUSY = frozenset({429, 503})  # waited for, not among three invalid cells in a row
REFUSED_BODY = frozenset({400, 413, 422})
REFUSALS = frozenset({"ConnectionRefused", "Tls", "ConnectTimeout", "NameNotFound", "Refused"})


@dataclass(slots=True)
class Gate:
    """What is known of one run. Read its fields; change it by `apply` alone."""

    planned: Planned | None = None
    epochs: dict[str, list[EpochSeen]] = field(default_factory=lambda: {arm: [] for arm in ARMS})
    measured: dict[int, CellMeasured] = field(default_factory=dict)
    flawed: list[CellMeasured] = field(default_factory=list)  # failed and invalid cells, in the order measured
    outcomes: dict[int, tuple[CheckOutcome, ...]] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)  # checks that failed on any answer
    erring: set[str] = field(default_factory=set)  # checks that erred on any answer
    scored: list[CellMeasured] = field(default_factory=list)  # with `bad` filled in, in scoring order
    paired: list[CellMeasured] = field(default_factory=list)  # those of them that are halves of a throughput pair
    places: Places = field(default_factory=Places)
    windows: Windows = field(default_factory=Windows)  # of a sequential run
    replicates: list[Replicate] = field(default_factory=list)
    replicate_seeds: list[ReplicateStarted] = field(default_factory=list)
    alarm: bool = False  # raised and not answered by a replicate yet
    ever_alarmed: bool = False
    unavailable: CandidateUnavailable | None = None
    lost: MeasurementLost | None = None
    deadline: DeadlinePassed | None = None
    overridden: Overridden | None = None
    cause: CauseNoted | None = None
    raised: BudgetRaised | None = None
    judges: dict[str, JudgeCompared] = field(default_factory=dict)  # by name of the check, the last one
    baseline_shown: BaselineShown | None = None  # of an earlier run
    compared: list[GatewayCompared] = field(default_factory=list)
    session: int = 0
    latched_rollback: bool = False
    _classifier: Classifier = field(default_factory=Classifier)
    _cusum_from: int = -1  # equivalent mutant: any number below the first position
    _unchecked: dict[int, CellMeasured] = field(default_factory=dict)
    _refusals: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))  # in a row, by server
    _invalid_run: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    _sessions: dict[int, int] = field(default_factory=dict)
    _pass_cut: bool = False
    _ledgers: list[UnitLedger] = field(default_factory=list)  # of the candidate's cells, under each flag
    _ledgers_of: list[Classified] | None = None  # the classes they were folded from
    _looked_at: tuple[list[int], int] | None = None  # bad ones by flag and where the CUSUM begins, at its last look
    _looked_of: list[Classified] | None = None
    _paired_of: list[Classified] | None = None
    _paired_taken: int = 0
    _paired_classes: dict[int, Classified] = field(default_factory=dict)  # by identity of the cell

    # -- folding

    def apply(self, event: Event) -> None:
        """Fold one event. Raises JournalError for one that cannot follow what came before."""
        if self.planned is None:
            if not isinstance(event, Planned):
                raise JournalError(f"the journal begins with {type(event).__name__}, not with a plan")
            self.planned = event
            self.places.begin(event)
            self.alarm = self.ever_alarmed = event.trigger is not None
            self._pass_cut = event.answers_cut
            return
        match event:
            case Planned():
                raise JournalError("a second plan in one journal")
            case EpochSeen():
                self.epochs[event.arm].append(event)
            case CellMeasured():
                self._measure(event)
            case CellChecked():
                self._check(event)
            case ReplicateStarted():
                self._start_replicate(event)
            case SeparationKept():
                replicate = self.replicate(event.number)
                replicate.separation, replicate.separation_detail = event.how, event.detail
            case ReplicateAborted():
                self.replicate(event.number).aborted = event.why
            case _:
                self._note(event)

    def _note(self, event: Event) -> None:
        match event:
            case CandidateUnavailable():
                self.unavailable = event
            case MeasurementLost():
                self.lost = event
            case DeadlinePassed():
                self.deadline = event
            case Overridden():
                self.overridden = event
            case OverrideEnded():
                self.overridden = None
            case BaselineShown():
                self.baseline_shown = event
            case CauseNoted():
                self.cause = event
            case GatewayCompared():
                if event.cell_id not in self.measured:
                    raise JournalError(f"cell {event.cell_id} was sent to a gateway and never measured")
                self.compared.append(event)
            case BudgetRaised():
                self._raise_budget(event)
            case RunResumed():
                self._resume()
            case JudgeCompared():
                self.judges[event.check] = event
            case WindowOpened():
                self.windows.opened(event)
            case _:
                raise JournalError(f"unknown event {type(event).__name__}")

    def _raise_budget(self, event: BudgetRaised) -> None:
        if event.budget <= self.budget:
            raise JournalError(
                f"a budget of {event.budget} prefills after one of {self.budget}: it is only ever raised"
            )
        self.raised = event

    def _resume(self) -> None:
        """Somebody saw to it: what could not be measured or reached is tried anew. No cell is forgotten."""
        self.session += 1
        self.deadline = self.unavailable = self.lost = None
        self._refusals.clear()
        self._invalid_run.clear()
        self.windows.left()

    def _measure(self, event: CellMeasured) -> None:
        if event.cell_id in self.measured:
            raise JournalError(f"cell {event.cell_id} stands twice in the journal")
        if event.cell.replicate and self._replicate_of(event).separation is None:
            raise JournalError(f"cell {event.cell_id} of replicate {event.cell.replicate} before its separation")
        self.measured[event.cell_id] = event
        self._sessions[event.cell_id] = self.session
        self.places.measured(event, self.session)
        self.windows.measured(event)
        self._count_invalid(event)
        if event.cell.status is Status.OK:
            self._unchecked[event.cell_id] = event
            return
        self.flawed.append(event)
        if event.cell.status is Status.FAILED:
            self._score(replace(event, cell=replace(event.cell, bad=True)))
        elif event.cell.replicate:
            busy = event.http_status in BUSY
            self._replicate_of(event).invalidate(event.pair or 0, event.cell.arm, busy)

    def _count_invalid(self, event: CellMeasured) -> None:
        invalid = event.cell.status is Status.INVALID
        key = (event.cell.arm, event.cell.case_id)
        if not invalid:
            self._invalid_run[key] = 0
        elif event.http_status not in BUSY and not self._of_one_server(event):
            self._invalid_run[key] += 1
        if event.http_status not in BUSY:
            server = (event.cell.arm, event.lane)
            self._refusals[server] = self._refusals[server] + 1 if invalid and event.reason in REFUSALS else 0

    def _of_one_server(self, event: CellMeasured) -> bool:
        """Whether one of several servers of the candidate refused: that tells of the server and not of the case."""
        arm = event.cell.arm
        return arm == CANDIDATE and event.reason in REFUSALS and self.plan.shape.lanes(arm) > 1

    def _check(self, event: CellChecked) -> None:
        measured = self.measured.get(event.cell_id)
        if measured is None or measured.cell.status is not Status.OK:
            raise JournalError(f"checks of cell {event.cell_id}, which has no answer")
        if event.cell_id in self.outcomes:
            raise JournalError(f"cell {event.cell_id} was checked twice")
        self.outcomes[event.cell_id] = event.outcomes
        self.failing.update(one.check for one in event.outcomes if one.bad)
        self.erring.update(one.check for one in event.outcomes if one.bad is None)
        del self._unchecked[event.cell_id]
        if measured.purpose is Purpose.BASELINE_PASS:
            self._pass_cut |= any(o.check == CONDITIONAL and o.bad for o in event.outcomes)
        self._score(replace(measured, cell=self._with_outcomes(measured.cell, event.outcomes)))

    def _with_outcomes(self, cell: Cell, outcomes: tuple[CheckOutcome, ...]) -> Cell:
        values = tuple((flag.name, flag_outcome(flag, outcomes, self._pass_cut)) for flag in self.flags)
        return replace(cell, bad=self.bad_by(outcomes), flag_outcomes=values)

    def bad_by(self, outcomes: tuple[CheckOutcome, ...]) -> bool | None:
        """Whether an answer with these outcomes is bad under any flag; None where that is not known."""
        return worst([flag_outcome(flag, outcomes, self._pass_cut) for flag in self.flags])

    def decides(self, check: str) -> bool:
        """Whether the outcomes of `check` reach any flag; the others are only reported."""
        return any(counts(flag, check, self._pass_cut) for flag in self.flags)

    def _score(self, event: CellMeasured) -> None:
        self.scored.append(event)
        if event.purpose is Purpose.PAIR and event.pair is not None:
            self.paired.append(event)
        self._classifier.add(event.cell)
        self.windows.scored(event)
        if event.cell.replicate:
            self._score_replicate(event)
        elif event.cell.arm == CANDIDATE:
            self._watch_for_alarm()

    def _score_replicate(self, event: CellMeasured) -> None:
        """A unit of a replicate is its own fresh cell; anything less is no half of a pair and is planned again."""
        replicate, pair = self._replicate_of(event), event.pair or 0
        item = next(entry for entry in reversed(self.classified()) if entry.cell is event.cell)
        values = tuple(event.cell.outcome(flag.name) for flag in self.flags)
        known = tuple(bool(value) for value in values if value is not None)
        if is_replicate_unit(item, replicate.policy.max_cached_tokens) and len(known) == len(values):
            replicate.record(pair, event.cell.arm, known)
        else:
            replicate.invalidate(pair, event.cell.arm)
        if replicate.ending() is Ending.CONFIRMED:
            self.latched_rollback = True

    def _watch_for_alarm(self) -> None:
        """A clean outcome only lowers the CUSUM: it is looked at where a bad one came, or where classes changed."""
        if self.plan.watching is not None:
            self.alarm = self.ever_alarmed = self.ever_alarmed or self.watched(self.plan.watching).alarmed
            return
        policy, ledgers = self.plan.policy, self.candidate_ledgers()
        looked_at = ([ledger.bad for ledger in ledgers], self._cusum_from)
        if self._looked_at == looked_at and self._looked_of is self._ledgers_of:
            return
        self._looked_at, self._looked_of = looked_at, self._ledgers_of
        for ledger in ledgers:
            crossed = cusum(ledger.outcomes(self._cusum_from), policy.alarm).alarmed
            if crossed or ledger.bad > len(policy.acceptance) - 1:
                self.alarm = self.ever_alarmed = True

    def _start_replicate(self, event: ReplicateStarted) -> None:
        expected = self.plan.first_replicate + len(self.replicates)
        if event.number != expected:
            raise JournalError(f"replicate {event.number} started where number {expected} was due")
        if self.open_replicate is not None:
            raise JournalError(f"replicate {event.number} started before replicate {event.number - 1} ended")
        policy = self.plan.policy.replicate
        failed = self.failed_cases()
        others = [case for case in self.places.upcoming() if case not in failed]
        turns = PromptTurns(tuple(failed), tuple(others))
        made = window_replicate if self.plan.shape.sequential else paired_replicate
        self.replicates.append(made(event.number, event.seed, turns, policy, len(self.flags)))
        self.replicate_seeds.append(event)
        self.alarm = False
        self._cusum_from = len(self.classified()) - 1

    # -- reading

    @property
    def plan(self) -> Planned:
        """The plan. Raises JournalError while there is none."""
        if self.planned is None:
            raise JournalError("the journal is empty")
        return self.planned

    @property
    def flags(self) -> tuple[Flag, ...]:
        """The declared flags; one by default."""
        return self.plan.policy.flags

    def replicate(self, number: int) -> Replicate:
        """The replicate of that number. Raises JournalError where it was not started."""
        index = number - self.plan.first_replicate
        if not 0 <= index < len(self.replicates):
            raise JournalError(f"replicate {number} was never started")
        return self.replicates[index]

    def _replicate_of(self, event: CellMeasured) -> Replicate:
        return self.replicate(event.cell.replicate)

    @property
    def open_replicate(self) -> Replicate | None:
        """The replicate that was started and has not ended."""
        last = self.replicates[-1] if self.replicates else None
        return last if last is not None and last.ending() is None else None

    @property
    def not_confirmed(self) -> int:
        """How many replicates ended without confirming."""
        return sum(1 for r in self.replicates if r.ending() not in (None, Ending.CONFIRMED))

    def classified(self) -> list[Classified]:
        """Every scored cell with its class, in time order."""
        return self._classifier.classified()

    def candidate_ledgers(self) -> list[UnitLedger]:
        """The candidate's units under each flag. Folded on as cells come; anew where earlier classes changed."""
        classified = self.classified()
        if self._ledgers_of is not classified:
            self._ledgers, self._ledgers_of = [UnitLedger() for _ in self.flags], classified
        for ledger, flag in zip(self._ledgers, self.flags, strict=True):  # equivalent mutant: one for each flag
            ledger.take(classified, CANDIDATE, flag.name)
        return self._ledgers

    def classes_of_pairs(self) -> dict[int, Classified]:
        """The classes of the cells that are halves of throughput pairs, by `id` of the cell."""
        classified = self.classified()
        if self._paired_of is not classified:
            self._paired_of, self._paired_taken, self._paired_classes = classified, 0, {}
        if self._paired_taken < len(classified):
            halves = {id(event.cell) for event in self.paired}
            for item in classified[self._paired_taken :]:
                if id(item.cell) in halves:
                    self._paired_classes[id(item.cell)] = item
            self._paired_taken = len(classified)
        return self._paired_classes

    def failed_cases(self) -> list[str]:
        """Cases of the candidate's bad cells so far, in the order they failed; those of the trigger come first."""
        before = () if self.plan.trigger is None else self.plan.trigger.cases
        bad = [m.cell.case_id for m in self.scored if m.cell.arm == CANDIDATE and m.cell.bad]
        return list(dict.fromkeys([*before, *bad]))

    def watched(self, watching: Watching) -> Watched:
        """What a replay after a promotion has shown so far. An alarm that was raised stands."""
        seen = watched(self.classified(), self.plan.policy, watching)
        return replace(seen, alarmed=seen.alarmed or self.ever_alarmed)

    @property
    def budget(self) -> int:
        """Prefills the run may spend now, both arms: the policy's, or what it was raised to since.

        Raising it moves no error bound. False promotion is summed over all entries of the acceptance table, so a budget
        only cuts a path short; a replicate's e-value holds wherever one stops (STATISTICS.md sections 2 and 4).
        """
        return self.plan.policy.budget if self.raised is None else self.raised.budget

    @property
    def prefills_used(self) -> int:
        """Scored cells of both arms: what the budget pays for."""
        return len(self.scored)

    def next_cell_id(self, in_flight: frozenset[int] = frozenset()) -> int:
        """An id that no cell has, measured or in flight."""
        taken = self.measured.keys() | in_flight
        return next(number for number in count(len(self.measured)) if number not in taken)

    def unchecked(self) -> list[CellMeasured]:
        """Answers that no check has read yet (the process ended between the two events)."""
        return list(self._unchecked.values())

    def invalid_runs(self) -> list[tuple[str, str, int]]:
        """(arm, case, invalid cells in a row) where there are any."""
        return [(arm, case, count) for (arm, case), count in self._invalid_run.items() if count]

    @property
    def refusals(self) -> int:
        """Refusals of the candidate in a row; with several servers the fewest of any."""
        return min(self._refusals_of(CANDIDATE))

    @property
    def all_refusals(self) -> int:
        """Refusals of the candidate in a row, over all its servers."""
        return sum(self._refusals_of(CANDIDATE))

    def _refusals_of(self, arm: str) -> list[int]:
        return [self._refusals.get((arm, lane), 0) for lane in range(self.plan.shape.lanes(arm))]

    def lost_lanes(self, arm: str) -> list[int]:
        """Servers of the arm that refused as often in a row as the policy allows, while another takes requests."""
        refusals, allowed = self._refusals_of(arm), self.plan.policy.refusals
        return [lane for lane, made in enumerate(refusals) if made >= allowed > min(refusals)]

    def current_epochs(self, arm: str) -> list[EpochSeen]:
        """The present life of each of the arm's servers that was met, by its number."""
        latest = {seen.lane: seen for seen in self.epochs[arm]}
        return [latest[lane] for lane in sorted(latest)]

    @property
    def baseline_pass_cut(self) -> bool:
        """Whether an answer of the baseline pass was cut at its token limit."""
        return self._pass_cut

    def session_of(self, cell_id: int) -> int:
        """Which run of the program measured the cell: 0 the first, 1 after the first resume."""
        return self._sessions[cell_id]

    def alarm_state(self) -> tuple[float, float]:
        """(CUSUM now, level that alarms), in nats, of the flag nearest to an alarm."""
        policy, watching = self.plan.policy.alarm, self.plan.watching
        if watching is not None:
            return max(self.watched(watching).levels), alarm_level(policy, watch=True)
        levels = [cusum(ledger.outcomes(self._cusum_from), policy).level for ledger in self.candidate_ledgers()]
        return max(levels), alarm_level(policy)


def fold(events: Iterable[Event]) -> Gate:
    """The gate after all of `events`."""
    gate = Gate()
    for event in events:
        gate.apply(event)
    return gate


def cells_of(gate: Gate, arm: str) -> Sequence[CellMeasured]:
    """The scored cells of one arm, in scoring order."""
    return [event for event in gate.scored if event.cell.arm == arm]


__all__ = ["BASELINE", "CANDIDATE", "Gate", "JournalError", "cells_of", "fold", "is_replicate_unit"]
