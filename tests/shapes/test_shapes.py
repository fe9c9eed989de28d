"""Every shape of request through the whole path: from the line of a set to the bytes on the wire, to the texts in the
store, to the checks. On both dialects of the simulated engine, streamed and whole, and on the real server."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from prefillgate.core.cells import CANDIDATE, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import Purpose, Texts
from prefillgate.core.schedule import RunCell
from prefillgate.core.sent import GATE_FIELDS
from prefillgate.engines.registry import detect
from prefillgate.replay.clock import SystemClock
from prefillgate.replay.lane import Lane, LaneTimes, Measurement
from prefillgate.replay.replay_set import ReplaySet, load_replay_set
from tests.support.llama import llama_pool, real_llama
from tests.support.rewriting import rewriting
from tests.support.runs import Bench, measured, stored, write_policy
from tests.support.simulated import start_simulated

__all__ = ["llama_pool"]

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TOOLS = [{"type": "function", "function": {"name": "merge", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"id": "c0", "type": "function", "function": {"name": "merge", "arguments": '{"a":  1}'}}
HISTORY = [
    {"role": "system", "content": "You review."},
    {"role": "user", "content": "history: first question"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c0", "content": "merged"},
    {"role": "assistant", "content": "It is merged.", "reasoning_content": "they asked"},
    {"role": "user", "content": "history: and now?"},
]
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
#: Under a nonce, what a chat template puts before it may come from the cache: it must be a small share of the prompt.
PAD = " ".join(f"w{number}" for number in range(1500))
LONG_HISTORY = [*HISTORY[:-1], {"role": "user", "content": f"history: and now? {PAD}"}]
COUNTED = " eight"
PIXEL = "data:image/png;base64," + base64.b64encode(bytes(range(256))).decode()


@dataclass(frozen=True)
class Shape:
    """A case, what the simulated model answers to it, and a check that only the right text passes."""

    path: str
    body: dict[str, Any]
    answer: dict[str, Any]
    checks: tuple[str, ...]
    said: Texts
    finish: str = "stop"
    match: str = field(default="")


def user(text: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 200, "temperature": 0, **more}


Seen = list[tuple[str, bytes]]
SHAPES = {
    "a completion": Shape(
        COMPLETIONS,
        {"prompt": f"plain: go on {PAD}", "max_tokens": 200, "temperature": 0},
        {"match": "plain:", "text": "It goes on."},
        ("cel=content == 'It goes on.' && reasoning == '' && size(tool_calls) == 0",),
        Texts("It goes on."),
    ),
    "a chat": Shape(
        CHAT,
        user(f"chat: hello {PAD}"),
        {"match": "chat:", "text": "Hello."},
        ("cel=content == 'Hello.'",),
        Texts("Hello."),
    ),
    "tool calls": Shape(
        CHAT,
        user(f"tools: merge both {PAD}", tools=TOOLS, tool_choice="auto"),
        {
            "match": "tools: merge",
            "text": "",
            "tool_calls": [{"name": "merge", "arguments": {"pr": 7}}, {"name": "merge", "arguments": {"pr": 8}}],
        },
        ("not_empty", "cel=size(tool_calls) == 2 && tool_calls[1].function.arguments == '{\"pr\": 8}'"),
        Texts(
            tool_calls='[{"id":"call_0","type":"function","function":{"name":"merge","arguments":"{\\"pr\\": 7}"}},'
            '{"id":"call_1","type":"function","function":{"name":"merge","arguments":"{\\"pr\\": 8}"}}]'
        ),
        finish="tool_calls",
    ),
    "a response format": Shape(
        CHAT,
        user(f"format: answer {PAD}", response_format=FORMAT),
        {"match": "format:", "text": '{"ok": true}'},
        ("json_schema=" + json.dumps(SCHEMA),),
        Texts('{"ok": true}'),
    ),
    "reasoning": Shape(
        CHAT,
        user(f"reasoning: think {PAD}", chat_template_kwargs={"enable_thinking": True}),
        {"match": "reasoning:", "text": "Done.", "reasoning": "Let me think about it."},
        ("min_words=1", "cel=words == 1 && reasoning == 'Let me think about it.'"),
        Texts("Done.", "Let me think about it."),
    ),
    "recorded history": Shape(
        CHAT,
        {"messages": LONG_HISTORY, "max_tokens": 200, "temperature": 0},
        {"match": "history: and now", "text": "Now we wait."},
        ("cel=content == 'Now we wait.'",),
        Texts("Now we wait."),
    ),
    "a stop string": Shape(
        COMPLETIONS,
        {"prompt": f"stop: count {PAD}", "max_tokens": 200, "temperature": 0, "stop": [" three", "\n"]},
        {"match": "stop:", "text": "one two three four"},
        ("cel=content == 'one two'",),
        Texts("one two"),
    ),
    "logprobs of a completion": Shape(
        COMPLETIONS,
        {"prompt": f"logprobs: say {PAD}", "max_tokens": 200, "temperature": 0, "logprobs": 2},
        {"match": "logprobs: say", "text": "Likely so."},
        ("cel=content == 'Likely so.'",),
        Texts("Likely so."),
    ),
    "logprobs of a chat": Shape(
        CHAT,
        user(f"likely: say {PAD}", logprobs=True, top_logprobs=3),
        {"match": "likely:", "text": "Surely so."},
        ("cel=content == 'Surely so.'",),
        Texts("Surely so."),
    ),
    "sampling": Shape(
        CHAT,
        {**user(f"sampled: say {PAD}"), "temperature": 0.7, "top_p": 0.9, "seed": 3},
        {"match": "sampled:", "text": "This or that."},
        ("cel=content == 'This or that.'",),
        Texts("This or that."),
    ),
}


def write_shapes(folder: Path, stream: bool | None, names: tuple[str, ...] = tuple(SHAPES)) -> Bench:
    """A set of these shapes whose bodies say `stream` (None: nothing), the answers to them, and a policy."""
    lines, answers = [], []
    for name in names:
        shape = SHAPES[name]
        body = shape.body if stream is None else {**shape.body, "stream": stream}
        own = {"checks": list(shape.checks)}
        lines.append({"custom_id": name, "method": "POST", "url": shape.path, "body": body, "prefillgate": own})
        answers.append(shape.answer)
    for file, rows in (("set.jsonl", lines), ("answers.jsonl", answers)):
        (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Bench(folder, folder / "set.jsonl", write_policy(folder / "policy.yaml"))


@contextmanager
def recorded(url: str) -> Iterator[tuple[str, Seen]]:
    """A proxy to `url` that notes the path and the bytes of each generation."""
    seen: Seen = []

    async def note(request: web.Request, reply: bytes) -> bytes:
        seen.append((request.path, await request.read()))
        return reply

    with rewriting(url, {CHAT: note, COMPLETIONS: note}) as proxy:
        yield proxy, seen


def sent_for(seen: Seen, shape: Shape) -> list[tuple[str, dict[str, Any], bytes]]:
    """The recorded requests for one shape, by the first words of its prompt."""
    word = shape.answer["match"].encode()
    return [(path, json.loads(raw), raw) for path, raw in seen if word in raw]


def run_shapes(folder: Path, dialect: str, stream: bool | None) -> tuple[Gate, dict[int, Texts], Seen]:
    work = write_shapes(folder, stream)
    options: dict[str, Any] = {"dialect": dialect, "answers": folder / "answers.jsonl"}
    with ExitStack() as stack:
        baseline = stack.enter_context(start_simulated(seed=1, **options))
        candidate = stack.enter_context(start_simulated(seed=2, **options))
        proxy, seen = stack.enter_context(recorded(candidate.url))
        finished = work.run(work.request(baseline.url, proxy))
    assert finished.verdict.decision.decision == "promote", finished.verdict.decision.sentences
    return (*stored(folder / "run.db"), seen)


@pytest.mark.parametrize("stream", [None, True, False])
@pytest.mark.parametrize("dialect", ["llama", "openai"])
def test_every_shape_goes_out_as_written_and_comes_back_whole(
    tmp_path: Path, dialect: str, stream: bool | None
) -> None:
    gate, texts, seen = run_shapes(tmp_path, dialect, stream)
    by_case = {event.cell.case_id: event for event in measured(gate, CANDIDATE)}
    assert set(by_case) == set(SHAPES)
    for name, shape in SHAPES.items():
        event = by_case[name]
        said = texts[event.cell_id]
        assert (said.content, said.reasoning, said.tool_calls) == (
            shape.said.content,
            shape.said.reasoning,
            shape.said.tool_calls,
        ), name
        assert event.cell.finish_reason == shape.finish, name
        assert [outcome.bad for outcome in gate.outcomes[event.cell_id]] == [False] * (len(shape.checks) + 1), name
        for path, body, _ in sent_for(seen, shape):
            assert path == shape.path
            knobs = {"cache_prompt"} if dialect == "llama" else {"messages", "prompt"}
            for key in {*shape.body, *body} - {*GATE_FIELDS, *knobs}:
                assert json.dumps(body.get(key)) == json.dumps(shape.body.get(key)), (name, key)
            assert body["stream"] is (stream is not False), name
            assert ("stream_options" in body) is (stream is not False), name
            assert "data: [DONE]" in said.response if body["stream"] else said.response.startswith("{")


def test_reasoning_counts_as_output_and_logprobs_stand_in_the_raw_reply(tmp_path: Path) -> None:
    gate, texts, _ = run_shapes(tmp_path, "llama", None)
    by_case = {event.cell.case_id: event for event in measured(gate, CANDIDATE)}
    assert (by_case["reasoning"].cell.output_tokens or 0) > 6  # both its parts
    for name, places in (("logprobs of a completion", 2), ("logprobs of a chat", 3)):
        raw = texts[by_case[name].cell_id].response
        told = [
            token
            for line in raw.splitlines()
            if line.startswith("data: {")
            for choice in json.loads(line[6:])["choices"]
            for token in (choice.get("logprobs") or {}).get("content", ())
        ]
        assert "".join(token["token"] for token in told) == SHAPES[name].said.content
        assert all(len(token["top_logprobs"]) == places for token in told)


def test_history_and_tools_keep_their_bytes_under_a_nonce(tmp_path: Path) -> None:
    """The openai dialect is told apart by a nonce in the first message; everything after it is as it was written."""
    _, _, seen = run_shapes(tmp_path, "openai", None)
    for _, body, _ in sent_for(seen, SHAPES["recorded history"]):
        first, *others = body["messages"]
        assert first["content"].endswith("\nYou review.")
        assert json.dumps(others) == json.dumps(LONG_HISTORY[1:])
    assert len({body["messages"][0]["content"] for _, body, _ in sent_for(seen, SHAPES["recorded history"])}) > 1


@pytest.mark.parametrize("stream", [None, False])
def test_an_image_goes_out_to_the_byte_and_a_text_model_says_that_it_takes_none(
    tmp_path: Path, stream: bool | None
) -> None:
    body = user([{"type": "text", "text": "image: look"}, {"type": "image_url", "image_url": {"url": PIXEL}}])
    body |= {} if stream is None else {"stream": stream}
    line = {"custom_id": "picture", "method": "POST", "url": CHAT, "body": body}
    (tmp_path / "set.jsonl").write_text(json.dumps(line) + "\n")
    work = Bench(tmp_path, tmp_path / "set.jsonl", write_policy(tmp_path / "policy.yaml"))
    with start_simulated(seed=1) as baseline, start_simulated(seed=2) as other, recorded(other.url) as (proxy, seen):
        finished = work.run(work.request(baseline.url, proxy))
    images = [json.loads(raw)["messages"] for path, raw in seen if path == CHAT]
    assert images
    assert all(messages == body["messages"] for messages in images)
    assert all(PIXEL.encode() in raw for path, raw in seen if path == CHAT)
    decision = finished.verdict.decision
    assert (decision.reason, decision.measured) == ("CaseUnusable", False)
    assert "case picture is unusable: both arms answer it with 500" in " ".join(decision.sentences)
    assert "image input is not supported" in " ".join(decision.sentences)


def test_the_real_server_takes_each_shape_and_its_answers_come_back_by_their_parts(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One lane, each case once: what is sent, what the server makes of it, what is kept. The base model calls
    no tool and thinks nothing aloud; a grammar forces what must have a form."""
    server = real_llama(request, ("--cache-ram", "0"))
    bodies = {
        "stop": (
            COMPLETIONS,
            {"prompt": "One two three four five", "max_tokens": 9, "temperature": 0, "stop": " eight"},
        ),
        "logprobs": (COMPLETIONS, {"prompt": "One two", "max_tokens": 2, "temperature": 0, "logprobs": 2}),
        "format": (CHAT, {**user("Is it so?", response_format=FORMAT), "max_tokens": 32}),
        "tools": (CHAT, {**user("Merge.", tools=TOOLS, tool_choice="auto"), "max_tokens": 2}),
        "history": (CHAT, {"messages": [HISTORY[0], HISTORY[1], *HISTORY[4:]], "max_tokens": 2, "temperature": 0}),
        "image": (CHAT, user([{"type": "image_url", "image_url": {"url": PIXEL}}])),
    }
    lines = [
        {"custom_id": f"{name} {'streamed' if stream else 'whole'}", "method": "POST", "url": path, "body": body}
        for name, (path, plain) in bodies.items()
        for stream in (True, False)
        for body in [plain if stream else {**plain, "stream": False}]
    ]
    (tmp_path / "set.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = {}
    with recorded(server.url) as (proxy, seen):
        for case_id, measurement in asyncio.run(measure_each(proxy, load_replay_set(str(tmp_path / "set.jsonl")))):
            said[case_id] = measurement
    for case_id in (line["custom_id"] for line in lines):
        name, how = str(case_id).split()
        event, texts = said[case_id].event, said[case_id].texts
        assert texts is not None
        sent = json.loads(texts.request)["body"]
        assert sent["stream"] is (how == "streamed")
        for key in set(bodies[name][1]) - set(GATE_FIELDS):
            assert sent[key] == bodies[name][1][key]
        if name == "image":
            assert event.cell.status is Status.FAILED
            assert event.http_status == 500
            assert "image input is not supported" in (event.detail or "")
            continue
        assert event.cell.status is Status.OK, (case_id, event.reason, event.detail)
        assert event.cell.cached_tokens == 0
        assert ("data: [DONE]" in texts.response) is (how == "streamed")
        if name == "stop":
            assert (texts.content, event.cell.finish_reason) == (" six seven", "stop")
        if name == "logprobs":
            assert '"top_logprobs"' in texts.response
        if name == "format":
            assert type(json.loads(texts.content)["ok"]) is bool
    assert [raw for _, raw in seen if PIXEL.encode() in raw]


async def measure_each(url: str, replay_set: ReplaySet) -> list[tuple[str, Measurement]]:
    """Every case once, on one lane to the server."""
    async with await detect(url) as engine:
        lane = Lane(CANDIDATE, engine, SystemClock(), LaneTimes(cell_timeout_seconds=120.0))
        await lane.meet()
        found = []
        for number, case in enumerate(replay_set.cases):
            step = RunCell(number, CANDIDATE, case.case_id, Purpose.SCREEN, None, 0, 0, 1, 1, f"{number:032x}")
            found.append((case.case_id, await lane.measure(step, case)))
        return found
