"""Opening evidence stores for a command, their errors in the command line's two words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.errors import BadInput
from prefillgate.runs.stores import reading as reading
from prefillgate.runs.stores import same_store as same_store
from prefillgate.runs.stores import short_name as short_name
from prefillgate.runs.stores import store_errors as store_errors

SQLITE_HEADER = b"SQLite format 3\0"
BESIDE_A_STORE = ("-lock", "-wal", "-shm", "-journal")

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from prefillgate.api.store_address import StoreAddress


class StoreParameter(click.Path):
    """Where a store is: a file, or `postgresql://...?run=NAME`."""

    name = "store"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The address. Raises `BadInput` for a URL that is none of a store, or holds a password."""
        from prefillgate.api.store_address import store_address

        if not isinstance(value, str):
            return value
        try:
            return store_address(value)
        except ValueError as error:
            raise BadInput(f"{_called(param)}: {error}") from error

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Files; behind a database's URL the runs that are there, if it answers."""
        from click.shell_completion import CompletionItem

        from prefillgate.api.store_address import store_address

        try:
            where = store_address(incomplete.partition("run=")[0].rstrip("?&"))
        except ValueError:
            return []
        if isinstance(where, Path):
            return [CompletionItem(incomplete, type="file")]
        from prefillgate.evidence import StoreError, store_facts

        try:
            names = [facts.store for facts in store_facts(where)]
        except StoreError:
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _called(param: click.Parameter | None) -> str:
    if isinstance(param, click.Option):
        return param.opts[0]
    return "store" if param is None or param.name is None else param.name.upper()


STORE = StoreParameter()


def keep_from_overwriting(option: str, target: Path, store: StoreAddress, *sources: Path) -> None:
    """Raise `BadInput` where writing `target` would destroy evidence (of any store) or what a run is made from."""
    files = [store] if isinstance(store, Path) else []
    files += [path.with_name(path.name + suffix) for path in files for suffix in BESIDE_A_STORE]
    if any(_same(target, path) for path in (*files, *sources)) or _is_database(target):
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


def report_beside(store: StoreAddress) -> Path:
    """Where the report of a store goes by default: beside a file; for a run in a database into `.prefillgate`."""
    return store.with_suffix(".html") if isinstance(store, Path) else Path(".prefillgate") / f"{store.run}.html"


def anew_beside(store: StoreAddress) -> StoreAddress:
    """A store of another name in the same place, that no file has; a run of a database is named once it begins."""
    if not isinstance(store, Path):
        return replace(store, run=None)
    number = 2
    while (found := store.with_name(f"{store.stem}-{number}{store.suffix}")).exists():
        number += 1
    return found
