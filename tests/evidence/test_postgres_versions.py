"""The tables of a shared database, led from one version to the next and back while other gates are at work."""

import psycopg
import pytest

from prefillgate.api.store_address import store_address
from prefillgate.core.journal import CellMeasured, Texts
from prefillgate.evidence import (
    StoreBusy,
    StoreVersion,
    migrate_store,
    postgres,
    postgres_schema,
    store_facts,
    versions,
)
from prefillgate.evidence.postgres import PostgresJournal
from prefillgate.evidence.versions import FIRST, SCHEMA, Step

TABLES = """SELECT table_name, column_name, data_type, column_default, is_nullable FROM information_schema.columns
  WHERE table_schema = 'prefillgate' ORDER BY table_name, ordinal_position"""
ROWS = "SELECT run, seq, cell_id, payload, texts_sha256, digest, texts FROM prefillgate.events ORDER BY run, seq"
RUNS = "SELECT run, name, created_by, tail FROM prefillgate.runs ORDER BY run"

BEFORE = {  # what the versions before the third asked of the server
    "INSERT_RUN": """INSERT INTO prefillgate.runs (name, created_by, tail, writer, writer_backend)
VALUES (%(name)s, %(created_by)s, %(tail)s, %(writer)s, pg_backend_pid()) RETURNING run""",
    "COMMIT": """WITH moved AS (
  UPDATE prefillgate.runs SET tail = %(new_tail)s WHERE run = %(run)s AND tail = %(tail)s RETURNING run)
INSERT INTO prefillgate.events (run, seq, cell_id, payload, texts_sha256, digest, texts)
SELECT run, %(seq)s::bigint, %(cell_id)s::bigint, %(payload)b::bytea, %(texts_sha256)b::bytea, %(digest)b::bytea,
  %(texts)b::bytea FROM moved""",
    "token": lambda connection, run: None,
    "raise_token": lambda connection, right: None,
}


@pytest.fixture
def runs(database, plan, measured, said):
    """The URLs of two closed runs of one database."""
    urls = [f"{database}?run={name}" for name in ("day", "night")]
    for url in urls:
        with PostgresJournal.create(url, plan) as journal:
            for cell_id in range(4):
                journal.append(measured(cell_id), said(cell_id))
    return urls


@pytest.fixture
def older(monkeypatch):
    """Turns this process into the prefillgate before: it knows version 1 and nothing later. And back."""

    now = {name: getattr(postgres_schema, name) for name in BEFORE}

    def become(version=FIRST):
        for module in (versions, postgres, postgres_schema):
            monkeypatch.setattr(module, "SCHEMA", version)
        for name, old in BEFORE.items():
            monkeypatch.setattr(postgres_schema, name, now[name] if version == SCHEMA else old)

    return become


def look(url, statement):
    with psycopg.connect(url.partition("?")[0]) as connection:
        return connection.execute(statement).fetchall()


def to(url, version):
    return migrate_store(store_address(url), version)


def ids(journal):
    return [event.cell_id for event in journal.events() if isinstance(event, CellMeasured)]


def test_back_and_up_again_keeps_every_run_event_and_text(runs, said):
    rows, kept, tables = look(runs[0], ROWS), look(runs[0], RUNS), look(runs[0], TABLES)
    moved = to(runs[0], FIRST)
    assert (moved.before, moved.lost, moved.copy) == (
        3,
        ("the highest token of a writer", "when each event was written"),
        None,
    )
    assert (look(runs[0], ROWS), look(runs[0], RUNS)) == (rows, kept)
    assert not {"written_at", "fence_token"} & {column for _, column, *_ in look(runs[0], TABLES)}
    assert [facts.version for facts in store_facts(store_address(runs[0]))] == [1]
    for url in runs:
        with PostgresJournal.open_readonly(url) as journal:  # read as it is
            assert journal.texts(3) == said(3)
    assert to(runs[1], SCHEMA).lost == ()
    assert look(runs[0], TABLES) == tables
    assert (look(runs[0], ROWS), look(runs[0], RUNS)) == (rows, kept)
    assert to(runs[1], SCHEMA).before == SCHEMA


def test_tables_made_by_the_version_before_are_those_that_going_back_leaves(runs, server, older, plan):
    to(runs[0], FIRST)
    older()
    other = server.new_database()
    PostgresJournal.create(f"{other}?run=day", plan).close()
    assert look(other, TABLES) == look(runs[0], TABLES)


def test_the_version_before_writes_after_going_back_and_the_newer_one_leads_up(runs, older, measured):
    older()
    with pytest.raises(StoreVersion, match=r"schema version 3 .* versions up to 1\. Upgrade .*migrate STORE --to 1"):
        PostgresJournal.open(runs[0])
    with pytest.raises(StoreVersion, match="knows versions up to 1"):
        PostgresJournal.open_readonly(runs[0])
    older(SCHEMA)
    to(runs[0], FIRST)
    older()
    with PostgresJournal.open(runs[0]) as journal:
        journal.append(measured(10), Texts("by the older one"))
    older(SCHEMA)
    with PostgresJournal.open(runs[0]) as journal:
        journal.append(measured(11), Texts("by the newer one"))
        assert journal.texts(10) == Texts("by the older one")
    written = look(runs[0], "SELECT written_at IS NULL FROM prefillgate.events WHERE run = 1 ORDER BY seq")
    assert written == [(True,)] * 6 + [(False,)]
    with PostgresJournal.open_readonly(runs[1]) as journal:
        assert ids(journal) == [0, 1, 2, 3]


def test_a_newer_gate_does_not_change_the_tables_under_a_run(runs, older, measured):
    to(runs[0], FIRST)
    older()
    with PostgresJournal.open(runs[0]) as at_work:
        older(SCHEMA)
        for attempt in (lambda: PostgresJournal.open(runs[1]), lambda: to(runs[1], SCHEMA)):
            with pytest.raises(
                StoreBusy, match=r"in use and cannot be changed under a run: process .* \(run day\)\. W"
            ):
                attempt()
        older()
        at_work.append(measured(10), Texts("undisturbed"))
        assert [facts.version for facts in store_facts(store_address(runs[0]))] == [1]
    older(SCHEMA)
    with PostgresJournal.open(runs[1]) as journal:
        assert ids(journal) == [0, 1, 2, 3]
    with PostgresJournal.open_readonly(runs[0]) as journal:
        assert ids(journal) == [0, 1, 2, 3, 10]


def test_going_back_waits_for_the_last_run_too(runs, measured):
    with PostgresJournal.open(runs[0]) as at_work:
        with pytest.raises(StoreBusy, match=r"\(run day\)"):
            to(runs[1], FIRST)
        at_work.append(measured(10))
    to(runs[1], FIRST)


def test_a_writer_whose_tables_were_changed_while_it_was_away_stops(runs, measured, server):
    journal = PostgresJournal.open(runs[0])
    server.ask(f"SELECT pg_terminate_backend({journal._keeper.connection.info.backend_pid}, 5000)")
    to(runs[0], FIRST)
    with pytest.raises(StoreVersion, match="its tables were changed meanwhile, from version 3 to 1"):
        journal.append(measured(10))
    journal.close()


def test_a_migration_that_breaks_off_leaves_everything_as_it_was(runs):
    before = look(runs[0], TABLES), look(runs[0], ROWS)
    broken = Step((), ("DELETE FROM prefillgate.events", "power cut"), "all")
    steps = {**postgres_schema.STEPS, FIRST: broken}
    with postgres.connect(store_address(runs[0])) as connection, pytest.raises(psycopg.errors.SyntaxError):
        postgres_schema.migrate(connection, FIRST, steps)
    assert (look(runs[0], TABLES), look(runs[0], ROWS)) == before
    with PostgresJournal.open(runs[0]) as journal:
        assert ids(journal) == [0, 1, 2, 3]


@pytest.mark.parametrize("target", [FIRST - 1, SCHEMA + 1])
def test_a_version_that_no_step_leads_to_is_refused(runs, target):
    with pytest.raises(StoreVersion, match=f"does not know how to get from there to {target}"):
        to(runs[0], target)
    with PostgresJournal.open(runs[0]) as journal:
        assert ids(journal) == [0, 1, 2, 3]


def test_a_reader_at_work_sees_one_moment_while_the_tables_change(runs, said):
    with PostgresJournal.open_readonly(runs[0]) as reader:
        to(runs[1], FIRST)
        assert reader.texts(2) == said(2)
        to(runs[1], SCHEMA)
        assert reader.texts(3) == said(3)
