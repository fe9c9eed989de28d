"""Windows: how a run goes on where both arms have one place, so that only one server is up at a time.

A window is a block of cells on one arm, in a life of its server that no other paired window shares; two windows, one
of each arm over the same prompts, are a pair. That is what makes a pair of windows one observation: whatever is wrong
with one life of a server (its place in memory, a throttling card, ten bad minutes) strikes every cell of one window
and of no other. So a window that follows one of its own arm needs a restart. The first pass over the baseline belongs
to no pair, and the first baseline window may go on in its life.

Where the server was started anew within a window (a run that was killed, a crash) the window goes on in the new life.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.journal import CellMeasured, Purpose, WindowOpened
from prefillgate.core.places import Places
from prefillgate.core.policy import Policy

FOUND = "found"  # the server was up already; other ways are a command and a person

Place = tuple[int, str]  # round and case: each stands once in a window


@dataclass(frozen=True, slots=True)
class Window:
    """Which window: of the screen (`replicate` 0) or of a replicate. `pair` None: any life of that arm will do."""

    arm: str
    pair: int | None = None
    replicate: int = 0


@dataclass(frozen=True, slots=True)
class SwapServers:
    """Put up the server of `window.arm`, alone.

    `same_life`: its last life may go on, if it is still up (nothing of another pair was measured in it).
    """

    window: Window
    same_life: bool


@dataclass(frozen=True, slots=True)
class WindowCell:
    """A cell of a window of the screen. `attempt` counts every cell at this place, each with a nonce of its own."""

    arm: str
    case_id: str
    pair: int
    round: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Turns:
    """What the windows are cut from: the prompts of the candidate's turn, and which of them can tell a speed."""

    size: int  # prompts in a window
    pairable: Mapping[str, int]  # length by case
    coverage: tuple[str, ...]  # must be in a pair before promotion
    baseline_most: int  # prompts of a baseline window, where more than those of `coverage` stand in its turn


@dataclass(slots=True)
class Windows:
    """How far the windows have come. A life of a server belongs to the paired window whose cells ran in it first."""

    open: WindowOpened | None = None
    last: WindowOpened | None = None  # open now, or when the run was left
    swaps: int = 0
    words: list[str] = field(default_factory=list)  # what had to be believed of who is up
    done: dict[tuple[int, str], dict[Place, CellMeasured]] = field(default_factory=dict)
    tried: Counter[tuple[int, str, Place]] = field(default_factory=Counter)
    warmed: set[tuple[str, str | None]] = field(default_factory=set)  # lives of which a cell was scored

    def opened(self, event: WindowOpened) -> None:
        """A server was put up."""
        self.swaps += self.last is not None and event.how != FOUND  # the first server is no swap
        self.open = self.last = event
        if event.detail:
            self.words.append(event.detail)

    def left(self) -> None:
        """The run was left and taken up again: who is up must be seen anew."""
        self.open = None

    def measured(self, event: CellMeasured) -> None:
        """Take note of a cell; an invalid one leaves its place as it was."""
        if event.purpose is not Purpose.WINDOW or event.pair is None:
            return
        self.tried[(event.pair, event.cell.arm, (event.round, event.cell.case_id))] += 1
        if self.open is not None and self.open.pair is None:
            self.open = self.last = replace(self.open, pair=event.pair)

    def scored(self, event: CellMeasured) -> None:
        """A cell has its outcome. The first of a life warms the server up: its place is run again, for its speed."""
        life = (event.cell.arm, event.cell.server_epoch)
        cold, place = life not in self.warmed, (event.round, event.cell.case_id)
        self.warmed.add(life)
        if event.purpose is Purpose.WINDOW and event.pair is not None and not cold:
            self.done.setdefault((event.pair, event.cell.arm), {})[place] = event


def serves(opened: WindowOpened | None, window: Window) -> bool:
    """Whether the life that was put up may serve this window: its own, or one of no pair where none must be new."""
    if opened is None or opened.arm != window.arm:
        return False
    if window.pair is None or (opened.replicate, opened.pair) == (window.replicate, window.pair):
        return True
    return window.replicate == 0 and opened.pair is None


def swap_needed(windows: Windows, window: Window) -> SwapServers | None:
    """What must be put up before a cell of this window, or None where it is up."""
    if serves(windows.open, window):
        return None
    return SwapServers(window, window.pair is None or (windows.open is None and serves(windows.last, window)))


def window_size(policy: Policy, prompts: int) -> int:
    """Prompts in one window of the screen.

    With speed required, so many that `min_pairs` pairs of windows bring the candidate to the first entry of the
    acceptance table and to every prompt; the warm-up cell of each window counts for quality. Else all of them: one
    pair tells the speed. Raises ValueError without prompts.
    """
    if prompts < 1:
        raise ValueError(f"prompts must be at least 1, got {prompts}")
    if not policy.throughput.required:
        return prompts
    pairs = policy.throughput.min_pairs
    return max(math.ceil(prompts / pairs), baseline_most(policy))


def baseline_most(policy: Policy) -> int:
    """Prompts in a baseline window, as far as they need not be in a pair: as many as the candidate's window would have
    for the acceptance table alone. Its prefills decide nothing else."""
    return max(1, math.ceil(policy.acceptance[0] / policy.throughput.min_pairs) - 1)


def window_places(places: Places, pair: int, turns: Turns, missing: Sequence[str]) -> tuple[Place, ...]:
    """The places of the candidate's window of a pair: the next prompts in turn, each round in its own random order.

    Once every prompt had its turn, those still `missing` a pair come first.
    """
    count = len(places.cases)
    first = pair * turns.size
    turn = [
        (number // count, places.round_order(number // count)[number % count])
        for number in range(first, first + turns.size)
    ]
    if first < count:
        return tuple(turn)
    ahead = [(first // count, case) for case in missing if case not in {case for _, case in turn}]
    return tuple([*ahead, *turn][: turns.size])


def baseline_places(chosen: Sequence[Place], turns: Turns) -> tuple[Place, ...]:
    """Those of them that the baseline's window takes: what can tell a speed, first of all what must be in a pair."""
    able = [place for place in chosen if place[1] in turns.pairable]
    covering = [place for place in able if place[1] in turns.coverage]
    others = [place for place in able if place[1] not in turns.coverage]
    taken = {*covering, *others[: max(0, turns.baseline_most - len(covering))]}
    return tuple(place for place in able if place in taken)


@dataclass(frozen=True, slots=True)
class PairStanding:
    """A pair of windows of the screen: what each arm runs, in its order, and the coin."""

    number: int
    places: Mapping[str, tuple[Place, ...]]
    order: tuple[str, str]


def standing_pair(places: Places, number: int, turns: Turns, missing: Sequence[str]) -> PairStanding:
    """The pair of that number; a fair coin orders its windows."""
    chosen = window_places(places, number, turns, missing)
    order = (CANDIDATE, BASELINE) if places.candidate_first(number) else (BASELINE, CANDIDATE)
    return PairStanding(number, {CANDIDATE: chosen, BASELINE: baseline_places(chosen, turns)}, order)


def next_window_cell(windows: Windows, pair: PairStanding) -> WindowCell | None:
    """The next cell of the pair, or None when both its windows are complete."""
    for arm in pair.order:
        done = windows.done.get((pair.number, arm), {})
        for place in pair.places[arm]:
            if place not in done:
                round_number, case = place
                attempt = 1 + windows.tried[(pair.number, arm, place)]
                return WindowCell(arm, case, pair.number, round_number, attempt)
    return None


def window_notes(windows: Windows) -> list[str]:
    """What a report says of the swaps: first on whose word a server was taken for an arm, then how many."""
    times = "1 swap of servers" if windows.swaps == 1 else f"{windows.swaps} swaps of servers"
    return [*windows.words, f"one server at a time: windows took turns, {times}"]
