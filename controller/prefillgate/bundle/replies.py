"""A cell against what it sent and what came back: the reply is read again, the request is made again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from prefillgate.api.replay_set import Case, canonical_json
from prefillgate.bundle.findings import unlike
from prefillgate.core.cells import Status
from prefillgate.core.journal import CellMeasured, EpochSeen, Texts
from prefillgate.engines.base import AnswerStatus, EngineError
from prefillgate.engines.openai_routes import OpenAIRoutes
from prefillgate.engines.secrets import HIDDEN
from prefillgate.replay.kept_request import kept_request
from prefillgate.replay.request import Sending, prepare

_SAID = ("content", "reasoning", "tool_calls")
_TOLD = ("prompt_tokens", "cached_tokens", "processed_tokens", "output_tokens", "prefill_ms", "decode_ms")
_NAMED = ("finish_reason", "request_id")
_OF_THE_EVENT = ("draft_tokens", "draft_accepted_tokens", "reasoning_tokens")
_OF_THE_LIFE = ("counter_alive", "shares_blocks")
#: Why a reply that came to its end is no answer; any other reason is a connection that broke.
_BY_THE_REPLY = frozenset({"CutStream", "EmptyAnswer", "NoFinishReason", "ErrorInStream", "NotJson", "TooLong"})
READ_AGAIN, NO_READER = "replies read again", "replies of an engine that this program does not know"


def output_sha256(texts: Texts) -> str:
    """The digest of an output, as `prefillgate.replay.witnesses` takes it."""
    said = "\x00".join((texts.reasoning, texts.content, texts.tool_calls))
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def digest_differs(stated: str | None, texts: Texts) -> str | None:
    """Why a complete output is not the one that the cell's digest is of."""
    found = output_sha256(texts)
    return None if stated == found else unlike("output_sha256", stated, found, "the text has")


def reply_differs(event: CellMeasured, texts: Texts, by: tuple[OpenAIRoutes, EpochSeen]) -> Iterator[str]:
    """What the kept reply tells otherwise than the cell and its texts do."""
    engine, seen = by
    cell = event.cell
    if HIDDEN in texts.response or event.http_status not in (200, None):
        return  # a secret was taken out of it, piece by piece perhaps; or it is a refusal, which tells no numbers
    answer = engine.read_again(texts.response)
    complete = answer.status is AnswerStatus.OK
    if cell.status is Status.FAILED:
        if complete and event.reason in _BY_THE_REPLY:
            yield unlike("status", cell.status, "ok", "the reply read again gives")
        return
    if cell.status is Status.OK and not complete:
        yield f"status is ok, and the reply is no answer: {answer.reason}: {answer.detail}"
        return
    told = {**{name: getattr(texts, name) for name in _SAID}, **{n: getattr(cell, n) for n in (*_TOLD, *_NAMED)}}
    told |= {name: getattr(event, name) for name in _OF_THE_EVENT}
    if cell.status is Status.OK and (event.time_to_first_token_ms is None) != (answer.time_to_first_token_ms is None):
        streams = "no token in a stream" if answer.time_to_first_token_ms is None else "a first token in a stream"
        yield f"time_to_first_token_ms is {event.time_to_first_token_ms}, and the reply has {streams}"
    for name, stated in told.items():
        found = getattr(answer, name)
        if found is None and stated == 0 and name == "cached_tokens" and seen.counter_alive:
            continue  # a server that leaves zeros out, as its probe saw
        if found != stated:
            yield unlike(name, stated, found, "the reply tells")


def request_differs(event: CellMeasured, texts: Texts, made: tuple[Case, OpenAIRoutes, EpochSeen]) -> Iterator[str]:
    """What was sent otherwise than the replay set, the schedule and the engine would have it."""
    case, engine, seen = made
    cell = event.cell
    if cell.prompt_sha256 != case.sha256:
        yield unlike("prompt_sha256", cell.prompt_sha256, case.sha256, "the replay set has")
    try:
        kept = kept_request(texts.request)
        body = None if kept is None else json.loads(kept.body)
        sending = Sending(seen.model, event.seed, event.nonce or "", cell.cold_proof)
        due = prepare(case, engine, sending)
        if kept is None or not isinstance(body, dict):
            yield "the request is no JSON object"
        elif kept.path != due.path:
            yield unlike("path", kept.path, due.path, "the replay set has")
        else:
            yield from fields_differ(body, due.body)
    except (ValueError, TypeError, LookupError, RecursionError, EngineError) as error:
        yield f"the request cannot be read or made again: {type(error).__name__}"


def fields_differ(sent: Mapping[str, Any], due: Mapping[str, Any]) -> Iterator[str]:
    """Fields of a body that was sent otherwise than it is due."""
    for name in sorted({*sent, *due}):
        if name not in sent or name not in due or canonical_json(sent[name]) != canonical_json(due[name]):
            yield unlike(f"request.{name}", sent.get(name), due.get(name), "replay set and schedule give")


def life_differs(event: CellMeasured, seen: EpochSeen, path: str, scheduled: bool) -> Iterator[str]:
    """What the cell, of a case on `path`, says otherwise of its server's life than the probe did."""
    proof, shown = event.cell.cold_proof, seen.proof_on(path)
    if proof != shown and (scheduled or proof is not None):
        yield unlike("cold_proof", proof, shown, "the probe of that server showed")
    for name in _OF_THE_LIFE:
        stated, found = getattr(event.cell, name), getattr(seen, name)
        if stated != found:
            yield unlike(name, stated, found, "the probe of that server showed")
