"""What the book of a controller promises, in a file and in a PostgreSQL database."""

import dataclasses
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from prefillgate.api.store_address import store_address
from prefillgate.evidence import (
    Fence,
    StoreAway,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFenced,
    StoreForeign,
    StoreRefused,
    StoreVersion,
)
from prefillgate.evidence.book import LONGEST_TEXT, open_book
from prefillgate.evidence.book_rows import (
    Fate,
    Floor,
    HandledOverride,
    Load,
    Notice,
    Outcome,
    Replicates,
    Scaled,
    Wait,
    Watch,
)
from prefillgate.evidence.book_tables import columns, insert, key_of, select, table_of, typed, values_of

WRITER = Path(__file__).with_name("book_writer.py")
KINDS = ["sqlite", "postgresql"]
KILLS = 6
NOTICE = Notice("n-1", "llm/chat", "chat-1", "RegressionConfirmed", "12 of 20 bad", 100.5, 100.5)
OVERRIDE = HandledOverride("uid-1/abc", "llm/chat", "chat-1", "promote", "ann", True, "seen it", 50.25)
FATE = Fate("llm/chat", "sha256:new", Outcome.REJECTED, "chat-1", "RegressionConfirmed", 200.0)
FLOOR = Floor("llm/chat", "sha256:old", "f" * 64, "floor-1", 300.0, True, "sound", 18, 20, 0.0125)


@pytest.fixture
def place(request, tmp_path):
    """The address of a book of a kind."""

    def made(kind):
        return str(tmp_path / "deep" / "book.db") if kind == "sqlite" else request.getfixturevalue("database")

    return made


@pytest.fixture(params=KINDS)
def where(request, place):
    return store_address(place(request.param))


@pytest.fixture
def book(where):
    with open_book(where) as book:
        yield book


def wanted(rollout, first=1, count=2, pair=("sha256:old", "sha256:new")):
    return Replicates(*pair, rollout, first, count, 10.0)


# Notices


def test_a_notice_is_due_from_its_time_until_it_was_sent(book):
    assert (book.notices_due(1e12), book.next_notice_at()) == ((), None)
    book.add_notice(NOTICE)
    assert book.notices_due(100.25) == ()
    assert book.notices_due(100.5) == (NOTICE,)
    assert book.next_notice_at() == 100.5
    book.notice_sent("n-1", 101.0)
    assert (book.notices_due(1e12), book.next_notice_at()) == ((), None)


def test_a_notice_added_twice_is_one_and_one_that_was_sent_stays_sent(book):
    book.add_notice(NOTICE)
    book.add_notice(dataclasses.replace(NOTICE, body="another", next_at=1.0))
    assert book.notices_due(1e12) == (NOTICE,)
    book.notice_sent("n-1", 101.0)
    book.add_notice(NOTICE)
    assert book.notices_due(1e12) == ()


def test_a_notice_that_was_not_delivered_comes_again_later_and_tells_why(book):
    book.add_notice(NOTICE)
    book.notice_failed("n-1", "HTTP 500", 160.0)
    book.notice_failed("n-1", "refused", 220.0)
    assert book.notices_due(219.0) == ()
    assert book.notices_due(220.0) == (dataclasses.replace(NOTICE, attempts=2, last_error="refused", next_at=220.0),)
    book.notice_sent("n-1", 221.0)
    book.notice_failed("n-1", "too late", 0.0)
    assert book.notices_due(1e12) == ()


def test_notices_are_due_in_the_order_they_were_made_and_so_many_at_once(book):
    for number in (3, 1, 2):
        book.add_notice(dataclasses.replace(NOTICE, key=f"n-{number}", made_at=float(number), next_at=0.0))
    assert [notice.key for notice in book.notices_due(1.0)] == ["n-1", "n-2", "n-3"]
    assert [notice.key for notice in book.notices_due(1.0, limit=2)] == ["n-1", "n-2"]


def test_the_latest_notices_of_a_line_come_oldest_first_sent_or_not(book):
    for number in (3, 1, 2):
        book.add_notice(dataclasses.replace(NOTICE, key=f"n-{number}", made_at=float(number)))
    book.add_notice(dataclasses.replace(NOTICE, key="n-4", line="another"))
    book.notice_sent("n-2", 100.0)
    assert [(each.key, each.sent_at) for each in book.latest_notices(NOTICE.line)] == [
        ("n-1", None),
        ("n-2", 100.0),
        ("n-3", None),
    ]
    assert [each.key for each in book.latest_notices(NOTICE.line, limit=2)] == ["n-2", "n-3"]
    assert book.latest_notices("nobody") == ()


def test_only_notices_sent_before_a_time_are_dropped(book):
    for number in (1, 2, 3):
        book.add_notice(dataclasses.replace(NOTICE, key=f"n-{number}"))
    book.notice_sent("n-1", 100.0)
    book.notice_sent("n-2", 200.0)
    book.drop_sent_notices(200.0)
    for number in (1, 2):
        book.add_notice(dataclasses.replace(NOTICE, key=f"n-{number}"))
    assert [notice.key for notice in book.notices_due(1e12)] == ["n-1", "n-3"]


# Overrides


def test_an_override_is_to_be_handled_until_it_is_done_and_never_again(book):
    assert book.override("uid-1/abc") is None
    assert book.take_override(OVERRIDE)
    assert book.take_override(OVERRIDE)  # a process killed before its effects were all there
    assert book.overrides_begun() == (OVERRIDE,)
    book.override_done("uid-1/abc", "Promoted", 51.0)
    for _ in range(2):
        assert not book.take_override(OVERRIDE)
    assert book.overrides_begun() == ()
    assert book.override("uid-1/abc") == dataclasses.replace(OVERRIDE, done_at=51.0, answer="Promoted")
    book.override_done("uid-1/abc", "another answer", 99.0)
    assert book.override("uid-1/abc").answer == "Promoted"
    assert book.take_override(dataclasses.replace(OVERRIDE, key="uid-1/def", verified=False))
    assert book.override("uid-1/def").verified is False


# Replicate numbers


def test_replicate_numbers_of_a_pair_never_come_again(book):
    assert book.reserve_replicates(wanted("chat-1")) == wanted("chat-1", 1)
    assert book.reserve_replicates(wanted("chat-2", count=3)).first == 3
    assert book.reserve_replicates(wanted("other-line-1")).first == 6
    assert book.reserve_replicates(wanted("chat-1", count=9)) == wanted("chat-1", 1)  # the same again after a kill
    assert book.reserve_replicates(wanted("chat-1", pair=("sha256:new", "sha256:old"))).first == 1
    assert book.reserve_replicates(wanted("chat-3", first=20)).first == 20
    assert [(row.rollout, row.first, row.count) for row in book.replicates("sha256:old", "sha256:new")] == [
        ("chat-1", 1, 2),
        ("chat-2", 3, 3),
        ("other-line-1", 6, 2),
        ("chat-3", 20, 2),
    ]


@pytest.mark.parametrize(("first", "count"), [(0, 1), (1, 0), (-1, 2)])
def test_numbers_that_are_none_are_refused(book, first, count):
    with pytest.raises(StoreRefused, match=r"allowed: 1 or more of both"):
        book.reserve_replicates(wanted("chat-1", first, count))
    assert book.replicates("sha256:old", "sha256:new") == ()


def test_rollouts_that_ask_at_the_same_moment_get_numbers_of_their_own(where):
    given, barrier = [], threading.Barrier(6)

    def ask(number):
        with open_book(where) as mine:
            barrier.wait()
            given.append(mine.reserve_replicates(wanted(f"chat-{number}")).first)

    open_book(where).close()
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == [1, 3, 5, 7, 9, 11]


# Profiles, floors, watches


def test_what_became_of_a_profile_is_kept_in_the_order_of_time_and_is_never_unsaid(book):
    later = dataclasses.replace(FATE, outcome=Outcome.PROMOTED, rollout="chat-2", at=250.0)
    book.add_fate(later)
    book.add_fate(FATE)
    book.add_fate(dataclasses.replace(FATE, reason="another", at=1.0))
    assert book.fates("llm/chat") == (FATE, later)
    assert book.fates("llm/chat")[0].outcome is Outcome.REJECTED
    assert book.fates("llm/other") == ()
    removes = [name for name in dir(book) if name.startswith(("drop", "end", "forget", "remove", "delete"))]
    assert removes == ["drop_sent_notices", "end_scaled", "end_wait", "end_watch"]


def test_what_is_scaled_is_known_until_it_is_back(book):
    first, second = Scaled("llm/chat", "uid-1", "[1]"), Scaled("llm/other", "uid-2", "[2]")
    book.keep_scaled(second)
    book.keep_scaled(dataclasses.replace(first, noted="[]"))
    book.keep_scaled(first)
    assert book.scaled() == (first, second)
    book.end_scaled("llm/chat")
    book.end_scaled("llm/chat")
    assert book.scaled() == (second,)


def test_a_book_that_was_made_before_one_of_its_tables_gets_it_and_keeps_the_rest(where):
    with open_book(where) as book:
        book.add_fate(FATE)
        book._change("DROP TABLE book.scaled")
    with open_book(where) as book:
        book.keep_scaled(Scaled("llm/chat", "uid-1", "[]"))
        assert (len(book.scaled()), book.fates("llm/chat")) == (1, (FATE,))


def test_the_last_measured_floor_of_a_baseline_counts(book):
    assert book.floor("llm/chat", "sha256:old", "f" * 64) is None
    book.keep_floor(FLOOR)
    book.keep_floor(dataclasses.replace(FLOOR, measured_at=299.0, sentence="older"))
    assert book.floor("llm/chat", "sha256:old", "f" * 64) == FLOOR
    newer = dataclasses.replace(FLOOR, measured_at=301.0, sound=None, identical=None, compared=None, noise_cv=None)
    book.keep_floor(newer)
    assert book.floor("llm/chat", "sha256:old", "f" * 64) == newer
    broken = dataclasses.replace(newer, sound=False)
    book.keep_floor(broken)
    assert book.floor("llm/chat", "sha256:old", "f" * 64).sound is False
    assert book.floor("llm/chat", "sha256:old", "0" * 64) is None
    assert book.floor("llm/chat", "sha256:new", "f" * 64) is None


def test_watches_are_told_with_the_next_first_until_they_end(book):
    book.keep_watch(Watch("llm/b", 20.0))
    book.keep_watch(Watch("llm/a", 30.0, 10.0, "watch-1"))
    assert book.watches() == (Watch("llm/b", 20.0), Watch("llm/a", 30.0, 10.0, "watch-1"))
    book.keep_watch(Watch("llm/b", 40.0, 20.0, "watch-2"))
    assert [watch.line for watch in book.watches()] == ["llm/a", "llm/b"]
    assert book.watch("llm/b") == Watch("llm/b", 40.0, 20.0, "watch-2")
    book.end_watch("llm/a")
    assert book.watches() == (Watch("llm/b", 40.0, 20.0, "watch-2"),)
    assert book.watch("llm/a") is None


def test_no_more_prefills_of_a_line_are_counted_within_an_hour_than_may_be(book):
    def taken(at, line="llm/a", work="w", most=2):
        return book.take_load(Load(line, at, work), most, 3600.0)

    assert (taken(0.0), taken(100.0), taken(100.0, work="v", most=3)) == (0.0, 0.0, 0.0)
    assert taken(200.0) == 3500.0  # two of the three must be past
    assert taken(200.0, most=3) == 3400.0
    assert taken(200.0, line="llm/b") == 0.0
    assert taken(3599.0, most=3) == 1.0
    assert taken(3600.0, most=3) == 0.0
    assert taken(3600.0, most=3) == 0.0  # the same one, again
    assert taken(3600.5, most=3) == 99.5


def test_a_load_is_not_counted_by_who_was_replaced(where):
    with open_book(where, Fence(1)) as old, open_book(where, Fence(2)) as new:
        with pytest.raises(StoreFenced):
            old.take_load(Load("llm/a", 1.0, "w"), 5, 3600.0)
        assert new.take_load(Load("llm/a", 1.0, "w"), 1, 3600.0) == 0.0
        assert new.take_load(Load("llm/a", 2.0, "w"), 1, 3600.0) == 3599.0
    with open_book(where, Fence(3)) as book:
        assert book.take_load(Load("llm/a", 3.0, "w"), 1, 3600.0) == 3598.0


# What is kept, and how


def test_everything_is_there_when_the_book_is_opened_again(where):
    with open_book(where) as book:
        book.add_notice(NOTICE)
        book.take_override(OVERRIDE)
        book.reserve_replicates(wanted("chat-1"))
        book.add_fate(FATE)
        book.keep_floor(FLOOR)
        book.keep_watch(Watch("llm/chat", 20.0))
    with open_book(where) as book:
        assert book.notices_due(1e12) == (NOTICE,)
        assert book.overrides_begun() == (OVERRIDE,)
        assert book.replicates("sha256:old", "sha256:new") == (wanted("chat-1"),)
        assert book.fates("llm/chat") == (FATE,)
        assert book.floor("llm/chat", "sha256:old", "f" * 64) == FLOOR
        assert book.watches() == (Watch("llm/chat", 20.0),)
    book.close()


@pytest.mark.parametrize(
    "text", ["100 % of :them", "'; DROP TABLE notices --", "book.notices", "naïve \U0001f680 \n\t", ""]
)
def test_any_text_comes_back_as_it_was(book, text):
    book.add_notice(dataclasses.replace(NOTICE, key=f"k{text}", body=text, rollout=text))
    (found,) = book.notices_due(1e12)
    assert (found.key, found.body, found.rollout) == (f"k{text}", text, text)


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * (LONGEST_TEXT + 1)])
def test_text_that_not_every_store_can_keep_is_refused(book, text):
    with pytest.raises(StoreRefused, match=r"body cannot be kept \(allowed: Unicode text without NUL, at most 65536"):
        book.add_notice(dataclasses.replace(NOTICE, body=text))
    book.add_notice(dataclasses.replace(NOTICE, body="x" * LONGEST_TEXT))
    assert len(book.notices_due(1e12)[0].body) == LONGEST_TEXT


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_refused(book, number):
    with pytest.raises(StoreRefused, match=r"next_at is (nan|inf) \(allowed: a finite number\)"):
        book.keep_watch(Watch("llm/chat", number))
    assert book.watches() == ()


# The fence


def test_a_writer_who_was_replaced_writes_nothing_and_may_still_read(where):
    old = open_book(where, Fence(1))
    old.keep_watch(Watch("llm/chat", 1.0))
    with open_book(where, Fence(2)) as new:
        for write in (
            lambda: old.add_notice(NOTICE),
            lambda: old.take_override(OVERRIDE),
            lambda: old.reserve_replicates(wanted("chat-1")),
            lambda: old.add_fate(FATE),
            lambda: old.keep_floor(FLOOR),
            lambda: old.keep_watch(Watch("llm/chat", 2.0)),
            lambda: old.end_watch("llm/chat"),
            lambda: old.keep_scaled(Scaled("llm/chat", "uid-1", "[]")),
            lambda: old.end_scaled("llm/chat"),
            lambda: old.drop_sent_notices(1e12),
        ):
            with pytest.raises(
                StoreFenced, match="taken over by a writer with token 2; the writer with token 1 may not"
            ):
                write()
        assert old.watches() == new.watches() == (Watch("llm/chat", 1.0),)
        assert new.take_override(OVERRIDE)
    with pytest.raises(StoreFenced):
        open_book(where, Fence(1))
    old.close()


def test_a_writer_without_a_token_goes_by_the_one_it_found(where):
    open_book(where, Fence(3)).close()
    with open_book(where) as job:
        job.keep_watch(Watch("llm/chat", 1.0))
        with open_book(where, Fence(4)) as leader:
            with pytest.raises(StoreFenced):
                job.keep_watch(Watch("llm/chat", 2.0))
            leader.keep_watch(Watch("llm/chat", 3.0))
            assert leader.watches() == (Watch("llm/chat", 3.0),)


# Killed and hung processes


class Writer:
    """The writing process and the lines it printed."""

    def __init__(self, where, pause_seconds=0.0):
        self.process = subprocess.Popen(
            [sys.executable, str(WRITER), where, str(pause_seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdout.readline().strip() == b"ready", self.process.stderr.read().decode()
        self.said = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                self.said.append(tuple(line.decode().split()))

    def wait_for(self, count):
        while len(self.said) < count:
            assert self.process.poll() is None, self.process.stderr.read().decode()
            time.sleep(0.001)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        told = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()
        return told


@pytest.fixture
def writer():
    writers = []

    def begin(where, pause_seconds=0.0):
        writers.append(Writer(where, pause_seconds))
        return writers[-1]

    yield begin
    for each in writers:
        if each.process.poll() is None:
            each.end()


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_killed_at_any_instant_loses_nothing_that_returned_and_gives_no_number_twice(place, kind, writer):
    where, rng, said = place(kind), random.Random(20261130), []
    for _ in range(KILLS):
        child = writer(where)
        child.wait_for(rng.randrange(1, 60))
        time.sleep(rng.random() * 0.004)  # anywhere inside a transaction
        child.end()
        said += child.said
        with open_book(store_address(where)) as book:
            numbers = book.replicates("old", "new")
            assert [row.first for row in numbers] == [2 * index + 1 for index in range(len(numbers))]
            reserved = {row.rollout for row in numbers}
            assert {f"{int(number):06d}" for word, number in said if word == "reserved"} <= reserved
            due = {notice.key for notice in book.notices_due(1e12, limit=10_000)}
            assert not due & {f"{int(number):06d}" for word, number in said if word == "sent"}
            assert len(due) <= KILLS  # at most the one in flight at each kill is told twice
            for word, number in said:
                if word == "done":
                    assert book.override(f"{int(number):06d}").answer == "Promoted"
    done = [number for word, number in said if word == "done"]
    assert len(done) == len(set(done)) > KILLS


@pytest.mark.parametrize("kind", KINDS)
def test_a_hung_process_that_wakes_up_after_another_took_over_writes_nothing_more(place, kind, writer):
    where = place(kind)
    open_book(store_address(where), Fence(1)).close()
    child = writer(where, pause_seconds=0.5)
    child.wait_for(10)
    os.kill(child.process.pid, signal.SIGSTOP)
    with open_book(store_address(where), Fence(2)) as book:
        before = book.replicates("old", "new")
        os.kill(child.process.pid, signal.SIGCONT)
        child.process.wait(60)
        assert "StoreFenced" in child.end()
        assert book.replicates("old", "new") == before


# What else may stand there


def test_a_file_of_something_else_is_left_untouched(tmp_path):
    path = tmp_path / "book.db"
    for content in (b"no database at all, but long enough to be read as one" * 40, None):
        if content is None:
            path.unlink()
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("CREATE TABLE holiday (photo)")
        else:
            path.write_bytes(content)
        before = path.read_bytes()
        with pytest.raises(StoreForeign, match=r"book\.db"):
            open_book(path)
        assert path.read_bytes() == before


def test_an_evidence_store_is_no_book(store):
    with pytest.raises(StoreForeign, match="not the book of a controller"):
        open_book(store)


def test_a_schema_of_something_else_is_left_untouched(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA prefillgate_book")
    with pytest.raises(StoreForeign, match="the schema prefillgate_book in this database is not the book"):
        open_book(store_address(database))


def change(where, statement):
    if isinstance(where, Path):
        with closing(sqlite3.connect(where, isolation_level=None)) as connection:
            connection.execute(statement)
    else:
        with psycopg.connect(where.server, autocommit=True) as connection:
            connection.execute(statement.replace("main.", "prefillgate_book."))


@pytest.mark.parametrize(
    ("statement", "kind", "told"),
    [
        ("UPDATE main.meta SET value = '7' WHERE key = 'schema'", StoreVersion, "has version 7 .* reads version 1"),
        ("UPDATE main.meta SET value = 'x' WHERE key = 'schema'", StoreDamaged, "version is 'x', not a number"),
        ("DELETE FROM main.meta", StoreDamaged, "version is 'None'"),
        ("DELETE FROM main.fence", StoreDamaged, "does not say who may write it"),
        ("UPDATE main.fence SET token = 9", StoreFenced, "token 9; the writer with token 5 may not"),
    ],
)
def test_a_book_that_cannot_be_used_is_told_by_name(where, statement, kind, told):
    open_book(where, Fence(1)).close()
    change(where, statement)
    with pytest.raises(kind, match=told):
        open_book(where, Fence(5))


def test_a_value_that_is_none_of_its_column_is_damage_and_not_a_row(where):
    with open_book(where) as book:
        book.add_fate(FATE)
        change(where, "UPDATE main.fates SET outcome = 'Perhaps'")
        with pytest.raises(StoreDamaged, match="a row of fates is not one: 'Perhaps'"):
            book.fates("llm/chat")


def test_a_lost_connection_is_made_again_and_the_write_with_it(database, server):
    where = store_address(database)
    with open_book(where, Fence(1)) as book:
        for number in range(3):
            server.ask(f"SELECT pg_terminate_backend({book._link._connection.info.backend_pid}, 5000)")
            assert book.reserve_replicates(wanted(f"chat-{number}")).first == 2 * number + 1
        server.ask(f"SELECT pg_terminate_backend({book._link._connection.info.backend_pid}, 5000)")
        assert len(book.replicates("sha256:old", "sha256:new")) == 3


def test_a_server_that_does_not_answer_is_away(database, monkeypatch):
    monkeypatch.setattr("prefillgate.evidence.book_postgres.RECONNECT_SECONDS", 0.3)
    nowhere = store_address("postgresql://127.0.0.1:1/none?connect_timeout=2")
    with pytest.raises(StoreAway):
        open_book(nowhere)


def test_a_hung_transaction_is_waited_for_so_long_and_no_longer(where, monkeypatch):
    if isinstance(where, Path):
        monkeypatch.setattr("prefillgate.evidence.book_file.BUSY_SECONDS", 0.2)
    else:
        monkeypatch.setattr("prefillgate.evidence.book_postgres.LOCK_SECONDS", 1)
    with open_book(where) as book:
        if isinstance(where, Path):
            other = sqlite3.connect(where, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
        else:
            other = psycopg.connect(where.server)
            other.execute("SELECT 1 FROM prefillgate_book.fence FOR UPDATE")
        with closing(other), pytest.raises(StoreBusy):
            book.keep_watch(Watch("llm/chat", 1.0))
        book.keep_watch(Watch("llm/chat", 2.0))
        assert book.watches() == (Watch("llm/chat", 2.0),)


# The SQL both share


def test_the_tables_are_the_rows_field_by_field():
    assert (table_of(Watch), key_of(Watch)) == ("watches", "line")
    assert (table_of(Load), key_of(Load)) == ("loads", "line, at, work")
    assert columns(Watch) == ("line", "next_at", "last_at", "last_run")
    assert select(Watch, "ORDER BY line") == "SELECT line, next_at, last_at, last_run FROM book.watches ORDER BY line"
    assert insert(Watch, update=False) == (
        "INSERT INTO book.watches (line, next_at, last_at, last_run) VALUES (:line, :next_at, :last_at, :last_run) "
        "ON CONFLICT (line) DO NOTHING"
    )
    assert insert(Watch, update=True).endswith(
        "DO UPDATE SET next_at = excluded.next_at, last_at = excluded.last_at, last_run = excluded.last_run"
    )
    assert values_of(FATE)["outcome"] == "Rejected" and values_of(OVERRIDE)["verified"] == 1
    assert typed(Watch, ("llm/chat", 1.0, None, None)) == Watch("llm/chat", 1.0)
    for wrong in (("llm/chat", None, None, None), ("llm/chat", "1", None, None), ("llm/chat", 1.0, None)):
        with pytest.raises(StoreDamaged):
            typed(Watch, wrong)
    assert issubclass(StoreFenced, StoreError)


def test_what_a_replay_waits_for_is_the_last_that_was_said_until_it_ends(book):
    assert book.wait("one") is None
    book.keep_wait(Wait("one", "WaitingForIdle", 20.0))
    book.keep_wait(Wait("two", "WaitingForServer", 25.0))
    book.keep_wait(Wait("one", "LoadLimitReached", 30.0))
    assert book.wait("one") == Wait("one", "LoadLimitReached", 30.0)
    book.end_wait("one")
    assert (book.wait("one"), book.wait("two")) == (None, Wait("two", "WaitingForServer", 25.0))
