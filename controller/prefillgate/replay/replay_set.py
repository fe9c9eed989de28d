"""Reading a replay set file: one line at a time, so that memory does not grow with the file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from prefillgate.api.errors import MAX_PROBLEMS, Problem, ReplaySetError, shown
from prefillgate.api.replay_set import MAX_LINE_BYTES, Case, read_line

BOM_UTF8 = b"\xef\xbb\xbf"
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class ReplaySet:
    """Every case of a file, in its order. `sha256` is the digest over the canonical JSON of every line."""

    name: str
    sha256: str
    cases: tuple[Case, ...]
    source: Path | None = None

    def case(self, case_id: str) -> Case:
        """The case of that id. Raises KeyError."""
        for case in self.cases:
            if case.case_id == case_id:
                return case
        raise KeyError(case_id)


@dataclass(slots=True)
class SetDigest:
    """The digest of a whole set, fed case by case: each canonical line and a line feed."""

    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, case: Case) -> None:
        self._hash.update(case.line_sha256.encode() + b"\n")

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def load_replay_set(path: str | Path, max_line_bytes: int = MAX_LINE_BYTES) -> ReplaySet:
    """The replay set of that file, or the packaged one of that name (demo, short, four).

    Raises `ReplaySetError` with file, line, field, value and what is allowed, at most 20 problems at once.
    """
    source = find_replay_set(path)
    return replace(_collected(scan(source, max_line_bytes), source.stem), source=source)


def read_replay_set(file: BinaryIO, name: str, change: Callable[[Case], Case] = lambda case: case) -> ReplaySet:
    """The replay set in a binary stream, each case as `change` makes it; `name` is what problems call it.

    Raises `ReplaySetError` as `load_replay_set` does.
    """
    found = _scan(file, name, MAX_LINE_BYTES)
    return _collected((each if isinstance(each, Problem) else change(each) for each in found), name)


def _collected(found: Iterable[Case | Problem], name: str) -> ReplaySet:
    cases: list[Case] = []
    problems: list[Problem] = []
    digest = SetDigest()
    for each in found:
        if isinstance(each, Problem):
            problems.append(each)
            if len(problems) >= MAX_PROBLEMS:
                raise ReplaySetError(*problems, more=True)
        else:
            cases.append(each)
            digest.add(each)
    if problems:
        raise ReplaySetError(*problems)
    return ReplaySet(name, digest.sha256, tuple(cases))


def find_replay_set(path: str | Path) -> Path:
    """The file meant by `path`: a packaged name without a suffix, else the path itself."""
    text = str(path)
    if text in packaged_sets():
        return packaged_sets()[text]
    return Path(path)


def packaged_sets() -> dict[str, Path]:
    """The sets that come with the package, by name."""
    folder = Path(__file__).parent / "sets"
    return {file.stem: file for file in sorted(folder.glob("*.jsonl"))}


def scan(path: str | Path, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[Case | Problem]:
    """Each case or problem of a file in order, without holding more than one line.

    Blank lines, a UTF-8 byte order mark at the start and CR LF line ends are accepted. An id used twice, a canary used
    twice and a file without cases are problems.
    """
    source = Path(path)
    try:
        with source.open("rb") as file:
            yield from _scan(file, str(source), max_line_bytes)
    except OSError as error:
        allowed = f"a JSONL file, or a set that comes with the package: {', '.join(packaged_sets())}"
        yield Problem(str(source), "", f"cannot be read: {error.strerror or error}", allowed)


def _scan(file: BinaryIO, name: str, max_line_bytes: int) -> Iterator[Case | Problem]:
    ids: dict[str, int] = {}
    canaries: dict[str, int] = {}
    seen = False
    for number, raw in _lines(file, max_line_bytes):
        where = f"{name}:{number}"
        if raw is None:
            seen = True
            yield Problem(where, "", f"the line is longer than {max_line_bytes} bytes", f"up to {max_line_bytes} bytes")
            continue
        if number == 1 and raw.startswith(_OTHER_BOMS):
            yield Problem(where, "", "UTF-16 or UTF-32 text", "UTF-8 text")
            return
        if not raw.strip():
            continue
        seen = True
        yield from _read(raw, where, number, (ids, canaries))
    if not seen:
        yield Problem(name, "", "holds no case", "one JSON object a line")


_Known = tuple[dict[str, int], dict[str, int]]


def _read(raw: bytes, where: str, number: int, known: _Known) -> Iterator[Case | Problem]:
    ids, canaries = known
    try:
        case = read_line(raw, where, number)
    except ReplaySetError as error:
        yield from error.problems
        return
    first = ids.setdefault(case.case_id, number)
    if first != number:
        yield Problem(where, "custom_id", f"{shown(case.case_id)} was already used on line {first}", "an id of its own")
        return
    first = canaries.setdefault(case.canary, number) if case.canary is not None else number
    if first != number:
        yield Problem(where, "prefillgate.canary", f"{shown(case.canary)} was already used on line {first}", "its own")
        return
    yield case


def _lines(file: BinaryIO, max_line_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Number and bytes of each line without its end; None for one that is too long, the rest of which is skipped."""
    number = 0
    while raw := file.readline(max_line_bytes + 2):
        number += 1
        body = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            body = body.removeprefix(BOM_UTF8)
        too_long = len(body) > max_line_bytes
        if too_long or (len(raw) == max_line_bytes + 2 and not raw.endswith(b"\n")):
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(1 << 20)
            yield number, None
        else:
            yield number, body
