"""Telling the story: the naive reading beside the honest one, every figure computed from the journal's events.

`read_story` is a function of the events alone; `page` writes what it found; `not_as_told` holds it against
STATISTICS.md section 5. The figures of that section stand in `TOLD`, and nothing of `TOLD` is printed as a finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE, Cell
from prefillgate.core.evalue import pair_factor, replicate_threshold
from prefillgate.core.freshness import classify
from prefillgate.core.gate import fold
from prefillgate.core.journal import Event, ReplicateStarted
from prefillgate.core.judge import judge
from prefillgate.core.policy import ReplicatePolicy
from prefillgate.core.snapshot import clean_prefills_needed
from prefillgate.core.units import build_ledger, count_arm
from prefillgate.core.verdict import ArmCounts, CellClass, ReplicateView, Verdict

SIGNIFICANT = 0.05  # where a reader of p values calls a difference shown


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt on one arm, as the team's replay saw it. Token counts are those its cells reported, each once."""

    case_id: str
    arm: str
    counts: ArmCounts
    prompt_tokens: tuple[int, ...]
    copied: tuple[tuple[int, int], ...]  # (cached, processed) of copies


@dataclass(frozen=True, slots=True)
class Story:
    """What the events say. `alarm` is the verdict before the replicate, `end` the one after everything."""

    alarm: Verdict
    end: Verdict
    rows: tuple[Row, ...]
    same_prompts: tuple[ArmCounts, ArmCounts]  # (candidate, baseline) over the prompts that both arms saw
    e_value_if_replicate: float | None  # None unless each of those prompts has a fresh outcome on both arms
    threshold: float  # E at which the first replicate confirms
    prefill_seconds: tuple[float, ...]  # prefill and decode of a request as the server reports them, rising
    copy_seconds: tuple[float, ...]
    clean_prefills_needed: int | None
    replicate_cached: tuple[int, ...]  # cached tokens of the replicate's cells, each value once
    replicate_baseline_cells: int

    @property
    def replicate(self) -> ReplicateView | None:
        """The replicate, if the alarm was followed by one."""
        return self.end.replicates[0] if self.end.replicates else None


def read_story(events: Sequence[Event]) -> Story:
    """Compute everything the story tells. Raises `JournalError` for events that are no run's."""
    start = next((place for place, event in enumerate(events) if isinstance(event, ReplicateStarted)), len(events))
    screen, whole = fold(events[:start]), fold(events)
    alarm, end = judge(screen), judge(whole)
    cells = [event.cell for event in screen.scored]
    seen = {arm: {cell.case_id for cell in cells if cell.arm == arm} for arm in ARMS}
    cases = [case.case_id for case in screen.plan.cases if case.case_id in seen[BASELINE] & seen[CANDIDATE]]
    same = [cell for cell in cells if cell.case_id in cases]
    classified = classify(same)
    policy = screen.plan.policy.replicate
    replicate_cells = [event.cell for event in whole.scored if event.cell.replicate]
    return Story(
        alarm=alarm,
        end=end,
        rows=tuple(_row(same, case_id, arm) for case_id in cases for arm in ARMS),
        same_prompts=(count_arm(classified, CANDIDATE), count_arm(classified, BASELINE)),
        e_value_if_replicate=_e_value_if(same, cases, policy),
        threshold=replicate_threshold(screen.plan.first_replicate, policy, len(screen.flags)),
        prefill_seconds=_seconds(same, CellClass.FRESH),
        copy_seconds=_seconds(same, CellClass.COPY),
        clean_prefills_needed=clean_prefills_needed(whole),
        replicate_cached=tuple(sorted({c.cached_tokens for c in replicate_cells if c.cached_tokens is not None})),
        replicate_baseline_cells=sum(1 for cell in replicate_cells if cell.arm == BASELINE),
    )


def _row(cells: Sequence[Cell], case_id: str, arm: str) -> Row:
    mine = classify([cell for cell in cells if (cell.case_id, cell.arm) == (case_id, arm)])
    copies = [item.cell for item in mine if item.cell_class is CellClass.COPY]
    told = {(c.cached_tokens, c.processed_tokens) for c in copies}
    return Row(
        case_id=case_id,
        arm=arm,
        counts=count_arm(mine, arm),
        prompt_tokens=tuple(sorted({n for item in mine if (n := item.cell.prompt_tokens) is not None})),
        copied=tuple(sorted((one, other) for one, other in told if one is not None and other is not None)),
    )


def _e_value_if(cells: Sequence[Cell], cases: Sequence[str], policy: ReplicatePolicy) -> float | None:
    """What E would be, were the first prefill of each prompt on each arm a pair of a replicate."""
    value = 1.0
    for case_id in cases:
        classified = classify([cell for cell in cells if cell.case_id == case_id])
        first = {arm: next((u.own_outcome for u in build_ledger(classified, arm).units), None) for arm in ARMS}
        candidate, baseline = first[CANDIDATE], first[BASELINE]
        if candidate is None or baseline is None:
            return None
        value *= pair_factor(candidate, baseline, policy.planned_baseline_rate, policy.planned_candidate_rate)
    return value if cases else None


def _seconds(cells: Sequence[Cell], wanted: CellClass) -> tuple[float, ...]:
    times = [(item.cell.prefill_ms, item.cell.decode_ms) for item in classify(cells) if item.cell_class is wanted]
    return tuple(sorted((one + other) / 1000 for one, other in times if one is not None and other is not None))


# -- against the page


def _figures(story: Story) -> dict[str, object]:
    """Every figure of STATISTICS.md section 5, as found."""
    (candidate, baseline), alarm, end = story.same_prompts, story.alarm, story.end
    comparison, replicate = alarm.comparison, story.replicate
    return {
        "candidate, bad requests": f"{candidate.bad_requests} of {candidate.requests}",
        "candidate, bad prefills": f"{candidate.bad_prefills} of {candidate.prefills}",
        "baseline, bad requests": f"{baseline.bad_requests} of {baseline.requests}",
        "baseline, bad prefills": f"{baseline.bad_prefills} of {baseline.prefills}",
        "baseline, bad requests over the whole set": _bad_of(alarm.baseline),
        "prompt tokens": sorted({tokens for row in story.rows for tokens in row.prompt_tokens}, reverse=True),
        "tokens processed by copies": sorted({processed for row in story.rows for _, processed in row.copied}),
        "Fisher by request": _p(comparison.fisher_by_request),
        "Fisher by prefill": _p(comparison.fisher_by_prefill),
        "Boschloo by prefill": _p(comparison.boschloo_by_prefill),
        "E, were the pairs a replicate": _p(story.e_value_if_replicate),
        "answer at the alarm": _answer(alarm),
        "replicate": replicate and (replicate.ending, f"{replicate.candidate_bad} of {replicate.candidate_units}"),
        "replicate, rate below": _p(replicate.candidate_rate_upper if replicate else None),
        "n and k": (end.candidate.decision_prefills, end.candidate.bad_for_promotion),
        "clean prefills that would promote": story.clean_prefills_needed,
        "answer at the end": _answer(end),
        "cause": end.decision.cause,
    }


TOLD: dict[str, object] = {
    "candidate, bad requests": "11 of 12",
    "candidate, bad prefills": "2 of 2",
    "baseline, bad requests": "0 of 20",
    "baseline, bad prefills": "0 of 2",
    "baseline, bad requests over the whole set": "0 of 95",
    "prompt tokens": [16_896, 11_136],
    "tokens processed by copies": [4],
    "Fisher by request": "9.3e-08",
    "Fisher by prefill": "0.167",
    "Boschloo by prefill": "0.0625",
    "E, were the pairs a replicate": "5.58",
    "answer at the alarm": "ReplicateDue: promotion Blocked, rollback Refused",
    "replicate": ("clean", "0 of 8"),
    "replicate, rate below": "0.312",
    "n and k": (10, 2),
    "clean prefills that would promote": 65,
    "answer at the end": "MoreEvidenceNeeded: promotion Blocked, rollback Refused",
    "cause": "Unverified",
}


def not_as_told(story: Story) -> list[str]:
    """One line for each figure that came out otherwise than STATISTICS.md section 5 tells it."""
    found = _figures(story)
    return [f"{name}: {found[name]}, the story has {told}" for name, told in TOLD.items() if found[name] != told]


def _answer(verdict: Verdict) -> str:
    decision = verdict.decision
    return f"{decision.reason}: promotion {decision.promotion}, rollback {decision.rollback}"


def _p(value: float | None) -> str:
    """Three digits, two where it is tiny; `-` where it could not be computed."""
    if value is None:
        return "-"
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"


# -- the page

ROW = "   {:<18} {:<10} {:>5} {:>4} {:>9} {:>7} {:>14}   {}"
APART = {"restart": "a restart of the candidate", "gap": "the policy's gap", "another_process": "another process"}
READING = "   {:<12} {:<24} {}"


def page(story: Story) -> list[str]:
    """The story in lines of at most 100 columns, up to the two verdicts."""
    return [*_replay(story), "", *_readings(story), "", *_replicate(story)]


def _replay(story: Story) -> Iterator[str]:
    yield "1. THE REPLAY, as the review bot sends it: prompt cache on. Bad: a verdict without a rationale."
    yield ROW.format("prompt", "arm", "cells", "bad", "prefills", "copies", "prompt tokens", "a copy's tokens")
    for row in story.rows:
        tokens = ", ".join(f"{value:,}" for value in row.prompt_tokens)
        copied = "; ".join(f"{cached:,} cached + {processed:,}" for cached, processed in row.copied)
        yield _counted(row.case_id, row.arm, row.counts, (tokens, copied))
    for arm, _, counts in story.alarm.arms:
        yield _counted("all prompts", arm, counts, ("", ""))
    spent = f"{_span(story.prefill_seconds)} with a prefill, {_span(story.copy_seconds)} as a copy"
    yield f"   Seconds as reported, none slept: {spent}."


def _bad_of(counts: ArmCounts | None) -> str | None:
    return None if counts is None else f"{counts.bad_requests} of {counts.requests}"


def _counted(name: str, arm: str, counts: ArmCounts, tokens: tuple[str, str]) -> str:
    numbers = (counts.requests, counts.bad_requests, counts.prefills, counts.copies)
    return ROW.format(name, arm, *numbers, *tokens).rstrip()


def _span(seconds: Sequence[float]) -> str:
    return f"{_p(seconds[0])} to {_p(seconds[-1])}" if seconds else "none"


def _readings(story: Story) -> Iterator[str]:
    candidate, baseline = story.same_prompts
    comparison, alarm = story.alarm.comparison, story.alarm
    tests = f"Fisher {_p(comparison.fisher_by_prefill)}, Boschloo {_p(comparison.boschloo_by_prefill)}"
    yield READING.format("THE ALARM", "naive: by request", "honest: by prefill").replace("   ", "2. ", 1)
    for name, counts in (("candidate", candidate), ("baseline", baseline)):
        by_request = f"{counts.bad_requests} of {counts.requests} bad"
        yield READING.format(name, by_request, f"{counts.bad_prefills} of {counts.prefills} bad")
    yield READING.format("one-sided p", f"Fisher {_p(comparison.fisher_by_request)}", tests)
    yield READING.format("e-value", "-", _e_value(story))
    yield READING.format("answer", _naive_answer(comparison.fisher_by_request), _alarm_words(alarm))


def _naive_answer(p: float | None) -> str:
    return '"Roll back!"' if p is not None and p < SIGNIFICANT else '"No difference shown."'


def _e_value(story: Story) -> str:
    if story.e_value_if_replicate is None:
        return "no pair of prefills"
    return f"{_p(story.e_value_if_replicate)} if they were a replicate; that confirms at {story.threshold:g}"


def _alarm_words(verdict: Verdict) -> str:
    decision = verdict.decision
    raised = "alarm" if verdict.alarm else "no alarm"
    return f"{raised}: promotion {decision.promotion}, rollback {decision.rollback}, {decision.reason}"


def _replicate(story: Story) -> Iterator[str]:
    view, end = story.replicate, story.end
    if view is None:
        yield "3. NO REPLICATE: nothing was there to replicate."
        return
    apart = APART.get(view.separation or "", "nothing yet")
    yield f"3. THE REPLICATE: fresh prefills (cache_prompt: false), kept apart by {apart}."
    cached = ", ".join(f"{value:,}" for value in story.replicate_cached) or "unknown"
    seen = f"{view.candidate_bad} of {view.candidate_units} bad, cached tokens {cached}"
    yield f"   candidate {seen}; baseline prefills spent: {story.replicate_baseline_cells}. Ended: {view.ending}."
    n, k = end.candidate.decision_prefills, end.candidate.bad_for_promotion
    needed = story.clean_prefills_needed
    more = "no number of clean prefills promotes" if needed is None else f"{needed} more clean prefills would promote"
    yield f"   n = {n}, k = {k}: {more}. Cause: {end.decision.cause}."


def verdict_lines(story: Story) -> tuple[str, str]:
    """The two verdicts the story ends with."""
    (candidate, _), view = story.same_prompts, story.replicate
    alarm = story.alarm.decision
    when = "At the alarm" if story.alarm.alarm else "Without an alarm"
    first = (
        f"{when}: rollback {str(alarm.rollback).lower()}; {candidate.bad_requests} bad requests hang off "
        f"{candidate.bad_prefills} bad prefills."
    )
    return first, _second_verdict(story, view)


def _second_verdict(story: Story, view: ReplicateView | None) -> str:
    end = story.end.decision
    rollback = f"rollback {str(end.rollback).lower()}"
    if view is None:
        return f"No replicate: {rollback}."
    bad = f"{view.candidate_bad} of {view.candidate_units} fresh prefills bad"
    if view.ending == "confirmed":
        return f"Replicate: confirmed, {bad}; {rollback}."
    bound = "" if view.candidate_rate_upper is None else f" (rate < {view.candidate_rate_upper:.3f} at 95 %)"
    return f"Replicate: not confirmed, {bad}{bound}; {rollback}."


__all__ = ["Story", "not_as_told", "page", "read_story", "verdict_lines"]
