"""Which pods are of which arm: those whose own profile is the promoted or the candidate one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.profiles.compare import in_words
from prefillgate.profiles.model import Part, Profile
from prefillgate.profiles.record import PartTold, Told
from prefillgate.profiles.sources import Sources, image_ids_of
from prefillgate.profiles.workloads import profile_of

MOST_IN_WHY = 4
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"


@dataclass(frozen=True, slots=True)
class ArmMatch:
    """The arm of a pod, None for neither; `digest` is the pod's own, `role` the part of the group that it plays."""

    arm: str | None
    digest: str
    role: str | None = None
    why_not: str = ""


def arm_of(
    pod: Mapping[str, Any],
    profiles: tuple[Told, Told | None],
    sources: Sources,
    template: Mapping[str, Any] | None = None,
) -> ArmMatch:
    """Which of (promoted, candidate) a pod serves.

    `sources` hold the ConfigMaps as they were when the pod started; the pod's images come from its own status. With
    `template` (that of the ReplicaSet or revision that owns the pod) what admission added to the pod is left out;
    without it the pod's spec speaks. A pod whose image is not resolved yet is of an arm only where that arm's is not
    either. Equal profiles on both arms are the baseline's. Raises `ProfileError`.
    """
    seen = replace(sources, image_ids=image_ids_of(pod))
    own = profile_of(_as_pod(pod, template), seen).parts[0]
    role = _role(pod)
    for arm, profile in zip((BASELINE, CANDIDATE), profiles, strict=True):
        for part in profile.parts if profile is not None else ():
            if (role is None or part.role in (role, "pod")) and _equal(own, part):
                return ArmMatch(arm, own.digest, part.role)
    return ArmMatch(None, own.digest, why_not=_why(own, profiles))


def _as_pod(pod: Mapping[str, Any], template: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if template is None:
        return {"kind": "Pod", "metadata": pod.get("metadata"), "spec": pod.get("spec")}
    return {"kind": "Pod", "metadata": template.get("metadata"), "spec": template.get("spec")}


def _role(pod: Mapping[str, Any]) -> str | None:
    metadata = pod.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    index = labels.get(WORKER_INDEX) if isinstance(labels, Mapping) else None
    return None if index is None else "leader" if str(index) == "0" else "worker"


def _equal(own: Part, part: PartTold) -> bool:
    if part.resolved:
        return own.resolved and own.digest == part.digest
    return own.written_digest == part.written_digest


def _why(own: Part, profiles: tuple[Told, Told | None]) -> str:
    """What a pod of neither arm differs in from the arm it is nearest to, in a few words."""
    alone = Profile((replace(own, role="pod"),))
    told = [in_words(profile, alone, MOST_IN_WHY) for profile in profiles if profile is not None]
    return min(told, key=len, default="")
