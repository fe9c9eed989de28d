"""Which arm's server is up, told from outside: where both arms share one place a swap must be seen, not believed.

A server tells a marker of its life (perhaps), its build, model, weights and settings. A life that was met belongs to
the arm it was met as. What looks like the other arm and not like its own earlier lives is the other arm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.journal import EpochSeen


class Standing(StrEnum):
    """What is known of the server that answers."""

    RIGHT = "right"  # the arm that is wanted, in a life that may be measured
    UNTOLD = "untold"  # nothing speaks against it and nothing shows it: somebody's word decides
    OTHER_ARM = "other_arm"
    NOT_RESTARTED = "not_restarted"  # the right arm, in a life of an earlier window
    AWAY = "away"  # nobody answers


@dataclass(frozen=True, slots=True)
class Seen:
    """What a server tells of itself now. `marker` is None where it shows none of its life."""

    marker: str | None
    engine: str
    build: str | None = None
    model: str | None = None
    weights: str | None = None
    context_tokens: int | None = None
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def profile(self) -> tuple[object, ...]:
        """What tells one profile from another."""
        return (self.engine, self.build, self.model, self.weights, self.context_tokens, self.settings)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which server is waited for. `same_life`: the arm's last life may go on. `any_life`: so may any of its lives.

    `same_place`: both arms have one address, so that an answer alone tells nothing. `swapped`: the last life that was
    met was the other arm's, so that this arm's server must have been started since.
    """

    arm: str
    same_life: bool = False
    any_life: bool = False
    same_place: bool = False
    swapped: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """How the server that answers stands, and a sentence that says why for all but the right one.

    `new_life`: its marker was never met, so that a server was started there.
    """

    standing: Standing
    why: str = ""
    new_life: bool = False


def who_is_up(seen: Seen, wanted: Wanted, epochs: Mapping[str, Sequence[EpochSeen]]) -> Found:
    """Hold what answers now against every life met so far."""
    other = BASELINE if wanted.arm == CANDIDATE else CANDIDATE
    mine, theirs = epochs[wanted.arm], epochs[other]
    if seen.marker is not None and seen.marker in map(life_of, theirs):
        return Found(
            Standing.OTHER_ARM, f"what answers is still the {other}: the life {seen.marker} was measured as it"
        )
    looks_like_mine = not mine or seen.profile == _profile(mine[-1])
    looks_like_theirs = bool(theirs) and seen.profile == _profile(theirs[-1])
    if looks_like_theirs and not looks_like_mine:
        return Found(Standing.OTHER_ARM, f"what answers looks like the {other} and not like the {wanted.arm} did")
    if seen.marker is not None and seen.marker in map(life_of, mine):
        if wanted.any_life or (wanted.same_life and seen.marker == life_of(mine[-1])):
            return Found(Standing.RIGHT)
        return Found(Standing.NOT_RESTARTED, f"the {wanted.arm} was not restarted: {seen.marker} is an earlier window")
    if not wanted.same_place and (seen.marker is not None or not mine):
        return Found(Standing.RIGHT)
    new = seen.marker is not None or wanted.swapped or wanted.any_life or not mine
    if theirs and not looks_like_theirs and new:
        return Found(Standing.RIGHT)
    why = f"nothing the server tells shows that it is the {wanted.arm}, newly started"
    return Found(Standing.UNTOLD, why, seen.marker is not None)


def life_of(epoch: EpochSeen) -> str:
    """The marker of the life itself: what stands after a slash tells spells at one life apart."""
    return epoch.server_epoch.partition("/")[0]


def _profile(epoch: EpochSeen) -> tuple[object, ...]:
    return (epoch.engine, epoch.build, epoch.model, epoch.weights, epoch.context_tokens, epoch.settings)
