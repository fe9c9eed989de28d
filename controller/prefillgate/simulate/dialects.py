"""What vLLM and SGLang say otherwise than llama-server: discovery, totals, and what stands beside an answer.

Field and series names are those of the engines' own schemas. `old-counters` makes them those of older versions, in
which a zero of cached tokens is left out as well.
"""

from __future__ import annotations

import time
from typing import Any

from prefillgate.simulate.epoch import Epoch
from prefillgate.simulate.reporting import Report
from prefillgate.simulate.request import GenerationRequest
from prefillgate.simulate.settings import BLOCK_TOKENS, Dialect, Settings

CONTENT_TYPE = "text/plain; version=0.0.4"


def models(settings: Settings) -> dict[str, Any]:
    """The body of /v1/models: the server owns its models."""
    card = {
        "object": "model",
        "created": int(time.time()),
        "owned_by": settings.dialect.value,
        "root": f"/models/{settings.model}",
        "parent": None,
        "max_model_len": settings.context_tokens,
    }
    return {"object": "list", "data": [{"id": name, **card} for name in (settings.model, *settings.other_models)]}


def server_info(settings: Settings, draft: bool) -> dict[str, Any]:
    """The body of SGLang's /server_info: its arguments and its version."""
    return {
        "model_path": f"/models/{settings.model}",
        "served_model_name": settings.model,
        "context_length": settings.context_tokens,
        "kv_cache_dtype": "auto",
        "tp_size": 1,
        "page_size": 1,
        "disable_radix_cache": False,
        "random_seed": settings.seed,
        "speculative_algorithm": "EAGLE" if draft else None,
        "version": settings.build_info,
        "internal_states": [{"avg_spec_accept_length": 1.0}],
    }


def loads(epoch: Epoch) -> list[dict[str, Any]]:
    """The ranks of SGLang's /v1/loads."""
    running = sum(slot.busy for slot in epoch.cache.slots) + epoch.others
    waiting = epoch.waiting
    both = running + waiting  # as /get_load of older builds counts
    return [{"dp_rank": 0, "num_running_reqs": running, "num_waiting_reqs": waiting, "num_reqs": both}]


def metrics(dialect: Dialect, epoch: Epoch, old: bool, draft: bool) -> str:
    """The text of /metrics, with the moment at which the process began."""
    rows = _sglang_rows(epoch) if dialect is Dialect.SGLANG else _vllm_rows(epoch, old, draft)
    lines = [
        "# TYPE process_start_time_seconds gauge",
        f"process_start_time_seconds {epoch.started_microseconds / 1e6}",
    ]
    for kind, name, labels, value in rows:
        lines += [f"# TYPE {name.removesuffix('_total')} {kind}", f"{name}{{{labels}}} {float(value)}"]
    return "\n".join(lines) + "\n"


_Row = tuple[str, str, str, float]


def _vllm_rows(epoch: Epoch, old: bool, draft: bool) -> list[_Row]:
    totals, label = epoch.totals, 'engine="0"'
    told = totals.processed + totals.cached
    prefix = "vllm:gpu_prefix_cache" if old else "vllm:prefix_cache"
    running = sum(slot.busy for slot in epoch.cache.slots) + epoch.others
    config = f'block_size="{BLOCK_TOKENS}",cache_dtype="auto",enable_prefix_caching="True",num_gpu_blocks="27000"'
    rows: list[_Row] = [
        ("gauge", "vllm:num_requests_running", label, running),
        ("gauge", "vllm:num_requests_waiting", label, epoch.waiting),
        ("gauge", "vllm:cache_config_info", config, 1),
        ("counter", "vllm:prompt_tokens_total", label, told),
        ("counter", "vllm:generation_tokens_total", label, totals.output),
        ("counter", f"{prefix}_queries_total", label, told),
        ("counter", f"{prefix}_hits_total", label, totals.cached),
    ]
    if not old:
        rows.append(("counter", "vllm:prompt_tokens_cached_total", label, totals.cached))
        rows.append(("counter", "vllm:external_prefix_cache_hits_total", label, totals.external))
    if draft:
        rows.append(("counter", "vllm:spec_decode_num_drafts_total", label, totals.drafts))
        rows.append(("counter", "vllm:spec_decode_num_draft_tokens_total", label, totals.draft_tokens))
        rows.append(("counter", "vllm:spec_decode_num_accepted_tokens_total", label, totals.draft_accepted))
    return rows


def _sglang_rows(epoch: Epoch) -> list[_Row]:
    totals, label = epoch.totals, 'engine_type="unified"'
    rows: list[_Row] = [
        # As in the real server: brought up to date now and then, so here never.
        ("gauge", "sglang:num_running_reqs", label, 0),
        ("counter", "sglang:prompt_tokens_total", label, totals.processed + totals.cached),
        ("counter", "sglang:generation_tokens_total", label, totals.output),
    ]
    if totals.cached:
        rows.append(("counter", "sglang:cached_tokens_total", f'{label},cache_source="device"', totals.cached))
    return rows


def usage(dialect: Dialect, report: Report, reasoning_tokens: int) -> dict[str, Any]:
    """The `usage` object of either engine."""
    told = report.usage()
    left_out = "cached-absent" in report.lies
    left_out |= not report.cached and ("old-counters" in report.lies or dialect is Dialect.SGLANG)
    told["prompt_tokens_details"] = None if left_out else {"cached_tokens": report.cached}
    if dialect is Dialect.SGLANG:
        return told | {"reasoning_tokens": reasoning_tokens}
    details = {"reasoning_tokens": reasoning_tokens}
    return told | ({"completion_tokens_details": details} if reasoning_tokens else {})


def beside(dialect: Dialect, request: GenerationRequest, report: Report) -> dict[str, Any]:
    """What stands beside an answer: `metrics` of vLLM, `sglext` and `meta_info` of SGLang, as far as asked for."""
    if not report.shows_timings:
        return {}
    return _vllm_beside(report) if dialect is Dialect.VLLM else _sglang_beside(request, report)


def _vllm_beside(report: Report) -> dict[str, Any]:
    figures = report.figures
    told: dict[str, Any] = {
        "time_to_first_token_ms": figures.prefill_ms,
        "generation_time_ms": figures.decode_ms,
        "queue_time_ms": 0.0,
        "mean_itl_ms": figures.decode_ms / (figures.output_tokens - 1) if figures.output_tokens > 1 else None,
        "tokens_per_second": 1e3 * figures.output_tokens / (figures.prefill_ms + figures.decode_ms),
    }
    if "old-counters" not in report.lies:
        told["prefix_cache"] = {
            "num_computed_tokens": report.processed,
            "num_cached_tokens": report.cached,
            "num_external_cached_tokens": 0,
            "prefill_time_ms": figures.prefill_ms,
        }
    if figures.draft_tokens:
        told["speculative_decoding"] = {
            "num_draft_tokens": figures.draft_tokens,
            "num_accepted_draft_tokens": figures.draft_accepted_tokens,
        }
    return {"metrics": told}


def _sglang_beside(request: GenerationRequest, report: Report) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if request.body.get("return_cached_tokens_details") is True and "old-counters" not in report.lies:
        told["sglext"] = {"cached_tokens_details": {"device": report.cached, "host": 0}}
    if request.body.get("return_meta_info") is True and "old-counters" not in report.lies:
        told["meta_info"] = {"num_retractions": int("retracted" in report.lies)}
        if report.figures.draft_tokens:
            told["meta_info"] |= {
                "spec_num_proposed_drafts": report.figures.draft_tokens,
                "spec_num_correct_drafts": report.figures.draft_accepted_tokens,
            }
    return told
