"""The base URL of a server, as a person writes it in a file or on the command line."""

from __future__ import annotations

from urllib.parse import urlsplit

from prefillgate.api.errors import shown


def check_url(url: str) -> None:
    """Raise ValueError unless `url` is the base URL of a server: http or https, a host, no credentials, no query.

    A message repeats neither credentials nor a query, which may be a key.
    """
    allowed = "allowed: http://HOST:PORT or https://HOST[:PORT], with a path if need be"
    if "@" in (url.partition("://")[2] or url).partition("/")[0]:
        raise ValueError(
            "the url holds credentials; name a variable that holds the key (apiKeyVariable, --api-key-env)"
        )
    bare = shown(url.partition("?")[0])
    try:
        parts = urlsplit(url)
        port_is_good = parts.port is None or 0 < parts.port < 65536
    except ValueError as error:
        raise ValueError(f"url {bare}: {error} ({allowed})") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_good or not url.isprintable():
        raise ValueError(f"url {bare} is no base URL ({allowed})")
    if parts.query or parts.fragment or " " in url:
        raise ValueError(f"url {bare} has a query, a fragment or a space ({allowed})")
    if parts.path.rstrip("/").endswith("/completions"):
        raise ValueError(f"url {bare} is one endpoint and not the address before /v1 ({allowed})")
