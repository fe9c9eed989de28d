"""Every family against servers that are hostile, broken or behind a gateway: nothing is made up, nothing is believed
that was not seen, and nothing takes minutes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.engines import registry
from prefillgate.engines.base import Activity, AmbiguousModelError, Answer, Engine, TerminalEngineError, measured_model
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.prometheus import MAX_CHARACTERS, Less, Series, activity_of, own_lines
from prefillgate.engines.registry import detect
from prefillgate.engines.sglang import Sglang
from prefillgate.engines.vllm import Vllm
from tests.engine.test_every_family import PROBE, ROWS, SHORT, cell, engine_of, named
from tests.support.engine_table import SGLANG, TABLE, VLLM, Row
from tests.support.small_engines import Body, Speaks, Totals, small_engine

every_row = pytest.mark.parametrize("row", ROWS, ids=named)
metered = pytest.mark.parametrize("row", [row for row in ROWS if row.totals], ids=named)
PAGE = "<!doctype html><html><title>Models</title></html>"


def with_metrics(speaks: Speaks, change: Any) -> Speaks:
    """The family with another exposition: `change` is given its text and the totals."""
    told = speaks.metrics
    assert told is not None
    return replace(speaks, metrics=lambda totals: change(told(totals), totals))


@every_row
async def test_a_gateway_that_shows_a_page_for_what_is_not_there_leaves_it_unknown(row: Row) -> None:
    kept = {path: value for path, value in row.speaks.routes.items() if path in ("/v1/models", "/props", "/info")}
    speaks = replace(row.speaks, routes=kept, metrics=None, page=PAGE)
    with small_engine(speaks) as server:
        async with engine_of(row, server) as engine:
            found, shown, look = await engine.discover(), await engine.probe(PROBE, None), await engine.look()
    assert found.model == found.models[0]
    assert (look.counters, look.activity) == (None, Activity())
    assert (shown.cold_proof, shown.counters_agree) == (row.proof, None)


@every_row
async def test_two_models_at_one_address_are_named_and_one_must_be_chosen(row: Row) -> None:
    listing = row.speaks.routes["/v1/models"]
    (entry,) = listing["data"]
    both = {**listing, "data": [entry, {**entry, "id": "the-other\x1b[31m"}]}
    speaks = replace(row.speaks, routes={**row.speaks.routes, "/v1/models": both})
    with small_engine(speaks) as server:
        async with engine_of(row, server) as engine:
            found = await engine.discover()
            with pytest.raises(AmbiguousModelError, match="serves 2 models and none was asked for") as told:
                measured_model(server.url, found)
        chosen = registry.create(row.name, server.url, replace(SHORT, model=entry["id"]))
        async with chosen:
            assert (await chosen.discover()).model == entry["id"]
        assert (await detect(server.url, SHORT)).name == row.name
    assert entry["id"] in str(told.value) and "\x1b" not in str(told.value)


@pytest.mark.parametrize(
    "version", [33, None, ["0.33"], {"major": 1}, "", "9" * 5000, "v0.33.0+cu129\x1b[31m\n2", True]
)
@every_row
async def test_a_version_of_another_shape_is_a_clean_short_text_or_unknown(row: Row, version: Any) -> None:
    def changed(value: Any) -> Any:
        if callable(value):
            return lambda totals: changed(value(totals))
        if not isinstance(value, dict):
            return value
        return {name: version if name in ("version", "build_info", "sha") else inner for name, inner in value.items()}

    routes = {path: value if path == "/v1/models" else changed(value) for path, value in row.speaks.routes.items()}
    if row.name == "koboldcpp":
        routes["/api/extra/version"] = {"result": "KoboldCpp", "version": version}
    with small_engine(replace(row.speaks, routes=routes)) as server:
        async with engine_of(row, server) as engine:
            build = (await engine.discover()).build
    assert build is None or (isinstance(build, str) and build.isprintable() and 0 < len(build) <= 450)


@metered
async def test_totals_under_a_prefix_that_is_not_the_familys_are_not_read(row: Row) -> None:
    def prefixed(text: str, totals: Totals) -> str:
        lines = [line if line[:1] in ("#", "") else f"exporter_{line}" for line in text.split("\n")]
        return "\n".join(line.replace("# TYPE ", "# TYPE exporter_") for line in lines)

    with small_engine(with_metrics(row.speaks, prefixed)) as server:
        async with engine_of(row, server) as engine:
            shown = await engine.probe(PROBE, None)
            look = await engine.look()
    assert (shown.cold_proof, shown.counters_agree) == (row.proof, None)
    assert look.counters is not None
    assert (look.counters.prompt_tokens_processed, look.counters.output_tokens) == (None, None)


@metered
async def test_totals_that_go_backwards_agree_with_nothing(row: Row) -> None:
    def backwards(text: str, totals: Totals) -> str:
        assert row.speaks.metrics is not None
        fewer = 100_000 - 3 * totals.prompt
        return row.speaks.metrics(replace(totals, prompt=fewer, output=totals.output, cached=0))

    with small_engine(with_metrics(row.speaks, backwards)) as server:
        async with engine_of(row, server) as engine:
            await ask(engine, row)
            shown = await engine.probe(PROBE, None)
    assert shown.counters_agree is False


async def ask(engine: Engine, row: Row, stream: bool = True) -> Answer:
    return await engine.generate(engine.prepare(cell(row.routes[0], row.proof, stream)), 10)


@metered
async def test_a_page_of_buckets_and_of_other_programs_is_read_for_the_familys_own_lines(row: Row) -> None:
    own = row.speaks.metrics
    assert own is not None
    crowd = "".join(f'http_request_seconds_bucket{{le="{at}"}} 1\nsome_gauge{{at="{at}"}} 3\n' for at in range(40_000))

    with small_engine(with_metrics(row.speaks, lambda text, totals: crowd + text)) as server:
        async with engine_of(row, server) as engine:
            shown = await engine.probe(PROBE, None)
    assert (shown.cold_proof, shown.counters_agree) == (row.proof, True)


def test_only_the_familys_own_samples_are_kept_and_what_is_no_sample_stays_to_be_refused() -> None:
    text = '# TYPE a:x counter\na:x 1\nb_y 2\na:t_bucket{le="1"} 3\n{ oops\n 4\n\nab 5'
    assert own_lines(text, ("a:", "process")) == "# TYPE a:x counter\na:x 1\n{ oops\n 4\n"
    series = Series(
        {"output_tokens": ("llm:out", Less("other_whole", "third:part"))},
        running=("gauge:now",),
        start=("process_start_time_seconds",),
    )
    assert sorted(series.prefixes) == ["gauge", "llm", "other", "process", "third"]


async def test_more_of_a_familys_own_series_than_can_be_parsed_at_a_look_is_refused_by_name() -> None:
    line = 'vllm:prompt_tokens_total{model_name="llama"} 1.0\n'
    text = line * (MAX_CHARACTERS // len(line) + 1)
    with small_engine(replace(VLLM, metrics=lambda totals: text)) as server:
        async with Vllm(server.url, SHORT) as engine:
            with pytest.raises(TerminalEngineError, match=r"/metrics is \d+ characters of series, more than 8000000"):
                await engine.look()
    shorter = line * (MAX_CHARACTERS // len(line) // 40)
    with small_engine(replace(VLLM, metrics=lambda totals: shorter)) as server:
        async with Vllm(server.url, SHORT) as engine:
            assert (await engine.look()).counters is not None


@pytest.mark.parametrize(
    ("value", "told"), [(-1.0, None), (0.0, 0), (2.0, 2), (2.0**31 - 1, 2**31 - 1), (2.0**31, None), (1e308, None)]
)
def test_a_gauge_that_is_no_number_of_requests_keeps_no_cell_waiting(value: float, told: int | None) -> None:
    series = Series({}, running=("x:running",), waiting=("x:waiting",))
    assert activity_of({"x:running": value}, series) == Activity(told, None)
    assert activity_of({"x:waiting": value}, series) == Activity(None, told)


@pytest.mark.parametrize("number", [-1, True, 1.5, "2", None])
async def test_ranks_that_tell_no_number_of_requests_tell_nothing(number: Any) -> None:
    loads = {"loads": [{"num_running_reqs": number, "num_waiting_reqs": 0}]}
    speaks = replace(SGLANG, metrics=None, routes={**SGLANG.routes, "/v1/loads": loads})
    with small_engine(speaks) as server:
        async with Sglang(server.url, SHORT) as engine:
            assert (await engine.look()).activity == Activity()


@pytest.mark.parametrize(("size", "words"), [("16", 380), ("1000", 2064), ("4064", 8192), ("999999999999", 8192)])
async def test_a_block_of_any_size_makes_no_probe_that_is_longer_than_a_server_can_take(size: str, words: int) -> None:
    config = f'# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{block_size="{size}"}} 1.0\n'
    with small_engine(with_metrics(VLLM, lambda text, totals: config)) as server:
        async with Vllm(server.url, EngineOptions(attempts=1)) as engine:
            await engine.discover()
            await engine.probe(PROBE, None)
        lengths = [len(str(body["prompt"]).split()) - 1 for _, body in server.seen]
    assert lengths == [words] * 3


@every_row
async def test_a_reply_of_garbage_is_a_failed_answer_and_the_probe_says_what_came(row: Row) -> None:
    def twist(told: Body) -> Body:
        return {"choices": "none", "usage": 3, "timings": [], "metrics": "x", "sglext": 1, "meta_info": []}

    with small_engine(replace(row.speaks, twist=twist)) as server:
        async with engine_of(row, server) as engine:
            answer = await ask(engine, row, stream=False)
            shown = await engine.probe(PROBE, None)
    assert (answer.status, answer.prompt_tokens, answer.cached_tokens) == ("failed", None, None)
    assert answer.reason in ("EmptyAnswer", "NoFinishReason")
    assert (shown.counter_alive, shown.cold_proof) == (False, None)


def test_the_table_has_families_with_totals() -> None:
    assert len([row for row in TABLE.values() if row.totals]) >= 6
