"""What the HTTP server says of connections that went wrong: counted, never printed as it stands.

Its own lines quote what a client sent, and a request that is no HTTP may well be a prompt or a key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from aiohttp.http_exceptions import HttpProcessingError


class Troubles(logging.Handler):
    """Calls `count` for a request that is no HTTP, and `say` with the kind of any other error."""

    def __init__(self, count: Callable[[], None], say: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._count, self._say = count, say

    def emit(self, record: logging.LogRecord) -> None:
        """Take one line of the HTTP server; of an error its kind alone is told."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            self._count()
        elif error is not None:
            self._say(f"a request could not be passed on: {type(error).__name__}")


def troubles_logger(troubles: Troubles) -> logging.Logger:
    """A logger that reaches nothing but `troubles`."""
    logger = logging.Logger("prefillgate.recording", logging.ERROR)
    logger.addHandler(troubles)
    return logger
