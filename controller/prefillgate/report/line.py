"""The verdict as one line, for a channel, a log or a commit status."""

from __future__ import annotations

from prefillgate.core.gateway import WHERE_WORDS, Where
from prefillgate.core.verdict import ThroughputState, Verdict
from prefillgate.report.clean import one_line
from prefillgate.report.units import bad_cases
from prefillgate.report.words import change, headline, permissions, plural, prefills_of

_CASES_NAMED = 3
_NAME_LIMIT = 40


def render_line(verdict: Verdict) -> str:
    """`[line] ALARM 11/12 cells bad (case, case), but only 2 prefills, the rest copies. Promotion blocked, ...`.

    One line without a newline at its end, free of control characters.
    """
    decision = verdict.decision
    parts = [
        f"[{one_line(verdict.title, 80)}] {headline(verdict)} {_evidence(verdict)}.",
        f"{permissions(verdict)}: {one_line(decision.reason, 80)}.",
    ]
    if verdict.replicates:
        parts.append(_replicate(verdict))
    if verdict.throughput.state is not ThroughputState.NOT_COMPARED and verdict.throughput.ratio is not None:
        parts.append(f"Decode {change(verdict.throughput.ratio)}.")
    if verdict.candidate.bad_requests:
        parts.append(f"Cause {one_line(decision.cause, 80)}.")
    if verdict.gateway:
        parts.append(_gateway(verdict))
    if decision.what_would_change:
        parts.append(f"Next: {one_line(decision.what_would_change[0], 160).rstrip('.')}.")
    return " ".join(parts)


def _gateway(verdict: Verdict) -> str:
    """Where the first bad cell broke, and how many were asked."""
    first = verdict.gateway[0]
    if not first.reached:
        return "Gateway could not be asked."
    return f"Gateway: {WHERE_WORDS[Where(first.where)]} ({one_line(first.case_id, 40)}; one prefill each)."


def _evidence(verdict: Verdict) -> str:
    counts = verdict.baseline if verdict.floor_alone else verdict.candidate
    if counts is None or not counts.requests:
        return "no cell scored"
    cells = f"{counts.bad_requests}/{counts.requests} cells bad{_named(bad_cases(verdict))}"
    if counts.copies:
        others = "the rest copies" if counts.copies + counts.prefills == counts.requests else f"{counts.copies} copies"
        only = "but only " if counts.bad_requests else ""
        units = f" ({counts.bad_prefills} of {counts.prefills} prefills bad)" if counts.prefills else ""
        return f"{cells}, {only}{plural(counts.prefills, 'prefill')}, {others}{units}"
    units = f" ({prefills_of(counts)})" if counts.prefills else ""
    return f"{cells} on {plural(counts.prefills, 'prefill')}{units}"


def _named(cases: tuple[str, ...]) -> str:
    if not cases:
        return ""
    shown = ", ".join(one_line(case, _NAME_LIMIT) for case in cases[:_CASES_NAMED])
    rest = len(cases) - _CASES_NAMED
    return f" ({shown}{f' and {rest} more' if rest > 0 else ''})"


def _replicate(verdict: Verdict) -> str:
    last = verdict.replicates[-1]
    told = f"{last.candidate_bad}/{last.candidate_units} bad in fresh prefills"
    if last.ending is None:
        return f"Replicate {last.number} running, {told}."
    state = "confirmed" if last.ending == "confirmed" else "did not confirm"
    return f"Replicate {last.number} {state}, {told}."
