"""Whether servers can be reached from here: asked in the background before anything is planned, never during a look.

A server that answered is not asked again until its pod, its address or the way to it changes; one that does not is
asked at growing intervals. What is told names the likely cause and the field or object to change.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import httpx

from prefillgate.api.access import Access
from prefillgate.api.addresses import AddressRules, forbidden
from prefillgate.app.observe.settings import ProbePace
from prefillgate.engines.access import AccessError, engine_options
from prefillgate.engines.base import EngineError
from prefillgate.engines.http import HttpLane
from prefillgate.engines.judged import ForbiddenAddress, NameNotFound, resolved, unanswered
from prefillgate.engines.lookups import Places
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.clock import Clock
from prefillgate.reconcile.snapshot import ArmSeen, ServerSeen

PATH = "/v1/models"  # of every family, and behind the API key
MOST_AT_ONCE = 32
MOST_OF_ONE = 8  # of a namespace


@dataclass(slots=True)
class _Probe:
    """One server and what came of asking it. `ok` None: not known yet."""

    url: str
    epoch: str | None
    access: Access = field(repr=False)
    ok: bool | None = None
    said: str = ""
    forbidden: str | None = None
    task: asyncio.Task[None] | None = None

    def is_of(self, server: ServerSeen, access: Access) -> bool:
        return self.epoch == server.epoch and self.access == access


@dataclass(frozen=True, slots=True)
class Reached:
    """An arm with what is known of the way to its servers; `forbidden`: why an address of it must not be asked."""

    arm: ArmSeen
    forbidden: str | None = None


class Reach:
    """Asks servers. `changed(line)` is called when more is known of a line's."""

    def __init__(self, rules: AddressRules, pace: ProbePace, clock: Clock, changed: Callable[[str], None]) -> None:
        self._rules = rules
        self._pace = pace
        self._clock = clock
        self._changed = changed
        self._backoff = Backoff(pace.first_seconds, pace.longest_seconds)
        self._rng = random.Random()
        self._probes: dict[str, dict[str, _Probe]] = {}
        self._turn = Places(MOST_AT_ONCE, MOST_OF_ONE)

    def seen(self, line: str, arm: ArmSeen, access: Access) -> Reached:
        """What is known of an arm's Ready servers; whoever is not known is asked from now on."""
        probes = {each: self._probe(line, each, access) for each in arm.ready}
        if not probes:
            return Reached(arm)
        denied = next((each.forbidden for each in probes.values() if each.forbidden is not None), None)
        states = [each.ok for each in probes.values()]
        if True not in states:
            if None in states:
                return Reached(replace(arm, asked=False), denied)
            return Reached(replace(arm, unreachable=next(each.said for each in probes.values())), denied)
        servers = tuple(_judged(each, probes.get(each)) for each in arm.servers)
        return Reached(replace(arm, servers=servers), denied)

    def keep(self, line: str, urls: set[str]) -> None:
        """Ask no others of a line any more."""
        known = self._probes.get(line, {})
        for url in known.keys() - urls:
            _end(known.pop(url))
        if not known:
            self._probes.pop(line, None)

    def close(self) -> None:
        """Ask nobody any more."""
        for line in list(self._probes):
            self.keep(line, set())

    def _probe(self, line: str, server: ServerSeen, access: Access) -> _Probe:
        url = str(server.url)
        known = self._probes.setdefault(line, {})
        probe = known.get(url)
        if probe is None or not probe.is_of(server, access):
            if probe is not None:
                _end(probe)
            probe = known[url] = _Probe(url, server.epoch, access)
            probe.task = asyncio.create_task(self._ask(line, probe))
        return probe

    async def _ask(self, line: str, probe: _Probe) -> None:
        """Until it answers."""
        refusals = 0
        while True:
            denied, said = await self._answer(line.partition("/")[0], probe)
            if said is None:
                probe.ok, probe.said, probe.forbidden = True, "", None
                self._changed(line)
                return
            refusals += 1
            if denied is not None or refusals >= self._pace.refusals:
                news = (probe.ok, probe.said, probe.forbidden) != (False, said, denied)
                probe.ok, probe.said, probe.forbidden = False, said, denied
                if news:
                    self._changed(line)
            await self._clock.sleep(self._backoff.seconds(refusals, self._rng))

    async def _answer(self, namespace: str, probe: _Probe) -> tuple[str | None, str | None]:
        """Why it must not be asked, and why it cannot be reached, if only for that."""
        seconds, rules = self._pace.answer_seconds, replace(self._rules, tenant=namespace)
        give_back = await self._turn.take(namespace)
        try:
            addresses = await asyncio.wait_for(resolved(probe.url, rules), seconds)
            denied = forbidden(probe.url, addresses, rules)
            return denied, denied or await refusal(probe.url, probe.access, seconds)
        except TimeoutError:
            return None, f"{probe.url}: {unanswered(urlsplit(probe.url).hostname or '')}"
        finally:
            give_back()


def _end(probe: _Probe) -> None:
    if probe.task is not None:
        probe.task.cancel()


def _judged(server: ServerSeen, probe: _Probe | None) -> ServerSeen:
    """A server beside others that answer: it is asked once it has answered too."""
    if probe is None or probe.ok:
        return server
    return replace(server, ready=False, trouble=probe.said or "it was not asked yet whether it can be reached")


async def refusal(url: str, access: Access, seconds: float) -> str | None:
    """Ask a server once for its models: why that failed, with the likely cause and the fix; None where it answers."""
    try:
        options = replace(
            engine_options(access, None, {}), connect_timeout_seconds=seconds, read_timeout_seconds=seconds
        )
        async with HttpLane(url, options) as lane:
            await lane.get_json(PATH)
    except AccessError as error:
        return str(error)
    except EngineError as error:
        return f"{url}: {_cause(error, url)}"
    return None


def _cause(error: EngineError, url: str) -> str:
    status = error.http_status
    if status is not None:
        return _of_status(status)
    chain = tuple(_chain(error))
    if any(isinstance(each, ssl.SSLWantReadError) for each in chain):
        return "connected, but no TLS handshake: what answers there may speak no TLS, then scheme: HTTP is wanted."
    told = next((each for each in chain if isinstance(each, ForbiddenAddress | NameNotFound)), None)
    if told is not None:
        return str(told)
    tls = next((each for each in chain if isinstance(each, ssl.SSLError)), None)
    if tls is not None:
        return _of_tls(tls)
    for kind, said in _BY_ERROR:
        if any(isinstance(each, kind) for each in chain):
            return said if not url.startswith("https:") else said.replace(_MESH, _PLAIN)
    if any(isinstance(each, httpx.HTTPError) for each in chain):
        return _CUT_OFF if not url.startswith("https:") else _CUT_OFF.replace(_MESH, _PLAIN)
    return "what answers there is no server of the OpenAI API. Is that its port, and is its path right?"


_MESH = (
    "the pods may take nothing but TLS (a mesh with strict mutual TLS): let the controller's namespace into the mesh, "
    "exclude the port from it or make it permissive; or is scheme: HTTPS wanted"
)
_PLAIN = (
    "the server may want a client certificate, which clientCertificateSecretRef names, or speak plain HTTP: is "
    "scheme: HTTPS right"
)
_CUT_OFF = f"the connection is cut off before an answer: {_MESH}?"
_TIMEOUT = (
    "no answer in time: a NetworkPolicy may keep the controller out (allow ingress from its namespace to this port), "
    "or the port is another one."
)
_BY_ERROR: tuple[tuple[type[BaseException], str], ...] = (
    (
        ConnectionRefusedError,
        "the connection is refused: nothing listens at this port. Is the port the server's own, and does it listen on "
        "0.0.0.0 or [::], not on localhost alone?",
    ),
    (ConnectionResetError, _CUT_OFF),
    (httpx.ConnectTimeout, _TIMEOUT),
    (httpx.TimeoutException, _TIMEOUT),
    (TimeoutError, _TIMEOUT),
    (httpx.ConnectError, "no connection: does the name resolve, and is the address reachable from the controller?"),
    (httpx.RemoteProtocolError, _CUT_OFF),
)


def _of_status(status: int) -> str:
    if status in (401, 403):
        return f"it answers {status}: an API key is needed, or the one of apiKeySecretRef is not accepted there."
    if status == 404:
        return "it answers 404 to /v1/models: is it the model server, and is path what stands before its routes?"
    if 300 <= status < 400:
        return f"it answers {status}, a redirect: name the address that it leads to."
    return f"it answers {status}: it may still be loading, or what stands before it has nothing to pass on to."


def _of_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message
        if "mismatch" in said or "not valid for" in said:
            return f"its certificate bears another name ({said}): tlsServerName names what it bears."
        if "expired" in said or "not yet valid" in said:
            return f"its certificate cannot be used now ({said}): renew it, and look at the clocks."
        return f"its certificate is not trusted ({said}): caBundleSecretRef names the authority that it is from."
    reason = error.reason or ""
    if "WRONG_VERSION" in reason or "HTTP_REQUEST" in reason:
        return "what answers there speaks no TLS: scheme: HTTP is wanted."
    if "ALERT" in reason:
        return f"it refuses our side of TLS ({reason}): clientCertificateSecretRef names a certificate that it knows."
    return f"TLS fails ({reason or type(error).__name__}): is scheme: HTTPS right, and the port?"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
