"""What a book needs of the place its rows are in: a file, or a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")
Rows = Sequence[Sequence[Any]]
Ask = Callable[[str, dict[str, Any]], Rows]
"""A statement in the book's SQL and its values to the rows it gives, inside a transaction."""


class Link(Protocol):
    """One way to the tables."""

    name: str

    def write(self, work: Callable[[Ask], _T]) -> _T:
        """Do `work` in one transaction that nobody else's comes between. Raises `StoreFenced`, `StoreError`."""

    def read(self, work: Callable[[Ask], _T]) -> _T:
        """Do `work` on one moment of the book. Raises `StoreError`."""

    def close(self) -> None:
        """Let go of everything. May be called twice."""
