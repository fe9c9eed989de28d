"""A reverse proxy in front of a simulated server, for what neither it nor a real server can be made to say.

It passes everything on but the paths it was told to answer itself. Why each rewriting test needs it stands there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from aiohttp import web

from tests.support.serving import serving

Rewrite = Callable[[web.Request, bytes], Awaitable[web.StreamResponse | bytes]]
"""Given the request and the true body (of a GET), what to answer: a body in its place or a whole response."""

Edit = Callable[[str, bytes], bytes | web.Response]
"""Given path and body of a request, the body to pass on in its place, or an answer given without asking."""

FORWARDED = ("authorization", "content-type")


@dataclass(frozen=True)
class Arrived:
    """A request as it came to the proxy. Names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@contextmanager
def rewriting(
    url: str, rewrites: Mapping[str, Rewrite], arrived: list[Arrived] | None = None, edit: Edit | None = None
) -> Iterator[str]:
    """The address of a proxy to `url`.

    It rewrites the answers of the paths named and the requests by `edit`, and notes what comes in `arrived`.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        if arrived is not None:
            arrived.append(Arrived(request.method, request.path_qs, headers, body))
        edited = body if edit is None else edit(request.path, body)
        if isinstance(edited, web.Response):
            return edited
        passed = {name: headers[name] for name in FORWARDED if name in headers}
        async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
            reply = await client.request(request.method, url + request.path_qs, content=edited, headers=passed)
        rewrite = rewrites.get(request.path)
        if rewrite is None:
            said: web.StreamResponse | bytes = reply.content
        else:
            said = await rewrite(request, reply.content)
        if isinstance(said, web.StreamResponse):
            return said
        kind = reply.headers.get("content-type", "application/json").partition(";")[0]
        return web.Response(body=said, status=reply.status_code, content_type=kind)

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handle)
    with serving(app) as address:
        yield address
