"""A program asked once: no shell, its input on standard input, and at its timeout everything it started is ended.

The work is done in threads, so the event loop goes on. What a program started is found by its parents and, where those
are gone, by a variable that it inherits: a group or a session of processes is not to be had everywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

KEPT_BYTES = 16 * 1024  # of each stream; the rest is read and thrown away
MARK = "PREFILLGATE_CHECK"
_DRAIN_SECONDS = 0.5  # what a program has written arrives at once; a stream still open after that is held by another
_CHUNK = 64 * 1024
_ROUNDS = 20  # of ending what lives: a process may start another while it is looked at


@dataclass(frozen=True, slots=True)
class Command:
    """What to start: program and arguments, the folder it runs in, how long it may take."""

    arguments: tuple[str, ...]
    folder: Path | None
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Ran:
    """How it ended: the exit code (negative: ended by that signal; None: ended at its timeout), and its words."""

    code: int | None
    stdout: str
    stderr: str


async def run_program(command: Command, given: bytes) -> Ran:
    """Run `command` with `given` on its standard input. Raises OSError where it cannot be started.

    Cancelled, it ends the program and all it started.
    """
    running = _Running(command, given)
    try:
        await asyncio.to_thread(running.start)
        return await asyncio.to_thread(running.to_its_end)
    except asyncio.CancelledError:
        running.end()
        raise


class _Running:
    """One life of a program."""

    def __init__(self, command: Command, given: bytes) -> None:
        self._command = command
        self._given = given
        self._mark = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        """Start it. Raises OSError."""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            self._command.arguments,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=self._command.folder,
            env={**os.environ, MARK: self._mark},
            start_new_session=True,  # where there are terminals, a Ctrl-C there is for us alone
        )
        if self._ended.is_set():  # given up in the meantime
            self.end()

    def to_its_end(self) -> Ran:
        """Wait, at most until the timeout, and tell how it ended."""
        process = self._process
        assert process is not None and process.stdin and process.stdout and process.stderr
        streams = (_Kept(process.stdout), _Kept(process.stderr))
        threading.Thread(target=_feed, args=(process.stdin, self._given), daemon=True).start()
        try:
            code: int | None = process.wait(self._command.timeout_seconds)
        except subprocess.TimeoutExpired:
            code = None
            self.end()
        for stream in streams:
            if not stream.at_end(_DRAIN_SECONDS):
                self.end()  # a process it left behind holds the stream open
                stream.at_end(_DRAIN_SECONDS)
        out, err = (stream.text() for stream in streams)
        return Ran(code, out, err)

    def end(self) -> None:
        """End the program and everything it started, and wait for its own end."""
        self._ended.set()
        process = self._process
        if process is None:
            return
        for _ in range(_ROUNDS):
            found = [each for each in self._family(process) if _killed(each)]
            if not found:
                break
            psutil.wait_procs(found, timeout=1.0)

    def _family(self, process: subprocess.Popen[bytes]) -> set[psutil.Process]:
        found: set[psutil.Process] = set()
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(process.pid)
            if process.poll() is None:
                found |= {first, *first.children(recursive=True)}
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if each.environ().get(MARK) == self._mark:
                    found.add(each)
        return found


def _killed(process: psutil.Process) -> bool:
    """Whether it was alive and has been told to end."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        process.kill()
    except psutil.Error:
        return False
    return True


def _feed(stream: IO[bytes], given: bytes) -> None:
    # A program need not read its input.
    with contextlib.suppress(OSError, ValueError), stream:
        stream.write(given)


class _Kept:
    """The start of what comes out of a stream, read to its end so that nobody waits for us."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._bytes = bytearray()
        self._cut = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._stream:
            while chunk := os.read(self._stream.fileno(), _CHUNK):
                room = KEPT_BYTES - len(self._bytes)
                self._cut = self._cut or len(chunk) > room
                self._bytes += chunk[: max(room, 0)]

    def at_end(self, seconds: float) -> bool:
        """Whether the stream came to its end, waited for that long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def text(self) -> str:
        """What was kept; what is not UTF-8 is replaced."""
        text = bytes(self._bytes).decode("utf-8", "replace")
        return f"{text}\n[cut after {KEPT_BYTES} bytes]" if self._cut else text
