"""A store whose file is lost under a process that has it open: nothing is acknowledged that is nowhere."""

import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from prefillgate.api.store_address import store_address
from prefillgate.evidence import Fence, SqliteJournal, StoreError, StoreFenced, StoreMissing, create_store
from prefillgate.evidence.book import open_book
from prefillgate.evidence.book_link import Loss
from prefillgate.evidence.book_rows import Watch


def deleted(path):
    for each in path.parent.iterdir():
        each.unlink()


def folder_deleted(path):
    shutil.rmtree(path.parent)


def moved_away(path):
    path.rename(path.with_name("elsewhere"))


def log_deleted(path):
    path.with_name(f"{path.name}-wal").unlink()


def replaced_by_another(path):
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.replace(path)


def log_replaced(path):
    copy = path.with_name("copy")
    copy.write_bytes(b"")
    copy.replace(path.with_name(f"{path.name}-wal"))


def cut_short(path):
    os.truncate(path, 0)


LOSSES = [deleted, folder_deleted, moved_away, log_deleted, replaced_by_another, log_replaced, cut_short]
WATCH, LATER = Watch("llm/chat", 1.0), Watch("llm/chat", 2.0)


@pytest.fixture
def at_once(monkeypatch):
    """A book is made anew with the next use."""
    monkeypatch.setattr(Loss, "AGAIN_SECONDS", 0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "evidence" / "one.db"


@pytest.mark.parametrize("lost", LOSSES)
def test_a_run_does_not_go_on_writing_into_a_file_that_was_lost(path, plan, measured, lost):
    with SqliteJournal.create(path, plan) as journal:
        journal.append(measured(1))
        lost(path)
        for _ in range(2):
            with pytest.raises(StoreMissing, match=f"^{path}: .*while it was open. Nothing more goes into the lost"):
                journal.append(measured(2))
        assert len(journal.events()) == 2


@pytest.mark.parametrize("lost", LOSSES)
def test_a_book_tells_that_its_file_was_lost_and_is_made_anew(path, lost, at_once):
    with open_book(path, Fence(3)) as book:
        book.keep_watch(WATCH)
        lost(path)
        with pytest.raises(StoreMissing, match=f"^{path}: "):
            book.keep_watch(LATER)
        book.keep_watch(LATER)
        with open_book(path) as other:
            assert (other.watch("llm/chat"), other.highest_token()) == (LATER, 3)


def test_what_is_read_of_a_book_is_not_of_a_file_that_was_lost(path, at_once):
    with open_book(path, Fence(3)) as book:
        book.keep_watch(WATCH)
        deleted(path)
        with pytest.raises(StoreMissing, match="deleted or moved away while it was open"):
            book.watch("llm/chat")
        assert book.watch("llm/chat") is None


def test_a_lost_book_is_told_to_everybody_for_a_while_and_not_made_in_the_midst_of_its_deletion(path):
    with open_book(path, Fence(3)) as book:
        book.keep_watch(WATCH)
        deleted(path)
        began = time.monotonic()
        for _ in range(5):
            with pytest.raises(StoreMissing, match="deleted or moved away while it was open"):
                book.keep_watch(LATER)
        assert list(path.parent.iterdir()) == []
        while True:
            try:
                book.keep_watch(LATER)
                break
            except StoreMissing:
                time.sleep(0.05)
        assert time.monotonic() - began >= Loss.AGAIN_SECONDS
        assert book.watch("llm/chat") == LATER


def test_what_a_file_loses_during_a_write_is_not_acknowledged(path):
    with open_book(path, Fence(3)) as book:
        link = book._link
        with pytest.raises(StoreMissing):
            link.write(lambda ask: deleted(path))


def test_a_book_in_the_place_of_the_lost_one_is_left_whole_and_its_later_leader_fences(path, tmp_path, at_once):
    other_path = tmp_path / "other" / "one.db"
    with open_book(path, Fence(3)) as book, open_book(other_path, Fence(4)) as other:
        book.keep_watch(WATCH)
        other.keep_watch(LATER)
        deleted(path)
        for each in list(other_path.parent.iterdir()):
            os.link(each, path.parent / each.name)
        with pytest.raises(StoreMissing, match="another file took its place"):
            book.keep_watch(WATCH)
        with pytest.raises(StoreFenced):
            book.keep_watch(WATCH)
        assert {each.name for each in path.parent.iterdir()} >= {"one.db", "one.db-wal"}
        with closing(sqlite3.connect(path)) as found:
            assert found.execute("SELECT next_at FROM watches").fetchall() == [(2.0,)]


def test_a_book_that_cannot_be_made_anew_tells_so_until_it_can(path, at_once):
    with open_book(path, Fence(3)) as book:
        folder_deleted(path)
        path.parent.write_text("in the way")
        for _ in range(3):
            with pytest.raises(StoreError, match=r"one\.db"):
                book.highest_token()
        path.parent.unlink()
        assert book.highest_token() == 3


def test_a_book_that_was_dropped_from_a_database_is_told_once_and_made_anew(database, at_once):
    with open_book(store_address(database), Fence(3)) as book:
        for drop in ("DROP SCHEMA prefillgate_book CASCADE", "DROP TABLE prefillgate_book.watches"):
            book.keep_watch(WATCH)
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(drop)
            with pytest.raises(StoreError, match="tables are not those of a store"):
                book.watch("llm/chat")
            assert (book.watch("llm/chat"), book.highest_token()) == (None, 3)


def test_a_book_knows_which_stores_of_runs_are_gone(tmp_path, plan, database):
    there, empty, none = (tmp_path / name for name in ("there.db", "empty.db", "none.db"))
    SqliteJournal.create(there, plan).close()
    empty.touch()
    with open_book(tmp_path / "book.db") as book:
        assert book.gone([there, empty, none, there / "below"]) == {empty, none, there / "below"}
        assert book.gone([]) == frozenset()
    root = store_address(database)
    one, two = (type(root)(root.server, name) for name in ("one", "two"))
    with open_book(root) as book:
        assert book.gone([one, two]) == {one, two}
        create_store(one, plan).close()
        assert book.gone([one, two]) == {two}


def test_a_store_that_is_only_used_is_never_taken_for_lost(path, plan, measured):
    with SqliteJournal.create(path, plan) as journal, open_book(Path(path.parent, "book.db"), Fence(1)) as book:
        for number in range(1, 40):
            journal.append(measured(number))
            SqliteJournal.open_readonly(path).close()
            book.keep_watch(Watch("llm/chat", float(number)))
            with open_book(Path(path.parent, "book.db")) as other:
                assert other.watch("llm/chat") == Watch("llm/chat", float(number))
        assert len(journal.events()) == 40
