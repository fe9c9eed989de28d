"""What the process is put together from: who looks, who replays, who plans."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from prefillgate.api.addresses import AddressRules
from prefillgate.app.carrying import WorkSettings
from prefillgate.app.holds import Holds
from prefillgate.app.job_cluster import JobPlace
from prefillgate.app.jobs import JobWorks
from prefillgate.app.logs import logger
from prefillgate.app.loop import API_SERVER
from prefillgate.app.observe.observer import ClusterObserver
from prefillgate.app.observe.settings import ObserveSettings, ProbePace
from prefillgate.app.orders import Asked
from prefillgate.app.process import Makers, Surroundings, watch_of
from prefillgate.app.run_stores import RunStores
from prefillgate.app.scaling import Scaling
from prefillgate.app.seams import Changed, Leading, Observer, Works
from prefillgate.app.work import ThreadWorks
from prefillgate.kube.errors import KubeError, Unreachable
from prefillgate.reconcile.plan import plan
from prefillgate.runs.around import Said


def makers() -> Makers:
    """The real ones."""
    return Makers(observer, works, plan)


def observer(around: Surroundings) -> Observer:
    """Who looks at the cluster, as the settings say."""
    settings = around.settings

    def trouble(kind: str, error: KubeError) -> None:
        away = isinstance(error, Unreachable)  # for all kinds: told once
        around.troubles.note(
            API_SERVER if away else watch_of(kind.lower()),
            f"{type(error).__name__}: {error}",
            "api_server_trouble" if away else "watch_trouble",
        )

    asked = ObserveSettings(
        seal_key=settings.seal_key,
        namespaces=settings.watch_namespaces,
        replay_sets=settings.replay_sets,
        addresses=AddressRules(settings.allow_address, settings.deny_address),
        database=not isinstance(settings.store, Path),
        store=settings.store,
        probe=ProbePace(refusals=settings.reach_attempts),
    )
    return ClusterObserver(around.kube, asked, around.clock, trouble)


def works(around: Surroundings, leading: Leading, changed: Changed) -> Works:
    """Who replays: threads of this process, and with a database Jobs where a line asks for them."""
    settings, troubles = around.settings, around.troubles

    def trouble(event: str, scope: str, text: str | None) -> None:
        if text is None:
            troubles.over(scope)
        else:
            troubles.note(scope, text, event)

    asked = WorkSettings(
        settings.store,
        settings.concurrent_replays,
        namespaces=settings.watch_namespaces,
        said=partial(said, leading.fence.token),
        scaling=Holds(Scaling(around.kube, leading.leads, book=leading.book), partial(trouble, "scaling_trouble")),
        trouble=partial(trouble, "apart_trouble"),
    )
    threads = ThreadWorks(leading, asked, changed, kube=around.kube)
    if isinstance(settings.store, Path):
        return threads
    namespace = settings.namespace or around.kube.namespace
    place = JobPlace(around.kube, namespace, settings.pod, RunStores(settings.store))
    return JobWorks(threads, place, leading, changed)


def said(term: int, asked: Asked) -> Said:
    """What a replay says goes to the log, with the line, the rollout and the work it is of."""
    metadata = asked.snapshot.line["metadata"]
    about: dict[str, Any] = {"line": f"{metadata['namespace']}/{metadata['name']}", "work": asked.order.key}
    about["term"] = term
    if asked.order.rollout is not None:
        about["rollout"] = asked.order.rollout

    def say(line: str, event: str = "note", level: str = "info", **facts: Any) -> None:
        log = logger().bind(**about)
        getattr(log, level)(f"replay_{event}", message=line, **facts)

    return say
