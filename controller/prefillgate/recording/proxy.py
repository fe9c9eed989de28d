"""The pass-through: what comes in goes up and what comes back goes down, byte for byte, as it comes.

One request in is one request up: nothing is asked again, and no connection to the server is used twice
(ENGINES.md section 6). A client that goes away closes its connection to the server, so the server stops too. A server
that breaks off breaks the client's connection off. Only headers that speak of one connection are not passed on.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict
from yarl import URL

from prefillgate.api.replay_set import ROUTES
from prefillgate.engines.http import EngineOptions
from prefillgate.recording.recorder import Recorder, Request
from prefillgate.report.clean import one_line

HEADER_BYTES = 64 * 1024
_OF_A_CONNECTION = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization"),
        *("te", "trailer", "transfer-encoding", "upgrade", "expect"),
    }
)
_CREDENTIALS = ("authorization", "x-api-key", "api-key", "cookie")
_ADDED_BY_AIOHTTP = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT, hdrs.CONTENT_TYPE)


class PassThrough:
    """Passes requests on to the server at `root` and hands the bodies of generations to `recorder`."""

    def __init__(self, root: str, options: EngineOptions, recorder: Recorder, max_body: int) -> None:
        self._root, self._options, self._recorder, self._max_body = root, options, recorder, max_body
        self._name = f"prefillgate-{secrets.token_hex(8)}"
        self._session: aiohttp.ClientSession | None = None

    def application(self) -> web.Application:
        """What listens."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        application.cleanup_ctx.append(self._connections)
        return application

    async def _connections(self, application: web.Application) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0, force_close=True, ssl=self._options.ssl_context or True)
        patience = aiohttp.ClientTimeout(total=None, sock_connect=self._options.connect_timeout_seconds)
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=patience,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_ADDED_BY_AIOHTTP,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        ) as self._session:
            yield

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self._name in request.headers.get(hdrs.VIA, ""):
            return _said(508, "upstream_is_this_recorder", "the upstream of this recorder is the recorder itself")
        kept = _Kept(request, self._max_body)
        try:
            reply = await self._sent(request, kept)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if request.transport is None or request.transport.is_closing():
                raise  # the client went away, not the server
            self._count(request, "unanswered")
            words = _in_words(error)
            return _said(502, "upstream_failed", f"the server behind this recorder: {words}")
        async with reply:
            self._note(request, reply.status, kept)
            return await _passed_down(request, reply)

    async def _sent(self, request: web.Request, kept: _Kept) -> aiohttp.ClientResponse:
        assert self._session is not None
        options = self._options
        proxy_headers = CIMultiDict(options.proxy_headers) if options.proxy_headers else None
        return await self._session.request(
            request.method,
            URL(self._root + request.raw_path, encoded=True),
            headers=self._headers_up(request),
            data=kept.chunks() if request.body_exists else None,
            allow_redirects=False,
            proxy=options.proxy,
            proxy_headers=proxy_headers,
        )

    def _headers_up(self, request: web.Request) -> CIMultiDict[str]:
        headers = _without_connection(request.headers)
        headers.popall(hdrs.HOST, None)
        if self._options.api_key:
            headers[hdrs.AUTHORIZATION] = f"Bearer {self._options.api_key}"
        for name, value in self._options.headers:
            headers[name] = value
        headers.add(hdrs.VIA, f"1.1 {self._name}")
        return headers

    def _note(self, request: web.Request, status: int, kept: _Kept) -> None:
        """Hand the body on, if this was a generation that the server took."""
        if not _is_generation(request):
            return
        if status != 200:
            self._recorder.count_refused(status)
        elif kept.body is None:
            self._recorder.count("too_large")
        else:
            self._recorder.take(Request(request.path, bytes(kept.body), _credentials(request, self._options)))

    def _count(self, request: web.Request, ending: str) -> None:
        if _is_generation(request):
            self._recorder.count(ending)


class _Kept:
    """A request's body while it passes; `body` is None once it is larger than may be kept."""

    def __init__(self, request: web.Request, limit: int) -> None:
        self._request, self._limit = request, limit
        self.body: bytearray | None = bytearray()

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._request.content.iter_any():
            if self.body is not None:
                self.body += chunk
                if len(self.body) > self._limit:
                    self.body = None
            yield chunk


async def _passed_down(request: web.Request, reply: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = _without_connection(reply.headers)
    response = web.StreamResponse(status=reply.status, reason=reply.reason, headers=headers)
    if hdrs.CONTENT_LENGTH not in headers and request.version >= aiohttp.HttpVersion11:
        bodiless = request.method == "HEAD" or reply.status in (204, 304)
        if not bodiless:
            response.enable_chunked_encoding()
    await response.prepare(request)
    try:
        async for chunk in reply.content.iter_any():
            await response.write(chunk)
    except (aiohttp.ClientError, asyncio.IncompleteReadError, OSError):
        # Whoever reads must not take half an answer for a whole one.
        if request.transport is not None:
            request.transport.close()
        return response
    await response.write_eof()
    return response


def _without_connection(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """The headers that are not of one connection, in their order."""
    kept: CIMultiDict[str] = CIMultiDict(headers)
    named = {name.strip().lower() for value in kept.getall(hdrs.CONNECTION, ()) for name in value.split(",")}
    for name in {*_OF_A_CONNECTION, *named} - {""}:
        kept.popall(name, None)
    return kept


def _is_generation(request: web.Request) -> bool:
    return request.method == "POST" and request.path in ROUTES


def _in_words(error: Exception) -> str:
    """Why there is no answer; an answer that is no HTTP is not quoted."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection before its answer was there"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"what it answered is no HTTP ({type(error).__name__})"
    return one_line(str(error) or type(error).__name__, 300)


def _credentials(request: web.Request, options: EngineOptions) -> tuple[str, ...]:
    """What must not be kept, should a body repeat it: every word of the headers that carry credentials."""
    found = {options.api_key or ""}
    for name in _CREDENTIALS:
        for value in request.headers.getall(name, ()):
            found |= {value, *value.replace(";", " ").split()}
    for _, value in options.headers:
        found |= {value, *value.split()}
    return tuple(sorted((value for value in found if len(value) >= 8), key=len, reverse=True))


def _said(status: int, kind: str, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": kind, "code": status}}, status=status)
