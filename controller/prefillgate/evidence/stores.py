"""One way to a store, wherever it is: a file or a run in a PostgreSQL database.

Only what reaches a database needs the extra `postgres`; it is imported when an address asks for it.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from prefillgate.api.store_address import PostgresUrl, StoreAddress
from prefillgate.core.journal import Planned
from prefillgate.evidence.errors import StoreError
from prefillgate.evidence.facts import Moved, StoreFacts, file_facts
from prefillgate.evidence.fence import Fence
from prefillgate.evidence.files import absolute
from prefillgate.evidence.kept import KeptJournal
from prefillgate.evidence.sqlite import SqliteJournal, migrate_file, refuse_foreign

EXTRA = "a store in PostgreSQL needs the extra postgres: pip install 'prefillgate[postgres]'"


def create_store(where: StoreAddress, planned: Planned, fence: Fence | None = None) -> KeptJournal:
    """A new store that holds its plan, opened for writing by the holder of `fence`. Raises `StoreError`."""
    if isinstance(where, Path):
        return SqliteJournal.create(where, planned, fence)
    journal: KeptJournal = _postgres("postgres").PostgresJournal.create(where, planned, fence)
    return journal


def open_store(where: StoreAddress, fence: Fence | None = None) -> KeptJournal:
    """An existing store for reading and writing, every row of it checked.

    With a `fence` it is taken over from a writer with a lower token who is alive: his next append raises `StoreFenced`,
    and so does this where a higher one has written. In a file that holds for a writer on this host; of one on another
    it is said what must be ended (`StoreBusy`). Raises `StoreError`.
    """
    if isinstance(where, Path):
        return SqliteJournal.open(where, fence)
    journal: KeptJournal = _postgres("postgres").PostgresJournal.open(where, fence)
    return journal


def read_store(where: StoreAddress) -> KeptJournal:
    """An existing store as it is now, every row of it checked; a run may be writing it. Raises `StoreError`."""
    if isinstance(where, Path):
        return SqliteJournal.open_readonly(where)
    journal: KeptJournal = _postgres("postgres").PostgresJournal.open_readonly(where)
    return journal


def store_exists(where: StoreAddress) -> bool:
    """Whether something stands there, a store or not; a database that cannot be asked raises `StoreError`."""
    if isinstance(where, Path):
        return where.exists()
    return bool(_postgres("postgres_tables").run_exists(where))


def store_facts(where: StoreAddress) -> list[StoreFacts]:
    """What stands there: one store, or every run of a database where none is named. Raises `StoreError`."""
    if isinstance(where, Path):
        path = absolute(where)
        refuse_foreign(path)
        return [file_facts(path)]
    found: list[StoreFacts] = _postgres("postgres_tables").facts(where)
    return found


def migrate_store(where: StoreAddress, target: int) -> Moved:
    """Lead the tables of a store, or of a whole database, to a version, up or back. Raises `StoreError`."""
    if isinstance(where, Path):
        return migrate_file(where, target)
    moved: Moved = _postgres("postgres_tables").migrate(where, target)
    return moved


def try_database(url: PostgresUrl) -> str:
    """What was found on trying whether a run can be made in a database; nothing is left. Raises `StoreError`."""
    return str(_postgres("postgres_tables").trial(url))


def _postgres(module: str) -> Any:
    try:
        return importlib.import_module(f"prefillgate.evidence.{module}")
    except ImportError as error:
        raise StoreError(f"{EXTRA} ({error})") from error
