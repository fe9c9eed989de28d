"""Which addresses the controller asks: whoever may write a ServingLine must not read through it what only it can reach.

Forbidden unless a setting allows them: this machine, link-local addresses (the metadata service of most clouds among
them), metadata services elsewhere, unspecified and multicast addresses. Names are judged by what they resolve to.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_METADATA = tuple(
    ipaddress.ip_network(each)
    for each in (
        *("169.254.0.0/16", "fe80::/10"),  # most clouds
        "fd00:ec2::/32",  # Amazon, what hands out credentials to pods among it
        "fd20:ce::254/128",  # Google
        "168.63.129.16/32",  # Azure's WireServer
        *("100.100.100.200/32", "fd00:100::100:200/128"),  # Alibaba
        *("192.0.0.192/32", "fd00:c1::a9fe:a9fe/128"),  # Oracle
        "fd00:42::42/128",  # Scaleway
        "fd00:a9fe:a9fe::1/128",  # Akamai
    )
)
_THIS_MACHINE = (ipaddress.ip_network("0.0.0.0/8"),)  # "this host", RFC 1122 section 3.2.1.3; some systems connect
# IPv6 addresses that end in an IPv4 one: as-is (RFC 4291 2.5.5), translated (RFC 2765, RFC 6052, RFC 8215).
_ENDING_IN_IPV4 = tuple(
    ipaddress.IPv6Network(each)
    for each in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
)
_NO_IPV4 = (ipaddress.IPv6Address("::"), ipaddress.IPv6Address("::1"))  # of ::/96, and no IPv4 address in them
SETTING = "--allow-address"


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Addresses and networks (`10.0.0.0/8`, `127.0.0.1`). Raises ValueError naming the one that is neither."""
    return tuple(ipaddress.ip_network(each.strip(), strict=False) for each in texts)


@dataclass(frozen=True, slots=True)
class AddressRules:
    """`allowed` goes before everything, `denied` is forbidden on top of what always is. `tenant`: whose URLs these are,
    a namespace; names of one are looked up so that another's need not wait."""

    allowed: tuple[Network, ...] = ()
    denied: tuple[Network, ...] = ()
    tenant: str = ""

    def why_not(self, address: str) -> str | None:
        """Why an IP address must not be asked, in words; None for one that may."""
        meant = _meant(ipaddress.ip_address(address.partition("%")[0]))
        if any(_within(each, self.allowed) for each in meant):
            return None
        return next((why for each in meant if (why := self._why_not(each)) is not None), None)

    def _why_not(self, found: Address) -> str | None:
        if _within(found, self.denied):
            return "the controller's settings deny it"
        if _within(found, _METADATA) or found.is_link_local:
            return "it is link-local or a metadata service"
        if found.is_loopback or found.is_unspecified or _within(found, _THIS_MACHINE):
            return "it is the machine that the controller runs on"
        return "it is a multicast address" if found.is_multicast else None


def _meant(address: Address) -> tuple[Address, ...]:
    """An address, and the IPv4 ones that a packet to it may end at: mapped, compatible, NAT64, 6to4, Teredo."""
    if isinstance(address, ipaddress.IPv4Address) or address in _NO_IPV4:
        return (address,)
    inner: list[Address] = [*(address.teredo or ())]
    if address.sixtofour is not None:
        inner.append(address.sixtofour)
    if any(address in each for each in _ENDING_IN_IPV4):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return (address, *inner)


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
