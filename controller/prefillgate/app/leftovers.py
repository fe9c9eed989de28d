"""Pods that stand aside though no replay of this process asks them: of a killed controller, or of a replay whose
clean-up the API server refused. Put back, or deleted; one that cannot be keeps no other from it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from prefillgate.api.kinds.names import APART_LABEL, SCRATCH
from prefillgate.app.apart_pods import ApartPods
from prefillgate.app.observe.pods import is_leaving
from prefillgate.kube.errors import Conflict, KubeError, NotFound
from prefillgate.kube.objects import PODS, Object, Query, Ref, label, name_of, namespace_of, uid_of
from prefillgate.runs.errors import CouldNotMeasure

Trouble = Callable[[str, "str | None"], None]
"""Told what is troubled and how; None: no more."""


@dataclass(slots=True)
class Leftovers:
    """`held` are keys of the pods that replays of this process ask now; `swept` is set once every namespace was looked
    at; `due` asks for another look."""

    pods: ApartPods
    trouble: Trouble = lambda scope, text: None
    held: set[str] = field(default_factory=set)
    swept: asyncio.Event = field(default_factory=asyncio.Event)
    due: asyncio.Event = field(default_factory=asyncio.Event)
    cause: str = ""  # why the last look was not the end of it

    async def sweep(self, namespaces: tuple[str, ...] = ()) -> None:
        """At once, whenever it is due, and again where something is left, as long as we lead."""
        try:
            await self._again_and_again(namespaces or (None,))
        finally:
            for namespace in namespaces or (None,):
                self.trouble(_scope(namespace), None)  # it is the next leader's

    async def _again_and_again(self, namespaces: tuple[str | None, ...]) -> None:
        failures, rng = 0, random.Random()
        while self.pods.leads():
            self.due.clear()
            found = [await self._sweep(namespace) for namespace in namespaces]
            self.cause = "; ".join(text for text in found if text)[:500]
            self.swept.set()
            failures = failures + 1 if self.cause else 0
            with suppress(TimeoutError):
                async with asyncio.timeout(self.pods.again.seconds(failures, rng) if failures else None):
                    await self.due.wait()

    async def _sweep(self, namespace: str | None) -> str:
        """One namespace (None: all); why something is left in it, empty where nothing is."""
        left: list[str] = []
        try:
            found = (await self.pods.kube.list(Query(PODS, namespace, labels=APART_LABEL))).items
        except KubeError as error:
            found, left = [], [f"{type(error).__name__}: {error}"]
            self.cause = left[0]
        for pod in found:
            ref = Ref(PODS, name_of(pod), namespace_of(pod))
            if ref.key in self.held or self.pods.is_of_a_later_term(pod):
                continue
            try:
                await self._tidied(ref, pod)
            except (NotFound, CouldNotMeasure):
                continue  # it is gone, or another leads
            except KubeError as error:
                left.append(f"pod {ref.key}: {type(error).__name__}: {error}")
                self.cause = left[-1]
        text = "; ".join(left)
        self.trouble(_scope(namespace), text or None)
        return text

    async def _tidied(self, ref: Ref, pod: Object) -> None:
        if label(pod, APART_LABEL) != SCRATCH:
            await self.pods.put_back(ref, mine=False)
        elif not is_leaving(pod):
            self.pods.check_leading()
            with suppress(Conflict):  # the name has gone to another pod
                await self.pods.kube.delete(ref, uid_of(pod))


def _scope(namespace: str | None) -> str:
    return "pods put aside" if namespace is None else f"pods put aside in {namespace}"
