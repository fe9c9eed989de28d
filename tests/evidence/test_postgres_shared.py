"""A database that several gates share: who may write what, what strangers changed, and who gets in at all."""

import os
import threading
import zlib

import psycopg
import pytest

from prefillgate.api.store_address import store_address
from prefillgate.core.journal import CellMeasured, DeadlinePassed, Texts
from prefillgate.evidence import (
    StoreAway,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreExists,
    StoreForeign,
    StoreMissing,
    StoreRefused,
    StoreVersion,
    read_store,
    store_exists,
    store_facts,
)
from prefillgate.evidence.chain import link
from prefillgate.evidence.postgres import PostgresJournal
from prefillgate.evidence.postgres_link import connect

OPENERS = [PostgresJournal.open, PostgresJournal.open_readonly]
both = pytest.mark.parametrize("opener", OPENERS, ids=["for writing", "for reading"])


@pytest.fixture
def run(database, plan, measured, said):
    """The URL of a closed run of the test's own: the plan and five cells with their texts."""
    url = f"{database}?run=night"
    with PostgresJournal.create(url, plan) as journal:
        for cell_id in range(5):
            journal.append(measured(cell_id), said(cell_id))
    return url


def change(run, *statements):
    """Edit a database by hand, as a stranger with psql would."""
    with psycopg.connect(run.partition("?")[0], autocommit=True) as connection:
        for statement in statements:
            connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(statement)


def everything(run):
    with psycopg.connect(run.partition("?")[0]) as connection:
        return [
            connection.execute(f"SELECT * FROM prefillgate.{table} ORDER BY 1, 2").fetchall()
            for table in ("meta", "runs", "events")
        ]


def cell_ids(journal):
    return [event.cell_id for event in journal.events() if isinstance(event, CellMeasured)]


E = "prefillgate.events"
INSERT = f"INSERT INTO {E} (run, seq, cell_id, payload, texts_sha256, digest, texts)"
COPY = f"SELECT run, {{}}, payload, texts_sha256, digest, texts FROM {E} WHERE seq = 4"
EDITS = {
    "a scored row deleted": ([f"DELETE FROM {E} WHERE seq = 3"], "event 3 is missing, event 4 stands in its place"),
    "the first row deleted": ([f"DELETE FROM {E} WHERE seq = 1"], "event 1 is missing"),
    "the last row deleted": (
        [f"DELETE FROM {E} WHERE seq = 6"],
        "closed by event 6, the last one found is 5: events at the end were removed or added",
    ),
    "every row deleted": ([f"DELETE FROM {E}"], "closed by event 6, the last one found is 0"),
    "a row deleted and the gap closed": (
        [f"DELETE FROM {E} WHERE seq = 3", *(f"UPDATE {E} SET seq = {n - 1} WHERE seq = {n}" for n in (4, 5, 6))],
        "event 3 does not follow from event 2: it was altered, or an event was inserted, removed or moved here",
    ),
    "two rows exchanged": (
        [f"UPDATE {E} SET seq = {new} WHERE seq = {old}" for old, new in ((3, 99), (4, 3), (99, 4))],
        "event 3 does not follow from event 2",
    ),
    "a row inserted at the end": ([f"{INSERT} {COPY.format('7, 77')}"], "event 7 does not follow from event 6"),
    "a row inserted before the first": ([f"{INSERT} {COPY.format('0, 77')}"], "event 1 is missing, event 0 stands"),
    "a payload altered": (
        [f"UPDATE {E} SET payload = set_byte(payload, 40, get_byte(payload, 40) # 1) WHERE seq = 4"],
        "event 4 does not follow from event 3",
    ),
    "a digest altered": ([f"UPDATE {E} SET digest = '\\x00' WHERE seq = 2"], "event 2 does not follow"),
    "a cell filed under another id": (
        [f"UPDATE {E} SET cell_id = 9 WHERE seq = 5"],
        "event 5: it is filed under cell 9",
    ),
    "a text altered": (
        [(f"UPDATE {E} SET texts = %s WHERE seq = 3", (zlib.compress(b"{}"),))],
        "event 3: its text was altered",
    ),
    "a text removed": ([f"UPDATE {E} SET texts = NULL WHERE seq = 3"], "event 3: its text was altered"),
    "a text removed with its digest": (
        [f"UPDATE {E} SET texts = NULL, texts_sha256 = NULL WHERE seq = 3"],
        "event 3 does not follow from event 2",
    ),
    "a text that is not compressed": ([f"UPDATE {E} SET texts = '\\x00' WHERE seq = 3"], "event 3: its text was"),
    "the tail altered": (["UPDATE prefillgate.runs SET tail = '5:00'"], "closed by event 5"),
    "the version gone": (["DELETE FROM prefillgate.meta WHERE key = 'schema'"], "the table meta has no schema"),
    "the version no number": (
        ["UPDATE prefillgate.meta SET value = 'one' WHERE key = 'schema'"],
        "version is 'one', not a number",
    ),
    "a column gone": ([f"ALTER TABLE {E} DROP COLUMN digest"], "its tables are not those of a store"),
    "the table events gone": ([f"DROP TABLE {E}"], "its tables are not those of a store"),
    "a column of another kind": (
        [f"ALTER TABLE {E} ALTER COLUMN payload TYPE text USING encode(payload, 'hex')"],
        "event 1 does not follow",
    ),
}


@both
@pytest.mark.parametrize(("statements", "message"), EDITS.values(), ids=EDITS)
def test_an_edited_run_is_refused_and_the_row_named(run, statements, message, opener):
    change(run, *statements)
    with pytest.raises(StoreDamaged) as caught:
        opener(run)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{run}: ")


def test_a_run_that_is_refused_stays_as_it_was(run):
    change(run, EDITS["a payload altered"][0][0])
    before = everything(run)
    for opener in OPENERS:
        with pytest.raises(StoreDamaged):
            opener(run)
    assert everything(run) == before


def test_rows_of_another_run_do_not_fit_into_this_one(run, plan, measured, said):
    other = run.replace("night", "day")
    with PostgresJournal.create(other, plan) as journal:
        for cell_id in (0, 1, 2, 4, 3):
            journal.append(measured(cell_id), said(cell_id))
    change(
        run,
        f"UPDATE {E} a SET digest = b.digest, payload = b.payload FROM {E} b WHERE a.run = 1 AND b.run = 2 "
        "AND a.seq = 5 AND b.seq = 6",
    )
    with pytest.raises(StoreDamaged, match="event 5 does not follow"):
        PostgresJournal.open_readonly(run)
    with PostgresJournal.open_readonly(other) as journal:
        assert cell_ids(journal) == [0, 1, 2, 4, 3]


def test_the_database_itself_refuses_a_cell_measured_twice(run):
    with pytest.raises(psycopg.errors.UniqueViolation):
        change(run, f"{INSERT} SELECT run, 7, cell_id, payload, texts_sha256, digest, texts FROM {E} WHERE seq = 4")


def test_a_text_altered_while_the_run_is_open_is_noticed_when_it_is_read(run):
    with PostgresJournal.open_readonly(run) as reader:
        change(run, f"UPDATE {E} SET texts = NULL WHERE seq = 3", f"DELETE FROM {E} WHERE seq = 4")
        with pytest.raises(StoreDamaged, match=r"run=night: event 3: its text was altered"):
            reader.texts(1)
        with pytest.raises(StoreDamaged, match="event 4 is missing"):
            reader.texts(2)


def test_a_tail_moved_beside_an_open_writer_stops_its_next_append(run, measured):
    with PostgresJournal.open(run) as journal:
        change(run, "UPDATE prefillgate.runs SET tail = '7:00'")
        with pytest.raises(StoreError, match=r"changed from outside. Open it again"):
            journal.append(measured(9))
        assert len(journal.events()) == 6


def test_an_event_of_a_newer_version_under_an_intact_chain_is_no_damage(run):
    with PostgresJournal.open_readonly(run) as journal:
        tail = journal.tail
    payload = b'{"at":1.0,"kind":"CellPainted"}'
    digest = link(bytes.fromhex(tail.partition(":")[2]), payload, None)
    change(
        run,
        (f"{INSERT} VALUES (1, 7, NULL, %s, NULL, %s, NULL)", (payload, digest)),
        ("UPDATE prefillgate.runs SET tail = %s", (f"7:{digest.hex()}",)),
    )
    with pytest.raises(StoreVersion, match=r"event 7 was written by a newer prefillgate: .*CellPainted.* Upgrade"):
        PostgresJournal.open_readonly(run)


@both
def test_a_missing_run_is_not_made_by_opening_it_and_those_there_are_named(run, plan, opener, database):
    PostgresJournal.create(run.replace("night", "day"), plan).close()
    before = everything(run)
    with pytest.raises(StoreMissing, match=r"no run noon\. Runs in this database, the latest first: day, night\. Name"):
        opener(run.replace("night", "noon"))
    with pytest.raises(StoreMissing, match=r"no run is named\. Runs in this database, the latest first: day, night\."):
        opener(database)
    assert everything(run) == before
    assert store_exists(store_address(run))
    assert not store_exists(store_address(run.replace("night", "noon")))


@both
def test_a_database_without_a_store_stays_without(database, opener):
    with pytest.raises(StoreMissing, match=r"no evidence store in this database. `prefillgate run` makes one"):
        opener(f"{database}?run=night")
    assert not store_exists(store_address(f"{database}?run=night"))
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regnamespace('prefillgate')").fetchone() == (None,)


@both
def test_a_schema_of_that_name_that_is_not_ours_is_left_untouched(database, opener, plan):
    change(database, "CREATE SCHEMA prefillgate", "CREATE TABLE prefillgate.holiday (photo bytea)")
    for attempt in (opener, lambda url: PostgresJournal.create(url, plan)):
        with pytest.raises(StoreForeign, match=r"not an evidence store. It was left untouched"):
            attempt(f"{database}?run=night")
    with psycopg.connect(database) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'prefillgate'").fetchall()
    assert tables == [("holiday",)]


def test_a_new_run_never_replaces_one(run, plan):
    with pytest.raises(StoreExists, match=r"there is such a run already. Open it to resume it, or name another"):
        PostgresJournal.create(run, plan)
    with pytest.raises(StoreMissing, match="no run is named"):
        PostgresJournal.create(run.partition("?")[0], plan)


def test_a_second_writer_is_told_which_process_has_the_run(run, start, measured):
    child = start(run)
    with pytest.raises(StoreBusy) as caught:
        PostgresJournal.open(run)
    assert f"{run}: process {child.process.pid} on " in str(caught.value)
    assert "this very process" not in str(caught.value)
    child.kill()


def test_a_second_writer_in_the_same_process_is_refused_too(run, measured):
    with PostgresJournal.open(run) as journal:
        with pytest.raises(StoreBusy, match=rf"process {os.getpid()} on .*, since .* \(this very process\) is"):
            PostgresJournal.open(run)
        journal.append(measured(9))
    with PostgresJournal.open(run) as journal:
        assert cell_ids(journal) == [0, 1, 2, 3, 4, 9]


def outcomes(count, work):
    """What that many threads got that began at once: journals, and the errors of the others."""
    won, lost = [], []
    barrier = threading.Barrier(count)

    def each():
        barrier.wait()
        try:
            won.append(work())
        except StoreError as error:
            lost.append(error)

    threads = [threading.Thread(target=each) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for journal in won:
        journal.close()
    return won, lost


def test_of_many_that_open_a_run_at_once_one_gets_it(run):
    won, lost = outcomes(8, lambda: PostgresJournal.open(run))
    assert len(won) == 1
    assert [type(error) for error in lost] == [StoreBusy] * 7


def test_of_many_that_make_a_run_at_once_one_does(database, plan):
    won, lost = outcomes(6, lambda: PostgresJournal.create(f"{database}?run=night", plan))
    assert len(won) == 1
    assert [type(error) for error in lost] == [StoreExists] * 5
    assert won[0].events() == (plan,)


def test_eight_gates_share_one_database_from_its_first_moment(database, start, said):
    urls = [f"{database}?run=gate-{number}" for number in range(8)]
    children = []
    for url in urls:
        children.append(start(url))
    for child in children:
        child.wait_for(15)
    facts = {each.store: each for each in store_facts(store_address(database))}
    assert list(facts) == list(reversed(urls))
    for url, child in zip(urls, children, strict=True):
        assert str(facts[url].writer).startswith(f"process {child.process.pid} on ")
        assert facts[url].cells >= 15
        assert facts[url].events == facts[url].cells + 1
        assert facts[url].kept_bytes > 1000
    for url, child in zip(urls, children, strict=True):
        printed = child.kill()
        with PostgresJournal.open_readonly(url) as journal:
            ids = cell_ids(journal)
            assert ids == list(range(len(ids)))
            assert set(printed) <= set(ids)
            assert journal.texts(9) == Texts(response="9 " * 9)


def test_a_read_only_journal_is_the_run_as_it_was_when_opened(run, measured):
    with PostgresJournal.open(run) as writer, PostgresJournal.open_readonly(run) as reader:
        writer.append(measured(20), Texts("later"))
        assert cell_ids(reader) == [0, 1, 2, 3, 4]
        assert reader.texts(20) is None
        with pytest.raises(StoreRefused, match="opened for reading only"):
            reader.append(DeadlinePassed(1.0))


def test_a_run_is_read_whole_while_another_process_writes_it(database, start):
    url = f"{database}?run=night"
    child = start(url)
    child.wait_for(3)
    before = 0
    for _ in range(10):
        printed = list(child.printed)
        with PostgresJournal.open_readonly(url) as journal:
            ids = cell_ids(journal)
            assert ids == list(range(len(ids)))
            assert set(printed) <= set(ids)
            assert len(ids) >= before
            before = len(ids)
        child.wait_for(len(printed) + 1)
    child.kill()


def test_reading_changes_nothing_and_needs_no_more_than_select(run, server):
    name = run.rpartition("/")[2].partition("?")[0]
    server.ask("DROP ROLE IF EXISTS onlooker")
    server.ask("CREATE ROLE onlooker LOGIN")
    change(
        run,
        "GRANT USAGE ON SCHEMA prefillgate TO onlooker",
        "GRANT SELECT ON ALL TABLES IN SCHEMA prefillgate TO onlooker",
    )
    before = everything(run)
    url = f"{server.address(name, 'onlooker')}?run=night"
    with PostgresJournal.open_readonly(url) as journal:
        assert journal.texts(3) is not None
        with pytest.raises(StoreError, match=r"the role may not do that. Grant it the schema prefillgate"):
            PostgresJournal.open(url)
    assert everything(run) == before
    change(run, "DROP OWNED BY onlooker")


def test_a_role_that_may_write_the_tables_needs_nothing_more(run, server, measured, plan):
    name = run.rpartition("/")[2].partition("?")[0]
    server.ask("DROP ROLE IF EXISTS gate")
    server.ask("CREATE ROLE gate LOGIN")
    change(
        run,
        "GRANT USAGE ON SCHEMA prefillgate TO gate",
        "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA prefillgate TO gate",
    )
    with PostgresJournal.open(f"{server.address(name, 'gate')}?run=night") as journal:
        journal.append(measured(9))
    PostgresJournal.create(f"{server.address(name, 'gate')}?run=new", plan).close()
    change(run, "DROP OWNED BY gate")


def test_a_read_only_server_is_told_before_a_cell_is_paid(run):
    read_only = f"{run}&options=-c%20default_transaction_read_only%3Don"
    with pytest.raises(StoreError, match="it can only be read: a standby, or a read-only transaction"):
        PostgresJournal.open(read_only)
    with PostgresJournal.open_readonly(read_only) as journal:
        assert len(journal.events()) == 6


FULL = """CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"""


def test_a_full_disk_is_named_and_the_journal_goes_on_when_there_is_space(run, measured):
    """The server's own error, raised by a trigger: filling a real disk would fill that of every test."""
    with PostgresJournal.open(run) as journal:
        change(run, FULL, f"CREATE TRIGGER full_disk BEFORE INSERT ON {E} EXECUTE FUNCTION full_disk()")
        with pytest.raises(StoreError, match=r"disk is full. Everything committed before is safe.*could not extend"):
            journal.append(measured(9), Texts("kept"))
        assert len(journal.events()) == 6
        change(run, f"DROP TRIGGER full_disk ON {E}")
        journal.append(measured(9), Texts("kept"))
    with PostgresJournal.open_readonly(run) as journal:
        assert journal.texts(9) == Texts("kept")


def test_a_commit_is_on_the_disk_when_it_returns_whatever_the_role_was_set_to(run):
    settings = [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
    for asked, got in settings:
        with connect(store_address(f"{run}&options=-c%20synchronous_commit%3D{asked}")) as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == (got,)


def test_what_the_url_says_of_the_connection_goes_before_our_own(run):
    with connect(store_address(run)) as connection:
        assert connection.info.get_parameters()["tcp_user_timeout"] == "30000"
        assert connection.execute("SHOW tcp_keepalives_idle").fetchone() == ("30",)
    with connect(store_address(f"{run}&tcp_user_timeout=5000&application_name=mine")) as connection:
        assert connection.info.get_parameters()["tcp_user_timeout"] == "5000"
        assert connection.execute("SHOW application_name").fetchone() == ("mine",)


def test_a_password_comes_from_the_environment_a_file_or_a_service(run, server, tmp_path, monkeypatch):
    server.ask("DROP ROLE IF EXISTS locked")
    server.ask("CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'open sesame'")
    name = run.rpartition("/")[2].partition("?")[0]
    url = f"{server.address(name, 'locked')}?run=night"

    def opens(address):
        with read_store(store_address(address)) as journal:
            return len(journal.events()) == 6

    with pytest.raises(StoreError, match=r"the login was refused.*a password comes from PGPASSWORD") as caught:
        opens(url)
    assert not isinstance(caught.value, StoreAway)
    monkeypatch.setenv("PGPASSWORD", "wrong word")
    with pytest.raises(StoreError, match="the login was refused") as caught:
        opens(url)
    assert "wrong word" not in str(caught.value)
    monkeypatch.setenv("PGPASSWORD", "open sesame")
    assert opens(url)
    monkeypatch.delenv("PGPASSWORD")
    passfile = tmp_path / "passwords"
    passfile.write_text(f"127.0.0.1:{server.port}:*:locked:open sesame\n")
    passfile.chmod(0o600)
    assert opens(f"{url}&passfile={passfile}")
    services = tmp_path / "services"
    services.write_text(
        f"[evidence]\nhost=127.0.0.1\nport={server.port}\ndbname={name}\nuser=locked\npassword=open sesame\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    assert opens("postgresql://?service=evidence&run=night")


def test_a_server_that_is_not_there_is_away_and_no_url_is_bad(run, server):
    closed = run.replace(str(server.port), "1")
    with pytest.raises(StoreAway, match="the server cannot be reached, or went away"):
        PostgresJournal.open(closed)
    with pytest.raises(StoreMissing, match=r"there is no such database. Create it, or check the URL"):
        PostgresJournal.open(server.address("nowhere") + "?run=night")
    with pytest.raises(StoreForeign, match=r"libpq cannot read this URL: .*sslmod"):
        PostgresJournal.open(f"{run}&sslmod=require")
    with pytest.raises(StoreForeign, match='invalid URI query parameter: "passwort"') as unknown:
        PostgresJournal.open(f"{run}&passwort=my-own")
    assert "my-own" not in str(unknown.value)
    with pytest.raises(StoreForeign, match=r"libpq cannot use this URL.*invalid sslmode value"):
        PostgresJournal.open(f"{run}&sslmode=bogus")
    with pytest.raises(StoreError, match=r"TLS was asked for and could not be agreed on.*SSL"):
        PostgresJournal.open(f"{run}&sslmode=require")
