"""What the parts of the controller know of each other: one look at a line, who looks, who replays.

```
reflectors --> queue --> look (observe) --> plan (reconcile) --> carry out --> API server, book
                 ^                                                  |
                 +------------------- a change of work -- Works <---+
```
A look never waits for a replay: it starts, adopts or polls one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from prefillgate.api.access import Access
from prefillgate.api.policy import PolicyDocument
from prefillgate.evidence.book import Book
from prefillgate.evidence.fence import Fence
from prefillgate.kube.objects import Kind
from prefillgate.reconcile.effects import RecordOverride, StartWork, Tell
from prefillgate.reconcile.snapshot import LineSnapshot, Slot, WorkSeen
from prefillgate.replay.replay_set import ReplaySet


@dataclass(frozen=True, slots=True)
class Way:
    """How the servers of a profile are asked: those of the slot that its pods are found by. Secrets are in memory."""

    slot: Slot
    access: Access = field(repr=False)
    engine: str = "auto"
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """A look at a line, with what a replay needs and a decision does not."""

    snapshot: LineSnapshot
    policy: PolicyDocument | None = None
    replay_set: ReplaySet | None = None
    ways: Mapping[str, Way] = field(default_factory=dict)  # by the digest of the profile


@dataclass(frozen=True, slots=True)
class Leading:
    """What the leader has for its term: the book, and the right to write evidence."""

    book: Book
    fence: Fence
    leads: Callable[[], bool] = lambda: True  # whether the term lasts at this moment


class Works(Protocol):
    """The replays of this process (or of its Jobs), by line and key: two lines with the same profile in production have
    floors of the same key. Nothing here waits."""

    def seen(self, line_uid: str) -> tuple[WorkSeen, ...]:
        """All work of a line that is known, ended work of this term included."""

    def start(self, order: StartWork, observed: Observed) -> None:
        """Begin it, or go on with what stands in its store. Where it runs it moves on to the servers seen now, if those
        it asks are gone or asked another way; else nothing. So it may be ordered at every look."""

    def stop(self, line_uid: str, key: str, why: str) -> None:
        """End that of this line at the next await; what is in its store stays. Nothing where none runs."""

    def record(self, order: RecordOverride, observed: Observed) -> None:
        """Write a person's override into its journal, now or when it is next open: also where the work ended in an
        earlier term and is not known in this one."""

    def present_epoch(self, url: str, epoch: str | None) -> None:
        """The present life of a server, as the cluster tells it. Answers are asked around every cell.

        None: its pod was taken away (deleted, evicted, its node lost). That voids its cell, where a server that dies by
        itself makes a bad one: so never for a crash, nor where the life is merely not known.
        """

    def looked(self, observed: Observed) -> None:
        """A look at a line was carried out, or as far as could be. What a controller that is gone left scaled is put
        back, unless its replay goes on."""

    def gone(self, line_uid: str) -> None:
        """A line was deleted: its work is ended, and is not known any more."""

    async def close(self, seconds: float) -> bool:
        """End all replays and wait for their ends, at most so long; whether all have. Nothing starts afterwards."""


Changed = Callable[[str], None]
"""Told the key (`namespace/name`) of a line whose work has come further."""


Touched = Callable[[str, str], None]
"""Told the kind (`Pod`, `ServingLine` ...) and the key of an object that changed. It must not wait."""


@dataclass(frozen=True, slots=True)
class StatusWanted:
    """What the status of a policy, a replay set or a rollout without a line should say (as it stands on the wire), when
    to look again, and the events to tell of it."""

    kind: Kind
    thing: Mapping[str, Any]
    status: Mapping[str, Any]
    look_again_seconds: float | None = None
    events: tuple[Tell, ...] = ()


class Observer(Protocol):
    """Who looks at lines. Every answer comes from what reflectors hold, but for Secrets and cases, which are read."""

    async def run(self, touched: Touched) -> None:
        """Keep the reflectors, until cancelled. Only a bug raises."""

    def synced(self) -> bool:
        """Whether every reflector has had its first list."""

    def keys(self, kind: str) -> tuple[str, ...]:
        """Keys of all objects of a kind: what a new leader looks at first."""

    async def look_policy(self, key: str) -> StatusWanted | None:
        """A PromotionPolicy; None where there is none. Raises KubeError."""

    async def look_replay_set(self, key: str) -> StatusWanted | None:
        """A ReplaySet; None where there is none. Raises KubeError."""

    async def look_orphans(self, key: str) -> tuple[StatusWanted, ...]:
        """Rollouts made by hand for a line that is not there. Raises KubeError."""

    async def look(self, key: str, works: Works, leading: Leading) -> Observed | None:
        """The line as it is now; None where there is none. Raises KubeError."""

    def lines_of(self, kind: str, key: str) -> tuple[str, ...]:
        """Keys of the lines that an object of this kind (Pod, ReplicaSet, ConfigMap, PromotionPolicy ...) is of."""
