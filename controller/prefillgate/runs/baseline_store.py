"""`run --baseline-store`: an earlier run's baseline, held against this run's plan and written into its journal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from prefillgate.core.gate import Gate
from prefillgate.core.journal import BaselineShown, Journal
from prefillgate.core.stored_baseline import (
    Checks,
    NoStoredBaseline,
    baseline_of,
    baseline_sentence,
    same_baseline,
    why_not_comparable,
    why_of_no_age,
)
from prefillgate.replay.checks import CheckSuite
from prefillgate.replay.session import RunRequest, plan_run
from prefillgate.runs.around import Around
from prefillgate.runs.errors import BadInput
from prefillgate.runs.stores import reading, same_store, short_name, store_errors

ALLOWED = (
    "allowed: the store of an earlier run over the same prompts with the same checks, younger than --baseline-max-age"
)


def stored_baseline(request: RunRequest, suite: CheckSuite, now: float) -> BaselineShown | None:
    """What is shown of the store asked for; None where none was. Raises `BadInput` naming what does not fit."""
    path = request.baseline_store
    if path is None:
        return None
    if same_store(path, request.store):
        raise BadInput(f"--baseline-store {path}: is the store of this run itself ({ALLOWED})")
    plan = plan_run(request, 0, now, request.policy.policy)
    if isinstance(path, Path) and not path.is_file():
        raise BadInput(f"--baseline-store {path}: there is no evidence store ({ALLOWED})")
    with reading(path) as (_, stored):
        try:
            shown = baseline_of(stored, short_name(path), now)
        except NoStoredBaseline as error:
            raise BadInput(f"--baseline-store {path}: {error} ({ALLOWED})") from error
        why = why_not_comparable(stored, plan, checks_of(request, suite))
    why = why or why_of_no_age(shown, request.baseline_max_age_days)
    if why is not None:
        raise BadInput(f"--baseline-store {path}: {why} ({ALLOWED})")
    return shown


def checks_of(request: RunRequest, suite: CheckSuite) -> Checks:
    """The checks that will be run on each case, with their versions."""
    return {
        case.case_id: {check.name: check.version for check in suite.checks_for(case)}
        for case in request.replay_set.cases
    }


def show_baseline(journal: Journal, gate: Gate, shown: BaselineShown | None, around: Around) -> None:
    """Say what is shown and write it down, unless it stands there already: its age is that of the first look."""
    if shown is None:
        return
    if gate.baseline_shown is not None and same_baseline(gate.baseline_shown, shown):
        shown = replace(shown, at=gate.baseline_shown.at)
    else:
        with store_errors():
            journal.append(shown)
        gate.apply(shown)
    around.said(baseline_sentence(shown))
