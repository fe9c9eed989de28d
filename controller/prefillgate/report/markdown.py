"""The verdict as Markdown, for a pull request or a chat that renders it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from prefillgate.core.journal import BaselineShown, Texts
from prefillgate.core.stored_baseline import age_words
from prefillgate.core.verdict import ArmCounts, ReplicateView, ThroughputState, Verdict
from prefillgate.report.clean import one_line, visible
from prefillgate.report.units import bad_cells, failed_checks, invalid_cells, shown_parts, stage, twins
from prefillgate.report.words import (
    acceptance_rule,
    change,
    change_interval,
    counting,
    ending,
    headline,
    number,
    percent,
    percent_interval,
    permissions,
    plural,
    prefills_of,
    requests_of,
    speed,
)

_ROWS = 20
_TEXT_LIMIT = 1500
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~&$@^=])")
_SCHEME = re.compile(r":(?=//)")


def render_markdown(verdict: Verdict, texts: Mapping[int, Texts]) -> str:
    """The whole answer in sections, under 60,000 characters however long the run was."""
    sections = (
        _answer(verdict),
        _counts(verdict),
        _change(verdict),
        _bad(verdict),
        _twin(verdict, texts),
        _replicates(verdict),
        _throughput(verdict),
        _differences(verdict),
        _notes(verdict),
        _numbers(verdict),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def escape(text: str) -> str:
    """Text of strangers as Markdown that shows it as it is: no markup, no HTML, no links, no mentions."""
    return _SCHEME.sub(r"\:", _SPECIAL.sub(r"\\\1", one_line(text, 600)))


def code(text: str) -> str:
    """A code span that `text` cannot leave, also inside a table cell."""
    line = one_line(text, 200).replace("|", "¦")
    fence = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def block(text: str) -> str:
    """A fenced block that `text` cannot leave."""
    shown = visible(text)
    more = len(shown) - _TEXT_LIMIT
    shown = shown if more <= 0 else f"{shown[:_TEXT_LIMIT]}\n… ({more} more characters)"
    fence = "`" * max(3, _longest_run(shown) + 1)
    return f"{fence}text\n{shown}\n{fence}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _answer(verdict: Verdict) -> str:
    decision = verdict.decision
    lines = [
        f"## {headline(verdict)}: {escape(verdict.title)}",
        f"**{permissions(verdict)}.** Decision {decision.decision.value}, reason {code(decision.reason)}, "
        f"cause {escape(decision.cause)}.",
        *(escape(sentence) for sentence in decision.sentences),
    ]
    return "\n\n".join(lines)


def _counts(verdict: Verdict) -> str:
    def row(name: str, counts: ArmCounts) -> list[str]:
        return [
            escape(name),
            requests_of(counts),
            percent_interval(counts.request_interval),
            prefills_of(counts),
            percent_interval(counts.prefill_interval),
            str(counts.decision_prefills),
            str(counts.bad_for_promotion),
            counting(counts),
        ]

    head = ["arm", "requests", "95 %", "prefills", "95 %", "n", "k", "other cells"]
    rows = [row(name, counts) for _, name, counts in verdict.arms]
    if verdict.baseline_shown is not None:
        rows.append(_stored(verdict.baseline_shown))
    return f"### Requests and prefills\n\n{table(head, rows)}" + (f"\n\n{_tests(verdict)}" if verdict.baseline else "")


def _stored(shown: BaselineShown) -> list[str]:
    """An earlier run's baseline: it has no n and no k, because nothing is decided by it."""
    return [
        f"stored baseline, {age_words(shown.age_seconds)} old",
        requests_of(shown),
        percent_interval(shown.request_interval),
        prefills_of(shown),
        percent_interval(shown.prefill_interval),
        "–",
        "–",
        "decides nothing",
    ]


def _tests(verdict: Verdict) -> str:
    compared = verdict.comparison
    return (
        f"Fisher by request {number(compared.fisher_by_request)} (counts copies as evidence), "
        f"by prefill {number(compared.fisher_by_prefill)}, Boschloo by prefill {number(compared.boschloo_by_prefill)}."
    )


def _change(verdict: Verdict) -> str:
    told = verdict.decision.what_would_change
    return "### What would change the answer\n\n" + "\n".join(f"- {escape(each)}" for each in told) if told else ""


def _bad(verdict: Verdict) -> str:
    bad = bad_cells(verdict)
    if not bad:
        return ""
    rows = [
        [
            str(view.cell_id),
            view.cell.arm,
            code(view.cell.case_id),
            stage(view),
            view.cell_class.value if view.cell_class else "invalid",
            f"{_count(view.cell.cached_tokens)} of {_count(view.cell.prompt_tokens)}",
            escape(failed_checks(view) or view.detail or view.reason or ""),
        ]
        for view in bad[:_ROWS]
    ]
    head = ["cell", "arm", "case", "stage", "class", "cached of prompt tokens", "why"]
    rest = f"\n\n… and {len(bad) - _ROWS} more bad cells." if len(bad) > _ROWS else ""
    return f"### Bad cells\n\n{table(head, rows)}{rest}"


def _twin(verdict: Verdict, texts: Mapping[int, Texts]) -> str:
    pair = twins(verdict)
    if pair is None or not shown_parts(texts.get(pair.bad.cell_id)):
        return ""
    lines = [f"### One bad cell beside its twin\n\nCase {code(pair.bad.cell.case_id)}"]
    for word, view in (("bad", pair.bad), ("clean", pair.twin)):
        if view is None:
            lines.append("No clean cell of this case to compare with.")
            continue
        lines.append(f"Cell {view.cell_id}, {view.cell.arm}, {stage(view)}, {word}:")
        lines += [f"{part}:\n\n{block(text)}" for part, text in shown_parts(texts.get(view.cell_id)).items()]
    return "\n\n".join(lines)


def _replicates(verdict: Verdict) -> str:
    def row(view: ReplicateView) -> list[str]:
        return [
            str(view.number),
            escape(ending(view)),
            f"{view.candidate_bad} of {view.candidate_units} bad",
            str(len(view.pairs)),
            number(view.e_value),
            number(view.threshold),
            percent(view.candidate_rate_upper),
            escape(f"{view.separation or 'unknown'} {view.separation_detail}".strip()),
        ]

    if not verdict.replicates:
        return ""
    head = ["replicate", "ending", "candidate prefills", "pairs", "E", "confirms at", "rate below", "separation"]
    return f"### Replicates\n\n{table(head, [row(view) for view in verdict.replicates])}"


def _throughput(verdict: Verdict) -> str:
    view = verdict.throughput
    if view.state is ThroughputState.NOT_COMPARED:
        return f"### Decode throughput\n\n{escape(view.sentence) or 'Not compared.'}"
    numbers = (
        f"{speed(view.state).capitalize()}: {change(view.ratio)} (90 % {change_interval(view.ratio_interval)}), "
        f"margin {percent(view.margin)}, {plural(view.pairs_used, 'pair')} over "
        f"{plural(view.prompts_in_pairs, 'prompt')}."
    )
    return f"### Decode throughput\n\n{numbers}" + (f"\n\n{escape(view.sentence)}" if view.sentence else "")


def _differences(verdict: Verdict) -> str:
    rows = [
        [
            escape(each.area),
            code(each.name),
            code("unknown" if each.baseline is None else each.baseline),
            code("unknown" if each.candidate is None else each.candidate),
            "yes" if each.declared else "**no**",
        ]
        for each in verdict.differences
    ]
    if not rows:
        none = "None known." if verdict.baseline else "No baseline was part of this."
        return f"### Differences between the profiles\n\n{none}"
    head = ["area", "name", "baseline", "candidate", "declared"]
    return f"### Differences between the profiles\n\n{table(head, rows)}"


def _notes(verdict: Verdict) -> str:
    told = [escape(note) for note in verdict.notes]
    invalid = invalid_cells(verdict)
    if invalid:
        told.append(f"{plural(len(invalid), 'invalid cell')}, never scored.")
    return "### Notes\n\n" + "\n".join(f"- {each}" for each in told) if told else ""


def _numbers(verdict: Verdict) -> str:
    return (
        f"Policy {code(verdict.policy_name)}: bad rate below {percent(verdict.margin)}, promote at "
        f"{acceptance_rule(verdict)}. {verdict.prefills_used} of {verdict.budget} prefills used. "
        f"Replay set {code(verdict.replay_set_name)}, {plural(verdict.prompts, 'prompt')}, "
        f"digest {code(verdict.replay_set_sha256)}."
    )


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
