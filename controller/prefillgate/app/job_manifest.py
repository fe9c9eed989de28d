"""A replay as a Kubernetes Job: made like the controller's own pod, with another account and another command. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prefillgate.api.kinds.names import LINE_LABEL, REPLAY_ACCOUNT, REPLAY_LABEL
from prefillgate.kube.objects import JOBS, Object, label
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.snapshot import WorkKind

COMMAND = "replay-job"
KEPT_SECONDS = 86_400  # how long an ended one stays, for its log
_OWN_OF_THE_POD = re.compile(r"kube-api-access-[a-z0-9]+")  # a volume of the controller's account
_KEPT_OF_THE_POD = ("nodeSelector", "tolerations", "imagePullSecrets", "priorityClassName", "runtimeClassName")
_KEPT_OF_THE_CONTAINER = ("image", "imagePullPolicy", "command", "env", "envFrom", "resources", "securityContext")


class NoTemplate(ValueError):
    """The controller's own pod tells nothing that a Job could be made of."""


@dataclass(frozen=True, slots=True)
class JobWanted:
    """What a Job is for: the order, the line as `namespace/name`, and the right to write its evidence."""

    order: StartWork
    line: str
    token: int

    @property
    def name(self) -> str:
        """One for each rollout and term of leadership."""
        return f"replay-{self.order.key[:36]}-{self.token}"


def job_of(pod: Mapping[str, Any], wanted: JobWanted) -> Object:
    """The Job. `pod` is the controller's own. Raises `NoTemplate`."""
    spec = pod.get("spec") or {}
    containers = [
        each for each in spec.get("containers") or () if COMMAND_OF_THE_CONTROLLER in (each.get("args") or ())
    ]
    if not containers:
        raise NoTemplate(f"no container of the pod has the argument {COMMAND_OF_THE_CONTROLLER}")
    labels = {
        "app.kubernetes.io/name": "prefillgate-replay",
        REPLAY_LABEL: wanted.order.key[:63],
        LINE_LABEL: wanted.line.partition("/")[2][:63],
    }
    template = {
        "metadata": {"labels": labels},
        "spec": {
            **{name: spec[name] for name in (*_KEPT_OF_THE_POD, "securityContext") if name in spec},
            "serviceAccountName": REPLAY_ACCOUNT,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": spec.get("terminationGracePeriodSeconds", 60),
            "containers": [_container(containers[0], wanted)],
            "volumes": [each for each in spec.get("volumes") or () if not _OWN_OF_THE_POD.fullmatch(each["name"])],
        },
    }
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": wanted.name,
            "namespace": (pod.get("metadata") or {}).get("namespace"),
            "labels": labels,
        },
        "spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": KEPT_SECONDS, "template": template},
    }


COMMAND_OF_THE_CONTROLLER = "controller"


def _container(own: Mapping[str, Any], wanted: JobWanted) -> Object:
    mounts = [each for each in own.get("volumeMounts") or () if not _OWN_OF_THE_POD.fullmatch(each["name"])]
    arguments = [COMMAND if each == COMMAND_OF_THE_CONTROLLER else each for each in own["args"]]
    told = ["--line", wanted.line, "--token", str(wanted.token), "--order", json.dumps(asdict(wanted.order))]
    kept = {name: own[name] for name in _KEPT_OF_THE_CONTAINER if name in own}
    return {"name": "replay", **kept, "args": [*arguments, *told], "volumeMounts": mounts}


def order_of(text: str) -> StartWork:
    """An order as a Job is given it. Raises ValueError for what is none."""
    try:
        found = json.loads(text)
        return StartWork(**{**found, "kind": WorkKind(found["kind"])})
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError("this is no order") from error


@dataclass(frozen=True, slots=True)
class JobSeen:
    """How a Job stands: `code` is the exit code of its container, None while it runs or where nothing tells it."""

    there: bool
    ended: bool
    succeeded: bool
    code: int | None = None


def job_seen(job: Mapping[str, Any] | None, pods: Sequence[Mapping[str, Any]]) -> JobSeen:
    """What a Job and its pods tell."""
    if job is None or (job.get("metadata") or {}).get("deletionTimestamp"):
        return JobSeen(False, True, False)
    conditions = (job.get("status") or {}).get("conditions") or ()
    ended = {each["type"] for each in conditions if each.get("status") == "True"} & {"Complete", "Failed"}
    return JobSeen(True, bool(ended), "Complete" in ended, _exit_code(pods))


def _exit_code(pods: Sequence[Mapping[str, Any]]) -> int | None:
    for pod in pods:
        for each in (pod.get("status") or {}).get("containerStatuses") or ():
            ended = (each.get("state") or {}).get("terminated")
            if isinstance(ended, Mapping) and isinstance(ended.get("exitCode"), int):
                return int(ended["exitCode"])
    return None


def token_of(job: Mapping[str, Any]) -> int | None:
    """The token of the term that a Job is of; None where its name tells none."""
    _, _, token = str((job.get("metadata") or {}).get("name", "")).rpartition("-")
    return int(token) if token.isascii() and token.isdigit() else None


def is_wanted(job: Mapping[str, Any], wanted: JobWanted) -> bool:
    """Whether it is the Job that is wanted: of this term, and with this order."""
    spec = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    told = [order for each in spec.get("containers") or () if (order := _order_in(each.get("args") or ())) is not None]
    return (job.get("metadata") or {}).get("name") == wanted.name and told == [wanted.order]


def _order_in(arguments: Sequence[str]) -> StartWork | None:
    try:
        return order_of(arguments[list(arguments).index("--order") + 1])
    except (ValueError, IndexError):
        return None


def is_of(job: Mapping[str, Any], key: str) -> bool:
    """Whether a Job is a replay of that key, of whatever term."""
    return label(job, REPLAY_LABEL) == key[:63]
