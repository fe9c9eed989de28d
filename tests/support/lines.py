"""A serving line and its rollout as an API server has them, in a state of the test's choice."""

from __future__ import annotations

import copy
from typing import Any

from prefillgate.api.kinds.reasons import ConditionType, condition_of
from tests.support.kinds import Object, with_status

SPACE, LINE, ROLLOUT = "prod", "chat", "chat-5f2c1e9a"
AT = "2026-11-30T10:00:00Z"


def serving_line(**status: Any) -> Object:
    """The sample line with every field of a status but conditions; those given are others, None takes one away."""
    return _thing("ServingLine", LINE, {"conditions": [], "notWell": None, **status})


def rollout(name: str = ROLLOUT, **status: Any) -> Object:
    """The same of a rollout of that line."""
    thing = _thing("ProfileRollout", name, {"conditions": [], "override": None, **status})
    thing["spec"] = {**thing["spec"], "lineRef": {"name": LINE}}
    return thing


def decided(verdict: str = "Hold", reason: str = "RegressionNotConfirmed", **more: Any) -> Object:
    """A decision of a status."""
    promotion = "Allowed" if verdict == "Promote" else "Blocked"
    back = "Allowed" if verdict == "Rollback" else "Refused"
    given = {"verdict": verdict, "promotion": promotion, "rollback": back, "reason": reason, "at": AT}
    return {**given, "sentences": [f"{verdict} it is."], "cause": "Unverified", "measured": True, **more}


def condition(kind: str, status: Any, reason: str) -> Object:
    """A condition of the table of reasons."""
    return condition_of(ConditionType(kind), status, reason, at=AT, generation=1).model_dump(by_alias=True)


def _thing(kind: str, name: str, status: Object) -> Object:
    thing = copy.deepcopy(with_status(kind))
    thing["metadata"] = {"name": name, "namespace": SPACE, "generation": 1, "creationTimestamp": "2026-11-28T09:00:00Z"}
    thing["status"] |= {"observedGeneration": 1, **status}
    if kind == "ServingLine" and "currentRollout" not in status:
        thing["status"]["currentRollout"] = ROLLOUT
    thing["status"] = {key: value for key, value in thing["status"].items() if value is not None}
    return thing
