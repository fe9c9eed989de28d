"""What must not be shown though a server says it: some servers repeat the key, or a whole request, in a reply.

Everything a server says passes here before it becomes an error, an answer or evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

HIDDEN = "[secret]"
# An error's text may lose any word that is one of our secrets. An answer is measured, so only what no model writes by
# chance is taken out of it: keys have 20 characters and more, and "test" may well be both a key and an answer.
LEAST_IN_ERRORS = 4
LEAST_IN_ANSWERS = 16


class Secrets:
    """The secrets of one way to a server."""

    def __init__(self, key: str | None, headers: Iterable[tuple[str, str]]) -> None:
        values = {key or ""}
        for _, value in headers:
            # `Authorization: Basic abc`: a server may repeat abc alone.
            values |= {value, *value.split()}
        written = values | {json.dumps(value)[1:-1] for value in values}
        self._values = sorted(written, key=len, reverse=True)

    def out_of_error(self, text: str) -> str:
        """`text` without any secret."""
        return self._without(text, LEAST_IN_ERRORS)

    def out_of_answer(self, text: str) -> str:
        """`text` without any secret that is long enough to be no accident."""
        return self._without(text, LEAST_IN_ANSWERS)

    def _without(self, text: str, least: int) -> str:
        for value in self._values:
            if len(value) < least:
                break
            text = text.replace(value, HIDDEN)
        return text
