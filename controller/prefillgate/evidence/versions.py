"""The version of a store's tables, and the way from one version to the next and back.

Both kinds of store have the same versions; each has its own statements. A new store is made as version 1 and led up,
so that every way up is taken each time.

1  the plan, the events and their texts
2  `events.written_at`: when a row was written, by the clock of who wrote it (SQLite) or of the server (PostgreSQL);
   nothing in rows of version 1
3  the highest token of a writer (`prefillgate.evidence.fence`)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prefillgate import __version__
from prefillgate.evidence.errors import RESTORE, StoreDamaged, StoreVersion

FIRST = 1
SCHEMA = 3
CREATED_BY = f"prefillgate {__version__}"


@dataclass(frozen=True, slots=True)
class Step:
    """From one version to the next (`up`) and back (`down`), as SQL; `lost` is what going back forgets."""

    up: tuple[str, ...]
    down: tuple[str, ...]
    lost: str


Steps = Mapping[int, Step]  # version -> the step between it and the next


def readable(text: str, created_by: str) -> int:
    """The version written in a store, if this program reads it. Raises `StoreDamaged`, `StoreVersion`."""
    if not text.isascii() or not text.isdigit():
        raise StoreDamaged(f"the schema version is {text!r}, not a number. {RESTORE}")
    version = int(text)
    if version > SCHEMA:
        raise StoreVersion(
            f"it has schema version {version} ({created_by}), this {CREATED_BY} knows versions up to {SCHEMA}. Upgrade "
            f"prefillgate, or go back with the newer one: prefillgate store migrate STORE --to {SCHEMA}"
        )
    if version < FIRST:
        raise StoreVersion(
            f"it has schema version {version} ({created_by}), this {CREATED_BY} reads {FIRST} to {SCHEMA}. Read it "
            "with the version that wrote it."
        )
    return version


def way(steps: Steps, version: int, target: int) -> tuple[str, ...]:
    """The statements that lead from one version to another. Raises `StoreVersion` where a step is not known."""
    crossed = range(version, target) if target > version else range(version - 1, target - 1, -1)
    missing = [number for number in crossed if number not in steps]
    if missing:
        raise StoreVersion(
            f"it has schema version {version}; this {CREATED_BY} does not know how to get from there to {target}"
        )
    if target > version:
        return tuple(statement for number in crossed for statement in steps[number].up)
    return tuple(statement for number in crossed for statement in steps[number].down)


def lost_by(steps: Steps, version: int, target: int) -> tuple[str, ...]:
    """What going back from `version` to `target` forgets; nothing on the way up."""
    return tuple(steps[number].lost for number in range(version - 1, target - 1, -1) if number in steps)
