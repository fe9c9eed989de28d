"""Which addresses the controller asks: whoever may write a ServingLine must not read through it what only it can reach.

Forbidden unless a setting allows them: this machine, link-local addresses (the metadata service of most clouds among
them), metadata services elsewhere, unspecified and multicast addresses. Names are judged by what they resolve to.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_METADATA = tuple(
    ipaddress.ip_network(each) for each in ("169.254.0.0/16", "fd00:ec2::254/128", "100.100.100.200/32", "fe80::/10")
)
SETTING = "--allow-address"


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Addresses and networks (`10.0.0.0/8`, `127.0.0.1`). Raises ValueError naming the one that is neither."""
    return tuple(ipaddress.ip_network(each.strip(), strict=False) for each in texts)


@dataclass(frozen=True, slots=True)
class AddressRules:
    """`allowed` goes before everything, `denied` is forbidden on top of what always is."""

    allowed: tuple[Network, ...] = ()
    denied: tuple[Network, ...] = ()

    def why_not(self, address: str) -> str | None:
        """Why an IP address must not be asked, in words; None for one that may."""
        found: Address = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        if _within(found, self.allowed):
            return None
        if _within(found, self.denied):
            return "the controller's settings deny it"
        if _within(found, _METADATA) or found.is_link_local:
            return "it is link-local or a metadata service"
        if found.is_loopback or found.is_unspecified:
            return "it is the machine that the controller runs on"
        return "it is a multicast address" if found.is_multicast else None


def _within(address: Address, where: Sequence[Network]) -> bool:
    return any(address.version == each.version and address in each for each in where)


def forbidden(url: str, addresses: Iterable[str], rules: AddressRules) -> str | None:
    """Why a URL whose host has these addresses must not be asked, with what to do; None where it may be."""
    for address in addresses:
        why = rules.why_not(address)
        if why is not None:
            host = urlsplit(url).hostname or ""
            named = host if host == address else f"{host} is {address}, and"
            return f"{named} must not be asked: {why}. {SETTING} {address} allows it to the controller."
    return None


def resolved(url: str) -> tuple[str, ...]:
    """The addresses of a URL's host; empty where its name is not known. Looks the name up, which blocks."""
    host = urlsplit(url).hostname or ""
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(each[4][0]) for each in found))
