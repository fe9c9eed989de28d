"""What every importer gives: the requests that a foreign log tells of, one at a time, and what it cannot tell.

A format is recognised from the first bytes of a file, never from its name. `Format.read` yields in the order of the
file: `Imported` for a request, `Prompted` for one without its answer, `Unread` for a line or record that it could not
use, `Absent` for what this kind of log cannot hold. Nothing is skipped silently, and nothing that a log does not tell
is guessed: it stays None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from prefillgate.api.cell_log import LogLine
from prefillgate.core.journal import Texts
from prefillgate.importers.source import Source

UNKNOWN_ARM = "candidate"  # what a cell's arm is until `--baseline` or a label says otherwise


@dataclass(frozen=True, slots=True)
class Asked:
    """The request as the log holds it. `path` is /v1/chat/completions or /v1/completions."""

    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Imported:
    """One request of a log, or one choice of it.

    `line.cell` is what is counted; its arm is `UNKNOWN_ARM` where the log names none, and then `arm_told` is False.
    `label` is what could tell arms apart (a model, a provider, a run), None where the log names none. `texts` is what
    came back, None where the log keeps no outputs. `where` is file and line or record, for messages.
    """

    line: LogLine
    where: str
    arm_told: bool = False
    label: str | None = None
    texts: Texts | None = None
    asked: Asked | None = None
    time_to_first_token_ms: float | None = None
    custom_id: str | None = None  # what names its request in another file (an OpenAI Batch input)


@dataclass(frozen=True, slots=True)
class Prompted:
    """A request of which the log holds no counts: a prompt for a replay set, nothing to count.

    `custom_id` is what an answer in another file names it by.
    """

    asked: Asked
    where: str
    custom_id: str | None = None
    own: Mapping[str, Any] | None = None  # `checks` and `expect`, as a line of a replay set holds them
    texts: Texts | None = None  # what came back, where the log tells it apart from the request that it counts


@dataclass(frozen=True, slots=True)
class Unread:
    """A line or record that could not be used: where, and why in one clause. `why` is the same for all of a kind."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Absent:
    """Something that this log does not hold (`prompts`, `prompt length`), and the setting that would give it."""

    what: str
    flag: str | None = None


Found = Imported | Prompted | Unread | Absent


class Format(Protocol):
    """One kind of log."""

    name: str  # as `--format` takes it: `llama-server-log`
    title: str  # as a person calls it: "llama-server's text log"

    def recognise(self, head: bytes) -> bool:
        """Whether a file that begins with `head` (up to `HEAD_BYTES`, whole lines where it has any) is of this kind."""

    def read(self, source: Source) -> Iterator[Found]:
        """Everything in it, one at a time. Raises `ImportProblem` where the file as a whole cannot be read."""


@runtime_checkable
class Mapped(Protocol):
    """A format whose columns may be called anything: `--column prompt_tokens=tokens_in`."""

    def with_columns(self, columns: Mapping[str, str]) -> Format:
        """The format with names of columns by field of the cell log. Raises `ImportProblem` for an unknown field."""
