"""What a line's workloads had comes back, whatever ends a replay and whatever fails meanwhile; and nobody scales them
for another replay before it is back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefillgate.api.kinds.names import SCALED
from prefillgate.app import scaling as module
from prefillgate.app.epochs import Epochs
from prefillgate.app.holds import Hold, Holds
from prefillgate.app.orders import Asked
from prefillgate.app.replay_thread import Answer, Replay, Turn
from prefillgate.app.scaling import Scaling
from prefillgate.app.taking_turns import ScalingHand, Workload, in_its_window
from prefillgate.evidence import Fence
from prefillgate.evidence.book import Book, open_book
from prefillgate.kube.access import Where
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.client import Kube
from prefillgate.kube.errors import Forbidden
from prefillgate.kube.objects import DEPLOYMENTS, NAMESPACES, PODS, SERVING_LINES, Ref
from prefillgate.reconcile.snapshot import WorkKind
from prefillgate.replay.clock import SystemClock
from prefillgate.replay.swapping import SwapFailed, SwapOrder
from tests.support.fake_api import FakeApi, Fault
from tests.support.fake_api.store import Object, Resource, Write
from tests.support.manual_clock import until
from tests.support.runs import bench
from tests.support.works import Looks, order, room

BASE, CAND, OTHER = (Ref(DEPLOYMENTS, name, "prod") for name in ("base", "cand", "other"))
LINE = Ref(SERVING_LINES, "llm", "prod")
USER = Write("somebody")
ENDS_AFTER, READY_AFTER = 0.1, 0.03
SOON = Backoff(0.02, 0.05)


class Cluster:
    """A namespace `prod` with Deployments, whose pods come and go as their replicas say, and a line."""

    def __init__(self, fake: FakeApi, kube: Kube, book: Book, baseline: int = 1) -> None:
        self.fake, self.kube, self.book, self.leads = fake, kube, book, True
        self.number, self.troubles = 0, list[tuple[str, str | None]]()
        self.lines, self.deployments = fake._of(SERVING_LINES), Resource(DEPLOYMENTS)
        fake.store.create(fake._of(NAMESPACES), "", {"metadata": {"name": "prod"}}, USER)
        for name, count in (("base", baseline), ("cand", 0), ("other", 0)):
            spec = {"replicas": count, "selector": {"matchLabels": {"app": name}}}
            fake.store.create(self.deployments, "prod", {"metadata": {"name": name}, "spec": spec}, USER)
        self.make_line()

    def make_line(self) -> None:
        self.fake.store.create(self.lines, "prod", {"metadata": {"name": "llm"}, "spec": {}}, USER)

    def holds(self) -> Holds:
        """Of a term: what it knows is gone with it."""
        scaling = Scaling(self.kube, lambda: self.leads, poll_seconds=0.01, book=self.book)
        return Holds(scaling, lambda scope, text: self.troubles.append((scope, text)), SOON)

    def line(self) -> Object:
        return self.fake.store.get(self.lines, "prod", "llm")

    @property
    def noted(self) -> str | None:
        found: str | None = (self.line()["metadata"].get("annotations") or {}).get(SCALED)
        return found

    @property
    def replicas(self) -> tuple[int, int]:
        return self.count("base"), self.count("cand")

    def count(self, name: str) -> int:
        return int(self.fake.store.get(self.deployments, "prod", name)["spec"]["replicas"])

    def scale(self, name: str, replicas: int) -> None:
        """By a person."""
        found = self.fake.store.get(self.deployments, "prod", name)
        found["spec"]["replicas"] = replicas
        self.fake.store.update(self.deployments, "prod", name, found, USER)

    def scaled(self) -> list[tuple[int, int]]:
        """Every pair of counts that there was, in their order."""
        now, seen = {"base": 0, "cand": 0, "other": 0}, list[tuple[int, int]]()
        for happened in self.fake.store.history:
            if happened.resource.kind == DEPLOYMENTS:
                now[happened.obj["metadata"]["name"]] = happened.obj["spec"]["replicas"]
                seen += [(now["base"], now["cand"])] if seen[-1:] != [(now["base"], now["cand"])] else []
        return seen

    def told(self) -> list[str]:
        return [text for _, text in self.troubles if text is not None]

    async def look_after(self) -> None:
        """The controllers of Deployments, and the kubelet."""
        pods, born, dying = self.fake._of(PODS), dict[str, float](), dict[str, float]()
        while True:
            now = asyncio.get_running_loop().time()
            for name in ("base", "cand", "other"):
                there = [
                    each for each in self.fake.store.select(pods, "prod") if each["metadata"]["labels"]["app"] == name
                ]
                alive = [each["metadata"]["name"] for each in there if each["metadata"]["name"] not in dying]
                with suppress(Exception):
                    for gone in alive[self.count(name) :]:
                        dying[gone] = now + ENDS_AFTER
                    for _ in range(self.count(name) - len(alive)):
                        self.number += 1
                        meta = {"name": f"{name}-{self.number:04}", "labels": {"app": name}}
                        self.fake.store.create(pods, "prod", {"metadata": meta}, USER)
                        born[meta["name"]] = now
            for each in self.fake.store.select(pods, "prod"):
                name = each["metadata"]["name"]
                if dying.get(name, now) < now:
                    self.fake.store.delete(pods, "prod", name, None)
                elif name not in dying and now > born[name] + READY_AFTER and not each.get("status"):
                    each["metadata"].pop("resourceVersion")
                    each["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                    self.fake.store.update(pods, "prod", name, each, Write("kubelet", subresource="status"))
            await asyncio.sleep(0.005)


@pytest.fixture
def baseline() -> int:
    """Replicas in production."""
    return 1


@pytest.fixture
async def cluster(
    fake: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, baseline: int
) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(module, "PUT_BACK_SECONDS", 2.0)
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(fake.kubeconfig()), encoding="utf-8")
    with open_book(tmp_path / "book.db", Fence(1)) as book:
        async with await Kube.connect(Where(str(path))) as kube:
            made = Cluster(fake, kube, book, baseline)
            kubelet = asyncio.create_task(made.look_after())
            yield made
            kubelet.cancel()
            fake.release()


class Run:
    """A replay in windows in a thread of its own, as the controller has them."""

    def __init__(self, cluster: Cluster, holds: Holds, folder: Path, *arms: str) -> None:
        self.asked = asked(folder)
        self.up = threading.Event()
        self.error: BaseException | None = None
        self._arms, self._holds = arms or ("candidate",), holds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        hand = hand_of(self.asked, self._holds)

        async def work() -> None:
            for arm in self._arms:
                await hand.swap(SwapOrder(arm, "", False))
            self.up.set()
            await asyncio.sleep(3600)

        self._task = asyncio.ensure_future(in_its_window(self.asked, hand, SystemClock(), work))
        try:
            await self._task
        except BaseException as error:
            self.error = error

    def interrupt(self) -> None:
        assert self._loop is not None and self._task is not None
        self._loop.call_soon_threadsafe(self._task.cancel)

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()


def asked(folder: Path, kind: WorkKind = WorkKind.JUDGE) -> Asked:
    folder.mkdir(exist_ok=True)
    always = {"startTime": "00:00", "durationSeconds": 604_800}
    spec = {
        "arms": "Sequential",
        "sequential": {"windows": [always], "allowDowntime": True},
        "candidate": {
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cand"},
            "endpoint": {"pods": {"port": 8080}},
        },
    }
    return Asked(replace(order(), kind=kind), Looks(bench(folder), spec=spec).observed())


def hand_of(asked: Asked, holds: Holds) -> ScalingHand:
    ends = asked.spec.baseline.endpoint.model_copy(update={"pods": None})
    works = {
        arm: Workload(ref, ends, "main", f"http://{ref.name}") for arm, ref in (("baseline", BASE), ("candidate", CAND))
    }
    return ScalingHand(asked, holds, Epochs(), works, lambda line: None)


async def taken(holds: Holds, *wanted: Ref) -> Hold:
    """A hold that has begun."""
    hold = holds.hold(LINE, wanted or (BASE, CAND))
    try:
        await holds.begin(hold)
    except SwapFailed:
        await holds.end(hold)
        raise
    return hold


async def swapped(holds: Holds) -> Hold:
    """A hold whose candidate has production's place."""
    hold = await taken(holds)
    await holds.scaling.note(LINE, [BASE, CAND])
    await holds.scaling.set(LINE, BASE, 0)
    await holds.scaling.set(LINE, CAND, 1)
    return hold


@pytest.mark.parametrize("baseline", [1, 2])
async def test_a_replay_that_takes_the_place_of_another_scales_nothing_before_all_is_back(
    cluster: Cluster, tmp_path: Path, baseline: int
) -> None:
    holds = cluster.holds()
    first = Run(cluster, holds, tmp_path / "a")
    await until(first.up.is_set)
    first.interrupt()
    second = Run(cluster, holds, tmp_path / "b", "candidate", "baseline", "candidate")
    await until(second.up.is_set)
    assert first.over and cluster.replicas == (baseline - 1, 1)
    second.interrupt()
    await until(lambda: second.over)
    rest, turn = (baseline, 0), (baseline - 1, 1)
    between = (baseline - 1, 0)
    one = [rest, between, turn, between, rest]
    assert cluster.scaled()[-len([*one, *one[1:], *one[1:]]) :] == [*one, *one[1:], *one[1:]]
    assert cluster.noted is None and cluster.book.scaled() == () and cluster.told() == []


async def test_a_second_interruption_does_not_end_the_putting_back_and_the_replay_is_over_after_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    holds = cluster.holds()
    run = Run(cluster, holds, tmp_path)
    await until(run.up.is_set)
    run.interrupt()
    await until(lambda: cluster.replicas == (0, 0))
    for _ in range(3):
        run.interrupt()
        await asyncio.sleep(0.01)
    await until(lambda: run.over)
    assert cluster.replicas == (1, 0) and isinstance(run.error, asyncio.CancelledError)


async def test_one_that_is_interrupted_while_it_waits_for_its_turn_does_not_wait_for_another(
    cluster: Cluster, tmp_path: Path
) -> None:
    holds = cluster.holds()
    first = await swapped(holds)
    second = Run(cluster, holds, tmp_path)
    await until(lambda: second._task is not None)
    await asyncio.sleep(0.05)
    second.interrupt()
    await until(lambda: second.over)
    assert cluster.replicas == (0, 1) and not second.up.is_set()
    await holds.end(first)
    assert cluster.replicas == (1, 0)


async def test_a_line_that_is_deleted_while_it_is_scaled_has_it_back(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(cluster, cluster.holds(), tmp_path)
    await until(run.up.is_set)
    cluster.fake.store.delete(cluster.lines, "prod", "llm", None)
    run.interrupt()
    await until(lambda: run.over)
    assert cluster.replicas == (1, 0) and cluster.book.scaled() == ()
    said = capsys.readouterr()
    assert "scaled_line_gone" in said.out + said.err


@pytest.mark.parametrize("again", [False, True])
async def test_a_line_that_is_deleted_while_no_controller_lives_has_it_back_from_the_next(
    again: bool, cluster: Cluster
) -> None:
    await swapped(cluster.holds())  # and killed
    cluster.fake.store.delete(cluster.lines, "prod", "llm", None)
    if again:
        cluster.make_line()
    assert cluster.replicas == (0, 1)
    await cluster.holds().adopt()
    await until(lambda: cluster.replicas == (1, 0) and cluster.book.scaled() == ())


async def test_a_line_that_is_deleted_while_it_cannot_be_put_back_has_it_back_once_it_can(cluster: Cluster) -> None:
    await swapped(cluster.holds())  # and killed: the next one reads the line
    refusal = cluster.fake.fail(Fault("status", "patch", "deployments", times=10_000, code=403, reason="Forbidden"))
    holds = cluster.holds()
    holds.put_back_soon(LINE)
    await until(cluster.told)
    cluster.fake.store.delete(cluster.lines, "prod", "llm", None)
    refusal.times = 0
    await until(lambda: cluster.replicas == (1, 0))


async def test_a_line_that_is_there_is_left_to_its_replay_by_who_leads_next(cluster: Cluster) -> None:
    await swapped(cluster.holds())  # and killed
    holds = cluster.holds()
    await holds.adopt()
    await asyncio.sleep(0.1)
    assert cluster.replicas == (0, 1) and cluster.noted is not None
    hold = await taken(holds)  # goes on with the candidate where it is
    assert cluster.replicas == (0, 1)
    await holds.end(hold)
    assert cluster.replicas == (1, 0) and cluster.book.scaled() == ()


async def test_a_line_that_was_put_back_is_not_scaled_again_by_what_the_book_still_says(cluster: Cluster) -> None:
    holds = cluster.holds()
    await swapped(holds)
    (row,) = cluster.book.scaled()
    await holds.scaling.put_back(LINE)
    cluster.book.keep_scaled(row)
    cluster.scale("base", 0)  # a person, who wants it so
    await cluster.holds().adopt()
    await until(lambda: cluster.book.scaled() == ())
    await asyncio.sleep(0.05)
    assert cluster.replicas == (0, 0)


async def test_a_line_that_is_replaced_without_its_annotations_has_it_back(cluster: Cluster, tmp_path: Path) -> None:
    holds = cluster.holds()
    run = Run(cluster, holds, tmp_path)
    await until(run.up.is_set)
    bare = cluster.line()
    del bare["metadata"]["annotations"]
    cluster.fake.store.update(cluster.lines, "prod", "llm", bare, USER)
    assert cluster.noted is None and holds.scaling.knows(LINE)
    run.interrupt()
    await until(lambda: run.over)
    assert cluster.replicas == (1, 0) and not holds.scaling.knows(LINE)


async def test_what_the_api_server_refuses_to_put_back_is_told_and_tried_again_until_it_is_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    holds = cluster.holds()
    run = Run(cluster, holds, tmp_path / "a")
    await until(run.up.is_set)
    refusal = Fault("status", "patch", "deployments", times=10_000, code=500, message="failed calling webhook")
    cluster.fake.fail(refusal)
    run.interrupt()
    await until(lambda: run.over)  # its thread is free for others
    await until(lambda: refusal.met >= 6)
    assert cluster.replicas == (0, 1) and cluster.noted is not None
    assert {scope for scope, _ in cluster.troubles} == {"replicas of prod/llm"}
    assert "failed calling webhook" in cluster.told()[0]
    with pytest.raises(SwapFailed, match=r"nothing is scaled before what was there is back: .*failed calling webhook"):
        await taken(holds)
    refusal.times = 0
    await until(lambda: cluster.replicas == (1, 0) and cluster.noted is None)
    await until(lambda: cluster.troubles[-1] == ("replicas of prod/llm", None))
    await holds.end(await taken(holds))


async def test_a_workload_that_cannot_be_put_back_keeps_the_other_from_it_no_longer(cluster: Cluster) -> None:
    holds = cluster.holds()
    await swapped(holds)
    cluster.fake.fail(Fault("status", "patch", "deployments", code=403, reason="Forbidden"))  # the candidate, first
    with pytest.raises(Forbidden):
        await holds.scaling.put_back(LINE)
    assert cluster.replicas == (1, 1) and cluster.noted is not None
    await holds.scaling.put_back(LINE)
    assert cluster.replicas == (1, 0) and cluster.noted is None


async def test_where_the_right_is_missing_it_is_told_how_to_give_it(cluster: Cluster) -> None:
    holds = cluster.holds()
    hold = await swapped(holds)
    refusal = cluster.fake.fail(Fault("status", "patch", "deployments", times=10_000, code=403, reason="Forbidden"))
    await holds.end(hold)
    await until(cluster.told)
    assert "kubectl create rolebinding -n prod prefillgate-scaler --clusterrole=prefillgate-scaler" in cluster.told()[0]
    refusal.times = 0
    await until(lambda: cluster.replicas == (1, 0))


async def test_that_all_is_back_is_written_down_however_often_others_write_the_line(cluster: Cluster) -> None:
    holds = cluster.holds()
    hold = await swapped(holds)
    cluster.fake.fail(Fault("status", "patch", "servinglines", times=7, code=409, reason="Conflict"))
    await holds.end(hold)
    await until(lambda: cluster.noted is None and cluster.book.scaled() == ())
    assert "that all is back could not be written down" in cluster.told()[0]


async def test_nothing_is_scaled_to_a_count_that_could_not_be_written_down(cluster: Cluster) -> None:
    holds = cluster.holds()
    await taken(holds)
    await holds.scaling.note(LINE, [BASE, CAND])
    cluster.fake.fail(Fault("status", "patch", "servinglines", times=5, code=409, reason="Conflict"))
    with pytest.raises(SwapFailed, match="could not be written down"):
        await holds.scaling.set(LINE, BASE, 0)
    assert cluster.replicas == (1, 0)


async def test_nothing_is_scaled_where_the_book_takes_no_note(cluster: Cluster, tmp_path: Path) -> None:
    with open_book(tmp_path / "book.db", Fence(2)):
        pass  # another leader
    run = Run(cluster, cluster.holds(), tmp_path)
    await until(lambda: run.over)
    assert type(run.error).__name__ == "StoreFenced" and cluster.scaled()[-1] == (1, 0) and cluster.noted is None


async def test_what_went_with_its_namespace_is_not_put_back_for_ever(cluster: Cluster) -> None:
    holds = cluster.holds()
    hold = await swapped(holds)
    for name in ("base", "cand"):
        cluster.fake.store.delete(cluster.deployments, "prod", name, None)
    cluster.fake.store.delete(cluster.lines, "prod", "llm", None)
    cluster.fake.fail(Fault("status", "get", "deployments", times=10_000, code=403, reason="Forbidden"))
    await holds.end(hold)
    assert cluster.told() == [] and cluster.book.scaled() == ()


async def test_a_count_that_somebody_else_sets_while_the_other_makes_room_is_left_alone(cluster: Cluster) -> None:
    holds = cluster.holds()
    hold = await swapped(holds)
    await until(lambda: len(cluster.fake.store.select(cluster.fake._of(PODS), "prod")) == 1)
    ending = asyncio.ensure_future(holds.end(hold))
    await until(lambda: cluster.replicas == (0, 0))
    cluster.scale("base", 3)
    await ending
    assert cluster.replicas == (3, 0) and cluster.noted is None


async def test_workloads_that_a_line_named_before_are_put_back_before_others_are_scaled(cluster: Cluster) -> None:
    await swapped(cluster.holds())  # and killed; meanwhile the line names another candidate
    holds = cluster.holds()
    hold = await taken(holds, BASE, OTHER)
    assert cluster.replicas == (1, 0) and cluster.noted is None
    await holds.end(hold)


async def test_who_leads_no_more_puts_nothing_back_and_tells_no_trouble(cluster: Cluster) -> None:
    holds = cluster.holds()
    hold = await swapped(holds)
    cluster.leads = False
    await holds.end(hold)
    assert cluster.replicas == (0, 1) and cluster.noted is not None and cluster.told() == []


async def test_the_end_of_a_controller_waits_for_what_is_being_put_back_and_no_longer_than_it_may(
    cluster: Cluster,
) -> None:
    holds = cluster.holds()
    hold = await swapped(holds)
    hold.let_go.set()
    assert await holds.close(60) and cluster.replicas == (1, 0)
    refused = cluster.holds()
    hold = await swapped(refused)
    cluster.fake.fail(Fault("status", "patch", "deployments", times=10_000, code=500))
    hold.let_go.set()
    await until(cluster.told)
    assert await refused.close(60) and cluster.replicas == (0, 1)  # it is the next leader's
    stays = cluster.holds()
    cluster.fake.faults.clear()
    await taken(stays)
    assert not await stays.close(0.0)


@contextmanager
def at_work(kind: WorkKind, folder: Path) -> Iterator[Replay]:
    """A replay whose thread does not end before the block does."""
    gate, begun = threading.Event(), threading.Event()

    async def carry(turn: Turn) -> Answer | None:
        begun.set()
        await asyncio.to_thread(gate.wait)
        raise ValueError("over")

    replay = Replay(asked(folder, kind), carry, SystemClock(), lambda: None)
    ended = threading.Event()
    assert replay.begin(ended.set)
    assert begun.wait(60)
    try:
        yield replay
    finally:
        gate.set()
        assert ended.wait(60)


@pytest.mark.parametrize(("kind", "goes_on"), [(WorkKind.JUDGE, True), (WorkKind.FLOOR, False)])
def test_only_a_replay_that_takes_turns_keeps_what_is_scaled(kind: WorkKind, goes_on: bool, tmp_path: Path) -> None:
    with at_work(kind, tmp_path) as replay:
        assert replay.living and replay.scales is goes_on
    assert not replay.scales


@pytest.mark.parametrize("stripped", [False, True])
async def test_a_look_puts_back_what_an_earlier_replay_left(stripped: bool, cluster: Cluster, tmp_path: Path) -> None:
    holds = cluster.holds()
    hold = await swapped(holds)
    cluster.leads = False
    await holds.end(hold)
    cluster.leads = True
    seen: dict[str, Any] = cluster.line()
    if stripped:
        del seen["metadata"]["annotations"]
        cluster.fake.store.update(cluster.lines, "prod", "llm", seen, USER)
    observed = asked(tmp_path).observed
    async with room(tmp_path / "store", scaling=holds) as one:
        one.works.looked(replace(observed, snapshot=replace(observed.snapshot, line=seen)))
        await until(lambda: cluster.replicas == (1, 0))


@pytest.mark.parametrize(("kind", "goes_on"), [(WorkKind.JUDGE, True), (WorkKind.FLOOR, False)])
async def test_a_look_leaves_what_is_scaled_to_a_replay_that_goes_on_with_it(
    kind: WorkKind, goes_on: bool, cluster: Cluster, tmp_path: Path
) -> None:
    await swapped(cluster.holds())  # and killed
    observed = asked(tmp_path).observed
    seen = replace(observed, snapshot=replace(observed.snapshot, line=cluster.line()))
    uid = str(cluster.line()["metadata"]["uid"])
    async with room(tmp_path / "store", scaling=cluster.holds()) as one:
        with at_work(kind, tmp_path) as replay:
            one.works._replays[uid, "a key"] = replay
            one.works.looked(seen)
            if not goes_on:
                await until(lambda: cluster.replicas == (1, 0))
            await asyncio.sleep(0.1)
            assert cluster.replicas == ((0, 1) if goes_on else (1, 0))
