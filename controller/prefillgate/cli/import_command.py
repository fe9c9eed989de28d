"""`prefillgate replayset import`: a replay set out of the requests that other tools' logs hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.errors import BadInput
from prefillgate.cli.log_options import column_option, format_option
from prefillgate.cli.outcome import say
from prefillgate.cli.problems import json_line, say_problems

if TYPE_CHECKING:
    from prefillgate.importers.cases import Cases
    from prefillgate.importers.reading import Wanted


@click.command(name="import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Write the replay set here.")
@format_option
@column_option
@click.option("--keep-duplicates", is_flag=True, help="Make a case of a prompt each time it stands there.")
@click.option("--overwrite", is_flag=True, help="Replace the file at --output.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    files: tuple[str, ...],
    output: Path,
    format_name: str | None,
    columns: tuple[str, ...],
    keep_duplicates: bool,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Write a replay set of the requests in FILE, a log of another tool.

    Formats are recognised by content (`prefillgate audit` reads the same ones), `-` is standard input, gzip is undone.
    Each prompt becomes one case, with the log's own name for it or a digest of it as custom_id, so that the same log
    gives the same set. Headers and what is called like a key, a token or a password stay behind, beside the prompt; the
    text of a prompt stays as it is. What cannot become a case is counted by reason, with its first places.

    Exit codes: 0 written, 2 bad input or no case in it; then nothing is written.

    With --json: {"output", "formats", "read", "written", "secrets_removed", "left": [{"why", "count", "first"}],
    "flags"}; flags are settings that would give prompts which a log does not hold.
    """
    from prefillgate.api.errors import InputError
    from prefillgate.cli.audit_log import read_columns, read_once
    from prefillgate.cli.whole_set import write_set
    from prefillgate.importers.cases import Cases
    from prefillgate.importers.reading import Wanted

    read_once(*files)
    _keep_from_replacing(output, files, overwrite)
    cases = Cases(keep_duplicates)
    formats: dict[str, None] = {}
    try:
        lines = _lines(files, Wanted(format_name, read_columns(columns)), cases, formats)
        write_set(output, lines, lambda: cases.written > 0)
    except InputError as error:
        return say_problems(error)
    if not cases.written:
        for line in _left(cases):
            say(line.strip())
        raise BadInput(f"{', '.join(files)[:200]}: no request in it can be a case{_flags(cases)}")
    if as_json:
        click.echo(json_line({"output": str(output), "formats": list(formats), **_document(cases)}))
    else:
        _print(cases, formats, output)
    return 0


def _print(cases: Cases, formats: Iterable[str], output: Path) -> None:
    from prefillgate.report.words import plural

    click.echo(f"read: {plural(cases.read, 'request')} ({', '.join(formats)})")
    if cases.left:
        click.echo("not written:")
        for line in _left(cases):
            click.echo(line)
    if cases.flags:
        click.echo(f"prompts that a log does not hold{_flags(cases)}")
    if cases.secrets:
        click.echo(f"taken out of the bodies: {cases.secrets} headers, keys, tokens or passwords")
    click.echo(f"written: {plural(cases.written, 'case')} to {output}")


def _keep_from_replacing(output: Path, files: tuple[str, ...], overwrite: bool) -> None:
    from prefillgate.cli.audit_log import STDIN
    from prefillgate.cli.stores import keep_from_overwriting

    inputs = [Path(name) for name in files if name != STDIN]
    keep_from_overwriting("--output", output, output / "no store", *inputs)
    if output.exists() and not overwrite:
        raise BadInput(f"--output {output}: the file is there already (allowed: a new file, or --overwrite)")


def _lines(files: tuple[str, ...], wanted: Wanted, cases: Cases, formats: dict[str, None]) -> Iterator[bytes]:
    """The lines of the cases; files that hold requests alone are read first, for answers may name them."""
    from prefillgate.api.errors import Problem
    from prefillgate.cli.audit_log import asks_only, opened
    from prefillgate.importers.reading import CELLS_TITLE, format_of
    from prefillgate.importers.source import ImportProblem

    for name in sorted(files, key=lambda each: not asks_only(each)):
        with opened(name) as source:
            found = format_of(source, wanted)
            if found is None:
                what = f"{CELLS_TITLE} holds no prompts (`prefillgate cells STORE --curl` prints a request)"
                raise ImportProblem(Problem(source.name, "", what))
            formats[found.title] = None
            for each in found.read(source):
                line = cases.line(each)
                if line is not None:
                    yield line + b"\n"


def _left(cases: Cases) -> Iterator[str]:
    from prefillgate.api.errors import clean

    for kind in sorted(cases.left.values(), key=lambda each: -each.count):
        yield clean(f"{kind.count:>9}  {kind.why} (first: {', '.join(kind.first)})")


def _flags(cases: Cases) -> str:
    return "".join(f"; what would give the prompts: {flag}" for flag in cases.flags)


def _document(cases: Cases) -> dict[str, Any]:
    left = [{"why": kind.why, "count": kind.count, "first": kind.first} for kind in cases.left.values()]
    return {
        "read": cases.read,
        "written": cases.written,
        "secrets_removed": cases.secrets,
        "left": left,
        "flags": list(cases.flags),
    }
