"""What is sent to the API server, in characters that it reads back as they were meant.

A server-side apply is read as YAML, which refuses what JSON allows: an emoji as two escapes (it has to stand there
itself), control characters as they are (they have to be escapes), and takes some separators for the end of a line. What
no encoding has, one half of a surrogate pair, becomes U+FFFD, as the API server makes it of it in JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any

_HALVES = re.compile("[\ud800-\udfff]")
# everything outside YAML 1.1's c-printable, its line breaks beyond ASCII, and the byte order mark
_AS_ESCAPES = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def sendable(value: Any) -> Any:
    """`value`, a text or what JSON is made of, without halves of surrogate pairs: as it will be read back."""
    if isinstance(value, str):
        return value if value.isascii() else _HALVES.sub("\ufffd", value)
    if isinstance(value, dict):
        return {sendable(key): sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [sendable(each) for each in value]
    return value


def as_yaml(body: Any) -> bytes:
    """A body as JSON that is YAML too, in UTF-8."""
    text = json.dumps(sendable(body), ensure_ascii=False, allow_nan=False)
    return _AS_ESCAPES.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode("utf-8")
