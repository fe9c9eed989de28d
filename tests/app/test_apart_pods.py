"""Production keeps its servers while a replay has one for itself, whatever fails meanwhile; what was put aside is put
back, by who leads and by nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefillgate.app.apart import Apart, Patience
from prefillgate.app.apart_pods import ApartPods
from prefillgate.app.leftovers import Leftovers
from prefillgate.app.orders import Asked, Chosen
from prefillgate.app.scratch import scratch_name
from prefillgate.kube.access import Where
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.client import Kube
from prefillgate.kube.errors import Forbidden, KubeError
from prefillgate.kube.objects import NAMESPACES, PODS, REPLICA_SETS, Query, Ref
from prefillgate.runs.errors import CouldNotMeasure
from tests.support.fake_api import FakeApi, Fault
from tests.support.fake_api.store import Object, Resource, Write
from tests.support.runs import bench
from tests.support.works import OLD, ROLLOUT_UID, Looks, order, server

GATE = "prefillgate.io/promoted"
LABEL, TERM = "prefillgate.io/apart", "prefillgate.io/apart-term"
POD = Resource(PODS)
QUICK = Patience(ready=20.0, gone=0.3, swept=0.5, look=0.02)
URL = "http://127.0.0.1:8080"


class Cluster:
    """A namespace `prod` whose pods a kubelet of ours looks after: Ready as their gates say."""

    def __init__(self, fake: FakeApi, kube: Kube) -> None:
        self.fake, self.kube, self.told, self.troubles = fake, kube, list[tuple[str, str | None]](), dict[str, str]()
        self.leads, self.token = True, 3
        self.kubelet: Callable[[Object], bool] = gates_open
        for name in ("prod", "other"):
            fake.store.create(Resource(NAMESPACES), "", {"metadata": {"name": name}}, Write("test"))

    def apart(self, look: float = 0.02, token: int | None = None) -> Apart:
        again = Backoff(0.02, 0.05)
        pods = ApartPods(self.kube, self.token if token is None else token, lambda: self.leads, again)
        left = Leftovers(pods, self.trouble)
        left.swept.set()
        return Apart(pods, lambda url, epoch: self.told.append((url, epoch)), left, replace(QUICK, look=look))

    def trouble(self, scope: str, text: str | None) -> None:
        self.troubles.pop(scope, None)
        self.troubles |= {scope: text} if text is not None else {}

    def pod(self, name: str, space: str = "prod", hash_: str = "aaa", **marks: str | None) -> Object:
        meta: Object = {"name": name, "labels": {"app": "web", "pod-template-hash": hash_}}
        owner = {"kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True, "apiVersion": "apps/v1"}
        meta |= {"ownerReferences": [owner]}
        if marks.get("apart"):
            meta["labels"] = {**meta["labels"], LABEL: marks["apart"]}
        if marks.get("term"):
            meta["annotations"] = {TERM: marks["term"]}
        spec = {"containers": [{"name": "main"}], "readinessGates": [{"conditionType": GATE}]}
        self.fake.store.create(POD, space, {"metadata": meta, "spec": spec}, Write("test"))
        self.status(name, space, gate="False" if marks.get("apart") == "drained" else "True")
        return self.read(name, space)

    def status(self, name: str, space: str = "prod", gate: str = "True", ready: bool | None = None) -> None:
        found = self.read(name, space)
        is_ready = gate == "True" if ready is None else ready
        conditions = [{"type": "Ready", "status": str(is_ready)}, {"type": GATE, "status": gate}]
        running = {"name": "main", "containerID": "containerd://c", "state": {"running": {"startedAt": "now"}}}
        found["status"] = {"podIP": "127.0.0.1", "phase": "Running", "conditions": conditions}
        found["status"]["containerStatuses"] = [running]
        found["metadata"].pop("resourceVersion")
        self.fake.store.update(POD, space, name, found, Write("kubelet", subresource="status"))

    def read(self, name: str, space: str = "prod") -> Object:
        return self.fake.store.get(POD, space, name)

    def names(self, space: str = "prod") -> list[str]:
        return [each["metadata"]["name"] for each in self.fake.store.select(POD, space)]

    def is_out(self, name: str) -> bool:
        found = self.read(name)
        gate = next(each for each in found["status"]["conditions"] if each["type"] == GATE)
        return bool(gate["status"] == "False" or LABEL in found["metadata"]["labels"])

    async def look_after(self) -> None:
        """The kubelet."""
        while True:
            for found in self.fake.store.select(POD, ""):
                name, space = found["metadata"]["name"], found["metadata"]["namespace"]
                conditions = (found.get("status") or {}).get("conditions") or []
                gate = next((each["status"] for each in conditions if each["type"] == GATE), "True")
                ready = next((each["status"] for each in conditions if each["type"] == "Ready"), None)
                wanted = gate == "True" and self.kubelet(found)
                if ready != str(wanted):
                    self.status(name, space, gate, wanted)
            await asyncio.sleep(0.01)


def gates_open(pod: Object) -> bool:
    return True


@pytest.fixture
async def cluster(fake: FakeApi, tmp_path: Path) -> AsyncIterator[Cluster]:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(fake.kubeconfig()), encoding="utf-8")
    async with await Kube.connect(Where(str(path))) as kube:
        made = Cluster(fake, kube)
        kubelet = asyncio.create_task(made.look_after())
        yield made
        kubelet.cancel()
        fake.release()


def asked(folder: Path, mode: str = "Drain", line: str = "llm", **isolation: Any) -> Asked:
    baseline = {
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "container": "main"},
        "endpoint": {"pods": {"port": 8080}},
        "isolation": {"mode": mode, **isolation},
    }
    servers = tuple(server(URL, name=name) for name in ("a", "b", "c"))
    looks = Looks(bench(folder), servers, spec={"baseline": baseline}, name=line)
    looks.status = {
        "promotedProfile": {
            "digest": OLD,
            "template": {"kind": "ReplicaSet", "name": "web"},
        }
    }
    return Asked(order(), looks.observed())


def chosen(name: str) -> Chosen:
    return Chosen(URL, name, None)


async def until(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")


# -- Drain


async def test_a_pod_goes_back_at_once_where_too_few_others_serve_meanwhile(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("a", "b"):
        cluster.pod(name)
    async with cluster.apart().drained(asked(tmp_path, minServing=1), OLD, chosen("a")) as given:
        assert (given.name, cluster.is_out("a")) == ("a", True)
        await asyncio.sleep(0.1)
        assert (URL, None) not in cluster.told
        cluster.kubelet = lambda pod: pod["metadata"]["name"] != "b"  # it crashes
        await until(lambda: not cluster.is_out("a"))
        assert cluster.told[-1] == (URL, None)  # the cell is void, and the replay moves on
    assert not cluster.is_out("a")


async def test_a_pod_goes_back_where_the_other_one_is_evicted_and_the_api_server_refuses_for_a_while(
    cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        cluster.pod(name)
    async with cluster.apart().drained(asked(tmp_path), OLD, chosen("a")):
        fault = cluster.fake.fail(Fault("status", "patch", "pods", times=3, code=403, reason="Forbidden"))
        cluster.fake.store.delete(POD, "prod", "b", None)
        await until(lambda: not cluster.is_out("a"))
        assert fault.met == 3


@pytest.mark.parametrize(("least", "others"), [(1, 1), (2, 2), (2, 3)])
async def test_a_pod_is_taken_out_while_as_many_others_serve_as_must(
    cluster: Cluster, tmp_path: Path, least: int, others: int
) -> None:
    for name in "abcd"[: others + 1]:
        cluster.pod(name)
    async with cluster.apart().drained(asked(tmp_path, minServing=least), OLD, chosen("a")):
        await asyncio.sleep(0.1)
        assert cluster.is_out("a")


@pytest.mark.parametrize("why", ["not Ready", "gone", "of another revision", "marked for another line"])
async def test_what_serves_is_counted_when_it_is_taken_out_and_not_when_it_was_looked_at(
    cluster: Cluster, tmp_path: Path, why: str
) -> None:
    cluster.pod("a")
    if why == "not Ready":
        cluster.kubelet = lambda pod: pod["metadata"]["name"] != "b"
        cluster.pod("b")
        cluster.status("b", gate="True", ready=False)
    elif why == "of another revision":
        cluster.pod("b", hash_="bbb")
    elif why == "marked for another line":
        cluster.pod("b", apart="drained", term="3")
        cluster.status("b", gate="True")  # it is Ready still
    with pytest.raises(CouldNotMeasure, match=r"0 others are Ready, and .*minServing is 1"):
        async with cluster.apart().drained(asked(tmp_path), OLD, chosen("a")):
            raise AssertionError("it was taken out")
    assert cluster.fake.count("patch") == 0


async def test_a_pod_goes_back_that_was_taken_out_in_the_moment_in_which_the_other_one_went(
    cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        cluster.pod(name)
    cluster.fake.fail(Fault("hold", "patch", "pods"))
    out = cluster.apart().drained(asked(tmp_path), OLD, chosen("a"))
    entering = asyncio.create_task(out.__aenter__())
    await until(lambda: cluster.fake.count("patch") == 1)
    cluster.fake.store.delete(POD, "prod", "b", None)
    cluster.fake.release()
    with pytest.raises(CouldNotMeasure, match="0 others are Ready"):
        await entering
    assert not cluster.is_out("a")


async def test_two_lines_of_one_deployment_never_take_out_each_the_last_pod_of_the_other(
    cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        cluster.pod(name)
    apart, came = cluster.apart(), list[str]()

    async def drains(line: str, pod: str) -> None:
        async with apart.drained(asked(tmp_path, line=line), OLD, chosen(pod)):
            came.append(pod)
            await asyncio.sleep(0.2)
            assert cluster.is_out("a") != cluster.is_out("b")

    found = await asyncio.gather(drains("one", "a"), drains("two", "b"), return_exceptions=True)
    assert len(came) == 1 and [type(each) for each in found if each is not None] == [CouldNotMeasure]
    assert not cluster.is_out("a") and not cluster.is_out("b")


async def test_one_pod_is_put_aside_for_one_replay(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        cluster.pod(name)
    apart = cluster.apart()
    async with apart.drained(asked(tmp_path, line="one"), OLD, chosen("a")):
        with pytest.raises(CouldNotMeasure, match="pod prod/a is put aside for another replay"):
            async with apart.drained(asked(tmp_path, line="two"), OLD, chosen("a")):
                raise AssertionError("both have it")
        with pytest.raises(CouldNotMeasure, match="pod prod/a is put aside for another replay"):
            async with cluster.apart(token=4).drained(asked(tmp_path, line="two"), OLD, chosen("a")):
                raise AssertionError("both have it")
        assert cluster.is_out("a")
    assert not cluster.is_out("a")


# -- who leads


async def test_who_leads_no_more_puts_nothing_aside(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("a", "b"):
        cluster.pod(name)
    cluster.fake.store.create(Resource(REPLICA_SETS), "prod", replica_set(), Write("test"))
    cluster.leads = False
    with pytest.raises(CouldNotMeasure, match="another controller leads now"):
        async with cluster.apart().drained(asked(tmp_path), OLD, chosen("a")):
            raise AssertionError("it was taken out")
    with pytest.raises(CouldNotMeasure, match="another controller leads now"):
        async with cluster.apart().scratch(asked(tmp_path, "Scratch"), OLD):
            raise AssertionError("it was made")
    assert cluster.fake.count("patch", "create", "delete") == 0


async def test_a_term_that_ends_between_the_mark_and_the_gate_leaves_the_pod_in_its_services(
    cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        cluster.pod(name)
    cluster.fake.fail(Fault("hold", "patch", "pods"))
    entering = asyncio.create_task(cluster.apart().drained(asked(tmp_path), OLD, chosen("a")).__aenter__())
    await until(lambda: cluster.fake.count("patch") == 1)
    cluster.leads = False
    cluster.fake.release()
    with pytest.raises(CouldNotMeasure, match="another controller leads now"):
        await entering
    assert cluster.fake.count("patch") == 1
    assert cluster.read("a")["metadata"]["annotations"] == {TERM: "3"}  # the next leader takes the mark away


async def test_what_a_later_term_put_aside_is_left_alone(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("a", "b"):
        cluster.pod(name)
    async with cluster.apart().drained(asked(tmp_path), OLD, chosen("a")):
        found = cluster.read("a")
        found["metadata"]["annotations"][TERM] = "4"
        found["metadata"].pop("resourceVersion")
        cluster.fake.store.update(POD, "prod", "a", found, Write("later"))
    assert cluster.is_out("a")
    apart = cluster.apart()
    sweeping = asyncio.create_task(apart.left.sweep())
    await asyncio.sleep(0.1)
    assert cluster.is_out("a")
    sweeping.cancel()
    sweeping = asyncio.create_task(cluster.apart(token=5).left.sweep())
    await until(lambda: not cluster.is_out("a"))
    sweeping.cancel()


async def test_a_pod_that_took_the_name_meanwhile_is_not_marked(cluster: Cluster) -> None:
    cluster.pod("a")
    await cluster.apart().pods.take_out(Ref(PODS, "a", "prod"), "the uid of another")
    assert not cluster.is_out("a")


async def test_a_mark_that_a_kubelet_s_write_comes_between_is_written_again(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("a", "b"):
        cluster.pod(name)
    cluster.fake.fail(Fault("status", "patch", "pods", times=2, code=409, reason="Conflict"))
    async with cluster.apart().drained(asked(tmp_path), OLD, chosen("a")):
        assert cluster.is_out("a")


# -- Scratch


def replica_set() -> Object:
    spec = {"template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]}}}
    return {"metadata": {"name": "web"}, "spec": spec}


async def test_a_pod_whose_making_was_answered_by_nobody_is_deleted_all_the_same(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.fake.store.create(Resource(REPLICA_SETS), "prod", replica_set(), Write("test"))
    cluster.fake.fail(Fault("status", "create", "pods", code=500, applied=True))
    with pytest.raises(CouldNotMeasure, match="the API server"):
        async with cluster.apart().scratch(asked(tmp_path, "Scratch"), OLD):
            raise AssertionError("it was answered")
    assert cluster.names() == []


@pytest.mark.parametrize("code", [401, 403, 409, 422, 500])
async def test_a_pod_that_may_not_be_deleted_for_a_while_is_deleted_afterwards(
    cluster: Cluster, tmp_path: Path, code: int
) -> None:
    cluster.fake.store.create(Resource(REPLICA_SETS), "prod", replica_set(), Write("test"))
    fault = cluster.fake.fail(Fault("status", "delete", "pods", times=3, code=code))
    async with cluster.apart().scratch(asked(tmp_path, "Scratch"), OLD) as given:
        assert cluster.names() == [given.name]
    assert (fault.met, cluster.names()) == (3, [])


async def test_what_cannot_be_deleted_at_all_is_told_and_left_to_the_sweep(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("prefillgate.app.apart_pods.AT_LAST_TRIES", 3)
    cluster.fake.store.create(Resource(REPLICA_SETS), "prod", replica_set(), Write("test"))
    fault = cluster.fake.fail(Fault("status", "delete", "pods", times=5, code=403, reason="Forbidden"))
    apart = cluster.apart()
    sweeping = asyncio.create_task(apart.left.sweep())
    await until(lambda: cluster.fake.count("list") == 1)
    async with apart.scratch(asked(tmp_path, "Scratch"), OLD):
        pass
    said = capsys.readouterr()
    assert "not_put_back" in said.out + said.err
    await until(lambda: cluster.names() == [])
    assert fault.met == 5
    sweeping.cancel()


async def test_a_pod_that_stays_terminating_is_not_waited_for_for_ever(cluster: Cluster, tmp_path: Path) -> None:
    cluster.fake.store.create(Resource(REPLICA_SETS), "prod", replica_set(), Write("test"))
    name = scratch_name("llm", ROLLOUT_UID, OLD)
    left = {"metadata": {"name": name, "labels": {LABEL: "scratch"}, "finalizers": ["example.com/held"]}}
    cluster.fake.store.create(POD, "prod", {**left, "spec": {}}, Write("test"))
    with pytest.raises(CouldNotMeasure, match=f"pod prod/{name}.* is Terminating for more than 0.3 s"):
        async with cluster.apart().scratch(asked(tmp_path, "Scratch"), OLD):
            raise AssertionError("it was made")
    assert cluster.names() == [name]


# -- what is left


async def test_one_pod_that_cannot_be_put_back_keeps_no_other_from_it_and_is_tried_again(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.pod(name, apart="scratch")
    cluster.pod("c", apart="drained", term="1")
    fault = cluster.fake.fail(Fault("status", "delete", "pods", times=3, code=403, reason="Forbidden"))
    apart = cluster.apart()
    apart.left.swept.clear()
    sweeping = asyncio.create_task(apart.left.sweep())
    await asyncio.wait_for(apart.left.swept.wait(), 20)
    assert not cluster.is_out("c") and fault.met == 2
    assert "pod prod/a: Forbidden" in cluster.troubles["pods put aside"]
    await until(lambda: cluster.names() == ["c"])
    await until(lambda: cluster.troubles == {})
    sweeping.cancel()


class Closed(Kube):
    """A client without rights in `prod`."""

    async def list(self, query: Query, *rest: Any, **more: Any) -> Any:
        if query.namespace == "prod":
            raise Forbidden("no RoleBinding", code=403)
        return await super().list(query, *rest, **more)


async def test_a_namespace_that_may_not_be_listed_keeps_no_other_one_from_its_replays(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.pod("a", "other", apart="scratch")
    async with await Closed.connect(Where(str(tmp_path / "kubeconfig"))) as cluster.kube:
        apart = cluster.apart()
        apart.left.swept.clear()
        sweeping = asyncio.create_task(apart.left.sweep(("prod", "other")))
        await asyncio.wait_for(apart.left.swept.wait(), 20)
        assert (cluster.names("other"), list(cluster.troubles)) == ([], ["pods put aside in prod"])
        sweeping.cancel()
        await until(lambda: cluster.troubles == {})  # it is the next leader's


async def test_a_replay_that_waits_for_the_first_look_is_told_in_the_end_why(cluster: Cluster, tmp_path: Path) -> None:
    apart = cluster.apart()
    apart.left.swept.clear()
    apart.left.cause = "pod prod/x: Forbidden: no"
    with pytest.raises(CouldNotMeasure, match=r"an earlier controller put aside .*: pod prod/x: Forbidden: no"):
        async with apart.server(asked(tmp_path), OLD, chosen("a")):
            raise AssertionError("it was given")


async def test_a_pod_that_is_asked_is_no_leftover_and_is_one_once_its_replay_has_ended(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prefillgate.app.apart_pods.ApartPods.at_last", nothing)  # the replay itself does not
    for name in ("a", "b"):
        cluster.pod(name)
    apart = cluster.apart()
    sweeping = asyncio.create_task(apart.left.sweep())
    async with apart.drained(asked(tmp_path), OLD, chosen("a")):
        apart.left.due.set()
        await until(lambda: not apart.left.due.is_set())
        await asyncio.sleep(0.1)
        assert cluster.is_out("a")
    await until(lambda: not cluster.is_out("a"))
    sweeping.cancel()
    with suppress(asyncio.CancelledError, KubeError):
        await sweeping


async def nothing(*_: Any) -> bool:
    return False
