"""The three parts of the demo, on real llama.cpp servers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from prefillgate.api.policy import load_policy
from prefillgate.cli.errors import CouldNotMeasure
from prefillgate.cli.outcome import say, summary, write_report
from prefillgate.cli.progress import Progress
from prefillgate.cli.running import Finished, execute
from prefillgate.core.audit import audit_facts
from prefillgate.core.cells import BASELINE, Cell, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import Difference
from prefillgate.core.judge import write_verdict
from prefillgate.core.schedule import Separate
from prefillgate.core.verdict import ArmCounts, Outcome, Rollback, Verdict
from prefillgate.engines.base import Answer, CellRequest
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.registry import detect
from prefillgate.hosts.llama_server import LlamaServer, ServerStartError
from prefillgate.replay.replay_set import load_replay_set
from prefillgate.replay.session import ArmRequest, RunRequest

COMMON = ("-t", "1", "--cache-ram", "0", "-np", "1", "-c", "2048")
BASELINE_KV = ("-ctk", "q8_0", "-ctv", "q8_0")
CANDIDATE_KV = ("-ctk", "f16", "-ctv", "f16")
WRONG_ROPE = ("--rope-freq-base", "10000")
SEED = 270
REPEATS = 3
KV_DIFFERENCE = Difference("KV cache", "cache type (k, v)", "q8_0", "f16")
ROPE_DIFFERENCE = Difference("other", "rope frequency base", "the model's own", "10000")


@dataclass(slots=True)
class Part:
    """One part of the demo: its name, how long it took, and whether it came out as expected."""

    name: str
    expected: str
    seconds: float = 0.0
    came_out: str = ""

    @property
    def as_expected(self) -> bool:
        """Whether what was computed is what was expected."""
        return self.came_out == self.expected


class Restarter(Progress):
    """Progress that restarts the candidate, once for each replicate that waits for it."""

    def __init__(self, restart: Callable[[], object]) -> None:
        super().__init__()
        self._restart = restart
        self._restarted: set[int] = set()

    def waiting(self, gate: Gate, step: Separate) -> None:
        """Restart the candidate in the background at the first look; the runner sees its new epoch by itself."""
        super().waiting(gate, step)
        if step.number not in self._restarted:
            self._restarted.add(step.number)
            say("demo: restarting the candidate, so that the replicate stands apart from what triggered it")
            threading.Thread(target=self._restart, daemon=True).start()


def play_demo(folder: Path) -> int:
    """Play the three parts; 0 when all came out as expected."""
    folder.mkdir(parents=True, exist_ok=True)
    parts: list[Part] = []
    try:
        with _servers(folder) as (baseline, candidate):
            with _timed(parts, "baseline q8_0 against candidate f16", "promote") as part:
                part.came_out, _ = _gate(folder, "promote", (baseline, candidate), (KV_DIFFERENCE,))
            with _timed(parts, "candidate with a wrong rope base", "rollback after replicate") as part:
                candidate.restart(WRONG_ROPE)
                part.came_out, report = _gate(
                    folder, "rollback", (baseline, candidate), (KV_DIFFERENCE, ROPE_DIFFERENCE)
                )
            with _timed(parts, "four prompts three times with the cache on", "12 requests, 4 prefills") as part:
                part.came_out = asyncio.run(_copies(baseline.url))
    except ServerStartError as error:
        raise CouldNotMeasure(str(error)) from error
    return conclude(parts, report)


def conclude(parts: Sequence[Part], report: Path) -> int:
    """Print each part's seconds and what came out, and the report's path last; 0 when all is as expected, else 1."""
    click.echo()
    for part in parts:
        verdict = "as expected" if part.as_expected else f"NOT as expected ({part.expected})"
        click.echo(f"{part.seconds:6.0f} s  {part.name}: {part.came_out}, {verdict}")
    click.echo(f"{report}")
    return 0 if all(part.as_expected for part in parts) else 1


@contextmanager
def _timed(parts: list[Part], name: str, expected: str) -> Iterator[Part]:
    part = Part(name, expected)
    parts.append(part)
    click.echo(f"\n{len(parts)}. {name}")
    began = time.monotonic()
    yield part
    part.seconds = time.monotonic() - began


@contextmanager
def _servers(folder: Path) -> Iterator[tuple[LlamaServer, LlamaServer]]:
    say("demo: starting two real llama.cpp servers")
    with (
        LlamaServer((*COMMON, *BASELINE_KV), log_path=folder / "baseline.log") as baseline,
        LlamaServer((*COMMON, *CANDIDATE_KV), log_path=folder / "candidate.log") as candidate,
    ):
        say(f"demo: baseline {baseline.url} {baseline.version()}, candidate {candidate.url} {candidate.version()}")
        yield baseline, candidate


def _gate(
    folder: Path, name: str, servers: tuple[LlamaServer, LlamaServer], differences: tuple[Difference, ...]
) -> tuple[str, Path]:
    """One run of the gate: what came out of it, and its report."""
    baseline, candidate = servers
    request = RunRequest(
        baseline=ArmRequest(baseline.url),
        candidate=ArmRequest(candidate.url),
        replay_set=load_replay_set("demo"),
        policy=load_policy("quick"),
        store=folder / f"{name}.db",
        seed=SEED,
        differences=differences,
    )
    finished = asyncio.run(execute(request, Restarter(lambda: candidate.restart(WRONG_ROPE))))
    report = folder / f"{name}.html"
    with finished.journal:
        write_report(finished.verdict, finished.journal, report)
    click.echo(summary(finished.verdict, request.store, report), nl=False)
    return _came_out(finished), report


def _came_out(finished: Finished) -> str:
    """The decision in words; a rollback says what stands behind it."""
    verdict = finished.verdict
    if verdict.decision.rollback is not Rollback.ALLOWED:
        return str(verdict.decision.decision)
    confirmed = [replicate for replicate in verdict.replicates if replicate.ending == "confirmed"]
    apart = bool(confirmed) and confirmed[-1].separation == "restart"
    return f"{Outcome.ROLLBACK} after replicate" if apart else f"{Outcome.ROLLBACK}, {verdict.decision.reason}"


async def _copies(url: str) -> str:
    """Send four prompts three times in a row with the cache as it is, and count prefills by the rules."""
    replay_set = load_replay_set("four")
    cells: list[Cell] = []
    async with await detect(url, EngineOptions()) as engine:
        identity = await engine.discover()
        for case in replay_set.cases:
            for _ in range(REPEATS):
                request = CellRequest(case.path, case.body, identity.model, SEED, "", None)
                answer = await engine.generate(engine.prepare(request), 600.0)
                cells.append(_cell(case.case_id, case.sha256, answer, identity.server_epoch))
                told = (answer.prompt_tokens, answer.cached_tokens, answer.processed_tokens)
                prompt, cached, processed = map(_told, told)
                click.echo(f"   {case.case_id:<18} prompt {prompt}, cached {cached}, processed {processed}")
    counts = _counted(cells)
    click.echo(f"   {counts.requests} requests, {counts.prefills} prefills, {counts.copies} copies")
    return f"{counts.requests} requests, {counts.prefills} prefills"


def _counted(cells: list[Cell]) -> ArmCounts:
    verdict: Verdict = write_verdict(audit_facts(cells, load_policy("quick").policy, "four"))
    return next(counts for arm, _, counts in verdict.arms if arm == BASELINE)


def _cell(case_id: str, sha256: str, answer: Answer, epoch: str | None) -> Cell:
    return Cell(
        arm=BASELINE,
        case_id=case_id,
        status=Status.OK if answer.reason is None else Status.FAILED,
        bad=None,
        server_epoch=epoch,
        started_at=answer.started_at,
        ended_at=answer.ended_at,
        prompt_sha256=sha256,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        processed_tokens=answer.processed_tokens,
        output_tokens=answer.output_tokens,
        prefill_ms=answer.prefill_ms,
        decode_ms=answer.decode_ms,
        request_id=answer.request_id,
    )


def _told(value: int | None) -> str:
    return "unknown" if value is None else f"{value:>4}"
