"""What a store is on disk: a write-ahead log, commits that reach the disk, texts whole and compressed."""

import sqlite3
from contextlib import closing

from prefillgate.core.journal import Texts
from prefillgate.evidence import SqliteJournal
from prefillgate.evidence.schema import prepare_writer


def pragma(connection, name):
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_every_commit_of_a_writer_reaches_the_disk_through_the_write_ahead_log(tmp_path):
    with closing(sqlite3.connect(tmp_path / "run.db")) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        prepare_writer(connection, tmp_path / "run.db")
        assert pragma(connection, "journal_mode") == "wal"
        assert pragma(connection, "synchronous") == 2  # FULL
        assert pragma(connection, "wal_autocheckpoint") == 1


def test_a_store_is_in_write_ahead_mode_and_has_one_row_for_each_event(store):
    with closing(sqlite3.connect(store)) as connection:
        assert pragma(connection, "journal_mode") == "wal"
        assert connection.execute("SELECT count(*), count(DISTINCT cell_id) FROM events").fetchone() == (6, 5)


def test_a_long_answer_is_kept_whole_in_little_space(tmp_path, plan, measured):
    said = Texts(content="the harbour master wrote it down " * 40_000)
    path = tmp_path / "run.db"
    with SqliteJournal.create(path, plan) as journal:
        journal.append(measured(1), said)
    with SqliteJournal.open_readonly(path) as journal:
        assert journal.texts(1) == said
    assert len(said.content) > 1_000_000 > 10 * path.stat().st_size
