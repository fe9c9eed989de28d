"""Places: where the screen stands. Each place is one case of one round, on the candidate alone or as a pair.

Prompts come in a fresh random order each round. A place is done when its halves were measured; an invalid half is
planned again at the same place with a new nonce.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.journal import CellMeasured, Planned, Purpose


@dataclass(slots=True)
class OpenPair:
    """A throughput pair whose first half was begun."""

    number: int
    case_id: str
    first_arm: str
    done: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Places:
    """How far the baseline pass, the A/A pass and the screen have come."""

    cases: tuple[str, ...] = ()
    seed: int = 0
    baseline_pass: tuple[str, ...] = ()
    second_pass: tuple[str, ...] = ()
    passed: int = 0
    passed_again: int = 0
    screened: int = 0  # places of the screen that are done
    pairs_begun: int = 0
    open_pair: OpenPair | None = None
    attempts: dict[tuple[str, str, int], int] = field(default_factory=dict)

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
    def round(self) -> int:
        """The round the next place belongs to, from 0."""
        return self.screened // len(self.cases)

    @property
    def next_case(self) -> str:
        """The case of the next place of the screen."""
        return self.round_order(self.round)[self.screened % len(self.cases)]

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
        purpose = event.purpose
        if purpose is Purpose.PAIR and self.open_pair is None:
            self.open_pair = OpenPair(event.pair or 0, event.cell.case_id, event.cell.arm)
            self.pairs_begun += 1
        key = (str(purpose), event.cell.arm, self._position(event))
        if event.cell.status is Status.INVALID:
            self.attempts[key] = self.attempts.get(key, 0) + 1
            return
        self.attempts.pop(key, None)
        if purpose is Purpose.BASELINE_PASS:
            self.passed += 1
        elif purpose is Purpose.AA:
            self.passed_again += 1
        elif purpose is Purpose.SCREEN:
            self.screened += 1
        elif purpose is Purpose.PAIR and self.open_pair is not None:
            self.open_pair.done.add(event.cell.arm)
            if self.open_pair.done == {BASELINE, CANDIDATE}:
                # A pair out of turn, run for its speed alone, leaves the place it came before as it was.
                self.screened += self.open_pair.case_id == self.next_case
                self.open_pair = None

    def _position(self, event: CellMeasured) -> int:
        match event.purpose:
            case Purpose.BASELINE_PASS:
                return self.passed
            case Purpose.AA:
                return self.passed_again
            case Purpose.REPLICATE:
                return event.pair or 0
            case _:
                return self.screened

    def attempt(self, purpose: Purpose, arm: str) -> int:
        """The number of the next try at the next place, from 1."""
        position = {Purpose.BASELINE_PASS: self.passed, Purpose.AA: self.passed_again}.get(purpose, self.screened)
        return self.attempts.get((str(purpose), arm, position), 0) + 1


def derived_seed(run_seed: int, *parts: object) -> int:
    """A request seed in [1, 2^31), a function of the run's seed and what it is for; equal on both arms."""
    digest = hashlib.sha256("/".join(map(str, (run_seed, *parts))).encode()).digest()
    return int.from_bytes(digest[:4], "big") % (2**31 - 1) + 1


def derived_nonce(run_seed: int, *parts: object) -> str:
    """32 hex digits, a function of the run's seed and what it is for."""
    return hashlib.sha256("/".join(map(str, ("nonce", run_seed, *parts))).encode()).hexdigest()[:32]
