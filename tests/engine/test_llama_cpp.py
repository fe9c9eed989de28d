"""What the real llama.cpp server does about caches and counters, and what the engine makes of it.

Every fact of ENGINES.md sections 1, 6 and 8 a verdict may hang on is shown here on the server itself.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from prefillgate.engines.base import Answer, AnswerStatus, Capabilities, CellRequest, Counters, TerminalEngineError
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.llama_cpp import LlamaCpp
from prefillgate.engines.registry import detect
from prefillgate.hosts.llama_server import LlamaServer
from tests.support.llama import real_llama, record

COMPLETIONS = "/v1/completions"
HARBOUR = "The harbour master wrote down every ship that came in that week and what it carried. " * 8
BAKER = "A baker sold bread to the people of the little town and counted the coins each night. " * 8


def cell(prompt: str, cold_proof: str | None = "cache_off", **more: Any) -> CellRequest:
    body = {"prompt": prompt, "max_tokens": more.pop("max_tokens", 4), "temperature": 0.0}
    return CellRequest(COMPLETIONS, body | more, None, 11, "nonce-3f9a", cold_proof)


@asynccontextmanager
async def engine(server: LlamaServer, **options: Any) -> AsyncIterator[LlamaCpp]:
    options.setdefault("probe_words", 120)  # the probe's default length has a test of its own
    async with LlamaCpp(server.url, EngineOptions(api_key=server.api_key, **options)) as opened:
        yield opened


async def ask(opened: LlamaCpp, request: CellRequest, seconds: float = 60.0) -> Answer:
    return await opened.generate(opened.prepare(request), seconds)


async def totals(opened: LlamaCpp) -> Counters:
    counters = await opened.counters()
    assert counters is not None
    return counters


async def until_running(opened: LlamaCpp, count: int) -> None:
    """Ask the server until that many of its slots are busy; only asking tells."""
    while (await opened.activity()).running != count:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def moved(before: Counters, after: Counters) -> tuple[float, float, float]:
    names = ("prompt_tokens_processed", "prompt_tokens_cached", "output_tokens")
    first, second, third = (getattr(after, name) - getattr(before, name) for name in names)
    return first, second, third


def told(answer: Answer) -> tuple[int | None, int | None, int | None]:
    return answer.prompt_tokens, answer.cached_tokens, answer.processed_tokens


def new_prompt(name: str, text: str = HARBOUR) -> str:
    """A prompt no other test sends: shared servers remember."""
    return f"Notes of {name}.\n{text}"


async def test_a_cold_cell_is_witnessed_twice_and_the_totals_agree(llama: LlamaServer) -> None:
    async with engine(llama) as opened:
        before = await totals(opened)
        answer = await ask(opened, cell(new_prompt("cold")))
        delta = moved(before, await totals(opened))
    assert answer.status is AnswerStatus.OK
    assert answer.findings == ()
    assert answer.cached_tokens == 0
    assert answer.processed_tokens == answer.prompt_tokens
    assert answer.prompt_tokens is not None and answer.prompt_tokens > 100
    assert delta == (answer.prompt_tokens, 0, 4)
    assert (answer.finish_reason, answer.output_tokens) == ("length", 4)
    assert answer.prefill_ms is not None and answer.decode_ms is not None
    assert answer.prefill_ms > 0
    assert answer.decode_ms > 0


async def test_the_first_token_is_the_first_text_and_not_the_headers_that_come_before_the_prefill(
    llama: LlamaServer,
) -> None:
    async with engine(llama) as opened:
        answer = await ask(opened, cell(new_prompt("first token")))
    # Headers come at once; a time taken at them would lie below the prefill that the server itself measured.
    assert answer.time_to_first_token_ms is not None and answer.prefill_ms is not None
    assert answer.time_to_first_token_ms >= answer.prefill_ms > 0
    assert (answer.ended_at - answer.started_at) * 1000 >= answer.time_to_first_token_ms


async def test_the_exact_repeat_is_a_copy_and_its_counters_add_up(llama: LlamaServer) -> None:
    prompt = new_prompt("repeat")
    async with engine(llama) as opened:
        first = await ask(opened, cell(prompt, None))
        before = await totals(opened)
        second = await ask(opened, cell(prompt, None))
        delta = moved(before, await totals(opened))
    length, cached, processed = told(second)
    assert length is not None and cached is not None and processed is not None
    assert first.prompt_tokens == length
    assert first.cached_tokens is not None and first.cached_tokens <= 0.05 * length
    assert cached >= 0.9 * length
    assert cached + processed == length
    assert delta[:2] == (processed, cached)


async def test_cache_prompt_false_is_cold_but_still_writes_the_prompt(llama: LlamaServer) -> None:
    prompt = new_prompt("writes")
    async with engine(llama) as opened:
        cold = await ask(opened, cell(prompt))
        without = await ask(opened, cell(prompt, None))
        again = await ask(opened, cell(prompt))
    assert (cold.cached_tokens, again.cached_tokens) == (0, 0)
    assert without.cached_tokens is not None and without.prompt_tokens is not None
    assert without.cached_tokens >= 0.9 * without.prompt_tokens


async def test_cold_equals_cold_bit_for_bit_and_warm_is_another_distribution(llama: LlamaServer) -> None:
    prompt = new_prompt("bits", HARBOUR * 2)
    async with engine(llama) as opened:
        cold = [await ask(opened, cell(prompt, logprobs=1)) for _ in range(2)]
        warm = await ask(opened, cell(prompt, None, logprobs=1))
    assert logprobs(cold[0]) == logprobs(cold[1])
    assert cold[0].content == cold[1].content
    assert warm.cached_tokens
    assert logprobs(warm) != logprobs(cold[0])


def logprobs(answer: Answer) -> list[float]:
    return [float(number) for number in re.findall(r'"logprob":(-?[\d.e-]+)', answer.raw)]


async def test_an_unknown_cache_salt_is_accepted_and_ignored(llama: LlamaServer) -> None:
    prompt = new_prompt("salt")
    async with engine(llama) as opened:
        await ask(opened, cell(prompt, None, cache_salt="a" * 32))
        other = await ask(opened, cell(prompt, None, cache_salt="b" * 32))
        with pytest.raises(TerminalEngineError, match="has no cold proof 'salt'; it has: cache_off, nonce"):
            opened.prepare(cell(prompt, "salt"))
    assert other.status is AnswerStatus.OK
    assert other.cached_tokens is not None and other.prompt_tokens is not None
    assert other.cached_tokens >= 0.9 * other.prompt_tokens


async def test_a_nonce_on_the_first_line_makes_a_known_prompt_new(llama: LlamaServer) -> None:
    prompt = new_prompt("nonce")
    async with engine(llama) as opened:
        plain = await ask(opened, cell(prompt, None))
        renewed = await ask(opened, cell(prompt, "nonce"))
        prepared = opened.prepare(cell(prompt, "nonce"))
    assert prepared.body["prompt"] == f"nonce-3f9a\n{prompt}"
    assert ("prompt", prompt, f"nonce-3f9a\n{prompt}") in prepared.changes
    assert renewed.prompt_tokens is not None and plain.prompt_tokens is not None
    assert renewed.prompt_tokens > plain.prompt_tokens
    assert renewed.cached_tokens is not None and renewed.cached_tokens <= 0.05 * renewed.prompt_tokens


async def test_a_prompt_that_shares_only_a_prefix_shows_next_to_no_cached_tokens_on_a_sliding_window_model(
    llama: LlamaServer,
) -> None:
    prompt = new_prompt("prefix")
    async with engine(llama) as opened:
        await ask(opened, cell(prompt, None))
        answer = await ask(opened, cell(prompt[: len(prompt) // 2] + BAKER, None))
    length, cached, processed = told(answer)
    assert length is not None and cached is not None and processed is not None
    assert cached <= 0.05 * length
    assert cached + processed == length


async def test_the_reply_in_one_piece_tells_the_same_numbers_as_the_stream(llama: LlamaServer) -> None:
    prompt = new_prompt("whole")
    async with engine(llama) as opened:
        streamed = await ask(opened, cell(prompt))
        whole = await ask(opened, replace(cell(prompt), stream=False))
    assert streamed.raw.startswith("data: ") and whole.raw.startswith("{")
    assert whole.content == streamed.content != ""
    assert told(whole) == told(streamed)
    assert (whole.finish_reason, whole.output_tokens) == (streamed.finish_reason, streamed.output_tokens)
    assert whole.time_to_first_token_ms is None


async def test_a_chat_is_read_like_a_completion(llama: LlamaServer) -> None:
    body = {"messages": [{"role": "user", "content": HARBOUR}], "max_tokens": 3, "temperature": 0.0}
    async with engine(llama) as opened:
        answer = await ask(opened, CellRequest("/v1/chat/completions", body, None, 5, "n-77", "nonce"))
        prepared = opened.prepare(CellRequest("/v1/chat/completions", body, None, 5, "n-77", "nonce"))
    assert prepared.body["messages"][0] == {"role": "system", "content": "n-77"}
    assert (answer.status, answer.output_tokens, answer.findings) == (AnswerStatus.OK, 3, ())
    assert answer.content != ""
    assert answer.request_id is not None


async def test_a_client_timeout_leaves_the_server_computing_and_the_retry_rides_its_prefill(llama: LlamaServer) -> None:
    prompt = new_prompt("retry trap", HARBOUR * 7)
    async with engine(llama) as opened:
        lost = await ask(opened, cell(prompt), seconds=0.5)
        await until_running(opened, 0)
        retry = await ask(opened, cell(prompt, None))
    assert (lost.status, lost.reason) == (AnswerStatus.FAILED, "Timeout")
    assert lost.cached_tokens is None and lost.prompt_tokens is None
    assert retry.cached_tokens is not None and retry.prompt_tokens is not None
    assert retry.cached_tokens >= 0.9 * retry.prompt_tokens
    assert retry.prompt_tokens > 500


async def test_another_request_in_flight_shows_as_activity(llama: LlamaServer) -> None:
    async with engine(llama) as opened, engine(llama) as other:
        assert (await opened.activity()).idle is True
        task = asyncio.create_task(ask(other, cell(new_prompt("in flight"), max_tokens=60)))
        seen = []
        while not task.done():
            seen.append((await opened.activity()).running)
            await asyncio.sleep(0.02)
        await task
        assert (await opened.activity()).running == 0
    assert 1 in seen


async def test_the_probe_shows_a_live_counter_the_knob_and_agreeing_totals(llama: LlamaServer) -> None:
    async with engine(llama) as opened, engine(llama, probe_words=EngineOptions().probe_words) as full:
        first = await opened.probe("salt-1", None)
        before = await totals(full)
        second = await full.probe("salt-2", None)
        processed, cached, _ = moved(before, await totals(full))
    assert 900 <= processed + cached <= 1800  # three times a prompt of 300 to 600 tokens
    assert (
        first
        == second
        == Capabilities(counter_alive=True, cold_proof="cache_off", counters_agree=True, decode_times=True)
    )


async def test_a_probe_beside_other_traffic_says_that_the_totals_disagree(llama: LlamaServer) -> None:
    async with engine(llama) as opened, engine(llama) as other:
        probing = asyncio.create_task(opened.probe("salt-3", None))
        while not probing.done():
            await ask(other, cell("Who goes there, asked the guard at the gate.", max_tokens=1))
        shown = await probing
    assert shown.counters_agree is False


async def test_a_too_long_prompt_is_refused_in_the_servers_own_words(llama: LlamaServer) -> None:
    async with engine(llama) as opened:
        answer = await ask(opened, cell(HARBOUR * 20))
    assert (answer.status, answer.http_status, answer.reason) == (AnswerStatus.REFUSED, 400, "HttpError")
    assert answer.detail is not None
    assert answer.detail.startswith("HTTP 400: exceed_context_size_error: request (")
    assert json.loads(answer.raw)["error"]["n_ctx"] == 2048


async def test_an_image_sent_to_a_text_model_is_a_failed_cell(llama: LlamaServer) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    body = {"messages": [{"role": "user", "content": [image]}], "max_tokens": 2}
    async with engine(llama) as opened:
        answer = await ask(opened, CellRequest("/v1/chat/completions", body, None, 1, "n", "cache_off"))
    assert (answer.status, answer.http_status) == (AnswerStatus.FAILED, 500)


async def test_any_model_name_is_accepted_so_discovery_refuses_a_wrong_one(llama: LlamaServer) -> None:
    async with engine(llama, model="another-model") as opened:
        answer = await ask(opened, replace(cell(new_prompt("name")), model="another-model"))
        with pytest.raises(TerminalEngineError, match=r"does not serve model 'another-model'; it serves gemma-3-270m"):
            await opened.discover()
    assert answer.status is AnswerStatus.OK


async def test_discovery_tells_weights_context_slots_and_settings(llama: LlamaServer) -> None:
    async with engine(llama) as opened:
        identity = await opened.discover()
        epoch = await opened.epoch()
    settings = dict(identity.settings)
    assert identity.engine == "llama.cpp"
    assert identity.build
    assert identity.model == "gemma-3-270m-q4_k_m" == identity.models[0]
    assert identity.weights == "gemma-3-270m-q4_k_m.gguf, 268098176 parameters, 246587904 bytes"
    assert (identity.context_tokens, identity.slots) == (2048, 1)
    assert identity.server_epoch == epoch
    assert (settings["speculation"], settings["default.temperature"]) == ("off", "0.8")
    assert settings["model_ftype"] == "Q4_K - Medium"
    assert len(settings["chat_template_sha256"]) == 64


async def test_the_media_marker_is_stable_within_a_life_and_differs_between_lives(
    request: pytest.FixtureRequest,
) -> None:
    server = real_llama(request, GUARDED)
    async with engine(server) as opened:
        first, same = await opened.epoch(), await opened.epoch()
        server.restart()
        second = await opened.epoch()
    assert first is not None and second is not None
    assert first == same != second


GUARDED = ("--cache-ram", "0", "--api-key", "key-1", "--api-prefix", "/gateway/llama", "--no-metrics", "--no-slots")


async def test_with_a_key_only_health_is_open(request: pytest.FixtureRequest) -> None:
    server = real_llama(request, (*WIDE, "--api-key", "key-2"))
    async with httpx.AsyncClient(trust_env=False) as client:
        codes = {path: (await client.get(server.url + path)).status_code for path in (*CLOSED, "/health")}
    assert codes == dict.fromkeys(CLOSED, 401) | {"/health": 200}
    async with LlamaCpp(server.url, EngineOptions(api_key="wrong")) as opened:
        for question in (opened.discover, opened.epoch, opened.counters, opened.activity):
            with pytest.raises(TerminalEngineError, match=r"HTTP 401 \(an API key is needed"):
                await question()
        answer = await ask(opened, cell("Hello"))
    assert (answer.status, answer.http_status) == (AnswerStatus.REFUSED, 401)
    assert "key-2" not in repr(answer)


CLOSED = ("/props", "/v1/models", "/slots", "/metrics")
WIDE = ("-np", "4", "--cache-ram", "0")


async def test_without_metrics_and_slots_totals_and_activity_are_unknown(request: pytest.FixtureRequest) -> None:
    server = real_llama(request, GUARDED)
    async with engine(server) as opened:
        identity = await opened.discover()
        counters, activity = await opened.counters(), await opened.activity()
        shown = await opened.probe("salt-4", None)
    assert counters is None
    assert (activity.running, activity.waiting, activity.idle) == (None, None, None)
    assert "speculation" not in dict(identity.settings)
    assert identity.context_tokens == 2048
    assert (shown.counter_alive, shown.cold_proof, shown.counters_agree) == (True, "cache_off", None)
    assert shown.findings == ("no counters at /metrics: start the server with --metrics for a second witness",)


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_a_path_prefix_works_with_and_without_v1(request: pytest.FixtureRequest, ending: str) -> None:
    server = real_llama(request, GUARDED)
    async with await detect(server.url + ending, EngineOptions(api_key="key-1")) as opened:
        answer = await opened.generate(opened.prepare(cell("One two three", max_tokens=2)), 60)
    assert opened.name == "llama.cpp"
    assert opened.url == server.url
    assert server.url.endswith("/gateway/llama")
    assert answer.status is AnswerStatus.OK


async def test_four_choices_are_one_prefill_posing_as_four(request: pytest.FixtureRequest) -> None:
    server = real_llama(request, (*WIDE, "--api-key", "key-2"))
    async with engine(server) as opened:
        before = await totals(opened)
        prepared = opened.prepare(cell(new_prompt("four")))
        assert prepared.body["n"] == 1
        for stream in (False, True):
            posing = replace(prepared, body={**prepared.body, "n": 4, "stream": stream})
            answer = await opened.generate(posing, 60)
            assert answer.findings == ("the reply has 4 choices: one prefill posing as 4 answers",)
            assert told(answer) == (None, None, None)
            assert answer.content != ""
        processed, cached, output = moved(before, await totals(opened))
        one = await ask(opened, cell(new_prompt("four")))
    assert (processed, cached, output) == (2 * (one.prompt_tokens or 0), 0, 32)


async def test_an_erased_slot_is_not_cold_when_the_host_cache_is_on(request: pytest.FixtureRequest) -> None:
    server = real_llama(request, hosted(request))
    prompt = new_prompt("erased")
    async with engine(server) as opened, httpx.AsyncClient(trust_env=False) as client:
        await ask(opened, cell(prompt, None))
        await ask(opened, cell(new_prompt("in between", BAKER), None))
        erased = await client.post(server.url + "/slots/0?action=erase")
        answer = await ask(opened, cell(prompt, None))
    assert erased.json()["n_erased"] > 0
    assert answer.cached_tokens is not None and answer.prompt_tokens is not None
    assert answer.cached_tokens >= 0.9 * answer.prompt_tokens


def hosted(request: pytest.FixtureRequest) -> tuple[str, ...]:
    folder: Path = request.getfixturevalue("tmp_path_factory").getbasetemp()
    return ("--slot-save-path", str(folder), "--spec-type", "ngram-simple")


async def test_slots_tell_speculation_where_props_always_say_none(request: pytest.FixtureRequest) -> None:
    server = real_llama(request, hosted(request))
    async with engine(server) as opened, httpx.AsyncClient(trust_env=False) as client:
        identity = await opened.discover()
        props = (await client.get(server.url + "/props")).json()
    assert props["default_generation_settings"]["params"]["speculative.types"] == "none"
    assert dict(identity.settings)["speculation"] == "on"
    assert "default.speculative.types" not in dict(identity.settings)


async def test_draft_counts_are_absent_when_nothing_was_drafted(
    request: pytest.FixtureRequest, llama: LlamaServer
) -> None:
    counting = "one two three four five six seven eight nine ten " * 8
    async with engine(real_llama(request, hosted(request))) as opened:
        unasked = await ask(opened, cell("The capital of France is", max_tokens=3))
        await opened.discover()
        nothing = await ask(opened, cell("The capital of France is", max_tokens=3))
        before = await totals(opened)
        drafted = await ask(opened, cell(counting, max_tokens=40))
        after = await totals(opened)
    async with engine(llama) as plain:
        await plain.discover()
        off = await ask(plain, cell(counting, max_tokens=4))
    assert "draft_n" not in unasked.raw + nothing.raw + off.raw
    assert unasked.draft_tokens is None  # neither the reply nor discovery told whether there is a draft
    assert (nothing.draft_tokens, nothing.draft_accepted_tokens) == (0, 0)
    assert (off.draft_tokens, off.draft_accepted_tokens) == (None, None)
    assert drafted.draft_tokens is not None and drafted.draft_accepted_tokens is not None
    assert drafted.draft_tokens >= drafted.draft_accepted_tokens > 0
    assert after.draft_tokens is not None and before.draft_tokens is not None
    assert after.draft_tokens - before.draft_tokens == drafted.draft_tokens


async def test_a_cache_switched_off_leaves_independence_unshown(request: pytest.FixtureRequest) -> None:
    server = real_llama(request, ("--cache-ram", "0", "--no-cache-prompt"))
    async with engine(server) as opened:
        shown = await opened.probe("salt-5", None)
    assert (shown.counter_alive, shown.cold_proof, shown.counters_agree) == (False, None, True)
    assert len(shown.findings) == 1
    assert "an exact repeat was reported with 0 cached tokens" in shown.findings[0]


async def test_a_server_that_dies_under_a_request_is_a_failed_cell_and_then_a_refused_one(
    request: pytest.FixtureRequest,
) -> None:
    server = real_llama(request, ("--cache-ram", "0", "--no-cache-prompt"))
    async with engine(server) as opened, engine(server) as watcher:
        task = asyncio.create_task(ask(opened, cell(new_prompt("dies"), max_tokens=200)))
        await until_running(watcher, 1)
        server.kill()
        died = await task
        after = await ask(opened, cell("Hello"))
    assert (died.status, died.reason) == (AnswerStatus.FAILED, "ConnectionLost")
    assert (after.status, after.reason) == (AnswerStatus.REFUSED, "ConnectionRefused")


async def test_https_to_a_plain_server_is_a_tls_failure(llama: LlamaServer) -> None:
    options = EngineOptions(connect_timeout_seconds=1.0)
    async with LlamaCpp(llama.url.replace("http:", "https:"), options) as opened:
        answer = await ask(opened, cell("Hello"))
        with pytest.raises(TerminalEngineError, match=r"/v1/models: Tls: .* does this server speak plain http"):
            await opened.discover()
    assert (answer.status, answer.reason, answer.http_status) == (AnswerStatus.REFUSED, "Tls", None)


async def test_one_look_tells_counters_work_and_the_life_of_the_server(llama_server_apart: LlamaServer) -> None:
    async with engine(llama_server_apart) as opened:
        before = await opened.look()
        answer = await ask(opened, cell(HARBOUR))
        after = await opened.look()
        epoch = await opened.epoch()
        llama_server_apart.restart()
        reborn = await opened.look()
        assert reborn.epoch == await opened.epoch()
    assert before.epoch == after.epoch == epoch
    assert reborn.epoch != epoch
    assert (after.activity.running, after.activity.waiting, after.activity.idle) == (0, 0, True)
    assert before.counters is not None and after.counters is not None and reborn.counters is not None
    assert moved(before.counters, after.counters)[0] == answer.processed_tokens
    assert reborn.counters.prompt_tokens_processed == 0


@pytest.fixture
def llama_server_apart(request: pytest.FixtureRequest) -> Iterator[LlamaServer]:
    """A server of this test alone, since it is restarted."""
    with LlamaServer(("-t", "1", "-c", "1024", "-np", "1")) as server:
        record(request, server)
        yield server
