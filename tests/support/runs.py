"""Runs for tests: small replay sets and policies, and `prefillgate run` in this process or as a child.

A run in this process takes a `Watch`, which can act at a chosen event (restart a server, raise). A child is for what
only a process has: signals, kill -9, exit codes, bytes on its streams.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from prefillgate.api.policy import load_policy
from prefillgate.cli.running import Finished, execute
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.gate import Gate, fold
from prefillgate.core.journal import CellMeasured, Event, Texts
from prefillgate.core.schedule import Separate
from prefillgate.core.shape import Shape
from prefillgate.evidence import SqliteJournal
from prefillgate.replay.lane import LaneTimes
from prefillgate.replay.replay_set import load_replay_set
from prefillgate.replay.session import ArmRequest, RunRequest
from tests.support.simulated import SimulatedServer

CHILD_SECONDS = 180
PROBES = 3  # generations of one capability probe
HASTY = LaneTimes(
    cell_timeout_seconds=20.0,
    idle_timeout_seconds=5.0,
    idle_poll_seconds=0.02,
    settle_seconds=0.3,
    refused_pause_seconds=0.05,
    invalid_pause_seconds=0.02,
)
QUALITY: dict[str, Any] = {
    "marginPercent": 20,
    "acceptance": [16, 25, 35],
    "budgetPrefills": 150,
    "baselinePassPrefills": 2,
    "throughput": {"mode": "Report", "minOutputTokens": 100_000},
    "replicate": {"gapSeconds": 600},
}
"""The quick policy's numbers without speed, so that a run costs 18 cells."""


def write_set(path: Path, cases: int = 5, words: int = 40, **body: Any) -> Path:
    """A set of completions whose prompts share no prefix; `case-N` stands in the prompt of case N."""
    lines = []
    for number in range(cases):
        text = f"case-{number} " + " ".join(f"w{number}x{word}" for word in range(words))
        sent = {"model": "m", "prompt": text, "max_tokens": 200, "temperature": 0, **body}
        line = {"custom_id": f"case-{number}", "method": "POST", "url": "/v1/completions", "body": sent}
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def write_policy(path: Path, **changes: Any) -> Path:
    """`QUALITY` with changes, as a policy file."""
    spec = {**QUALITY, **changes}
    document = {
        "apiVersion": "prefillgate.io/v1alpha1",
        "kind": "PromotionPolicy",
        "metadata": {"name": "test"},
        "spec": spec,
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@dataclass
class Watch:
    """A watcher that remembers every event and does what a test planned at some of them."""

    acts: list[Callable[[Gate, Event], None]] = field(default_factory=list)
    waits: list[Callable[[Gate, Separate], None]] = field(default_factory=list)
    looks: int = 0

    def event(self, gate: Gate, event: Event) -> None:
        for act in self.acts:
            act(gate, event)

    def waiting(self, gate: Gate, step: Separate) -> None:
        self.looks += 1
        for act in self.waits:
            act(gate, step)


@dataclass(frozen=True)
class Bench:
    """A folder with one set and one policy, and runs over them."""

    folder: Path
    set_path: Path
    policy_path: Path

    def request(self, baseline: str | None, candidate: str, store: str = "run.db", **more: Any) -> RunRequest:
        """What is asked of a run in this process. Without a baseline its shape is a candidate alone."""
        models = {arm: more.pop(f"{arm}_model", None) for arm in (BASELINE, CANDIDATE)}
        further = more.pop("more_candidates", ())
        engine = more.pop("engine", "auto")
        times = replace(HASTY, **more.pop("times", {}))
        return RunRequest(
            baseline=None if baseline is None else ArmRequest(baseline, models[BASELINE], engine),
            candidate=ArmRequest(candidate, models[CANDIDATE], engine, more_urls=further),
            replay_set=load_replay_set(str(self.set_path)),
            policy=load_policy(self.policy_path),
            store=self.folder / store,
            seed=more.pop("seed", 5),
            times=times,
            shape=more.pop("shape", Shape(candidate_alone=baseline is None, candidate_lanes=1 + len(further))),
            **more,
        )

    def run(self, request: RunRequest, watch: Watch | None = None) -> Finished:
        """Run to its end in this process; the journal is closed."""
        finished = asyncio.run(execute(request, watch or Watch()))
        finished.journal.close()
        return finished

    def arguments(self, baseline: str | None, candidate: str, *more: str) -> list[str]:
        """The same as a command line, with paths relative to the folder."""
        given = [*([] if baseline is None else ["--baseline", baseline]), "--candidate", candidate]
        files = ["--replay-set", self.set_path.name, "--policy", self.policy_path.name]
        return ["run", *given, *files, "--seed", "5", *more]

    def child(self, *arguments: str) -> Ended:
        """Run `prefillgate ARGUMENTS` in the folder, to its end."""
        return ended(start(arguments, self.folder))


def bench(folder: Path, cases: int = 5, **policy: Any) -> Bench:
    """A bench with `cases` cases and `QUALITY` with changes."""
    return Bench(folder, write_set(folder / "set.jsonl", cases), write_policy(folder / "policy.yaml", **policy))


@dataclass(frozen=True)
class Ended:
    """A child that ended. Streams are raw bytes."""

    code: int
    out: bytes
    err: bytes

    @property
    def lines(self) -> list[str]:
        """Standard error by lines."""
        return self.err.decode("utf-8").splitlines()

    @property
    def said(self) -> str:
        """Standard error as text."""
        return self.err.decode("utf-8")

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


def start(arguments: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """`prefillgate ARGUMENTS` as a child in `folder`."""
    return subprocess.Popen(
        [sys.executable, "-m", "prefillgate", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[bytes]) -> Ended:
    """Wait for a child; one that hangs is ended and fails the test."""
    try:
        out, err = process.communicate(timeout=CHILD_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        raise AssertionError(f"the child did not end: {err.decode('utf-8', 'replace')[-2000:]}") from None
    return Ended(process.returncode, out, err)


def stored(path: Path) -> tuple[Gate, dict[int, Texts]]:
    """What a store holds: the gate folded from it, and the texts of its cells."""
    with SqliteJournal.open_readonly(path) as journal:
        gate = fold(journal.events())
        texts = {cell_id: found for cell_id in gate.measured if (found := journal.texts(cell_id)) is not None}
    return gate, texts


def measured(gate: Gate, arm: str | None = None, status: Status | None = None) -> list[CellMeasured]:
    """Cells of an arm and a status, in the order measured."""
    return [
        event
        for event in gate.measured.values()
        if arm in (None, event.cell.arm) and status in (None, event.cell.status)
    ]


def generations(*servers: SimulatedServer) -> list[dict[str, Any]]:
    """What the servers were really asked to generate, probes included, in order of time."""
    return sorted((line for server in servers for line in server.truth()), key=lambda line: line["started_at"])


def probes(lines: Sequence[dict[str, Any]]) -> int:
    """How many of the true lines are answers to the capability probe: two tokens."""
    return sum(1 for line in lines if line["output_tokens"] == 2)
