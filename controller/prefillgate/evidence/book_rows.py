"""The rows of the book: what a whole controller must remember beside the journals of its runs.

Each row is a plain record; times are seconds since the epoch. A row names lines and rollouts as its writer does
(`namespace/name`, with the object's uid where a name may come again).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to be told to people, kept until it was delivered. `key` makes it one, however often it is added."""

    key: str
    line: str
    rollout: str | None
    kind: str
    body: str  # as its sender takes it; never a secret
    made_at: float
    next_at: float  # not to be tried before
    attempts: int = 0
    last_error: str | None = None
    sent_at: float | None = None


@dataclass(frozen=True, slots=True)
class HandledOverride:
    """A person's override, handled once by its key (uid and digest of the annotations)."""

    key: str
    line: str
    rollout: str | None
    value: str
    actor: str
    verified: bool  # the actor was stamped by admission
    reason: str
    taken_at: float
    done_at: float | None = None  # None: taken, and its effects may not all be there yet
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Replicates:
    """Numbers of replicates that a rollout has for a pair of profiles: `first` and `count` of them. Numbers never come
    again for a pair, whatever line or rollout asks: the threshold of a replicate depends on its number."""

    baseline: str
    candidate: str
    rollout: str
    first: int
    count: int
    reserved_at: float


class Outcome(StrEnum):
    """What became of a profile on a line."""

    PROMOTED = "Promoted"
    REJECTED = "Rejected"


@dataclass(frozen=True, slots=True)
class Fate:
    """A profile that was promoted or rejected on a line, and by which rollout. Only ever added."""

    line: str
    digest: str
    outcome: Outcome
    rollout: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Floor:
    """What a baseline shows against itself: the instrument, the noise of its speed, how much of its output is the
    same. One for each line, baseline and replay set: the last measured."""

    line: str
    baseline: str
    replay_set_sha256: str
    run: str  # the store's name of it
    measured_at: float
    sound: bool | None  # the instrument check; None where it could not tell
    sentence: str
    identical: int | None = None  # outputs that were the same, of `compared`
    compared: int | None = None
    noise_cv: float | None = None  # of the decode speed, as a share


@dataclass(frozen=True, slots=True)
class Load:
    """A fresh prefill that a replay was about to put on a server in production: the hour before it bounds the next."""

    line: str
    at: float
    work: str


@dataclass(frozen=True, slots=True)
class Scaled:
    """What the workloads of a line had before a replay scaled them. One for each line: what stands on the line itself,
    for when that is deleted before they have it back."""

    line: str  # namespace/name
    uid: str
    noted: str  # as the line's annotation has it


@dataclass(frozen=True, slots=True)
class Watch:
    """When a promoted line is looked at next."""

    line: str
    next_at: float
    last_at: float | None = None
    last_run: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """What a replay in a process of its own waits for, as a reason of the condition Screened, and since when."""

    work: str
    reason: str
    since: float
