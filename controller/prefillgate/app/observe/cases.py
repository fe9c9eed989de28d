"""The cases of a ReplaySet: out of a ConfigMap, a volume or a URL, read when they are new and kept by their version."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from prefillgate.api.access import Access, HeldAccess
from prefillgate.api.addresses import AddressRules
from prefillgate.api.errors import ReplaySetError
from prefillgate.api.kinds.replay_set_kind import ConfigMapCases, ReplaySetSpec, UrlCases, VolumeCases
from prefillgate.app.observe.fetching import NotFetched, fetched
from prefillgate.app.observe.held import Held
from prefillgate.app.observe.sampling import sampled
from prefillgate.app.observe.secrets import Secrets, Unusable
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock
from prefillgate.kube.errors import Unreachable
from prefillgate.kube.objects import CONFIG_MAPS, Object, Ref, name_of, namespace_of, uid_of, version_of
from prefillgate.reconcile.snapshot import Trouble
from prefillgate.replay.checks import problems_of_case
from prefillgate.replay.replay_set import ReplaySet, read_replay_set

LARGEST_BYTES = 64 * 2**20
AGAIN_SECONDS = 60.0  # after a failure that may pass, and for files, which nobody tells of
SHOWN_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class SetRead:
    """A replay set, or why there is none, with the path of the field in the ReplaySet."""

    replay_set: ReplaySet | None = None
    trouble: Trouble | None = None
    again: bool = False  # another try may do

    def again_seconds(self, spec: ReplaySetSpec) -> float | None:
        """When to look again though nobody tells of a change: after what may pass, and at files."""
        return AGAIN_SECONDS if self.again or spec.volume is not None else None


@dataclass(slots=True)
class _Reading:
    mark: tuple[str, ...]
    task: asyncio.Task[SetRead]
    began: float


@dataclass(slots=True)
class Cases:
    """Reads replay sets. `changed(key)` is called when one that was being read is there."""

    kube: Kube
    held: Held  # ConfigMaps
    secrets: Secrets
    clock: Clock
    rules: AddressRules
    folder: Path | None
    changed: Callable[[str], None]
    seconds: float = 5.0
    _readings: dict[str, _Reading] = field(default_factory=dict)

    async def read(self, thing: Object, spec: ReplaySetSpec) -> SetRead:
        """The cases of a ReplaySet. Raises Unreachable while they are still being read, KubeError."""
        key = f"{namespace_of(thing)}/{name_of(thing)}"
        mark = (uid_of(thing), spec.model_dump_json(), *await self._version(thing, spec))
        known = self._readings.get(key)
        if known is None or known.mark != mark or self._is_due(known):
            if known is not None:
                known.task.cancel()
            known = _Reading(mark, asyncio.create_task(self._read(thing, spec)), self.clock.monotonic())
            self._readings[key] = known
        done, _ = await asyncio.wait({known.task}, timeout=self.seconds)
        if done and not known.task.cancelled():
            return known.task.result()
        if done:  # somebody else, who saw another version, reads anew
            raise Unreachable(f"ReplaySet {key} has changed while it was read")
        known.task.add_done_callback(partial(self._tell, key))
        raise Unreachable(f"ReplaySet {key} is still being read")

    def forget(self, key: str) -> None:
        """It is gone."""
        gone = self._readings.pop(key, None)
        if gone is not None:
            gone.task.cancel()

    def close(self) -> None:
        """End what is being read."""
        for key in list(self._readings):
            self.forget(key)

    def _tell(self, key: str, task: asyncio.Task[SetRead]) -> None:
        if not task.cancelled():
            self.changed(key)

    def _is_due(self, known: _Reading) -> bool:
        if not known.task.done() or self.clock.monotonic() - known.began < AGAIN_SECONDS:
            return False
        return known.task.cancelled() or known.task.exception() is not None or known.task.result().again

    async def _version(self, thing: Object, spec: ReplaySetSpec) -> tuple[str, ...]:
        """What tells what stands there now from what stood there before."""
        if spec.config_map is not None:
            seen = self.held.get(namespace_of(thing), spec.config_map.name)
            return () if seen is None else (uid_of(seen), version_of(seen))
        if spec.volume is not None and self.folder is not None:
            return await asyncio.to_thread(_file_version, self.folder / str(namespace_of(thing)) / spec.volume.path)
        return ()

    async def _read(self, thing: Object, spec: ReplaySetSpec) -> SetRead:
        namespace = str(namespace_of(thing))
        try:
            data = await self._bytes(namespace, spec)
            return await asyncio.to_thread(_parsed, name_of(thing), spec, data)
        except CasesProblem as error:
            return SetRead(trouble=Trouble(error.reason, error.field, str(error)), again=error.again)

    async def _bytes(self, namespace: str, spec: ReplaySetSpec) -> bytes:
        if spec.config_map is not None:
            return await self._of_config_map(namespace, spec.config_map)
        if spec.volume is not None:
            if self.folder is None:
                said = (
                    "The controller has no volume of replay sets: --replay-sets names the folder where it is mounted."
                )
                raise CasesProblem("CasesNotFound", "spec.volume", said)
            return await asyncio.to_thread(_of_volume, self.folder, namespace, spec.volume)
        assert spec.url is not None  # the spec says so
        return await self._of_url(namespace, spec.url)

    async def _of_config_map(self, namespace: str, asked: ConfigMapCases) -> bytes:
        obj = await self.kube.find(Ref(CONFIG_MAPS, asked.name, namespace))
        if obj is None:
            said = f"There is no ConfigMap {asked.name} in {namespace}."
            raise CasesProblem("CasesNotFound", "spec.configMap.name", said)
        text, binary = (obj.get("data") or {}).get(asked.key), (obj.get("binaryData") or {}).get(asked.key)
        if isinstance(text, str):
            return text.encode("utf-8", "surrogatepass")
        if isinstance(binary, str):
            try:
                return base64.b64decode(binary)
            except (binascii.Error, ValueError):
                said = f"ConfigMap {asked.name}, key {asked.key} holds no base64."
                raise CasesProblem("CasesInvalid", "spec.configMap.key", said) from None
        raise CasesProblem("CasesNotFound", "spec.configMap.key", f"ConfigMap {asked.name} has no key {asked.key}.")

    async def _of_url(self, namespace: str, asked: UrlCases) -> bytes:
        held = {}
        wanted = (("api_key", asked.api_key_secret_ref), ("ca", asked.ca_bundle_secret_ref))
        for (what, ref), at in zip(wanted, ("apiKeySecretRef", "caBundleSecretRef"), strict=True):
            if ref is None:
                continue
            try:
                held[what] = await self.secrets.value(namespace, ref.name, ref.key)
            except Unusable as error:
                raise CasesProblem(error.reason, f"spec.url.{at}", str(error), again=True) from error
        access = Access(held=HeldAccess(**held) if held else None)
        try:
            return await fetched(asked.url, access, replace(self.rules, tenant=namespace), LARGEST_BYTES)
        except NotFetched as error:
            raise CasesProblem(error.reason, "spec.url.url", str(error), error.again) from error


class CasesProblem(Exception):
    """Why there are no cases: reason of the table, field, whether another try may do."""

    def __init__(self, reason: str, field_path: str, said: str, again: bool = False) -> None:
        self.reason = reason
        self.field = field_path
        self.again = again
        super().__init__(said)


def _file_version(path: Path) -> tuple[str, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return str(found.st_mtime_ns), str(found.st_size), str(found.st_ino)


def _of_volume(folder: Path, namespace: str, asked: VolumeCases) -> bytes:
    """A file below the namespace's own folder, whatever links lead to."""
    root = folder.resolve() / namespace
    try:
        path = (root / asked.path).resolve(strict=True)
        if not path.is_relative_to(root):
            said = f"{asked.path} leads out of the folder of {namespace}, by a link."
            raise CasesProblem("CasesNotFound", "spec.volume.path", said, again=True)
        if not path.is_file():
            raise CasesProblem("CasesNotFound", "spec.volume.path", f"{asked.path} is no file.", again=True)
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        said = (
            f"{asked.path} in the folder {namespace} of the volume cannot be read: {error.strerror or 'no such file'}."
        )
        raise CasesProblem("CasesNotFound", "spec.volume.path", said, again=True) from error
    except RuntimeError as error:  # links in a circle, on Python before 3.13
        raise CasesProblem(
            "CasesNotFound", "spec.volume.path", f"{asked.path} leads in a circle.", again=True
        ) from error
    return data


def _parsed(name: str, spec: ReplaySetSpec, data: bytes) -> SetRead:
    if len(data) > LARGEST_BYTES:
        said = f"There are more than {LARGEST_BYTES} bytes of it."
        return SetRead(trouble=Trouble("CasesInvalid", "spec", said))
    found = hashlib.sha256(data).hexdigest()
    if spec.sha256 is not None and found != spec.sha256:
        told = "another SHA-256" if spec.url is not None else f"the SHA-256 {found}"
        said = f"What was read has {told}, not {spec.sha256}: name the digest of what is there now."
        return SetRead(trouble=Trouble("DigestMismatch", "spec.sha256", said), again=spec.config_map is None)
    try:
        read = read_replay_set(io.BytesIO(data), name, partial(sampled, sampling=spec.sampling))
        wrong = [problem for case in read.cases for problem in problems_of_case(case, name)]
        if wrong:
            raise ReplaySetError(*wrong)
    except ReplaySetError as error:
        told = "; ".join(str(each) for each in error.problems[:SHOWN_PROBLEMS])
        more = "; and more" if len(error.problems) > SHOWN_PROBLEMS else ""
        return SetRead(trouble=Trouble("CasesInvalid", f"spec.{_source(spec)}", told + more))
    return SetRead(read)


def _source(spec: ReplaySetSpec) -> str:
    return "configMap" if spec.config_map is not None else "volume" if spec.volume is not None else "url"
