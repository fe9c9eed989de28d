"""How a server is reached: names of files and variables, or secrets held in memory, which are in no text of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from prefillgate.api.addresses import AddressRules
from prefillgate.api.errors import shown

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Held:
    """A secret in memory. Errors call it by its name (`Secret llm, key token`); its value is in no text of it."""

    name: str
    value: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class HeldAccess:
    """What a connection needs, in memory. PEM but for the key of the API. None: not asked for."""

    api_key: Held | None = None
    ca: Held | None = None  # trusted instead of the system's certificates
    client_cert: Held | None = None  # may hold the key too
    client_key: Held | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """Everything a connection needs beside its URL. None: not asked for."""

    api_key_variable: str | None = None  # the environment variable that holds the key
    header_file: Path | None = None  # one `Name: value` a line
    ca_file: Path | None = None  # PEM; trusted instead of the system's certificates
    client_cert: Path | None = None  # PEM, may hold the key too
    client_key: Path | None = None
    tls_server_name: str | None = None  # the name that the certificate must bear, and SNI
    insecure: bool = False  # the certificate is not checked: said in the verdict
    proxy: str | None = None  # http://HOST:PORT; the environment's proxies are never used
    held: HeldAccess | None = None  # secrets in memory, each instead of its variable or file
    host_header: str | None = None  # the name to ask for where the address is not it
    addresses: AddressRules | None = None  # each connection goes to an address that these allow


def check_variable(name: str) -> None:
    """Raise ValueError unless `name` can be that of a variable. Never repeats it: it may be the key itself."""
    if not _VARIABLE.fullmatch(name) or len(name) > 128:
        raise ValueError(
            "what is given as the variable of the API key is no name of one (allowed: the name of an environment "
            "variable, as LLM_KEY; never the key itself)"
        )


def check_proxy(proxy: str) -> None:
    """Raise ValueError unless `proxy` is the address of an HTTP proxy. Credentials in it are refused, not repeated."""
    allowed = "(allowed: http://HOST:PORT)"
    if "@" in proxy:
        raise ValueError(
            "proxy: credentials in an address would stand in the process list (allowed: http://HOST:PORT, and a line "
            "`Proxy-Authorization: Basic ...` in a header file)"
        )
    try:
        parts = urlsplit(proxy)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"proxy {shown(proxy)} is no address: {error} {allowed}") from error
    if parts.scheme != "http" or not host or not port or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"proxy {shown(proxy)} cannot be used {allowed}")
