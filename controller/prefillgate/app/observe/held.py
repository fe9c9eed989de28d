"""What is held of the cluster: a reflector for each kind and namespace, and who belongs to whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prefillgate.app.observe.trims import Trim, controller, is_stub, stub
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock
from prefillgate.kube.errors import Forbidden, KubeError, NotFound, Unreachable
from prefillgate.kube.objects import Kind, Object, Query, key_of, namespace_of
from prefillgate.kube.reflector import Handlers, Pace, Reflector

Told = Callable[[str, str, Object | None, Object | None], None]  # kind, key, old, new


@dataclass(frozen=True, slots=True)
class Keeping:
    """What all reflectors have in common."""

    kube: Kube
    namespaces: tuple[str, ...]
    pace: Pace
    clock: Clock
    told: Told
    trouble: Callable[[str, KubeError], None] = lambda *_: None


class Interest:
    """The namespaces with lines: of what stands in others nothing is kept but names."""

    def __init__(self) -> None:
        self._lines: dict[str, set[str]] = {}

    def put(self, line: str, there: bool) -> None:
        """A line is there, or gone."""
        namespace = line.partition("/")[0]
        if there:
            self._lines.setdefault(namespace, set()).add(line)
        else:
            discard(self._lines, namespace, line)

    def __contains__(self, namespace: object) -> bool:
        return namespace in self._lines

    def all(self) -> set[str]:
        """All of them now."""
        return set(self._lines)


class Held:
    """The objects of one kind, in all namespaces or in those asked for.

    With an `interest` an object of another namespace is a stub. Once a namespace becomes one of interest its objects
    are listed again (`whole`), since what was left out of them comes by no watch.
    """

    def __init__(self, kind: Kind, trim: Trim, keeping: Keeping, interest: Interest | None = None) -> None:
        self.kind = kind
        self._keeping = keeping
        self._interest = interest
        self._whole: dict[str, Object] = {}  # by key, where the reflector has a stub
        self._known: set[str] = set()  # namespaces of which everything is held
        self._listing = asyncio.Lock()

        def kept(obj: Object) -> Object:
            return trim(obj) if interest is None or namespace_of(obj) in interest else stub(obj)

        def changed(key: str, old: Object | None, new: Object | None) -> None:
            keeping.told(kind.kind, key, self._whole.pop(key, old), new)

        def trouble(error: KubeError) -> None:
            keeping.trouble(kind.kind, error)

        self._trim = trim
        handlers = Handlers(changed=changed, trim=kept, trouble=trouble)
        spaces: tuple[str | None, ...] = keeping.namespaces or (None,)
        self._by_space = {
            each: Reflector(keeping.kube, Query(kind, each), handlers, keeping.pace, keeping.clock) for each in spaces
        }

    def get(self, namespace: str | None, name: str) -> Object | None:
        """The object as last seen, trimmed."""
        return self.at(f"{namespace}/{name}")

    def at(self, key: str) -> Object | None:
        """The same by key."""
        reflector = self._by_space.get(None) or self._by_space.get(key.partition("/")[0])
        found = None if reflector is None else reflector.get(key)
        return self._whole.get(key, found) if found is not None and is_stub(found) else found

    async def whole(self, namespace: str) -> None:
        """Have everything of a namespace, which is one of interest by now. Raises KubeError."""
        if self._interest is None or namespace in self._known or not self.synced:
            return
        async with self._listing:
            if namespace in self._known:
                return
            found = await self._keeping.kube.list(Query(self.kind, namespace), trim=self._trim)
            for obj in found.items:
                key = key_of(obj)
                stands = self.at(key)
                if stands is not None and is_stub(stands):
                    self._whole[key] = obj
                    self._keeping.told(self.kind.kind, key, stands, obj)
            self._known.add(namespace)

    def forget(self, namespace: str) -> None:
        """The namespace is one of interest no more."""
        self._known.discard(namespace)

    def keys(self) -> tuple[str, ...]:
        """Keys of all of them, in order."""
        return tuple(sorted(key_of(each) for each in self))

    def __iter__(self) -> Iterator[Object]:
        for reflector in self._by_space.values():
            yield from reflector

    @property
    def synced(self) -> bool:
        """Whether every first list is in."""
        return all(reflector.synced.is_set() for reflector in self._by_space.values())

    @property
    def refused(self) -> KubeError | None:
        """Why it never could be listed and will not be by waiting: RBAC, or the API server does not serve the kind."""
        return next(
            (
                each.trouble
                for each in self._by_space.values()
                if not each.synced.is_set() and isinstance(each.trouble, Forbidden | NotFound)
            ),
            None,
        )

    @property
    def trouble(self) -> KubeError | None:
        """The last failure of any, None where the last call of each succeeded."""
        return next((each.trouble for each in self._by_space.values() if each.trouble is not None), None)

    async def all_in(self) -> None:
        """Wait until every first list is in, however long that takes."""
        for reflector in self._by_space.values():
            await reflector.synced.wait()

    async def run(self) -> None:
        """Keep it, until cancelled."""
        if self._interest is not None:
            self._known = self._interest.all()  # the first list keeps all of these
        async with asyncio.TaskGroup() as group:
            for reflector in self._by_space.values():
                group.create_task(reflector.run())

    async def first(self, seconds: float) -> KubeError | None:
        """Wait for the first list: None once it is in, or why there is none (`refused`). Raises Unreachable where there
        is no answer after `seconds`."""
        until = asyncio.get_running_loop().time() + seconds
        while not self.synced:
            if self.refused is not None:
                return self.refused
            if asyncio.get_running_loop().time() >= until:
                said = self.trouble
                raise Unreachable(f"list {self.kind.plural}: {said if said is not None else 'no answer yet'}")
            await asyncio.sleep(0.05)
        return None


@dataclass(slots=True)
class Kin:
    """Who owns whom, by uid, of everything that is held."""

    _below: dict[str, set[tuple[str, str]]] = field(default_factory=dict)  # uid of the owner: kind and key
    _labelled: dict[str, set[str]] = field(default_factory=dict)  # namespace: keys of its pods

    def told(self, kind: str, key: str, old: Object | None, new: Object | None) -> None:
        """An object changed."""
        if old is not None:
            self._leave(kind, key, old)
        if new is not None:
            owner = controller(new)
            if owner is not None:
                self._below.setdefault(str(owner.get("uid")), set()).add((kind, key))
            if kind == "Pod" and not is_stub(new):
                self._labelled.setdefault(str(namespace_of(new)), set()).add(key)

    def _leave(self, kind: str, key: str, old: Object) -> None:
        owner = controller(old)
        if owner is not None:
            discard(self._below, str(owner.get("uid")), (kind, key))
        if kind == "Pod":
            discard(self._labelled, str(namespace_of(old)), key)

    def below(self, uid: str) -> set[tuple[str, str]]:
        """Kind and key of what an object owns directly."""
        return self._below.get(uid, set())

    def pods_in(self, namespace: str) -> set[str]:
        """Keys of the pods of a namespace."""
        return self._labelled.get(namespace, set())


def discard(where: dict[str, set[tuple[str, str]]] | dict[str, set[str]], key: str, what: object) -> None:
    """Take it out of the set of a key, and the set away with its last."""
    those = where.get(key)
    if those is not None:
        those.discard(what)
        if not those:
            del where[key]
