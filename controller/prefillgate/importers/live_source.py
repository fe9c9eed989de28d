"""A followed file as the `Source` of a format: its lines come when they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prefillgate.api.errors import Problem
from prefillgate.importers.following import Follower
from prefillgate.importers.source import HEAD_BYTES, ImportProblem, Source, TooLong


class LiveSource(Source):
    """Lines of a `Follower`. Whoever reads it is asked in between.

    `done(again)` is called each time the next line is asked for: all that the lines before gave has been yielded by
    then (`again`: of a line read before a restart, to be dropped). `wait()` is called where no line is there yet. Both
    say whether to go on; else the lines end, and what a format yields after that is of an unfinished record.
    """

    def __init__(self, follower: Follower, done: Callable[[bool], bool], wait: Callable[[], bool]) -> None:
        self.name = str(follower.path)
        self.follower = follower
        self._done, self._wait = done, wait

    def head(self) -> bytes:
        """The first bytes of the file that stands there now."""
        return self.follower.head(HEAD_BYTES)

    def lines(self) -> Iterator[tuple[int, bytes] | TooLong]:
        """Whole lines as they are written, with their numbers in their file."""
        again = False
        while self._done(again):
            line = self.follower.next()
            while line is None:
                if not self._wait():
                    return
                line = self.follower.next()
            again = line.again
            yield line.raw if isinstance(line.raw, TooLong) else (line.number, line.raw)

    def whole(self, limit: int) -> bytes:
        """Never: one document has no end to wait for. Raises `ImportProblem`."""
        raise ImportProblem(Problem(self.name, "", "one JSON document cannot be followed", "a log of lines"))
