"""The tables of the store that several gates share in one PostgreSQL database, and what leads them up and back.

meta    `schema` (version), `created_by`
runs    one row per run: its `name`, `tail` (count and digest of its last event, moved in the event's statement), and
        who wrote it last, and the highest token of a writer
events  one row per event of a run, as in a file; `(run, seq)` and `(run, cell_id)` are unique in the database itself

Everything is in the schema `prefillgate`. Locks are advisory, of the class `LOCKS`: 0 the tables (shared by every
writer, taken alone to change them), -1 their making, and the number of a run for its one writer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from psycopg import errors

from prefillgate.evidence.chain import Entry, Row
from prefillgate.evidence.errors import StoreBusy, StoreDamaged, StoreForeign, StoreMissing
from prefillgate.evidence.kept import pack, unpack
from prefillgate.evidence.ledger import Ledger
from prefillgate.evidence.postgres_link import Connection
from prefillgate.evidence.versions import CREATED_BY, FIRST, SCHEMA, Step, Steps, readable, way

LOCKS = 0x50664774  # "PfGt"
TABLES_LOCK, MAKING_LOCK = 0, -1
NAMED_RUNS = 20
ROWS_AT_ONCE = 200
_TRIES = 10
_PAUSE_SECONDS = 0.1

_TABLES = (
    "CREATE SCHEMA prefillgate",
    "CREATE TABLE prefillgate.meta (key text PRIMARY KEY, value text NOT NULL)",
    """CREATE TABLE prefillgate.runs (
      run integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      name text NOT NULL UNIQUE,
      created_by text NOT NULL,
      tail text NOT NULL,
      writer text,
      writer_backend integer)""",
    """CREATE TABLE prefillgate.events (
      run integer NOT NULL REFERENCES prefillgate.runs ON DELETE CASCADE,
      seq bigint NOT NULL,
      cell_id bigint,
      payload bytea NOT NULL,
      texts_sha256 bytea,
      digest bytea NOT NULL,
      texts bytea,
      PRIMARY KEY (run, seq),
      UNIQUE (run, cell_id))""",
    "ALTER TABLE prefillgate.events ALTER COLUMN texts SET STORAGE EXTERNAL",  # compressed already
)
# No default while the column is added: rows of version 1 were written at an unknown time, and nothing is rewritten.
STEPS: Steps = {
    1: Step(
        up=(
            "ALTER TABLE prefillgate.events ADD COLUMN written_at timestamptz",
            "ALTER TABLE prefillgate.events ALTER COLUMN written_at SET DEFAULT clock_timestamp()",
        ),
        down=("ALTER TABLE prefillgate.events DROP COLUMN written_at",),
        lost="when each event was written",
    ),
    2: Step(
        up=("ALTER TABLE prefillgate.runs ADD COLUMN fence_token bigint",),
        down=("ALTER TABLE prefillgate.runs DROP COLUMN fence_token",),
        lost="the highest token of a writer",
    ),
}

INSERT_RUN = """INSERT INTO prefillgate.runs (name, created_by, tail, writer, writer_backend, fence_token)
VALUES (%(name)s, %(created_by)s, %(tail)s, %(writer)s, pg_backend_pid(), %(token)s) RETURNING run"""
# One statement is one transaction and one round trip: the tail moves and the event is there, or neither.
COMMIT = """WITH moved AS (
  UPDATE prefillgate.runs SET tail = %(new_tail)s WHERE run = %(run)s AND tail = %(tail)s
    AND coalesce(fence_token, -1) <= %(token)s::bigint RETURNING run)
INSERT INTO prefillgate.events (run, seq, cell_id, payload, texts_sha256, digest, texts)
SELECT run, %(seq)s::bigint, %(cell_id)s::bigint, %(payload)b::bytea, %(texts_sha256)b::bytea, %(digest)b::bytea,
  %(texts)b::bytea FROM moved"""


class Run(NamedTuple):
    """A run as its row names it."""

    run: int
    name: str
    tail: str


class Right(NamedTuple):
    """The right to write a run as the holder of a token."""

    run: int
    token: int


def token(connection: Connection, run: int) -> int | None:
    """The highest token of a writer of a run; None where no writer had one."""
    row = connection.execute("SELECT fence_token FROM prefillgate.runs WHERE run = %s", (run,)).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def raise_token(connection: Connection, right: Right) -> None:
    """Make a token the highest, unless a higher one is there. From here on nobody with a lower one appends."""
    connection.execute(
        "UPDATE prefillgate.runs SET fence_token = %(token)s WHERE run = %(run)s AND %(token)s >= 0 "
        "AND coalesce(fence_token, -1) < %(token)s",
        {"run": right.run, "token": right.token},
    )


def version(connection: Connection) -> int | None:
    """The schema version of the tables; None where there are none.

    Raises `StoreForeign` for a schema of that name that is not ours, `StoreDamaged`, `StoreVersion` for a newer one.
    """
    if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'prefillgate'").fetchone() is None:
        return None
    try:
        meta: dict[str, str] = dict(connection.execute("SELECT key, value FROM prefillgate.meta").fetchall())
    except errors.UndefinedTable as error:
        raise StoreForeign(
            "the schema prefillgate in this database is not an evidence store. It was left untouched. Use another "
            "database."
        ) from error
    for key in ("schema", "created_by"):
        if key not in meta:
            raise StoreDamaged(f"the table meta has no {key}. Restore the database from a copy.")
    return readable(meta["schema"], meta["created_by"])


def make(connection: Connection) -> None:
    """Make the tables, unless somebody else just did."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (LOCKS, MAKING_LOCK))
        if version(connection) is not None:
            return
        for statement in (*_TABLES, *way(STEPS, FIRST, SCHEMA)):
            connection.execute(statement)
        made = (("schema", str(SCHEMA)), ("created_by", CREATED_BY))
        for row in made:
            connection.execute("INSERT INTO prefillgate.meta VALUES (%s, %s)", row)


def migrate(connection: Connection, target: int, steps: Steps = STEPS) -> None:
    """Lead the tables to `target`, up or down, in one transaction.

    Raises `StoreBusy` naming the gates that write in them, `StoreVersion` where no step is known.
    """
    with tables_alone(connection), connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '10s'")  # readers leave within moments
        found = version(connection)
        if found is None:
            raise StoreMissing("there is no evidence store in this database.")
        for statement in way(steps, found, target):
            connection.execute(statement)
        connection.execute("UPDATE prefillgate.meta SET value = %s WHERE key = 'schema'", (str(target),))


@contextmanager
def tables_alone(connection: Connection) -> Iterator[None]:
    """Nobody writes in the tables meanwhile. Raises `StoreBusy` naming who does."""
    for left in reversed(range(_TRIES)):  # the server needs a moment to see that a writer has ended
        if _got(connection, "SELECT pg_try_advisory_lock(%s, %s)", TABLES_LOCK):
            break
        if left == 0:
            raise StoreBusy(
                f"its tables are in use and cannot be changed under a run: {writers(connection)}. Wait until the last "
                "has ended, then try again."
            )
        time.sleep(_PAUSE_SECONDS)
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s, %s)", (LOCKS, TABLES_LOCK))


def share_tables(connection: Connection) -> None:
    """Keep the tables from being changed as long as this connection lives. Raises `StoreBusy` while they are."""
    if not _got(connection, "SELECT pg_try_advisory_lock_shared(%s, %s)", TABLES_LOCK):
        raise StoreBusy("its tables are just being changed to another version. Try again in a moment.")


def give_tables(connection: Connection) -> None:
    """Let the tables be changed again."""
    connection.execute("SELECT pg_advisory_unlock_shared(%s, %s)", (LOCKS, TABLES_LOCK))


def take_run(connection: Connection, run: int) -> bool:
    """The right to write a run, as long as this connection lives."""
    return _got(connection, "SELECT pg_try_advisory_lock(%s, %s)", run)


def _got(connection: Connection, statement: str, key: int) -> bool:
    row = connection.execute(statement, (LOCKS, key)).fetchone()
    return bool(row and row[0])


def holder(connection: Connection, run: int) -> tuple[int | None, str]:
    """The server process that holds a run's lock, and who that is; None when it is free."""
    held = connection.execute(
        "SELECT l.pid, CASE WHEN r.writer_backend = l.pid THEN r.writer END FROM pg_locks l "
        "LEFT JOIN prefillgate.runs r ON r.run = %(run)s WHERE l.locktype = 'advisory' AND l.classid = %(class)s "
        "AND l.objid = %(run)s AND l.granted AND l.database = (SELECT oid FROM pg_database "
        "WHERE datname = current_database())",
        {"run": run, "class": LOCKS},
    ).fetchone()
    return (None, "") if held is None else (held[0], held[1] or "another process")


def writers(connection: Connection) -> str:
    """Who writes in the tables now."""
    rows = connection.execute(
        "SELECT r.name, r.writer FROM pg_locks l JOIN prefillgate.runs r ON r.writer_backend = l.pid "
        "AND l.objid = r.run::oid WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objsubid = 2 ORDER BY r.name",
        (LOCKS,),
    ).fetchall()
    return ", ".join(f"{who} (run {name})" for name, who in rows) or "another process"


def find(connection: Connection, name: str | None) -> Run:
    """The run of that name. Raises `StoreMissing` naming those that are there."""
    row = connection.execute("SELECT run, name, tail FROM prefillgate.runs WHERE name = %s", (name,)).fetchone()
    if row is not None:
        return Run(*row)
    names = run_names(connection)
    shown = ", ".join(names[:NAMED_RUNS]) + (f" and {len(names) - NAMED_RUNS} more" if len(names) > NAMED_RUNS else "")
    what = "no run is named" if name is None else f"there is no run {name}"
    raise StoreMissing(f"{what}. Runs in this database, the latest first: {shown or 'none'}. Name one as ?run=NAME.")


def run_names(connection: Connection) -> list[str]:
    """The names of all runs, the latest first."""
    return [row[0] for row in connection.execute("SELECT name FROM prefillgate.runs ORDER BY run DESC").fetchall()]


def parameters(right: Right, entry: Entry, tail: str) -> dict[str, object]:
    """What `COMMIT` takes for an entry that follows the event that `tail` names."""
    return {
        "run": right.run,
        "token": right.token,
        "tail": tail,
        "new_tail": f"{entry.seq}:{entry.digest.hex()}",
        "seq": entry.seq,
        "cell_id": entry.cell_id,
        "payload": entry.payload,
        "texts_sha256": entry.texts_sha256,
        "digest": entry.digest,
        "texts": pack(entry.texts),
    }


def load(connection: Connection, name: str | None) -> tuple[Run, Ledger]:
    """A run's every event as of one moment, held against the chain. Raises `StoreMissing`, `StoreDamaged`."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        # Before the first look, so that no table changes between the look and its reading.
        connection.execute("LOCK TABLE prefillgate.runs, prefillgate.events IN ACCESS SHARE MODE")
        run, ledger = find(connection, name), Ledger()
        with connection.cursor(name="prefillgate_events") as cursor:
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(
                "SELECT seq, cell_id, payload, texts_sha256, digest, texts FROM prefillgate.events WHERE run = %s "
                "ORDER BY seq",
                (run.run,),
                binary=True,
            )
            for seq, cell_id, payload, texts_sha256, digest, texts in cursor:
                ledger.replay(Row(seq, cell_id, payload, texts_sha256, digest, unpack(f"event {seq}", texts)))
        ledger.hold_against(run.tail)
    return run, ledger
