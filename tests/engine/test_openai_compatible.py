"""Any OpenAI-compatible server: a nonce makes prompts new, and a counter is believed once the probe saw it move."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.engines.base import (
    AnswerStatus,
    Capabilities,
    CellRequest,
    TerminalEngineError,
    TransientEngineError,
)
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.openai_compatible import OpenAICompatible
from prefillgate.hosts.llama_server import LlamaServer
from tests.engine.hostile import Exchange, HostileServer, Reply, whole
from tests.support.llama import real_llama

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SHORT = EngineOptions(probe_words=120, attempts=1)
USER = {"role": "user", "content": "Hi"}


def prepared(path: str, body: dict[str, Any], **more: Any) -> Any:
    request = CellRequest(path, body, **{"model": None, "seed": None, "nonce": "n-1", "cold_proof": "nonce"} | more)
    return OpenAICompatible("http://host").prepare(request)


async def test_on_a_real_server_the_probe_sees_the_counter_rise_and_the_nonce_bring_it_down(llama: LlamaServer) -> None:
    async with OpenAICompatible(llama.url, SHORT) as engine:
        shown = await engine.probe("salt-o1", None)
        identity = await engine.discover()
        assert (await engine.counters(), await engine.epoch(), (await engine.activity()).idle) == (None, None, None)
    assert shown == Capabilities(counter_alive=True, cold_proof="nonce", counters_agree=None, decode_times=False)
    assert (identity.engine, identity.model, identity.server_epoch) == (
        "openai-compatible",
        "gemma-3-270m-q4_k_m",
        None,
    )


async def test_on_a_real_server_a_cell_with_a_nonce_is_fresh_by_its_usage(llama: LlamaServer) -> None:
    body = {"prompt": "The ferry leaves at noon and returns at dusk. " * 12, "max_tokens": 3, "temperature": 0.0}
    async with OpenAICompatible(llama.url, SHORT) as engine:
        answers = []
        for nonce, proof in (("n-1", "nonce"), ("n-1", "nonce"), ("n-2", "nonce")):
            request = CellRequest(COMPLETIONS, body, None, 3, nonce, proof)
            answers.append(await engine.generate(engine.prepare(request), 60))
    first, repeat, renewed = answers
    assert [answer.status for answer in answers] == [AnswerStatus.OK] * 3
    assert first.prompt_tokens is not None and first.prompt_tokens > 100
    # The token that begins every prompt may stay cached before a first-line nonce.
    for fresh in (first, renewed):
        assert fresh.cached_tokens is not None and fresh.cached_tokens <= 0.05 * first.prompt_tokens
    assert repeat.cached_tokens is not None and repeat.cached_tokens >= 0.9 * first.prompt_tokens
    assert (first.processed_tokens, first.prefill_ms, first.decode_ms) == (None, None, None)
    assert first.output_tokens == 3


async def test_on_a_real_server_without_a_cache_independence_stays_unknown(request: pytest.FixtureRequest) -> None:
    server = real_llama(request, ("--cache-ram", "0", "--no-cache-prompt"))
    async with OpenAICompatible(server.url, SHORT) as engine:
        shown = await engine.probe("salt-o2", None)
    assert (shown.counter_alive, shown.cold_proof) == (False, None)
    assert len(shown.findings) == 1
    assert "an exact repeat was reported with 0 cached tokens" in shown.findings[0]


def counting(*cached: Any) -> Reply:
    """Replies of 100 prompt tokens with these cached tokens in turn; a missing counter for `...`."""
    turn = iter(cached)

    async def reply(exchange: Exchange) -> None:
        value = next(turn)
        details = {} if value is ... else {"prompt_tokens_details": None if value is None else {"cached_tokens": value}}
        usage = {"prompt_tokens": 100, "completion_tokens": 1, **details}
        message = {"message": {"content": "x"}, "finish_reason": "length"}
        await exchange.json({"choices": [message], "usage": usage})

    return reply


@pytest.mark.parametrize(
    ("cached", "alive", "proof", "finding"),
    [
        ((0, 96, 5), True, "nonce", None),
        ((5, 6, 5), True, "nonce", None),
        ((0, 96, 6), True, None, "by the replies' own count 0 and 6 of 100 prompt tokens"),
        ((6, 96, 0), True, None, "by the replies' own count 6 and 0 of 100 prompt tokens"),
        ((0, 96, 96), True, None, "by the replies' own count 0 and 96 of 100 prompt tokens"),
        ((0, 0, 0), False, None, "an exact repeat was reported with 0 cached tokens"),
        ((99, 99, 99), False, None, "never sent before was reported with 99 of 100 tokens cached: the counter cannot"),
        ((5, 5, 5), False, None, "an exact repeat was reported with 5 cached tokens: the counter is dead"),
        (
            (6, 6, 6),
            False,
            None,
            "a prompt that was never sent before was reported with 6 of 100 tokens cached",
        ),  # always prompt - 1
        ((0, 1, None), True, None, "a new nonce does not make the prompt new"),
        ((None, None, None), False, None, "vLLM tells it with --enable-prompt-tokens-details"),
        ((..., ..., ...), False, None, "SGLang with --enable-cache-report"),
        ((-1, "x", 1.5), False, None, "cached_tokens is -1, not a count of tokens"),
    ],
)
async def test_a_counter_is_believed_only_if_it_rises_on_a_repeat_and_falls_with_a_new_nonce(
    cached: tuple[Any, ...], alive: bool, proof: str | None, finding: str | None
) -> None:
    async with HostileServer(counting(*cached)) as server, OpenAICompatible(server.url, SHORT) as engine:
        shown = await engine.probe("salt", "model-a")
    assert (shown.counter_alive, shown.cold_proof, shown.counters_agree) == (alive, proof, None)
    assert (shown.findings == ()) if finding is None else any(finding in told for told in shown.findings)
    prompts = [json.loads(sent.body)["messages"] for sent in server.seen]
    assert prompts[0] == prompts[1]
    assert [messages[0]["content"] for messages in prompts] == ["salt-1", "salt-1", "salt-2"]
    assert prompts[0][1:] == prompts[2][1:]
    assert {json.loads(sent.body)["model"] for sent in server.seen} == {"model-a"}


async def test_two_probes_never_send_the_same_prompt() -> None:
    async with HostileServer(counting(*[0, 9, 0] * 2)) as server, OpenAICompatible(server.url) as engine:
        await engine.probe("salt-a", None)
        await engine.probe("salt-b", None)
    texts = [json.loads(sent.body)["messages"][1]["content"] for sent in server.seen]
    assert texts[0] == texts[2] != texts[3] == texts[5]
    assert len(texts[0].split()) == EngineOptions().probe_words + 1


async def test_a_server_with_completions_only_is_probed_there() -> None:
    replies = counting(0, 90, 0)

    async def reply(exchange: Exchange) -> None:
        if exchange.path == CHAT:
            await exchange.json({"error": {"message": "no chat template"}}, "400 Bad Request")
        else:
            await replies(exchange)

    async with HostileServer(reply) as server, OpenAICompatible(server.url, SHORT) as engine:
        shown = await engine.probe("salt", None)
    assert shown.cold_proof == "nonce"
    assert [sent.path for sent in server.seen] == [CHAT, COMPLETIONS, COMPLETIONS, COMPLETIONS]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("401 Unauthorized", TerminalEngineError),
        ("404 Not Found", TerminalEngineError),
        ("429 Too Many Requests", TransientEngineError),
        ("500 Error", TransientEngineError),
        ("503 Unavailable", TransientEngineError),
    ],
)
async def test_a_probe_without_an_answer_is_an_error_with_the_servers_words(
    status: str, error: type[Exception]
) -> None:
    async with HostileServer(whole({"error": "so it is"}, status)) as server:
        engine = OpenAICompatible(server.url, SHORT)
        async with engine:
            with pytest.raises(error, match=r"the capability probe got no answer to a new prompt: .*so it is"):
                await engine.probe("salt", None)


def test_only_the_named_fields_change_and_each_change_is_told() -> None:
    body = {"model": "theirs", "messages": [USER], "temperature": 0.7, "n": 4, "stream": False, "tools": [{"a": 1}]}
    request = prepared(CHAT, body, model="ours", seed=9)
    assert request.body == {
        "model": "ours",
        "messages": [{"role": "system", "content": "n-1"}, USER],
        "temperature": 0.7,
        "n": 1,
        "stream": True,
        "tools": [{"a": 1}],
        "seed": 9,
        "stream_options": {"include_usage": True},
    }
    assert request.changes == (
        ("model", "theirs", "ours"),
        ("n", 4, 1),
        ("seed", None, 9),
        ("stream", False, True),
        ("stream_options", None, {"include_usage": True}),
        ("messages", [USER], [{"role": "system", "content": "n-1"}, USER]),
    )
    assert body["n"] == 4 and body["messages"] == [USER], "the case's own body stays as it was"


def test_a_field_that_is_right_already_is_no_change() -> None:
    body = {"prompt": "Hi", "n": 1, "stream": False, "seed": 3}
    assert prepared(COMPLETIONS, body, stream=False, cold_proof=None, seed=3).changes == ()
    assert prepared(COMPLETIONS, {**body, "n": True}, stream=False, cold_proof=None, seed=3).changes == (
        ("n", True, 1),
    )


def test_stream_options_keep_what_the_case_asked_for_and_go_when_not_streaming() -> None:
    body = {"prompt": "Hi", "stream_options": {"chunk_size": 4, "include_usage": False}}
    assert prepared(COMPLETIONS, body).body["stream_options"] == {"chunk_size": 4, "include_usage": True}
    whole_reply = prepared(COMPLETIONS, body, stream=False)
    assert "stream_options" not in whole_reply.body
    assert ("stream_options", body["stream_options"], None) in whole_reply.changes


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ({"role": "system", "content": "Be brief."}, {"role": "system", "content": "n-1\nBe brief."}),
        ({"role": "developer", "content": "Be brief."}, {"role": "developer", "content": "n-1\nBe brief."}),
        ({"role": "system", "content": None}, {"role": "system", "content": "n-1\n"}),
        (
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "system", "content": [{"type": "text", "text": "n-1\n"}, {"type": "text", "text": "Be brief."}]},
        ),
    ],
)
def test_the_nonce_is_the_first_line_of_the_system_message(first: Any, expected: Any) -> None:
    assert prepared(CHAT, {"messages": [first, USER]}).body["messages"] == [expected, USER]


def test_the_nonce_is_the_first_line_of_the_prompt() -> None:
    assert prepared(COMPLETIONS, {"prompt": "Hi"}).body["prompt"] == "n-1\nHi"
    assert prepared(COMPLETIONS, {"prompt": ["Hi"]}).body["prompt"] == ["n-1\nHi"]
    assert prepared(COMPLETIONS, {"prompt": "Hi"}, cold_proof=None).body["prompt"] == "Hi"


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (COMPLETIONS, {"prompt": [1, 2, 3]}, "prompt is not one text: no place for the nonce"),
        (COMPLETIONS, {"prompt": ["a", "b"]}, "prompt is not one text: no place for the nonce"),
        (COMPLETIONS, {}, "prompt is not one text: no place for the nonce"),
        (CHAT, {"messages": "Hi"}, "messages is not a list: no place for the nonce"),
        ("/v1/embeddings", {}, "'/v1/embeddings' is not a route this engine measures; allowed: /v1/chat/completions"),
    ],
)
def test_a_body_without_a_place_for_the_nonce_is_refused(path: str, body: Any, words: str) -> None:
    with pytest.raises(TerminalEngineError, match=words):
        prepared(path, body)


def test_a_cold_proof_this_family_does_not_have_is_refused() -> None:
    for proof in ("cache_off", "salt"):
        with pytest.raises(TerminalEngineError, match=f"openai-compatible has no cold proof '{proof}'; it has: nonce"):
            prepared(COMPLETIONS, {"prompt": "Hi"}, cold_proof=proof)


async def test_more_cached_than_prompt_tokens_is_told_as_a_contradiction() -> None:
    async with HostileServer(counting(101)) as server, OpenAICompatible(server.url, SHORT) as engine:
        request = CellRequest(CHAT, {"messages": [USER]}, None, 1, "n", None)
        answer = await engine.generate(engine.prepare(replace(request, stream=False)), 5)
    assert answer.findings == ("counters contradict each other: 101 cached of 100 prompt tokens",)
