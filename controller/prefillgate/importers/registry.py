"""Which format a file is in. A new format is its file and one line in `FORMATS`."""

from __future__ import annotations

from prefillgate.api.errors import Problem
from prefillgate.importers.aiperf import AiperfResults
from prefillgate.importers.base import Format
from prefillgate.importers.csv_table import CsvTable
from prefillgate.importers.foreign import refuse_wide, unrecognised
from prefillgate.importers.guidellm import GuidellmReport
from prefillgate.importers.har import Har
from prefillgate.importers.inspect_log import InspectLog
from prefillgate.importers.langfuse import LangfuseExport
from prefillgate.importers.litellm import LiteLlm
from prefillgate.importers.llama_log import LlamaServerLog
from prefillgate.importers.lm_eval import LmEvalSamples
from prefillgate.importers.openai_batch import OpenAIBatch
from prefillgate.importers.openai_jsonl import OpenAIJsonLines
from prefillgate.importers.otel import OpenTelemetry
from prefillgate.importers.promptfoo import PromptfooResults
from prefillgate.importers.promptfoo_config import PromptfooConfig
from prefillgate.importers.sharegpt import ShareGpt
from prefillgate.importers.source import ImportProblem, Source
from prefillgate.importers.vllm_log import VllmLog

# In the order of asking: the narrow ones first.
FORMATS: tuple[Format, ...] = (
    LlamaServerLog(),
    VllmLog(),
    InspectLog(),
    PromptfooResults(),
    PromptfooConfig(),
    GuidellmReport(),
    AiperfResults(),
    LmEvalSamples(),
    LiteLlm(),
    LangfuseExport(),
    OpenTelemetry(),
    Har(),
    ShareGpt(),
    CsvTable(),
    OpenAIBatch(),
    OpenAIJsonLines(),
)


def format_names() -> tuple[str, ...]:
    """What may be asked for by name."""
    return tuple(each.name for each in FORMATS)


def find_format(source: Source, name: str | None = None) -> Format:
    """The format of that name, or the first that recognises the head of `source`.

    Raises `ImportProblem` naming every format that is read.
    """
    if name is not None:
        for each in FORMATS:
            if each.name == name:
                return each
        raise ImportProblem(Problem("", "--format", f"{name!r} is not known", ", ".join(format_names())))
    refuse_wide(source)
    head = source.head()
    for each in FORMATS:
        if each.recognise(head):
            return each
    raise unrecognised(source, ", ".join(each.title for each in FORMATS))
