"""llama-server style arguments as settings of xllamacpp's `CommonParams`.

Only the arguments a serving profile of the demo and the tests needs are here. Everything else is refused by name:
an argument that is silently ignored would make two unlike profiles look alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


class ArgumentError(ValueError):
    """An argument is unknown, lacks its value, or has one that is not allowed."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One attribute of `CommonParams` (a dotted path below it) and its value.

    `enum` names the xllamacpp enumeration the value is a member of, or is None for plain values.
    """

    attribute: str
    value: Any
    enum: str | None = None


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its spellings, the attributes it sets, and how its text becomes a value.

    `parse` None means a switch without value, which sets `constant`.
    """

    names: tuple[str, ...]
    attributes: tuple[str, ...]
    parse: Callable[[str], Any] | None = None
    constant: Any = None
    enum: str | None = None


def _integer(low: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < low:
            raise ValueError(f"a whole number of at least {low}")
        return value

    return parse


def _number(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e12:
        raise ValueError("a number above 0")
    return value


def _one_of(choices: dict[str, str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return choices[text.lower()]

    return parse


def _text(text: str) -> str:
    if not text:
        raise ValueError("a text that is not empty")
    return text


def _list(text: str) -> list[str]:
    return [_text(text)]


_KV = {name: f"GGML_TYPE_{name.upper()}" for name in ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")}
_FLASH = {
    "on": "LLAMA_FLASH_ATTN_TYPE_ENABLED",
    "off": "LLAMA_FLASH_ATTN_TYPE_DISABLED",
    "auto": "LLAMA_FLASH_ATTN_TYPE_AUTO",
}
_SPECULATION = {
    "none": "COMMON_SPECULATIVE_TYPE_NONE",
    "draft-simple": "COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE",
    "ngram-simple": "COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE",
    "ngram-mod": "COMMON_SPECULATIVE_TYPE_NGRAM_MOD",
    "ngram-cache": "COMMON_SPECULATIVE_TYPE_NGRAM_CACHE",
}

ARGUMENTS: tuple[Argument, ...] = (
    Argument(("--host",), ("hostnames",), _list),
    Argument(("--port",), ("port",), _integer(0)),
    Argument(("--api-key",), ("api_keys",), _list),
    Argument(("--api-prefix",), ("api_prefix",), _text),
    Argument(("-m", "--model"), ("model.path",), _text),
    Argument(("-a", "--alias"), ("model_alias",), lambda text: {_text(text)}),
    Argument(("-t", "--threads"), ("cpuparams.n_threads", "cpuparams_batch.n_threads"), _integer(1)),
    Argument(("-c", "--ctx-size"), ("n_ctx",), _integer(0)),
    Argument(("-b", "--batch-size"), ("n_batch",), _integer(1)),
    Argument(("-ub", "--ubatch-size"), ("n_ubatch",), _integer(1)),
    Argument(("-np", "--parallel"), ("n_parallel",), _integer(1)),
    Argument(("-ngl", "--n-gpu-layers"), ("n_gpu_layers",), _integer(-1)),
    Argument(("-ctk", "--cache-type-k"), ("cache_type_k",), _one_of(_KV), enum="ggml_type"),
    Argument(("-ctv", "--cache-type-v"), ("cache_type_v",), _one_of(_KV), enum="ggml_type"),
    Argument(("-fa", "--flash-attn"), ("flash_attn_type",), _one_of(_FLASH), enum="llama_flash_attn_type"),
    Argument(("-cram", "--cache-ram"), ("cache_ram_mib",), _integer(-1)),
    Argument(("--cache-reuse",), ("n_cache_reuse",), _integer(0)),
    Argument(("--no-cache-prompt",), ("cache_prompt",), constant=False),
    Argument(("--swa-full",), ("swa_full",), constant=True),
    Argument(("-kvu", "--kv-unified"), ("kv_unified",), constant=True),
    Argument(("--rope-freq-base",), ("rope_freq_base",), _number),
    Argument(("--rope-freq-scale",), ("rope_freq_scale",), _number),
    Argument(("-md", "--model-draft"), ("speculative.draft.mparams.path",), _text),
    Argument(("--spec-type",), ("speculative.types",), _one_of(_SPECULATION), enum="common_speculative_type"),
    Argument(("--slot-save-path",), ("slot_save_path",), _text),
    Argument(("--metrics",), ("endpoint_metrics",), constant=True),
    Argument(("--no-metrics",), ("endpoint_metrics",), constant=False),
    Argument(("--slots",), ("endpoint_slots",), constant=True),
    Argument(("--no-slots",), ("endpoint_slots",), constant=False),
    Argument(("--no-warmup",), ("warmup",), constant=False),
    Argument(("--sse-ping-interval",), ("sse_ping_interval",), _integer(1)),
    Argument(("-lv", "--verbosity"), ("verbosity",), _integer(0)),
)

_BY_NAME = {name: argument for argument in ARGUMENTS for name in argument.names}


def parse_arguments(arguments: Sequence[str]) -> tuple[Setting, ...]:
    """Read llama-server style arguments, `--name value` or `--name=value`, in their order; later ones win.

    Raises `ArgumentError` naming the argument, its value and what is allowed.
    """
    settings: list[Setting] = []
    rest = list(arguments)
    while rest:
        name, equals, inline = rest.pop(0).partition("=")
        argument = _BY_NAME.get(name)
        if argument is None:
            raise ArgumentError(f"unknown argument {name!r}; allowed: {', '.join(_BY_NAME)}")
        if argument.parse is None:
            if equals:
                raise ArgumentError(f"{name} is a switch and takes no value, got {inline!r}")
            value = argument.constant
        else:
            if not equals and not rest:
                raise ArgumentError(f"{name} needs a value")
            value = _parsed(argument, name, inline if equals else rest.pop(0))
        settings += [Setting(attribute, value, argument.enum) for attribute in argument.attributes]
    return tuple(settings)


def _parsed(argument: Argument, name: str, text: str) -> Any:
    assert argument.parse is not None
    try:
        return argument.parse(text)
    except ValueError as error:
        allowed = str(error)
        if allowed.startswith(("invalid literal", "could not convert")):
            allowed = "a number"
        raise ArgumentError(f"{name}: {text!r} is not allowed; give {allowed}") from None


def apply_settings(params: Any, settings: Sequence[Setting], library: Any) -> None:
    """Set each setting on `params` (a `CommonParams`). `library` is the xllamacpp module, for its enumerations."""
    for setting in settings:
        value = setting.value
        if setting.enum is not None:
            value = getattr(getattr(library, setting.enum), value)
        *path, last = setting.attribute.split(".")
        if setting.attribute == "speculative.types":
            value = [value]
        owner = params
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, value)
