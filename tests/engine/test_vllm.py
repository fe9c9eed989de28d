"""vLLM, by replies built from its documented schema: counters told, absent, null, left out at zero, inflated, renamed;
the salt honoured and ignored; an external cache; streamed and whole."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from prefillgate.engines.base import Activity, Answer, CellRequest, Identity, TerminalEngineError
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.llama_cpp import LlamaCpp
from prefillgate.engines.openai_compatible import OpenAICompatible
from prefillgate.engines.registry import create, detect
from prefillgate.engines.vllm import FLAGS, Vllm, salt_of
from tests.engine.hostile import DONE, Exchange, HostileServer, chunk, event

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SHORT = EngineOptions(probe_words=120, attempts=1)
USER = {"role": "user", "content": "Hi"}
NAMES = {"prompt": "prompt_tokens_total", "cached": "prompt_tokens_cached_total"}
OLDER = {"prompt": "prefix_cache_queries_total", "cached": "prefix_cache_hits_total"}
OLDEST = {"prompt": "gpu_prefix_cache_queries_total", "cached": "gpu_prefix_cache_hits_total"}
PER_REQUEST = {
    "time_to_first_token_ms": 85.2,
    "generation_time_ms": 1240.5,
    "queue_time_ms": 12.3,
    "mean_itl_ms": 9.1,
    "tokens_per_second": 103.2,
}


@dataclass
class FakeVllm:
    """Answers as vLLM does, with its prefix cache; what a test plants stands in the fields."""

    details: str = "told"  # told, absent, null, empty, no-zero, zero, inflated
    honours_salt: bool = True
    names: dict[str, str] = field(default_factory=lambda: dict(NAMES))
    metrics: bool = True
    series: bool = True
    start: str | None = "process_start_time_seconds 1.79e+09"
    external: int = 0  # tokens an external cache serves a prompt it has seen, whatever the salt
    per_request: dict[str, Any] | None = None
    drafts: bool = False
    version: dict[str, Any] | None = field(default_factory=lambda: {"version": "0.33.0"})
    block_size: str = "16"
    chat_only: bool = False
    running: tuple[int, int] = (0, 0)
    seen: set[tuple[Any, str]] = field(default_factory=set)
    prompt: int = 0
    cached: int = 0
    output: int = 0
    hits: int = 0

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.method == "POST":
            await self.generate(exchange)
        elif exchange.path == "/v1/models":
            card = {"id": "meta/llama", "object": "model", "created": 1, "owned_by": "vllm"}
            await exchange.json({"object": "list", "data": [{**card, "root": "/w/llama", "max_model_len": 8192}]})
        elif exchange.path == "/version" and self.version is not None:
            await exchange.json(self.version)
        elif exchange.path == "/metrics" and self.metrics:
            await exchange.head("200 OK", "Content-Type: text/plain; version=0.0.4")
            await exchange.say(self.exposition().encode())
        else:
            await exchange.json({"detail": "Not Found"}, "404 Not Found")

    def exposition(self) -> str:
        lines = [self.start or "", "python_gc_objects_collected_total 5.0"]
        if self.series:
            label = '{engine="0",model_name="meta/llama"}'
            running, waiting = self.running
            lines += [
                f"vllm:{self.names['prompt']}{label} {self.prompt}.0",
                f"vllm:{self.names['cached']}{label} {self.cached}.0",
                f"vllm:generation_tokens_total{label} {self.output}.0",
                f"vllm:external_prefix_cache_hits_total{label} {self.hits}.0",
                f'vllm:num_requests_running{{engine="0"}} {running}.0',
                'vllm:num_requests_running{engine="1"} 0.0',
                f'vllm:num_requests_waiting{{engine="0"}} {waiting}.0',
                f'vllm:cache_config_info{{block_size="{self.block_size}",cache_dtype="fp8",engine="0",'
                'enable_prefix_caching="True",num_gpu_blocks="4711"} 1.0',
            ]
        if self.drafts:
            lines += ["vllm:spec_decode_num_draft_tokens_total 40.0", "vllm:spec_decode_num_accepted_tokens_total 31.0"]
        return "\n".join(lines) + "\n"

    async def generate(self, exchange: Exchange) -> None:
        body = json.loads(exchange.body)
        if self.chat_only and exchange.path != CHAT:
            await exchange.json({"detail": "Not Found"}, "404 Not Found")
            return
        text = json.dumps(body.get("messages") or body["prompt"])
        key = (body.get("cache_salt") if self.honours_salt else None, text)
        length = len(text.split())
        cached = (length - 1) // 16 * 16 if key in self.seen else 0
        if self.external and any(text == known for _, known in self.seen):
            self.hits += self.external
        self.seen.add(key)
        self.prompt, self.cached, self.output = self.prompt + length, self.cached + cached, self.output + 2
        usage: dict[str, Any] = {"prompt_tokens": length, "total_tokens": length + 2, "completion_tokens": 2}
        usage |= self.told(cached, length)
        more = {} if self.per_request is None else {"metrics": self.per_request}
        choice = {
            "index": 0,
            "text": "ab",
            "message": {"role": "assistant", "content": "ab"},
            "finish_reason": "length",
        }
        if body["stream"]:
            await exchange.head("200 OK", "Content-Type: text/event-stream")
            await exchange.say(chunk("a"), chunk("b", "length"), event({"choices": [], "usage": usage, **more}), DONE)
        else:
            await exchange.json({"id": "c-1", "choices": [choice], "usage": usage, **more})

    def told(self, cached: int, length: int) -> dict[str, Any]:
        if self.details == "absent":
            return {}
        value = {"zero": 0, "inflated": length - 1}.get(self.details, cached)
        gone = self.details == "null" or (self.details == "no-zero" and not value)
        empty = {"cached_tokens": None} if self.details == "empty" else {"cached_tokens": value}
        return {"prompt_tokens_details": None if gone else empty}


def cell(path: str = COMPLETIONS, stream: bool = True, proof: str | None = "salt", **body: Any) -> CellRequest:
    sent = body or ({"messages": [USER]} if path == CHAT else {"prompt": "Hi there you"})
    return CellRequest(path, sent, "meta/llama", 7, "n-1", proof, stream=stream)


async def ask(engine: Vllm, request: CellRequest) -> Answer:
    return await engine.generate(engine.prepare(request), 5)


async def test_it_is_recognised_by_the_owner_of_its_models_and_may_be_named() -> None:
    async with HostileServer(FakeVllm()) as server:
        found = await detect(server.url, SHORT)
    assert isinstance(found, Vllm) and isinstance(create("vllm", "http://host"), Vllm)
    assert (found.name, found.shares_blocks) == ("vllm", True)


@pytest.mark.parametrize("owner", ["sglang2", "organization-owner", None])
async def test_another_owner_is_another_family(owner: str | None) -> None:
    async def reply(exchange: Exchange) -> None:
        listing = {"data": [{"id": "m", "owned_by": owner}]}
        good = exchange.path == "/v1/models"
        await exchange.json(listing if good else {}, "200 OK" if good else "404 Not Found")

    async with HostileServer(reply) as server:
        found = await detect(server.url, SHORT)
    assert isinstance(found, OpenAICompatible) and not isinstance(found, Vllm | LlamaCpp)


async def test_discovery_tells_build_weights_context_cache_and_life() -> None:
    async with HostileServer(FakeVllm()) as server, Vllm(server.url, SHORT) as engine:
        assert await engine.discover() == Identity(
            engine="vllm",
            build="0.33.0",
            model="meta/llama",
            models=("meta/llama",),
            server_epoch="1790000000.0",
            weights="/w/llama",
            context_tokens=8192,
            settings=(
                ("block_size", "16"),
                ("cache_dtype", "fp8"),
                ("enable_prefix_caching", "True"),
                ("speculation", "off"),
            ),
        )


async def test_what_an_older_or_closed_server_does_not_tell_is_unknown() -> None:
    fake = FakeVllm(version=None, metrics=False)
    async with HostileServer(fake) as server, Vllm(server.url, SHORT) as engine:
        found, look = await engine.discover(), await engine.look()
    assert (found.build, found.server_epoch, found.settings) == (None, None, ())
    assert (look.counters, look.activity.idle, look.epoch) == (None, None, None)


async def test_a_server_that_hides_its_version_and_metrics_from_our_key_is_measured_all_the_same() -> None:
    fake = FakeVllm()

    async def reply(exchange: Exchange) -> None:
        closed = exchange.path == "/version"
        await (exchange.json({"error": "Forbidden"}, "403 Forbidden") if closed else fake(exchange))

    async with HostileServer(reply) as server, Vllm(server.url, SHORT) as engine:
        assert (await engine.discover()).build is None


async def test_speculation_is_on_where_its_counters_are_exported() -> None:
    async with HostileServer(FakeVllm(drafts=True)) as server, Vllm(server.url, SHORT) as engine:
        assert dict((await engine.discover()).settings)["speculation"] == "on"
        told = await engine.counters()
    assert told is not None and (told.draft_tokens, told.draft_accepted_tokens) == (40, 31)


async def test_without_the_servers_statistics_nothing_is_known_of_speculation() -> None:
    async with HostileServer(FakeVllm(series=False)) as server, Vllm(server.url, SHORT) as engine:
        assert (await engine.discover()).settings == ()


@pytest.mark.parametrize(("running", "idle"), [((0, 0), True), ((1, 0), False), ((0, 2), False)])
async def test_idleness_is_told_by_the_gauges_of_all_engines(running: tuple[int, int], idle: bool) -> None:
    async with HostileServer(FakeVllm(running=running)) as server, Vllm(server.url, SHORT) as engine:
        look = await engine.look()
        assert (await engine.activity()) == look.activity == Activity(*running)
    assert look.activity.idle is idle
    assert look.epoch == "1790000000.0"


def test_the_salt_is_32_hex_digits_of_the_nonce_and_nothing_else_of_the_prompt_changes() -> None:
    engine = Vllm("http://host")
    request = engine.prepare(cell(CHAT, messages=[USER], n=3))
    assert request.body["messages"] == [USER]
    assert request.body["cache_salt"] == salt_of("n-1")
    assert len(request.body["cache_salt"]) == 32 and set(request.body["cache_salt"]) <= set("0123456789abcdef")
    assert salt_of("n-1") != salt_of("n-2")
    assert (request.body["n"], request.body["seed"], request.body["include_metrics"]) == (1, 7, True)
    assert "cache_salt" not in engine.prepare(cell(proof=None)).body
    assert engine.prepare(cell(proof="nonce")).body["prompt"] == "n-1\nHi there you"
    with pytest.raises(TerminalEngineError, match="vllm has no cold proof 'cache_off'; it has: salt, nonce"):
        engine.prepare(cell(proof="cache_off"))


@pytest.mark.parametrize("names", [NAMES, OLDER, OLDEST])
@pytest.mark.parametrize("details", ["told", "no-zero"])
async def test_the_probe_sees_the_counter_the_salt_and_agreeing_totals_under_every_name(
    details: str, names: dict[str, str]
) -> None:
    fake = FakeVllm(details=details, names=names)
    async with HostileServer(fake) as server, Vllm(server.url, SHORT) as engine:
        shown = await engine.probe("s", "meta/llama")
        told = await engine.counters()
    assert (shown.counter_alive, shown.cold_proof, shown.counters_agree, shown.findings) == (True, "salt", True, ())
    assert told is not None
    assert (told.prompt_tokens_processed, told.prompt_tokens_cached) == (fake.prompt - fake.cached, fake.cached)
    assert (told.output_tokens, told.draft_tokens) == (6, None)
    sent = [json.loads(seen.body) for seen in server.seen if seen.method == "POST"]
    assert sent[0] == sent[1] and sent[0]["cache_salt"] != sent[2]["cache_salt"]
    assert sent[0]["prompt"] == sent[2]["prompt"] and {body["model"] for body in sent} == {"meta/llama"}


@pytest.mark.parametrize(
    ("planted", "alive", "finding"),
    [
        ({"details": "absent"}, False, "independence unknown; start vLLM with --enable-prompt-tokens-details"),
        ({"details": "null"}, False, "independence unknown; start vLLM with --enable-prompt-tokens-details"),
        ({"details": "empty"}, False, "independence unknown; start vLLM with --enable-prompt-tokens-details"),
        ({"details": "zero"}, False, "with 0 cached tokens: the counter is dead or prefix caching is off"),
        ({"details": "inflated"}, False, "never sent before was reported with 120 of 121 tokens cached: the counter"),
        ({"honours_salt": False}, True, "`cache_salt` is not honoured (an external KV connector or a gateway may"),
        ({"details": "no-zero", "metrics": False}, False, "a cold request told no cached tokens and its repeat 112:"),
        ({"details": "no-zero", "series": False}, False, "the server's own totals, which do not confirm it"),
    ],
)
async def test_what_cannot_be_proven_is_told_with_the_flag_that_would_give_it(
    planted: dict[str, Any], alive: bool, finding: str
) -> None:
    async with HostileServer(FakeVllm(**planted)) as server, Vllm(server.url, SHORT) as engine:
        shown = await engine.probe("s", None)
    assert (shown.counter_alive, shown.cold_proof) == (alive, None)
    assert any(finding in told for told in shown.findings), shown.findings


async def test_a_zero_that_is_left_out_is_read_as_one_only_once_the_totals_confirmed_it() -> None:
    fake = FakeVllm(details="no-zero")
    async with HostileServer(fake) as server, Vllm(server.url, SHORT) as engine:
        before = await ask(engine, cell(prompt="one two three"))
        await engine.probe("s", None)
        after = await ask(engine, cell(prompt="four five six"))
        fake.names = {"prompt": "x", "cached": "y"}
        await engine.probe("t", None)
        again = await ask(engine, cell(prompt="seven eight"))
    assert [answer.cached_tokens for answer in (before, after, again)] == [None, 0, None]


async def test_an_external_cache_that_serves_a_salted_prompt_means_that_the_salt_is_ignored() -> None:
    async with HostileServer(FakeVllm(external=64)) as server, Vllm(server.url, SHORT) as engine:
        shown = await engine.probe("s", None)
    assert shown.cold_proof is None
    assert "an external KV connector served 64 prompt tokens of a probe request" in shown.findings
    assert any("`cache_salt` is not honoured" in told and "0 and 64 of 121" in told for told in shown.findings)


async def test_without_metrics_there_is_no_second_witness_and_the_flag_is_named() -> None:
    for planted in ({"metrics": False}, {"series": False}):
        async with HostileServer(FakeVllm(**planted)) as server, Vllm(server.url, SHORT) as engine:
            shown = await engine.probe("s", None)
        assert (shown.cold_proof, shown.counters_agree) == ("salt", None)
        assert shown.findings == (
            "no counters at /metrics: start vLLM without --disable-log-stats for a second witness",
        )


async def test_the_probe_is_longer_than_two_blocks_of_the_cache() -> None:
    for size, words in (("16", 121), ("400", 865), ("None", 121)):
        async with HostileServer(FakeVllm(block_size=size)) as server, Vllm(server.url, SHORT) as engine:
            await engine.discover()
            await engine.probe("s", None)
        posts = [json.loads(seen.body) for seen in server.seen if seen.method == "POST"]
        assert len(posts[0]["prompt"].split()) == words


async def test_a_server_with_the_chat_route_alone_is_probed_there() -> None:
    async with HostileServer(FakeVllm(chat_only=True)) as server, Vllm(server.url, SHORT) as engine:
        shown = await engine.probe("s", None)
    assert shown.cold_proof == "salt"
    assert [seen.path for seen in server.seen if seen.method == "POST"] == [COMPLETIONS, CHAT, CHAT, CHAT]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_reply_with_metrics_of_its_own_tells_times_both_witnesses_and_drafts(path: str, stream: bool) -> None:
    length = {CHAT: 4, COMPLETIONS: 3}[path]
    own = {"num_computed_tokens": length, "num_cached_tokens": 0, "num_external_cached_tokens": 0}
    drafts = {"num_draft_tokens": 12, "num_accepted_draft_tokens": 9, "draft_acceptance_rate": 0.75}
    told = {**PER_REQUEST, "prefix_cache": {**own, "prefill_time_ms": 80.0}, "speculative_decoding": drafts}
    async with HostileServer(FakeVllm(per_request=told)) as server, Vllm(server.url, SHORT) as engine:
        answer = await ask(engine, cell(path, stream))
    assert (answer.content, answer.status, answer.findings) == ("ab", "ok", ())
    assert (answer.prompt_tokens, answer.cached_tokens, answer.processed_tokens, answer.output_tokens) == (
        length,
        0,
        length,
        2,
    )
    assert (answer.prefill_ms, answer.decode_ms) == (80.0, 1240.5)
    assert (answer.draft_tokens, answer.draft_accepted_tokens) == (12, 9)


async def test_without_the_flags_times_drafts_and_processed_tokens_are_unknown() -> None:
    for metrics in (None, {}, dict.fromkeys(PER_REQUEST)):
        async with HostileServer(FakeVllm(per_request=metrics)) as server, Vllm(server.url, SHORT) as engine:
            answer = await ask(engine, cell())
        assert (answer.cached_tokens, answer.processed_tokens) == (0, None)
        assert (answer.prefill_ms, answer.decode_ms, answer.draft_tokens) == (None, None, None)


async def test_an_older_reply_without_the_cache_s_figures_tells_its_prefill_by_the_first_token() -> None:
    async with HostileServer(FakeVllm(per_request=PER_REQUEST)) as server, Vllm(server.url, SHORT) as engine:
        answer = await ask(engine, cell())
    assert (answer.prefill_ms, answer.decode_ms, answer.processed_tokens) == (85.2, 1240.5, None)


@pytest.mark.parametrize(
    ("details", "cache", "cached", "finding"),
    [
        ("absent", {"num_computed_tokens": 3, "num_cached_tokens": 0}, 0, None),
        ("zero", {"num_computed_tokens": 1, "num_cached_tokens": 2}, 0, "usage tells 0 cached tokens, prefix_cache 2"),
        ("zero", {"num_computed_tokens": 1}, 0, "0 cached + 1 processed is not 3 prompt tokens"),
        ("zero", {"num_external_cached_tokens": 2}, 0, "an external KV connector served 2 of the prompt's tokens"),
        ("zero", {"num_computed_tokens": "3"}, 0, 'num_computed_tokens is "3", not a count of tokens'),
    ],
)
async def test_the_reply_s_own_figures_are_held_against_usage(
    details: str, cache: dict[str, Any], cached: int, finding: str | None
) -> None:
    fake = FakeVllm(details=details, per_request={**PER_REQUEST, "prefix_cache": cache})
    async with HostileServer(fake) as server, Vllm(server.url, SHORT) as engine:
        answer = await ask(engine, cell())
    assert answer.cached_tokens == cached
    assert (answer.findings == ()) if finding is None else any(finding in told for told in answer.findings)


async def test_reasoning_and_content_are_kept_and_counted_apart() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 30, "completion_tokens_details": {"reasoning_tokens": 21}}

    async def reply(exchange: Exchange) -> None:
        message = {"role": "assistant", "content": "Yes.", "reasoning": "Let me think."}
        await exchange.json({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})

    async with HostileServer(reply) as server, Vllm(server.url, SHORT) as engine:
        answer = await ask(engine, cell(CHAT, stream=False))
    assert (answer.content, answer.reasoning) == ("Yes.", "Let me think.")
    assert (answer.output_tokens, answer.reasoning_tokens) == (30, 21)


def test_every_flag_is_an_option_of_the_server_or_a_build_that_tells() -> None:
    assert all("--" in flag or "a build" in flag for flag in FLAGS.values())
