"""Fixtures for tests that speak to the real llama.cpp server.

A server takes a few seconds to start, so servers are shared for the whole run, one for each list of arguments. A test
asks for one with `real_llama(request, ...)` or the fixture `llama`, which also notes that this test spoke to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from prefillgate.hosts.llama_server import LlamaServer
from tests.support.programs import record_real_program

SMALL = ("-t", "1", "-c", "2048", "-np", "1")
"""One thread, one slot, room for the prompts of tests. Everything a test adds stands after these."""

AT_ONCE = 3
"""How many servers live at once; each holds half a gigabyte."""


def wait_for_releases(log: Path, count: int) -> None:
    """Return once the log tells of so many requests that came to their end: a server answers first and writes then."""
    end = time.monotonic() + 60
    while (found := log.read_bytes().count(b"stop processing")) < count:
        assert time.monotonic() < end, f"{log} tells of {found} requests, not of {count}"
        time.sleep(0.02)


class LlamaPool:
    """Real servers by their arguments, started when first asked for and stopped at the end of the run.

    Only the `AT_ONCE` asked for last are kept running, so a test may hold that many and no more.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[tuple[str, ...], LlamaServer] = {}
        self._count = 0

    def get(self, arguments: Sequence[str]) -> LlamaServer:
        """The running server with these arguments. One that was ended is started again, on its port."""
        key = tuple(arguments)
        server = self._servers.pop(key, None) or LlamaServer(key, log_path=self._folder / f"server-{self._made()}.log")
        self._servers[key] = server  # the one asked for last stands last
        running = [other for other in self._servers.values() if other.running and other is not server]
        for idle in running[: max(0, len(running) - AT_ONCE + 1)]:
            idle.stop()
        return server if server.running else server.start()

    def _made(self) -> int:
        self._count += 1
        return self._count

    def close(self) -> None:
        """Stop every server."""
        for server in self._servers.values():
            server.stop()


@pytest.fixture(scope="session")
def llama_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaPool]:
    """The servers of this run."""
    pool = LlamaPool(tmp_path_factory.mktemp("llama"))
    yield pool
    pool.close()


def real_llama(request: pytest.FixtureRequest, arguments: Sequence[str] = ()) -> LlamaServer:
    """The shared real server with `SMALL` and these arguments; notes that the asking test speaks to it."""
    pool: LlamaPool = request.getfixturevalue("llama_pool")
    server = pool.get((*SMALL, *arguments))
    record(request, server)
    return server


def record(request: pytest.FixtureRequest, server: LlamaServer) -> None:
    """Note that the asking test speaks to `server`, for tests that start one of their own."""
    record_real_program("llama-server", server.version(), request.node.nodeid)


@pytest.fixture
def llama(request: pytest.FixtureRequest) -> LlamaServer:
    """The plain one: no host cache."""
    return real_llama(request, ("--cache-ram", "0"))
