"""Where the control plane of the tests comes from: a named folder, the cache, Go modules, the published archive.

The programs here are shell scripts; the file server, the archive, the digests and go are real.
"""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.cluster.control_plane import ControlPlane
from tests.tools import control_plane
from tests.tools.control_plane import ETCD, MODULES, PROGRAMS, VERSION, CannotHave, Published, find_control_plane
from tests.tools.go_programs import find_go

ROOT = Path(__file__).resolve().parents[2]
UNPINNED = "v0.0.7"
"""A version that no modules are pinned for, so that it can only be fetched."""

SCRIPT = b"#!/bin/sh\necho v0.0.7\n"


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have named a folder of their own."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)


def fill(folder: Path, names: tuple[str, ...] = PROGRAMS) -> Path:
    """A folder with these programs."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(SCRIPT)
        (folder / name).chmod(0o755)
    return folder


class Site:
    """A file server with what is published, in the places and forms of the real ones."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, list[str]()
        self.slow = threading.Event()
        self.release = threading.Event()
        site = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                if site.slow.is_set():
                    site.release.wait(60)
                super().do_GET()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), lambda *given: Handler(*given, directory=str(folder))
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.published = Published(f"{self.url}/index.yaml", f"{self.url}/release")
        self.put()

    def put(
        self,
        names: tuple[str, ...] = ("etcd", "kube-apiserver", "kubectl"),
        program: bytes = SCRIPT,
        digest: str | None = None,
        manager_digest: str | None = None,
    ) -> None:
        """Publish an archive with these programs, and the controller manager beside it."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name in (*names, "../escaped"):
                member = tarfile.TarInfo(f"controller-tools/envtest/{name}")
                member.size, member.mode = len(program), 0o755
                archive.addfile(member, io.BytesIO(program))
        name, place = f"envtest-{UNPINNED}-{system()}-{machine()}.tar.gz", self.folder / "archives"
        place.mkdir(exist_ok=True)
        (place / name).write_bytes(packed.getvalue())
        told = {
            "hash": digest or hashlib.sha512(packed.getvalue()).hexdigest(),
            "selfLink": f"{self.url}/archives/{name}",
        }
        (self.folder / "index.yaml").write_text(
            yaml.safe_dump({"releases": {UNPINNED: {name: told}}}), encoding="utf-8"
        )
        manager = self.folder / "release" / UNPINNED / "bin" / system() / machine() / "kube-controller-manager"
        manager.parent.mkdir(parents=True, exist_ok=True)
        manager.write_bytes(program)
        own = manager_digest or hashlib.sha256(program).hexdigest()
        manager.with_name(f"{manager.name}.sha256").write_text(own, encoding="utf-8")

    def close(self) -> None:
        """Stop serving."""
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


def system() -> str:
    """As release names have it."""
    return sys.platform if sys.platform != "win32" else "windows"


def machine() -> str:
    """As release names have it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """What is published."""
    (tmp_path / "site").mkdir()
    site = Site(tmp_path / "site")
    yield site
    site.close()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """An empty cache."""
    return tmp_path / "cache"


def test_a_named_folder_comes_before_the_cache(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, named = fill(cache / f"kube-{VERSION}"), fill(tmp_path / "named")
    assert find_control_plane(cache=cache) == {name: str(kept / name) for name in PROGRAMS}
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(named))
    assert find_control_plane(cache=cache) == {name: str(named / name) for name in PROGRAMS}
    assert find_control_plane("v1.2.3", cache) is None


def test_a_named_folder_of_envtest_gets_the_controller_manager_from_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = fill(tmp_path / "named", ("etcd", "kube-apiserver", "kubectl"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(named))
    assert find_control_plane(cache=cache) is None
    kept = fill(cache / f"kube-{VERSION}")
    found = find_control_plane(cache=cache)
    assert found is not None
    assert (found["kube-controller-manager"], found["etcd"]) == (
        str(kept / "kube-controller-manager"),
        str(named / "etcd"),
    )


def test_a_named_folder_without_the_programs_is_said_and_nothing_else_is_taken(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(cache / f"kube-{VERSION}")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(fill(tmp_path / "named", ("kubectl",))))
    assert control_plane.make_sure(cache=cache) == 1
    assert f"KUBEBUILDER_ASSETS='{tmp_path / 'named'}' has no etcd and no kube-apiserver" in capsys.readouterr().err
    with pytest.raises(CannotHave):
        find_control_plane(cache=cache)


def test_what_is_in_the_cache_is_not_made_again(cache: Path, site: Site) -> None:
    fill(cache / f"kube-{UNPINNED}")
    assert control_plane.make_sure(UNPINNED, cache, site.published) == 0
    assert site.asked == []


def test_the_published_archive_is_fetched_checked_and_kept(cache: Path, site: Site) -> None:
    assert control_plane.make_sure(UNPINNED, cache, site.published) == 0
    found = find_control_plane(UNPINNED, cache)
    assert found == {name: str(cache / f"kube-{UNPINNED}" / name) for name in PROGRAMS}
    assert {path.name for path in (cache / f"kube-{UNPINNED}").iterdir()} == set(PROGRAMS)
    assert {path.name for path in cache.iterdir()} == {f"kube-{UNPINNED}", f"kube-{UNPINNED}.lock"}
    assert subprocess.run([found["etcd"]], capture_output=True, check=True).stdout == b"v0.0.7\n"


@pytest.mark.parametrize(
    ("published", "why"),
    [
        ({"digest": "0" * 128}, "is not what its published digest says"),
        ({"manager_digest": "0" * 64}, "kube-controller-manager is not what its published digest says"),
        ({"names": ("etcd", "kubectl")}, "the published archive has no kube-apiserver"),
        ({"program": b"#!/bin/sh\necho broken >&2; exit 9\n"}, "etcd ends in 9 (broken)"),
        ({"program": b"\x7fELF of another machine"}, "etcd cannot be started"),
    ],
    ids=["archive", "manager", "incomplete", "broken", "foreign"],
)
def test_what_is_published_wrongly_is_not_kept_and_said(
    cache: Path, site: Site, capsys: pytest.CaptureFixture[str], published: dict[str, str], why: str
) -> None:
    site.put(**published)  # type: ignore[arg-type]
    assert control_plane.make_sure(UNPINNED, cache, site.published) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"No Kubernetes control plane {UNPINNED} for the tests: tests/tools/kube pins no modules of")
    assert why in told
    assert [path.name for path in cache.iterdir()] == [f"kube-{UNPINNED}.lock"]


def test_when_none_can_be_had_it_is_said_with_what_to_do(
    cache: Path, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.close()
    assert control_plane.make_sure(UNPINNED, cache, site.published) == 1
    told = capsys.readouterr().err
    assert "the published archive cannot be fetched" in told
    assert "Install Go (https://go.dev), or name a folder with etcd, kube-apiserver" in told
    with pytest.raises(
        RuntimeError, match=r"no Kubernetes control plane v0\.0\.7 .*tests\.tools\.control_plane v0\.0\.7"
    ):
        ControlPlane(tmp_path, UNPINNED)


MAKER = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.tools import control_plane
site = control_plane.Published(sys.argv[3] + "/index.yaml", sys.argv[3] + "/release")
sys.exit(control_plane.make_sure("v0.0.7", Path(sys.argv[2]), site))
"""


def start(cache: Path, site: Site) -> subprocess.Popen[bytes]:
    """A process that makes sure of it."""
    return subprocess.Popen(
        [sys.executable, "-c", MAKER, str(ROOT), str(cache), site.url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def asked_within(site: Site, count: int, seconds: float = 60) -> None:
    """Wait until the site was asked so often."""
    until = time.monotonic() + seconds
    while len(site.asked) < count:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_two_at_once_make_it_once(cache: Path, site: Site) -> None:
    site.slow.set()
    both = [start(cache, site), start(cache, site)]
    asked_within(site, 1)
    site.release.set()
    assert [process.wait(60) for process in both] == [0, 0]
    assert len([path for path in site.asked if path.endswith(".tar.gz")]) == 1


def test_one_that_broke_off_leaves_nothing_that_looks_whole_and_stands_in_nobodys_way(cache: Path, site: Site) -> None:
    site.slow.set()
    broken = start(cache, site)
    asked_within(site, 1)
    broken.send_signal(signal.SIGKILL)
    broken.wait()
    assert len(list(cache.glob(".kube-*"))) == 1
    assert find_control_plane(UNPINNED, cache) is None
    site.slow.clear()
    site.release.set()
    assert control_plane.make_sure(UNPINNED, cache, site.published) == 0
    assert list(cache.glob(".kube-*")) == []


GO_FILE = """package main

import (
	"fmt"
	"k8s.io/component-base/version"
)

func main() { fmt.Println(version.All()) }
"""


def test_go_builds_the_pinned_modules_and_tells_the_programs_their_version(
    tmp_path: Path, cache: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube, etcd = tmp_path / "pinned" / "v7.8.9", tmp_path / "pinned" / "etcd-v1"
    for name in PROGRAMS[1:]:
        (kube / "cmd" / name).mkdir(parents=True)
        (kube / "cmd" / name / "main.go").write_text(GO_FILE, encoding="utf-8")
    (kube / "base" / "version").mkdir(parents=True)
    variables = "package version\n\nvar gitVersion, gitMajor, gitMinor string\n\n"
    variables += 'func All() string { return gitVersion + " " + gitMajor + " " + gitMinor }\n'
    (kube / "base" / "version" / "version.go").write_text(variables, encoding="utf-8")
    (kube / "base" / "go.mod").write_text("module k8s.io/component-base\n\ngo 1.21\n", encoding="utf-8")
    module = "module k8s.io/kubernetes\n\ngo 1.21\n\nrequire k8s.io/component-base v0.0.0\n\n"
    (kube / "go.mod").write_text(f"{module}replace k8s.io/component-base => ./base\n", encoding="utf-8")
    etcd.mkdir()
    (etcd / "go.mod").write_text("module etcd\n\ngo 1.21\n", encoding="utf-8")
    (etcd / "main.go").write_text('package main\n\nfunc main() { println("3") }\n', encoding="utf-8")
    monkeypatch.setattr(control_plane, "MODULES", tmp_path / "pinned")
    monkeypatch.setitem(control_plane.ETCD, "v7.8.9", "v1")
    assert control_plane.make_sure("v7.8.9", cache, site.published) == 0
    assert site.asked == []
    found = find_control_plane("v7.8.9", cache)
    assert found is not None
    told = subprocess.run([found["kube-apiserver"]], capture_output=True, encoding="utf-8", check=True).stdout
    assert told == "v7.8.9 7 8\n"


def test_what_go_cannot_build_is_fetched(
    tmp_path: Path, cache: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_go() is not None
    (tmp_path / "pinned" / "etcd-v1").mkdir(parents=True)
    monkeypatch.setattr(control_plane, "MODULES", tmp_path / "pinned")
    monkeypatch.setitem(control_plane.ETCD, UNPINNED, "v1")
    assert control_plane.make_sure(UNPINNED, cache, site.published) == 0
    assert any(path.endswith(".tar.gz") for path in site.asked)


@pytest.mark.parametrize("version", ETCD)
def test_the_modules_are_pinned_to_the_versions_that_are_named(version: str) -> None:
    module = (MODULES / version / "go.mod").read_text(encoding="utf-8")
    staging = "v0." + version.removeprefix("v1.")
    assert re.search(rf"^require k8s.io/kubernetes {re.escape(version)}$", module, re.MULTILINE)
    replaced = re.findall(r"^\s*(?:replace )?(k8s\.io/\S+) => (\S+) (\S+)$", module, re.MULTILINE)
    assert {(name == to, at) for name, to, at in replaced} == {(True, staging)}
    wanted = set(re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0(?: |$)", module, re.MULTILINE))
    assert wanted - {name for name, _, _ in replaced} == set()
    etcd = (MODULES / f"etcd-{ETCD[version]}" / "go.mod").read_text(encoding="utf-8")
    assert f"go.etcd.io/etcd/server/v3 {ETCD[version]}\n" in etcd
    for folder in (MODULES / version, MODULES / f"etcd-{ETCD[version]}"):
        assert (folder / "go.sum").stat().st_size > 10_000
