"""What may come of a look at a line, as data; `prefillgate.app` carries it out, in the order it stands.

Every effect may come twice: after a kill the same look gives the same effects again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prefillgate.api.kinds.line_status import ServingLineStatus
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.core.journal import Overridden, OverrideEnded
from prefillgate.evidence.book_rows import Fate, Floor, HandledOverride, Notice, Watch
from prefillgate.reconcile.snapshot import WorkKind


@dataclass(frozen=True, slots=True)
class StartWork:
    """Begin a replay, or go on with it where its run stands in the store. Where it runs, it is told of the servers that
    are seen now.

    `key` makes it one, names its run, and another key is another run: the rollout's uid, and for a floor and a watch
    what `prefillgate.reconcile.naming` makes, another for each measurement (`floor-...`) and for each small replay
    (`watch-...-3`). Digests are those of the arms. Of a floor `baseline` alone is asked. Of a watch that is the
    promoted profile, `after` is the run of the replay before it, and `previous` the profile that a replicate would be
    compared with (`spec.watch.previous` says where its servers come from).
    """

    key: str
    kind: WorkKind
    baseline: str
    candidate: str | None = None
    rollout: str | None = None  # its name
    seed: int | None = None
    must_end_at: float | None = None
    prefills: int | None = None  # of one replay of a watch
    after: str | None = None
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class StopWork:
    """End a replay that runs; what is in its store stays."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class CreateRollout:
    """Make a ProfileRollout, unless there is one of its name."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteRollout:
    """Remove a ProfileRollout; its evidence stays."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class KeepFate:
    """Remember what became of a profile."""

    fate: Fate


@dataclass(frozen=True, slots=True)
class KeepFloor:
    """Remember a floor."""

    floor: Floor


@dataclass(frozen=True, slots=True)
class KeepWatch:
    """Remember when the line is looked at next."""

    watch: Watch


@dataclass(frozen=True, slots=True)
class EndWatch:
    """The line is looked at no more."""

    line: str


@dataclass(frozen=True, slots=True)
class KeepNotice:
    """Keep something that people are to be told, before anybody is."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class NoticeTold:
    """A notice was told to its end: its event is there."""

    key: str


@dataclass(frozen=True, slots=True)
class TakeOverride:
    """A person's override is dealt with now: taken in the book before any effect of it."""

    override: HandledOverride


@dataclass(frozen=True, slots=True)
class OverrideDone:
    """All effects of an override are there."""

    key: str
    answer: str


@dataclass(frozen=True, slots=True)
class RecordOverride:
    """Write a person's word, or its end, into the journal of a run, so that the decision can be recomputed from it.

    It comes again until the verdict of the run shows it; one that equals the last of them there is not written anew.
    """

    work: str  # key of the work
    event: Overridden | OverrideEnded


@dataclass(frozen=True, slots=True)
class Tell:
    """An event on the line (`rollout` None) or on one of its rollouts. `once` names the transition: one event of it."""

    reason: str
    note: str
    once: str
    rollout: str | None = None
    warning: bool = False


Effect = (
    StartWork
    | StopWork
    | CreateRollout
    | DeleteRollout
    | KeepFate
    | KeepFloor
    | KeepWatch
    | EndWatch
    | KeepNotice
    | NoticeTold
    | TakeOverride
    | OverrideDone
    | RecordOverride
    | Tell
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a look at a line comes to.

    Carried out in this order: `before` (what must be kept before anybody is told), the statuses of the rollouts by
    name, that of the line, `after`. `look_again_seconds`: when to look again though nothing changes; None: no need.
    """

    line: ServingLineStatus
    rollouts: Mapping[str, ProfileRolloutStatus] = field(default_factory=dict)
    before: tuple[Effect, ...] = ()
    after: tuple[Effect, ...] = ()
    look_again_seconds: float | None = None
