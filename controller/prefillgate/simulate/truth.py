"""The truth file: one JSON line a request, true whatever the server told its client.

Fields of a line:

* `request` (number of arrival, from 1), `ordinal` (number among the counted ones, or null), `id`, `path`, `epoch`
* `prompt_sha256` (of the prompt's text, after the chat template), `prompt_tokens`, `cached_tokens`,
  `processed_tokens`, `output_tokens` (of the first result), `n`
* `prefill` (number of the real prefill the answer rides on), `fresh` (this request made that prefill),
  `state` ("good" or "bad", drawn by that prefill), `outcome` ("good", "bad", or null when there was no answer)
* `cache_prompt` (as asked), `knob_honoured`, `temperature`, `seed`, `stream`, `finish_reason`, `text` (as sent)
* `started_at`, `ended_at` (seconds since the Unix epoch), `prefill_ms`, `decode_ms` (true ones)
* `status` (HTTP), `delivered` ("complete", "abandoned", or the fault that kept the answer back)
* `lies` (faults that made the report differ from the truth), `reported` ({"cached_tokens", "processed_tokens"})

What is unknown or never happened is null. The line is on disk before the answer's last byte goes out.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO


@dataclass(slots=True)
class TruthLine:
    """One request. See the module's text for the fields."""

    request: int
    path: str
    epoch: str
    started_at: float
    prompt_sha256: str
    ordinal: int | None = None
    id: str | None = None
    n: int = 1
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    processed_tokens: int | None = None
    output_tokens: int | None = None
    prefill: int | None = None
    fresh: bool | None = None
    state: str | None = None
    outcome: str | None = None
    cache_prompt: bool | None = None
    knob_honoured: bool | None = None
    temperature: float | None = None
    seed: int | None = None
    stream: bool | None = None
    finish_reason: str | None = None
    text: str | None = None
    ended_at: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    status: int = 200
    delivered: str = "complete"
    lies: list[str] = field(default_factory=list)
    reported: dict[str, int | None] | None = None


class TruthFile:
    """Appends lines and flushes each. Without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._file: TextIO | None = path.open("a", encoding="utf-8") if path is not None else None

    def write(self, line: TruthLine) -> None:
        """Append one line and hand it to the operating system."""
        if self._file is None:
            return
        self._file.write(json.dumps(asdict(line)) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Force what was written onto the disk (before the process ends itself)."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def read_truth(path: Path) -> list[dict[str, Any]]:
    """The lines of a truth file, in order of writing."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
