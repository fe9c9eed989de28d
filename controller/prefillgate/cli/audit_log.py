"""The log of an audit: its files and their arms, read into cells, with what must be said of the reading."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefillgate.cli.errors import BadInput
from prefillgate.core.log_row import row_of
from prefillgate.core.restated import Request

if TYPE_CHECKING:
    from prefillgate.cli.audit_checks import Checked
    from prefillgate.cli.audit_large import LargeLog
    from prefillgate.importers.base import Imported
    from prefillgate.importers.reading import Account, Wanted
    from prefillgate.importers.source import Source

STDIN = "-"
STDIN_NAME = "standard input"
MOST_IN_MEMORY = 20_000  # requests
MOST_BYTES_IN_MEMORY = 8 * 1024 * 1024  # of a cell log: about as many
MAX_NAMES = 20
MAX_KINDS_TOLD = 5


@dataclass(frozen=True, slots=True)
class LogRequest:
    """What to read. `baselines` are logs of the baseline alone, the `files` beside them of the candidate."""

    files: tuple[str, ...]
    baselines: tuple[str, ...]
    wanted: Wanted
    checks: str | None = None

    @property
    def title(self) -> str:
        """The first file by its name, and how many more."""
        names = self.files + self.baselines
        first = STDIN_NAME if names[0] == STDIN else Path(names[0]).name
        return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


@dataclass(slots=True)
class ReadLog:
    """A log as read: its cells in the order they stand there, and the account of the rest."""

    title: str
    account: Account
    requests: list[Request] = field(default_factory=list)
    large: LargeLog | None = None  # what holds the requests once they are too many for memory
    waited: set[int] = field(default_factory=set)  # places of invalid cells of a server that asked to be left alone
    checked: Checked | None = None

    def take(self, record: Imported) -> None:
        """Keep one more request: in memory, or on disk with all before it once they are too many."""
        from prefillgate.importers.reading import BUSY

        waited = record.line.http_status in BUSY
        if self.large is None and len(self.requests) < MOST_IN_MEMORY:
            if waited:
                self.waited.add(len(self.requests))
            self.requests.append(Request(record.line.cell, record.time_to_first_token_ms, record.label))
            return
        self.on_disk().add(row_of(record.line.cell, record.time_to_first_token_ms, waited, record.label))

    def on_disk(self) -> LargeLog:
        """What holds the requests on disk, those in memory so far among them."""
        if self.large is None:
            from prefillgate.cli.audit_large import LargeLog

            self.large = LargeLog()
            for place, request in enumerate(self.requests):
                self.large.add(row_of(request.cell, request.first_token_ms, place in self.waited, request.label))
            self.requests, self.waited = [], set()
        return self.large

    @property
    def several_labels(self) -> bool:
        """Whether nothing tells arms apart and more than one label could."""
        return not self.account.arms_told and len(self.account.labels) > 1

    def notes(self) -> tuple[str, ...]:
        """What must be said of the reading, what must not be missed first."""
        told = _reading_notes(self.account)
        return (*told, *self.checked.notes()) if self.checked is not None else told


def read_columns(given: tuple[str, ...]) -> dict[str, str]:
    """`FIELD=NAME` options by field. Raises `InputError` naming every one that is wrong."""
    from prefillgate.api.errors import MAX_PROBLEMS, InputError, Problem, shown
    from prefillgate.importers.csv_table import column_fields

    columns: dict[str, str] = {}
    problems: list[Problem] = []
    unknown: list[str] = []
    for each in given:
        name, equals, column = each.partition("=")
        if not name or not equals or not column:
            problems.append(Problem("", f"--column {shown(each)}", "no map", "FIELD=NAME, as prompt_tokens=tokens_in"))
        elif name not in column_fields():
            unknown.append(shown(name))
        elif name in columns:
            problems.append(Problem("", f"--column {name}", "given twice", "one column a field"))
        else:
            columns[name] = column
    if unknown:
        what = f"{', '.join(unknown)} {'is no field' if len(unknown) == 1 else 'are no fields'}"
        problems.append(Problem("", "--column", what, ", ".join(column_fields())))
    if problems:
        raise InputError(*problems[:MAX_PROBLEMS], more=len(problems) > MAX_PROBLEMS)
    return columns


def read_request(request: LogRequest) -> ReadLog:
    """Read everything. Raises `InputError` and `BadInput` naming the file and what is wrong."""
    from prefillgate.importers.cell_blocks import CellBlocks
    from prefillgate.importers.reading import Account, check_labels, read_logs

    account = Account()
    log = ReadLog(request.title, account)
    checks = None
    if request.checks is not None:
        from prefillgate.cli.audit_checks import load_checks

        checks = load_checks(request.checks)
        log.checked = checks.told
    for name, arm in _inputs(request):
        with opened(name) as source:
            if checks is None and _is_large(source, request.wanted):
                for block in CellBlocks(source, arm, account).each():
                    log.on_disk().take(block)
                continue
            for record in read_logs(source, arm, request.wanted, account):
                log.take(record if checks is None else checks.fill(record))
    check_labels(request.wanted, account)
    if not log.requests and log.large is None and not account.unscored:
        why = _unanswered_note(account) or _unread_note(account) or "it holds none"
        raise BadInput(f"{request.title}: no request in it could be used: {why}")
    return log


def _inputs(request: LogRequest) -> list[tuple[str, str | None]]:
    """Every file with the arm it was given for, None where for both, in the order to read them."""
    from prefillgate.core.cells import BASELINE, CANDIDATE

    both = bool(request.baselines)
    inputs = [(name, CANDIDATE if both else None) for name in request.files]
    inputs += [(name, BASELINE) for name in request.baselines]
    inputs.sort(key=lambda each: not asks_only(each[0]))  # answers of other files name its requests
    return inputs


def _is_large(source: Source, wanted: Wanted) -> bool:
    """Whether it is a cell log too large to keep its cells in memory."""
    from prefillgate.importers.reading import format_of

    return format_of(source, wanted) is None and source.longer_than(MOST_BYTES_IN_MEMORY)


def asks_only(name: str) -> bool:
    """Whether a file begins with requests alone, which answers of other files may name."""
    from prefillgate.importers import joining

    if name == STDIN:
        return False
    with opened(name) as source:
        return joining.asks_only(source.head())


def read_once(*names: str) -> None:
    """Raise `BadInput` where more than one of the inputs is standard input."""
    times = names.count(STDIN)
    if times > 1:
        raise BadInput(f"{STDIN}: standard input can be read once, and is named {times} times (allowed: one {STDIN})")


@contextmanager
def opened(name: str) -> Iterator[Source]:
    """A file, or standard input for `-`. Raises `BadInput` and `ImportProblem`."""
    from prefillgate.importers.source import Source

    if name == STDIN:
        yield Source(sys.stdin.buffer, STDIN_NAME)
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115
    except OSError as error:
        raise BadInput(f"{name}: cannot be read: {error.strerror or error}") from error
    with file:
        yield Source(file, name)


def _reading_notes(account: Account) -> tuple[str, ...]:
    cells, notes = account.cells, []
    if account.requests and not account.arms_told:
        notes.append(_no_arm(account))
    if account.unread:
        notes.append(_unread_note(account))
    for what, flags in account.absent.items():
        notes.append(f"this log does not hold: {what}{f'; {_either(flags)} would give it' if flags else ''}")
    if account.left_out or account.unlabelled:
        notes.append(f"{account.left_out + account.unlabelled} records are labelled for neither arm and left out")
    if account.joiner.unanswered:
        notes.append(_unanswered_note(account))
    if cells.ignored:
        named = [f"{name} ({count})" for name, count in cells.ignored.most_common(MAX_NAMES)]
        more = len(cells.ignored) - len(named)
        notes.append(f"fields ignored, with their lines: {', '.join(named)}{f' and {more} more' if more else ''}")
    if cells.without_case:
        notes.append(f"{cells.without_case} lines without case_id: known by prompt_sha256, else each its own prompt")
    if account.unscored:
        notes.append(f"{account.unscored} cells measured but not checked yet are not counted")
    return tuple(notes)


def _no_arm(account: Account) -> str:
    told = "no record names an arm: all are taken as the candidate's alone"
    if len(account.labels) > 1:
        named = ", ".join(f"{label} ({count})" for label, count in account.labels.most_common(MAX_KINDS_TOLD))
        return f"{told}; labels seen: {named}; --baseline-label and --candidate-label tell two arms apart"
    return f"{told}; --baseline FILE gives the other arm"


def _unanswered_note(account: Account) -> str:
    if not account.joiner.unanswered:
        return ""
    number = account.joiner.unanswered
    told = f"{number} request{'' if number == 1 else 's'} without an answer, which count for nothing"
    return f"{told}; `prefillgate replayset import` makes cases of them"


def _unread_note(account: Account) -> str:
    kinds = sorted(account.unread.values(), key=lambda kind: -kind.count)
    told = [f"{kind.count} {kind.why} (first: {', '.join(kind.first)})" for kind in kinds[:MAX_KINDS_TOLD]]
    more = f" and {len(kinds) - MAX_KINDS_TOLD} more kinds" if len(kinds) > MAX_KINDS_TOLD else ""
    return f"{account.unread_total} lines or records not used: {'; '.join(told)}{more}" if kinds else ""


def _either(flags: set[str]) -> str:
    return " or ".join(sorted(flags))


def log_json(account: Account) -> Mapping[str, Any]:
    """The account of the reading as JSON."""
    return {
        "formats": dict(account.formats),
        "requests": account.requests,
        "arms_told": account.arms_told,
        "labels": dict(account.labels),
        "left_out": account.left_out + account.unlabelled,
        "unanswered": account.joiner.unanswered,
        "unread": [{"why": kind.why, "count": kind.count, "first": kind.first} for kind in account.unread.values()],
        "absent": [{"what": what, "flags": sorted(flags)} for what, flags in account.absent.items()],
    }
