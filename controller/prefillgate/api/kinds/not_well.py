"""What of an object's conditions a person should know of, the worst first: for `kubectl get`, `get` and `explain`."""

from __future__ import annotations

from collections.abc import Iterable

from prefillgate.api.kinds.common import ConditionModel
from prefillgate.api.kinds.reasons import ROWS, ConditionType
from prefillgate.core.decision import ERRORS

LONGEST_NOT_WELL = 256
WORST_FIRST = (
    ConditionType.ROLLBACK_ALLOWED,
    ConditionType.ALARM_RAISED,
    ConditionType.ACCEPTED,
    ConditionType.ENDPOINTS_READY,
    ConditionType.STORE_BEHIND,
    ConditionType.INSTRUMENT_CHECKED,
    ConditionType.SCREENED,
    ConditionType.PROMOTION_ALLOWED,
    ConditionType.WATCHING,
    ConditionType.GATING,
)
"""The conditions that tables tell of. Others say what the decision says."""


def not_well(conditions: Iterable[ConditionModel]) -> list[ConditionModel]:
    """What the table of reasons warns of, and what it does not know and is not true; the worst first. That a line which
    is not accepted is not gated is left out: it is the same."""
    found = [each for each in conditions if _warns(each)]
    refused = any(each.type == ConditionType.ACCEPTED for each in found)
    kept = [each for each in found if not (refused and each.reason == "NotAccepted")]
    return sorted(kept, key=rank)


def rank(condition: ConditionModel) -> int:
    """How bad it is beside others: 0 is the worst."""
    known = [at for at, kind in enumerate(WORST_FIRST) if kind == condition.type]
    return known[0] if known else len(WORST_FIRST)


def in_short(conditions: Iterable[ConditionModel]) -> str | None:
    """The reasons of what is not well, for a column of a table: `SecretNotUsable, NoReadyPods`. None: all is well."""
    reasons = [each.reason for each in not_well(conditions) if rank(each) < len(WORST_FIRST) and _is_told(each)]
    return ", ".join(dict.fromkeys(reasons))[:LONGEST_NOT_WELL] or None


def _is_told(condition: ConditionModel) -> bool:
    """Whether no column beside it says so: of the permissions that a rollback is allowed, and that nothing could be
    measured."""
    if condition.type == ConditionType.ROLLBACK_ALLOWED:
        return condition.status == "True"
    return condition.type != ConditionType.PROMOTION_ALLOWED or condition.reason in ERRORS


def _warns(condition: ConditionModel) -> bool:
    known = [row for (kind, reason), row in ROWS.items() if (kind, reason) == (condition.type, condition.reason)]
    return known[0].warning if known else condition.status != "True"
