"""Opening evidence stores for a command, their errors in the command line's two words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from prefillgate.cli.errors import BadInput, CouldNotMeasure

SQLITE_HEADER = b"SQLite format 3\0"
BESIDE_A_STORE = ("-lock", "-wal", "-shm", "-journal")

if TYPE_CHECKING:
    from prefillgate.core.gate import Gate
    from prefillgate.evidence import SqliteJournal


@contextmanager
def store_errors() -> Iterator[None]:
    """A damaged store could not be measured (exit 1); any other store that cannot be used is bad input (exit 2)."""
    from prefillgate.core.gate import JournalError
    from prefillgate.evidence import StoreDamaged, StoreError

    try:
        yield
    except (StoreDamaged, JournalError) as error:
        raise CouldNotMeasure(str(error)) from error
    except StoreError as error:
        raise BadInput(str(error)) from error


def keep_from_overwriting(option: str, target: Path, store: Path, *sources: Path) -> None:
    """Raise `BadInput` where writing `target` would destroy evidence (of any store) or what a run is made from."""
    beside = [store.with_name(store.name + suffix) for suffix in BESIDE_A_STORE]
    if any(_same(target, path) for path in (store, *beside, *sources)) or _is_database(target):
        raise BadInput(
            f"{option} {target}: a report would overwrite what stands there (allowed: a file that is no evidence "
            "store and no input of the command)"
        )


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there yet
        return one.resolve() == other.resolve()


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER
    except OSError:  # nothing to lose; writing will say what is wrong
        return False


@contextmanager
def reading(path: Path) -> Iterator[tuple[SqliteJournal, Gate]]:
    """A store as it is now and the gate folded from it; a run may be writing it meanwhile."""
    from prefillgate.core.gate import fold
    from prefillgate.evidence import SqliteJournal

    with store_errors(), SqliteJournal.open_readonly(path) as journal:
        yield journal, fold(journal.events())
