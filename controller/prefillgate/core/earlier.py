"""What a run takes over from runs before it. It stands in the plan, so that the decision follows from one journal.

A floor tells how the baseline looks against itself; a small replay after a promotion begins where the one before it
ended; a replicate that answers the alarm of such a replay is told of it what it must be kept apart from.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CaseRates:
    """Decode rates of one case's fresh cells in both passes over the baseline, in tokens per second."""

    case_id: str
    per_second: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StoredFloor:
    """What two passes over the baseline showed."""

    store: str | None  # the name of the earlier run's store; None: it is this run's own
    run_id: str
    measured_at: float  # when its last cell ended, seconds since the epoch
    taken_at: float  # when a later run took it over
    prefills: int
    bad_prefills: int
    noise_cv: float | None = None  # of one cell's decode rate, as a share
    identical: int | None = None  # outputs that were the same in both passes, of `compared`
    compared: int | None = None
    rates: tuple[CaseRates, ...] = ()
    build: str | None = None
    model: str | None = None
    weights: str | None = None
    answers_cut: bool = False  # an answer was cut at its token limit: then a cut is nothing bad of a candidate

    @property
    def identical_share(self) -> float | None:
        """Share of outputs that were the same in both passes; None where none were compared."""
        return None if not self.compared or self.identical is None else self.identical / self.compared

    @property
    def age_seconds(self) -> float:
        """How old it was when it was taken over."""
        return self.taken_at - self.measured_at


@dataclass(frozen=True, slots=True)
class Watching:
    """One small replay of a promoted profile, of many over months (STATISTICS.md section 4)."""

    prefills: int  # fresh ones that this replay takes
    levels: tuple[float, ...] = ()  # of the CUSUM at its start, one for each flag, in nats; none: 0
    replays_before: int = 0  # since the promotion, and what they brought
    prefills_before: int = 0
    bad_before: int = 0
    alarms_before: int = 0
    bad_cases: tuple[str, ...] = ()  # that raised the level to what it is
    after: str | None = None  # the run before it
    answers_cut: bool = False  # as of a floor


@dataclass(frozen=True, slots=True)
class Trigger:
    """The alarm that this run's replicate answers: names and times alone, no outcome of it can enter the replicate."""

    run_id: str
    cases: tuple[str, ...]  # that failed, the last replay's first
    last_bad_at: float | None = None  # when the last bad cell ended, seconds since the epoch
    epochs: tuple[str, ...] = ()  # lives of the promoted profile's servers with a bad cell, the last one's last
    prefills: int = 0  # since the promotion, beside the bad ones: for the words of a report
    bad_prefills: int = 0
    answers_cut: bool = False  # as of a floor
