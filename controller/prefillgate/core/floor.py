"""The floor: the baseline against itself, measured before anything is judged (STATISTICS.md section 8).

What it shows is the noise of the decode speed, how much of the output is the same, and whether the instrument is
sound: a broken one judges nothing.
"""

from __future__ import annotations

from prefillgate.core.cells import BASELINE
from prefillgate.core.decision import Reason, decide
from prefillgate.core.distrust import checks_fail_on_baseline
from prefillgate.core.earlier import CaseRates, StoredFloor
from prefillgate.core.gate import Gate
from prefillgate.core.journal import Purpose
from prefillgate.core.pairs import instrument_of, measured_cv, passes_done
from prefillgate.core.snapshot import take_snapshot
from prefillgate.core.stored_baseline import age_words
from prefillgate.core.verdict import CellClass

BROKEN = frozenset(
    {
        Reason.INSTRUMENT_BROKEN,
        Reason.INDEPENDENCE_UNKNOWN,
        Reason.KNOB_NOT_HONOURED,
        Reason.CONTAMINATED,
        Reason.CASE_UNUSABLE,
        Reason.CHECK_ERROR,
        Reason.CHECKS_FAIL_ON_BASELINE,
    }
)
"""Why a floor says that nothing can be judged here; every other end before the last cell says nothing."""


class NoFloor(ValueError):
    """A store holds nothing that may stand for a floor. The message says why."""


def is_sound(gate: Gate) -> bool | None:
    """Whether the instrument is sound, by a floor's run as it stands; None where that is not known yet."""
    reason = decide(take_snapshot(gate)).reason
    if reason is Reason.FLOOR_MEASURED:
        return True
    return False if reason in BROKEN else None


def floor_of(stored: Gate, store: str, at: float) -> StoredFloor:
    """What both passes over the baseline in `stored` showed, under the name `store`, taken over at this moment.

    A run that checked its own instrument serves as well as a floor. Raises `NoFloor` where the passes are not both
    there, or show that nothing can be judged.
    """
    if not passes_done(stored):
        begun = bool(stored.places.second_pass)
        raise NoFloor(
            "its two passes over the baseline are not both done: the command that began it goes on"
            if begun
            else "its baseline was not measured against itself"
        )
    broken = _broken(stored)
    if broken is not None:
        raise NoFloor(f"nothing can be judged by it: {broken}")
    return _shown(stored, store, at)


def _broken(stored: Gate) -> str | None:
    found = instrument_of(stored).findings
    if found:
        return found[0]
    failing = checks_fail_on_baseline(stored)
    return None if failing is None else failing.sentence


def own_floor(gate: Gate) -> StoredFloor | None:
    """What a floor's run itself shows so far, sound or not; None for any other run."""
    if not gate.plan.shape.baseline_alone:
        return None
    return _shown(gate, None, None)


def _shown(stored: Gate, store: str | None, at: float | None) -> StoredFloor:
    passes = [e.cell for e in stored.scored if e.purpose in (Purpose.BASELINE_PASS, Purpose.AA)]
    mine = {id(cell) for cell in passes}
    fresh = [item.cell for item in stored.classified() if item.cell_class is CellClass.FRESH and id(item.cell) in mine]
    found = instrument_of(stored)
    seen = stored.epochs[BASELINE][-1] if stored.epochs[BASELINE] else None
    ends = [cell.ended_at for cell in passes if cell.ended_at is not None]
    measured_at = max(ends, default=stored.plan.started_at)
    return StoredFloor(
        store=store,
        run_id=stored.plan.run_id,
        measured_at=measured_at,
        taken_at=measured_at if at is None else at,
        prefills=len(fresh),
        bad_prefills=sum(bool(cell.outcome()) for cell in fresh),
        noise_cv=measured_cv(stored),
        identical=found.identical if found.compared else None,
        compared=found.compared or None,
        rates=tuple(CaseRates(case, tuple(rates)) for case, rates in found.baseline.rates.items() if rates),
        build=None if seen is None else seen.build,
        model=None if seen is None else seen.model,
        weights=None if seen is None else seen.weights,
        answers_cut=stored.baseline_pass_cut,
    )


def found_words(floor: StoredFloor) -> str:
    """What a floor showed, as the middle of a sentence."""
    parts = [f"{floor.bad_prefills} of {floor.prefills} fresh prefills bad"]
    if floor.compared:
        parts.append(f"the same output in {floor.identical} of {floor.compared} prompts")
    if floor.noise_cv is not None:
        parts.append(f"decode speed varies by {100 * floor.noise_cv:.1f} % from cell to cell")
    return ", ".join(parts)


def floor_sentence(floor: StoredFloor) -> str:
    """A floor in one sentence; of one that a run goes by, where it came from and how old it was."""
    told = f"the baseline against itself: {found_words(floor)}"
    if floor.store is None:
        return f"{told[0].upper()}{told[1:]}."
    return f"Floor of {floor.store} (run {floor.run_id}, {age_words(floor.age_seconds)} old), {told}."
