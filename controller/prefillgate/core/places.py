"""Places: where the screen stands. Each place is one case of one round, on the candidate alone or as a pair.

Prompts come in a fresh random order each round. A place is done when its halves were measured; an invalid half is
planned again at the same place with a new nonce. With several cells in flight places are done out of order: those
that are done ahead of an earlier one are remembered until it is done too.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.journal import OUT_OF_TURN, CellMeasured, Planned, Purpose

AttemptKey = tuple[str, str, int | str]


@dataclass(slots=True)
class Walk:
    """How far an order was walked: every position below `next` is done, and those in `ahead`."""

    next: int = 0
    ahead: set[int] = field(default_factory=set)

    def mark(self, position: int) -> None:
        """This position is done."""
        if position >= self.next:
            self.ahead.add(position)
        while self.next in self.ahead:
            self.ahead.remove(self.next)
            self.next += 1

    def done(self, position: int) -> bool:
        """Whether this position is done."""
        return position < self.next or position in self.ahead

    @property
    def count(self) -> int:
        """How many positions are done."""
        return self.next + len(self.ahead)


@dataclass(slots=True)
class OpenPair:
    """A throughput pair of which a half was begun and not both are done. `place` is that of its events."""

    number: int
    case_id: str
    first_arm: str
    place: int | None = None
    round: int = 0
    done: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Places:
    """How far the baseline pass, the A/A pass and the screen have come."""

    cases: tuple[str, ...] = ()
    seed: int = 0
    baseline_pass: tuple[str, ...] = ()
    second_pass: tuple[str, ...] = ()
    first_walk: Walk = field(default_factory=Walk)
    second_walk: Walk = field(default_factory=Walk)
    screen: Walk = field(default_factory=Walk)
    pairs: Walk = field(default_factory=Walk)  # by their numbers
    open_pairs: dict[int, OpenPair] = field(default_factory=dict)
    attempts: dict[AttemptKey, int] = field(default_factory=dict)

    def begin(self, plan: Planned) -> None:
        """Fix what the plan fixes: which cases the baseline pass takes, and its order."""
        self.cases = tuple(case.case_id for case in plan.cases)
        self.seed = plan.seed
        order = self._shuffled("baseline pass")
        policy = plan.policy
        self.baseline_pass = order if policy.aa_check else order[: policy.baseline_pass]
        self.second_pass = self._shuffled("second pass") if policy.aa_check else ()

    def _shuffled(self, label: str) -> tuple[str, ...]:
        order = list(self.cases)
        random.Random(f"{self.seed}/{label}").shuffle(order)
        return tuple(order)

    def round_order(self, number: int) -> tuple[str, ...]:
        """The cases of one round of the screen, in its own random order."""
        return self._shuffled(f"round {number}")

    @property
    def passed(self) -> int:
        """Places of the baseline pass that are done, up to the first that is not."""
        return self.first_walk.next

    @property
    def passed_again(self) -> int:
        """The same of the second pass."""
        return self.second_walk.next

    @property
    def screened(self) -> int:
        """The same of the screen."""
        return self.screen.next

    @property
    def pairs_begun(self) -> int:
        """Throughput pairs of which a half ended, or both."""
        return self.pairs.count + len(self.open_pairs)

    @property
    def open_pair(self) -> OpenPair | None:
        """The open pair with the lowest number."""
        return self.open_pairs[min(self.open_pairs)] if self.open_pairs else None

    @property
    def in_order(self) -> bool:
        """Whether no place of the screen is done ahead of an earlier one."""
        return not self.screen.ahead

    @property
    def round(self) -> int:
        """The round the next place belongs to, from 0."""
        return self.round_of(self.screened)

    def round_of(self, place: int) -> int:
        """The round a place of the screen belongs to, from 0."""
        return place // len(self.cases)

    @property
    def next_case(self) -> str:
        """The case of the next place of the screen."""
        return self.case_at(self.screened)

    def case_at(self, place: int) -> str:
        """The case of a place of the screen."""
        return self.round_order(self.round_of(place))[place % len(self.cases)]

    def upcoming(self) -> list[str]:
        """Every case once, in the order the screen comes to it next."""
        position = self.screened % len(self.cases)
        rest = [*self.round_order(self.round)[position:], *self.round_order(self.round + 1)]
        return list(dict.fromkeys(rest))

    def candidate_first(self, pair: int) -> bool:
        """The fair coin that orders a pair."""
        return random.Random(f"{self.seed}/coin {pair}").random() < 0.5  # equivalent mutant: never one half

    def measured(self, event: CellMeasured, session: int) -> None:
        """Take note of a cell that ended. An invalid one leaves its place as it was."""
        purpose, number = event.purpose, event.pair or 0
        if purpose is Purpose.PAIR and number not in self.open_pairs:
            self.open_pairs[number] = OpenPair(number, event.cell.case_id, event.cell.arm, event.place, event.round)
        key = self._key(event)
        if event.cell.status is Status.INVALID:
            self.attempts[key] = self.attempts.get(key, 0) + 1
            return
        self.attempts.pop(key, None)
        if purpose is Purpose.PAIR:
            self._half_done(self.open_pairs[number], event.cell.arm)
        elif (walk := self.walk_of(purpose)) is not None:
            walk.mark(walk.next if event.place is None else event.place)

    def _half_done(self, pair: OpenPair, arm: str) -> None:
        pair.done.add(arm)
        if pair.done != {BASELINE, CANDIDATE}:
            return
        del self.open_pairs[pair.number]
        self.pairs.mark(pair.number)
        # A pair out of turn, run for its speed alone, leaves the place it came before as it was.
        place = pair.place
        if place is None and pair.case_id == self.next_case:
            place = self.screened
        if place is not None and place != OUT_OF_TURN:
            self.screen.mark(place)

    def walk_of(self, purpose: Purpose) -> Walk | None:
        """The order that cells of this purpose, each alone at its place, walk through."""
        walks = {
            Purpose.BASELINE_PASS: self.first_walk,
            Purpose.AA: self.second_walk,
            Purpose.SCREEN: self.screen,
        }
        return walks.get(purpose)

    def _key(self, event: CellMeasured) -> AttemptKey:
        return attempt_key(event.purpose, event.cell.arm, self._position(event))

    def _position(self, event: CellMeasured) -> int | str:
        if event.purpose is Purpose.COMPARE:
            return event.cell.case_id
        walk = self.walk_of(event.purpose)
        if walk is None:
            return event.pair or 0
        return walk.next if event.place is None else event.place

    def attempt(self, purpose: Purpose, arm: str, position: int | str) -> int:
        """The number of the next try, from 1. `position` is the place, the number of the pair, or the case compared."""
        return self.attempts.get(attempt_key(purpose, arm, position), 0) + 1


def attempt_key(purpose: Purpose, arm: str, position: int | str) -> AttemptKey:
    """What tries are counted by."""
    return str(purpose), arm, position


def derived_seed(run_seed: int, *parts: object) -> int:
    """A request seed in [1, 2^31), a function of the run's seed and what it is for; equal on both arms."""
    digest = hashlib.sha256("/".join(map(str, (run_seed, *parts))).encode()).digest()
    return int.from_bytes(digest[:4], "big") % (2**31 - 1) + 1


def derived_nonce(run_seed: int, *parts: object) -> str:
    """32 hex digits, a function of the run's seed and what it is for."""
    return hashlib.sha256("/".join(map(str, ("nonce", run_seed, *parts))).encode()).hexdigest()[:32]
