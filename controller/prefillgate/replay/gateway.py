"""The gateway check: the request of a bad cell once more, straight to its server and through the gateway.

It runs when nothing else is to be measured, one request at a time on an idle server. What it sends is never scored, and
never warms a prompt for a later cell: each request carries what forces a fresh prefill, a nonce or a salt always new.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from prefillgate.core.cells import CANDIDATE, ColdProof, Status
from prefillgate.core.gateway import next_comparison
from prefillgate.core.journal import CellMeasured, CheckOutcome, EpochSeen, ExtraAnswer, GatewayCompared, Texts
from prefillgate.core.quality import Output
from prefillgate.engines.base import Answer, AnswerStatus, Engine, PreparedRequest, TransientEngineError
from prefillgate.engines.http import encode_body
from prefillgate.replay.kept_request import keep_request
from prefillgate.replay.lane import NotIdleError
from prefillgate.replay.request import Sending, prepare
from prefillgate.replay.runner import Runner

_STATUS = {
    AnswerStatus.OK: Status.OK,
    AnswerStatus.FAILED: Status.FAILED,
    AnswerStatus.REFUSED: Status.INVALID,
}


@dataclass(frozen=True, slots=True)
class _Way:
    """One of the ways a request goes: by which engine, under which nonce, asking for which model."""

    engine: Engine
    nonce: str
    model: str | None


@dataclass(slots=True)
class GatewayCheck:
    """Asks the candidate's bad cells again. `gateway` is an open engine of the candidate's family at its address.

    `model` is the name the gateway knows the candidate by; None: the candidate's own. `told` gets a line for a person
    before each comparison.
    """

    runner: Runner
    gateway: Engine
    model: str | None
    findings: tuple[str, ...]
    told: Callable[[str], None]
    _seen: dict[int, EpochSeen] = field(default_factory=dict)  # the life of each server of the candidate, by its number

    async def run(self) -> None:
        """Ask until nothing is left to ask.

        Raises `EngineError` where the candidate cannot be asked, or was restarted since its last cell.
        """
        gate = self.runner.gate
        since = len(gate.compared)
        while (measured := next_comparison(gate, since)) is not None:
            await self._take_up(measured.lane)
            self.told(f"gateway: asks cell {measured.cell_id} ({measured.cell.case_id}) again, straight and through it")
            self.runner.record(await self._compare(measured))

    async def _take_up(self, number: int) -> None:
        """Go on with the life of the server that the cell ran on. Raises `EngineError`."""
        if number in self._seen:
            return
        lane = self.runner.lanes_of(CANDIDATE)[number]
        seen = await lane.take_up([seen for seen in self.runner.gate.epochs[CANDIDATE] if seen.lane == number])
        if seen is None:
            raise TransientEngineError(f"{lane.engine.url}: the candidate was restarted since its last cell")
        self._seen[number] = seen

    async def _compare(self, measured: CellMeasured) -> GatewayCompared:
        """All requests of one comparison, directly after each other, so that the prompt is in the server's cache."""
        own, seen = self.runner.lanes_of(CANDIDATE)[measured.lane].engine, self._seen[measured.lane]
        direct = await self._ask(measured, _Way(own, secrets.token_hex(16), seen.model))
        way = _Way(self.gateway, secrets.token_hex(16), self.model or seen.model)
        through = await self._ask(measured, way)
        repeat = renewed = None
        # The gateway's cache and what it does to the knob are looked into once.
        if through.status is Status.OK and not any(event.repeat for event in self.runner.gate.compared):
            repeat = await self._ask(measured, way)
            if measured.cell.cold_proof is not ColdProof.CACHE_OFF:
                renewed = await self._ask(measured, _Way(way.engine, secrets.token_hex(16), way.model))
        return GatewayCompared(
            cell_id=measured.cell_id,
            at=self.runner.clock.now(),
            gateway=self.gateway.url,
            direct=direct,
            through=through,
            repeat=repeat,
            renewed=renewed,
            findings=self.findings,
        )

    async def _ask(self, measured: CellMeasured, way: _Way) -> ExtraAnswer:
        """One request on an idle server, its checks applied as they were to the cell."""
        for lane in (*self.runner.lanes.values(), *self.runner.more_lanes):
            if not await lane.settle():
                raise NotIdleError(f"{lane.engine.url}: it still computes an answer that broke off")
        lane = self.runner.lanes_of(CANDIDATE)[measured.lane]
        case = self.runner.replay_set.case(measured.cell.case_id)
        proof = measured.cell.cold_proof
        request = prepare(case, lane.engine, Sending(way.model, measured.seed, way.nonce, proof))
        answer, processed = await lane.accompany(partial(way.engine.generate, request, lane.times.cell_timeout_seconds))
        outcomes: tuple[CheckOutcome, ...] = ()
        if answer.status is AnswerStatus.OK:
            output = Output(answer.content, answer.reasoning, answer.tool_calls, answer.finish_reason)
            outcomes = await self.runner.suite.run(case, output, self.runner.context(measured))
        return replace(
            _reported(answer, request),
            nonce=None if proof is ColdProof.CACHE_OFF else way.nonce,
            server_processed_tokens=processed,
            outcomes=outcomes,
        )


def _reported(answer: Answer, request: PreparedRequest) -> ExtraAnswer:
    """What the reply told, and the texts whole."""
    said = "\x00".join((answer.reasoning, answer.content, answer.tool_calls))
    whole = answer.status is AnswerStatus.OK
    asked = request.body.get("model")
    return ExtraAnswer(
        status=_STATUS[answer.status],
        at=answer.started_at,
        reason=answer.reason,
        detail=answer.detail,
        http_status=answer.http_status,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        output_tokens=answer.output_tokens,
        asked_model=asked if isinstance(asked, str) else None,
        model=answer.model,
        request_id=answer.request_id,
        output_sha256=hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest() if whole else None,
        texts=Texts(
            content=answer.content,
            reasoning=answer.reasoning,
            tool_calls=answer.tool_calls,
            request=keep_request(request.path, encode_body(request.body)),
            response=answer.raw,
        ),
    )
