"""Two writers of one store, of whom one was replaced: only the one with the higher token writes."""

import os
import signal
import sqlite3
from contextlib import closing

import psycopg
import pytest

from prefillgate.api.store_address import store_address
from prefillgate.core.journal import CellMeasured, Texts
from prefillgate.evidence import (
    Fence,
    MemoryJournal,
    StoreBusy,
    StoreError,
    StoreFenced,
    create_store,
    migrate_store,
    open_store,
    read_store,
    schema,
)
from prefillgate.evidence.fence import NOBODY, fenced, held_token, may_take_over

KINDS = ["sqlite", "postgresql"]


@pytest.fixture
def address(request, tmp_path):
    """Where a store of a kind goes."""

    def made(kind):
        return (
            tmp_path / "run.db" if kind == "sqlite" else store_address(f"{request.getfixturevalue('database')}?run=a")
        )

    return made


@pytest.fixture(params=KINDS)
def where(request, address):
    return address(request.param)


def cell_ids(where):
    with read_store(where) as journal:
        return [event.cell_id for event in journal.events() if isinstance(event, CellMeasured)]


@pytest.mark.parametrize("token", [-1, 2**63])
def test_a_token_that_no_store_can_keep_is_refused(token):
    with pytest.raises(ValueError, match=rf"token is {token} \(allowed: 0 to 9223372036854775807\)"):
        Fence(token)
    assert (Fence(0).token, Fence(2**63 - 1).token) == (0, 2**63 - 1)


def test_a_writer_goes_by_the_higher_token_and_gives_way_to_a_higher_one_alone():
    assert held_token(None, None) == NOBODY == -1
    assert (held_token(None, 4), held_token(Fence(4), None), held_token(Fence(4), 4), held_token(Fence(5), 4)) == (
        4,
        4,
        4,
        5,
    )
    with pytest.raises(StoreFenced, match="a writer with token 5; the writer with token 4 may not write"):
        held_token(Fence(4), 5)
    assert "a writer without a token may not write" in str(fenced(NOBODY, 0))
    assert [may_take_over(Fence(4), found) for found in (None, 3, 4, 5)] == [False, True, False, False]
    assert not may_take_over(None, 3)
    assert issubclass(StoreFenced, StoreError)


def test_a_lower_token_opens_nothing_that_a_higher_one_has_written(where, plan, measured):
    create_store(where, plan, Fence(1)).close()
    with open_store(where, Fence(3)) as journal:
        journal.append(measured(0))
    with pytest.raises(StoreFenced, match="taken over by a writer with token 3; the writer with token 2 may not"):
        open_store(where, Fence(2))
    with open_store(where, Fence(3)) as journal:
        journal.append(measured(1))
    assert cell_ids(where) == [0, 1]


def test_a_writer_that_is_alive_gives_way_to_a_higher_token_at_once(where, plan, measured, said):
    old = create_store(where, plan, Fence(1))
    old.append(measured(0), said(0))
    new = open_store(where, Fence(2))
    assert [event.cell_id for event in new.events()[1:]] == [0]
    for _ in range(2):  # and stays refused
        with pytest.raises(StoreFenced, match="taken over by a writer with token 2"):
            old.append(measured(1), said(1))
    new.append(measured(1), said(1))
    old.close()
    new.append(measured(2), said(2))
    third = open_store(where, Fence(3))
    with pytest.raises(StoreFenced):
        new.append(measured(3))
    third.append(measured(3), Texts("the third"))
    new.close()
    third.close()
    assert cell_ids(where) == [0, 1, 2, 3]
    with read_store(where) as journal:
        assert (journal.texts(2), journal.texts(3)) == (said(2), Texts("the third"))


def test_a_refused_writer_s_own_journal_holds_nothing_that_was_not_written(where, plan, measured):
    old = create_store(where, plan, Fence(1))
    with open_store(where, Fence(2)) as new:
        new.append(measured(0))
        with pytest.raises(StoreFenced):
            old.append(measured(0))
    assert old.events() == (plan,)
    old.close()


@pytest.mark.parametrize("second", [None, Fence(1), Fence(0)])
def test_an_equal_or_lower_token_waits_for_a_writer_that_is_alive(where, plan, second, measured):
    with create_store(where, plan, Fence(1)) as journal:
        with pytest.raises((StoreBusy, StoreFenced)) as refused:
            open_store(where, second)
        assert isinstance(refused.value, StoreBusy) or second == Fence(0)
        journal.append(measured(0))
    assert cell_ids(where) == [0]


def test_a_person_s_writer_without_a_token_is_waited_for(where, plan, measured):
    with create_store(where, plan) as person:
        with pytest.raises(StoreBusy, match=rf"process {os.getpid()} on "):
            open_store(where, Fence(7))
        person.append(measured(0))
    with open_store(where, Fence(7)) as journal:
        journal.append(measured(1))
    assert cell_ids(where) == [0, 1]


def test_a_person_s_writer_goes_on_where_a_token_wrote_and_gives_way_to_a_higher_one(where, plan, measured):
    create_store(where, plan, Fence(4)).close()
    with open_store(where) as person:
        person.append(measured(0))
        with open_store(where, Fence(5)) as journal:
            journal.append(measured(1))
            with pytest.raises(StoreFenced, match="taken over by a writer with token 5"):
                person.append(measured(2))
    assert cell_ids(where) == [0, 1]


def test_a_store_of_the_version_before_is_led_up_and_fenced_and_led_back(where, plan, measured):
    create_store(where, plan, Fence(6)).close()
    moved = migrate_store(where, 2)
    assert (moved.before, moved.lost) == (3, ("the highest token of a writer",))
    assert cell_ids(where) == []
    if hasattr(where, "suffix"):
        migrate_store(where, 3)
    with open_store(where, Fence(1)) as journal:  # what going back forgets
        journal.append(measured(0))
    assert migrate_store(where, 2).before == 3
    assert cell_ids(where) == [0]


def test_a_higher_token_than_any_number_of_lower_ones_is_the_only_writer(where, plan, measured):
    create_store(where, plan, Fence(0)).close()
    writers = [open_store(where, Fence(token)) for token in range(1, 6)]
    refused = 0
    for number, writer in enumerate(writers):
        try:
            writer.append(measured(number))
        except StoreFenced:
            refused += 1
    assert refused == 4
    assert cell_ids(where) == [4]
    for writer in writers:
        writer.close()


# A writer in another process, hung


@pytest.fixture
def hung(start, plan):
    """Begins a store with token 1 and lets another process write it with that token, stopped between two appends."""
    stopped = []

    def begin(where):
        create_store(where, plan, Fence(1)).close()
        child = start(where, pause_seconds=0.5)  # between two appends, for the signal to meet it there
        child.wait_for(5)
        os.kill(child.process.pid, signal.SIGSTOP)
        stopped.append(child)
        return child

    yield begin
    for child in stopped:
        if child.process.poll() is None:
            os.kill(child.process.pid, signal.SIGCONT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hung_process_that_wakes_up_writes_nothing_more(address, kind, hung, measured):
    where = address(kind)
    child = hung(where)
    new = open_store(where, Fence(2))
    ids = [event.cell_id for event in new.events() if isinstance(event, CellMeasured)]
    assert ids == list(range(len(ids))) and len(ids) >= 5
    new.append(measured(10**6))
    os.kill(child.process.pid, signal.SIGCONT)
    child.process.wait(60)
    told = child.process.stderr.read().decode()
    assert "StoreFenced" in told and "taken over by a writer with token 2; the writer with token 1 may not" in told
    new.append(measured(10**6 + 1))
    new.close()
    assert cell_ids(where) == [*ids, 10**6, 10**6 + 1]
    assert set(child.printed) <= set(ids)


def test_the_lock_of_a_file_on_another_host_is_not_passed_by(tmp_path, hung, monkeypatch):
    where = tmp_path / "run.db"
    child = hung(where)
    monkeypatch.setattr("platform.node", lambda: "another-pod")
    with pytest.raises(StoreBusy) as refused:
        open_store(where, Fence(2))
    told = str(refused.value)
    assert f"process {child.process.pid} on " in told
    assert "has a lower token and must give way, but its lock cannot be broken from another-pod. End that" in told
    with closing(sqlite3.connect(where)) as connection:
        assert schema.token(connection) == 1


def test_the_lock_of_a_file_is_taken_once_its_old_holder_has_ended(tmp_path, plan, measured):
    where = tmp_path / "run.db"
    old = create_store(where, plan, Fence(1))
    new = open_store(where, Fence(2))
    old.close()
    new.append(measured(0))
    with pytest.raises(StoreBusy, match=r"\(this very process\)"):
        open_store(where)
    new.close()
    open_store(where).close()


# PostgreSQL's own


def backend(journal):
    return journal._keeper.connection.info.backend_pid


def sessions(url):
    with psycopg.connect(url.partition("?")[0]) as connection:
        return {row[0] for row in connection.execute("SELECT pid FROM pg_stat_activity").fetchall()}


def test_the_old_session_is_ended_and_its_lock_with_it(database, plan, measured):
    where = store_address(f"{database}?run=a")
    old = create_store(where, plan, Fence(1))
    new = open_store(where, Fence(2))
    assert backend(old) not in sessions(database)
    with pytest.raises(StoreBusy):
        open_store(where)  # the lock is the new writer's
    with pytest.raises(StoreFenced):
        old.append(measured(0))
    new.append(measured(0))
    new.close()
    old.close()


def test_where_the_role_may_not_end_it_the_old_session_s_appends_are_refused(database, server, plan, measured):
    """The old writer is a superuser, whose sessions no other role may end."""
    where = store_address(f"{database}?run=a")
    old = create_store(where, plan, Fence(1))
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in (
            "CREATE ROLE lesser LOGIN",
            "GRANT USAGE ON SCHEMA prefillgate TO lesser",
            "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA prefillgate TO lesser",
        ):
            connection.execute(statement)
    name = database.rpartition("/")[2]
    lesser = store_address(f"{server.address(name, 'lesser')}?run=a")
    try:
        new = open_store(lesser, Fence(2))
        assert backend(old) in sessions(database)
        with pytest.raises(StoreFenced, match="taken over by a writer with token 2"):
            old.append(measured(0))
        new.append(measured(0))
        server.ask(f"SELECT pg_terminate_backend({backend(new)}, 5000)")
        new.append(measured(1))  # also after a lost connection, with the lock still the old session's
        old.close()
        server.ask(f"SELECT pg_terminate_backend({backend(new)}, 5000)")
        new.append(measured(2))
        with pytest.raises(StoreBusy):
            open_store(where)  # its lock by now
        new.close()
    finally:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP OWNED BY lesser")
            connection.execute("DROP ROLE lesser")
    assert cell_ids(where) == [0, 1, 2]


def test_a_lost_connection_is_not_taken_up_again_once_a_higher_token_came_and_went(database, server, plan, measured):
    where = store_address(f"{database}?run=a")
    old = create_store(where, plan, Fence(1))
    server.ask(f"SELECT pg_terminate_backend({backend(old)}, 5000)")
    open_store(where, Fence(2)).close()
    for _ in range(2):
        with pytest.raises(StoreFenced):
            old.append(measured(0))
    assert cell_ids(where) == []


def test_a_journal_in_memory_has_one_writer_and_no_fence(plan, measured):
    with MemoryJournal(plan) as journal:
        journal.append(measured(0))
        assert len(journal.events()) == 2
