"""The requests of a gateway check against what was kept of them: made again, read again, judged again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from prefillgate.api.replay_set import Case
from prefillgate.bundle.findings import unlike
from prefillgate.bundle.rechecks import Rechecks
from prefillgate.bundle.replies import fields_differ, output_sha256
from prefillgate.core.cells import ColdProof, Status
from prefillgate.core.gate import Gate
from prefillgate.core.gateway import cells_to_compare
from prefillgate.core.journal import CellMeasured, EpochSeen, ExtraAnswer, GatewayCompared, Texts
from prefillgate.core.quality import Output
from prefillgate.engines.base import Answer, AnswerStatus, EngineError
from prefillgate.engines.openai_routes import OpenAIRoutes
from prefillgate.engines.secrets import HIDDEN
from prefillgate.replay.checks import CheckContext
from prefillgate.replay.kept_request import kept_request
from prefillgate.replay.request import Sending, prepare

_TOLD = ("prompt_tokens", "cached_tokens", "output_tokens", "model", "request_id")
_SAID = ("content", "reasoning", "tool_calls")
GATEWAY_READ = "answers of the gateway check"


@dataclass(frozen=True, slots=True)
class Around:
    """What an answer is held against: its cell, case, server, the checks and what they may look at."""

    measured: CellMeasured
    case: Case | None
    seen: EpochSeen
    engine: OpenAIRoutes
    checks: Rechecks | None
    context: CheckContext


def answers_of(event: GatewayCompared) -> list[tuple[str, ExtraAnswer]]:
    """Its answers by name, in the order asked."""
    named = (("direct", event.direct), ("through", event.through), ("repeat", event.repeat), ("renewed", event.renewed))
    return [(name, answer) for name, answer in named if answer is not None]


def comparison_differs(gate: Gate, event: GatewayCompared) -> Iterator[str]:
    """What the comparison itself cannot be. `gate` is as it was before."""
    if event.cell_id not in {measured.cell_id for measured in cells_to_compare(gate)}:
        yield f"cell {event.cell_id} is not among the bad cells that a gateway is asked again"
    through, repeat = event.through, event.repeat
    sent = None if through.texts is None else through.texts.request
    if repeat is not None and repeat.texts is not None and repeat.texts.request != sent:
        yield "repeat.texts.request is not the gateway's request to the byte"


async def answer_differs(answer: ExtraAnswer, around: Around) -> AsyncIterator[str]:
    """What one answer says otherwise than its kept request and reply do."""
    texts = answer.texts
    if texts is None:
        yield "the texts are missing"
        return
    for what in _request_differs(answer, texts, around):
        yield what
    if answer.status is not Status.OK or HIDDEN in texts.response:
        return
    if answer.output_sha256 != output_sha256(texts):
        yield unlike("output_sha256", answer.output_sha256, output_sha256(texts), "the text has")
    told = around.engine.read_again(texts.response)
    if told.status is not AnswerStatus.OK:
        yield f"status is ok, and the reply is no answer: {told.reason}"
        return
    for what in _reply_differs(answer, texts, told):
        yield what
    if around.case is None or around.checks is None:
        return
    output = Output(texts.content, texts.reasoning, texts.tool_calls, told.finish_reason)
    for wrong, _ in await around.checks.differences(around.case, (output, around.context), answer.outcomes):
        if wrong is not None:
            yield wrong


def _reply_differs(answer: ExtraAnswer, texts: Texts, told: Answer) -> Iterator[str]:
    pairs = [(name, getattr(texts, name), getattr(told, name)) for name in _SAID]
    pairs += [(name, getattr(answer, name), getattr(told, name)) for name in _TOLD]
    for name, stated, found in pairs:
        if found is None and stated == 0 and name == "cached_tokens":
            continue  # a server that leaves zeros out
        if found != stated:
            yield unlike(name, stated, found, "the reply tells")


def _request_differs(answer: ExtraAnswer, texts: Texts, around: Around) -> Iterator[str]:
    proof, nonce = around.measured.cell.cold_proof, answer.nonce
    if (nonce is None) != (proof is ColdProof.CACHE_OFF):
        yield unlike("nonce", nonce, None if nonce else "one", "what forces a fresh prefill there asks for")
    try:
        kept = kept_request(texts.request)
        body = None if kept is None else json.loads(kept.body)
        if kept is None or not isinstance(body, dict):
            yield "the request is no JSON object"
            return
        if body.get("model") != answer.asked_model:
            yield unlike("asked_model", answer.asked_model, body.get("model"), "the request has")
        if around.case is None:
            return
        due = prepare(around.case, around.engine, Sending(answer.asked_model, around.measured.seed, nonce or "", proof))
        if kept.path != due.path:
            yield unlike("path", kept.path, due.path, "the replay set has")
        yield from fields_differ(body, due.body)
    except (ValueError, TypeError, LookupError, RecursionError, EngineError) as error:
        yield f"the request cannot be read or made again: {type(error).__name__}"
