"""Credentials out of every text of a profile, each behind `[sealed-0123456789]`: a keyed digest of what stood there.

A changed credential is a changed profile, and nobody without the key can try out guesses. What is one is told by the
name it is given under, by its place in a URL, and by its shape.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from prefillgate.core.scrub import Scrubber
from prefillgate.profiles.model import refused

DIGITS = 10
MOST_KNOWN = 1_024  # credentials of one profile
LEAST_KNOWN = 6  # characters of a credential that is taken out of every other text as well
_LAST_WORDS = (
    *("token", "key", "apikey", "passwd", "password", "passphrase", "pwd", "secret", "credential", "credentials"),
    *("auth", "authorization", "cookie", "dsn", "keys", "passwords", "secrets", "pat", "jwt", "signature"),
)
_QUERY_NAMES = {"sig", "code", "x-amz-credential"}
_NOT_SHAPES = frozenset({"email", "ipv4", "ipv6", "url-password"})  # addresses of servers are settings
_USERINFO = re.compile(r"(?<=://)([^\s/@\"'?#]{1,512})@")
_QUERY = re.compile(r"([?&]([^=&\s\"'#]{1,128})=)([^&\s\"'#]{1,4096})")
_SEALED = re.compile(rf"\[(?:sealed|[a-z-]{{3,16}})-[0-9a-f]{{{DIGITS}}}\]")
_HEADER = re.compile(
    r"(?i)\b(authorization|x-api-key|api-key|cookie)([\"']?\s{0,4}[:=]\s{0,4}[\"']?)([^\"'\n]{1,4096})"
)


_BLANK = re.compile(r"\s")


def has_blank(text: str) -> bool:
    """Whether a text is more than one word."""
    return _BLANK.search(text) is not None


@dataclass(frozen=True, slots=True)
class Seal:
    """How credentials are told and sealed. `more` are further names, `*` for anything, as a policy lists them."""

    key: bytes = field(repr=False)
    more: tuple[str, ...] = ()

    def names_credential(self, name: str) -> bool:
        """Whether a flag, a variable or a field of that name holds one: `--api-key`, HF_TOKEN, `auth.password`."""
        plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip("-")).lower().replace("-", "_")
        last = re.split(r"[./]", plain)[-1]
        if re.split(r"[\s_]+", last)[-1] in _LAST_WORDS or last.endswith(("apikey", "password", "otlp_headers")):
            return True
        return any(fnmatch.fnmatchcase(plain, each.strip("-").lower().replace("-", "_")) for each in self.more)

    def value(self, text: str) -> str:
        """What stands for a credential."""
        if _SEALED.fullmatch(text):
            return text
        return f"[sealed-{self.digest(text, DIGITS)}]"

    def digest(self, text: str, digits: int = 16) -> str:
        """The keyed digest of a text that is not shown, in hex."""
        return hmac.new(self.key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:digits]


@dataclass(slots=True)
class Sealing:
    """One profile in the making. Credentials are learned first (`learn`), then every text goes through `text`."""

    seal: Seal
    known: set[str] = field(default_factory=set, repr=False)
    _scrubber: Scrubber = field(init=False, repr=False)
    _by_start: dict[str, list[str]] = field(default_factory=dict, repr=False)  # those that begin so, the longest first

    def __post_init__(self) -> None:
        self._scrubber = Scrubber(self.seal.key, left=_NOT_SHAPES)

    def learn(self, name: str, value: str) -> None:
        """A value given under a name: where that names a credential, its text is sealed wherever it stands."""
        if self.seal.names_credential(name):
            parts = {value, value.strip(), *re.split(r"[\s,;]+", value)}
            for part in parts - self.known:
                if len(part) >= LEAST_KNOWN:
                    self._add(part)

    def learn_all(self, value: Any, name: str = "") -> None:
        """The same for every field of a JSON value."""
        if isinstance(value, dict):
            for each, inner in value.items():
                self.learn_all(inner, str(each))
        elif isinstance(value, list):
            for inner in value:
                self.learn_all(inner, name)
        elif isinstance(value, str):
            self.learn(name, value)

    def learn_words(self, words: Iterable[str]) -> None:
        """The same for words of a command: `--api-key X`, `--api-key=X`, `API_KEY=X`, also inside of a script."""
        for name, value in _named(words):
            self.learn(name, value)

    def words(self, words: Iterable[str]) -> list[str]:
        """Words of a command as they may stand in a profile."""
        listed = list(words)
        credentials = {value for name, value in _named(listed) if self.seal.names_credential(name)}
        return [self._word(each, credentials) for each in listed]

    def script(self, text: str) -> str:
        """A script that could not be read as one, as it may stand in a profile."""
        pieces = re.split(r"(\s+)", text)
        pieces[::2] = self.words(pieces[::2])
        return self.text("".join(pieces))

    def _word(self, word: str, credentials: set[str]) -> str:
        if has_blank(word):
            return self.script(word)
        if word in credentials:
            return self.seal.value(word)
        name, equals, value = word.partition("=")
        return f"{name}={self.seal.value(value)}" if equals and value in credentials else self.text(word)

    def given(self, name: str, value: str) -> str:
        """`value` as it may stand in a profile, under `name`."""
        return self.seal.value(value) if value and self.seal.names_credential(name) else self.text(value)

    def text(self, text: str) -> str:
        """`text` without credentials: those known by name, those in URLs and headers, and what looks like one."""
        text = self._without_known(text)
        text = _USERINFO.sub(lambda found: self.seal.value(found[1]) + "@", text)
        text = _QUERY.sub(self._query, text)
        text = _HEADER.sub(lambda found: found[1] + found[2] + self.seal.value(found[3]), text)
        return self._scrubber.text(text)

    def json(self, value: Any, name: str = "") -> Any:
        """A JSON value with every string in it sealed as its field asks."""
        if isinstance(value, dict):
            return {self.text(str(each)): self.json(inner, str(each)) for each, inner in value.items()}
        if isinstance(value, list):
            return [self.json(inner, name) for inner in value]
        if isinstance(value, str):
            return self.given(name, value)
        if value is not None and not isinstance(value, bool) and self.seal.names_credential(name):
            return self.seal.value(str(value))
        return value

    def _add(self, part: str) -> None:
        if len(self.known) >= MOST_KNOWN:
            raise refused("", f"more than {MOST_KNOWN} credentials are written into it", "credentials in Secrets")
        self.known.add(part)
        alike = self._by_start.setdefault(part[:LEAST_KNOWN], [])
        alike.append(part)
        alike.sort(key=len, reverse=True)

    def _without_known(self, text: str) -> str:
        if not self.known:
            return text
        pieces, kept, at = [], 0, 0
        while at <= len(text) - LEAST_KNOWN:
            alike = self._by_start.get(text[at : at + LEAST_KNOWN], ())
            found = next((each for each in alike if text.startswith(each, at)), None)
            if found is None:
                at += 1
                continue
            pieces += [text[kept:at], self.seal.value(found)]
            at += len(found)
            kept = at
        return "".join([*pieces, text[kept:]])

    def _query(self, found: re.Match[str]) -> str:
        name = found[2].lower()
        if name in _QUERY_NAMES or self.seal.names_credential(name):
            return found[1] + self.seal.value(found[3])
        return found[0]


def _named(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Every word with the name that it stands under: its own before `=`, else the flag before it."""
    flag = ""
    for word in words:
        bare = word.strip("\"'")
        if has_blank(word):
            yield from _named(word.split())
            continue
        name, equals, value = bare.partition("=")
        if equals and value:
            yield name, value
            yield name, word.partition("=")[2]
        elif flag and bare:
            yield flag, bare
            yield flag, word
        flag = name if bare.startswith("-") and not equals else ""
