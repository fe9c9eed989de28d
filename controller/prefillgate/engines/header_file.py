"""A file of request headers, one `Name: value` a line; empty lines and lines that begin with # are left out.

Errors name the file and the line, never what stands there: it is a secret as a rule.
"""

from __future__ import annotations

import re
from pathlib import Path

from prefillgate.engines.tls import AccessError, read_file

Header = tuple[str, str]
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_VALUE = re.compile(r"[\x20-\x7e\t]*")
# What the transport itself must say: these would change the body's bytes, its framing, or how the reply is read.
_OURS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
PROXY_AUTHORIZATION = "proxy-authorization"


def read_header_file(path: Path) -> tuple[Header, ...]:
    """The headers of a file, in its order. Raises `AccessError`."""
    try:
        text = read_file(path, "header file").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AccessError(f"header file {path} is no text in UTF-8") from error
    found: dict[str, tuple[int, Header]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        header = _header(line, f"{path}:{number}")
        before = found.setdefault(header[0].lower(), (number, header))
        if before[0] != number:
            raise AccessError(f"{path}:{number}: this header stands on line {before[0]} already (allowed: once)")
    return tuple(header for _, header in found.values())


def checked_value(value: str, what: str) -> str:
    """The value of a header that is named by itself. Raises `AccessError`, never quoting it."""
    if not value.strip() or not _VALUE.fullmatch(value.strip()):
        raise AccessError(f"{what}: not a header's value (allowed: printable ASCII)")
    return value.strip()


def _header(line: str, where: str) -> Header:
    name, colon, value = line.partition(":")
    value = value.strip()
    if not colon or not _NAME.fullmatch(name) or not value or not _VALUE.fullmatch(value):
        raise AccessError(f"{where}: not a header (allowed: `Name: value` in ASCII, or a # in front)")
    if name.lower() in _OURS:
        raise AccessError(
            f"{where}: {name} is set by the gate itself (allowed: any header but {', '.join(sorted(_OURS))})"
        )
    return name, value
