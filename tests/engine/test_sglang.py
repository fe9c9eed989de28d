"""SGLang, by replies built from its documented schema: a zero told, left out, null, inflated; the salt honoured and
ignored; routes and counters under older and newer names; requests taken back; streamed and whole."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from prefillgate.engines.base import Activity, Answer, CellRequest, Identity, TerminalEngineError
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.registry import create, detect
from prefillgate.engines.sglang import Sglang
from tests.engine.hostile import DONE, Exchange, HostileServer, chunk, event

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SHORT = EngineOptions(probe_words=120, attempts=1)
USER = {"role": "user", "content": "Hi"}
SERVER = {
    "version": "0.5.23",
    "model_path": "/w/qwen",
    "tp_size": 2,
    "kv_cache_dtype": "fp8_e5m2",
    "speculative_algorithm": None,
    "quantization": None,
    "page_size": 1,
    "random_seed": 812,
    "api_key": "secret-of-the-server",
    "internal_states": [{"avg_spec_accept_length": 2.5}],
}


@dataclass
class FakeSglang:
    """Answers as SGLang does, with its radix cache; what a test plants stands in the fields."""

    report: bool = True  # --enable-cache-report: usage tells cached tokens, unless they are 0
    details: bool = True  # whether the build answers return_cached_tokens_details
    zero_told: bool = False  # a build that tells a zero in usage too
    lie: int | None = None  # cached tokens told whatever was reused
    honours_salt: bool = True
    metrics: bool = True
    older: bool = False  # the routes of older builds
    start: str = "sglang:engine_startup_time 37.25"
    loads: Any = field(default_factory=lambda: [{"dp_rank": 0, "num_running_reqs": 0, "num_waiting_reqs": 0}])
    gauge: int = 0
    meta: dict[str, Any] | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=lambda: dict(SERVER))
    warmed: bool = True  # the server asks itself once before it is ready
    seen: set[tuple[Any, str]] = field(default_factory=set)
    prompt: int = 6
    cached: int = 0
    output: int = 8

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.method == "POST":
            await self.generate(exchange)
            return
        answers: dict[str, Any] = {
            "/v1/models": {"data": [{"id": "qwen", "owned_by": "sglang", "root": "qwen", "max_model_len": 4096}]},
            "/get_server_info" if self.older else "/server_info": self.server,
            "/get_model_info" if self.older else "/model_info": {"model_path": "/w/qwen", "is_generation": True},
        }
        if self.loads is not None:
            answers["/get_load" if self.older else "/v1/loads"] = (
                self.loads if self.older else {"version": "0.5.23", "loads": self.loads}
            )
        if exchange.path in answers:
            await exchange.json(answers[exchange.path])
        elif exchange.path == "/metrics" and self.metrics:
            await exchange.head("200 OK", "Content-Type: text/plain")
            await exchange.say(self.exposition().encode())
        else:
            await exchange.json({"detail": "Not Found"}, "404 Not Found")

    def exposition(self) -> str:
        running = f'sglang:num_running_reqs{{tp_rank="0"}} {self.gauge}.0'
        lines = [self.start, running, 'sglang:num_queue_reqs{tp_rank="0"} 0.0']
        if self.warmed:
            lines += [
                f'sglang:prompt_tokens_total{{is_streaming="false"}} {self.prompt}.0',
                f"sglang:generation_tokens_total {self.output}.0",
            ]
        if self.cached:  # a counter is exported once it was counted
            lines.append(f'sglang:cached_tokens_total{{cache_source="device"}} {self.cached - 1}.0')
            lines.append('sglang:cached_tokens_total{cache_source="host"} 1.0')
        return "\n".join(lines) + "\n"

    async def generate(self, exchange: Exchange) -> None:
        body = json.loads(exchange.body)
        text = json.dumps(body.get("messages") or body["prompt"])
        key = (body.get("cache_salt") if self.honours_salt else None, text)
        length = len(text.split())
        cached = length - 1 if key in self.seen else 0
        self.seen.add(key)
        self.prompt, self.cached, self.output = self.prompt + length, self.cached + cached, self.output + 2
        told = cached if self.lie is None else self.lie
        usage: dict[str, Any] = {"prompt_tokens": length, "completion_tokens": 2, "reasoning_tokens": 0}
        shown = self.report and (told or self.zero_told)
        usage |= {"prompt_tokens_details": {"cached_tokens": told} if shown else None, **self.usage}
        more: dict[str, Any] = {}
        if self.details and body.get("return_cached_tokens_details"):
            more["sglext"] = {"cached_tokens_details": {"device": told, "host": 0}}
        meta = {} if self.meta is None else {"meta_info": self.meta}
        message = {"role": "assistant", "content": "ab"}
        choice = {"index": 0, "text": "ab", "message": message, "finish_reason": "length", **meta}
        if body["stream"]:
            await exchange.head("200 OK", "Content-Type: text/event-stream")
            end = {"choices": [], "usage": usage, **more, **meta}
            await exchange.say(chunk("a"), chunk("b", "length"), event(end), DONE)
        else:
            await exchange.json({"id": "c-1", "choices": [choice], "usage": usage, **more})


def cell(path: str = COMPLETIONS, stream: bool = True, proof: str | None = "salt", **body: Any) -> CellRequest:
    sent = body or ({"messages": [USER]} if path == CHAT else {"prompt": "Hi there you"})
    return CellRequest(path, sent, None, 7, "n-1", proof, stream=stream)


async def ask(engine: Sglang, request: CellRequest) -> Answer:
    return await engine.generate(engine.prepare(request), 5)


async def test_it_is_recognised_by_the_owner_of_its_models_and_may_be_named() -> None:
    async with HostileServer(FakeSglang()) as server:
        found = await detect(server.url, SHORT)
    assert isinstance(found, Sglang) and isinstance(create("sglang", "http://host"), Sglang)
    assert (found.name, found.shares_blocks) == ("sglang", True)


@pytest.mark.parametrize("older", [False, True])
async def test_discovery_tells_build_weights_and_profile_under_older_and_newer_routes(older: bool) -> None:
    async with HostileServer(FakeSglang(older=older)) as server, Sglang(server.url, SHORT) as engine:
        assert await engine.discover() == Identity(
            engine="sglang",
            build="0.5.23",
            model="qwen",
            models=("qwen",),
            server_epoch="37.25",
            weights="/w/qwen",
            context_tokens=4096,
            settings=(("kv_cache_dtype", "fp8_e5m2"), ("page_size", "1"), ("speculation", "off"), ("tp_size", "2")),
        )


async def test_neither_secrets_nor_what_changes_by_itself_is_of_the_profile() -> None:
    async with HostileServer(FakeSglang()) as server, Sglang(server.url, SHORT) as engine:
        told = repr(await engine.discover())
    for kept_out in ("secret-of-the-server", "812", "2.5"):
        assert kept_out not in told


async def test_a_server_that_tells_nothing_beyond_its_models_leaves_the_rest_unknown() -> None:
    fake = FakeSglang(metrics=False, loads=None)

    async def reply(exchange: Exchange) -> None:
        if exchange.path in ("/server_info", "/model_info"):
            await exchange.json({"error": "admin key needed"}, "401 Unauthorized")
        else:
            await fake(exchange)

    async with HostileServer(reply) as server, Sglang(server.url, SHORT) as engine:
        found, look = await engine.discover(), await engine.look()
    assert (found.build, found.weights, found.settings, found.server_epoch) == (None, None, (), None)
    assert (look.counters, look.activity.idle, look.epoch) == (None, None, None)


async def test_a_draft_is_told_by_the_servers_arguments() -> None:
    fake = FakeSglang(server={**SERVER, "speculative_algorithm": "EAGLE3", "speculative_num_draft_tokens": 4})
    async with HostileServer(fake) as server, Sglang(server.url, SHORT) as engine:
        settings = dict((await engine.discover()).settings)
    assert (settings["speculation"], settings["speculative_algorithm"]) == ("on", "EAGLE3")


@pytest.mark.parametrize(
    ("start", "epoch"),
    [
        ("process_start_time_seconds 1.79e+09", "1790000000.0"),
        ("sglang:engine_startup_time 0.0", None),  # builds that never set it tell the same in every life
        ("sglang:engine_startup_time 0.0\nsglang:engine_load_weights_time 12.5", "12.5"),
        ("", None),
    ],
)
async def test_a_life_is_marked_by_a_time_that_was_really_set(start: str, epoch: str | None) -> None:
    async with HostileServer(FakeSglang(start=start)) as server, Sglang(server.url, SHORT) as engine:
        assert await engine.epoch() == (await engine.look()).epoch == epoch


@pytest.mark.parametrize(
    ("older", "loads", "told"),
    [
        (False, [{"num_running_reqs": 0, "num_waiting_reqs": 0}], Activity(0, 0)),
        (
            False,
            [{"num_running_reqs": 1, "num_waiting_reqs": 0}, {"num_running_reqs": 2, "num_waiting_reqs": 3}],
            (3, 3),
        ),
        (True, [{"dp_rank": None, "num_reqs": 5, "num_waiting_reqs": 2, "num_tokens": 80}], Activity(3, 2)),
    ],
)
async def test_idleness_is_asked_where_it_is_up_to_date(older: bool, loads: Any, told: Any) -> None:
    expected = told if isinstance(told, Activity) else Activity(*told)
    fake = FakeSglang(older=older, loads=loads, gauge=4)
    async with HostileServer(fake) as server, Sglang(server.url, SHORT) as engine:
        assert await engine.activity() == (await engine.look()).activity == expected


@pytest.mark.parametrize("loads", [None, [], [{"num_running_reqs": None, "num_waiting_reqs": 0}], "busy"])
async def test_a_gauge_that_stands_still_is_believed_only_when_it_says_that_nothing_runs(loads: Any) -> None:
    fake = FakeSglang(loads=loads)
    async with HostileServer(fake) as server, Sglang(server.url, SHORT) as engine:
        engine.rest_seconds = 0.1
        assert (await engine.look()).activity == Activity(0, 0)
        fake.gauge = 1  # an idle server brings its gauges up to date every half minute only
        shown = await engine.probe("s", None)
        assert await engine.activity() == (await engine.look()).activity == Activity()
    assert any("idleness is not told" in told for told in shown.findings)


def test_the_salt_is_the_nonce_and_nothing_else_of_the_prompt_changes() -> None:
    engine = Sglang("http://host")
    body = engine.prepare(cell(CHAT, messages=[USER])).body
    assert (body["messages"], body["cache_salt"]) == ([USER], "n-1")
    assert (body["return_cached_tokens_details"], body["return_meta_info"], body["n"]) == (True, True, 1)
    assert "cache_salt" not in engine.prepare(cell(proof=None)).body
    assert engine.prepare(cell(proof="nonce")).body["prompt"] == "n-1\nHi there you"
    with pytest.raises(TerminalEngineError, match="sglang has no cold proof 'cache_off'; it has: salt, nonce"):
        engine.prepare(cell(proof="cache_off"))


@pytest.mark.parametrize(
    "planted",
    [
        {},
        {"report": False},
        {"details": False},  # a zero is left out, and the totals confirm it
        {"details": False, "zero_told": True},
        {"older": True, "details": False},
    ],
)
async def test_the_probe_sees_the_counter_the_salt_and_agreeing_totals(planted: dict[str, Any]) -> None:
    fake = FakeSglang(**planted)
    async with HostileServer(fake) as server, Sglang(server.url, SHORT) as engine:
        shown = await engine.probe("s", None)
        told = await engine.counters()
        cold = await ask(engine, cell())
    assert (shown.counter_alive, shown.cold_proof, shown.counters_agree, shown.findings) == (True, "salt", True, ())
    assert shown.decode_times is False
    assert told is not None
    assert (told.prompt_tokens_processed, told.prompt_tokens_cached, told.output_tokens) == (369 - 120, 120, 14)
    assert (cold.cached_tokens, cold.prompt_tokens, cold.decode_ms) == (0, 3, None)
    sent = [json.loads(seen.body) for seen in server.seen if seen.method == "POST"]
    assert sent[0] == sent[1] and sent[0]["cache_salt"] != sent[2]["cache_salt"]


@pytest.mark.parametrize(
    ("planted", "alive", "finding"),
    [
        ({"report": False, "details": False}, False, "start SGLang with --enable-cache-report and --enable-metrics"),
        ({"details": False, "metrics": False}, False, "a cold request told no cached tokens and its repeat 120:"),
        ({"details": False, "warmed": False}, False, "the server's own totals, which do not confirm it"),
        ({"lie": 0}, False, "with 0 cached tokens: the counter is dead or the radix cache is off"),
        ({"lie": 120}, False, "never sent before was reported with 120 of 121 tokens cached: the counter cannot"),
        ({"honours_salt": False}, True, "`cache_salt` is not honoured (an older build or a gateway may drop it)"),
    ],
)
async def test_what_cannot_be_proven_is_told_with_the_flag_that_would_give_it(
    planted: dict[str, Any], alive: bool, finding: str
) -> None:
    async with HostileServer(FakeSglang(**planted)) as server, Sglang(server.url, SHORT) as engine:
        shown = await engine.probe("s", None)
    assert (shown.counter_alive, shown.cold_proof) == (alive, None)
    assert any(finding in told for told in shown.findings), shown.findings


async def test_without_metrics_there_is_no_second_witness_and_the_flag_is_named() -> None:
    async with HostileServer(FakeSglang(metrics=False)) as server, Sglang(server.url, SHORT) as engine:
        shown = await engine.probe("s", None)
    assert (shown.cold_proof, shown.counters_agree) == ("salt", None)
    assert shown.findings == ("no counters at /metrics: start SGLang with --enable-metrics for a second witness",)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_both_routes_tell_the_same_counts_streamed_and_whole(path: str, stream: bool) -> None:
    meta = {"cached_tokens": 0, "num_retractions": 0, "spec_num_proposed_drafts": 9, "spec_num_correct_drafts": 7}
    async with HostileServer(FakeSglang(meta=meta)) as server, Sglang(server.url, SHORT) as engine:
        answer = await ask(engine, cell(path, stream))
    assert (answer.content, answer.status, answer.findings) == ("ab", "ok", ())
    assert (answer.cached_tokens, answer.output_tokens, answer.reasoning_tokens) == (0, 2, 0)
    assert (answer.draft_tokens, answer.draft_accepted_tokens) == (9, 7)
    assert (answer.prefill_ms, answer.decode_ms) == (None, None)


async def test_drafts_are_told_by_usage_where_the_server_was_asked_to() -> None:
    details = {"completion_tokens_details": {"accepted_prediction_tokens": 30, "rejected_prediction_tokens": 10}}
    async with HostileServer(FakeSglang(usage=details)) as server, Sglang(server.url, SHORT) as engine:
        answer = await ask(engine, cell())
    assert (answer.draft_tokens, answer.draft_accepted_tokens) == (40, 30)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_that_was_taken_back_is_told_and_has_no_times(stream: bool) -> None:
    fake = FakeSglang(meta={"num_retractions": 2})
    async with HostileServer(fake) as server, Sglang(server.url, SHORT) as engine:
        answer = await ask(engine, cell(stream=stream))
    assert answer.retractions == 2
    assert answer.findings == ("the request was taken back and computed anew 2 times: its times tell nothing",)
    assert (answer.prefill_ms, answer.decode_ms, answer.time_to_first_token_ms) == (None, None, None)
    assert answer.cached_tokens == 0


@pytest.mark.parametrize(
    ("meta", "told"), [(None, None), ({}, None), ({"num_retractions": None}, None), ({"num_retractions": 0}, 0)]
)
async def test_a_request_that_was_not_taken_back_keeps_its_times_and_unknown_is_not_zero(meta: Any, told: Any) -> None:
    async with HostileServer(FakeSglang(meta=meta)) as server, Sglang(server.url, SHORT) as engine:
        answer = await ask(engine, cell())
    assert answer.retractions == told
    assert answer.time_to_first_token_ms is not None and answer.findings == ()


async def test_tokens_that_a_request_found_of_its_own_first_prefill_are_not_called_reused() -> None:
    fake = FakeSglang(meta={"num_retractions": 1}, lie=2)
    async with HostileServer(fake) as server, Sglang(server.url, SHORT) as engine:
        answer = await ask(engine, cell())
    assert (answer.cached_tokens, answer.prompt_tokens) == (None, 3)
    assert answer.findings == (
        "the request was taken back and computed anew once: its times tell nothing",
        "2 cached tokens may be those of its own first prefill; taken as unknown",
    )


async def test_counts_that_contradict_each_other_are_told_and_the_larger_one_is_taken() -> None:
    async with HostileServer(FakeSglang(meta={"cached_tokens": 2})) as server, Sglang(server.url, SHORT) as engine:
        answer = await ask(engine, cell(stream=False))
    assert answer.cached_tokens == 2
    assert answer.findings == ("counters contradict each other: 0 and 2 cached tokens",)


@pytest.mark.parametrize(("told", "tokens"), [(21, 21), (0, None), (None, None)])
async def test_reasoning_is_counted_apart_where_usage_really_counted_it(told: int | None, tokens: int | None) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 30, "reasoning_tokens": told}

    async def reply(exchange: Exchange) -> None:
        message = {"role": "assistant", "content": "Yes.", "reasoning_content": "Let me think."}
        await exchange.json({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})

    async with HostileServer(reply) as server, Sglang(server.url, SHORT) as engine:
        answer = await ask(engine, cell(CHAT, stream=False))
    assert (answer.content, answer.reasoning, answer.reasoning_tokens) == ("Yes.", "Let me think.", tokens)
