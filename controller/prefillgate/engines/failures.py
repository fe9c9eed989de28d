"""What went wrong on the wire, from httpx's errors to the engines' words: one CamelCase reason, one line of detail."""

from __future__ import annotations

import ssl

import httpx

from prefillgate.engines.assemble import DETAIL_LIMIT, Failure
from prefillgate.engines.base import EngineError, TerminalEngineError, TransientEngineError
from prefillgate.engines.judged import ForbiddenAddress, NameUnanswered
from prefillgate.report.clean import one_line

_TERMINAL = frozenset({"Tls", "NotHttp", "TooLong", "BadEncoding", "BadRequest", "AddressForbidden"})
_PROXY_FORBIDS = ("401", "403", "405", "407")  # of a tunnel: asking again brings the same
CREDENTIALS_FOR_PROXY = "the proxy asks for credentials: a line `Proxy-Authorization: Basic ...` in a header file"
_CERTIFICATE_HINTS = (
    ("mismatch", "name what it bears with --tls-server-name"),
    ("expired", "renew it, or measure without checking it with --insecure"),
    ("not yet valid", "look at the clocks, or measure without checking it with --insecure"),
    ("", "trust its authority with --ca-file, or measure without checking it with --insecure"),
)


class TooLongError(Exception):
    """More bytes than allowed."""


class EncodingError(Exception):
    """A content encoding that was not asked for and cannot be undone."""


# What the network, or our reading of it, raises; httpx lets an alert that comes after the handshake through as it is.
NETWORK_ERRORS = (httpx.HTTPError, ssl.SSLError, TimeoutError, TooLongError, EncodingError)


def failure_of(error: Exception, proxy: str | None = None) -> tuple[Failure, bool]:
    """The engines' word for a network error, and whether the server had taken the request.

    What fails between us and `proxy` is no word on the server: it gets a reason of its own.
    """
    words = one_line(str(error) or type(error).__name__, DETAIL_LIMIT)
    if isinstance(error, TooLongError):
        return Failure("TooLong", words), True
    if isinstance(error, EncodingError):
        return Failure("BadEncoding", words), True
    if isinstance(error, httpx.ProxyError):
        hint = f" ({CREDENTIALS_FOR_PROXY})" if words.startswith("407") else ""
        return Failure("Proxy", f"the proxy {proxy} opens no way to the server: {words}{hint}"), False
    if isinstance(error, ForbiddenAddress):
        return Failure("AddressForbidden", words), False
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        return _no_connection(error, words, proxy), False
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return Failure("Timeout", "no complete answer in time"), True
    if isinstance(error, httpx.NetworkError | ssl.SSLError):
        alert = _tls_error(error)
        if alert is not None and "ALERT" in (alert.reason or ""):
            # With TLS 1.3 a server that refuses us says so after the handshake, before it has read a request.
            return Failure("Tls", _tls_words(alert, words)), False
        return Failure("ConnectionLost", _connect_words(error, words)), True
    if isinstance(error, httpx.RemoteProtocolError):
        # h11's words for a connection that ended before the reply did.
        lost = "peer closed" in words or "disconnected" in words
        return Failure("ConnectionLost" if lost else "NotHttp", words), True
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return Failure("BadRequest", words), False
    return Failure(type(error).__name__, words), True


def _no_connection(error: httpx.TransportError, words: str, proxy: str | None) -> Failure:
    tls = _tls_error(error)
    if tls is not None:
        return Failure("Tls", _tls_words(tls, words))
    timed_out = isinstance(error, httpx.ConnectTimeout)
    said = "no connection within the connect timeout" if timed_out else _connect_words(error, words)
    if isinstance(error, NameUnanswered):
        said = words
    if proxy is not None:
        return Failure("Proxy", f"the proxy {proxy} cannot be reached: {said}")
    return Failure("ConnectTimeout" if timed_out else "ConnectionRefused", said)


def _tls_words(error: ssl.SSLError, words: str) -> str:
    """The library's words, and the option that would help."""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = next(text for sign, text in _CERTIFICATE_HINTS if sign in error.verify_message)
        return one_line(f"{words} ({hint})", DETAIL_LIMIT)
    reason = error.reason or ""
    if "ALERT" in reason and any(sign in reason for sign in ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")):
        return one_line(f"{words} (the server wants a client certificate it knows: --client-cert)", DETAIL_LIMIT)
    if reason == "WRONG_VERSION_NUMBER":
        return one_line(f"{words} (what answers there speaks no TLS: http:// instead of https://?)", DETAIL_LIMIT)
    return words


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


def _connect_words(error: BaseException, words: str) -> str:
    """The operating system's words beside the library's, which only say that nothing worked."""
    deepest = error
    while (below := deepest.__cause__ or deepest.__context__) is not None:
        deepest = below
    if isinstance(deepest, OSError) and str(deepest) not in words:
        return one_line(f"{words}: {deepest}", DETAIL_LIMIT)
    return words


def engine_error(where: str, failure: Failure) -> EngineError:
    """The error of a small question that failed so."""
    text = f"{where}: {failure.reason}: {failure.detail}"
    forbidden = failure.reason == "Proxy" and any(f": {status} " in failure.detail for status in _PROXY_FORBIDS)
    return TerminalEngineError(text) if failure.reason in _TERMINAL or forbidden else TransientEngineError(text)
