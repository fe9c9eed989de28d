"""`prefillgate doctor` on each family that cannot run here: what it can prove, and the flag that gives the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prefillgate.cli.main import main
from tests.support.small_engines import (
    IK_LLAMA,
    KOBOLD,
    LMDEPLOY,
    OLD_OLLAMA,
    OLLAMA,
    TGI,
    TRTLLM,
    Speaks,
    small_engine,
)

QUIET_TRTLLM = replace(TRTLLM, metrics=None)
QUIET_LMDEPLOY = replace(LMDEPLOY, metrics=None)
QUIET_IK = replace(IK_LLAMA, metrics=None)


@pytest.mark.parametrize(
    ("speaks", "code", "ok", "flags"),
    [
        (OLLAMA, 0, {"fresh prefill", "build", "weights"}, {"decode times": "serve the model by llama-server"}),
        (
            OLD_OLLAMA,
            10,
            {"build", "weights"},
            {"fresh prefill": "0.34 or later", "cached-token counter": "0.34 or later"},
        ),
        (TRTLLM, 0, {"fresh prefill", "second witness", "build"}, {"idleness": "enable_iter_perf_stats"}),
        (QUIET_TRTLLM, 0, {"fresh prefill"}, {"second witness": "return_perf_metrics: true"}),
        (LMDEPLOY, 0, {"fresh prefill", "second witness", "idleness", "restarts"}, {}),
        (QUIET_LMDEPLOY, 0, {"fresh prefill"}, {"second witness": "--enable-metrics", "restarts": "--enable-metrics"}),
        (TGI, 10, {"idleness", "build", "weights", "context per slot"}, {"fresh prefill": "vLLM, SGLang, llama.cpp"}),
        (KOBOLD, 10, {"idleness", "build", "context per slot"}, {"cached-token counter": "by llama-server"}),
        (IK_LLAMA, 0, {"fresh prefill", "second witness", "restarts", "decode times"}, {}),
        (QUIET_IK, 0, {"fresh prefill", "idleness"}, {"second witness": "--metrics", "restarts": "--metrics"}),
    ],
    ids=lambda value: value.name if isinstance(value, Speaks) else "",
)
def test_each_line_is_what_the_family_showed_with_the_flag_that_helps_there(
    speaks: Speaks,
    code: int,
    ok: set[str],
    flags: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with small_engine(speaks) as server:
        assert main(["doctor", "--server", server.url, "--json"]) == code
    document = json.loads(capsys.readouterr().out)["server"]
    lines = {line["name"]: line for line in document["capabilities"]}
    assert document["engine"] == speaks.name
    assert {name for name in ok if lines[name]["standing"] != "ok"} == set()
    assert {name: text for name, text in flags.items() if text not in (lines[name]["flag"] or "")} == {}
