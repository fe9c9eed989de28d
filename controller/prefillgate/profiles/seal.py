"""Credentials out of every text of a profile, each behind `[sealed-0123456789]`: a keyed digest of what stood there.

A changed credential is a changed profile, and nobody without the key can try out guesses. What is one is told by the
name it is given under (`credentials.py`), those of the objects around it too, by its place in a URL or a command, and
by its shape.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prefillgate.core.scrub import Scrubber
from prefillgate.profiles.commands import CALL, FLAG, LINE, PAIR, PASSWORD, TIGHT, has_blank, named, said, spoken
from prefillgate.profiles.credentials import is_state, named_so, plain_name, takes_credential
from prefillgate.profiles.model import refused

DIGITS = 10
MOST_KNOWN = 1_024  # credentials of one profile
LEAST_KNOWN = 6  # characters of a credential that is taken out of every other text as well
_QUERY_NAMES = {"sig", "code", "x-amz-credential"}
_NOT_SHAPES = frozenset({"email", "ipv4", "ipv6", "url-password"})  # addresses of servers are settings
_USERINFO = re.compile(r"(?<=://)([^\s/@\"'?#]{1,512})@")
_ODD_USERINFO = re.compile(r"(?<=://)([^\s/@:\"'?#]{0,128}:(?!\d{1,5}/)[^\s@\"']{1,512})@")  # a slash in the password
_QUERY = re.compile(r"([?&;#]([^=&;\s\"'#]{1,128})=)([^&;\s\"'#]{1,4096})")
_SEALED = re.compile(rf"\[(?:sealed|[a-z-]{{3,16}})-[0-9a-f]{{{DIGITS}}}\]")
_HEADER = re.compile(
    r"(?i)\b(authorization|x-api-key|api-key|cookie)([\"']?\s{0,4}[:=]\s{0,4}[\"']?)([^\"'\n]{1,4096})"
)
# Beside those of `core.scrub`: whatever they are called by, these are credentials.
_SHAPES = re.compile(
    r"(?<![\w/-])(hvs\.[\w-]{20,}|dckr_[po]at_[\w-]{16,}|ya29\.[\w-]{20,}|r8_[A-Za-z0-9]{24,}|xapp-[\w-]{10,}"
    r"|tskey-[\w-]{16,}|dop_v1_\w{32,}|whsec_[\w+/=]{16,}|shp(?:at|ca|pa|ss)_\w{24,}|eyJ[\w+/=-]{20,})"
    r"|(?<=hooks\.slack\.com/)([\w/-]{16,512})"
)
_MOST_PARTS = 64  # of one value that are learned, where its name may be that of many things


@dataclass(frozen=True, slots=True)
class Seal:
    """How credentials are told and sealed. `more` are further names, `*` for anything, as a policy lists them."""

    key: bytes = field(repr=False)
    more: tuple[str, ...] = ()

    def names_credential(self, name: str, value: str | None = None) -> bool:
        """Whether a flag, a variable or a field of that name holds one: `--api-key`, HF_TOKEN_2, `auth.value`.

        `value` is what stands there, where that is known: `on` is none, and numbers under `tokens` are counts.
        """
        if value is not None and is_state(value):
            return False
        if named_so(name, value):
            return True
        plain = plain_name(name)
        parts = {plain, *re.split(r"[./\s]", plain)}
        return any(fnmatch.fnmatchcase(part, plain_name(each)) for each in self.more for part in parts)

    def takes_credential(self, flag: str) -> bool:
        """Whether the word after a flag is one even where it looks like the next flag."""
        return takes_credential(flag) or any(fnmatch.fnmatchcase(plain_name(flag), plain_name(x)) for x in self.more)

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
        if self.seal.names_credential(name, value):
            certain = takes_credential(name)
            parts = {value, value.strip(), *re.split(r"[\s,;]+", value)}
            if not certain:
                parts = {each for each in parts if not _is_plain(each)} if len(parts) <= _MOST_PARTS else {value}
            for part in parts - self.known:
                if len(part) >= LEAST_KNOWN:
                    self._add(part)

    def learn_all(self, value: Any, name: str = "") -> None:
        """The same for every field of a JSON value, also under the names of the objects around it."""
        if isinstance(value, Mapping):
            for each, inner in value.items():
                self.learn_all(inner, _inner(name, _named_by(value, str(each))))
        elif isinstance(value, list):
            for inner in value:
                self.learn_all(inner, name)
        elif isinstance(value, str):
            self.learn(name, value)

    def learn_words(self, words: Iterable[str]) -> None:
        """The same for words of a command: `--api-key X`, `--api-key=X`, `API_KEY=X`, also inside of a script."""
        for name, value in named(words):
            self.learn(name, value)

    def learn_text(self, text: str) -> None:
        """The same for what stands in a text as `name=value` or `name: value`."""
        for pattern in (LINE, FLAG, PAIR, CALL):
            for found in pattern.finditer(text):
                self.learn(PASSWORD if pattern is CALL else found["name"], found[_group(found)])

    def words(self, words: Iterable[str], piped: bool = False) -> list[str]:
        """Words of a command as they may stand in a profile; `piped` tells whether another one reads its output."""
        listed = list(words)
        credentials = {value for name, value in named(listed) if self.seal.names_credential(name, value)}
        credentials |= spoken(listed, piped)
        return [self._word(each, credentials) for each in listed]

    def script(self, text: str) -> str:
        """A script that could not be read as one, as it may stand in a profile."""
        kept, at = [], 0
        for start, end in said(text):
            kept += [text[at:start], self.seal.value(text[start:end])]
            at = end
        text = self._named_in(self._named_in("".join([*kept, text[at:]]), LINE), FLAG)
        pieces = re.split(r"(\s+)", text)
        pieces[::2] = self.words(pieces[::2])
        return self.loose("".join(pieces))

    def _word(self, word: str, credentials: set[str]) -> str:
        if word in credentials:
            return self.seal.value(word)
        if has_blank(word):
            return self.script(word)
        name, equals, value = word.partition("=")
        if equals and value in credentials:
            return f"{name}={self.seal.value(value)}"
        if word[:1] == "-" and word[1:2] != "-" and word[2:] in credentials:
            return word[:2] + self.seal.value(word[2:])
        return self.loose(word)

    def given(self, name: str, value: str) -> str:
        """`value` as it may stand in a profile, under `name`."""
        if value and self.seal.names_credential(name, value):
            return self.seal.value(value)
        return self.script(value) if has_blank(value) else self.loose(value)

    def loose(self, text: str) -> str:
        """A value that may hold names and values of its own: `AccountName=a;AccountKey=X`, `user: a`."""
        text = self.text(text)
        for pattern in (PAIR, TIGHT, CALL):
            text = self._named_in(text, pattern)
        return text

    def text(self, text: str) -> str:
        """`text` without credentials: those known by name, those in URLs and headers, and what looks like one."""
        text = self._without_known(text)
        for pattern in (_USERINFO, _ODD_USERINFO):
            text = pattern.sub(lambda found: self.seal.value(found[1]) + "@", text)
        text = _QUERY.sub(self._query, text)
        text = _HEADER.sub(lambda found: found[1] + found[2] + self.seal.value(found[3]), text)
        return _SHAPES.sub(lambda found: self.seal.value(found[0]), self._scrubber.text(text))

    def json(self, value: Any, name: str = "") -> Any:
        """A JSON value with every string in it sealed as its field asks, or one of the objects around it."""
        if isinstance(value, Mapping):
            return {
                self.text(str(each)): self.json(inner, _inner(name, _named_by(value, str(each))))
                for each, inner in value.items()
            }
        if isinstance(value, list):
            return [self.json(inner, name) for inner in value]
        if isinstance(value, str):
            return self.given(name, value)
        if value is not None and not isinstance(value, bool) and self.seal.names_credential(name, str(value)):
            return self.seal.value(str(value))
        return value

    def _named_in(self, text: str, pattern: re.Pattern[str]) -> str:
        def put(found: re.Match[str]) -> str:
            group = _group(found)
            value, name = found[group], PASSWORD if pattern is CALL else found["name"]
            if not self.seal.names_credential(name, value) or (pattern is TIGHT and not takes_credential(name)):
                return found[0]
            start, end = found.start(group) - found.start(), found.end(group) - found.start()
            return found[0][:start] + self.seal.value(value) + found[0][end:]

        return pattern.sub(put, text)

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


def _group(found: re.Match[str]) -> str:
    groups = found.groupdict()
    return "quoted" if groups.get("quoted") is not None else "value"


def _is_plain(part: str) -> bool:
    """A word or a path, which may be said of other things as well."""
    return (part.isalpha() and len(part) < 16) or part[:1] in ("/", ".")


def _inner(around: str, name: str) -> str:
    return f"{around}.{name}" if around else name


def _named_by(held: Mapping[str, Any], field_name: str) -> str:
    """The name of a field; of `value` beside `name` it is what that says: `{"name": "API_KEY", "value": "X"}`."""
    told = held.get("name", held.get("key")) if field_name == "value" else None
    return told if isinstance(told, str) and told else field_name
