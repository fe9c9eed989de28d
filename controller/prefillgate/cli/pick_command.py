"""`prefillgate replayset pick`: a few cases of a large set, over all lengths of its prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.completing import REPLAY_SET
from prefillgate.cli.defaults import default_option
from prefillgate.cli.problems import json_line, say_problems

if TYPE_CHECKING:
    from prefillgate.replay.pick import Picked


@click.command(name="pick")
@click.argument("replay_set", type=REPLAY_SET, metavar="FILE")
@default_option("--n", "wanted", type=click.IntRange(1, 100_000), default=16, help="How many cases to choose.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Write the chosen lines here.")
@default_option("--seed", type=int, default=0, help="Equal seed and file, equal choice.")
@default_option(
    "--similarity",
    type=click.IntRange(1, 100),
    default=90,
    metavar="PERCENT",
    help="From which share of common five-word sequences on two prompts are near duplicates.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(replay_set: str, wanted: int, output: Path, seed: int, similarity: int, as_json: bool) -> int:
    """Choose --n cases of FILE: one of each quantile of the prompts' lengths, and the longest.

    First every prompt is kept once. Then, the longest first, a prompt goes that shares --similarity percent of its
    five-word sequences with one that stays; system messages and tools, which an application says in each, are left out
    of that. The rest is cut into --n strata of equal size by length (tokens where all prompts are token numbers, else
    characters), from each one case is drawn by --seed, and from the last the longest is taken. OUT holds the lines of
    FILE byte for byte, in its order. It is never more than asked; where it is fewer, a sentence says why.

    Exit codes: 0 written, 2 bad input.

    With --json: {"file", "output", "seed", "similarity_percent", "unit", "asked", "cases", "chosen": [{"case_id",
    "line", "length", "shortest", "longest", "prompts"}], "not_chosen": {"same_prompt", "near_duplicate", "not_drawn"}};
    each chosen case with its stratum.
    """
    from prefillgate.api.errors import ReplaySetError
    from prefillgate.cli.stores import keep_from_overwriting
    from prefillgate.cli.whole_set import write_set
    from prefillgate.replay.pick import chosen_lines, pick
    from prefillgate.replay.replay_set import find_replay_set

    source = find_replay_set(replay_set)
    keep_from_overwriting("--output", output, source)
    try:
        picked = pick(source, wanted, seed, similarity)
        write_set(output, chosen_lines(source, picked))
    except ReplaySetError as error:
        return say_problems(error)
    if as_json:
        told = {"file": str(source), "output": str(output), "seed": seed, "similarity_percent": similarity}
        click.echo(json_line({**told, "asked": wanted, **_document(picked)}))
    else:
        for line in _lines(picked, similarity):
            click.echo(line)
        if len(picked.strata) < wanted:
            click.echo(_fewer(picked, wanted, similarity))
        click.echo(f"written: {output}")
    return 0


def _document(picked: Picked) -> dict[str, Any]:
    strata = zip(picked.strata, picked.chosen, strict=True)
    chosen = [
        {
            "case_id": one.case_id,
            "line": one.line,
            "length": picked.length(one),
            "shortest": stratum.shortest,
            "longest": stratum.longest,
            "prompts": stratum.size,
        }
        for stratum, one in strata
    ]
    left = {"same_prompt": picked.same_prompt, "near_duplicate": picked.near_duplicates, "not_drawn": picked.not_drawn}
    return {"unit": picked.unit, "cases": picked.cases, "chosen": chosen, "not_chosen": left}


def _lines(picked: Picked, similarity: int) -> list[str]:
    from prefillgate.api.errors import clean

    lines = [f"chosen: {len(picked.strata)} of {picked.cases} cases, by length in {picked.unit}"]
    for row in _document(picked)["chosen"]:
        span = f"{row['shortest']} to {row['longest']}"
        drawn = "the longest" if row["length"] == picked.strata[-1].longest else "drawn"
        of = f"{drawn}, of {row['prompts']} prompt{'' if row['prompts'] == 1 else 's'} of {span}"
        lines.append(f"{row['length']:>9}  {clean(row['case_id'])}  (line {row['line']}; {of})")
    lines.append("not chosen:")
    reasons = (
        (picked.same_prompt, "the same prompt as an earlier case"),
        (picked.near_duplicates, f"near duplicates: {similarity} % or more in common with one that stays"),
        (picked.not_drawn, "another of about their length was drawn"),
    )
    return [*lines, *(f"{count:>9}  {why}" for count, why in reasons)]


def _fewer(picked: Picked, wanted: int, similarity: int) -> str:
    found = len(picked.strata)
    why = f"{wanted} were asked for, and no more than {found} prompts differ"
    if picked.near_duplicates and similarity < 100:
        return f"{why}: a higher --similarity than {similarity} keeps more of those that are nearly the same"
    return f"{why}: record or add other prompts"
