"""From an order and what was seen of its line to a run that can be carried out: which servers, which numbers, where.

An arm is asked at one server: another of its pods takes its place where that one goes, and the run goes on there. So
neither the number of pods nor their addresses are part of the plan, and production bears one replay at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container
from dataclasses import dataclass, replace

from prefillgate.api.areas import AREAS
from prefillgate.api.kinds.profile_rollout import RecordedProfile
from prefillgate.api.kinds.serving_line import ServingLineSpec
from prefillgate.api.policy import PolicyDocument
from prefillgate.api.store_address import StoreAddress
from prefillgate.app.seams import Observed, Way
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.journal import Difference
from prefillgate.core.shape import Shape
from prefillgate.profiles import Recorded, Told, differences, shown_profile
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.question import isolation_of
from prefillgate.reconcile.roles import is_profile
from prefillgate.reconcile.snapshot import ArmSeen, LineSnapshot, ServerSeen, WorkKind
from prefillgate.replay.lane import LaneTimes
from prefillgate.replay.replay_set import ReplaySet
from prefillgate.replay.session import ArmRequest, RunRequest

SPEC_NAMES = {
    "--baseline-model": "spec.model",
    "--candidate-model": "spec.model",
    "--model": "spec.model",
    "--floor": "floor",
    "--baseline-store": "stored baseline",
    "--baseline-max-age": "spec.sequential.storedBaselineMaxAgeSeconds",
    "--wait-ready": "the controller's patience",
    "--budget": "budgetPrefills of the policy",
    "--unvalidated-judge": "more labelled examples in the check",
}
"""What options are called by those who write a ServingLine."""

_LARGEST_SEED = 2**31
_SHORT = 12  # hex digits of a digest in a name


class NotYet(Exception):
    """A server that the run needs is not there now, and may come."""


class NoWindow(Exception):
    """No window is open in which workloads may be scaled; the next one opens at `opens_at`, seconds since the epoch."""

    def __init__(self, opens_at: float) -> None:
        super().__init__("no window is open")
        self.opens_at = opens_at


class Unusable(Exception):
    """The order can never be carried out as it is; the message says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An order with what was seen when it came."""

    order: StartWork
    observed: Observed

    def ended(self) -> Asked:
        """What must be known of it once it has ended: its line's name. Many ended ones are known for long."""
        metadata = self.snapshot.line["metadata"]
        line = {"metadata": {name: metadata[name] for name in ("namespace", "name", "uid")}}
        return Asked(self.order, Observed(LineSnapshot(self.snapshot.now, line, None)))

    @property
    def snapshot(self) -> LineSnapshot:
        """The line as it was then."""
        return self.observed.snapshot

    @property
    def urls(self) -> frozenset[str | None]:
        """The addresses of all servers that were seen of its line."""
        arms = (self.snapshot.baseline, self.snapshot.candidate)
        return frozenset(server.url for arm in arms if arm is not None for server in arm.servers)

    @property
    def spec(self) -> ServingLineSpec:
        """What its line asks for. Raises `Unusable` where that cannot be read."""
        if self.snapshot.spec is None:
            raise Unusable("the line's spec cannot be read")
        return self.snapshot.spec

    @property
    def takes_turns(self) -> bool:
        """Whether both profiles have one place, and workloads are scaled for it."""
        spec = self.snapshot.spec
        sequential = None if spec is None else spec.sequential
        return self.order.kind is WorkKind.JUDGE and sequential is not None and sequential.windows is not None

    @property
    def stored_baseline_seconds(self) -> int | None:
        """How old a stored baseline may be that the candidate alone is held against; None: it is not alone."""
        spec = self.snapshot.spec
        sequential = None if spec is None else spec.sequential
        if self.order.kind is not WorkKind.JUDGE or sequential is None:
            return None
        return sequential.stored_baseline_max_age_seconds

    @property
    def asked_arms(self) -> tuple[str, ...]:
        """The arms whose servers must be there before it can begin."""
        if self.takes_turns:
            return ()
        return (CANDIDATE,) if self.stored_baseline_seconds is not None else tuple(self.digests)

    @property
    def compared(self) -> tuple[str, str | None]:
        """The two profiles that a replicate would compare; None: nothing is compared."""
        order = self.order
        if order.kind is WorkKind.WATCH:
            return order.previous or order.baseline, order.baseline if order.previous else None
        return order.baseline, order.candidate

    def way(self, digest: str) -> Way:
        """How the servers of a profile are asked; of one that has none now, as those of production. Raises
        `Unusable`."""
        ways = self.observed.ways
        way = ways.get(digest) or (ways.get(self.order.baseline) if digest == self.order.previous else None)
        if way is None:
            raise Unusable(f"nothing tells how the servers of {short(digest)} are asked")
        return way

    def differs(self, other: Asked) -> bool:
        """Whether a run would be carried out otherwise: another order, another way to a server, other patience."""
        ways = [[each.observed.ways.get(digest) for digest in each.digests.values()] for each in (self, other)]
        specs = [each.snapshot.spec and _patience(each.snapshot.spec) for each in (self, other)]
        if self.takes_turns and other.takes_turns:  # images are resolved while a pod runs, and not before
            orders = [replace(each.order, baseline="", candidate=None) for each in (self, other)]
            return orders[0] != orders[1] or specs[0] != specs[1]
        return self.order != other.order or ways[0] != ways[1] or specs[0] != specs[1]

    @property
    def digests(self) -> dict[str, str]:
        """The profile of each arm that is asked."""
        both = {BASELINE: self.order.baseline}
        return both if self.order.candidate is None else {**both, CANDIDATE: self.order.candidate}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The server that an arm is asked at, and what is known of its life."""

    url: str
    name: str
    epoch: str | None


Servers = dict[str, Chosen]
"""By arm."""


def servers_of(asked: Asked, before: Servers, gone: Container[str] = ()) -> Servers:
    """The server of each arm: the one of `before` while it may be asked. Raises `NotYet` where an arm has none.

    `gone` are addresses whose servers were taken away since the look.
    """
    chosen: Servers = {}
    mode = asked.spec.baseline.isolation.mode
    for arm in asked.asked_arms:
        digest = asked.digests[arm]
        if arm == BASELINE and mode == "Scratch":
            chosen[arm] = Chosen("", "a pod that is to be made", None)
            continue
        known = [each for each in (asked.snapshot.baseline, asked.snapshot.candidate) if each is not None]
        seen = next((each for each in known if each.digest == digest), None)
        there = () if seen is None else tuple(each for each in seen.servers if each.url not in gone)
        found = _server_of(ArmSeen(digest, there), before.get(arm), drains=arm == BASELINE and mode == "Drain")
        if found is None:
            raise NotYet(f"the {arm} {short(digest)} has no server that takes requests now")
        chosen[arm] = found
    return chosen


def _server_of(arm: ArmSeen, before: Chosen | None, drains: bool) -> Chosen | None:
    """The server asked before where it is still there: one that is not Ready for a moment is waited for only where
    there is no other; one that was taken out of its Services is not Ready for that."""
    stays = None if before is None else next((each for each in arm.servers if each.url == before.url), None)
    if stays is not None and (stays.ready or drains or not arm.ready):
        return _chosen(stays)
    return _chosen(arm.ready[0]) if arm.ready else None


def _chosen(server: ServerSeen) -> Chosen | None:
    return None if server.url is None else Chosen(server.url, server.name, server.epoch)


@dataclass(frozen=True, slots=True)
class Place:
    """What a run is given beside its order."""

    store: StoreAddress
    times: LaneTimes
    wait_ready_seconds: float
    first_replicate: int = 1
    floor: StoreAddress | None = None  # of the baseline


def run_request(asked: Asked, servers: Servers, place: Place) -> RunRequest:
    """The run of a rollout; of a floor and of a watch what they are made from: the promoted profile on both sides.

    Raises `Unusable`.
    """
    policy, replay_set = _judged_by(asked)
    return RunRequest(
        baseline=arm_request(asked, BASELINE, servers),
        candidate=arm_request(asked, CANDIDATE if CANDIDATE in asked.digests else BASELINE, servers),
        replay_set=replay_set,
        policy=policy,
        store=place.store,
        seed=seed_of(asked),
        differences=differences_told(asked, *asked.compared),
        differences_stand=True,
        times=place.times,
        shape=Shape(isolation=isolation_of(asked.spec)),
        wait_ready_seconds=place.wait_ready_seconds,
        must_end_at=asked.order.must_end_at,
        first_replicate=place.first_replicate,
        floor=place.floor,
    )


def _judged_by(asked: Asked) -> tuple[PolicyDocument, ReplaySet]:
    if asked.observed.policy is None or asked.observed.replay_set is None:
        raise Unusable("its policy or its replay set cannot be read")
    return asked.observed.policy, asked.observed.replay_set


def arm_request(asked: Asked, arm: str, servers: Servers) -> ArmRequest:
    """One arm as the run asks it. Raises `Unusable` where nothing tells how its servers are asked."""
    url = servers[arm].url if arm in servers else f"http://{arm}.invalid"  # of one that is met when it is put up
    return server_request(asked, asked.digests[arm], url)


def server_request(asked: Asked, digest: str, url: str) -> ArmRequest:
    """A server of a profile as a run asks it, by a name that is the same wherever it is. Raises `Unusable`."""
    way = asked.way(digest)
    return ArmRequest(url, way.model, way.engine, way.access, called=called(asked, digest))


def called(asked: Asked, digest: str) -> str:
    """What a profile is called in plans and reports."""
    return f"{asked.snapshot.line['metadata']['name']} {short(digest)}"


def short(digest: str) -> str:
    """The beginning of a digest, for people."""
    algorithm, _, value = digest.rpartition(":")
    return f"{algorithm}:{value[:_SHORT]}" if algorithm else value[:_SHORT]


def seed_of(asked: Asked) -> int:
    """The seed that was asked for, else one that follows from the key: the same after every restart."""
    if asked.order.seed is not None:
        return asked.order.seed
    return int.from_bytes(hashlib.sha256(asked.order.key.encode()).digest()[:8], "big") % _LARGEST_SEED


def differences_told(asked: Asked, baseline: str, candidate: str | None) -> tuple[Difference, ...]:
    """What is different between two profiles, as the templates of their rollout tell, and what the line declares
    beside that."""
    found = {} if candidate is None else {each.name: each for each in _of_profiles(asked, baseline, candidate)}
    for model in asked.spec.declared_differences:
        found.setdefault(model.name, Difference(AREAS[model.area], model.name, model.baseline, model.candidate))
    return tuple(found.values())


def _of_profiles(asked: Asked, baseline: str, candidate: str) -> tuple[Difference, ...]:
    """As the workloads tell them now, else as the rollout has them: that was made before any pod resolved an image."""
    own_first = sorted(asked.snapshot.rollouts, key=lambda each: _uid(each.thing) != asked.order.key)
    kept: dict[str, RecordedProfile] = {}
    for rollout in own_first:
        both = () if rollout.spec is None else (rollout.spec.baseline, rollout.spec.candidate)
        told = {each.digest: each for each in both if each is not None}
        kept = kept or (told if {baseline, candidate} <= told.keys() else {})
    now = [_profile_now(asked, digest, kept.get(digest)) for digest in (baseline, candidate)]
    if now[0] is not None and now[1] is not None:
        return differences(now[0], now[1])
    if kept and all(each.settings for each in kept.values()):
        return differences(_recorded(kept[baseline]), _recorded(kept[candidate]))
    return ()


def _profile_now(asked: Asked, digest: str, kept: RecordedProfile | None) -> Told | None:
    """The profile of a digest as it is read now, its images resolved once a pod has done so; None: nobody has it."""
    told = {"digest": digest, "writtenDigest": None if kept is None else kept.written_digest}
    return next((each.profile for each in asked.snapshot.slots if is_profile(each.profile, told)), None)


def _recorded(profile: RecordedProfile) -> Recorded:
    shown = ((AREAS[each.area], each.name, each.value) for each in profile.settings)
    return shown_profile(shown, profile.digest, profile.written_digest or profile.digest)


def _patience(spec: ServingLineSpec) -> tuple[object, ...]:
    own = (spec.cell_timeout_seconds, spec.baseline.isolation, spec.max_production_prefills_per_hour)
    return (*own, spec.sequential)


def _uid(thing: object) -> str | None:
    metadata = thing.get("metadata") if isinstance(thing, dict) else None
    return metadata.get("uid") if isinstance(metadata, dict) else None
