"""The policy as it is written: the shape of the custom resource PromotionPolicy (DESIGN.md section 6).

No floats: percent and basis-point integers (100 basis points are one percent), durations in seconds, CamelCase
enums, bounds on everything. A field left out has the value of STATISTICS.md.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from prefillgate.api.check_spec import MAX_CHECKS, NAME_PATTERN, CheckModel, name_twice
from prefillgate.api.model import CelRule, WireModel, map_list, with_rules

API_VERSION = "prefillgate.io/v1alpha1"
KIND = "PromotionPolicy"
RESOURCE_NAME = "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"

MAX_ENTRIES = 20  # of an acceptance table

Name = Annotated[str, Field(min_length=1, max_length=63, pattern=NAME_PATTERN)]
Units = Annotated[int, Field(ge=1, le=100_000)]


class Metadata(WireModel):
    name: str = Field(min_length=1, max_length=253, pattern=RESOURCE_NAME)
    labels: dict[str, str] = Field(default_factory=dict, max_length=64)
    annotations: dict[str, str] = Field(default_factory=dict, max_length=64)


class Alarm(WireModel):
    """CUSUM of the log-likelihood ratio healthy rate against bad rate (STATISTICS.md section 3)."""

    model_config = with_rules(
        CelRule(
            "(has(self.healthyRateBasisPoints) ? self.healthyRateBasisPoints : 500) < "
            "(has(self.badRateBasisPoints) ? self.badRateBasisPoints : 3000)",
            "badRateBasisPoints (3000 if left out) must be above healthyRateBasisPoints (500 if left out)",
        )
    )

    healthy_rate_basis_points: int = Field(
        default=500, ge=1, le=9998, description="The rate of bad prefills that is no alarm, in hundredths of a percent."
    )
    bad_rate_basis_points: int = Field(
        default=3000,
        ge=2,
        le=9999,
        description="The rate of bad prefills to be alarmed at, in hundredths of a percent.",
    )
    threshold: int = Field(
        default=10, ge=2, le=1_000_000, description="How much likelier the bad rate must be than the healthy one."
    )
    watch_threshold: int = Field(
        default=100, ge=2, le=1_000_000, description="The same for the watch after promotion, which looks for months."
    )

    @model_validator(mode="after")
    def _apart(self) -> Alarm:
        low, high = self.healthy_rate_basis_points, self.bad_rate_basis_points
        if low >= high:
            raise ValueError(f"badRateBasisPoints {high} must be above healthyRateBasisPoints {low}")
        return self


class Replicate(WireModel):
    """The fresh paired replicate (STATISTICS.md section 4)."""

    planned_baseline_rate_basis_points: int = Field(
        default=200, ge=1, le=9998, description="The baseline's bad rate that the test is sized for."
    )
    planned_candidate_rate_basis_points: int = Field(
        default=4000, ge=2, le=9999, description="The candidate's bad rate that the test is sized for."
    )
    threshold: int = Field(
        default=40,
        ge=40,
        le=1_000_000,
        description="The e-value at which the first replicate confirms; later ones need more, by a fixed rule.",
    )
    futility_basis_points: int = Field(
        default=500, ge=0, le=9999, description="An e-value at or below this many ten-thousandths ends it as futile."
    )
    clean_units: int = Field(
        default=8, ge=1, le=1000, description="So many clean candidate prefills at its start end it as clean."
    )
    max_pairs: int = Field(default=30, ge=1, le=1000, description="Pairs of prefills after which it ends undecided.")
    max_cached_tokens: int = Field(
        default=32, ge=0, le=32, description="Tokens that a prefill may take from a cache and still count in it."
    )
    gap_seconds: int = Field(
        default=600, ge=0, le=604_800, description="How long after the last bad cell it begins, without a restart."
    )
    max_attempts: int = Field(default=2, ge=0, le=20, description="How many replicates one rollout may run.")


class Throughput(WireModel):
    """Decode throughput (STATISTICS.md section 8)."""

    model_config = with_rules(
        CelRule(
            "(has(self.maxPairs) ? self.maxPairs : 40) >= (has(self.minPairs) ? self.minPairs : 6)",
            "maxPairs (40 if left out) must be at least minPairs (6 if left out)",
        )
    )

    mode: Literal["Require", "Report"] = Field(
        default="Require", description="Require: promotion needs a speed that is not worse. Report: it is only shown."
    )
    margin_basis_points: int = Field(
        default=-500,
        ge=-9000,
        le=10_000,
        description="The smallest change of decode speed that is accepted, in hundredths of a percent.",
    )
    alpha_basis_points: int = Field(
        default=500, ge=1, le=500, description="How often a slower candidate may pass, in hundredths of a percent."
    )
    min_pairs: int = Field(default=6, ge=6, le=1000, description="Pairs of cells before anything is said of speed.")
    max_pairs: int = Field(default=40, ge=6, le=1000, description="Pairs of cells that speed may cost.")
    min_output_tokens: int = Field(
        default=32, ge=2, le=100_000, description="Cells with fewer output tokens give no pair."
    )
    planned_cv_basis_points: int = Field(
        default=400,
        ge=10,
        le=10_000,
        description="The spread (coefficient of variation) of a cell's speed that the test is sized for.",
    )
    max_prompts: int = Field(
        default=12, ge=1, le=1000, description="Of how many prompts the speed must be known before promotion."
    )
    slow_ratio_percent: int = Field(
        default=80, ge=1, le=99, description="A cell below this share of its prompt's baseline speed is slow."
    )

    @model_validator(mode="after")
    def _room_for_pairs(self) -> Throughput:
        if self.max_pairs < self.min_pairs:
            raise ValueError(f"maxPairs {self.max_pairs} must be at least minPairs {self.min_pairs}")
        return self


class FlagModel(WireModel):
    """A named outcome, bad when any of its checks fails. Every flag must satisfy the acceptance table."""

    name: Name = Field(description="What the flag is called in reports; one of its own for each.")
    checks: list[Name] = Field(
        min_length=1, max_length=MAX_CHECKS, description="Names of the checks whose failure makes it bad."
    )


class PolicySpec(WireModel):
    """How bad a candidate may be, how sure the gate must be of it, and what it may spend to find out."""

    model_config = with_rules(
        CelRule(
            "has(self.marginPercent) != has(self.marginBasisPoints)",
            "one of marginPercent (1 to 99) and marginBasisPoints (1 to 9999) is wanted",
        ),
        CelRule(
            "!has(self.checks) || self.checks.all(c, !has(c.name) || "
            "self.checks.exists_one(d, has(d.name) && d.name == c.name))",
            "two checks have the same name; give each a name of its own",
        ),
        CelRule(
            f"!has(self.acceptance) || {list(range(MAX_ENTRIES - 1))}.all(i, i + 1 >= size(self.acceptance) || "
            "self.acceptance[i] < self.acceptance[i + 1])",
            "acceptance must be rising whole numbers of at least 1",
            field_path=".acceptance",
        ),
    )

    margin_percent: int | None = Field(
        default=None, ge=1, le=99, description="The bad rate that must be excluded before promotion, in percent."
    )
    margin_basis_points: int | None = Field(
        default=None, ge=1, le=9999, description="The same in hundredths of a percent; give one of the two."
    )
    alpha_basis_points: int = Field(
        default=500,
        ge=1,
        le=5000,
        description="How often a candidate as bad as the margin may be promoted, in hundredths of a percent.",
    )
    acceptance: list[Units] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_ENTRIES,
        description="Fresh prefills at which 0, 1, 2 ... bad ones still promote. Left out: computed from margin and "
        "alpha.",
    )
    budget_prefills: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Fresh prefills that may be spent on both arms. Left out: 125 more than the last acceptance entry, "
        "150 at least.",
    )
    healthy_rate_basis_points: int = Field(
        default=100,
        ge=0,
        le=9999,
        description="The bad rate of a healthy profile on this set, for the chance to be promoted that is told before "
        "a run.",
    )
    baseline_pass_prefills: int = Field(
        default=8, ge=1, le=1000, description="Baseline prefills run first, to see that the checks pass on it."
    )
    refusals: int = Field(
        default=3, ge=1, le=100, description="Refusals in a row after which a candidate counts as unavailable."
    )
    deadline_seconds: int | None = Field(
        default=None, ge=1, le=31_536_000, description="After so long a run holds. Left out: no deadline."
    )
    aa_check: Literal["Enabled", "Disabled"] = Field(
        default="Disabled", description="Whether a run begins by comparing the baseline with itself."
    )
    alarm: Alarm = Field(default_factory=Alarm, description="When bad prefills raise an alarm.")
    replicate: Replicate = Field(
        default_factory=Replicate, description="The fresh comparison that must confirm an alarm before a rollback."
    )
    throughput: Throughput = Field(default_factory=Throughput, description="What is asked of decode speed.")
    checks: list[CheckModel] | None = Field(
        default=None,
        max_length=MAX_CHECKS,
        description="What makes an output bad. Left out: NotEmpty, Loop, TemplateTokens and BareVerdict.",
    )
    flags: list[FlagModel] = Field(
        default_factory=list,
        max_length=10,
        description="Named outcomes that are judged apart. Left out: one flag, bad when any check fails.",
        json_schema_extra=map_list("name"),
    )

    @field_validator("acceptance")
    @classmethod
    def _rises(cls, entries: list[int] | None) -> list[int] | None:
        if entries is not None and any(low >= high for low, high in pairwise(entries)):
            raise ValueError(f"acceptance must be rising whole numbers of at least 1, got {entries}")
        return entries

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
