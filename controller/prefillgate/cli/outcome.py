"""How a verdict leaves the program: its exit code, its files, its summary on a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefillgate.cli.speaking import quoted as quoted
from prefillgate.cli.speaking import say as say

if TYPE_CHECKING:
    from prefillgate.api.store_address import StoreAddress
    from prefillgate.core.journal import Journal
    from prefillgate.core.verdict import Verdict
    from prefillgate.report.paper import Palette
    from prefillgate.runs.running import Finished

EXIT_CODES = {"promote": 0, "hold": 10, "continue": 10, "rollback": 20}
EXIT_NOT_MEASURED = 1
FEWEST_COLUMNS, MOST_COLUMNS = 60, 100


def exit_code(verdict: Verdict) -> int:
    """0 promote, a sound floor, a replay without an alarm; 10 hold, 20 rollback allowed, 1 could not measure."""
    from prefillgate.report.words import JUDGES_NOBODY

    if not verdict.decision.measured:
        return EXIT_NOT_MEASURED
    if verdict.decision.reason in JUDGES_NOBODY:
        return 0
    return EXIT_CODES[str(verdict.decision.decision)]


def rendered(verdict: Verdict, journal: Journal, format: str) -> str:
    """The verdict in one of the report formats, with the few texts it shows."""
    from prefillgate.report import render, texts_wanted

    texts = {cell_id: found for cell_id in texts_wanted(verdict) if (found := journal.texts(cell_id)) is not None}
    return render(verdict, format, texts)


def write_report(verdict: Verdict, journal: Journal, path: Path) -> None:
    """The HTML report, replaced as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(rendered(verdict, journal, "html"), encoding="utf-8", newline="\n")
    partial.replace(path)


def tell_finished(finished: Finished, store: StoreAddress, report: Path, as_json: bool) -> int:
    """Report, verdict and exit code of a run that came to its end. A report that cannot be written loses no verdict."""
    with finished.journal:
        try:
            write_report(finished.verdict, finished.journal, report)
            say(f"report: {report}", "report", report=str(report))
        except OSError as error:
            say(
                f"prefillgate: error: the report {report} cannot be written: {error.strerror or error}",
                "error",
                "error",
            )
            report = Path()
        text = (
            rendered(finished.verdict, finished.journal, "json")
            if as_json
            else summary(finished.verdict, store, report if report.name else None)
        )
    click.echo(text, nl=not text.endswith("\n"))
    return exit_code(finished.verdict)


def summary(verdict: Verdict, store: StoreAddress, report: Path | None) -> str:
    """One screen for a person, in colour where standard output is a terminal."""
    from prefillgate.report.terminal import SummaryOptions, render_terminal

    override = "" if verdict.judges_nobody else f'prefillgate override {quoted(str(store))} --rollback --reason "..."'
    options = SummaryOptions(override, "" if report is None else str(report), palette(), columns())
    return render_terminal(verdict, options)


def palette() -> Palette:
    """Colours for standard output: none where it is no terminal, and none under NO_COLOR."""
    from prefillgate.report.paper import Palette

    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return Palette()
    return Palette(good="\x1b[32m", bad="\x1b[31m", warn="\x1b[33m", dim="\x1b[2m", bold="\x1b[1m", reset="\x1b[0m")


def columns() -> int:
    """Columns to write for: those of the terminal or of COLUMNS, from 60 to 100; 100 where there is no terminal."""
    import shutil

    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return MOST_COLUMNS
    return min(MOST_COLUMNS, max(FEWEST_COLUMNS, shutil.get_terminal_size((MOST_COLUMNS, 24)).columns))
