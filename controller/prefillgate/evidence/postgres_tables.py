"""Questions to a whole database of runs: is a run there, which are there, and the change of its tables' version."""

from __future__ import annotations

from prefillgate.api.store_address import PostgresUrl
from prefillgate.evidence import postgres_schema as schema
from prefillgate.evidence.errors import StoreMissing, named
from prefillgate.evidence.facts import Moved, StoreFacts
from prefillgate.evidence.postgres_link import Connection, connect, translated
from prefillgate.evidence.versions import lost_by

_FACTS = """SELECT r.run, r.name, r.created_by, count(e.seq), count(e.cell_id),
  coalesce(sum(octet_length(e.payload) + coalesce(octet_length(e.texts), 0)), 0)::bigint, {written}
FROM prefillgate.runs r LEFT JOIN prefillgate.events e ON e.run = r.run
WHERE %(name)s::text IS NULL OR r.name = %(name)s GROUP BY r.run ORDER BY r.run DESC"""
_UNKNOWN, _WRITTEN = "NULL::float8", "extract(epoch FROM max(e.written_at))::float8"


def run_exists(url: PostgresUrl) -> bool:
    """Whether the run that the URL names is there. Raises `StoreError`."""
    with named(str(url)), translated(url), connect(url) as connection:
        return schema.version(connection) is not None and url.run in schema.run_names(connection)


def run_names(url: PostgresUrl) -> list[str]:
    """The runs in a database, the latest first. Raises `StoreError`."""
    with named(str(url)), translated(url), connect(url) as connection:
        return [] if schema.version(connection) is None else schema.run_names(connection)


def facts(url: PostgresUrl) -> list[StoreFacts]:
    """What is in the database: the run that the URL names, or all of them, the latest first. Raises `StoreError`."""
    with named(str(url)), translated(url), connect(url) as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        version = schema.version(connection)
        if version is None:
            raise StoreMissing("there is no evidence store in this database. `prefillgate run` makes one.")
        rows = connection.execute(
            _FACTS.format(written=_UNKNOWN if version == 1 else _WRITTEN), {"name": url.run}
        ).fetchall()
        if not rows and url.run is not None:
            schema.find(connection, url.run)
        return [
            StoreFacts(
                str(PostgresUrl(url.server, name)),
                version,
                created_by,
                events,
                cells,
                kept,
                written,
                _who(connection, run),
            )
            for run, name, created_by, events, cells, kept, written in rows
        ]


def trial(url: PostgresUrl) -> str:
    """What was found on trying whether a run can be made there: written and taken back. Raises `StoreError`."""
    with named(str(url)), translated(url), connect(url) as connection:
        before = schema.version(connection)
        with connection.transaction(force_rollback=True):
            connection.execute("SET LOCAL lock_timeout = '5s'")
            schema.make(connection)
            connection.execute(
                "INSERT INTO prefillgate.runs (name, created_by, tail) VALUES (gen_random_uuid()::text, '', '')"
            )
        server = str(connection.execute("SHOW server_version").fetchone()[0])  # type: ignore[index]
        fsync = connection.execute("SHOW fsync").fetchone()
        tables = "the first run makes the tables" if before is None else f"its tables have version {before}"
        loses = "; its fsync is off: a power cut may lose cells" if fsync == ("off",) else ""
        return f"a run can be made there: PostgreSQL {server.split()[0]}, {tables}{loses}"


def _who(connection: Connection, run: int) -> str | None:
    backend, who = schema.holder(connection, run)
    return None if backend is None else who


def migrate(url: PostgresUrl, target: int) -> Moved:
    """Lead the tables of all runs to a version, up or back.

    Raises `StoreBusy` while a gate writes, `StoreVersion`, `StoreMissing`.
    """
    with named(str(url)), translated(url), connect(url) as connection:
        before = schema.version(connection)
        if before is None:
            raise StoreMissing("there is no evidence store in this database. `prefillgate run` makes one.")
        if before != target:
            schema.migrate(connection, target)
        return Moved(before, lost_by(schema.STEPS, before, target), None)
