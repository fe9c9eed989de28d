"""A bundle checked: files against the manifest, the journal followed, everything that follows from it made again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from prefillgate.api.errors import shown
from prefillgate.bundle import content
from prefillgate.bundle.findings import Findings, unlike
from prefillgate.bundle.journal import NO_SENSE, CannotFollow, Followed, TextFile
from prefillgate.bundle.lines import BadLine, canonical_document, document, raw_lines
from prefillgate.bundle.manifest import MAX_BYTES, Manifest, facts_of, read_manifest
from prefillgate.bundle.order import BY_PLACE, LANES_LOST, NOT_FOLLOWED, TIMES_DECIDE, is_followed
from prefillgate.bundle.rules import RULES, OtherRules
from prefillgate.bundle.write import PROGRAM
from prefillgate.core.journal import Planned
from prefillgate.core.judge import judge

SIGNATURE_BYTES = 64
NOT_OURS = "not a file of a bundle"


class NoBundle(ValueError):
    """There is no bundle to check."""


async def check_bundle(folder: Path, key_hex: str | None, beside: Iterable[str] = ()) -> Findings:
    """Everything that can be recomputed of the bundle in `folder`; `key_hex` is the signer's key, if it is known.

    `beside` names what stood beside the files of a bundle where it was copied from.

    Raises `NoBundle`, `NewerBundle`, `OtherRules` where nothing differs that needs no rules, and OSError for what
    cannot be read.
    """
    findings = Findings(key_given=key_hex is not None)
    if not folder.is_dir():
        raise NoBundle("there is no such folder")
    if not _is_file(folder / content.MANIFEST):
        raise NoBundle(f"it holds no {content.MANIFEST}: no bundle, or one that was not copied to its end")
    present = _listed(folder, findings)
    for name in beside:
        findings.differs(shown(name).strip('"'), None, NOT_OURS)
    with (folder / content.MANIFEST).open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    try:
        manifest = read_manifest(raw)
    except BadLine as error:
        findings.bad_line(error)
        return findings
    findings.manifest = manifest
    _signature(folder, raw, key_hex, findings)
    for stated in manifest.files:
        if stated.name in present:
            found = facts_of(folder / stated.name)
            if found != stated:
                findings.differs(stated.name, None, f"its SHA-256 is {found.sha256}, the manifest says {stated.sha256}")
    if {content.EVENTS, content.TEXTS} <= present:
        await _recompute(folder, manifest, present, findings)
    if manifest.rules != RULES and not findings.differences:
        raise OtherRules(manifest.rules, manifest.program, _checked(findings))
    _most_precise_first(findings)
    return findings


def _most_precise_first(findings: Findings) -> None:
    """A difference that names its line says more than the digest of the whole file."""
    findings.differences.sort(key=lambda one: one.line is None and one.file in content.FILES)


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _listed(folder: Path, findings: Findings) -> set[str]:
    """The files of the bundle that are there; what is missing, too many or no plain file is noted."""
    known = {*content.FILES, content.MANIFEST, content.SIGNATURE}
    present = set()
    for path in sorted(folder.iterdir()):
        if path.name not in known:
            findings.differs(shown(path.name).strip('"'), None, NOT_OURS)
        elif not _is_file(path):
            findings.differs(path.name, None, "not a plain file (a link or a folder): it was not read")
        else:
            present.add(path.name)
    for name in content.FILES:
        if name not in present and not (folder / name).exists():
            findings.differs(name, None, "the file is missing")
    return present


def _signature(folder: Path, manifest: bytes, key_hex: str | None, findings: Findings) -> None:
    """Hold the signature against the key that was given, else against the one that the manifest names."""
    from prefillgate.bundle.signing import is_signed

    path, stated = folder / content.SIGNATURE, findings.manifest.public_key if findings.manifest else None
    if not _is_file(path):
        if key_hex is not None or stated is not None:
            findings.differs(content.SIGNATURE, None, "the signature is missing")
        return
    with path.open("rb") as file:
        signature = file.read(SIGNATURE_BYTES + 1)
    if stated is None:
        findings.differs(content.SIGNATURE, None, "a signature of a bundle whose manifest names no signer")
    key = key_hex or stated
    if key is None:
        return
    if key_hex is not None and stated is not None and key_hex != stated:
        findings.differs(content.MANIFEST, None, f"signed by the key {stated}, not by the one given ({key_hex})")
    if not is_signed(key, manifest, signature):
        whose = "the key given" if key_hex is not None else "the key that the manifest names"
        findings.differs(content.SIGNATURE, None, f"not the signature of {whose} over {content.MANIFEST}")
    else:
        findings.signed_by = key


async def _recompute(folder: Path, manifest: Manifest, present: set[str], findings: Findings) -> None:
    with (folder / content.TEXTS).open("rb") as file:
        texts = TextFile(file, folder / content.TEXTS, manifest.redacted)
        followed = Followed(findings, texts, manifest.redacted, chain_only=manifest.rules != RULES)
        try:
            await followed.follow(folder / content.EVENTS)
        except CannotFollow:
            return
    findings.recomputed["events"] = int(followed.tail.partition(":")[0])
    if followed.tail != manifest.tail:
        findings.differs(content.MANIFEST, None, unlike("journal", manifest.tail, followed.tail, "the events end in"))
    if followed.chain_only:
        return
    _order(followed, findings)
    gate = followed.gate
    try:
        findings.verdict = verdict = judge(gate)
    except NO_SENSE as error:
        findings.differs(content.EVENTS, None, f"no verdict can be made of the events: {type(error).__name__}: {error}")
        return
    derived: dict[str, Iterable[bytes]] = {
        content.DECISION: content.decision_lines(verdict),
        content.CELLS: content.cell_log_lines(verdict, gate),
        content.PLAN: content.plan_lines(gate.plan),
        content.POLICY: content.policy_lines(gate.plan),
    }
    if manifest.program == PROGRAM:
        derived[content.README] = content.readme_text(PROGRAM, manifest.redacted).splitlines(keepends=True)
    if not manifest.redacted:
        derived[content.REPLAY_SET] = content.replay_set_lines(gate.plan)
    for name, due in derived.items():
        if name in present:
            _compare(folder / name, due, findings)
    if content.REPLAY_SET in present:
        _replay_set(folder / content.REPLAY_SET, gate.plan, manifest.redacted, findings)


def _checked(findings: Findings) -> str:
    """What of a bundle under other rules was checked, in words."""
    who = "It is not signed." if findings.signed_by is None else f"The signature of {findings.signed_by} fits."
    return f"Its digests and the chain of its {findings.recomputed['events']} events hold. {who}"


def _order(followed: Followed, findings: Findings) -> None:
    """What was held against the schedule, and what of it time alone decides."""
    if not is_followed(followed.gate):
        findings.not_recomputed[NOT_FOLLOWED] += 1
    elif not followed.gate.plan.shape.parallel:
        findings.recomputed["steps of the schedule"] = followed.steps
    else:
        findings.recomputed[BY_PLACE] = len(followed.gate.measured)
        findings.not_recomputed[TIMES_DECIDE] += 1
        if followed.lanes.lanes_lost:
            findings.not_recomputed[LANES_LOST] += 1


def _compare(path: Path, due: Iterable[bytes], findings: Findings) -> None:
    """The first line that is not the one that follows from the events."""
    name, lines, number = path.name, raw_lines(path), 0
    try:
        for number, wanted in enumerate(due, start=1):
            found = next(lines, None)
            if found is None:
                raise BadLine(name, number, "the line is missing")
            if found[1] != wanted:
                raise BadLine(name, number, _first_field(name, number, found[1], wanted))
        if next(lines, None) is not None:
            raise BadLine(name, number + 1, "a line too many: the events give none")
    except BadLine as error:
        findings.bad_line(error)


def _first_field(name: str, number: int, raw: bytes, wanted: bytes) -> str:
    """Which field of a line is not what it must be."""
    if name == content.README:
        return "not the words that a bundle of this version holds"
    stated, due = document(raw, name, number), document(wanted, name, number)
    return _unlike_at("", stated, due) or "the same JSON, written in another way than a bundle writes it"


def _unlike_at(path: str, stated: object, due: object) -> str | None:
    if isinstance(stated, dict) and isinstance(due, dict):
        keys = [*due, *(key for key in stated if key not in due)]
        pairs = [(f"{path}.{key}".lstrip("."), stated.get(key), due.get(key)) for key in keys]
        return next((told for one in pairs if (told := _unlike_at(*one))), None)
    if isinstance(stated, list) and isinstance(due, list) and len(stated) == len(due):
        items = enumerate(zip(stated, due, strict=True))
        return next((told for at, (one, other) in items if (told := _unlike_at(f"{path}[{at}]", one, other))), None)
    if type(stated) is type(due) and stated == due:
        return None
    return unlike(path, stated, due, "recomputed it is")


def _replay_set(path: Path, plan: Planned, redacted: bool, findings: Findings) -> None:
    """The digest of the whole set from those of its lines, where they are known."""
    digests: list[str | None] = [
        None if case.line is None else hashlib.sha256(case.line.encode("utf-8", "surrogatepass")).hexdigest()
        for case in plan.cases
    ]
    if redacted:
        try:
            digests = _redacted_digests(path, plan)
        except BadLine as error:
            findings.bad_line(error)
            return
    known = [digest for digest in digests if digest is not None]
    if len(known) < len(digests) or not digests:
        findings.not_recomputed["the digest of the replay set, whose lines the store did not keep"] += 1
        return
    found = hashlib.sha256("".join(f"{digest}\n" for digest in known).encode()).hexdigest()
    if found != plan.replay_set_sha256:
        what = unlike("replay_set_sha256 of the plan", plan.replay_set_sha256, found, "the lines give")
        findings.differs(path.name, None, what)
    findings.recomputed["prompts of the replay set"] = len(known)


def _redacted_digests(path: Path, plan: Planned) -> list[str | None]:
    """Of each line of a set without its texts the digest of the line. Raises `BadLine`."""
    digests: list[str | None] = []
    lines = raw_lines(path)
    for number, case in enumerate(plan.cases, start=1):
        found = next(lines, None)
        if found is None:
            raise BadLine(path.name, number, f"the line of case {shown(case.case_id)} is missing")
        told = canonical_document(found[1], path.name, number)
        line = told.get("line")
        due = {"custom_id": case.case_id, "sha256": case.sha256, "characters": case.characters, "line": line}
        if told != due or not (line is None or content.is_measure(line)):
            raise BadLine(path.name, number, _unlike_at("", told, due) or "line is no measure of a line")
        digests.append(None if line is None else line["sha256"])
    if next(lines, None) is not None:
        raise BadLine(path.name, len(digests) + 1, "a line too many: the plan has no such case")
    return digests
