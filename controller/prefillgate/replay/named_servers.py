"""Reading back how a plan names the servers of an arm (`prefillgate.replay.session.named`)."""

from __future__ import annotations

from dataclasses import dataclass

SOME_ADDRESS = "http://SERVER:PORT"  # of an arm that is named otherwise than by its addresses


@dataclass(frozen=True, slots=True)
class NamedServers:
    """The addresses of an arm in order, one a lane, and the model asked for; None: whichever is served."""

    urls: tuple[str, ...]
    model: str | None


def named_servers(text: str | None) -> NamedServers:
    """What `URL[, URL ...][ (MODEL)]` names; nothing where the arm was not there. No address holds a blank or a comma
    followed by one. An arm with a name of its own has `SOME_ADDRESS`."""
    if not text:
        return NamedServers((), None)
    addresses, bracket, model = text.partition(" (")
    urls = tuple(addresses.split(", ")) if "://" in addresses else (SOME_ADDRESS,)
    return NamedServers(urls, model.removesuffix(")") if bracket else None)
