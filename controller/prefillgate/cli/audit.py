"""`prefillgate audit`: what a cell log says once its prefills are counted."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.completing import POLICY
from prefillgate.cli.errors import BadInput
from prefillgate.cli.outcome import columns, exit_code, palette, say
from prefillgate.cli.problems import say_problems

if TYPE_CHECKING:
    from prefillgate.api.cell_log import CellLog
    from prefillgate.core.policy import Policy
    from prefillgate.core.verdict import Verdict

STDIN = "-"
MAX_NAMES = 20
BUSY = (429, 503)
KEYS = (
    *("decision", "promotion", "rollback", "reason", "sentences", "cause", "what_would_change", "measured"),
    *("arms", "comparison", "replicates", "alarm", "policy", "prompts", "invalid", "notes"),
)


@click.command(name="audit")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--policy",
    type=POLICY,
    default="standard",
    show_default=True,
    metavar="NAME|FILE",
    help="quick, standard, strict or a file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with unrounded numbers.")
@click.option(
    "--exit-decision", is_flag=True, help="Exit 0 promote, 10 hold, 20 rollback allowed, 1 could not measure."
)
def command(files: tuple[str, ...], policy: str, as_json: bool, exit_decision: bool) -> int:
    """Count the prefills in a cell log and say what the rules would answer from this log alone.

    FILE holds JSON lines, one a cell; `-` is standard input, and several files are one log in the order given. The
    fields of a line: arm (baseline or candidate), case_id, replicate, server_epoch, started_at (ISO 8601 or seconds),
    prompt_sha256, prompt_tokens, cached_tokens, processed_tokens, output_tokens, prefill_ms, decode_ms, finish_reason,
    cold_proof (cache_off, salt or nonce, only where it was shown to work), request_id, choice_index, status (ok, failed
    or invalid), bad (true or false). All but arm may be null or absent, which means unknown. What `prefillgate cells
    --json` adds is read too. Lines are in time order unless started_at says otherwise.

    Quality alone is judged, under one flag; decode throughput is not compared. Cells with replicate 1, 2, ... are that
    replicate's: its candidate cells in time order, each paired with the next unused baseline cell of the same case.

    With --json: decision, promotion, rollback, reason, sentences, cause, what_would_change, measured, arms (baseline
    and candidate, each with requests, prefills, decision_prefills, copies, partial, unknown, orphans, bad_requests,
    bad_prefills, bad_for_promotion, request_interval, prefill_interval), comparison (fisher_by_request,
    fisher_by_prefill, boschloo_by_prefill), replicates, alarm, policy, prompts, invalid, notes.

    Exit codes: 0 done, 2 bad input; with --exit-decision 0 promote, 10 hold, 20 rollback allowed, 1 could not measure.
    """
    from prefillgate.api.errors import InputError
    from prefillgate.api.policy import load_policy

    try:
        numbers = load_policy(policy).policy
        log = _read(files)
    except InputError as error:
        return say_problems(error)
    verdict = _judge(log, numbers, files)
    for note in verdict.notes:
        say(f"prefillgate: note: {note}")
    click.echo(_document(verdict) if as_json else _page(verdict), nl=False)
    return exit_code(verdict) if exit_decision else 0


def _read(files: tuple[str, ...]) -> CellLog:
    from prefillgate.api.cell_log import CellLog

    log = CellLog()
    for name in files:
        if name == STDIN:
            log.read(sys.stdin.buffer, "standard input")
            continue
        try:
            with Path(name).open("rb") as file:
                log.read(file, name)
        except OSError as error:
            raise BadInput(f"{name}: cannot be read: {error.strerror or error}") from error
    return log


def _judge(log: CellLog, policy: Policy, files: tuple[str, ...]) -> Verdict:
    from prefillgate.core.audit import audit_facts
    from prefillgate.core.judge import write_verdict

    title = "standard input" if files == (STDIN,) else Path(files[0]).name
    if len(files) > 1:
        title += f" and {len(files) - 1} more"
    lines = log.cells()
    waited = {position for position, line in enumerate(lines) if line.http_status in BUSY}
    facts = audit_facts([line.cell for line in lines], policy, title, waited)
    return write_verdict(replace(facts, notes=_notes(log)))


def _notes(log: CellLog) -> tuple[str, ...]:
    notes = []
    if log.ignored:
        named = [f"{name} ({count})" for name, count in log.ignored.most_common(MAX_NAMES)]
        more = len(log.ignored) - len(named)
        notes.append(f"fields ignored, with their lines: {', '.join(named)}{f' and {more} more' if more else ''}")
    if log.without_case:
        notes.append(f"{log.without_case} lines without case_id: known by prompt_sha256, else each its own prompt")
    if log.unscored:
        notes.append(f"{log.unscored} cells measured but not checked yet are not counted")
    return tuple(notes)


def _document(verdict: Verdict) -> str:
    from prefillgate.report import verdict_json

    whole: dict[str, Any] = verdict_json(verdict)
    text = json.dumps({key: whole[key] for key in KEYS}, indent=2, ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f") + "\n"


def _page(verdict: Verdict) -> str:
    from prefillgate.report.terminal import SummaryOptions, render_terminal

    return render_terminal(verdict, SummaryOptions(palette=palette(), width=columns()))
