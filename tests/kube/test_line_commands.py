"""`get`, `explain` and `watch` of serving lines as a person types them; the API server fails when it is told to."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefillgate.api.kinds.names import LEASE, SYSTEM_NAMESPACE
from prefillgate.kube.objects import LEASES, PROFILE_ROLLOUTS, SERVING_LINES, Kind, name_of
from tests.support.fake_api import FakeApi, Fault, Resource
from tests.support.fake_api.store import Write
from tests.support.lines import LINE, ROLLOUT, SPACE, condition, decided, rollout, serving_line

RUNNING = [condition("Succeeded", "Unknown", "Running")]
KUBECTL = "import sys; from prefillgate.cli.kubectl import plugin; sys.exit(plugin())"
COMPLETE = "import sys; from prefillgate.cli.kubectl import complete; sys.exit(complete())"


@pytest.fixture
def fake(fake: FakeApi) -> FakeApi:
    """With our kinds, and the namespaces of the tests."""
    for kind in (SERVING_LINES, PROFILE_ROLLOUTS):
        fake.serve(Resource(kind))
    for name in (SPACE, SYSTEM_NAMESPACE, "other"):
        fake.store.create(
            fake._of(Kind("", "v1", "namespaces", "Namespace", False)), "", {"metadata": {"name": name}}, Write("x")
        )
    return fake


def put(fake: FakeApi, thing: dict[str, Any], namespace: str = SPACE) -> None:
    """Keep an object with its status, as a controller would have left it; also over one of its name."""
    kind = SERVING_LINES if thing["kind"] == "ServingLine" else PROFILE_ROLLOUTS
    where = (fake._of(kind), namespace, name_of(thing))
    given = {**thing, "metadata": {"name": name_of(thing)}}
    if (kind.plural, namespace, name_of(thing)) not in fake.store.objects:
        fake.store.create(fake._of(kind), namespace, given, Write("somebody"))
    fake.store.update(*where, {"metadata": {}, "status": thing["status"]}, Write("x", subresource="status"))


@dataclass
class Said:
    """What a command printed, and how it ended."""

    out: str
    err: str
    code: int | None


def environment(kubeconfig: Path | str) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(kubeconfig), "NO_COLOR": "1", "HOME": "/nonexistent", "COLUMNS": "200"}


@asynccontextmanager
async def begun(kubeconfig: Path, *words: str, code: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
    """The program as a process of its own."""
    start = ("-c", code) if code else ("-m", "prefillgate")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *start, *words, stdout=pipe, stderr=pipe, env=environment(kubeconfig)
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def said(kubeconfig: Path, *words: str, code: str = "") -> Said:
    async with begun(kubeconfig, *words, code=code) as process:
        out, err = await process.communicate()
        return Said(out.decode(), err.decode(), process.returncode)


async def completed(ask: Callable[[], Awaitable[list[str]]], nothing: list[str]) -> list[str]:
    """What is completed: where the machine is too busy for an answer in time, asked again as a person does."""
    for _ in range(20):
        if (told := await ask()) != nothing:
            return told
    return nothing


async def line_with(stream: asyncio.StreamReader | None, text: str) -> str:
    """The next line of a stream with that in it."""
    assert stream is not None
    while line := (await asyncio.wait_for(stream.readline(), 60)).decode():
        if text in line:
            return line
    raise AssertionError(f"ended without {text!r}")


async def test_get_lists_the_lines_of_a_namespace_or_of_all(fake: FakeApi, kubeconfig: Path) -> None:
    put(fake, serving_line())
    put(fake, {**serving_line(), "metadata": {"name": "far"}}, "other")
    here = await said(kubeconfig, "get", "-n", SPACE)
    assert (here.code, [row.split()[0] for row in here.out.splitlines()]) == (0, ["NAME", LINE])
    assert " ".join(here.out.splitlines()[1].split()).startswith("chat Hold 2 bad of 10 Refused 60303ae22b99")
    everywhere = await said(kubeconfig, "get", "-A")
    assert [row.split()[:2] for row in everywhere.out.splitlines()] == [
        ["NAMESPACE", "NAME"],
        ["other", "far"],
        ["prod", "chat"],
    ]
    one = await said(kubeconfig, "get", "far", "--namespace", "other", "--json")
    assert [row["name"] for row in json.loads(one.out)["lines"]] == ["far"]
    none = await said(kubeconfig, "get")
    assert (none.code, none.out, none.err) == (0, "", "no serving lines here\n")


async def test_the_context_says_the_namespace_and_which_cluster(fake: FakeApi, tmp_path: Path) -> None:
    put(fake, serving_line())
    config = fake.kubeconfig()
    config["contexts"].append({"name": "prod", "context": {"cluster": "fake", "user": "me", "namespace": SPACE}})
    path = tmp_path / "two"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    assert (await said(path, "get")).out == ""
    assert LINE in (await said(path, "get", "--context", "prod")).out
    assert LINE in (await said(tmp_path / "none", "get", "--context", "prod", "--kubeconfig", str(path))).out
    wrong = await said(path, "get", "--context", "staging")
    assert wrong.code == 2
    assert 'there is no context "staging" (allowed: "fake", "prod")' in wrong.err


async def test_explain_prints_one_screen_with_the_command_that_overrides_in_this_cluster(
    fake: FakeApi, kubeconfig: Path
) -> None:
    put(fake, serving_line())
    put(fake, rollout())
    for words, code in (((), ""), ((), KUBECTL)):
        told = await said(kubeconfig, "explain", LINE, "-n", SPACE, "--kubeconfig", str(kubeconfig), *words, code=code)
        assert (told.code, told.err) == (0, "")
        assert told.out.startswith("HOLD  prod/chat  rollout chat-5f2c1e9a\n")
        assert told.out.splitlines()[-1] == (
            f"to override     kubectl --namespace {SPACE} --kubeconfig {kubeconfig} annotate profilerollout {ROLLOUT} "
            'prefillgate.io/override=rollback prefillgate.io/override-reason="..."'
        )


@pytest.mark.parametrize(
    ("verdict", "reason", "word"),
    [
        ("Promote", "AcceptanceReached", "hold"),
        ("Rollback", "RegressionConfirmed", "promote"),
        ("Hold", "X", "rollback"),
    ],
)
async def test_the_command_decides_otherwise_than_the_evidence(
    fake: FakeApi, kubeconfig: Path, verdict: str, reason: str, word: str
) -> None:
    put(fake, serving_line())
    put(fake, rollout(decision=decided(verdict, reason)))
    told = await said(kubeconfig, "explain", f"sl/{LINE}", "-n", SPACE)
    assert f"prefillgate.io/override={word} " in told.out
    annotated = {"annotations": {"prefillgate.io/override-reason": "before"}}
    where = (fake._of(PROFILE_ROLLOUTS), SPACE, ROLLOUT)
    fake.store.update(*where, {**rollout(), "metadata": {"name": ROLLOUT, **annotated}}, Write("somebody"))
    assert (
        f" {ROLLOUT} --overwrite prefillgate.io/override={word} "
        in (await said(kubeconfig, "explain", LINE, "-n", SPACE)).out
    )


async def test_an_override_that_stands_is_taken_back_by_the_command_shown(fake: FakeApi, kubeconfig: Path) -> None:
    put(fake, serving_line())
    standing = {
        "verdict": "Hold",
        "reason": "seen",
        "actor": "alice",
        "actorVerified": True,
        "since": "2026-11-30T10:00:00Z",
        "baselineDigest": "sha256:" + "1" * 64,
        "candidateDigest": "sha256:" + "2" * 64,
    }
    put(fake, rollout(override=standing))
    told = await said(kubeconfig, "explain", LINE, "-n", SPACE)
    assert told.out.splitlines()[-1] == (
        f"to take it back kubectl --namespace {SPACE} annotate profilerollout {ROLLOUT} prefillgate.io/override- "
        "prefillgate.io/override-reason- prefillgate.io/override-expires-"
    )
    put(fake, rollout(override={**standing, "verdict": "Promote"}))
    promoted = await said(kubeconfig, "explain", LINE, "-n", SPACE)  # which is never taken back
    assert "annotate" not in promoted.out and "promote by alice" in promoted.out


@pytest.mark.parametrize(
    ("of_line", "line_bears", "rollout_bears", "kinds"),
    [
        (True, True, False, ["servingline"]),
        (True, True, True, ["servingline", "profilerollout"]),
        (True, False, False, ["servingline"]),
        (False, False, True, ["profilerollout"]),
        (False, True, True, ["profilerollout", "servingline"]),
    ],
)
async def test_an_override_is_taken_back_where_it_is_written(
    fake: FakeApi, kubeconfig: Path, of_line: bool, line_bears: bool, rollout_bears: bool, kinds: list[str]
) -> None:
    put(fake, serving_line())
    put(fake, rollout())
    uids = {}
    for thing, bears in ((serving_line(), line_bears), (rollout(), rollout_bears)):
        kind = SERVING_LINES if thing["kind"] == "ServingLine" else PROFILE_ROLLOUTS
        where = (fake._of(kind), SPACE, name_of(thing))
        metadata = {"name": name_of(thing), "annotations": {"prefillgate.io/override": "hold"} if bears else {}}
        uids[kind] = fake.store.update(*where, {**thing, "metadata": metadata}, Write("somebody"))["metadata"]["uid"]
    key = f"{uids[SERVING_LINES if of_line else PROFILE_ROLLOUTS]}/abc/1"
    fake.store.update(*where, {"metadata": {}, "status": overridden(key=key)}, Write("x", subresource="status"))
    told = await said(kubeconfig, "explain", LINE, "-n", SPACE)
    rows = [row.split() for row in told.out.splitlines() if row.startswith("to take it back")]
    assert [row[8:10] for row in rows] == [[kind, {"servingline": LINE}.get(kind, ROLLOUT)] for kind in kinds]


def overridden(**more: Any) -> dict[str, Any]:
    """The status of a rollout that a person holds."""
    standing = {
        "verdict": "Hold",
        "reason": "seen",
        "actor": "alice",
        "actorVerified": True,
        "since": "2026-11-30T10:00:00Z",
        "baselineDigest": "sha256:" + "1" * 64,
        "candidateDigest": "sha256:" + "2" * 64,
    }
    found: dict[str, Any] = rollout(override={**standing, **more})["status"]
    return found


async def test_a_rollout_whose_line_is_not_there_is_explained_and_has_no_override(
    fake: FakeApi, kubeconfig: Path
) -> None:
    put(fake, rollout(conditions=[condition("Accepted", "False", "LineNotFound")]))
    told = await said(kubeconfig, "explain", f"pro/{ROLLOUT}", "-n", SPACE)
    assert (told.code, told.err) == (0, "")
    assert "There is no ServingLine chat here (any more): nothing is done about this rollout." in told.out
    assert "Accepted is False (LineNotFound): " in told.out and "annotate" not in told.out
    got = await said(kubeconfig, "get", f"pro/{ROLLOUT}", "-n", SPACE)
    assert got.code == 2 and "its line is not there (see: prefillgate explain" in got.err


@pytest.mark.parametrize(
    ("spec", "command"),
    [
        ({"baseline": ("apps/v1", "Deployment", "chat")}, "rollout undo deployment/chat"),
        ({"baseline": ("apps/v1", "StatefulSet", "chat")}, "rollout undo statefulset/chat"),
        (
            {"baseline": ("apps/v1", "Deployment", "chat"), "candidate": ("apps/v1", "Deployment", "next")},
            "scale --replicas=0 deployment/next",
        ),
        (
            {"baseline": ("apps/v1", "Deployment", "chat"), "candidate": ("apps/v1", "Deployment", "chat")},
            "rollout undo deployment/chat",
        ),
        ({"baseline": ("serving.kserve.io/v1beta1", "InferenceService", "chat")}, None),
        ({"baseline": ("apps/v1", "Deployment", "chat"), "candidate": ("apps/v1", "DaemonSet", "next")}, None),
    ],
)
async def test_an_allowed_rollback_has_its_command(
    fake: FakeApi, kubeconfig: Path, spec: dict[str, tuple[str, str, str]], command: str | None
) -> None:
    names = ("apiVersion", "kind", "name")
    arms = {arm: {"workloadRef": dict(zip(names, ref, strict=True))} for arm, ref in spec.items()}
    put(fake, {**serving_line(candidate=profile("2"), promotedProfile=None), "spec": arms})
    unavailable = decided("Rollback", "CandidateUnavailable")
    put(fake, rollout(decision=unavailable, candidate=profile("2"), endedAt=None))
    told = await said(kubeconfig, "explain", LINE, "-n", SPACE)
    rows = [row for row in told.out.splitlines() if row.startswith("to roll back")]
    assert rows == ([] if command is None else [f"to roll back    kubectl --namespace {SPACE} {command}"])
    assert "allowed as it stands, no override is needed" in told.out


async def test_nothing_is_cut_in_full(fake: FakeApi, kubeconfig: Path, tmp_path: Path) -> None:
    put(fake, serving_line())
    long = [{"area": "Other", "name": "x", "candidate": f"{'v' * 300}END", "declared": True}]
    put(fake, rollout(differences=long))
    for code in ("", KUBECTL):
        words = ("explain", LINE, "-n", SPACE)
        assert "END" not in (await said(kubeconfig, *words, code=code)).out
        assert "END" in (await said(kubeconfig, *words, "--full", code=code)).out
    (tmp_path / "gate.db").touch()
    refused = await said(kubeconfig, "explain", str(tmp_path / "gate.db"), "--full")
    assert refused.code == 2 and "--full with a store" in refused.err


def profile(digit: str) -> dict[str, Any]:
    digest = "sha256:" + digit * 64
    return {"digest": digest, "name": digit * 12}


def promoted(by: str | None = ROLLOUT, **more: Any) -> dict[str, Any]:
    """A line whose promoted profile is 2 and was 1 before."""
    since = {"since": "2026-11-30T09:00:00Z"}
    now, before = profile("2") | since, profile("1") | since
    profiles = {
        "promotedProfile": {**now, "how": "Promoted", "rollout": by},
        "previousProfile": {**before, "how": "FirstSeen"},
    }
    return serving_line(**{**profiles, "candidate": None, "differences": None, **more})


WATCHED = {"prefills": 8, "badPrefills": 5, "alarm": False, "rollback": True}
ON_LINE = (
    f"kubectl --namespace {SPACE} annotate --overwrite servingline {LINE} "
    "prefillgate.io/rerun=back-2026-11-30T09:00:00Z "
    'prefillgate.io/override=promote prefillgate.io/override-reason="..."'
)
ON_ROLLOUT = (
    f"kubectl --namespace {SPACE} annotate --overwrite profilerollout {ROLLOUT} prefillgate.io/override=promote "
    'prefillgate.io/override-reason="..."'
)


@pytest.mark.parametrize(
    ("line", "decision", "back"),
    [
        (promoted(), decided("Rollback", "Override"), ON_LINE),
        (promoted(watch=WATCHED), decided("Promote", "AcceptanceReached"), ON_LINE),
        (promoted("chat-older", watch=WATCHED), decided(), ON_LINE),
        (promoted("chat-older", candidate=profile("1")), decided("Continue", "NotStarted"), ON_ROLLOUT),
        (promoted("chat-older", candidate=profile("3"), watch=WATCHED), decided(), ""),  # it would promote another one
        (promoted("chat-older", candidate=profile("1"), currentRollout="chat-newer"), decided(), ""),
        (promoted(), decided("Promote", "AcceptanceReached"), None),  # nothing is to be rolled back
        (promoted("chat-older", candidate=profile("3")), decided("Rollback", "RegressionConfirmed"), None),
        (promoted(previousProfile=None, watch=WATCHED), decided("Rollback", "Override"), None),
    ],
)
async def test_what_was_promoted_and_may_be_rolled_back_has_one_command_that_leads_back(
    fake: FakeApi, kubeconfig: Path, line: dict[str, Any], decision: dict[str, Any], back: str | None
) -> None:
    put(fake, line)
    put(fake, rollout(decision=decision))
    told = (await said(kubeconfig, "explain", f"pro/{ROLLOUT}", "-n", SPACE)).out
    assert [row.removeprefix("to go back      ") for row in told.splitlines() if row.startswith("to go back")] == (
        [back] if back else []
    )
    unwrapped = " ".join(told.split())
    assert ("the previous profile 111111111111 is the promoted one again" in unwrapped) is (back is not None)
    assert ("put its template back into a workload" in unwrapped) is (back == "")


async def test_an_earlier_rollout_is_explained_by_its_own_name(fake: FakeApi, kubeconfig: Path) -> None:
    put(fake, serving_line())
    put(fake, rollout("chat-old", decision=decided("Promote", "AcceptanceReached")))
    told = await said(kubeconfig, "explain", "pro/chat-old", "-n", SPACE)
    assert told.out.startswith("PROMOTE  prod/chat  rollout chat-old\n")
    none = await said(kubeconfig, "explain", "pro/chat-new", "-n", SPACE)
    assert (none.code, none.out) == (2, "")
    assert "there is no ProfileRollout 'chat-new' in namespace 'prod'" in none.err


async def test_the_lease_tells_whether_a_controller_lives(fake: FakeApi, kubeconfig: Path) -> None:
    put(fake, serving_line())
    never = await said(kubeconfig, "get", "-n", SPACE)
    missing = f"No controller has led: no Lease {SYSTEM_NAMESPACE}/{LEASE} (another: --controller-lease)."
    assert f"note: prod/chat: {missing}\n" in never.err
    spec = {"holderIdentity": "x", "renewTime": "2020-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}
    lease = {"metadata": {"name": LEASE}, "spec": spec}
    fake.store.create(fake._of(LEASES), "other", lease, Write("x"))
    old = await said(kubeconfig, "get", "-n", SPACE, "--controller-namespace", "other")
    assert f"No controller has renewed the Lease other/{LEASE} since " in old.err
    fake.denied.add(("get", "leases"))
    private = kubeconfig.with_name("restricted")
    private.write_text(yaml.safe_dump(fake.kubeconfig(token="restricted")), encoding="utf-8")
    unknown = await said(private, "get", "-n", SPACE)
    assert (unknown.code, unknown.err) == (0, "")


async def test_the_lease_of_a_controller_may_have_another_name(
    fake: FakeApi, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(fake, serving_line())
    spec = {"holderIdentity": "", "renewTime": "2020-01-01T00:00:00.000000Z"}
    for name in (LEASE, "gate-two"):
        fake.store.create(fake._of(LEASES), "other", {"metadata": {"name": name}, "spec": spec}, Write("x"))
    here = ("-n", SPACE, "--controller-namespace", "other")
    put(fake, rollout())
    for words in (["get"], ["get", LINE], ["explain", LINE], ["explain", f"pro/{ROLLOUT}"]):
        told = await said(kubeconfig, *words, *here, "--controller-lease", "gate-two")
        assert "No controller leads now: the Lease other/gate-two was given back" in told.out + told.err
        usual = await said(kubeconfig, *words, *here)
        assert f"the Lease other/{LEASE} was given back" in usual.out + usual.err
    odd = await said(kubeconfig, "get", "-n", SPACE, "--controller-lease", "..")
    assert (odd.code, odd.out) == (2, "")
    assert "--controller-lease: no name of an object (allowed: lower-case letters" in odd.err
    odd = await said(kubeconfig, "get", "-n", SPACE, "--controller-namespace", "..")
    assert odd.code == 2 and "--controller-namespace: no name of an object" in odd.err
    monkeypatch.setenv("PREFILLGATE_CONTROLLER_NAMESPACE", "other")
    monkeypatch.setenv("PREFILLGATE_CONTROLLER_LEASE", "gate-two")
    assert "the Lease other/gate-two was given back" in (await said(kubeconfig, "get", "-n", SPACE)).err
    store = tmp_path / "chat"
    store.write_text("no store", encoding="utf-8")
    assert str(store) in (await said(kubeconfig, "explain", str(store))).err, "variables make no store a line"


async def test_a_name_that_is_not_there_is_answered_with_names_that_are(fake: FakeApi, kubeconfig: Path) -> None:
    put(fake, serving_line())
    put(fake, {**serving_line(), "metadata": {"name": "chat-far"}}, "other")
    near = await said(kubeconfig, "explain", "chta", "-n", SPACE)
    assert (near.code, near.out) == (2, "")
    assert near.err == "prefillgate: error: there is no ServingLine 'chta' in namespace 'prod' (there: chat)\n"
    elsewhere = await said(kubeconfig, "watch", "chat-far", "-n", SPACE)
    assert elsewhere.code == 2
    assert "(there: chat); one is in namespace other: --namespace" in elsewhere.err
    path = await said(kubeconfig, "get", "..", "-n", SPACE)
    assert (path.code, path.out) == (2, "")
    assert "'..' is no name of an object" in path.err


async def test_what_the_cluster_refuses_is_said_with_what_helps(
    fake: FakeApi, kubeconfig: Path, tmp_path: Path
) -> None:
    fake.fail(Fault("status", "list", code=403, reason="Forbidden", message="bob cannot list servinglines"))
    denied = await said(kubeconfig, "get", "-n", SPACE)
    assert denied.code == 1
    assert "these credentials lack a right (get, list and watch on servinglines and profilerollouts): " in denied.err
    assert "bob cannot list servinglines" in denied.err
    fake.fail(Fault("text", "list", code=404, body="404 page not found\n"))
    missing = await said(kubeconfig, "get", "-n", SPACE)
    assert missing.code == 1
    assert (
        "this cluster does not know prefillgate's kinds (kubectl apply --server-side -f manifests/crds): "
        in missing.err
    )
    fake.fail(Fault("html", "list", code=200))
    proxy = await said(kubeconfig, "get", "-n", SPACE)
    assert (proxy.code, "is there a proxy or a login before the API server?" in proxy.err) == (1, True)
    nowhere = await said(tmp_path / "none", "get")
    assert nowhere.code == 2
    assert "no cluster: " in nowhere.err and "there is no such file, and this process runs in no pod" in nowhere.err
    await fake.stop()
    away = await said(kubeconfig, "explain", LINE, "-n", SPACE)
    assert (away.code, away.out) == (1, "")
    assert f"127.0.0.1:{fake.port}" in away.err
    await fake.start()


async def test_a_word_that_names_no_file_is_taken_for_a_line_and_that_is_said(kubeconfig: Path, tmp_path: Path) -> None:
    told = await said(tmp_path / "none", "explain", LINE)
    assert told.code == 2
    assert f"error: {LINE}: there is no file of that name, so it is a line's: no cluster: " in told.err
    store = await said(kubeconfig, "explain", "gate.db")
    assert store.code == 2
    assert "there is no evidence store" in store.err


async def test_all_namespaces_and_one_do_not_go_together(kubeconfig: Path) -> None:
    for words in (("-n", SPACE), (LINE,)):
        both = await said(kubeconfig, "get", "-A", *words)
        assert (both.code, "--all-namespaces with LINE or --namespace (allowed: one of them)" in both.err) == (2, True)


@pytest.mark.parametrize(
    ("decision", "succeeded", "code"),
    [
        (decided("Promote", "AcceptanceReached"), ("True", "Promoted"), 0),
        (decided("Hold"), ("False", "Held"), 10),
        (decided("Rollback", "RegressionConfirmed"), ("False", "RollbackAllowed"), 20),
        (decided("Hold", "InstrumentBroken", measured=False), ("False", "NotMeasured"), 1),
        (None, ("False", "NotMeasured"), 1),
    ],
)
async def test_watch_ends_with_the_code_of_the_answer(
    fake: FakeApi, kubeconfig: Path, decision: Any, succeeded: tuple[str, str], code: int
) -> None:
    put(fake, serving_line())
    put(fake, rollout(conditions=RUNNING, decision=None))
    async with begun(kubeconfig, "watch", LINE, "-n", SPACE) as process:
        await line_with(process.stdout, f"rollout {ROLLOUT}")
        put(fake, rollout(conditions=[condition("Succeeded", *succeeded)], decision=decision))
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == code
        if decision is not None:
            assert f"  {decision['verdict'].upper()} ({decision['reason']}" in out.decode()


async def test_a_rollout_about_profiles_that_are_gone_is_no_answer_unless_it_is_asked_for(
    fake: FakeApi, kubeconfig: Path
) -> None:
    put(fake, promoted("chat-older", candidate=profile("4")))
    done = {"conditions": [condition("Succeeded", "False", "RollbackAllowed")], "decision": decided("Rollback")}
    put(fake, rollout(candidate=profile("3"), endedAt="2026-11-30T10:00:00Z", **done))
    told = (await said(kubeconfig, "explain", LINE, "-n", SPACE)).out
    assert told.startswith("NO ROLLOUT  prod/chat\n") and "the candidate 444444444444 is not judged yet" in told
    assert f"What rollout {ROLLOUT} said of 333333333333 (rollback, ended " in told and "annotate" not in told
    named = (await said(kubeconfig, "explain", f"pro/{ROLLOUT}", "-n", SPACE)).out
    assert named.startswith(f"ROLLBACK  prod/chat  rollout {ROLLOUT}\n") and "said of 333333333333" in named
    async with begun(kubeconfig, "watch", LINE, "-n", SPACE) as process:
        await line_with(process.stdout, "there is no rollout yet: the candidate 444444444444 is not judged yet")
        put(fake, rollout("chat-2", candidate=profile("4"), conditions=RUNNING, decision=None))
        put(fake, promoted("chat-older", candidate=profile("4"), currentRollout="chat-2"))
        await line_with(process.stdout, "rollout chat-2")
        # the workload of what it follows is gone in the moment of the answer
        put(fake, promoted("chat-older", candidate=profile("5"), currentRollout="chat-2"))
        put(fake, rollout("chat-2", candidate=profile("4"), endedAt="2026-11-30T11:00:00Z", **done))
        assert await asyncio.wait_for(process.wait(), 60) == 20


async def test_watch_goes_on_where_another_rollout_takes_the_place(fake: FakeApi, kubeconfig: Path) -> None:
    put(fake, serving_line())
    put(fake, rollout(conditions=RUNNING, decision=None))
    async with begun(kubeconfig, "watch", LINE, "-n", SPACE, "--json") as process:
        first = json.loads(await line_with(process.stdout, ROLLOUT))
        assert (first["line"], first["rollout"], first["decision"]) == ("prod/chat", ROLLOUT, None)
        put(fake, rollout(conditions=[condition("Succeeded", "False", "Superseded")], decision=None))
        await line_with(process.stdout, "Something else took its place.")
        put(fake, rollout("chat-2", conditions=RUNNING, decision=None))
        put(fake, serving_line(currentRollout="chat-2"))
        assert json.loads(await line_with(process.stdout, "rollout chat-2"))["rollout"] == "chat-2"
        done = [condition("Succeeded", "True", "Promoted")]
        put(fake, rollout("chat-2", conditions=done, decision=decided("Promote", "AcceptanceReached")))
        last = json.loads(await line_with(process.stdout, "AcceptanceReached"))
        assert (last["decision"], last["promotion"], last["rollback"]) == ("Promote", "Allowed", "Refused")
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_a_decided_rollout_ends_watch_at_once_and_with_next_the_one_after_it_is_waited_for(
    fake: FakeApi, kubeconfig: Path
) -> None:
    put(fake, serving_line())
    put(fake, rollout(conditions=[condition("Succeeded", "False", "Held")], decision=decided("Hold")))
    assert (await said(kubeconfig, "watch", LINE, "-n", SPACE)).code == 10
    async with begun(kubeconfig, "watch", LINE, "-n", SPACE, "--next") as process:
        await line_with(process.stdout, "HOLD (RegressionNotConfirmed")
        done = [condition("Succeeded", "True", "Promoted")]
        put(fake, rollout("chat-2", conditions=done, decision=decided("Promote", "AcceptanceReached")))
        put(fake, serving_line(currentRollout="chat-2"))
        await line_with(process.stdout, "PROMOTE (AcceptanceReached")
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_watch_outlives_an_outage_and_says_so_once(fake: FakeApi, kubeconfig: Path) -> None:
    put(fake, serving_line())
    put(fake, rollout(conditions=RUNNING, decision=None))
    async with begun(kubeconfig, "watch", LINE, "-n", SPACE) as process:
        await line_with(process.stdout, f"rollout {ROLLOUT}")
        await fake.stop()
        await line_with(process.stderr, "the API server does not answer, and is asked again until it does: ")
        done = [condition("Succeeded", "False", "RollbackAllowed")]
        put(fake, rollout(conditions=done, decision=decided("Rollback", "RegressionConfirmed")))
        fake.expire()  # what it knew is too old by now: it must list again
        await fake.start()
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 20
        assert "ROLLBACK (RegressionConfirmed" in out.decode()
        assert "does not answer" not in err.decode()


async def test_watch_ends_where_waiting_is_no_use(fake: FakeApi, kubeconfig: Path) -> None:
    put(fake, serving_line())
    put(fake, rollout(conditions=RUNNING, decision=None))
    async with begun(kubeconfig, "watch", LINE, "-n", SPACE) as process:
        await line_with(process.stdout, f"rollout {ROLLOUT}")
        fake.store.delete(fake._of(SERVING_LINES), SPACE, LINE, None)
        _, err = await asyncio.wait_for(process.communicate(), 60)
        assert (process.returncode, "the line prod/chat is gone: it was deleted" in err.decode()) == (1, True)
    put(fake, serving_line())
    fake.fail(Fault("status", "watch", "profilerollouts", code=403, reason="Forbidden", message="not any more"))
    denied = await said(kubeconfig, "watch", LINE, "-n", SPACE)
    assert (denied.code, "these credentials lack a right" in denied.err) == (1, True)
    rollout_asked = await said(kubeconfig, "watch", f"pro/{ROLLOUT}", "-n", SPACE)
    assert (rollout_asked.code, "(allowed: the name of its line)" in rollout_asked.err) == (2, True)


async def in_bash(shell: dict[str, str]) -> list[str]:
    command = (sys.executable, "-m", "prefillgate")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=shell)
    out, _ = await process.communicate()
    return out.decode().splitlines()


async def test_names_of_lines_complete_in_a_shell_and_under_kubectl(fake: FakeApi, kubeconfig: Path) -> None:
    put(fake, serving_line())
    put(fake, {**serving_line(), "metadata": {"name": "code"}})
    put(fake, {**serving_line(), "metadata": {"name": "mail"}})

    async def under_kubectl() -> list[str]:
        return (await said(kubeconfig, "explain", "-n", SPACE, "c", code=COMPLETE)).out.splitlines()

    assert await completed(under_kubectl, [":4"]) == ["chat", "code", ":4"]
    told = await said(kubeconfig, "", code=COMPLETE)
    assert [row.split("\t")[0] for row in told.out.splitlines()] == ["get", "explain", "watch", ":4"]
    for command in ("get", "watch", "explain"):
        words = f"prefillgate {command} -n {SPACE} c"
        shell = {**environment(kubeconfig), "_PREFILLGATE_COMPLETE": "bash_complete"}
        shell |= {"COMP_WORDS": words, "COMP_CWORD": "4"}
        assert await completed(partial(in_bash, shell), []) == ["plain,chat", "plain,code"], command
    await fake.stop()
    assert (await said(kubeconfig, "watch", "-n", SPACE, "c", code=COMPLETE)).out == ":4\n"
    await fake.start()
