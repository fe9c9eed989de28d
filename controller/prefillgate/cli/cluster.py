"""What the commands about serving lines in a cluster have in common: their options, and their errors in words."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefillgate.cli.errors import BadInput, CouldNotMeasure
from prefillgate.cli.speaking import quoted, say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from prefillgate.kube.client import Kube
    from prefillgate.kube.errors import KubeError
    from prefillgate.kube.lines import LineRead
    from prefillgate.report.line_view import LeaseSeen, LineView

    _Text = click.ParamType[str, Any]
else:  # older clicks know no type arguments
    _Text = click.ParamType

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")
CLUSTER_OPTIONS = ("namespace", "context", "kubeconfig", "controller_namespace", "controller_lease")
SHELL_SECONDS = 2.0  # longer than that nobody waits for a key
LINE_PREFIXES = ("servingline/", "servinglines/", "sl/")
ROLLOUT_PREFIXES = ("profilerollout/", "profilerollouts/", "pro/")


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a person said of the cluster; None: what the kubeconfig says."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    controller_namespace: str | None = None
    controller_lease: str | None = None
    told: bool = False  # whether any of it was said to this command, not by a variable that holds for all of them

    @classmethod
    def of(cls, options: dict[str, Any]) -> Cluster:
        """Take the options of `cluster_options` out of a command's."""
        source = click.get_current_context().get_parameter_source
        told = any(source(name) is click.core.ParameterSource.COMMANDLINE for name in CLUSTER_OPTIONS)
        return cls(**{name: options.pop(name) for name in CLUSTER_OPTIONS}, told=told)

    def kubectl(self, namespace: str, *words: str) -> str:
        """The command for the same cluster and a namespace of it, to be copied."""
        where = ["--namespace", namespace]
        for option, value in (("--context", self.context), ("--kubeconfig", self.kubeconfig)):
            where += [option, value] if value is not None else []
        return " ".join(["kubectl", *map(quoted, where), *words])


class LineName(_Text):
    """The name of a serving line, completed by those that are there."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text as it is: the API server says whether there is one."""
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The lines that begin so; none where no cluster answers in time."""
        from click.shell_completion import CompletionItem

        given: dict[str, Any] = {name: ctx.params.get(name) for name in CLUSTER_OPTIONS}
        cluster = Cluster(**given)
        try:
            names = speaking_to(cluster, lambda kube: _names(kube, cluster), hasty=True)
        except Exception:  # a shell that completes has no place for an error
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


LINE = LineName()


def cluster_options(function: _F) -> _F:
    """Add the options that say which cluster, and which namespace of it."""
    namespace = click.option(
        "--namespace", "-n", metavar="NAME", help="The line's namespace.  [default: that of the context]"
    )
    context = click.option("--context", metavar="NAME", help="A context of the kubeconfig.  [default: its current one]")
    kubeconfig = click.option(
        "--kubeconfig", metavar="FILE", help="Which kubeconfig.  [default: as kubectl finds it, or the pod's account]"
    )
    controller = click.option(
        "--controller-namespace",
        metavar="NAME",
        envvar="PREFILLGATE_CONTROLLER_NAMESPACE",
        help="Where the controller stands, whose Lease shows that it lives.  [default: prefillgate]",
    )
    lease = click.option(
        "--controller-lease",
        metavar="NAME",
        envvar="PREFILLGATE_CONTROLLER_LEASE",
        help="That Lease, where the controller has another --lease-name.  [default: prefillgate-controller]",
    )
    return namespace(context(kubeconfig(controller(lease(function)))))


def speaking_to(cluster: Cluster, ask: Callable[[Kube], Awaitable[_T]], *, hasty: bool = False) -> _T:
    """What `ask` finds with a client of the cluster. Raises `BadInput` and `CouldNotMeasure`."""
    import asyncio

    from prefillgate.api.errors import InputError
    from prefillgate.cli.interruptible import carry_out
    from prefillgate.kube.access import Where
    from prefillgate.kube.client import Kube
    from prefillgate.kube.errors import KubeError
    from prefillgate.kube.transport import Limits

    limits = Limits(SHELL_SECONDS / 2, SHELL_SECONDS / 2) if hasty else None

    async def asked() -> _T:
        async with await Kube.connect(Where(cluster.kubeconfig, cluster.context), limits) as kube:
            return await ask(kube)

    try:
        return asyncio.run(asyncio.wait_for(asked(), SHELL_SECONDS)) if hasty else carry_out(asked())
    except InputError as error:
        raise BadInput(f"no cluster: {'; '.join(map(str, error.problems))}") from error
    except KubeError as error:
        raise in_words(error) from error


def in_words(error: KubeError) -> CouldNotMeasure:
    """A failed call with what helps."""
    from prefillgate.kube.errors import Forbidden, NotFound, Unauthorized

    helps = ""
    if isinstance(error, NotFound) and error.reason != "NotFound":
        helps = "this cluster does not know prefillgate's kinds (kubectl apply --server-side -f manifests/crds): "
    elif isinstance(error, Forbidden):
        helps = "these credentials lack a right (get, list and watch on servinglines and profilerollouts): "
    elif isinstance(error, Unauthorized):
        helps = "the cluster does not take these credentials: "
    return CouldNotMeasure(f"{helps}{error}")


async def wanted(kube: Kube, cluster: Cluster, name: str) -> tuple[LineRead, LeaseSeen | None]:
    """The line (or, as `pro/NAME`, the rollout with its line) and the controllers' Lease.

    Raises KubeError, and `BadInput` where there is none, with names that are like it.
    """
    from prefillgate.kube.lines import find_line, find_rollout

    namespace = cluster.namespace or kube.namespace
    kind, bare = kind_and_name(name)
    try:
        found = await (find_rollout if kind == "rollout" else find_line)(kube, namespace, bare)
    except ValueError as error:  # of a name that would be a path
        raise BadInput(f"{name!r} is no name of an object (allowed: {_NAMES})") from error
    if found is None:
        raise BadInput(await _no_such(kube, namespace, kind, bare))
    return found, await lease_of(kube, cluster)


_NAMES = "lower-case letters, digits, hyphens and dots"


async def lease_of(kube: Kube, cluster: Cluster) -> LeaseSeen | None:
    """The controllers' Lease; None where it may not be read. Raises KubeError, and `BadInput` for no name of one."""
    from prefillgate.api.kinds.names import LEASE, SYSTEM_NAMESPACE
    from prefillgate.kube.lines import find_lease
    from prefillgate.kube.objects import LEASES, Ref

    name, namespace = cluster.controller_lease or LEASE, cluster.controller_namespace or SYSTEM_NAMESPACE
    try:
        return await find_lease(kube, Ref(LEASES, name, namespace))
    except ValueError as error:  # of a name that would be a path
        given = "--controller-lease" if cluster.controller_lease else "--controller-namespace"
        raise BadInput(f"{given}: no name of an object (allowed: {_NAMES})") from error


def kind_and_name(text: str) -> tuple[str, str]:
    """`line` or `rollout`, and the bare name: kubectl's KIND/NAME is taken as well."""
    for kind, prefixes in (("line", LINE_PREFIXES), ("rollout", ROLLOUT_PREFIXES)):
        for prefix in prefixes:
            if text.startswith(prefix):
                return kind, text.removeprefix(prefix)
    return "line", text


async def _no_such(kube: Kube, namespace: str, kind: str, name: str) -> str:
    import difflib

    from prefillgate.kube.lines import list_lines, places_of
    from prefillgate.kube.objects import name_of

    what = f"there is no {'ServingLine' if kind == 'line' else 'ProfileRollout'} {name!r} in namespace"
    if kind == "rollout":
        return f"{what} {namespace!r} (allowed: one that kubectl get profilerollouts --namespace {namespace} lists)"
    there = [name_of(each) for each in await list_lines(kube, namespace)]
    near = difflib.get_close_matches(name, there, 5, 0.5) or there[:5]
    told = f"{what} {namespace!r} (there: {', '.join(near) or 'none'})"
    elsewhere = [] if near and name in near else await places_of(kube, name)
    return told + (f"; one is in namespace {', '.join(elsewhere[:5])}: --namespace" if elsewhere else "")


async def _names(kube: Kube, cluster: Cluster) -> list[str]:
    from prefillgate.kube.lines import list_lines
    from prefillgate.kube.objects import name_of

    return [name_of(each) for each in await list_lines(kube, cluster.namespace or kube.namespace)]


def viewed(found: LineRead, lease: LeaseSeen | None) -> LineView:
    """A line as people are told of it, now."""
    from prefillgate.report.line_view import view_of

    return view_of(found.line, found.rollout, lease, time.time()).doubted(found.stuck)


def tell_doubts(views: Iterable[LineView]) -> None:
    """Say on standard error why what was printed may not hold any more; what is true of several lines once."""
    told: dict[str, list[str]] = {}
    for view in views:
        for doubt in (*view.doubts, *view.modes):
            told.setdefault(doubt, []).append(view.title)
    for doubt, titles in told.items():
        more = f" and {len(titles) - 3} more" if len(titles) > 3 else ""
        say(f"note: {', '.join(titles[:3])}{more}: {doubt}")
