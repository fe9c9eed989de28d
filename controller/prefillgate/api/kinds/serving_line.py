"""ServingLine: one model in production under one name, with what decides about its next profile."""

from __future__ import annotations

from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from prefillgate.api.kinds.arms import Arm, BaselineArm
from prefillgate.api.kinds.common import SET_LIST, LocalRef
from prefillgate.api.model import CelRule, WireModel, with_rules
from prefillgate.api.run_file import DifferenceModel

YEAR_SECONDS = 31_536_000
SCALED_KINDS = ("Deployment", "StatefulSet")  # of apps/v1
Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
EngineName = Annotated[str, Field(min_length=1, max_length=64, pattern="^[a-z0-9][a-z0-9._-]*$")]
AddedName = Annotated[str, Field(min_length=1, max_length=128, pattern="^[A-Za-z0-9_.*-]+$")]
SecretName = Annotated[str, Field(min_length=1, max_length=128, pattern="^[A-Za-z0-9_.-]+$")]


class Window(WireModel):
    """A time in which the workloads may be scaled."""

    days: list[Day] | None = Field(
        default=None,
        min_length=1,
        max_length=7,
        description="The days on which it begins. Left out: every day.",
        json_schema_extra=SET_LIST,
    )
    start_time: str = Field(
        min_length=5,
        max_length=5,
        pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$",
        description="When it begins, as 22:30 in its time zone.",
    )
    duration_seconds: int = Field(
        ge=60, le=604_800, description="How long it is open; what began in it is not begun again after it."
    )
    time_zone: str = Field(
        default="UTC",
        min_length=1,
        max_length=64,
        pattern="^[A-Za-z][A-Za-z0-9_+/-]*$",
        description="The IANA name of its time zone, as Europe/Berlin.",
    )

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:  # not there, a path, a folder
            known = "(allowed: an IANA name, as Europe/Berlin)"
            raise ValueError(f"{name!r} is no time zone that is known here {known}") from error
        return name


_WINDOWS_OR_STORED = CelRule(
    "has(self.windows) != has(self.storedBaselineMaxAgeSeconds)",
    "one of windows and storedBaselineMaxAgeSeconds is wanted",
)
_DOWNTIME = CelRule(
    "!has(self.allowDowntime) || has(self.windows)", "allowDowntime is for windows, in which workloads are scaled"
)


class Sequential(WireModel):
    """How both profiles take turns where they do not fit at once."""

    model_config = with_rules(_WINDOWS_OR_STORED, _DOWNTIME)

    windows: list[Window] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="When the two workloads may be scaled up and down, one at a time.",
    )
    allow_downtime: bool | None = Field(
        default=None, description="Whether the last Ready backend may be scaled away too. Left out: false."
    )
    stored_baseline_max_age_seconds: int | None = Field(
        default=None,
        ge=60,
        le=YEAR_SECONDS,
        description="Instead of windows: compare with a stored baseline that is no older. No claim about speed.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Sequential:
        if (self.windows is None) == (self.stored_baseline_max_age_seconds is None):
            raise ValueError(_WINDOWS_OR_STORED.message)
        if self.allow_downtime is not None and self.windows is None:
            raise ValueError(_DOWNTIME.message)
        return self


class Watch(WireModel):
    """What is looked at after a promotion."""

    every_seconds: int = Field(
        ge=60, le=2_592_000, description="How often a small fresh replay is run on the profile in production."
    )
    prefills: int = Field(default=4, ge=1, le=1000, description="Fresh prefills of one such replay.")
    previous: Literal["Retain", "Scratch", "None"] = Field(
        default="None",
        description="Where the baseline of a replicate comes from. Retain: the previous workload is kept running. "
        "Scratch: a pod from its recorded template. None: there is none, so an alarm only warns.",
    )


class Floor(WireModel):
    """The baseline against itself."""

    max_age_seconds: int = Field(
        default=604_800, ge=60, le=YEAR_SECONDS, description="How old it may be when a candidate is judged by it."
    )


_SEQUENTIAL = CelRule(
    "has(self.sequential) == (has(self.arms) && self.arms == 'Sequential')",
    "sequential is wanted with arms: Sequential, and with that alone",
)
_CANDIDATE = CelRule(
    "has(self.candidate) || has(self.baseline.workloadRef)",
    "candidate is wanted where the baseline has no workloadRef: nothing else tells of a new profile",
)
_FITTING_LOAD = CelRule(
    "!has(self.watch) || !has(self.maxProductionPrefillsPerHour) || "
    "(has(self.watch.prefills) ? self.watch.prefills : 4) * 3600 <= "
    "self.maxProductionPrefillsPerHour * self.watch.everySeconds",
    "the watch alone would exceed maxProductionPrefillsPerHour: take fewer prefills or a longer everySeconds",
)

_PAST_SERVICES = CelRule(
    "!has(self.baseline.isolation) || !has(self.baseline.isolation.mode) || "
    "!(self.baseline.isolation.mode in ['Drain', 'Scratch']) || "
    "(has(self.baseline.workloadRef) && has(self.baseline.endpoint.pods) && "
    "(!has(self.candidate) || (has(self.candidate.workloadRef) && has(self.candidate.endpoint.pods))))",
    "isolation Drain and Scratch take a workloadRef and endpoint.pods on both arms: a pod is asked past every Service",
)
_SCALED = CelRule(
    "!has(self.sequential) || !has(self.sequential.windows) || (has(self.baseline.workloadRef) && has(self.candidate) "
    "&& has(self.candidate.workloadRef) && (self.baseline.workloadRef.name != self.candidate.workloadRef.name || "
    "self.baseline.workloadRef.kind != self.candidate.workloadRef.kind) && "
    "[self.baseline.workloadRef.apiVersion + '/' + self.baseline.workloadRef.kind, "
    "self.candidate.workloadRef.apiVersion + '/' + self.candidate.workloadRef.kind]"
    ".all(each, each in ['apps/v1/Deployment', 'apps/v1/StatefulSet']))",
    "sequential.windows take a workloadRef to a Deployment or StatefulSet (apps/v1) on both arms, and two different "
    "ones: one is scaled down for the other",
)
_RETAINED = CelRule(
    "!has(self.watch) || !has(self.watch.previous) || self.watch.previous != 'Retain' || has(self.candidate)",
    "watch.previous: Retain takes a candidate of its own: what is updated in place keeps nothing of before",
)
_RECORDED = CelRule(
    "!has(self.watch) || !has(self.watch.previous) || self.watch.previous != 'Scratch' || "
    "(has(self.baseline.workloadRef) && (!has(self.candidate) || has(self.candidate.workloadRef)))",
    "watch.previous: Scratch takes a workloadRef on both arms: the pod is made from a recorded template",
)


class ServingLineSpec(WireModel):
    """What is gated, and how."""

    model_config = with_rules(_SEQUENTIAL, _CANDIDATE, _FITTING_LOAD, _PAST_SERVICES, _SCALED, _RETAINED, _RECORDED)

    baseline: BaselineArm = Field(description="The profile in production when the line is first seen.")
    candidate: Arm | None = Field(
        default=None,
        description="The profile that shall replace it. Left out: the baseline's own workload, whose next pod template "
        "is the candidate.",
    )
    engine: EngineName = Field(
        default="auto", description="The server's family, as llama.cpp, vllm or sglang; auto asks the server."
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="The model to ask for. Left out: the only one that the server lists.",
    )
    policy_ref: LocalRef | None = Field(
        default=None, description="The PromotionPolicy to judge by. Left out: the standard policy, which the gate has."
    )
    replay_set_ref: LocalRef = Field(description="The ReplaySet with the prompts.")
    max_production_prefills_per_hour: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Fresh prefills that replays may put on servers in production within any hour. Left out: no limit.",
    )
    arms: Literal["Parallel", "Sequential"] = Field(
        default="Parallel", description="Parallel: both profiles run. Sequential: they do not fit at once."
    )
    sequential: Sequential | None = Field(default=None, description="How they take turns; with arms: Sequential.")
    runner: Literal["Controller", "Job"] = Field(
        default="Controller",
        description="Who replays. Job: a Job in the controller's namespace, which takes a PostgreSQL store.",
    )
    action: Literal["None"] = Field(default="None", description="What is done with the answer. None: it is only told.")
    watch: Watch | None = Field(default=None, description="Replays after a promotion. Left out: none.")
    floor: Floor = Field(
        default_factory=Floor, description="The replay of the baseline against itself, before anything is judged."
    )
    deadline_seconds: int | None = Field(
        default=None,
        ge=60,
        le=YEAR_SECONDS,
        description="How long a rollout may take from its creation on; then it holds. Left out: the policy's alone.",
    )
    cell_timeout_seconds: int = Field(
        default=600, ge=1, le=86_400, description="How long one request may take; then its cell has failed."
    )
    history_limit: int = Field(
        default=10, ge=1, le=100, description="How many ended rollouts are kept; their evidence stays in the store."
    )
    suspend: bool = Field(default=False, description="True: nothing new is begun, and what runs is ended.")
    dry_run: bool = Field(
        default=False, description="True: all is measured and told, and nothing is allowed, promoted or remembered."
    )
    declared_differences: list[DifferenceModel] = Field(
        default_factory=list,
        max_length=100,
        description="Differences that the servers tell and no pod template shows; an undeclared one holds.",
    )
    redacted_names: list[SecretName] = Field(
        default_factory=list,
        max_length=64,
        description="Flags and variables whose values are secrets, beside those that the gate knows, as --my-token.",
        json_schema_extra=SET_LIST,
    )
    ignored_names: list[AddedName] = Field(
        default_factory=list,
        max_length=64,
        description="Containers, variables and volumes that admission adds, as istio-proxy, VAULT_*; not in a profile.",
        json_schema_extra=SET_LIST,
    )

    @model_validator(mode="after")
    def _whole(self) -> ServingLineSpec:
        if (self.sequential is not None) != (self.arms == "Sequential"):
            raise ValueError(_SEQUENTIAL.message)
        if self.candidate is None and self.baseline.workload_ref is None:
            raise ValueError(_CANDIDATE.message)
        most, watch = self.max_production_prefills_per_hour, self.watch
        if watch is not None and most is not None and watch.prefills * 3600 > most * watch.every_seconds:
            raise ValueError(_FITTING_LOAD.message)
        self._check_workloads()
        return self

    def _check_workloads(self) -> None:
        arms = (self.baseline, self.candidate_arm)
        workloads = [arm.workload_ref and (arm.workload_ref.kind, arm.workload_ref.name) for arm in arms]
        asked_alone = all(arm.workload_ref is not None and arm.endpoint.pods is not None for arm in arms)
        if self.baseline.isolation.mode in ("Drain", "Scratch") and not asked_alone:
            raise ValueError(_PAST_SERVICES.message)
        scaled = self.sequential is not None and self.sequential.windows is not None
        refs = [arm.workload_ref for arm in arms]
        scalable = all(ref and ref.api_version == "apps/v1" and ref.kind in SCALED_KINDS for ref in refs)
        if scaled and (not scalable or workloads[0] == workloads[1]):
            raise ValueError(_SCALED.message)
        previous = self.watch.previous if self.watch is not None else "None"
        if previous == "Retain" and self.candidate is None:
            raise ValueError(_RETAINED.message)
        if previous == "Scratch" and None in workloads:
            raise ValueError(_RECORDED.message)

    @property
    def candidate_arm(self) -> Arm:
        """The candidate's arm: the baseline's own where none is written."""
        return self.candidate if self.candidate is not None else self.baseline
