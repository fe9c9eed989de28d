"""Opening evidence stores for a command, their errors in the command line's two words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from prefillgate.cli.errors import BadInput, CouldNotMeasure

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


@contextmanager
def reading(path: Path) -> Iterator[tuple[SqliteJournal, Gate]]:
    """A store as it is now and the gate folded from it; a run may be writing it meanwhile."""
    from prefillgate.core.gate import fold
    from prefillgate.evidence import SqliteJournal

    with store_errors(), SqliteJournal.open_readonly(path) as journal:
        yield journal, fold(journal.events())
