"""Fetching a replay set over HTTP: bounded, without redirects, from the very address that was judged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from prefillgate.api.access import Access
from prefillgate.app.observe.addresses import AddressRules, forbidden, resolved
from prefillgate.engines.access import AccessError, engine_options
from prefillgate.engines.base import EngineError
from prefillgate.engines.http import HttpLane

SECONDS = 120.0


class NotFetched(Exception):
    """Why there is nothing: `reason` of the table, in words, whether another try may do."""

    def __init__(self, reason: str, said: str, again: bool = True) -> None:
        self.reason = reason
        self.again = again
        super().__init__(said)


async def fetched(url: str, access: Access, rules: AddressRules, most_bytes: int) -> bytes:
    """What stands at a URL. Raises `NotFetched`."""
    addresses = await asyncio.to_thread(resolved, url)
    denied = forbidden(url, addresses, rules)
    if denied is not None:
        raise NotFetched("EndpointForbidden", denied)
    base, path, pinned = _pinned(url, addresses, access)
    try:
        options = replace(engine_options(pinned, None, {}), max_reply_bytes=most_bytes, read_timeout_seconds=SECONDS)
        async with HttpLane(base, options) as lane:
            return await lane.get_bytes(path)
    except AccessError as error:
        raise NotFetched("SecretNotUsable", str(error)) from error
    except EngineError as error:
        # What an address answers is nobody's but the controller's to read: it may be one that a tenant does not reach.
        said = f"it answers {error.http_status}" if error.http_status is not None else str(error)
        raise NotFetched("CasesNotFound", f"{url} cannot be fetched: {said}") from error


def _pinned(url: str, addresses: Sequence[str], access: Access) -> tuple[str, str, Access]:
    """Where to ask: the first of the addresses that were judged, whatever the name is a moment later; and the name.

    A name that does not resolve stays: the error of asking it says so.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not addresses or addresses[0] == host:
        return f"{parts.scheme}://{parts.netloc}", parts.path or "/", access
    address = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    port = "" if parts.port is None else f":{parts.port}"
    named = replace(access, host_header=parts.netloc)
    if parts.scheme == "https":
        named = replace(named, tls_server_name=host)
    return f"{parts.scheme}://{address}{port}", parts.path or "/", named
