"""`prefillgate verify`: an evidence bundle checked, its verdict recomputed, the first difference named."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefillgate.cli.errors import BadInput, CouldNotMeasure
from prefillgate.cli.outcome import palette

if TYPE_CHECKING:
    from prefillgate.bundle.findings import Difference, Findings

SHOWN = 10
EXIT_DIFFERENT = 10


@click.command(name="verify")
@click.argument("bundle", metavar="DIR")
@click.option(
    "--public-key", type=click.Path(path_type=Path), metavar="FILE", help="The signer's public key (PEM, Ed25519)."
)
def command(bundle: str, public_key: Path | None) -> int:
    """Recompute the verdict of an evidence bundle and say whether it holds what was measured.

    DIR is a folder, or s3://BUCKET/PREFIX.

    Checked: every file against the manifest; the chain of the journal; each text against its digest; each reply, read
    again, against the numbers of its cell; each request against replay set and schedule; the order of cells; the
    outcomes of checks that look at text alone; cells.jsonl and the other files line by line; the decision bit for bit.
    What differs is named by file and line, the first one first. What cannot be recomputed is said.

    Without --public-key nothing shows who made the bundle: a forger who makes up all of it, replies included, is not
    found. With --public-key a bundle that is not signed by that key fails.

    A bundle made under other rules (another prefillgate) is checked by its digests, and that is said.

    Exit codes: 0 the same, 10 a difference, 1 it could not be read or recomputed, 2 bad input.
    """
    from prefillgate.bundle.manifest import NewerBundle
    from prefillgate.bundle.objects import is_address
    from prefillgate.bundle.rules import OtherRules
    from prefillgate.bundle.verify import NoBundle, check_bundle
    from prefillgate.cli.object_storage import copied

    key = _key(public_key)
    try:
        if is_address(bundle):
            with copied(bundle) as (folder, beside):
                findings = asyncio.run(check_bundle(folder, key, beside))
        else:
            findings = asyncio.run(check_bundle(Path(bundle), key))
    except NoBundle as error:
        raise BadInput(f"{bundle}: {error}") from error
    except NewerBundle as error:
        raise CouldNotMeasure(f"{bundle}: {error}. Upgrade prefillgate.") from error
    except OtherRules as error:
        raise CouldNotMeasure(f"{bundle}: {error}") from error
    except OSError as error:
        raise CouldNotMeasure(f"{bundle}: cannot be read: {error.strerror or error}") from error
    lines = _different(bundle, findings) if findings.differences else _same(bundle, findings)
    click.echo("\n".join(lines))
    return EXIT_DIFFERENT if findings.differences else 0


def _key(path: Path | None) -> str | None:
    from prefillgate.bundle.signing import KeyUnusable, public_key, raw_hex

    try:
        return None if path is None else raw_hex(public_key(path))
    except KeyUnusable as error:
        raise BadInput(f"--public-key {path}: {error}") from error


def _different(bundle: str, findings: Findings) -> list[str]:
    colours, (first, *others) = palette(), findings.differences
    lines = [
        f"{colours.bad}DIFFERENT{colours.reset}: {bundle} does not hold what was measured",
        f"  first: {_told(first)}",
    ]
    lines += [f"  then:  {_told(other)}" for other in others[: SHOWN - 1]]
    left = len(others) - (SHOWN - 1) + findings.more
    if left > 0:
        lines.append(f"  and {left} more")
    return lines + _other_version(findings)


def _told(difference: Difference) -> str:
    from prefillgate.report.clean import one_line

    return one_line(f"{difference.where}: {difference.what}", 400)


def _other_version(findings: Findings) -> list[str]:
    from prefillgate.bundle.write import PROGRAM

    written = None if findings.manifest is None else findings.manifest.program
    if written in (None, PROGRAM):
        return []
    return [f"written by {written}, checked by {PROGRAM}: check it by that version before you accuse anybody"]


def _same(bundle: str, findings: Findings) -> list[str]:
    colours, verdict = palette(), findings.verdict
    assert verdict is not None
    decision = verdict.decision
    lines = [f"{colours.good}same{colours.reset}: {bundle}: {decision.decision} ({decision.reason}), recomputed"]
    told = ", ".join(f"{number} {what}" for what, number in findings.recomputed.items())
    lines.append(f"  recomputed: {told}; cells.jsonl line by line, the decision bit for bit")
    lines += [f"  not recomputed: {_counted(number, what)}" for what, number in findings.not_recomputed.items()]
    return [*lines, f"  {_signed(findings)}", *_other_version(findings)]


def _counted(number: int, what: str) -> str:
    return what if number == 1 and not what.startswith(("replies", "outcomes", "requests")) else f"{number} {what}"


def _signed(findings: Findings) -> str:
    from prefillgate.bundle.signing import fingerprint

    if findings.signed_by is None:
        return "not signed: its parts fit each other, and nothing shows who made them"
    if findings.key_given:
        return f"signed by the key given ({fingerprint(findings.signed_by)})"
    return (
        f"signed by {findings.signed_by}, which was checked against no key: anybody can sign with a key of his own. "
        "Give --public-key"
    )
