"""What is found about a line or a rollout, before it stands as a condition in a status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prefillgate.api.kinds.common import ConditionModel
from prefillgate.api.kinds.reasons import ROWS, ConditionType, Status, condition_of, merged, saying
from prefillgate.reconcile.overrides import OverriddenRow

_KINDS = {kind.value: kind for kind in ConditionType}


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition without its times: `detail` follows the sentence of its reason."""

    type: ConditionType
    status: Status
    reason: str
    detail: str = ""

    @property
    def holds(self) -> bool:
        """Whether it is True."""
        return self.status == "True"


def overridden_finding(row: OverriddenRow | None) -> Finding:
    """What was found about the overrides of an object."""
    if row is None:
        return Finding(ConditionType.OVERRIDDEN, "False", "NoOverride")
    return Finding(ConditionType.OVERRIDDEN, row.status, row.reason, row.detail)


def as_conditions(
    before: Iterable[ConditionModel] | None, findings: Iterable[Finding | ConditionModel], at: str, generation: int
) -> list[ConditionModel]:
    """The conditions of a status. `before` are those of the status as read, `at` (RFC 3339) is when this was found."""
    now = [_condition(each, at, generation) if isinstance(each, Finding) else each for each in findings]
    return merged(before or (), now)


def as_finding(condition: ConditionModel) -> Finding | None:
    """A condition that stands, as it was found: its message begins with its reason's sentence. None where the table has
    no such row: another version of the controller wrote it."""
    kind = _KINDS.get(condition.type)
    row = None if kind is None else ROWS.get((kind, condition.reason))
    if row is None or condition.status not in row.statuses:
        return None
    return Finding(row.type, condition.status, condition.reason, condition.message.removeprefix(row.sentence).strip())


def finding_in(conditions: Iterable[ConditionModel] | None, kind: ConditionType) -> Finding | None:
    """A condition of a status by its type, where the table has it."""
    return next((found for each in conditions or () if each.type == kind and (found := as_finding(each))), None)


def _condition(finding: Finding, at: str, generation: int) -> ConditionModel:
    made = condition_of(finding.type, finding.status, finding.reason, at=at, generation=generation)
    return saying(made, finding.detail) if finding.detail else made
