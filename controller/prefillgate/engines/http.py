"""The one seam to httpx. Everything a network can do is translated here into the engines' words.

One `HttpLane` is one client for one lane of requests. Connections are never reused: with idle keep-alive sockets
a llama.cpp server answered /health after 4.8 s, and its idle close races the client's (ENGINES.md section 6). Proxies
and other settings of the environment are ignored, since a proxy in the path would be measured too. Redirects are not
followed: the address must be that of the server itself.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from prefillgate import __version__
from prefillgate.api.addresses import AddressRules
from prefillgate.engines.assemble import DETAIL_LIMIT, Failure, error_message
from prefillgate.engines.base import Body, EngineError, TerminalEngineError, TransientEngineError
from prefillgate.engines.failures import (
    CREDENTIALS_FOR_PROXY,
    NETWORK_ERRORS,
    EncodingError,
    TooLongError,
    engine_error,
    failure_of,
)
from prefillgate.engines.judged import JudgedTransport
from prefillgate.engines.secrets import Secrets
from prefillgate.report.clean import one_line

ERROR_BODY_BYTES = 64 * 1024
QUOTE_CHARACTERS = 160
_TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How to reach a server. Times in seconds, sizes in bytes.

    `model` is the model to measure where a server has several. `proxy` is `http://HOST:PORT`; `proxy_headers` go to
    it and never to the server. `read_timeout_seconds` bounds the silence in a small
    question (/props, /metrics): a server may answer those only between two steps of a long prefill. A generation is
    bounded by its own deadline alone.
    """

    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    ssl_context: ssl.SSLContext | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    proxy: str | None = None
    proxy_headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 90.0
    probe_timeout_seconds: float = 600.0
    attempts: int = 4  # of the idempotent questions of discovery
    max_reply_bytes: int = 64 * 1024 * 1024
    addresses: AddressRules | None = None  # each connection goes to an address that these allow
    probe_words: int = 380  # about as many tokens; ENGINES.md section 1 asks for 300 to 600


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one POST. `failure` None means: status 200 and every byte handed on.

    `accepted` is False where the server never took the request (STATISTICS.md section 1: no connection, TLS
    failure, 3xx, 4xx, 503 before a byte of the answer).
    """

    http_status: int | None = None
    content_type: str = ""
    failure: Failure | None = None
    accepted: bool = True
    retry_after_seconds: float | None = None
    error_body: str = ""


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """An address without its /v1, as sent and as shown. Credentials in it are sent, never shown."""

    root: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def base_url(text: str) -> BaseUrl:
    """Read an address such as `http://host:8080`, `https://host/prefix/v1`, `http://[::1]:8080/`.

    Raises `TerminalEngineError` naming the address and what is allowed.
    """
    shown = one_line(text, 200)
    try:
        parts = urlsplit(text.strip())
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise TerminalEngineError(f"{shown!r} is not an address: {error}") from error
    if parts.scheme not in ("http", "https") or not host or any(char.isspace() for char in parts.netloc):
        raise TerminalEngineError(f"{shown!r} is not an address; give http://HOST:PORT or https://HOST/PREFIX")
    if parts.query or parts.fragment:
        raise TerminalEngineError(f"{shown!r}: an address with ? or # is not allowed; give it without")
    if parts.path.rstrip("/").endswith("/completions"):
        raise TerminalEngineError(f"{shown!r} is one endpoint; give the address before /v1")
    host = f"[{host}]" if ":" in host else host
    netloc = host if port is None else f"{host}:{port}"
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    root = urlunsplit((parts.scheme, netloc, path, "", ""))
    try:
        httpx.URL(root)
    except httpx.InvalidURL as error:
        raise TerminalEngineError(f"{shown!r} is not an address: {error}") from error
    return BaseUrl(root, parts.username, parts.password)


def encode_body(body: Body) -> bytes:
    """The body's bytes as they are sent: compact JSON, UTF-8, text unescaped. Raises ValueError for NaN."""
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        # Half a surrogate pair has no UTF-8; escaped it goes out as it was written.
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode("ascii")


@cache
def _default_ssl_context() -> ssl.SSLContext:
    return ssl.create_default_context()


class HttpLane:
    """One lane to one server. Use as an async context manager."""

    def __init__(self, url: str, options: EngineOptions) -> None:
        base = base_url(url)
        self.url = base.root
        self.options = options
        if options.proxy is not None and self.url.startswith("https://["):
            raise TerminalEngineError(f"{self.url}: no proxy can be asked for an IPv6 address over https; give a name")
        self._auth = httpx.BasicAuth(base.user, base.password or "") if base.user else None
        self._client: httpx.AsyncClient | None = None
        self._in_handshake = False
        self.secrets = Secrets(options.api_key, (*options.headers, *options.proxy_headers))

    async def __aenter__(self) -> HttpLane:
        options = self.options
        headers = httpx.Headers({"user-agent": f"prefillgate/{__version__}", "accept-encoding": "identity"})
        if options.api_key:
            headers["authorization"] = f"Bearer {options.api_key}"
        headers.update(list(options.headers))
        verify: ssl.SSLContext | bool = options.ssl_context or _default_ssl_context()
        if self.url.startswith("http://") and options.ssl_context is None:
            # Loading the system's certificates costs more than a short run's requests; plain HTTP needs none.
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        limits = httpx.Limits(max_keepalive_connections=0)
        judged: httpx.AsyncBaseTransport | None = None
        if options.addresses is not None:
            plain = httpx.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits)
            judged = JudgedTransport(options.addresses, plain)
        self._client = httpx.AsyncClient(
            headers=headers,
            proxy=None if options.proxy is None else httpx.Proxy(options.proxy, headers=list(options.proxy_headers)),
            auth=self._auth,
            verify=verify,
            trust_env=False,
            follow_redirects=False,
            limits=limits,
            transport=judged,
            timeout=httpx.Timeout(options.read_timeout_seconds, connect=options.connect_timeout_seconds),
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def get_json(self, path: str) -> Any:
        """The JSON at `path`. Raises `TransientEngineError` or `TerminalEngineError`; never retries."""
        body = await self.get_bytes(path)
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            said = f"{_kind(body)}, not JSON: {quote(self._hidden(body))}"
            raise NotJsonError(f"{self.url}{path} answered {said}") from None

    async def get_bytes(self, path: str) -> bytes:
        """The body at `path`. Raises as `get_json` does; a status that will not change is an `HttpStatusError`."""
        return (await self.get(path))[0]

    async def get(self, path: str) -> tuple[bytes, httpx.Headers]:
        """Body and headers at `path`. Raises as `get_bytes` does."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.options.read_timeout_seconds), self._open("GET", path) as response:
                async for chunk in _bounded(response, self.options.max_reply_bytes):
                    body += chunk
                status, headers = response.status_code, response.headers
        except NETWORK_ERRORS as error:
            raise engine_error(f"{self.url}{path}", self._failure(error)[0]) from error
        if status != 200:
            raise status_error(f"{self.url}{path}", status, self._hidden(bytes(body)), headers)
        return bytes(body), headers

    async def post(self, path: str, body: bytes, timeout_seconds: float, sink: Callable[[bytes], bool]) -> Sent:
        """Send once, hand the body of a 200 to `sink` chunk by chunk until it says True, tell what became of it.

        Never raises for what a server does and never retries. `sink` gets decoded bytes, never decompressed
        beyond the reply limit.
        """
        opened: httpx.Response | None = None
        try:
            async with asyncio.timeout(timeout_seconds), self._open("POST", path, body) as response:
                opened = response
                if response.status_code != 200:
                    return await self._refused(response)
                async for chunk in _bounded(response, self.options.max_reply_bytes):
                    if sink(chunk):
                        break
                return Sent(200, _content_type(response))
        except NETWORK_ERRORS as error:
            failure, accepted = self._failure(error)
            if failure.reason == "Timeout":
                failure = Failure("Timeout", f"no complete answer within {timeout_seconds:g} s")
            status = opened.status_code if opened is not None else None
            return Sent(status, _content_type(opened) if opened is not None else "", failure, accepted)

    async def _refused(self, response: httpx.Response) -> Sent:
        status = response.status_code
        body = bytearray()
        try:
            async for chunk in _bounded(response, ERROR_BODY_BYTES):
                body += chunk
        except NETWORK_ERRORS:
            # The status is the news; what was read of the message will do.
            pass
        said = self._hidden(bytes(body))
        return Sent(
            http_status=status,
            content_type=_content_type(response),
            failure=Failure("HttpError", _status_words(status, said, response.headers)),
            accepted=not (300 <= status < 500 or status == 503),
            retry_after_seconds=_retry_after(response.headers),
            error_body=said.decode("utf-8", "replace"),
        )

    def _hidden(self, body: bytes) -> bytes:
        """An error's body without our secrets."""
        return self.secrets.out_of_error(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    @asynccontextmanager
    async def _open(self, method: str, path: str, body: bytes | None = None) -> AsyncIterator[httpx.Response]:
        if self._client is None:
            raise RuntimeError("the engine is not open; use it as an async context manager")
        headers = {"content-type": "application/json"} if body is not None else {}
        extensions: dict[str, Any] = {}
        if self.url.startswith("https:"):
            extensions["trace"] = self._trace
        elif self.options.proxy is not None:
            # httpcore leaves the brackets of an IPv6 address out of what a proxy is asked for.
            extensions["target"] = (self.url + path).encode("ascii")
        if body is not None:
            # A generation is bounded by its own deadline; silence during a long prefill is no fault.
            extensions["timeout"] = httpx.Timeout(None, connect=self.options.connect_timeout_seconds).as_dict()
        request = self._client.build_request(
            method, self.url + path, content=body, headers=headers, extensions=extensions
        )
        response = await self._client.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def _trace(self, event: str, _info: Mapping[str, Any]) -> None:
        part, _, step = event.partition(".")
        if part in ("connection", "proxy"):  # a tunnel's handshake is the proxy's event
            self._in_handshake = step.removeprefix("start_tls.") in ("started", "failed")

    def _failure(self, error: Exception) -> tuple[Failure, bool]:
        if isinstance(error, httpx.ConnectTimeout) and self._in_handshake:
            # A server of plain HTTP waits for the end of what it takes for a request line.
            detail = "connected, but no TLS handshake within the connect timeout; does this server speak plain http?"
            return Failure("Tls", detail), False
        return failure_of(error, self.options.proxy)


class NotJsonError(TerminalEngineError):
    """A good status and a body that is no JSON."""


class HttpStatusError(TerminalEngineError):
    """A status that will not change by asking again. `status` is the number, `words` the server's message."""

    def __init__(self, where: str, status: int, words: str) -> None:
        super().__init__(f"{where}: {words}")
        self.status = self.http_status = status
        self.words = words


def status_error(where: str, status: int, body: bytes, headers: httpx.Headers) -> EngineError:
    """The error for a status other than 200, with the server's own message."""
    words = _status_words(status, body, headers)
    if status in _TRANSIENT_STATUS:
        error = TransientEngineError(f"{where}: {words}")
        error.http_status, error.retry_after_seconds = status, _retry_after(headers)
        return error
    return HttpStatusError(where, status, words)


def quote(body: bytes) -> str:
    """The start of a body in quotes, clean of control characters."""
    text = body[: QUOTE_CHARACTERS * 4].decode("utf-8", "replace")
    return f"“{one_line(text, QUOTE_CHARACTERS)}”"


def _kind(body: bytes) -> str:
    start = body[:400].lstrip().lower()
    if not start:
        return "an empty body"
    return "HTML" if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")) else "something"


def _status_words(status: int, body: bytes, headers: httpx.Headers) -> str:
    hint = ""
    if status in (401, 403):
        hint = " (an API key is needed, or the one given is not accepted)"
    elif status == 407:
        hint = f" ({CREDENTIALS_FOR_PROXY})"
    elif 300 <= status < 400:
        hint = f" (redirects to {one_line(headers.get('location', 'nowhere'), 200)}; give that address)"
    try:
        message = error_message(json.loads(body))
    except (ValueError, RecursionError):
        message = f"{_kind(body)}: {quote(body)}" if body else "no message"
    return one_line(f"HTTP {status}{hint}: {message}", DETAIL_LIMIT)


def _content_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _retry_after(headers: httpx.Headers) -> float | None:
    """Seconds to wait, from either form of Retry-After, or None."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit() and len(text) < 9:
        return float(text)
    try:
        due = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    due = due if due.tzinfo is not None else due.replace(tzinfo=UTC)
    return max(0.0, (due - datetime.now(UTC)).total_seconds())


async def _bounded(response: httpx.Response, limit: int) -> AsyncIterator[bytes]:
    """The body's bytes, decompressed if need be, `limit` at most. A small reply cannot unfold into a large one."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    unpack = None
    if encoding in ("gzip", "x-gzip", "deflate"):
        unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    elif encoding not in ("", "identity"):
        raise EncodingError(f"the reply is encoded as {one_line(encoding, 40)!r}, which was not asked for")
    size = 0
    async for chunk in response.aiter_raw():
        if unpack is not None:
            try:
                chunk = unpack.decompress(chunk, limit - size + 1)
            except zlib.error as error:
                raise EncodingError(f"the reply says {encoding} and is not: {error}") from error
        size += len(chunk)
        if size > limit:
            raise TooLongError(f"the reply is longer than {limit} bytes")
        if chunk:
            yield chunk
