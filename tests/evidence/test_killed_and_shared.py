"""A store whose writer is killed at any instant, and a store that several processes want."""

import os
import random
import shutil
import sqlite3
import threading
import time

import pytest

from prefillgate.core.journal import CellMeasured, DeadlinePassed, Texts
from prefillgate.evidence import SqliteJournal, StoreBusy, StoreDamaged, StoreExists, StoreRefused
from prefillgate.evidence.files import read

KILLS = 15


def cell_ids(journal):
    return [event.cell_id for event in journal.events() if isinstance(event, CellMeasured)]


def test_a_writer_killed_at_any_instant_loses_no_cell_and_doubles_none(tmp_path, start):
    store = tmp_path / "run.db"
    rng = random.Random(20261129)
    printed = []
    for kill in range(KILLS):
        child = start(store)
        child.wait_for(rng.randrange(0, 40))
        time.sleep(rng.random() * 0.004)  # anywhere inside a transaction
        printed += child.kill()
        opened = SqliteJournal.open_readonly if kill % 2 else SqliteJournal.open  # both verify the whole chain
        with opened(store) as journal:
            ids = cell_ids(journal)
            assert ids == list(range(len(ids)))
            assert set(printed) <= set(ids)
            assert len(printed) == len(set(printed))
            assert len(ids) - len(printed) <= kill + 1  # at most the one in flight at each kill
            for cell_id in ids[-3:]:
                assert journal.texts(cell_id) == Texts(response=f"{cell_id} " * (cell_id % 2000))
    assert len(printed) > KILLS


def test_the_one_file_holds_every_cell_whose_append_returned(tmp_path, start):
    """People copy `run.db` and forget the files beside it."""
    store = tmp_path / "run.db"
    child = start(store)
    child.wait_for(25)
    printed = child.kill()
    copied = tmp_path / "elsewhere" / "run.db"
    copied.parent.mkdir()
    shutil.copyfile(store, copied)
    with SqliteJournal.open_readonly(copied) as journal:
        assert set(printed) <= set(cell_ids(journal))


def test_a_log_that_rots_after_a_kill_loses_no_cell_whose_append_returned(tmp_path, start):
    store = tmp_path / "run.db"
    child = start(store)
    child.wait_for(25)
    printed = child.kill()
    log = bytearray((tmp_path / "run.db-wal").read_bytes())
    for offset in range(40, len(log), 500):
        log[offset] ^= 0x10
    (tmp_path / "run.db-wal").write_bytes(log)
    with SqliteJournal.open(store) as journal:
        assert set(printed) <= set(cell_ids(journal))


def test_a_process_killed_while_it_makes_a_store_leaves_none_that_stands_in_the_way(tmp_path, plan):
    store = tmp_path / "run.db"
    for suffix in ("-new", "-new-journal", "-new-wal", "-new-shm"):
        (tmp_path / f"run.db{suffix}").write_bytes(b"half a store")
    with SqliteJournal.create(store, plan) as journal:
        assert journal.events() == (plan,)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.db", "run.db-lock"]


def test_a_second_writer_is_told_which_process_has_the_store(tmp_path, start, measured):
    store = tmp_path / "run.db"
    child = start(store)
    with pytest.raises(StoreBusy) as caught:
        SqliteJournal.open(store)
    assert f"process {child.process.pid} on " in str(caught.value)
    assert str(store) in str(caught.value)
    child.kill()
    with SqliteJournal.open(store) as journal:
        journal.append(measured(10**6))


def test_a_second_writer_in_the_same_process_is_refused_too(store, measured):
    with SqliteJournal.open(store) as journal:
        with pytest.raises(StoreBusy, match=rf"process {os.getpid()} on .* \(this very process\)"):
            SqliteJournal.open(store)
        journal.append(measured(9))
    with SqliteJournal.open(store) as journal:
        assert cell_ids(journal) == [0, 1, 2, 3, 4, 9]


def test_of_many_that_open_a_store_at_once_one_gets_it(store):
    won, lost = [], []
    barrier = threading.Barrier(8)

    def work():
        barrier.wait()
        try:
            won.append(SqliteJournal.open(store))
        except StoreBusy as error:
            lost.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)
    won[0].close()


def test_of_many_that_make_a_store_at_once_one_does(tmp_path, plan):
    won, lost = [], []
    barrier = threading.Barrier(6)

    def work():
        barrier.wait()
        try:
            won.append(SqliteJournal.create(tmp_path / "run.db", plan))
        except (StoreBusy, StoreExists) as error:
            lost.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 5)
    assert won[0].events() == (plan,)
    won[0].close()


def test_the_lock_is_free_again_after_a_refused_store_and_after_close(store, measured):
    with SqliteJournal.open(store):
        pass
    with SqliteJournal.open(store) as journal:
        journal.append(measured(8))


def test_a_store_is_read_whole_while_another_process_writes_it(tmp_path, start):
    store = tmp_path / "run.db"
    child = start(store)
    child.wait_for(3)
    before = 0
    for _ in range(15):
        printed = list(child.printed)
        with SqliteJournal.open_readonly(store) as journal:
            ids = cell_ids(journal)
            assert ids == list(range(len(ids)))
            assert set(printed) <= set(ids)
            assert len(ids) >= before
            before = len(ids)
            assert journal.texts(2) == Texts(response="2 2 ")
        child.wait_for(len(printed) + 1)
    child.kill()


def test_reading_in_the_writers_own_process_does_not_loosen_its_lock(store, measured):
    with SqliteJournal.open(store) as journal:
        for cell_id in range(10, 15):
            with SqliteJournal.open_readonly(store) as reader:
                assert reader.texts(0) is not None
            journal.append(measured(cell_id))
            with pytest.raises(StoreBusy):
                SqliteJournal.open(store)
        assert cell_ids(journal)[-5:] == [10, 11, 12, 13, 14]


def test_a_read_only_journal_is_the_store_as_it_was_when_opened(store, measured):
    with SqliteJournal.open(store) as writer, SqliteJournal.open_readonly(store) as reader:
        writer.append(measured(20), Texts("later"))
        assert cell_ids(reader) == [0, 1, 2, 3, 4]
        assert reader.texts(20) is None
        with pytest.raises(StoreRefused, match="opened for reading only"):
            reader.append(DeadlinePassed(1.0))


def test_a_store_is_readable_at_every_instant_while_writers_come_and_go(store, measured):
    """A writer that leaves takes SQLite's own files with it; a reader in between must not stumble over that."""
    done = threading.Event()
    failures, seen = [], []

    def read():
        while not done.is_set():
            try:
                with SqliteJournal.open_readonly(store) as journal:
                    seen.append(len(journal.events()))
                    assert journal.texts(4) is not None
            except Exception as error:
                failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for cell_id in range(100, 125):
            with SqliteJournal.open(store) as journal:
                journal.append(measured(cell_id))
    finally:
        done.set()
        reader.join()
    assert failures == []
    assert seen == sorted(seen)
    assert seen[0] >= 6


@pytest.mark.parametrize("breaks", [True, False], ids=["and the reading breaks", "and the reading goes through"])
def test_what_was_read_while_a_writer_came_and_went_is_read_again(store, measured, breaks):
    looks = []

    def work(connection):
        looks.append(connection.execute("SELECT count(*) FROM events").fetchone()[0])
        if len(looks) == 1:
            with SqliteJournal.open(store) as journal:
                journal.append(measured(50))
            if breaks:
                raise StoreDamaged("torn between two pages")
        return looks[-1]

    assert read(store, work) == 7
    assert looks == [6, 7]


def test_what_breaks_while_nobody_writes_is_not_tried_again(store):
    looks = []

    def work(connection):
        looks.append(connection)
        raise StoreDamaged("it is broken")

    with pytest.raises(StoreDamaged, match="it is broken"):
        read(store, work)
    assert len(looks) == 1


def everything_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_reading_a_store_that_nobody_writes_changes_and_creates_nothing(store):
    before = everything_in(store.parent)
    with SqliteJournal.open_readonly(store) as journal:
        assert journal.texts(3) is not None
        assert everything_in(store.parent) == before
    assert everything_in(store.parent) == before


def test_reading_after_a_kill_creates_no_file_and_changes_no_data(tmp_path, start):
    folder = tmp_path / "runs"
    folder.mkdir()
    child = start(folder / "run.db")
    child.wait_for(10)
    printed = child.kill()
    before = everything_in(folder)
    assert set(before) == {"run.db", "run.db-wal", "run.db-shm", "run.db-lock"}
    with SqliteJournal.open_readonly(folder / "run.db") as journal:
        assert set(printed) <= set(cell_ids(journal))
        assert journal.texts(5) is not None
    after = everything_in(folder)
    assert set(after) == set(before)
    for name in ("run.db", "run.db-wal", "run.db-lock"):
        assert after[name] == before[name]


def test_a_log_without_its_index_is_read_from_a_copy(tmp_path, start):
    folder = tmp_path / "runs"
    folder.mkdir()
    child = start(folder / "run.db")
    child.wait_for(10)
    printed = child.kill()
    (folder / "run.db-shm").unlink()
    before = everything_in(folder)
    with SqliteJournal.open_readonly(folder / "run.db") as journal:
        assert set(printed) <= set(cell_ids(journal))
        assert journal.texts(9) == Texts(response="9 " * 9)
    assert everything_in(folder) == before


def test_a_cell_that_only_the_log_holds_is_not_lost(store, measured, tmp_path):
    """A reader at work keeps the main file behind; then the writer is gone and only the log has the last cell."""
    reader = sqlite3.connect(store, isolation_level=None)
    with SqliteJournal.open(store) as journal:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        journal.append(measured(30), Texts("in the log"))
        journal.append(measured(31), Texts("in the log too"))
        folder = tmp_path / "moved"
        folder.mkdir()
        reader.execute("COMMIT")
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{store}{suffix}", folder / f"run.db{suffix}")
    reader.close()
    with SqliteJournal.open_readonly(folder / "run.db") as moved:
        assert cell_ids(moved)[-2:] == [30, 31]
    with SqliteJournal.open(folder / "run.db") as moved:
        assert moved.texts(31) == Texts("in the log too")
