"""How a trial reads: lines a case, a summary, and both as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from prefillgate.cli.trial import Came, Trial, Tried
from prefillgate.core.healthy import HealthyRate
from prefillgate.core.journal import Texts
from prefillgate.core.planning import WANTED_POWER
from prefillgate.core.policy import Policy
from prefillgate.core.verdict import CellClass
from prefillgate.report.clean import one_line, visible

HEAD_CHARACTERS, TAIL_CHARACTERS = 160, 80  # of a text on one line: a verdict often stands at its end
_WORDS = {Came.TOO_LONG: "too long", Came.INVALID: "not measured"}


def case_lines(tried: Tried, place: tuple[int, int], full: bool) -> Iterator[str]:
    """A line of figures, one for each failing check, and the text, on one line unless `full`."""
    number, cases = place
    head = f"{number:>{len(str(cases))}}/{cases}  {one_line(tried.case.case_id, 60)}"
    why = f": {one_line(tried.why)}" if tried.why else ""
    yield "  ".join([head, *_figures(tried), f"{_WORDS.get(tried.came, tried.came.value)}{why}"])
    for outcome in tried.failing:
        yield f"    {one_line(outcome.check)}: {one_line(outcome.detail) or 'failed'}"
    for outcome in tried.noted:
        yield f"    {one_line(outcome.check)}: {one_line(outcome.detail) or 'failed'} (noted; decides nothing in a run)"
    if tried.sent is not None:
        yield from _said(tried.sent.texts, full)
        yield from _remarks(tried)


def _figures(tried: Tried) -> list[str]:
    sent = tried.sent
    if sent is None or sent.event.cell.status == "invalid":
        return []
    cell = sent.event.cell
    tokens = f"{_known(cell.prompt_tokens)} tokens in ({_known(cell.cached_tokens)} cached)"
    seconds = _seconds(tried)
    return [tokens, f"{_known(cell.output_tokens)} out", *([] if seconds is None else [f"{seconds:.1f} s"])]


def _known(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _seconds(tried: Tried) -> float | None:
    """Seconds of the request itself."""
    cell = None if tried.sent is None else tried.sent.event.cell
    if cell is None or cell.started_at is None or cell.ended_at is None:
        return None
    return cell.ended_at - cell.started_at


def _said(texts: Texts, full: bool) -> Iterator[str]:
    parts = (("", texts.content), ("reasoning: ", texts.reasoning), ("tool calls: ", texts.tool_calls))
    for name, text in parts:
        if not text:
            continue
        if full:
            yield from (f"    | {line}" for line in f"{name}{visible(text)}".split("\n"))
        else:
            yield f"    | {name}{_shortened(text)}"


def _shortened(text: str) -> str:
    line = one_line(text)
    left_out = len(line) - HEAD_CHARACTERS - TAIL_CHARACTERS
    if left_out <= 0:
        return line
    return f"{line[:HEAD_CHARACTERS]} … {left_out} characters … {line[-TAIL_CHARACTERS:]}"


def _remarks(tried: Tried) -> Iterator[str]:
    """What a person should know of this cell beside its outcome."""
    if tried.remark:
        yield f"    {tried.remark}"
    found = None if tried.sent is None else tried.sent.classified
    if found is not None and found.cell_class is not CellClass.FRESH:
        yield f"    not proven fresh: {found.cell_class}, {one_line(found.witness)}"


def summary_lines(trial: Trial) -> Iterator[str]:
    """Counts, the bad rate with its interval, P(promote), and the margin that would work."""
    if trial.server is None:
        return
    clean, bad = trial.count(Came.CLEAN), trial.count(Came.BAD, Came.FAILED)
    lost, cannot = trial.count(Came.ERROR, Came.INVALID), trial.count(Came.TOO_LONG, Came.REFUSED)
    counts = [f"{clean} clean", f"{bad} bad"]
    counts += [f"{lost} not measured"] if lost else []
    counts += [f"{cannot} this server cannot take"] if cannot else []
    counts += [f"{trial.unsent} not sent, since the server does not answer any more"] if trial.unsent else []
    yield ""
    yield f"{'cases':<12} {', '.join(counts)}"
    for finding in (*trial.server.notes, *trial.server.seen.findings):
        yield f"{'finding':<12} {one_line(finding)}"
    rate, policy = trial.bad_rate(), trial.cells.policy.policy
    if rate is None:
        yield f"{'bad rate':<12} unknown: no prefill was proven fresh and judged"
        return
    yield from _rate_lines(rate, policy)


def _rate_lines(rate: HealthyRate, policy: Policy) -> Iterator[str]:
    low, high = rate.interval
    yield (
        f"{'bad rate':<12} {rate.bad} of {rate.units} fresh prefills, {_percent(rate.rate)} "
        f"(95 % interval {_percent(low)} to {_percent(high)})"
    )
    best, worst = rate.promote_at_ends
    yield (
        f"{'P(promote)':<12} {rate.promote:.2f} for a candidate just as bad, by policy {one_line(policy.name)} with a "
        f"margin of {_percent(policy.margin)}; {best:.2f} to {worst:.2f} over that interval"
    )
    yield f"{'margin':<12} {_margin_words(rate, policy)}"


def _margin_words(rate: HealthyRate, policy: Policy) -> str:
    if rate.margin is None:
        return f"none promotes such a candidate with a chance of {WANTED_POWER}: mend the failing cases first"
    if rate.promote >= WANTED_POWER:
        return f"the policy's {_percent(policy.margin)} works at the rate seen"
    if rate.margin <= policy.margin:
        return "the usual entries for the policy's margin and a budget beyond them would work at the rate seen"
    return f"{_percent(rate.margin)} would work at the rate seen: a chance of {WANTED_POWER} or more"


def _percent(rate: float) -> str:
    return f"{100 * rate:.3g} %"


def trial_document(trial: Trial, interrupted: bool) -> dict[str, Any]:
    """The whole trial; null is unknown."""
    seen, cells, rate = trial.server and trial.server.seen, trial.cells, trial.bad_rate()
    return {
        "server": trial.asked.url,
        "engine": seen and seen.engine,
        "build": seen and seen.build,
        "model": seen and seen.model,
        "context_tokens": seen and seen.context_tokens,
        "replay_set": {"name": cells.replay_set.name, "sha256": cells.replay_set.sha256},
        "policy": cells.policy.policy.name,
        "findings": [*trial.server.notes, *trial.server.seen.findings] if trial.server else [],
        "cases": [_case_document(tried) for tried in trial.tried],
        "counts": {str(came): trial.count(came) for came in Came} | {"unsent": trial.unsent},
        "bad_rate": None if rate is None else _rate_document(rate),
        "interrupted": interrupted,
    }


def _rate_document(rate: HealthyRate) -> dict[str, Any]:
    return {
        "bad": rate.bad,
        "prefills": rate.units,
        "rate": rate.rate,
        "interval": list(rate.interval),
        "promote": rate.promote,
        "promote_at_ends": list(rate.promote_at_ends),
        "margin": rate.margin,
    }


def _case_document(tried: Tried) -> dict[str, Any]:
    sent = tried.sent
    cell = None if sent is None else sent.event.cell
    found = None if sent is None else sent.classified
    texts = Texts() if sent is None else sent.texts
    outcomes = () if sent is None else sent.outcomes
    return {
        "case_id": tried.case.case_id,
        "status": tried.came.value,
        "why": tried.why,
        "prompt_tokens": tried.counted_tokens if cell is None or cell.prompt_tokens is None else cell.prompt_tokens,
        "cached_tokens": cell and cell.cached_tokens,
        "output_tokens": cell and cell.output_tokens,
        "seconds": _seconds(tried),
        "finish_reason": cell and cell.finish_reason,
        "freshness": None if found is None else found.cell_class.value,
        "witness": None if found is None else found.witness,
        "checks": [{k: v for k, v in asdict(outcome).items() if k != "text"} for outcome in outcomes],
        "content": texts.content,
        "reasoning": texts.reasoning,
        "tool_calls": texts.tool_calls,
    }
