"""The tables of the book, in the SQL that SQLite and PostgreSQL share.

meta        `schema` (version), `created_by`
fence       one row: the highest token of a writer, -1 before any
notices, overrides, replicates, fates, floors, watches, loads, scaled: the rows of `prefillgate.evidence.book_rows`,
            field by field

`book.` stands for the schema, `:name` for a value; each link writes them its own way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from prefillgate.evidence.book_rows import (
    Fate,
    Floor,
    HandledOverride,
    Load,
    Notice,
    Outcome,
    Replicates,
    Scaled,
    Wait,
    Watch,
)
from prefillgate.evidence.errors import RESTORE, StoreDamaged, StoreVersion
from prefillgate.evidence.versions import CREATED_BY

BOOK_VERSION = 1
_KINDS = {"str": "text", "float": "double precision", "int": "bigint", "bool": "bigint", "Outcome": "text"}
_TYPES: dict[str, type] = {"str": str, "float": float, "int": int, "bool": bool, "Outcome": Outcome}
_T = TypeVar("_T")
_KEYS: dict[type, tuple[str, str]] = {
    Notice: ("notices", "key"),
    HandledOverride: ("overrides", "key"),
    Replicates: ("replicates", "baseline, candidate, rollout"),
    Fate: ("fates", "line, digest, outcome, rollout"),
    Floor: ("floors", "line, baseline, replay_set_sha256"),
    Watch: ("watches", "line"),
    Load: ("loads", "line, at, work"),
    Wait: ("waits", "work"),
    Scaled: ("scaled", "line"),
}


def table_of(row: type) -> str:
    """The table that keeps rows of a kind."""
    return _KEYS[row][0]


def key_of(row: type) -> str:
    """The columns that make a row one, comma-separated."""
    return _KEYS[row][1]


def columns(row: type) -> tuple[str, ...]:
    """The columns of a table, in the order of the row's fields."""
    return tuple(field.name for field in dataclasses.fields(row))


def statements() -> tuple[str, ...]:
    """What makes the tables, their first rows included."""
    return (
        "CREATE TABLE book.meta (key text PRIMARY KEY, value text NOT NULL)",
        "CREATE TABLE book.fence (only_one bigint PRIMARY KEY, token bigint NOT NULL)",
        "INSERT INTO book.fence VALUES (1, -1)",
        *(_created(row) for row in _KEYS),
        f"INSERT INTO book.meta VALUES ('schema', '{BOOK_VERSION}'), ('created_by', '{CREATED_BY}')",
    )


def missing(there: Collection[str]) -> tuple[str, ...]:
    """What makes the tables that a book of an earlier program does not have: what it has is as it was."""
    return tuple(_created(row) for row in _KEYS if table_of(row) not in there)


def _created(row: type) -> str:
    fields: list[str] = []
    for field in dataclasses.fields(row):
        kind, _, optional = str(field.type).partition(" | ")
        fields.append(f"{field.name} {_KINDS[kind]}{'' if optional else ' NOT NULL'}")
    return f"CREATE TABLE book.{table_of(row)} ({', '.join(fields)}, PRIMARY KEY ({key_of(row)}))"


def insert(row: type, update: bool) -> str:
    """Add a row, unless there is one of its key; `update`: put it in the place of that one."""
    names = columns(row)
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key_of(row).split(", "))
    return (
        f"INSERT INTO book.{table_of(row)} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)}) "
        f"ON CONFLICT ({key_of(row)}) DO {f'UPDATE SET {changed}' if update else 'NOTHING'}"
    )


def select(row: type, where: str) -> str:
    """The rows of a kind; `where` holds what follows the table's name."""
    return f"SELECT {', '.join(columns(row))} FROM book.{table_of(row)} {where}"


def values_of(row: Any) -> dict[str, Any]:
    """A row's fields as the tables keep them."""
    return {name: _plain(getattr(row, name)) for name in columns(type(row))}


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    return int(value) if isinstance(value, bool) else value


def typed(row: type[_T], values: Sequence[Any]) -> _T:
    """The row with the values of its columns, in their order. Raises `StoreDamaged`."""
    fields = dataclasses.fields(row)  # type: ignore[arg-type]
    try:
        return row(*(_as(str(field.type), value) for field, value in zip(fields, values, strict=True)))
    except (TypeError, ValueError) as error:
        raise StoreDamaged(f"a row of {table_of(row)} is not one: {error}. {RESTORE}") from error


def _as(kind: str, value: Any) -> Any:
    name, _, optional = kind.partition(" | ")
    if value is None and optional:
        return None
    wanted = _TYPES[name]
    if name in ("bool", "Outcome"):
        return wanted(value)
    if not isinstance(value, wanted):
        raise TypeError(f"{value!r} is no {name}")
    return value


def check_version(meta: dict[str, Any]) -> None:
    """Raise `StoreDamaged` or `StoreVersion` unless this program reads the book with these values of meta."""
    found = str(meta.get("schema"))
    if not found.isdigit() or "created_by" not in meta:
        raise StoreDamaged(f"the book's version is {found!r}, not a number. {RESTORE}")
    if int(found) != BOOK_VERSION:
        raise StoreVersion(
            f"the book has version {found} ({meta['created_by']}), this {CREATED_BY} reads version {BOOK_VERSION}."
        )
