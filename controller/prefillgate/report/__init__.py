"""HTML, Markdown, JUnit, JSON, the one line and the terminal summary, all from one `Verdict`.

A renderer is imported when it is asked for: the JSON of a verdict does not load a template engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from prefillgate.core.journal import Texts
from prefillgate.core.verdict import Verdict
from prefillgate.report.json_report import arm_counts_json, verdict_json
from prefillgate.report.units import texts_wanted

__all__ = ["Format", "arm_counts_json", "render", "texts_wanted", "verdict_json"]

_NO_TEXTS: Mapping[int, Texts] = {}


class Format(StrEnum):
    HTML = "html"
    MARKDOWN = "markdown"
    JUNIT = "junit"
    JSON = "json"
    LINE = "line"


def render(verdict: Verdict, format: Format | str, texts: Mapping[int, Texts] = _NO_TEXTS) -> str:
    """`verdict` in one of the five formats; `texts` maps the cell ids of `texts_wanted(verdict)` to what they said.

    The text ends in a newline. It encodes as UTF-8 whatever the verdict holds. Raises ValueError for a
    format that does not exist.
    """
    try:
        wanted = Format(format)
    except ValueError:
        raise ValueError(f"format is {format!r}, allowed are {', '.join(Format)}") from None
    if wanted is Format.HTML:
        from prefillgate.report.html import render_html

        return render_html(verdict, texts)
    if wanted is Format.MARKDOWN:
        from prefillgate.report.markdown import render_markdown

        return render_markdown(verdict, texts)
    if wanted is Format.JUNIT:
        from prefillgate.report.junit import render_junit

        return render_junit(verdict)
    if wanted is Format.LINE:
        from prefillgate.report.line import render_line

        return render_line(verdict) + "\n"
    from prefillgate.report.json_report import render_json

    return render_json(verdict)
