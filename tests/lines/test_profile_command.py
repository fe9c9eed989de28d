"""`prefillgate profile`: manifests, lists of arguments and command lines, alone and beside another one."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefillgate.cli import main as cli
from prefillgate.cli.profile import command
from tests.support.manifests import LLAMA_IMAGE, VLLM_IMAGE

PLANTED = "planted-Qx7Zt9Lk2"
MANIFEST = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: cfg}}
data:
  vllm.yaml: |
    model: org/m
    api-key: {PLANTED}
---
apiVersion: v1
kind: Secret
metadata: {{name: hf}}
stringData: {{token: {PLANTED}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: line}}
spec:
  template:
    spec:
      containers:
      - name: engine
        image: {VLLM_IMAGE}
        args: [--config, /etc/v/vllm.yaml, -tp, "2", --hf-token, {PLANTED}]
        envFrom: [{{secretRef: {{name: hf}}}}]
        volumeMounts: [{{name: c, mountPath: /etc/v}}]
      volumes: [{{name: c, configMap: {{name: cfg}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: line}}
spec: {{ports: []}}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PROFILE_KEY", "k" * 32)

    def put(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return put


def run(*args: str, given: str | None = None) -> Result:
    return CliRunner().invoke(command, list(args), input=given, standalone_mode=False)


def asked(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = cli.main(["profile", *args])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_manifest_is_printed_by_area_and_holds_no_credential(write: Any) -> None:
    found = run(write("line.yaml", MANIFEST))
    assert found.return_value == 0
    lines = found.stdout.splitlines()
    assert (
        lines[0].startswith("Deployment/line: vllm, sha256:")
        and len(lines[0]) == len("Deployment/line: vllm, sha256:") + 64
    )
    assert lines[1:] == [
        "  pod: container engine (its image or command is a known engine's)",
        "  layer placement  tensor parallel size 2",
        "  weights          weights org/m",
        f"  build            image {VLLM_IMAGE}",
        *lines[5:],
    ]
    assert [re.sub(r"[0-9a-f]{10}", "#", line) for line in lines[5:]] == [
        "  other            API key [sealed-#]",
        "                   Hugging Face token [sealed-#]",
        "                   config file /etc/v/vllm.yaml",
        "                   token Secret hf key token",
    ]
    assert PLANTED not in found.output


def test_two_manifests_are_compared_in_words(write: Any) -> None:
    one = write("one.yaml", MANIFEST)
    other = write("other.yaml", MANIFEST.replace('-tp, "2"', '-tp, "4"').replace("org/m", "org/n"))
    found = run(one, "--other", other)
    assert found.stdout.splitlines()[-1] == "differences: tensor parallel size 2 -> 4; weights org/m -> org/n"
    assert run(one, "--other", one).stdout.splitlines()[-1] == "differences: none"
    told = json.loads(run(one, "--other", other, "--json").stdout)
    assert told["words"] == "tensor parallel size 2 -> 4; weights org/m -> org/n"
    assert told["differences"] == [
        {"area": "layer placement", "name": "tp_size", "baseline": "2", "candidate": "4"},
        {"area": "weights", "name": "weights", "baseline": "org/m", "candidate": "org/n"},
    ]
    assert [set(each) for each in told["profiles"]] == [
        {"name", "engine", "digest", "writtenDigest", "resolved", "containers", "settings", "findings", "refused"}
    ] * 2
    settings = told["profiles"][0]["settings"]
    assert {key for each in settings for key in each} == {
        *("area", "name", "words", "value", "origin", "digested", "written"),
    }
    assert set(told["profiles"][0]["containers"][0]) == {
        *("role", "name", "why", "engine", "digest", "writtenDigest", "resolved"),
    }


@pytest.mark.parametrize(
    ("text", "options", "line"),
    [
        ("llama-server -m a.gguf \\\n  -ts 3,1\n", [], "  layer placement  tensor split 3,1"),
        ("#!/bin/sh\nTS=3,1\nexec llama-server -ts $TS\n", [], "  layer placement  tensor split 3,1"),
        ("-ts 3,1 -m a.gguf", ["--image", LLAMA_IMAGE], "  layer placement  tensor split 3,1"),
        ("-ts 3,1 -m a.gguf", ["--engine", "llama.cpp"], "  layer placement  tensor split 3,1"),
        ("-ts 3,1", [], "  other            -ts 3,1"),
        ('["-ts", "3,1"]', ["--engine", "llama.cpp"], "  layer placement  tensor split 3,1"),
        ("- llama-server\n- -ts\n- 3,1\n", [], "  layer placement  tensor split 3,1"),
        (
            'vllm serve m --speculative-config \'{"method": "ngram"}\'',
            [],
            "  draft head       speculation method ngram",
        ),
        ("vllm serve m --x 'a: b'", [], "  other            x a: b"),
    ],
)
def test_command_lines_and_lists_of_arguments_are_read(write: Any, text: str, options: list[str], line: str) -> None:
    found = run(write("args", text), *options)
    assert found.return_value == 0 and line in found.stdout.splitlines()
    from_standard_input = run("-", *options, given=text)
    assert from_standard_input.stdout.splitlines()[1:] == found.stdout.splitlines()[1:]


TWO = """
{"apiVersion": "v1", "kind": "List", "items": [
 {"kind": "Deployment", "metadata": {"name": "old"}, "spec": {"template": {"spec": {"containers": [
   {"name": "p", "image": "proxy"}, {"name": "e", "image": "own/e", "args": ["--x", "1"]}]}}}},
 {"kind": "StatefulSet", "metadata": {"name": "new"}, "spec": {"template": {"spec": {"containers": [
   {"name": "e", "image": "own/e", "args": ["--x", "2", "--house-word", "planted-Qx7Zt9Lk2"],
    "env": [{"name": "HOUSE", "value": "h"}]}]}}}}]}
"""


def test_several_workloads_are_printed_and_one_is_compared_by_its_name(
    write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write("two.json", TWO)
    assert [line for line in run(file).stdout.splitlines() if "sha256:" in line][1].startswith("StatefulSet/new: ")
    code, _, err = asked(capsys, file, "--other", file)
    assert (
        code == 2
        and "2 workloads, and one is compared (name it with --workload: Deployment/old, StatefulSet/new)" in err
    )
    options = ("--workload", "old", "--other-workload", "StatefulSet/new", "--credential", "house-word")
    found = run(file, "--other", file, *options, "--container", "e", "--ignore", "HOUSE", "--key-env", "PROFILE_KEY")
    sealed = hmac.new(b"k" * 32, PLANTED.encode(), hashlib.sha256).hexdigest()[:10]
    assert found.stdout.splitlines()[-1] == (
        f"differences: house-word absent -> [sealed-{sealed}]; sidecar p proxy -> absent; x 1 -> 2"
    )
    assert "HOUSE" not in found.stdout and PLANTED not in found.output
    assert "HOUSE absent -> h" in run(file, "--other", file, *options, "--container", "e").stdout
    assert PLANTED in run(file, "--workload", "new").stdout, "without --credential nothing tells that it is one"
    code, _, err = asked(capsys, file, "--workload", "none")
    assert code == 2 and "no workload is called so (allowed: one of: Deployment/old, StatefulSet/new)" in err


def test_another_kind_is_read_by_the_path_of_its_template(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        '{"kind": "Own", "metadata": {"name": "o"}, "spec": {"pod": {"containers": [{"name": "e", "args": ["--x"]}]}}}'
    )
    file = write("own.json", text)
    code, _, err = asked(capsys, file)
    assert code == 2 and "no workload with a pod template (allowed: one of: none is there)" in err
    assert "  other            x on" in run(file, "--pod-template-path", "spec.pod").stdout.splitlines()


def test_a_digest_with_a_credential_is_the_same_under_the_same_key_only(write: Any) -> None:
    file = write("line.yaml", MANIFEST)
    digests = [run(file, "--key-env", "PROFILE_KEY").stdout.splitlines()[0] for _ in range(2)]
    assert digests[0] == digests[1] != run(file).stdout.splitlines()[0]
    without = write("plain", "llama-server -c 1")
    assert run(without).stdout == run(without).stdout


def test_synthetic_acceptance_ends_in_10(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = asked(capsys, write("args", "llama-server --spec-synth-len 3 -ngl 9"))
    assert code == 10 and "spec-synth-len 3" in out
    assert "command line: refused: spec-synth-len: drafts are accepted synthetically" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apiVersion: v1\nkind: [", "not YAML (line "),
        ("kind: Deployment\nspec: &a {x: *a}\n", "nested too deep, or with aliases"),
        ("", "nothing in it (allowed: Kubernetes objects in YAML or JSON, or a command line)"),
        ("# said\n", "nothing in it"),
        ("vllm serve 'm", "a quote in it does not end"),
        (
            "kind: Deployment\nspec: {template: {spec: {containers: [{args: [{--api-key: planted-Qx7Zt9Lk2}]}]}}}",
            "args[0]",
        ),
        ("- 1\n", "profile.command[0]: a number stands where text is expected"),
        ("- kind: Deployment\n- x\n", "text stands where fields are expected"),
    ],
)
def test_what_cannot_be_read_is_said_without_showing_it(
    write: Any, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    code, out, err = asked(capsys, write("bad", text))
    assert (code, out) == (2, "") and said in err and PLANTED not in err and len(err.splitlines()) == 1


def test_options_that_cannot_be_are_refused(write: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = write("plain", "llama-server -c 1")
    for args, said in (
        ((str(tmp_path / "none"),), "cannot be read"),
        ((file, "--key-env", "NOT_SET_ANYWHERE"), "--key-env NOT_SET_ANYWHERE: not set, or shorter than 16"),
        (("-", "--other", "-"), "standard input can be read once"),
        ((file, "--other-workload", "x"), "--other-workload goes with --other"),
        ((file, "--container", "x"), "no container is called x"),
    ):
        code, _, err = asked(capsys, *args)
        assert code == 2 and said in err
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    code, _, err = asked(capsys, str(tmp_path / "binary"))
    assert code == 2 and "invalid UTF-8 at byte 0" in err
    (tmp_path / "large").write_bytes(b"x" * (4 * 1024 * 1024 + 1))
    code, _, err = asked(capsys, str(tmp_path / "large"))
    assert code == 2 and "longer than 4194304 bytes" in err


def test_help_names_every_field_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = asked(capsys, "--help")
    assert code == 0
    for field in ("profiles", "writtenDigest", "containers", "settings", "findings", "refused", "words", "differences"):
        assert f'"{field}"' in out
