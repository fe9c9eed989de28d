"""From pods to arms: which servers run the promoted profile and which the candidate's, each by what it really is."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prefillgate.api.kinds.arms import Endpoint, PodsEndpoint
from prefillgate.app.observe.config import ConfigMaps
from prefillgate.app.observe.endpoints import port_trouble
from prefillgate.app.observe.pods import (
    epoch_of,
    is_leaving,
    refused_pods,
    server_of,
    started_at,
    stuck,
    unavailable,
    wants_none,
)
from prefillgate.app.observe.services import Services
from prefillgate.app.observe.slots import PodFound, SlotFound
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.kube.objects import Object, metadata, name_of
from prefillgate.profiles import ArmMatch, Part, Profile, ProfileError, arm_of, image_ids_of, profile_of
from prefillgate.profiles.record import Recorded, RecordedPart, Told
from prefillgate.reconcile.roles import is_profile
from prefillgate.reconcile.snapshot import ArmSeen, Roles, ServerSeen, Slot, Trouble

MOST_MATCHES = 4_096  # kept, of all lines
MOST_NOTES = 8
MOST_TOGETHER = 64  # leaders and workers of a group under change, each with each


@dataclass(frozen=True, slots=True)
class ToldByStatus:
    """The promoted profile where no workload says it any more: what the line's status kept of it."""

    digest: str
    written_digest: str
    engine: str | None = None
    settings: tuple[Any, ...] = ()

    @property
    def resolved(self) -> bool:
        """Whether its images were known."""
        return self.digest != self.written_digest

    @property
    def parts(self) -> tuple[RecordedPart, ...]:
        """A single pod's digest is that of its profile."""
        return (RecordedPart("pod", self.digest, self.written_digest, self.resolved),)


@dataclass(frozen=True, slots=True)
class Arms:
    """Both arms, and the slot by which the servers of each are asked."""

    baseline: ArmSeen | None
    candidate: ArmSeen | None
    slots: Mapping[str, Slot]  # by digest
    resting: tuple[tuple[Slot, ArmSeen], ...] = ()  # slots that neither is asked by, as their endpoints are written


@dataclass(slots=True)
class Sorting:
    """Tells the pods of a line apart."""

    config_maps: ConfigMaps
    services: Services
    _matches: dict[tuple[Any, ...], ArmMatch] = field(default_factory=dict)

    async def arms(self, status: Mapping[str, Any], roles: Roles, slots: Sequence[SlotFound]) -> Arms:
        """The servers of the promoted profile and of the candidate. Raises KubeError."""
        if roles.promoted is None:
            return Arms(None, None, {})
        known = _promoted(status, slots)
        candidate = None if roles.candidate is None else roles.candidate.profile
        slot_of: dict[str, Slot] = {}
        found: list[ArmSeen | None] = []
        for is_baseline, profile in ((True, known), (False, candidate)):
            if known is None or profile is None:
                found.append(None)
                continue
            digest = roles.promoted if is_baseline else profile.digest
            arm, slot = await self._arm(_Wanted(digest, is_baseline, known, candidate), slots)
            found.append(arm)
            slot_of[digest] = slot
        return Arms(found[0], found[1], slot_of)

    async def as_written(self, slot: SlotFound) -> ArmSeen:
        """The servers that the endpoint of a slot leads to, whatever profile they run. Raises KubeError."""
        arm = ArmSeen("" if slot.profile is None else slot.profile.digest)
        endpoint, pods = slot.arm.endpoint, tuple(each.obj for each in slot.pods)
        if endpoint.pods is not None:
            serving = (pod for pod in pods if not is_leaving(pod) and _role(pod) in (None, "0"))
            return replace(arm, servers=tuple(server_of(pod, endpoint.pods, slot.container) for pod in serving))
        if endpoint.service is not None:
            return await self.services.seen(arm, slot.namespace, endpoint.service, None)
        return await self._behind(arm, slot, pods)

    async def trouble(self, slot: SlotFound) -> Trouble | None:
        """What the endpoint of a slot names and is not there. Raises KubeError."""
        service = slot.arm.endpoint.service
        if service is not None:
            return await self.services.trouble(slot.slot, slot.namespace, service)
        return port_trouble(slot)

    async def _arm(self, wanted: _Wanted, slots: Sequence[SlotFound]) -> tuple[ArmSeen, Slot]:
        """The arm of a profile, by the first slot in which it has Ready servers, else by the one that says it."""
        ways = [(each, wanted.is_said_by(each)) for each in slots]
        ways.sort(key=lambda way: not way[1])
        best: tuple[ArmSeen, Slot] | None = None
        for slot, said in ways:
            arm = await self._by_slot(wanted, slot, said)
            if arm is not None and (best is None or (arm.ready and not best[0].ready)):
                best = (arm, slot.slot)
        return best if best is not None else (ArmSeen(wanted.digest), slots[0].slot if slots else Slot.BASELINE)

    async def _by_slot(self, wanted: _Wanted, slot: SlotFound, said: bool) -> ArmSeen | None:
        endpoint = slot.arm.endpoint
        pods, notes = self._pods(wanted, slot, said)
        arm = ArmSeen(wanted.digest, notes=notes[:MOST_NOTES])
        if endpoint.pods is not None:
            serving = (pod for pod in pods if not is_leaving(pod) and _role(pod) in (None, "0"))  # a group's leader
            servers = tuple(server_of(pod, endpoint.pods, slot.container) for pod in serving)
            return available(replace(arm, servers=servers), slot, pods, said)
        if not said:
            if slot.workload is None or not wanted.is_baseline:
                return None
            why = (
                f"{_told(endpoint)} cannot tell servers of this profile from those of the next one, now that its "
                "workload says another: take endpoint.pods, or a workload of its own for the candidate"
            )
            return replace(arm, unreachable=why)
        arm = await self._behind(arm, slot, pods)
        return available(arm, slot, pods, said)

    async def _behind(self, arm: ArmSeen, slot: SlotFound, pods: Sequence[Object]) -> ArmSeen:
        """The one server of a URL or a Service, with what stands behind it."""
        endpoint = slot.arm.endpoint
        if endpoint.service is not None:
            ours = None if slot.workload is None else tuple(pods)
            return await self.services.seen(arm, slot.namespace, endpoint.service, ours)
        running = [server_of(pod, PodsEndpoint(port=1), slot.container) for pod in pods if not is_leaving(pod)]
        ready = [each for each in running if each.ready]
        url = str(endpoint.url)
        epoch = ready[0].epoch if len(ready) == 1 else None
        notes = arm.notes
        if len(ready) > 1:
            notes = (*notes, f"{url} stands before {len(ready)} pods: lives of several servers mix")
        return replace(arm, servers=(ServerSeen(url, url, bool(ready) or slot.workload is None, epoch),), notes=notes)

    def _pods(self, wanted: _Wanted, slot: SlotFound, said: bool) -> tuple[tuple[Object, ...], tuple[str, ...]]:
        """The pods of a slot that run the profile, and of those of neither arm which and why."""
        if slot.workload is None:
            return (tuple(each.obj for each in slot.pods), ()) if said else ((), ())
        mine: list[Object] = []
        notes: list[str] = []
        own = {name_of(pod.obj): self._arms_of(pod, wanted, slot) for pod in slot.pods}
        for pod in slot.pods:
            found = own[name_of(pod.obj)]
            if isinstance(found, frozenset):
                found = _together(pod, slot, own) or "the pods of its group are not of one profile"
            if isinstance(found, str):
                if not is_leaving(pod.obj):
                    notes.append(f"pod {name_of(pod.obj)} is of neither arm: {found}")
            elif (BASELINE in found) is wanted.is_baseline:
                mine.append(pod.obj)
        return tuple(mine), tuple(notes)

    def _arms_of(self, pod: PodFound, wanted: _Wanted, slot: SlotFound) -> frozenset[str] | str:
        """The arms that a pod may be of (one part of a group can be the same in both), or why it is of none."""
        started = started_at(pod.obj, slot.container)
        if started is not None and pod.config_maps:
            # A kubelet's clock may be behind the API server's: no container started before its pod was made.
            since = max(started[:19], str(metadata(pod.obj).get("creationTimestamp") or "")[:19])
            changed = self.config_maps.another_than(slot.namespace, pod.config_maps, pod.needed, since)
            if changed is not None:
                return changed
        match = self._match(pod, (wanted.baseline, wanted.candidate), slot.container)
        if isinstance(match, str):
            return match
        if match.arm is None:
            return match.why_not or "it runs another profile"
        if match.arm == BASELINE and wanted.candidate is not None and _group(pod.obj) is not None:
            other = self._match(pod, (wanted.candidate, None), slot.container)
            if not isinstance(other, str) and other.arm is not None:
                return frozenset((BASELINE, CANDIDATE))
        return frozenset((match.arm,))

    def _match(self, pod: PodFound, told: tuple[Told, Told | None], container: str) -> ArmMatch | str:
        if pod.sources is None:
            return "the template that it was made from is not there any more"
        if epoch_of(pod.obj, container) is None:  # it serves nobody yet, and its image may not be known
            told = (_as_written(told[0]), told[1] and _as_written(told[1]))
        digests = tuple(None if each is None else (each.digest, each.parts[0].resolved) for each in told)
        mark = (*pod.mark, tuple(sorted(image_ids_of(pod.obj).items())), digests, _role(pod.obj))
        known = self._matches.get(mark)
        if known is None:
            try:
                known = arm_of(pod.obj, told, pod.sources, pod.template)
            except ProfileError as error:
                return f"its profile cannot be made out ({error})"
            if len(self._matches) >= MOST_MATCHES:
                self._matches.clear()
            self._matches[mark] = known
        return known


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The profile whose servers are looked for, among the two that there are."""

    digest: str
    is_baseline: bool
    baseline: Profile | ToldByStatus
    candidate: Profile | None

    def is_said_by(self, slot: SlotFound) -> bool:
        """Whether the slot's workload says this profile now."""
        mine = self.baseline if self.is_baseline else self.candidate
        return slot.profile is not None and mine is not None and slot.profile.digest in (mine.digest, self.digest)


def available(arm: ArmSeen, slot: SlotFound, pods: Sequence[Object], newest: bool) -> ArmSeen:
    """The arm with why it takes no requests and will not by waiting; nothing of a workload that wants no pods."""
    if arm.ready or wants_none(slot.workload):
        return arm
    why = unavailable(pods, slot.container)
    if why is None and newest:
        why = stuck(slot.workload)
    notes = arm.notes
    refused = refused_pods([slot.workload] if slot.workload is not None and newest else [])
    if refused is not None:
        notes = (*notes, f"pods cannot be made: {refused}")
    return replace(arm, unavailable=why, notes=notes)


def _together(pod: PodFound, slot: SlotFound, own: Mapping[str, frozenset[str] | str]) -> frozenset[str]:
    """The arms that all pods of a pod's group may be of; a pod without a group speaks for itself."""
    group = _group(pod.obj)
    members = [each.obj for each in slot.pods if group is not None and _group(each.obj) == group]
    found = [own[name_of(each)] for each in members or [pod.obj]]
    sets = [each if isinstance(each, frozenset) else frozenset[str]() for each in found]
    return sets[0].intersection(*sets[1:])


def _promoted(status: Mapping[str, Any], slots: Sequence[SlotFound]) -> Profile | ToldByStatus | None:
    promoted = status.get("promotedProfile")
    if not isinstance(promoted, Mapping):
        return next((each.profile for each in slots if each.slot is Slot.BASELINE), None)
    said = (each.profile for each in slots if each.profile is not None and is_profile(each.profile, promoted))
    digest = str(promoted.get("digest"))
    found = next(said, None) or next((each for slot in slots if (each := _of_pods(digest, slot))), None)
    return found or ToldByStatus(digest, str(promoted.get("writtenDigest") or digest))


def _of_pods(digest: str, slot: SlotFound) -> Profile | None:
    """The profile of that digest that a group's pods run together, where the group's templates say another by now."""
    if slot.profile is None or len(slot.profile.parts) == 1:
        return None
    run: dict[str, dict[str, Part]] = {}
    for pod in slot.pods:
        index = _role(pod.obj)
        if pod.sources is None or index is None:
            continue
        role = "leader" if index == "0" else "worker"
        with contextlib.suppress(ProfileError):
            part = profile_of(pod.as_made, replace(pod.sources, image_ids=image_ids_of(pod.obj))).parts[0]
            run.setdefault(role, {})[part.digest] = replace(part, role=role)
    together = itertools.product(*(run.get(part.role, {}).values() for part in slot.profile.parts))
    profiles = (Profile(parts, slot.profile.extra) for parts in itertools.islice(together, MOST_TOGETHER))
    return next((each for each in profiles if each.digest == digest), None)


def _as_written(told: Told) -> Recorded:
    """The same profile with images as the template names them."""
    parts = tuple(RecordedPart(each.role, each.digest, each.written_digest, False) for each in told.parts)
    return Recorded(told.engine, told.digest, told.digest, False, parts, told.settings)


def _told(endpoint: Endpoint) -> str:
    return f"Service {endpoint.service.name}" if endpoint.service is not None else str(endpoint.url)


def _group(pod: Object) -> Any:
    labels = metadata(pod).get("labels") or {}
    name = labels.get("leaderworkerset.sigs.k8s.io/name")
    return None if name is None else (name, labels.get("leaderworkerset.sigs.k8s.io/group-index"))


def _role(pod: Object) -> Any:
    return (metadata(pod).get("labels") or {}).get("leaderworkerset.sigs.k8s.io/worker-index")
