"""Reading back how a plan names the servers of an arm (`prefillgate.replay.session.named`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NamedServers:
    """The addresses of an arm in order, one a lane, and the model asked for; None: whichever is served."""

    urls: tuple[str, ...]
    model: str | None


def named_servers(text: str | None) -> NamedServers:
    """What `URL[, URL ...][ (MODEL)]` names; nothing where the arm was not there. No address holds a blank or a comma
    followed by one."""
    if not text:
        return NamedServers((), None)
    addresses, bracket, model = text.partition(" (")
    return NamedServers(tuple(addresses.split(", ")), model.removesuffix(")") if bracket else None)
