"""Finding the cluster: kubeconfigs and contexts, the service account of a pod, and what each mistake is told as."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from prefillgate.kube.access import Where, find_access
from prefillgate.kube.client import Kube
from prefillgate.kube.errors import AccessError, Unauthorized, Unreachable
from prefillgate.kube.objects import Query
from tests.support.fake_api import FakeApi
from tests.support.gadgets import GADGETS, SERVED

NOWHERE: dict[str, str] = {}


def write(path: Path, config: Any) -> str:
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(config), encoding="utf-8")
    return str(path)


def two_contexts(fake: FakeApi) -> dict[str, Any]:
    config = fake.kubeconfig(token="first")
    config["contexts"].append({"name": "other", "context": {"cluster": "fake", "user": "second", "namespace": "there"}})
    config["users"].append({"name": "second", "user": {"token": "second"}})
    return config


async def test_the_current_context_is_used_unless_another_is_named(fake: FakeApi, tmp_path: Path) -> None:
    path = write(tmp_path / "config", two_contexts(fake))
    usual = await find_access(Where(path, environ=NOWHERE))
    other = await find_access(Where(path, "other", environ=NOWHERE))
    assert (usual.namespace, usual.configuration.api_key) == ("default", {"BearerToken": "Bearer first"})
    assert (other.namespace, other.configuration.api_key) == ("there", {"BearerToken": "Bearer second"})
    assert other.source == f"context other of {path}"


async def test_the_variable_names_the_file_unless_one_is_given(fake: FakeApi, tmp_path: Path) -> None:
    config = two_contexts(fake)
    first = write(tmp_path / "first", config)
    second = write(tmp_path / "second", {**config, "current-context": "other"})
    environ = {"KUBECONFIG": first, "KUBERNETES_SERVICE_HOST": "127.0.0.1"}
    assert (await find_access(Where(environ=environ))).source == f"context fake of {first}"
    assert (await find_access(Where(second, environ=environ))).source == f"context other of {second}"


async def test_a_context_is_looked_for_in_the_usual_file_even_in_a_pod(
    fake: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    path = write(tmp_path / ".kube" / "config", two_contexts(fake))
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    assert (await find_access(Where(context="other", environ=pod))).source == f"context other of {path}"
    assert (await find_access(Where(environ=NOWHERE))).source == f"context fake of {path}"
    with pytest.raises(AccessError, match="service account of the pod"):
        await find_access(Where(environ=pod, service_account=tmp_path / "none"))


async def test_a_context_that_is_not_there_is_told_with_those_that_are(fake: FakeApi, tmp_path: Path) -> None:
    path = write(tmp_path / "config", two_contexts(fake))
    with pytest.raises(AccessError) as caught:
        await find_access(Where(path, "prod\x1b[2J", environ=NOWHERE))
    assert str(caught.value) == f'{path}: context: there is no context "prod\\u001b[2J" (allowed: "fake", "other")'
    assert caught.value.__cause__ is not None


async def test_a_file_without_a_current_context_says_so(fake: FakeApi, tmp_path: Path) -> None:
    config = two_contexts(fake)
    del config["current-context"]
    with pytest.raises(AccessError, match="no context is current") as caught:
        await find_access(Where(write(tmp_path / "config", config), environ=NOWHERE))
    assert 'allowed: "fake", "other"' in str(caught.value)


async def test_no_file_and_no_pod_is_told(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="there is no such file"):
        await find_access(Where(str(tmp_path / "none"), environ=NOWHERE))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: [",
        "x",
        "\x00",
        "contexts: 5",
        "contexts: [{}]",
        "clusters: {}\ncurrent-context: x",
        "current-context: 3",
    ],
)
async def test_a_damaged_file_is_told_by_name_without_a_traceback(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "config", text)
    with pytest.raises(AccessError) as caught:
        await find_access(Where(path, environ=NOWHERE))
    assert path in str(caught.value)


async def test_a_file_of_bytes_is_told_by_name(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AccessError, match="no kubeconfig"):
        await find_access(Where(str(path), environ=NOWHERE))


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[tuple[FakeApi, Path]]:
    """A server with TLS that wants a token, and the folder that a pod would have."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = FakeApi(context, token="first-token")
    server.serve(SERVED)
    await server.start()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    write(tmp_path / "token", "first-token")
    write(tmp_path / "namespace", "gate-system\n")
    yield server, tmp_path
    await server.stop()


def in_pod(server: FakeApi, folder: Path) -> Where:
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
    return Where(environ=environ, service_account=folder)


async def test_a_pod_uses_its_service_account(secure: tuple[FakeApi, Path]) -> None:
    async with await Kube.connect(in_pod(*secure)) as kube:
        assert (kube.namespace, kube.source) == ("gate-system", "service account of the pod")
        assert (await kube.list(Query(GADGETS, "default"))).items == []


async def test_a_token_that_was_rotated_is_read_again_when_it_is_refused(secure: tuple[FakeApi, Path]) -> None:
    server, folder = secure
    async with await Kube.connect(in_pod(server, folder)) as kube:
        await kube.version()
        write(folder / "token", "second-token")
        server.token = "second-token"
        assert await kube.version() == "v1.36.3"


async def test_a_newline_behind_a_token_is_none_of_it(secure: tuple[FakeApi, Path]) -> None:
    server, folder = secure
    write(folder / "token", "first-token\n")
    async with await Kube.connect(in_pod(server, folder)) as kube:
        for _ in range(3):  # each reads the file's token again
            assert await kube.version() == "v1.36.3"
    config = server.kubeconfig(tokenFile=str(folder / "token"))
    config["clusters"][0]["cluster"]["certificate-authority"] = str(folder / "ca.crt")
    async with await Kube.connect(Where(write(folder / "config", config), environ=NOWHERE)) as kube:
        assert await kube.version() == "v1.36.3"


async def test_a_client_certificate_of_a_kubeconfig_is_shown(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = FakeApi(context)
    await server.start()
    mine = authority.issue_cert("gate@example.test")
    pem = [mine.cert_chain_pems[0].bytes(), mine.private_key_pem.bytes(), authority.cert_pem.bytes()]
    cert, key, ca = (base64.b64encode(each).decode() for each in pem)
    config = server.kubeconfig(**{"client-certificate-data": cert, "client-key-data": key})
    config["clusters"][0]["cluster"]["certificate-authority-data"] = ca
    try:
        async with await Kube.connect(Where(write(tmp_path / "config", config), environ=NOWHERE)) as kube:
            assert await kube.version() == "v1.36.3"
        del config["users"][0]["user"]["client-certificate-data"], config["users"][0]["user"]["client-key-data"]
        async with await Kube.connect(Where(write(tmp_path / "without", config), environ=NOWHERE)) as kube:
            with pytest.raises(Unreachable):
                await kube.version()
    finally:
        await server.stop()


async def test_a_token_that_stays_refused_is_told_and_is_in_no_text(secure: tuple[FakeApi, Path]) -> None:
    server, folder = secure
    async with await Kube.connect(in_pod(server, folder)) as kube:
        server.token = "another"
        server.calls.clear()
        with pytest.raises(Unauthorized) as caught:
            await kube.version()
        assert "first-token" not in str(caught.value) + repr(caught.value.__cause__)


async def test_a_token_that_cannot_be_read_any_more_is_told(secure: tuple[FakeApi, Path]) -> None:
    async with await Kube.connect(in_pod(*secure)) as kube:
        kube_access = kube._transport.access

        def gone(_: object) -> None:
            raise FileNotFoundError("token")

        kube_access.configuration.refresh_api_key_hook = gone
        with pytest.raises(Unauthorized, match="credentials cannot be read"):
            await kube.version()


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
async def test_a_pod_without_its_files_is_told(secure: tuple[FakeApi, Path], missing: str) -> None:
    server, folder = secure
    (folder / missing).unlink()
    with pytest.raises(AccessError, match="service account of the pod"):
        await find_access(in_pod(server, folder))


async def test_a_server_of_another_authority_is_not_spoken_to(secure: tuple[FakeApi, Path]) -> None:
    server, folder = secure
    trustme.CA().cert_pem.write_to_path(str(folder / "ca.crt"))
    async with await Kube.connect(in_pod(server, folder)) as kube:
        with pytest.raises(Unreachable, match="certificate"):
            await kube.version()
    assert server.calls == []
