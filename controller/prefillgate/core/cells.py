"""A cell: one case on one arm once, as the log of a run or of a stranger tells it.

`Cell` is the datum everything else in the core is computed from. Its fields are those of a line of
`prefillgate cells --json`, plus the few witnesses that only a measured run has. None always means
unknown, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

BASELINE = "baseline"
CANDIDATE = "candidate"
ARMS = (BASELINE, CANDIDATE)


class Status(StrEnum):
    """What became of a cell (STATISTICS.md section 1). Invalid cells are never scored."""

    OK = "ok"
    FAILED = "failed"
    INVALID = "invalid"


class ColdProof(StrEnum):
    """The means that forced a fresh prefill, named only where the probe showed it to work in this epoch."""

    CACHE_OFF = "cache_off"
    SALT = "salt"
    NONCE = "nonce"


@dataclass(frozen=True, slots=True)
class Cell:
    """One case on one arm once.

    Units: token counts are tokens, `*_ms` milliseconds, `started_at` and `ended_at` seconds since the
    Unix epoch. `replicate` 0 is the screen, 1, 2, ... the numbered replicates. `bad` is the outcome of
    the default flag; `flag_outcomes` holds every declared flag when there are several.
    """

    arm: str
    case_id: str
    status: Status = Status.OK
    bad: bool | None = None
    replicate: int = 0
    server_epoch: str | None = None
    started_at: float | None = None
    prompt_sha256: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    processed_tokens: int | None = None
    output_tokens: int | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    finish_reason: str | None = None
    cold_proof: ColdProof | None = None
    request_id: str | None = None
    choice_index: int | None = None
    # Witnesses and facts beyond the cell log; absent in a log the gate did not write.
    ended_at: float | None = None
    counter_processed_tokens: int | None = None  # delta of the server's own prompt-token counter
    counter_alive: bool = False  # the probe of this epoch saw the cached-token counter rise
    shares_blocks: bool = False  # this engine serves in-flight requests from each other's blocks
    shared_server: bool = False  # it served others meanwhile: no time tells whether a prefill was fresh
    output_sha256: str | None = None
    flag_outcomes: tuple[tuple[str, bool | None], ...] = ()

    @property
    def prompt_key(self) -> str:
        """What identifies the prompt for cache purposes: its digest, else the case."""
        return self.prompt_sha256 if self.prompt_sha256 is not None else self.case_id

    def outcome(self, flag: str | None = None) -> bool | None:
        """Bad (True), clean (False) or unknown (None) under `flag`, or under the default flag.

        A failed cell is bad whatever its checks say.
        """
        if self.status is Status.FAILED:
            return True
        if flag is not None:
            for name, value in self.flag_outcomes:
                if name == flag:
                    return value
        return self.bad
