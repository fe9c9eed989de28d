"""What a command says beside its answer: a line for a person, or under `--log-json` a JSON object, on standard error.

Either all of it is lines or all of it is objects. Nothing heavy is imported before the first object is asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import click

LOG_JSON = "--log-json"
# What a person gave in the place of a file or an option may be an address with a password in it.
_IN_ADDRESS = re.compile(r"(?<=://)([^\s/@:'\"]{0,256}?)(:|%3[Aa])[^\s/'\"]{1,1024}@")
_NAMED = re.compile(r"(?i)((?<![a-z])(?:ssl)?passw(?:or)?d=)[^\s&;,'\")]+")
_FIRST = ("event", "time", "level", "message")


@dataclass(slots=True)
class _State:
    as_json: bool = False
    resume_told: bool = False


_state = _State()


def begin_speaking(argv: Sequence[str]) -> None:
    """Say objects if the command line asks for them, lines if not; a mistake in that line is told the same way."""
    _state.as_json, _state.resume_told = LOG_JSON in argv, False


def speaks_json() -> bool:
    """Whether objects are said."""
    return _state.as_json


def say(line: str, event: str = "note", level: str = "info", **facts: Any) -> None:
    """One line for a person, cleaned of what could steer a terminal.

    Under `--log-json` an object with `event`, `time` (ISO 8601, UTC), `level` (info, warning or error), `message` (the
    line) and the `facts`.
    """
    from prefillgate.report.clean import visible

    text = without_passwords(visible(line).replace("\n", " ⏎ "))
    if _state.as_json:
        getattr(_logger(), level)(event, message=text, **facts)
    else:
        click.echo(text, err=True)


def without_passwords(text: str) -> str:
    """`text` with `[secret]` in the place of a password in a URL (`//user:password@`, `password=`)."""
    return _NAMED.sub(r"\1[secret]", _IN_ADDRESS.sub(r"\1\2[secret]@", text))


def tell_resume(what: str, command: str) -> None:
    """The command that goes on, alone on the last line, to be copied or read by a program."""
    _state.resume_told = True
    say(f"{what}; this command resumes:", "stopped")
    say(command, "resume", command=command)


def tell_beginning(argv: Sequence[str]) -> None:
    """After a run that was interrupted before it had a store, or that only planned: what was typed, which begins it."""
    name = next((word for word in argv if not word.startswith("-")), None)
    if name != "run" or _state.resume_told:
        return
    command = " ".join(map(quoted, ["prefillgate", *argv]))
    say("interrupted before anything was kept; this command begins:", "stopped")
    say(command, "resume", command=command)


def quoted(text: str) -> str:
    """An argument as the shell of this system takes it; bare where it may stand bare."""
    import shlex
    import subprocess

    return subprocess.list2cmdline([text]) if os.name == "nt" else shlex.quote(text)


@cache
def _logger() -> Any:
    import structlog

    return structlog.wrap_logger(
        _StandardError(),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            _in_order,
            structlog.processors.JSONRenderer(ensure_ascii=True, default=str),
        ],
        wrapper_class=structlog.BoundLogger,
    )


def _in_order(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> dict[str, Any]:
    first = {name: fields[name] for name in _FIRST}
    return {**first, **fields}


class _StandardError:
    """Where the objects go: whatever standard error is at that moment."""

    def msg(self, text: str) -> None:
        """Write one object on a line of its own."""
        click.echo(text.replace("\x7f", "\\u007f"), err=True)

    info = warning = error = msg
