"""What a run that ended on its budget would need to go on to an answer."""

from __future__ import annotations

from dataclasses import dataclass

from prefillgate.core.decision import Reason, Ruling
from prefillgate.core.gate import Gate
from prefillgate.core.snapshot import clean_prefills_needed
from prefillgate.core.verdict import ThroughputView


@dataclass(frozen=True, slots=True)
class BudgetNeeded:
    """`more` prefills beyond those used, both arms, and what they would bring."""

    used: int
    more: int
    brings: str

    @property
    def budget(self) -> int:
        """The budget to ask for."""
        return self.used + self.more

    @property
    def sentence(self) -> str:
        """What a person may do."""
        return f"A budget of {self.budget} prefills ({self.more} more; --budget {self.budget}) would {self.brings}."


def budget_needed(gate: Gate, ruling: Ruling, speed: ThroughputView) -> BudgetNeeded | None:
    """The budget that would do; None where the run did not end on its budget, or no number is foreseen to.

    A replicate that is due or running is given all its pairs. Without one it is what promotes if nothing more is bad:
    the rest of the first pass, the clean candidate prefills that are missing, and the baseline halves of the pairs
    that are foreseen to decide the speed.
    """
    if ruling.reason is not Reason.BUDGET_SPENT or gate.plan.watching is not None:
        return None
    used, running = gate.prefills_used, gate.open_replicate
    if running is not None:
        rest = 2 * running.policy.max_pairs - len(running.candidate) - len(running.baseline)
        return BudgetNeeded(used, rest, f"let replicate {running.plan.number} run to its end")
    if gate.alarm:
        number = gate.plan.first_replicate + len(gate.replicates)
        return BudgetNeeded(used, 2 * gate.plan.policy.replicate.max_pairs, f"let replicate {number} run to its end")
    clean, pairs = clean_prefills_needed(gate), _pairs_missing(gate, speed)
    if clean is None or pairs is None:
        return None
    places = gate.places
    passes = len(places.baseline_pass) - places.passed + len(places.second_pass) - places.passed_again
    as_foreseen = " and the pairs go on as they did" if pairs else ""
    return BudgetNeeded(used, passes + max(clean, pairs) + pairs, f"promote if nothing more is bad{as_foreseen}")


def _pairs_missing(gate: Gate, speed: ThroughputView) -> int | None:
    """Pairs that promotion still waits for; None where no number is foreseen to decide the speed."""
    policy = gate.plan.policy.throughput
    return speed.pairs_needed if policy.required and policy.max_pairs else 0
