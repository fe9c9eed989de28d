"""The journal: every fact of a run, in the order it became known. The decision is a function of it.

The shell appends events, each in one transaction, before anything looks at them; the core folds them.
Facts that depend on time (a deadline, a gap, an unreachable server) are events too, because the core
has no clock. No event holds a verdict or a count of this run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from prefillgate.core.agreement import Agreement
from prefillgate.core.cells import Cell, Status
from prefillgate.core.earlier import StoredFloor, Trigger, Watching
from prefillgate.core.policy import Policy
from prefillgate.core.shape import Shape

OUT_OF_TURN = -1  # the place of a pair that is run for its speed alone


class JournalError(ValueError):
    """The journal's events do not fit each other."""


class Purpose(StrEnum):
    """Why a cell was planned."""

    BASELINE_PASS = "baseline_pass"  # the first look at the baseline, before the candidate's budget
    AA = "aa"  # the second pass over the baseline (instrument check)
    SCREEN = "screen"  # a candidate cell alone
    PAIR = "pair"  # half of a throughput pair; the candidate half is an ordinary promotion unit
    REPLICATE = "replicate"
    COMPARE = "compare"  # a cell to tell whether a body that the other arm refused is refused by both
    WINDOW = "window"  # one cell of a window of a sequential run; its `pair` is the pair of windows


@dataclass(frozen=True, slots=True)
class CaseRef:
    """A case of the plan: its id, the digest of its canonical body, and its length in characters.

    `line` is its whole line of the replay set as canonical JSON, so that the run can be followed without the file; None
    in a store that did not keep it.
    """

    case_id: str
    sha256: str
    characters: int
    max_tokens: int | None = None
    greedy: bool = True
    line: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One named difference between the two profiles. `declared` ones are what the run is about."""

    area: str  # layer placement, draft head, KV cache, weights, build, other
    name: str
    baseline: str | None
    candidate: str | None
    declared: bool = True


@dataclass(frozen=True, slots=True)
class Planned:
    """First event of every journal: what is compared, by which numbers, on which prompts."""

    run_id: str
    started_at: float
    seed: int
    policy: Policy
    cases: tuple[CaseRef, ...]
    replay_set_name: str
    replay_set_sha256: str
    baseline_url: str | None  # None: no baseline
    candidate_url: str
    differences: tuple[Difference, ...] = ()
    first_replicate: int = 1  # replicates are numbered for the life of a pair of profile digests
    shape: Shape = field(default_factory=Shape)
    command: tuple[str, ...] = ()  # the words of the command line that began it, without store and seed
    checks: str | None = None  # those declared, as a JSON list (`null`: none, the default ones); None: not kept
    scheduled: bool = True  # False: a demonstration, some of whose cells no schedule asked for
    floor: StoredFloor | None = None  # of the baseline, measured before; then this run has no A/A pass of its own
    watching: Watching | None = None  # a small replay after a promotion; the candidate is the promoted profile
    trigger: Trigger | None = None  # an alarm after a promotion; this run is its replicate and no more

    @property
    def answers_cut(self) -> bool:
        """Whether a run before this one saw the baseline's answers cut at their token limit."""
        return any(before is not None and before.answers_cut for before in (self.floor, self.watching, self.trigger))


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """A server epoch was met and probed.

    `findings` name what the probe could not show, `access_findings` what must be known of the way to the server.
    """

    arm: str
    server_epoch: str
    seen_at: float
    engine: str
    build: str | None
    model: str | None
    counter_alive: bool
    cold_proof: str | None  # the means shown to work, a ColdProof value
    shares_blocks: bool
    findings: tuple[str, ...] = ()
    weights: str | None = None  # what tells the weights apart (path, size, parameter count), as the server tells it
    context_tokens: int | None = None
    settings: tuple[tuple[str, str], ...] = ()  # what else the server told of its profile
    access_findings: tuple[str, ...] = ()
    lane: int = 0  # which of the arm's servers, from 0
    knob_ignored: str | None = None  # how the probe saw that nothing forces a fresh prefill, and what would
    route_proofs: tuple[tuple[str, str], ...] = ()  # of routes that do not take `cold_proof`: what was shown there

    def proof_on(self, path: str) -> str | None:
        """The means of forcing a fresh prefill on a route such as "/v1/completions"; None where none was shown."""
        return dict(self.route_proofs).get(path, self.cold_proof)


@dataclass(frozen=True, slots=True)
class CellMeasured:
    """A cell came to its end. Its text lies beside it in the store, whole."""

    cell_id: int  # unique in the journal; cells in flight at the same time may end in another order
    cell: Cell
    purpose: Purpose
    pair: int | None = None  # throughput pair, or pair of the replicate
    round: int = 0
    attempt: int = 1  # of the same planned place, after invalid ones
    seed: int | None = None
    nonce: str | None = None
    reason: str | None = None  # why failed or invalid, one word
    detail: str | None = None  # the server's message, one clean line
    http_status: int | None = None
    time_to_first_token_ms: float | None = None
    draft_tokens: int | None = None
    draft_accepted_tokens: int | None = None
    reasoning_tokens: int | None = None  # of the output tokens, those of the reasoning
    place: int | None = None  # position in its pass or in the screen; OUT_OF_TURN; None: the next in turn
    lane: int = 0  # which of the arm's servers, from 0
    retractions: int | None = None  # how often the server took the request back: above 0 its times tell nothing


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """One check on one output. `bad` None means the check erred: an Error, never a pass.

    `text` is what a program or a server that the check asked said about the output, as it came.
    """

    check: str
    version: str
    bad: bool | None
    detail: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class CellChecked:
    """The outcomes of the checks on a measured cell, with each check's version."""

    cell_id: int
    outcomes: tuple[CheckOutcome, ...]


@dataclass(frozen=True, slots=True)
class JudgeCompared:
    """A judge was asked about labelled outputs (`examples_sha256` is their digest), before it judged the run's."""

    at: float
    check: str
    version: str
    examples_sha256: str
    agreement: Agreement


@dataclass(frozen=True, slots=True)
class ReplicateStarted:
    """A replicate was begun: new seed, and from here on new cells only."""

    number: int
    at: float
    seed: int


@dataclass(frozen=True, slots=True)
class SeparationKept:
    """The replicate may begin: `how` is gap, restart or another_process."""

    number: int
    at: float
    how: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ReplicateAborted:
    """The replicate cannot be finished (deadline, budget, measurement lost, separation impossible)."""

    number: int
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class CandidateUnavailable:
    """N refusals in a row after a probe that worked: availability, no claim about quality."""

    at: float
    refusals: int
    detail: str


@dataclass(frozen=True, slots=True)
class MeasurementLost:
    """The instrument broke in a way cells cannot show. `reason` is CamelCase."""

    at: float
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    at: float


@dataclass(frozen=True, slots=True)
class Overridden:
    """A person's word, with a reason."""

    at: float
    verdict: str  # promote, hold or rollback
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class OverrideEnded:
    """A person's word is over: taken away, or its time has come. The evidence decides again."""

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class BaselineShown:
    """An earlier run's baseline is shown beside this one; it decides nothing. Counts and intervals are that run's."""

    at: float
    store: str  # its file's name
    run_id: str
    arm: str  # baseline; candidate where that run had none and promoted its candidate
    measured_at: float  # when its last cell ended
    requests: int
    bad_requests: int
    prefills: int
    bad_prefills: int
    request_interval: tuple[float, float] | None  # two-sided 95 %
    prefill_interval: tuple[float, float] | None
    build: str | None = None
    model: str | None = None
    weights: str | None = None
    cut_left_out: bool = False  # its answers cut at their token limit are not among the bad

    @property
    def age_seconds(self) -> float:
        """How old it was when it was looked at."""
        return self.at - self.measured_at


@dataclass(frozen=True, slots=True)
class CauseNoted:
    """A person wrote down the cause. Until then it is Unverified."""

    at: float
    actor: str
    cause: str


@dataclass(frozen=True, slots=True)
class BudgetRaised:
    """From here on the run may spend `budget` prefills in all, both arms: more than it might before."""

    at: float
    budget: int


@dataclass(frozen=True, slots=True)
class ExtraAnswer:
    """What one request beside the plan brought, straight or through a gateway. Never scored; None is unknown."""

    status: Status
    at: float
    reason: str | None = None  # one word, as for a cell
    detail: str | None = None
    http_status: int | None = None
    nonce: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    server_processed_tokens: int | None = None  # by how much the server's own total moved meanwhile
    asked_model: str | None = None
    model: str | None = None  # as the reply names it
    request_id: str | None = None
    output_sha256: str | None = None
    outcomes: tuple[CheckOutcome, ...] = ()
    texts: Texts | None = None


@dataclass(frozen=True, slots=True)
class GatewayCompared:
    """The request of a bad cell was sent straight to its server and through the gateway, each once, in this order.

    `repeat` is the gateway's request once more, the same to the byte; `renewed` the same under a new nonce or salt.
    """

    cell_id: int
    at: float
    gateway: str  # its URL
    direct: ExtraAnswer
    through: ExtraAnswer
    repeat: ExtraAnswer | None = None
    renewed: ExtraAnswer | None = None
    findings: tuple[str, ...] = ()  # of the way to the gateway: what the verdict must say of it


@dataclass(frozen=True, slots=True)
class RunResumed:
    at: float


@dataclass(frozen=True, slots=True)
class WindowOpened:
    """In a sequential run: the server of one arm is up, for the window of that pair and replicate.

    `how` is found, command or person; `pair` None where any life of the arm's server will do.
    """

    arm: str
    at: float
    how: str
    pair: int | None = None
    replicate: int = 0
    detail: str = ""  # what could not be told about who is up


Event = (
    Planned
    | EpochSeen
    | CellMeasured
    | CellChecked
    | ReplicateStarted
    | SeparationKept
    | ReplicateAborted
    | CandidateUnavailable
    | MeasurementLost
    | DeadlinePassed
    | Overridden
    | OverrideEnded
    | CauseNoted
    | BudgetRaised
    | BaselineShown
    | GatewayCompared
    | RunResumed
    | JudgeCompared
    | WindowOpened
)


@dataclass(frozen=True, slots=True)
class Texts:
    """What a cell said, kept whole beside its event: reasoning, content and tool calls apart.

    `request` is the body as sent and `response` the raw reply; both exactly as they went over the wire.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: str = ""  # JSON array, or empty
    request: str = ""
    response: str = ""


class Journal(Protocol):
    """Where events go. Implemented by `prefillgate.evidence`; one writer."""

    def append(self, event: Event, texts: Texts | None = None) -> None:
        """Commit one event, durably, in one transaction."""

    def events(self) -> tuple[Event, ...]:
        """Every event in order."""

    def texts(self, cell_id: int) -> Texts | None:
        """What the cell said, or None when nothing was kept."""
