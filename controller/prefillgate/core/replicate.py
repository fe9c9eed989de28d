"""The fresh paired replicate that must confirm an alarm before a rollback (STATISTICS.md section 4).

New data only: nothing that triggered it can be handed in. The candidate's units run first; eight clean ones end it
without a baseline prefill. At the first bad one its own mate runs, then the mates of all units so far, then pairs,
each ordered by a fair coin. Pairs multiply E in planned order, and E is defined only up to the first incomplete one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.evalue import pair_factor, replicate_threshold
from prefillgate.core.freshness import Classified
from prefillgate.core.policy import ReplicatePolicy
from prefillgate.core.verdict import CellClass, PairFactor, ReplicateView

MAX_TRIES = 3  # of one half, before the replicate is aborted

Outcomes = tuple[bool, ...]  # one per flag


class Ending(StrEnum):
    """How a replicate ends. All but confirmed are "not confirmed" and use up one attempt."""

    CONFIRMED = "confirmed"
    CLEAN = "clean"
    FUTILE = "futile"
    CAPPED = "capped"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Half:
    """One half of a pair that is to be run next."""

    pair: int
    arm: str
    case_id: str
    tries: int  # 1 on the first try, waits for a busy server counted too: each has its own nonce
    unit: int = 0  # of a window: which of its units


@dataclass(frozen=True, slots=True)
class ReplicatePlan:
    """Everything about a replicate that is fixed before its first cell."""

    number: int
    prompts: tuple[str, ...]  # one case per pair, in planned order
    candidate_first: tuple[bool, ...]  # the fair coins
    flags: int = 1


@dataclass(frozen=True, slots=True)
class PromptTurns:
    """Which prompts a replicate takes from: those that failed, and the others in the order they come up next."""

    failed: tuple[str, ...]
    others: tuple[str, ...]


def plan_replicate(
    number: int, seed: int, turns: PromptTurns, policy: ReplicatePolicy, flags: int = 1
) -> ReplicatePlan:
    """Half of the units go to the prompts that failed, half to the next prompts in turn.

    Names alone are handed in: no outcome of the trigger can enter. Either list may be empty, not both (ValueError).
    The seed fixes the coins.
    """
    if not turns.failed and not turns.others:
        raise ValueError("a replicate needs at least one prompt")
    generator = random.Random(f"{seed}/replicate/{number}")
    failing, others = turns.failed or turns.others, turns.others or turns.failed
    prompts = []
    for pair in range(policy.max_pairs):
        source = failing if pair % 2 == 0 else others
        prompts.append(source[(pair // 2) % len(source)])
    draws = [generator.random() for _ in range(policy.max_pairs)]
    coins = tuple(draw < 0.5 for draw in draws)  # equivalent mutant: never one half to the last bit
    return ReplicatePlan(number, tuple(prompts), coins, flags)


@dataclass(slots=True)
class Replicate:
    """The state of one replicate. `record` and `invalidate` are its only inputs, `next_half` what it wants."""

    plan: ReplicatePlan
    policy: ReplicatePolicy
    candidate: dict[int, Outcomes] = field(default_factory=dict)
    baseline: dict[int, Outcomes] = field(default_factory=dict)
    tries: dict[tuple[int, str], int] = field(default_factory=dict)
    waits: dict[tuple[int, str], int] = field(default_factory=dict)
    aborted: str | None = None
    separation: str | None = None
    separation_detail: str = ""
    _seen: tuple[object, ...] = ()  # what `_ending` was computed from
    _ending: Ending | None = None

    @property
    def threshold(self) -> float:
        """E at which this replicate confirms."""
        return replicate_threshold(self.plan.number, self.policy, self.plan.flags)

    def record(self, pair: int, arm: str, outcomes: Outcomes) -> None:
        """The outcome of one half, one value per flag. Raises ValueError when that half has one already."""
        side = self._side(arm)
        if pair in side:
            raise ValueError(f"pair {pair} of replicate {self.plan.number} has its {arm} half already")
        side[pair] = outcomes

    def invalidate(self, pair: int, arm: str, busy: bool = False) -> None:
        """That half was not measured: it is planned again alone, and after three tries the replicate is aborted.

        A server that asked to be left alone (`busy`: 429, 503) is waited for, which is none of the three tries.
        """
        key = (pair, arm)
        if busy:
            self.waits[key] = self.waits.get(key, 0) + 1
            return
        self.tries[key] = self.tries.get(key, 0) + 1
        if self.tries[key] >= MAX_TRIES:
            self.aborted = f"pair {pair}, {arm}: {MAX_TRIES} tries without a measurement"

    def next_half(self) -> Half | None:
        """What to run next, or None when the replicate has ended."""
        return next(iter(self.wanted()), None)

    def wanted(self, in_flight: Container[tuple[int, str]] = frozenset()) -> Iterator[Half]:
        """Halves that may be begun beside those in flight, each a (pair, arm), most urgent first; none once it ended.

        The order they end in is free: E multiplies in planned order whatever is known beyond its complete prefix.
        """
        if self.ending() is None:
            for pair, arm in self._missing():
                if (pair, arm) not in in_flight:
                    yield self.half(pair, arm)

    def has_mate(self, half: Half) -> bool:
        """Whether the other half of its pair is there already."""
        return half.pair in self._side(BASELINE if half.arm == CANDIDATE else CANDIDATE)

    def _missing(self) -> Iterator[tuple[int, str]]:
        """Every half that is not there yet, in the order they are to be begun."""
        bad = [pair for pair, outcomes in self.candidate.items() if any(outcomes) and pair < self.leading_pairs]
        until = min(bad, default=self.leading_pairs)
        leading = [pair for pair in range(until) if pair not in self.candidate]
        if leading:
            yield from ((pair, CANDIDATE) for pair in leading)
            return
        mates = sorted((pair for pair in self.candidate if pair < self.leading_pairs), key=lambda p: (p != until, p))
        yield from ((pair, BASELINE) for pair in mates if pair not in self.baseline)
        for pair in range(self.complete_pairs(), self.policy.max_pairs):
            order = (CANDIDATE, BASELINE) if self.plan.candidate_first[pair] else (BASELINE, CANDIDATE)
            yield from ((pair, arm) for arm in order if pair not in self._side(arm))

    def _side(self, arm: str) -> dict[int, Outcomes]:
        return self.candidate if arm == CANDIDATE else self.baseline

    def half(self, pair: int, arm: str) -> Half:
        """This half as it is to be run next: its prompt and its try."""
        return Half(
            pair, arm, self.plan.prompts[pair], 1 + sum(made.get((pair, arm), 0) for made in (self.tries, self.waits))
        )

    def complete_pairs(self) -> int:
        """How many pairs stand complete before the first incomplete one."""
        pair = 0
        while pair in self.candidate and pair in self.baseline:
            pair += 1
        return pair

    def e_path(self, flag: int = 0) -> list[float]:
        """E after each complete pair, under one flag, stopping at the first incomplete pair."""
        value, path = 1.0, []
        for pair in range(self.complete_pairs()):
            value *= self._factor(pair, flag)
            path.append(value)
        return path

    def _factor(self, pair: int, flag: int) -> float:
        return pair_factor(
            self.candidate[pair][flag],
            self.baseline[pair][flag],
            self.policy.planned_baseline_rate,
            self.policy.planned_candidate_rate,
        )

    def ending(self) -> Ending | None:
        """How it ended, or None while it runs.

        A confirmation reached at any complete prefix of pairs stands; nothing confirms that was not kept apart from
        its trigger.
        """
        seen = (len(self.candidate), len(self.baseline), self.aborted, self.separation)
        if seen != self._seen:
            self._seen, self._ending = seen, self._find_ending()
        return self._ending

    @property
    def leading_pairs(self) -> int:
        """Pairs whose candidate halves run first; where all of them are clean the replicate ends."""
        return self.policy.clean_units

    def _find_ending(self) -> Ending | None:
        leading = [self.candidate.get(pair) for pair in range(self.leading_pairs)]
        clean = all(outcomes is not None and not any(outcomes) for outcomes in leading)
        walked = None if clean else self._walk()
        if walked is Ending.CONFIRMED:
            return walked
        if self.aborted is not None:
            return Ending.ABORTED
        return Ending.CLEAN if clean else walked

    def _walk(self) -> Ending | None:
        """The first ending on the way along the complete pairs: what comes after it changes nothing."""
        paths = [self.e_path(flag) for flag in range(self.plan.flags)]
        for pair, values in enumerate(zip(*paths, strict=True)):  # equivalent mutant: flags share their pairs
            if self.separation is not None and max(values) >= self.threshold:
                return Ending.CONFIRMED
            if max(values) <= self.policy.futility:
                return Ending.FUTILE
            if pair + 1 >= self.policy.max_pairs:
                return Ending.CAPPED
        return None

    def candidate_units(self) -> int:
        """Candidate units so far."""
        return len(self.candidate)

    def candidate_bad(self) -> int:
        """Candidate units bad under any flag."""
        return sum(1 for outcomes in self.candidate.values() if any(outcomes))

    def _pair_name(self, pair: int) -> str:
        """How a report names a pair: by its prompt."""
        return self.plan.prompts[pair]

    def _carrying(self, pair: int, flag: int) -> Sequence[str]:
        """The prompts by which a pair raised E under that flag."""
        return (self.plan.prompts[pair],)

    def leading_flag(self) -> int:
        """The flag with the largest E: the one a report shows."""
        paths = [self.e_path(flag) for flag in range(self.plan.flags)]
        peaks = [max(path, default=1.0) for path in paths]  # equivalent mutant: all are empty or none
        return peaks.index(max(peaks))

    def view(self) -> ReplicateView:
        """What a report says of it, under the leading flag."""
        flag = self.leading_flag()
        path = self.e_path(flag)
        pairs = tuple(
            PairFactor(
                pair,
                self._pair_name(pair),
                self.candidate[pair][flag],
                self.baseline[pair][flag],
                self._factor(pair, flag),
                path[pair],
            )
            for pair in range(len(path))
        )
        carrying = tuple(
            dict.fromkeys(case for pair in pairs if pair.factor > 1 for case in self._carrying(pair.pair, flag))
        )
        units, bad = self.candidate_units(), self.candidate_bad()
        ending = self.ending()
        return ReplicateView(
            number=self.plan.number,
            threshold=self.threshold,
            ending=None if ending is None else str(ending),
            candidate_units=units,
            candidate_bad=bad,
            pairs=pairs,
            e_value=path[-1] if path else 1.0,
            separation=self.separation,
            separation_detail=self.separation_detail,
            candidate_rate_upper=_upper_when_clean(units) if units and not bad else None,
            carrying_prompts=carrying,
            futility=self.policy.futility,
        )


def is_replicate_unit(item: Classified, max_cached_tokens: int) -> bool:
    """Whether a cell is a unit of a replicate: fresh, and at most `max_cached_tokens` came from the cache."""
    cached = item.cell.cached_tokens
    return item.cell_class is CellClass.FRESH and (cached is None or cached <= max_cached_tokens)


def paired_replicate(number: int, seed: int, turns: PromptTurns, policy: ReplicatePolicy, flags: int) -> Replicate:
    """A replicate of pairs of cells, not begun."""
    return Replicate(plan_replicate(number, seed, turns, policy, flags), policy)


def _upper_when_clean(units: int) -> float:
    """One-sided 95 % upper bound of a rate of which 0 in `units` was seen: 1 - .05^(1/n)."""
    return -math.expm1(math.log(0.05) / units)


def prefills_needed(number: int, policy: ReplicatePolicy, flags: int = 1) -> int:
    """Budget a replicate must find before it starts: with one flag 10 prefills on the first attempt, 12 on the second.

    The fewest that can confirm: m pairs of a bad candidate and a good baseline with factor^m >= threshold, both
    halves counted.
    """
    best = pair_factor(True, False, policy.planned_baseline_rate, policy.planned_candidate_rate)
    return 2 * math.ceil(math.log(replicate_threshold(number, policy, flags)) / math.log(best))
