"""The manifest: which files a bundle has, with their digests, and what was signed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prefillgate.api.errors import shown
from prefillgate.bundle.content import FILES, MANIFEST, is_digest
from prefillgate.bundle.lines import BadLine
from prefillgate.core.quality_expect import NotStrictJson, parse_json

FORMAT = "prefillgate-bundle"
VERSION = 1
MAX_BYTES = 64 * 1024
_CHUNK_BYTES = 1 << 20


class NewerBundle(ValueError):
    """The bundle was written in a format that this program does not know."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file of a bundle as the manifest tells it."""

    name: str
    sha256: str
    bytes: int
    lines: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a bundle is made of. `tail` is the number of events and the digest of the last, as the store tells it;
    `public_key` is the signer's raw Ed25519 key in hex, None without a signature, `rules` the number of those by which
    its verdict was made (`prefillgate.bundle.rules`)."""

    program: str
    rules: int
    redacted: bool
    tail: str
    public_key: str | None
    files: tuple[FileFacts, ...]

    def render(self) -> bytes:
        """The bytes of manifest.json, which a signature covers."""
        told = {
            "format": FORMAT,
            "version": VERSION,
            "program": self.program,
            "rules": self.rules,
            "redacted": self.redacted,
            "journal": self.tail,
            "signed_by": self.public_key,
            "files": [asdict(file) for file in self.files],
        }
        return json.dumps(told, indent=2, ensure_ascii=True).encode() + b"\n"


def facts_of(path: Path) -> FileFacts:
    """Digest, bytes and lines of a file, read once, in pieces."""
    digest, size, lines = hashlib.sha256(), 0, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            lines += chunk.count(b"\n")
    return FileFacts(path.name, digest.hexdigest(), size, lines)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _matches(pattern: str, value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


_FILE_FIELDS: dict[str, Callable[[Any], bool]] = {
    "name": lambda value: value in FILES,
    "sha256": is_digest,
    "bytes": _is_count,
    "lines": _is_count,
}
_FIELDS: dict[str, Callable[[Any], bool]] = {
    "format": lambda value: value == FORMAT,
    "version": lambda value: type(value) is int and value == VERSION,
    "program": lambda value: _matches("prefillgate [0-9A-Za-z.+-]{1,60}", value),
    "rules": lambda value: _is_count(value) and value > 0,
    "redacted": lambda value: isinstance(value, bool),
    "journal": lambda value: _matches("[0-9]{1,18}:[0-9a-f]{64}", value),
    "signed_by": lambda value: value is None or is_digest(value),
    "files": lambda value: isinstance(value, list),
}


def read_manifest(raw: bytes) -> Manifest:
    """The manifest of those bytes. Raises `BadLine` naming what is wrong, `NewerBundle` for a later format."""
    try:
        told = parse_json(raw.decode("utf-8"))
    except (UnicodeDecodeError, NotStrictJson) as error:
        if b"\r\n" in raw:
            raise _bad("its lines end in CR LF: the file was converted, by git on Windows perhaps") from error
        raise _bad(f"not JSON: {error}") from error
    if not isinstance(told, dict):
        raise _bad(f"not a JSON object: {shown(told)}")
    version = told.get("version")
    if told.get("format") == FORMAT and type(version) is int and version > VERSION:
        raise NewerBundle(f"it is a bundle of format version {version}, this program knows versions up to {VERSION}")
    _check(told, _FIELDS, "")
    for place, file in enumerate(told["files"]):
        if not isinstance(file, dict):
            raise _bad(f"files[{place}] is {shown(file)}, not an object")
        _check(file, _FILE_FIELDS, f"files[{place}].")
    names = tuple(file["name"] for file in told["files"])
    if names != FILES:
        raise _bad(f"files names {shown(list(names))}; a bundle has {', '.join(FILES)}, in this order")
    files = tuple(FileFacts(**file) for file in told["files"])
    found = Manifest(told["program"], told["rules"], told["redacted"], told["journal"], told["signed_by"], files)
    if found.render() != raw:
        crlf = "its lines end in CR LF: the file was converted, by git on Windows perhaps"
        raise _bad(crlf if b"\r\n" in raw else "the same JSON, written in another way than a bundle writes it")
    return found


def _check(told: dict[str, Any], fields: dict[str, Callable[[Any], bool]], where: str) -> None:
    for name in fields.keys() - told.keys():
        raise _bad(f"{where}{name} is missing")
    for name in told.keys() - fields.keys():
        raise _bad(f"{where}{shown(name)} is not a field of a manifest")
    for name, allowed in fields.items():
        if not _hashable(told[name]) or not allowed(told[name]):
            raise _bad(f"{where}{name} is {shown(told[name])}, which no bundle of format version {VERSION} holds")


def _hashable(value: Any) -> bool:
    return not isinstance(value, dict)


def _bad(what: str) -> BadLine:
    return BadLine(MANIFEST, 1, what)
