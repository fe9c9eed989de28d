"""Logs as an audit takes them: any format, several files, two arms, and an account of everything that was not used."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prefillgate.api.cell_log import CellLog, CellLogError
from prefillgate.api.errors import Problem, shown
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.importers import registry
from prefillgate.importers.base import Absent, Format, Imported, Mapped, Prompted, Unread
from prefillgate.importers.foreign import refuse_wide, unrecognised
from prefillgate.importers.joining import Joiner
from prefillgate.importers.registry import find_format, format_names
from prefillgate.importers.source import ImportProblem, Source

BUSY = (429, 503)  # a server that asks to be left alone
CELLS = "cells"
CELLS_TITLE = "prefillgate's cell log"
FIRST_PLACES = 3
MAX_KINDS = 50
MAX_LABELS = 50
TORN = "a torn last line"
OTHER_KINDS = "other kinds"


@dataclass(frozen=True, slots=True)
class Wanted:
    """How logs shall be read. A label names the arm of the records that bear it; one alone leaves the rest to the
    other arm."""

    format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    baseline_label: str | None = None
    candidate_label: str | None = None

    @property
    def by_label(self) -> bool:
        """Whether labels tell the arms apart."""
        return self.baseline_label is not None or self.candidate_label is not None

    def arm_of(self, label: str | None) -> str | None:
        """The arm of a record with this label; None: neither."""
        if label is None:
            return None
        if label == self.baseline_label:
            return BASELINE
        if label == self.candidate_label:
            return CANDIDATE
        if self.candidate_label is None:
            return CANDIDATE
        return BASELINE if self.baseline_label is None else None


@dataclass(slots=True)
class UnreadKind:
    """Lines or records that could not be used for one reason: how many, and the first places."""

    why: str
    count: int = 0
    first: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Account:
    """What was read and what was not. `labels` counts records by label, `left_out` those of neither arm."""

    formats: Counter[str] = field(default_factory=Counter)
    unread: dict[str, UnreadKind] = field(default_factory=dict)
    absent: dict[str, set[str]] = field(default_factory=dict)  # what -> flags that would give it
    labels: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    unlabelled: int = 0
    unscored: int = 0
    requests: int = 0
    arms_told: bool = False  # by the log itself, by a file of its own, or by a label
    cells: CellLog = field(default_factory=CellLog)
    joiner: Joiner = field(default_factory=Joiner)

    @property
    def unread_total(self) -> int:
        """Lines or records that could not be used."""
        return sum(kind.count for kind in self.unread.values())

    def note_unread(self, found: Unread) -> None:
        """Count it by kind and keep the first places."""
        why = found.why if found.why in self.unread or len(self.unread) < MAX_KINDS else OTHER_KINDS
        kind = self.unread.setdefault(why, UnreadKind(why))
        kind.count += 1
        if len(kind.first) < FIRST_PLACES:
            kind.first.append(found.where)

    def note_torn(self) -> None:
        """Count the last line of the cell log just read, where it was torn."""
        while self.cells.torn:
            self.note_unread(Unread(self.cells.torn.pop(), TORN))

    def note_absent(self, found: Absent) -> None:
        """Note what this log cannot hold, and the flag that would give it."""
        self.absent.setdefault(found.what, set()).update(() if found.flag is None else (found.flag,))

    def note_label(self, label: str | None) -> None:
        """Count a record by its label; beyond `MAX_LABELS` different ones they are counted together."""
        if label is not None:
            known = label in self.labels or len(self.labels) < MAX_LABELS
            self.labels[label if known else "…"] += 1


def read_logs(source: Source, arm: str | None, wanted: Wanted, account: Account) -> Iterator[Imported]:
    """The requests of one input, each with its arm, in the order they stand there; the rest goes to `account`.

    `arm` is that of an input that was given for one arm. Raises `InputError` where the input as a whole cannot be read
    or contradicts what was asked.
    """
    found = format_of(source, wanted)
    account.formats[CELLS_TITLE if found is None else found.title] += 1
    records = _cells(source, account) if found is None else found.read(source)
    for told in records:
        record = account.joiner.join(told)
        if isinstance(record, Unread):
            account.note_unread(record)
        elif isinstance(record, Prompted):
            continue
        elif isinstance(record, Absent):
            if not account.joiner.gave(record.what):
                account.note_absent(record)
        else:
            placed = _placed(record, arm, wanted, account)
            if placed is not None:
                account.requests += 1
                yield placed


def check_labels(wanted: Wanted, account: Account) -> None:
    """Raises `ImportProblem` for a label that no record bears."""
    for option, label in (("--baseline-label", wanted.baseline_label), ("--candidate-label", wanted.candidate_label)):
        if label is not None and label not in account.labels:
            seen = ", ".join(sorted(account.labels)) or "none: no record of this log is labelled"
            raise ImportProblem(Problem("", option, f"no record is labelled {shown(label)}", seen))


def _placed(record: Imported, arm: str | None, wanted: Wanted, account: Account) -> Imported | None:
    """The record on its arm; None for one that is of neither."""
    account.note_label(record.label)
    told: str | None = record.line.cell.arm if record.arm_told else None
    if wanted.by_label and told is None:
        told = wanted.arm_of(record.label)
        if told is None:
            account.unlabelled += record.label is None
            account.left_out += record.label is not None
            return None
    if arm is not None:
        if told is not None and told != arm:
            raise of_another_arm(record.where, told, arm)
        told = arm
    account.arms_told = account.arms_told or told is not None
    cell = record.line.cell
    # Servers that are told apart share no cache: a prompt asked of both was prefilled on each.
    epoch = cell.server_epoch if record.label is None else f"{record.label} {cell.server_epoch or ''}".rstrip()
    if (told or cell.arm, epoch) == (cell.arm, cell.server_epoch):
        return record
    return replace(record, line=replace(record.line, cell=replace(cell, arm=told or cell.arm, server_epoch=epoch)))


def of_another_arm(where: str, told: str, arm: str) -> ImportProblem:
    """What a record of one arm is in a log that was given for the other."""
    what = f"a record of the {told} in a log given for the {arm}"
    return ImportProblem(Problem(where, "arm", what, f"records of the {arm}, or that name no arm"))


def format_of(source: Source, wanted: Wanted) -> Format | None:
    """The format of an input; None for a cell log. Raises `ImportProblem`."""
    if wanted.format is None:
        refuse_wide(source)
    if wanted.format == CELLS or (wanted.format is None and is_cell_log(source.head())):
        if wanted.columns:
            raise ImportProblem(Problem(source.name, "--column", "a cell log has the names it has", "a CSV file"))
        return None
    if wanted.format is not None and wanted.format not in format_names():
        allowed = ", ".join((CELLS, *format_names()))
        raise ImportProblem(Problem("", "--format", f"{shown(wanted.format)} is not known", allowed))
    if wanted.format is None and not any(each.recognise(source.head()) for each in registry.FORMATS):
        titles = ", ".join((f"{CELLS_TITLE} (lines with an `arm`)", *(each.title for each in registry.FORMATS)))
        raise unrecognised(source, titles)
    found = find_format(source, wanted.format)
    if not wanted.columns:
        return found
    if not isinstance(found, Mapped):
        raise ImportProblem(Problem(source.name, "--column", f"{found.title} names its own columns", "a CSV file"))
    return found.with_columns(wanted.columns)


def is_cell_log(head: bytes) -> bool:
    """Whether the first line that is not blank is an object with an `arm`."""
    for line in head.splitlines():
        if line.strip():
            try:
                document: Any = json.loads(line)
            except (ValueError, RecursionError):
                return False
            return isinstance(document, dict) and "arm" in document
    return False


def _cells(source: Source, account: Account) -> Iterator[Imported]:
    """A cell log, strictly: one line that is wrong refuses the file, unless it is the last and torn."""
    try:
        for number, line in account.cells.each(source.file(), source.name, forgiving=True):
            if line.unchecked:
                account.unscored += 1
            else:
                yield Imported(line, f"{source.name}:{number}", arm_told=True)
    except (OSError, EOFError, zlib.error) as error:
        raise CellLogError(Problem(source.name, "", f"cannot be read to its end: {error}")) from error
    account.note_torn()
