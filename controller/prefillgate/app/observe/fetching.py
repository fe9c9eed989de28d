"""Fetching a replay set over HTTP: bounded, without redirects, from the very address that was judged."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from prefillgate.api.access import Access
from prefillgate.api.addresses import AddressRules
from prefillgate.engines.access import AccessError, engine_options
from prefillgate.engines.base import EngineError
from prefillgate.engines.http import HttpLane
from prefillgate.engines.judged import ForbiddenAddress

SECONDS = 120.0


class NotFetched(Exception):
    """Why there is nothing: `reason` of the table, in words, whether another try may do."""

    def __init__(self, reason: str, said: str, again: bool = True) -> None:
        self.reason = reason
        self.again = again
        super().__init__(said)


async def fetched(url: str, access: Access, rules: AddressRules, most_bytes: int) -> bytes:
    """What stands at a URL. Raises `NotFetched`."""
    parts = urlsplit(url)
    try:
        options = engine_options(replace(access, addresses=rules), None, {})
        options = replace(options, max_reply_bytes=most_bytes, read_timeout_seconds=SECONDS)
        async with HttpLane(f"{parts.scheme}://{parts.netloc}", options) as lane:
            return await lane.get_bytes(parts.path or "/")
    except AccessError as error:
        raise NotFetched("SecretNotUsable", str(error)) from error
    except EngineError as error:
        if isinstance(error.__cause__, ForbiddenAddress):
            raise NotFetched("EndpointForbidden", str(error.__cause__)) from error
        # What an address answers is nobody's but the controller's to read: it may be one that a tenant does not reach.
        said = f"it answers {error.http_status}" if error.http_status is not None else str(error)
        raise NotFetched("CasesNotFound", f"{url} cannot be fetched: {said}") from error
