"""What the book remembers of a line, read in a thread: a store that does not answer must not stop the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from prefillgate.api.store_address import StoreAddress
from prefillgate.app.run_stores import RunStores
from prefillgate.evidence.book import Book
from prefillgate.evidence.errors import StoreError, StoreFenced
from prefillgate.kube.objects import name_of
from prefillgate.reconcile.snapshot import BookSeen, LineSnapshot


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked about a line: its floor is that of a digest and a replay set, `stores` are where the evidence of
    its rollouts is, by their names."""

    floor_of: tuple[str, str] | None
    overrides: Collection[str]
    stores: Mapping[str, StoreAddress]


async def remembered(book: Book, line: str, wanted: Wanted) -> BookSeen:
    """Fates, floor, watch, latest notices, handled overrides, and whose evidence is gone.

    A leader that was replaced raises StoreFenced; any other failure of the store is told in `trouble`.
    """

    def read() -> BookSeen:
        floor = None if wanted.floor_of is None else book.floor(line, *wanted.floor_of)
        handled = frozenset(
            key for key in wanted.overrides if (at := book.override(key)) is not None and at.done_at is not None
        )
        lost = book.gone(frozenset(wanted.stores.values()))
        gone = frozenset(name for name, store in wanted.stores.items() if store in lost)
        return BookSeen(book.fates(line), floor, book.watch(line), book.latest_notices(line), handled, gone)

    try:
        return await asyncio.to_thread(read)
    except StoreFenced:
        raise
    except StoreError as error:
        return BookSeen(trouble=str(error))


def evidence_of(snapshot: LineSnapshot, store: StoreAddress | None) -> dict[str, StoreAddress]:
    """Where the evidence of a line's rollouts is, by their names: of those whose status says that there is any."""
    found: dict[str, StoreAddress] = {}
    if store is None:
        return found
    line = snapshot.line["metadata"]
    for each in snapshot.rollouts:
        evidence = (each.thing.get("status") or {}).get("evidence") or {}
        if evidence.get("rows"):
            with suppress(ValueError, KeyError, TypeError):  # a status that no controller wrote names no store
                found[name_of(each.thing)] = RunStores(store).of(line["namespace"], line["name"], evidence["run"])
    return found
