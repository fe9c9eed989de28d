"""A look at a line, out of what reflectors hold; and who must be looked at again when something changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from prefillgate.api.access import Access
from prefillgate.api.errors import PolicyError
from prefillgate.api.kinds.line_status import ContentsSeen
from prefillgate.api.kinds.names import PROFILE_ROLLOUT, PROMOTION_POLICY, REPLAY_SET, SERVING_LINE
from prefillgate.api.kinds.profile_rollout import ProfileRolloutSpec
from prefillgate.api.kinds.reading import read_spec
from prefillgate.api.kinds.replay_set_kind import ReplaySetSpec
from prefillgate.api.kinds.serving_line import ServingLineSpec
from prefillgate.app.observe.arms import Arms, Sorting
from prefillgate.app.observe.cases import Cases
from prefillgate.app.observe.concerned import Concerned
from prefillgate.app.observe.config import ConfigMaps
from prefillgate.app.observe.endpoints import forbidden_trouble
from prefillgate.app.observe.epochs import Epochs, PodsWay
from prefillgate.app.observe.held import Keeping, Kin
from prefillgate.app.observe.kinds import Kinds
from prefillgate.app.observe.memory import Wanted, evidence_of, remembered
from prefillgate.app.observe.policies import Policies, PolicyRead, standard
from prefillgate.app.observe.reach import Reach
from prefillgate.app.observe.secrets import Secrets
from prefillgate.app.observe.services import Services
from prefillgate.app.observe.settings import ObserveSettings
from prefillgate.app.observe.slots import Asked, SlotFound
from prefillgate.app.observe.stamps import Stamps
from prefillgate.app.observe.trims import same
from prefillgate.app.observe.troubles import of_spec, policy_trouble, set_trouble, support
from prefillgate.app.observe.workloads import Workloads
from prefillgate.app.seams import Leading, Observed, StatusWanted, Touched, Way, Works
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock, SystemClock
from prefillgate.kube.errors import KubeError
from prefillgate.kube.objects import (
    PROFILE_ROLLOUTS,
    PROMOTION_POLICIES,
    REPLAY_SETS,
    Object,
    metadata,
    name_of,
    uid_of,
)
from prefillgate.reconcile.naming import book_line
from prefillgate.reconcile.orphans import orphaned
from prefillgate.reconcile.override_words import is_new_in, keys_in_sight
from prefillgate.reconcile.policy_status import policy_status
from prefillgate.reconcile.replay_set_status import CasesSeen, replay_set_status
from prefillgate.reconcile.rereading import reread
from prefillgate.reconcile.roles import roles_of
from prefillgate.reconcile.snapshot import ArmSeen, LineSnapshot, ReplaySetSeen, RolloutSeen, Slot, Trouble
from prefillgate.replay.replay_set import ReplaySet

_LINE, _ROLLOUT, _POLICY, _SET = (each.kind for each in (SERVING_LINE, PROFILE_ROLLOUT, PROMOTION_POLICY, REPLAY_SET))
_OURS = (_LINE, _ROLLOUT, _POLICY, _SET)


class ClusterObserver:
    """Looks at lines in a cluster (`prefillgate.app.seams.Observer`). `trouble(kind, error)` is told why a kind cannot
    be listed or watched."""

    def __init__(
        self,
        kube: Kube,
        settings: ObserveSettings,
        clock: Clock | None = None,
        trouble: Callable[[str, KubeError], None] = lambda *_: None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._kin = Kin()
        keeping = Keeping(kube, settings.namespaces, settings.pace, self._clock, self._told, trouble)
        self._kinds = Kinds(keeping, self._synced)
        self._concerned = Concerned(self._kinds)
        self._secrets = Secrets(kube, self._clock)
        self._policies = Policies()
        self._config_maps = config_maps = ConfigMaps(kube, self._kinds["ConfigMap"], settings.seal_key, self._clock)
        seconds = settings.sync_seconds
        self._workloads = Workloads(self._kinds, self._kin, config_maps, settings.seal_key, seconds)
        self._sorting = Sorting(config_maps, Services(kube, self._kinds, self._clock, seconds))
        self._reach = Reach(settings.addresses, settings.probe, self._clock, self._line_touched)
        self._cases = Cases(
            kube,
            self._kinds["ConfigMap"],
            self._secrets,
            self._clock,
            settings.addresses,
            settings.replay_sets,
            self._set_read,
            seconds,
        )
        self._epochs = Epochs()
        self._touched: Touched = lambda *_: None
        self._refused: dict[str, set[str]] = {}  # kind: lines that were told that it cannot be listed
        self._later: dict[str, asyncio.TimerHandle] = {}  # lines that are looked at again though nothing changes
        self._stamps = Stamps(kube, self._clock, settings.stamped_seconds)

    # -- what changes

    async def run(self, touched: Touched) -> None:
        """Keep the reflectors, until cancelled. Only a bug raises."""
        self._touched = touched
        try:
            await self._kinds.run()
        finally:
            for each in self._later.values():
                each.cancel()
            self._reach.close()
            self._cases.close()

    def synced(self) -> bool:
        """Whether every kind has had its first list, or was refused one."""
        return all(held.synced or held.refused is not None for held in self._kinds.always.values())

    def keys(self, kind: str) -> tuple[str, ...]:
        """Keys of all objects of a kind that is always held."""
        return self._kinds[kind].keys()

    def lines_of(self, kind: str, key: str) -> tuple[str, ...]:
        """Keys of the lines that an object is of, as far as it is known."""
        obj = next((found for held in self._kinds.named(kind) if (found := held.at(key)) is not None), None)
        return tuple(sorted(self._concerned.of(kind, key, obj)))

    def _told(self, kind: str, key: str, old: Object | None, new: Object | None) -> None:
        """A reflector saw a change."""
        self._kin.told(kind, key, old, new)
        if same(old, new):
            return
        before = self._concerned.of(kind, key, old) if old is not None else set()
        if kind == _LINE:
            self._kinds.interest.put(key, new is not None)
        if kind in _OURS:
            self._concerned.told(kind, key, new)
            self._kinds.want(self._concerned.named())
            self._touched(kind, key)
        for each in self._policies.judging(key) if kind == _LINE else ():
            if (_POLICY, each) not in self._concerned.lines.things_of(key):
                self._policies.leave(each, key)
                self._touched(_POLICY, each)
        if new is None:
            self._forget(kind, key)
        lines = before | self._concerned.of(kind, key, new)
        if kind == "Pod":
            self._epochs.pod_changed(lines, old, new)
        if kind == "ConfigMap":
            self._config_maps.told(key, new)
            for each in self._concerned.sets.who((kind, key)):
                self._touched(_SET, each)
        for line in sorted(lines):
            self._line_touched(line)

    def _forget(self, kind: str, key: str) -> None:
        if kind == _LINE:
            self._reach.keep(key, set())
            self._epochs.forget(key)
            namespace = key.partition("/")[0]
            for held in self._kinds.always.values() if namespace not in self._kinds.interest else ():
                held.forget(namespace)
        elif kind == _POLICY:
            self._policies.forget(key)
        elif kind == _SET:
            self._cases.forget(key)

    def _line_touched(self, line: str) -> None:
        self._touched(_LINE, line)

    def _look_later(self, line: str) -> None:
        """Secrets and Services are not watched, and who cannot be reached may be by another key."""
        if line not in self._later:
            loop = asyncio.get_running_loop()
            self._later[line] = loop.call_later(self._settings.again_seconds, self._look_again, line)

    def _look_again(self, line: str) -> None:
        del self._later[line]
        self._line_touched(line)

    def _set_read(self, key: str) -> None:
        self._touched(_SET, key)

    def _synced(self, kind: str) -> None:
        for line in sorted(self._refused.pop(kind, ())):
            self._line_touched(line)

    # -- looking

    async def look(self, key: str, works: Works, leading: Leading) -> Observed | None:
        """The line as it is now; None where there is none. Raises KubeError, StoreFenced."""
        await self._kinds[_LINE].first(self._settings.sync_seconds)
        line = self._kinds[_LINE].at(key)
        if line is None:
            return None
        self._epochs.tell(works)
        spec, problems = read_spec(ServingLineSpec, line)
        rollouts = self._rollouts(key)
        new_override = any(is_new_in(thing) for thing in (line, *(each.thing for each in rollouts)))
        snapshot = LineSnapshot(
            self._clock.now(),
            line,
            spec,
            problems,
            rollouts=rollouts,
            works=works.seen(uid_of(line)),
            actors_stamped=new_override and await self._stamps.in_force(),
        )
        observed = Observed(snapshot) if spec is None else await self._whole(key, spec, Observed(snapshot))
        return await self._with_book(observed, leading)

    async def _whole(self, key: str, spec: ServingLineSpec, observed: Observed) -> Observed:
        """What a spec that can be read refers to."""
        asked = Asked(key.partition("/")[0], spec)
        troubles = list(of_spec(spec, self._settings.database))
        policy, wrong = await self._policy(asked)
        troubles += wrong
        replay_set, wrong = await self._replay_set(asked)
        troubles += wrong
        wrong = await self._beside(key, asked, policy, replay_set)
        if wrong:
            policy, troubles = None, [*troubles, *wrong]
        troubles += await self._support(key, spec)
        await self._kinds.whole(asked.namespace)
        self._config_maps.recall(asked.namespace, (observed.snapshot.line.get("status") or {}).get("configMaps"))
        slots = [await self._workloads.slot(asked, slot) for slot in asked.slots]
        for each in slots:
            self._concerned.learn(key, each.uses)
            troubles += each.troubles
            missing = await self._sorting.trouble(each)
            troubles += () if missing is None else (missing,)
        told = tuple(each.told for each in slots if each.told is not None)
        reading = self._workloads.reading(spec)
        line, _ = reread(observed.snapshot.line, observed.snapshot.rollouts, told, reading)
        status = line.get("status") or {}
        roles = roles_of(status, told)
        found = await self._sorting.arms(status, roles, slots)
        used = None if roles.candidate is not None else found.slots.values()
        resting = [
            (each.slot, await self._sorting.as_written(each)) for each in slots if used and each.slot not in used
        ]
        arms, ways, wrong = await self._arms(key, asked, replace(found, resting=tuple(resting)))
        self._epochs.put(key, [way for each in slots if (way := _pods_way(each)) is not None])
        document = None if policy is None else policy.document
        snapshot = replace(
            observed.snapshot,
            now=self._clock.now(),
            reading=reading,
            troubles=(*troubles, *wrong),
            policy=None if policy is None else policy.seen,
            replay_set=None if replay_set is None else _set_seen(asked.spec, replay_set),
            slots=told,
            config_maps=self._contents(asked.namespace, slots),
            roles=roles,
            baseline=arms.baseline,
            candidate=arms.candidate,
            resting=arms.resting,
        )
        return Observed(snapshot, document, replay_set, ways)

    def _contents(self, namespace: str, slots: Sequence[SlotFound]) -> tuple[ContentsSeen, ...] | None:
        """What stands in the ConfigMaps of a line; None while not every slot can be read."""
        keys = {key for each in slots for kind, key in each.uses if kind == "ConfigMap"}
        names = (key.partition("/")[2] for key in keys)
        return None if any(each.profile is None for each in slots) else self._config_maps.seen(namespace, names)

    async def _arms(self, key: str, asked: Asked, found: Arms) -> tuple[Arms, Mapping[str, Way], list[Trouble]]:
        """The arms with what is known of the way to their servers."""
        access, wrong = await self._access(asked)
        troubles = dict.fromkeys(wrong)
        ways: dict[str, Way] = {}
        known: set[str | None] = set()  # addresses: those of two slots may be one, and are asked in one way

        def asked_by(slot: Slot, arm: ArmSeen) -> ArmSeen:
            known.update(each.url for each in arm.servers)
            reached = self._reach.seen(key, arm, access[slot])
            if reached.forbidden is not None:
                troubles[forbidden_trouble(slot, asked.arm(slot).endpoint, reached.forbidden)] = None
            return reached.arm

        arms: list[ArmSeen | None] = []
        for arm in (found.baseline, found.candidate):
            if arm is None:
                arms.append(None)
                continue
            slot = found.slots[arm.digest]
            ways[arm.digest] = Way(slot, access[slot], asked.spec.engine, asked.spec.model)
            arms.append(asked_by(slot, arm))
        resting = []
        for slot, arm in found.resting:
            others = tuple(each for each in arm.servers if each.url not in known)
            resting.append((slot, asked_by(slot, replace(arm, servers=others))))
        servers = [each for arm in (found.baseline, found.candidate) if arm is not None for each in arm.servers]
        self._reach.keep(key, {url for url in known if url is not None})
        self._epochs.seen(servers)
        if troubles or any(arm is not None and arm.unreachable is not None for arm in (*arms, *dict(resting).values())):
            self._look_later(key)
        return Arms(arms[0], arms[1], found.slots, tuple(resting)), ways, list(troubles)

    async def _access(self, asked: Asked) -> tuple[dict[Slot, Access], list[Trouble]]:
        """How the servers of each slot are asked."""
        rules = replace(self._settings.addresses, tenant=asked.namespace)
        access: dict[Slot, Access] = {}
        troubles: list[Trouble] = []
        for slot in asked.slots:
            secret, wrong = await self._secrets.access(asked.namespace, asked.arm(slot), f"spec.{slot}")
            access[slot] = replace(secret, addresses=rules)  # of probes and replays alike
            troubles += wrong
        return access, troubles

    async def _support(self, key: str, spec: ServingLineSpec) -> list[Trouble]:
        """What of the objects around workloads the controller may not list."""
        troubles = []
        for kind, trouble in support(spec, self._kinds.always):
            refused = await self._kinds[kind].first(self._settings.sync_seconds)
            if refused is not None:
                self._refused.setdefault(kind, set()).add(key)
                troubles.append(trouble)
        for arm in (spec.baseline, spec.candidate_arm):
            if arm.workload_ref is not None:  # looked for again once it is served and may be listed
                self._refused.setdefault(arm.workload_ref.kind, set()).add(key)
        return troubles

    async def _policy(self, asked: Asked) -> tuple[PolicyRead | None, list[Trouble]]:
        ref = asked.spec.policy_ref
        if ref is None:
            return standard(), []
        await self._kinds[_POLICY].first(self._settings.sync_seconds)
        thing = self._kinds[_POLICY].get(asked.namespace, ref.name)
        if thing is None:
            return None, [policy_trouble(ref.name, asked.namespace, None)]
        read = self._policies.read(f"{asked.namespace}/{ref.name}", thing)
        if read.error is not None:
            return None, [policy_trouble(ref.name, asked.namespace, read.error)]
        return read, []

    async def _beside(
        self, line: str, asked: Asked, policy: PolicyRead | None, replay_set: ReplaySet | None
    ) -> list[Trouble]:
        """What only a policy and a replay set together can tell, as a run would find it."""
        ref, document = asked.spec.policy_ref, None if policy is None else policy.document
        if ref is None or document is None or replay_set is None:
            return []
        key = f"{asked.namespace}/{ref.name}"
        wrong, is_new = await self._policies.beside(key, line, document, replay_set)
        if is_new:
            self._touched(_POLICY, key)
        return [policy_trouble(ref.name, asked.namespace, PolicyError(*wrong))] if wrong else []

    async def _replay_set(self, asked: Asked) -> tuple[ReplaySet | None, list[Trouble]]:
        name = asked.spec.replay_set_ref.name
        await self._kinds[_SET].first(self._settings.sync_seconds)
        thing = self._kinds[_SET].get(asked.namespace, name)
        if thing is None:
            return None, [set_trouble(name, asked.namespace, None)]
        spec, problems = read_spec(ReplaySetSpec, thing)
        if spec is None:
            wrong = Trouble("ReplaySetNotAccepted", problems[0].field, problems[0].message)
            return None, [set_trouble(name, asked.namespace, wrong)]
        read = await self._cases.read(thing, spec)
        if read.trouble is not None:
            return None, [set_trouble(name, asked.namespace, read.trouble)]
        return read.replay_set, []

    async def _with_book(self, observed: Observed, leading: Leading) -> Observed:
        snapshot = observed.snapshot
        promoted, replay_set = snapshot.roles.promoted, snapshot.replay_set
        floor_of = None if promoted is None or replay_set is None else (promoted, replay_set.sha256)
        overrides = keys_in_sight([snapshot.line, *(each.thing for each in snapshot.rollouts)])
        stores = evidence_of(snapshot, self._settings.store)
        book = await remembered(leading.book, book_line(snapshot.line), Wanted(floor_of, tuple(overrides), stores))
        return replace(observed, snapshot=replace(snapshot, book=book))

    async def look_orphans(self, key: str) -> tuple[StatusWanted, ...]:
        """Rollouts that name a line which is not there. One that had it for its owner is about to go itself."""
        own = [each for each in self._rollouts(key) if not metadata(each.thing).get("ownerReferences")]
        wanted = [(each.thing, orphaned(each, self._clock.now())) for each in own]
        return tuple(
            StatusWanted(
                PROFILE_ROLLOUTS, thing, said.status.model_dump(by_alias=True, exclude_none=True), events=said.events
            )
            for thing, said in wanted
            if said is not None
        )

    def _rollouts(self, line: str) -> tuple[RolloutSeen, ...]:
        """Those of the line, oldest first."""
        found = (self._kinds[_ROLLOUT].at(key) for key in self._concerned.rollouts.who((_LINE, line)))
        things = sorted((each for each in found if each is not None), key=_age)
        return tuple(RolloutSeen(thing, *read_spec(ProfileRolloutSpec, thing)) for thing in things)

    # -- policies and replay sets by themselves

    async def look_policy(self, key: str) -> StatusWanted | None:
        """What the status of a PromotionPolicy should say; None where there is none. Raises KubeError."""
        thing = self._kinds[_POLICY].at(key)
        if thing is None:
            return None
        read = self._policies.read(key, thing)
        problems = self._policies.by_itself(key, read)
        seen = None if problems else read.seen
        return StatusWanted(PROMOTION_POLICIES, thing, policy_status(thing, seen, problems, self._clock.now()))

    async def look_replay_set(self, key: str) -> StatusWanted | None:
        """What the status of a ReplaySet should say; None where there is none. Raises KubeError."""
        thing = self._kinds[_SET].at(key)
        if thing is None:
            return None
        spec, problems = read_spec(ReplaySetSpec, thing)
        found, again = CasesSeen(problems=problems), None
        if spec is not None:
            read = await self._cases.read(thing, spec)
            seen = None if read.replay_set is None else _seen(name_of(thing), read.replay_set)
            found, again = CasesSeen(seen, trouble=read.trouble), read.again_seconds(spec)
        return StatusWanted(REPLAY_SETS, thing, replay_set_status(thing, found, self._clock.now()), again)


def _pods_way(found: SlotFound) -> PodsWay | None:
    endpoint = found.arm.endpoint.pods
    return None if endpoint is None else PodsWay(endpoint, found.container)


def _set_seen(spec: ServingLineSpec, found: ReplaySet) -> ReplaySetSeen:
    return _seen(spec.replay_set_ref.name, found)


def _seen(name: str, found: ReplaySet) -> ReplaySetSeen:
    return ReplaySetSeen(name, found.sha256, len(found.cases))


def _age(thing: Object) -> tuple[str, str]:
    return str(metadata(thing).get("creationTimestamp")), name_of(thing)
