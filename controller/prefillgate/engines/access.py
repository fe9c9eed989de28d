"""From the names of an `Access` to open options: the key out of its variable, headers and certificates out of files."""

from __future__ import annotations

from collections.abc import Mapping

from prefillgate.api.access import Access, check_proxy, check_variable
from prefillgate.engines.header_file import PROXY_AUTHORIZATION, Header, read_header_file
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
    key = None if access.api_key_variable is None else _key(access.api_key_variable, environment)
    headers = () if access.header_file is None else read_header_file(access.header_file)
    if key is not None and any(name.lower() == "authorization" for name, _ in headers):
        raise AccessError(
            f"header file {access.header_file} has an Authorization header, and {access.api_key_variable} holds an "
            "API key too (allowed: one of the two)"
        )
    ours, to_proxy = _sorted_out(headers)
    if to_proxy and access.proxy is None:
        raise AccessError(f"header file {access.header_file} has Proxy-Authorization, and no proxy is named")
    return EngineOptions(
        api_key=key,
        model=model,
        ssl_context=tls_context(access),
        headers=ours,
        proxy=access.proxy,
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
