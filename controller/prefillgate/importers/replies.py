"""OpenAI-style requests and replies as any log keeps them: one reply -> the cells of its choices, one body -> `Asked`.

A reply is that of /v1/chat/completions or /v1/completions, whole, or of llama.cpp's /completion; `whole_reply` makes
one of a stream of events. Counters: `usage` (prompt_tokens, completion_tokens, prompt_tokens_details.cached_tokens, and
DeepSeek's prompt_cache_hit_tokens) and llama.cpp's `timings` (prompt_n is what was processed, cache_n what was reused).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from prefillgate.api.cell_log import LogLine
from prefillgate.api.replay_set import CHAT, COMPLETIONS
from prefillgate.core.cells import Cell, Status
from prefillgate.core.journal import Texts
from prefillgate.importers.base import UNKNOWN_ARM, Asked, Imported
from prefillgate.importers.records import Damaged, Record, count, milliseconds, moment, text

NO_TEXTS = Texts()
_PREFILLED = ("messages", "prompt", "tools")
_NOTHING: Mapping[str, Any] = {}
_STOPS = {"eos": "stop", "word": "stop", "limit": "length"}


@dataclass(slots=True)  # not frozen: one is made for each request of a million
class Beside:
    """What a log tells beside a reply. Times are seconds since 1970, `http_status` is None where not told."""

    where: str
    asked: Asked | None = None
    custom_id: str | None = None
    request_id: str | None = None
    http_status: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    label: str | None = None
    time_to_first_token_ms: float | None = None


@dataclass(slots=True)
class TokenCounts:
    """What a reply tells of its tokens; None where it does not."""

    prompt: int | None = None
    cached: int | None = None
    processed: int | None = None
    output: int | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None


def read_reply(reply: Mapping[str, Any], beside: Beside) -> list[Imported]:
    """The choices of one reply, those of n > 1 under one request_id. Raises `Damaged`."""
    error = reply.get("error")
    if error or reply.get("object") == "error":
        return [failed_request(error or reply, beside)]
    choices = reply.get("choices")
    if choices is None:
        if "content" in reply and ("timings" in reply or "tokens_evaluated" in reply):
            return read_reply(_of_completion(reply), beside)
        raise Damaged("no choices: not the reply of a chat or text completion")
    if type(choices) is not list or not all(type(choice) is dict for choice in choices):
        raise Damaged("choices is no list of objects")
    if reply.get("object") == "chat.completion.chunk":
        raise Damaged("a piece of a streamed reply (a whole reply a line is read)")
    counts = read_counts(reply)
    if len(choices) == 1:
        return [_choice(reply, choices[0], beside, counts)]
    if not choices:
        return [_choice(reply, {"message": {"content": ""}}, beside, counts)]
    # One prefill posing as several: only the whole request's tokens are told, so none of its choices has a number.
    shared = replace(counts, output=None, decode_ms=None)
    known = beside if _request_id(reply, beside) else replace(beside, request_id=beside.where)
    found = [_choice(reply, choice, known, shared) for choice in choices]
    return [_numbered(each, place, choices[place]) for place, each in enumerate(found)]


def failed_request(error: Any, beside: Beside) -> Imported:
    """A request that was answered with an error. Nobody knows that it was measured, so it is invalid."""
    error = error if isinstance(error, dict) else {"message": error}
    code = error.get("code")
    status = beside.http_status
    if status in (None, 200) and type(code) is int and 400 <= code <= 599:
        status = code
    reason = text(error, "type") or (code if isinstance(code, str) and code else None) or "an error reply"
    cell = Cell(
        arm=UNKNOWN_ARM,
        status=Status.INVALID,
        started_at=beside.started_at,
        ended_at=beside.ended_at,
        request_id=beside.request_id,
        **known_prompt(beside.asked, beside.custom_id, beside.where),
    )
    line = LogLine(cell, scored=False, http_status=status, reason=reason[:200])
    return Imported(line, beside.where, label=beside.label, asked=beside.asked, custom_id=beside.custom_id)


def known_prompt(asked: Asked | None, custom_id: str | None, where: str) -> dict[str, Any]:
    """`case_id` and, where the prompt is known, `prompt_sha256` of a cell.

    A prompt is known by its digest, so that its repeats are seen; else the log's own name for it stands, else it is a
    case by itself: nothing is merged on a guess. Raises `Damaged`.
    """
    if asked is None:
        return {"case_id": custom_id or f"unknown case of {where}"}
    try:
        digest = _digest(asked.body)
    except (ValueError, TypeError, RecursionError) as error:
        raise Damaged("a prompt that cannot be written as UTF-8") from error
    return {"case_id": digest, "prompt_sha256": digest}


def _digest(body: Mapping[str, Any]) -> str:
    """What stands for what is prefilled, as `prompt_digest`: the prompt or the messages, and the tools."""
    told = {name: body[name] for name in _PREFILLED if body.get(name) is not None}
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def read_counts(reply: Mapping[str, Any]) -> TokenCounts:
    """The counters of a reply. Raises `Damaged` where one is there and is no number."""
    usage = reply.get("usage")
    usage = _NOTHING if usage is None else _object(usage, "usage")
    prompt = count(usage, "prompt_tokens")
    output = count(usage, "completion_tokens")
    details = usage.get("prompt_tokens_details")
    if details is None:
        cached = count(usage, "prompt_cache_hit_tokens")
    else:
        cached = count(_object(details, "prompt_tokens_details"), "cached_tokens")
    timings = reply.get("timings")
    if timings is None:
        return TokenCounts(prompt, cached, None, output)
    timings = _object(timings, "timings")
    processed, reused = count(timings, "prompt_n"), count(timings, "cache_n")
    if reused is not None:
        cached = reused
        if prompt is None and processed is not None:
            prompt = reused + processed
    elif cached is None and prompt is not None and processed is not None and prompt >= processed:
        cached = prompt - processed  # builds before cache_n
    predicted = count(timings, "predicted_n")
    times = milliseconds(timings, "prompt_ms"), milliseconds(timings, "predicted_ms")
    return TokenCounts(prompt, cached, processed, predicted if output is None else output, *times)


def asked_of(body: Any, address: str | None = None) -> Asked | None:
    """The request of a body, by its address or else by what it holds; None where it is no chat or text completion."""
    if not isinstance(body, dict):
        return None
    route = (address or "").partition("?")[0].rstrip("/")
    if route.endswith("/chat/completions"):
        path = CHAT
    elif route.endswith(("/completions", "/completion")):
        path = COMPLETIONS
    elif address is not None:
        return None
    elif isinstance(body.get("messages"), list):
        path = CHAT
    elif "prompt" in body:
        path = COMPLETIONS
    else:
        return None
    prompt = body.get("prompt")
    if path == COMPLETIONS and isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        body = {**body, "prompt": prompt[0]}
    return Asked(path, body)


def whole_reply(stream: str) -> Record:
    """One reply out of the events of a streamed one. Raises `Damaged` where there is none in it."""
    from prefillgate.engines.sse import SseParser

    parser = SseParser()
    pieces: list[Record] = []
    data = stream.encode("utf-8", "replace")
    for event in [*parser.feed(data), *parser.close()]:
        if event.data.strip() in ("", "[DONE]"):
            continue
        try:
            piece = json.loads(event.data)
        except (ValueError, RecursionError) as error:
            raise Damaged("a streamed reply with an event that is not JSON") from error
        if isinstance(piece, dict):
            pieces.append(piece)
    if not pieces:
        raise Damaged("a streamed reply without an event")
    return joined_stream(pieces)


def joined_stream(pieces: list[Record]) -> Record:
    """The chunks of one streamed reply as the reply that would have come whole."""
    error = next((piece for piece in pieces if piece.get("error")), None)
    if error is not None:
        return error
    whole: Record = {"choices": _streamed_choices(pieces)}
    for piece in pieces:
        for name in ("id", "model", "created", "usage", "timings"):
            if piece.get(name) is not None:
                whole[name] = piece[name]
    if "choices" not in pieces[0] and "content" in pieces[0]:  # llama.cpp's own /completion
        content = "".join(piece["content"] for piece in pieces if isinstance(piece.get("content"), str))
        return {**pieces[-1], "content": content}
    return whole


def _streamed_choices(pieces: list[Record]) -> list[Record]:
    from prefillgate.engines.assemble import Assembly

    by_index: dict[int, Assembly] = {}
    for piece in pieces:
        choices = piece.get("choices")
        for place, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, dict):
                index = choice.get("index", place)
                assembly = by_index.setdefault(index if type(index) is int else place, Assembly())
                assembly.add_chunk({"choices": [{**choice, "index": 0}]})
    return [
        {
            "index": index,
            "finish_reason": assembly.finish_reason,
            "message": {
                "content": assembly.content,
                "reasoning_content": assembly.reasoning,
                "tool_calls": json.loads(assembly.tool_calls or "[]"),
            },
        }
        for index, assembly in sorted(by_index.items())
    ]


def _choice(reply: Mapping[str, Any], choice: Record, beside: Beside, counts: TokenCounts) -> Imported:
    texts, reason = _texts(choice)
    finish = choice.get("finish_reason")
    if reason is None and finish is None and "finish_reason" in choice:
        reason = "NoFinishReason"
    refused = beside.http_status is not None and beside.http_status != 200
    status = Status.INVALID if refused else Status.OK if reason is None else Status.FAILED
    cell = Cell(
        arm=UNKNOWN_ARM,
        status=status,
        started_at=moment(reply.get("created")) if beside.started_at is None else beside.started_at,
        prompt_tokens=counts.prompt,
        cached_tokens=counts.cached,
        processed_tokens=counts.processed,
        output_tokens=counts.output,
        prefill_ms=counts.prefill_ms,
        decode_ms=counts.decode_ms,
        finish_reason=finish if isinstance(finish, str) else None,
        request_id=_request_id(reply, beside),
        ended_at=beside.ended_at,
        **known_prompt(beside.asked, beside.custom_id, beside.where),
    )
    return Imported(
        LogLine(cell, scored=not refused, http_status=beside.http_status, reason=reason),
        beside.where,
        label=beside.label or text(reply, "model"),
        texts=texts,
        asked=beside.asked,
        time_to_first_token_ms=beside.time_to_first_token_ms,
        custom_id=beside.custom_id,
    )


def _texts(choice: Record) -> tuple[Texts | None, str | None]:
    """What a choice said, None where the log left it out, and why it is a failed delivery if it is one."""
    message = choice.get("message")
    if message is None:
        said = choice.get("text")
        if said is None:
            return None, None
        message = {"content": said}
    if type(message) is not dict:
        raise Damaged("message is no object")
    content, calls = message.get("content"), message.get("tool_calls")
    if type(content) is list:
        content = "".join(_parts(content))
    thought = message.get("reasoning_content") or message.get("reasoning")
    found = Texts(
        content if isinstance(content, str) else "",
        thought if isinstance(thought, str) else "",
        json.dumps(calls, ensure_ascii=False, separators=(",", ":")) if calls and type(calls) is list else "",
    )
    if content is not None and not isinstance(content, str):
        raise Damaged("content is no text")
    if found == NO_TEXTS:
        if "content" not in message:
            return None, None
        return found, "EmptyAnswer"
    return found, None


def _parts(content: list[Any]) -> Iterator[str]:
    for part in content:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def _numbered(found: Imported, place: int, choice: Record) -> Imported:
    index = choice.get("index")
    index = index if type(index) is int and index >= 0 else place
    return replace(found, line=replace(found.line, cell=replace(found.line.cell, choice_index=index)))


def _request_id(reply: Mapping[str, Any], beside: Beside) -> str | None:
    found = beside.request_id or text(reply, "id")
    return None if found is None else found[:256]


def _of_completion(reply: Mapping[str, Any]) -> Record:
    """The reply of llama.cpp's /completion as one of /v1/completions. Its `tokens_evaluated` is the prompt's length."""
    finish = _STOPS.get(str(reply.get("stop_type")))
    if finish is None:
        finish = "length" if reply.get("stopped_limit") else "stop" if reply.get("stopped_eos") else None
    usage = {"prompt_tokens": reply.get("tokens_evaluated"), "completion_tokens": reply.get("tokens_predicted")}
    choice: Record = {"text": reply["content"]}
    if finish is not None or reply.get("stop") is False:
        choice["finish_reason"] = finish
    return {"choices": [choice], "usage": usage, "timings": reply.get("timings"), "model": reply.get("model")}


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if type(value) is dict:
        return value
    raise Damaged(f"{name} is no object")
