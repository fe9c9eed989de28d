"""A store that is not what was written, and files that never were a store: reported, and left as they are."""

import random
import sqlite3
import zlib
from pathlib import PureWindowsPath

import pytest

from prefillgate.core.journal import DeadlinePassed, Texts
from prefillgate.evidence import (
    SqliteJournal,
    StoreDamaged,
    StoreError,
    StoreExists,
    StoreForeign,
    StoreMissing,
    StoreVersion,
)
from prefillgate.evidence.chain import link
from prefillgate.evidence.files import uri

OPENERS = [SqliteJournal.open, SqliteJournal.open_readonly]


def change(path, *statements):
    """Edit a store by hand, as a stranger with the sqlite3 shell would."""
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(statement)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def contents(journal):
    return journal.events(), [journal.texts(cell_id) for cell_id in range(5)]


INSERT = "INSERT INTO events (seq, cell_id, payload, texts_sha256, digest, texts)"
COPY = "SELECT {}, payload, texts_sha256, digest, texts FROM events WHERE seq = 4"
EDITS = {
    "a scored row deleted": (["DELETE FROM events WHERE seq = 3"], "event 3 is missing, event 4 stands in its place"),
    "the first row deleted": (["DELETE FROM events WHERE seq = 1"], "event 1 is missing"),
    "the last row deleted": (
        ["DELETE FROM events WHERE seq = 6"],
        "closed by event 6, the last one found is 5: events at the end were removed or added",
    ),
    "every row deleted": (["DELETE FROM events"], "closed by event 6, the last one found is 0"),
    "a row deleted and the gap closed": (
        ["DELETE FROM events WHERE seq = 3", "UPDATE events SET seq = seq - 1 WHERE seq > 3"],
        "event 3 does not follow from event 2: it was altered, or an event was inserted, removed or moved here",
    ),
    "two rows exchanged": (
        [f"UPDATE events SET seq = {new} WHERE seq = {old}" for old, new in ((3, 99), (4, 3), (99, 4))],
        "event 3 does not follow from event 2",
    ),
    "a row inserted at the end": ([f"{INSERT} {COPY.format('7, 77')}"], "event 7 does not follow from event 6"),
    "a row inserted before the first": ([f"{INSERT} {COPY.format('0, 77')}"], "event 1 is missing, event 0 stands"),
    "an outcome altered": (
        ["""UPDATE events SET payload = CAST(replace(payload, '"bad":false', '"bad":true') AS BLOB) WHERE seq = 4"""],
        "event 4 does not follow from event 3",
    ),
    "a payload that is text": (["UPDATE events SET payload = 'x' WHERE seq = 4"], "event 4 does not follow"),
    "a digest altered": (["UPDATE events SET digest = zeroblob(32) WHERE seq = 2"], "event 2 does not follow"),
    "a cell filed under another id": (
        ["UPDATE events SET cell_id = 9 WHERE seq = 5"],
        "event 5: it is filed under cell 9",
    ),
    "a cell filed under none": (
        ["UPDATE events SET cell_id = NULL WHERE seq = 5"],
        "event 5: it is filed under cell None",
    ),
    "a text altered": (
        [("UPDATE events SET texts = ? WHERE seq = 3", (zlib.compress(b"{}"),))],
        "event 3: its text was altered",
    ),
    "a text removed": (["UPDATE events SET texts = NULL WHERE seq = 3"], "event 3: its text was altered"),
    "a text removed with its digest": (
        ["UPDATE events SET texts = NULL, texts_sha256 = NULL WHERE seq = 3"],
        "event 3 does not follow from event 2",
    ),
    "a text that is not compressed": (
        ["UPDATE events SET texts = x'00' WHERE seq = 3"],
        "event 3: its text was altered",
    ),
    "a text that is a number": (["UPDATE events SET texts = 5 WHERE seq = 3"], "event 3: its text was altered"),
    "the tail altered": (["UPDATE meta SET value = '5:00' WHERE key = 'tail'"], "closed by event 5"),
    "the tail gone": (["DELETE FROM meta WHERE key = 'tail'"], "the table meta has no tail"),
    "the version gone": (["DELETE FROM meta WHERE key = 'schema'"], "the table meta has no schema"),
    "the version no number": (["UPDATE meta SET value = 'one' WHERE key = 'schema'"], "version is 'one', not a number"),
    "the table meta gone": (["DROP TABLE meta"], "its tables are not those of a store"),
    "the table events gone": (["DROP TABLE events"], "its tables are not those of a store"),
}


@pytest.mark.parametrize("opener", OPENERS, ids=["for writing", "for reading"])
@pytest.mark.parametrize(("statements", "message"), EDITS.values(), ids=EDITS)
def test_an_edited_store_is_refused_and_the_row_named(store, statements, message, opener):
    change(store, *statements)
    before = store.read_bytes()
    with pytest.raises(StoreDamaged) as caught:
        opener(store)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{store}: ")
    assert "Nothing was repaired. Restore the store from a copy" in str(caught.value)
    assert store.read_bytes() == before


def test_a_text_that_is_altered_while_the_store_is_open_is_noticed_when_it_is_read(store):
    with SqliteJournal.open_readonly(store) as reader:
        change(store, "UPDATE events SET texts = NULL WHERE seq = 3", "DELETE FROM events WHERE seq = 4")
        with pytest.raises(StoreDamaged, match="event 3: its text was altered"):
            reader.texts(1)
        with pytest.raises(StoreDamaged, match="event 4 is missing"):
            reader.texts(2)


def test_an_event_slipped_in_beside_an_open_writer_stops_its_next_append(store, measured):
    with SqliteJournal.open(store) as journal:
        change(store, "UPDATE meta SET value = '7:00' WHERE key = 'tail'")
        with pytest.raises(StoreError, match=r"changed from outside. Open it again"):
            journal.append(measured(9))
        assert len(journal.events()) == 6


@pytest.mark.parametrize("share", [0.001, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.99999])
@pytest.mark.parametrize("opener", OPENERS, ids=["for writing", "for reading"])
def test_a_store_cut_short_anywhere_is_refused_and_not_mended(store, share, opener):
    whole = store.read_bytes()
    cut = whole[: int(len(whole) * share)]
    store.write_bytes(cut)
    with pytest.raises(StoreDamaged):
        opener(store)
    assert store.read_bytes() == cut


def test_a_store_emptied_to_nothing_is_known_by_its_lock_file(store):
    store.write_bytes(b"")
    with pytest.raises(StoreDamaged, match="there was an evidence store here, but the start of the file is lost"):
        SqliteJournal.open_readonly(store)


def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing_that_is_read(store):
    whole = store.read_bytes()
    page_size = int.from_bytes(whole[16:18], "big")
    with SqliteJournal.open_readonly(store) as journal:
        expected = contents(journal)
    rng = random.Random(3)
    offsets = {0, 15, 16, 18, 19, 20, 28, 31, 44, 47, 56, 59, 68, 71, 92, 99}
    for page in range(len(whole) // page_size):
        start = page * page_size
        offsets |= {start + index for index in (0, 1, 3, 5, 8, 12)} | {
            start + rng.randrange(page_size) for _ in range(14)
        }
    refused = 0
    for number, offset in enumerate(sorted(offsets)):
        torn = bytearray(whole)
        torn[offset] ^= 1 << rng.randrange(8)
        store.write_bytes(torn)
        opener = OPENERS[1] if number % 8 else OPENERS[0]
        try:
            with opener(store) as journal:
                assert contents(journal) == expected
        except StoreError:
            refused += 1
            assert store.read_bytes() == torn
        for suffix in ("-wal", "-shm"):
            store.with_name(store.name + suffix).unlink(missing_ok=True)
    assert refused > len(offsets) // 2


@pytest.mark.parametrize("opener", OPENERS, ids=["for writing", "for reading"])
def test_an_index_that_disagrees_with_its_table_is_damage_though_every_row_is_whole(store, opener):
    """Such an index would let a cell be measured twice."""
    connection = sqlite3.connect(store)
    names = "name LIKE 'sqlite_autoindex_events%'"
    page = connection.execute(f"SELECT rootpage FROM sqlite_schema WHERE {names}").fetchone()[0]
    page_size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    torn = bytearray(store.read_bytes())
    torn[page * page_size - 1] ^= 0x40  # the last byte of the page is the row number of the first entry
    store.write_bytes(torn)
    with pytest.raises(StoreDamaged, match="SQLite's check of the file failed"):
        opener(store)


def foreign_files(folder):
    other = folder / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE holiday (photo BLOB)")
    connection.commit()
    connection.close()
    (folder / "empty.db").write_bytes(b"")
    (folder / "notes.txt").write_bytes(b"dear diary\n" * 1000)
    (folder / "almost.db").write_bytes(b"SQLite format 3\x00")
    (folder / "zeros.db").write_bytes(bytes(100_000))


@pytest.mark.parametrize("opener", OPENERS, ids=["for writing", "for reading"])
@pytest.mark.parametrize("name", ["other.db", "empty.db", "notes.txt", "almost.db", "zeros.db"])
def test_a_foreign_file_is_refused_by_name_and_left_untouched(tmp_path, name, opener):
    foreign_files(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(StoreForeign) as caught:
        opener(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "left untouched" in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("opener", OPENERS, ids=["for writing", "for reading"])
def test_a_missing_store_is_not_made_by_opening_it(tmp_path, opener):
    with pytest.raises(StoreMissing, match=r"run\.db: there is no evidence store\. Check the path"):
        opener(tmp_path / "run.db")
    with pytest.raises(StoreMissing):
        opener(tmp_path / "nowhere" / "run.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("opener", OPENERS, ids=["for writing", "for reading"])
def test_a_folder_is_not_a_store(tmp_path, opener):
    with pytest.raises(StoreForeign, match="this is a folder"):
        opener(tmp_path)


def test_a_new_store_never_replaces_a_file(tmp_path, store, plan):
    foreign_files(tmp_path)
    for name in ("run.db", "notes.txt", "empty.db"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(StoreExists, match=r"there is a file already. Open it to resume its run"):
            SqliteJournal.create(tmp_path / name, plan)
        assert (tmp_path / name).read_bytes() == before


def test_a_store_below_a_file_cannot_be_made_and_the_cause_is_chained(tmp_path, plan):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError) as caught:
        SqliteJournal.create(tmp_path / "file" / "run.db", plan)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_lock_file_that_is_none_is_named(store):
    lock = store.with_name("run.db-lock")
    lock.write_bytes(b"not a lock" * 1000)
    with pytest.raises(StoreError, match=r"run\.db-lock: not a lock file of prefillgate .* Remove it if no run"):
        SqliteJournal.open(store)
    lock.unlink()
    SqliteJournal.open(store).close()


@pytest.mark.parametrize("name", ["with space #1?x=%20.db", "größe.db", "a'b;c&d.db", "[x]{y}.db"])
def test_a_store_may_have_any_name(tmp_path, plan, measured, name):
    path = tmp_path / "deep er" / name
    with SqliteJournal.create(path, plan) as journal:
        journal.append(measured(0))
    with SqliteJournal.open_readonly(str(path)) as journal:
        assert len(journal.events()) == 2
    assert {entry.name for entry in path.parent.iterdir()} == {name, f"{name}-lock"}


def test_a_relative_path_and_a_link_lead_to_the_same_store(store, monkeypatch):
    monkeypatch.chdir(store.parent)
    with SqliteJournal.open_readonly("run.db") as journal:
        assert journal.path == store
    (store.parent / "link.db").symlink_to(store)
    with SqliteJournal.open("link.db") as journal:
        assert journal.path == store
    assert not (store.parent / "link.db-lock").exists()


def test_windows_drives_and_shares_become_uris_that_sqlite_reads():
    assert uri(PureWindowsPath(r"C:\Users\a b\run.db"), "rw") == "file:///C:/Users/a%20b/run.db?mode=rw"
    assert uri(PureWindowsPath(r"\\server\share\run.db"), "ro") == "file:////server/share/run.db?mode=ro"
    assert uri(PureWindowsPath(r"D:\50%#?.db"), "immutable") == "file:///D:/50%25%23%3F.db?mode=ro&immutable=1"


@pytest.mark.parametrize("opener", OPENERS, ids=["for writing", "for reading"])
def test_a_store_of_a_newer_schema_names_both_versions(store, opener):
    change(
        store,
        "UPDATE meta SET value = '7' WHERE key = 'schema'",
        "UPDATE meta SET value = 'prefillgate 9.1' WHERE key = 'created_by'",
    )
    before = store.read_bytes()
    with pytest.raises(StoreVersion, match=r"schema version 7 \(prefillgate 9\.1\).* knows versions up to 3\. Upgrade"):
        opener(store)
    assert store.read_bytes() == before


@pytest.mark.parametrize("opener", OPENERS, ids=["for writing", "for reading"])
def test_an_older_schema_that_no_step_leads_on_from_is_refused(store, opener):
    change(store, "UPDATE meta SET value = '0' WHERE key = 'schema'")
    with pytest.raises(StoreVersion, match=r"schema version 0 .*this prefillgate .*reads 1 to 3"):
        opener(store)
    assert not list(store.parent.glob("*.bak"))


def test_an_event_of_a_newer_version_under_an_intact_chain_is_no_damage(store):
    connection = sqlite3.connect(store)
    tail = connection.execute("SELECT value FROM meta WHERE key = 'tail'").fetchone()[0]
    connection.close()
    payload = b'{"at":1.0,"kind":"CellPainted"}'
    digest = link(bytes.fromhex(tail.partition(":")[2]), payload, None)
    change(
        store,
        (f"{INSERT} VALUES (7, NULL, ?, NULL, ?, NULL)", (payload, digest)),
        ("UPDATE meta SET value = ? WHERE key = 'tail'", (f"7:{digest.hex()}",)),
    )
    with pytest.raises(StoreVersion, match=r"event 7 was written by a newer prefillgate: .*CellPainted.* Upgrade"):
        SqliteJournal.open_readonly(store)


def test_a_full_disk_is_named_and_the_journal_goes_on_when_there_is_space(store, measured):
    with SqliteJournal.open(store) as journal:
        connection = journal._keeper.connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        noise = Texts(response=random.Random(2).randbytes(100_000).hex())
        with pytest.raises(StoreError, match=r"the disk is full. Everything committed before is safe") as caught:
            journal.append(measured(9), noise)
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert len(journal.events()) == 6
        connection.execute("PRAGMA max_page_count = 1000000")
        journal.append(measured(9), noise)
    with SqliteJournal.open_readonly(store) as journal:
        assert journal.texts(9) == noise


def test_a_store_that_cannot_be_written_says_so(store):
    with SqliteJournal.open(store) as journal:
        journal._keeper.connection.execute("PRAGMA query_only = 1")
        with pytest.raises(StoreError, match=r"cannot be written. Check the permissions of the file and its folder"):
            journal.append(DeadlinePassed(1.0))
