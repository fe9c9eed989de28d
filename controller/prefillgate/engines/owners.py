"""Recognising a server by the owner that its /v1/models names, where a family has no discovery route of its own."""

from __future__ import annotations

from prefillgate.engines.base import TerminalEngineError
from prefillgate.engines.http import HttpLane, HttpStatusError


async def models_owned_by(lane: HttpLane, owner: str) -> bool:
    """Whether /v1/models lists models and names `owner` for all of them. Raises for a missing key and what may pass."""
    try:
        listing = await lane.get_json("/v1/models")
    except HttpStatusError as error:
        if error.status in (401, 403):
            raise
        return False
    except TerminalEngineError:
        return False
    data = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(data, list) or not data:
        return False
    return all(isinstance(entry, dict) and entry.get("owned_by") == owner for entry in data)
