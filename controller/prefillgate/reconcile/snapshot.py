"""One look at a serving line: the objects as read, what its work has come to, what the evidence store remembers.

Times are seconds since the epoch. None is unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from prefillgate.api.errors import Problem
from prefillgate.api.kinds.common import TemplateSeen
from prefillgate.api.kinds.line_status import ContentsSeen
from prefillgate.api.kinds.profile_rollout import ProfileRolloutSpec
from prefillgate.api.kinds.reasons import ConditionType
from prefillgate.api.kinds.serving_line import ServingLineSpec
from prefillgate.api.policy_model import PolicySpec
from prefillgate.core.verdict import Verdict
from prefillgate.evidence.book_rows import Fate, Floor, Notice, Watch
from prefillgate.profiles import Profile

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something that a spec asks for cannot be used. `reason` stands in the table of reasons under `condition`
    (Accepted or EndpointsReady); `field` is a path from `spec` on, `detail` what a person must know to mend it."""

    reason: str
    field: str
    detail: str
    condition: ConditionType = ConditionType.ACCEPTED


class Slot(StrEnum):
    """Which of the two arms of a spec. What is baseline and what candidate of a rollout is told by the roles."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"


@dataclass(frozen=True, slots=True)
class SlotProfile:
    """What the workload of a slot says now: its newest pod template, images resolved by its pods where there are any.

    `template` is where that template is kept for later: its ReplicaSet or ControllerRevision, else the workload.
    """

    slot: Slot
    profile: Profile
    template: TemplateSeen | None = None


@dataclass(frozen=True, slots=True)
class ServerSeen:
    """One server of an arm: a pod, a Service or a URL. `epoch` is pod UID and container ID; None: not known."""

    name: str
    url: str | None  # None while it has no address
    ready: bool
    epoch: str | None = None
    trouble: str = ""  # CrashLoopBackOff, ImagePullBackOff, OOMKilled ... with its message


@dataclass(frozen=True, slots=True)
class ArmSeen:
    """The servers that run one profile. `unavailable` says why it takes no requests at all and will not by waiting
    (crash loop, refused again and again), `unreachable` why it cannot be reached from here, with cause and fix.

    `asked`: its Ready servers were asked once and the answer is in; False: that is under way, and a look follows.
    """

    digest: str
    servers: tuple[ServerSeen, ...] = ()
    unavailable: str | None = None
    unreachable: str | None = None
    asked: bool = True
    notes: tuple[str, ...] = ()  # what a person should know: pods of neither arm and why, a Service that mixes pods

    @property
    def ready(self) -> tuple[ServerSeen, ...]:
        """Servers that may be asked."""
        return tuple(server for server in self.servers if server.ready and server.url is not None)


class WorkKind(StrEnum):
    """What is replayed, and what for."""

    FLOOR = "floor"  # the promoted profile against itself
    JUDGE = "judge"  # a rollout
    WATCH = "watch"  # the promoted profile, after its promotion


class WorkState(StrEnum):
    """How far it is."""

    RUNNING = "running"
    ENDED = "ended"  # with an answer
    BROKEN = "broken"  # could not go on; it may be started again, and then resumes
    REFUSED = "refused"  # what it was given cannot be used; starting it again unchanged is no use


@dataclass(frozen=True, slots=True)
class FloorFound:
    """What the promoted profile against itself showed. Shares of 1; None where it could not be told."""

    sound: bool | None
    sentence: str
    prefills: int
    bad_prefills: int
    noise_cv: float | None = None
    identical: int | None = None
    compared: int | None = None


@dataclass(frozen=True, slots=True)
class WatchFound:
    """What the replays since the promotion showed, all of them together.

    `reason` is the decision's (report/reasons.py) once an alarm was answered or cannot be: RegressionConfirmed,
    RegressionNotConfirmed, AlarmWithoutBaseline, or why the last replay could not be measured; empty: nothing is to be
    said. `rollback`: a fresh paired replicate confirmed the alarm; its run in the store is `replicate_run`.
    """

    prefills: int
    bad_prefills: int
    alarm: bool
    sentence: str
    reason: str = ""
    rollback: bool = False
    replicate_run: str = ""


@dataclass(frozen=True, slots=True)
class Standstill:
    """A replay that broke off again and again without one new cell between: when first and when last, how often, what
    the last time said, and which arm's server did not answer as one must (`both`: now one, now the other; empty: it
    is not about servers)."""

    since: float
    last: float
    tries: int
    trouble: str
    arm: str = ""


@dataclass(frozen=True, slots=True)
class WorkSeen:
    """A piece of work as it stands now. `verdict` is that of a rollout so far, while it runs too."""

    key: str
    kind: WorkKind
    state: WorkState
    started_at: float
    run: str = ""  # the run's name in the evidence store
    store: str = ""  # where that is, without credentials
    rows: int = 0  # of its journal
    head: str | None = None  # the digest that the last of them chains to
    verdict: Verdict | None = None
    before: Verdict | None = None  # of what stood in its store when this process took it up; None: there was none
    floor: FloorFound | None = None
    watch: WatchFound | None = None
    waiting: str = ""  # what it waits for, as a reason of the condition Screened (WaitingForIdle, LoadLimitReached ...)
    waiting_since: float | None = None  # since when; None: it is told at once
    trouble: str = ""  # why it is broken or refused, for a person
    ended_at: float | None = None
    retry_at: float | None = None  # when a broken one may be started again
    standstill: Standstill | None = None  # None: it never broke off, or came on since


@dataclass(frozen=True, slots=True)
class PolicySeen:
    """The policy that the line is judged by."""

    name: str
    sha256: str
    spec: PolicySpec
    acceptance: tuple[int, ...]
    budget: int
    deadline_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ReplaySetSeen:
    """The cases, known by their digest."""

    name: str
    sha256: str
    cases: int


@dataclass(frozen=True, slots=True)
class RolloutSeen:
    """A ProfileRollout of the line; `spec` is None where it cannot be read, for `problems`."""

    thing: Object
    spec: ProfileRolloutSpec | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class BookSeen:
    """What the store remembers of the line. `trouble`: it cannot be reached, and nothing of it is known now."""

    fates: tuple[Fate, ...] = ()
    floor: Floor | None = None  # of the promoted profile on this replay set
    watch: Watch | None = None
    notices: tuple[Notice, ...] = ()  # the latest of the line and its rollouts, oldest first, sent or not
    handled: frozenset[str] = frozenset()  # keys of overrides that were dealt with to their end, of those in sight
    gone: frozenset[str] = frozenset()  # names of rollouts whose evidence is not where it was
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Roles:
    """Which profile is in production, and which one would replace it; digests. None: not known, there is none."""

    promoted: str | None
    candidate: SlotProfile | None


@dataclass(frozen=True, slots=True)
class LineSnapshot:
    """Everything that is known of a line at `now`."""

    now: float
    line: Object  # metadata, spec and status as read
    spec: ServingLineSpec | None  # None where it cannot be read, for `problems`
    problems: tuple[Problem, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    policy: PolicySeen | None = None
    replay_set: ReplaySetSeen | None = None
    slots: tuple[SlotProfile, ...] = ()
    roles: Roles = Roles(None, None)
    reading: str | None = None  # the mark of how profiles were read at this look
    config_maps: tuple[ContentsSeen, ...] | None = None  # of the slots' profiles; None: not known now
    baseline: ArmSeen | None = None  # servers of the promoted profile
    candidate: ArmSeen | None = None
    resting: tuple[tuple[Slot, ArmSeen], ...] = ()  # servers of slots that neither is asked by, while no candidate is
    rollouts: tuple[RolloutSeen, ...] = ()  # oldest first
    works: tuple[WorkSeen, ...] = ()
    book: BookSeen = BookSeen()
    actors_stamped: bool = False  # whether admission stamps who overrides
