"""A log restated: what stands beside the verdict in an audit. Bounds, the difference, speeds, and every label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from prefillgate.core.cache_hits import Speed, SpeedLog
from prefillgate.core.cells import ARMS, Cell
from prefillgate.core.facts import common_cases, tables
from prefillgate.core.freshness import Classified, classify
from prefillgate.core.restate import Bounds, Claim, PromptLedger, Seen, claim_of, seen_of
from prefillgate.core.units import count_arm
from prefillgate.core.verdict import ArmCounts


@dataclass(frozen=True, slots=True)
class Restated:
    """One arm, or one label, of a log: `counts` as the verdict has them, with what bounds them and what it measured."""

    name: str
    counts: ArmCounts
    bounds: Bounds
    speed: Speed


@dataclass(frozen=True, slots=True)
class Restatement:
    """Every arm of a log, the difference between them, and every label where the log names no arms."""

    arms: tuple[Restated, ...]
    claim: Claim
    labels: tuple[Restated, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A cell of a log with what is known beside it. `label` is what could tell arms apart."""

    cell: Cell
    first_token_ms: float | None = None
    label: str | None = None


def restate(requests: Sequence[Request], labelled: bool) -> Restatement:
    """Restate a log, its requests in line order. With `labelled` every label stands for itself as well."""
    classified = classify([request.cell for request in requests])
    times = {id(request.cell): request.first_token_ms for request in requests}
    seen = [seen_of(item, times[id(item.cell)]) for item in classified]
    prompts, speeds = fold(seen)
    common = common_cases(classified)
    claim = claim_of(*tables(classified), prompts.by_prompt(common), prompts.doubts(common))
    arms = tuple(_restated(arm, classified, prompts, speeds) for arm in ARMS if arm in speeds)
    return Restatement(arms, claim, _labels(requests) if labelled else ())


def fold(seen: Iterable[Seen]) -> tuple[PromptLedger, dict[str, SpeedLog]]:
    """Requests in time order by prompt, and by arm for their speed."""
    prompts, speeds = PromptLedger(), dict[str, SpeedLog]()
    for each in seen:
        speeds.setdefault(each.arm, SpeedLog()).add(each, prompts.add(each))
    return prompts, speeds


def _restated(
    name: str, classified: Sequence[Classified], prompts: PromptLedger, speeds: dict[str, SpeedLog]
) -> Restated:
    return Restated(name, count_arm(classified, name), prompts.bounds(name), speeds[name].speed())


def _labels(requests: Sequence[Request]) -> tuple[Restated, ...]:
    """Each label as an arm of its own."""
    own = [replace(each, cell=replace(each.cell, arm=each.label)) for each in requests if each.label is not None]
    classified = classify([each.cell for each in own])
    times = {id(each.cell): each.first_token_ms for each in own}
    prompts, speeds = fold(seen_of(item, times[id(item.cell)]) for item in classified)
    return tuple(_restated(label, classified, prompts, speeds) for label in speeds)
