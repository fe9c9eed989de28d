"""Whom an object concerns: which lines must be looked at again when it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prefillgate.api.kinds.names import PROFILE_ROLLOUT, PROMOTION_POLICY, REPLAY_SET, SERVING_LINE
from prefillgate.api.kinds.reading import read_spec
from prefillgate.api.kinds.replay_set_kind import ReplaySetSpec
from prefillgate.api.kinds.serving_line import ServingLineSpec
from prefillgate.app.observe.index import Index, Thing, selects
from prefillgate.app.observe.kinds import ENDPOINT_SLICES, Kinds, Named
from prefillgate.app.observe.services import SERVICE_LABEL
from prefillgate.app.observe.trims import controller
from prefillgate.app.observe.workloads import KSERVE, KSERVE_LABEL
from prefillgate.kube.objects import Object, label, metadata, namespace_of

_DEEPEST = 6


@dataclass(slots=True)
class Concerned:
    """Kept by `told` of every change of our own kinds; `learn` adds what only a look finds out."""

    kinds: Kinds
    lines: Index = field(default_factory=Index)  # what lines refer to
    sets: Index = field(default_factory=Index)  # what replay sets refer to
    rollouts: Index = field(default_factory=Index)  # the line of a rollout
    wanted: Index = field(default_factory=Index)  # kinds that lines name
    _selectors: dict[str, dict[str, tuple[Mapping[str, str], ...]]] = field(default_factory=dict)  # namespace: line

    def told(self, kind: str, key: str, new: Object | None) -> None:
        """An object of our own kinds changed."""
        if kind == SERVING_LINE.kind:
            spec = None if new is None else read_spec(ServingLineSpec, new)[0]
            self._line(key, key.partition("/")[0], spec)
        elif kind == REPLAY_SET.kind:
            found = None if new is None else read_spec(ReplaySetSpec, new)[0]
            of = None if found is None else found.config_map
            self.sets.put(key, [] if of is None else [("ConfigMap", f"{key.partition('/')[0]}/{of.name}")])
        elif kind == PROFILE_ROLLOUT.kind:
            line = None if new is None else line_of(new)
            self.rollouts.put(key, [] if line is None else [(SERVING_LINE.kind, line)])

    def learn(self, line: str, things: Iterator[Thing] | frozenset[Thing]) -> None:
        """What a look found that a line uses."""
        self.lines.add(line, things)

    def named(self) -> set[Named]:
        """The kinds that lines name."""
        return set(self.wanted.things())

    def of(self, kind: str, key: str, obj: Object | None) -> set[str]:
        """Keys of the lines that an object is of; `obj` is the object, where it is known."""
        if kind == SERVING_LINE.kind:
            return {key}
        found = set(self.lines.who((kind, key)))
        if kind == PROFILE_ROLLOUT.kind:
            return found | {to for who, to in self.rollouts.things_of(key) if who == SERVING_LINE.kind}
        if kind == "ConfigMap":
            for each in self.sets.who((kind, key)):
                found |= self.lines.who((REPLAY_SET.kind, each))
        if obj is not None and kind not in (PROMOTION_POLICY.kind, REPLAY_SET.kind):
            found |= self._above(obj)
        if obj is not None and kind == "Pod":
            found |= self._selected(obj)
        return found

    def _line(self, key: str, namespace: str, spec: ServingLineSpec | None) -> None:
        selectors: list[Mapping[str, str]] = []
        things: list[Thing] = []
        named: list[Named] = []
        for arm in () if spec is None else (spec.baseline, spec.candidate_arm):
            if arm.workload_ref is not None:
                things.append((arm.workload_ref.kind, f"{namespace}/{arm.workload_ref.name}"))
                named.append((arm.workload_ref.api_version, arm.workload_ref.kind))
            if arm.endpoint.service is not None:
                things.append(("Service", f"{namespace}/{arm.endpoint.service.name}"))
                named.append(ENDPOINT_SLICES)
            if arm.endpoint.pods is not None and arm.endpoint.pods.selector is not None:
                selectors.append(arm.endpoint.pods.selector)
        if spec is not None:
            things.append((REPLAY_SET.kind, f"{namespace}/{spec.replay_set_ref.name}"))
            if spec.policy_ref is not None:
                things.append((PROMOTION_POLICY.kind, f"{namespace}/{spec.policy_ref.name}"))
        self.lines.put(key, things)
        self.wanted.put(key, named)
        self._selectors.get(namespace, {}).pop(key, None)
        if selectors:
            self._selectors.setdefault(namespace, {})[key] = tuple(selectors)

    def _above(self, obj: Object) -> set[str]:
        """Lines that refer to what owns it, however far above."""
        found: set[str] = set()
        namespace = namespace_of(obj)
        service = label(obj, SERVICE_LABEL) if obj.get("kind") == "EndpointSlice" else None
        if service is not None:
            found |= self.lines.who(("Service", f"{namespace}/{service}"))
        at: Object | None = obj
        for _ in range(_DEEPEST):
            served = None if at is None else label(at, KSERVE_LABEL)
            for kind in KSERVE if served is not None else ():
                found |= self.lines.who((kind, f"{namespace}/{served}"))
            owner = None if at is None else controller(at)
            if owner is None:
                break
            key = f"{namespace}/{owner.get('name')}"
            found |= self.lines.who((str(owner.get("kind")), key))
            at = next((each for held in self.kinds.named(str(owner.get("kind"))) if (each := held.at(key))), None)
        return found

    def _selected(self, pod: Object) -> set[str]:
        labels: Mapping[str, Any] = metadata(pod).get("labels") or {}
        by_line = self._selectors.get(str(namespace_of(pod)), {})
        return {line for line, given in by_line.items() if any(selects(each, labels) for each in given)}


def line_of(rollout: Object) -> str | None:
    """The key of the line that a rollout belongs to; None where it names none."""
    spec = rollout.get("spec")
    ref = spec.get("lineRef") if isinstance(spec, Mapping) else None
    name = ref.get("name") if isinstance(ref, Mapping) else None
    return f"{namespace_of(rollout)}/{name}" if isinstance(name, str) else None
