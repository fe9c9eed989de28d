"""ReplaySet as a resource: where the cases are, and how they are sampled."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from prefillgate.api.kinds.arms import URL_PATTERN
from prefillgate.api.kinds.common import Conditions, Count, ObjectName, SecretKey, SecretKeyRef, Sha256, StatusModel
from prefillgate.api.model import CelRule, WireModel, with_rules

VOLUME_PATH = "^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$"  # no part begins with a dot


class ConfigMapCases(WireModel):
    """One key of a ConfigMap of the same namespace."""

    name: ObjectName = Field(description="The ConfigMap's name, in the same namespace.")
    key: SecretKey = Field(default="cases.jsonl", description="The key that holds the cases.")


class VolumeCases(WireModel):
    """A file on the volume of replay sets that the controller mounts."""

    path: str = Field(
        min_length=1,
        max_length=512,
        pattern=VOLUME_PATH,
        description="The file, in the folder of that volume that is named as this namespace.",
    )


class UrlCases(WireModel):
    """A file that is fetched over HTTP; sha256 says which one it must be."""

    url: str = Field(
        max_length=2048,
        pattern=URL_PATTERN,
        description="Where it is: http or https, without credentials and without a query.",
    )
    api_key_secret_ref: SecretKeyRef | None = Field(
        default=None, description="What is sent as Authorization: Bearer, if anything."
    )
    ca_bundle_secret_ref: SecretKeyRef | None = Field(
        default=None, description="Certificates (PEM) to trust instead of the system's."
    )


class Sampling(WireModel):
    """Sampling parameters that take the place of those in the cases' bodies."""

    temperature_percent: int | None = Field(
        default=None, ge=0, le=200, description="The temperature in hundredths: 70 is 0.7, 0 is greedy."
    )
    top_p_percent: int | None = Field(default=None, ge=1, le=100, description="top_p in hundredths.")
    top_k: int | None = Field(default=None, ge=1, le=100_000, description="top_k, where the server takes one.")
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000, description="The limit of output tokens.")


_ONE_SOURCE = CelRule(
    "[has(self.configMap), has(self.volume), has(self.url)].exists_one(given, given)",
    "one of configMap, volume and url is wanted",
)
_WHICH_FILE = CelRule("!has(self.url) || has(self.sha256)", "sha256 is wanted with url: what is fetched must be known")


class ReplaySetSpec(WireModel):
    """Where the cases are, and how they are read."""

    model_config = with_rules(_ONE_SOURCE, _WHICH_FILE)

    config_map: ConfigMapCases | None = Field(default=None, description="The cases stand in a ConfigMap.")
    volume: VolumeCases | None = Field(default=None, description="The cases stand on a volume.")
    url: UrlCases | None = Field(default=None, description="The cases are fetched.")
    sha256: Sha256 | None = Field(
        default=None, description="The SHA-256 of the file's bytes; another file is refused. Wanted with url."
    )
    format: Literal["OpenAIBatch"] = Field(
        default="OpenAIBatch", description="OpenAIBatch: OpenAI Batch JSONL, one case a line."
    )
    sampling: Sampling | None = Field(default=None, description="How to sample. Left out: as each case says.")

    @model_validator(mode="after")
    def _one_source(self) -> ReplaySetSpec:
        if [self.config_map, self.volume, self.url].count(None) != 2:
            raise ValueError(_ONE_SOURCE.message)
        if self.url is not None and self.sha256 is None:
            raise ValueError(_WHICH_FILE.message)
        return self


class ReplaySetStatus(StatusModel):
    """What was read."""

    observed_generation: Count | None = Field(
        default=None, description="The generation of the spec that all of this was judged by."
    )
    conditions: Conditions | None = Field(default=None, description="Whether it can be used.")
    cases: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(default=None, description="How many cases it has.")
    sha256: Sha256 | None = Field(default=None, description="The digest of the cases as they are sent.")
