"""One file that holds all of a run: both servers, the replay set, the policy, store, seed, declared differences.

    apiVersion: prefillgate.io/v1alpha1
    kind: Run
    spec:
      baseline: {url: "http://127.0.0.1:8081"}
      candidate: {url: "http://127.0.0.1:8082"}
      replaySet: review-bot.jsonl
      policy: standard

Relative paths stand relative to the file, wherever the command is started.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from prefillgate.api.access import Access, check_proxy, check_variable
from prefillgate.api.areas import AREAS as AREAS
from prefillgate.api.areas import Area
from prefillgate.api.errors import PolicyError, Problem, RunFileError, clean, shown
from prefillgate.api.model import WireModel, validate
from prefillgate.api.policy import DEFAULT_POLICY, PolicyDocument, load_policy, policy_of
from prefillgate.api.policy_model import Metadata, PolicySpec
from prefillgate.api.store_address import StoreAddress, store_address
from prefillgate.api.strict_yaml import FieldPath, YamlDocument, YamlProblem, field_name, read_yaml_file
from prefillgate.api.urls import check_url as check_url
from prefillgate.core.acceptance import NAMED_POLICIES
from prefillgate.core.journal import Difference
from prefillgate.core.shape import Isolation

MOST_SERVERS = 64  # of one arm
LONGEST_URL = 2048  # characters
Url = Annotated[str, Field(min_length=1, max_length=LONGEST_URL)]


def _is_url_text(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= LONGEST_URL


def _address(text: str) -> str:
    store_address(text)
    return text


StoreText = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_address)]


class ServerModel(WireModel):
    url: Url | Annotated[list[Url], Field(min_length=1, max_length=MOST_SERVERS)]
    model: str | None = Field(default=None, min_length=1, max_length=256)
    api_key_variable: str | None = None
    header_file: str | None = Field(default=None, min_length=1, max_length=4096)
    ca_file: str | None = Field(default=None, min_length=1, max_length=4096)
    client_cert: str | None = Field(default=None, min_length=1, max_length=4096)
    client_key: str | None = Field(default=None, min_length=1, max_length=4096)
    tls_server_name: str | None = Field(default=None, min_length=1, max_length=253)
    insecure: bool = False
    proxy: str | None = None

    @field_validator("url", mode="before")
    @classmethod
    def _is_text_or_a_list_of_it(cls, value: Any) -> Any:
        """Said here, since of a field with two types the model would complain once for each."""
        given = value if isinstance(value, list) else [value]
        if not 1 <= len(given) <= MOST_SERVERS or not all(map(_is_url_text, given)):
            allowed = (
                f"the base URL of a server, up to {LONGEST_URL} characters, or a list of 1 to {MOST_SERVERS} of them"
            )
            raise ValueError(f"{shown(value)} (allowed: {allowed})")
        return value

    @model_validator(mode="after")
    def _can_be_reached(self) -> ServerModel:
        for url in self.urls:
            check_url(url)
        check_urls_differ(self.urls)
        if self.api_key_variable is not None:
            check_variable(self.api_key_variable)
        if self.proxy is not None:
            check_proxy(self.proxy)
        return self

    @property
    def urls(self) -> tuple[str, ...]:
        """Every server of the arm, without slashes at the end."""
        given = [self.url] if isinstance(self.url, str) else self.url
        return tuple(url.rstrip("/") for url in given)


class ArmModel(ServerModel):
    engine: str = Field(default="auto", min_length=1, max_length=64)


class GatewayModel(ServerModel):
    @model_validator(mode="after")
    def _is_one(self) -> GatewayModel:
        if isinstance(self.url, list):
            raise ValueError("url is a list (allowed: the base URL of one gateway)")
        return self


class DifferenceModel(WireModel):
    """One difference between the two profiles that the run is about."""

    area: Area = Field(description="What it belongs to.")
    name: str = Field(min_length=1, max_length=128, description="What it is called, as a hold names it.")
    baseline: str | None = Field(default=None, max_length=1024, description="Its value on the baseline.")
    candidate: str | None = Field(default=None, max_length=1024, description="Its value on the candidate.")


Word = Annotated[str, Field(min_length=1, max_length=4096)]


class RunSpec(WireModel):
    baseline: ArmModel | None = None
    candidate: ArmModel
    replay_set: str = Field(min_length=1, max_length=4096)
    policy: str = Field(default=DEFAULT_POLICY, min_length=1, max_length=4096)
    store: StoreText | None = None
    seed: int | None = Field(default=None, ge=0, le=2**53 - 1)
    declared_differences: list[DifferenceModel] = Field(default_factory=list, max_length=100)
    cell_timeout_seconds: int | None = Field(default=None, ge=1, le=86_400)
    isolation: Literal["Exclusive", "Shared"] | None = None
    baseline_store: StoreText | None = None
    baseline_max_age_days: int | None = Field(default=None, ge=1, le=3650)
    wait_ready_seconds: int | None = Field(default=None, ge=0, le=86_400)
    arms_at_once: bool = False
    sequential: bool = False
    swap_command: list[Word] = Field(default_factory=list, max_length=100)
    gateway: GatewayModel | None = None
    budget_prefills: int | None = Field(default=None, ge=1, le=1_000_000)
    floor: StoreText | None = None
    floor_max_age_days: int | None = Field(default=None, ge=1, le=3650)
    first_replicate: int | None = Field(default=None, ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _two_arms(self) -> RunSpec:
        first, second = self.baseline, self.candidate
        if self.swap_command and not self.sequential:
            raise ValueError("swapCommand without sequential: true: only a sequential run swaps servers")
        common = [] if first is None or self.sequential else [url for url in first.urls if url in second.urls]
        if first is not None and common and first.model == second.model:
            raise ValueError(f"baseline and candidate are the same server and model ({shown(common[0])})")
        return self


class RunModel(WireModel):
    api_version: Literal["prefillgate.io/v1alpha1"]
    kind: Literal["Run"]
    metadata: Metadata | None = None
    spec: RunSpec


@dataclass(frozen=True, slots=True)
class Arm:
    """One server: its base URL without a slash at the end, the model to ask for (None: what it serves)."""

    url: str
    model: str | None
    engine: str
    access: Access
    more_urls: tuple[str, ...] = ()  # further servers of the same profile


@dataclass(frozen=True, slots=True)
class RunDocument:
    """What a run file asks for. `replay_set` is a path, or the name of a packaged set."""

    baseline: Arm | None
    candidate: Arm
    replay_set: str
    policy: PolicyDocument
    name: str | None = None
    store: StoreAddress | None = None
    seed: int | None = None
    declared_differences: tuple[Difference, ...] = ()
    cell_timeout_seconds: float | None = None
    isolation: Isolation | None = None
    baseline_store: StoreAddress | None = None
    baseline_max_age_days: float | None = None
    wait_ready_seconds: float | None = None
    sequential: bool = False
    swap_command: tuple[str, ...] = ()
    source: Path | None = None
    arms_at_once: bool = False
    gateway: Arm | None = None
    budget_prefills: int | None = None
    floor: StoreAddress | None = None
    floor_max_age_days: float | None = None
    first_replicate: int | None = None


def check_urls_differ(urls: Sequence[str]) -> None:
    """Raise ValueError where one arm names a server twice: each lane has a server of its own."""
    places = [url.rstrip("/").removesuffix("/v1").rstrip("/") for url in urls]
    for number, url in enumerate(urls):
        if places[number] in places[:number]:
            raise ValueError(f"url {shown(url)} is named twice for one arm (allowed: each server once)")


def load_run_file(path: str | Path) -> RunDocument:
    """The run of a YAML file. Raises `RunFileError`, or `PolicyError` for its policy, with file:line and field."""
    source = Path(path)
    try:
        yaml = read_yaml_file(source)
    except YamlProblem as error:
        raise RunFileError(error.problem) from error
    value, inline = _without_inline_policy(yaml.value)
    model, wrong = validate(RunModel, value)
    if model is None:
        raise RunFileError(*_placed(yaml, wrong))
    spec = model.spec
    return RunDocument(
        baseline=None if spec.baseline is None else _arm(spec.baseline, source.parent),
        candidate=_arm(spec.candidate, source.parent),
        replay_set=_resolved(spec.replay_set, source),
        policy=_inline_policy(inline, yaml, source) if inline is not None else _policy(spec.policy, yaml, source),
        name=model.metadata.name if model.metadata else None,
        store=None if spec.store is None else store_address(spec.store, source.parent),
        seed=spec.seed,
        declared_differences=tuple(
            Difference(AREAS[d.area], d.name, d.baseline, d.candidate) for d in spec.declared_differences
        ),
        cell_timeout_seconds=None if spec.cell_timeout_seconds is None else float(spec.cell_timeout_seconds),
        isolation=None if spec.isolation is None else Isolation(spec.isolation.lower()),
        baseline_store=None if spec.baseline_store is None else store_address(spec.baseline_store, source.parent),
        baseline_max_age_days=spec.baseline_max_age_days,
        wait_ready_seconds=None if spec.wait_ready_seconds is None else float(spec.wait_ready_seconds),
        sequential=spec.sequential,
        swap_command=tuple(spec.swap_command),
        source=source,
        arms_at_once=spec.arms_at_once,
        gateway=None if spec.gateway is None else _arm(spec.gateway, source.parent),
        budget_prefills=spec.budget_prefills,
        floor=None if spec.floor is None else store_address(spec.floor, source.parent),
        floor_max_age_days=spec.floor_max_age_days,
        first_replicate=spec.first_replicate,
    )


def _placed(yaml: YamlDocument, wrong: tuple[tuple[FieldPath, Problem], ...]) -> Iterator[Problem]:
    for path, problem in wrong:
        yield Problem(yaml.where(path), problem.field, problem.message, problem.allowed)


def _without_inline_policy(value: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The document with an inline policy taken out, and that policy's spec."""
    spec = value.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("policy"), dict):
        return value, None
    rest = {name: field for name, field in spec.items() if name != "policy"}
    return {**value, "spec": rest}, spec["policy"]


def _inline_policy(inline: dict[str, Any], yaml: YamlDocument, source: Path) -> PolicyDocument:
    """A policy written out under spec.policy; problems name the fields as they stand in the run file."""
    inside = ("spec", "policy")
    model, wrong = validate(PolicySpec, inline)
    if model is None:
        found = (
            Problem(yaml.where((*inside, *path)), field_name((*inside, *path)), problem.message, problem.allowed)
            for path, problem in wrong
        )
        raise PolicyError(*found)
    lines = {("spec", *path[2:]): line for path, line in yaml.lines.items() if path[:2] == inside}
    try:
        return policy_of(model, source.stem, YamlDocument(yaml.name, {"spec": inline}, lines), source)
    except PolicyError as error:
        moved = (replace(p, field="spec.policy" + p.field.removeprefix("spec")) for p in error.problems)
        raise PolicyError(*moved) from error


def _policy(name: str, yaml: YamlDocument, source: Path) -> PolicyDocument:
    if name in NAMED_POLICIES:
        return load_policy(name)
    file = source.parent / name
    if not file.exists():
        allowed = f"{', '.join(NAMED_POLICIES)}, a file, or a policy's spec written out"
        raise PolicyError(
            Problem(yaml.where(("spec", "policy")), "spec.policy", f'no file "{clean(str(file))}"', allowed)
        )
    return load_policy(file)


def _arm(model: ServerModel, folder: Path) -> Arm:
    def file(name: str | None) -> Path | None:
        return None if name is None else folder / name

    access = Access(
        api_key_variable=model.api_key_variable,
        header_file=file(model.header_file),
        ca_file=file(model.ca_file),
        client_cert=file(model.client_cert),
        client_key=file(model.client_key),
        tls_server_name=model.tls_server_name,
        insecure=model.insecure,
        proxy=model.proxy,
    )
    first, *more = model.urls
    engine = model.engine if isinstance(model, ArmModel) else "auto"
    return Arm(first, model.model, engine, access, tuple(more))


def _resolved(name: str, source: Path) -> str:
    """A file beside the run file; a bare word that is no file there may be a packaged set."""
    file = source.parent / name
    return name if not file.exists() and Path(name).suffix == "" and Path(name).parent == Path() else str(file)
