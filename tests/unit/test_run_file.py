"""One file that holds all of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from prefillgate.api.access import Access
from prefillgate.api.errors import PolicyError, RunFileError
from prefillgate.api.run_file import Arm, check_url, load_run_file
from prefillgate.core.journal import Difference

SPEC: dict[str, Any] = {
    "baseline": {"url": "http://127.0.0.1:8081/"},
    "candidate": {"url": "https://gpu.example:443/llm", "model": "m", "engine": "llama.cpp", "apiKeyVariable": "KEY"},
    "replaySet": "set.jsonl",
}


def write(folder: Path, **changes: Any) -> Path:
    spec = {name: value for name, value in {**SPEC, **changes}.items() if value is not ...}
    file = folder / "run.yaml"
    file.write_text(
        yaml.safe_dump({"apiVersion": "prefillgate.io/v1alpha1", "kind": "Run", "spec": spec}, sort_keys=False)
    )
    return file


def test_a_run_file_holds_all_of_a_run(tmp_path: Path) -> None:
    difference = {"area": "KvCache", "name": "-ctk", "baseline": "q8_0", "candidate": "f16"}
    (tmp_path / "set.jsonl").touch()
    file = write(
        tmp_path,
        policy="strict",
        store="runs/one.db",
        seed=7,
        cellTimeoutSeconds=90,
        waitReadySeconds=30,
        declaredDifferences=[difference, {"area": "Other", "name": "image"}],
    )
    run = load_run_file(file)
    assert run.baseline == Arm("http://127.0.0.1:8081", None, "auto", Access())
    assert run.candidate == Arm("https://gpu.example:443/llm", "m", "llama.cpp", Access(api_key_variable="KEY"))
    assert run.replay_set == str(tmp_path / "set.jsonl")
    assert run.policy.name == "strict"
    assert run.store == tmp_path / "runs" / "one.db"
    assert (run.seed, run.cell_timeout_seconds, run.name, run.source) == (7, 90.0, None, file)
    assert run.wait_ready_seconds == 30.0
    assert run.declared_differences == (
        Difference("KV cache", "-ctk", "q8_0", "f16"),
        Difference("other", "image", None, None),
    )


def test_what_is_left_out_is_left_to_the_run(tmp_path: Path) -> None:
    run = load_run_file(write(tmp_path, replaySet="demo"))
    assert (run.replay_set, run.policy.name, run.store, run.seed) == ("demo", "standard", None, None)
    assert (run.declared_differences, run.cell_timeout_seconds, run.wait_ready_seconds) == ((), None, None)


def test_an_arm_says_how_its_server_is_reached_by_files_beside_the_run_file(tmp_path: Path) -> None:
    candidate = {
        "url": "https://gpu.example",
        "apiKeyVariable": "NEW_KEY",
        "headerFile": "secret/headers",
        "caFile": "ca.pem",
        "clientCert": "client.pem",
        "clientKey": "/etc/client.key",
        "tlsServerName": "llm.example.com",
        "insecure": True,
        "proxy": "http://127.0.0.1:3128",
    }
    run = load_run_file(write(tmp_path, candidate=candidate))
    assert run.baseline.access == Access()
    assert run.candidate.access == Access(
        api_key_variable="NEW_KEY",
        header_file=tmp_path / "secret" / "headers",
        ca_file=tmp_path / "ca.pem",
        client_cert=tmp_path / "client.pem",
        client_key=Path("/etc/client.key"),
        tls_server_name="llm.example.com",
        insecure=True,
        proxy="http://127.0.0.1:3128",
    )


@pytest.mark.parametrize("variable", ["sk-secret", "", "1KEY", "K" * 129])
def test_a_key_in_the_place_of_its_variable_is_refused_and_not_repeated(tmp_path: Path, variable: str) -> None:
    with pytest.raises(RunFileError, match=r"no name of one \(allowed: the name of an environment variable") as caught:
        load_run_file(write(tmp_path, candidate={"url": "http://h", "apiKeyVariable": variable}))
    assert not variable or variable not in str(caught.value)


def test_credentials_in_a_proxy_of_a_run_file_are_refused_and_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(
        RunFileError, match=r"run\.yaml:\d+: spec\.candidate: proxy: credentials in an address"
    ) as caught:
        load_run_file(write(tmp_path, candidate={"url": "http://h", "proxy": "http://me:secret@p:3128"}))
    assert "secret" not in str(caught.value)


def test_paths_stand_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "demo").touch()
    top = "apiVersion: prefillgate.io/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: near}\n"
    (tmp_path / "near.yaml").write_text(top + "spec: {marginPercent: 20}\n")
    file = write(inner, policy="../near.yaml", replaySet="demo", store="/var/x.db")
    monkeypatch.chdir("/")
    run = load_run_file(file)
    assert (run.policy.name, run.replay_set, run.store) == ("near", str(inner / "demo"), Path("/var/x.db"))
    assert load_run_file(write(inner, replaySet="sub/demo")).replay_set == str(inner / "sub" / "demo")


def test_a_policy_may_be_written_out_in_the_file(tmp_path: Path) -> None:
    run = load_run_file(write(tmp_path, policy={"marginPercent": 20, "refusals": 5}))
    assert (run.policy.name, run.policy.policy.margin, run.policy.policy.refusals) == ("run", 0.2, 5)


@pytest.mark.parametrize(
    ("policy", "below", "message"),
    [
        ({"marginPercent": 0}, 1, "spec.policy.marginPercent: 0 (allowed: a whole number of 1 to 99)"),
        ({"refusals": 1}, 0, "spec.policy: one of marginPercent (1 to 99) and marginBasisPoints (1 to 9999) is wanted"),
        (
            {"marginPercent": 10, "budgetPrefills": 5},
            2,
            "spec.policy.budgetPrefills: 5 (allowed: at least 32, the fresh prefills that promotion needs with 0 bad)",
        ),
        (
            "near.yaml",
            0,
            'spec.policy: no file "{folder}/near.yaml" (allowed: quick, standard, strict, a file, '
            "or a policy's spec written out)",
        ),
    ],
)
def test_a_wrong_policy_is_named_by_its_place_in_the_run_file(
    tmp_path: Path, policy: Any, below: int, message: str
) -> None:
    file = write(tmp_path, policy=policy)
    with pytest.raises(PolicyError) as caught:
        load_run_file(file)
    number = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "policy:" in text) + below
    text = str(caught.value).replace(str(tmp_path), "{folder}")
    assert text == f"{{folder}}/run.yaml:{number}: {message}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"candidate": ...},
            "spec.candidate: missing (allowed: url, model, apiKeyVariable, headerFile, caFile, clientCert, clientKey, "
            "tlsServerName, insecure, proxy, engine)",
        ),
        *(
            (
                {"candidate": {"url": url}},
                f"spec.candidate.url: {said} (allowed: the base URL of a server, up to 2048 characters, or a list of 1 "
                "to 64 of them)",
            )
            for url, said in (
                (5, "5"),
                ([], "[]"),
                ("", '""'),
                (["http://a:1", 5], '["http://a:1", 5]'),
                ({"a": 1}, '{"a": 1}'),
                ("h" * 2049, '"' + "h" * 78 + "…"),
                (["h"] * 65, '["h", ' + '"h", ' * 14 + '"h"…'),
            )
        ),
        ({"isolation": "shared"}, 'spec.isolation: "shared" (allowed: Exclusive, Shared)'),
        (
            {"gateway": {"url": "ftp://gate"}},
            'spec.gateway: url "ftp://gate" is no base URL (allowed: http://HOST:PORT or https://HOST[:PORT], with a '
            "path if need be)",
        ),
        (
            {"gateway": {"url": ["http://a:1", "http://b:1"]}},
            "spec.gateway: url is a list (allowed: the base URL of one gateway)",
        ),
        ({"budgetPrefills": 0}, "spec.budgetPrefills: 0 (allowed: a whole number of 1 to 1000000)"),
        ({"baselineMaxAgeDays": 0}, "spec.baselineMaxAgeDays: 0 (allowed: a whole number of 1 to 3650)"),
        ({"replaySet": ...}, "spec.replaySet: missing (allowed: text of 1 to 4096 characters)"),
        ({"replaySet": ""}, 'spec.replaySet: "" (allowed: text of 1 to 4096 characters)'),
        ({"seed": -1}, "spec.seed: -1 (allowed: a whole number of 0 to 9007199254740991)"),
        ({"seed": 1.5}, "spec.seed: 1.5 (allowed: a whole number of 0 to 9007199254740991)"),
        (
            {"declaredDifferences": [{"area": "Kv", "name": "x"}]},
            'spec.declaredDifferences[0].area: "Kv" (allowed: LayerPlacement, DraftHead, KvCache, '
            "Weights, Build, Other)",
        ),
        (
            {"candidate": {"url": "http://127.0.0.1:8081"}},
            'spec: baseline and candidate are the same server and model ("http://127.0.0.1:8081")',
        ),
        (
            {"baseline": {"url": "127.0.0.1:8081"}},
            'spec.baseline: url "127.0.0.1:8081" is no base URL (allowed: http://HOST:PORT or https://HOST[:PORT], '
            "with a path if need be)",
        ),
    ],
)
def test_a_wrong_field_of_a_run_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RunFileError) as caught:
        load_run_file(write(tmp_path, **changes))
    assert str(caught.value).split(": ", 1)[1] == message


def test_one_server_with_two_models_is_two_arms(tmp_path: Path) -> None:
    run = load_run_file(write(tmp_path, candidate={"url": "http://127.0.0.1:8081", "model": "other"}))
    assert (run.baseline.url, run.candidate.url, run.candidate.model) == (run.candidate.url, run.baseline.url, "other")


def test_a_file_that_is_no_run_says_so(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("kind: Runn\nspec: 3\n")
    with pytest.raises(RunFileError) as caught:
        load_run_file(file)
    assert [problem.field for problem in caught.value.problems] == ["apiVersion", "kind", "spec"]
    file.write_text("kind: [")
    with pytest.raises(RunFileError, match=r"run\.yaml:1:8: not YAML"):
        load_run_file(file)


@pytest.mark.parametrize(
    "url",
    ["http://h", "http://h:1", "https://h:65535/v", "http://[::1]:8080", "http://127.0.0.1:8080/a/b"],
)
def test_a_base_url_is_taken(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("h:8080", "is no base URL"),
        ("ftp://h", "is no base URL"),
        ("http://", "is no base URL"),
        ("http://h:0", "is no base URL"),
        ("http://h/v1/completions", "is one endpoint and not the address before /v1"),
        ("http://h:65536", "Port out of range"),
        ("http://h:x", "Port could not be cast"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://h?a=1", "has a query, a fragment or a space"),
        ("http://h#a", "has a query, a fragment or a space"),
        ("http://h/a b", "has a query, a fragment or a space"),
        ("http://h/\u202e", "is no base URL"),
    ],
)
def test_what_is_no_base_url_is_refused_with_what_is_allowed(url: str, part: str) -> None:
    with pytest.raises(ValueError, match=part) as caught:
        check_url(url)
    assert str(caught.value).endswith("(allowed: http://HOST:PORT or https://HOST[:PORT], with a path if need be)")


@pytest.mark.parametrize(
    "url", ["http://user:secret@h", "http://user:secret@h:x", "user:secret@h:80", "ftp://secret@h", "http://:secret@"]
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"holds credentials; name a variable that holds the key \(apiKeyV") as caught:
        check_url(url)
    assert "secret" not in str(caught.value)


def test_an_at_sign_in_a_path_is_no_credentials_and_a_query_is_not_repeated() -> None:
    check_url("http://h/models/a@b")
    with pytest.raises(ValueError, match='url "http://h" has a query') as caught:
        check_url("http://h?key=secret")
    assert "secret" not in str(caught.value)
