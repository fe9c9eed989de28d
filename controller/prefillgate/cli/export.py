"""`prefillgate export`: a store as an evidence bundle, plain files that others can read and check."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefillgate.cli.errors import BadInput, CouldNotMeasure
from prefillgate.cli.outcome import quoted
from prefillgate.cli.stores import STORE, reading

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from prefillgate.api.store_address import StoreAddress
    from prefillgate.bundle.write import Written


@click.command(name="export")
@click.argument("store", type=STORE)
@click.option("-o", "--output", required=True, metavar="DIR", help="The new folder to write, or s3://BUCKET/PREFIX.")
@click.option("--redact", is_flag=True, help="Leave out prompts, answers and replies; keep their digests and lengths.")
@click.option(
    "--signing-key", type=click.Path(path_type=Path), metavar="FILE", help="Sign with this Ed25519 key (PEM, PKCS8)."
)
def command(store: StoreAddress, output: str, redact: bool, signing_key: Path | None) -> int:
    """Write STORE as an evidence bundle: JSON lines that anybody can read, with a manifest of digests.

    cells.jsonl (as `cells --json`), decision.jsonl (as `decide --json`), plan.jsonl, policy.jsonl, replay-set.jsonl,
    texts.jsonl, events.jsonl (the journal they all follow from), manifest.json and a README.txt that tells a stranger
    how to check them without this program. The same store gives the same bytes. `prefillgate verify` recomputes the
    verdict from them.

    The folder appears whole or not at all; one that is there already is refused. In object storage (extra `s3`) the
    manifest is written last; keys come from the AWS variables or a profile, the endpoint from AWS_ENDPOINT_URL.

    A key is made by `openssl genpkey -algorithm ed25519 -out signing.pem`, its public half for others by
    `openssl pkey -in signing.pem -pubout -out public.pem`.

    Exit code 0 when written, 2 bad input, 1 a damaged store, or the bundle could not be written.
    """
    from prefillgate.bundle.objects import is_address
    from prefillgate.bundle.write import How, write_bundle
    from prefillgate.cli.object_storage import in_objects

    how = How(redact, _key(signing_key))
    place = in_objects(output, "--output") if is_address(output) else _new_folder(Path(output))
    with reading(store) as (journal, _), place as folder:
        written = write_bundle(journal, folder, how)
    click.echo(_summary(output, written), nl=False)
    return 0


def _key(path: Path | None) -> Ed25519PrivateKey | None:
    from prefillgate.bundle.signing import KeyUnusable, signing_key

    try:
        return None if path is None else signing_key(path)
    except KeyUnusable as error:
        raise BadInput(f"--signing-key {path}: {error}") from error


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A folder to be filled, that takes its name once it is whole; gone again after any error."""
    if target.exists() or target.is_symlink():
        raise BadInput(f"--output {target}: something is there already (allowed: a folder that is not there yet)")
    partial = target.parent / f".{target.name}-{secrets.token_hex(4)}.partial"
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.rename(target)
    except OSError as error:
        raise CouldNotMeasure(f"--output {target}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _summary(output: str, written: Written) -> str:
    from prefillgate.bundle.signing import fingerprint

    decision, manifest = written.verdict.decision, written.manifest
    size = sum(file.bytes for file in manifest.files)
    lines = [
        f"{output}: {written.cells} cells, {written.events} events, {size / 1e6:.1f} MB; "
        f"{decision.decision} ({decision.reason})"
    ]
    if manifest.redacted:
        lines.append("texts left out, their digests and lengths kept")
    if not written.kept_lines:
        lines.append("the store did not keep the lines of its replay set (it was begun by an older prefillgate)")
    public = "" if manifest.public_key is None else " --public-key public.pem"
    if manifest.public_key is not None:
        lines.append(f"signed by {manifest.public_key} ({fingerprint(manifest.public_key)})")
    else:
        lines.append("not signed: nothing shows who made it")
    lines.append(f"check it with: prefillgate verify {quoted(output)}{public}")
    return "\n".join(lines) + "\n"
