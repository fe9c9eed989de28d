"""Works of one term with Jobs on a fake API server, which runs none of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from prefillgate.app.job_cluster import JobPlace
from prefillgate.app.jobs import JobWorks
from prefillgate.app.run_stores import RunStores
from prefillgate.kube.access import Where
from prefillgate.kube.client import Kube
from prefillgate.kube.objects import PODS
from prefillgate.reconcile.snapshot import WorkSeen, WorkState
from tests.support.fake_api import FakeApi
from tests.support.fake_api.store import Object, Write
from tests.support.manual_clock import until
from tests.support.works import LINE_UID, ROLLOUT_UID, Looks, Room, order, room

USER = Write("somebody")
TOKEN = 7


@dataclass
class Here:
    """Works of one term, with Jobs on a fake API server that runs none of them."""

    fake: FakeApi
    works: JobWorks
    room: Room
    looks: Looks
    asked: list[str] = field(default_factory=list)

    def start(self) -> None:
        self.works.start(order(), self.looks.observed())

    def one(self) -> WorkSeen:
        return self.works.seen(LINE_UID)[0]

    def jobs(self) -> list[str]:
        return sorted(name for plural, _, name in self.fake.store.objects if plural == "jobs")


def put(fake: FakeApi, kind: Any, name: str, **more: Any) -> Object:
    metadata = {"name": name, "namespace": "default", **more.pop("metadata", {})}
    return fake.store.create(fake._of(kind), "default", {"metadata": metadata, **more}, USER)


@asynccontextmanager
async def jobs_of(fake: FakeApi, looks: Looks, folder: Path, **more: Any) -> AsyncIterator[Here]:
    (folder / "kubeconfig").write_text(yaml.safe_dump(fake.kubeconfig()), encoding="utf-8")
    looks.spec = {"runner": "Job"}
    if ("pods", "default", "controller-0") not in fake.store.objects:
        put(fake, PODS, "controller-0", spec={"containers": [{"name": "c", "args": ["controller"]}]})
    async with (
        room(folder / "stores", token=TOKEN, **more) as made,
        await Kube.connect(Where(str(folder / "kubeconfig"))) as kube,
    ):
        asked: list[str] = []
        place = JobPlace(kube, "default", "controller-0", RunStores(folder / "stores"), poll_seconds=0.05)
        works = JobWorks(made.works, place, made.leading, asked.append)
        yield Here(fake, works, made, looks, asked)
        assert await works.close(60)


async def begun(here: Here) -> None:
    """A replay that has a store, and a Job that goes on with it."""
    here.room.works.start(order(), here.looks.observed())
    await here.room.until(lambda seen: seen.rows > 5)
    here.room.works.stop(LINE_UID, ROLLOUT_UID, "for a Job")
    await here.room.until(lambda seen: seen.state is WorkState.BROKEN)
    here.start()
    await until(lambda: here.jobs() and here.one().rows)
