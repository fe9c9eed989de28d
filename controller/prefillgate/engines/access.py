"""From the names of an `Access` to open options: the key out of its variable, headers and certificates out of files."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from prefillgate.api.access import Access
from prefillgate.engines.header_file import PROXY_AUTHORIZATION, Header, read_header_file
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.tls import AccessError, tls_context

__all__ = ["AccessError", "access_findings", "engine_options"]


def engine_options(access: Access, model: str | None, environment: Mapping[str, str]) -> EngineOptions:
    """The options that reach a server as `access` says. Raises `AccessError`."""
    key = None if access.api_key_variable is None else _key(access.api_key_variable, environment)
    headers = () if access.header_file is None else read_header_file(access.header_file)
    if key is not None and any(name.lower() == "authorization" for name, _ in headers):
        raise AccessError(
            f"header file {access.header_file} has an Authorization header, and {access.api_key_variable} holds an "
            "API key too (allowed: one of the two)"
        )
    proxy = None if access.proxy is None else _proxy(access.proxy)
    ours, to_proxy = _sorted_out(headers)
    if to_proxy and proxy is None:
        raise AccessError(f"header file {access.header_file} has Proxy-Authorization, and no proxy is named")
    return EngineOptions(
        api_key=key,
        model=model,
        ssl_context=tls_context(access),
        headers=ours,
        proxy=proxy,
        proxy_headers=to_proxy,
    )


def access_findings(access: Access, url: str) -> tuple[str, ...]:
    """What the verdict must say of the way to a server, one sentence each."""
    findings = []
    if access.insecure and url.lower().startswith("https:"):
        findings.append("the server's certificate was not checked (--insecure): whoever answered may be another server")
    if access.proxy is not None:
        findings.append(f"requests went through the proxy {access.proxy}: what it adds was measured too")
    return tuple(findings)


def _key(variable: str, environment: Mapping[str, str]) -> str:
    """The key without the line end that a file read into a variable leaves. Its value stands in no message."""
    key = environment.get(variable, "").strip()
    if not key:
        raise AccessError(f"{variable} is not set in the environment (allowed: the name of a variable)")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise AccessError(f"{variable} holds what no HTTP header can carry (allowed: one word of ASCII characters)")
    return key


def _sorted_out(headers: tuple[Header, ...]) -> tuple[tuple[Header, ...], tuple[Header, ...]]:
    """Headers for the server, and those for the proxy alone."""
    to_proxy = tuple(header for header in headers if header[0].lower() == PROXY_AUTHORIZATION)
    return tuple(header for header in headers if header not in to_proxy), to_proxy


def _proxy(text: str) -> str:
    """The proxy's address. Credentials in it are refused without quoting them: they would stand in the process list."""
    allowed = "(allowed: http://HOST:PORT)"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise AccessError(f"proxy: not an address: {allowed}") from error
    if parts.username is not None or parts.password is not None or "@" in text:
        raise AccessError(
            f"proxy of {host or 'no host'}: credentials in an address would stand in the process list "
            "(allowed: http://HOST:PORT, and a line `Proxy-Authorization: Basic ...` in a header file)"
        )
    if parts.scheme != "http" or not host or not port or parts.path.strip("/") or parts.query or parts.fragment:
        raise AccessError(f"proxy {text!r} cannot be used {allowed}")
    return text.rstrip("/")
