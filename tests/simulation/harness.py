"""Steps the shipped schedule, decision and replicate code cell by cell against a planted truth."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.cells import CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import (
    CaseRef,
    CellChecked,
    CellMeasured,
    CheckOutcome,
    EpochSeen,
    Planned,
    ReplicateStarted,
    SeparationKept,
)
from prefillgate.core.policy import Policy
from prefillgate.core.schedule import CheckCell, RunCell, Separate, StartReplicate, Stop, next_step
from prefillgate.core.verdict import Outcome

PROMPTS = 12


def quality_only(policy: Policy) -> Policy:
    """The policy of STATISTICS.md section 6: throughput left out, no baseline pass, both arms counted."""
    return replace(policy, baseline_pass=0, throughput=replace(policy.throughput, required=False, max_pairs=0))


@dataclass(frozen=True)
class Run:
    outcome: Outcome
    prefills: int


def new_gate(seed: int, policy: Policy, prompts: int = PROMPTS) -> Gate:
    """A gate with a plan and both epochs probed."""
    gate = Gate()
    cases = tuple(CaseRef(f"case-{i}", f"sha-{i}", 100 + i) for i in range(prompts))
    gate.apply(Planned("run", 0.0, seed, policy, cases, "set", "sha", "http://b", "http://c"))
    for arm in ("baseline", "candidate"):
        gate.apply(EpochSeen(arm, "epoch", 0.0, "llama.cpp", "b1", "m", True, "cache_off", False))
    return gate


def measured(step: RunCell) -> CellMeasured:
    """A fresh answer with two witnesses."""
    cell = Cell(
        step.arm,
        step.case_id,
        status=Status.OK,
        replicate=step.replicate,
        server_epoch="epoch",
        prompt_tokens=100,
        cached_tokens=0,
        processed_tokens=100,
        cold_proof=ColdProof.CACHE_OFF,
    )
    return CellMeasured(step.cell_id, cell, step.purpose, pair=step.pair, round=step.round)


def simulate_run(seed: int, baseline_rate: float, candidate_rate: float, policy: Policy | None = None) -> Run:
    """One run from plan to stop; every fresh prefill is bad at its arm's rate, independently."""
    generator = random.Random(seed)
    gate = new_gate(seed, policy or quality_only(STANDARD))
    pending: RunCell | None = None
    while True:
        step = next_step(gate)
        if isinstance(step, Stop):
            return Run(step.ruling.decision, gate.prefills_used)
        if isinstance(step, RunCell):
            pending = step
            gate.apply(measured(step))
        elif isinstance(step, CheckCell):
            assert pending is not None
            rate = candidate_rate if pending.arm == CANDIDATE else baseline_rate
            gate.apply(CellChecked(step.cell_id, (CheckOutcome("planted", "1", generator.random() < rate),)))
        elif isinstance(step, StartReplicate):
            gate.apply(ReplicateStarted(step.number, 0.0, step.seed))
        elif isinstance(step, Separate):
            gate.apply(SeparationKept(step.number, 0.0, "gap"))
