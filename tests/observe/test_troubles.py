"""What a line refers to and cannot be used is told by its reason, the path of the field and what to do."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from prefillgate.api.addresses import AddressRules
from prefillgate.kube.objects import Object
from prefillgate.reconcile.snapshot import LineSnapshot
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.workloads import deployment, simulated
from tests.support.looking import Eyes, config_map, line, replay_set

PLANTED = "pl4nted-Secret-value"  # must stand in nothing that a look gives


def secret(name: str, usable: bool = True, **data: str) -> Object:
    labels = {"prefillgate.io/usable-by": "gate"} if usable else {}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "data": encoded}


def arm(**changes: Any) -> Object:
    """The baseline of the usual line, changed."""
    return {**line()["spec"]["baseline"], **changes}


def ref(**changes: Any) -> Object:
    """Its workload reference, changed."""
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": "engine", **changes}


def policy(name: str, **spec: Any) -> Object:
    head = {"apiVersion": "prefillgate.io/v1alpha1", "kind": "PromotionPolicy"}
    return {**head, "metadata": {"name": name}, "spec": spec}


THERE: tuple[Object, ...] = (
    deployment("engine", simulated()),
    deployment(
        "synthetic",
        {
            "name": "server",
            "image": "busybox",
            "args": ["llama-server", "--spec-synth-rate", "90"],
            "ports": [{"name": "http", "containerPort": 8080}],
        },
    ),
    secret("unlabelled", usable=False, key=PLANTED),
    secret("labelled", key=PLANTED, blank=f"{PLANTED} {PLANTED}"),
    policy("impossible", marginPercent=10, budgetPrefills=2),
    policy("misspelt", marginPercent=10, flags=[{"name": "bad", "checks": ["nope"]}]),
    replay_set("gone", configMap={"name": "gone"}),
    replay_set("no-key", configMap={"name": "cases", "key": "other.jsonl"}),
    replay_set("broken", configMap={"name": "broken"}),
    replay_set("another", configMap={"name": "cases"}, sha256="0" * 64),
    replay_set("nowhere", volume={"path": "cases.jsonl"}),
    replay_set("inward", url={"url": "http://169.254.169.254/latest/user-data"}, sha256="0" * 64),
    config_map("broken", **{"cases.jsonl": '{"custom_id": 7}\n'}),
)

CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no-workload": (
        {"baseline": arm(workloadRef=ref(name="lost"))},
        "WorkloadNotFound",
        "spec.baseline.workloadRef.name",
        "There is no Deployment lost in",
    ),
    "no-kind": (
        {"baseline": arm(workloadRef=ref(apiVersion="example.com/v1", kind="Gadget"))},
        "WorkloadNotFound",
        "spec.baseline.workloadRef",
        "serves no kind Gadget in example.com/v1. Is its CustomResourceDefinition installed?",
    ),
    "no-template": (
        {"baseline": arm(workloadRef=ref(podTemplatePath="spec.pools[0].template"))},
        "TemplateNotFound",
        "spec.baseline.workloadRef.podTemplatePath",
        "has no pod template at spec.pools[0].template",
    ),
    "no-container": (
        {"baseline": arm(workloadRef=ref(container="model"))},
        "ContainerNotFound",
        "spec.baseline.workloadRef.container",
        "no container is called model (there: server)",
    ),
    "synthetic": (
        {"baseline": arm(workloadRef=ref(name="synthetic"))},
        "SyntheticThroughput",
        "spec.baseline.workloadRef",
        "take --spec-synth-* out of the arguments",
    ),
    "no-policy": ({"policyRef": {"name": "lost"}}, "PolicyNotFound", "spec.policyRef.name", "no PromotionPolicy lost"),
    "bad-policy": (
        {"policyRef": {"name": "impossible"}},
        "PolicyNotAccepted",
        "spec.policyRef.name",
        "PromotionPolicy impossible: spec.budgetPrefills",
    ),
    "misspelt-policy": (
        {"policyRef": {"name": "misspelt"}},
        "PolicyNotAccepted",
        "spec.policyRef.name",
        "PromotionPolicy misspelt: spec.flags[0].checks: no check is named nope (allowed: ",
    ),
    "no-set": ({"replaySetRef": {"name": "lost"}}, "ReplaySetNotFound", "spec.replaySetRef.name", "no ReplaySet lost"),
    "no-cases": (
        {"replaySetRef": {"name": "gone"}},
        "CasesNotFound",
        "spec.replaySetRef.name",
        "ReplaySet gone, spec.configMap.name: There is no ConfigMap gone",
    ),
    "no-key": (
        {"replaySetRef": {"name": "no-key"}},
        "CasesNotFound",
        "spec.replaySetRef.name",
        "ConfigMap cases has no key other.jsonl",
    ),
    "broken-cases": (
        {"replaySetRef": {"name": "broken"}},
        "CasesInvalid",
        "spec.replaySetRef.name",
        "spec.configMap: broken:1: method: missing",
    ),
    "other-digest": (
        {"replaySetRef": {"name": "another"}},
        "DigestMismatch",
        "spec.replaySetRef.name",
        "spec.sha256: What was read has the SHA-256",
    ),
    "no-volume": ({"replaySetRef": {"name": "nowhere"}}, "CasesNotFound", "spec.replaySetRef.name", "--replay-sets"),
    "inward-cases": (
        {"replaySetRef": {"name": "inward"}},
        "EndpointForbidden",
        "spec.replaySetRef.name",
        "spec.url.url: 169.254.169.254 must not be asked: it is link-local or a metadata service",
    ),
    "no-secret": (
        {"baseline": arm(apiKeySecretRef={"name": "lost", "key": "key"})},
        "SecretNotFound",
        "spec.baseline.apiKeySecretRef",
        "There is no Secret lost",
    ),
    "no-secret-key": (
        {"baseline": arm(caBundleSecretRef={"name": "labelled", "key": "ca.crt"})},
        "SecretNotFound",
        "spec.baseline.caBundleSecretRef",
        "Secret labelled has no key ca.crt.",
    ),
    "unlabelled-secret": (
        {"baseline": arm(apiKeySecretRef={"name": "unlabelled", "key": "key"})},
        "SecretNotUsable",
        "spec.baseline.apiKeySecretRef",
        "unlabelled prefillgate.io/usable-by=gate",
    ),
    "no-header": (
        {"baseline": arm(apiKeySecretRef={"name": "labelled", "key": "blank"})},
        "SecretNotUsable",
        "spec.baseline.apiKeySecretRef",
        "Secret labelled, key blank holds what no HTTP header can carry",
    ),
    "no-pem": (
        {"baseline": arm(caBundleSecretRef={"name": "labelled", "key": "key"})},
        "SecretNotUsable",
        "spec.baseline.caBundleSecretRef",
        "Secret labelled, key key",
    ),
    "no-certificate": (
        {"baseline": arm(clientCertificateSecretRef={"name": "labelled"})},
        "SecretNotFound",
        "spec.baseline.clientCertificateSecretRef",
        "Secret labelled has no key tls.crt.",
    ),
    "no-engine": ({"engine": "vlllm"}, "SpecInvalid", "spec.engine", "There is no engine vlllm (allowed: auto, "),
    "no-database": ({"runner": "Job"}, "StoreUnsuitable", "spec.runner", "--store postgresql://"),
    "inward-url": (
        {"baseline": arm(endpoint={"url": "http://127.0.0.1:8080"})},
        "EndpointForbidden",
        "spec.baseline.endpoint.url",
        "127.0.0.1 must not be asked: it is the machine that the controller runs on. --allow-address 127.0.0.1 allows",
    ),
    "inward-name": (
        {"baseline": arm(endpoint={"url": "http://localhost:8080"})},
        "EndpointForbidden",
        "spec.baseline.endpoint.url",
        "localhost is ",
    ),
}


async def test_every_trouble_of_a_line_has_its_reason_its_field_and_a_remedy(eyes: Eyes, namespace: Namespace) -> None:
    lines = [line(name, **changes) for name, (changes, *_) in CASES.items()]
    namespace.apply({"apiVersion": "v1", "kind": "List", "items": [*THERE, *lines]})
    namespace.rolled_out("engine")
    for name, (_, reason, field, words) in CASES.items():
        seen = await eyes.until(f"{namespace.name}/{name}", lambda seen, r=reason: _about(seen, r))
        (trouble,) = seen.troubles
        assert (name, trouble.field) == (name, field)
        assert words in trouble.detail, name
        assert PLANTED not in repr(seen)


def _about(seen: LineSnapshot, reason: str) -> LineSnapshot | None:
    return seen if reason in [each.reason for each in seen.troubles] else None


async def test_what_is_mended_is_told_of_without_being_asked(eyes: Eyes, namespace: Namespace) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(deployment("engine", simulated()))
    namespace.apply(line(policyRef={"name": "ours"}, replaySetRef={"name": "gone"}))
    reasons = await eyes.until(key, lambda seen: {each.reason for each in seen.troubles})
    assert reasons == {"PolicyNotFound", "ReplaySetNotFound"}
    namespace.apply(policy("ours", marginPercent=20))
    await eyes.until(key, lambda seen: {each.reason for each in seen.troubles} == {"ReplaySetNotFound"})
    namespace.apply(replay_set("gone", configMap={"name": "gone"}))
    await eyes.until(key, lambda seen: {each.reason for each in seen.troubles} == {"CasesNotFound"})
    namespace.apply(config_map("gone"))
    seen = await eyes.until(key, lambda seen: None if seen.troubles else seen)
    assert seen.policy is not None
    assert (seen.policy.name, seen.policy.acceptance) == ("ours", (16, 25, 35))
    assert seen.replay_set is not None
    assert seen.replay_set.name == "gone"
    (told,) = {key for kind, key in eyes.touched if kind == "ReplaySet" and key.endswith("/gone")}
    assert told == f"{namespace.name}/gone"


async def test_a_secret_is_sent_to_the_server_and_stands_in_no_text(eyes: Eyes, namespace: Namespace) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(secret("engine-key", token=PLANTED))
    hidden = {"env": [{"name": "ENGINE_KEY", "value": PLANTED}]}
    namespace.apply(deployment("engine", simulated("--api-key-env", "ENGINE_KEY", **hidden)))
    namespace.apply(line(baseline=arm(apiKeySecretRef={"name": "engine-key", "key": "token"})))
    observed: list[Any] = []

    def answers(seen: LineSnapshot) -> bool:
        return seen.baseline is not None and seen.baseline.asked and len(seen.baseline.ready) == 1

    await eyes.until(key, answers)
    observed.append(await eyes.look(key))
    (way,) = observed[0].ways.values()
    assert way.access.held.api_key.value == PLANTED.encode()
    # whoever replays goes by the rules that the observer was given
    assert way.access.addresses == AddressRules(tenant=namespace.name)
    snapshot = observed[0].snapshot
    assert PLANTED not in repr(observed[0]) + repr(snapshot.slots[0].profile.document())
    assert PLANTED not in repr(eyes.observer.__dict__)
    assert "[sealed-" in repr(snapshot.slots[0].profile.document())


async def test_a_server_that_wants_a_key_is_told_as_that(eyes: Eyes, namespace: Namespace) -> None:
    key = f"{namespace.name}/chat"
    given = {"env": [{"name": "ENGINE_KEY", "value": PLANTED}]}
    namespace.apply(deployment("engine", simulated("--api-key-env", "ENGINE_KEY", **given)))
    namespace.apply(line())
    said = await eyes.until(key, lambda seen: seen.baseline and seen.baseline.unreachable)
    assert "it answers 401: an API key is needed" in said
    assert "apiKeySecretRef" in said


async def test_a_policy_says_itself_what_no_line_can_judge_by_until_it_is_mended(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/misspelt"

    async def told() -> dict[str, Any]:
        wanted = await eyes.observer.look_policy(key)
        assert wanted is not None
        return dict(wanted.status["conditions"][0])

    namespace.apply(deployment("engine", simulated()))
    namespace.apply(policy("misspelt", marginPercent=20, flags=[{"name": "bad", "checks": ["nope"]}]))
    namespace.apply(line(policyRef={"name": "misspelt"}))
    await eyes.until(f"{namespace.name}/chat", lambda seen: _about(seen, "PolicyNotAccepted"))
    found = await told()
    assert (found["status"], found["reason"]) == ("False", "SpecInvalid")
    assert "spec.flags[0].checks: no check is named nope (allowed: " in found["message"]
    assert ("PromotionPolicy", key) in eyes.touched
    eyes.touched.clear()
    namespace.apply(policy("misspelt", marginPercent=20, flags=[{"name": "bad", "checks": ["loop"]}]))
    await eyes.until(f"{namespace.name}/chat", lambda seen: None if seen.troubles else seen)
    assert (await told())["reason"] == "Accepted"
    namespace.apply(policy("misspelt", marginPercent=20, flags=[{"name": "bad", "checks": ["nope"]}]))
    await eyes.until(f"{namespace.name}/chat", lambda seen: _about(seen, "PolicyNotAccepted"))
    eyes.touched.clear()
    namespace.kubectl("delete", "sl", "chat")
    while ("PromotionPolicy", key) not in eyes.touched:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert (await told())["reason"] == "Accepted"  # no line names it: the cases of one may bring the check
