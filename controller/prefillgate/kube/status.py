"""Writing the status of our own objects: server-side apply, and nothing at all where nothing would change."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from prefillgate.kube.bodies import sendable
from prefillgate.kube.client import Kube
from prefillgate.kube.objects import Kind, Object, name_of, namespace_of, uid_of, version_of

REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class _Written:
    """Our last write of a status: what, onto which resourceVersion, and which one came of it."""

    status: Object
    read: str
    made: str


class StatusWriter:
    """Statuses by server-side apply on `/status` with our field manager: always the whole status, never a part."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._written: OrderedDict[str, _Written] = OrderedDict()

    async def write(self, kind: Kind, obj: Object, status: Object) -> Object | None:
        """Make `status` the status of `obj`, as last read. None where it is that already, else the object written.

        Raises Conflict where the object has changed since by anybody else: the status may be wrong for what it is now,
        or the name may have gone to another object, and no status may be inherited. Raises KubeError.
        """
        uid, status = uid_of(obj), sendable(status)
        if self._unchanged(uid, obj.get("status") or {}, status):
            return None
        last = self._written.get(uid)
        read = version_of(obj)
        # the copy that was read may not have heard yet of what we wrote onto it
        version = last.made if last is not None and last.read == read else read
        metadata = {"name": name_of(obj), "namespace": namespace_of(obj), "uid": uid, "resourceVersion": version}
        body = {"metadata": {key: value for key, value in metadata.items() if value}, "status": status}
        written = await self._kube.apply(kind, body, "status")
        self._written[uid] = _Written(status, read, version_of(written))
        self._written.move_to_end(uid)
        while len(self._written) > REMEMBERED:
            self._written.popitem(last=False)
        return written

    def is_behind(self, obj: Object) -> bool:
        """Whether a copy of an object has not heard yet of what we wrote onto it: what is planned from it was
        planned before."""
        last = self._written.get(uid_of(obj))
        return last is not None and last.read == version_of(obj) != last.made

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._written.pop(uid, None)

    def _unchanged(self, uid: str, now: Object, wanted: Object) -> bool:
        """Whether the status read is the one wanted, or that and fields of others.

        What was read may be older than what we wrote since, so that must have been the same.
        """
        ours = self._written.get(uid)
        if ours is None:
            return same(now, wanted)
        return ours.status == wanted and holds(now, wanted)


def same(one: Any, other: Any) -> bool:
    """Whether two statuses say the same. The order of lists whose items have a `type` (conditions) says nothing."""
    return holds(one, other) and holds(other, one)


def holds(whole: Any, part: Any) -> bool:
    """Whether everything in `part` stands in `whole` with the same value."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and holds(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        if not isinstance(whole, list):
            return False
        if part and all(isinstance(each, dict) and "type" in each for each in part):
            by_type = {each.get("type"): each for each in whole if isinstance(each, dict)}
            return all(each["type"] in by_type and holds(by_type[each["type"]], each) for each in part)
        return len(whole) == len(part) and all(holds(one, other) for one, other in zip(whole, part, strict=True))
    return type(whole) is type(part) and bool(whole == part)
