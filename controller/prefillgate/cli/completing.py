"""What a shell may complete a value to: names that come with the package, and files. Nothing is read for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    _Text = click.ParamType[str, Any]
else:  # older clicks know no type arguments
    _Text = click.ParamType


class Named(_Text):
    """A value that is one of some names or, where files are allowed, a path. Any text is let through."""

    name = "text"

    def __init__(self, *names: str, files: bool = True) -> None:
        self.names = names
        self.files = files

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text as it is: the command says what is wrong with it."""
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so, and beside them the files; without such a name the shell lists files itself."""
        names = [name for name in self.names if name.startswith(incomplete)]
        if not self.files:
            return [CompletionItem(name) for name in names]
        if not names:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(word) for word in (*names, *_files(incomplete))]


def _files(start: str) -> list[str]:
    """Files and folders of this folder that begin so; hidden ones only where a dot was typed."""
    try:
        found = sorted(path for path in Path().iterdir() if path.name.startswith(start))
    except OSError:
        return []
    shown = [path for path in found if not path.name.startswith(".") or start.startswith(".")]
    return [f"{path.name}/" if path.is_dir() else path.name for path in shown]


REPLAY_SET = Named("demo", "four", "short")
POLICY = Named("quick", "standard", "strict")
# As in engines/registry.py, in its order; not asked of it, since no key press may wait for an HTTP library.
ENGINE = Named(
    "auto",
    "koboldcpp",
    "ik_llama.cpp",
    "llama.cpp",
    "vllm",
    "sglang",
    "tensorrt-llm",
    "lmdeploy",
    "ollama",
    "tgi",
    "openai-compatible",
    files=False,
)
# As in importers/registry.py, for the same reason; `cells` is prefillgate's own log.
LOG_FORMAT = Named(
    "cells",
    "llama-server-log",
    "vllm-log",
    "inspect",
    "promptfoo",
    "promptfoo-config",
    "guidellm",
    "aiperf",
    "lm-eval",
    "litellm",
    "langfuse",
    "otel",
    "har",
    "sharegpt",
    "csv",
    "openai-batch",
    "openai-jsonl",
    files=False,
)
