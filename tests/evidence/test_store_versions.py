"""A store in a file, led from one version of its tables to the next and back, with everything in it."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from prefillgate.core.journal import Texts
from prefillgate.evidence import SqliteJournal, StoreVersion, schema
from prefillgate.evidence.versions import FIRST, SCHEMA, Step, lost_by

WRITTEN_BY_VERSION_1 = Path(__file__).with_name("stores") / "schema1.store"
TAIL_OF_VERSION_1 = "6:502fbbb4769948c6154cdcd74a461b01400aca32cb960e6e3f7e1bfbfffce9d0"
NEXT = {
    **schema.STEPS,
    SCHEMA: Step(
        ("ALTER TABLE events ADD COLUMN weight INTEGER", "UPDATE events SET weight = seq"),
        ("ALTER TABLE events DROP COLUMN weight",),
        "the weights",
    ),
}


@pytest.fixture
def old(tmp_path):
    """A store that the version before wrote, in a folder of the test's own."""
    path = tmp_path / "run.db"
    shutil.copyfile(WRITTEN_BY_VERSION_1, path)
    return path


def dump(path):
    """Everything in a store but its version: tables as they are described, and every row."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
        rows = connection.execute("SELECT * FROM events ORDER BY seq").fetchall()
        meta = connection.execute("SELECT * FROM meta WHERE key <> 'schema' ORDER BY key").fetchall()
        return [(name, None if sql is None else " ".join(sql.split())) for name, sql in tables], rows, meta


def version(path):
    with closing(sqlite3.connect(path)) as connection:
        return schema.meta(connection, "schema")


def led(path, target, steps=schema.STEPS):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return schema.migrate(connection, path, target, steps)


def test_a_store_of_the_version_before_is_read_as_it_is(old, said):
    before = old.read_bytes()
    with SqliteJournal.open_readonly(old) as journal:
        assert journal.tail == TAIL_OF_VERSION_1
        assert [journal.texts(cell_id) for cell_id in range(5)] == [said(cell_id) for cell_id in range(5)]
    assert old.read_bytes() == before
    assert [path.name for path in old.parent.iterdir()] == ["run.db"]


def test_opening_the_version_before_for_writing_copies_it_and_leads_it_up(old, measured):
    before = old.read_bytes()
    with SqliteJournal.open(old) as journal:
        assert journal.tail == TAIL_OF_VERSION_1
        journal.append(measured(10), Texts("later"))
    assert version(old) == str(SCHEMA) == "3"
    assert old.with_name("run.db-schema1.bak").read_bytes()[100:] == before[100:]  # but for SQLite's own counters
    with closing(sqlite3.connect(old)) as connection:
        written = [row[0] for row in connection.execute("SELECT written_at FROM events ORDER BY seq")]
    assert written[:6] == [None] * 6
    assert written[6] > 1_700_000_000
    with SqliteJournal.open_readonly(old) as journal:
        assert journal.texts(10) == Texts("later")
        assert len(journal.events()) == 7


def test_up_and_back_again_leaves_what_was_there(old):
    tables, rows, meta = dump(old)
    led(old, SCHEMA)
    assert dump(old) != (tables, rows, meta)
    led(old, FIRST)
    assert dump(old) == (tables, rows, meta)
    assert version(old) == "1"
    with SqliteJournal.open_readonly(old) as journal:
        assert journal.tail == TAIL_OF_VERSION_1


def test_back_to_the_version_before_keeps_every_event_and_text(store, measured, said):
    with SqliteJournal.open(store) as journal:
        journal.append(measured(10), Texts("last"))
        tail = journal.tail
    copy = led(store, FIRST)
    assert copy == store.with_name("run.db-schema3.bak")
    with closing(sqlite3.connect(store)) as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(events)")]
    assert names == ["seq", "cell_id", "payload", "texts_sha256", "digest", "texts"]
    for path in (store, copy):
        with SqliteJournal.open_readonly(path) as journal:
            assert journal.tail == tail
            assert journal.texts(10) == Texts("last")
            assert journal.texts(3) == said(3)


def test_several_steps_are_taken_in_order_and_back_in_the_other(store):
    assert led(store, SCHEMA + 1, NEXT) == store.with_name("run.db-schema3.bak")
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("SELECT sum(weight) FROM events").fetchone() == (21,)
    assert version(store) == "4"
    led(store, FIRST, NEXT)
    assert version(store) == "1"
    led(store, SCHEMA + 1, NEXT)
    with SqliteJournal.open_readonly(led(store, SCHEMA, NEXT).with_name("run.db")) as journal:
        assert len(journal.events()) == 6
    assert lost_by(NEXT, SCHEMA + 1, FIRST) == (
        "the weights",
        "the highest token of a writer",
        "when each event was written",
    )
    assert lost_by(NEXT, FIRST, SCHEMA + 1) == ()


@pytest.mark.parametrize("target", [SCHEMA + 1, FIRST])
def test_a_migration_that_breaks_off_leaves_the_store_as_it_was(store, target):
    broken = Step(("UPDATE events SET texts = NULL", "power cut"), ("DELETE FROM events", "power cut"), "all")
    before = dump(store)
    with pytest.raises(sqlite3.OperationalError):
        led(store, target, {**schema.STEPS, SCHEMA: broken, FIRST: broken})
    assert dump(store) == before
    assert version(store) == "3"
    with SqliteJournal.open(store) as journal:
        assert len(journal.events()) == 6


@pytest.mark.parametrize("target", [SCHEMA + 2, FIRST - 1])
def test_a_step_that_is_missing_stops_the_migration_before_the_copy(store, target):
    with pytest.raises(StoreVersion, match=f"does not know how to get from there to {target}"):
        led(store, target, NEXT)
    assert led(store, SCHEMA) is None
    assert not list(store.parent.glob("*.bak*"))
