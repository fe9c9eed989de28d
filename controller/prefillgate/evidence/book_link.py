"""What a book needs of the place its rows are in: a file, or a database."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from prefillgate.api.store_address import StoreAddress
from prefillgate.evidence.errors import StoreError

_T = TypeVar("_T")
Rows = Sequence[Sequence[Any]]
Ask = Callable[[str, dict[str, Any]], Rows]
"""A statement in the book's SQL and its values to the rows it gives, inside a transaction."""


class Loss:
    """That the tables of a book were lost: told to everybody for a while, in which somebody may put them back and
    nothing is made in the midst of their deletion."""

    AGAIN_SECONDS = 4.0

    def __init__(self) -> None:
        self._told: StoreError | None = None
        self._again_at = 0.0

    def found(self, error: StoreError) -> None:
        """It was seen now."""
        self._told, self._again_at = error, time.monotonic() + self.AGAIN_SECONDS

    def due(self) -> bool:
        """Whether they are to be made anew. Raises what was found where it is too early for that."""
        if self._told is not None and time.monotonic() < self._again_at:
            raise type(self._told)(str(self._told))
        return self._told is not None

    def over(self) -> None:
        """They are there."""
        self._told = None


class Link(Protocol):
    """One way to the tables."""

    name: str

    def write(self, work: Callable[[Ask], _T]) -> _T:
        """Do `work` in one transaction that nobody else's comes between. Raises `StoreFenced`, `StoreError`."""

    def read(self, work: Callable[[Ask], _T]) -> _T:
        """Do `work` on one moment of the book. Raises `StoreError`."""

    def gone(self, stores: Collection[StoreAddress]) -> frozenset[StoreAddress]:
        """Those of these stores of runs, beside the book, that are not there. Raises `StoreError`."""

    def close(self) -> None:
        """Let go of everything. May be called twice."""
