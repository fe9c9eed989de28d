"""Stores for tests of the offline commands: a journal stepped by the shipped schedule, without a server."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.cells import ARMS, CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import (
    CaseRef,
    CellChecked,
    CellMeasured,
    CheckOutcome,
    EpochSeen,
    Event,
    Planned,
    ReplicateStarted,
    SeparationKept,
)
from prefillgate.core.policy import Policy
from prefillgate.core.schedule import CheckCell, RunCell, Separate, StartReplicate, Stop, next_step
from prefillgate.evidence import SqliteJournal

CELL_SECONDS = 60.0
BEGAN = 1_790_000_000.0
GATED = replace(STANDARD, baseline_pass=2, throughput=replace(STANDARD.throughput, required=False, max_pairs=4))


@dataclass
class Played:
    """A run without a server: every cell takes a minute, is bad at its arm's rate and now and then invalid."""

    seed: int = 1
    baseline_rate: float = 0.0
    candidate_rate: float = 0.0
    invalid_rate: float = 0.0
    failed_rate: float = 0.0
    policy: Policy = GATED
    prompts: int = 6
    most_cells: int = 1000
    gate: Gate = field(default_factory=Gate)
    events: list[Event] = field(default_factory=list)

    def play(self) -> Gate:
        """Step until the schedule stops, or `most_cells` were measured."""
        self._generator, self._now = random.Random(self.seed), BEGAN
        cases = tuple(CaseRef(f"case {i}", f"{i:064x}", 100 + i) for i in range(self.prompts))
        self._apply(Planned("run", BEGAN, self.seed, self.policy, cases, "set", "0" * 64, "http://b", "http://c"))
        for arm in ARMS:
            self._apply(EpochSeen(arm, f"{arm}-1", BEGAN, "llama.cpp", "b1", "m", True, "cache_off", False))
        while not isinstance(step := next_step(self.gate), Stop) and len(self.gate.measured) < self.most_cells:
            if isinstance(step, RunCell):
                self._apply(self._measured(step))
            elif isinstance(step, CheckCell):
                arm = self.gate.measured[step.cell_id].cell.arm
                rate = self.candidate_rate if arm == CANDIDATE else self.baseline_rate
                bad = self._generator.random() < rate
                self._apply(CellChecked(step.cell_id, (CheckOutcome("planted", "1", bad),)))
            elif isinstance(step, StartReplicate):
                self._apply(ReplicateStarted(step.number, self._now, step.seed))
            elif isinstance(step, Separate):
                self._now += 600.0
                self._apply(SeparationKept(step.number, self._now, "gap"))
        return self.gate

    def _apply(self, event: Event) -> None:
        self.gate.apply(event)
        self.events.append(event)

    def _measured(self, step: RunCell) -> CellMeasured:
        chance, began = self._generator.random(), self._now
        self._now += CELL_SECONDS
        length = 300 + 10 * (step.cell_id % 3)
        cell = Cell(
            step.arm,
            step.case_id,
            replicate=step.replicate,
            server_epoch=f"{step.arm}-1",
            started_at=began + self._generator.random(),
            ended_at=self._now - 1,
            prompt_sha256=f"{int(step.case_id.split()[1]):064x}",
            prompt_tokens=length,
            cached_tokens=0,
            processed_tokens=length,
            output_tokens=40,
            prefill_ms=length * 4.0 * (1 + self._generator.random() / 5),
            decode_ms=1500.0,
            finish_reason="stop",
            cold_proof=ColdProof.CACHE_OFF,
            counter_alive=True,
            counter_processed_tokens=length,
            request_id=f"r{step.cell_id}",
            choice_index=0,
            output_sha256=f"{step.cell_id % 9:064x}",
        )
        place = {"pair": step.pair, "round": step.round, "attempt": step.attempt}
        told = {
            "cached_tokens": None,
            "processed_tokens": None,
            "output_tokens": None,
            "counter_processed_tokens": None,
        }
        if chance < self.invalid_rate:
            lost = replace(cell, status=Status.INVALID, **told)
            return CellMeasured(step.cell_id, lost, step.purpose, reason="OtherTraffic", detail="busy\x1b[2J", **place)
        if chance < self.invalid_rate + self.failed_rate:
            dead = replace(cell, status=Status.FAILED, **told)
            return CellMeasured(step.cell_id, dead, step.purpose, reason="ConnectionLost", http_status=200, **place)
        return CellMeasured(step.cell_id, cell, step.purpose, http_status=200, **place)

    def keep(self, path: Path) -> Path:
        """Write the journal to a store."""
        first, *rest = self.events
        assert isinstance(first, Planned)
        with SqliteJournal.create(path, first) as journal:
            for event in rest:
                journal.append(event)
        return path
