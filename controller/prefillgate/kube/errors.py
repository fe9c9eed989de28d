"""What can go wrong with the API server, in two classes: transient, which passes, and terminal, which does not.

Everything that `kubernetes.aio`, `aiohttp` or a proxy on the way raises or answers becomes one of these at the seam,
the original chained. Texts are cleaned for a terminal and hold nothing of an answer but the API server's own message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefillgate.api.errors import InputError, clean

LONGEST_MESSAGE = 500
LONGEST_CAUSES = 20
NAMESPACE_ENDS = "NamespaceTerminating"
LONGEST_RETRY_AFTER_SECONDS = 300.0  # what a server or a proxy asks for beyond that is asked of everybody in vain
UNKNOWN_PATH = "404 page not found"  # what the API server itself answers, as text, where a group or kind is not served


class AccessError(InputError):
    """No cluster can be reached with what a person gave: no kubeconfig, no such context, a file that cannot be read."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing the API server finds wrong with an object: the path of the field, and what is wrong. `reason` is the
    API's own word for that."""

    field: str
    message: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class KubeError(Exception):
    """A call failed. `code` is the HTTP status (None where there was no answer), `reason` the API's own word for it.

    `retry_after_seconds` is how long the server asks to be left alone, at most 300, None where it does not say.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        reason: str = "",
        retry_after_seconds: float | None = None,
        causes: tuple[Cause, ...] = (),
    ) -> None:
        self.code = code
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        self.causes = causes
        super().__init__(short(message))

    @property
    def namespace_ends(self) -> bool:
        """Whether it failed since the namespace is being deleted, which takes nothing new any more."""
        return any(each.reason == NAMESPACE_ENDS for each in self.causes)


class Transient(KubeError):
    """It may work in a while without anybody doing anything."""


class Unreachable(Transient):
    """No complete answer: refused, reset, timed out, cut off, a certificate that does not match."""


class Throttled(Transient):
    """429: too many requests."""


class ServerError(Transient):
    """5xx, from the API server or from a proxy before it."""


class NotJson(Transient):
    """An answer, but not of the Kubernetes API: the page of a proxy or of a login, JSON of something else."""


class Terminal(KubeError):
    """The same request will fail again until somebody changes something."""


class Unauthorized(Terminal):
    """401: the credentials are not known or no longer valid."""


class Forbidden(Terminal):
    """403: RBAC, a quota or an admission policy."""


class NotFound(Terminal):
    """404: no such object, or the kind is not served."""


class Conflict(Terminal):
    """409: the object is no longer what we read, or a field belongs to another manager."""


class AlreadyExists(Conflict):
    """409 of a create: the name is taken."""


class Gone(Terminal):
    """410: the resourceVersion or the continue token is too old. List again."""


class Invalid(Terminal):
    """400, 413, 422 and other 4xx: the request itself. `causes` name the fields."""


_BY_CODE: dict[int, type[KubeError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: Throttled,
}


_OF_CAUSE = (("field", "field"), ("message", "reason"), ("reason", "reason"))


def short(text: str) -> str:
    """One line without control characters, at most `LONGEST_MESSAGE` long."""
    line = clean(" ".join(text.split()))
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"


def from_status(what: str, status: Mapping[str, Any], retry_after: str | None = None) -> KubeError:
    """The error that an object of kind Status stands for. `what` was asked for; `retry_after` is the header."""
    code = status.get("code")
    code = code if isinstance(code, int) else 500
    reason = str(status.get("reason") or "")
    details = status.get("details")
    details = details if isinstance(details, Mapping) else {}
    said = short(str(status.get("message") or reason or f"status {code}"))
    return _class_of(code, reason)(
        f"{what}: {said}",
        code=code,
        reason=reason,
        retry_after_seconds=_seconds(retry_after, details.get("retryAfterSeconds")),
        causes=_causes(details.get("causes")),
    )


def from_answer(what: str, code: int, text: str, retry_after: str | None = None) -> KubeError:
    """The error of an answer that is no Status: what a proxy says is never taken for the API server's word.

    A proxy's 404 does not mean that the object is gone, nor its 403 that RBAC forbids it.
    """
    if code == 404 and text.strip() == UNKNOWN_PATH:
        return NotFound(f"{what}: the API server does not serve this kind", code=code, reason="NotServed")
    kind = _BY_CODE.get(code) if code in {401, 429} else ServerError if code >= 500 else NotJson
    looks = "an HTML page" if text.lstrip()[:1] == "<" else "something that is no answer of the Kubernetes API"
    return (kind or NotJson)(
        f"{what}: {looks}, with status {code}; is there a proxy or a login before the API server?",
        code=code,
        retry_after_seconds=_seconds(retry_after, None),
    )


def _class_of(code: int, reason: str) -> type[KubeError]:
    if reason == "AlreadyExists":
        return AlreadyExists
    if reason == "Expired":  # of a continue token; some servers give it another code
        return Gone
    if code >= 500:
        return ServerError
    return _BY_CODE.get(code, Invalid)


def _causes(found: Any) -> tuple[Cause, ...]:
    if not isinstance(found, list):
        return ()
    return tuple(
        Cause(*(short(str(each.get(one) or each.get(other) or "")) for one, other in _OF_CAUSE))
        for each in found[:LONGEST_CAUSES]
        if isinstance(each, Mapping)
    )


def _seconds(header: str | None, told: Any) -> float | None:
    """Retry-After in seconds. A date is passed over: it would be read on our own clock, which may be wrong."""
    found: float | None = None
    if header is not None and header.strip().isascii() and header.strip().isdigit():
        found = float(header.strip()[:9])
    elif isinstance(told, int) and not isinstance(told, bool) and told > 0:
        found = float(told)
    return None if found is None else min(found, LONGEST_RETRY_AFTER_SECONDS)
