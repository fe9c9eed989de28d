"""Results that people have already, restated: how many prefills can stand behind them, and whether a difference
between two arms that requests seem to show survives the counting of prefills.

Where no counter tells, prompt hashes, order and times bound the prefills from both sides and prove none: at the fewest
every repeat rode the cache of the first request of its prompt in that life of the server, at the most each request
was a prefill of its own that no counter and no time speaks against.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE, Cell
from prefillgate.core.exact import fisher_one_sided
from prefillgate.core.freshness import Claims, Classified
from prefillgate.core.prefill_times import TIMING_RATIO
from prefillgate.core.verdict import CellClass

DOUBT_RATIO = 0.1  # of the slowest before it: a start or a warm-up slows a first prefill down a few times, not ten
CLAIM_P = 0.05  # one-sided: at most this a difference seems to be there
P_DIGITS = 12  # after the point; Fisher's p of 1 of 2 against 0 of 38 is 0.05, and as a float a little more
UNSURE = frozenset({CellClass.UNKNOWN, CellClass.PARTIAL})


class Seen(NamedTuple):
    """One classified request as far as bounds and speeds need it. `ms` is its prefill, else its time to first token.

    `epoch` and `prompt` may be anything that tells lives of servers and prompts apart. `same` is what no two
    requests of a prompt share: start, end, output and token counts.
    """

    arm: str
    epoch: object
    prompt: object
    case: object
    cell_class: CellClass
    outcome: bool | None
    screen: bool = True
    length: int | None = None
    ms: float | None = None
    named: bool = False  # the name of its case is all that is known of the prompt
    request: str | None = None
    same: tuple[object, ...] | None = None

    @property
    def rate(self) -> float | None:
        """Milliseconds per prompt token, cached ones among them."""
        return self.ms / self.length if self.ms and self.length else None


def seen_of(item: Classified, first_token_ms: float | None = None) -> Seen:
    """A classified cell as `Seen`."""
    cell: Cell = item.cell
    ms = cell.prefill_ms if cell.prefill_ms is not None else first_token_ms
    return Seen(
        arm=cell.arm,
        epoch=cell.server_epoch,
        prompt=cell.prompt_key,
        case=cell.case_id,
        cell_class=item.cell_class,
        outcome=cell.outcome(),
        screen=not cell.replicate,
        length=cell.prompt_tokens,
        ms=ms,
        named=cell.prompt_sha256 is None,
        request=cell.request_id,
        same=same_of((cell.started_at, cell.ended_at, cell.output_sha256), cell),
    )


def same_of(told: tuple[float | None, float | None, str | None], cell: Claims) -> tuple[object, ...] | None:
    """What no two requests share: (start, end, output) as `told`, and counts. None where any of the three is."""
    return None if None in told else (*told, cell.prompt_tokens, cell.cached_tokens, cell.processed_tokens)


@dataclass(slots=True)
class Prompt:
    """One prompt in one life of a server of one arm. `rate` is that of its first request.

    `unit` and `ended_at` are for whoever places requests: its latest fresh unit, and when the last of them ended.
    """

    case: object
    asked: bool = False
    rate: float | None = None
    unit: Any = None
    ended_at: float | None = None
    fresh: int = 0
    unsure: int = 0
    quick: int = 0
    slowest: float | None = None  # rate of the slowest so far of its first request and those that may be prefills
    doubted: int = 0
    twice: int = 0
    void: int = 0  # fresh ones that are doubted or stand twice
    named: bool = False
    request: str | None = None  # id of its first request
    beside: set[tuple[object, ...]] | None = None  # what started together last
    bad: bool | None = None  # of the screen: True when any is, None when no outcome is known

    def ask(self, rate: float | None) -> bool:
        """Note one more request of it; whether it was asked before."""
        if self.asked:
            return True
        self.asked, self.rate, self.slowest = True, rate, rate
        return False

    def stands_twice(self, same: tuple[object, ...] | None) -> bool:
        """Whether a request, in time order, is one that was taken before, as in a log with a copy of itself."""
        if same is None:
            return False
        beside = self.beside
        if beside is None or next(iter(beside))[0] != same[0]:
            self.beside = {same}
            return False
        known = same in beside
        beside.add(same)
        return known

    def repeat(self, rate: float | None, fresh: bool, twice: bool) -> None:
        """Hold one more request of it, proven `fresh` or unsure, against those before it."""
        if twice:
            self.twice += 1
            self.void += fresh
            self.quick += not fresh
            return
        if rate is None:
            return
        if not fresh:
            self.quick += far_under(rate, self.rate)
        elif self.slowest is not None and rate < DOUBT_RATIO * self.slowest:
            self.doubted += 1
            self.void += 1
        self.slowest = rate if self.slowest is None else max(self.slowest, rate)

    def count(self, cell_class: CellClass, outcome: bool | None, requests: int = 1) -> None:
        """Count requests of one class with one outcome, None for one that is no matter of the screen."""
        if cell_class is CellClass.FRESH:
            self.fresh += requests
        elif cell_class in UNSURE:
            self.unsure += requests
        if outcome is not None:
            self.bad = bool(self.bad) or outcome


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fewest and the most prefills that can stand behind the requests of an arm. `proven` ones are counted.

    `doubted` are requests that every counter calls fresh in under `DOUBT_RATIO` of the time of an earlier one of the
    same prompt: no counter is believed then. `twice` ones stand in the log before, and `shared` ones bear the id of a
    request of another case, where no digest tells the prompts apart: they are not counted again.
    """

    fewest: int
    most: int
    proven: bool
    doubted: int = 0
    twice: int = 0
    shared: int = 0

    @property
    def disputed(self) -> bool:
        """Whether anything speaks against the counters."""
        return bool(self.doubted or self.twice or self.shared)


@dataclass(frozen=True, slots=True)
class Doubts:
    """What speaks against the counting of prefills by counters, over the common cases of both arms.

    Requests that count as fresh and are `doubted`, or stand `twice`; cases that a `shared` request id joins to another;
    and whether names alone tell prompts apart of which no prefill is proven.
    """

    doubted: int = 0
    twice: int = 0
    shared: int = 0
    named: bool = False

    @property
    def against_counters(self) -> bool:
        """Whether the counters are not to be believed."""
        return bool(self.doubted or self.twice or self.shared)


NO_DOUBTS = Doubts()


@dataclass(slots=True)
class PromptLedger:
    """Requests folded by prompt and life of a server, in time order."""

    _prompts: dict[tuple[str, object, object], Prompt] = field(default_factory=dict)

    def prompt(self, key: tuple[str, object, object], case: object) -> Prompt:
        """What is known of the prompt of an arm, an epoch and a digest. `case` is that of its first request."""
        found = self._prompts.get(key)
        if found is None:
            found = self._prompts[key] = Prompt(case)
        return found

    def add(self, seen: Seen) -> bool:
        """Take one more request; whether its prompt was asked before in this life of the server."""
        prompt = self.prompt((seen.arm, seen.epoch, seen.prompt), seen.case)
        prompt.named = prompt.named or seen.named
        repeat = prompt.ask(seen.rate)
        fresh = seen.cell_class is CellClass.FRESH
        twice = False
        if not repeat:
            prompt.request = seen.request
        if not repeat or fresh or seen.cell_class in UNSURE:
            twice = prompt.stands_twice(seen.same)
        if repeat and (fresh or seen.cell_class in UNSURE):
            prompt.repeat(seen.rate, fresh, twice)
        prompt.count(seen.cell_class, seen.outcome if seen.screen else None)
        return repeat

    def units(self) -> Iterator[tuple[str, Any]]:
        """The latest unit of each prompt that has one, with its arm."""
        return ((arm, prompt.unit) for (arm, _, _), prompt in self._prompts.items() if prompt.unit is not None)

    def bounds(self, arm: str) -> Bounds:
        """The bounds of an arm. A prompt whose prefill was never seen, because it came before the log, is one."""
        groups = [group for of, group in self._groups() if of == arm]
        mine = [prompt for group in groups for prompt in group]
        fewest = most = 0
        for group in groups:
            fresh = sum(prompt.fresh - prompt.void for prompt in group) + 1 - len(group)
            fewest += max(fresh, 1)
            most += max(fresh + sum(prompt.unsure - prompt.quick for prompt in group), 1)
        shared = len(mine) - len(groups)
        proven = not shared and not any(prompt.unsure or prompt.void for prompt in mine)
        doubted, twice = sum(prompt.doubted for prompt in mine), sum(prompt.twice for prompt in mine)
        return Bounds(fewest, most, proven, doubted, twice, shared)

    def doubts(self, cases: Collection[object]) -> Doubts:
        """What speaks against the counters over these cases, on both arms."""
        groups = self._common(cases)
        mine = [prompt for _, group in groups for prompt in group]
        doubted = sum(prompt.doubted for prompt in mine)
        named = any(prompt.named and prompt.bad is not None and prompt.fresh <= prompt.void for prompt in mine)
        return Doubts(doubted, sum(prompt.void for prompt in mine) - doubted, len(mine) - len(groups), named)

    def by_prompt(self, cases: Collection[object]) -> Table:
        """Bad ones among the prompts of these cases, as if every repeat had ridden the cache: the least evidence."""
        counts = dict.fromkeys(ARMS, (0, 0))
        for arm, group in self._common(cases):
            known = [prompt.bad for prompt in group if prompt.bad is not None]
            if known:
                bad, of = counts[arm]
                counts[arm] = bad + any(known), of + 1
        return Table(*counts[CANDIDATE], *counts[BASELINE])

    def _common(self, cases: Collection[object]) -> list[tuple[str, list[Prompt]]]:
        """The groups of both arms, with the prompts of these cases alone."""
        groups = ((arm, [each for each in group if each.case in cases]) for arm, group in self._groups() if arm in ARMS)
        return [(arm, group) for arm, group in groups if group]

    def _groups(self) -> Iterable[tuple[str, list[Prompt]]]:
        """(arm, prompts): alone, or those that names alone tell apart and whose first requests bear one id."""
        groups: dict[object, tuple[str, list[Prompt]]] = {}
        for (arm, epoch, key), prompt in self._prompts.items():
            joined = prompt.named and prompt.request is not None
            group = (arm, epoch, prompt.request) if joined else (arm, epoch, None, key)
            groups.setdefault(group, (arm, []))[1].append(prompt)
        return groups.values()


def far_under(rate: float | None, first: float | None) -> bool:
    """Whether a rate is so far under the first one that the cache must have helped."""
    return rate is not None and first is not None and rate < TIMING_RATIO * first


@dataclass(frozen=True, slots=True)
class Table:
    """Bad ones among those whose outcome is known, on both arms."""

    candidate_bad: int
    candidate: int
    baseline_bad: int
    baseline: int

    @property
    def whole(self) -> bool:
        """Whether both arms have something to compare."""
        return bool(self.candidate and self.baseline)

    @property
    def candidate_worse(self) -> bool:
        """Whether the candidate's share of bad ones is the larger one, or the same."""
        return self.candidate_bad * self.baseline >= self.baseline_bad * self.candidate

    def p_value(self, candidate_worse: bool) -> float | None:
        """Fisher's one-sided p in that direction; None where an arm has nothing."""
        if not self.whole:
            return None
        candidate, baseline = (self.candidate_bad, self.candidate), (self.baseline_bad, self.baseline)
        worse, other = (candidate, baseline) if candidate_worse else (baseline, candidate)
        return fisher_one_sided(*worse, *other)


class Standing(StrEnum):
    """What becomes of a difference between two arms once prefills are counted."""

    SURVIVES = "survives"
    WEAKER = "weaker than it looks"
    UNPROVEN = "not proven"  # no counter to believe tells the prefills, and if repeats rode the cache it is gone
    NO_DIFFERENCE = "no difference"  # not even by request
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True)
class Claim:
    """A difference as requests show it, and as prefills do. `candidate_worse` is its direction, by request.

    `by_prompt` is what is left if every repeat rode the cache. One-sided p values, in that direction. Where
    `doubts` speak against the counters it survives only if it does by prompt, and where names alone tell prompts apart
    they may be one prompt: then it does not survive by prompt.
    """

    standing: Standing
    candidate_worse: bool
    by_request: Table
    by_prefill: Table
    by_prompt: Table
    p_by_request: float | None
    p_by_prefill: float | None
    p_by_prompt: float | None
    doubts: Doubts = NO_DOUBTS


def claim_of(by_request: Table, by_prefill: Table, by_prompt: Table, doubts: Doubts = NO_DOUBTS) -> Claim:
    """Judge the difference that the requests of two arms show, over the prompts both saw."""
    worse = by_request.candidate_worse
    naive, honest, least = (table.p_value(worse) for table in (by_request, by_prefill, by_prompt))
    if naive is None:
        standing = Standing.NOT_COMPARED
    elif not seems_there(naive):
        standing = Standing.NO_DIFFERENCE
    elif honest is not None and not seems_there(honest):
        standing = Standing.WEAKER
    else:
        told = honest is not None and not doubts.against_counters
        standing = Standing.SURVIVES if told or (seems_there(least) and not doubts.named) else Standing.UNPROVEN
    return Claim(standing, worse, by_request, by_prefill, by_prompt, naive, honest, least, doubts)


def seems_there(p_value: float | None) -> bool:
    """Whether a difference of this one-sided p seems to be there: at most `CLAIM_P`, to `P_DIGITS` digits."""
    return p_value is not None and round(p_value, P_DIGITS) <= CLAIM_P


def fold_prompts(seen: Iterable[Seen]) -> PromptLedger:
    """The requests of a log, in time order, by prompt."""
    ledger = PromptLedger()
    for each in seen:
        ledger.add(each)
    return ledger
