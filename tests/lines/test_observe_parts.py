"""The pure parts of a look: what is kept of an object, whom it concerns, which addresses may be asked, sampling."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prefillgate.api.addresses import AddressRules, forbidden, networks
from prefillgate.api.kinds.arms import Arm, WorkloadRef
from prefillgate.api.kinds.replay_set_kind import Sampling
from prefillgate.api.replay_set import read_line
from prefillgate.app.observe import trims
from prefillgate.app.observe.index import Index, selects
from prefillgate.app.observe.policies import standard
from prefillgate.app.observe.sampling import sampled
from prefillgate.app.observe.secrets import Secrets
from prefillgate.app.observe.unread import no_template
from prefillgate.core.acceptance import STANDARD
from prefillgate.engines.judged import resolved
from prefillgate.kube.clock import SystemClock

TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "server", "image": "i"}]}}


def meta(**more: Any) -> dict[str, Any]:
    return {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "managedFields": [1], **more}


def owned_by(kind: str) -> list[dict[str, Any]]:
    return [{"kind": kind, "name": "o", "uid": "o", "controller": True}]


def test_of_a_pod_with_a_template_elsewhere_the_spec_is_not_kept_but_for_its_ports() -> None:
    containers = [{"name": "server", "image": "i", "args": ["x" * 1000], "ports": [{"containerPort": 1}]}]
    obj = {"metadata": meta(ownerReferences=owned_by("ReplicaSet")), "spec": {"containers": containers}}
    kept = trims.pod(obj)
    assert kept["spec"] == {"containers": [{"name": "server", "ports": [{"containerPort": 1}]}]}
    assert "managedFields" not in kept["metadata"]
    for owners in (owned_by("Gadget"), []):
        alone = trims.pod({**obj, "metadata": meta(ownerReferences=owners)})
        assert alone["spec"] == {"containers": containers}


def test_of_a_config_map_nothing_that_it_says_is_kept() -> None:
    kept = trims.config_map({"metadata": meta(), "data": {"key": "secret words"}})
    assert "secret words" not in json.dumps(kept)
    assert set(kept) == {"kind", "metadata", "changedAt", "dataDigest"}
    assert "managedFields" not in kept["metadata"]


def test_a_config_map_is_another_once_anything_that_it_says_is() -> None:
    def kept(**said: Any) -> dict[str, Any]:
        return trims.config_map({"metadata": meta(), **said})

    one = kept(data={"a": "1", "b": "2"})
    assert trims.same(one, kept(data={"b": "2", "a": "1"}))
    for other in ({"data": {"a": "1"}}, {"data": {"a": "2", "b": "2"}}, {"binaryData": {"a": "1", "b": "2"}}, {}):
        assert not trims.same(one, kept(**other))
    assert trims.same(kept(), kept(data={}))


def test_when_the_data_of_a_config_map_was_written_is_told_by_who_manages_it() -> None:
    def managed(field: str, time: str) -> dict[str, Any]:
        return {"fieldsV1": {field: {}}, "time": time}

    created = "2026-11-30T10:00:00Z"
    fields = [managed("f:data", created), managed("f:metadata", "2026-11-30T12:00:00Z")]
    obj = {"metadata": meta(creationTimestamp=created, managedFields=fields)}
    assert trims.data_changed_at(obj) is None  # as it was created
    fields.append(managed("f:data", "2026-11-30T11:00:00Z"))
    assert trims.data_changed_at(obj) == "2026-11-30T11:00:00Z"
    fields.append(managed("f:binaryData", "2026-11-30T11:30:00Z"))
    assert trims.data_changed_at(obj) == "2026-11-30T11:30:00Z"


def test_a_replica_set_without_pods_keeps_the_digest_of_its_template_alone() -> None:
    hashed = {**TEMPLATE, "metadata": {"labels": {"app": "x", "pod-template-hash": "abc"}}}
    owned = meta(ownerReferences=owned_by("Deployment"))
    empty = trims.replica_set({"metadata": owned, "spec": {"replicas": 0, "template": hashed}})
    assert "spec" not in empty
    assert empty["templateDigest"] == trims.template_digest(TEMPLATE)
    for with_pods in ({"spec": {"replicas": 1}}, {"spec": {"replicas": 0}, "status": {"replicas": 1}}):
        obj = {"metadata": owned, **with_pods, "spec": {**with_pods["spec"], "template": hashed}}
        assert trims.replica_set(obj)["spec"]["template"] == hashed
    alone = trims.replica_set({"metadata": meta(), "spec": {"replicas": 0, "template": hashed}})
    assert alone["spec"]["template"] == hashed
    other = {**TEMPLATE, "spec": {"containers": [{"name": "server", "image": "j"}]}}
    assert trims.template_digest(other) != trims.template_digest(TEMPLATE)


def test_a_revision_of_a_daemon_set_is_not_kept() -> None:
    data = {"spec": {"template": TEMPLATE}}
    for kind, kept in (("StatefulSet", True), ("DaemonSet", False)):
        obj = {"metadata": meta(ownerReferences=owned_by(kind)), "data": data}
        assert ("data" in trims.controller_revision(obj)) is kept


def test_an_object_is_the_same_where_only_its_version_is_another() -> None:
    one, other = {"metadata": meta(generation=1)}, {"metadata": meta(resourceVersion="2", generation=2)}
    assert trims.same(one, other)
    assert not trims.same(one, {"metadata": meta(labels={"a": "b"})})
    assert not trims.same(None, one)
    assert not trims.same(one, None)


def test_an_index_tells_both_ways_who_refers_to_what() -> None:
    index = Index()
    index.put("n/one", [("Deployment", "n/a"), ("ReplaySet", "n/s")])
    index.put("n/two", [("Deployment", "n/a")])
    assert index.who(("Deployment", "n/a")) == {"n/one", "n/two"}
    index.put("n/one", [("ReplaySet", "n/s")])
    index.add("n/one", [("ConfigMap", "n/c")])
    assert index.who(("Deployment", "n/a")) == {"n/two"}
    assert index.things_of("n/one") == {("ReplaySet", "n/s"), ("ConfigMap", "n/c")}
    index.drop("n/one")
    assert index.things() == {("Deployment", "n/a")}
    assert index.who(("ConfigMap", "n/c")) == set()


def test_a_selector_means_whoever_bears_all_of_its_labels() -> None:
    assert selects({"a": "1", "b": "2"}, {"a": "1", "b": "2", "c": "3"})
    assert not selects({"a": "1", "b": "2"}, {"a": "1"})


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1", "machine that the controller runs on"),
        ("::1", "machine that the controller runs on"),
        ("0.0.0.0", "machine that the controller runs on"),
        ("::ffff:127.0.0.1", "machine that the controller runs on"),
        ("169.254.169.254", "link-local or a metadata service"),
        ("::ffff:169.254.169.254", "link-local or a metadata service"),
        ("fe80::1%eth0", "link-local or a metadata service"),
        ("fd00:ec2::254", "link-local or a metadata service"),
        ("100.100.100.200", "link-local or a metadata service"),
        ("fd00:100::100:200", "link-local or a metadata service"),
        ("fd00:ec2::23", "link-local or a metadata service"),
        ("fd20:ce::254", "link-local or a metadata service"),
        ("168.63.129.16", "link-local or a metadata service"),
        ("64:ff9b::a83f:8110", "link-local or a metadata service"),
        ("192.0.0.192", "link-local or a metadata service"),
        ("fd00:c1::a9fe:a9fe", "link-local or a metadata service"),
        ("fd00:42::42", "link-local or a metadata service"),
        ("fd00:a9fe:a9fe::1", "link-local or a metadata service"),
        ("224.0.0.1", "multicast"),
        ("0.0.0.0", "machine that the controller runs on"),
        ("0.0.0.1", "machine that the controller runs on"),
        ("0.255.255.255", "machine that the controller runs on"),
        ("::", "machine that the controller runs on"),
        ("::127.0.0.1", "machine that the controller runs on"),
        ("::ffff:0.0.0.1", "machine that the controller runs on"),
        ("::ffff:0:127.0.0.1", "machine that the controller runs on"),
        ("2002:7f00:1::", "machine that the controller runs on"),
        ("2002:a9fe:a9fe::1", "link-local or a metadata service"),
        ("64:ff9b::a9fe:a9fe", "link-local or a metadata service"),
        ("64:ff9b:1::a9fe:a9fe", "link-local or a metadata service"),
        ("64:ff9b::7f00:1", "machine that the controller runs on"),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", "machine that the controller runs on"),
    ],
)
def test_addresses_that_only_the_controller_reaches_are_forbidden(address: str, words: str) -> None:
    why = AddressRules().why_not(address)
    assert why is not None
    assert words in why


def test_addresses_of_pods_and_of_the_world_may_be_asked() -> None:
    for address in (
        "10.88.0.7",
        "192.168.1.1",
        "203.0.113.9",
        "fd00::7",
        "fd00:ec3::254",
        "168.63.129.17",
        "2001:db8::1",
        "1.0.0.0",
        "64:ff9b::cb00:7109",
    ):
        assert AddressRules().why_not(address) is None


def test_what_is_allowed_goes_before_what_is_denied() -> None:
    rules = AddressRules(networks(["127.0.0.1", "10.0.0.0/24"]), networks(["10.0.0.0/8"]))
    assert rules.why_not("127.0.0.1") is None
    assert rules.why_not("127.0.0.2") is not None
    assert rules.why_not("10.0.0.9") is None
    assert rules.why_not("64:ff9b::a00:9") is None
    assert rules.why_not("64:ff9b::a00:109") == "the controller's settings deny it"
    assert rules.why_not("10.0.1.9") == "the controller's settings deny it"


def test_one_forbidden_address_of_a_name_is_enough() -> None:
    said = forbidden("http://llm.example:80/x", ["203.0.113.9", "169.254.169.254"], AddressRules())
    assert said is not None
    assert said.startswith("llm.example is 169.254.169.254, and must not be asked: it is link-local")
    assert said.endswith("--allow-address 169.254.169.254 allows it to the controller.")
    assert forbidden("http://llm.example", [], AddressRules()) is None


async def test_the_host_of_a_url_is_its_own_address_where_it_is_one() -> None:
    rules = AddressRules()
    assert await resolved("http://[fd00::7]:8080/x", rules) == ("fd00::7",)
    assert await resolved("http://10.0.0.1", rules) == ("10.0.0.1",)
    for name in ("no-such-name.invalid", "x" * 64 + ".example", "a..b", ""):
        assert await resolved(f"http://{name}", rules) == ()


def case(**body: Any) -> Any:
    line = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions"}
    given = {"messages": [{"role": "user", "content": "Hi"}], **body}
    return read_line(json.dumps({**line, "body": given, "prefillgate": {"canary": "blue-herons"}}).encode(), "x:3", 3)


def test_sampling_takes_the_place_of_what_a_case_says_and_is_in_its_digest() -> None:
    sampling = Sampling.model_validate(
        {"temperaturePercent": 70, "topPPercent": 100, "topK": 40, "maxTokens": 8},
    )
    before = case(temperature=0, max_tokens=99, stop=["x"])
    after = sampled(before, sampling)
    asked = {"temperature": 0.7, "top_p": 1, "top_k": 40, "max_tokens": 8, "stop": ["x"]}
    assert {key: value for key, value in after.body.items() if key != "messages"} == asked
    assert (after.max_tokens, before.max_tokens) == (8, 99)
    assert (after.greedy, before.greedy) == (False, True)
    assert after.line_sha256 != before.line_sha256
    assert (after.case_id, after.canary, after.line) == ("one", "blue-herons", 3)
    assert sampled(before, None) is before


def test_a_token_limit_under_its_newer_name_stays_under_it() -> None:
    after = sampled(case(max_completion_tokens=99), Sampling.model_validate({"maxTokens": 8}))
    assert after.body["max_completion_tokens"] == 8
    assert "max_tokens" not in after.body


def test_a_line_without_a_policy_is_judged_by_the_standard_one() -> None:
    read = standard()
    assert read.seen is not None
    assert read.document is not None
    assert read.document.policy == STANDARD
    assert (read.seen.name, read.seen.acceptance, read.seen.budget) == ("standard", (32, 56, 75), 200)
    assert (read.seen.spec.margin, read.seen.spec.acceptance) == (0.1, [32, 56, 75])


async def test_behind_a_service_the_certificate_bears_the_services_name_unless_another_is_told() -> None:
    def asked(**endpoint: Any) -> Arm:
        ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}
        return Arm.model_validate({"workloadRef": ref, "endpoint": endpoint})

    nobody: Any = None  # no Secret is named, so none is read
    secrets = Secrets(nobody, SystemClock())
    https = {"name": "llm", "port": 443, "scheme": "HTTPS"}
    for endpoint, name in (
        ({"service": https}, "llm.team.svc"),
        ({"service": https, "tlsServerName": "llm.example"}, "llm.example"),
        ({"service": {"name": "llm", "port": 80}}, None),
        ({"pods": {"port": 443, "scheme": "HTTPS"}}, None),
        ({"url": "https://llm.example", "hostHeader": "other"}, None),
    ):
        access, troubles = await secrets.access("team", asked(**endpoint), "spec.baseline")
        assert (access.tls_server_name, access.held, troubles) == (name, None, ())
        assert access.host_header == endpoint.get("hostHeader")


def test_a_pod_that_a_replica_set_makes_is_no_workload() -> None:
    ref = WorkloadRef.model_validate({"apiVersion": "v1", "kind": "Pod", "name": "a"})
    trouble = no_template("spec.baseline.workloadRef", ref, {"metadata": meta(ownerReferences=owned_by("ReplicaSet"))})
    assert trouble is not None
    assert trouble.detail == "Pod a belongs to ReplicaSet o: name the workload that makes it."
    assert no_template("spec.baseline.workloadRef", ref, {"metadata": meta()}) is None
