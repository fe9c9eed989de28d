"""Reaching a PostgreSQL server, and its errors in the store's words.

The password is libpq's business: PGPASSWORD, a password file or a service file. It is in no address, and no error
repeats more than the server's own sentence.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import conninfo

from prefillgate.api.errors import clean
from prefillgate.api.store_address import PostgresUrl
from prefillgate.evidence.errors import (
    RESTORE,
    SAFE,
    StoreAway,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreForeign,
    StoreMissing,
)

Connection = psycopg.Connection[tuple[Any, ...]]

# libpq waits for ever by default. What the URL says goes before.
DEFAULTS: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# The server, too, must notice that a gate's machine is gone: only then is its lock free. Commits must reach the disk.
SESSION = (
    "SELECT pg_catalog.set_config('tcp_keepalives_idle', '30', false), "
    "pg_catalog.set_config('tcp_keepalives_interval', '10', false), "
    "pg_catalog.set_config('tcp_keepalives_count', '3', false), "
    "pg_catalog.set_config('search_path', 'pg_catalog', false), "
    "pg_catalog.set_config('synchronous_commit', CASE pg_catalog.current_setting('synchronous_commit') "
    "WHEN 'off' THEN 'on' ELSE pg_catalog.current_setting('synchronous_commit') END, false)"
)
_LOGIN = "Check the user; a password comes from PGPASSWORD, a password file or a service file, never from the URL."
_TABLES = f"its tables are not those of a store. {RESTORE}"
_MEANING: dict[str, tuple[type[StoreError], str]] = {
    "08": (StoreAway, f"the connection failed. {SAFE}"),
    "22P02": (StoreDamaged, f"a value in it is of another kind. {RESTORE}"),
    "25006": (StoreError, f"it can only be read: a standby, or a read-only transaction. {SAFE}"),
    "28": (StoreError, f"the login was refused. {_LOGIN}"),
    "3D000": (StoreMissing, "there is no such database. Create it, or check the URL."),
    "3F000": (StoreDamaged, _TABLES),
    "42501": (StoreError, "the role may not do that. Grant it the schema prefillgate, or CREATE on the database."),
    "42P01": (StoreDamaged, _TABLES),
    "42703": (StoreDamaged, _TABLES),
    "42804": (StoreDamaged, _TABLES),
    "42883": (StoreDamaged, _TABLES),
    "53100": (StoreError, f"the server's disk is full. {SAFE} Free some space and run the same command again."),
    "53300": (StoreAway, "the server has no connection left. Raise max_connections, or end what holds them."),
    "55P03": (StoreBusy, "somebody else holds its tables. Wait, and try again."),
    "57014": (StoreError, f"the server's statement_timeout ended it. {SAFE}"),
    "57P": (StoreAway, f"the server is shutting down, starting up or was restarted. {SAFE}"),
    "XX": (StoreDamaged, f"PostgreSQL finds it damaged. {RESTORE}"),
}

# libpq gives no code for a connection that was refused, only the server's sentence. In another language than English
# it is told as it is, after the last of these.
_TOLD: dict[tuple[str, ...], tuple[type[StoreError], str]] = {
    ("database ", "does not exist"): _MEANING["3D000"],
    ("role ", "does not exist"): _MEANING["28"],
    ("password",): _MEANING["28"],
    ("authentication",): _MEANING["28"],
    ("pg_hba.conf",): _MEANING["28"],
    ("invalid ", "value"): (StoreForeign, "libpq cannot use this URL."),
    ("certificate",): (StoreError, "the server's certificate was refused. Check its host name and sslrootcert."),
    ("SSL",): (StoreError, "TLS was asked for and could not be agreed on. Check sslmode and the server's ssl."),
}
_UNREACHED = (StoreAway, "the server cannot be reached, or went away.")


def translate(url: PostgresUrl, error: psycopg.Error) -> StoreError:
    """The store's own error for one of PostgreSQL or of the way to it."""
    state = error.sqlstate or ""
    told = clean(" ".join((error.diag.message_primary or str(error)).split()))
    for length in (5, 3, 2):
        if state[:length] in _MEANING:
            kind, meaning = _MEANING[state[:length]]
            return kind(f"{url}: {meaning} [PostgreSQL: {told}]")
    if not state and isinstance(error, psycopg.OperationalError):
        found = next((meant for words, meant in _TOLD.items() if all(word in told for word in words)), _UNREACHED)
        return found[0](f"{url}: {found[1]} [PostgreSQL: {told}]")
    return StoreError(f"{url}: PostgreSQL refused. [PostgreSQL: {told}]")


@contextmanager
def translated(url: PostgresUrl) -> Iterator[None]:
    """Turns errors of PostgreSQL into `StoreError`, the original chained."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(url, error) from error


def connect(url: PostgresUrl) -> Connection:
    """A connection in autocommit. Raises `StoreError` where the URL is none, `StoreAway` where nobody answers."""
    try:
        given = conninfo.conninfo_to_dict(url.server)
    except psycopg.Error as error:
        bare = str(url).partition("?")[0]  # the value of a name libpq does not know may be a password
        raise StoreForeign(f"{bare}: libpq cannot read this URL: {clean(' '.join(str(error).split()))}") from error
    settings = {name: value for name, value in DEFAULTS.items() if name not in given}
    settings.setdefault("application_name", f"prefillgate {os.getpid()} on {platform.node()}")
    with translated(url):
        connection = psycopg.connect(url.server, autocommit=True, **{**settings, **_only("application_name", given)})
        try:
            connection.execute(SESSION)
        except BaseException:
            connection.close()
            raise
        return connection


def _only(name: str, given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name]} if name in given else {}


def lost(connection: Connection) -> bool:
    """Whether this connection is over; what was asked last may or may not have been done."""
    return connection.closed or connection.broken
