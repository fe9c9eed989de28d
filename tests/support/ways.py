"""Ways to a server that ask something of a client: TLS with client certificates, an HTTP proxy, a header.

Each is a real listener that passes bytes on to a server behind it, and counts what came.

    with tls_front(server.url, certificate, trusted=authority) as front:
        ...  # front.url, front.names
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import trustme

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Way:
    """A listener. `url` is its address; the rest is what it saw, in order."""

    url: str = ""
    connections: int = 0
    heads: list[bytes] = field(default_factory=list)  # of requests it could read
    names: list[str | None] = field(default_factory=list)  # asked for in a handshake
    clients: list[str] = field(default_factory=list)  # serial numbers of the client certificates shown


@contextmanager
def tls_front(url: str, certificate: trustme.LeafCert, trusted: trustme.CA | None = None) -> Iterator[Way]:
    """TLS in front of a server of plain HTTP. With `trusted`, only a client with a certificate of it gets through."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    if trusted is not None:
        trusted.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    way = Way()
    context.sni_callback = lambda _socket, name, _context: way.names.append(name)

    def connection(client: socket.socket) -> None:
        # Blocking sockets: asyncio drops a client that it refuses without the alert that says why.
        with suppress(OSError), context.wrap_socket(client, server_side=True, do_handshake_on_connect=False) as secure:
            if not _agreed(secure):
                return
            shown = secure.getpeercert()
            if shown:
                way.clients.append(str(shown["serialNumber"]))
            parts = urlsplit(url)
            assert parts.hostname is not None and parts.port is not None
            with socket.create_connection((parts.hostname, parts.port)) as server:
                _relay(secure, server)

    with _accepting(way, connection) as port:
        way.url = f"https://127.0.0.1:{port}"
        yield way


def _agreed(secure: ssl.SSLSocket) -> bool:
    """Whether the handshake came to its end. Where it does not, the client is left time to read why."""
    try:
        secure.do_handshake()
    except ssl.SSLError:
        secure.shutdown(socket.SHUT_WR)
        while secure.recv(65536):
            pass
        return False
    return True


def _relay(client: ssl.SSLSocket, server: socket.socket) -> None:
    """Pass bytes both ways until one side ends."""
    while True:
        ready = [client] if client.pending() else select.select([client, server], [], [])[0]
        for one in ready:
            chunk = one.recv(65536)
            if not chunk:
                return
            (server if one is client else client).sendall(chunk)


@contextmanager
def _accepting(way: Way, connection: Callable[[socket.socket], None]) -> Iterator[int]:
    """A listener on a free port with a thread for each connection; what is still open is dropped at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    clients: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                way.connections += 1
                client.settimeout(60)
                clients.append(client)
                threads.append(threading.Thread(target=connection, args=(client,)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for client in clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()
        for thread in threads:
            thread.join(10)


@contextmanager
def http_proxy(authorization: str | None = None, opens: int | None = None) -> Iterator[Way]:
    """A forward proxy: absolute addresses for http, CONNECT for https.

    With `authorization` it demands that value; after `opens` connections it answers 502.
    """
    way = Way()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        way.connections += 1
        head = await reader.readuntil(b"\r\n\r\n")
        way.heads.append(head)
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        if authorization is not None and _header(head, "proxy-authorization") != authorization:
            await _answer(writer, b"407 Proxy Authentication Required", b'{"error": "who are you?"}')
            return
        if opens is not None and way.connections > opens:
            await _answer(writer, b"502 Bad Gateway", b"no way there")
            return
        address = urlsplit(f"//{target}" if method == "CONNECT" else target)
        try:
            upstream = await asyncio.open_connection(address.hostname, address.port)
        except OSError:
            await _answer(writer, b"502 Bad Gateway", b"no way there")
            return
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            upstream[1].write(_origin_form(head, target))
        await _joined((reader, writer), upstream)

    with _listening(connection) as port:
        way.url = f"http://127.0.0.1:{port}"
        yield way


@contextmanager
def asking_for(url: str, name: str, value: str) -> Iterator[Way]:
    """A front that lets a request through with that header, and answers 403 with the request's own head without it."""
    way = Way()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        way.connections += 1
        head = await reader.readuntil(b"\r\n\r\n")
        way.heads.append(head)
        if _header(head, name) != value:
            await _answer(writer, b"403 Forbidden", b"you sent: " + head)
            return
        upstream = await _to(url)
        upstream[1].write(head)
        await _joined((reader, writer), upstream)

    with _listening(connection) as port:
        way.url = f"http://127.0.0.1:{port}"
        yield way


def _header(head: bytes, name: str) -> str | None:
    for line in head.decode("latin-1").split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.lower() == name.lower():
            return value.strip()
    return None


def _origin_form(head: bytes, target: str) -> bytes:
    """The request as the server gets it: without the address in its first line, without what was for the proxy."""
    parts = urlsplit(target)
    lines = head.split(b"\r\n")
    method, _, version = lines[0].split(b" ")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [line for line in lines[1:] if not line.lower().startswith(b"proxy-")]
    return b"\r\n".join([b" ".join((method, path.encode(), version)), *kept])


async def _answer(writer: asyncio.StreamWriter, status: bytes, body: bytes) -> None:
    head = b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % (status, len(body)) + body)
    await writer.drain()
    writer.close()


async def _to(url: str) -> Streams:
    parts = urlsplit(url)
    return await asyncio.open_connection(parts.hostname, parts.port)


async def _joined(client: Streams, server: Streams) -> None:
    """Pass bytes both ways until both sides have said all they have to say."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    await asyncio.gather(pump(client[0], server[1]), pump(server[0], client[1]))


@contextmanager
def _listening(connection: Connection) -> Iterator[int]:
    """A listener on a free port in a thread of its own; what is still open is dropped at the end."""
    started, ports, stopping = threading.Event(), list[int](), list[Callable[[], object]]()
    running: set[asyncio.Task[None]] = set()

    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await connection(reader, writer)
        finally:
            writer.close()
            running.discard(task)

    async def serve() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        stopping.append(lambda: loop.call_soon_threadsafe(stop.set))
        server = await asyncio.start_server(handled, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()
        await stop.wait()
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait()
    try:
        yield ports[0]
    finally:
        stopping[0]()
        thread.join()
