"""Which texts are nearly the same: shingles, a bounded sketch of them, and an index that keeps one text of each kind.

The resemblance of two texts is the share of their shingles that stands in both: |A and B| / |A or B| over the sets of
their word sequences (A. Broder, On the resemblance and containment of documents, 1997, who also gives the estimate
from the smallest hashes of each set used here). With sets of up to `SKETCH_SIZE` shingles it is exact, above that the
standard error is sqrt(r (1 - r) / 128): 0.027 at 0.9.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

SHINGLE_WORDS = 5
SKETCH_SIZE = 128
CROWD = 256  # a shingle of that many kept texts is a template's: it finds nothing any more
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_MIX = 2_654_435_761  # Knuth's multiplier: odd, so nothing collides that did not before

Sketch = tuple[int, ...]


def sketch(text: str) -> Sketch:
    """The up to `SKETCH_SIZE` smallest shingle hashes of `text`, rising; empty where it has no word.

    Case, spaces and punctuation do not count; a text of fewer than `SHINGLE_WORDS` words is one shingle, and where a
    script has no spaces each character is a word.
    """
    words = [word.encode("utf-8", "replace") for word in _WORD.findall(text.lower())]
    if not words:
        return ()
    last = max(1, len(words) - SHINGLE_WORDS + 1)
    found = {_hash(words[at : at + SHINGLE_WORDS]) for at in range(last)}
    return tuple(sorted(found)[:SKETCH_SIZE])


def _hash(words: Iterable[bytes]) -> int:
    return zlib.crc32(b" ".join(words)) * _MIX & 0xFFFFFFFF


def common_and_all(first: Sketch, second: Sketch) -> tuple[int, int]:
    """Of the smallest hashes of both sketches together: how many stand in both, and how many there are."""
    union = sorted({*first, *second})[:SKETCH_SIZE]
    both = set(first) & set(second)
    return sum(value in both for value in union), len(union)


def looked_up(size: int, percent: int) -> int:
    """How many of the first of `size` hashes are looked up: more than can stand in one of two texts alone, if they
    resemble each other by `percent`. Their union has at most `size` / `percent` % hashes, cut to `SKETCH_SIZE`."""
    union = min(SKETCH_SIZE, 100 * size // percent)
    return (100 - percent) * union // 100 + 1


class Distinct:
    """Keeps a text unless it resembles one that is kept already, in about the same time for each.

    Two texts at `percent` or above share one of their first hashes: of a union of u at most (100 - percent) % of u can
    stand in one alone (the prefix filter of R. Bayardo, Y. Ma, R. Srikant, Scaling up all pairs similarity search,
    2007). So those first hashes alone are looked up. One that `CROWD` kept texts share is looked up no more; texts
    that have nothing rarer in common are then both kept.
    """

    def __init__(self, percent: int) -> None:
        """`percent` (1 to 100) is the least resemblance of near duplicates."""
        self._percent = percent
        self._kept: list[Sketch] = []
        self._where: dict[int, list[int]] = {}

    def like(self, text: Sketch) -> int | None:
        """The number, from 0, of the first kept text that `text` resembles; None after it was kept itself."""
        first = text[: looked_up(len(text), self._percent)]
        near = {at for value in first if len(found := self._where.get(value, ())) < CROWD for at in found}
        for at in sorted(near):
            common, union = common_and_all(self._kept[at], text)
            if 100 * common >= self._percent * union:
                return at
        for value in first:
            found = self._where.setdefault(value, [])
            if len(found) < CROWD:
                found.append(len(self._kept))
        self._kept.append(text)
        return None
