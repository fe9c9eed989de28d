"""The CustomResourceDefinitions, made from the types. `python -m prefillgate.api.kinds.crd FOLDER` writes them.

They stand in manifests/crds as well; a test holds that what stands there is what this makes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from prefillgate.api.kinds.line_status import ServingLineStatus
from prefillgate.api.kinds.names import (
    CATEGORY,
    GROUP,
    LONGEST_LINE_NAME,
    PROFILE_ROLLOUT,
    PROMOTION_POLICY,
    REPLAY_SET,
    SERVING_LINE,
    VERSION,
    KindNames,
)
from prefillgate.api.kinds.profile_rollout import ProfileRolloutSpec
from prefillgate.api.kinds.promotion_policy import NO_ASKING, PromotionPolicyStatus
from prefillgate.api.kinds.replay_set_kind import ReplaySetSpec, ReplaySetStatus
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.api.kinds.schema import structural
from prefillgate.api.kinds.serving_line import ServingLineSpec
from prefillgate.api.model import RULES_KEY, CelRule, WireModel
from prefillgate.api.policy_model import PolicySpec

HEADER = "# Made by `make crds` from the types in controller/prefillgate/api/kinds. Change those, not this.\n"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`. With priority 1 it is shown with `-o wide` alone."""

    name: str
    path: str
    description: str
    type: str = "string"
    priority: int = 0

    @property
    def entry(self) -> dict[str, Any]:
        """The column as a CRD holds it."""
        low = {"priority": self.priority} if self.priority else {}
        shown = {"name": self.name, "type": self.type, "description": self.description, "jsonPath": self.path}
        return {**shown, **low}


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind: its names, what its objects hold, what `kubectl get` shows of them, rules over the whole object."""

    names: KindNames
    says: str
    spec: type[WireModel]
    status: type[WireModel]
    columns: tuple[Column, ...]
    rules: tuple[CelRule, ...] = ()


def _condition(name: str) -> str:
    return f".status.conditions[?(@.type=='{name}')].status"


AGE = Column("Age", ".metadata.creationTimestamp", "How long it has been there.", "date")
ACCEPTED = Column("Accepted", _condition("Accepted"), "Whether it can be used.")

_LINE = Resource(
    SERVING_LINE,
    "One model in production under one name, whose next profiles are judged before they replace the present one.",
    ServingLineSpec,
    ServingLineStatus,
    (
        Column("Decision", ".status.decision", "What the current or last rollout says."),
        Column("Prefills", ".status.prefills", "Bad and all fresh prefills of the candidate."),
        Column("Rollback", ".status.rollback", "Whether the candidate may be rolled back."),
        Column("Candidate", ".status.candidate.name", "The candidate's profile."),
        AGE,
        Column("Not Well", ".status.notWell", "What a person should know of, in words of its conditions."),
        Column("Promotion", ".status.promotion", "Whether the candidate may be promoted.", priority=1),
        Column("Reason", ".status.reason", "Why, in one word.", priority=1),
        Column("Promoted", ".status.promotedProfile.name", "The profile in production.", priority=1),
        Column("Rollout", ".status.currentRollout", "The current or last ProfileRollout.", priority=1),
        Column("Accepted", _condition("Accepted"), "Whether the line can be used.", priority=1),
        Column("Alarm", _condition("AlarmRaised"), "Whether an alarm stands.", priority=1),
    ),
    (
        CelRule(
            f"size(self.metadata.name) <= {LONGEST_LINE_NAME}",
            f"a line's name has at most {LONGEST_LINE_NAME} characters: the names of its rollouts are made of it",
        ),
    ),
)
_ROLLOUT = Resource(
    PROFILE_ROLLOUT,
    "One attempt to replace one profile by another on one ServingLine.",
    ProfileRolloutSpec,
    ProfileRolloutStatus,
    (
        Column("Decision", ".status.decision.verdict", "What it says."),
        Column("Prefills", ".status.prefills", "Bad and all fresh prefills of the candidate."),
        Column("Rollback", ".status.decision.rollback", "Whether the candidate may be rolled back."),
        Column("Candidate", ".status.candidate.name", "The candidate's profile."),
        AGE,
        Column("Line", ".spec.lineRef.name", "The ServingLine that it belongs to.", priority=1),
        Column("Promotion", ".status.decision.promotion", "Whether the candidate may be promoted.", priority=1),
        Column("Reason", ".status.decision.reason", "Why, in one word.", priority=1),
        Column("Baseline", ".status.baseline.name", "The baseline's profile.", priority=1),
        Column("Throughput", ".status.throughput.state", "What was shown of decode speed.", priority=1),
        Column("Succeeded", _condition("Succeeded"), "Whether it ended with a promotion.", priority=1),
        Column("Differences", ".status.summary", "What differs between the two profiles.", priority=1),
    ),
)
_POLICY = Resource(
    PROMOTION_POLICY,
    "How bad a candidate may be, how sure the gate must be of it, and what it may spend to find out.",
    PolicySpec,
    PromotionPolicyStatus,
    (
        ACCEPTED,
        Column("Margin", ".spec.marginPercent", "The bad rate that must be excluded, in percent.", "integer"),
        Column("Budget", ".status.budgetPrefills", "Fresh prefills that a rollout may spend.", "integer"),
        AGE,
        Column("Acceptance", ".status.acceptance", "Prefills at which 0, 1, 2 ... bad ones promote.", priority=1),
    ),
    (NO_ASKING,),
)
_SET = Resource(
    REPLAY_SET,
    "Where the prompts of a replay are.",
    ReplaySetSpec,
    ReplaySetStatus,
    (
        ACCEPTED,
        Column("Cases", ".status.cases", "How many cases it has.", "integer"),
        AGE,
        Column("Sha256", ".status.sha256", "The digest of the cases as they are sent.", priority=1),
    ),
)
RESOURCES: tuple[Resource, ...] = (_LINE, _ROLLOUT, _POLICY, _SET)


def crd_of(resource: Resource) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    names = resource.names
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _whole(resource)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [column.entry for column in resource.columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": names.crd_name},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.kind,
                "listKind": f"{names.kind}List",
                "plural": names.plural,
                "singular": names.singular,
                "shortNames": list(names.short),
                "categories": [CATEGORY],
            },
            "versions": [version],
        },
    }


def _whole(resource: Resource) -> dict[str, Any]:
    rules = [rule.entry for rule in resource.rules]
    return {
        "description": resource.says,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": f"The version of this type: {GROUP}/{VERSION}.", "type": "string"},
            "kind": {"description": f"The kind: {resource.names.kind}.", "type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(resource.spec),
            "status": structural(resource.status),
        },
        **({RULES_KEY: rules} if rules else {}),
    }


def crd_files() -> dict[str, str]:
    """The text of every file in manifests/crds, by its name."""
    return {f"{resource.names.crd_name}.yaml": HEADER + _yaml(crd_of(resource)) for resource in RESOURCES}


def _yaml(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)


def write_crds(folder: Path) -> tuple[Path, ...]:
    """Write every file into the folder, which is made where it is missing. Returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in crd_files().items():
        path = folder / name
        path.write_text(text, encoding="utf-8", newline="\n")
        written.append(path)
    return tuple(written)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m prefillgate.api.kinds.crd FOLDER")
    for path in write_crds(Path(sys.argv[1])):
        sys.stdout.write(f"{path}\n")
