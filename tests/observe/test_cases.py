"""Where the cases of a ReplaySet come from: a ConfigMap, a volume, a URL; and what its status says of them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from prefillgate.api.addresses import AddressRules, networks
from prefillgate.api.kinds.replay_set_kind import ReplaySetSpec, ReplaySetStatus
from prefillgate.kube.client import Kube
from prefillgate.kube.errors import Unreachable
from tests.observe.test_reach import answering, of, served
from tests.observe.test_troubles import secret
from tests.support.cluster.fixtures import Namespace
from tests.support.looking import CASE, Eyes, looking, replay_set

SHA256 = hashlib.sha256(CASE.encode()).hexdigest()


@pytest.fixture
async def eyes(kube: Kube, namespace: Namespace, tmp_path: Path) -> AsyncIterator[Eyes]:
    """An observer that has a volume and may ask this machine."""
    rules = AddressRules(networks(["127.0.0.0/8"]))
    settings = {"replay_sets": tmp_path / "sets", "addresses": rules, "namespaces": (namespace.name,)}
    (tmp_path / "sets" / namespace.name).mkdir(parents=True)
    (tmp_path / "sets" / "others").mkdir()
    async with looking(kube, tmp_path, **settings) as found:
        yield found


async def status(eyes: Eyes, namespace: Namespace, **spec: Any) -> dict[str, Any]:
    """What the status of a ReplaySet should say, once the observer has told of it."""
    key = f"{namespace.name}/set"
    eyes.touched.clear()
    namespace.apply(replay_set("set", **spec))
    while ("ReplaySet", key) not in eyes.touched:  # noqa: ASYNC110 - it is told by a callback
        await asyncio.sleep(0.01)
    return await look(eyes, namespace)


async def look(eyes: Eyes, namespace: Namespace) -> dict[str, Any]:
    wanted = await eyes.observer.look_replay_set(f"{namespace.name}/set")
    assert wanted is not None
    ReplaySetStatus.model_validate(wanted.status)
    (condition,) = wanted.status["conditions"]
    found = {"again": wanted.look_again_seconds, "reason": condition["reason"], "said": condition["message"]}
    return {**found, **{key: wanted.status.get(key) for key in ("cases", "sha256")}}


async def test_a_file_is_read_in_the_folder_of_its_namespace_and_again_when_it_has_changed(
    eyes: Eyes, namespace: Namespace, tmp_path: Path
) -> None:
    file = tmp_path / "sets" / namespace.name / "team" / "cases.jsonl"
    file.parent.mkdir()
    file.write_text(CASE, encoding="utf-8")
    first = await status(eyes, namespace, volume={"path": "team/cases.jsonl"})
    assert (first["reason"], first["cases"], first["again"]) == ("Accepted", 1, 60.0)
    file.write_text(CASE + CASE.replace('"one"', '"two"'), encoding="utf-8")
    second = await look(eyes, namespace)
    assert second["cases"] == 2
    assert second["sha256"] != first["sha256"]
    file.unlink()
    gone = await look(eyes, namespace)
    assert gone["reason"] == "CasesNotFound"
    assert "team/cases.jsonl" in gone["said"]


async def test_a_link_out_of_the_folder_of_the_namespace_is_refused_and_one_inside_is_followed(
    eyes: Eyes, namespace: Namespace, tmp_path: Path
) -> None:
    own = tmp_path / "sets" / namespace.name
    (tmp_path / "sets" / "others" / "theirs.jsonl").write_text(CASE, encoding="utf-8")
    (own / "out.jsonl").symlink_to(tmp_path / "sets" / "others" / "theirs.jsonl")
    (own / "folder").symlink_to(tmp_path / "sets" / "others")
    (own / "..data").mkdir()
    (own / "..data" / "real.jsonl").write_text(CASE, encoding="utf-8")
    (own / "in.jsonl").symlink_to(own / "..data" / "real.jsonl")  # as the kubelet mounts a ConfigMap
    (own / "circle.jsonl").symlink_to(own / "circle.jsonl")
    os.mkfifo(own / "pipe.jsonl")
    for path in ("out.jsonl", "folder/theirs.jsonl"):
        refused = await status(eyes, namespace, volume={"path": path})
        assert refused["reason"] == "CasesNotFound"
        assert f"{path} leads out of the folder of {namespace.name}, by a link." in refused["said"]
    for path, words in (("circle.jsonl", "circle.jsonl"), ("pipe.jsonl", "is no file")):
        refused = await status(eyes, namespace, volume={"path": path})
        assert refused["reason"] == "CasesNotFound"
        assert words in refused["said"]
    assert (await status(eyes, namespace, volume={"path": "in.jsonl"}))["cases"] == 1


async def test_a_url_is_fetched_once_with_its_key_and_its_authority(eyes: Eyes, namespace: Namespace) -> None:
    heard: list[bytes] = []

    async def telling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(CASE)}\r\n\r\n"
        writer.write(head.encode() + CASE.encode())

    authority = trustme.CA()
    namespace.apply(secret("store", key="the-key", ca=authority.cert_pem.bytes().decode()))
    refs = {"apiKeySecretRef": {"name": "store", "key": "key"}, "caBundleSecretRef": {"name": "store", "key": "ca"}}
    async with served(telling, of(authority, "localhost")) as port:
        url = {"url": f"https://localhost:{port}/sets/v1", **refs}
        found = await status(eyes, namespace, url=url, sha256=SHA256)
        assert (found["reason"], found["cases"], found["again"]) == ("Accepted", 1, None)
        assert (await look(eyes, namespace))["cases"] == 1
    (asked,) = heard
    assert asked.startswith(b"GET /sets/v1 HTTP/1.1\r\n")
    lines = asked.lower().split(b"\r\n")
    assert b"authorization: bearer the-key" in lines
    assert f"host: localhost:{port}".encode() in lines  # though it was asked by its address


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        ("404 Not Found", "CasesNotFound", "404"),
        ("302 Found", "CasesNotFound", "302"),
        ("200 OK", "DigestMismatch", "name the digest of what is there now"),
    ],
)
async def test_what_cannot_be_fetched_is_told_and_tried_again(
    answer: str, reason: str, words: str, eyes: Eyes, namespace: Namespace
) -> None:
    body = b'{"error": "something else"}'
    async with served(answering(answer, body, "Location: http://127.0.0.1:1/\r\n")) as port:
        found = await status(eyes, namespace, url={"url": f"http://127.0.0.1:{port}/x"}, sha256=SHA256)
    assert (found["reason"], found["again"], found["cases"]) == (reason, 60.0, None)
    assert words in found["said"]
    assert "something else" not in found["said"]
    assert hashlib.sha256(body).hexdigest() not in found["said"]


async def test_a_config_map_may_hold_the_cases_as_bytes_and_the_digest_is_of_the_bytes(
    eyes: Eyes, namespace: Namespace
) -> None:
    data = {"cases.jsonl": base64.b64encode(b"\xef\xbb\xbf" + CASE.encode()).decode()}
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cases"}}
    namespace.apply({**head, "binaryData": data})
    found = await status(eyes, namespace, configMap={"name": "cases"})
    assert (found["reason"], found["cases"], found["again"]) == ("Accepted", 1, None)
    other = await status(eyes, namespace, configMap={"name": "cases"}, sha256=SHA256)
    assert other["reason"] == "DigestMismatch"
    greedy = await status(eyes, namespace, configMap={"name": "cases"}, sampling={"maxTokens": 4})
    assert greedy["reason"] == "Accepted"
    assert greedy["sha256"] != found["sha256"]


async def test_a_policy_tells_what_it_comes_to_or_what_is_wrong_with_it(eyes: Eyes, namespace: Namespace) -> None:
    head = {"apiVersion": "prefillgate.io/v1alpha1", "kind": "PromotionPolicy", "metadata": {"name": "ours"}}
    for spec, reason, acceptance in (
        ({"marginPercent": 20}, "Accepted", [16, 25, 35]),
        ({"marginPercent": 20, "budgetPrefills": 3}, "SpecInvalid", None),
    ):
        eyes.touched.clear()
        namespace.apply({**head, "spec": spec})
        while ("PromotionPolicy", f"{namespace.name}/ours") not in eyes.touched:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        wanted = await eyes.observer.look_policy(f"{namespace.name}/ours")
        assert wanted is not None
        assert wanted.status["conditions"][0]["reason"] == reason
        assert wanted.status.get("acceptance") == acceptance
    namespace.kubectl("delete", "ppol", "ours")
    while await eyes.observer.look_policy(f"{namespace.name}/ours") is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_cases_that_change_while_they_are_read_end_nobody_who_waits_for_them(
    eyes: Eyes, namespace: Namespace
) -> None:
    """Two looks at once, of which one has seen a newer version: the older reading is given up under the other look."""
    cases = eyes.observer._cases
    spec = ReplaySetSpec.model_validate({"configMap": {"name": "cases"}})
    thing = {"metadata": {"namespace": namespace.name, "name": "set", "uid": "1"}}
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cases"}}
    namespace.apply({**head, "data": {"cases.jsonl": CASE}})
    older = asyncio.create_task(cases.read(thing, spec))
    await asyncio.sleep(0.001)
    newer = asyncio.create_task(cases.read({"metadata": {**thing["metadata"], "uid": "2"}}, spec))
    told = await asyncio.gather(older, newer, return_exceptions=True)
    assert isinstance(told[0], Unreachable) and "has changed while it was read" in str(told[0])
    assert not isinstance(told[1], BaseException) and told[1].trouble is None
