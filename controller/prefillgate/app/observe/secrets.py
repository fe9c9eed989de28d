"""What a connection needs out of Secrets: only of those whose owner labelled them as usable by the gate.

Nothing of a Secret's data stands in any text; what is read is kept for half a minute, in memory.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

from prefillgate.api.access import Access, Held, HeldAccess
from prefillgate.api.kinds.arms import Arm, Endpoint
from prefillgate.api.kinds.names import USABLE_BY_GATE, USABLE_BY_LABEL
from prefillgate.engines.access import AccessError, engine_options
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock
from prefillgate.kube.errors import Forbidden
from prefillgate.kube.objects import SECRETS, Object, Ref, label
from prefillgate.reconcile.snapshot import Trouble

KEPT_SECONDS = 30.0
CERTIFICATE, KEY = "tls.crt", "tls.key"


class Unusable(Exception):
    """A Secret cannot be used: `reason` of the table, and what a person must know."""

    def __init__(self, reason: str, said: str) -> None:
        self.reason = reason
        super().__init__(said)


@dataclass(slots=True)
class Secrets:
    """Reads Secrets by name; never lists them."""

    kube: Kube
    clock: Clock
    _kept: dict[str, tuple[float, Object]] = field(default_factory=dict, repr=False)

    async def access(self, namespace: str, arm: Arm, path: str) -> tuple[Access, tuple[Trouble, ...]]:
        """How an arm's servers are asked, and what is wrong with its Secrets. Raises KubeError."""
        found: dict[str, Held] = {}
        wrong: dict[str, Trouble] = {}  # by field: the first is enough
        for what, name, key, at in _asked(arm):
            try:
                found[what] = await self.value(namespace, name, key)
            except Unusable as error:
                wrong.setdefault(at, Trouble(error.reason, f"{path}.{at}", str(error)))
        troubles = list(wrong.values())
        access = Access(
            tls_server_name=arm.endpoint.tls_server_name or _service_name(namespace, arm.endpoint),
            host_header=arm.endpoint.host_header,
            held=HeldAccess(**found) if found else None,
        )
        if not troubles:
            troubles += _unfit(access, arm, path)
        return access, tuple(troubles)

    async def value(self, namespace: str, name: str, key: str) -> Held:
        """One key of a Secret. Raises `Unusable`, KubeError."""
        secret = await self._read(namespace, name)
        if label(secret, USABLE_BY_LABEL) != USABLE_BY_GATE:
            said = (
                f"Secret {name} does not bear the label {USABLE_BY_LABEL}: {USABLE_BY_GATE}. Its owner allows it with: "
                f"kubectl label secret -n {namespace} {name} {USABLE_BY_LABEL}={USABLE_BY_GATE}"
            )
            raise Unusable("SecretNotUsable", said)
        data = secret.get("data")
        if not isinstance(data, Mapping) or not isinstance(data.get(key), str):
            raise Unusable("SecretNotFound", f"Secret {name} has no key {key}.")
        try:
            value = base64.b64decode(data[key], validate=True)
        except (binascii.Error, ValueError):
            raise Unusable("SecretNotUsable", f"Secret {name}, key {key} holds no base64.") from None
        return Held(f"Secret {name}, key {key}", value)

    async def _read(self, namespace: str, name: str) -> Object:
        mark, now = f"{namespace}/{name}", self.clock.monotonic()
        at, kept = self._kept.get(mark, (0.0, None))
        if kept is not None and now - at <= KEPT_SECONDS:
            return kept
        self._kept = {key: each for key, each in self._kept.items() if now - each[0] <= KEPT_SECONDS}
        try:
            secret = await self.kube.find(Ref(SECRETS, name, namespace))
        except Forbidden as error:
            said = (
                f"The controller may not read Secret {name}. Add a Role in {namespace}: "
                f'{{apiGroups: [""], resources: [secrets], resourceNames: [{name}], verbs: [get]}}.'
            )
            raise Unusable("SecretNotUsable", said) from error
        if secret is None:
            raise Unusable("SecretNotFound", f"There is no Secret {name} in {namespace}.")
        self._kept[mark] = (now, secret)
        return secret


def _service_name(namespace: str, endpoint: Endpoint) -> str | None:
    """What the certificate behind a Service bears: the Service's name, though its one pod is asked at its address."""
    service = endpoint.service
    return None if service is None or service.scheme != "HTTPS" else f"{service.name}.{namespace}.svc"


def _asked(arm: Arm) -> list[tuple[str, str, str, str]]:
    """What it is for, name of the Secret, key, and the field that says so."""
    found = []
    if arm.api_key_secret_ref is not None:
        found.append(("api_key", arm.api_key_secret_ref.name, arm.api_key_secret_ref.key, "apiKeySecretRef"))
    if arm.ca_bundle_secret_ref is not None:
        found.append(("ca", arm.ca_bundle_secret_ref.name, arm.ca_bundle_secret_ref.key, "caBundleSecretRef"))
    if arm.client_certificate_secret_ref is not None:
        name, at = arm.client_certificate_secret_ref.name, "clientCertificateSecretRef"
        found += [("client_cert", name, CERTIFICATE, at), ("client_key", name, KEY, at)]
    return found


def _unfit(access: Access, arm: Arm, path: str) -> list[Trouble]:
    """What no connection can be made with: a key that no header can carry, PEM that is none."""
    try:
        engine_options(access, None, {})
    except AccessError as error:
        said = str(error)
        named = [at for _, name, key, at in _asked(arm) if f"Secret {name}, key {key}" in said]
        return [Trouble("SecretNotUsable", f"{path}.{named[0] if named else 'endpoint'}", said)]
    return []
