"""A serving line in memory: objects, servers, replays and the book, as the controller's shell would have them.

`look` is what the shell would see, `carry_out` does what a plan asks for, one effect after the other, and can be killed
between any two of them. Nothing here decides anything.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from prefillgate.api.kinds.common import TemplateSeen
from prefillgate.api.kinds.moments import moment
from prefillgate.api.kinds.profile_rollout import ProfileRolloutSpec
from prefillgate.api.kinds.reading import read_spec
from prefillgate.api.kinds.serving_line import ServingLineSpec
from prefillgate.api.policy_model import PolicySpec
from prefillgate.core.decision import Reason
from prefillgate.core.verdict import ArmCounts, Decision, Outcome, Promotion, ReplicateView, Rollback, Verdict
from prefillgate.evidence.book_rows import Fate, Floor, HandledOverride, Notice, Watch
from prefillgate.profiles import Part, Profile, Setting
from prefillgate.reconcile import effects as act
from prefillgate.reconcile.effects import Effect, Plan, StartWork, Tell
from prefillgate.reconcile.naming import book_line
from prefillgate.reconcile.plan import plan
from prefillgate.reconcile.rereading import reread
from prefillgate.reconcile.roles import roles_of
from prefillgate.reconcile.snapshot import (
    ArmSeen,
    BookSeen,
    FloorFound,
    LineSnapshot,
    PolicySeen,
    ReplaySetSeen,
    RolloutSeen,
    ServerSeen,
    Slot,
    SlotProfile,
    Trouble,
    WatchFound,
    WorkKind,
    WorkSeen,
    WorkState,
)
from tests.support import verdicts

CRITERIA = PolicySpec.model_validate({"marginPercent": 10})
START = 1_796_000_000.0
CASES, POLICY = "c" * 64, "d" * 64
STANDARD = PolicySeen("standard", POLICY, CRITERIA, (32, 56, 75), 200)
TWELVE = ReplaySetSeen("cases", CASES, 12)
SOUND = FloorFound(True, "Both passes agree.", 24, 0, 0.031, 12, 12)
SPEC: dict[str, Any] = {
    "baseline": {
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "old"},
        "endpoint": {"pods": {"port": 8080}},
    },
    "candidate": {
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "new"},
        "endpoint": {"pods": {"port": 8080}},
    },
    "replaySetRef": {"name": "cases"},
}


class Killed(Exception):
    """The process is no more."""


def profile(split: str, image: str = "1", resolved: bool = True) -> Profile:
    """A profile that differs from another one in its tensor split."""
    named = Setting("build", "image", "image", "server", "image", written="server")
    known = replace(named, value=f"server@sha256:{image}", digested=f"sha256:{image}")
    settings = (
        Setting("layer placement", "tensor-split", "tensor split", split, "args"),
        known if resolved else named,
    )
    marks = (f"template 0f3a9c21-{split}", *([f"image server {image}"] if resolved else []))
    return Profile((Part("pod", "llama-server", "server", "", settings, resolved=resolved),), marks=marks)


A, B, C = profile("3,1"), profile("2,2"), profile("1,3")


def counts(prefills: int, bad: int = 0) -> ArmCounts:
    """One arm, every request a fresh prefill."""
    return ArmCounts(prefills, prefills, prefills, 0, 0, 0, 0, bad, bad, bad, None, None)


def verdict(
    outcome: Outcome = Outcome.HOLD,
    reason: str = "MoreEvidenceNeeded",
    prefills: int = 1,
    bad: int = 0,
    **more: Any,
) -> Verdict:
    """A verdict as a replay tells it."""
    decision = Decision(
        outcome,
        Promotion.ALLOWED if outcome is Outcome.PROMOTE else Promotion.BLOCKED,
        Rollback.ALLOWED if outcome is Outcome.ROLLBACK else Rollback.REFUSED,
        reason,
        (f"{reason} is why.",),
        measured=more.pop("measured", True),
    )
    own: dict[str, Any] = {
        "baseline": counts(prefills),
        "candidate": counts(prefills, bad),
        "prefills_used": 2 * prefills,
    }
    return verdicts.build(decision, **(own | more))


PROMOTES = verdict(Outcome.PROMOTE, Reason.ACCEPTANCE_REACHED, 32)
ROLLS_BACK = verdict(
    Outcome.ROLLBACK,
    Reason.REGRESSION_CONFIRMED,
    20,
    8,
    replicates=(ReplicateView(1, 40.0, "confirmed", 8, 6, (), 52.0, "gap"),),
)
HOLDS = verdict(Outcome.HOLD, Reason.BUDGET_SPENT, 80, 3)
LOST = verdict(Outcome.HOLD, Reason.MEASUREMENT_LOST, 3, measured=False)


def replicate(number: int = 1, ending: str | None = None) -> ReplicateView:
    """A replicate of a verdict."""
    return ReplicateView(number, 40.0, ending, 8, 2, (), 3.0, "gap")


@dataclass
class World:
    """A line, and all that is around it."""

    spec: dict[str, Any] = field(default_factory=lambda: copy.deepcopy(SPEC))
    name: str = "chat"
    now: float = START
    slots: dict[Slot, Profile] = field(default_factory=lambda: {Slot.BASELINE: A, Slot.CANDIDATE: A})
    down: dict[str, ArmSeen] = field(default_factory=dict)  # by digest, where it is not simply there
    resting: tuple[tuple[Slot, ArmSeen], ...] = ()
    templates: dict[Slot, TemplateSeen] = field(default_factory=dict)
    troubles: tuple[Trouble, ...] = ()
    policy: PolicySeen | None = STANDARD
    cases: ReplaySetSeen | None = TWELVE
    floor: FloorFound = SOUND
    watch: WatchFound | None = None
    store_trouble: str | None = None
    answers: list[Verdict] = field(default_factory=list)  # what the next replays of rollouts come to

    def __post_init__(self) -> None:
        self.line: dict[str, Any] = {
            "apiVersion": "prefillgate.io/v1alpha1",
            "kind": "ServingLine",
            "metadata": {"name": self.name, "namespace": "team", "uid": "line-uid", "generation": 1},
            "spec": self.spec,
        }
        self.rollouts: dict[str, dict[str, Any]] = {}
        self.works: dict[str, WorkSeen] = {}
        self.journals: dict[str, WorkSeen] = {}  # what stands in stores, by key: works come back from it
        self.fates: dict[tuple[str, str, str], Fate] = {}
        self.floors: dict[tuple[str, str], Floor] = {}
        self.watches: dict[str, Watch] = {}
        self.notices: dict[str, Notice] = {}
        self.overrides: dict[str, HandledOverride] = {}
        self.gone: set[str] = set()  # rollouts whose evidence was lost
        self.events: list[Tell] = []
        self.reading: str | None = None
        self.told: set[tuple[str | None, str]] = set()
        self.done: list[Effect] = []
        self.started: list[StartWork] = []
        self.writes: list[tuple[str, dict[str, Any]]] = []
        self._uids = itertools.count(1)

    # -- seeing

    def look(self) -> LineSnapshot:
        """What the shell sees now."""
        spec, problems = read_spec(ServingLineSpec, self.line)
        slots = tuple(SlotProfile(slot, each, self.templates.get(slot)) for slot, each in self.slots.items())
        rollouts = tuple(self._rollouts())
        line, _ = reread(dict(self.line), rollouts, slots, self.reading)
        roles = roles_of(line.get("status", {}), slots)
        baseline = None if roles.promoted is None else self.arm(roles.promoted)
        candidate = None if roles.candidate is None else self.arm(roles.candidate.profile.digest)
        floor = (
            None
            if roles.promoted is None or self.cases is None
            else self.floors.get((roles.promoted, self.cases.sha256))
        )
        return LineSnapshot(
            now=self.now,
            line=dict(self.line),
            reading=self.reading,
            spec=spec,
            problems=problems,
            troubles=self.troubles,
            policy=self.policy,
            replay_set=self.cases,
            slots=slots if spec is not None else (),
            roles=roles,
            baseline=baseline,
            candidate=candidate,
            resting=self.resting,
            rollouts=rollouts,
            works=tuple(self.works.values()),
            book=self._book(floor),
            actors_stamped=True,
        )

    def arm(self, digest: str) -> ArmSeen:
        """The servers of a profile."""
        server = ServerSeen("pod-1", "http://10.88.0.1:8080", True, "epoch-1")
        return self.down.get(digest, ArmSeen(digest, (server,)))

    def _book(self, floor: Floor | None) -> BookSeen:
        if self.store_trouble is not None:
            return BookSeen(trouble=self.store_trouble)
        handled = frozenset(key for key, each in self.overrides.items() if each.done_at is not None)
        line = book_line(self.line)
        notices = tuple(sorted(self.notices.values(), key=lambda each: (each.made_at, each.key))[-20:])
        seen = BookSeen(tuple(self.fates.values()), floor, self.watches.get(line), notices, handled)
        return replace(seen, gone=frozenset(self.gone))

    def _rollouts(self) -> Iterator[RolloutSeen]:
        for thing in self.rollouts.values():
            spec, problems = read_spec(ProfileRolloutSpec, thing)
            yield RolloutSeen(dict(thing), spec, problems)

    # -- doing

    def carry_out(self, wanted: Plan, at_most: int | None = None) -> int:
        """Do what a plan asks for, in its order; killed after `at_most` steps. How many there were."""
        steps: list[Callable[[], None]] = [lambda each=each: self._do(each) for each in wanted.before]  # type: ignore[misc]
        for name, status in wanted.rollouts.items():
            steps.append(lambda name=name, status=status: self._write(name, status))  # type: ignore[misc]
        steps.append(lambda: self._write(None, wanted.line))
        steps += [lambda each=each: self._do(each) for each in wanted.after]  # type: ignore[misc]
        for number, step in enumerate(steps):
            if at_most is not None and number >= at_most:
                raise Killed
            step()
        return len(steps)

    def _write(self, name: str | None, status: Any) -> None:
        told = status.model_dump(by_alias=True, exclude_none=True)
        type(status).model_validate(told)  # what an API server would refuse
        thing = self.line if name is None else self.rollouts.get(name)
        if thing is not None and thing.get("status") != told:
            thing["status"] = told
            self.writes.append((name or self.name, told))

    def _do(self, effect: Effect) -> None:
        self.done.append(effect)
        match effect:
            case act.StartWork():
                self._start(effect)
            case act.StopWork(key):
                self.works.pop(key, None)
            case act.CreateRollout(body):
                self._create(dict(body))
            case act.DeleteRollout(name):
                self.rollouts.pop(name, None)
            case act.KeepFate(fate):
                self.fates.setdefault((fate.digest, str(fate.outcome), fate.rollout), fate)
            case act.KeepFloor(floor):
                self.floors[floor.baseline, floor.replay_set_sha256] = floor
            case act.KeepWatch(watch):
                self.watches[watch.line] = watch
            case act.EndWatch(line):
                self.watches.pop(line, None)
            case act.KeepNotice(notice):
                self.notices.setdefault(notice.key, notice)
            case act.NoticeTold(key):
                self.notices[key] = replace(self.notices[key], sent_at=self.now)
            case act.TakeOverride(override):
                self.overrides.setdefault(override.key, override)
            case act.OverrideDone(key, answer):
                self.overrides[key] = replace(self.overrides[key], done_at=self.now, answer=answer)
            case act.Tell():
                if (effect.rollout, effect.once) not in self.told:
                    self.told.add((effect.rollout, effect.once))
                    self.events.append(effect)

    def _create(self, body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        assert len(name) <= 63
        if name in self.rollouts:
            return
        thing = copy.deepcopy(body)
        thing["metadata"] |= {"uid": f"uid-{next(self._uids)}", "generation": 1, "creationTimestamp": moment(self.now)}
        spec, problems = read_spec(ProfileRolloutSpec, thing)
        assert spec is not None, problems
        self.rollouts[name] = thing

    def by_hand(self, name: str, **spec: Any) -> dict[str, Any]:
        """A rollout that a person makes."""
        self._create(
            {
                "apiVersion": "prefillgate.io/v1alpha1",
                "kind": "ProfileRollout",
                "metadata": {"name": name, "namespace": "team"},
                "spec": {"lineRef": {"name": self.name}, **spec},
            }
        )
        return self.rollouts[name]

    def _start(self, order: StartWork) -> None:
        known = self.works.get(order.key)
        if known is not None and known.state is WorkState.RUNNING:
            return  # it goes on with the servers seen now
        self.started.append(order)
        kept = self.journals.get(order.key)
        if kept is not None:
            self.works[order.key] = kept
            return
        self.works[order.key] = WorkSeen(
            order.key,
            order.kind,
            WorkState.RUNNING,
            self.now,
            run=order.key,
            store="file",
            rows=1,
            head="h1",
            standstill=None if known is None else known.standstill,
        )

    # -- what happens

    def ends(self, kind: WorkKind, **found: Any) -> WorkSeen:
        """The replay of a kind that runs comes to its end."""
        work = next(each for each in self.works.values() if each.kind is kind and each.state is WorkState.RUNNING)
        ended = replace(work, state=WorkState.ENDED, ended_at=self.now, rows=work.rows + 40, head="h41", **found)
        self.works[work.key] = self.journals[work.key] = ended
        return ended

    def comes_to(self, so_far: Verdict, **more: Any) -> None:
        """The replay of a rollout has come so far."""
        *_, work = (each for each in self.works.values() if each.kind is WorkKind.JUDGE)
        self.works[work.key] = self.journals[work.key] = replace(work, verdict=so_far, rows=work.rows + 10, **more)

    def restart(self) -> None:
        """The process is another one: what ran is known by its journal alone."""
        self.works.clear()

    def step(self) -> Plan:
        """One look, carried out."""
        wanted = plan(self.look())
        self.carry_out(wanted)
        return wanted

    def settle(self, most: int = 12) -> Plan:
        """Looks until nothing changes any more, a second after the other."""
        for _ in range(most):
            before = self._state()
            wanted = self.step()
            self.now += 1
            if self._state() == before:
                return wanted
        raise AssertionError(f"it does not settle: {self.writes[-2:]}")

    def _state(self) -> Any:
        held = (self.works, self.fates, self.floors, self.watches, self.notices, self.overrides)
        return len(self.writes), len(self.events), tuple(self.rollouts), tuple(dict(each) for each in held)

    def copy(self) -> World:
        """The same world once more. What stands in it is replaced and never changed, but for the objects' fields."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | list | set):
                setattr(other, name, copy.copy(value))
        other.rollouts = {name: dict(thing) for name, thing in self.rollouts.items()}
        other._uids = copy.copy(self._uids)
        return other

    def annotate(self, rollout: str | None = None, **annotations: str | None) -> World:
        """`kubectl annotate`, on the line or on a rollout; None takes one away. Names have no prefix, `_` for `-`."""
        thing = self.line if rollout is None else self.rollouts[rollout]
        told = dict(thing["metadata"].get("annotations", {}))
        for name, value in annotations.items():
            told[f"prefillgate.io/{name.replace('_', '-')}"] = value
        thing["metadata"] = {**thing["metadata"], "annotations": {k: v for k, v in told.items() if v is not None}}
        return self

    def change(self, **spec: Any) -> World:
        """Another spec of the line: None takes a field away."""
        changed = {**self.line["spec"], **spec}
        self.line["spec"] = {key: value for key, value in changed.items() if value is not None}
        self.line["metadata"] = {**self.line["metadata"], "generation": self.line["metadata"]["generation"] + 1}
        return self

    def ready(self) -> World:
        """The line was looked at, and its floor is known."""
        self.settle()
        self.ends(WorkKind.FLOOR, floor=self.floor)
        self.settle()
        return self

    def propose(self, wanted: Profile, slot: Slot = Slot.CANDIDATE) -> World:
        """A workload has another profile, and the line was looked at."""
        self.slots[slot] = wanted
        self.settle()
        return self

    def judge(self, final: Verdict) -> World:
        """The rollout's replay ends."""
        self.ends(WorkKind.JUDGE, verdict=final)
        self.settle()
        return self

    # -- asking

    @property
    def status(self) -> dict[str, Any]:
        """The line's status."""
        return dict(self.line["status"])

    def condition(self, kind: str, rollout: str | None = None) -> tuple[str, str]:
        """Status and reason of a condition of the line, or of a rollout."""
        thing = self.line if rollout is None else self.rollouts[rollout]
        found = {each["type"]: (each["status"], each["reason"]) for each in thing["status"]["conditions"]}
        return found[kind]

    def told_reasons(self, rollout: str | None = None) -> list[str]:
        """Reasons of the events of the line, or of a rollout, in their order."""
        return [each.reason for each in self.events if each.rollout == rollout]

    def of(self, name: str) -> dict[str, Any]:
        """The status of a rollout."""
        return dict(self.rollouts[name]["status"])

    @property
    def newest(self) -> str:
        """The rollout that was made last."""
        return list(self.rollouts)[-1]
