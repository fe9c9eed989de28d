"""Replies that neither the real server nor the simulated one can be made to give, said byte by byte over a real socket.

Each is a fault of networks, gateways or other servers: cut and endless streams, HTML, wrong types, hostile characters,
compression nobody asked for, TLS failures, resets, slow headers, older and lying counters.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import pytest
import trustme

from prefillgate.engines.base import (
    Answer,
    AnswerStatus,
    Capabilities,
    CellRequest,
    Engine,
    TerminalEngineError,
    TransientEngineError,
)
from prefillgate.engines.http import EngineOptions, base_url, encode_body
from prefillgate.engines.llama_cpp import LlamaCpp
from prefillgate.engines.openai_compatible import OpenAICompatible
from prefillgate.engines.openai_routes import OpenAIRoutes
from prefillgate.engines.probing import judge_probe
from prefillgate.engines.registry import create, detect, engine_names
from tests.engine.hostile import (
    DONE,
    GOOD,
    TIMINGS,
    USAGE,
    Exchange,
    HostileServer,
    Reply,
    chunk,
    event,
    raw,
    routes,
    stream,
    whole,
)

CHAT = "/v1/chat/completions"
REQUEST = CellRequest(CHAT, {"messages": [{"role": "user", "content": "Hi"}]}, None, 1, "n-1", "cache_off")
ONCE = EngineOptions(attempts=1)


@asynccontextmanager
async def served(reply: Reply, options: EngineOptions = ONCE) -> AsyncIterator[tuple[HostileServer, LlamaCpp]]:
    async with HostileServer(reply) as server, LlamaCpp(server.url, options) as engine:
        yield server, engine


async def answer_to(reply: Reply, options: EngineOptions = ONCE, seconds: float = 60.0) -> Answer:
    async with served(reply, options) as (server, engine):
        answer = await engine.generate(engine.prepare(REQUEST), seconds)
    assert len(server.seen) == 1, "a generation is sent once, whatever becomes of it"
    return answer


def outcome(answer: Answer) -> tuple[str, str | None]:
    return answer.status.value, answer.reason


async def test_a_good_stream_is_read_with_its_counters_and_its_request_was_sent_as_prepared() -> None:
    async with served(stream(GOOD)) as (server, engine):
        prepared = engine.prepare(REQUEST)
        answer = await engine.generate(prepared, 5)
    assert outcome(answer) == ("ok", None)
    assert (answer.content, answer.finish_reason, answer.request_id) == ("Hello you", "stop", "cmpl-1")
    assert (answer.prompt_tokens, answer.cached_tokens, answer.processed_tokens) == (20, 3, 17)
    assert (answer.output_tokens, answer.prefill_ms, answer.decode_ms) == (2, 12.5, 6.5)
    assert answer.raw == GOOD.decode()
    assert answer.findings == ()
    sent = server.seen[0]
    assert sent.body == encode_body(prepared.body)
    assert json.loads(sent.body)["cache_prompt"] is False
    assert "gzip" not in sent.headers["accept-encoding"]
    assert answer.started_at <= answer.ended_at


async def test_every_chunking_of_the_bytes_gives_the_same_answer() -> None:
    text = "a\u2028b\u0085c\u2029d é \U0001f600 \x00"
    body = chunk(text).replace(b"\\u2028", "\u2028".encode()).replace(b"\\u0085", "\u0085".encode())
    reply = (body + chunk("", "stop", usage=USAGE, timings=TIMINGS) + DONE).replace(b"\n", b"\r\n")
    for size in (1, 7, len(reply)):
        pieces = [reply[i : i + size] for i in range(0, len(reply), size)]
        answer = await answer_to(stream(*pieces))
        assert outcome(answer) == ("ok", None)
        assert answer.content == text


async def test_a_line_of_a_megabyte_is_an_answer() -> None:
    answer = await answer_to(stream(chunk("x" * 1_000_000), chunk("", "stop"), DONE))
    assert outcome(answer) == ("ok", None)
    assert answer.content == "x" * 1_000_000


async def test_bytes_that_are_not_utf8_are_replaced_and_told() -> None:
    answer = await answer_to(stream(chunk("aQb").replace(b"Q", b"\xff"), chunk("", "stop", usage=USAGE), DONE))
    assert answer.content == "a\ufffdb"
    assert "the reply held bytes that are not UTF-8; they were replaced" in answer.findings
    body = json.dumps({"choices": [{"message": {"content": "aQb"}, "finish_reason": "stop"}]}).encode()
    answer = await answer_to(raw("200 OK", body.replace(b"Q", b"\xff"), "Content-Type: application/json"))
    assert answer.content == "a\ufffdb"
    assert "the reply held bytes that are not UTF-8; they were replaced" in answer.findings


async def test_pings_and_a_byte_order_mark_before_the_answer_change_nothing() -> None:
    answer = await answer_to(stream(b"\xef\xbb\xbf", b"\n", b": ping\n\n", GOOD))
    assert (outcome(answer), answer.content) == (("ok", None), "Hello you")


async def test_an_orderly_end_in_the_middle_of_a_stream_is_a_cut_stream() -> None:
    answer = await answer_to(stream(chunk("Hel")))
    assert outcome(answer) == ("failed", "CutStream")
    assert answer.content == "Hel"


async def test_a_stream_of_pings_alone_is_a_cut_stream() -> None:
    assert outcome(await answer_to(stream(b": ping\n\n", b": ping\n\n"))) == ("failed", "CutStream")


async def test_a_connection_that_closes_before_the_promised_length_is_lost() -> None:
    answer = await answer_to(raw("200 OK", chunk("Hel"), "Content-Type: text/event-stream", "Content-Length: 9999"))
    assert outcome(answer) == ("failed", "ConnectionLost")
    assert answer.content == "Hel"
    answer = await answer_to(raw("200 OK", b'{"choices":', "Content-Length: 9999"))
    assert outcome(answer) == ("failed", "ConnectionLost")


async def test_a_chunked_body_cut_inside_a_chunk_is_lost() -> None:
    body = b"40\r\n" + chunk("Hel")[:20]
    answer = await answer_to(raw("200 OK", body, "Transfer-Encoding: chunked"))
    assert outcome(answer) == ("failed", "ConnectionLost")


async def test_a_reset_before_or_inside_the_answer_is_a_failed_cell() -> None:
    async def before(exchange: Exchange) -> None:
        exchange.reset()

    async def inside(exchange: Exchange) -> None:
        await exchange.head("200 OK", "Content-Type: text/event-stream")
        await exchange.say(chunk("Hel"), b": ")
        exchange.reset()

    assert outcome(await answer_to(before)) == ("failed", "ConnectionLost")
    assert outcome(await answer_to(inside)) == ("failed", "ConnectionLost")


async def test_headers_that_never_come_and_a_stream_that_stalls_end_at_the_deadline() -> None:
    forever = asyncio.Event()

    async def silent(_exchange: Exchange) -> None:
        await forever.wait()

    async def stalls(exchange: Exchange) -> None:
        await exchange.head("200 OK", "Content-Type: text/event-stream")
        await exchange.say(chunk("Hel"))
        await forever.wait()

    for reply, content, seconds in ((silent, "", 0.3), (stalls, "Hel", 3)):
        answer = await answer_to(reply, seconds=seconds)
        assert outcome(answer) == ("failed", "Timeout")
        assert (answer.content, answer.detail) == (content, f"no complete answer within {seconds} s")
        assert answer.prompt_tokens is None


async def test_an_answer_is_complete_at_done_even_if_the_connection_stays_open() -> None:
    async def lingers(exchange: Exchange) -> None:
        await exchange.head("200 OK", "Content-Type: text/event-stream")
        await exchange.say(GOOD)
        await asyncio.Event().wait()

    assert outcome(await answer_to(lingers)) == ("ok", None)


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that is bound and not listened on, so that nobody else can take it meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def test_a_refused_connection_was_never_accepted() -> None:
    with closed_port() as port:
        async with LlamaCpp(f"http://127.0.0.1:{port}", ONCE) as engine:
            answer = await engine.generate(engine.prepare(REQUEST), 60)
            with pytest.raises(TransientEngineError, match=rf"127.0.0.1:{port}/v1/models: ConnectionRefused"):
                await engine.discover()
    assert outcome(answer) == ("refused", "ConnectionRefused")
    assert answer.http_status is None
    assert answer.detail is not None and f"('127.0.0.1', {port})" in answer.detail


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("302 Found", "refused"),
        ("400 Bad Request", "refused"),
        ("404 Not Found", "refused"),
        ("422 Unprocessable", "refused"),
        ("429 Too Many Requests", "refused"),
        ("499 Odd", "refused"),
        ("500 Error", "failed"),
        ("502 Bad Gateway", "failed"),
        ("503 Unavailable", "refused"),
        ("504 Gateway Timeout", "failed"),
    ],
)
async def test_a_status_says_whether_the_request_was_accepted(status: str, expected: str) -> None:
    answer = await answer_to(whole({"error": {"message": "so it is", "type": "kind"}}, status))
    assert outcome(answer) == (expected, "HttpError")
    assert answer.http_status == int(status[:3])
    assert answer.detail is not None and answer.detail.endswith(": kind: so it is")


async def test_retry_after_is_told_in_seconds_in_either_form() -> None:
    busy = {"error": {"message": "busy"}}
    for value, low, high in (("7", 7, 7), ("Fri, 01 Jan 2038 00:00:00 GMT", 1e6, 1e10), ("Thu, 01 Jan 1970 00:00:00 GMT", 0, 0)):  # fmt: skip  # noqa: E501
        answer = await answer_to(whole(busy, "503 Unavailable", f"Retry-After: {value}"))
        assert outcome(answer) == ("refused", "HttpError")
        assert answer.retry_after_seconds is not None and low <= answer.retry_after_seconds <= high
    for value in ("soon", "-5", "1e9", ""):
        answer = await answer_to(whole(busy, "429 Slow down", f"Retry-After: {value}"))
        assert answer.retry_after_seconds is None


async def test_html_with_status_200_is_a_failed_cell_that_quotes_it_clean() -> None:
    page = b"<!DOCTYPE html><html>\x1b[31m<title>Sign in\x00</title>" + b"x" * 5000
    answer = await answer_to(raw("200 OK", page, "Content-Type: text/html"))
    assert outcome(answer) == ("failed", "NotJson")
    assert answer.detail is not None
    assert "<title>Sign in" in answer.detail
    assert "\x1b" not in answer.detail and "\x00" not in answer.detail
    assert len(answer.detail) <= 500


@pytest.mark.parametrize("body", [b"OK", b"", b"null", b"[]", b'"text"', b"{", b"12"])
async def test_other_bodies_that_are_no_reply_are_failed_cells(body: bytes) -> None:
    assert outcome(await answer_to(raw("200 OK", body))) == ("failed", "NotJson")


async def test_an_event_that_is_not_json_is_a_failed_cell() -> None:
    answer = await answer_to(stream(chunk("Hel"), b"data: {broken\n\n", chunk("lo", "stop"), DONE))
    assert outcome(answer) == ("failed", "NotJson")


async def test_an_error_object_in_the_stream_is_a_failed_cell() -> None:
    answer = await answer_to(stream(chunk("Hel"), event({"error": {"message": "CUDA error"}}), DONE))
    assert (outcome(answer), answer.detail) == (("failed", "ErrorInStream"), "CUDA error")
    older = await answer_to(stream(chunk("Hel"), b'error: {"message": "CUDA error"}\n\n'))
    assert (outcome(older), older.detail) == (("failed", "ErrorInStream"), "CUDA error")


async def test_an_empty_text_with_status_200_is_a_failed_delivery_that_keeps_its_counters() -> None:
    answer = await answer_to(stream(chunk("", "stop", usage=USAGE, timings=TIMINGS), DONE))
    assert outcome(answer) == ("failed", "EmptyAnswer")
    assert (answer.prompt_tokens, answer.cached_tokens) == (20, 3)


async def test_a_whole_reply_to_a_streamed_request_and_a_stream_to_a_whole_one_are_read() -> None:
    body = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": USAGE, "timings": TIMINGS}
    answer = await answer_to(whole(body))
    assert (outcome(answer), answer.content, answer.cached_tokens) == (("ok", None), "Hi", 3)
    mislabelled = await answer_to(raw("200 OK", GOOD, "Content-Type: application/json"))
    assert (outcome(mislabelled), mislabelled.content) == (("ok", None), "Hello you")


async def test_an_endless_stream_ends_at_the_size_limit() -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.head("200 OK", "Content-Type: text/event-stream")
        while True:
            await exchange.say(chunk("x" * 1000))

    answer = await answer_to(endless, replace(ONCE, max_reply_bytes=100_000), seconds=60)
    assert outcome(answer) == ("failed", "TooLong")
    assert len(answer.raw) <= 100_000


async def test_a_compressed_reply_is_read_and_a_gzip_bomb_ends_at_the_size_limit() -> None:
    headers = ("Content-Type: text/event-stream", "Content-Encoding: gzip")
    answer = await answer_to(raw("200 OK", gzip.compress(GOOD), *headers))
    assert (outcome(answer), answer.content) == (("ok", None), "Hello you")
    bomb = gzip.compress(b" " * 50_000_000)
    answer = await answer_to(raw("200 OK", bomb, *headers), replace(ONCE, max_reply_bytes=100_000))
    assert outcome(answer) == ("failed", "TooLong")
    assert len(answer.raw) <= 100_000


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "compress"])
async def test_an_encoding_that_cannot_be_undone_is_a_failed_cell(encoding: str) -> None:
    answer = await answer_to(raw("200 OK", GOOD, f"Content-Encoding: {encoding}"))
    assert outcome(answer) == ("failed", "BadEncoding")


async def test_a_server_that_does_not_speak_http_is_named() -> None:
    async def ssh(exchange: Exchange) -> None:
        await exchange.say(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

    assert outcome(await answer_to(ssh)) == ("failed", "NotHttp")
    async with served(ssh) as (_server, engine):
        with pytest.raises(TerminalEngineError, match="NotHttp"):
            await engine.discover()


async def test_an_untrusted_certificate_is_a_tls_failure_and_a_trusted_one_is_not() -> None:
    authority = trustme.CA()
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with HostileServer(stream(GOOD), tls=server_side) as server:
        async with LlamaCpp(server.url, ONCE) as engine:
            refused = await engine.generate(engine.prepare(REQUEST), 60)
            with pytest.raises(TerminalEngineError, match="Tls"):
                await engine.discover()
        async with LlamaCpp(server.url, replace(ONCE, ssl_context=trusting)) as engine:
            answer = await engine.generate(engine.prepare(REQUEST), 60)
    assert outcome(refused) == ("refused", "Tls")
    assert outcome(answer) == ("ok", None)
    assert len(server.seen) == 1


async def test_a_body_that_is_no_json_is_never_sent() -> None:
    async with served(stream(GOOD)) as (server, engine):
        prepared = engine.prepare(REQUEST)
        answer = await engine.generate(replace(prepared, body={"temperature": float("nan")}), 5)
    assert outcome(answer) == ("refused", "BadRequest")
    assert server.seen == []


async def test_connections_are_not_kept_and_the_environments_proxy_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = []

    async def note(exchange: Exchange) -> None:
        ports.append(exchange.writer.get_extra_info("peername")[1])
        body = b'{"media_marker": "<__media_abc__>"}'
        await exchange.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with closed_port() as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{port}")
        async with served(note) as (_server, engine):
            assert [await engine.epoch() for _ in range(3)] == ["abc"] * 3
    assert len(set(ports)) == 3


async def test_key_and_headers_and_credentials_are_sent_and_never_shown() -> None:
    options = replace(ONCE, api_key="key-5", headers=(("x-team", "blue"),))
    async with served(stream(GOOD), options) as (server, engine):
        await engine.generate(engine.prepare(REQUEST), 60)
    assert server.seen[0].headers["authorization"] == "Bearer key-5"
    assert server.seen[0].headers["x-team"] == "blue"
    async with HostileServer(whole({}, "404 Not Found")) as server:
        named = LlamaCpp(server.url.replace("//", "//me:word@"), ONCE)
        async with named:
            with pytest.raises(TerminalEngineError) as caught:
                await named.discover()
    assert server.seen[0].headers["authorization"].startswith("Basic ")
    assert "word" not in str(caught.value) + named.url


@pytest.mark.parametrize(
    ("timings", "usage", "expected", "finding"),
    [
        # builds before cache_n: what was not processed came from the cache
        ({"prompt_n": 5}, {"prompt_tokens": 20}, (20, 15, 5), None),
        ({"prompt_n": 20}, {"prompt_tokens": 20}, (20, 0, 20), None),
        ({"prompt_n": 21}, {"prompt_tokens": 20}, (20, None, 21), "21 processed of 20 prompt tokens"),
        (None, USAGE, (20, 3, None), "the reply carries no timings"),
        (TIMINGS, None, (None, 3, 17), "the reply carries no usage"),
        (None, None, (None, None, None), "the reply carries no usage"),
        ({**TIMINGS, "cache_n": 4}, USAGE, (20, 4, 17), "4 cached + 17 processed is not 20 prompt tokens"),
        ({**TIMINGS, "cache_n": 4}, USAGE, (20, 4, 17), "cache_n is 4, usage says 3 cached tokens"),
        ({**TIMINGS, "cache_n": -1}, USAGE, (20, None, 17), "cache_n is -1, not a count of tokens"),
        ({**TIMINGS, "cache_n": 3.0}, USAGE, (20, None, 17), "cache_n is 3.0, not a count of tokens"),
        ({**TIMINGS, "cache_n": True}, USAGE, (20, None, 17), "cache_n is true, not a count of tokens"),
        ({**TIMINGS, "prompt_n": "17"}, USAGE, (20, 3, None), 'prompt_n is "17", not a count of tokens'),
        (TIMINGS, {"prompt_tokens": None}, (None, 3, 17), None),
        ({}, {"prompt_tokens": 20, "prompt_tokens_details": None}, (20, None, None), None),
    ],
)
async def test_counters_are_read_by_both_names_and_unknown_is_never_zero(
    timings: Any, usage: Any, expected: tuple[int | None, ...], finding: str | None
) -> None:
    answer = await answer_to(stream(chunk("Hi", "stop", usage=usage, timings=timings), DONE))
    assert (answer.prompt_tokens, answer.cached_tokens, answer.processed_tokens) == expected
    assert answer.status is AnswerStatus.OK
    assert (answer.findings == ()) if finding is None else any(finding in told for told in answer.findings)


async def test_times_that_are_no_durations_are_unknown() -> None:
    for value in (-1, "fast", True):
        timings = {**TIMINGS, "prompt_ms": value, "predicted_ms": 0}
        answer = await answer_to(stream(chunk("Hi", "stop", usage=USAGE, timings=timings), DONE))
        assert (answer.prefill_ms, answer.decode_ms) == (None, 0.0)
        assert any("prompt_ms" in finding for finding in answer.findings)


LISTING = {"object": "list", "data": [{"id": "model-a"}]}
PROPS = {"default_generation_settings": {"n_ctx": 512}, "build_info": "b4000-abc", "media_marker": "<__media__>"}


async def test_an_older_build_without_slots_and_with_a_fixed_marker_shows_no_epoch() -> None:
    async with served(routes(props=whole(PROPS), v1_models=whole(LISTING))) as (_server, engine):
        identity = await engine.discover()
        assert await engine.epoch() is None
        assert await engine.counters() is None
        assert (await engine.activity()).idle is None
        look = await engine.look()
        assert (look.counters, look.activity.idle, look.epoch) == (None, None, None)
    assert (identity.build, identity.model, identity.server_epoch) == ("b4000-abc", "model-a", None)
    assert (identity.context_tokens, identity.slots, identity.weights) == (512, None, None)


async def test_without_slots_the_gauges_of_metrics_tell_activity() -> None:
    text = b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\nllamacpp:prompt_tokens_total NaN\n"
    async with served(routes(metrics=raw("200 OK", text))) as (_server, engine):
        activity = await engine.activity()
        counters = await engine.counters()
    assert (activity.running, activity.waiting, activity.idle) == (1, 2, False)
    assert counters is not None and counters.prompt_tokens_processed is None


async def test_metrics_that_are_no_exposition_are_a_clear_error() -> None:
    async with served(routes(metrics=raw("200 OK", b"{ oops"))) as (_server, engine):
        with pytest.raises(TerminalEngineError, match="/metrics is not a Prometheus exposition"):
            await engine.counters()


async def test_discovery_asks_again_while_a_model_loads_and_a_generation_never_does() -> None:
    waiting = iter([503, 503])

    async def loading(exchange: Exchange) -> None:
        if next(waiting, 200) == 503:
            await exchange.json({"error": {"message": "Loading model"}}, "503 Unavailable")
        else:
            await exchange.json(PROPS if exchange.path == "/props" else LISTING)

    async with served(loading, replace(ONCE, attempts=3)) as (server, engine):
        identity = await engine.discover()
        assert [seen.path for seen in server.seen] == ["/v1/models"] * 3 + ["/props", "/slots", "/metrics"]
    assert identity.model == "model-a"
    async with served(whole({"error": "busy"}, "503 Unavailable"), replace(ONCE, attempts=2)) as (server, engine):
        with pytest.raises(TransientEngineError, match="HTTP 503: busy"):
            await engine.discover()
        assert len(server.seen) == 2


async def test_html_in_discovery_is_quoted_and_terminal() -> None:
    page = raw("200 OK", b"<html>\x1b]0;x\x07 Welcome", "Content-Type: text/html")
    async with HostileServer(page) as server:
        with pytest.raises(TerminalEngineError, match=r"answered HTML, not JSON: “<html>.* Welcome") as caught:
            await detect(server.url, ONCE)
    assert "\x1b" not in str(caught.value) and "\x07" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ftp://host", "give http://HOST:PORT"),
        ("localhost:8080", "give http://HOST:PORT"),
        ("", "give http://HOST:PORT"),
        ("http://", "give http://HOST:PORT"),
        ("http://host:99999", "is not an address"),
        ("http://[::1", "is not an address"),
        ("http://ho st", "is not an address"),
        ("http://host?x=1", "with . or # is not allowed"),
        ("http://host/v1/chat/completions", "give the address before /v1"),
    ],
)
def test_an_address_that_cannot_work_is_refused_by_name(address: str, words: str) -> None:
    with pytest.raises(TerminalEngineError, match=words) as caught:
        LlamaCpp(address)
    assert repr(address) in str(caught.value)


@pytest.mark.parametrize(
    ("address", "root"),
    [
        ("http://host", "http://host"),
        ("http://host:8080/v1/", "http://host:8080"),
        ("https://host/a/b/v1", "https://host/a/b"),
        ("https://host/a/b/", "https://host/a/b"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
        ("http://me:word@host/", "http://host"),
    ],
)
def test_an_address_works_with_prefix_v1_ipv6_and_credentials(address: str, root: str) -> None:
    assert base_url(address).root == root
    assert "word" not in repr(base_url(address))


def test_engines_are_made_by_name_and_unknown_names_are_refused() -> None:
    made: list[Engine] = [create(name, "http://host") for name in engine_names() if name != "auto"]
    assert [engine.name for engine in made] == list(engine_names()[1:])
    with pytest.raises(TerminalEngineError, match=r"'vlm' is not known; allowed: .*llama\.cpp, .*openai-compatible"):
        create("vlm", "http://host")


async def test_a_server_without_props_is_taken_as_openai_compatible() -> None:
    for props in (whole({}, "404 Not Found"), raw("200 OK", b"<html>app</html>"), whole({"other": 1})):
        async with HostileServer(routes(props=props, v1_models=whole(LISTING))) as server:
            assert (await detect(server.url, ONCE)).name == "openai-compatible"
            assert (await detect(server.url, ONCE, "llama.cpp")).name == "llama.cpp"


async def test_a_server_that_lists_no_models_is_no_model_server() -> None:
    async with HostileServer(whole({"hello": "world"})) as server:
        with pytest.raises(TerminalEngineError, match="lists no models: not an OpenAI-compatible server"):
            await detect(server.url, ONCE)


async def test_a_wrong_model_name_is_told_with_the_right_ones() -> None:
    async with HostileServer(routes(v1_models=whole(LISTING))) as server:
        engine = OpenAICompatible(server.url, replace(ONCE, model="model-b"))
        async with engine:
            with pytest.raises(TerminalEngineError, match="does not serve model 'model-b'; it serves model-a"):
                await engine.discover()


def judge(family: type[OpenAIRoutes], steps: list[Answer], agree: bool | None) -> Capabilities:
    return judge_probe(family.plan, family.words, steps, agree)


def test_cached_tokens_of_an_untold_number_of_prompt_tokens_are_no_witness() -> None:
    def answers(prompt: int | None) -> list[Answer]:
        return [Answer(AnswerStatus.OK, 0.0, 1.0, prompt_tokens=prompt, cached_tokens=n) for n in (0, 99, 0)]

    for shown, known in (
        (judge(LlamaCpp, answers(None), True), judge(LlamaCpp, answers(100), True)),
        (judge(OpenAICompatible, answers(None), None), judge(OpenAICompatible, answers(100), None)),
    ):
        assert (shown.counter_alive, shown.cold_proof) == (False, None)
        assert shown.findings == (
            "the server tells no prompt tokens, so cached tokens are a share of nothing: independence unknown",
        )
        assert known.counter_alive
        assert known.cold_proof is not None
        assert known.findings == ()


def test_counters_are_missed_only_where_the_replies_tell_what_they_could_confirm() -> None:
    def findings(cached: int | None, processed: int | None) -> tuple[str, ...]:
        told = {"prompt_tokens": 100, "cached_tokens": cached, "processed_tokens": processed}
        return judge(LlamaCpp, [Answer(AnswerStatus.OK, 0.0, 1.0, **told)] * 3, None).findings

    missed = "no counters at /metrics: start the server with --metrics for a second witness"
    assert (
        findings(None, None)[-1]
        == "the replies tell no counts that the server's totals could confirm: no second witness"
    )
    assert missed not in findings(None, None)
    assert findings(None, 100)[-1] == findings(0, None)[-1] == findings(0, 100)[-1] == missed
