"""Whether any of many numbers comes twice: kept in memory while they are few, sorted on disk once they are more."""

from __future__ import annotations

import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Iterable

IN_MEMORY = 128 * 1024  # numbers
PARTS = 64
_BYTES = 8
_LEAST, _SPAN = -(2**63), 2**64


class Digests:
    """Signed numbers of 64 bits. Use it as a context manager."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._latest = array("q")
        self._runs: list[list[int]] = []  # where the parts of each sorted run begin in the file, and where it ends

    def close(self) -> None:
        """Forget them."""
        self._file.close()

    def add(self, numbers: Iterable[int]) -> None:
        """Take more."""
        self._latest.extend(numbers)
        if len(self._latest) >= IN_MEMORY:
            self._keep()

    def repeat(self) -> bool:
        """Whether any two so far are the same."""
        if not self._runs:
            return len(set(self._latest)) != len(self._latest)
        self._keep()
        return any(self._repeats(part) for part in range(PARTS))

    def _keep(self) -> None:
        run = array("q", sorted(self._latest))
        begin = self._file.seek(0, 2)
        edges = [bisect_left(run, _LEAST + part * (_SPAN // PARTS)) for part in range(PARTS)]
        self._runs.append([begin + _BYTES * edge for edge in (*edges, len(run))])
        run.tofile(self._file)
        self._latest = array("q")

    def _repeats(self, part: int) -> bool:
        """Whether two of one range of numbers are the same, from whatever runs."""
        found = array("q")
        for edges in self._runs:
            self._file.seek(edges[part])
            found.frombytes(self._file.read(edges[part + 1] - edges[part]))
        return len(set(found)) != len(found)
