"""A verdict in about a page of words: what was seen, what follows and why, what would change it, what to do next.

Everything comes from the verdict; nothing is computed anew.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from prefillgate.core.verdict import Decision, Verdict
from prefillgate.report.clean import one_line
from prefillgate.report.paper import NO_COLOURS, WIDTH, Palette
from prefillgate.report.reasons import bound, rule_of
from prefillgate.report.units import bad_cases
from prefillgate.report.words import UNKNOWN, headline, plural

CASES_NAMED = 5
DIFFERENCES_NAMED = 6
NOTES_SHOWN = 4
LONGEST_SENTENCE = 1200
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next, and the command that does it; without one there is nothing to run."""

    words: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """How the page is written. `alpha` is the policy's bound of a false promotion."""

    steps: Sequence[Step]
    alpha: float
    width: int = WIDTH
    palette: Palette = NO_COLOURS


def render_explanation(verdict: Verdict, page: Page) -> str:
    """The page, a newline at its end. Commands stand on lines of their own and are never broken."""
    parts = [
        ("What was seen", [line for told in seen(verdict) for line in _wrapped(told, page.width)]),
        ("What follows", [line for told in follows(verdict, page.alpha) for line in _wrapped(told, page.width)]),
        (
            "What would change it",
            [line for told in verdict.decision.what_would_change for line in _wrapped(told, page.width, "- ")],
        ),
        ("Next", [line for step in page.steps for line in _step(step, page.width)]),
    ]
    bold, reset = page.palette.bold, page.palette.reset
    lines = [f"{bold}{headline(verdict)}{reset if bold else ''}  {one_line(verdict.title, 60)}"]
    for heading, told in parts:
        if told:
            lines += ["", f"{bold}{heading}{reset if bold else ''}", *told]
    return "\n".join(lines) + "\n"


def seen(verdict: Verdict) -> list[str]:
    """What was measured, a sentence each."""
    told = [sentence for sentence in verdict.decision.sentences[1:] if not _is_permission(sentence)]
    if not any(counts.requests for _, _, counts in verdict.arms):
        told.insert(0, "No request was scored.")
    if verdict.alarm:
        told.append(
            "An alarm stands: bad prefills came faster than a healthy profile explains, and no replicate has "
            "answered it yet."
        )
    told += [
        f"{plural(counts.invalid, 'request')} to the {arm} measured nothing, never accepted or mixed up with other "
        "work: not counted."
        for arm, _, counts in verdict.arms
        if counts.invalid
    ]
    cases = bad_cases(verdict)
    if cases:
        told.append(f"Bad on the candidate: {_named(cases, CASES_NAMED)}.")
    if verdict.baseline is not None and not verdict.floor_alone:
        told.append(_differences(verdict))
    notes = verdict.notes[:NOTES_SHOWN]
    told += [f"Note: {note}." for note in notes]
    if len(verdict.notes) > len(notes):
        told.append(f"{plural(len(verdict.notes) - len(notes), 'more note')} in the report.")
    return told


def follows(verdict: Verdict, alpha: float) -> list[str]:
    """What is allowed, by which rule, and how far that can be trusted."""
    decision, hit = verdict.decision, rule_of(verdict)
    told = [
        *([] if verdict.judges_nobody else [_permitted(decision)]),
        *decision.sentences[:1],
        *(sentence for sentence in decision.sentences[1:] if _is_permission(sentence)),
        f"Why: rule {hit.number} of {hit.of} is the first that answers ({decision.reason}): {hit.says}.",
        bound(verdict, alpha),
    ]
    if verdict.candidate.bad_requests or decision.cause != "Unverified":
        told.append(f"Cause: {decision.cause}." if decision.cause != "Unverified" else _UNVERIFIED)
    return told


def _permitted(decision: Decision) -> str:
    return f"Promotion is {decision.promotion.value.lower()}, rollback is {decision.rollback.value.lower()}."


_UNVERIFIED = "Cause: unverified. That answers were bad is seen here, why they were is not."


def _is_permission(sentence: str) -> bool:
    """Whether a sentence says what is refused rather than what was seen."""
    return sentence.startswith("Rollback is refused")


def _differences(verdict: Verdict) -> str:
    if not verdict.differences:
        return "What differs between the profiles is not known: the servers show no difference and none was declared."
    told = tuple(
        f"{each.name} ({each.baseline or UNKNOWN} to {each.candidate or UNKNOWN}"
        f"{'' if each.declared else ', undeclared'})"
        for each in verdict.differences
    )
    return f"The profiles differ in {_named(told, DIFFERENCES_NAMED)}."


def _named(names: Sequence[str], most: int) -> str:
    rest = len(names) - most
    return ", ".join(one_line(name, 120) for name in names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _wrapped(text: str, width: int, mark: str = "") -> list[str]:
    return textwrap.wrap(
        one_line(text, LONGEST_SENTENCE),
        width,
        initial_indent=_INDENT + mark,
        subsequent_indent=_INDENT + " " * len(mark),
        break_on_hyphens=False,
    )


def _step(step: Step, width: int) -> list[str]:
    return [*_wrapped(step.words, width), *([f"{_INDENT}{_INDENT}{step.command}"] if step.command else [])]
