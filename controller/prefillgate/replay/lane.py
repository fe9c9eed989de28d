"""One arm's server: its epoch, its probe, and one cell at a time on it.

A lane never retries a generation. Whatever comes back is one `CellMeasured`: ok, failed (accepted, then no complete
answer) or invalid (not accepted, other traffic, another server life), decided before any check reads the text.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from prefillgate.api.replay_set import Case
from prefillgate.core.cells import Cell, ColdProof, Status
from prefillgate.core.journal import CellMeasured, EpochSeen, Texts
from prefillgate.core.schedule import RunCell
from prefillgate.engines.base import (
    Answer,
    AnswerStatus,
    Capabilities,
    Counters,
    Engine,
    EngineError,
    Identity,
    Look,
    PreparedRequest,
    TransientEngineError,
    measured_model,
)
from prefillgate.engines.http import encode_body
from prefillgate.replay.clock import Clock
from prefillgate.replay.kept_request import keep_request
from prefillgate.replay.request import Sending, prepare
from prefillgate.replay.witnesses import output_delta, processed_delta, processed_tokens, reported, settled
from prefillgate.report.clean import one_line

SETTLE_POLL_SECONDS = 0.05
NOTICE_EVERY_SECONDS = 60.0
PROBES_IN_USE = 5
COUNTERS_DISAGREE = (
    "the server's own counters did not move by what its answers reported: other traffic, or a lying counter"
)
TAKEN_AWAY = "EpochChanged: the server was taken away during the cell"
UNMARKED = "unmarked"  # the epoch of a server that shows no marker of its life
BUSY_STATUS = frozenset({429, 503})  # asks to be left alone; the core counts it apart from refusals
TOLD = "~"  # between the life that the caller tells of and the server's own marker
_GONE = frozenset({"ConnectionRefused", "ConnectTimeout", "ConnectionLost", "Busy"})


@dataclass(frozen=True, slots=True)
class LaneTimes:
    """Patience, in seconds."""

    cell_timeout_seconds: float = 600.0
    idle_timeout_seconds: float = 600.0
    idle_poll_seconds: float = 0.2
    settle_seconds: float = 2.0  # how long the server's counters and gauges may lag behind its answer
    notice_after_seconds: float = 5.0  # of waiting for a busy server, before it is said
    refused_pause_seconds: float = 5.0  # between two refusals: a server that is being restarted needs some
    invalid_pause_seconds: float = 2.0  # after any other invalid cell


class NotIdleError(TransientEngineError):
    """Other work runs on the server and does not end."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A cell with what it said, and how long the server asked to be left alone (429, 503)."""

    event: CellMeasured
    texts: Texts | None
    retry_after_seconds: float | None = None


class Lane:
    """One server of one arm. `epoch` is None until `meet` has probed it."""

    def __init__(self, arm: str, engine: Engine, clock: Clock, times: LaneTimes) -> None:
        self.arm = arm
        self.number = 0  # which of the arm's servers
        self.engine = engine
        self.identity: Identity | None = None
        self.seen: EpochSeen | None = None
        self.deadline_at: float | None = None  # nothing is waited for beyond it
        self.access_findings: tuple[str, ...] = ()  # of the way to the server; they stand in each epoch
        self.times = times
        self.shared = False  # others use the server meanwhile: nothing of it but a response tells of our cell
        self._clock = clock
        self._broke_off = False  # the last answer did not come to its end: the server may still be at it
        self._lives = 0
        self._label = ""
        self._marker: str | None = None
        self._pod: str | None = None  # that the server runs in, as the run's caller knows it
        self.on_wait: Callable[[], None] = lambda: None  # told now and then while a busy server is waited for
        self._look: Look | None = None  # the last one, while nothing was sent since
        self.present_epoch: Callable[[], str | None] | None = (
            None  # the life of the server as the run's caller knows it
        )

    async def identify(self) -> Identity:
        """Who is there, with the model to measure, without a probe. Raises `EngineError`."""
        found = await self.engine.discover()
        model = measured_model(self.engine.url, found)
        self.identity = replace(found, model=model, server_epoch=self._life(found.server_epoch))
        return self.identity

    def _life(self, own: str | None) -> str | None:
        """The present life of the server: what the caller tells of it, and its own marker, which must both stay.

        Raises `TransientEngineError` where the caller knows of no server there.
        """
        if self.present_epoch is None:
            return own
        told = self.present_epoch()
        if told is None:
            raise TransientEngineError(f"{self.engine.url}: EpochChanged: nothing is known to run at this address now")
        self._pod = _pod(told)
        name = told.replace("/", "-").replace(TOLD, "-")  # a label follows the slash
        return name if own is None else f"{name}{TOLD}{own}"

    async def meet(self) -> EpochSeen | None:
        """Probe the server if this life of it was not met yet; the new epoch, or None. Raises `EngineError`."""
        if self.seen is not None:
            self._look = await self.engine.look()
            if self._life(self._look.epoch) == self._marker:
                return None
        self._look = None
        identity = await self.identify()
        if not await self._wait_until_idle():
            raise NotIdleError(f"{self.engine.url}: the server did not become idle")
        capabilities = await self._probe(identity.model)
        after = await self.marker()
        if after != identity.server_epoch:
            raise TransientEngineError(f"{self.engine.url}: EpochChanged: the server was restarted during its probe")
        self._marker = after
        findings = capabilities.findings
        if after is None:
            findings = (*findings, "the server shows no marker of its life: a restart cannot be seen")
        if capabilities.counters_agree is False and not self.shared:
            findings = (*findings, COUNTERS_DISAGREE)
        self.seen = EpochSeen(
            arm=self.arm,
            server_epoch=f"{after or self._unmarked()}{self._label}",
            seen_at=self._clock.now(),
            engine=identity.engine,
            build=identity.build,
            model=identity.model,
            counter_alive=capabilities.counter_alive,
            cold_proof=capabilities.cold_proof,
            shares_blocks=self.engine.shares_blocks,
            findings=findings,
            weights=identity.weights,
            context_tokens=identity.context_tokens,
            settings=identity.settings,
            lane=self.number,
            access_findings=self.access_findings,
            knob_ignored=capabilities.knob_ignored,
            route_proofs=capabilities.route_proofs,
        )
        return self.seen

    async def _probe(self, model: str | None) -> Capabilities:
        """The capability probe. On a server in use it gets a few tries: others may push its prompt out of the cache
        before its repeat comes."""
        for _ in range(PROBES_IN_USE if self.shared else 1):
            shown = await self.engine.probe(secrets.token_hex(8), model)
            if shown.counter_alive:
                break
        return shown

    def _unmarked(self) -> str:
        """The epoch of a server without a marker. Each server of an arm has its own: copies never cross servers."""
        return f"{UNMARKED}-{self.number + 1}" if self.number else UNMARKED

    def swapped(self, lives: int = 0) -> None:
        """Another model answered at this address since: what comes next is another epoch.

        `lives` are those of earlier sessions, so that an epoch's name never comes again.
        """
        self._lives = max(self._lives, lives) + 1
        self._label = f"/{self._lives}"
        self.seen = None

    async def marker(self) -> str | None:
        """The marker of the server's life now; None where there is none. Raises `EngineError`."""
        return self._life(await self.engine.epoch())

    async def settle(self) -> bool:
        """Whether the server is at rest; waits for one that may still compute an answer that broke off."""
        if self._broke_off and not self.shared:
            try:
                self._broke_off = not await self._wait_until_idle()
            except EngineError:
                self._broke_off = False  # who cannot be asked computes nothing for us
        return self.shared or not self._broke_off

    async def measure(self, step: RunCell, case: Case) -> Measurement:
        """Run one cell. Call `meet` first. Never raises for what a server does, nor for a fault of our own."""
        try:
            return await self._measure(step, case)
        except Exception as error:
            return self._not_sent(step, case, "HarnessFault", f"{type(error).__name__}: {error}")

    async def _measure(self, step: RunCell, case: Case) -> Measurement:
        try:
            request = self._request(step, case)
            before = await self._at_rest(self.times.idle_timeout_seconds)
            if before is None:
                return self._not_sent(step, case, "NotIdle", "the server did not become idle")
        except EngineError as error:
            return self.refused(step, case, error)
        self._broke_off = True
        answer = await self.engine.generate(request, self.times.cell_timeout_seconds)
        self._broke_off = answer.status is AnswerStatus.FAILED
        if answer.status is not AnswerStatus.OK:
            gone = answer.status is AnswerStatus.FAILED and await self._taken_away()
            return self._measurement(step, case, answer, (request, TAKEN_AWAY if gone else None, None))
        counters, invalid = await self._look_after(before.counters, answer)
        return self._measurement(step, case, answer, (request, invalid, processed_delta(before.counters, counters)))

    async def take_up(self, lives: Sequence[EpochSeen]) -> EpochSeen | None:
        """Go on with the life of the server that is among those probed before; None where it has another one now.

        Raises `EngineError`.
        """
        marker = await self.marker()
        for seen in reversed(lives):
            if (marker or self._unmarked()) == seen.server_epoch.partition("/")[0]:
                self._marker, self.seen = marker, seen
                return seen
        return None

    async def accompany(self, send: Callable[[], Awaitable[Answer]]) -> tuple[Answer, int | None]:
        """One request beside the plan, by `send`, once nothing else runs here.

        The second value is by how many prompt tokens the server's own total of processed ones moved meanwhile; None
        where it does not tell, or where other work moved it too. Raises `EngineError` where it cannot be asked before.
        """
        before = await self._at_rest(self.times.idle_timeout_seconds)
        if before is None:
            raise NotIdleError(f"{self.engine.url}: the server did not become idle")
        answer = await send()
        self._broke_off = answer.status is AnswerStatus.FAILED
        if answer.status is not AnswerStatus.OK:
            return answer, None
        counters, confounded = await self._look_after(before.counters, answer)
        return answer, None if confounded is not None else processed_delta(before.counters, counters)

    def _request(self, step: RunCell, case: Case) -> PreparedRequest:
        assert self.seen is not None
        proof = self.seen.proof_on(case.path)
        return prepare(case, self.engine, Sending(self.seen.model, step.seed, step.nonce, proof))

    async def _wait_until_idle(self) -> bool:
        """True once nothing runs there, or where the server does not tell. Raises `EngineError`."""
        return await self._at_rest(self.times.idle_timeout_seconds) is not None

    async def _at_rest(self, seconds: float) -> Look | None:
        """A look at the server once nothing runs there, or where it does not tell; None if it stays busy.

        Raises `EngineError`.
        """
        until = self._clock.now() + seconds
        if self.deadline_at is not None:
            until = min(until, self.deadline_at)
        look, self._look = self._look or await self.engine.look(), None
        notice = self._clock.now() + self.times.notice_after_seconds
        while look.activity.idle is False and not self.shared:
            now = self._clock.now()
            if now >= until:
                return None
            if now >= notice:
                self.on_wait()
                notice = now + NOTICE_EVERY_SECONDS
            await self._clock.sleep(self.times.idle_poll_seconds)
            look = await self.engine.look()
        self._broke_off = False
        return look

    async def _look_after(self, before: Counters | None, answer: Answer) -> tuple[Counters | None, str | None]:
        """The counters after a complete answer, and why it is void (other traffic, another life of the server).

        Counters may lag behind the answer, and the server may still be putting its slot away: both get a while.
        """
        until = self._clock.now() + self.times.settle_seconds
        try:
            look = await self.engine.look()
            while not (self.shared or settled(before, look, answer)) and self._clock.now() < until:
                await self._clock.sleep(SETTLE_POLL_SECONDS)
                look = await self.engine.look()
        except EngineError as error:
            if _reason(error) in _GONE:
                return None, "EpochChanged: the server went away right after the cell"
            return None, f"NotVerified: the server could not be asked after the cell: {error}"
        if self.shared:  # the server's totals are everybody's
            return None, self._other_life(look)
        return look.counters, self._confounded(before, look, answer)

    def _confounded(self, before: Counters | None, after: Look, answer: Answer) -> str | None:
        moved, processed = processed_delta(before, after.counters), processed_tokens(answer)
        output = output_delta(before, after.counters)
        if (moved or 0) < 0 or (output or 0) < 0:
            self.swapped()
            return "EpochChanged: the server's counters went backwards, it was restarted during the cell"
        if moved is not None and processed is not None and moved > processed:
            return f"OtherTraffic: the server processed {moved} prompt tokens, the cell only {processed}"
        if output is not None and answer.output_tokens is not None and output > answer.output_tokens + 1:
            return f"OtherTraffic: the server wrote {output} tokens, the cell only {answer.output_tokens}"
        if after.activity.idle is False:
            return "OtherTraffic: the server was busy right after the cell"
        return self._other_life(after)

    def _other_life(self, after: Look) -> str | None:
        try:
            if self._life(after.epoch) == self._marker:
                return None
        except TransientEngineError:
            return TAKEN_AWAY
        return "EpochChanged: the server was restarted during the cell"

    async def _taken_away(self) -> bool:
        """Whether somebody took the server away under the cell that broke off (its pod was deleted, its node lost).

        The caller may hear of that later than the connection breaks. A server that dies by itself stays known to him.
        """
        if self.present_epoch is None:
            return False
        until = self._clock.now() + self.times.settle_seconds
        while _pod(self.present_epoch()) == self._pod:
            if self._clock.now() >= until:
                return False
            await self._clock.sleep(SETTLE_POLL_SECONDS)
        return True

    def _measurement(
        self, step: RunCell, case: Case, answer: Answer, sent: tuple[PreparedRequest, str | None, int | None]
    ) -> Measurement:
        request, confounded, moved = sent
        status = {
            AnswerStatus.OK: Status.OK,
            AnswerStatus.FAILED: Status.FAILED,
            AnswerStatus.REFUSED: Status.INVALID,
        }[answer.status]
        reason, detail = answer.reason, answer.detail
        if confounded is not None:
            status = Status.INVALID
            reason, _, detail = confounded.partition(": ")
        cell = replace(self._cell(step, case, status), **reported(answer, status), counter_processed_tokens=moved)
        event = replace(
            self._event(step, cell),
            reason=reason,
            detail=detail,
            http_status=answer.http_status,
            time_to_first_token_ms=answer.time_to_first_token_ms,
            draft_tokens=answer.draft_tokens,
            draft_accepted_tokens=answer.draft_accepted_tokens,
            reasoning_tokens=answer.reasoning_tokens,
            retractions=answer.retractions,
        )
        texts = Texts(
            content=answer.content,
            reasoning=answer.reasoning,
            tool_calls=answer.tool_calls,
            request=keep_request(request.path, encode_body(request.body)),
            response=answer.raw,
        )
        return Measurement(event, texts, answer.retry_after_seconds)

    def _not_sent(
        self, step: RunCell, case: Case, reason: str, detail: str, http_status: int | None = None
    ) -> Measurement:
        now = self._clock.now()
        cell = replace(self._cell(step, case, Status.INVALID), started_at=now, ended_at=now)
        event = replace(self._event(step, cell), reason=reason, detail=one_line(detail, 500), http_status=http_status)
        return Measurement(event, None)

    def refused(self, step: RunCell, case: Case, error: EngineError) -> Measurement:
        """The invalid cell of a server that could not even be asked. Of its HTTP status only "busy" is kept: any other
        one is no answer to this body."""
        status = error.http_status if error.http_status in BUSY_STATUS else None
        measurement = self._not_sent(step, case, _reason(error), str(error), status)
        return replace(measurement, retry_after_seconds=error.retry_after_seconds)

    def _cell(self, step: RunCell, case: Case, status: Status) -> Cell:
        seen = self.seen
        proof = None if seen is None else seen.proof_on(case.path)
        return Cell(
            arm=self.arm,
            case_id=case.case_id,
            status=status,
            replicate=step.replicate,
            server_epoch=None if seen is None else seen.server_epoch,
            prompt_sha256=case.sha256,
            cold_proof=None if proof is None else ColdProof(proof),
            counter_alive=seen is not None and seen.counter_alive,
            shares_blocks=seen is not None and seen.shares_blocks,
            shared_server=self.shared,
        )

    def _event(self, step: RunCell, cell: Cell) -> CellMeasured:
        return CellMeasured(
            cell_id=step.cell_id,
            cell=cell,
            purpose=step.purpose,
            pair=step.pair,
            round=step.round,
            attempt=step.attempt,
            seed=step.seed,
            nonce=step.nonce,
            place=step.place,
            lane=step.lane,
        )


def _pod(told: str | None) -> str | None:
    """Of the life that a caller tells of, what stays where a server dies by itself and is started again."""
    return None if told is None else told.partition("/")[0]


def own_marker(epoch: str | None) -> str | None:
    """The server's own marker in an epoch that a lane named; None where it shows none."""
    return None if epoch is None else epoch.rpartition(TOLD)[2]


def _reason(error: EngineError) -> str:
    """The one word for a server that could not be asked, read off its message (`url: Word: detail`)."""
    if isinstance(error, NotIdleError):
        return "NotIdle"
    if error.http_status in BUSY_STATUS:
        return "Busy"
    for word in ("ConnectionRefused", "ConnectTimeout", "Tls", "Proxy", "ConnectionLost", "Timeout", "EpochChanged"):
        if f": {word}: " in str(error):
            return word
    return "HttpError" if error.http_status is not None else "NotServed"
