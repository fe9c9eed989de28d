"""What the controller says: JSON, an object a line on standard error, or lines for people. Never a secret.

Every object has `event`, `time` (UTC), `level`, and what it is about: `line`, `rollout`, `work`, `term`. Nothing of an
object of the API is logged whole.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import structlog

from prefillgate.api.errors import clean

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
FIRST = ("time", "level", "event", "line", "rollout", "work", "term")
MOST_TROUBLES = 4096
TELL_AGAIN_SECONDS = 1800.0  # a trouble that goes on; an event of it is there for an hour


def set_up_logs(level: str, format_: str, stream: TextIO | None = None) -> None:
    """Let everything of this process that is logged go to `stream` (standard error), in one format."""
    ending: list[Any] = (
        [structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0)]
        if format_ == "console"
        else [_in_order, structlog.processors.JSONRenderer(ensure_ascii=True, default=str)]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            _printable,
            *ending,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_: _Stream(stream),
        cache_logger_on_first_use=False,
    )


def take_in_the_rest() -> None:
    """What libraries, warnings and threads say goes into the same log, in the same form. For the process of a
    controller alone: it changes what the whole interpreter does."""
    root = logging.getLogger()
    root.handlers[:] = [_Bridge()]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    threading.excepthook = _thread_crashed


class _Bridge(logging.Handler):
    """Records of the standard library's logging, as ours."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        getattr(logger(), level)("library", name=record.name, message=record.getMessage(), exc_info=record.exc_info)


def _thread_crashed(crash: threading.ExceptHookArgs) -> None:
    name = None if crash.thread is None else crash.thread.name
    logger().error("thread_crashed", thread=name, exc_info=crash.exc_value)


def logger() -> Any:
    """The logger of the controller."""
    return structlog.get_logger()


class Troubles:
    """A trouble is told when it begins, when it becomes another one, each half hour while it lasts, and at its end;
    never once a retry. `scope` is what is troubled."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._told: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def note(self, scope: str, text: str, event: str = "trouble", level: str = "warning", **facts: Any) -> bool:
        """Whether it was told."""
        now = self._monotonic()
        known = self._told.get(scope)
        if known is not None and known[0] == text and now - known[1] < TELL_AGAIN_SECONDS:
            return False
        self._told[scope] = (text, now)
        self._told.move_to_end(scope)
        while len(self._told) > MOST_TROUBLES:
            self._told.popitem(last=False)
        getattr(logger(), level)(event, about=scope, message=text, **facts)
        return True

    def over(self, scope: str) -> None:
        """It works again."""
        if self._told and self._told.pop(scope, None) is not None:
            logger().info("trouble_over", about=scope)

    @property
    def standing(self) -> tuple[str, ...]:
        """What is troubled now."""
        return tuple(self._told)


def _printable(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {name: _clean(value) for name, value in fields.items()}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value) if "\n" not in value else "\n".join(clean(line) for line in value.split("\n"))
    return value


def _in_order(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> dict[str, Any]:
    first = {name: fields[name] for name in FIRST if name in fields}
    return {**first, **fields}


class _Stream:
    """One line at a time, whatever thread says it."""

    _lock = threading.Lock()

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def msg(self, text: str) -> None:
        """Write it, and let nothing of a closed pipe end the controller."""
        stream = self._stream or sys.stderr
        with self._lock:
            try:
                stream.write(text.replace("\x7f", "\\u007f") + "\n")
                stream.flush()
            except (OSError, ValueError):
                return

    debug = info = warning = error = critical = msg
