"""Judging a log too large for memory: the same answer as from a list of its cells, from two passes over its rows.

The first pass (`Survey`) looks at what must be known of all cells before any is classified, in any order. The second
(`Placing`) takes the rows in time order, the choices of a request side by side, and keeps state for each prompt alone.
Rows of a kind differ in their times and their request; all that does not hang on these is counted by kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from prefillgate.core.alarm import alarm_level, cusum
from prefillgate.core.audit import (
    NO_THROUGHPUT,
    UNPROVEN,
    InvalidRuns,
    clean_needed,
    ignored_knob,
    knob_ignored,
    nothing_proven,
    replicates_of,
    snapshot_of,
)
from prefillgate.core.cache_hits import RODE, SpeedLog
from prefillgate.core.cells import ARMS, CANDIDATE, Status
from prefillgate.core.decision import Distrust, decide
from prefillgate.core.facts import Counted, Facts, comparison_of
from prefillgate.core.freshness import IN_FLIGHT, OTHER_CHOICE, Classified, Ruling, Standing, by_counter, copy_of
from prefillgate.core.judge import write_verdict
from prefillgate.core.log_row import Block, Kind, Own, Row
from prefillgate.core.log_tally import LogTally, OpenUnit
from prefillgate.core.log_times import Survey
from prefillgate.core.policy import Policy
from prefillgate.core.restate import UNSURE, Prompt, PromptLedger, claim_of, same_of
from prefillgate.core.restated import Restated, Restatement
from prefillgate.core.verdict import CellClass, Verdict

OTHER, FLYING, FAST, PARENT = 4, 6, 2, 1  # what a ruling hangs on beside the kind: one of the first three, and a parent
VARIANTS = 8


class _Effect:
    """What rows of one kind do under one ruling. `quiet` ones join a unit and change nothing else in it."""

    __slots__ = ("first", "fresh", "quiet", "rows", "ruling", "unsure")

    def __init__(self, ruling: Ruling, outcome: bool | None) -> None:
        self.ruling, self.rows = ruling, 0
        self.fresh = ruling.cell_class is CellClass.FRESH
        self.unsure = ruling.cell_class in UNSURE
        self.first = ruling.cell_class not in RODE
        self.quiet = ruling.cell_class is CellClass.COPY and not outcome


class _Known:
    """A kind, with what its rows add to."""

    __slots__ = ("asked", "effects", "kind", "length", "limit", "odd", "outcome", "remembered", "speed")

    def __init__(self, kind: Kind, asked: Prompt, speed: SpeedLog, limit: tuple[int, float] | None) -> None:
        self.kind, self.asked, self.speed, self.limit = kind, asked, speed, limit
        self.outcome, self.length = kind.outcome(), kind.prompt_tokens
        self.odd = bool(kind.replicate or kind.choice_index or kind.shares_blocks)
        self.remembered = bool(kind.replicate) or (kind.arm == CANDIDATE and bool(self.outcome))
        self.effects: list[_Effect | None] = [None] * VARIANTS


class Placing:
    """Rows in time order, the choices of a request side by side, folded into everything an audit says."""

    def __init__(self, survey: Survey, kept: int) -> None:
        """`kept` is how many units of one case any test may count; 0 for arms that are only restated."""
        self.tally = LogTally(kept)
        self.prompts = PromptLedger()
        self.speeds: dict[str, SpeedLog] = {}
        self._survey = survey
        self._known: list[_Known | None] = []  # by the numbers of the present kinds; None: invalid ones
        self._request: tuple[object, Prompt | None] = (None, None)  # the latest one, and its prompt
        self._request_unit: OpenUnit | None = None
        self._knob: Distrust | None = None
        self._unproven = ""  # the witness of the candidate's first request that is not proven
        self._kept: list[Classified] = []  # cells of replicates, and the last bad cell before each
        self._trigger: Classified | None = None
        self._replicate = 0
        self._after = 0  # where the candidate's timeline begins anew

    def take(self, block: Block) -> None:
        """Place the rows of a block. Invalid ones are never scored."""
        if block.anew:
            self._fold()
        for kind in block.kinds[len(self._known) :]:
            self._known.append(None if kind.status is Status.INVALID else self._meet(kind))
        for row in block.rows():
            known = self._known[row[0]]
            if known is not None:
                self._place(known, row)

    def _meet(self, kind: Kind) -> _Known:
        self.tally.meet(kind)
        asked = self.prompts.prompt((kind.arm, kind.server_epoch, kind.prompt_key), kind.case_id)
        asked.named = asked.named or kind.named
        speed = self.speeds.get(kind.arm)
        if speed is None:
            speed = self.speeds[kind.arm] = SpeedLog()
        return _Known(kind, asked, speed, self._survey.limit(kind))

    def _place(self, known: _Known, row: tuple[Any, ...]) -> None:
        _, started, ended, prefill_ms, request, output, first_token_ms = row
        kind, asked = known.kind, known.asked
        if known.odd and kind.replicate > self._replicate:
            self._replicate, self._after = kind.replicate, len(self.tally.arms[CANDIDATE].timeline)
        parent, limit, variant = asked.unit, known.limit, 0
        other = request is not None and request == self._request[0] and asked is self._request[1]
        if other:
            parent, variant = self._request_unit, OTHER
        elif known.odd and kind.choice_index and request is None:
            variant = OTHER
        elif known.odd and kind.shares_blocks and _before(started, asked.ended_at):
            variant = FLYING
        elif limit is not None and prefill_ms and prefill_ms / limit[0] < limit[1]:
            variant = FAST
        if parent is not None:
            variant += PARENT
        effect = known.effects[variant]
        if effect is None:
            effect = known.effects[variant] = self._effect(known, variant)
        effect.rows += 1
        if effect.quiet:
            unit = parent
            parent.size += 1
        else:
            unit = self._move(known, effect, parent, output)
        if unit is not None:
            asked.unit = unit
        if request is not None and not other:
            self._request, self._request_unit = (request, asked), unit
        if ended is not None:
            asked.ended_at = ended if asked.ended_at is None else max(asked.ended_at, ended)
        if known.remembered:
            self._remember(Row(kind, Own(*row[1:])), effect.ruling)
        repeat = asked.asked
        if not repeat or effect.unsure or effect.fresh:
            self._bound(known, effect, Own(*row[1:]))
        milliseconds = first_token_ms if prefill_ms is None else prefill_ms
        if milliseconds and known.length:
            known.speed.time(known.length, milliseconds, effect.fresh, effect.first and not repeat)

    def _effect(self, known: _Known, variant: int) -> _Effect:
        """The ruling on rows of a kind: another choice first, then in flight, then by the counters."""
        kind, parent = known.kind, 0 if variant & PARENT else None
        case = variant - (variant & PARENT)
        if case in (OTHER, FLYING):
            ruling = copy_of(parent, OTHER_CHOICE if case == OTHER else IN_FLIGHT)
        else:
            ruling = by_counter(kind, Standing(parent, case == FAST, self._survey.alive(kind)))
        if self._knob is None and knob_ignored(kind, ruling.cell_class):
            self._knob = ignored_knob((kind.arm, kind.case_id), ruling.witness, kind.cold_proof)
        if kind.arm == CANDIDATE and not self._unproven and ruling.cell_class in UNPROVEN:
            self._unproven = ruling.witness
        return _Effect(ruling, known.outcome)

    def _move(self, known: _Known, effect: _Effect, parent: OpenUnit | None, output: str | None) -> OpenUnit | None:
        """What is not merely one more copy; the unit that the row opens or joins."""
        kind, tally, ruling = known.kind, self.tally, effect.ruling
        if effect.fresh:
            old = known.asked.unit
            if old is not None:
                tally.close(kind.arm, old)
            return tally.open(kind, output)
        if ruling.cell_class is CellClass.COPY:
            assert parent is not None
            parent.size += 1
            if ruling.proven:
                tally.spoil(kind.arm, parent)
            else:
                tally.suspect(kind)
            return parent
        if known.outcome and ruling.cell_class is CellClass.ORPHAN:
            tally.orphan(kind, ruling.proven)
        elif known.outcome:
            tally.suspect(kind)
        return None

    def _remember(self, row: Row, ruling: Ruling) -> None:
        """The cells of replicates, each after the last bad cell before it: what triggered it."""
        if row.kind.arm == CANDIDATE and row.kind.outcome():
            self.tally.spoil_case(row.kind.case_id)
        if not row.kind.replicate:
            self._trigger = Classified(row.cell(), *ruling)
            return
        if self._trigger is not None:
            self._kept.append(self._trigger)
            self._trigger = None
        self._kept.append(Classified(row.cell(), *ruling))

    def _bound(self, known: _Known, effect: _Effect, own: Own) -> None:
        """What a row that may be a prefill, or asks its prompt first, adds to the bounds beside its count."""
        asked, length = known.asked, known.length
        milliseconds = own.first_token_ms if own.prefill_ms is None else own.prefill_ms
        rate = milliseconds / length if milliseconds and length else None
        twice = asked.stands_twice(same_of((own.started_at, own.ended_at, own.output_sha256), known.kind))
        if asked.ask(rate):
            asked.repeat(rate, effect.fresh, twice)
            return
        asked.request = own.request_id
        if not effect.fresh:
            known.speed.count(0, -1)  # it is no repeat; `_fold` takes all for one

    def _fold(self) -> None:
        """Count the rows of the present kinds, and forget these."""
        for known in self._known:
            for effect in () if known is None else known.effects:
                if known is not None and effect is not None:
                    kind, rows = known.kind, effect.rows
                    self.tally.count(kind, effect.ruling, rows)
                    outcome = None if kind.replicate else known.outcome
                    known.asked.count(effect.ruling.cell_class, outcome, rows)
                    known.speed.count(rows, 0 if effect.fresh else rows)
        self._known = []

    def _finish(self) -> None:
        self._fold()
        for arm, unit in self.prompts.units():
            self.tally.close(arm, unit)

    def verdict(self, policy: Policy, told: Told, labels: tuple[Restated, ...] = ()) -> tuple[Verdict, Restatement]:
        """The answer, and the log restated, with what was found of its labels."""
        tally = self.tally
        self._finish()
        replicates = replicates_of(self._kept, policy.replicate)
        state = cusum(tally.outcomes(self._after), policy.alarm)
        candidate = tally.arms[CANDIDATE]
        unknown = None
        if self._unproven and not candidate.classes[CellClass.FRESH]:
            unknown = nothing_proven(candidate.requests, self._unproven)
        distrust = self._knob or unknown or told.invalid.distrust()
        snapshot = snapshot_of((distrust, tally, tally.cases), replicates, state.alarmed, policy)
        counts = {arm: tally.arms[arm].counts(told.invalid_of(arm)) for arm in ARMS}
        requests, prefills = tally.tables()
        facts = Facts(
            title=told.title,
            policy=policy,
            cases=tuple(tally.cases),
            classified=(),
            ledgers=(tally,),
            cells=(),
            replicates=replicates,
            snapshot=snapshot,
            ruling=decide(snapshot),
            throughput=NO_THROUGHPUT,
            clean_prefills_needed=clean_needed(tally, tally.cases, policy),
            alarm_level=state.level,
            alarm_at=alarm_level(policy.alarm),
            ever_alarmed=snapshot.alarm or bool(replicates),
            budget=policy.budget,
            notes=told.notes,
            from_log=True,
            arms=told.arms,
            counted=Counted(
                arms=counts,
                comparison=comparison_of(requests, prefills),
                unjudged={arm: tally.arms[arm].unjudged for arm in ARMS},
                outputs=len(candidate.outputs) or None,
                span=(told.begun, told.ended),
                bad_cases=tuple(tally.bad_cases),
            ),
        )
        common = tally.common()
        claim = claim_of(requests, prefills, self.prompts.by_prompt(common), self.prompts.doubts(common))
        return write_verdict(facts), Restatement(self._restated(ARMS), claim, labels)

    def _restated(self, arms: Iterable[str]) -> tuple[Restated, ...]:
        """The arms that are there, restated."""
        return tuple(
            Restated(arm, self.tally.arms[arm].counts(0), self.prompts.bounds(arm), self.speeds[arm].speed())
            for arm in arms
            if arm in self.speeds
        )

    def labels(self) -> tuple[Restated, ...]:
        """Each arm restated, in the order of their first rows: what there is to say where arms are labels."""
        self._finish()
        return self._restated(self.speeds)


def _before(started: float | None, ended: float | None) -> bool:
    return started is not None and ended is not None and started < ended


@dataclass(slots=True)
class Told:
    """What is known of a log beside its scored rows: its title, notes, invalid runs, and rows by arm."""

    title: str
    notes: tuple[str, ...] = ()
    invalid: InvalidRuns = field(default_factory=InvalidRuns)
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ARMS, 0))
    invalid_rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ARMS, 0))

    begun: float | None = None
    ended: float | None = None

    def count(self, counted: Iterable[tuple[Kind, int]]) -> None:
        """Count rows of whatever status, by kind."""
        for kind, rows in counted:
            self.rows[kind.arm] += rows
            if kind.status is Status.INVALID:
                self.invalid_rows[kind.arm] += rows

    def span(self, block: Block) -> None:
        """Note when the rows of a block began and ended."""
        begun, ended = block.column("started_at"), block.column("ended_at")
        if begun is not None:
            first = min(time for time in begun if time is not None)
            self.begun = first if self.begun is None else min(self.begun, first)
        if ended is not None:
            last = max(time for time in ended if time is not None)
            self.ended = last if self.ended is None else max(self.ended, last)

    def invalid_of(self, arm: str) -> int:
        """Invalid rows of an arm."""
        return self.invalid_rows[arm]

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that are there; the candidate always is."""
        return tuple(arm for arm in ARMS if arm == CANDIDATE or self.rows[arm])
