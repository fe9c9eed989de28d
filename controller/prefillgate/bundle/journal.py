"""The journal of a bundle followed event by event, everything that can be recomputed on the way held against it.

Memory grows with the events, not with the texts: those are read where they stand, each when it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from prefillgate.api.errors import InputError, shown
from prefillgate.api.replay_set import Case, read_line
from prefillgate.bundle import content
from prefillgate.bundle.findings import Findings, unlike
from prefillgate.bundle.gateway_again import GATEWAY_READ, Around, answer_differs, answers_of, comparison_differs
from prefillgate.bundle.lanes_order import LanesOrder
from prefillgate.bundle.lines import BadLine, canonical_document, payload_of, raw_lines
from prefillgate.bundle.manifest import NewerBundle
from prefillgate.bundle.order import is_followed, is_step, out_of_order
from prefillgate.bundle.rechecks import RECHECKED, Rechecks, rechecks, table_differs
from prefillgate.bundle.replies import (
    NO_READER,
    READ_AGAIN,
    digest_differs,
    life_differs,
    reply_differs,
    request_differs,
)
from prefillgate.bundle.times import Times
from prefillgate.core.cells import Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellChecked, CellMeasured, EpochSeen, Event, GatewayCompared, Planned, Texts
from prefillgate.core.quality import Output
from prefillgate.engines.openai_routes import OpenAIRoutes
from prefillgate.engines.registry import reader
from prefillgate.evidence.chain import GENESIS, link, sha256
from prefillgate.evidence.codec import CodecError, NewerFormatError, decode_event, encode_texts
from prefillgate.replay.checks import CheckContext
from prefillgate.replay.clock import SystemClock
from prefillgate.replay.runner import Runner

#: What folding hostile events may raise: they are decoded, and may still make no sense together.
NO_SENSE = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, AssertionError, StopIteration)
_KEYS = {"seq", "event", "texts_sha256", "digest"}
_GATEWAY_LEFT_OUT = "answers of the gateway check, whose texts were left out (--redact)"
_LINES, _WITHOUT_TEXTS = "requests against the replay set", "texts, which were left out (--redact)"


class CannotFollow(Exception):
    """The journal cannot be followed any further; why was noted."""


class TextFile:
    """texts.jsonl, line after line in the order of the cells, and any cell's again where it stands."""

    def __init__(self, file: BinaryIO, path: Path, redacted: bool) -> None:
        self._file, self._redacted = file, redacted
        self._lines = raw_lines(path)
        self._places: dict[int, tuple[int, int]] = {}  # by cell: the byte it begins at, its line
        self._at = 0
        self.number = 0

    def next(self, cell_id: int) -> Texts | None:
        """The texts of the cell that comes next; None where they were left out. Raises `BadLine`."""
        number, raw = next(self._lines, (self.number + 1, b""))
        if not raw:
            raise BadLine(content.TEXTS, number, f"the line of cell {cell_id} is missing")
        self.number = number
        found = canonical_document(raw, content.TEXTS, number)
        if found.get("cell_id") != cell_id or type(found["cell_id"]) is not int:
            raise BadLine(content.TEXTS, number, unlike("cell_id", found.get("cell_id"), cell_id, "the events have"))
        self._places[cell_id] = (self._at, number)
        self._at += len(raw)
        return self._texts(found, number)

    def texts(self, cell_id: int) -> Texts | None:
        """Those of an earlier cell."""
        if cell_id not in self._places:
            return None
        at, number = self._places[cell_id]
        self._file.seek(at)
        return self._texts(canonical_document(self._file.readline(), content.TEXTS, number), number)

    def line_of(self, cell_id: int) -> int | None:
        """Where its texts stand."""
        return self._places[cell_id][1] if cell_id in self._places else None

    def end(self) -> None:
        """Raise `BadLine` where more follows."""
        number, raw = next(self._lines, (0, b""))
        if raw:
            raise BadLine(content.TEXTS, number, "a line of a cell that the events do not have")

    def _texts(self, found: dict[str, Any], number: int) -> Texts | None:
        if found.keys() != {"cell_id", *content.PARTS}:
            raise BadLine(content.TEXTS, number, f"its fields are {', '.join(map(shown, found))}")
        parts = {name: found[name] for name in content.PARTS}
        if self._redacted:
            if not all(content.is_measure(part) for part in parts.values()):
                raise BadLine(content.TEXTS, number, "a bundle without texts holds digests and lengths here")
            return None
        if not all(isinstance(part, str) for part in parts.values()):
            raise BadLine(content.TEXTS, number, "a part of it is no text")
        return Texts(**parts)


@dataclass
class Followed:
    """A journal while it is followed."""

    findings: Findings
    texts: TextFile
    redacted: bool
    chain_only: bool = False  # made under other rules: nothing but digests can be held against it
    gate: Gate = field(default_factory=Gate)
    tail: str = ""
    steps: int = 0  # held against the schedule
    cases: dict[str, Case] = field(default_factory=dict)
    checks: Rechecks | None = None
    runner: Runner | None = None
    lanes: LanesOrder = field(default_factory=LanesOrder)
    times: Times = field(default_factory=Times)
    _readers: dict[str, OpenAIRoutes | None] = field(default_factory=dict)
    _number: int = 0

    async def follow(self, path: Path) -> None:
        """Every line of the journal. Raises `CannotFollow`, `NewerBundle`."""
        digest = GENESIS
        try:
            for number, raw in raw_lines(path):
                self._number = number
                digest, event, texts_sha256 = self._read(raw, digest)
                self.tail = f"{number}:{digest.hex()}"
                await self._take(event, texts_sha256)
        except BadLine as error:
            self.findings.bad_line(error)
            raise CannotFollow from error
        if not self._number:
            self.findings.differs(content.EVENTS, None, "the journal is empty")
            raise CannotFollow
        try:
            self.texts.end()
        except BadLine as error:
            self.findings.bad_line(error)

    def _read(self, raw: bytes, before: bytes) -> tuple[bytes, Event, bytes | None]:
        """The digest of this line in the chain, its event, and the digest of its texts."""
        found, number = canonical_document(raw, content.EVENTS, self._number), self._number
        told, texts = found.get("event"), found.get("texts_sha256")
        if found.keys() != _KEYS or not isinstance(told, dict):
            raise BadLine(content.EVENTS, number, f"its fields are {', '.join(map(shown, found))}")
        if found["seq"] != number:
            raise BadLine(content.EVENTS, number, unlike("seq", found["seq"], number, "the line is number"))
        if texts is not None and not content.is_digest(texts):
            raise BadLine(content.EVENTS, number, f"texts_sha256 is {shown(texts)}, no digest")
        texts_sha256 = None if texts is None else bytes.fromhex(texts)
        digest = link(before, payload_of(told), texts_sha256)
        if found["digest"] != digest.hex():
            self._differs(
                "the digest does not follow from the event and the one before: this line, or one before it, was changed"
            )
        try:
            return digest, decode_event(payload_of(told)), texts_sha256
        except NewerFormatError as error:
            raise NewerBundle(f"{content.EVENTS}:{number} was written by a newer prefillgate: {error}") from error
        except (CodecError, RecursionError) as error:
            raise BadLine(content.EVENTS, number, f"the event cannot be read: {error}") from error

    async def _take(self, event: Event, texts_sha256: bytes | None) -> None:
        if texts_sha256 is not None and not isinstance(event, CellMeasured):
            raise BadLine(content.EVENTS, self._number, "texts belong to a measured cell")
        if self.chain_only:
            if isinstance(event, CellMeasured) and texts_sha256 is not None:
                self._read_texts(event, texts_sha256)
            return
        try:
            if self.gate.planned and is_followed(self.gate) and is_step(event):
                wrong = out_of_order(self.gate, event, self.lanes)
                if wrong is not None:
                    raise BadLine(content.EVENTS, self._number, wrong)
                self.steps += 1
            for what in self.times.differences(self.gate, event):
                self._differs(what)
            if isinstance(event, CellChecked) and not self.redacted:
                await self._recheck(event)
            elif isinstance(event, GatewayCompared):
                await self._ask_gateway(event)
            self.gate.apply(event)
        except BadLine:
            raise
        except NO_SENSE as error:
            what = f"this event cannot follow those before it: {error or type(error).__name__}"
            raise BadLine(content.EVENTS, self._number, what) from error
        if isinstance(event, Planned):
            self._plan(event)
        elif isinstance(event, CellMeasured):
            self.findings.recomputed["cells"] += 1
            self._cell(event, texts_sha256)

    def _plan(self, plan: Planned) -> None:
        """Its cases and checks; what they contradict is noted where the replay set stands."""
        for number, ref in enumerate(plan.cases, start=1):
            if ref.line is None:
                continue
            try:
                case = read_line(ref.line.encode("utf-8", "surrogatepass"), "", number)
            except InputError as error:
                self.findings.differs(content.REPLAY_SET, number, f"no line of a replay set: {error.problems[0]}")
                continue
            self.cases[ref.case_id] = case
            told = (case.case_id, case.sha256, case.characters, case.max_tokens, case.greedy, case.canonical_line)
            stated = (ref.case_id, ref.sha256, ref.characters, ref.max_tokens, ref.greedy, ref.line)
            for name, one, other in zip(_OF_A_CASE, stated, told, strict=True):
                if one != other:
                    self.findings.differs(content.REPLAY_SET, number, unlike(name, one, other, "the line gives"))
        wrong = table_differs(plan.policy)
        if wrong is not None:
            self.findings.differs(content.POLICY, 1, wrong)
        if self.redacted:
            self.findings.not_recomputed[_WITHOUT_TEXTS] += 1
            return
        try:
            self.checks = rechecks(plan, tuple(self.cases.values()))
        except (InputError, *NO_SENSE) as error:
            self.findings.differs(content.POLICY, 1, f"the checks cannot be read: {error}")
        suite = None if self.checks is None else self.checks.suite
        if suite is not None:
            # Runner.output and Runner.context are what the checks of the run looked at.
            self.runner = Runner(self.gate, self.texts, {}, None, suite, SystemClock())  # type: ignore[arg-type]

    def _cell(self, event: CellMeasured, texts_sha256: bytes | None) -> None:
        if texts_sha256 is None:
            if event.cell.status is Status.OK:
                self._differs(f"cell {event.cell_id} is ok and has no texts")
            return
        texts = self._read_texts(event, texts_sha256)
        if texts is None:
            return
        if event.cell.status is Status.OK:
            wrong = digest_differs(event.cell.output_sha256, texts)
            if wrong is not None:
                self._text_differs(event.cell_id, f"cell {event.cell_id}: {wrong}")
        self._reply(event, texts)

    def _read_texts(self, event: CellMeasured, texts_sha256: bytes) -> Texts | None:
        texts = self.texts.next(event.cell_id)
        if texts is None:
            return None
        if sha256(encode_texts(texts)) != texts_sha256:
            self._text_differs(event.cell_id, "not the texts that the events hold the digest of")
        self.findings.recomputed["texts"] += 1
        return texts

    def _reply(self, event: CellMeasured, texts: Texts) -> None:
        seen = self._life(event)
        if seen is None:
            if event.cell.status is Status.OK:
                self._differs(f"cell {event.cell_id} ran on a server that no probe of the {event.cell.arm} met")
            return
        case = self.cases.get(event.cell.case_id)
        for what in life_differs(event, seen, "" if case is None else case.path, self.gate.plan.scheduled):
            self._differs(f"cell {event.cell_id}: {what}")
        engine = self._reader(seen)
        if engine is None:
            self.findings.not_recomputed[NO_READER] += 1
            return
        self.findings.recomputed[READ_AGAIN] += 1
        for what in reply_differs(event, texts, (engine, seen)):
            self._text_differs(event.cell_id, f"cell {event.cell_id}: {what}")
        if case is None:
            self.findings.not_recomputed[f"{_LINES} (the store did not keep it)"] += 1
            return
        self.findings.recomputed[_LINES] += 1
        for what in request_differs(event, texts, (case, engine, seen)):
            self._text_differs(event.cell_id, f"cell {event.cell_id}: {what}")

    def _reader(self, seen: EpochSeen) -> OpenAIRoutes | None:
        if seen.engine not in self._readers:
            self._readers[seen.engine] = reader(seen.engine)
        return self._readers[seen.engine]

    async def _ask_gateway(self, event: GatewayCompared) -> None:
        """Hold each answer of a gateway check against its kept request and reply."""
        measured = self.gate.measured.get(event.cell_id)
        seen = None if measured is None else self._life(measured)
        if measured is None or seen is None:
            return  # said by whatever reads the event next
        for what in comparison_differs(self.gate, event):
            self._differs(what)
        engine = self._reader(seen)
        if self.redacted or engine is None:
            self.findings.not_recomputed[_GATEWAY_LEFT_OUT if self.redacted else NO_READER] += 1
            return
        case = self.cases.get(measured.cell.case_id)
        context = CheckContext() if self.runner is None else self.runner.context(measured)
        around = Around(measured, case, seen, engine, self.checks, context)
        for name, answer in answers_of(event):
            self.findings.recomputed[GATEWAY_READ] += 1
            async for what in answer_differs(answer, around):
                self._differs(f"{name}: {what}")

    def _life(self, event: CellMeasured) -> EpochSeen | None:
        lives = self.gate.epochs[event.cell.arm]
        found = [s for s in lives if s.server_epoch == event.cell.server_epoch and s.lane == event.lane]
        return found[-1] if found else None

    async def _recheck(self, event: CellChecked) -> None:
        measured = self.gate.measured.get(event.cell_id)
        if measured is None or self.checks is None:
            return
        said = None if self.runner is None else (self.runner.output(measured), self.runner.context(measured))
        case = self.cases.get(measured.cell.case_id) or Case(measured.cell.case_id, "", {})
        for wrong, counted in await self.checks.differences(case, said or (Output(), CheckContext()), event.outcomes):
            if wrong is not None:
                self._differs(f"cell {event.cell_id}: {wrong}")
            kept = self.findings.recomputed if counted == RECHECKED else self.findings.not_recomputed
            kept[counted] += 1

    def _differs(self, what: str) -> None:
        self.findings.differs(content.EVENTS, self._number, what)

    def _text_differs(self, cell_id: int, what: str) -> None:
        self.findings.differs(content.TEXTS, self.texts.line_of(cell_id), what)


_OF_A_CASE = ("custom_id", "sha256", "characters", "max_tokens", "greedy", "line")
