"""Connections to addresses that were judged: a name is resolved once for each, and what was judged is what is asked.

A name may be another address a moment later, by whoever answers for it. So nothing that was found out about a name
before counts here, and httpx is never given one: the address goes into the URL, the name into the Host header and TLS.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from urllib.parse import urlsplit

import httpx

from prefillgate.api.addresses import AddressRules, forbidden
from prefillgate.engines.lookups import addresses_of


class ForbiddenAddress(httpx.ConnectError):
    """A name is an address that must not be asked."""


class NameNotFound(httpx.ConnectError):
    """A name has no address now."""


class NameUnanswered(httpx.ConnectTimeout):
    """Nobody said in time which addresses a name has."""


class JudgedTransport(httpx.AsyncBaseTransport):
    """Asks by `under`, at addresses that the rules allow. Not for proxies, which resolve names themselves."""

    def __init__(self, rules: AddressRules, under: httpx.AsyncBaseTransport) -> None:
        self._rules = rules
        self._under = under

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The first address that takes the connection answers. Raises as httpx does, `ForbiddenAddress`,
        `NameNotFound`, `NameUnanswered`."""
        url = request.url
        try:
            addresses = await asyncio.wait_for(resolved(str(url), self._rules), _connect_seconds(request))
        except TimeoutError as error:
            raise NameUnanswered(unanswered(url.host), request=request) from error
        if not addresses:
            raise NameNotFound(not_resolved(url.host), request=request)
        denied = forbidden(str(url), addresses, self._rules)
        if denied is not None:
            raise ForbiddenAddress(denied, request=request)
        for address in addresses[:-1]:
            try:
                return await self._ask(request, address)
            except (httpx.ConnectError, httpx.ConnectTimeout):  # nothing was sent yet
                continue
        return await self._ask(request, addresses[-1])

    async def _ask(self, request: httpx.Request, address: str) -> httpx.Response:
        extensions = dict(request.extensions)
        if address != request.url.host:
            extensions["sni_hostname"] = request.url.host  # the name that the certificate must bear, too
        at = request.url.copy_with(host=address)
        asked = httpx.Request(request.method, at, headers=request.headers, stream=request.stream, extensions=extensions)
        return await self._under.handle_async_request(asked)

    async def __aenter__(self) -> JudgedTransport:
        await self._under.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self._under.__aexit__(kind, error, trace)

    async def aclose(self) -> None:
        """Close what is below."""
        await self._under.aclose()


def not_resolved(host: str) -> str:
    """What is said of a name without an address."""
    return f"the name {host} cannot be resolved: is it spelled right, and does the cluster's DNS know it?"


def unanswered(host: str) -> str:
    """What is said of a name that nobody answers for in time."""
    return f"no answer in time to what {host} is: is the cluster's DNS well, or the name server of that name?"


async def resolved(url: str, rules: AddressRules) -> tuple[str, ...]:
    """The addresses of a URL's host; empty where its name is not known. It may take a minute."""
    return await addresses_of(urlsplit(url).hostname or "", rules.tenant)


def _connect_seconds(request: httpx.Request) -> float | None:
    seconds = request.extensions.get("timeout", {}).get("connect")
    return None if seconds is None else float(seconds)
