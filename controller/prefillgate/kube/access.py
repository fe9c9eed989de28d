"""Which cluster, with which credentials: a kubeconfig and a context of it, or the pod's own service account.

The order is that of other controllers: what was asked for by name, `$KUBECONFIG`, the service account of the pod this
process runs in, `~/.kube/config`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefillgate.api.errors import Problem, shown
from prefillgate.kube.errors import AccessError, short

IN_POD = "KUBERNETES_SERVICE_HOST"
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Where:
    """What a person said of the cluster: a kubeconfig file, a context of it (None: its current one).

    `environ` and `service_account` (the folder with `token`, `ca.crt` and `namespace`; None: where pods have it) are
    what the process finds itself in.
    """

    kubeconfig: str | None = None
    context: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    service_account: Path | None = None


@dataclass(slots=True)
class Access:
    """A cluster found: the client library's configuration, the namespace to use where none is named, and its source."""

    where: Where
    configuration: Any
    namespace: str
    source: str

    async def reload(self) -> bool:
        """Read the credentials again; whether there are new ones. For a token that was rotated before its time."""
        fresh = await find_access(self.where)
        changed = fresh.configuration.api_key != self.configuration.api_key
        self.configuration.api_key = fresh.configuration.api_key
        self.configuration.refresh_api_key_hook = fresh.configuration.refresh_api_key_hook
        return bool(changed)


async def find_access(where: Where) -> Access:
    """Load what `where` names, or what there is. Raises AccessError: nothing there, unreadable, no such context."""
    asked = where.kubeconfig or where.environ.get("KUBECONFIG")
    if asked:
        return await _kubeconfig(where, asked)
    if where.context is None and where.environ.get(IN_POD):
        return await asyncio.to_thread(_in_cluster, where)
    return await _kubeconfig(where, str(Path.home() / ".kube" / "config"))


def _in_cluster(where: Where) -> Access:
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException, incluster_config

    folder = where.service_account or Path(incluster_config.SERVICE_TOKEN_FILENAME).parent
    configuration = Configuration()
    make: Any = incluster_config.InClusterConfigLoader
    loader = make(token_filename=str(folder / "token"), cert_filename=str(folder / "ca.crt"), environ=where.environ)
    try:
        loader.load_and_set(configuration)
    except (ConfigException, OSError, ValueError) as error:
        raise AccessError(Problem("service account of the pod", "", short(str(error)))) from error
    try:
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        namespace = ""
    _strip(configuration)
    return Access(where, configuration, namespace or DEFAULT_NAMESPACE, "service account of the pod")


async def _kubeconfig(where: Where, paths: str) -> Access:
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException, load_kube_config

    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        raise AccessError(Problem(paths, "kubeconfig", "there is no such file, and this process runs in no pod"))
    configuration = Configuration()
    try:
        load: Any = load_kube_config
        loader = await load(
            config_file=paths, context=where.context, client_configuration=configuration, persist_config=False
        )
        context: Any = loader.current_context.get("context") or {}
    except ConfigException as error:
        raise AccessError(_no_context(where, paths) or Problem(paths, "", short(str(error)))) from error
    except Exception as error:  # the library meets a damaged file with whatever its code runs into
        problem = Problem(paths, "", f"this is no kubeconfig that can be used ({type(error).__name__})")
        raise AccessError(_no_context(where, paths) or problem) from error
    _strip(configuration)
    source = f"context {loader.current_context.get('name')} of {paths}"
    return Access(where, configuration, str(context.get("namespace") or DEFAULT_NAMESPACE), source)


def _strip(configuration: Any) -> None:
    """Take the newline off that an editor or `echo` leaves behind a token, now and whenever it is read again."""
    read_again = configuration.refresh_api_key_hook

    def refresh(fresh: Any) -> None:
        read_again(fresh)  # which puts itself in our place
        fresh.refresh_api_key_hook = refresh
        fresh.api_key = {name: value.strip() for name, value in fresh.api_key.items()}

    configuration.api_key = {name: value.strip() for name, value in configuration.api_key.items()}
    if read_again is not None:
        configuration.refresh_api_key_hook = refresh


def _no_context(where: Where, paths: str) -> Problem | None:
    """What to say where the context asked for, or the current one, is not in the file. None where it is."""
    from kubernetes.aio.config.kube_config import KubeConfigMerger

    try:
        merge: Any = KubeConfigMerger
        config = merge(paths).config.value
        names = [str(context["name"]) for context in config.get("contexts") or ()]
    except Exception:  # a damaged file: the caller says so
        return None
    asked = where.context or config.get("current-context")
    if asked in names:
        return None
    message = f"there is no context {shown(asked)}" if asked else "no context is current"
    return Problem(paths, "context", message, ", ".join(shown(name) for name in names[:20]) or "the file has none")
