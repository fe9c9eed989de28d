"""Draws that depend on the seed and on what is drawn, never on when.

Every draw is a hash of (seed, purpose, number), so the same requests in the same order meet the same
fate at any speed, and one more draw somewhere does not shift the others.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from statistics import NormalDist

_NORMAL = NormalDist()
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True)
class Dice:
    """A source of draws for one seed."""

    seed: int

    def integer(self, *parts: object) -> int:
        """A whole number in [0, 2**64), a function of the seed and `parts` alone."""
        key = "\x1f".join([str(self.seed), *map(str, parts)])
        return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")

    def uniform(self, *parts: object) -> float:
        """A number in [0, 1)."""
        return (self.integer(*parts) >> 11) / 2.0**53

    def normal(self, *parts: object) -> float:
        """A standard normal deviate."""
        return _NORMAL.inv_cdf(min(max(self.uniform(*parts), 1e-12), 1 - 1e-12))

    def letters(self, length: int, *parts: object) -> str:
        """A string of at most 64 letters and digits, as request ids have them."""
        key = "\x1f".join([str(self.seed), *map(str, parts)])
        digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=length).digest()
        return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest)
