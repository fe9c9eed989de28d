"""A wire that is cut at a chosen instant: a relay between a client and a server on loopback.

What a network does and no server can be asked to do: a request that never arrives, an answer that never comes back.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal

Cut = Literal["before the request", "before the answer"]


class CuttingRelay:
    """Relays to `port` until `cut` is set; then the next bytes that way are lost and the connection is closed."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut: Cut | None = None
        self.cuts = 0
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._open |= {client, server}
            for source, target, last in ((client, server, "before the request"), (server, client, "before the answer")):
                thread = threading.Thread(target=self._relay, args=(source, target, last))
                self._threads.append(thread)
                thread.start()

    def _relay(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.cut == way:
                    self.cut = None
                    self.cuts += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End every connection and wait until nothing is relayed any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for end in self._open:
            end.close()
