"""From the names of an `Access` to open options: the key out of its variable, headers and certificates out of files."""

from __future__ import annotations

from collections.abc import Mapping

from prefillgate.api.access import Access, Held, check_proxy, check_variable
from prefillgate.engines.header_file import PROXY_AUTHORIZATION, Header, checked_value, read_header_file
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.tls import AccessError, tls_context

__all__ = ["AccessError", "access_findings", "engine_options"]


def engine_options(access: Access, model: str | None, environment: Mapping[str, str]) -> EngineOptions:
    """The options that reach a server as `access` says. Raises `AccessError`."""
    try:
        if access.proxy is not None:
            check_proxy(access.proxy)
        if access.api_key_variable is not None:
            check_variable(access.api_key_variable)
    except ValueError as error:
        raise AccessError(str(error)) from error
    named = _named_key(access)
    key = None if named is None else _key(named, environment)
    headers = () if access.header_file is None else read_header_file(access.header_file)
    if named is not None and any(name.lower() == "authorization" for name, _ in headers):
        where = named if isinstance(named, str) else named.name
        raise AccessError(
            f"header file {access.header_file} has an Authorization header, and {where} holds an "
            "API key too (allowed: one of the two)"
        )
    headers = _with_host(headers, access)
    ours, to_proxy = _sorted_out(headers)
    if to_proxy and access.proxy is None:
        raise AccessError(f"header file {access.header_file} has Proxy-Authorization, and no proxy is named")
    if access.proxy is not None and access.addresses is not None:
        raise AccessError(f"proxy {access.proxy}: it would resolve names by itself, and addresses are to be judged")
    return EngineOptions(
        api_key=key,
        model=model,
        ssl_context=tls_context(access),
        headers=ours,
        proxy=access.proxy,
        proxy_headers=to_proxy,
        addresses=access.addresses,
    )


def access_findings(access: Access, url: str) -> tuple[str, ...]:
    """What the verdict must say of the way to a server, one sentence each."""
    findings = []
    if access.insecure and url.lower().startswith("https:"):
        findings.append("the server's certificate was not checked (--insecure): whoever answered may be another server")
    if access.proxy is not None:
        findings.append(f"requests went through the proxy {access.proxy}: what it adds was measured too")
    return tuple(findings)


def _named_key(access: Access) -> str | Held | None:
    """Where the API key is: a variable's name, or what is held in memory."""
    held = None if access.held is None else access.held.api_key
    if held is not None and access.api_key_variable is not None:
        raise AccessError(f"API key: {access.api_key_variable} and {held.name} are given (allowed: one of the two)")
    return access.api_key_variable if held is None else held


def _with_host(headers: tuple[Header, ...], access: Access) -> tuple[Header, ...]:
    if access.host_header is None:
        return headers
    if any(name.lower() == "host" for name, _ in headers):
        raise AccessError(f"header file {access.header_file} has a Host header, and a host header is named beside it")
    return (*headers, ("Host", checked_value(access.host_header, "host header")))


def _key(named: str | Held, environment: Mapping[str, str]) -> str:
    """The key without the line end that a file or a Secret leaves. Its value stands in no message."""
    if isinstance(named, Held):
        variable, key = named.name, named.value.decode("utf-8", "replace").strip()
        if not key:
            raise AccessError(f"API key: {variable} is empty (allowed: a word of ASCII characters)")
    else:
        variable, key = named, environment.get(named, "").strip()
    if not key:
        if variable != variable.upper():  # not how variables are named: it may be the key itself
            raise AccessError(
                "the variable named for the API key is not set (allowed: a variable's name, never the key)"
            )
        raise AccessError(f"API key: {variable} is not set in the environment (allowed: the name of a variable)")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise AccessError(
            f"API key: {variable} holds what no HTTP header can carry (allowed: a word of ASCII characters)"
        )
    return key


def _sorted_out(headers: tuple[Header, ...]) -> tuple[tuple[Header, ...], tuple[Header, ...]]:
    """Headers for the server, and those for the proxy alone."""
    to_proxy = tuple(header for header in headers if header[0].lower() == PROXY_AUTHORIZATION)
    return tuple(header for header in headers if header not in to_proxy), to_proxy
