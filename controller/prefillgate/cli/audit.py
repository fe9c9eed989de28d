"""`prefillgate audit`: what a log says once its prefills are counted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from prefillgate.cli.completing import POLICY
from prefillgate.cli.defaults import default_option
from prefillgate.cli.errors import BadInput
from prefillgate.cli.log_options import column_option, format_option
from prefillgate.cli.outcome import columns, exit_code, palette, say
from prefillgate.cli.problems import say_problems

if TYPE_CHECKING:
    from prefillgate.cli.audit_log import ReadLog
    from prefillgate.core.policy import Policy
    from prefillgate.core.restated import Restatement
    from prefillgate.core.verdict import Verdict

KEYS = (
    *("decision", "promotion", "rollback", "reason", "sentences", "cause", "what_would_change", "measured"),
    *(
        "arms",
        "comparison",
        "replicates",
        "alarm",
        "policy",
        "prompts",
        "invalid",
        "notes",
        "log",
        "claim",
        "restated",
        "labels",
    ),
)

EPILOG = """\
The fields of a cell log: arm (baseline or candidate), case_id, replicate, server_epoch, started_at (ISO 8601 or
seconds), prompt_sha256, prompt_tokens, cached_tokens, processed_tokens, output_tokens, prefill_ms, decode_ms,
finish_reason, cold_proof (cache_off, salt or nonce, only where it was shown to work), request_id, choice_index,
status (ok, failed or invalid), bad (true or false). All but arm may be null or absent, which means unknown. What
`prefillgate cells --json` adds is read too. Lines are in time order unless started_at says otherwise.

Quality alone is judged, under one flag; decode throughput is not compared. Cells with replicate 1, 2, ... are that
replicate's: its candidate cells in time order, each paired with the next unused baseline cell of the same case.

With --json: decision, promotion, rollback, reason, sentences, cause, what_would_change, measured, arms (baseline
and candidate, each with requests, prefills, decision_prefills, copies, partial, unknown, orphans, bad_requests,
bad_prefills, bad_for_promotion, request_interval, prefill_interval), comparison (fisher_by_request,
fisher_by_prefill, boschloo_by_prefill), replicates, alarm, policy, prompts, invalid, notes, log (what was read and what
not), claim (whether the difference survives), restated (bounds and speeds by arm), labels; README tells all of it.
"""


@click.command(name="audit", epilog=EPILOG)
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option("--baseline", "baselines", multiple=True, metavar="FILE", help="A log of the baseline; may be repeated.")
@click.option("--baseline-label", metavar="NAME", help="Records labelled so (model, provider, run) are the baseline's.")
@click.option("--candidate-label", metavar="NAME", help="Records labelled so are the candidate's.")
@format_option
@column_option
@click.option(
    "--checks", type=POLICY, metavar="NAME|FILE", help="Judge the outputs in the log by this policy's checks."
)
@default_option(
    "--policy", type=POLICY, default="standard", metavar="NAME|FILE", help="quick, standard, strict or a file."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with unrounded numbers.")
@click.option("--markdown", is_flag=True, help="Print a Markdown comment to paste on a pull request.")
@click.option(
    "--exit-decision", is_flag=True, help="Exit 0 promote, 10 hold, 20 rollback allowed, 1 could not measure."
)
def command(
    files: tuple[str, ...],
    baselines: tuple[str, ...],
    baseline_label: str | None,
    candidate_label: str | None,
    format_name: str | None,
    columns: tuple[str, ...],
    checks: str | None,
    policy: str,
    as_json: bool,
    markdown: bool,
    exit_decision: bool,
) -> int:
    """Count the prefills in a log and say what the rules would answer from this log alone.

    FILE is a log of another tool, recognised by its content, or a cell log: JSON lines, one a cell. `-` is standard
    input, gzip is undone, and several files are one log in the order given. A log that names no arm is the candidate's
    alone, unless --baseline or the labels say otherwise. What could not be read is counted and named.

    Exit codes: 0 done, 2 bad input; with --exit-decision 0 promote, 10 hold, 20 rollback allowed, 1 could not measure.
    """
    from prefillgate.api.errors import InputError
    from prefillgate.api.policy import load_policy
    from prefillgate.cli.audit_log import LogRequest, read_columns, read_once, read_request
    from prefillgate.importers.reading import Wanted

    if not files and not baselines:
        raise BadInput("Missing argument 'FILE...'.")
    read_once(*files, *baselines)
    if as_json and markdown:
        raise BadInput("--json and --markdown are two answers (allowed: one of them)")
    try:
        wanted = Wanted(format_name, read_columns(columns), baseline_label, candidate_label)
        numbers = load_policy(policy).policy
        log = read_request(LogRequest(files, baselines, wanted, checks))
    except InputError as error:
        return say_problems(error)
    answer = _judge(log, numbers)
    for note in answer.verdict.notes:
        say(f"prefillgate: note: {note}")
    click.echo(_shown(answer, as_json, markdown), nl=False)
    return exit_code(answer.verdict) if exit_decision else 0


class _Answer(NamedTuple):
    log: ReadLog
    verdict: Verdict
    restatement: Restatement


def _judge(log: ReadLog, policy: Policy) -> _Answer:
    from prefillgate.core.audit import audit_facts
    from prefillgate.core.judge import write_verdict
    from prefillgate.core.restated import restate

    if log.large is not None:
        return _Answer(log, *log.large.judge(policy, log.title, log.notes(), log.several_labels))
    facts = audit_facts([each.cell for each in log.requests], policy, log.title, log.waited)
    verdict = write_verdict(replace(facts, notes=log.notes()))
    return _Answer(log, verdict, restate(log.requests, log.several_labels))


def _shown(answer: _Answer, as_json: bool, markdown: bool) -> str:
    if as_json:
        return _document(answer)
    if markdown:
        from prefillgate.report.restated import render_restated

        return render_restated(answer.verdict, answer.restatement)
    return _page(answer)


def _document(answer: _Answer) -> str:
    from prefillgate.cli.audit_log import log_json
    from prefillgate.report import verdict_json
    from prefillgate.report.restated_json import restated_json

    whole: dict[str, Any] = {
        **verdict_json(answer.verdict),
        **restated_json(answer.restatement),
        "log": log_json(answer.log.account),
    }
    text = json.dumps({key: whole[key] for key in KEYS}, indent=2, ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f") + "\n"


def _page(answer: _Answer) -> str:
    from prefillgate.report.restated import restated_lines
    from prefillgate.report.terminal import SummaryOptions, render_paragraphs, render_terminal

    options = SummaryOptions(palette=palette(), width=columns())
    return render_terminal(answer.verdict, options) + render_paragraphs(restated_lines(answer.restatement), options)
