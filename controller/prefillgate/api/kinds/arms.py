"""How a ServingLine names its two arms: where the profile is written and how its servers are reached."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from prefillgate.api.kinds.common import HostName, LocalRef, ObjectName, SecretKeyRef
from prefillgate.api.model import CelRule, WireModel, map_list, with_rules
from prefillgate.api.urls import check_url

PORT_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
URL_PATTERN = r"^https?://[^@/?#\s]+(/[^?#\s]*)?$"
URL_PATH = r"^(/[^?#\s/]+)+$"
LABEL_KEY = "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"

Argument = Annotated[str, Field(max_length=8192)]
VariableName = Annotated[str, Field(min_length=1, max_length=256, pattern="^[^=\\x00]+$")]
Labels = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=316, pattern=LABEL_KEY)],
        Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)],
    ],
    Field(min_length=1, max_length=16),
]
Scheme = Literal["HTTP", "HTTPS"]
UrlPath = Annotated[str, Field(min_length=2, max_length=256, pattern=URL_PATH)]

_ONE_PORT = CelRule("has(self.port) != has(self.portName)", "one of port and portName is wanted")


class _Ported(WireModel):
    """A port, by number or by name, and how it is spoken to."""

    model_config = with_rules(_ONE_PORT)

    port: int | None = Field(default=None, ge=1, le=65535, description="The port's number; give it or portName.")
    port_name: str | None = Field(
        default=None, min_length=1, max_length=63, pattern=PORT_NAME, description="The port's name; give it or port."
    )
    scheme: Scheme = Field(default="HTTP", description="HTTP, or HTTPS where the server speaks TLS.")
    path: UrlPath | None = Field(
        default=None, description="What stands in front of the server's own routes, as /llm. Left out: nothing."
    )

    @model_validator(mode="after")
    def _one_port(self) -> _Ported:
        if (self.port is None) == (self.port_name is None):
            raise ValueError(_ONE_PORT.message)
        return self


class PodsEndpoint(_Ported):
    """Each Ready pod of the arm is a server of its own, asked at the pod's address: the best choice."""

    selector: Labels | None = Field(
        default=None,
        description="Labels of the arm's pods. Left out: those that the workload owns. Wanted with a profile.",
    )


class ServiceEndpoint(_Ported):
    """A Service in front of the arm's pods. It balances over them, so that lives of several servers mix."""

    name: ObjectName = Field(description="The Service's name, in the same namespace.")


class Endpoint(WireModel):
    """How the servers of an arm are reached: pods, service or url, and exactly one of them."""

    model_config = with_rules(
        CelRule(
            "[has(self.pods), has(self.service), has(self.url)].exists_one(given, given)",
            "one of pods, service and url is wanted",
        )
    )

    pods: PodsEndpoint | None = Field(default=None, description="Ask each Ready pod at its own address.")
    service: ServiceEndpoint | None = Field(default=None, description="Ask through a Service.")
    url: str | None = Field(
        default=None,
        max_length=2048,
        pattern=URL_PATTERN,
        description="Ask at this base URL: http or https, without credentials and without a query.",
    )
    tls_server_name: HostName | None = Field(
        default=None, description="The name that the server's certificate must bear, where it is not the host asked."
    )
    host_header: str | None = Field(
        default=None,
        min_length=1,
        max_length=261,
        pattern="^[A-Za-z0-9.:_\\[\\]-]+$",
        description="The Host header to send. Left out: the host asked.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Endpoint:
        if [self.pods, self.service, self.url].count(None) != 2:
            raise ValueError("one of pods, service and url is wanted")
        if self.url is not None:
            check_url(self.url)
        return self


class WorkloadRef(WireModel):
    """An object of the same namespace whose pod template is the profile."""

    api_version: str = Field(
        min_length=2,
        max_length=317,
        pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[a-z0-9]+$",
        description="The object's apiVersion, as apps/v1.",
    )
    kind: str = Field(
        min_length=1,
        max_length=63,
        pattern="^[A-Z][A-Za-z0-9]*$",
        description="The object's kind: Deployment, StatefulSet, LeaderWorkerSet, InferenceService, or any with a pod "
        "template.",
    )
    name: ObjectName = Field(description="The object's name, in the same namespace.")
    pod_template_path: str | None = Field(
        default=None,
        min_length=2,
        max_length=256,
        pattern=r"^[A-Za-z][A-Za-z0-9]*([.][A-Za-z][A-Za-z0-9]*|\[[0-9]{1,4}\])*$",
        description="Where the pod template stands in the object, as spec.template or spec.pools[0].template. Left "
        "out: where kinds that the gate knows have it, else spec.template.",
    )
    container: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        pattern=PORT_NAME,
        description="The container that serves the model. Left out: the one that looks like it, as the profile's "
        "notes tell.",
    )


class EnvironmentVariable(WireModel):
    """One variable of the environment."""

    name: VariableName = Field(description="The variable's name.")
    value: Argument = Field(default="", description="Its value. Secrets do not belong here.")


class InlineProfile(WireModel):
    """A profile written out, for servers that are no workload of this cluster."""

    image: str | None = Field(
        default=None, min_length=1, max_length=1024, description="The image, best with its digest."
    )
    command: list[Argument] = Field(
        default_factory=list, max_length=64, description="The program and what stands before args, as in a container."
    )
    args: list[Argument] = Field(
        default_factory=list, max_length=256, description="The program's arguments, in their order."
    )
    env: list[EnvironmentVariable] = Field(
        default_factory=list,
        max_length=256,
        description="The environment of the program.",
        json_schema_extra=map_list("name"),
    )
    config_digest: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        pattern="^[A-Za-z0-9:._+/=-]+$",
        description="What changes when a configuration file of the server changes.",
    )


_ONE_PROFILE = CelRule("has(self.workloadRef) != has(self.profile)", "one of workloadRef and profile is wanted")
_FOUND_PODS = CelRule(
    "has(self.workloadRef) || !has(self.endpoint.pods) || has(self.endpoint.pods.selector)",
    "endpoint.pods.selector is wanted where no workloadRef tells which pods are meant",
)


class Arm(WireModel):
    """Where one profile is written, and how the servers that have it are reached."""

    model_config = with_rules(_ONE_PROFILE, _FOUND_PODS)

    workload_ref: WorkloadRef | None = Field(
        default=None,
        description="The workload whose pod template is the profile. Both arms may name the same one: pods are told "
        "apart by the digest of what they run.",
    )
    profile: InlineProfile | None = Field(default=None, description="The profile itself, instead of a workloadRef.")
    endpoint: Endpoint = Field(description="How its servers are reached.")
    api_key_secret_ref: SecretKeyRef | None = Field(
        default=None, description="The API key, sent as Authorization: Bearer."
    )
    ca_bundle_secret_ref: SecretKeyRef | None = Field(
        default=None, description="Certificates (PEM) to trust instead of the system's."
    )
    client_certificate_secret_ref: LocalRef | None = Field(
        default=None,
        description="A Secret of type kubernetes.io/tls with the client certificate and its key. It must bear the "
        "label prefillgate.io/usable-by: gate.",
    )

    @model_validator(mode="after")
    def _told_and_found(self) -> Arm:
        if (self.workload_ref is None) == (self.profile is None):
            raise ValueError(_ONE_PROFILE.message)
        pods = self.endpoint.pods
        if self.workload_ref is None and pods is not None and pods.selector is None:
            raise ValueError(_FOUND_PODS.message)
        return self


_MIN_SERVING = CelRule(
    "!has(self.minServing) || (has(self.mode) && self.mode == 'Drain')", "minServing is for mode Drain alone"
)


class Isolation(WireModel):
    """How cells on the baseline keep apart from the traffic that it serves."""

    model_config = with_rules(_MIN_SERVING)

    mode: Literal["Drain", "Scratch", "Quiet", "Shared"] = Field(
        default="Quiet",
        description="Drain: one pod is taken out of its Services while minServing others are Ready. Scratch: a pod of "
        "the same template outside every Service. Quiet: cells wait until the server is idle. Shared: beside the "
        "traffic, for quality only, with no claim about speed.",
    )
    min_serving: int | None = Field(
        default=None, ge=1, le=10_000, description="Drain: how many pods must stay Ready. Left out: 1."
    )

    @model_validator(mode="after")
    def _own_fields(self) -> Isolation:
        if self.min_serving is not None and self.mode != "Drain":
            raise ValueError(_MIN_SERVING.message)
        return self


class BaselineArm(Arm):
    """The arm in production at first, and how cells keep apart from the traffic that production has."""

    isolation: Isolation = Field(
        default_factory=Isolation,
        description="How cells on the profile in production keep apart from its traffic, on whichever arm that is.",
    )
