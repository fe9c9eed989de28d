"""Judging a log too large for memory: the same answer as from a list of its cells, from two passes over its rows.

The first pass (`Survey`) looks at what must be known of all cells before any is classified, in any order. The second
(`Placing`) takes the rows in time order, the choices of a request side by side, and keeps state for each prompt alone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

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
from prefillgate.core.cache_hits import SpeedLog
from prefillgate.core.cells import ARMS, CANDIDATE, Status
from prefillgate.core.decision import Distrust, decide
from prefillgate.core.facts import Counted, Facts, comparison_of
from prefillgate.core.freshness import (
    IN_FLIGHT,
    OTHER_CHOICE,
    Classified,
    EpochTiming,
    Ruling,
    Standing,
    by_counter,
    copy_of,
)
from prefillgate.core.judge import write_verdict
from prefillgate.core.log_row import Row
from prefillgate.core.log_tally import LogTally, OpenUnit
from prefillgate.core.policy import Policy
from prefillgate.core.restate import PromptLedger, Seen, claim_of
from prefillgate.core.restated import Restated, Restatement
from prefillgate.core.verdict import CellClass, Verdict

REMEMBERED = 50_000  # rulings kept; equivalent mutant: with fewer the same ones are made again
_Epoch = tuple[str, str | None]


@dataclass(slots=True)
class Survey:
    """What the classes of all cells hang on: times of fresh prefills, and where the counter was seen alive."""

    timing: defaultdict[_Epoch, EpochTiming] = field(default_factory=lambda: defaultdict(EpochTiming))
    probed: set[_Epoch] = field(default_factory=set)
    hits: defaultdict[_Epoch, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, row: Row) -> None:
        """Take one more row, in any order. Invalid ones tell nothing."""
        if row.status is Status.INVALID:
            return
        epoch = (row.arm, row.server_epoch)
        if row.counter_alive:
            self.probed.add(epoch)
        if row.cached_tokens:
            self.hits[epoch] += 1
        if row.prefill_ms is not None:
            self.timing[epoch].take(row)

    def alive(self, row: Row) -> bool:
        """Whether the counter was seen alive by something other than this row alone."""
        epoch = (row.arm, row.server_epoch)
        return epoch in self.probed or self.hits[epoch] > (1 if row.cached_tokens else 0)

    def too_fast(self, row: Row) -> bool:
        """Whether its own time contradicts a fresh prefill."""
        return row.prefill_ms is not None and self.timing[row.arm, row.server_epoch].contradicts(row)


@dataclass(slots=True)
class _Asked:
    """A prompt in one life of a server of one arm: its latest unit, and when the last of its requests ended."""

    unit: OpenUnit | None = None
    ended_at: float | None = None


class Placing:
    """Rows in time order, folded into everything an audit says."""

    def __init__(self, survey: Survey, policy: Policy) -> None:
        self.tally = LogTally(max(policy.acceptance))
        self.prompts = PromptLedger()
        self.speeds: dict[str, SpeedLog] = {}
        self._survey = survey
        self._asked: dict[tuple[str, str | None, str], _Asked] = {}
        self._choice: tuple[object, OpenUnit | None] = (None, None)  # the latest request, and its unit
        self._rulings: dict[object, Ruling] = {}
        self._knob: Distrust | None = None
        self._unproven = ""  # the witness of the candidate's first request that is not proven
        self._kept: list[Classified] = []  # cells of replicates, and the last bad cell before each
        self._trigger: Classified | None = None
        self._replicate = 0
        self._after = 0  # where the candidate's timeline begins anew

    def add(self, row: Row) -> None:
        """Take the next row. Invalid ones are never scored."""
        if row.status is Status.INVALID:
            return
        key = (row.arm, row.server_epoch, row.prompt_key)
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = _Asked()
        if row.replicate > self._replicate:
            self._replicate, self._after = row.replicate, len(self.tally.arms[CANDIDATE].timeline)
        request = (*key, row.request_id)
        other = row.request_id is not None and request == self._choice[0]
        parent = self._choice[1] if other else asked.unit
        ruling = self._ruling(row, asked, parent, other)
        unit = self.tally.add(row, ruling, parent)
        unit = parent if ruling.cell_class is CellClass.COPY else unit
        if unit is not None:
            asked.unit = unit
        if row.request_id is not None and not other:
            self._choice = (request, unit)
        if row.ended_at is not None:
            asked.ended_at = row.ended_at if asked.ended_at is None else max(asked.ended_at, row.ended_at)
        self._remember(row, ruling)
        self._restate(row, ruling)

    def _ruling(self, row: Row, asked: _Asked, parent: OpenUnit | None, other: bool) -> Ruling:
        """As the classifier rules: another choice first, then in flight, then by the counters."""
        number = None if parent is None else 0
        if other or (row.request_id is None and row.choice_index):
            return copy_of(number, OTHER_CHOICE)
        known = row.shares_blocks and row.started_at is not None and asked.ended_at is not None
        if known and row.started_at < asked.ended_at:  # type: ignore[operator]  # both are told
            return copy_of(number, IN_FLIGHT)
        standing = Standing(number, self._survey.too_fast(row), self._survey.alive(row))
        told = (row.status, row.prompt_tokens, row.cached_tokens, row.processed_tokens, row.counter_processed_tokens)
        key = (*told, row.cold_proof, row.shared_server, standing)
        found = self._rulings.get(key)
        if found is None:
            if len(self._rulings) >= REMEMBERED:
                self._rulings.clear()
            found = self._rulings[key] = by_counter(row, standing)
        return found

    def _remember(self, row: Row, ruling: Ruling) -> None:
        """What sentences name: the first cell of a kind, and the cells of replicates with what triggered them."""
        if self._knob is None and row.cold_proof is not None and knob_ignored(row, ruling.cell_class):
            self._knob = ignored_knob((row.arm, row.case_id), ruling.witness, row.cold_proof)
        if row.arm == CANDIDATE and not self._unproven and ruling.cell_class in UNPROVEN:
            self._unproven = ruling.witness
        if row.replicate:
            if self._trigger is not None:
                self._kept.append(self._trigger)
                self._trigger = None
            self._kept.append(_classified(row, ruling))
        elif row.arm == CANDIDATE and row.outcome():
            self._trigger = _classified(row, ruling)

    def _restate(self, row: Row, ruling: Ruling) -> None:
        seen = Seen(
            row.arm,
            row.server_epoch,
            row.prompt_key,
            row.case_id,
            ruling.cell_class,
            row.outcome(),
            not row.replicate,
            row.prompt_tokens,
            row.prefill_ms if row.prefill_ms is not None else row.first_token_ms,
        )
        speed = self.speeds.get(row.arm)
        if speed is None:
            speed = self.speeds[row.arm] = SpeedLog()
        speed.add(seen, self.prompts.add(seen))

    def verdict(self, policy: Policy, told: Told) -> tuple[Verdict, Restatement]:
        """The answer, and the log restated."""
        tally = self.tally
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
            ),
        )
        claim = claim_of(requests, prefills, self.prompts.by_prompt(tally.common()))
        arms = tuple(
            Restated(arm, replace(counts[arm], invalid=0), self.prompts.bounds(arm), self.speeds[arm].speed())
            for arm in ARMS
            if arm in self.speeds
        )
        return write_verdict(facts), Restatement(arms, claim)


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

    def count(self, row: Row) -> None:
        """Count a row of whatever status."""
        if row.started_at is not None:
            self.begun = row.started_at if self.begun is None else min(self.begun, row.started_at)
        if row.ended_at is not None:
            self.ended = row.ended_at if self.ended is None else max(self.ended, row.ended_at)
        self.rows[row.arm] += 1
        self.invalid_rows[row.arm] += row.status is Status.INVALID

    def invalid_of(self, arm: str) -> int:
        """Invalid rows of an arm."""
        return self.invalid_rows[arm]

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that are there; the candidate always is."""
        return tuple(arm for arm in ARMS if arm == CANDIDATE or self.rows[arm])


def _classified(row: Row, ruling: Ruling) -> Classified:
    return Classified(row.cell(), *ruling)
