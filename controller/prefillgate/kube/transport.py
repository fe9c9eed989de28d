"""One request to the API server and its answer: time limits, size limits, and every fault turned into a `KubeError`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson

from prefillgate import __version__
from prefillgate.kube.access import Access
from prefillgate.kube.bodies import sendable
from prefillgate.kube.clock import Clock, SystemClock
from prefillgate.kube.errors import (
    AccessError,
    KubeError,
    NotJson,
    ServerError,
    Unauthorized,
    Unreachable,
    from_answer,
    from_status,
    short,
)
from prefillgate.kube.objects import Object

JSON = "application/json"
LARGEST_ANSWER_BYTES = 256 * 2**20
LARGEST_CHANGE_BYTES = 16 * 2**20  # an object in etcd is 1.5 MB at most
RELOAD_EVERY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait, in seconds: for a connection, for a whole answer, and for the next byte of a watch.

    An idle API server sends a bookmark every one to two minutes (1.36: the first after 120 s); one that is silent for
    much longer hangs.
    """

    connect_seconds: float = 5.0
    request_seconds: float = 30.0
    silence_seconds: float = 190.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request: what it is called in metrics (`list`, `apply` ...) and which plural, then what is sent."""

    verb: str
    plural: str
    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = JSON

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class CallMade:
    """One call that ended: `outcome` is `Ok` or the class of its error, `code` the HTTP status where there was one."""

    verb: str
    plural: str
    outcome: str
    code: int | None
    seconds: float


class Transport:
    """Requests over one pool of connections. `on_call` is told of every call that ended, for metrics."""

    def __init__(
        self,
        access: Access,
        limits: Limits | None = None,
        on_call: Callable[[CallMade], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        from kubernetes.aio.client import ApiClient

        self.access = access
        self.limits = limits or Limits()
        self._on_call = on_call
        self._clock = clock or SystemClock()
        self._api: Any = ApiClient(access.configuration)
        self._api.user_agent = f"prefillgate/{__version__}"
        self._reloading = asyncio.Lock()
        self._reloaded_at: float | None = None

    async def close(self) -> None:
        await self._api.close()

    async def send(self, call: Call) -> Object:
        """The answer to a call, a JSON object. Raises KubeError."""
        started = self._clock.monotonic()
        try:
            found = await self._send(call)
        except KubeError as error:
            self._tell(call, error, started)
            raise
        self._tell(call, None, started)
        return found

    async def lines(self, call: Call, total_seconds: float) -> AsyncGenerator[bytes]:
        """The lines of a streamed answer, at most for `total_seconds`. Raises KubeError, also where the last is cut."""
        started = self._clock.monotonic()
        try:
            response = await self._open(call, total_seconds, self.limits.silence_seconds)
            try:
                async for line in self._split(call, response):
                    yield line
            finally:
                response.close()
        except KubeError as error:
            self._tell(call, error, started)
            raise
        self._tell(call, None, started)

    async def _send(self, call: Call) -> Object:
        response = await self._open(call, self.limits.request_seconds, None)
        try:
            body = await self._read(call, response)
        finally:
            response.release()
        try:
            found = orjson.loads(body)
        except ValueError as error:
            raise from_answer(str(call), response.status, body[:200].decode("utf-8", "replace")) from error
        if not isinstance(found, dict):
            raise from_answer(str(call), response.status, "")
        return found

    async def _open(self, call: Call, total_seconds: float, silence_seconds: float | None) -> Any:
        """An answer whose status is 2xx. A 401 is asked once more if the credentials have changed since."""
        response = await self._request(call, total_seconds, silence_seconds)
        if response.status == 401 and await self._reload():
            response.release()
            response = await self._request(call, total_seconds, silence_seconds)
        if 200 <= response.status <= 299:
            return response
        try:
            body = await self._read(call, response)
        finally:
            response.release()
        raise _refusal(call, response, body)

    async def _request(self, call: Call, total_seconds: float, silence_seconds: float | None) -> Any:
        import aiohttp

        timeout = aiohttp.ClientTimeout(
            total=total_seconds, sock_connect=self.limits.connect_seconds, sock_read=silence_seconds
        )
        try:
            await self.access.configuration.auth_settings()
        except Exception as error:  # the hook that reads a rotated token: whatever its file makes it run into
            raise Unauthorized(f"{call}: the credentials cannot be read ({type(error).__name__})") from error
        method, url, headers, body, _ = await self._api.param_serialize(
            call.method,
            call.path,
            query_params=list(call.params.items()),
            header_params={"Accept": JSON, "Content-Type": call.content_type},
            body=sendable(call.body),
            auth_settings=["BearerToken"],
        )
        try:
            answer = await self._api.call_api(method, url, headers, body, _request_timeout=timeout)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self._unreachable(call, error) from error
        return answer.response

    async def _read(self, call: Call, response: Any) -> bytes:
        import aiohttp

        parts: list[bytes] = []
        size = 0
        try:
            async for part in response.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > LARGEST_ANSWER_BYTES:
                    response.close()
                    raise ServerError(f"{call}: the answer is longer than {LARGEST_ANSWER_BYTES} bytes")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(call, error) from error
        return b"".join(parts)

    async def _split(self, call: Call, response: Any) -> AsyncIterator[bytes]:
        import aiohttp

        rest = bytearray()
        try:
            async for part in response.content.iter_any():
                rest += part
                if b"\n" in part:
                    *lines, last = bytes(rest).split(b"\n")
                    rest = bytearray(last)
                    for line in lines:
                        if line.strip():
                            yield line
                if len(rest) > LARGEST_CHANGE_BYTES:
                    raise NotJson(f"{call}: a line of the watch is longer than {LARGEST_CHANGE_BYTES} bytes")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(call, error) from error
        if rest.strip():
            raise Unreachable(f"{call}: the watch ended in the middle of a line")

    async def _reload(self) -> bool:
        async with self._reloading:
            now = self._clock.monotonic()
            if self._reloaded_at is not None and now - self._reloaded_at < RELOAD_EVERY_SECONDS:
                return False
            self._reloaded_at = now
            try:
                return await self.access.reload()
            except AccessError:
                return False  # the 401 stands, and says what matters

    def _unreachable(self, call: Call, error: Exception) -> Unreachable:
        where = urlsplit(str(self.access.configuration.host))
        server = f"{where.scheme}://{where.hostname}:{where.port or 443}"
        said = "no answer in time" if isinstance(error, TimeoutError) else short(str(error)) or type(error).__name__
        return Unreachable(f"{call} at {server}: {said}")

    def _tell(self, call: Call, error: KubeError | None, started: float) -> None:
        if self._on_call is not None:
            outcome, code = ("Ok", None) if error is None else (type(error).__name__, error.code)
            seconds = self._clock.monotonic() - started
            self._on_call(CallMade(call.verb, call.plural, outcome, code, seconds))


def _refusal(call: Call, response: Any, body: bytes) -> KubeError:
    """The error of an answer that is not 2xx."""
    retry_after = response.headers.get("Retry-After")
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return from_status(str(call), {"code": response.status, **status}, retry_after)
    return from_answer(str(call), response.status, body[:200].decode("utf-8", "replace"), retry_after)
