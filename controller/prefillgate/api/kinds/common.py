"""What several kinds have in common: bounded texts, references, conditions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from prefillgate.api.model import WireModel, map_list
from prefillgate.api.policy_model import RESOURCE_NAME

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=RESOURCE_NAME)]
SecretKey = Annotated[str, Field(min_length=1, max_length=253, pattern="^[-._a-zA-Z0-9]+$")]
HostName = Annotated[str, Field(min_length=1, max_length=253, pattern="^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$")]
Sha256 = Annotated[str, Field(min_length=64, max_length=64, pattern="^[0-9a-f]{64}$")]
Digest = Annotated[str, Field(min_length=71, max_length=71, pattern="^sha256:[0-9a-f]{64}$")]
Line = Annotated[str, Field(max_length=1024)]  # one line for a person
Sentences = Annotated[str, Field(max_length=4096)]
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
BasisPoints = Annotated[int, Field(ge=0, le=10_000)]
Seed = Annotated[int, Field(ge=0, le=2**53 - 1)]
_DATE, _TIME = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
Moment = Annotated[  # without the format date-time, under which an API server takes a list of texts as well
    str,
    Field(
        min_length=20,
        max_length=35,
        pattern=f"^{_DATE}T{_TIME}([.][0-9]{{1,9}})?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])$",
    ),
]
EValue = Annotated[str, Field(max_length=32, pattern="^[0-9]+([.][0-9]+)?(e[-+]?[0-9]+)?$")]  # no floats on the wire

DecisionWord = Literal["Promote", "Hold", "Rollback", "Continue"]
PromotionWord = Literal["Allowed", "Blocked"]
RollbackWord = Literal["Refused", "Allowed"]

SET_LIST: dict[str, Any] = {"x-kubernetes-list-type": "set"}


class StatusModel(WireModel):
    """Part of a status. A field that a newer controller wrote is passed over, so that an older one may read it."""

    model_config = ConfigDict(extra="ignore")


class LocalRef(WireModel):
    """An object of the same namespace, by name."""

    name: ObjectName = Field(description="Its name, in the same namespace.")


class SecretKeyRef(WireModel):
    """One key of a Secret of the same namespace."""

    name: ObjectName = Field(
        description="The Secret's name, in the same namespace. It must bear the label prefillgate.io/usable-by: gate."
    )
    key: SecretKey = Field(description="The key of the Secret's data that holds the value.")


class TemplateRef(WireModel):
    """The object that keeps the pod template, for a pod of this profile to be made later."""

    api_version: str = Field(min_length=2, max_length=317, description="Its apiVersion, as apps/v1.")
    kind: str = Field(
        min_length=1, max_length=63, description="Its kind: ReplicaSet, ControllerRevision or the workload."
    )
    name: ObjectName = Field(description="Its name, in the same namespace.")
    uid: str | None = Field(default=None, min_length=1, max_length=64, description="Its uid.")


class TemplateSeen(TemplateRef):
    """The same as part of a status."""

    model_config = ConfigDict(extra="ignore")


class ConditionModel(StatusModel):
    """One condition, as everywhere in Kubernetes."""

    type: str = Field(
        min_length=1, max_length=63, pattern="^[A-Z][A-Za-z0-9]*$", description="What the condition is about."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    observed_generation: Count = Field(description="The generation of the object's spec that it was judged by.")
    last_transition_time: Moment = Field(description="When its status last changed.")
    reason: str = Field(
        min_length=1, max_length=63, pattern="^[A-Z][A-Za-z0-9]*$", description="Why, in one word for machines."
    )
    message: Sentences = Field(description="Why, in words, with what to do about it.")


Conditions = Annotated[list[ConditionModel], Field(max_length=32, json_schema_extra=map_list("type"))]


Reading = Annotated[str, Field(min_length=16, max_length=16, pattern="^[0-9a-f]{16}$")]
READ_AS = (
    "A mark of how it was read: ignoredNames, redactedNames, engine, the seal key, the reader. Where it is another "
    "one, digests differ though no pod was touched."
)


class ProfileSeen(StatusModel):
    """A serving profile as the gate read it."""

    digest: Digest = Field(description="The digest of everything that decides how the model is served.")
    written_digest: Digest | None = Field(
        default=None, description="The same with images as the template names them, known before any pod runs."
    )
    name: str | None = Field(
        default=None, max_length=64, description="A short name for tables: the first digits of the digest."
    )
    summary: list[Line] | None = Field(
        default=None, max_length=64, description="Its settings in words, secrets redacted."
    )
    notes: list[Line] | None = Field(
        default=None, max_length=32, description="What could not be told of it, and what is surprising about it."
    )


Marks = Annotated[list[Annotated[str, Field(min_length=1, max_length=320)]], Field(max_length=64)]
MARKED = (
    "Marks of what it was read from: its pod template, its images, its ConfigMaps. Where it is read otherwise they "
    "tell whether it is still the same."
)


class ProfileKept(ProfileSeen):
    """A profile with what it is known again by where profiles are read otherwise."""

    template: TemplateSeen | None = Field(default=None, description="Where its pod template is kept.")
    reading: Reading | None = Field(default=None, description=READ_AS)
    marks: Marks | None = Field(default=None, description=MARKED)


class Rate(StatusModel):
    """A rate with its two-sided 95 % interval, in hundredths of a percent."""

    basis_points: BasisPoints = Field(description="The rate seen.")
    low_basis_points: BasisPoints = Field(description="Lower end of the 95 % interval (Clopper-Pearson).")
    high_basis_points: BasisPoints = Field(description="Upper end of the 95 % interval (Clopper-Pearson).")


class HandledOverride(StatusModel):
    """An override annotation that was dealt with; the same one is never obeyed twice."""

    key: str = Field(max_length=128, description="What tells this annotation from the next with the same words.")
    value: str = Field(max_length=64, description="What it asked for, as written.")
    outcome: Literal["Obeyed", "Refused", "Expired", "Withdrawn"] = Field(
        description="What became of it. Withdrawn: its annotation is gone."
    )
    at: Moment = Field(description="When it was dealt with.")
    reason: Line | None = Field(default=None, description="The reason that the person gave.")
    actor: str | None = Field(default=None, max_length=253, description="Who asked for it.")
    actor_verified: bool | None = Field(
        default=None, description="Whether the actor was stamped at admission from the request's user."
    )
    expires: Moment | None = Field(default=None, description="Until when it holds.")
    message: Line | None = Field(
        default=None, description="What it was about; or why it was refused, and how to do it right."
    )


class Notice(StatusModel):
    """Something that was told to people once."""

    key: str = Field(max_length=128, description="What it is about; the same key is told once.")
    at: Moment = Field(description="When it was told.")
    message: Line = Field(description="What was said.")


Notices = Annotated[list[Notice], Field(max_length=20, json_schema_extra=map_list("key"))]
