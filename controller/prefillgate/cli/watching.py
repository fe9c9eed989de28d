"""The work of `prefillgate watch-log`: several logs read at once, one count, one state."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefillgate.cli import watch_state
from prefillgate.cli.errors import BadInput
from prefillgate.cli.outcome import say

if TYPE_CHECKING:
    from prefillgate.cli.audit_checks import OutputChecks
    from prefillgate.core.live import Alarm, LiveWatch
    from prefillgate.importers.base import Format, Found, Imported
    from prefillgate.importers.following import Follower, Place

POLL_SECONDS = 0.5
SAVE_SECONDS = 5.0
UNKNOWN_OUTCOMES = 20  # requests without an outcome after which a watch without any gives up
NO_NAME = "unknown case of "  # how importers call a prompt that its log does not name
LEAST_DECODED = 16  # output tokens from which on a decode speed means something


Life = tuple[int, str | None]  # its number from 0, and the label (a model) last told


@dataclass(frozen=True, slots=True)
class Rule:
    """What makes a request bad, beside what its log says. `slow_ms` is milliseconds of decoding a token."""

    checks: OutputChecks | None = None
    slow_ms: float | None = None
    count_only: bool = False


@dataclass(slots=True)
class Watching:
    """What all logs share. `tell` prints an alarm: its facts, where it came from, and whether it is said again."""

    watch: LiveWatch
    rule: Rule
    tell: Callable[[dict[str, Any]], None]
    about: dict[str, Any]  # policy and rule, as the state names them
    state: Path | None = None
    known: dict[str, Any] = field(default_factory=dict)  # places as the state holds them, by log
    places: dict[str, Place | None] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)  # of the server behind each log, where the log numbers them
    pending: list[dict[str, Any]] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    absent: dict[str, str | None] = field(default_factory=dict)
    alarms: int = 0
    error: Exception | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _saved_at: float = float("-inf")  # the first place at once: from then on a rotation is followed whatever happens
    _changed: bool = False

    def take(self, name: str, found: list[Found], place: Place | None, life: Life) -> None:
        """Count what the lines of one log up to `place` gave, print its alarms, keep the state."""
        with self.lock:
            self.lives[name] = life
            for each in found:
                self._take(each)
            if place != self.places.get(name):
                self.places[name], self._changed = place, True
            if self.pending:
                self.tell_pending(again=False)
            else:
                self._keep()

    def keep(self) -> None:
        """Keep the state if that is due."""
        with self.lock:
            self._keep()

    def _keep(self) -> None:
        if self._changed and time.monotonic() - self._saved_at >= SAVE_SECONDS:
            self.save()

    def _take(self, found: Found) -> None:
        from prefillgate.importers.base import Absent, Imported, Unread

        if isinstance(found, Unread):
            self.unread[found.why if found.why in self.unread or len(self.unread) < 50 else "for other reasons"] += 1
        elif isinstance(found, Absent):
            if found.what not in self.absent:
                self.absent[found.what] = found.flag
                say(f"this log does not hold: {found.what}{f'; {found.flag} would give it' if found.flag else ''}")
        elif isinstance(found, Imported):
            self._count(found)

    def _count(self, found: Imported) -> None:
        cell = self._judged(found)
        series = found.label or (cell.arm if found.arm_told else "")
        if found.label is not None:  # servers that are told apart share no cache
            cell = replace(cell, server_epoch=f"{found.label} {cell.server_epoch or ''}".rstrip())
        alarm = self.watch.take(cell, series)
        self._changed = True
        if alarm is not None and not self.rule.count_only:
            self.alarms += 1
            self.pending.append(self._facts(alarm, found))

    def _judged(self, found: Imported) -> Any:
        from prefillgate.core.live import slow

        if self.rule.checks is not None:
            found = self.rule.checks.fill(found)
        cell = found.line.cell
        if self.rule.slow_ms is None:
            return cell
        too_slow = slow(cell, self.rule.slow_ms, LEAST_DECODED)
        return cell if too_slow is None else replace(cell, bad=bool(cell.bad) or too_slow)

    def _facts(self, alarm: Alarm, found: Imported) -> dict[str, Any]:
        return {**asdict(alarm), "case_id": found.line.cell.case_id, "where": found.where}

    def tell_pending(self, again: bool) -> None:
        """Print the alarms not known to be printed: kept before, so that none is lost, and struck off after."""
        if not again:
            self.save()
        for facts in self.pending:
            self.tell({**facts, "repeated": again})
        self.pending.clear()
        self.save()

    def save(self) -> None:
        """Keep the state. Raises `BadInput` where it cannot be written: a watch that forgets must not go on."""
        self._saved_at, self._changed = time.monotonic(), False
        if self.state is None:
            return
        places = {**self.known, **watch_state.places_document(self.places)}
        document = {**self.about, "places": places, "lives": self.lives, "pending": self.pending}
        try:
            watch_state.save(self.state, {**document, "watch": self.watch.state()})
        except OSError as error:
            raise BadInput(f"--state {self.state}: cannot be written: {error.strerror or error}") from error

    def without_outcomes(self, at_its_end: bool) -> bool:
        """Whether requests came and none has an outcome: then no alarm can ever come."""
        if self.rule.count_only:
            return False
        requests = sum(series.requests for series in self.watch.series.values())
        known = sum(series.known for series in self.watch.series.values())
        return not known and requests >= (1 if at_its_end else UNKNOWN_OUTCOMES)


@dataclass(slots=True)
class Names:
    """Names of server lives and prompts that stay apart through rotation and restarts of the watch.

    Where a format numbers lives from the first line that it reads (`by_place`), `life` is the number over all and the
    label last told, and goes on from what the state knew. A prompt known only by its line gets its file's digest.
    """

    path: str
    life: Life
    by_place: bool = False
    _epoch: str | None = None

    def named(self, found: Found, place: Place | None, again: bool) -> Found:
        """`found` with names of its own. `again`: it was counted before, and only tells which life is going on."""
        from prefillgate.importers.base import Imported

        if not isinstance(found, Imported):
            return found
        cell = found.line.cell
        if self.by_place:
            number, label = self.life
            if cell.server_epoch != self._epoch:
                number += self._epoch is not None and not again
                self._epoch = cell.server_epoch
            self.life = number, found.label or label
            epoch = f"{self.path} life {number}"
            cell = replace(cell, server_epoch=epoch, case_id=cell.case_id.replace(cell.server_epoch or "", epoch))
            found = replace(found, label=self.life[1])
        elif cell.prompt_sha256 is None and cell.case_id.startswith(NO_NAME) and place is not None:
            cell = replace(cell, case_id=f"{cell.case_id} of {place.head_sha256[:8]}")
        return replace(found, line=replace(found.line, cell=cell))


class LogReader:
    """Reads one log in a thread of its own."""

    def __init__(
        self, shared: Watching, follower: Follower, format_name: str | None, options: Mapping[str, Any]
    ) -> None:
        self._shared, self._follower, self._format_name = shared, follower, format_name
        self._once: bool = options["once"]
        self.title = ""
        self._found: list[Found] = []
        self._names = Names(str(follower.path), shared.lives.setdefault(str(follower.path), (0, None)))
        self._said_unknown = False
        self.thread = threading.Thread(target=self._work, name=str(follower.path), daemon=True)

    def _work(self) -> None:
        from prefillgate.importers.live_source import LiveSource

        source = LiveSource(self._follower, self._done, self._wait)
        try:
            known = self._known_format(source)
            if known is not None:
                self.title = known.title
                self._names.by_place = getattr(known, "epochs_by_place", False)
                for found in known.read(source):
                    self._found.append(found)
        except Exception as error:
            self._shared.error = self._shared.error or error
            self._shared.stop.set()
        finally:
            self._follower.close()

    def _known_format(self, source: Any) -> Format | None:
        """The format of the log, waited for until its content tells. None: stopped before."""
        from prefillgate.importers.cell_lines import CellLines
        from prefillgate.importers.registry import find_format
        from prefillgate.importers.source import HEAD_BYTES, ImportProblem

        while True:
            head = source.head()
            cells = CellLines()
            if self._format_name == cells.name or (self._format_name is None and cells.recognise(head)):
                return cells
            try:
                if self._format_name is not None or head.strip():
                    return find_format(source, self._format_name)
            except ImportProblem:
                if self._format_name is not None or self._once or len(head) >= HEAD_BYTES:
                    raise
                if not self._said_unknown:
                    self._said_unknown = True
                    say(f"{source.name}: nothing recognises its content yet; waiting for more of it")
            if not self._wait():
                return None

    def _done(self, again: bool) -> bool:
        found, self._found = self._found, []
        for remark in self._follower.remarks:
            say(f"note: {remark}")
        self._follower.remarks.clear()
        named = [self._names.named(each, self._follower.place, again) for each in found]
        self._shared.take(str(self._follower.path), [] if again else named, self._follower.place, self._names.life)
        if self._shared.without_outcomes(at_its_end=False):
            self._shared.stop.set()
        return not self._shared.stop.is_set()

    def _wait(self) -> bool:
        """Whether to look for more. What was counted is kept meanwhile."""
        if self._once or self._shared.stop.is_set():
            return False
        self._shared.keep()
        return not self._shared.stop.wait(POLL_SECONDS)
