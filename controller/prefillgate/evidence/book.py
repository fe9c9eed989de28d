"""The book of a controller: rows beside the journals, in a file `book.db` or in the database that holds the runs.

Every write looks in its own transaction whether a higher token has written (`prefillgate.evidence.fence`), and may come
twice: after a kill or a lost connection it is simply made again. What was promoted, rejected or handled stands in the
status of the serving line too: a book that is lost takes nothing of that back and makes nobody forget it.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from prefillgate.api.store_address import StoreAddress
from prefillgate.evidence.book_link import Ask, Link, Rows
from prefillgate.evidence.book_rows import Fate, Floor, HandledOverride, Load, Notice, Replicates, Scaled, Wait, Watch
from prefillgate.evidence.book_tables import insert, select, typed, values_of
from prefillgate.evidence.errors import StoreError, StoreRefused
from prefillgate.evidence.fence import Fence
from prefillgate.evidence.stores import EXTRA

LONGEST_TEXT = 65_536
_T = TypeVar("_T")


class Book:
    """All rows of one controller. Close it, or use it in a `with` statement. Safe to use from any thread."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._mutex = threading.Lock()

    # -- notices

    def add_notice(self, notice: Notice) -> None:
        """Keep a notice until it was sent; nothing where one of its key is there already, sent or not."""
        self._keep(notice, update=False)

    def notices_due(self, now: float, limit: int = 100) -> tuple[Notice, ...]:
        """Notices not yet sent whose time has come, the oldest first."""
        where = "WHERE sent_at IS NULL AND next_at <= :now ORDER BY made_at, key LIMIT :limit"
        return self._rows(Notice, where, now=now, limit=limit)

    def latest_notices(self, line: str, limit: int = 20) -> tuple[Notice, ...]:
        """The last notices about a line and its rollouts, sent or not, oldest first."""
        where = "WHERE line = :line ORDER BY made_at DESC, key DESC LIMIT :limit"
        return tuple(reversed(self._rows(Notice, where, line=line, limit=limit)))

    def next_notice_at(self) -> float | None:
        """When the next notice is to be sent; None where there is none."""
        ((at,),) = self._read("SELECT min(next_at) FROM book.notices WHERE sent_at IS NULL")
        return None if at is None else float(at)

    def notice_sent(self, key: str, at: float) -> None:
        """It was delivered, and is never due again."""
        self._change("UPDATE book.notices SET sent_at = :at WHERE key = :key AND sent_at IS NULL", key=key, at=at)

    def notice_failed(self, key: str, error: str, next_at: float) -> None:
        """It was tried and not delivered; `next_at` is when to try again."""
        self._change(
            "UPDATE book.notices SET attempts = attempts + 1, last_error = :error, next_at = :next_at "
            "WHERE key = :key AND sent_at IS NULL",
            key=key,
            error=error,
            next_at=next_at,
        )

    def drop_sent_notices(self, before: float) -> None:
        """Forget notices that were sent before a time. One that is added again then is sent again."""
        self._change("DELETE FROM book.notices WHERE sent_at < :before", before=before)

    # -- overrides

    def take_override(self, override: HandledOverride) -> bool:
        """Whether this override is to be handled: its key is new, or it was taken and never came to its end.

        Its effects must bear a repetition until `override_done`; from then on the answer is False for ever.
        """

        def work(ask: Ask) -> bool:
            self._insert(ask, override, update=False)
            ((done,),) = ask("SELECT done_at FROM book.overrides WHERE key = :key", {"key": override.key})
            return done is None

        return self._write(work)

    def override_done(self, key: str, answer: str, at: float) -> None:
        """All its effects are there. The first answer stays."""
        self._change(
            "UPDATE book.overrides SET done_at = :at, answer = :answer WHERE key = :key AND done_at IS NULL",
            key=key,
            answer=answer,
            at=at,
        )

    def override(self, key: str) -> HandledOverride | None:
        """What is known of an override; None where it was never taken."""
        return next(iter(self._rows(HandledOverride, "WHERE key = :key", key=key)), None)

    def overrides_begun(self) -> tuple[HandledOverride, ...]:
        """Overrides that were taken and never came to their end, the oldest first."""
        return self._rows(HandledOverride, "WHERE done_at IS NULL ORDER BY taken_at, key")

    # -- replicate numbers

    def reserve_replicates(self, wanted: Replicates) -> Replicates:
        """Numbers for a rollout's replicates of a pair, `wanted.first` or higher, never given to another rollout.

        The same rollout gets the same numbers again, whatever it wants. Raises `StoreRefused` for a first or a count
        below 1.
        """
        if wanted.first < 1 or wanted.count < 1:
            raise StoreRefused(
                f"{self._link.name}: replicates {wanted.first} and {wanted.count} of them (allowed: 1 or more of both)"
            )
        pair = {"baseline": wanted.baseline, "candidate": wanted.candidate}

        def work(ask: Ask) -> Replicates:
            where = "WHERE baseline = :baseline AND candidate = :candidate"
            given = [typed(Replicates, row) for row in ask(select(Replicates, where), pair)]
            mine = next((row for row in given if row.rollout == wanted.rollout), None)
            if mine is not None:
                return mine
            first = max([wanted.first, *(row.first + row.count for row in given)])
            mine = dataclasses.replace(wanted, first=first)
            self._insert(ask, mine, update=False)
            return mine

        return self._write(work)

    def replicates(self, baseline: str, candidate: str) -> tuple[Replicates, ...]:
        """All numbers given for a pair of profiles, in their order."""
        where = "WHERE baseline = :baseline AND candidate = :candidate ORDER BY first"
        return self._rows(Replicates, where, baseline=baseline, candidate=candidate)

    # -- profiles

    def add_fate(self, fate: Fate) -> None:
        """Remember what became of a profile. The first word of a rollout stays, and nothing removes it."""
        self._keep(fate, update=False)

    def fates(self, line: str) -> tuple[Fate, ...]:
        """What became of the profiles of a line, in the order of time."""
        return self._rows(Fate, "WHERE line = :line ORDER BY at, digest, rollout", line=line)

    # -- floors

    def keep_floor(self, floor: Floor) -> None:
        """The floor of a line's baseline, in the place of an older one; a newer one that is there stays."""

        def work(ask: Ask) -> None:
            there = ask(
                "SELECT measured_at FROM book.floors WHERE line = :line AND baseline = :baseline "
                "AND replay_set_sha256 = :replay_set_sha256",
                {"line": floor.line, "baseline": floor.baseline, "replay_set_sha256": floor.replay_set_sha256},
            )
            if not there or there[0][0] <= floor.measured_at:
                self._insert(ask, floor, update=True)

        self._write(work)

    def floor(self, line: str, baseline: str, replay_set_sha256: str) -> Floor | None:
        """The last floor of a line's baseline on a replay set; None where none was measured."""
        where = "WHERE line = :line AND baseline = :baseline AND replay_set_sha256 = :replay_set_sha256"
        found = self._rows(Floor, where, line=line, baseline=baseline, replay_set_sha256=replay_set_sha256)
        return next(iter(found), None)

    # -- loads

    def take_load(self, load: Load, most: int, within_seconds: float) -> float:
        """Count a prefill on production, unless `most` of its line stand within the time before it: then the seconds
        until there is room again, and nothing is counted."""

        def work(ask: Ask) -> float:
            since = {"line": load.line, "since": load.at - within_seconds}
            ask("DELETE FROM book.loads WHERE line = :line AND at <= :since", since)
            rows = [
                typed(Load, row) for row in ask(select(Load, "WHERE line = :line ORDER BY at"), {"line": load.line})
            ]
            if len(rows) < most:
                self._insert(ask, load, update=False)
            elif load not in rows:  # it may come again, after a lost connection
                return rows[len(rows) - most].at + within_seconds - load.at
            return 0.0

        return self._write(work)

    # -- watches

    def keep_watch(self, watch: Watch) -> None:
        """When a line is looked at next, in the place of what stood there."""
        self._keep(watch, update=True)

    def end_watch(self, line: str) -> None:
        """The line is not looked at any more."""
        self._change("DELETE FROM book.watches WHERE line = :line", line=line)

    def watch(self, line: str) -> Watch | None:
        """When a line is looked at next; None where it is not watched."""
        return next(iter(self._rows(Watch, "WHERE line = :line", line=line)), None)

    def watches(self) -> tuple[Watch, ...]:
        """All of them, the next first."""
        return self._rows(Watch, "ORDER BY next_at, line")

    # -- what was scaled

    def keep_scaled(self, scaled: Scaled) -> None:
        """What the workloads of a line had, in the place of what stood there."""
        self._keep(scaled, update=True)

    def end_scaled(self, line: str) -> None:
        """They have it back."""
        self._change("DELETE FROM book.scaled WHERE line = :line", line=line)

    def scaled(self) -> tuple[Scaled, ...]:
        """All lines whose workloads are scaled."""
        return self._rows(Scaled, "ORDER BY line")

    # -- waits

    def keep_wait(self, wait: Wait) -> None:
        """What a replay waits for now."""
        self._keep(wait, update=True)

    def end_wait(self, work: str) -> None:
        """It waits for nothing."""
        self._change("DELETE FROM book.waits WHERE work = :work", work=work)

    def wait(self, work: str) -> Wait | None:
        """What it waits for; None: nothing that is known."""
        return next(iter(self._rows(Wait, "WHERE work = :work", work=work)), None)

    # -- journals

    def gone(self, stores: Collection[StoreAddress]) -> frozenset[StoreAddress]:
        """Those of these stores of runs that are not there any more, or empty: in files beside the book, or in its
        database. What is in them is not read."""
        with self._mutex:
            return self._link.gone(stores) if stores else frozenset()

    # --

    def highest_token(self) -> int:
        """The highest token that has written it; 0 before any."""
        ((token,),) = self._read("SELECT token FROM book.fence")
        return max(0, int(token))

    def close(self) -> None:
        """Let go of everything. May be called twice."""
        with self._mutex:
            self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _keep(self, row: Any, update: bool) -> None:
        self._write(lambda ask: self._insert(ask, row, update))

    def _insert(self, ask: Ask, row: Any, update: bool) -> None:
        ask(insert(type(row), update), values_of(row))

    def _change(self, statement: str, **values: Any) -> None:
        self._write(lambda ask: ask(statement, values))

    def _rows(self, kind: type[_T], where: str, **values: Any) -> tuple[_T, ...]:
        return tuple(typed(kind, row) for row in self._read(select(kind, where), **values))

    def _read(self, statement: str, **values: Any) -> Rows:
        with self._mutex:
            return self._link.read(lambda ask: ask(statement, values))

    def _write(self, work: Callable[[Ask], _T]) -> _T:
        def refusing(ask: Ask) -> _T:
            return work(lambda statement, values: ask(statement, self._checked(values)))

        with self._mutex:
            return self._link.write(refusing)

    def _checked(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values. Raises `StoreRefused` for one that would not come back as it is from every kind of store."""
        for name, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise StoreRefused(f"{self._link.name}: {name} is {value} (allowed: a finite number)")
            if isinstance(value, str) and (len(value) > LONGEST_TEXT or "\0" in value or not _is_text(value)):
                raise StoreRefused(
                    f"{self._link.name}: {name} cannot be kept (allowed: Unicode text without NUL, at most "
                    f"{LONGEST_TEXT} characters)"
                )
        return values


def open_book(where: StoreAddress, fence: Fence | None = None) -> Book:
    """The book in a file, or in a database (the run in its URL is not looked at); made where there is none.

    Raises `StoreFenced` where a higher token has written it, `StoreForeign`, `StoreVersion`, `StoreDamaged`,
    `StoreAway`, `StoreError`.
    """
    if isinstance(where, Path):
        from prefillgate.evidence.book_file import FileLink

        return Book(FileLink(where, fence))
    try:
        module = importlib.import_module("prefillgate.evidence.book_postgres")
    except ImportError as error:
        raise StoreError(f"{EXTRA} ({error})") from error
    return Book(module.PostgresLink(where, fence))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
