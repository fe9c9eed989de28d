"""ProfileRollout: one attempt to replace one profile by another on one line."""

from __future__ import annotations

from pydantic import Field, model_validator

from prefillgate.api.areas import Area
from prefillgate.api.kinds.common import Digest, Line, LocalRef, ObjectName, Seed, Sha256, TemplateRef
from prefillgate.api.model import CelRule, WireModel, with_rules


class Setting(WireModel):
    """One setting of a profile, secrets redacted."""

    area: Area = Field(description="What it decides.")
    name: str = Field(min_length=1, max_length=256, description="What it is called, as tensor split.")
    value: str = Field(max_length=2048, description="Its value, as 3,1.")


class RecordedProfile(WireModel):
    """A profile as it was when the rollout was made."""

    digest: Digest = Field(description="The digest of everything that decides how the model is served.")
    written_digest: Digest | None = Field(
        default=None, description="The same with images as the template names them, known before any pod runs."
    )
    settings: list[Setting] = Field(
        default_factory=list, max_length=256, description="Its settings, for people; secrets redacted."
    )
    template: TemplateRef | None = Field(default=None, description="Where its pod template is kept.")


class NamedSha256(WireModel):
    """A thing of the line, and what it was at that moment."""

    name: str = Field(min_length=1, max_length=253, description="Its name.")
    sha256: Sha256 | None = Field(
        default=None, description="The digest of what it said. Where it says something else, the rollout holds."
    )


_TWO_PROFILES = CelRule(
    "!has(self.baseline) || !has(self.candidate) || self.baseline.digest != self.candidate.digest",
    "baseline and candidate are the same profile: there is nothing to promote",
)
IMMUTABLE = CelRule(
    "self == oldSelf", "a rollout compares what it was made for and never changes: make a new one, or ask for a rerun"
)


class ProfileRolloutSpec(WireModel):
    """What is compared. It never changes."""

    model_config = with_rules(IMMUTABLE, _TWO_PROFILES)

    line_ref: LocalRef = Field(description="The ServingLine that it belongs to.")
    baseline: RecordedProfile | None = Field(
        default=None, description="The baseline. Left out: the line's promoted profile when this is first seen."
    )
    candidate: RecordedProfile | None = Field(
        default=None, description="The candidate. Left out: the line's candidate profile when this is first seen."
    )
    differences: list[Line] = Field(
        default_factory=list, max_length=64, description="What differs between the two profiles, in words."
    )
    policy: NamedSha256 | None = Field(default=None, description="The policy. Left out: the line's.")
    replay_set: NamedSha256 | None = Field(default=None, description="The replay set. Left out: the line's.")
    seed: Seed | None = Field(
        default=None, description="What order, nonces and coins are drawn from. Left out: drawn from the object's uid."
    )
    supersedes: ObjectName | None = Field(default=None, description="The rollout that this one takes the place of.")
    rerun_of: ObjectName | None = Field(
        default=None, description="The rollout of the same two profiles that a person asked to repeat."
    )

    @model_validator(mode="after")
    def _two_profiles(self) -> ProfileRolloutSpec:
        one, other = self.baseline, self.candidate
        if one is not None and other is not None and one.digest == other.digest:
            raise ValueError(_TWO_PROFILES.message)
        return self
