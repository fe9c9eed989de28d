"""What the book remembers of a line, read in a thread: a store that does not answer must not stop the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from prefillgate.evidence.book import Book
from prefillgate.evidence.errors import StoreError, StoreFenced
from prefillgate.reconcile.snapshot import BookSeen


async def remembered(book: Book, line: str, floor_of: tuple[str, str] | None, overrides: Iterable[str]) -> BookSeen:
    """Fates, floor (of a digest and a replay set), watch, latest notices and handled overrides.

    A leader that was replaced raises StoreFenced; any other failure of the store is told in `trouble`.
    """
    wanted = tuple(overrides)

    def read() -> BookSeen:
        floor = None if floor_of is None else book.floor(line, *floor_of)
        handled = [key for key in wanted if (taken := book.override(key)) is not None and taken.done_at is not None]
        return BookSeen(book.fates(line), floor, book.watch(line), book.latest_notices(line), frozenset(handled))

    try:
        return await asyncio.to_thread(read)
    except StoreFenced:
        raise
    except StoreError as error:
        return BookSeen(trouble=str(error))
