"""The verdict on one screen of a terminal, for the engineer on call: at most 40 lines of 100 columns.

A narrower terminal gets more lines in proportion, so that it loses no words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefillgate.core.verdict import Promotion, Rollback, ThroughputState, Verdict
from prefillgate.report.clean import one_line
from prefillgate.report.paper import INDENT, NO_COLOURS, WIDTH, Palette, Paper, cut, paint
from prefillgate.report.units import bad_cases
from prefillgate.report.words import (
    Counts,
    change,
    change_interval,
    counting,
    ending,
    headline,
    number,
    percent,
    percent_interval,
    plural,
    prefills_of,
    requests_of,
    speed,
)

LINES = 40
_TABLE_WIDTH = 90


@dataclass(frozen=True, slots=True)
class SummaryOptions:
    """`override_command` is the one command that overrides a refusal; empty: none is offered. `width` in columns."""

    override_command: str = ""
    report_path: str = ""
    palette: Palette = NO_COLOURS
    width: int = WIDTH


SENTENCE_LINES = 13
PARAGRAPH_LINES = 5
PLAIN = SummaryOptions()


def render_terminal(verdict: Verdict, options: SummaryOptions = PLAIN) -> str:
    """The summary, a newline at its end. Colour codes do not count as columns."""
    paper = Paper(options.width)
    sections = [
        _head(verdict, options.palette, paper),
        _sentences(verdict, paper),
        [] if verdict.judges_nobody else _changed(verdict, paper),
        _arms(verdict, options.palette, paper),
        _evidence(verdict, paper),
        _rest(verdict, options, paper),
    ]
    lines = [line for section in sections if section for line in (*section, "")]
    return "\n".join(_fit(lines[:-1], options, paper)) + "\n"


def render_paragraphs(paragraphs: Sequence[str], options: SummaryOptions = PLAIN) -> str:
    """Sentences below a summary, each on as many lines as it takes, an empty line before the first; none: nothing."""
    paper = Paper(options.width)
    lines = [line for paragraph in paragraphs for line in paper.wrap(paragraph, "", PARAGRAPH_LINES)]
    return "".join(f"{line}\n" for line in ("", *lines)) if lines else ""


def _head(verdict: Verdict, palette: Palette, paper: Paper) -> list[str]:
    decision = verdict.decision
    good = decision.promotion is Promotion.ALLOWED
    colour = palette.good if good else palette.bad if decision.rollback is Rollback.ALLOWED else palette.warn
    promotion = paint(decision.promotion.value, palette.good if good else palette.warn, palette)
    rollback = paint(decision.rollback.value, palette.bad if decision.rollback is Rollback.ALLOWED else "", palette)
    word = headline(verdict)
    title = cut(one_line(verdict.title), paper.width - len(word) - 2)
    return [
        f"{paint(word, palette.bold + colour, palette)}  {title}",
        *([] if verdict.judges_nobody else [f"{'decision':<{INDENT}}{decision.decision.value}"]),
        *([] if verdict.judges_nobody else [f"{'promotion':<{INDENT}}{promotion}"]),
        *([] if verdict.floor_alone else [f"{'rollback':<{INDENT}}{rollback}"]),
        *paper.field("reason", decision.reason, 1),
        *([] if verdict.floor_alone else paper.field("cause", decision.cause, 1)),
    ]


def _sentences(verdict: Verdict, paper: Paper) -> list[str]:
    told: list[str] = []
    for sentence in verdict.decision.sentences:
        told += paper.wrap(sentence, "", 3)
    most = paper.lines(SENTENCE_LINES)
    return told if len(told) <= most else [*told[: most - 1], "…"]


def _changed(verdict: Verdict, paper: Paper) -> list[str]:
    lines: list[str] = []
    for index, each in enumerate(verdict.differences[:3]):
        sides = f"{_known(each.baseline)} -> {_known(each.candidate)}"
        told = f"{each.area}: {each.name}, {sides}{'' if each.declared else ' (UNDECLARED)'}"
        lines += paper.field("what changed" if index == 0 else "", told, 1)
    if not lines:
        none = "no difference known" if verdict.baseline else "no baseline to differ from"
        return paper.field("what changed", none, 1)
    if len(verdict.differences) > 3:
        lines += paper.field("", f"and {len(verdict.differences) - 3} more differences", 1)
    return lines


def _arms(verdict: Verdict, palette: Palette, paper: Paper) -> list[str]:
    rows: list[tuple[str, Counts]] = [(arm, counts) for arm, _, counts in verdict.arms]
    if verdict.baseline_shown is not None:
        rows.insert(-1, ("stored baseline", verdict.baseline_shown))  # what follows the table is of its last row
    if paper.width < _TABLE_WIDTH:
        lines = [line for name, counts in rows for line in _stacked(name, counts)]
    else:
        head = f"{'':<{INDENT}}{'requests':<20}{'95 % interval':<18}{'prefills':<20}95 % interval"
        lines = [paint(head, palette.dim, palette), *(_row(name, counts) for name, counts in rows)]
    if verdict.floor_alone:
        return lines
    counts = verdict.candidate
    told = f"n {counts.decision_prefills}, k {counts.bad_for_promotion}; besides prefills: {counting(counts)}"
    cases = bad_cases(verdict)
    if cases:
        named = ", ".join(one_line(case, 30) for case in cases[:3])
        told += f"; bad: {named}{f' and {len(cases) - 3} more' if len(cases) > 3 else ''}"
    return lines + paper.wrap(told, " " * INDENT, 2)


def _row(name: str, counts: Counts) -> str:
    cells = f"{requests_of(counts):<20}{percent_interval(counts.request_interval):<18}"
    units = f"{prefills_of(counts):<20}{percent_interval(counts.prefill_interval)}"
    return f"{name:<{INDENT}}{cells}{units}"


def _stacked(name: str, counts: Counts) -> list[str]:
    """The row of the table on two lines."""
    return [
        f"{name:<{INDENT}}requests {requests_of(counts)}, {percent_interval(counts.request_interval)}",
        f"{'':<{INDENT}}prefills {prefills_of(counts)}, {percent_interval(counts.prefill_interval)}",
    ]


def _evidence(verdict: Verdict, paper: Paper) -> list[str]:
    lines: list[str] = []
    for view in verdict.replicates[-2:]:
        told = (
            f"{ending(view)}, {view.separation or 'separation unknown'}, "
            f"{view.candidate_bad} of {view.candidate_units} candidate prefills bad, "
            f"E {number(view.e_value)} (confirms at {number(view.threshold)})"
        )
        lines += paper.field(f"replicate {view.number}", told, 2)
    view_ = verdict.throughput
    if view_.state is ThroughputState.NOT_COMPARED:
        told = view_.sentence or "not compared"
    else:
        told = f"{speed(view_.state)}, {change(view_.ratio)} ({change_interval(view_.ratio_interval)}), "
        told += f"margin {percent(view_.margin)}, {plural(view_.pairs_used, 'pair')}"
    lines += [] if verdict.judges_nobody else paper.field("decode speed", told, 2)
    if verdict.shape is not None and verdict.shape.shared:
        lines += paper.field("isolation", "shared: the servers served others meanwhile", 1)
    if not verdict.replay_set_sha256:  # a log: its prefills were spent by somebody else
        return lines + paper.field("policy", f"{verdict.policy_name}, {plural(verdict.prefills_used, 'prefill')}", 1)
    used = f"{verdict.prefills_used} of {verdict.budget} prefills, policy {verdict.policy_name}"
    return lines + paper.field("budget", used, 1)


def _rest(verdict: Verdict, options: SummaryOptions, paper: Paper) -> list[str]:
    lines: list[str] = []
    for index, each in enumerate(verdict.decision.what_would_change[:3]):
        lines += paper.field("would change it" if index == 0 else "", each, 2)
    for index, note in enumerate(verdict.notes[:2]):
        lines += paper.field("notes" if index == 0 else "", note, 1)
    if len(verdict.notes) > 2:
        lines += paper.field("", f"and {len(verdict.notes) - 2} more notes in the report", 1)
    blocked = verdict.decision.promotion is Promotion.BLOCKED
    if options.override_command and blocked and verdict.decision.rollback is Rollback.REFUSED:
        lines.append(f"{'override':<{INDENT}}{one_line(options.override_command)}")
    if options.report_path:
        lines.append(f"{'report':<{INDENT}}{one_line(options.report_path)}")
    return lines


def _fit(lines: list[str], options: SummaryOptions, paper: Paper) -> list[str]:
    """Blank lines go first; a path or a command is never cut, so what the screen cannot hold ends above them."""
    most = paper.lines(LINES)
    if len(lines) <= most:
        return lines
    dense = [line for line in lines if line]
    kept = sum(1 for told in (options.override_command, options.report_path) if told)
    return dense if len(dense) <= most else dense[: most - kept] + dense[len(dense) - kept :]


def _known(value: str | None) -> str:
    return "unknown" if value is None else one_line(value, 60)
