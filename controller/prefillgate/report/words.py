"""Numbers and states put into the words every format shares. Rounding happens here and never in JSON."""

from __future__ import annotations

import math

from prefillgate.core.decision import Reason
from prefillgate.core.journal import BaselineShown
from prefillgate.core.verdict import ArmCounts, Interval, Outcome, ReplicateView, ThroughputState, Verdict

UNKNOWN = "unknown"
ABSENT = "absent"  # of a setting that is not written: what a server then does stands nowhere
Counts = ArmCounts | BaselineShown  # what has requests, prefills and their intervals

_SPEED = {
    ThroughputState.NOT_WORSE: "not worse",
    ThroughputState.WORSE: "worse",
    ThroughputState.OPEN: "open, more pairs are needed",
    ThroughputState.NOT_COMPARED: "not compared",
}

GLOSSARY: tuple[tuple[str, str], ...] = (
    ("cell", "one prompt on one arm once: one request, one answer"),
    ("prefill", "one fresh computation of a prompt on the server; the unit of evidence"),
    ("unit", "a fresh prefill with every cell that reused it"),
    ("copy", "a cell that rode the cache of an earlier prefill; it adds no evidence of its own"),
    ("partial", "a cell that reused a part of its prompt from the cache; never clean evidence"),
    ("unknown", "the server did not tell what it reused, and nothing proved a fresh prefill"),
    ("contradicted", "the counter says fresh, the clock or the token sum says otherwise; treated as unknown"),
    ("orphan", "a copy whose fresh prefill was never seen"),
    ("invalid", "a cell that measured nothing (refused, disturbed); planned again, never scored"),
    ("failed", "accepted by the server, then no complete answer; counts as bad"),
    ("n", "fresh prefills that count for promotion, each less the share it took from the cache"),
    ("k", "bad ones that count against promotion"),
    ("acceptance table", "promote at n prefills with at most k bad; set before the run"),
    ("alarm", "bad units come faster than a healthy profile explains; blocks promotion, never a verdict"),
    ("replicate", "new prefills on both arms, taken after the alarm and judged alone"),
    ("E", "e-value: evidence that the candidate is worse; may be looked at after every pair"),
    ("interval", "two-sided 95 % Clopper-Pearson, for decode ratios two-sided 90 %"),
    ("margin", "the bad rate (or loss of speed) that must be ruled out"),
    ("hold", "neither promote nor roll back: the evidence does not allow either"),
)


def plural(count: int, noun: str) -> str:
    """`1 prefill`, `2 prefills`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def number(value: float | None, digits: int = 3) -> str:
    """`value` to `digits` significant digits without exponents a reader must decode; unknown stays a word."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value != 0 and abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def percent(fraction: float | None, digits: int = 1) -> str:
    """A fraction as percent, trailing zeros off: `5 %`, `12.5 %`."""
    if fraction is None or not math.isfinite(fraction):
        return UNKNOWN
    text = f"{fraction * 100:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{'0' if text == '-0' else text} %"


def percent_interval(interval: Interval | None) -> str:
    """`0 to 10.9 %`, or unknown."""
    if interval is None:
        return UNKNOWN
    return f"{percent(interval[0]).removesuffix(' %')} to {percent(interval[1])}"


def change(ratio: float | None) -> str:
    """A ratio as a signed change in percent: 1.075 is `+7.5 %`."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    text = percent(ratio - 1)
    return text if text.startswith("-") or text == "0 %" else f"+{text}"


def change_interval(interval: Interval | None) -> str:
    """`-1.2 % to +2.4 %`, or unknown."""
    return UNKNOWN if interval is None else f"{change(interval[0])} to {change(interval[1])}"


def span(seconds: float) -> str:
    """A length of time in its two largest units: `45 s`, `5 min 3 s`, `2 h 10 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def requests_of(counts: Counts) -> str:
    """`11 of 12 bad`."""
    return _of(counts.bad_requests, counts.requests)


def prefills_of(counts: Counts) -> str:
    """`2 of 2 bad`."""
    return _of(counts.bad_prefills, counts.prefills)


def permissions(verdict: Verdict) -> str:
    """`Promotion blocked, rollback refused`; of a run that judges nobody only what it speaks of."""
    decision = verdict.decision
    if verdict.judges_nobody:
        return "Nobody is judged" if verdict.floor_alone else f"Rollback {decision.rollback.value.lower()}"
    return f"Promotion {decision.promotion.value.lower()}, rollback {decision.rollback.value.lower()}"


JUDGES_NOBODY = {str(Reason.FLOOR_MEASURED): "SOUND", str(Reason.NO_ALARM): "NO ALARM"}
"""What an answer begins with that holds nobody up: by its reason."""


def headline(verdict: Verdict) -> str:
    """The one word an answer begins with: PROMOTE, HOLD, ROLLBACK, ERROR, ALARM or CONTINUE; of a run that judges
    nobody SOUND (a floor) or NO ALARM (a small replay after a promotion)."""
    decision = verdict.decision
    if decision.reason in JUDGES_NOBODY:
        return JUDGES_NOBODY[decision.reason]
    if not decision.measured and decision.decision is Outcome.HOLD:
        return "ERROR"
    if verdict.alarm and decision.decision in (Outcome.HOLD, Outcome.CONTINUE):
        return "ALARM"
    return decision.decision.value.upper()


def ending(replicate: ReplicateView) -> str:
    """How a replicate ended, in words: `confirmed`, `not confirmed (clean)`, `running`."""
    if replicate.ending is None:
        return "running"
    return "confirmed" if replicate.ending == "confirmed" else f"not confirmed ({replicate.ending})"


def speed(state: ThroughputState) -> str:
    """The state of the decode comparison in words."""
    return _SPEED[state]


def acceptance_rule(verdict: Verdict) -> str:
    """`32 with 0 bad, 56 with 1 bad, 75 with 2 bad`."""
    return ", ".join(f"{at} with {bad} bad" for bad, at in enumerate(verdict.acceptance)) or UNKNOWN


def counting(counts: ArmCounts) -> str:
    """Every count of an arm beyond requests and prefills that is not zero: `10 copies, 1 partial`."""
    named = (
        ("copy" if counts.copies == 1 else "copies", counts.copies),
        ("partial", counts.partial),
        ("unknown", counts.unknown),
        ("orphan" if counts.orphans == 1 else "orphans", counts.orphans),
        ("invalid", counts.invalid),
    )
    return ", ".join(f"{count:,} {name}" for name, count in named if count) or "none"


def _of(bad: int, total: int) -> str:
    return f"{bad:,} of {total:,} bad" if total else "none"
