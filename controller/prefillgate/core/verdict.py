"""What an answer carries, as plain values: everything a report, a terminal or a machine may say.

There is one source (`prefillgate.core.judge`), so HTML, Markdown, JUnit, JSON and the one line cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from prefillgate.core.cells import BASELINE, CANDIDATE, Cell
from prefillgate.core.earlier import StoredFloor, Trigger
from prefillgate.core.journal import BaselineShown, CheckOutcome, Difference, Purpose
from prefillgate.core.shape import Shape


class Outcome(StrEnum):
    """The decision."""

    PROMOTE = "promote"
    HOLD = "hold"
    ROLLBACK = "rollback"
    CONTINUE = "continue"  # only while a run is under way


class Promotion(StrEnum):
    ALLOWED = "Allowed"
    BLOCKED = "Blocked"


class Rollback(StrEnum):
    ALLOWED = "Allowed"
    REFUSED = "Refused"


class CellClass(StrEnum):
    """What a scored cell is worth as evidence (STATISTICS.md section 1)."""

    FRESH = "fresh"
    COPY = "copy"
    PARTIAL = "partial"
    UNKNOWN = "unknown"
    CONTRADICTED = "contradicted"
    ORPHAN = "orphan"


Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ArmCounts:
    """One arm restated. Intervals are two-sided 95 % Clopper-Pearson, None where nothing was seen."""

    requests: int  # scored cells
    prefills: int  # fresh units
    decision_prefills: int  # n of STATISTICS.md section 1
    copies: int
    partial: int
    unknown: int  # contradicted ones too
    orphans: int
    bad_requests: int
    bad_prefills: int  # bad fresh units
    bad_for_promotion: int  # k
    request_interval: Interval | None
    prefill_interval: Interval | None
    invalid: int = 0
    effective_prefills: float | None = None  # Kish n_eff, a diagnostic


@dataclass(frozen=True, slots=True)
class Comparison:
    """The naive and the honest test side by side, over the prompts both arms saw. One-sided p values."""

    fisher_by_request: float | None
    fisher_by_prefill: float | None
    boschloo_by_prefill: float | None


@dataclass(frozen=True, slots=True)
class CellView:
    """A cell as shown: its class, the unit it belongs to, and why."""

    cell_id: int
    cell: Cell
    purpose: Purpose
    pair: int | None
    cell_class: CellClass | None  # None for an invalid cell
    unit: int | None  # units are numbered per arm from 1
    bad: bool | None
    witness: str  # "cache_n 0, processed 312 of 312"
    outcomes: tuple[CheckOutcome, ...] = ()
    reason: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class PathPoint:
    """One step of the acceptance path: after so many units, so many bad."""

    prefills: int
    bad: int


@dataclass(frozen=True, slots=True)
class PairFactor:
    """One complete pair of a replicate and what it did to E."""

    pair: int
    case_id: str
    candidate_bad: bool
    baseline_bad: bool
    factor: float
    e_value: float  # after this pair


@dataclass(frozen=True, slots=True)
class ReplicateView:
    """One replicate. `ending` is confirmed, clean, futile, capped, aborted, or None while it runs."""

    number: int
    threshold: float
    ending: str | None
    candidate_units: int
    candidate_bad: int
    pairs: tuple[PairFactor, ...]
    e_value: float
    separation: str | None  # gap, restart, another_process
    separation_detail: str = ""
    candidate_rate_upper: float | None = None  # one-sided 95 % bound
    carrying_prompts: tuple[str, ...] = ()  # prompts whose pairs raised E
    futility: float | None = None  # E at or below this ends the replicate as futile


class ThroughputState(StrEnum):
    NOT_WORSE = "NotWorse"
    WORSE = "Worse"
    OPEN = "Open"
    NOT_COMPARED = "NotCompared"


@dataclass(frozen=True, slots=True)
class ThroughputPair:
    """One pair: the same prompt on both arms, adjacent in time. Rates in tokens per second."""

    pair: int
    case_id: str
    baseline_tokens_per_second: float | None
    candidate_tokens_per_second: float | None
    used: bool
    why_not: str = ""
    identical_output: bool | None = None
    slow: bool = False


@dataclass(frozen=True, slots=True)
class ThroughputView:
    """Decode throughput. Ratios are candidate over baseline."""

    state: ThroughputState
    margin: float
    pairs: tuple[ThroughputPair, ...]
    pairs_used: int
    prompts_in_pairs: int
    ratio: float | None  # Hodges-Lehmann, exponentiated
    ratio_interval: Interval | None  # 90 % two-sided: each end is a one-sided 95 % bound
    e_not_worse: float
    e_worse: float
    baseline_ms_per_token: float | None
    candidate_ms_per_token: float | None
    baseline_tokens_per_second: float | None
    candidate_tokens_per_second: float | None
    slow_share_candidate: float | None
    slow_share_baseline: float | None
    identical_share: float | None
    aa_identical_share: float | None
    pairs_needed: int | None
    sentence: str = ""
    missing_prompts: tuple[str, ...] = ()  # prompts that must still be in a pair before it may promote
    cv: float | None = None  # of one cell's rate, from the spread of the pairs


@dataclass(frozen=True, slots=True)
class GatewayView:
    """A bad cell of the candidate, asked once more straight and through the gateway: one prefill each, no rate."""

    gateway: str
    cell_id: int
    case_id: str
    where: str  # both, gateway, direct, neither, unknown: on which way it was bad again
    direct_bad: bool | None
    through_bad: bool | None
    reached: bool  # whether the gateway took the request, or refused its body
    asked_server: bool | None  # whether the server under test worked for it, by its own counters
    knob: str  # kept, stripped, unknown
    from_cache: bool | None  # whether the same request again came from a response cache
    rewrites: tuple[str, ...]  # what shows that another body arrived than was sent
    refusal: str | None  # what the gateway says of a body that it refuses and the server takes
    detail: str = ""  # why an answer is none
    through_failure: str | None = None  # why the gateway gave no complete answer to what it accepted


@dataclass(frozen=True, slots=True)
class WatchView:
    """A small replay after a promotion, and all of them since then, this one included."""

    wanted: int  # fresh prefills that this replay takes
    prefills: int  # and has
    bad_prefills: int
    replays: int
    prefills_since: int
    bad_since: int
    alarms_since: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer. `sentences` are what a person reads first, most important first."""

    decision: Outcome
    promotion: Promotion
    rollback: Rollback
    reason: str  # CamelCase
    sentences: tuple[str, ...]
    cause: str = "Unverified"
    what_would_change: tuple[str, ...] = ()
    measured: bool = True  # False: the instrument, not the evidence, is why nothing is allowed (Error, exit code 1)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision with everything that stands behind it."""

    title: str
    decision: Decision
    policy_name: str
    margin: float
    acceptance: tuple[int, ...]
    baseline: ArmCounts | None  # None: this arm was not there
    candidate: ArmCounts
    comparison: Comparison
    cells: tuple[CellView, ...]
    path: tuple[PathPoint, ...]  # acceptance path of the candidate
    alarm: bool
    alarm_level: float  # CUSUM now, in nats
    alarm_at: float  # CUSUM level that alarms, in nats
    replicates: tuple[ReplicateView, ...]
    throughput: ThroughputView
    differences: tuple[Difference, ...]
    prompts: int
    distinct_outputs: int | None
    prefills_used: int  # both arms
    budget: int
    notes: tuple[str, ...] = ()  # findings, warnings
    cases: tuple[str, ...] = ()  # of the replay set, asked or not
    bad_cases: tuple[str, ...] = ()  # of a log too large to keep its cells: those that were bad on the candidate
    gateway: tuple[GatewayView, ...] = ()
    budget_needed: int | None = None  # with which a run that ended on its budget would go on to an answer
    replay_set_name: str = ""
    replay_set_sha256: str = ""
    baseline_name: str = "baseline"
    candidate_name: str = "candidate"
    started_at: float | None = None
    ended_at: float | None = None
    shape: Shape | None = None  # None for a log
    baseline_shown: BaselineShown | None = None  # an earlier run's, which decides nothing
    floor: StoredFloor | None = None  # the baseline against itself: an earlier run's, or what a floor's run found
    watch: WatchView | None = None  # of a replay after a promotion
    trigger: Trigger | None = None  # the alarm that this run's replicate answers

    @property
    def judges_nobody(self) -> bool:
        """Whether it is of a floor, or of a small replay after a promotion: nothing is promoted or held up by it."""
        return self.floor_alone or self.watch is not None

    @property
    def floor_alone(self) -> bool:
        """Whether it is of a floor: no candidate was there."""
        return self.shape is not None and self.shape.baseline_alone

    @property
    def arms(self) -> tuple[tuple[str, str, ArmCounts], ...]:
        """(arm, its name, its counts) of the arms that are there, the baseline first."""
        both = ((BASELINE, self.baseline_name, self.baseline), (CANDIDATE, self.candidate_name, self.candidate))
        there = (CANDIDATE, BASELINE) if self.shape is None else self.shape.arms
        return tuple((arm, name, counts) for arm, name, counts in both if counts is not None and arm in there)
