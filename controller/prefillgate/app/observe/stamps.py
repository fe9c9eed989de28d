"""Whether admission stamps who overrides, asked when somebody did: policies change seldom and overrides are rare, so
nothing is watched for it."""

from __future__ import annotations

from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock
from prefillgate.kube.errors import Forbidden, NotFound
from prefillgate.kube.objects import Kind, Object, Query
from prefillgate.reconcile.stamping import stamping_in_force


def _kind(kind: str) -> Kind:
    plural = f"{kind.lower()}s" if kind.endswith("Binding") else f"{kind.lower().removesuffix('y')}ies"
    return Kind("admissionregistration.k8s.io", "v1", plural, kind, namespaced=False)


_MUTATING, _VALIDATING = (
    (_kind(f"{how}AdmissionPolicy"), _kind(f"{how}AdmissionPolicyBinding")) for how in ("Mutating", "Validating")
)


class Stamps:
    """Asks the API server, and believes an answer for `seconds`: an override that waits is looked at often."""

    def __init__(self, kube: Kube, clock: Clock, seconds: float) -> None:
        self._kube, self._clock, self._seconds = kube, clock, seconds
        self._answer: tuple[float, bool] | None = None

    async def in_force(self) -> bool:
        """Whether stamps can be believed. Where the policies may not be listed, or the server has none, they cannot.
        Raises Transient."""
        now = self._clock.monotonic()
        if self._answer is None or now - self._answer[0] >= self._seconds:
            try:
                told = stamping_in_force(await self._pair(_MUTATING), await self._pair(_VALIDATING))
            except (Forbidden, NotFound):
                told = False
            self._answer = (now, told)
        return self._answer[1]

    async def _pair(self, kinds: tuple[Kind, Kind]) -> tuple[list[Object], list[Object]]:
        policies, bindings = [(await self._kube.list(Query(kind))).items for kind in kinds]
        return policies, bindings
