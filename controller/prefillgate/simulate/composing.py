"""From a hidden state to the pieces of an answer: reply, planted faults of text, limits, stops."""

from __future__ import annotations

from dataclasses import replace

from prefillgate.simulate.answers import FOREIGN_TEXT, LEAK, Answers, Asked, Reply, loop, spoil
from prefillgate.simulate.faults import Faults, Hostile, Turn
from prefillgate.simulate.request import GenerationRequest, Route
from prefillgate.simulate.tokens import pieces
from prefillgate.simulate.wire import Output, Piece

_FILLER = " and so on"


def planted_reply(answers: Answers, asked: Asked, faults: Faults, turn: Turn, overheard: str) -> Reply:
    """The reply with the faults of text that hit this generation. `overheard` is of another conversation."""
    reply = answers.reply(asked)
    if faults.hit("foreign-text", turn):
        reply = Reply(overheard or FOREIGN_TEXT)
    if faults.hit("empty-text", turn):
        reply = Reply("")
    if faults.hit("loop", turn):
        reply = loop(reply)
    if faults.hit("leaked-template", turn):
        reply = replace(reply, text=reply.text + LEAK)
    if faults.hit("reasoning-only", turn):
        reply = Reply("", reasoning=f"{reply.reasoning} {reply.text}".strip())
    return spoil(reply, faults.all("hostile-text", Hostile))


def compose(request: GenerationRequest, reply: Reply) -> tuple[Output, int]:
    """The result and its output tokens, with the end token counted when the model ended by itself."""
    parts: list[Piece] = []
    text, stopped = _until_stop(reply.text, request.stop)
    if request.route is Route.CHAT:
        parts += [Piece("reasoning", piece) for piece in pieces(reply.reasoning)]
    parts += [Piece("content", piece) for piece in pieces(text)]
    calls = reply.tool_calls if request.route is Route.CHAT else ()
    for number, (name, arguments) in enumerate(calls):
        parts += [Piece(f"tool:{number}:{name}", piece) for piece in pieces(arguments)]
    if request.body.get("ignore_eos") is True and request.limited and not stopped:
        filler = pieces(_FILLER)
        parts += [Piece("content", filler[i % len(filler)]) for i in range(request.max_tokens - len(parts))]
    if len(parts) >= request.max_tokens:
        return Output(tuple(parts[: request.max_tokens]), "length"), request.max_tokens
    return Output(tuple(parts), "tool_calls" if calls and not stopped else "stop"), len(parts) + 1


def _until_stop(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    places = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)
