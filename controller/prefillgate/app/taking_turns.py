"""A rollout whose two profiles do not fit at once: one of them at a time, inside the windows of its line.

The place of one replica moves between the two workloads: the one that rests has a replica less than it had, the one
whose turn it is has at least one. What was there before is put back when the window closes, at the end, and after a
kill (`app.scaling`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from prefillgate.api.kinds.arms import Arm, Endpoint
from prefillgate.app.epochs import Epochs
from prefillgate.app.holds import Holds, how_to_allow
from prefillgate.app.observe.pods import is_ready, server_of
from prefillgate.app.orders import Asked, NoWindow, Unusable, short
from prefillgate.app.scaling import KINDS, Noted, Scaling, line_ref, newest_ready
from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE
from prefillgate.core.stored_baseline import SECONDS_A_DAY
from prefillgate.kube.errors import Forbidden, KubeError
from prefillgate.kube.objects import Object, Ref, uid_of
from prefillgate.reconcile.snapshot import ArmSeen, ServerSeen, Slot
from prefillgate.reconcile.windows import Opening, next_opening, open_at
from prefillgate.replay.clock import Clock
from prefillgate.replay.session import RunRequest
from prefillgate.replay.swapping import SwapFailed, SwapOrder

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Workload:
    """What runs one arm. `url` is where it is asked where that does not come and go with its pods."""

    ref: Ref
    endpoint: Endpoint
    container: str
    url: str | None


def workloads_of(asked: Asked) -> dict[str, Workload]:
    """By arm. Raises `Unusable` for a line whose workloads cannot be scaled."""
    return {arm: _workload(asked, arm) for arm in ARMS}


def _workload(asked: Asked, arm: str) -> Workload:
    digest = asked.digests[arm]
    way = asked.observed.ways.get(digest)
    if way is None:
        raise Unusable(f"nothing tells how the servers of {short(digest)} are asked")
    spec: Arm = asked.spec.baseline if way.slot is Slot.BASELINE else asked.spec.candidate_arm
    ref = spec.workload_ref
    if ref is None or ref.kind not in KINDS:
        raise Unusable(f"spec.{way.slot}.workloadRef cannot be scaled (allowed: {', '.join(KINDS)})")
    namespace = str(asked.snapshot.line["metadata"]["namespace"])
    slot = next((each for each in asked.snapshot.slots if each.slot is way.slot), None)
    container = slot.profile.parts[0].container if slot is not None else ref.container or ""
    where = _fixed_url(asked, digest, spec.endpoint)
    return Workload(Ref(KINDS[ref.kind], ref.name, namespace), spec.endpoint, container, where)


def _fixed_url(asked: Asked, digest: str, endpoint: Endpoint) -> str | None:
    if endpoint.pods is not None:
        return None
    arms: list[ArmSeen] = [arm for arm in (asked.snapshot.baseline, asked.snapshot.candidate) if arm is not None]
    urls = [server.url for arm in arms if arm.digest == digest for server in arm.servers if server.url is not None]
    if endpoint.url is None and not urls:
        raise SwapFailed(f"nothing tells the address of the Service of {short(digest)} yet")
    return endpoint.url or urls[0]


@dataclass(slots=True)
class ScalingHand:
    """Swaps by scaling. `look` tells where each arm is before the first swap."""

    asked: Asked
    holds: Holds
    epochs: Epochs
    workloads: dict[str, Workload]
    say: Callable[[str], None]
    how: str = "scaling"
    keeps_word: bool = True
    asks_again: bool = False
    patience_seconds: float | None = 600.0
    old_life_seconds: float = 30.0
    _servers: dict[str, ServerSeen | None] = field(default_factory=dict)

    @property
    def scaling(self) -> Scaling:
        """What scales."""
        return self.holds.scaling

    def address(self, arm: str) -> str | None:
        """Where the arm's server is now; None where none of it is up."""
        server = self._servers.get(arm)
        return None if server is None else server.url

    async def look(self) -> None:
        """Which servers are up. Raises `SwapFailed`."""
        for arm, workload in self.workloads.items():
            pods = await self._asked_of(lambda each=workload: self.scaling.pods(each.ref))  # type: ignore[misc]
            self._meet(arm, newest_ready(pods))

    async def swap(self, order: SwapOrder) -> None:
        """Put up the arm, the other one having made room. Raises `SwapFailed`."""
        self.say(f"scaling: {order.text}")
        await self._asked_of(lambda: self._swap(order.arm))

    async def _swap(self, arm: str) -> None:
        mine, other = self.workloads[arm], next(each for name, each in self.workloads.items() if name != arm)
        line = line_ref(self.asked.snapshot.line)
        noted = await self.scaling.note(line, [mine.ref, other.ref])
        up, down = max(_before(noted, mine), 1), max(_before(noted, other) - 1, 0)
        resting = next(name for name in self.workloads if name != arm)
        self._servers[resting] = None
        await self._lower(other, mine, down)
        used = {uid_of(pod) for pod in await self.scaling.pods(mine.ref)}
        if (await self.scaling.scale(mine.ref)).replicas >= up:  # it is up, in a life that is used up
            self._servers[arm] = None
            await self._lower(mine, other, up - 1)
        await self.scaling.set(line, mine.ref, up)
        pod = await self.scaling.until_ready(mine.ref, up, lambda found: uid_of(found) not in used)
        self._meet(arm, pod)

    async def _lower(self, workload: Workload, other: Workload, replicas: int) -> None:
        """Scale down to so many, if it has more, and wait until the pods are gone: they hold the place."""
        present = (await self.scaling.scale(workload.ref)).replicas
        if present > replicas:
            ready = sum(map(is_ready, await self.scaling.pods(workload.ref)))
            elsewhere = sum(map(is_ready, await self.scaling.pods(other.ref)))
            sequential = self.asked.spec.sequential
            downtime = sequential is not None and bool(sequential.allow_downtime)
            if ready and max(ready - (present - replicas), 0) + elsewhere < 1 and not downtime:
                raise SwapFailed(
                    f"{workload.ref} has the last Ready backend: it is not scaled down (allowed: "
                    "spec.sequential.allowDowntime, or one replica more)"
                )
            await self.scaling.set(line_ref(self.asked.snapshot.line), workload.ref, replicas)
        await self.scaling.until_gone(workload.ref, replicas)

    def _meet(self, arm: str, pod: Object | None) -> None:
        """Know where the arm is, and tell the life of it."""
        workload = self.workloads[arm]
        if pod is None:
            self._servers[arm] = None
            return
        if workload.endpoint.pods is None:
            self._servers[arm] = ServerSeen("", workload.url, True)
            return
        server = server_of(pod, workload.endpoint.pods, workload.container)
        self._servers[arm] = server
        if server.url is not None and server.epoch is not None:
            self.epochs.told(server.url, server.epoch)

    async def _asked_of(self, work: Callable[[], Awaitable[T]]) -> T:
        """In the loop of the client, its errors in words."""

        async def there() -> T:
            return await work()

        try:
            return await self.scaling.here(there())
        except Forbidden as error:
            raise SwapFailed(how_to_allow(error, line_ref(self.asked.snapshot.line).namespace)) from error
        except KubeError as error:
            raise SwapFailed(f"scaling: {error}") from error


def _before(noted: tuple[Noted, ...], workload: Workload) -> int:
    found = (each for each in noted if (each.kind, each.name) == (workload.ref.kind.kind, workload.ref.name))
    return next(found).before


def in_turns(request: RunRequest) -> RunRequest:
    """The run as one of windows. Arms are named by the line and their part in it: images are resolved only while a pod
    runs, and a run must know itself again."""
    assert request.baseline is not None
    arms = {
        arm: replace(each, called=f"{(each.called or '').partition(' ')[0]} {arm}")
        for arm, each in ((BASELINE, request.baseline), (CANDIDATE, request.candidate))
    }
    shape = replace(request.shape, sequential=True)
    return replace(request, baseline=arms[BASELINE], candidate=arms[CANDIDATE], shape=shape, floor=None)


def alone(asked: Asked, request: RunRequest, begun: bool) -> RunRequest:
    """The run of the candidate alone, beside the stored baseline: its floor. One that goes on has it in its store.

    Raises `Unusable` where there is none.
    """
    seconds = asked.stored_baseline_seconds
    if seconds is None or (request.floor is None and not begun):
        raise Unusable("there is no stored baseline: the profile in production was not measured by itself")
    return replace(
        request,
        baseline=None,
        baseline_store=request.floor,
        baseline_max_age_days=seconds / SECONDS_A_DAY,
        floor=None,
        shape=replace(request.shape, candidate_alone=True),
    )


def opening_of(asked: Asked, now: float) -> Opening:
    """The window that is open, long enough to begin in. Raises `NoWindow`."""
    sequential = asked.spec.sequential
    windows = () if sequential is None else sequential.windows or ()
    found = open_at(windows, now)
    if found is None or now >= found.put_back_at:
        raise NoWindow(next_opening(windows, now))
    return found


async def in_its_window(asked: Asked, hand: ScalingHand, clock: Clock, work: Callable[[], Awaitable[T]]) -> T:
    """Do it while the window is open, once what others scaled is back; whatever ends it, what was there before is put
    back.

    Raises `NoWindow` once it closes, `SwapFailed`, and what `work` raises.
    """
    opening = opening_of(asked, clock.now())
    hold = hand.holds.hold(line_ref(asked.snapshot.line), [each.ref for each in hand.workloads.values()])
    try:
        async with asyncio.timeout(opening.put_back_at - clock.now()) as limit:
            await hand.holds.begin(hold)
            await hand.look()
            return await work()
    except TimeoutError as error:
        if not limit.expired():
            raise
        windows = asked.spec.sequential.windows if asked.spec.sequential is not None else None
        raise NoWindow(next_opening(windows or (), max(clock.now(), opening.put_back_at))) from error
    finally:
        await hand.holds.end(hold)
