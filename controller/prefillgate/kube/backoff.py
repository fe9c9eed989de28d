"""How long to wait after the nth failure in a row."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """`first_seconds` doubled with every failure up to `longest_seconds`, of which a random half to whole is waited.

    The random part keeps many clients that lost the same server from coming back in the same instant.
    """

    first_seconds: float = 0.5
    longest_seconds: float = 30.0

    def seconds(self, failures: int, rng: random.Random) -> float:
        """The wait after `failures` failures in a row (1 is the first): between half of the step and the step."""
        step = min(self.longest_seconds, self.first_seconds * 2.0 ** min(max(failures, 1) - 1, 60))
        return step * (0.5 + 0.5 * rng.random())
