"""The one condition of a policy or a replay set: whether it can be used, and every field at fault."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prefillgate.api.errors import Problem
from prefillgate.api.kinds.common import ConditionModel
from prefillgate.api.kinds.moments import moment
from prefillgate.api.kinds.reasons import ConditionType, condition_of, merged, saying
from prefillgate.api.model import validate
from prefillgate.reconcile.snapshot import Object, Trouble

MOST_TOLD = 20


def own_status(thing: Object, problems: Iterable[Problem], trouble: Trouble | None, now: float) -> dict[str, Any]:
    """`observedGeneration` and `conditions` as they stand on the wire: Accepted, or why not. A condition whose status
    stays keeps the time of its last transition."""
    generation = int(thing.get("metadata", {}).get("generation") or 0)
    told = [_words(each) for each in problems]
    reason = "SpecInvalid" if told else trouble.reason if trouble is not None else "Accepted"
    status: Any = "True" if reason == "Accepted" else "False"
    condition = condition_of(ConditionType.ACCEPTED, status, reason, at=moment(now), generation=generation)
    if told:
        more = f"; and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
        condition = saying(condition, "; ".join(told[:MOST_TOLD]) + more)
    elif trouble is not None:
        condition = saying(condition, f"{trouble.field}: {trouble.detail}")
    conditions = merged(_before(thing), [condition])
    wired = [each.model_dump(by_alias=True, exclude_none=True) for each in conditions]
    return {"observedGeneration": generation, "conditions": wired}


def _words(problem: Problem) -> str:
    allowed = f" (allowed: {problem.allowed})" if problem.allowed else ""
    return f"{problem.field}: {problem.message}{allowed}" if problem.field else f"{problem.message}{allowed}"


def _before(thing: Object) -> list[ConditionModel]:
    """The conditions that stand there, without what cannot be read."""
    status = thing.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    read = (validate(ConditionModel, each)[0] for each in found or ())
    return [each for each in read if each is not None]
