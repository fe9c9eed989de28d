"""One arm's server: its epoch, its probe, and one cell at a time on it.

A lane never retries a generation. Whatever comes back is one `CellMeasured`: ok, failed (accepted, then no complete
answer) or invalid (not accepted, other traffic, another server life), decided before any check reads the text.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, replace
from typing import Any

from prefillgate.api.replay_set import Case, canonical_json
from prefillgate.core.cells import Cell, ColdProof, Status
from prefillgate.core.journal import CellMeasured, EpochSeen, Texts
from prefillgate.core.schedule import RunCell
from prefillgate.engines.base import (
    Answer,
    AnswerStatus,
    Counters,
    Engine,
    EngineError,
    Identity,
    PreparedRequest,
    TransientEngineError,
)
from prefillgate.replay.clock import Clock
from prefillgate.replay.request import Sending, prepare

UNMARKED = "unmarked"  # the epoch of a server that shows no marker of its life


@dataclass(frozen=True, slots=True)
class LaneTimes:
    """Patience, in seconds."""

    cell_timeout_seconds: float = 600.0
    idle_timeout_seconds: float = 600.0
    idle_poll_seconds: float = 0.2
    settle_seconds: float = 2.0  # how long the server's counters may lag behind its answer


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
        self.engine = engine
        self.identity: Identity | None = None
        self.seen: EpochSeen | None = None
        self._clock = clock
        self._times = times
        self._lives = 0
        self._label = ""
        self._marker: str | None = None

    async def identify(self) -> Identity:
        """Who is there, without a probe. Raises `EngineError`."""
        self.identity = await self.engine.discover()
        return self.identity

    async def meet(self) -> EpochSeen | None:
        """Probe the server if this life of it was not met yet; the new epoch, or None. Raises `EngineError`."""
        marker = await self.engine.epoch() if self.seen is not None else None
        if self.seen is not None and marker == self._marker:
            return None
        identity = await self.identify()
        capabilities = await self.engine.probe(secrets.token_hex(8), identity.model)
        after = await self.engine.epoch()
        if after != identity.server_epoch:
            raise TransientEngineError(f"{self.engine.url}: the server was restarted during its probe")
        self._marker = after
        findings = capabilities.findings
        if after is None:
            findings = (*findings, "the server shows no marker of its life: a restart cannot be seen")
        if capabilities.counters_agree is False:
            findings = (*findings, "the server's own counters did not move by what its answers reported")
        self.seen = EpochSeen(
            arm=self.arm,
            server_epoch=f"{after or UNMARKED}{self._label}",
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
        )
        return self.seen

    def swapped(self) -> None:
        """Another model answered at this address since: what comes next is another epoch."""
        self._lives += 1
        self._label = f"/{self._lives}"
        self.seen = None

    async def marker(self) -> str | None:
        """The epoch now, as it would stand in a cell; None where the server shows none. Raises `EngineError`."""
        marker = await self.engine.epoch()
        return None if marker is None else f"{marker}{self._label}"

    async def measure(self, step: RunCell, case: Case) -> Measurement:
        """Run one cell. Call `meet` first. Never raises for what a server does."""
        assert self.seen is not None
        try:
            request = self._request(step, case)
            if not await self._wait_until_idle():
                return self._not_sent(step, case, "NotIdle", "the server did not become idle")
            before = await self.engine.counters()
        except EngineError as error:
            return self._not_sent(step, case, _reason(error), str(error))
        answer = await self.engine.generate(request, self._times.cell_timeout_seconds)
        counters = await self._settled(before, answer)
        invalid = await self._confounded(before, counters, answer)
        return self._measurement(step, case, answer, (request, invalid, _delta(before, counters)))

    def _request(self, step: RunCell, case: Case) -> PreparedRequest:
        assert self.seen is not None
        return prepare(case, self.engine, Sending(self.seen.model, step.seed, step.nonce, self.seen.cold_proof))

    async def _wait_until_idle(self) -> bool:
        deadline = self._clock.now() + self._times.idle_timeout_seconds
        while True:
            activity = await self.engine.activity()
            if activity.idle is not False:
                return True
            if self._clock.now() >= deadline:
                return False
            await self._clock.sleep(self._times.idle_poll_seconds)

    async def _settled(self, before: Counters | None, answer: Answer) -> Counters | None:
        """The server's counters once they have moved by what the answer reports, or as they stand after a while."""
        if before is None or answer.status is not AnswerStatus.OK:
            return None
        deadline = self._clock.now() + self._times.settle_seconds
        while True:
            try:
                after = await self.engine.counters()
            except EngineError:
                return None
            moved = _delta(before, after)
            processed = _processed(answer)
            if moved is None or processed is None or moved >= processed or self._clock.now() >= deadline:
                return after
            await self._clock.sleep(0.05)

    async def _confounded(self, before: Counters | None, after: Counters | None, answer: Answer) -> str | None:
        """Why a complete answer is void: other traffic, or another life of the server. None where it is sound."""
        if answer.status is not AnswerStatus.OK or self.seen is None:
            return None
        moved, processed = _delta(before, after), _processed(answer)
        if moved is not None and processed is not None and moved > processed:
            return f"OtherTraffic: the server processed {moved} prompt tokens, the cell only {processed}"
        output = _output_delta(before, after)
        if output is not None and answer.output_tokens is not None and output > answer.output_tokens + 1:
            return f"OtherTraffic: the server wrote {output} tokens, the cell only {answer.output_tokens}"
        try:
            if (await self.engine.activity()).idle is False:
                return "OtherTraffic: the server was busy right after the cell"
            if await self.engine.epoch() != self._marker:
                return "EpochChanged: the server was restarted during the cell"
        except EngineError:
            return "EpochChanged: the server went away right after the cell"
        return None

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
        cell = replace(self._cell(step, case, status), **_reported(answer, status), counter_processed_tokens=moved)
        event = replace(
            self._event(step, cell),
            reason=reason,
            detail=detail,
            http_status=answer.http_status,
            time_to_first_token_ms=answer.time_to_first_token_ms,
            draft_tokens=answer.draft_tokens,
            draft_accepted_tokens=answer.draft_accepted_tokens,
        )
        texts = Texts(
            content=answer.content,
            reasoning=answer.reasoning,
            tool_calls=answer.tool_calls,
            request=canonical_json({"path": request.path, "body": request.body}).decode(),
            response=answer.raw,
        )
        return Measurement(event, texts, answer.retry_after_seconds)

    def _not_sent(self, step: RunCell, case: Case, reason: str, detail: str) -> Measurement:
        now = self._clock.now()
        cell = replace(self._cell(step, case, Status.INVALID), started_at=now, ended_at=now)
        return Measurement(replace(self._event(step, cell), reason=reason, detail=detail[:500]), None)

    def refused(self, step: RunCell, case: Case, error: EngineError) -> Measurement:
        """The invalid cell of a server that could not even be asked who it is."""
        return self._not_sent(step, case, _reason(error), str(error))

    def _cell(self, step: RunCell, case: Case, status: Status) -> Cell:
        seen = self.seen
        return Cell(
            arm=self.arm,
            case_id=case.case_id,
            status=status,
            replicate=step.replicate,
            server_epoch=None if seen is None else seen.server_epoch,
            prompt_sha256=case.sha256,
            cold_proof=None if seen is None or seen.cold_proof is None else ColdProof(seen.cold_proof),
            counter_alive=seen is not None and seen.counter_alive,
            shares_blocks=seen is not None and seen.shares_blocks,
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
        )


def _reported(answer: Answer, status: Status) -> dict[str, Any]:
    """The counters as reported, and the digest of a complete output."""
    said = "\x00".join((answer.reasoning, answer.content, answer.tool_calls))
    digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest() if status is Status.OK else None
    return {
        "started_at": answer.started_at,
        "ended_at": answer.ended_at,
        "prompt_tokens": answer.prompt_tokens,
        "cached_tokens": answer.cached_tokens,
        "processed_tokens": answer.processed_tokens,
        "output_tokens": answer.output_tokens,
        "prefill_ms": answer.prefill_ms,
        "decode_ms": answer.decode_ms,
        "finish_reason": answer.finish_reason,
        "request_id": answer.request_id,
        "output_sha256": digest,
    }


def _processed(answer: Answer) -> int | None:
    if answer.processed_tokens is not None:
        return answer.processed_tokens
    if answer.prompt_tokens is None or answer.cached_tokens is None:
        return None
    return answer.prompt_tokens - answer.cached_tokens


def _delta(before: Counters | None, after: Counters | None) -> int | None:
    if before is None or after is None:
        return None
    if before.prompt_tokens_processed is None or after.prompt_tokens_processed is None:
        return None
    return int(after.prompt_tokens_processed - before.prompt_tokens_processed)


def _output_delta(before: Counters | None, after: Counters | None) -> int | None:
    if before is None or after is None or before.output_tokens is None or after.output_tokens is None:
        return None
    return int(after.output_tokens - before.output_tokens)


def _reason(error: EngineError) -> str:
    """The one word for a server that could not be asked, read off its message (`url: Word: detail`)."""
    for word in ("ConnectionRefused", "ConnectTimeout", "Tls", "ConnectionLost", "Timeout"):
        if f": {word}: " in str(error):
            return word
    return "Refused" if isinstance(error, TransientEngineError) else "NotServed"
