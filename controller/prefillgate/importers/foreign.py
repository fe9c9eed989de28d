"""What an input is that no format recognises: packed, written in another encoding, or an evidence store."""

from __future__ import annotations

from prefillgate.api.errors import Problem
from prefillgate.importers.source import ImportProblem, Source

_PACKED = {
    b"\x28\xb5\x2f\xfd": ("zstd", "zstdcat"),
    b"\xfd7zXZ\x00": ("xz", "xzcat"),
    b"BZh": ("bzip2", "bzcat"),
    b"\x04\x22\x4d\x18": ("lz4", "lz4cat"),
    b"PK\x03\x04": ("zip", "unzip -p"),
    b"\x1f\x8b": ("gzip", "zcat"),
}
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_SQLITE = b"SQLite format 3\x00"


def refuse_wide(source: Source) -> None:
    """Raise `ImportProblem` for UTF-16, which some would take for damaged lines of their own."""
    head = source.head()
    nothing = tuple(byte == 0 for byte in head[:4])
    if head.startswith(_WIDE) or nothing in ((True, False, True, False), (False, True, False, True)):
        allowed = "UTF-8: `iconv -f UTF-16 -t UTF-8 FILE | prefillgate ... -`"
        raise ImportProblem(Problem(source.name, "", "text in UTF-16", allowed))


def unrecognised(source: Source, titles: str) -> ImportProblem:
    """What to say of an input that nothing recognises; `titles` are what would be."""
    head = source.head()
    if not head.strip():
        return ImportProblem(Problem(source.name, "", "no cell in it", titles))
    if head.startswith(_SQLITE):
        what, allowed = "a database, as evidence stores are, and no log", "`prefillgate cells STORE --json` makes one"
        return ImportProblem(Problem(source.name, "", what, allowed))
    for magic, (name, program) in _PACKED.items():
        if head.startswith(magic):
            allowed = f"plain text: `{program} FILE | prefillgate ... -`"
            return ImportProblem(Problem(source.name, "", f"compressed by {name}", allowed))
    what = "nothing recognises its content"
    if (at := _first_not_utf8(head)) is not None:
        what += f", and it is no UTF-8 text (byte {at + 1})"
    return ImportProblem(Problem(source.name, "", what, titles))


def _first_not_utf8(head: bytes) -> int | None:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start if error.start < len(head) - 3 else None  # else cut inside a character
    return None
