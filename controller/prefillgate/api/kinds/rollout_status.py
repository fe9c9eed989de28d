"""What a ProfileRollout's status says: the decision and what it rests on, in numbers and in words."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from prefillgate.api.areas import Area
from prefillgate.api.kinds.common import (
    BasisPoints,
    Conditions,
    Count,
    DecisionWord,
    Digest,
    EValue,
    HandledOverride,
    Line,
    Moment,
    Notices,
    ProfileKept,
    PromotionWord,
    Rate,
    RollbackWord,
    Sentences,
    StatusModel,
)
from prefillgate.api.model import map_list
from prefillgate.core.verdict import Outcome

MOST_REPLICATES = 20
DECISION_WORDS: dict[Outcome, DecisionWord] = {
    Outcome.PROMOTE: "Promote",
    Outcome.HOLD: "Hold",
    Outcome.ROLLBACK: "Rollback",
    Outcome.CONTINUE: "Continue",
}


class DecisionStatus(StatusModel):
    """The answer."""

    verdict: DecisionWord = Field(description="Promote, Hold, Rollback, or Continue while it runs.")
    promotion: PromotionWord = Field(description="Whether the candidate may be promoted.")
    rollback: RollbackWord = Field(description="Whether the candidate may be rolled back.")
    reason: str = Field(max_length=63, description="Why, in one word.")
    sentences: Annotated[list[Line], Field(max_length=16)] = Field(
        description="Why, in words, the most important first."
    )
    what_would_change: Annotated[list[Line], Field(max_length=16)] | None = Field(
        default=None, description="What would change it, as how many more clean prefills promote."
    )
    cause: Annotated[str, Field(max_length=256)] = Field(
        default="Unverified", description="The cause of a regression: Unverified unless a person wrote one."
    )
    measured: bool = Field(description="False: the instrument, not the evidence, is why nothing is allowed.")
    at: Moment | None = Field(default=None, description="When it became this.")


class ArmCountsStatus(StatusModel):
    """One arm, counted by request and by prefill."""

    requests: Count = Field(description="Requests that were scored.")
    bad_requests: Count = Field(description="Bad ones among them: never a sample size.")
    prefills: Count = Field(description="Fresh prefills.")
    bad_prefills: Count = Field(description="Bad fresh prefills.")
    decision_prefills: Count = Field(description="What the prefills are worth as evidence.")
    copies: Count = Field(description="Requests that reused a prefill.")
    unproven: Count = Field(
        description="Requests of which nothing shows whether they were fresh, partly ones included."
    )
    invalid: Count = Field(description="Requests that were not accepted, planned again and never scored.")
    request_rate: Rate | None = Field(default=None, description="The bad rate by request, for comparison alone.")
    prefill_rate: Rate | None = Field(default=None, description="The bad rate by fresh prefill.")


class CountsStatus(StatusModel):
    """Both arms."""

    baseline: ArmCountsStatus | None = Field(default=None, description="The baseline. Left out: it was not there.")
    candidate: ArmCountsStatus = Field(description="The candidate.")
    prefills_used: Count = Field(description="Fresh prefills spent on both arms.")
    budget: Count = Field(description="Fresh prefills that may be spent.")


class ReplicateStatus(StatusModel):
    """One fresh replicate."""

    number: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        description="Its number for the life of this pair of profiles; later ones need a higher e-value."
    )
    ending: Literal["Confirmed", "Clean", "Futile", "Capped", "Aborted"] | None = Field(
        default=None, description="How it ended. Left out: it runs."
    )
    e_value: EValue = Field(description="The evidence that the candidate is worse, as a decimal number.")
    threshold: EValue = Field(description="The e-value at which a regression is confirmed.")
    candidate_prefills: Count = Field(description="Fresh prefills of the candidate in it.")
    candidate_bad: Count = Field(description="Bad ones among them.")
    pairs: Count = Field(description="Complete pairs.")
    separation: Literal["Gap", "Restart", "AnotherProcess"] | None = Field(
        default=None, description="What keeps it apart from what raised the alarm."
    )


class ThroughputStatus(StatusModel):
    """Decode speed, candidate over baseline."""

    state: Literal["NotWorse", "Worse", "Open", "NotCompared"] = Field(description="What was shown.")
    pairs: Count = Field(description="Pairs of cells that it rests on.")
    ratio_basis_points: Annotated[int, Field(ge=0, le=10_000_000)] | None = Field(
        default=None, description="The ratio of the speeds in ten-thousandths: 10750 is 7.5 % faster."
    )
    low_basis_points: Annotated[int, Field(ge=0, le=10_000_000)] | None = Field(
        default=None, description="Lower end of its 90 % interval."
    )
    high_basis_points: Annotated[int, Field(ge=0, le=10_000_000)] | None = Field(
        default=None, description="Upper end of its 90 % interval."
    )
    identical_basis_points: BasisPoints | None = Field(
        default=None, description="The share of pairs with the same answer, in hundredths of a percent."
    )
    sentence: Line | None = Field(default=None, description="The same in words.")


class DifferenceStatus(StatusModel):
    """One difference between the profiles."""

    area: Area = Field(description="What it decides.")
    name: str = Field(max_length=256, description="What it is called.")
    baseline: str | None = Field(default=None, max_length=2048, description="Its value on the baseline.")
    candidate: str | None = Field(default=None, max_length=2048, description="Its value on the candidate.")
    declared: bool = Field(description="Whether it is what the rollout is about; an undeclared one holds.")


class EvidenceStatus(StatusModel):
    """Where every cell is."""

    store: str = Field(max_length=1024, description="The evidence store, without credentials.")
    run: str = Field(max_length=128, description="The run's id in it.")
    rows: Count = Field(description="Rows of the journal when this status was written.")
    head: str | None = Field(default=None, max_length=128, description="The digest that the last of them chains to.")


class OverrideStatus(StatusModel):
    """A person's word that stands now."""

    verdict: Literal["Promote", "Hold", "Rollback"] = Field(description="What the person decided.")
    reason: Line = Field(description="The reason that the person gave.")
    actor: str = Field(max_length=253, description="Who decided.")
    actor_verified: bool = Field(description="Whether the actor was stamped at admission from the request's user.")
    since: Moment = Field(description="Since when it stands.")
    expires: Moment | None = Field(default=None, description="Until when. Left out: as long as the rollout does.")
    baseline_digest: Digest = Field(description="The baseline it is about; it is never passed on to another pair.")
    candidate_digest: Digest = Field(description="The candidate it is about.")
    key: str | None = Field(default=None, max_length=128, description="Which annotation it is: the key of its echo.")


class RolloutProfile(ProfileKept):
    """A profile of this rollout, as resolved when it was first seen."""


class ProfileRolloutStatus(StatusModel):
    """What is known of the rollout."""

    observed_generation: Count | None = Field(
        default=None, description="The generation of the spec that all of this was judged by."
    )
    conditions: Conditions | None = Field(default=None, description="What holds for the rollout now.")
    decision: DecisionStatus | None = Field(default=None, description="The answer, and why.")
    prefills: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="Bad and all fresh prefills of the candidate, as `0 bad of 32`."
    )
    baseline: RolloutProfile | None = Field(default=None, description="The baseline.")
    candidate: RolloutProfile | None = Field(default=None, description="The candidate.")
    differences: Annotated[list[DifferenceStatus], Field(max_length=100)] | None = Field(
        default=None, description="What differs between them, declared ones first."
    )
    summary: Sentences | None = Field(default=None, description="The differences in one line of words.")
    counts: CountsStatus | None = Field(default=None, description="Requests and prefills side by side.")
    replicates: Annotated[list[ReplicateStatus], Field(max_length=MOST_REPLICATES)] | None = Field(
        default=None, description="The fresh replicates, in order.", json_schema_extra=map_list("number")
    )
    throughput: ThroughputStatus | None = Field(default=None, description="Decode speed.")
    evidence: EvidenceStatus | None = Field(default=None, description="Where every cell is, for the verdict again.")
    override: OverrideStatus | None = Field(default=None, description="A person's word that stands now.")
    last_handled_override: HandledOverride | None = Field(
        default=None, description="The last override annotation on the rollout that was dealt with."
    )
    evidence_decision: DecisionStatus | None = Field(
        default=None, description="What the evidence alone says, while a person's word goes before it."
    )
    last_handled_rerun: str | None = Field(
        default=None, max_length=256, description="The last value of the annotation prefillgate.io/rerun dealt with."
    )
    started_at: Moment | None = Field(default=None, description="When the first cell was planned.")
    ended_at: Moment | None = Field(default=None, description="When it was decided, superseded or given up.")
    deadline_at: Moment | None = Field(default=None, description="When it holds for want of time.")
    superseded_by: Annotated[str, Field(max_length=253)] | None = Field(
        default=None, description="The rollout that took its place; its evidence is kept."
    )
    notices: Notices | None = Field(default=None, description="What was told to people, newest last.")
