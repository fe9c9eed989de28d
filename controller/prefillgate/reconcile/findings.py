"""What is found about a line or a rollout, before it stands as a condition in a status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from prefillgate.api.kinds.common import ConditionModel
from prefillgate.api.kinds.reasons import ConditionType, Status, condition_of, merged, saying
from prefillgate.reconcile.overrides import OverriddenRow


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

    def of(self, kind: ConditionType) -> Finding:
        """The same under another condition that has this reason and status."""
        return replace(self, type=kind)


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


def as_finding(condition: ConditionModel) -> Finding:
    """A condition that stands, as it was found: its message begins with its reason's sentence."""
    kind = ConditionType(condition.type)
    made = condition_of(kind, condition.status, condition.reason, at=condition.last_transition_time, generation=0)
    return Finding(kind, condition.status, condition.reason, condition.message.removeprefix(made.message).strip())


def _condition(finding: Finding, at: str, generation: int) -> ConditionModel:
    made = condition_of(finding.type, finding.status, finding.reason, at=at, generation=generation)
    return saying(made, finding.detail) if finding.detail else made
