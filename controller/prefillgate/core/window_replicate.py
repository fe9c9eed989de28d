"""The replicate of a sequential run: its pairs are pairs of windows, each in a life of its server of its own.

In a pair x says whether any unit of the candidate's window was bad, y the same of the baseline's window over the same
prompts, and (x, y) multiplies E by the factor of STATISTICS.md section 4. The argument: say that, given everything
before, the two windows are independent (two lives of two servers), and that the candidate's window is bad no more
often than the baseline's. Then P(x = 1) <= P(y = 1), the factor's expectation is at most 1 whatever happens *inside* a
window, and E reaches 40 (80) with chance at most 1/40 (1/80), as with pairs of cells. So a bad window can raise E
once, however many cells stand in it. "Any unit bad" rises with each unit, so where units fail independently of each
other, given their window, a candidate that is no worse on every prompt is no worse by windows: the same null. Where
they do not, it is the windows that are compared: a baseline that fails rarely but then everywhere, against a candidate
that fails as often but scattered, is a difference between them.

A window ends at its first bad unit under every flag: x and y cannot change any more, so this looks at nothing else.
The first window is as long as the leading units of an ordinary replicate, so clean ones end it after one swap; later
ones are half as long, since a swap costs more than a cell and a baseline's own bad rate adds up over a window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from prefillgate.core.cells import CANDIDATE
from prefillgate.core.evalue import pair_factor, replicate_threshold
from prefillgate.core.policy import ReplicatePolicy
from prefillgate.core.replicate import Half, Outcomes, PromptTurns, Replicate, ReplicatePlan, plan_replicate


def later_size(policy: ReplicatePolicy) -> int:
    """Units in a window after the first."""
    return max(1, policy.clean_units // 2)


def plan_window_replicate(
    number: int, seed: int, turns: PromptTurns, policy: ReplicatePolicy, flags: int = 1
) -> ReplicatePlan:
    """`prompts` hold the units of all windows in a row: half of them failed before, half come next in turn.

    Raises ValueError without a prompt.
    """
    units = policy.clean_units + later_size(policy) * (policy.max_pairs - 1)
    plan = plan_replicate(number, seed, turns, replace(policy, max_pairs=units), flags)
    return replace(plan, candidate_first=plan.candidate_first[: policy.max_pairs])


@dataclass(slots=True)
class WindowReplicate(Replicate):
    """A replicate in windows. `record` takes the units of a window in its order; `next_half` asks for one unit."""

    units: dict[tuple[int, str], list[Outcomes]] = field(default_factory=dict)

    def window(self, pair: int) -> tuple[str, ...]:
        """The prompts of a pair of windows, in their order."""
        leading, later = self.policy.clean_units, later_size(self.policy)
        if pair == 0:
            return self.plan.prompts[:leading]
        first = leading + later * (pair - 1)
        return self.plan.prompts[first : first + later]

    def record(self, pair: int, arm: str, outcomes: Outcomes) -> None:
        """One more unit of a window. Raises ValueError for a window that has ended."""
        side = self.candidate if arm == CANDIDATE else self.baseline
        if pair in side:
            raise ValueError(f"pair {pair} of replicate {self.plan.number} has its {arm} window already")
        units = self.units.setdefault((pair, arm), [])
        units.append(outcomes)
        self.tries.pop((pair, arm), None)
        bad = tuple(any(unit[flag] for unit in units) for flag in range(self.plan.flags))
        if all(bad) or len(units) == len(self.window(pair)):
            side[pair] = bad

    def half(self, pair: int, arm: str) -> Half:
        half = Replicate.half(self, pair, arm)
        unit = len(self.units.get((pair, arm), ()))
        return replace(half, case_id=self.window(pair)[unit], unit=unit)

    @property
    def leading_pairs(self) -> int:
        """The first window alone: it holds all leading units."""
        return 1

    def _pair_name(self, pair: int) -> str:
        return ", ".join(dict.fromkeys(self.window(pair)))

    def _carrying(self, pair: int, flag: int) -> Sequence[str]:
        seen = zip(self.window(pair), self.units[(pair, CANDIDATE)], strict=False)
        return [case for case, outcomes in seen if outcomes[flag]]

    def candidate_units(self) -> int:
        """Candidate units so far, of complete and of running windows."""
        return sum(len(units) for (_, arm), units in self.units.items() if arm == CANDIDATE)

    def candidate_bad(self) -> int:
        """Candidate units bad under any flag."""
        return sum(any(outcomes) for (_, arm), units in self.units.items() if arm == CANDIDATE for outcomes in units)


def window_replicate(
    number: int, seed: int, turns: PromptTurns, policy: ReplicatePolicy, flags: int
) -> WindowReplicate:
    """A replicate of pairs of windows, not begun."""
    return WindowReplicate(plan_window_replicate(number, seed, turns, policy, flags), policy)


def window_prefills_needed(number: int, policy: ReplicatePolicy, flags: int = 1) -> int:
    """Budget a replicate in windows must find before it starts: the fewest prefills that can confirm.

    m pairs with factor^m >= threshold, each of one bad candidate unit and a whole clean window of the baseline:
    5 pairs and 29 prefills at the first attempt, 6 and 34 at the second.
    """
    pairs = window_pairs_needed(number, policy, flags)
    return pairs + policy.clean_units + later_size(policy) * (pairs - 1)


def window_pairs_needed(number: int, policy: ReplicatePolicy, flags: int = 1) -> int:
    """The fewest pairs of windows that can confirm: each costs two starts of a server."""
    best = pair_factor(True, False, policy.planned_baseline_rate, policy.planned_candidate_rate)
    return math.ceil(math.log(replicate_threshold(number, policy, flags)) / math.log(best))
