"""`runner: Job`: the replay of a rollout runs in a Job of the controller's namespace, with its own account, on the
PostgreSQL store; the controller itself in a pod, as manifests/controller.yaml runs it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from prefillgate.api.kinds.names import OVERRIDE, OVERRIDE_REASON, REPLAY_ACCOUNT, REPLAY_LABEL
from prefillgate.api.store_address import store_address
from prefillgate.core.journal import Overridden
from prefillgate.evidence import read_store
from tests.support.cluster.api import Object, path_of
from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.fixtures import Cluster, Namespace
from tests.support.cluster.gate import HOME
from tests.support.cluster.gated import GatedLine, answer, assert_nothing_twice, message
from tests.support.kinds import ROOT
from tests.support.postgres import USER, PostgresServer, recorded, running_server

ACCOUNT = f"system:serviceaccount:{HOME}:{REPLAY_ACCOUNT}"
CONTROLLER = path_of("deployments", "controller", HOME, "apps")
SLOW = ("--time-scale", "1", "--prefill-ms", "5")


@dataclass
class InAPod:
    """The controller in its pod, as a line of the tests needs to know it."""

    cluster: Cluster

    def pods(self, **labels: str) -> list[Object]:
        query = {"labelSelector": ",".join(f"{name}={value}" for name, value in labels.items())} if labels else {}
        return self.cluster.api().items(path_of("pods", namespace=HOME), **query)

    def jobs(self) -> list[Object]:
        return self.cluster.api().items(path_of("jobs", namespace=HOME, group="batch"))

    def tail(self, lines: int = 40) -> str:
        logs = [(pod["metadata"]["name"], self.cluster.node.log(HOME, pod["metadata"]["name"])) for pod in self.pods()]
        return "\n".join(f"{name}: {row}" for name, log in logs for row in log.splitlines()[-lines:])


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield recorded(server)


@pytest.fixture
def controller(gated_plane: ControlPlane, cluster: Cluster, database: PostgresServer) -> Iterator[InAPod]:
    """Running, leading, in a pod; its evidence in a database of this test's own."""
    files = [ROOT / "manifests" / "rbac" / name for name in ("controller.yaml", "jobs.yaml")]
    things = [thing for path in (*files, ROOT / "manifests" / "controller.yaml") for thing in _things(path)]
    url = database.new_database()
    for thing in things:
        if thing["kind"] == "Deployment":
            _with_database(thing, url)
        done = gated_plane.kubectl("apply", "-f", "-", text=yaml.safe_dump(thing))
        assert done.returncode == 0, done.stderr
    words = ("create", "secret", "generic", "seal-key", "--from-literal=key=0123456789abcdef")
    gated_plane.kubectl(f"--namespace={HOME}", *words)
    cluster.api().wait(CONTROLLER, lambda found: found.get("status", {}).get("availableReplicas") == 1)
    here = InAPod(cluster)
    try:
        yield here
    finally:
        cluster.api().delete(CONTROLLER, propagationPolicy="Foreground")
        for job in here.jobs():
            path = path_of("jobs", job["metadata"]["name"], HOME, "batch")
            cluster.api().delete(path, propagationPolicy="Foreground")
        end = time.monotonic() + 60
        while here.pods():
            assert time.monotonic() < end, here.tail()
            time.sleep(0.1)


def _things(path: Path) -> list[Object]:
    things = [thing for thing in yaml.safe_load_all(path.read_text(encoding="utf-8")) if thing]
    return [thing for thing in things if thing["kind"] != "PersistentVolumeClaim"]


def _with_database(deployment: Object, url: str) -> None:
    spec = deployment["spec"]["template"]["spec"]
    container = spec["containers"][0]
    container["env"] = [each for each in container["env"] if each["name"] != "PREFILLGATE_STORE"]
    container["env"].append({"name": "PREFILLGATE_STORE_URL", "value": url})
    container.pop("volumeMounts", None)
    spec.pop("volumes", None)


@pytest.fixture
def line(namespace: Namespace, controller: InAPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GatedLine:
    monkeypatch.setenv("PGUSER", USER)  # no status tells who logs in
    found = GatedLine(namespace, controller, tmp_path)  # type: ignore[arg-type]
    found.set_up()
    return found


def test_a_rollout_is_replayed_in_a_job_with_an_account_of_its_own_and_nothing_else_is(
    line: GatedLine, controller: InAPod
) -> None:
    line.apply(runner="Job")
    floor = line.ready()["status"]["floor"]["prefills"]  # after a promotion the new profile is compared with itself
    assert controller.jobs() == []  # the floor is the controller's own
    line.serve("green", "--seed", "2")
    rollout = line.decided()
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    assert_nothing_twice(line, rollout, struck=floor)
    (job,) = controller.jobs()
    assert job["metadata"]["labels"][REPLAY_LABEL] == rollout["metadata"]["uid"]
    pod = job["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["restartPolicy"]) == (REPLAY_ACCOUNT, "Never")
    assert rollout["status"]["evidence"]["store"].startswith("postgresql://")
    audit = line.namespace.cluster.audit
    assert audit.entries(user=ACCOUNT)
    assert [entry for entry in audit.writes(user=ACCOUNT) if entry.code != 201] == []
    assert [entry for entry in audit.entries(user=ACCOUNT) if entry.code in (401, 403)] == []
    made = [entry for entry in audit.writes(resource="jobs") if entry.verb == "create"]
    own = {entry.verb for entry in audit.entries(resource="jobs", user=f"system:serviceaccount:{HOME}:controller")}
    assert {"get", "list", "create"} <= own <= {"get", "list", "create", "delete"}
    assert {(entry.user, entry.namespace) for entry in made} == {(f"system:serviceaccount:{HOME}:controller", HOME)}


def begun_in_a_job(line: GatedLine) -> int:
    """A slow rollout of which some cells are there; the prefills of the floor before it."""
    line.serve_both(SLOW)
    line.apply(runner="Job")
    floor: int = line.ready()["status"]["floor"]["prefills"]
    line.serve("green", *SLOW, "--seed", "2")
    line.until(lambda: len(line.truth("green")) >= 3)
    return floor


def test_after_the_controller_died_its_job_is_replaced_and_goes_on_where_it_stood(
    line: GatedLine, controller: InAPod
) -> None:
    floor = begun_in_a_job(line)
    (before,) = controller.jobs()
    (pod,) = controller.pods(**{"app.kubernetes.io/name": "prefillgate"})
    path = path_of("pods", pod["metadata"]["name"], HOME)
    line.namespace.cluster.api().delete(path, gracePeriodSeconds=0)
    rollout = line.decided(seconds=180)
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    names = [job["metadata"]["name"] for job in controller.jobs()]
    assert len(names) == 1 and names != [before["metadata"]["name"]]
    assert_nothing_twice(line, rollout, struck=1 + floor)


def test_a_rollout_goes_from_its_job_to_the_controller_and_back_and_no_two_are_at_work_at_once(
    line: GatedLine, controller: InAPod
) -> None:
    floor = begun_in_a_job(line)
    line.apply(runner="Controller")
    line.until(lambda: controller.jobs() == [])
    there = len(line.truth("green"))
    line.until(lambda: len(line.truth("green")) >= there + 2)
    line.apply(runner="Job")
    line.until(controller.jobs)
    rollout = line.decided(seconds=180)
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    assert_nothing_twice(line, rollout, struck=2 + floor)


def test_a_persons_word_is_written_into_the_evidence_that_a_job_writes(line: GatedLine, controller: InAPod) -> None:
    begun_in_a_job(line)
    name = line.rollouts()[-1]["metadata"]["name"]
    words = (f"{OVERRIDE}=hold", f"{OVERRIDE_REASON}=not tonight")
    assert line.namespace.kubectl("annotate", "profilerollout", name, *words).returncode == 0
    rollout = line.wait_rollout(lambda found: found["status"].get("decision", {}).get("reason") == "Override")
    assert answer(rollout) == ("Hold", "Blocked", "Refused")

    def written() -> list[Overridden]:
        with read_store(store_address(line.rollouts()[-1]["status"]["evidence"]["store"])) as journal:
            return [event for event in journal.events() if isinstance(event, Overridden)]

    (word,) = line.until(written)
    assert (word.verdict, word.reason) == ("hold", "not tonight")


def test_a_job_that_cannot_begin_is_told_with_where_to_look(line: GatedLine, controller: InAPod) -> None:
    api = line.namespace.cluster.api()
    line.apply(runner="Job")
    line.ready()
    binding = path_of("clusterrolebindings", "prefillgate-replay", group="rbac.authorization.k8s.io")
    api.delete(binding)
    api.delete(path_of("rolebindings", "prefillgate-jobs", HOME, "rbac.authorization.k8s.io"))
    line.serve("green", "--seed", "2")
    told = line.wait_rollout(
        lambda found: "jobs" in message(found, "Screened") and "forbidden" in message(found, "Screened")
    )
    assert "batch" in message(told, "Screened")
