"""Secrets and addresses out of a text, each behind a placeholder that is the same wherever the same thing stood.

What looks like one is taken for one: a kind has a pattern, and some a test of what the pattern found. Every pattern
runs in time linear in the text. A placeholder is `[kind-0123456789]`, the first ten hex digits of a keyed digest, so
nobody without the key can try out guesses (there are few IPv4 addresses), and a scrubbed text scrubs to itself.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

DIGEST_DIGITS = 10
LEAST_SECRET = 6  # characters; shorter values of `password=` are words
KNOWN = "known-secret"
NO_TEXT = "data:"  # a string that begins so is an image or a sound


@dataclass(frozen=True, slots=True)
class _Kind:
    """`sign` must stand in a text (in lower case) for the pattern to be tried; group 1 is what is replaced."""

    name: str
    sign: str
    pattern: re.Pattern[str]
    is_one: Callable[[str], bool] = lambda found: True


def _mixed(found: str) -> bool:
    """Letters and digits, as tokens have them and words do not."""
    return any(c.isdigit() for c in found) and any(c.isalpha() for c in found)


def _no_code(found: str) -> bool:
    """No expression, no variable, no placeholder: what a program or a template has in the place of a password."""
    return found[0] not in "$<{[(*%&" and "(" not in found


def _ipv4(found: str) -> bool:
    return all(int(part) < 256 for part in found.split("."))


def _ipv6(found: str) -> bool:
    unspecified = bytes(16)
    try:
        packed = ipaddress.IPv6Address(found).packed
    except ValueError:
        packed = unspecified
    return packed != unspecified


_TOKENS = (
    r"sk-[\w-]{16,}",
    r"[srp]k_(?:live|test)_\w{16,}",
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_\w{20,}",
    r"glpat-[\w-]{16,}",
    r"xox[abeprs]-[\w-]{10,}",
    r"hf_[A-Za-z0-9]{20,}",
    r"gsk_[A-Za-z0-9]{20,}",
    r"nvapi-[\w-]{20,}",
    r"npm_[A-Za-z0-9]{30,}",
    r"pypi-[\w-]{16,}",
    r"(?:AKIA|ASIA)[0-9A-Z]{16}",
    r"AIza[\w-]{30,}",
    r"SG\.[\w-]{16,}\.[\w-]{16,}",
    r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
)
# In this order: what an earlier kind took no later one sees.
_KINDS = (
    _Kind(
        "private-key",
        "private key",
        re.compile(
            r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z))"
        ),
    ),
    _Kind("url-password", "://", re.compile(r"(?<=://)[^\s/@:\"']{0,128}:([^\s/@\"']{1,256})@"), _no_code),
    _Kind("bearer", "bearer", re.compile(r"(?i)\bbearer\s{1,8}([\w.~+/=-]{8,})"), _mixed),
    _Kind("token", "", re.compile(rf"(?<![\w-])({'|'.join(_TOKENS)})")),
    _Kind(
        "password",
        "",
        re.compile(
            r"(?i)(?:passw(?:or)?d|passphrase|pwd|secret)\w{0,20}[\"']?\s{0,4}[:=]\s{0,4}[\"']?"
            rf"([^\s\"',;]{{{LEAST_SECRET},256}})"
        ),
        _no_code,
    ),
    _Kind(
        "key",
        "",
        re.compile(
            r"(?i)(?:api[_-]?key|access[_-]?key|auth[_-]?key|token|credential)s?[\"']?\s{0,4}[:=]\s{0,4}[\"']?"
            r"([\w.~+/=-]{8,256})(?![\w(])"
        ),
        _mixed,
    ),
    _Kind(
        "email", "@", re.compile(r"(?<![\w.%+-])([\w.%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?![\w-])")
    ),
    _Kind(
        "ipv6",
        ":",
        re.compile(
            r"(?<![\w:.])((?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)"
            r"(?:[0-9A-Fa-f:]{1,30}:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]{2,39}))(?![\w:])"
        ),
        _ipv6,
    ),
    _Kind("ipv4", ".", re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?![\w]|\.\d)"), _ipv4),
)
KINDS = (KNOWN, *(kind.name for kind in _KINDS))
PIECE_CHARACTERS = 32_768  # nothing else runs while a pattern does, so a long text is read in pieces


@dataclass(slots=True)
class Scrubber:
    """Scrubs texts under one key; `counts` tells how many things of each kind were replaced so far.

    Kinds named in `left` are left alone.
    """

    key: bytes = field(repr=False)
    counts: Counter[str] = field(default_factory=Counter)
    left: frozenset[str] = field(default=frozenset(), repr=False)

    def value(self, value: Any, known: tuple[str, ...] = ()) -> Any:
        """A JSON value with every string in it scrubbed; names of fields stay. `known` are secrets by their text."""
        if isinstance(value, str):
            return value if value.startswith(NO_TEXT) else self.text(value, known)
        if isinstance(value, list):
            return [self.value(item, known) for item in value]
        if isinstance(value, dict):
            return {name: self.value(item, known) for name, item in value.items()}
        return value

    def text(self, text: str, known: tuple[str, ...] = ()) -> str:
        """`text` with placeholders."""
        private, *others = _KINDS
        text = self._without(text, private)
        text = "".join(self._piece(piece, others) for piece in pieces(text))
        for secret in known:
            if secret and secret in text:
                self.counts[KNOWN] += text.count(secret)
                text = text.replace(secret, self._placeholder(KNOWN, secret))
        return text

    def _piece(self, text: str, kinds: list[_Kind]) -> str:
        for kind in kinds:
            if kind.name not in self.left:
                text = self._without(text, kind)
        return text

    def _without(self, text: str, kind: _Kind) -> str:
        if kind.sign not in text.lower():
            return text

        def replaced(match: re.Match[str]) -> str:
            found = match[1]
            if not kind.is_one(found):
                return match[0]
            self.counts[kind.name] += 1
            start, end = match.start(1) - match.start(), match.end(1) - match.start()
            return match[0][:start] + self._placeholder(kind.name, found) + match[0][end:]

        return kind.pattern.sub(replaced, text)

    def _placeholder(self, kind: str, found: str) -> str:
        digest = hmac.new(self.key, found.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
        return f"[{kind}-{digest[:DIGEST_DIGITS]}]"


def pieces(text: str) -> Iterator[str]:
    """`text` cut after the first line feed that comes `PIECE_CHARACTERS` or more after the last cut; a longer line is
    one piece."""
    start = 0
    while end := text.find("\n", start + PIECE_CHARACTERS) + 1:
        yield text[start:end]
        start = end
    yield text[start:]
