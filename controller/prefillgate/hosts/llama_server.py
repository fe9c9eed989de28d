"""llama.cpp's own HTTP server, out of the `xllamacpp` wheel, as a child process.

Run as `python -m prefillgate.hosts.llama_server --port N ...` this module *is* that child. `LlamaServer` starts,
watches and ends one from the parent.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from prefillgate.hosts.llama_arguments import ArgumentError, apply_settings, parse_arguments

READY_MARK = "prefillgate: llama.cpp listens on "
_READY = re.compile(re.escape(READY_MARK) + r"\S*:(\d+)\r?\n")
WATCH_PARENT = "--exit-with-parent"


class ServerStartError(RuntimeError):
    """The child ended or never became healthy. The message shows the end of its log."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until ended from outside. Exit code 2 for an argument that is not allowed."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    watch_parent = WATCH_PARENT in given
    given = [text for text in given if text != WATCH_PARENT]
    try:
        settings = parse_arguments(given)
    except ArgumentError as error:
        sys.stderr.write(f"llama_server: {error}\n")
        return 2
    import xllamacpp

    from prefillgate.hosts.models import packaged_model

    params = xllamacpp.CommonParams()
    params.endpoint_metrics = params.endpoint_slots = params.endpoint_props = True
    apply_settings(params, settings, xllamacpp)
    if not params.model.path:
        params.model.path = str(packaged_model())
    if not params.model_alias:
        params.model_alias = {Path(params.model.path).stem}
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{READY_MARK}{server.listening_address}\n")
    sys.stdout.flush()
    _wait(watch_parent)
    return 0


def _wait(watch_parent: bool) -> None:
    """Block until the parent's end of standard input closes, or for ever."""
    if watch_parent:
        while sys.stdin.buffer.read(4096):
            pass
        # The library's threads may sit in a long computation; leaving at once is the point of watching.
        os._exit(0)
    forever = threading.Event()
    while not forever.wait(3600):
        pass


class LlamaServer:
    """One real llama.cpp server on the loopback interface. Use as a context manager, or start() and stop().

    `arguments` are llama-server style (see `prefillgate.hosts.llama_arguments`). The port stays the same through
    restarts. The child ends by itself when this process does, however it ends.
    """

    def __init__(
        self,
        arguments: Sequence[str] = (),
        *,
        port: int = 0,
        log_path: Path | None = None,
        start_timeout_seconds: float = 180.0,
    ) -> None:
        self.arguments = tuple(arguments)
        self.start_timeout_seconds = start_timeout_seconds
        parse_arguments(self.arguments)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        if log_path is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="prefillgate-llama-", ignore_cleanup_errors=True)
            log_path = Path(self._scratch.name) / "server.log"
        self.log_path = log_path
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._log_start = 0
        self._extra: tuple[str, ...] = ()

    def __enter__(self) -> LlamaServer:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port, 0 before the first start when none was asked for."""
        return self._port

    @property
    def url(self) -> str:
        """Base address with the path prefix, if one was given; no trailing slash."""
        return f"http://127.0.0.1:{self._port}{self._last('api_prefix') or ''}"

    @property
    def pid(self) -> int:
        """Process id of the child. Raises `RuntimeError` when it was never started."""
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the child lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def api_key(self) -> str | None:
        """The key among the arguments, or None."""
        keys = self._last("api_keys")
        return str(keys[0]) if keys else None

    def start(self, extra_arguments: Sequence[str] = ()) -> LlamaServer:
        """Start the child and wait until /health answers 200.

        Raises `ServerStartError` with the end of the log, `ArgumentError` for an argument that is not allowed.
        """
        if self.running:
            raise RuntimeError(f"the server runs already as process {self.pid}")
        self._extra = tuple(extra_arguments)
        arguments = [*self.arguments, *self._extra]
        parse_arguments(arguments)
        command = [sys.executable, "-m", "prefillgate.hosts.llama_server", *arguments]
        command += ["--port", str(self._port), WATCH_PARENT]
        self._log = self.log_path.open("ab")
        self._log_start = self._log.tell()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self._log, stderr=subprocess.STDOUT)
        try:
            self._wait_until_healthy()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """End the child (politely, then by force) and wait for its end. Safe to call twice."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._reap()

    def kill(self) -> None:
        """End the child at once, as a crash would, and wait for its end."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        self._reap()

    def restart(self, extra_arguments: Sequence[str] = ()) -> LlamaServer:
        """Stop, then start on the same port with the first arguments and `extra_arguments`, which win over them."""
        self.stop()
        return self.start(extra_arguments)

    def version(self) -> str:
        """What the server says of its build; when that is the placeholder of a plain build, the wheel's version too."""
        build = str(self._get_json("/props").get("build_info", ""))
        if build and "unknown" not in build:
            return build
        from importlib.metadata import version

        return f"{build or 'no build_info'} (xllamacpp {version('xllamacpp')})"

    def log_tail(self, lines: int = 20) -> str:
        """The last lines the child of this start has written."""
        return "\n".join(self._log_text().splitlines()[-lines:])

    def _log_text(self) -> str:
        if not self.log_path.is_file():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace")

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + self.start_timeout_seconds
        while not (self._read_port() and self._healthy()):
            assert self._process is not None
            code = self._process.poll()
            if code is not None:
                raise ServerStartError(f"llama.cpp ended with code {code} before it was ready:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                seconds = self.start_timeout_seconds
                raise ServerStartError(f"llama.cpp was not ready after {seconds:g} s:\n{self.log_tail()}")
            time.sleep(0.05)

    def _read_port(self) -> bool:
        """Take the port from the child's own word, so that a free port is found without a race."""
        # Anywhere in a line: the library's threads write to the same log, a line in several pieces.
        found = _READY.search(self._log_text())
        if found is None:
            return False
        self._port = int(found.group(1))
        return True

    def _healthy(self) -> bool:
        try:
            with self._open("/health", 5.0) as reply:
                return int(reply.status) == 200
        except (urllib.error.URLError, OSError):
            return False

    def _get_json(self, path: str) -> dict[str, Any]:
        with self._open(path, 30.0) as reply:
            value = json.loads(reply.read())
        return value if isinstance(value, dict) else {}

    def _open(self, path: str, timeout_seconds: float) -> Any:
        request = urllib.request.Request(self.url + path)
        if self.api_key is not None:
            request.add_header("Authorization", f"Bearer {self.api_key}")
        # A proxy of the environment must never stand between us and our own child.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return opener.open(request, timeout=timeout_seconds)

    def _last(self, attribute: str) -> Any:
        for setting in reversed(parse_arguments(self.arguments + self._extra)):
            if setting.attribute == attribute:
                return setting.value
        return None

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
        if self._log is not None:
            self._log.close()
            self._log = None


if __name__ == "__main__":
    sys.exit(main())
