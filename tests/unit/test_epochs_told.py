"""Which lives of servers the replays are told of when a pod changes."""

from __future__ import annotations

import copy
from typing import Any, cast

from prefillgate.api.kinds.arms import PodsEndpoint
from prefillgate.app.observe.epochs import Epochs, PodsWay
from prefillgate.app.seams import Works

URL = "http://10.0.0.1:8080"
POD: dict[str, Any] = {
    "metadata": {"name": "web-1", "uid": "u1"},
    "status": {
        "podIP": "10.0.0.1",
        "phase": "Running",
        "containerStatuses": [
            {"name": "server", "containerID": "c1", "state": {"running": {"startedAt": "2026-11-30T12:00:00Z"}}}
        ],
    },
}


class Told:
    """A stand-in for the replays: it keeps what it was told."""

    def __init__(self) -> None:
        self.lives: list[tuple[str, str | None]] = []

    def present_epoch(self, url: str, epoch: str | None) -> None:
        self.lives.append((url, epoch))


def changed(old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[tuple[str, str | None]]:
    told, epochs = Told(), Epochs()
    epochs.tell(cast(Works, told))
    epochs.put("prod/llm", [PodsWay(PodsEndpoint(port=8080), "server")])
    epochs.pod_changed(["prod/llm"], old, new)
    return told.lives


def with_container(**status: Any) -> dict[str, Any]:
    pod = copy.deepcopy(POD)
    pod["status"]["containerStatuses"][0].update(status)
    return pod


def leaving() -> dict[str, Any]:
    pod = copy.deepcopy(POD)
    pod["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
    return pod


def test_a_pod_that_is_deleted_or_gone_was_taken_away() -> None:
    assert changed(POD, leaving()) == [(URL, None)]
    assert changed(POD, None) == [(URL, None)]
    assert changed(leaving(), None) == []


def test_an_evicted_pod_was_taken_away() -> None:
    pod = with_container(state={"terminated": {}})
    pod["status"]["phase"] = "Failed"
    assert changed(POD, pod) == [(URL, None)]


def test_a_container_that_died_by_itself_was_not_and_its_next_life_is_told() -> None:
    for state in ({"terminated": {"exitCode": 139}}, {"waiting": {"reason": "CrashLoopBackOff"}}):
        dead = with_container(state=state)
        assert changed(POD, dead) == []
        assert changed(dead, with_container(containerID="c2")) == [(URL, "u1/c2")]


def test_a_pod_at_another_address_is_told_at_both() -> None:
    moved = copy.deepcopy(POD)
    moved["status"]["podIP"] = "10.0.0.2"
    assert changed(POD, moved) == [(URL, None), ("http://10.0.0.2:8080", "u1/c1")]
    assert changed(None, POD) == [(URL, "u1/c1")]
