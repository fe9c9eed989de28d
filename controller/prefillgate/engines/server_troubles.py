"""What an HTTP server of ours says of connections that went wrong: counted, never printed as it stands.

Its own lines quote what a client sent, and a request that is no HTTP may well be a prompt or a key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from aiohttp.http_exceptions import HttpProcessingError


class Troubles(logging.Handler):
    """Calls `unreadable` for a request that is no HTTP, and `failed` with the kind of any other error."""

    def __init__(self, unreadable: Callable[[], None], failed: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._unreadable, self._failed = unreadable, failed

    def emit(self, record: logging.LogRecord) -> None:
        """Take one line of the HTTP server; of an error its kind alone is told."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            self._unreadable()
        elif error is not None:
            self._failed(type(error).__name__)


def troubles_logger(troubles: Troubles) -> logging.Logger:
    """A logger that reaches nothing but `troubles`."""
    logger = logging.Logger("prefillgate.server", logging.ERROR)
    logger.addHandler(troubles)
    return logger
