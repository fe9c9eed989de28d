"""Real llama.cpp servers that ask for a key, or stand behind TLS that asks for a client certificate."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import httpx
import pytest
import trustme

from prefillgate.hosts.llama_server import LlamaServer
from tests.support.llama import SMALL, real_llama, record
from tests.support.runs import ended, start, write_policy
from tests.support.simulated import free_port
from tests.support.ways import tls_front

PLAIN = ("--cache-ram", "0")
OLD_KEY, NEW_KEY = "sk-old-3f1c7a90e2d84b55", "sk-new-b86d02c4f7a14e93"
OLD = (*PLAIN, "--api-key", OLD_KEY)
NEW = (*PLAIN, "--api-key", NEW_KEY, "--api-prefix", "/gateway/llama")


def arguments(folder: Path, baseline: str, candidate: str, *more: str) -> list[str]:
    """A run of the four packaged cases: five clean prefills promote at this margin."""
    policy = write_policy(
        folder / "policy.yaml", marginPercent=50, acceptance=[5, 9, 12], baselinePassPrefills=1, budgetPrefills=40
    )
    urls = ("--baseline", baseline, "--candidate", candidate)
    files = ("--replay-set", "four", "--policy", str(policy), "--store", "run.db")
    return ["run", *urls, *files, "--seed", "5", "--json", *more]


@pytest.mark.parametrize("path", ["/v1/models", "/props", "/slots", "/metrics"])
def test_every_question_of_discovery_needs_the_key(request: pytest.FixtureRequest, path: str) -> None:
    server = real_llama(request, OLD)
    with httpx.Client(trust_env=False, timeout=30) as client:
        codes = [
            client.get(server.url + path, headers=headers).status_code
            for headers in ({}, {"Authorization": f"Bearer {NEW_KEY}"}, {"Authorization": f"Bearer {OLD_KEY}"})
        ]
    assert codes == [401, 401, 200]


def test_a_whole_run_with_a_key_for_each_server_keeps_none_of_them(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    baseline, candidate = real_llama(request, OLD), real_llama(request, NEW)
    monkeypatch.setenv("OLD_KEY", OLD_KEY)
    monkeypatch.setenv("NEW_KEY", NEW_KEY)
    keys = ("--baseline-api-key-env", "OLD_KEY", "--candidate-api-key-env", "NEW_KEY")
    # The candidate's address holds a path in front of /v1, as behind a gateway.
    child = start(arguments(tmp_path, f"{baseline.url}/v1", f"{candidate.url}/v1/", *keys), tmp_path)
    running = Path(f"/proc/{child.pid}/cmdline")
    listed = running.read_bytes() if running.exists() else " ".join(map(str, child.args)).encode()  # type: ignore[union-attr]
    end = ended(child)
    assert (end.code, end.json["decision"]) == (0, "promote"), end.said
    assert end.json["arms"]["candidate"]["prefills"] >= 5
    kept = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"run.db", "run.html"} <= set(kept)
    for key in (OLD_KEY.encode(), NEW_KEY.encode()):
        assert key not in listed
        assert key not in end.out + end.err
        assert [name for name, content in kept.items() if key in content] == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "baseline: {url}/v1/models: HTTP 401 (an API key is needed, or the one given is not accepted)"),
        (("--api-key-env", "NEW_KEY"), "baseline: {url}/v1/models: HTTP 401 (an API key is needed, or the one given"),
        (("--api-key-env", "NO_KEY"), "baseline: API key: NO_KEY is not set in the environment"),
        (("--baseline-api-key-env", "OLD_KEY"), "candidate: {url}/v1/models: HTTP 401 (an API key is needed"),
    ],
)
def test_a_missing_and_a_wrong_key_are_told_of_the_arm_that_wants_another(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    says: str,
) -> None:
    baseline, candidate = real_llama(request, OLD), real_llama(request, NEW)
    monkeypatch.setenv("OLD_KEY", OLD_KEY)
    monkeypatch.setenv("NEW_KEY", NEW_KEY)
    monkeypatch.delenv("NO_KEY", raising=False)
    end = ended(start(arguments(tmp_path, baseline.url, candidate.url, *options), tmp_path))
    url = candidate.url if says.startswith("candidate") else baseline.url
    assert end.code == (2 if "NO_KEY" in options else 1)
    assert says.format(url=url) in end.said
    assert OLD_KEY not in end.said and NEW_KEY not in end.said
    assert not (tmp_path / "run.db").exists()


def test_a_whole_run_over_tls_with_private_authorities_and_client_certificates(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    baseline, candidate = real_llama(request, PLAIN), real_llama(request, (*PLAIN, "--swa-full"))
    for name in ("old", "new"):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / f"{name}-ca.pem")
        authority.issue_cert("gate@example.com").private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
        if name == "old":
            old = authority
    with (
        tls_front(baseline.url, old.issue_cert("127.0.0.1"), old) as first,
        tls_front(candidate.url, authority.issue_cert("127.0.0.1"), authority) as second,
    ):
        certificates = [
            *("--baseline-ca-file", "old-ca.pem", "--baseline-client-cert", "old.pem"),
            *("--candidate-ca-file", "new-ca.pem", "--candidate-client-cert", "new.pem"),
        ]
        end = ended(start(arguments(tmp_path, first.url, second.url, *certificates), tmp_path))
        swapped = [word.replace("old", "mid").replace("new", "old").replace("mid", "new") for word in certificates]
        wrong = ended(start(arguments(tmp_path, first.url, second.url, *swapped, "--store", "wrong.db"), tmp_path))
    assert (end.code, end.json["decision"]) == (0, "promote"), end.said
    assert not any("--insecure" in note for note in end.json["notes"])
    assert len(first.clients) > 5 and len(second.clients) > 5  # each connection showed a certificate
    assert wrong.code == 1
    assert "trust its authority with --ca-file" in wrong.said


def test_a_run_waits_for_a_real_server_that_is_started_meanwhile(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    baseline = real_llama(request, PLAIN)
    late = LlamaServer((*SMALL, *PLAIN), port=free_port(), log_path=tmp_path / "late.log")
    url = f"http://127.0.0.1:{late.port}"
    child = start(arguments(tmp_path, baseline.url, url, "--wait-ready", "120"), tmp_path)
    starting = threading.Thread(target=lambda: (time.sleep(2), late.start()))
    starting.start()
    try:
        end = ended(child)
        record(request, late)
    finally:
        starting.join()
        late.stop()
    assert (end.code, end.json["decision"]) == (0, "promote"), end.said
    assert any(line.startswith("candidate: not ready yet, waiting ") for line in end.lines)
    assert any(line.startswith("candidate: ready after ") for line in end.lines)
    assert json.loads(end.out)["notes"]
