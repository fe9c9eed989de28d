"""Who may write a store: a token that only grows, so that a writer who was replaced unawares writes nothing.

The token counts how often leadership changed hands (a Lease's `leaseTransitions`). Every append looks, in the
transaction that writes it, whether a higher one has written there. A writer without one goes by the token it found:
it may write until somebody with a higher one comes.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefillgate.evidence.errors import StoreFenced

LARGEST_TOKEN = 2**63 - 1
NOBODY = -1  # in comparisons: no writer had a token yet


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write as the holder of `token`. Raises ValueError for one that is below 0 or beyond 63 bits."""

    token: int

    def __post_init__(self) -> None:
        if not 0 <= self.token <= LARGEST_TOKEN:
            raise ValueError(f"a fence's token is {self.token} (allowed: 0 to {LARGEST_TOKEN})")


def held_token(fence: Fence | None, found: int | None) -> int:
    """The token a writer goes by where `found` is the highest that has written; `NOBODY` where neither has one.

    Raises `StoreFenced` where the found one is higher.
    """
    highest = NOBODY if found is None else found
    if fence is None:
        return highest
    if highest > fence.token:
        raise fenced(fence.token, highest)
    return fence.token


def may_take_over(fence: Fence | None, found: int | None) -> bool:
    """Whether a writer who is alive must give way: his token is known, and lower."""
    return fence is not None and found is not None and fence.token > found


def fenced(token: int, higher: int) -> StoreFenced:
    """What is said to a writer with `token` where `higher` has written."""
    mine = "a writer without a token" if token == NOBODY else f"the writer with token {token}"
    return StoreFenced(f"it was taken over by a writer with token {higher}; {mine} may not write it any more.")
