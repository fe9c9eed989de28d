"""What the server tells of itself: /props, /v1/models, /slots, /metrics."""

from __future__ import annotations

import time
from typing import Any

from prefillgate.simulate.epoch import Epoch
from prefillgate.simulate.sampling import DEFAULTS
from prefillgate.simulate.settings import Dialect, Settings

_CHAT_TEMPLATE = (
    "{%- for message in messages -%}\n"
    "  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "\n{%- endfor -%}\n{%- if add_generation_prompt -%}\n  {{- '<|im_start|>assistant\\n' -}}\n{%- endif -%}"
)
_CAPS = (
    "supports_object_arguments",
    "supports_parallel_tool_calls",
    "supports_preserve_reasoning",
    "supports_reasoning_effort",
    "supports_tool_calls",
    "supports_tools",
    "supports_typed_content",
)
_COUNTERS = {
    "prompt_tokens_total": "Number of prompt tokens processed, without those from the cache",
    "prompt_tokens_cached_total": "Number of prompt tokens taken from the cache",
    "prompt_seconds_total": "Time spent on prompts",
    "tokens_predicted_total": "Number of tokens generated",
    "tokens_predicted_seconds_total": "Time spent generating",
    "n_decode_total": "Number of decode calls",
    "n_tokens_max": "Longest sequence seen",
    "spec_decode_num_draft_tokens_total": "Speculative: draft tokens generated",
    "spec_decode_num_accepted_tokens_total": "Speculative: draft tokens accepted",
    "spec_decode_num_drafts_total": "Speculative: verification steps",
}
_GAUGES = {
    "prompt_tokens_seconds": "Average prompt throughput in tokens/s",
    "predicted_tokens_seconds": "Average generation throughput in tokens/s",
    "requests_processing": "Number of requests processing",
    "requests_deferred": "Number of requests deferred",
    "n_busy_slots_per_decode": "Average number of busy slots per decode call",
}


def props(settings: Settings, epoch: Epoch) -> dict[str, Any]:
    """The body of /props. As in the real server, speculation is never shown here."""
    return {
        "default_generation_settings": {"params": DEFAULTS, "n_ctx": settings.context_tokens},
        "total_slots": settings.slots,
        "model_alias": settings.model,
        "model_ftype": "Q8_0",
        "model_path": f"/models/{settings.model}",
        "modalities": {"vision": False, "video": False, "audio": False},
        "media_marker": epoch.marker,
        "endpoint_slots": True,
        "endpoint_props": True,
        "endpoint_metrics": True,
        "ui": False,
        "ui_settings": {},
        "chat_template": _CHAT_TEMPLATE,
        "chat_template_caps": dict.fromkeys(_CAPS, False)
        | {"supports_string_content": True, "supports_system_role": True},
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "build_info": settings.build_info,
        "is_sleeping": False,
        "cors_proxy_enabled": False,
    }


def models(settings: Settings) -> dict[str, Any]:
    """The body of /v1/models."""
    names = (settings.model, *settings.other_models)
    entry: dict[str, Any] = {"object": "model", "created": int(time.time())}
    if settings.dialect is Dialect.OPENAI:
        return {"object": "list", "data": [{"id": name, **entry, "owned_by": "organization-owner"} for name in names]}
    meta = {
        "vocab_type": 1,
        "n_vocab": 262_144,
        "n_ctx": settings.context_tokens,
        "n_ctx_train": 131_072,
        "n_embd": 4096,
        "n_params": 7_241_732_096,
        "size": 7_695_857_664,
        "ftype": "Q8_0",
    }
    architecture = {"input_modalities": ["text"], "output_modalities": ["text"]}
    known = {"tags": [], "architecture": architecture, "owned_by": "llamacpp", "meta": meta}
    return {
        "models": [_ollama_entry(name) for name in names],
        "object": "list",
        "data": [{"id": name, **entry, "aliases": [name], **known} for name in names],
    }


def _ollama_entry(model: str) -> dict[str, Any]:
    empty = dict.fromkeys(("modified_at", "size", "digest", "description", "parameters"), "")
    details = {"parent_model": "", "format": "gguf", "family": "", "families": [""]}
    sizes = {"parameter_size": "", "quantization_level": ""}
    kind = {"type": "model", "tags": [""], "capabilities": ["completion"]}
    return {"name": model, "model": model, **empty, **kind, "details": {**details, **sizes}}


def slots(settings: Settings, epoch: Epoch, speculative: bool) -> list[dict[str, Any]]:
    """The body of /slots. Requests of others take the last free slots."""
    others = epoch.others
    listed = []
    for slot in reversed(epoch.cache.slots):
        taken = not slot.busy and others > 0
        others -= taken
        entry: dict[str, Any] = {
            "id": slot.number,
            "n_ctx": settings.context_tokens,
            "speculative": speculative,
            "is_processing": slot.busy or taken,
        }
        if slot.last_used:
            entry |= {
                "id_task": slot.last_used,
                "n_prompt_tokens": slot.prompt_tokens,
                "n_prompt_tokens_processed": 0,
                "n_prompt_tokens_cache": 0,
                "params": DEFAULTS,
                "next_token": [{"has_next_token": slot.busy, "has_new_line": False, "n_remain": -1, "n_decoded": 0}],
            }
        listed.append(entry)
    return listed[::-1]


def metrics(epoch: Epoch, old: bool) -> str:
    """The text of /metrics; an `old` build has no counter of cached tokens."""
    totals = epoch.totals
    values: dict[str, float] = {
        "prompt_tokens_total": totals.processed,
        "prompt_tokens_cached_total": totals.cached,
        "prompt_seconds_total": totals.prefill_seconds,
        "tokens_predicted_total": totals.output,
        "tokens_predicted_seconds_total": totals.decode_seconds,
        "n_decode_total": totals.decodes,
        "n_tokens_max": totals.longest,
        "spec_decode_num_draft_tokens_total": totals.draft_tokens,
        "spec_decode_num_accepted_tokens_total": totals.draft_accepted,
        "spec_decode_num_drafts_total": totals.drafts,
        "prompt_tokens_seconds": _rate(totals.processed, totals.prefill_seconds),
        "predicted_tokens_seconds": _rate(totals.output, totals.decode_seconds),
        "requests_processing": sum(slot.busy for slot in epoch.cache.slots) + epoch.others,
        "requests_deferred": epoch.waiting,
        "n_busy_slots_per_decode": 1 if totals.decodes else 0,
    }
    lines = []
    for kind, rows in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for name, words in rows.items():
            if not (old and name == "prompt_tokens_cached_total"):
                text = str(values[name]) if isinstance(values[name], int) else f"{values[name]:g}"
                lines += [
                    f"# HELP llamacpp:{name} {words}",
                    f"# TYPE llamacpp:{name} {kind}",
                    f"llamacpp:{name} {text}",
                ]
    return "\n".join(lines) + "\n"


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0
