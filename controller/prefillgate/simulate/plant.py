"""The hidden state of a prefill, and what becomes of an answer that rides on it.

Every real prefill draws good or bad. Whoever reuses at least half of its prompt from that prefill is a
copy and inherits the state: at temperature 0 its answer is the same bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefillgate.simulate.cache import Prefill
from prefillgate.simulate.faults import Chance, Drift, Faults, Turn, Window

COPY_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the answer is like, and the variant of its text (empty: that of a cold prefill)."""

    bad: bool
    variant: str


def draws_bad(faults: Faults, turn: Turn, prefill: int, elapsed_seconds: float) -> bool:
    """Whether the real prefill with this number, made by `turn`, is in the bad state."""
    first = faults.last("bad-first", int)
    if first is not None and turn.ordinal is not None and turn.ordinal <= first:
        return True
    if any(window.covers(turn, elapsed_seconds) for window in faults.all("bad-window", Window)):
        return True
    if _any(faults, "bad-prefill", turn, prefill) or _any(faults, "bad-prompt", turn, turn.prompt):
        return True
    drifts = faults.all("drift", Drift)
    return turn.ordinal is not None and any(
        faults.dice.uniform("drift", place, prefill) < drift.rate(turn.ordinal) for place, drift in enumerate(drifts)
    )


def outcome(faults: Faults, turn: Turn, prefill: Prefill, warm: bool, greedy: bool) -> Outcome:
    """The outcome of the answer of `turn`, which rides on `prefill`; `warm` when it is a copy."""
    bad = prefill.bad or _any(faults, "bad-rate", turn, prefill.number if greedy else f"request {turn.arrival}")
    if warm and faults.hit("good-copy", turn):
        bad = False
    return Outcome(bad, "warm" if warm and faults.hit("warm-differs", turn) else "")


def _any(faults: Faults, name: str, turn: Turn, key: object) -> bool:
    return any(
        chance.hits(faults.dice.uniform("state", name, place, key), turn)
        for place, chance in enumerate(faults.all(name, Chance))
    )
