"""The simulated server's replies have the fields, types, statuses and framing of the real one's."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .conftest import FEW_SHOTS, Pair, words
from .shapes import course, events, shape

CHAT = {"messages": [{"role": "user", "content": "Count to three"}], "max_tokens": 3, "temperature": 0}
PLAIN = {"prompt": FEW_SHOTS, "max_tokens": 3, "temperature": 0}
STOPPED = {**PLAIN, "max_tokens": 8, "stop": ["\n"]}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

GENERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "a completion": ("/v1/completions", PLAIN),
    "a stopped completion": ("/v1/completions", STOPPED),
    "two completions": ("/v1/completions", {**PLAIN, "n": 2}),
    "one token": ("/v1/completions", {**PLAIN, "max_tokens": 1}),
    "a native completion": ("/completion", PLAIN),
    "a chat": ("/v1/chat/completions", CHAT),
    "two chats": ("/v1/chat/completions", {**CHAT, "n": 2}),
    "a completion with logprobs": ("/v1/completions", {**PLAIN, "logprobs": 2}),
    "a chat with logprobs": ("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 2}),
}
STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "a completion": ("/v1/completions", {**PLAIN, "stream": True}),
    "a completion with usage": ("/v1/completions", {**PLAIN, **USAGE}),
    "a stopped completion": ("/v1/completions", {**STOPPED, "stream": True}),
    "a native completion": ("/completion", {**PLAIN, "stream": True}),
    "a chat": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "a chat with usage": ("/v1/chat/completions", {**CHAT, **USAGE}),
    "a completion with logprobs": ("/v1/completions", {**PLAIN, "logprobs": 2, "stream": True}),
    "a chat with logprobs": ("/v1/chat/completions", {**CHAT, "logprobs": True, "stream": True}),
}
REFUSALS: dict[str, tuple[str, Any]] = {
    "a prompt longer than a slot": ("/v1/completions", {"prompt": words(1, 2000), "max_tokens": 1}),
    "a streamed prompt longer than a slot": ("/v1/completions", {"prompt": words(1, 2000), "stream": True}),
    "a chat longer than a slot": ("/v1/chat/completions", {"messages": [{"role": "user", "content": words(1, 2000)}]}),
    "an image": ("/v1/chat/completions", {"messages": [{"role": "user", "content": [IMAGE]}], "max_tokens": 1}),
    "no prompt": ("/v1/completions", {"max_tokens": 1}),
    "a prompt that is a number": ("/v1/completions", {"prompt": 5}),
    "no messages": ("/v1/chat/completions", {"prompt": "x"}),
    "messages that are no list": ("/v1/chat/completions", {"messages": "x"}),
    "a message without content": ("/v1/chat/completions", {"messages": [{"role": "user"}]}),
    "no result wanted": ("/v1/completions", {"prompt": "x", "n": 0}),
    "more results than slots": ("/v1/completions", {"prompt": "x", "n": 3}),
    "a limit that is a word": ("/v1/completions", {"prompt": "x", "max_tokens": "many"}),
    "broken JSON": ("/v1/completions", b'{"prompt"'),
    "a list": ("/v1/completions", [1]),
    "an unknown path": ("/v1/nothing", {}),
}


@pytest.mark.parametrize("path", ["/health", "/props", "/v1/models", "/slots"])
def test_discovery_has_the_same_fields(pair: Pair, path: str) -> None:
    for subject in pair.each():
        subject.complete(FEW_SHOTS, n=2)  # a slot tells more of itself once it was used
    simulated, real = (subject.get(path) for subject in pair.each())
    assert shape(simulated.json()) == shape(real.json())
    assert simulated.status_code == real.status_code == 200
    assert simulated.headers["content-type"] == real.headers["content-type"]
    assert simulated.headers["server"] == real.headers["server"]


def test_metrics_have_the_same_names_and_kinds(pair: Pair) -> None:
    simulated, real = (subject.get("/metrics") for subject in pair.each())
    kinds = [re.findall(r"^# TYPE (\S+ \S+)$", reply.text, re.MULTILINE) for reply in (simulated, real)]
    assert kinds[0] == kinds[1]
    assert "llamacpp:prompt_tokens_total counter" in kinds[1]
    assert simulated.headers["content-type"] == real.headers["content-type"]
    assert all(reply.headers["process-start-time-unix"].isdigit() for reply in (simulated, real))


@pytest.mark.parametrize("name", GENERATIONS)
def test_answers_have_the_same_fields(pair: Pair, name: str) -> None:
    path, body = GENERATIONS[name]
    simulated, real = (subject.post(path, body) for subject in pair.each())
    assert (simulated.status_code, real.status_code) == (200, 200)
    assert shape(simulated.json()) == shape(real.json())
    assert simulated.headers["content-type"] == real.headers["content-type"]
    if "choices" in real.json():
        ends = [[choice["finish_reason"] for choice in reply.json()["choices"]] for reply in (simulated, real)]
        assert ends[0] == ends[1]


def test_prompts_are_counted_by_the_same_routes(pair: Pair) -> None:
    asked = (("/tokenize", {"content": FEW_SHOTS, "add_special": True}), ("/v1/chat/completions/input_tokens", CHAT))
    for path, body in asked:
        simulated, real = (subject.post(path, body) for subject in pair.each())
        assert (simulated.status_code, real.status_code) == (200, 200)
        assert shape(simulated.json()) == shape(real.json())


@pytest.mark.parametrize("name", STREAMS)
def test_streams_run_the_same_course(pair: Pair, name: str) -> None:
    path, body = STREAMS[name]
    simulated, real = (subject.post(path, body) for subject in pair.each())
    assert simulated.headers["content-type"] == real.headers["content-type"] == "text/event-stream"
    assert course(simulated.content) == course(real.content)
    ended = [events(reply.content)[-1] == "[DONE]" for reply in (simulated, real)]
    assert ended == [path.startswith("/v1/")] * 2


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_have_the_same_status_and_error(pair: Pair, name: str) -> None:
    path, body = REFUSALS[name]
    simulated, real = (subject.post(path, body) for subject in pair.each())
    assert simulated.status_code == real.status_code >= 400
    assert shape(simulated.json()) == shape(real.json())
    for field in ("type", "code"):
        assert simulated.json()["error"][field] == real.json()["error"][field]


def test_a_get_of_a_post_route_is_not_found(pair: Pair) -> None:
    simulated, real = (subject.get("/v1/completions") for subject in pair.each())
    assert simulated.status_code == real.status_code == 404
    assert simulated.json() == real.json()
