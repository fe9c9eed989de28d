"""The list every engine family is held to, item by item: `tests/support/engine_table.py` says what each one tells.

A new engine file without a row there, or with a row that its server does not keep, is red here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.cells import ColdProof
from prefillgate.engines import capability, registry
from prefillgate.engines.base import Activity, Answer, Capabilities, CellRequest, Engine, Look
from prefillgate.engines.capability import Seen, Standing, capability_report
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.registry import FAMILIES, detect, flags_of
from prefillgate.engines.vllm import salt_of
from prefillgate.replay.request import FRESHNESS_FIELDS, foreign_changes
from tests.support.engine_table import PROBE, TABLE, Row, nonce_stripped, renamed_fields, without_fields
from tests.support.small_engines import CHAT, COMPLETIONS, Body, SmallEngine, Speaks, small_engine

SHORT = EngineOptions(probe_words=120, attempts=1)
ROWS = list(TABLE.values())
COUNTING = [row for row in ROWS if row.proof is not None]
THOUGHT, SAID = "Let me think.", "The ferry leaves at noon"


def named(row: Any) -> str | None:
    return row.name if isinstance(row, Row) else None


every_row = pytest.mark.parametrize("row", ROWS, ids=named)
every_counting_row = pytest.mark.parametrize("row", COUNTING, ids=named)


def engine_of(row: Row, server: SmallEngine) -> Engine:
    return registry.create(row.name, server.url, SHORT)


async def probed(row: Row, speaks: Speaks) -> Capabilities:
    with small_engine(speaks) as server:
        async with engine_of(row, server) as engine:
            return await engine.probe(PROBE, (await engine.discover()).model)


def cell(path: str, proof: str | None, stream: bool = True, nonce: str = "n-1") -> CellRequest:
    text = "Notes of the week. " * 40
    body: Body = {"max_tokens": 12, "temperature": 0}
    body |= {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    return CellRequest(path, body, None, 7, nonce, proof, stream)


async def ask(engine: Engine, request: CellRequest) -> Answer:
    return await engine.generate(engine.prepare(request), 10)


def on_routes(rows: list[Row]) -> list[tuple[Row, str]]:
    return [(row, path) for row in rows for path in row.routes]


# -- the table itself


def test_every_family_of_the_registry_has_a_row_and_the_fields_that_decide_there() -> None:
    assert list(TABLE) and sorted(TABLE) == sorted(family.name for family in FAMILIES)
    assert [row.name for row in COUNTING if not row.speaks.decides] == []
    assert [row.name for row in ROWS if not row.without] == []


@every_row
async def test_a_family_is_found_by_itself_and_by_name(row: Row) -> None:
    with small_engine(row.speaks) as server:
        assert (await detect(server.url, SHORT)).name == registry.create(row.name, server.url).name == row.name


# -- who is there


@every_row
async def test_build_model_weights_and_life_are_told_or_unknown_and_never_made_up(row: Row) -> None:
    with small_engine(row.speaks) as server, small_engine(row.speaks) as other:
        async with engine_of(row, server) as engine, engine_of(row, other) as second:
            found, again, epoch, apart = (
                await engine.discover(),
                await engine.discover(),
                await engine.epoch(),
                await second.epoch(),
            )
    assert found == again
    assert (found.engine, found.model) == (row.name, found.models[0])
    assert (found.build is not None) is row.build
    assert (found.server_epoch is not None, epoch) == (row.epoch, found.server_epoch)
    assert epoch is None or epoch != apart, "two lives are two markers"


@every_row
async def test_whatever_a_server_lacks_is_a_line_of_doctor_with_a_flag_or_the_word_none(row: Row) -> None:
    for speaks in (row.speaks, replace(row.speaks, metrics=None)):
        with small_engine(speaks) as server:
            async with engine_of(row, server) as engine:
                found, shown, look = await engine.discover(), await engine.probe(PROBE, None), await engine.look()
        seen = Seen(found, shown, look, key_given=False, keyless=None)
        lacking = {line.name: line.flag for line in capability_report(seen, flags_of(row.name)) if not_ok(line)}
        assert {name for name, flag in lacking.items() if not flag} == set()


def not_ok(line: capability.Capability) -> bool:
    return line.standing is not Standing.OK


# -- the knob, both witnesses, the probe


@pytest.mark.parametrize(("row", "path"), on_routes(COUNTING), ids=lambda value: getattr(value, "name", value))
def test_the_knob_is_put_into_the_body_and_nothing_else_of_it_is_touched(row: Row, path: str) -> None:
    engine = registry.create(row.name, "http://host")
    proof = row.proof_on(path)
    assert proof is not None
    asked = cell(path, proof)
    sent, plain = engine.prepare(asked), engine.prepare(replace(asked, cold_proof=None))
    assert foreign_changes(asked.body, sent.body, proof) == ()
    assert foreign_changes(asked.body, plain.body, None) == ()
    fields = FRESHNESS_FIELDS[proof]
    knob = {name: sent.body.get(name) for name in fields}
    assert knob != {name: plain.body.get(name) for name in fields}
    if proof is not ColdProof.CACHE_OFF:
        renewed = engine.prepare(replace(asked, nonce="n-2")).body
        assert knob != {name: renewed.get(name) for name in fields}
        assert "n-1" in str(knob) or salt_of("n-1") in str(knob)
    assert (sent.body["n"], sent.body["seed"]) == (1, 7)


@every_row
async def test_the_probe_shows_the_knob_and_both_witnesses_or_says_what_would(row: Row) -> None:
    shown = await probed(row, row.speaks)
    assert (shown.counter_alive, shown.cold_proof) == (row.proof is not None, row.proof)
    assert dict(shown.route_proofs) == row.elsewhere
    assert shown.counters_agree is (True if row.totals else None)
    if row.proof is None:
        assert any("independence unknown" in told and row.without in told for told in shown.findings), shown.findings


@every_counting_row
async def test_without_totals_the_replies_stand_alone_and_nothing_is_said_to_agree(row: Row) -> None:
    shown = await probed(row, replace(row.speaks, metrics=None))
    assert shown.counters_agree is None
    assert shown.cold_proof == row.proof
    if row.totals:
        assert any("second witness" in told for told in shown.findings), shown.findings


FAULTS: dict[str, tuple[Callable[[Speaks], Speaks], str]] = {
    "absent": (lambda s: replace(s, twist=lambda told: without_fields(told, s.decides)), "{without}"),
    "null": (lambda s: replace(s, twist=lambda told: without_fields(told, s.decides, None)), "{without}"),
    "renamed": (lambda s: replace(s, twist=lambda told: renamed_fields(told, s.decides)), "{without}"),
    "no number": (lambda s: replace(s, twist=lambda told: without_fields(told, s.decides, "12")), "{without}"),
    "negative": (lambda s: replace(s, twist=lambda told: without_fields(told, s.decides, -1)), "{without}"),
    "always zero": (lambda s: replace(s, lie=lambda prompt, cached: 0), "the counter is dead or"),
    "inflated": (lambda s: replace(s, lie=lambda prompt, cached: prompt - 1), "the counter cannot be trusted"),
}


@pytest.mark.parametrize("fault", FAULTS)
@every_counting_row
async def test_a_deciding_field_that_is_absent_null_zero_inflated_or_renamed_proves_nothing(
    row: Row, fault: str
) -> None:
    spoil, words = FAULTS[fault]
    shown = await probed(row, spoil(row.speaks))
    assert (shown.counter_alive, shown.cold_proof) == (False, None)
    expected = words.format(without=row.without)
    assert any(expected in told and "independence unknown" in told for told in shown.findings), shown.findings


@every_counting_row
async def test_a_knob_that_is_ignored_is_seen_by_the_counter_and_told_as_it_was_seen(row: Row) -> None:
    ignoring = replace(row.speaks, salt_field=None, cache_flag=None, sees=nonce_stripped)
    shown = await probed(row, ignoring)
    assert (shown.counter_alive, shown.cold_proof) == (True, None)
    assert shown.knob_ignored in shown.findings and shown.knob_ignored is not None
    counted = "and the server's own totals agree" if row.totals else "and the server tells no totals that could confirm"
    assert "prompt tokens of two forced requests came from the cache, " + counted in shown.knob_ignored
    assert "; what would give proof: " in shown.knob_ignored
    assert (await probed(row, row.speaks)).knob_ignored is None


@every_counting_row
async def test_a_reply_without_usage_leaves_every_count_that_only_it_tells_unknown(row: Row) -> None:
    for usage in (None, [], "many", 7):
        speaks = replace(row.speaks, twist=lambda told, usage=usage: {**told, "usage": usage})
        shown = await probed(row, speaks)
        assert (shown.cold_proof, shown.counter_alive) == (None, False)
        with small_engine(speaks) as server:
            async with engine_of(row, server) as engine:
                answer = await ask(engine, cell(row.routes[0], row.proof))
        assert (answer.status, answer.prompt_tokens, answer.output_tokens) == ("ok", None, None)
        assert any("usage" in finding for finding in answer.findings)


# -- one cell: counters, deltas, drafts, reasoning


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("row", "path"), on_routes(ROWS), ids=lambda value: getattr(value, "name", value))
async def test_a_cell_is_read_alike_streamed_and_whole_and_the_totals_move_by_what_it_tells(
    row: Row, path: str, stream: bool
) -> None:
    thinking = row.speaks.reasoning_field or "reasoning_content"
    speaks = replace(row.speaks, reasoning_field=thinking if path == CHAT else None)
    with small_engine(speaks) as server:
        async with engine_of(row, server) as engine:
            await engine.probe(PROBE, None)
            before = await engine.look()
            answer = await ask(engine, cell(path, row.proof_on(path), stream))
            after = await engine.look()
    assert (answer.status, answer.output_tokens, answer.content[: len(SAID)]) == ("ok", 12, SAID)
    assert answer.reasoning == (THOUGHT if path == CHAT else "")
    assert answer.prompt_tokens is not None and answer.prompt_tokens > 120
    assert answer.cached_tokens == (None if row.proof is None else answer.cached_tokens)
    assert row.proof is None or (answer.cached_tokens or 0) <= 1
    assert (answer.draft_tokens, answer.draft_accepted_tokens) == (
        (12, 9) if "reply" in row.speculation else (None, None)
    )
    assert moved(before, after, "prompt_tokens_processed") == (
        answer.prompt_tokens - (answer.cached_tokens or 0) if row.totals else None
    )
    assert moved(before, after, "output_tokens") in ((12,) if row.totals else (12, None))


def moved(before: Look, after: Look, name: str) -> float | None:
    told = [None if look.counters is None else getattr(look.counters, name) for look in (before, after)]
    return None if None in told else told[1] - told[0]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@every_row
async def test_tokens_of_the_reasoning_are_counted_apart_where_the_reply_tells_them(row: Row, stream: bool) -> None:
    def twist(told: Body) -> Body:
        return {**told, "usage": {**told["usage"], "completion_tokens_details": {"reasoning_tokens": 5}}}

    answers = []
    for speaks in (row.speaks, replace(row.speaks, twist=twist)):
        speaks = replace(speaks, reasoning_field=speaks.reasoning_field or "reasoning_content")
        with small_engine(speaks) as server:
            async with engine_of(row, server) as engine:
                answers.append(await ask(engine, cell(CHAT, row.proof, stream)))
    assert [answer.reasoning_tokens for answer in answers] == [None, 5]
    assert [answer.output_tokens for answer in answers] == [12, 12]


@every_row
async def test_drafts_are_told_by_settings_and_totals_where_the_family_tells_them(row: Row) -> None:
    with small_engine(row.speaks) as server:
        async with engine_of(row, server) as engine:
            await ask(engine, cell(row.routes[0], row.proof))
            found, look = await engine.discover(), await engine.look()
    assert dict(found.settings).get("speculation") == ("on" if "settings" in row.speculation else None)
    told = None if look.counters is None else (look.counters.draft_tokens, look.counters.draft_accepted_tokens)
    assert (told in (None, (None, None))) is ("totals" not in row.speculation)
    if "totals" in row.speculation:
        assert told == (12, 9)


# -- idleness


@every_row
async def test_work_of_others_is_seen_or_unknown_and_an_idle_server_is_idle(row: Row) -> None:
    with small_engine(row.speaks) as server:
        async with engine_of(row, server) as engine:
            await engine.probe(PROBE, None)
            idle = await engine.look()
            server.totals.running = 2
            busy, asked = await engine.look(), await engine.activity()
    assert idle.activity.idle is (True if row.idle else None)
    assert busy.activity.idle is (False if row.idle else None)
    assert asked.idle is busy.activity.idle
    assert row.idle or busy.activity == Activity()


# -- the route that carries no proof


@pytest.mark.parametrize(
    ("row", "path"),
    [(row, path) for row in COUNTING for path in (CHAT, COMPLETIONS) if path not in row.routes],
    ids=lambda value: getattr(value, "name", value),
)
async def test_a_route_without_a_counter_leaves_cached_tokens_unknown_and_never_zero(row: Row, path: str) -> None:
    with small_engine(replace(row.speaks, reasoning_field=None)) as server:
        async with engine_of(row, server) as engine:
            await engine.probe(PROBE, None)
            assert (await ask(engine, cell(path, row.proof))).cached_tokens is None
