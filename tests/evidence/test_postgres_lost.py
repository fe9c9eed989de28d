"""A run in PostgreSQL whose writer, session, server or wire goes away at any instant: no cell lost, none doubled."""

import os
import random
import signal
import threading
import time

import psycopg
import pytest

from prefillgate.core.journal import CellMeasured, Texts
from prefillgate.evidence import StoreAway, StoreBusy, StoreError, postgres
from prefillgate.evidence.postgres import PostgresJournal
from tests.support.cutting import CuttingRelay
from tests.support.postgres import recorded, running_server

KILLS = 12


@pytest.fixture
def run(database):
    """The URL of a run that is not there yet."""
    return f"{database}?run=night"


@pytest.fixture
def own_server():
    """A server that a test may stop."""
    with running_server("fsync=off") as server:
        yield recorded(server)


def cell_ids(journal):
    return [event.cell_id for event in journal.events() if isinstance(event, CellMeasured)]


def stored_ids(run):
    with PostgresJournal.open_readonly(run) as journal:
        return cell_ids(journal)


def backend(journal):
    return journal._keeper.connection.info.backend_pid


def test_a_writer_killed_at_any_instant_loses_no_cell_and_doubles_none(run, start):
    rng = random.Random(20261130)
    printed = []
    for kill in range(KILLS):
        child = start(run)
        child.wait_for(rng.randrange(0, 40))
        time.sleep(rng.random() * 0.004)  # anywhere inside a statement
        printed += child.kill()
        opened = PostgresJournal.open_readonly if kill % 2 else PostgresJournal.open
        for _ in range(200):  # the server notices within moments that the process is gone
            try:
                journal = opened(run)
                break
            except StoreBusy:
                time.sleep(0.02)
        with journal:
            ids = cell_ids(journal)
            assert ids == list(range(len(ids)))
            assert set(printed) <= set(ids)
            assert len(printed) == len(set(printed))
            assert len(ids) - len(printed) <= kill + 1
            for cell_id in ids[-3:]:
                assert journal.texts(cell_id) == Texts(response=f"{cell_id} " * (cell_id % 2000))
    assert len(printed) > KILLS


def test_a_session_killed_beside_the_run_is_taken_up_again(run, plan, measured, own_server):
    url = f"{own_server.address()}?run=night"
    with PostgresJournal.create(url, plan) as journal:
        for cell_id in range(12):
            if cell_id % 3 == 0:  # SIGKILL of one makes the server end all its sessions and recover
                os.kill(backend(journal), signal.SIGKILL)
            journal.append(measured(cell_id), Texts(f"cell {cell_id}"))
        with pytest.raises(StoreBusy):
            PostgresJournal.open(url)
    assert stored_ids(url) == list(range(12))


def test_sessions_ended_while_cells_are_written_lose_none(run, plan, measured, server):
    done = threading.Event()

    ours = "application_name LIKE 'prefillgate %'"

    def end_sessions():
        while not done.is_set():
            server.ask(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {ours}")
            time.sleep(0.02)

    with PostgresJournal.create(run, plan) as journal:
        killer = threading.Thread(target=end_sessions)
        killer.start()
        try:
            for cell_id in range(60):
                journal.append(measured(cell_id), Texts(f"cell {cell_id} " * 500))
        finally:
            done.set()
            killer.join()
        assert cell_ids(journal) == list(range(60))
    assert stored_ids(run) == list(range(60))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
def test_a_server_restarted_in_mid_run_is_waited_for(own_server, plan, measured, how):
    url = f"{own_server.address()}?run=night"
    with PostgresJournal.create(url, plan) as journal:
        journal.append(measured(0), Texts("before"))
        own_server.stop(how)
        restart = threading.Timer(0.5, own_server.start)
        restart.start()
        journal.append(measured(1), Texts("while it was away"))
        restart.join()
        journal.append(measured(2))
        assert journal.texts(1) == Texts("while it was away")
    assert stored_ids(url) == [0, 1, 2]


def test_a_server_that_stays_away_ends_the_journal_and_the_next_one_looks(own_server, plan, measured, monkeypatch):
    monkeypatch.setattr(postgres, "RECONNECT_SECONDS", 0.3)
    url = f"{own_server.address()}?run=night"
    journal = PostgresJournal.create(url, plan)
    journal.append(measured(0))
    own_server.stop()
    for _ in range(2):  # what was not settled stays so
        with pytest.raises(StoreAway, match=r"lost while event 3 was .* not known yet. Run the same"):
            journal.append(measured(1))
    own_server.start()
    with pytest.raises(StoreAway, match="event 3"):
        journal.append(measured(1))
    assert cell_ids(journal) == [0]
    journal.close()
    with PostgresJournal.open(url) as again:
        again.append(measured(1))
        assert cell_ids(again) == [0, 1]


@pytest.fixture
def relay(server):
    relay = CuttingRelay(server.port)
    yield relay
    relay.close()


@pytest.mark.parametrize("cut", ["before the request", "before the answer"])
def test_a_wire_cut_in_a_commit_leaves_the_event_there_once(run, relay, server, plan, measured, cut):
    through = run.replace(str(server.port), str(relay.port))
    with PostgresJournal.create(through, plan) as journal:
        for cell_id in range(8):
            relay.cut = cut
            journal.append(measured(cell_id), Texts(f"cell {cell_id} " * 3000))
        assert relay.cuts == 8
        assert cell_ids(journal) == list(range(8))
    with PostgresJournal.open_readonly(run) as reader:
        assert cell_ids(reader) == list(range(8))
        assert [reader.texts(cell_id) for cell_id in range(8)] == [Texts(f"cell {i} " * 3000) for i in range(8)]


def test_a_run_that_somebody_else_took_while_the_wire_was_cut_is_left_to_him(run, relay, server, plan, measured):
    """The one who was away must not write beside him, whatever it believes."""
    journal = PostgresJournal.create(run.replace(str(server.port), str(relay.port)), plan)
    journal.append(measured(0))
    pid = backend(journal)
    server.ask(f"SELECT pg_terminate_backend({pid}, 5000)")
    with PostgresJournal.open(run) as other:
        other.append(measured(1), Texts("his"))
        with pytest.raises(StoreBusy, match=r"the connection was lost, and process \d+ on .* is writing it by now"):
            journal.append(measured(1), Texts("mine"))
    with pytest.raises(StoreError):
        journal.append(measured(1), Texts("mine"))
    journal.close()
    with PostgresJournal.open_readonly(run) as reader:
        assert reader.texts(1) == Texts("his")


def test_a_run_that_went_on_meanwhile_is_not_written_over(run, plan, measured, server):
    journal = PostgresJournal.create(run, plan)
    server.ask(f"SELECT pg_terminate_backend({backend(journal)}, 5000)")
    with PostgresJournal.open(run) as other:
        other.append(measured(0), Texts("his"))
    with pytest.raises(StoreError, match="changed from outside"):
        journal.append(measured(0), Texts("mine"))
    journal.close()
    assert stored_ids(run) == [0]


def test_a_session_that_the_server_has_not_given_up_is_ended_by_its_own_process(run, plan, measured, relay, server):
    """After a cut the server may believe in the old session for long; its lock would keep its own process out."""
    journal = PostgresJournal.create(run, plan)
    held = journal._keeper.connection
    journal._keeper.connection = psycopg.connect(run.partition("?")[0], autocommit=True)
    journal._keeper.connection.close()  # to this process the connection is lost; the server still has the session
    journal.append(measured(0))
    assert stored_ids(run) == [0]
    with pytest.raises(psycopg.OperationalError):
        held.execute("SELECT 1")
    held.close()
    journal.close()


def test_a_reader_whose_session_was_ended_reads_on(run, plan, measured, server):
    with PostgresJournal.create(run, plan) as journal:
        journal.append(measured(0), Texts("kept"))
    with PostgresJournal.open_readonly(run) as reader:
        server.ask(f"SELECT pg_terminate_backend({backend(reader)}, 5000)")
        assert reader.texts(0) == Texts("kept")


def test_a_text_is_waited_for_while_the_server_restarts(own_server, plan, measured, monkeypatch):
    url = f"{own_server.address()}?run=night"
    with PostgresJournal.create(url, plan) as journal:
        journal.append(measured(0), Texts("kept"))
        own_server.stop()
        restart = threading.Timer(0.5, own_server.start)
        restart.start()
        assert journal.texts(0) == Texts("kept")
        restart.join()
        own_server.stop()
        monkeypatch.setattr(postgres, "RECONNECT_SECONDS", 0.3)
        with pytest.raises(StoreAway, match="the server cannot be reached, or went away"):
            journal.texts(0)
        own_server.start()
        journal.append(measured(1))
    assert stored_ids(url) == [0, 1]
