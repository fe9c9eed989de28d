"""Reading foreign logs in tests: what an importer gave, by kind, and hostile variants of a sample."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prefillgate.core.cells import Cell
from prefillgate.importers.base import Absent, Found, Imported, Unread
from prefillgate.importers.registry import find_format
from prefillgate.importers.source import ImportProblem, Source

WRONG = (None, True, 0, -1, 1e400, "x", "", [], {}, [[]], {"a": {}}, "\ud800")


def as_lines(*records: Any) -> bytes:
    """JSON lines; text is written as it is."""
    return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in records).encode("utf-8", "replace")


def as_document(value: Any) -> bytes:
    """One JSON document over several lines."""
    return json.dumps(value, indent=2).encode()


def read_bytes(data: bytes, name: str | None = None) -> list[Found]:
    """Everything that the format which recognises `data`, or that of `name`, gives."""
    source = Source(io.BytesIO(data), "log")
    return list(find_format(source, name).read(source))


def imported(found: list[Found]) -> list[Imported]:
    return [each for each in found if isinstance(each, Imported)]


def cells_of(found: list[Found]) -> list[Cell]:
    return [each.line.cell for each in imported(found)]


def unread(found: list[Found]) -> list[tuple[str, str]]:
    return [(each.where, each.why) for each in found if isinstance(each, Unread)]


def absent(found: list[Found]) -> dict[str, str | None]:
    return {each.what: each.flag for each in found if isinstance(each, Absent)}


def spoiled(value: Any, seed: int) -> Any:
    """`value` with a few parts of it replaced by values of a wrong type, left out or put in another order."""
    dice = random.Random(seed)

    def walk(part: Any) -> Any:
        if part is not value and dice.random() < 0.06:
            return dice.choice(WRONG)
        if isinstance(part, dict):
            items = [(key, walk(each)) for key, each in part.items() if dice.random() > 0.04]
            dice.shuffle(items)
            return dict(items)
        if isinstance(part, list):
            return [walk(each) for each in part]
        return part

    return walk(value)


def survives(data: bytes, name: str) -> int:
    """How much came of hostile input: anything but an `ImportProblem` would have been a traceback."""
    try:
        return len(read_bytes(data, name))
    except ImportProblem as problem:
        assert str(problem), "a refusal says why"
        return 0


def truncated(data: bytes, times: int = 60) -> Iterator[bytes]:
    """`data` cut at many places."""
    for step in range(times):
        yield data[: len(data) * step // times]


def withstands(
    name: str, cut: Iterable[bytes], spoil: Callable[[int], Iterable[bytes]], *, times: int = 60, seeds: int = 300
) -> list[int]:
    """Whether a format reads hostile input without a traceback: each of `cut`, cut short at `times` places, and what
    `spoil` makes of each seed. How much came of each of the latter."""
    for sample in cut:
        for data in truncated(sample, times):
            survives(data, name)
    return [survives(data, name) for seed in range(seeds) for data in spoil(seed)]
