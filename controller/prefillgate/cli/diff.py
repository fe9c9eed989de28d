"""`prefillgate diff`: what both arms answered to one case, word by word."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.errors import BadInput
from prefillgate.cli.outcome import palette, quoted
from prefillgate.cli.stores import STORE, reading

if TYPE_CHECKING:
    from prefillgate.api.store_address import StoreAddress
    from prefillgate.core.gate import Gate
    from prefillgate.core.journal import Journal, Texts
    from prefillgate.core.verdict import CellView
    from prefillgate.report.meetings import Meeting

CASES_NAMED = 12


@click.command(name="diff")
@click.argument("store", type=STORE)
@click.argument("case")
@click.option("--pair", type=click.IntRange(0), metavar="N", help="The cells of pair N, of the screen or a replicate.")
@click.option(
    "--round", "round_", type=click.IntRange(0), metavar="N", help="The candidate's cells of round N, from 0."
)
@click.option("--bad", "bad_alone", is_flag=True, help="Bad answers alone.")
@click.option("--all", "every", is_flag=True, help="Every candidate cell of the case, the first one first.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with the whole texts.")
def command(
    store: StoreAddress, case: str, pair: int | None, round_: int | None, bad_alone: bool, every: bool, as_json: bool
) -> int:
    """Show what both arms of STORE answered to CASE, word by word: reasoning, content and tool calls apart.

    Each cell of the candidate stands beside the other half of its pair, else beside the baseline's cell measured
    nearest to it. The latest one is shown; --bad, --pair, --round and --all choose others. [-Removed-] is what only the
    baseline said, {+added+} what only the candidate said.

    With --json: case_id and comparisons, each with identical, baseline and candidate (cell_id, round, pair, replicate,
    bad, reasoning, content, tool_calls; null where the arm has no cell or no text was kept).

    Exit code 0 when shown, 2 bad input, 1 a damaged store.
    """
    from prefillgate.core.judge import judge
    from prefillgate.report.meetings import meetings

    with reading(store) as (journal, gate):
        found = meetings(judge(gate), case)
        if not found:
            raise BadInput(_none(gate, case))
        chosen = [m for m in found if pair in (None, m.lead.pair) and round_ in (None, _round(gate, m))]
        chosen = [m for m in chosen if m.lead.bad] if bad_alone else chosen
        if not chosen and bad_alone:
            raise BadInput(f"--bad: no answer to {case} was bad among those asked for (allowed: without --bad)")
        if not chosen:
            asked = " and ".join(f"--{name} {n}" for name, n in (("pair", pair), ("round", round_)) if n is not None)
            raise BadInput(f"{asked}: no cell of {case} is of it ({_allowed(gate, found)})")
        shown = chosen if every or as_json else chosen[-1:]
        click.echo(_json(case, shown, journal, gate) if as_json else _page(shown, journal), nl=False)
        if len(shown) < len(found) and not as_json:
            bad = sum(1 for m in found if m.lead.bad)
            click.echo(f"\n{len(shown)} of {len(found)} comparisons of this case ({bad} bad). All of them:")
            click.echo(f"  prefillgate diff {quoted(str(store))} {quoted(case)} --all")
    return 0


def _page(shown: list[Meeting], journal: Journal) -> str:
    from prefillgate.report.word_diff import render_diff

    colours = palette()
    return "\n".join(render_diff(meeting, _texts(meeting, journal), colours) for meeting in shown)


def _texts(meeting: Meeting, journal: Journal) -> dict[int, Texts]:
    views = [view for view in (meeting.baseline, meeting.candidate) if view is not None]
    return {v.cell_id: texts for v in views if (texts := journal.texts(v.cell_id)) is not None}


def _json(case: str, shown: list[Meeting], journal: Journal, gate: Gate) -> str:
    comparisons = []
    for meeting in shown:
        texts = _texts(meeting, journal)
        sides = [_side(view, texts, gate) for view in (meeting.baseline, meeting.candidate)]
        said = [None if s is None else (s["reasoning"], s["content"], s["tool_calls"]) for s in sides]
        same = None if None in said or (None, None, None) in said else said[0] == said[1]
        comparisons.append({"identical": same, "baseline": sides[0], "candidate": sides[1]})
    text = json.dumps({"case_id": case, "comparisons": comparisons}, indent=2, ensure_ascii=True)
    return text.replace("\x7f", "\\u007f") + "\n"


def _side(view: CellView | None, texts: dict[int, Texts], gate: Gate) -> dict[str, Any] | None:
    if view is None:
        return None
    said = texts.get(view.cell_id)
    return {
        "cell_id": view.cell_id,
        "round": gate.measured[view.cell_id].round,
        "pair": view.pair,
        "replicate": view.cell.replicate,
        "bad": view.bad,
        "reasoning": None if said is None else said.reasoning,
        "content": None if said is None else said.content,
        "tool_calls": None if said is None else said.tool_calls,
    }


def _round(gate: Gate, meeting: Meeting) -> int:
    return gate.measured[meeting.lead.cell_id].round


def _allowed(gate: Gate, found: tuple[Meeting, ...]) -> str:
    pairs = sorted({m.lead.pair for m in found if m.lead.pair is not None})
    rounds = sorted({_round(gate, m) for m in found})
    return f"allowed: --pair {_list(pairs)}; --round {_list(rounds)}"


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _none(gate: Gate, case: str) -> str:
    """Why there is nothing to show for a case."""
    cases = [ref.case_id for ref in gate.plan.cases]
    if case in cases:
        return f"case {case}: no answer to it is in the store yet"
    from difflib import get_close_matches

    near = get_close_matches(case, cases, CASES_NAMED, 0.4) or cases[:CASES_NAMED]
    return f"case {case!r} is not in the replay set of this store (allowed: {', '.join(near)}, …; {len(cases)} in all)"
