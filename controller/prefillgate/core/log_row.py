"""A request of a large log as one flat row, and rows as columns: what counting needs, and nothing that grows with it.

Most of a row is the same in many of them: its arm, prompt, counters and outcome are its kind. Rows of a block are the
numbers of their kinds and a column for each fact that is a row's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from prefillgate.core.cells import Cell, ColdProof, Status


class Kind(NamedTuple):
    """What rows share. The fields that `Cell` has too mean the same, `prompt_key` is what identifies the prompt.

    `waited` marks cells of a server that asked to be left alone; `label` is what could tell arms apart. `named` says
    that the name of its case is all that is known of the prompt.
    """

    arm: str
    case_id: str
    prompt_key: str
    server_epoch: str | None
    status: Status
    bad: bool | None
    replicate: int
    prompt_tokens: int | None
    cached_tokens: int | None
    processed_tokens: int | None
    counter_processed_tokens: int | None
    cold_proof: ColdProof | None
    choice_index: int | None
    counter_alive: bool
    shares_blocks: bool
    shared_server: bool
    waited: bool
    label: str | None = None
    named: bool = False

    def outcome(self) -> bool | None:
        """Bad, clean or unknown under the default flag. A failed cell is bad."""
        return True if self.status is Status.FAILED else self.bad


class Own(NamedTuple):
    """What is a row's own, under the names of `Cell`; `first_token_ms` is its time to first token."""

    started_at: float | None
    ended_at: float | None
    prefill_ms: float | None
    request_id: str | None
    output_sha256: str | None
    first_token_ms: float | None


class Row(NamedTuple):
    """A cell of a large log."""

    kind: Kind
    own: Own

    def cell(self) -> Cell:
        """The row as a cell, as far as it goes."""
        told = {**self.kind._asdict(), **self.own._asdict()}
        prompt = None if self.kind.named else self.kind.prompt_key
        for name in _BESIDE:
            del told[name]
        return Cell(**told, prompt_sha256=prompt)


_BESIDE = ("prompt_key", "first_token_ms", "waited", "label", "named")


def row_of(cell: Cell, first_token_ms: float | None = None, waited: bool = False, label: str | None = None) -> Row:
    """A cell as a row."""
    kind = Kind(
        cell.arm,
        cell.case_id,
        cell.prompt_key,
        cell.server_epoch,
        cell.status,
        cell.bad,
        cell.replicate,
        cell.prompt_tokens,
        cell.cached_tokens,
        cell.processed_tokens,
        cell.counter_processed_tokens,
        cell.cold_proof,
        cell.choice_index,
        cell.counter_alive,
        cell.shares_blocks,
        cell.shared_server,
        waited,
        label,
        cell.prompt_sha256 is None,
    )
    own = Own(cell.started_at, cell.ended_at, cell.prefill_ms, cell.request_id, cell.output_sha256, first_token_ms)
    return Row(kind, own)


Column = list[Any] | None  # None where no row tells it


@dataclass(slots=True)
class Block:
    """Rows as columns: `numbers` of their kinds in `kinds`, and a column for each field of `Own`, in its order.

    `kinds` is one list for many blocks, and only grows; `anew` says that it is another one than that of the block
    before.
    """

    kinds: list[Kind]
    numbers: list[int]
    columns: list[Column]
    anew: bool = False

    def column(self, name: str) -> Column:
        """A column by its name in `Own`."""
        return self.columns[Own._fields.index(name)]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """(number of the kind, the fields of `Own` in their order) of each row."""
        return zip(self.numbers, *(repeat(None) if each is None else each for each in self.columns), strict=False)


def column(values: list[Any]) -> Column:
    """A column; None where it tells nothing."""
    return None if values.count(None) == len(values) else values
