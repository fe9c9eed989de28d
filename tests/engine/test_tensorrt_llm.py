"""trtllm-serve by its own schema: a salt on the chat route alone, unknown fields refused, totals behind a flag."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.engines.base import Activity, Answer, AnswerStatus, CellRequest, Counters, TerminalEngineError
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.resting import STANDS_STILL
from prefillgate.engines.tensorrt_llm import TensorRTLLM
from tests.engine.hostile import HostileServer, routes, whole
from tests.support.small_engines import (
    CHAT,
    COMPLETIONS,
    TRTLLM,
    Body,
    Totals,
    plain_usage,
    small_engine,
    trtllm_metrics,
)

SHORT = EngineOptions(probe_words=120, attempts=1)


class Quick(TensorRTLLM):
    """Waits a shorter while for a gauge to come down."""

    rest_seconds = 0.1


def request(path: str = CHAT, proof: str | None = "salt", stream: bool = True, **more: Any) -> CellRequest:
    text = "Notes of the week. " * 40
    body: Body = {"max_tokens": 12, **more}
    body |= {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    return CellRequest(path, body, "nemotron", 1, "5a17" * 8, proof, stream)


async def ask(engine: TensorRTLLM, asked: CellRequest) -> Answer:
    return await engine.generate(engine.prepare(asked), 10)


async def test_the_salt_the_counter_and_the_totals_are_shown_by_three_requests() -> None:
    with small_engine(TRTLLM) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            shown = await engine.probe("salt", "nemotron")
            counters, look = await engine.counters(), await engine.look()
    assert (shown.counter_alive, shown.cold_proof, shown.findings) == (True, "salt", ())
    assert [body.get("cache_salt") for _, body in server.seen] == ["salt-1", "salt-1", "salt-2", None, None, None]
    assert shown.route_proofs == ((COMPLETIONS, "nonce"),)
    prompts = [body["prompt"].partition("\n")[0] for path, body in server.seen if path == COMPLETIONS]
    assert prompts == ["salt-c-1", "salt-c-1", "salt-c-2"]
    assert (look.activity.idle, look.epoch) == (True, None)
    cached, prompt = server.totals.cached, server.totals.prompt
    assert counters == Counters(prompt - cached, cached, 12)
    assert cached > 100


async def test_a_server_without_the_completions_route_has_its_salt_all_the_same() -> None:
    def refuses(path: str, body: Body) -> str | None:
        return "not served" if path == COMPLETIONS else None

    with small_engine(replace(TRTLLM, refuses=refuses)) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.cold_proof, shown.route_proofs, shown.findings) == ("salt", (), ())


async def test_a_nonce_that_does_nothing_on_the_completions_route_is_told_and_is_no_proof_there() -> None:
    def sees(words: list[str]) -> list[str]:
        return [word for word in words if not word.startswith("salt-c")]

    with small_engine(replace(TRTLLM, sees=sees)) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.cold_proof, shown.route_proofs, shown.knob_ignored) == ("salt", (), None)
    (told,) = shown.findings
    assert told.startswith(
        "/v1/completions: a new nonce does not make the prompt new: by the replies' own count 0 and "
    )


async def test_totals_that_were_there_before_the_probe_agree_with_its_replies() -> None:
    with small_engine(TRTLLM) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            await ask(engine, request())
            shown = await engine.probe("salt", None)
            server.totals.prompt += 7  # somebody else
    assert shown.counters_agree is True


async def test_other_traffic_during_the_probe_shows_as_totals_that_disagree() -> None:
    def metrics(totals: Totals) -> str:
        return trtllm_metrics(replace(totals, prompt=totals.prompt + 100 * totals.requests))

    with small_engine(replace(TRTLLM, metrics=metrics)) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            await ask(engine, request())
            shown = await engine.probe("salt", None)
    assert shown.counters_agree is False


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cell_is_read_alike_streamed_and_whole_with_its_reasoning_apart(stream: bool) -> None:
    with small_engine(TRTLLM) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            first = await ask(engine, request(stream=stream))
            again = await ask(engine, request(stream=stream))
    assert (first.status, first.cached_tokens, first.output_tokens) == (AnswerStatus.OK, 0, 12)
    assert again.prompt_tokens is not None and again.cached_tokens == again.prompt_tokens - 1
    assert (first.reasoning, first.content[:9]) == ("Let me think.", "The ferry")
    assert (first.decode_ms, first.prefill_ms, first.draft_tokens) == (None, None, None)


async def test_an_unknown_field_of_a_case_is_refused_in_the_servers_own_words() -> None:
    with small_engine(TRTLLM) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            answer = await ask(engine, request(cache_prompt=False))
    assert (answer.status, answer.http_status) == (AnswerStatus.REFUSED, 400)
    assert answer.detail is not None
    assert "extra_forbidden" in answer.detail and "cache_prompt" in answer.detail


def test_the_gate_sends_no_field_that_the_schema_does_not_have() -> None:
    engine = TensorRTLLM("http://host")
    for path, proof in ((CHAT, "salt"), (CHAT, "nonce"), (COMPLETIONS, "nonce"), (COMPLETIONS, None)):
        for stream in (True, False):
            body = engine.prepare(request(path, proof, stream)).body
            assert TRTLLM.refuses(path, body) is None, body


def test_the_salt_on_the_completions_route_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        TerminalEngineError, match=r"takes cache_salt on /v1/chat/completions alone.*write it for /v1/chat"
    ):
        TensorRTLLM("http://host").prepare(request(COMPLETIONS))


async def test_an_older_build_that_refuses_the_salt_is_probed_by_a_nonce() -> None:
    def refuses(path: str, body: Body) -> str | None:
        return "extra_forbidden: cache_salt" if "cache_salt" in body else None

    with small_engine(replace(TRTLLM, refuses=refuses)) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.counter_alive, shown.cold_proof) == (True, "nonce")
    assert [path for path, _ in server.seen] == [CHAT] * 4


async def test_a_base_model_without_a_chat_template_is_probed_by_a_nonce_on_the_other_route() -> None:
    def refuses(path: str, body: Body) -> str | None:
        return "no chat template" if path == CHAT else None

    with small_engine(replace(TRTLLM, refuses=refuses)) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
            answer = await ask(engine, request(COMPLETIONS, "nonce"))
    assert shown.cold_proof == "nonce"
    assert answer.cached_tokens == 0


async def test_a_salt_that_is_ignored_gives_way_to_a_nonce_and_is_told() -> None:
    with small_engine(replace(TRTLLM, salt_field=None)) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.counter_alive, shown.cold_proof) == (True, "nonce")
    assert any(
        words.startswith("`cache_salt` is not honoured: by the replies' own count 0 and ") for words in shown.findings
    )


@pytest.mark.parametrize(
    ("details", "finding"),
    [
        (..., "tells no usage.prompt_tokens_details.cached_tokens: independence unknown; trtllm-serve 1.1"),
        (None, "independence unknown; trtllm-serve 1.1"),
        ({"cached_tokens": None}, "independence unknown; trtllm-serve 1.1"),
        ({"cached_tokens": 0}, "the counter is dead or block reuse is off (kv_cache_config.enable_block_reuse)"),
        ({"cached_tokens": 128}, "the counter cannot be trusted"),
        ({"num_reused_tokens": 64}, "independence unknown; trtllm-serve 1.1"),
    ],
)
async def test_a_counter_that_is_absent_null_zero_inflated_or_renamed_proves_nothing(
    details: Any, finding: str
) -> None:
    def usage(path: str, prompt: int, cached: int, output: int) -> Body:
        told = {} if details is ... else {"prompt_tokens_details": details}
        return {**plain_usage(path, prompt, cached, output), **told}

    with small_engine(replace(TRTLLM, usage=usage)) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.counter_alive, shown.cold_proof) == (False, None)
    assert any(finding in words for words in shown.findings), shown.findings


async def test_without_its_flag_there_are_no_totals_and_the_flag_is_named() -> None:
    with small_engine(replace(TRTLLM, metrics=None)) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
            look = await engine.look()
    assert (shown.cold_proof, shown.counters_agree, look.counters, look.activity) == ("salt", None, None, Activity())
    assert "`return_perf_metrics: true`" in shown.findings[0]


@pytest.mark.parametrize(
    ("drafted", "accepted"),
    [
        ("trtllm_spec_decode_num_draft_tokens_total", "trtllm_spec_decode_num_accepted_tokens_total"),
        ("trtllm_spec_decode_drafted_tokens_total", "trtllm_spec_decode_accepted_tokens_total"),
    ],
)
async def test_draft_totals_are_read_by_the_names_of_both_versions_and_tell_that_a_draft_runs(
    drafted: str, accepted: str
) -> None:
    def metrics(totals: Totals) -> str:
        places = [f'{drafted}{{token_pos="{at}"}} {10 - at}\n{accepted}{{token_pos="{at}"}} {4 - at}' for at in (0, 1)]
        return trtllm_metrics(totals) + "\n".join(places) + "\n"

    with small_engine(replace(TRTLLM, metrics=metrics)) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            counters, found = await engine.counters(), await engine.discover()
    assert counters is not None
    assert (counters.draft_tokens, counters.draft_accepted_tokens) == (19, 7)
    assert (found.build, found.settings) == ("1.2.0", (("speculation", "on"),))


def gauge(running: Any) -> Any:
    """Totals whose gauge of requests at work says what `running` gives for them."""

    def metrics(totals: Totals) -> str:
        text = trtllm_metrics(replace(totals, requests=1))
        return text.replace('running{engine_type="trtllm",model_name="nemotron"} 0.0', f"running {running(totals)}")

    return metrics


async def test_a_gauge_that_stands_still_when_work_ends_keeps_nothing_waiting_and_is_told() -> None:
    with small_engine(replace(TRTLLM, metrics=gauge(lambda totals: 1 if totals.requests else 0))) as server:
        async with Quick(server.url, SHORT) as engine:
            assert (await engine.activity()).idle is True
            shown = await engine.probe("salt", None)
            look = await engine.look()
    assert shown.findings == (STANDS_STILL,)
    assert look.activity == Activity()
    assert look.counters is not None


async def test_a_gauge_that_came_down_behind_the_probe_is_believed_when_it_rises() -> None:
    busy = {"now": 1}
    with small_engine(replace(TRTLLM, metrics=gauge(lambda totals: busy["now"]))) as server:
        async with Quick(server.url, SHORT) as engine:
            assert (await engine.activity()) == Activity()
            busy["now"] = 0
            await engine.probe("salt", None)
            assert (await engine.activity()).idle is True
            busy["now"] = 2
            assert (await engine.look()).activity == Activity(running=2, waiting=0)


async def test_a_version_without_these_totals_leaves_them_unknown_once_it_has_answered() -> None:
    def metrics(totals: Totals) -> str:
        return "trtllm_request_success_total 3\n"

    with small_engine(replace(TRTLLM, metrics=metrics)) as server:
        async with TensorRTLLM(server.url, SHORT) as engine:
            assert await engine.counters() == Counters(0, 0, 0)
            shown = await engine.probe("salt", None)
            assert await engine.counters() == Counters()
    assert (shown.cold_proof, shown.counters_agree) == ("salt", None)


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "413 Too Large"])
async def test_a_refusal_that_no_other_proof_would_mend_is_an_error_and_not_a_reason_for_a_nonce(status: str) -> None:
    refusing = routes(v1_chat_completions=whole({"error": "no"}, status))
    async with HostileServer(refusing) as server, TensorRTLLM(server.url, SHORT) as engine:
        with pytest.raises(TerminalEngineError, match=status[:3]):
            await engine.probe("salt", None)
    assert len([sent for sent in server.seen if sent.path == CHAT]) == 1
