"""`run --floor`: an earlier run of the baseline against itself, held against this run's plan and taken over into it."""

from __future__ import annotations

from pathlib import Path

from prefillgate.core.earlier import StoredFloor
from prefillgate.core.floor import NoFloor, floor_of, floor_sentence
from prefillgate.core.stored_baseline import SECONDS_A_DAY, age_words, why_not_comparable
from prefillgate.replay.checks import CheckSuite
from prefillgate.replay.session import RunRequest, plan_run
from prefillgate.runs.around import Around
from prefillgate.runs.baseline_store import checks_of
from prefillgate.runs.errors import BadInput
from prefillgate.runs.stores import reading, same_store, short_name

ALLOWED = "allowed: the store of prefillgate floor, or of run --aa, over the same prompts with the same checks"


def stored_floor(request: RunRequest, suite: CheckSuite, now: float) -> StoredFloor | None:
    """What the floor asked for shows; None where none was. Raises `BadInput` naming what does not fit."""
    path = request.floor
    if path is None:
        return None
    if same_store(path, request.store):
        raise BadInput(f"--floor {path}: is the store of this run itself ({ALLOWED})")
    if request.shape.candidate_alone:
        raise BadInput(f"--floor {path}: is of a baseline, and this run has none (allowed: with --baseline)")
    if isinstance(path, Path) and not path.is_file():
        raise BadInput(f"--floor {path}: there is no evidence store ({ALLOWED})")
    with reading(path) as (_, stored):
        why = why_not_comparable(stored, plan_run(request, 0, now, request.policy.policy), checks_of(request, suite))
        if why is not None:
            raise BadInput(f"--floor {path}: {why} ({ALLOWED})")
        try:
            floor = floor_of(stored, short_name(path), now)
        except NoFloor as error:
            raise BadInput(f"--floor {path}: {error} ({ALLOWED})") from error
    most = request.floor_max_age_days
    if most is not None and floor.age_seconds > most * SECONDS_A_DAY:
        raise BadInput(f"--floor {path}: it is {age_words(floor.age_seconds)} old, more than {most:g} days ({ALLOWED})")
    return floor


def tell_floor(kept: StoredFloor | None, request: RunRequest, around: Around) -> None:
    """A run that goes on keeps the floor it was begun with: say so where another is asked for."""
    if request.floor is None:
        return
    if kept is None:
        around.said(f"floor: none, as the store has it (--floor {request.floor} is for a new run)")
    elif kept.store != short_name(request.floor):
        around.said(f"floor: {kept.store}, as the store has it (--floor says {request.floor})")
    else:
        around.said(floor_sentence(kept))
