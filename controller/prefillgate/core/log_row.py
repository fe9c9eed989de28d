"""A request of a large log as one flat row: what counting needs, and nothing that grows with the log."""

from __future__ import annotations

from typing import NamedTuple

from prefillgate.core.cells import Cell, ColdProof, Status


class Row(NamedTuple):
    """A cell, its texts as they are told. The fields that `Cell` has too mean the same.

    `waited` marks an invalid cell of a server that asked to be left alone.
    """

    arm: str
    case_id: str
    prompt_key: str
    server_epoch: str | None
    status: Status
    bad: bool | None
    replicate: int
    started_at: float | None
    ended_at: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    processed_tokens: int | None
    counter_processed_tokens: int | None
    prefill_ms: float | None
    cold_proof: ColdProof | None
    request_id: str | None
    choice_index: int | None
    counter_alive: bool
    shares_blocks: bool
    shared_server: bool
    output_sha256: str | None
    first_token_ms: float | None
    waited: bool

    def outcome(self) -> bool | None:
        """Bad, clean or unknown under the default flag. A failed cell is bad."""
        return True if self.status is Status.FAILED else self.bad

    def cell(self) -> Cell:
        """The row as a cell, as far as it goes."""
        own = {name: value for name, value in self._asdict().items() if name not in _BESIDE}
        own["prompt_sha256"] = None if self.prompt_key == self.case_id else self.prompt_key
        return Cell(**own)


_BESIDE = frozenset({"prompt_key", "first_token_ms", "waited"})


def row_of(cell: Cell, first_token_ms: float | None = None, waited: bool = False) -> Row:
    """A cell as a row."""
    return Row(
        cell.arm,
        cell.case_id,
        cell.prompt_key,
        cell.server_epoch,
        cell.status,
        cell.bad,
        cell.replicate,
        cell.started_at,
        cell.ended_at,
        cell.prompt_tokens,
        cell.cached_tokens,
        cell.processed_tokens,
        cell.counter_processed_tokens,
        cell.prefill_ms,
        cell.cold_proof,
        cell.request_id,
        cell.choice_index,
        cell.counter_alive,
        cell.shares_blocks,
        cell.shared_server,
        cell.output_sha256,
        first_token_ms,
        waited,
    )
