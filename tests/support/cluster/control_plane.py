"""A real control plane: etcd, kube-apiserver with RBAC, admission and an audit log, kube-controller-manager."""

from __future__ import annotations

import contextlib
import os
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import trustme
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.cluster.api import Api
from tests.support.cluster.audit import POLICY, AuditLog
from tests.support.cluster.users import ADMIN, MANAGER, USERS, User, tokens_file
from tests.support.namespace import ADDRESS
from tests.support.programs import record_real_program
from tests.support.simulated import free_port
from tests.tools.control_plane import VERSION, CannotHave, find_control_plane

CONTROLLERS = (
    *("deployment-controller", "replicaset-controller", "statefulset-controller", "job-controller"),
    *("endpointslice-controller", "disruption-controller", "namespace-controller", "garbage-collector-controller"),
    *("serviceaccount-controller", "root-ca-certificate-publisher-controller"),
    *("ttl-after-finished-controller", "validatingadmissionpolicy-status-controller"),
)
"""What of kube-controller-manager runs; whoever needs another one adds it."""

_START_SECONDS = 120
SERVICE_RANGE = "10.96.0.0/16"


class ControlPlane:
    """One control plane and its data. `durable`: etcd waits for the disk, so that it may be killed."""

    def __init__(self, folder: Path, version: str = VERSION, durable: bool = False, address: str = ADDRESS) -> None:
        """Start all of it, and wait until it answers. Raises RuntimeError when it cannot be had or does not start."""
        try:
            found = find_control_plane(version)
        except CannotHave as why:
            raise RuntimeError(f"no Kubernetes control plane: {why}") from why
        if found is None:
            raise RuntimeError(
                f"no Kubernetes control plane {version} on this machine: python -m tests.tools.control_plane {version}"
            )
        self.programs, self.folder, self._durable, self._address = found, folder, durable, address
        self.etcd_port, self._peer_port, self.port, self._manager_port = (free_port() for _ in range(4))
        self.url = f"https://{address}:{self.port}"
        self.audit = AuditLog(folder / "audit.log")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._apis: dict[str, Api] = {}
        self._write_files()
        self.context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        try:
            for name in ("etcd", "kube-apiserver", MANAGER_PROGRAM):
                self.start(name)
        except BaseException:
            self.stop()
            raise

    def _write_files(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.folder / "ca.pem")
        served = authority.issue_cert(self._address, "127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1")
        served.private_key_pem.write_to_path(self.folder / "server.key")
        for number, piece in enumerate(served.cert_chain_pems):
            piece.write_to_path(self.folder / "server.pem", append=number > 0)
        key = ec.generate_private_key(ec.SECP256R1())
        form = (
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        (self.folder / "accounts.key").write_bytes(key.private_bytes(*form))
        (self.folder / "tokens.csv").write_text(tokens_file(), encoding="utf-8")
        (self.folder / "audit.yaml").write_text(POLICY, encoding="utf-8")
        for user in USERS:
            self._write_kubeconfig(user)

    def _write_kubeconfig(self, user: User) -> None:
        cluster = {"server": self.url, "certificate-authority": str(self.folder / "ca.pem")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": user.name, "user": {"token": user.token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user.name}}],
            "current-context": "tests",
        }
        self.kubeconfig(user).write_text(yaml.safe_dump(config), encoding="utf-8")

    def kubeconfig(self, user: User = ADMIN) -> Path:
        """The file by which kubectl and other clients are this user."""
        return self.folder / f"{user.name.replace(':', '-')}.kubeconfig"

    def api(self, user: User = ADMIN) -> Api:
        """Objects as this user sees them."""
        if user.name not in self._apis:
            self._apis[user.name] = Api(self.url, user.token, self.context)
        return self._apis[user.name]

    def kubectl(self, *words: str, user: User = ADMIN, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run the real kubectl; `text` is its standard input."""
        command = [self.programs["kubectl"], f"--kubeconfig={self.kubeconfig(user)}", *words]
        environment = {**os.environ, "HOME": str(self.folder)}  # its cache of what the server knows
        standard_input = {"input": text} if text is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run(
            command,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            check=False,
            **standard_input,  # type: ignore[call-overload,unused-ignore]
        )

    def start(self, name: str) -> None:
        """Start a program that does not run, on the same data and ports, and wait until it answers."""
        log = (self.folder / f"{name}.log").open("ab")
        command = [self.programs[name], *self._arguments(name)]
        with log:
            self.processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait(name)

    def kill(self, name: str) -> None:
        """End a program as a lost machine would: at once."""
        self.processes[name].kill()
        self.processes[name].wait()

    def stop(self) -> None:
        """End all of it. Nothing of the data is needed afterwards."""
        for name in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                self.kill(name)
        for api in self._apis.values():
            api.http.close()

    def recorded(self) -> ControlPlane:
        """Note that the test that is running spoke to these programs, each with the version it tells."""
        for name in ("etcd", "kube-apiserver", MANAGER_PROGRAM, "kubectl"):
            record_real_program(name, _version(self.programs[name], name))
        return self

    def _arguments(self, name: str) -> Sequence[str]:
        return {"etcd": self._etcd, "kube-apiserver": self._server, MANAGER_PROGRAM: self._manager}[name]()

    def _etcd(self) -> list[str]:
        own, peers = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            *(f"--listen-client-urls={own}", f"--advertise-client-urls={own}"),
            *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
            f"--initial-cluster=default={peers}",
            *([] if self._durable else ["--unsafe-no-fsync"]),
        ]

    def _server(self) -> list[str]:
        files = {name: self.folder / name for name in ("server.pem", "server.key", "accounts.key", "tokens.csv")}
        return [
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            *(f"--bind-address={self._address}", f"--advertise-address={self._address}", f"--secure-port={self.port}"),
            *(f"--tls-cert-file={files['server.pem']}", f"--tls-private-key-file={files['server.key']}"),
            f"--cert-dir={self.folder / 'certificates'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={files['accounts.key']}",
            f"--service-account-signing-key-file={files['accounts.key']}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--token-auth-file={files['tokens.csv']}",
            "--authorization-mode=RBAC",
            f"--audit-policy-file={self.folder / 'audit.yaml'}",
            *(f"--audit-log-path={self.audit.path}", "--audit-log-maxsize=4000"),
        ]

    def _manager(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig(MANAGER)}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
            f"--root-ca-file={self.folder / 'ca.pem'}",
            f"--controllers={','.join(CONTROLLERS)}",
            f"--secure-port={self._manager_port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder / 'certificates'}",
        ]

    def _wait(self, name: str) -> None:
        until = time.monotonic() + _START_SECONDS
        while not self.answers(name):
            if self.processes[name].poll() is not None or time.monotonic() > until:
                log = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"{name} did not start: {log[-2000:]}")
            time.sleep(0.05)

    def answers(self, name: str) -> bool:
        """Whether a program is ready now."""
        try:
            if name == "etcd":
                return httpx.get(f"http://127.0.0.1:{self.etcd_port}/readyz", trust_env=False).status_code == 200
            if name == MANAGER_PROGRAM:  # makes its certificate itself
                own = f"https://127.0.0.1:{self._manager_port}/healthz"
                return httpx.get(own, verify=False, trust_env=False).status_code == 200
            return self.api().http.get("/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False


MANAGER_PROGRAM = "kube-controller-manager"
_versions: dict[str, str] = {}


def _version(path: str, name: str) -> str:
    """What a program says of itself, asked once."""
    if path not in _versions:
        words = ("version", "--client") if name == "kubectl" else ("--version",)
        told = subprocess.run([path, *words], capture_output=True, encoding="utf-8", check=True).stdout
        _versions[path] = told.splitlines()[0].rpartition(" ")[2]
    return _versions[path]


@contextlib.contextmanager
def running_control_plane(folder: Path, version: str = VERSION, durable: bool = False) -> Iterator[ControlPlane]:
    """One for the body."""
    plane = ControlPlane(folder, version, durable)
    try:
        yield plane
    finally:
        plane.stop()
