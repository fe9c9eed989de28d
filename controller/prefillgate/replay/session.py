"""From what a person asked for to a run that can begin or go on: who is there, what is the plan, is it the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from prefillgate.api.access import Access
from prefillgate.api.check_spec import declaration_of
from prefillgate.api.policy import PolicyDocument
from prefillgate.api.replay_set import canonical_json
from prefillgate.api.store_address import StoreAddress
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.earlier import StoredFloor, Trigger, Watching
from prefillgate.core.fitted_plan import fitted_plan
from prefillgate.core.journal import CaseRef, Difference, Planned
from prefillgate.core.policy import Policy
from prefillgate.core.shape import Shape
from prefillgate.engines.base import Identity
from prefillgate.replay.lane import LaneTimes
from prefillgate.replay.replay_set import ReplaySet


class RunMismatch(ValueError):
    """The store holds another run than the one asked for. The message names what differs."""


class SameServer(ValueError):
    """Both arms are the same server and the same model: nothing could be compared."""


@dataclass(frozen=True, slots=True)
class ArmRequest:
    """One arm as asked for. `more_urls` are further servers of the same profile, each a lane of its own.

    `called` names the arm in plan and report where its addresses come and go (pods); a run that goes on may then find
    it at others.
    """

    url: str
    model: str | None = None
    engine: str = "auto"
    access: Access = field(default_factory=Access)
    more_urls: tuple[str, ...] = ()
    called: str | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """Every server of the arm, in the order given."""
        return (self.url, *self.more_urls)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Everything a run is asked to do."""

    baseline: ArmRequest | None  # None: the candidate alone
    candidate: ArmRequest
    replay_set: ReplaySet
    policy: PolicyDocument
    store: StoreAddress
    seed: int | None = None
    differences: tuple[Difference, ...] = ()
    times: LaneTimes = field(default_factory=LaneTimes)
    shape: Shape = field(default_factory=Shape)
    wait_ready_seconds: float = 0.0  # how long a server that refuses or loads its model is waited for
    swap_command: tuple[str, ...] = ()  # arguments of what swaps the servers of a sequential run; else a person does
    gateway: ArmRequest | None = None  # where bad cells are sent once more
    baseline_store: StoreAddress | None = None  # an earlier run whose baseline is shown beside this one
    baseline_max_age_days: float = 14.0
    budget: int | None = None  # prefills, both arms, where it is not the policy's
    budget_by: str = "--budget"  # the option or the field that asked for it
    command: tuple[str, ...] = ()  # the words of the command line, without store and seed
    unvalidated_judge: bool = False  # a judge may judge although too few labelled examples tell what its word is worth
    must_end_at: float | None = None  # seconds since the epoch; beside the policy's deadline
    differences_stand: bool = False  # a run that goes on has the differences it was begun with, whatever is told now
    first_replicate: int = 1  # the number of a new run's first replicate; a run that goes on keeps its own
    floor: StoreAddress | None = None  # an earlier run of the baseline against itself, that a new run goes by
    floor_max_age_days: float | None = None
    watching: Watching | None = None  # a small replay after a promotion; the candidate is the promoted profile
    trigger: Trigger | None = None  # an alarm of one, that this run's replicate answers

    def arm(self, name: str) -> ArmRequest:
        """The request of one arm. Raises KeyError for a baseline where there is none."""
        asked = self.baseline if name == BASELINE else self.candidate
        if asked is None:
            raise KeyError(name)
        return asked


def plan_run(
    request: RunRequest, seed: int, started_at: float, policy: Policy, floor: StoredFloor | None = None
) -> Planned:
    """The first event of a new run's journal. `floor` is what the floor asked for shows."""
    plan = Planned(
        run_id=f"{request.replay_set.name}-{seed}",
        started_at=started_at,
        seed=seed,
        policy=policy,
        cases=tuple(
            CaseRef(case.case_id, case.sha256, case.characters, case.max_tokens, case.greedy, case.canonical_line)
            for case in request.replay_set.cases
        ),
        replay_set_name=request.replay_set.name,
        replay_set_sha256=request.replay_set.sha256,
        baseline_url=None if request.baseline is None else named(request.baseline),
        candidate_url=named(request.candidate),
        differences=request.differences,
        first_replicate=request.first_replicate,
        shape=request.shape,
        command=request.command,
        checks=declared_checks(request.policy),
        floor=floor,
        watching=request.watching,
        trigger=request.trigger,
    )
    return fitted_plan(plan)


def declared_checks(policy: PolicyDocument) -> str:
    """The checks that a policy declares, as the plan keeps them."""
    declared = None if policy.checks is None else [declaration_of(spec) for spec in policy.checks]
    return canonical_json(declared).decode()


def named(arm: ArmRequest) -> str:
    """An arm as plan and report name it: its name or its URLs, and the model where one was asked for."""
    urls = arm.called or ", ".join(arm.urls)
    return urls if arm.model is None else f"{urls} ({arm.model})"


def check_same_run(planned: Planned, request: RunRequest) -> None:
    """Raise `RunMismatch` unless the store's plan is the one asked for now."""
    policy = replace(request.policy.policy, budget=planned.policy.budget)  # that may be raised
    asked = plan_run(request, planned.seed, planned.started_at, policy, planned.floor)
    told: Sequence[tuple[str, object, object]] = (
        ("what it is for", _purpose(planned), _purpose(asked)),
        ("replay set", _digest(planned), _digest(asked)),
        ("baseline", planned.baseline_url, asked.baseline_url),
        ("candidate", planned.candidate_url, asked.candidate_url),
        ("servers of the baseline", planned.shape.baseline_lanes, asked.shape.baseline_lanes),
        ("servers of the candidate", planned.shape.candidate_lanes, asked.shape.candidate_lanes),
        ("isolation", planned.shape.isolation.value, asked.shape.isolation.value),
        ("servers up", _turns(planned.shape), _turns(asked.shape)),
        ("declared differences", _names(planned), _names(planned if request.differences_stand else asked)),
        ("arms at once", planned.shape.at_once, asked.shape.at_once),
    )
    for name, stored, wanted in told:
        if stored != wanted:
            since = "it changed since the run began" if name == "replay set" else "this store is of another run"
            raise RunMismatch(
                f"{name}: the store was begun with {_told(stored)}, now {_told(wanted)} is asked for ({since})"
            )
    policy = asked.policy
    if planned.policy not in (policy, policy_for(policy, shared=True)):
        raise RunMismatch(
            f"policy: the store was begun with {planned.policy.name}, and its numbers differ from those of "
            f"{policy.name} asked for now ({_first_difference(planned.policy, policy)})"
        )
    if request.seed is not None and request.seed != planned.seed:
        raise RunMismatch(f"seed: the store was begun with {planned.seed}, now {request.seed} is asked for")


def _told(value: object) -> object:
    return "none" if value is None else value


def _digest(plan: Planned) -> str:
    return f"{plan.replay_set_name} {plan.replay_set_sha256[:12]}"


def _purpose(plan: Planned) -> str:
    if plan.shape.baseline_alone:
        return "a floor"
    if plan.watching is not None:
        return "a small replay after a promotion"
    return "a candidate" if plan.trigger is None else "the replicate of an alarm after a promotion"


def _turns(shape: Shape) -> str:
    return "one at a time (--sequential)" if shape.sequential else "both"


def _names(plan: Planned) -> list[str]:
    return sorted(f"{d.name}={d.baseline}..{d.candidate}" for d in plan.differences)


def _first_difference(stored: Policy, wanted: Policy) -> str:
    for name in Policy.__dataclass_fields__:
        if getattr(stored, name) != getattr(wanted, name):
            return f"{name}: {getattr(stored, name)!r} then, {getattr(wanted, name)!r} now"
    return "equal"


def one_server(urls: Mapping[str, str], identities: Mapping[str, Identity]) -> bool:
    """Whether both arms stand behind one server. Raises `SameServer` where the model is the same too.

    `urls` are the addresses as the engines write them, both in one form.
    """
    baseline, candidate = identities[BASELINE], identities[CANDIDATE]
    same_place = urls[BASELINE] == urls[CANDIDATE]
    same_life = baseline.server_epoch is not None and baseline.server_epoch == candidate.server_epoch
    if not same_place and not same_life:
        return False
    if baseline.model == candidate.model:
        raise SameServer(
            f"baseline {urls[BASELINE]} and candidate {urls[CANDIDATE]} are the same server with the same "
            f"model ({baseline.model}): nothing could be compared (allowed: two servers, or one with two models named "
            "by --baseline-model and --candidate-model)"
        )
    return True


def policy_for(policy: Policy, shared: bool) -> Policy:
    """The policy as it can be kept: two models behind one server take turns, so their speed cannot be compared."""
    if not shared:
        return policy
    return replace(policy, throughput=replace(policy.throughput, required=False, max_pairs=0))
