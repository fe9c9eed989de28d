"""What a pod says of the server in it: ready or not, where, which life, and what keeps it from serving. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefillgate.api.errors import clean
from prefillgate.api.kinds.arms import PodsEndpoint
from prefillgate.api.kinds.moments import seconds_of
from prefillgate.app.observe.trims import controller
from prefillgate.kube.objects import Object, condition, name_of, uid_of
from prefillgate.reconcile.snapshot import ServerSeen

LONGEST_SAID = 300
MANY_RESTARTS = 3  # of a container that is not Ready, one soon after the other: it will not be by waiting
SHORT_SECONDS = 600.0  # of a life; after a longer one a kubelet begins its waits anew

# Waiting for more of the same is no use: the kubelet has tried and says so.
_LASTING = frozenset(
    {
        *("CrashLoopBackOff", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    }
)
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class PodTrouble:
    """What keeps a pod from serving. `lasting`: it will not change by waiting."""

    said: str
    lasting: bool


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the pod is Ready and not on its way out."""
    ready = condition(pod, "Ready")
    return ready is not None and ready.get("status") == "True" and not is_leaving(pod)


def is_leaving(pod: Mapping[str, Any]) -> bool:
    """Whether it was deleted, or has ended for good."""
    status = _of(pod, "status")
    return "deletionTimestamp" in _of(pod, "metadata") or status.get("phase") in ("Succeeded", "Failed")


def epoch_of(pod: Mapping[str, Any], container: str) -> str | None:
    """The life of the server: the pod's uid and the id of its running container; None while none runs."""
    status = _status_of(pod, container)
    running = _of(_of(status, "state"), "running")
    found = status.get("containerID")
    return f"{uid_of(pod)}/{found}" if running and found and not is_leaving(pod) else None


def started_at(pod: Mapping[str, Any], container: str) -> str | None:
    """When the running container was started, as the kubelet tells it."""
    running = _of(_of(_status_of(pod, container), "state"), "running")
    found = running.get("startedAt")
    return None if found is None else str(found)


def port_of(pod: Mapping[str, Any], endpoint: PodsEndpoint, container: str) -> int | None:
    """The port that is meant; None where no container has one of that name. The serving container goes first."""
    if endpoint.port is not None:
        return endpoint.port
    containers = [each for each in _of(pod, "spec").get("containers") or () if isinstance(each, dict)]
    for each in sorted(containers, key=lambda one: one.get("name") != container):
        for port in each.get("ports") or ():
            if port.get("name") == endpoint.port_name and isinstance(port.get("containerPort"), int):
                return int(port["containerPort"])
    return None


def url_of(address: str, port: int, scheme: str, path: str | None) -> str:
    """The base URL of a server at an IP address."""
    host = f"[{address}]" if ":" in address else address
    return f"{scheme.lower()}://{host}:{port}{path or ''}"


def pod_url(pod: Mapping[str, Any], endpoint: PodsEndpoint, container: str) -> str | None:
    """Where a pod is asked; None while it has no address, or no such port."""
    address, port = _of(pod, "status").get("podIP"), port_of(pod, endpoint, container)
    return None if not address or port is None else url_of(str(address), port, endpoint.scheme, endpoint.path)


def server_of(pod: Mapping[str, Any], endpoint: PodsEndpoint, container: str) -> ServerSeen:
    """The server in a pod."""
    found = trouble_of(pod, container)
    said = "" if found is None else found.said
    url = pod_url(pod, endpoint, container)
    if url is None and endpoint.port_name is not None and _of(pod, "status").get("podIP"):
        said = f"no container of it has a port named {endpoint.port_name}"
    ready = is_ready(pod)
    return ServerSeen(name_of(pod), url, ready and url is not None, epoch_of(pod, container), said)


def trouble_of(pod: Mapping[str, Any], container: str) -> PodTrouble | None:
    """What keeps a pod from serving; None of one that is Ready, or still starting in the usual way."""
    if is_ready(pod):
        return None
    status = _of(pod, "status")
    if status.get("phase") == "Failed":
        return PodTrouble(_said("Failed", status.get("reason"), status.get("message")), True)
    for kind in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(kind) or ():
            found = _container_trouble(each, each.get("name") == serving(pod, container))
            if found is not None:
                return found
    scheduled = condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return PodTrouble(_said(str(scheduled.get("reason")), None, scheduled.get("message")), False)
    return None


def unavailable(pods: Sequence[Mapping[str, Any]], container: str) -> str | None:
    """Why an arm with these pods takes no requests and will not by waiting; None where one may yet."""
    staying = [pod for pod in pods if "deletionTimestamp" not in _of(pod, "metadata") and not was_taken(pod)]
    found = [(pod, trouble_of(pod, container)) for pod in staying]
    if not found or not all(trouble is not None and trouble.lasting for _, trouble in found):
        return None
    pod, trouble = found[-1]
    more = f", and {len(found) - 1} more like it" if len(found) > 1 else ""
    return f"pod {name_of(pod)}{more}: {trouble.said if trouble is not None else ''}"


def was_taken(pod: Mapping[str, Any]) -> bool:
    """Whether it ended by the cluster's doing (evicted, preempted, its node gone or full), and another comes for it.

    A kubelet starts what has ended again under restartPolicy Always (of a pod whose spec is not kept it is that): a
    profile that crashes leaves no Failed pod there. What is left of such a pod says nothing of the profile.
    """
    restarts = _of(pod, "spec").get("restartPolicy") in (None, "Always")
    return restarts and _of(pod, "status").get("phase") == "Failed" and controller(pod) is not None


def wants_none(workload: Mapping[str, Any] | None) -> bool:
    """Whether a workload was scaled to no pods: then none is missing."""
    return workload is not None and _of(workload, "spec").get("replicas") == 0


def stuck(workload: Mapping[str, Any] | None) -> str | None:
    """What a Deployment says of a rollout that passed its progress deadline; None where it says nothing of the kind."""
    found = None if workload is None else condition(workload, "Progressing")
    if found is None or found.get("status") != "False" or found.get("reason") != "ProgressDeadlineExceeded":
        return None
    return _said("ProgressDeadlineExceeded", None, found.get("message"))


def refused_pods(owners: Iterable[Mapping[str, Any]]) -> str | None:
    """What a Deployment or ReplicaSet says of pods that it may not make (a quota, an admission policy)."""
    for owner in owners:
        found = condition(owner, "ReplicaFailure")
        if found is not None and found.get("status") == "True":
            return _said(str(found.get("reason")), None, found.get("message"))
    return None


def _container_trouble(each: Mapping[str, Any], serves: bool) -> PodTrouble | None:
    state, name = _of(each, "state"), str(each.get("name"))
    waiting, ended = _of(state, "waiting"), _of(state, "terminated")
    before = _of(_of(each, "lastState"), "terminated")
    restarts = each.get("restartCount") or 0
    last = _ending(ended or before)
    told = f"container {name}: "
    if waiting and waiting.get("reason") not in _STARTING:
        reason = str(waiting.get("reason"))
        counted = f" ({restarts} restarts; the last time it ended with {last})" if last and restarts else ""
        return PodTrouble(told + _said(reason, None, waiting.get("message")) + counted, reason in _LASTING)
    if ended and (ended.get("exitCode") or serves):
        return PodTrouble(f"{told}ended with {last}", restarts >= MANY_RESTARTS and _was_short(ended))
    if restarts and before and not each.get("ready") and serves:
        lasting = restarts >= MANY_RESTARTS and _was_short(before)
        return PodTrouble(f"{told}restarted {restarts} times; the last time it ended with {last}", lasting)
    return None


def _was_short(ended: Mapping[str, Any]) -> bool:
    """Whether a life was over soon; one whose times are not told counts as short."""
    began, end = seconds_of(ended.get("startedAt")), seconds_of(ended.get("finishedAt"))
    return began is None or end is None or end - began < SHORT_SECONDS


def _ending(ended: Mapping[str, Any]) -> str:
    if not ended:
        return ""
    return _said(f"{ended.get('reason') or 'Ended'}, exit code {ended.get('exitCode')}", None, ended.get("message"))


def _said(reason: str, more: Any, message: Any) -> str:
    """A reason with the message that came with it, on one line, bounded: containers write these."""
    parts = [reason, *(str(each) for each in (more, message) if each)]
    text = clean(" ".join(": ".join(parts).split()))
    return text if len(text) <= LONGEST_SAID else text[: LONGEST_SAID - 1] + "…"


def serving(pod: Mapping[str, Any], container: str) -> str:
    """The container that serves: the one of that name, in a pod that has none of it the first."""
    names = [str(each.get("name")) for each in _of(pod, "spec").get("containers") or () if isinstance(each, dict)]
    return container if container in names or not names else names[0]


def _status_of(pod: Mapping[str, Any], container: str) -> Object:
    found = _of(pod, "status").get("containerStatuses") or ()
    return next((each for each in found if each.get("name") == serving(pod, container)), {})


def _of(obj: Mapping[str, Any], key: str) -> Object:
    found = obj.get(key)
    return found if isinstance(found, dict) else {}
