"""A real PostgreSQL server for tests: on loopback, in a folder of its own, ended by its own process id.

Debian keeps the programs beside its path. A server refuses to run as root, so root's tests run it as another user.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.support.programs import find_postgres, record_real_program
from tests.support.simulated import free_port

USER = "postgres"
START_SECONDS = 60
HBA = """local all all trust
host all locked 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""


class PostgresServer:
    """One server and its data. The role `locked` needs a password, every other needs none."""

    def __init__(self, folder: Path, *settings: str) -> None:
        """Make the data and start; a setting is `name=value` as in postgresql.conf."""
        found = find_postgres()
        if found is None:
            raise RuntimeError("no PostgreSQL server on this machine: python -m tests.tools.install_programs")
        self._programs = Path(found).parent
        self._folder = folder
        self.settings = ["unix_socket_directories=", "listen_addresses=127.0.0.1", "max_connections=80", *settings]
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._made = 0
        if os.name == "posix" and os.geteuid() == 0:
            shutil.chown(folder, USER, USER)
        data = str(folder / "data")
        self._as_user("initdb", "-D", data, "-U", USER, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        (folder / "data" / "pg_hba.conf").write_text(HBA)
        self.start()

    @property
    def version(self) -> str:
        """What the server says of itself."""
        return str(self.ask("SHOW server_version"))

    def address(self, database: str = "postgres", user: str = USER) -> str:
        """The URL of a database."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        self._made += 1
        name = f"d{os.getpid()}_{self._made}"
        self.ask(f"CREATE DATABASE {name}")
        return self.address(name)

    def ask(self, statement: str, database: str = "postgres") -> object:
        """The first value of the first row, if the statement gives one."""
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            row = cursor.fetchone() if cursor.description else None
            return None if row is None else row[0]

    def start(self) -> None:
        """Start, and wait until it answers."""
        words = [word for setting in (f"port={self.port}", *self.settings) for word in ("-c", setting)]
        log = (self._folder / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [*self._user(), str(self._programs / "postgres"), "-D", str(self._folder / "data"), *words],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                self.ask("SELECT 1")
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError((self._folder / "log").read_text(errors="replace")[-2000:]) from None
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT is PostgreSQL's fast shutdown. May be called twice."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait()

    def give(self, name: str, content: bytes) -> None:
        """Put a file into the data that only the server may read."""
        path = self._folder / "data" / name
        path.write_bytes(content)
        path.chmod(0o600)
        if self._user():
            shutil.chown(path, USER, USER)

    def _user(self) -> list[str]:
        if os.name != "posix" or os.geteuid() != 0:
            return []
        return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]

    def _as_user(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [*self._user(), str(self._programs / program), *words],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace')}")


@contextlib.contextmanager
def running_server(*settings: str) -> Iterator[PostgresServer]:
    """A server with data of its own in a folder that its user can reach."""
    with tempfile.TemporaryDirectory(prefix="prefillgate-pg-") as folder:
        server = PostgresServer(Path(folder), *settings)
        try:
            yield server
        finally:
            server.stop()


def recorded(server: PostgresServer) -> PostgresServer:
    """The server, noted as spoken to by the test that is running."""
    record_real_program("postgresql", server.version)
    return server
