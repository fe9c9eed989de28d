"""What the command puts together: each setting reaches the part that it is for, seen on what becomes of objects."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefillgate.api.kinds.names import APART_LABEL, SCALED
from prefillgate.app.work import ThreadWorks
from prefillgate.core.journal import CellMeasured
from prefillgate.evidence import StoreError, read_store
from prefillgate.evidence.book import open_book
from prefillgate.evidence.book_rows import Scaled
from prefillgate.kube.objects import CONFIG_MAPS, DEPLOYMENTS, PODS, PROFILE_ROLLOUTS, REPLAY_SETS, SERVING_LINES, Kind
from tests.support.controllers import Controller
from tests.support.fake_api import FakeApi, Fault
from tests.support.fake_api.store import Object, Write
from tests.support.manual_clock import until
from tests.support.runs import write_set
from tests.support.simulated import SimulatedServer, start_simulated

Make = Callable[..., Controller]
USER = Write("somebody")


def put(fake: FakeApi, kind: Kind, name: str, space: str = "default", **fields: Any) -> None:
    thing = {"metadata": {"name": name, "namespace": space}, **fields}
    fake.store.create(fake._of(kind), space, thing, USER)


def status(fake: FakeApi, kind: Kind, name: str, space: str = "default") -> Object:
    found: Object = fake.store.objects[kind.plural, space, name].get("status") or {}
    return found


def accepted(fake: FakeApi, kind: Kind, name: str, space: str = "default") -> tuple[str, str, str] | None:
    found = status(fake, kind, name, space).get("conditions", [])
    return next((tuple(e[k] for k in ("status", "reason", "message")) for e in found if e["type"] == "Accepted"), None)


def arm(url: str, *args: str) -> Object:
    profile = {"image": "ghcr.io/ggml-org/llama.cpp:server-b7100", "args": ["-m", "m.gguf", *args]}
    return {"profile": profile, "endpoint": {"url": url}}


def put_line(fake: FakeApi, folder: Path, url: str, *args: str, space: str = "default") -> None:
    """A line of servers outside the cluster, whose profiles are the same, and its cases."""
    text = write_set(folder / "set.jsonl", 3, 20).read_text(encoding="utf-8")
    put(fake, CONFIG_MAPS, "cases", space, data={"cases.jsonl": text})
    put(fake, REPLAY_SETS, "cases", space, spec={"configMap": {"name": "cases"}})
    spec = {"baseline": arm(url, *args), "candidate": arm(url, *args), "replaySetRef": {"name": "cases"}}
    put(fake, SERVING_LINES, "chat", space, spec={**spec, "suspend": True})


async def test_only_the_namespaces_that_are_named_are_watched(fake: FakeApi, controller: Make, tmp_path: Path) -> None:
    put_line(fake, tmp_path, "http://10.88.0.1:1")
    put_line(fake, tmp_path, "http://10.88.0.1:1", space="kube-system")
    controller(real=True, watch_namespaces="kube-system").start()
    await until(lambda: accepted(fake, SERVING_LINES, "chat", "kube-system"))
    lists = [call for call in fake.calls if call == ("list", "servinglines")]
    assert len(lists) == 1
    assert status(fake, SERVING_LINES, "chat") == {}


async def test_a_replay_set_on_the_volume_is_found_in_its_folder(
    fake: FakeApi, controller: Make, tmp_path: Path
) -> None:
    (tmp_path / "sets" / "default").mkdir(parents=True)
    write_set(tmp_path / "sets" / "default" / "a.jsonl", 4, 20)
    put(fake, REPLAY_SETS, "a", spec={"volume": {"path": "a.jsonl"}})
    controller(real=True, replay_sets=str(tmp_path / "sets")).start()
    await until(lambda: status(fake, REPLAY_SETS, "a").get("cases"))
    assert status(fake, REPLAY_SETS, "a")["cases"] == 4


async def test_a_pod_that_cannot_be_put_back_is_named_in_the_log_and_makes_the_controller_troubled_until_it_is(
    fake: FakeApi, controller: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    put(fake, PODS, "left", metadata={"name": "left", "namespace": "default", "labels": {APART_LABEL: "scratch"}})
    refusal = fake.fail(Fault("status", "delete", "pods", times=10_000, code=403, reason="Forbidden"))
    one = controller(real=True).start()
    await until(lambda: "trouble: pods put aside" in one.process.ready().lines)
    refusal.times = 0
    await until(lambda: not fake.store.select(fake._of(PODS), "default"))
    await until(lambda: "trouble: pods put aside" not in one.process.ready().lines)
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines() if "pods put aside" in line]
    assert [each["event"] for each in said] == ["apart_trouble", "trouble_over"]
    assert "pod default/left: Forbidden" in said[0]["message"]


async def test_what_cannot_be_scaled_back_is_told_in_the_log_and_makes_the_controller_troubled_until_it_is(
    fake: FakeApi, controller: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    noted = [{"kind": "Deployment", "name": "base", "before": 1, "ours": [0]}]
    base = {"replicas": 0, "selector": {"matchLabels": {"app": "base"}}}
    put(fake, DEPLOYMENTS, "base", spec=base)
    meta = {"name": "chat", "namespace": "default", "annotations": {SCALED: json.dumps(noted)}}
    put(fake, SERVING_LINES, "chat", metadata=meta, spec={})
    refusal = fake.fail(Fault("status", "patch", "deployments", times=10_000, code=403, reason="Forbidden"))
    one = controller(real=True).start()
    await until(lambda: "trouble: replicas of default/chat" in one.process.ready().lines)
    assert fake.store.objects["deployments", "default", "base"]["spec"]["replicas"] == 0
    refusal.times = 0
    await until(lambda: fake.store.objects["deployments", "default", "base"]["spec"]["replicas"] == 1)
    await until(lambda: "trouble: replicas of default/chat" not in one.process.ready().lines)
    assert SCALED not in fake.store.objects["servinglines", "default", "chat"]["metadata"]["annotations"]
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines() if "replicas of default/chat" in line]
    assert [each["event"] for each in said] == ["scaling_trouble", "trouble_over"]
    assert "to allow it: kubectl create rolebinding -n default" in said[0]["message"]


async def test_a_controller_that_begins_puts_back_what_was_left_of_a_line_that_is_gone(
    fake: FakeApi, controller: Make
) -> None:
    noted = [{"kind": "Deployment", "name": "base", "before": 1, "ours": [0]}]
    put(fake, DEPLOYMENTS, "base", spec={"replicas": 0, "selector": {"matchLabels": {"app": "base"}}})
    one = controller(real=True)
    with open_book(one.settings.book) as book:
        book.keep_scaled(Scaled("default/chat", "uid-1", json.dumps(noted)))
    one.start()
    await until(lambda: fake.store.objects["deployments", "default", "base"]["spec"]["replicas"] == 1)


@pytest.mark.parametrize(
    ("host", "flags", "reason"),
    [
        ("127.0.0.1", {}, "EndpointForbidden"),
        ("127.0.0.1", {"allow_address": "127.0.0.0/8"}, "Accepted"),
        ("10.88.0.1", {}, "Accepted"),
        ("10.88.0.1", {"deny_address": "10.0.0.0/8"}, "EndpointForbidden"),
    ],
)
async def test_addresses_are_allowed_and_denied(
    host: str, flags: dict[str, str], reason: str, fake: FakeApi, controller: Make, tmp_path: Path
) -> None:
    put_line(fake, tmp_path, f"http://{host}:1")
    controller(real=True, **flags).start()
    await until(lambda: (accepted(fake, SERVING_LINES, "chat") or ("", "", ""))[1] == reason)


async def test_credentials_are_sealed_under_the_key_that_is_given(
    fake: FakeApi, controller: Make, tmp_path: Path
) -> None:
    put_line(fake, tmp_path, "http://10.88.0.1:1", "--api-key", "hunter22hunter22")
    digests = []
    for key in ("0123456789abcdef", "0123456789abcdef", "fedcba9876543210"):
        one = controller(real=True, seal_key=key).start()
        await until(lambda: status(fake, SERVING_LINES, "chat").get("promotedProfile"))
        digests.append(status(fake, SERVING_LINES, "chat")["promotedProfile"]["digest"])
        await one.stop()
        thing = fake.store.objects["servinglines", "default", "chat"]
        bare = {name: value for name, value in thing.items() if name != "status"}
        fake.store.update(fake._of(SERVING_LINES), "default", "chat", bare, Write("somebody", subresource="status"))
    assert digests[0] == digests[1] != digests[2]
    assert "hunter22" not in json.dumps([status(fake, SERVING_LINES, "chat")])


@pytest.mark.parametrize("attempts", [1, 3])
async def test_so_many_refusals_in_a_row_make_a_server_unreachable(
    attempts: int, fake: FakeApi, controller: Make, tmp_path: Path
) -> None:
    asked: list[int] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(1)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    put_line(fake, tmp_path, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    controller(real=True, reach_attempts=str(attempts), allow_address="127.0.0.1").start()

    def reason() -> str:
        found = status(fake, SERVING_LINES, "chat").get("conditions", [])
        return next((each["reason"] for each in found if each["type"] == "EndpointsReady"), "")

    await until(lambda: reason() not in ("", "Probing"))
    assert (reason(), len(asked)) == ("EndpointUnreachable", attempts)
    server.close()


async def test_an_ended_rollout_whose_store_is_not_there_says_that_its_evidence_is_gone(
    fake: FakeApi, controller: Make, tmp_path: Path
) -> None:
    put_line(fake, tmp_path, "http://127.0.0.1:9")
    one, evidence = controller(real=True, allow_address="127.0.0.1"), {"store": "x", "run": "uid-1", "rows": 5}
    there = tmp_path / "one" / "store" / "default" / "chat" / "uid-1.db"
    there.parent.mkdir(parents=True)
    there.write_bytes(b"something")
    for name, of in (("kept", evidence), ("lost", {**evidence, "run": "uid-2"}), ("never", {**evidence, "rows": 0})):
        told = {"observedGeneration": 1, "endedAt": "2026-11-30T10:00:00Z", "evidence": of}
        put(fake, PROFILE_ROLLOUTS, name, spec={"lineRef": {"name": "chat"}})
        fake.store.objects[PROFILE_ROLLOUTS.plural, "default", name]["status"] = told

    def said(name: str) -> str | None:
        found = status(fake, PROFILE_ROLLOUTS, name).get("conditions", [])
        return next((each["reason"] for each in found if each["type"] == "StoreBehind"), None)

    one.start()
    await until(lambda: said("lost"))
    assert [said(name) for name in ("lost", "kept", "never")] == ["EvidenceGone", None, None]


async def test_a_store_that_is_deleted_under_a_leader_is_told_on_every_line_and_made_anew_though_nothing_changes(
    fake: FakeApi, controller: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_line(fake, tmp_path, "http://127.0.0.1:9")
    put(fake, SERVING_LINES, "talk", spec=fake.store.objects["servinglines", "default", "chat"]["spec"])

    def all_say(reason: str) -> bool:
        found = [status(fake, SERVING_LINES, name).get("conditions", []) for name in ("chat", "talk")]
        return all(any(each["reason"] == reason for each in conditions) for conditions in found)

    one = controller(real=True, allow_address="127.0.0.1").start()
    await until(lambda: all_say("StoreCurrent"))
    shutil.rmtree(one.settings.book.parent)
    await until(lambda: all_say("StoreUnreachable"))
    assert "trouble: evidence store" in one.process.ready().lines
    assert not one.settings.book.exists()
    await until(lambda: all_say("StoreCurrent"))
    assert one.settings.book.exists()
    assert "trouble: evidence store" not in one.process.ready().lines
    rows = [json.loads(row) for row in capsys.readouterr().err.splitlines()]
    (trouble,) = [row for row in rows if row["event"] == "store_trouble"]
    assert "deleted or moved away while it was open" in trouble["message"]


async def test_so_many_replays_run_at_once(fake: FakeApi, controller: Make) -> None:
    one = controller(real=True, concurrent_replays="7").start()
    await until(lambda: one.process._loop)
    assert one.process._loop is not None
    works = one.process._loop._parts.works
    assert isinstance(works, ThreadWorks) and works._settings.most_at_once == 7


async def test_what_a_replay_says_is_logged_with_line_work_and_term(
    fake: FakeApi, controller: Make, healthy: SimulatedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_line(fake, tmp_path, healthy.url)
    thing = fake.store.objects["servinglines", "default", "chat"]
    spec = {**thing["spec"], "suspend": False}
    fake.store.update(fake._of(SERVING_LINES), "default", "chat", {**thing, "spec": spec}, USER)
    controller(real=True, allow_address="127.0.0.1").start()
    said = []

    def replay_said() -> bool:
        said.extend(json.loads(row) for row in capsys.readouterr().err.splitlines())
        return any(row["event"] == "replay_seed" for row in said)

    await until(replay_said)
    row = next(row for row in said if row["event"] == "replay_seed")
    assert row["line"] == "default/chat" and row["work"].startswith("floor-") and row["term"] == 1


async def test_a_stop_in_the_middle_of_a_replay_loses_no_cell_and_the_next_process_goes_on(
    fake: FakeApi, controller: Make, tmp_path: Path
) -> None:
    """The server takes its time, so that there is a middle."""
    with start_simulated(seed=1, text_seed=9, time_scale=0.2) as slow:
        put_line(fake, tmp_path, slow.url)
        thing = fake.store.objects["servinglines", "default", "chat"]
        spec = {**thing["spec"], "suspend": False}
        fake.store.update(fake._of(SERVING_LINES), "default", "chat", {**thing, "spec": spec}, USER)
        cells = []
        for _ in range(3):
            one = controller(real=True, allow_address="127.0.0.1").start()
            before = len(cells_of(tmp_path))
            await until(lambda before=before: len(cells_of(tmp_path)) >= before + 1)
            assert await one.stop() is True
            cells.append(len(cells_of(tmp_path)))
        controller(real=True, allow_address="127.0.0.1").start()
        await until(lambda: status(fake, SERVING_LINES, "chat").get("floor"))
    assert cells[0] < cells[1] < cells[2] < len(cells_of(tmp_path))
    assert len(list((tmp_path / "one" / "store").rglob("floor-*.db"))) == 1
    assert len(set(cells_of(tmp_path))) == len(cells_of(tmp_path))
    floor = status(fake, SERVING_LINES, "chat")["floor"]
    assert (floor["instrument"], floor["prefills"]) == ("Sound", 6)


def cells_of(folder: Path) -> list[int]:
    """Ids of the cells in the store of the one floor; nothing where there is none yet."""
    found = list((folder / "one" / "store").rglob("floor-*.db"))
    if not found:
        return []
    try:
        with read_store(found[0]) as journal:
            return [event.cell_id for event in journal.events() if isinstance(event, CellMeasured)]
    except StoreError:  # it is being made
        return []
