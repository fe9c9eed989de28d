"""Two answers to one prompt, word by word, for a terminal or a file: reasoning, content and tool calls apart."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from prefillgate.core.journal import Texts
from prefillgate.core.verdict import CellView
from prefillgate.report.clean import one_line
from prefillgate.report.diff import Change, Woven, weave
from prefillgate.report.meetings import Meeting
from prefillgate.report.paper import Palette
from prefillgate.report.units import failed_checks, shown_parts, stage
from prefillgate.report.words import plural

_INDENT = "  "
PARTS = ("reasoning", "content", "tool calls")
PLAIN = Palette()


def render_diff(meeting: Meeting, texts: Mapping[int, Texts], palette: Palette = PLAIN) -> str:
    """What both cells said, a newline at the end. Marks stand around what only one of them said.

    The marks are doubled until neither text holds them; every line of a text is indented, so no text can pass for
    another part of the page.
    """
    lines = [_told("baseline", meeting.baseline), _told("candidate", meeting.candidate)]
    views = [view for view in (meeting.baseline, meeting.candidate) if view is not None]
    said = [(view, shown_parts(texts.get(view.cell_id))) for view in views]
    spoken = [(view, parts) for view, parts in said if parts]
    if len(spoken) == 2:
        lines += _both(spoken[0][1], spoken[1][1], palette)
    for view, parts in spoken if len(spoken) < 2 else ():
        lines += _alone(view.cell.arm, parts)
    lines += [f"No text of the {view.cell.arm} was kept." for view, parts in said if not parts]
    return "\n".join(lines) + "\n"


def _both(baseline: Mapping[str, str], candidate: Mapping[str, str], palette: Palette) -> list[str]:
    pairs = {name: (baseline.get(name, ""), candidate.get(name, "")) for name in PARTS}
    pairs = {name: pair for name, pair in pairs.items() if name == "content" or any(pair)}
    marks = _Marks(palette, [text for pair in pairs.values() for text in pair])
    differ = any(left != right for left, right in pairs.values())
    legend = f"marks      {marks.removed('only the baseline')} {marks.added('only the candidate')}"
    lines = [legend] if differ else []
    for name, (left, right) in pairs.items():
        lines += ["", *_part(name, left, right, marks)]
    return lines


def _alone(arm: str, parts: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    for name, text in parts.items():
        head = f"{name} of the {arm}: {plural(len(text.split()), 'word')}"
        lines += ["", head, *_body(weave(text, text), _Marks(Palette(), []), ("",))]
    return lines


def _told(arm: str, view: CellView | None) -> str:
    if view is None:
        return f"{arm:<11}has not answered this case"
    outcome = {True: "BAD", False: "clean", None: "no outcome"}[view.bad]
    why = failed_checks(view) or ": ".join(part for part in (view.reason, view.detail) if part)
    pair = "" if view.pair is None else f", pair {view.pair}"
    told = f"cell {view.cell_id}, {stage(view)}{pair}: {outcome}{f' ({why})' if why else ''}"
    return f"{arm:<11}{one_line(told, 400)}"


def _part(name: str, left: str, right: str, marks: _Marks) -> list[str]:
    words = len(left.split()), len(right.split())
    if left == right:
        return [f"{name}: identical, {plural(words[0], 'word')}", *_body(weave(left, right), marks, ("",))]
    if left and right:
        head = f"{name}: differs, {plural(words[0], 'word')} against {words[1]:,}"
    else:
        head = f"{name}: in the {'baseline' if left else 'candidate'} alone, {plural(max(words), 'word')}"
    readable = (_laid_out(left), _laid_out(right)) if name == "tool calls" else (left, right)
    woven = weave(*readable)
    lines = [head, *_body(woven, marks, (" of the baseline", " of the candidate"))]
    if all(change.left and change.right for change in woven.changes):
        lines.append("(no difference lies within what is shown)")
    return lines


def _body(woven: Woven, marks: _Marks, sides: tuple[str, ...]) -> list[str]:
    text = "".join(marks.of(change) for change in woven.changes)
    lines = [f"{_INDENT}{line}" for line in text.split("\n")] if text else []
    for count, whose in zip(woven.left_out, sides, strict=False):
        if count:
            lines.append(f"({plural(count, 'more character')}{whose} not shown; --json has all)")
    return lines


def _laid_out(calls: str) -> str:
    """Tool calls one value a line, so that what differs is a word and not the whole array."""
    try:
        return json.dumps(json.loads(calls), ensure_ascii=False, indent=1)
    except (ValueError, RecursionError):
        return calls


class _Marks:
    """What stands around words of one side, and their colour; a line end among them is shown and kept."""

    def __init__(self, palette: Palette, texts: list[str]) -> None:
        self._palette = palette
        self._times = 1 + max(map(_longest_mark, texts), default=0)

    def removed(self, text: str) -> str:
        """Text of the baseline alone."""
        return self._around(text, "[", "-", "]", self._palette.bad)

    def added(self, text: str) -> str:
        """Text of the candidate alone."""
        return self._around(text, "{", "+", "}", self._palette.good)

    def of(self, change: Change) -> str:
        """Text of either or both."""
        if change.left and change.right:
            return change.text
        return self.removed(change.text) if change.left else self.added(change.text)

    def _around(self, text: str, opening: str, sign: str, closing: str, colour: str) -> str:
        reset = self._palette.reset if colour else ""
        before, after = f"{colour}{opening}{sign * self._times}", f"{sign * self._times}{closing}{reset}"
        lines = [*(f"{line}⏎" for line in text.split("\n")[:-1]), text.split("\n")[-1]]
        return "\n".join(f"{before}{line}{after}" if line else "" for line in lines)


def _longest_mark(text: str) -> int:
    """Length of the longest run of - or + beside a bracket."""
    runs = [run for run in re.finditer(r"-+|\++", text) if _bracketed(text, run.start() - 1, run.end())]
    return max((run.end() - run.start() for run in runs), default=0)


def _bracketed(text: str, before: int, after: int) -> bool:
    return (before >= 0 and text[before] in "[{") or (after < len(text) and text[after] in "]}")
