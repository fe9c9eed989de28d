"""A Kubernetes control plane for the tests: etcd, kube-apiserver, kube-controller-manager and kubectl.

Taken from the first place that has them:

1. the folder that the variable KUBEBUILDER_ASSETS names (envtest's convention). It must hold etcd, kube-apiserver and
   kubectl; kube-controller-manager, which envtest's archives do not hold, comes from below where it is missing there.
2. ~/.cache/prefillgate/kube-VERSION
3. Go modules, pinned in tests/tools/kube (five minutes of two cores, once for a machine)
4. the published envtest archive, and kube-controller-manager from Kubernetes' own release

`make_sure` says why not when none of them has them. Run from the root of the checkout:
python -m tests.tools.control_plane [VERSION]
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

from tests.tools.go_programs import CACHE, find_go, made_whole, only_one

VARIABLE = "KUBEBUILDER_ASSETS"
VERSION = "v1.36.3"
"""What the tests use where nothing else is asked for."""

ETCD = {"v1.36.3": "v3.6.16"}
"""Which etcd goes with which Kubernetes: the versions that tests/tools/kube pins.

For another one: its row here, and a module there, whose go.mod replaces each staging module (Kubernetes' own go.mod
names them, at v0.0.0) by the one published with it, then `go mod tidy`.
"""

OF_ENVTEST = ("etcd", "kube-apiserver", "kubectl")
MANAGER = "kube-controller-manager"
PROGRAMS = (*OF_ENVTEST, MANAGER)
MODULES = Path(__file__).parent / "kube"
_SAYS_VERSION = {"kubectl": ("version", "--client")}  # all others: --version
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_DOWNLOAD_SECONDS = 120


class CannotHave(Exception):
    """Why one place does not give the programs."""


@dataclass(frozen=True)
class Published:
    """Where ready-made programs are published."""

    index: str = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"
    releases: str = "https://dl.k8s.io/release"


def folder_of(version: str = VERSION, cache: Path = CACHE) -> Path:
    """Where the programs of a version are kept."""
    return cache / f"kube-{version}"


def find_control_plane(version: str = VERSION, cache: Path = CACHE) -> dict[str, str] | None:
    """Path of each program; None unless all are there. A named folder stands for `VERSION`, whatever version it holds.

    Raises CannotHave when KUBEBUILDER_ASSETS names a folder without the programs that envtest puts there.
    """
    kept = _programs_in(folder_of(version, cache), PROGRAMS)
    named = os.environ.get(VARIABLE)
    if not named or version != VERSION:
        return kept if len(kept) == len(PROGRAMS) else None
    given = _programs_in(Path(named), PROGRAMS)
    if missing := [name for name in OF_ENVTEST if name not in given]:
        raise CannotHave(f"{VARIABLE}={named!r} has no {' and no '.join(missing)}")
    found = {MANAGER: kept[MANAGER], **given} if MANAGER in kept else given
    return found if len(found) == len(PROGRAMS) else None


def make_sure(version: str = VERSION, cache: Path = CACHE, published: Published | None = None) -> int:
    """Get what is missing; 0 when all is there afterwards, 1 after saying why not."""
    reasons = []
    try:
        with only_one(folder_of(version, cache)):
            if find_control_plane(version, cache):
                return 0
            for get in (_build, _fetch):
                try:
                    with made_whole(folder_of(version, cache)) as folder:
                        get(version, folder, published or Published())
                        _try_out(folder)
                    return 0 if find_control_plane(version, cache) else 1
                except CannotHave as why:
                    reasons.append(str(why))
    except CannotHave as why:
        reasons.append(str(why))
    print(
        f"No Kubernetes control plane {version} for the tests: {'; '.join(reasons)}. Install Go "
        f"(https://go.dev), or name a folder with {', '.join(PROGRAMS)} by the variable {VARIABLE}.",
        file=sys.stderr,
    )
    return 1


def _programs_in(folder: Path, names: Sequence[str]) -> dict[str, str]:
    return {name: path for name in names if (path := shutil.which(name, path=str(folder)))}


def _try_out(folder: Path) -> None:
    """What cannot be started is not kept. Raises CannotHave."""
    for name in PROGRAMS:
        command = [str(folder / name), *_SAYS_VERSION.get(name, ("--version",))]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except OSError as error:
            raise CannotHave(f"{name} cannot be started ({error})") from error
        if done.returncode:
            raise CannotHave(
                f"{name} ends in {done.returncode} ({done.stderr.decode(errors='replace').strip()[-200:]})"
            )


def _build(version: str, folder: Path, published: Published) -> None:
    del published
    go = find_go()
    if go is None:
        raise CannotHave("building it needs go, and there is none")
    if version not in ETCD:
        raise CannotHave(f"tests/tools/kube pins no modules of {version} (it has {', '.join(ETCD)})")
    print(f"Building etcd and Kubernetes {version} for the tests, once; this takes some minutes", flush=True)
    major, minor = version.removeprefix("v").split(".")[:2]
    told = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}  # else clients see v0.0.0
    flags = "-s -w " + " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in told.items())
    commands = [f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS if name != "etcd"]
    _go_build(go, MODULES / f"etcd-{ETCD[version]}", folder / "etcd", "-s -w", ["."])
    _go_build(go, MODULES / version, folder, flags, commands)


def _go_build(go: str, module: Path, target: Path, flags: str, packages: Sequence[str]) -> None:
    where = f"{target}{os.sep}" if target.is_dir() else str(target)
    words = ["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", where, *packages]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run([go, *words], cwd=module, env=environment, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise CannotHave(f"go could not build {module.name}")


def _fetch(version: str, folder: Path, published: Published) -> None:
    machine = platform.machine().lower()
    place = f"{platform.system().lower()}-{_MACHINES.get(machine, machine)}"
    print(f"Fetching Kubernetes {version} for the tests, once", flush=True)
    archive = folder / "archive"
    try:
        told = _told(published.index, version, f"envtest-{version}-{place}.tar.gz")
        _download(told["selfLink"], archive, hashlib.sha512(), told["hash"])
        _unpack(archive, folder)
        address = f"{published.releases}/{version}/bin/{place.replace('-', '/')}/{MANAGER}"
        digest = (
            httpx.get(f"{address}.sha256", follow_redirects=True, timeout=_DOWNLOAD_SECONDS).raise_for_status().text
        )
        _download(address, folder / MANAGER, hashlib.sha256(), digest.strip())
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CannotHave(f"the published archive cannot be fetched ({error or type(error).__name__})") from error
    (folder / MANAGER).chmod(0o755)
    archive.unlink()


def _told(index: str, version: str, name: str) -> dict[str, str]:
    """Address and digest of an archive, from the published index."""
    text = httpx.get(index, follow_redirects=True, timeout=_DOWNLOAD_SECONDS).raise_for_status().text
    try:
        told = yaml.safe_load(text)["releases"][version][name]
        return {"selfLink": str(told["selfLink"]), "hash": str(told["hash"])}
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise CannotHave(f"the published index has no {name}") from error


def _download(address: str, target: Path, digest: hashlib._Hash, expected: str) -> None:
    with (
        httpx.stream("GET", address, follow_redirects=True, timeout=_DOWNLOAD_SECONDS) as response,
        target.open("wb") as file,
    ):
        for piece in response.raise_for_status().iter_bytes():
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != expected.lower():
        raise CannotHave(f"{address.rpartition('/')[2]} is not what its published digest says")


def _unpack(archive: Path, folder: Path) -> None:
    """Take the programs out of an envtest archive, and nothing else."""
    try:
        with tarfile.open(archive) as inside:
            for member in inside:
                name = Path(member.name).name
                if name in OF_ENVTEST and member.isfile():
                    source = inside.extractfile(member)
                    assert source is not None
                    with source, (folder / name).open("wb") as target:
                        shutil.copyfileobj(source, target)
                    (folder / name).chmod(0o755)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise CannotHave(f"the published archive cannot be read ({error})") from error
    if missing := [name for name in OF_ENVTEST if not (folder / name).is_file()]:
        raise CannotHave(f"the published archive has no {' and no '.join(missing)}")


if __name__ == "__main__":
    sys.exit(make_sure(sys.argv[1] if len(sys.argv) > 1 else VERSION))
