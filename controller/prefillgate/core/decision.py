"""The decision: an ordered list of small named rules, the first that answers wins (DESIGN.md section 5).

`decide` sees one snapshot and nothing else. It has no clock: whatever depends on time is a fact of the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from prefillgate.core.verdict import Outcome, Promotion, Rollback, ThroughputState


class Reason(StrEnum):
    """Why the decision is what it is. One word a machine can match, one sentence in REASON_SENTENCES."""

    DELETING = "Deleting"
    SPEC_INVALID = "SpecInvalid"
    OVERRIDE = "Override"
    CANDIDATE_UNAVAILABLE = "CandidateUnavailable"
    ALREADY_DECIDED = "AlreadyDecided"
    INDEPENDENCE_UNKNOWN = "IndependenceUnknown"
    KNOB_NOT_HONOURED = "KnobNotHonoured"
    CONTAMINATED = "Contaminated"
    UNDECLARED_DIFFERENCE = "UndeclaredDifference"
    INVALID_CELLS = "InvalidCells"
    ERRORS_LOPSIDED = "ErrorsLopsided"
    CANDIDATE_REFUSES = "CandidateRefuses"
    BASELINE_REFUSES = "BaselineRefuses"
    BASELINE_UNAVAILABLE = "BaselineUnavailable"
    CASE_UNUSABLE = "CaseUnusable"
    OTHER_TRAFFIC = "OtherTraffic"
    CHECK_ERROR = "CheckError"
    CHECKS_FAIL_ON_BASELINE = "ChecksFailOnBaseline"
    INSTRUMENT_BROKEN = "InstrumentBroken"
    MEASUREMENT_LOST = "MeasurementLost"
    REGRESSION_CONFIRMED = "RegressionConfirmed"
    FLOOR_MEASURED = "FloorMeasured"
    NO_ALARM = "NoAlarm"
    DEADLINE = "Deadline"
    ALARM_WITHOUT_BASELINE = "AlarmWithoutBaseline"
    REPLICATE_DUE = "ReplicateDue"
    REPLICATE_RUNNING = "ReplicateRunning"
    REGRESSION_NOT_CONFIRMED = "RegressionNotConfirmed"
    SLOWER = "Slower"
    SERVER_LOST = "ServerLost"
    ACCEPTANCE_REACHED = "AcceptanceReached"
    THROUGHPUT_OPEN = "ThroughputOpen"
    BUDGET_SPENT = "BudgetSpent"
    MORE_EVIDENCE_NEEDED = "MoreEvidenceNeeded"


# Could not measure: an Error, which is neither a failed candidate nor a lack of evidence.
ERRORS = frozenset(
    {
        Reason.INVALID_CELLS,
        Reason.BASELINE_REFUSES,
        Reason.BASELINE_UNAVAILABLE,
        Reason.CASE_UNUSABLE,
        Reason.OTHER_TRAFFIC,
        Reason.CHECK_ERROR,
        Reason.CHECKS_FAIL_ON_BASELINE,
        Reason.INSTRUMENT_BROKEN,
        Reason.MEASUREMENT_LOST,
    }
)


@dataclass(frozen=True, slots=True)
class Distrust:
    """Why the measurement cannot be trusted, with one sentence for a person."""

    reason: Reason
    sentence: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything `decide` may look at."""

    deleting: bool = False
    spec_invalid: bool = False
    override: Outcome | None = None  # what a person's override says: promote, hold or rollback
    candidate_unavailable: bool = False
    latched: Outcome | None = None  # decided earlier and latched: a confirmed regression
    distrust: Distrust | None = None
    regression_confirmed: bool = False
    finished: Reason | None = None  # of a run that judges nobody: all that it was to measure is measured
    deadline_passed: bool = False
    alarm: bool = False  # a suspected regression that no replicate has answered yet
    replicate_possible: bool = True  # False without a baseline: a replicate has no mates
    replicate_running: bool = False
    replicate_affordable: bool = True
    replicates_not_confirmed: int = 0
    max_replicates: int = 2
    more_bad_than_allowed: bool = False  # k > K
    throughput: ThroughputState = ThroughputState.NOT_COMPARED
    throughput_required: bool = False
    throughput_pairs_left: bool = False
    slow_more_than_allowed: bool = False  # slow cells are a flag, and no number of others makes up for so many
    acceptance_reached: bool = False
    budget_left: int = 1
    candidate_server_lost: bool = False  # one of several servers of the candidate takes no requests any more


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a rule answers."""

    decision: Outcome
    reason: Reason

    @property
    def promotion(self) -> Promotion:
        """Allowed by promote alone."""
        return Promotion.ALLOWED if self.decision is Outcome.PROMOTE else Promotion.BLOCKED

    @property
    def rollback(self) -> Rollback:
        """Allowed by rollback alone."""
        return Rollback.ALLOWED if self.decision is Outcome.ROLLBACK else Rollback.REFUSED


Rule = Callable[[Snapshot], Ruling | None]


def deleting(s: Snapshot) -> Ruling | None:
    """1. Nothing is decided about an object that is going away."""
    return Ruling(Outcome.HOLD, Reason.DELETING) if s.deleting else None


def spec_invalid(s: Snapshot) -> Ruling | None:
    """2. A spec that cannot be read promotes nothing."""
    return Ruling(Outcome.HOLD, Reason.SPEC_INVALID) if s.spec_invalid else None


def override(s: Snapshot) -> Ruling | None:
    """3. A person's annotation with a reason is obeyed."""
    return None if s.override is None else Ruling(s.override, Reason.OVERRIDE)


def candidate_unavailable(s: Snapshot) -> Ruling | None:
    """4. Rollback at once: availability, and no claim about quality."""
    return Ruling(Outcome.ROLLBACK, Reason.CANDIDATE_UNAVAILABLE) if s.candidate_unavailable else None


def already_decided(s: Snapshot) -> Ruling | None:
    """5. A confirmed regression is latched."""
    return None if s.latched is None else Ruling(s.latched, Reason.ALREADY_DECIDED)


def measurement_not_trustworthy(s: Snapshot) -> Ruling | None:
    """6. Evidence that cannot be trusted decides nothing, in either direction."""
    return None if s.distrust is None else Ruling(Outcome.HOLD, s.distrust.reason)


def regression_confirmed(s: Snapshot) -> Ruling | None:
    """7. A fresh replicate, analysed alone, confirmed it: error bound .05 for ever (STATISTICS.md section 4)."""
    return Ruling(Outcome.ROLLBACK, Reason.REGRESSION_CONFIRMED) if s.regression_confirmed else None


def finished(s: Snapshot) -> Ruling | None:
    """8. A floor, or a small replay after a promotion, is over once all of it is measured: nobody is judged by it."""
    return None if s.finished is None else Ruling(Outcome.HOLD, s.finished)


def deadline(s: Snapshot) -> Ruling | None:
    """9. Out of time."""
    return Ruling(Outcome.HOLD, Reason.DEADLINE) if s.deadline_passed else None


def alarm_without_baseline(s: Snapshot) -> Ruling | None:
    """10. An alarm that no replicate can answer, since its mates would be baseline prefills: a person decides."""
    unanswered = s.alarm and not s.replicate_possible
    return Ruling(Outcome.HOLD, Reason.ALARM_WITHOUT_BASELINE) if unanswered else None


def replicate_due_or_running(s: Snapshot) -> Ruling | None:
    """11. An alarm blocks promotion until a fresh replicate has answered it, where one may still be run."""
    if s.replicate_running and s.budget_left <= 0:
        return Ruling(Outcome.HOLD, Reason.BUDGET_SPENT)
    if s.replicate_running:
        return Ruling(Outcome.CONTINUE, Reason.REPLICATE_RUNNING)
    if s.alarm and _replicate_allowed(s):
        if s.replicate_affordable:
            return Ruling(Outcome.CONTINUE, Reason.REPLICATE_DUE)
        return Ruling(Outcome.HOLD, Reason.BUDGET_SPENT)
    return None


def _replicate_allowed(s: Snapshot) -> bool:
    """The first alarm may be replicated; after a replicate that was not confirmed, the next one only where it came
    by a new alarm, while attempts are left."""
    return s.replicates_not_confirmed < s.max_replicates


def not_confirmed(s: Snapshot) -> Ruling | None:
    """12. More than K bad and no new replicate allowed, or the attempts used up: a person decides."""
    answered = s.replicates_not_confirmed > 0
    used_up = s.replicates_not_confirmed >= s.max_replicates
    if (used_up and (answered or s.alarm)) or (answered and s.more_bad_than_allowed):
        return Ruling(Outcome.HOLD, Reason.REGRESSION_NOT_CONFIRMED)
    return None


def throughput_worse(s: Snapshot) -> Ruling | None:
    """13. Slower holds, and never rolls back."""
    if s.throughput_required and (s.throughput is ThroughputState.WORSE or s.slow_more_than_allowed):
        return Ruling(Outcome.HOLD, Reason.SLOWER)
    return None


def acceptance_reached(s: Snapshot) -> Ruling | None:
    """14. The acceptance table (false promotion at most alpha) and throughput not worse."""
    if not s.acceptance_reached or s.more_bad_than_allowed:
        return None
    if not s.throughput_required or s.throughput is ThroughputState.NOT_WORSE:
        if s.candidate_server_lost:
            return Ruling(Outcome.HOLD, Reason.SERVER_LOST)
        return Ruling(Outcome.PROMOTE, Reason.ACCEPTANCE_REACHED)
    if not s.throughput_pairs_left:
        return Ruling(Outcome.HOLD, Reason.THROUGHPUT_OPEN)
    return None


def budget_spent(s: Snapshot) -> Ruling | None:
    """15. Nothing is left to spend."""
    return Ruling(Outcome.HOLD, Reason.BUDGET_SPENT) if s.budget_left <= 0 else None


def more_evidence_needed(s: Snapshot) -> Ruling | None:
    """16. Otherwise collect on."""
    return Ruling(Outcome.CONTINUE, Reason.MORE_EVIDENCE_NEEDED)


RULES: tuple[Rule, ...] = (
    deleting,
    spec_invalid,
    override,
    candidate_unavailable,
    already_decided,
    measurement_not_trustworthy,
    regression_confirmed,
    finished,
    deadline,
    alarm_without_baseline,
    replicate_due_or_running,
    not_confirmed,
    throughput_worse,
    acceptance_reached,
    budget_spent,
    more_evidence_needed,
)


def decide(snapshot: Snapshot) -> Ruling:
    """The first rule that answers."""
    for rule in RULES:
        ruling = rule(snapshot)
        if ruling is not None:
            return ruling
    raise AssertionError("the last rule always answers")
