"""A journal as the files of a bundle: the same journal gives the same bytes, wherever and whenever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prefillgate import __version__
from prefillgate.bundle import content
from prefillgate.bundle.manifest import Manifest, facts_of
from prefillgate.bundle.redact import redacted
from prefillgate.bundle.rules import RULES
from prefillgate.core.gate import Gate, fold
from prefillgate.core.journal import CellMeasured, Journal, Texts
from prefillgate.core.judge import judge
from prefillgate.core.verdict import Verdict
from prefillgate.evidence.chain import GENESIS, link, sha256
from prefillgate.evidence.codec import encode_event, encode_texts

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PROGRAM = f"prefillgate {__version__}"


@dataclass(frozen=True, slots=True)
class How:
    """How a bundle is written: without its texts, signed."""

    redact: bool = False
    key: Ed25519PrivateKey | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What was written. `kept_lines` is False where the store did not keep the replay set."""

    verdict: Verdict
    manifest: Manifest
    events: int
    cells: int
    kept_lines: bool


def write_bundle(journal: Journal, folder: Path, how: How) -> Written:
    """Write the files of a bundle into an empty `folder`, the manifest last. Memory grows with the events, not with
    their texts. Raises OSError, and `JournalError` or `StoreError` for a journal that cannot be read.
    """
    gate, tail = Gate(), ""
    with (folder / content.EVENTS).open("wb") as events, (folder / content.TEXTS).open("wb") as texts:
        for line, said, tail in _chained(journal, how, gate):  # noqa: B007 - the last one is the journal's
            events.write(line)
            if said is not None:
                texts.write(said)
    verdict, plan = judge(gate), gate.plan
    for name, lines in (
        (content.CELLS, content.cell_log_lines(verdict, gate)),
        (content.DECISION, content.decision_lines(verdict)),
        (content.PLAN, content.plan_lines(plan)),
        (content.POLICY, content.policy_lines(plan)),
        (content.README, [content.readme_text(PROGRAM, how.redact)]),
    ):
        _write(folder / name, lines)
    kept = fold(journal.events()[:1]).plan
    _write(folder / content.REPLAY_SET, content.replay_set_lines(kept, how.redact))
    signer = None if how.key is None else how.key.public_key().public_bytes_raw().hex()
    files = tuple(facts_of(folder / name) for name in content.FILES)
    manifest = Manifest(PROGRAM, RULES, how.redact, tail, signer, files)
    if how.key is not None:
        (folder / content.SIGNATURE).write_bytes(how.key.sign(manifest.render()))
    (folder / content.MANIFEST).write_bytes(manifest.render())
    whole = all(case.line is not None for case in kept.cases)
    return Written(verdict, manifest, int(tail.partition(":")[0]), len(gate.measured), whole)


def _chained(journal: Journal, how: How, gate: Gate) -> Iterator[tuple[bytes, bytes | None, str]]:
    """Of each event its line, the line of its texts, and the tail of the chain; each is folded into `gate`."""
    write: Callable[[int, Texts], bytes] = content.redacted_text_line if how.redact else content.text_line
    digest = GENESIS
    for seq, original in enumerate(journal.events(), start=1):
        event = redacted(original) if how.redact else original
        texts = journal.texts(event.cell_id) if isinstance(event, CellMeasured) else None
        gate.apply(event)
        payload, texts_sha256 = encode_event(event), None if texts is None else sha256(encode_texts(texts))
        digest = link(digest, payload, texts_sha256)
        line = content.event_line(seq, payload, texts_sha256, digest)
        said = write(event.cell_id, texts) if texts is not None and isinstance(event, CellMeasured) else None
        yield line, said, f"{seq}:{digest.hex()}"


def _write(path: Path, lines: Iterable[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines(lines)
