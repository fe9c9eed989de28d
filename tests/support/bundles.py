"""Bundles for tests: exported and verified by the commands, and forged as well as anybody could without the key.

A forger changes events or texts and calls `make_right`: every digest, the chain, each file that follows from the events
and the manifest are written anew, so that only recomputation can find out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from prefillgate.bundle import content
from prefillgate.bundle.journal import NO_SENSE
from prefillgate.bundle.lines import as_line, payload_of
from prefillgate.bundle.manifest import facts_of, read_manifest
from prefillgate.cli.export import command as export_command
from prefillgate.cli.verify import command as verify_command
from prefillgate.core.gate import fold
from prefillgate.core.journal import Event, Texts
from prefillgate.core.judge import judge
from prefillgate.evidence.chain import GENESIS, link, sha256
from prefillgate.evidence.codec import decode_event, encode_texts

Document = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """How a command ended and what it printed."""

    code: int
    text: str

    @property
    def first(self) -> str:
        """The difference that is named first; empty where there is none."""
        found = [line for line in self.text.splitlines() if line.startswith("  first: ")]
        return found[0].removeprefix("  first: ") if found else ""


def invoke(command: Any, *arguments: str) -> Told:
    """Run a command in this process; whatever it raises goes through."""
    result = CliRunner().invoke(command, list(arguments), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return Told(result.return_value, result.stdout)


def exported(store: Path, folder: Path, *options: str) -> Bundle:
    """`prefillgate export` into a new folder."""
    assert invoke(export_command, str(store), "-o", str(folder), *options).code == 0
    return Bundle(folder)


@dataclass(frozen=True)
class Bundle:
    """A bundle in a folder."""

    folder: Path

    def verify(self, *options: str) -> Told:
        """`prefillgate verify`."""
        return invoke(verify_command, str(self.folder), *options)

    def documents(self, name: str) -> list[Document]:
        """The lines of a file."""
        return [json.loads(line) for line in (self.folder / name).read_bytes().splitlines()]

    def write(self, name: str, documents: list[Document]) -> None:
        """New lines for a file."""
        (self.folder / name).write_bytes(b"".join(as_line(document) for document in documents))

    def line_of(self, kind: str, wanted: Callable[[Document], bool] = lambda event: True) -> int:
        """The number of the first such event."""
        lines = self.documents(content.EVENTS)
        return next(line["seq"] for line in lines if line["event"]["kind"] == kind and wanted(line["event"]))

    def forge(self, change: Callable[[list[Document], list[Document]], None]) -> Told:
        """Change events and texts (lists of lines), make everything right again, and verify."""
        lines, texts = self.documents(content.EVENTS), self.documents(content.TEXTS)
        change(lines, texts)
        make_right(self, lines, texts)
        return self.verify()

    def line_of_text(self, cell_id: int) -> int:
        """The number of the line of a cell's texts."""
        numbered = enumerate(self.documents(content.TEXTS), start=1)
        return next(number for number, text in numbered if text["cell_id"] == cell_id)

    def sign_with(self, key: Ed25519PrivateKey) -> None:
        """Sign it as `export --signing-key` does."""
        path = self.folder / content.MANIFEST
        signer = key.public_key().public_bytes_raw().hex()
        manifest = replace(read_manifest(path.read_bytes()), public_key=signer).render()
        path.write_bytes(manifest)
        (self.folder / content.SIGNATURE).write_bytes(key.sign(manifest))

    def sign_off(self) -> None:
        """Write the manifest anew, for the files as they are."""
        path = self.folder / content.MANIFEST
        manifest = read_manifest(path.read_bytes())
        files = tuple(facts_of(self.folder / name) for name in content.FILES)
        path.write_bytes(replace(manifest, files=files).render())


def make_right(bundle: Bundle, lines: list[Document], texts: list[Document]) -> None:
    """Every digest, the chain, the derived files and the manifest, for these events and texts.

    Events that make no sense together give no derived files: those that are there stay, as a forger would leave them.
    """
    said = {document["cell_id"]: Texts(**{part: document[part] for part in content.PARTS}) for document in texts}
    digest, written, folder = GENESIS, [], bundle.folder
    for seq, line in enumerate(lines, start=1):
        event = line["event"]
        own = said.get(event["cell_id"]) if event["kind"] == "CellMeasured" else None
        texts_sha256 = None if own is None else sha256(encode_texts(own))
        digest = link(digest, payload_of(event), texts_sha256)
        written.append(content.event_line(seq, payload_of(event), texts_sha256, digest))
    files: dict[str, Iterable[bytes]] = {content.EVENTS: written}
    with suppress(*NO_SENSE):
        files |= derived([decode_event(payload_of(line["event"])) for line in lines])
    for name, made in files.items():
        (folder / name).write_bytes(b"".join(made))
    bundle.write(content.TEXTS, texts)
    path = folder / content.MANIFEST
    manifest = replace(read_manifest(path.read_bytes()), tail=f"{len(lines)}:{digest.hex()}")
    path.write_bytes(manifest.render())
    bundle.sign_off()


def derived(events: list[Event]) -> dict[str, Iterable[bytes]]:
    """The files that follow from these events."""
    gate = fold(events)
    verdict = judge(gate)
    return {
        content.CELLS: list(content.cell_log_lines(verdict, gate)),
        content.DECISION: list(content.decision_lines(verdict)),
        content.PLAN: list(content.plan_lines(gate.plan)),
        content.POLICY: list(content.policy_lines(gate.plan)),
        content.REPLAY_SET: list(content.replay_set_lines(gate.plan)),
    }


def said_digest(text: Document) -> str:
    """The digest of an output, as its cell holds it."""
    said = "\x00".join((text["reasoning"], text["content"], text["tool_calls"]))
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
