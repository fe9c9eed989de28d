"""Logs that the programs themselves wrote, and which formats have none and why.

The files of logs/real were written in November 2026 against `prefillgate simulate` with a context of 600 tokens.
Folders and the figures of guidellm over the whole run were cut out; nothing else was changed.
"""

from __future__ import annotations

import io
import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from prefillgate.cli.import_command import command as import_command
from prefillgate.core.cells import Cell, Status
from prefillgate.importers.base import Imported
from prefillgate.importers.joining import asks_only
from prefillgate.importers.reading import Account, Wanted, read_logs
from prefillgate.importers.registry import find_format, format_names
from prefillgate.importers.source import ImportProblem, Source

LOGS = Path(__file__).parent / "logs" / "real"

#: By format: the program and its version that wrote the samples, or what the tests' samples were built from instead.
ORIGIN = {
    "llama-server-log": "llama-server of xllamacpp, logs/llama_server; tests/watching runs it",
    "vllm-log": "schema: vLLM needs a GPU or hours of building; lines as its source prints them",
    "inspect": "inspect_ai 0.3.285, provider openai-api, as .json and .eval",
    "promptfoo": "promptfoo 0.121.20, providers echo, openai:chat and openai:completion",
    "promptfoo-config": "read by promptfoo 0.121.20",
    "guidellm": "guidellm 0.8.1",
    "aiperf": "aiperf 0.13.0, --export-level raw",
    "lm-eval": "lm_eval 0.4.13, models local-completions and dummy",
    "litellm": "litellm 1.110.2, standard logging payloads of a custom logger; spend logs from the schema",
    "langfuse": "schema: exports come from its server alone, which is a cluster of databases",
    "otel": "opentelemetry-instrumentation-openai-v2 2.3b0, SDK 1.45.2; today's conventions from the schema",
    "har": "schema: HAR, as browsers and proxies write it",
    "sharegpt": "schema: a format of data sets, without a program",
    "csv": "schema: columns of anybody",
    "openai-batch": "schema: written by OpenAI's service alone",
    "openai-jsonl": "schema: as OpenAI documents it; replies of real servers are read in tests/engine",
}


@dataclass(frozen=True)
class Real:
    """One log: its files in the order given, and what must be read of it, request by request."""

    files: tuple[str, ...]
    prompts: str  # equal letters, equal prompts; - is unknown
    bad: str  # b bad, g good, - not told, i no request that was accepted
    counters: tuple[tuple[int | None, int | None], ...] = ()  # prompt and cached tokens, as far as the log tells any
    outputs: bool = True
    absent: tuple[str, ...] = ()
    unread: int = 0


PROMPTFOO: dict[str, Any] = {
    "prompts": "aabaabccdccdeefeef",
    "bad": "ggggggbbbbbb------",
    "counters": (
        *((None, None), (28, None), (10, None), (None, None), (28, 27), (10, 9)),
        *((None, None), (27, 8), (8, 2), (None, None), (27, 26), (8, 7)),
        *((None, None), (26, 8), (7, 2), (None, None), (26, 25), (7, 6)),
    ),
    "absent": ("start times",),
}
AIPERF: dict[str, Any] = {"bad": "----", "counters": ((26, 0), (33, 8), (26, 25), (33, 32))}
NO_COUNTERS = ("prompt length", "cached tokens", "start times")
OTEL: dict[str, Any] = {"bad": "---", "counters": ((39, None), (39, None), (24, None))}

REAL = (
    Real(("inspect.json",), "abab", "bgbg", ((41, 21), (45, 0), (41, 21), (45, 21))),
    Real(("inspect.eval",), "abab", "gbgb", ((45, 0), (41, 21), (45, 21), (41, 21))),
    Real(("promptfoo.jsonl",), **PROMPTFOO),
    Real(("promptfoo.yaml",), **PROMPTFOO),
    Real(("promptfoo-cached.jsonl",), "abc", "gb-", unread=6, absent=NO_COUNTERS),
    Real(("aiperf-profile_export.jsonl",), "abab", outputs=False, absent=("prompts", "outputs"), **AIPERF),
    Real(("aiperf-inputs.json", "aiperf-profile_export.jsonl"), "abab", outputs=False, absent=("outputs",), **AIPERF),
    Real(("aiperf-profile_export_raw.jsonl",), "abab", **AIPERF),
    Real(("guidellm.json",), "aba", "---", ((7, 0), (14, 2), (7, 6))),
    Real(("litellm.jsonl",), "aabc", "---i", ((28, 0), (28, 27), (24, 7), (None, None))),
    Real(("lm_eval.jsonl",), "aabb", "ggbb", absent=(*NO_COUNTERS, "the model")),
    Real(("lm_eval-choice.jsonl",), "abcd", "----", outputs=False, absent=(*NO_COUNTERS, "the model")),
    Real(("otel.otlp.jsonl",), "aab", absent=("cached tokens",), **OTEL),
    Real(("otel-spans.console",), "abc", outputs=False, absent=("prompts", "cached tokens", "outputs"), **OTEL),
    Real(("otel-logs.console", "otel-spans.console"), "aab", absent=("cached tokens",), **OTEL),
    Real(("otel-spans.console", "otel-logs.console"), "aab", absent=("cached tokens",), **OTEL),
)


def read(files: tuple[str, ...]) -> tuple[list[Imported], Account]:
    account = Account()
    with ExitStack() as stack:
        sources = [Source(stack.enter_context((LOGS / name).open("rb")), name) for name in files]
        sources.sort(key=lambda each: not asks_only(each.head()))
        found = [each for source in sources for each in read_logs(source, None, Wanted(), account)]
    return found, account


WHOLE = {"model": "m", "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}


def letters(names: list[str]) -> str:
    seen: dict[str, str] = {}
    return "".join(seen.setdefault(name, chr(ord("a") + len(seen))) for name in names)


def outcome(cell: Cell) -> str:
    if cell.status is Status.INVALID:
        return "i"
    return {None: "-", True: "b", False: "g"}[cell.bad]


@pytest.mark.parametrize("real", REAL, ids=lambda each: "+".join(each.files))
def test_what_a_program_wrote_itself_is_read(real: Real) -> None:
    found, account = read(real.files)
    cells = [each.line.cell for each in found]
    assert letters([cell.case_id for cell in cells]) == real.prompts
    assert "".join(map(outcome, cells)) == real.bad
    counters = tuple((cell.prompt_tokens, cell.cached_tokens) for cell in cells)
    assert counters == (real.counters or ((None, None),) * len(cells))
    assert any(each.texts is not None for each in found) is real.outputs
    assert tuple(account.absent) == real.absent
    assert account.unread_total == real.unread


def test_a_raw_record_tells_the_first_token_that_the_record_of_its_metrics_tells() -> None:
    told = {}
    for name in ("aiperf-profile_export.jsonl", "aiperf-profile_export_raw.jsonl"):
        found, _ = read((name,))
        told[name] = [each.time_to_first_token_ms for each in found]
    by_metrics, by_raw = told.values()
    assert by_metrics[0] == 43.036317
    assert by_raw == pytest.approx(by_metrics, abs=1e-9)
    lines = [json.loads(line) for line in (LOGS / "aiperf-profile_export_raw.jsonl").read_text().splitlines()]
    for change in (
        {"start_perf_ns": None},
        {"start_perf_ns": 2**62},
        {"start_perf_ns": "x"},
        {"start_perf_ns": -(2**62)},
    ):
        source = Source(io.BytesIO(json.dumps({**lines[0], **change}).encode()), "log")
        (record,) = [each for each in find_format(source).read(source) if isinstance(each, Imported)]
        assert record.time_to_first_token_ms is None, change
    whole = {**lines[0], "responses": [{"perf_ns": lines[0]["start_perf_ns"] + 5, "text": json.dumps(WHOLE)}]}
    source = Source(io.BytesIO(json.dumps(whole).encode()), "log")
    (record,) = [each for each in find_format(source).read(source) if isinstance(each, Imported)]
    assert record.time_to_first_token_ms is None, "a whole body has no first token of its own"


def test_what_holds_no_request_is_refused_with_the_file_that_does() -> None:
    for name, instead in (
        ("promptfoo.csv", "promptfoo eval -o results.json"),
        ("aiperf-profile_export_aiperf.csv", "profile_export.jsonl of the same folder"),
    ):
        with pytest.raises(ImportProblem, match=instead):
            read((name,))


@pytest.mark.parametrize(
    ("name", "cases"), [("promptfoo-config.yaml", 6), ("aiperf-inputs.json", 2), ("otel-logs.console", 2)]
)
def test_what_holds_prompts_alone_becomes_cases(name: str, cases: int, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = CliRunner().invoke(import_command, [str(LOGS / name), "-o", str(out)], standalone_mode=False)
    assert (done.return_value, done.exception) == (0, None)
    assert len(out.read_bytes().splitlines()) == cases


def test_every_format_says_where_its_samples_come_from() -> None:
    assert set(ORIGIN) == set(format_names())
    read_here = {name for real in REAL for name in real.files}
    kept = {path.name for path in LOGS.iterdir()}
    alone = {"promptfoo.csv", "aiperf-profile_export_aiperf.csv", "promptfoo-config.yaml"}
    assert kept == read_here | alone
    formats = {find_format(Source(io.BytesIO((LOGS / name).read_bytes()), name)).name for name in read_here | alone}
    assert formats == {
        name for name, told in ORIGIN.items() if not told.startswith("schema") and name != "llama-server-log"
    }
