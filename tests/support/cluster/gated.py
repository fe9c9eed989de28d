"""A serving line of the tests: two Deployments of the simulated engine, a small replay set, a policy of few prefills.

    line = GatedLine(namespace, gate, folder)
    line.set_up()                       # policy, cases, `blue` in production, `green` beside it with the same profile
    line.apply()                        # the ServingLine
    line.serve("green", "--seed", "2")  # another profile
    line.decided()                      # its rollout, once it has ended

Whatever is waited for ends in an error that shows conditions, events and the end of the controller's log.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefillgate.api.kinds.names import API_VERSION
from prefillgate.api.store_address import StoreAddress, store_address
from prefillgate.core.cells import Status
from prefillgate.core.gate import fold
from prefillgate.core.journal import CellMeasured
from prefillgate.evidence import read_store
from prefillgate.evidence.errors import StoreError
from tests.support.cluster.api import Object, Refused, condition
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.gate import Gate
from tests.support.cluster.users import ADMIN, User
from tests.support.cluster.workloads import deployment, simulated
from tests.support.runs import QUALITY, write_set

OURS = {"group": "prefillgate.io", "version": "v1alpha1"}
POLICY: dict[str, Any] = {**QUALITY, "replicate": {"gapSeconds": 0}}
"""Promotes at 16 clean prefills; a replicate needs no wait. Speed is only shown."""

SPEAKING = ("--text-seed", "9", "--count-match", "case-", "--truth", "/truth/$(POD_NAME).jsonl")
"""Of every simulated server: the same answers whatever its seed, faults counted by cells alone, its truth kept."""

WAIT_SECONDS = float(os.environ.get("GATED_WAIT", "120"))


@dataclass
class GatedLine:
    """One ServingLine in a namespace, with what it refers to."""

    namespace: Namespace
    gate: Gate
    folder: Path
    name: str = "chat"
    colours: tuple[str, str] = ("blue", "green")
    """The two Deployments: what is in production at first, and what is beside it."""
    spec: dict[str, Any] = field(default_factory=dict)

    def set_up(self, cases: int = 5, policy: dict[str, Any] | None = None, **body: Any) -> GatedLine:
        """Policy and cases; both Deployments serve the same profile."""
        self.judge_by(**(policy or {}))
        self.replay(cases, **body)
        self.serve_both()
        return self

    def serve_both(self, both: tuple[str, ...] = (), candidate: tuple[str, ...] = ()) -> None:
        """Roll both out: with arguments of both, and of the one that is not in production at first."""
        self.serve(self.colours[0], *both)
        self.serve(self.colours[1], *both, *candidate)
        for name in self.colours:
            self.namespace.rolled_out(name)

    def judge_by(self, **changes: Any) -> None:
        """A PromotionPolicy `few`: POLICY with changes."""
        self.put("PromotionPolicy", "few", {**POLICY, **changes})

    def replay(self, cases: int = 5, words: int = 40, **body: Any) -> None:
        """A ReplaySet `cases` in a ConfigMap; `case-N` stands in the prompt of case N."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = write_set(self.folder / "set.jsonl", cases, words, **body).read_text(encoding="utf-8")
        self.put_map("cases", text)
        self.put("ReplaySet", "cases", {"configMap": {"name": "cases"}})

    def put_map(self, name: str, text: str) -> None:
        """A ConfigMap with a set's lines."""
        data = {"cases.jsonl": text + "\n"}
        self.namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})

    def serve(self, workload: str, *args: str, replicas: int = 1, server: Object | None = None, **more: Any) -> None:
        """A Deployment of the simulated engine with these arguments; its truth is kept in `folder`. `server` changes
        its container (None takes a field away), `more` its spec."""
        own_name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
        changes = dict(server or {})
        env = [own_name, *changes.pop("env", ())]
        made = simulated(*SPEAKING, *args, env=env, volumeMounts=[{"name": "truth", "mountPath": "/truth"}])
        made = {name: value for name, value in {**made, **changes}.items() if value is not None}
        truth = self.folder / "truth"
        truth.mkdir(parents=True, exist_ok=True)
        thing = deployment(workload, made, replicas, volumes=[{"name": "truth", "hostPath": {"path": str(truth)}}])
        thing["spec"] |= more
        self.namespace.apply(thing)

    def spec_of(self, **changes: Any) -> dict[str, Any]:
        """The line's spec: the first colour in production, each Ready pod asked at its own address."""
        spec = {
            "baseline": arm(self.colours[0]),
            "candidate": arm(self.colours[1]),
            "policyRef": {"name": "few"},
            "replaySetRef": {"name": "cases"},
            **self.spec,
            **changes,
        }
        return {name: value for name, value in spec.items() if value is not None}

    def apply(self, **changes: Any) -> None:
        """Make the ServingLine, or change it. A field whose value is None is left out."""
        self.put("ServingLine", self.name, self.spec_of(**changes))

    def create(self, **changes: Any) -> None:
        """Make the ServingLine without kubectl: for hundreds of them."""
        thing = {"apiVersion": API_VERSION, "kind": "ServingLine", "metadata": {"name": self.name}}
        path = self.namespace.path("servinglines", **OURS)
        self.namespace.cluster.api().create(path, {**thing, "spec": self.spec_of(**changes)})

    def compare(self, name: str, user: User = ADMIN, **spec: Any) -> None:
        """Make a ProfileRollout by hand."""
        self.put("ProfileRollout", name, {"lineRef": {"name": self.name}, **spec}, user)

    def put(self, kind: str, name: str, spec: Any, user: User = ADMIN) -> None:
        """Make an object of ours, or change it."""
        thing = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.namespace.apply(json.dumps(thing), user)

    @property
    def path(self) -> str:
        """Of the ServingLine."""
        return self.namespace.path("servinglines", self.name, **OURS)

    def rollout_path(self, name: str = "") -> str:
        """Of a ProfileRollout, or of all."""
        return self.namespace.path("profilerollouts", name, **OURS)

    def line(self) -> Object:
        """The ServingLine as it is."""
        return self.namespace.cluster.api().get(self.path)

    def rollouts(self) -> list[Object]:
        """All of its ProfileRollouts, oldest first."""
        found = self.namespace.cluster.api().items(self.rollout_path())
        own = [each for each in found if each["spec"]["lineRef"]["name"] == self.name]
        return sorted(own, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["uid"]))

    def events(self, about: str | None = None) -> list[Object]:
        """Events in the namespace about our objects, or about the one of that name."""
        found = self.namespace.cluster.api().items(self.namespace.path("events", group="events.k8s.io"))
        ours = [each for each in found if each.get("regarding", {}).get("apiVersion") == API_VERSION]
        return [each for each in ours if about in (None, each["regarding"]["name"])]

    def reasons(self, about: str | None = None) -> list[str]:
        """Their reasons."""
        return [each["reason"] for each in self.events(about)]

    def truth(self, workload: str = "", probes: bool = False) -> list[dict[str, Any]]:
        """What the servers of a workload, or all, were really asked for, by time; cells, and probes where wanted."""
        files = sorted((self.folder / "truth").glob(f"{workload}*.jsonl"))
        rows = [json.loads(row) for path in files for row in _whole_lines(path)]
        return sorted((row for row in rows if probes or row["output_tokens"] != 2), key=lambda row: row["started_at"])

    def until(self, what: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
        """What `what` gives once it gives something. Raises AssertionError with all there is to see."""
        end = time.monotonic() + seconds
        while not (found := _unless_away(what)):
            assert time.monotonic() < end, f"waited in vain\n{self.everything()}"
            time.sleep(0.1)
        return found

    def wait_line(self, holds: Callable[[Object], Any], seconds: float = WAIT_SECONDS) -> Object:
        """The line once `holds` says yes to it."""
        found: Object = self.until(lambda: (line := self.line()) and holds(line) and line, seconds)
        return found

    def wait_rollout(self, holds: Callable[[Object], Any], seconds: float = WAIT_SECONDS) -> Object:
        """The newest rollout once `holds` says yes to it."""
        found: Object = self.until(lambda: next((r for r in self.rollouts()[-1:] if holds(r)), None), seconds)
        return found

    def ready(self, seconds: float = WAIT_SECONDS) -> Object:
        """The line once its floor is measured: a candidate is judged from the first moment."""
        return self.wait_line(lambda line: condition(line, "InstrumentChecked") == "True", seconds)

    def decided(self, after: int = 0, seconds: float = WAIT_SECONDS) -> Object:
        """The newest rollout once it has ended; there must be more than `after` of them."""

        def ended() -> Object | None:
            found = self.rollouts()
            return found[-1] if len(found) > after and condition(found[-1], "Succeeded") in ("True", "False") else None

        rollout: Object = self.until(ended, seconds)
        return rollout

    def everything(self) -> str:
        """Conditions, decisions, events and the end of the controller's log, for a person."""
        objects = [self.line(), *self.rollouts()]
        told = [row for each in objects for row in _told(each)]
        told += [f"event {e['reason']} {e['regarding']['name']}: {e.get('note')}" for e in self.events()]
        return "\n".join([*told, "the controller's log:", self.gate.tail()])


def _unless_away(what: Callable[[], Any]) -> Any:
    """What `what` gives; nothing while the API server starts."""
    try:
        return what()
    except Refused as no:
        if no.code not in (429, 503):
            raise
    return None


def arm(workload: str, **more: Any) -> dict[str, Any]:
    """An arm whose profile is a Deployment's and whose servers are its pods."""
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": workload}
    return {"workloadRef": ref, "endpoint": {"pods": {"portName": "http"}}, **more}


def reason(found: Object, name: str) -> str:
    """Reason of an object's condition; empty where it has none."""
    conditions = found.get("status", {}).get("conditions", [])
    return next((str(each["reason"]) for each in conditions if each["type"] == name), "")


def message(found: Object, name: str) -> str:
    """Message of an object's condition; empty where it has none."""
    conditions = found.get("status", {}).get("conditions", [])
    return next((str(each["message"]) for each in conditions if each["type"] == name), "")


def answer(rollout: Object) -> tuple[str, str, str]:
    """Decision, promotion, rollback of a rollout."""
    told = rollout["status"]["decision"]
    return told["verdict"], told["promotion"], told["rollback"]


def cells_of(rollout: Object) -> list[CellMeasured]:
    """Every cell of a rollout in its evidence store, invalid ones included."""
    return _measured(store_address(rollout["status"]["evidence"]["store"]))


def _measured(where: StoreAddress) -> list[CellMeasured]:
    with read_store(where) as journal:
        return list(fold(journal.events()).measured.values())


def assert_nothing_twice(line: GatedLine, rollout: Object, struck: int = 0) -> None:
    """Every answer in the store is one that a server really gave, once. The candidate's servers were asked for no more
    than stands in the line's stores, but for `struck`: what was under way when the controller or a server was ended.
    A candidate that was promoted may be asked for its own floor at this moment: that is waited for."""
    stored = [cell.cell.request_id for cell in cells_of(rollout) if cell.cell.status is Status.OK]
    twice = [each for each in stored if stored.count(each) > 1]
    assert stored and not twice, twice
    given = {row["id"] for row in line.truth()}
    assert set(stored) <= given, set(stored) - given
    where = store_address(rollout["status"]["evidence"]["store"])

    def all_known() -> bool:
        asked = [row["id"] for row in line.truth(line.colours[1])]
        stores = sorted(where.parent.glob("*.db")) if isinstance(where, Path) else [where]
        try:
            known = {cell.cell.request_id for store in stores for cell in _measured(store)}
        except StoreError:
            return False  # one of them is only being made
        return len(set(asked) - known) <= struck

    line.until(all_known)


def _told(found: Object) -> list[str]:
    status = found.get("status", {})
    rows = [f"{found.get('kind', '')} {found['metadata']['name']}: {status.get('decision')}"]
    rows += [f"  {c['type']}={c['status']} {c['reason']}: {c['message']}" for c in status.get("conditions", [])]
    return rows


def _whole_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
