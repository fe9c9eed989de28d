"""Servers that misbehave in ways that neither llama-server nor the simulated one can be made to: a proxy says it.

Each rewrite is a fault of its own: endpoints that hang or break between cells, totals that are no numbers of tokens,
a marker that is another one at each look, an answer of ten megabytes.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from prefillgate.cli.errors import CouldNotMeasure
from prefillgate.core.cells import CANDIDATE, Status
from tests.support.rewriting import Rewrite, rewriting
from tests.support.runs import PROBES, bench, measured, stored
from tests.support.simulated import SimulatedServer, start_simulated


def verdict_behind(
    healthy: SimulatedServer, folder: Path, rewrites: dict[str, Rewrite], **policy: Any
) -> tuple[Any, Any]:
    """The verdict on a candidate behind a proxy that rewrites, and the gate."""
    work = bench(folder, budgetPrefills=20, **policy)
    with start_simulated(seed=2, text_seed=9) as candidate, rewriting(candidate.url, rewrites) as url:
        verdict = work.run(work.request(healthy.url, url)).verdict
    return verdict, stored(folder / "run.db")[0]


def after(looks: int, rewrite: Rewrite) -> Rewrite:
    """Rewrites from that look on."""
    count = 0

    async def counted(request: web.Request, body: bytes) -> web.StreamResponse | bytes:
        nonlocal count
        count += 1
        return body if count <= looks else await rewrite(request, body)

    return counted


async def broken(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(status=500, text="boom \x1b[31m")


async def huge(request: web.Request, body: bytes) -> bytes:
    lines = [
        line.rpartition(" ")[0] + " 1e308" if line[:1] != "#" and line else line for line in body.decode().split("\n")
    ]
    return ("\n".join([*lines, ""]) + "llamacpp:prompt_tokens_total 1e308\n").encode()


async def backwards(request: web.Request, body: bytes) -> bytes:
    text = body.decode()
    return text.replace("\nllamacpp:prompt_tokens_total ", "\nllamacpp:prompt_tokens_total -").encode()


async def not_metrics(request: web.Request, body: bytes) -> bytes:
    return b"<html>}{ 1 2 3"


def test_an_endpoint_that_breaks_in_the_middle_of_a_run_is_an_error_and_loses_no_cell(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    verdict, gate = verdict_behind(healthy, tmp_path, {"/metrics": after(12, broken), "/slots": after(12, broken)})
    assert (verdict.decision.reason, verdict.decision.measured) == ("InvalidCells", False)
    assert measured(gate, CANDIDATE, Status.OK)
    reasons = [event.reason for event in measured(gate, CANDIDATE, Status.INVALID)]
    assert len(reasons) >= 3 and set(reasons) <= {"HttpError", "NotVerified"}
    assert "HTTP 500" in verdict.decision.sentences[0] and "\x1b" not in verdict.decision.sentences[0]


@pytest.mark.parametrize("rewrite", [huge, not_metrics], ids=["huge", "not_metrics"])
def test_totals_that_are_no_counts_end_no_run(healthy: SimulatedServer, tmp_path: Path, rewrite: Rewrite) -> None:
    verdict, gate = verdict_behind(healthy, tmp_path, {"/metrics": after(4, rewrite)})
    assert verdict.decision.decision in ("hold", "promote")
    assert measured(gate, CANDIDATE)
    for event in measured(gate, CANDIDATE, Status.OK):
        moved = event.cell.counter_processed_tokens
        assert moved is None or moved == event.cell.processed_tokens


def test_totals_that_go_backwards_are_a_restart(healthy: SimulatedServer, tmp_path: Path) -> None:
    verdict, gate = verdict_behind(healthy, tmp_path, {"/metrics": after(2, backwards)})
    void = measured(gate, CANDIDATE, Status.INVALID)
    assert verdict.decision.reason == "InvalidCells"
    assert {event.reason for event in void} == {"EpochChanged"}
    assert len({seen.server_epoch for seen in gate.epochs[CANDIDATE]}) == len(gate.epochs[CANDIDATE]) > 1


def test_a_marker_that_changes_at_each_look_is_no_measurement(healthy: SimulatedServer, tmp_path: Path) -> None:
    count = 0

    async def other(request: web.Request, body: bytes) -> bytes:
        nonlocal count
        count += 1
        return json.dumps({**json.loads(body), "media_marker": f"<__media_X{count}__>"}).encode()

    with pytest.raises(CouldNotMeasure, match=r"candidate: .*restarted during its probe"):
        verdict_behind(healthy, tmp_path, {"/props": other})


def test_counters_that_hang_void_the_cell_and_not_the_run(
    healthy: SimulatedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefillgate.engines.http import EngineOptions

    async def hang(request: web.Request, body: bytes) -> bytes:
        await asyncio.sleep(60)
        return body

    # The patience itself, 90 s, is not under test.
    impatient = EngineOptions(read_timeout_seconds=1.5)
    monkeypatch.setattr("prefillgate.engines.access.EngineOptions", lambda **_: impatient)
    verdict, gate = verdict_behind(healthy, tmp_path, {"/metrics": after(4, hang)})
    assert verdict.decision.reason == "InvalidCells"
    assert [event.reason for event in measured(gate, CANDIDATE, Status.INVALID)][1:] == ["Timeout"] * 2


def test_an_answer_of_ten_megabytes_is_judged_and_kept_whole(healthy: SimulatedServer, tmp_path: Path) -> None:
    text = " ".join(f"word{number}" for number in range(1_000_000))
    count = 0

    async def big(request: web.Request, body: bytes) -> bytes:
        nonlocal count
        count += 1
        if b'"stream":true' not in await request.read() or count != PROBES + 3:
            return body
        first = body.index(b'"text":"') + len(b'"text":"')
        return body[:first] + text.encode() + b" " + body[first:]

    work = bench(tmp_path, budgetPrefills=18)
    with start_simulated(seed=2, text_seed=9) as candidate, rewriting(candidate.url, {"/v1/completions": big}) as url:
        verdict = work.run(work.request(healthy.url, url)).verdict
    _, texts = stored(tmp_path / "run.db")
    assert verdict.decision.decision == "promote"
    assert max(len(said.content) for said in texts.values()) > len(text)


def test_a_fault_of_our_own_is_an_invalid_cell_and_not_the_end_of_the_run(
    healthy: SimulatedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefillgate.engines.llama_cpp import LlamaCpp

    true, count = LlamaCpp.generate, 0

    async def sometimes(self: LlamaCpp, *given: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2 * PROBES + 5:
            raise RuntimeError("a bug")
        return await true(self, *given)

    monkeypatch.setattr(LlamaCpp, "generate", sometimes)  # a bug cannot be ordered over a socket
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate:
        verdict = work.run(work.request(healthy.url, candidate.url)).verdict
    gate, _ = stored(tmp_path / "run.db")
    (void,) = measured(gate, None, Status.INVALID)
    assert verdict.decision.decision == "promote"
    assert (void.reason, void.detail) == ("HarnessFault", "RuntimeError: a bug")
