"""Opening evidence stores for a run, their errors in the words of `prefillgate.runs.errors`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from prefillgate.runs.errors import BadInput, CouldNotMeasure

if TYPE_CHECKING:
    from prefillgate.api.store_address import StoreAddress
    from prefillgate.core.gate import Gate
    from prefillgate.evidence import KeptJournal


@contextmanager
def store_errors() -> Iterator[None]:
    """A damaged store, one that another writer took over, or one whose server is away, could not be measured; all
    else is bad input."""
    from prefillgate.core.gate import JournalError
    from prefillgate.evidence import StoreAway, StoreDamaged, StoreError, StoreFenced

    try:
        yield
    except (StoreDamaged, StoreAway, StoreFenced, JournalError) as error:
        raise CouldNotMeasure(str(error)) from error
    except StoreError as error:
        raise BadInput(str(error)) from error


@contextmanager
def reading(store: StoreAddress) -> Iterator[tuple[KeptJournal, Gate]]:
    """A store as it is now and the gate folded from it; a run may be writing it meanwhile."""
    from prefillgate.core.gate import fold
    from prefillgate.evidence import read_store

    with store_errors(), read_store(store) as journal:
        yield journal, fold(journal.events())


def short_name(store: StoreAddress) -> str:
    """The name of a store without its place."""
    return store.name if isinstance(store, Path) else str(store.run)


def same_store(one: StoreAddress, other: StoreAddress) -> bool:
    """Whether two addresses lead to one store, as far as they tell."""
    if isinstance(one, Path) and isinstance(other, Path):
        return one.resolve() == other.resolve()
    return one == other
