"""A slot of a line as a look finds it: the arm of the spec, its profile, its workload, the pods of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefillgate.api.kinds.arms import Arm
from prefillgate.api.kinds.common import TemplateSeen
from prefillgate.api.kinds.serving_line import ServingLineSpec
from prefillgate.kube.objects import Object
from prefillgate.profiles import Profile, Sources
from prefillgate.reconcile.snapshot import Slot, SlotProfile, Trouble


@dataclass(frozen=True, slots=True)
class Asked:
    """A line whose slots are looked at."""

    namespace: str
    spec: ServingLineSpec

    def arm(self, slot: Slot) -> Arm:
        """What the spec says of a slot."""
        return self.spec.baseline if slot is Slot.BASELINE else self.spec.candidate_arm

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Those that are written; a candidate that is left out is the baseline's own workload."""
        return (Slot.BASELINE,) if self.spec.candidate is None else (Slot.BASELINE, Slot.CANDIDATE)


@dataclass(frozen=True, slots=True)
class PodFound:
    """A pod, and what tells its profile: the template it was made from (None: its own spec), its ConfigMaps by name.

    `needed` are those of them without which it cannot start. `sources` None: its template is not known. `mark` tells
    what was read of it from what may be read another time.
    """

    obj: Object
    template: Mapping[str, Any] | None = None
    sources: Sources | None = None
    config_maps: tuple[str, ...] = ()
    mark: tuple[Any, ...] = ()
    needed: tuple[str, ...] = ()

    @property
    def as_made(self) -> Mapping[str, Any]:
        """The pod as its template has it."""
        made = self.template if self.template is not None else self.obj
        return {"kind": "Pod", "metadata": made.get("metadata"), "spec": made.get("spec")}


@dataclass(frozen=True, slots=True)
class SlotFound:
    """What a slot's workload came to. `workload` is the object whose pods are its own, None for an inline profile."""

    slot: Slot
    arm: Arm
    namespace: str
    profile: Profile | None = None
    template: TemplateSeen | None = None
    workload: Object | None = None
    pods: tuple[PodFound, ...] = ()
    uses: frozenset[tuple[str, str]] = frozenset()  # ConfigMaps by key
    troubles: tuple[Trouble, ...] = ()

    @property
    def container(self) -> str:
        """The container that serves, as the profile found it."""
        return self.profile.parts[0].container if self.profile is not None else ""

    @property
    def told(self) -> SlotProfile | None:
        """As a decision sees it."""
        return None if self.profile is None else SlotProfile(self.slot, self.profile, self.template)
