"""The policy as it is written: the shape of the custom resource PromotionPolicy (DESIGN.md section 6).

No floats: percent and basis-point integers (100 basis points are one percent), durations in seconds, CamelCase
enums, bounds on everything. A field left out has the value of STATISTICS.md.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from prefillgate.api.check_spec import MAX_CHECKS, NAME_PATTERN, CheckModel, name_twice
from prefillgate.api.model import WireModel

API_VERSION = "prefillgate.io/v1alpha1"
KIND = "PromotionPolicy"
RESOURCE_NAME = "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"

Name = Annotated[str, Field(min_length=1, max_length=63, pattern=NAME_PATTERN)]
Units = Annotated[int, Field(ge=1, le=100_000)]


class Metadata(WireModel):
    name: str = Field(min_length=1, max_length=253, pattern=RESOURCE_NAME)
    labels: dict[str, str] = Field(default_factory=dict, max_length=64)
    annotations: dict[str, str] = Field(default_factory=dict, max_length=64)


class Alarm(WireModel):
    """CUSUM of the log-likelihood ratio healthy rate against bad rate (STATISTICS.md section 3)."""

    healthy_rate_basis_points: int = Field(default=500, ge=1, le=9998)
    bad_rate_basis_points: int = Field(default=3000, ge=2, le=9999)
    threshold: int = Field(default=10, ge=2, le=1_000_000)
    watch_threshold: int = Field(default=100, ge=2, le=1_000_000)

    @model_validator(mode="after")
    def _apart(self) -> Alarm:
        low, high = self.healthy_rate_basis_points, self.bad_rate_basis_points
        if low >= high:
            raise ValueError(f"badRateBasisPoints {high} must be above healthyRateBasisPoints {low}")
        return self


class Replicate(WireModel):
    """The fresh paired replicate (STATISTICS.md section 4)."""

    planned_baseline_rate_basis_points: int = Field(default=200, ge=1, le=9998)
    planned_candidate_rate_basis_points: int = Field(default=4000, ge=2, le=9999)
    threshold: int = Field(default=40, ge=40, le=1_000_000)
    futility_basis_points: int = Field(default=500, ge=0, le=9999)
    clean_units: int = Field(default=8, ge=1, le=1000)
    max_pairs: int = Field(default=30, ge=1, le=1000)
    max_cached_tokens: int = Field(default=32, ge=0, le=32)
    gap_seconds: int = Field(default=600, ge=0, le=604_800)
    max_attempts: int = Field(default=2, ge=0, le=20)


class Throughput(WireModel):
    """Decode throughput (STATISTICS.md section 8)."""

    mode: Literal["Require", "Report"] = "Require"
    margin_basis_points: int = Field(default=-500, ge=-9000, le=10_000)
    alpha_basis_points: int = Field(default=500, ge=1, le=500)
    min_pairs: int = Field(default=6, ge=6, le=1000)
    max_pairs: int = Field(default=40, ge=6, le=1000)
    min_output_tokens: int = Field(default=32, ge=2, le=100_000)
    planned_cv_basis_points: int = Field(default=400, ge=10, le=10_000)
    max_prompts: int = Field(default=12, ge=1, le=1000)
    slow_ratio_percent: int = Field(default=80, ge=1, le=99)

    @model_validator(mode="after")
    def _room_for_pairs(self) -> Throughput:
        if self.max_pairs < self.min_pairs:
            raise ValueError(f"maxPairs {self.max_pairs} must be at least minPairs {self.min_pairs}")
        return self


class FlagModel(WireModel):
    """A named outcome, bad when any of its checks fails. Every flag must satisfy the acceptance table."""

    name: Name
    checks: list[Name] = Field(min_length=1, max_length=MAX_CHECKS)


class PolicySpec(WireModel):
    margin_percent: int | None = Field(default=None, ge=1, le=99)
    margin_basis_points: int | None = Field(default=None, ge=1, le=9999)
    alpha_basis_points: int = Field(default=500, ge=1, le=5000)
    acceptance: list[Units] | None = Field(default=None, min_length=1, max_length=20)
    budget_prefills: int | None = Field(default=None, ge=1, le=1_000_000)
    healthy_rate_basis_points: int = Field(default=100, ge=0, le=9999)
    baseline_pass_prefills: int = Field(default=8, ge=1, le=1000)
    refusals: int = Field(default=3, ge=1, le=100)
    deadline_seconds: int | None = Field(default=None, ge=1, le=31_536_000)
    aa_check: Literal["Enabled", "Disabled"] = "Disabled"
    alarm: Alarm = Field(default_factory=Alarm)
    replicate: Replicate = Field(default_factory=Replicate)
    throughput: Throughput = Field(default_factory=Throughput)
    checks: list[CheckModel] | None = Field(default=None, max_length=MAX_CHECKS)
    flags: list[FlagModel] = Field(default_factory=list, max_length=10)

    @model_validator(mode="after")
    def _whole(self) -> PolicySpec:
        if (self.margin_percent is None) == (self.margin_basis_points is None):
            raise ValueError("one of marginPercent (1 to 99) and marginBasisPoints (1 to 9999) is wanted")
        twice = name_twice(self.checks or [])
        if twice is not None:
            raise ValueError(f"two checks are named {twice}; give each a name of its own")
        names = [flag.name for flag in self.flags]
        if len(set(names)) != len(names):
            raise ValueError(f"two flags share a name: {', '.join(names)}")
        return self

    @property
    def margin(self) -> float:
        """As a fraction."""
        if self.margin_basis_points is not None:
            return self.margin_basis_points / 10_000
        assert self.margin_percent is not None
        return self.margin_percent / 100


class PromotionPolicy(WireModel):
    api_version: Literal["prefillgate.io/v1alpha1"]
    kind: Literal["PromotionPolicy"]
    metadata: Metadata
    spec: PolicySpec
