"""Every setting of `prefillgate controller`: one row each, for its flag, its environment variable and the documents.

Standard library only: a command's help imports it.
"""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "PREFILLGATE_"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `default` is written as a person would write it; None: nothing is set. `allowed` says in words what
    may stand there. `flag` False: it may hold a secret, and arguments stand in every list of processes."""

    name: str
    metavar: str
    default: str | None
    allowed: str
    help: str
    flag: bool = True

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


NAME = "a name of lower-case letters, digits and hyphens, at most 63 characters"
FILE = "the path of a file"
SECONDS = "a number of seconds"
ADDRESSES = "addresses and networks with a comma between them, as 127.0.0.1,10.0.0.0/8"

ROWS: tuple[Setting, ...] = (
    Setting("kubeconfig", "FILE", None, FILE, "The cluster. Left out: $KUBECONFIG, the pod's account, ~/.kube/config."),
    Setting("context", "NAME", None, "the name of a context", "The context of the kubeconfig. Left out: its current."),
    Setting("namespace", "NAME", None, NAME, "The controller's own: its Lease. Left out: the pod's or the context's."),
    Setting(
        "watch_namespaces",
        "NAMES",
        None,
        "names of namespaces with a comma between them",
        "The namespaces whose lines are gated. Left out: all.",
    ),
    Setting("pod", "NAME", None, NAME, "The controller's own pod, as the downward API tells it: for Jobs."),
    Setting("lease_name", "NAME", "prefillgate-controller", NAME, "The Lease whose holder leads."),
    Setting(
        "lease_duration_seconds",
        "N",
        "15",
        "5 to 3600",
        "After a leader died, another one leads that many seconds later.",
    ),
    Setting(
        "lease_renew_seconds",
        "N",
        "10",
        f"{SECONDS}, less than the duration by 1 or more",
        "A leader that could not renew the Lease for so long leads no more.",
    ),
    Setting(
        "lease_retry_seconds",
        "N",
        "2",
        f"{SECONDS}, less than lease-renew-seconds",
        "How often the Lease is asked for.",
    ),
    Setting(
        "store",
        "DIR|URL",
        ".prefillgate/controller",
        "a directory on a local disk, or postgresql://... without a password",
        "Where the evidence and the book are kept. One replica, or a database.",
    ),
    Setting(
        "store_url",
        "URL",
        None,
        "postgresql://...",
        "The database instead of --store. It may hold a password, which goes nowhere else.",
        flag=False,
    ),
    Setting(
        "store_url_file",
        "FILE",
        None,
        FILE,
        "A file that holds the URL of the database, with or without a password, as a mounted Secret does.",
    ),
    Setting("replay_sets", "DIR", None, "a directory", "The volume of replay sets: a folder in it for each namespace."),
    Setting(
        "concurrent_replays",
        "N",
        "4",
        "1 to 100",
        "Replays at the same time, of all lines together; those that only wait not counted.",
    ),
    Setting("workers", "N", "4", "1 to 64", "Lines that are looked at at the same time."),
    Setting(
        "listen",
        "HOST:PORT",
        "127.0.0.1:8090",
        "HOST:PORT, as 0.0.0.0:8090 or [::]:8090; port 0 takes any free one",
        "Where /metrics, /healthz and /readyz are served, without TLS. In a pod: 0.0.0.0:8090.",
    ),
    Setting("log_level", "LEVEL", "info", "debug, info, warning, error", "The least level that is logged."),
    Setting("log_format", "FORMAT", "json", "json, console", "json: an object a line. console: for people."),
    Setting(
        "allow_address",
        "ADDRESSES",
        None,
        ADDRESSES,
        "Addresses that lines may name though they are forbidden, as 127.0.0.1 is.",
    ),
    Setting(
        "deny_address",
        "ADDRESSES",
        None,
        ADDRESSES,
        "Addresses that no line may name. Always: this machine, link-local ones, metadata of clouds, multicast.",
    ),
    Setting(
        "seal_key",
        "TEXT",
        None,
        "16 characters or more",
        "The key that credentials in profiles are sealed under. Keep it: another one makes other digests.",
        flag=False,
    ),
    Setting(
        "seal_key_file",
        "FILE",
        None,
        FILE,
        "A file with the key that credentials are sealed under. Left out: seal.key in the store, made once.",
    ),
    Setting("reach_attempts", "N", "3", "1 to 100", "Refusals in a row before a server counts as unreachable."),
    Setting("stop_seconds", "N", "20", "0 to 3600", "How long replays may take to end when the controller is stopped."),
)
BY_NAME: dict[str, Setting] = {row.name: row for row in ROWS}
