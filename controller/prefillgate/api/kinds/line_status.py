"""What a ServingLine's status says. It is a function of the spec and the evidence store; people never write it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from prefillgate.api.areas import Area
from prefillgate.api.kinds.common import (
    MARKED,
    READ_AS,
    BasisPoints,
    Conditions,
    Count,
    DecisionWord,
    Digest,
    HandledOverride,
    Line,
    Marks,
    Moment,
    Notices,
    ObjectName,
    ProfileKept,
    PromotionWord,
    Reading,
    RollbackWord,
    Sha256,
    StatusModel,
    TemplateSeen,
)
from prefillgate.api.model import map_list

MOST_CONFIG_MAPS = 64
MOST_REJECTED = 50  # the oldest give way; the store remembers them all


class SettingSeen(StatusModel):
    """One setting of a profile, secrets redacted."""

    area: Area = Field(description="What it decides.")
    name: str = Field(min_length=1, max_length=256, description="What it is called, as tensor split.")
    value: str = Field(max_length=2048, description="Its value, as 3,1.")


class PromotedProfile(ProfileKept):
    """The profile in production: the baseline of the next rollout."""

    since: Moment = Field(description="Since when it is the promoted one.")
    how: Literal["FirstSeen", "Promoted", "Overridden"] = Field(
        description="FirstSeen: it served when the line was first seen. Promoted: by the gate. Overridden: by a person."
    )
    rollout: ObjectName | None = Field(default=None, description="The ProfileRollout that promoted it.")
    settings: Annotated[list[SettingSeen], Field(max_length=256)] | None = Field(
        default=None, description="Its settings, which tell what differs once its workload says something else."
    )


class RejectedProfile(StatusModel):
    """A profile that was not promoted, and is not replayed again unless asked."""

    digest: Digest = Field(description="The rejected profile's digest.")
    written_digest: Digest | None = Field(
        default=None, description="The same with images as the template names them, known before any pod runs."
    )
    rollout: ObjectName = Field(description="The ProfileRollout that rejected it.")
    reason: str = Field(max_length=63, description="Why, in one word.")
    at: Moment = Field(description="When it was rejected.")
    template: TemplateSeen | None = Field(default=None, description="Where its pod template is kept.")
    reading: Reading | None = Field(default=None, description=READ_AS)
    marks: Marks | None = Field(default=None, description=MARKED)


class FloorSeen(StatusModel):
    """The baseline against itself, as last measured."""

    baseline_digest: Digest = Field(description="The digest of the profile that was measured.")
    replay_set_sha256: Sha256 | None = Field(
        default=None, description="The digest of the cases that it was measured on."
    )
    at: Moment = Field(description="When it ended.")
    instrument: Literal["Sound", "Broken", "Unknown"] = Field(
        description="Sound: two passes over the same profile agree. Broken: they differ, and nothing is judged. "
        "Unknown: they could not tell."
    )
    prefills: Count | None = Field(default=None, description="Fresh prefills of both passes.")
    bad_prefills: Count | None = Field(default=None, description="Bad ones among them.")
    throughput_cv_basis_points: BasisPoints | None = Field(
        default=None, description="The spread of a cell's decode speed, in hundredths of a percent."
    )
    identical_basis_points: BasisPoints | None = Field(
        default=None,
        description="The share of prompts with the same answer in both passes, in hundredths of a percent.",
    )
    message: Line | None = Field(default=None, description="What was found, in words.")


class WatchSeen(StatusModel):
    """The replays after the promotion."""

    last_at: Moment | None = Field(default=None, description="When the last one ended.")
    last_run: str | None = Field(default=None, max_length=128, description="Its run in the evidence store.")
    next_at: Moment | None = Field(default=None, description="When the next one is due.")
    prefills: Count = Field(description="Fresh prefills of all of them since the promotion.")
    bad_prefills: Count = Field(description="Bad ones among them.")
    alarm: bool = Field(description="Whether an alarm stands that no replicate has answered.")
    reason: str | None = Field(
        default=None,
        max_length=63,
        description="What became of an alarm, or why nothing could be measured, in a word.",
    )
    rollback: bool | None = Field(
        default=None, description="Whether a replicate confirmed that this profile is worse than the previous one."
    )
    message: Line | None = Field(default=None, description="What they showed, in words.")


class ContentsSeen(StatusModel):
    """What stands in a ConfigMap that profiles of the line are read from, so that another controller knows it again."""

    name: ObjectName = Field(description="The ConfigMap's name.")
    mark: Annotated[str, Field(min_length=41, max_length=41, pattern="^[0-9a-f]{8}-[0-9a-f]{32}$")] | None = Field(
        default=None, description="A keyed digest of what it says, behind one of the key. Absent: it was deleted."
    )
    since: Moment = Field(description="Since when, as the API server told it or as it was seen.")


class ServingLineStatus(StatusModel):
    """What is known of the line."""

    observed_generation: Count | None = Field(
        default=None, description="The generation of the spec that all of this was judged by."
    )
    conditions: Conditions | None = Field(default=None, description="What holds for the line now.")
    decision: DecisionWord | None = Field(default=None, description="What the current or last rollout says.")
    promotion: PromotionWord | None = Field(default=None, description="Whether its candidate may be promoted.")
    rollback: RollbackWord | None = Field(
        default=None, description="Whether its candidate, or what is promoted, may be rolled back."
    )
    prefills: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="Bad and all fresh prefills of its candidate, as `0 bad of 32`."
    )
    reason: str | None = Field(default=None, max_length=63, description="Why the decision is what it is, in one word.")
    not_well: Annotated[str, Field(max_length=256)] | None = Field(
        default=None,
        description="The reasons of conditions that a person should know of, the worst first. Left out: all is well.",
    )
    current_rollout: ObjectName | None = Field(default=None, description="The current or last ProfileRollout.")
    candidate: ProfileKept | None = Field(default=None, description="The candidate's profile, as last read.")
    differences: Annotated[list[Line], Field(max_length=64)] | None = Field(
        default=None, description="What differs between the promoted profile and the candidate, in words."
    )
    promoted_profile: PromotedProfile | None = Field(
        default=None, description="The profile in production: the baseline. A store that is lost never lowers it."
    )
    previous_profile: PromotedProfile | None = Field(
        default=None, description="The one before it, which a rollback would bring back."
    )
    rejected_profiles: Annotated[list[RejectedProfile], Field(max_length=MOST_REJECTED)] | None = Field(
        default=None,
        description="Profiles that are not replayed again unless asked by the annotation prefillgate.io/rerun.",
        json_schema_extra=map_list("digest"),
    )
    config_maps: Annotated[list[ContentsSeen], Field(max_length=MOST_CONFIG_MAPS)] | None = Field(
        default=None,
        description="ConfigMaps of the profiles. Pods that started with other contents are of no arm.",
        json_schema_extra=map_list("name"),
    )
    floor: FloorSeen | None = Field(default=None, description="The baseline against itself.")
    watch: WatchSeen | None = Field(default=None, description="The replays after the promotion.")
    last_handled_override: HandledOverride | None = Field(
        default=None, description="The last override annotation on the line that was dealt with."
    )
    last_handled_rerun: str | None = Field(
        default=None, max_length=256, description="The last value of the annotation prefillgate.io/rerun dealt with."
    )
    notices: Notices | None = Field(default=None, description="What was told to people, newest last.")
