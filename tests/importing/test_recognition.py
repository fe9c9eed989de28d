"""No sample of one format is taken for another: each is recognised by its content alone."""

from __future__ import annotations

import gzip
import io
import re

import pytest

from prefillgate.importers.reading import Wanted, format_of
from prefillgate.importers.registry import FORMATS, find_format
from prefillgate.importers.source import ImportProblem, Source
from tests.importing import test_aiperf as aiperf
from tests.importing import test_csv as csv_table
from tests.importing import test_guidellm as guidellm
from tests.importing import test_har as har
from tests.importing import test_inspect as inspect_log
from tests.importing import test_langfuse as langfuse
from tests.importing import test_litellm as litellm
from tests.importing import test_llama_server as llama_server
from tests.importing import test_lm_eval as lm_eval
from tests.importing import test_openai as openai
from tests.importing import test_otel as otel
from tests.importing import test_promptfoo as promptfoo
from tests.importing import test_promptfoo_config as promptfoo_config
from tests.importing import test_sharegpt as sharegpt
from tests.importing import test_vllm as vllm
from tests.support.imports import as_document, as_lines, survives

GENERIC = {"csv", "openai-jsonl"}  # any table, any line with a response in it: asked after the others
PADDING = "a very long text " * 8000

#: Samples by the name of their format: small ones, and long ones whose head ends within their first record.
SAMPLES: tuple[tuple[str, bytes], ...] = (
    ("llama-server-log", (llama_server.LOGS / "default.log").read_bytes()),
    ("llama-server-log", (llama_server.LOGS / "verbose.log").read_bytes()),
    ("openai-jsonl", as_lines(openai.CHAT)),
    ("openai-jsonl", as_lines({"request": openai.ASK, "response": openai.CHAT})),
    ("openai-batch", as_lines({"custom_id": "a", "response": {"status_code": 200, "body": openai.CHAT}})),
    ("promptfoo", promptfoo.SAMPLE),
    ("promptfoo", as_lines(promptfoo.row())),
    ("promptfoo", as_document(promptfoo.summary(promptfoo.row(vars={"text": PADDING})))),
    ("inspect", inspect_log.SAMPLE),
    ("inspect", inspect_log.archive(inspect_log.sample(inspect_log.event()))),
    ("inspect", inspect_log.zstandard_archive("{}")),
    ("guidellm", guidellm.SAMPLE),
    ("guidellm", guidellm.SAMPLE_YAML),
    ("guidellm", guidellm.CSV),
    ("guidellm", as_document(guidellm.report(guidellm.old_request(prompt=PADDING)))),
    ("aiperf", aiperf.SAMPLE),
    ("aiperf", aiperf.INPUTS),
    ("aiperf", aiperf.OUTPUTS),
    ("aiperf", aiperf.SUMMARY),
    ("aiperf", as_lines(aiperf.raw(aiperf.FIRST, aiperf.LAST))),
    ("promptfoo-config", promptfoo_config.SAMPLE),
    ("promptfoo-config", as_document(promptfoo_config.config())),
    ("langfuse", langfuse.SAMPLE),
    ("langfuse", langfuse.SAMPLE_LINES),
    ("langfuse", langfuse.SAMPLE_CSV),
    ("langfuse", langfuse.as_csv(langfuse.stored(input=PADDING))),
    ("otel", otel.SAMPLE),
    ("otel", otel.SAMPLE_LOGS),
    ("otel", otel.SAMPLE_PLAIN),
    ("vllm-log", (vllm.STATS + vllm.V0).encode()),
    ("vllm-log", vllm.NEW.encode()),
    ("litellm", as_lines(litellm.PAYLOAD)),
    ("litellm", as_document([litellm.SPEND])),
    ("litellm", as_lines({**litellm.PAYLOAD, "messages": [{"role": "user", "content": PADDING}]})),
    ("har", har.archive(har.entry())),
    ("har", har.archive(har.entry(PADDING))),
    ("sharegpt", as_lines(sharegpt.TALK)),
    ("sharegpt", as_document([sharegpt.TALK])),
    ("csv", csv_table.ROWS.encode()),
    ("lm-eval", lm_eval.SAMPLE),
    ("lm-eval", as_lines(lm_eval.line(**lm_eval.CHOICES))),
)


def source(data: bytes) -> Source:
    return Source(io.BytesIO(data), "a-name-that-tells-nothing")


@pytest.mark.parametrize(("name", "data"), SAMPLES)
def test_a_sample_is_recognised_as_what_it_is(name: str, data: bytes) -> None:
    assert find_format(source(data)).name == name


@pytest.mark.parametrize("taken_out", [each.name for each in FORMATS])
def test_without_its_format_a_sample_is_not_taken_for_another(taken_out: str) -> None:
    for name, data in SAMPLES:
        if name == taken_out:
            others = {
                each.name for each in FORMATS if each.name != name and each.recognise(source(data).head())
            } - GENERIC
            assert others == set(), f"a sample of {name}"


def test_every_format_has_a_sample() -> None:
    assert {name for name, _ in SAMPLES} == {each.name for each in FORMATS}


def test_the_formats_that_take_almost_anything_are_asked_after_those_of_the_tools() -> None:
    names = [each.name for each in FORMATS]
    tools = {"promptfoo", "inspect", "guidellm", "aiperf", "lm-eval", "langfuse", "otel"}
    assert max(names.index(each) for each in tools) < min(names.index(each) for each in GENERIC)


@pytest.mark.parametrize(("name", "data"), SAMPLES)
def test_no_value_that_is_nested_without_end_is_a_traceback(name: str, data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for place in list(re.finditer(r'(?<=: )"[^"\n]*"', text))[:12]:
        survives((text[: place.start()] + "[" * 900 + "]" * 900 + text[place.end() :]).encode(), name)


@pytest.mark.parametrize("data", [b"{}", b"[]", b"hello", b"\x00\xff\xfe", b'{"a": 1}\n'])
def test_anything_else_is_refused_with_the_formats_there_are(data: bytes) -> None:
    with pytest.raises(ImportProblem, match="nothing recognises its content"):
        find_format(source(data))


@pytest.mark.parametrize("data", [b"", b"\n\n"])
def test_what_holds_nothing_is_said_to(data: bytes) -> None:
    with pytest.raises(ImportProblem, match="no cell in it"):
        find_format(source(data))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x28\xb5\x2f\xfd\x00", "compressed by zstd (allowed: plain text: `zstdcat FILE | prefillgate ... -`)"),
        (b"\xfd7zXZ\x00\x00", "compressed by xz (allowed: plain text: `xzcat FILE | prefillgate ... -`)"),
        (b"BZh91AY", "compressed by bzip2 (allowed: plain text: `bzcat FILE | prefillgate ... -`)"),
        (b"\x04\x22\x4d\x18", "compressed by lz4 (allowed: plain text: `lz4cat FILE | prefillgate ... -`)"),
        (b"PK\x03\x04", "compressed by zip (allowed: plain text: `unzip -p FILE | prefillgate ... -`)"),
        (gzip.compress(gzip.compress(b"{}")), "compressed by gzip (allowed: plain text: `zcat FILE | prefillgate"),
        (b"SQLite format 3\x00", "a database, as evidence stores are, and no log (allowed: `prefillgate cells STORE"),
        (b"caf\xe9 au lait", "nothing recognises its content, and it is no UTF-8 text (byte 4)"),
        ("an é cut in its middle".encode()[:4], "nothing recognises its content (allowed"),
    ],
)
def test_an_input_that_nothing_recognises_is_told_for_what_it_is(data: bytes, words: str) -> None:
    with pytest.raises(ImportProblem) as refused:
        find_format(source(data))
    assert words in str(refused.value)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le"])
def test_utf_16_is_told_and_not_taken_for_a_damaged_log(encoding: str) -> None:
    data = '{"arm": "candidate", "bad": true}\n'.encode(encoding)
    for refused_by in (find_format, lambda given: format_of(given, Wanted())):
        with pytest.raises(ImportProblem, match=r"text in UTF-16 \(allowed: UTF-8: `iconv -f UTF-16 -t UTF-8 FILE"):
            refused_by(source(data))
