"""PromotionPolicy as a resource: its spec is that of a policy file, without checks that use the machine's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from prefillgate.api.check_type import ASKING
from prefillgate.api.errors import Problem
from prefillgate.api.kinds.common import Conditions, Count, Sha256, StatusModel
from prefillgate.api.model import CelRule
from prefillgate.api.policy_model import PolicySpec

_KINDS = ", ".join(f"'{kind}'" for kind in sorted(ASKING))
NO_ASKING = CelRule(
    f"!has(self.spec.checks) || self.spec.checks.all(c, !(c.type in [{_KINDS}]))",
    "a check of type Exec or Judge uses programs, files and variables of the machine that the gate runs on: it is for "
    "policy files alone",
    ".spec.checks",
)


class PromotionPolicyStatus(StatusModel):
    """What the policy comes to."""

    observed_generation: Count | None = Field(
        default=None, description="The generation of the spec that all of this was judged by."
    )
    conditions: Conditions | None = Field(default=None, description="Whether it can be used.")
    acceptance: Annotated[list[Count], Field(max_length=20)] | None = Field(
        default=None, description="Fresh prefills at which 0, 1, 2 ... bad ones promote."
    )
    budget_prefills: Count | None = Field(default=None, description="Fresh prefills that a rollout may spend.")
    sha256: Sha256 | None = Field(default=None, description="The digest of every number and check.")


def not_for_a_cluster(spec: PolicySpec) -> Iterator[Problem]:
    """What an API server with the rules above would have refused."""
    for place, check in enumerate(spec.checks or []):
        if check.type in ASKING:
            yield Problem("", f"spec.checks[{place}].type", NO_ASKING.message)
