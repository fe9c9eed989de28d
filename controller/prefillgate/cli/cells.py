"""`prefillgate cells`: the cell log of a store, cached beside prompt tokens for every cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from prefillgate.cli.errors import BadInput
from prefillgate.cli.outcome import exit_code
from prefillgate.cli.stores import STORE, reading

if TYPE_CHECKING:
    from prefillgate.api.store_address import StoreAddress
    from prefillgate.core.gate import Gate
    from prefillgate.core.journal import Journal
    from prefillgate.core.verdict import ArmCounts, CellView, Verdict

HEADER = (
    *("cell", "started (UTC)", "arm", "stage", "case", "prompt", "cached", "processed"),
    *("class", "unit", "status", "bad", "witness"),
)
NUMBERS = frozenset({"cell", "prompt", "cached", "processed", "unit"})
SHOWN_CHARACTERS = 60


@click.command(name="cells")
@click.argument("store", type=STORE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, one a cell, as `audit` reads them.")
@click.option(
    "--exit-decision", is_flag=True, help="Exit 0 promote, 10 hold, 20 rollback allowed, 1 could not measure."
)
@click.option("--curl", "curl_id", type=int, metavar="ID", help="Print that cell's exact request as a curl command.")
@click.option(
    "--api-key-env",
    "key_variable",
    metavar="VARIABLE",
    help="With --curl: the variable that holds the API key.  [default: PREFILLGATE_API_KEY]",
)
def command(
    store: StoreAddress, as_json: bool, exit_decision: bool, curl_id: int | None = None, key_variable: str | None = None
) -> int:
    """Print every cell of STORE in time order: its cached beside its prompt tokens, its class, its unit, and why.

    A unit is one fresh prefill with every cell that reused it, numbered per arm; copies show the number of the unit
    they rode on. Unknown is `-`, never 0.

    With --json each line is one object: arm, case_id, replicate, server_epoch, started_at, prompt_sha256,
    prompt_tokens, cached_tokens, processed_tokens, output_tokens, prefill_ms, decode_ms, finish_reason, cold_proof,
    request_id, choice_index, status, bad; then what only a measured run knows: ended_at, counter_processed_tokens,
    counter_alive, shares_blocks, shared_server, output_sha256, flag_outcomes, scored, http_status, cell_id, purpose,
    pair, reason;
    then class, unit and witness, which `audit` computes anew. null is unknown. A cell that no check has read yet has
    bad null and scored false.

    With --curl a POSIX shell command is printed instead: the body as it was sent, to the byte. The key is read from the
    environment when the command runs; it is never printed.

    Exit code 0 when printed, 2 bad input, 1 a damaged store; --exit-decision gives the codes of `decide`.
    """
    from prefillgate.api.cell_log import cell_lines, in_time_order, write_line
    from prefillgate.core.judge import judge

    _check_options(as_json, curl_id, key_variable)
    with reading(store) as (journal, gate):
        verdict = judge(gate)
        if curl_id is not None:
            click.echo(_curl(journal, gate, curl_id, key_variable), nl=False)
            return exit_code(verdict) if exit_decision else 0
        if as_json:
            for line in cell_lines(verdict, gate.measured):
                click.echo(write_line(line))
        else:
            _print_table(in_time_order(verdict.cells), verdict)
    return exit_code(verdict) if exit_decision else 0


def _check_options(as_json: bool, curl_id: int | None, key_variable: str | None) -> None:
    if curl_id is not None and as_json:
        raise BadInput("--curl and --json contradict each other (allowed: one of them)")
    if key_variable is not None and curl_id is None:
        raise BadInput("--api-key-env goes with --curl")
    if key_variable is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key_variable, re.ASCII):
        raise BadInput(f"--api-key-env: {key_variable!r} is no name of a variable (allowed: letters, digits and _)")


def _curl(journal: Journal, gate: Gate, cell_id: int, key_variable: str | None) -> str:
    from prefillgate.cli.curl import KEY_VARIABLE, Asked, curl_command
    from prefillgate.core.cells import BASELINE
    from prefillgate.engines.http import base_url
    from prefillgate.replay.kept_request import kept_request
    from prefillgate.replay.named_servers import named_servers

    event = gate.measured.get(cell_id)
    if event is None:
        last = len(gate.measured) - 1
        allowed = f"allowed: 0 to {last}, the first column of `prefillgate cells`" if last >= 0 else "there is none yet"
        raise BadInput(f"--curl {cell_id}: the store has no such cell ({allowed})")
    texts = journal.texts(cell_id)
    request = kept_request(texts.request) if texts is not None else None
    if request is None:
        why = ": ".join(part for part in (event.reason, event.detail) if part)
        raise BadInput(f"--curl {cell_id}: nothing was sent for that cell{f' ({why})' if why else ''}")
    named = gate.plan.baseline_url if event.cell.arm == BASELINE else gate.plan.candidate_url
    urls = named_servers(named).urls
    asked = Asked(event, request, base_url(urls[min(event.lane, len(urls) - 1)]).root)
    return curl_command(asked, key_variable or KEY_VARIABLE)


def _print_table(views: Sequence[CellView], verdict: Verdict) -> None:
    rows = [HEADER, *(_row(view) for view in views)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    for row in rows:
        told = [
            text.rjust(width) if name in NUMBERS else text.ljust(width)
            for name, text, width in zip(HEADER, row, widths, strict=True)
        ]
        click.echo("  ".join(told).rstrip())
    click.echo()
    for arm, _, counts in verdict.arms:
        click.echo(_restated(arm, counts))


def _row(view: CellView) -> tuple[str, ...]:
    from prefillgate.report.clean import one_line
    from prefillgate.report.units import stage

    cell = view.cell
    why = view.witness or ": ".join(part for part in (view.reason, view.detail) if part)
    return (
        str(view.cell_id),
        _clock(cell.started_at),
        cell.arm,
        stage(view),
        one_line(cell.case_id, SHOWN_CHARACTERS),
        *(_number(value) for value in (cell.prompt_tokens, cell.cached_tokens, cell.processed_tokens)),
        "-" if view.cell_class is None else view.cell_class.value,
        _number(view.unit),
        cell.status.value,
        "-" if view.bad is None else "bad" if view.bad else "clean",
        one_line(why, 2 * SHOWN_CHARACTERS) or "-",
    )


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _clock(moment: float | None) -> str:
    from prefillgate.api.cell_log import iso_time

    told = iso_time(moment)
    return "-" if told is None else str(told).replace("T", " ")[:23]


def _restated(name: str, arm: ArmCounts) -> str:
    parts = [
        f"{arm.requests} requests",
        f"{arm.prefills} prefills",
        f"{arm.copies} copies",
        f"{arm.partial} partial",
        f"{arm.unknown} unknown",
        f"{arm.orphans} orphans",
        f"{arm.invalid} invalid",
    ]
    return f"{name}: {', '.join(parts)}; bad: {arm.bad_requests} requests, {arm.bad_prefills} prefills"
