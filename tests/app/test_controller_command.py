"""`prefillgate controller` as a process of its own, against a fake API server: what it says, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from prefillgate.kube.objects import SERVING_LINES
from tests.support.controllers import line
from tests.support.fake_api import FakeApi, Fault
from tests.support.fake_api.store import Object, Write
from tests.support.manual_clock import until

KEY = "the-seal-key-of-this-test"
TOKEN = "the-token-of-this-test"


class Running:
    """A controller and what it said."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for raw in self.process.stderr:
            self.lines.append(raw.decode("utf-8").rstrip("\n"))

    async def end(self) -> int:
        """Its exit code, and everything it said."""
        code = await self.process.wait()
        await self.reading
        return code

    def said(self, event: str) -> list[dict[str, Any]]:
        return [row for row in map(json.loads, list(self.lines)) if row["event"] == event]

    @property
    def address(self) -> str:
        return str(self.said("started")[0]["listen"])


Start = Callable[..., Coroutine[Any, Any, Running]]


@pytest.fixture
async def start(fake: FakeApi, tmp_path: Path) -> AsyncIterator[Start]:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(fake.kubeconfig(token=TOKEN)), encoding="utf-8")
    made: list[Running] = []

    async def begin(*words: str, **environ: str) -> Running:
        clean = {name: text for name, text in os.environ.items() if not name.startswith("PREFILLGATE_")}
        given = {"PREFILLGATE_KUBECONFIG": str(path), "PREFILLGATE_NAMESPACE": "default"}
        given |= {"PREFILLGATE_STORE": str(tmp_path / "store"), "PREFILLGATE_LISTEN": "127.0.0.1:0"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "prefillgate", "controller", *words), env={**clean, **given, **environ}, stderr=PIPE
        )
        made.append(Running(process))
        return made[-1]

    yield begin
    for each in made:
        if each.process.returncode is None:
            each.process.kill()
        await each.end()


def lease(fake: FakeApi) -> Object | None:
    return fake.store.objects.get(("leases", "default", "prefillgate-controller"))


def put(fake: FakeApi, name: str, **spec: Any) -> None:
    fake.store.create(fake._of(SERVING_LINES), "default", line(name, **spec), Write("somebody"))


async def test_it_leads_looks_and_ends_in_0_with_its_lease_given_back(fake: FakeApi, start: Start) -> None:
    put(fake, "chat", engine=7)
    one = await start()
    await until(lambda: fake.store.objects["servinglines", "default", "chat"].get("status"))
    status = fake.store.objects["servinglines", "default", "chat"]["status"]
    (accepted,) = [each for each in status["conditions"] if each["type"] == "Accepted"]
    assert (accepted["status"], accepted["reason"]) == ("False", "SpecInvalid") and "spec.engine" in accepted["message"]
    one.process.send_signal(signal.SIGTERM)
    assert await one.end() == 0
    assert (lease(fake) or {})["spec"]["holderIdentity"] == ""
    events = [json.loads(row)["event"] for row in one.lines]
    assert [each for each in events if each not in ("trouble_over", "told")] == [
        *("started", "leading", "stopping", "leading_ended", "stopped"),
    ]


async def test_ctrl_c_ends_it_as_well(fake: FakeApi, start: Start) -> None:
    one = await start()
    await until(lambda: lease(fake))
    one.process.send_signal(signal.SIGINT)
    assert await one.end() == 0
    assert (lease(fake) or {})["spec"]["holderIdentity"] == ""


async def test_a_second_signal_ends_it_at_once(fake: FakeApi, start: Start) -> None:
    one = await start()
    await until(lambda: lease(fake))
    fake.fail(Fault("hang", "update", "leases", times=100))  # the Lease cannot be given back
    one.process.send_signal(signal.SIGTERM)
    await until(lambda: any('"stopping"' in row for row in one.lines))
    one.process.send_signal(signal.SIGTERM)
    assert await one.end() == 143


async def test_flags_go_before_variables(fake: FakeApi, start: Start) -> None:
    await start("--lease-name", "by-flag", PREFILLGATE_LEASE_NAME="by-variable")
    await until(lambda: ("leases", "default", "by-flag") in fake.store.objects)
    assert ("leases", "default", "by-variable") not in fake.store.objects


async def test_lines_for_people(fake: FakeApi, start: Start) -> None:
    one = await start("--log-format", "console")
    await until(lambda: any("leading" in row for row in one.lines))
    one.process.send_signal(signal.SIGTERM)
    assert await one.end() == 0
    assert not any(row.startswith("{") for row in one.lines) and "started" in one.lines[0]


async def test_only_what_is_asked_for_is_logged(fake: FakeApi, start: Start) -> None:
    one = await start("--log-level", "error")
    await until(lambda: lease(fake))
    one.process.send_signal(signal.SIGTERM)
    assert await one.end() == 0
    assert one.lines == []


async def test_no_secret_is_said_or_shown(fake: FakeApi, start: Start) -> None:
    put(fake, "chat", engine=7)
    fake.fail(Fault("status", "apply", "servinglines", times=1, code=403, reason="Forbidden"))
    one = await start("--log-level", "debug", PREFILLGATE_SEAL_KEY=KEY)
    await until(lambda: fake.store.objects["servinglines", "default", "chat"].get("status"))
    shown = Path(f"/proc/{one.process.pid}/cmdline").read_text(encoding="utf-8")
    async with httpx.AsyncClient(trust_env=False) as client:
        answers = [(await client.get(f"{one.address}/{path}")).text for path in ("metrics", "healthz", "readyz")]
    one.process.send_signal(signal.SIGTERM)
    await one.end()
    for text in (shown, *answers, *one.lines, json.dumps(list(fake.store.objects.values()), default=str)):
        assert KEY not in text and TOKEN not in text
    assert one.said("api_server_refuses")


async def test_a_variable_that_is_no_setting_is_told(fake: FakeApi, start: Start) -> None:
    one = await start(PREFILLGATE_WORKER="3", PREFILLGATE_SERVICE_HOST="10.0.0.1")
    await until(lambda: lease(fake))
    one.process.send_signal(signal.SIGTERM)
    await one.end()
    assert [row["variable"] for row in one.said("unknown_variable")] == ["PREFILLGATE_WORKER"]


def over(one: Running) -> list[str]:
    """What a controller has said to be over."""
    return [row["about"] for row in one.said("trouble_over")]


async def test_a_kind_that_may_not_be_listed_is_told_once_and_when_it_is_over(fake: FakeApi, start: Start) -> None:
    message = 'pods is forbidden: User "gate" cannot list resource "pods"'
    fault = fake.fail(Fault("status", "list", "pods", times=1000, code=403, reason="Forbidden", message=message))
    one = await start()
    await until(lambda: fault.met >= 3)
    assert [row["about"] for row in one.said("watch_trouble")] == ["watch of pod"]
    assert message in one.said("watch_trouble")[0]["message"]
    fault.times = 0
    await until(lambda: "watch of pod" in over(one))
    assert set(over(one)) <= {"watch of pod", "pods put aside"}  # which are looked for by listing pods too
    assert over(one).count("watch of pod") == 1


async def test_a_controller_that_is_killed_is_followed_by_one_with_a_higher_token(fake: FakeApi, start: Start) -> None:
    quick = ("--lease-duration-seconds", "5", "--lease-renew-seconds", "2", "--lease-retry-seconds", "0.2")
    one = await start(*quick)
    await until(lambda: lease(fake))
    token = (lease(fake) or {})["spec"]["leaseTransitions"]
    one.process.kill()
    assert await one.end() == -signal.SIGKILL
    two = await start(*quick)
    await until(lambda: any('"leading"' in row for row in two.lines))
    assert two.said("leading")[0]["term"] == token + 1
