"""Every engine family by a small server of its schema, with what that server tells: the table the checklist runs over.

A family of the registry that has no row here turns `tests/engine/test_every_family.py` red.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from prefillgate.core.cells import ColdProof
from tests.support.small_engines import (
    CHAT,
    COMPLETIONS,
    IK_LLAMA,
    KOBOLD,
    LMDEPLOY,
    OLLAMA,
    TGI,
    TRTLLM,
    Body,
    Speaks,
    Totals,
    counted_usage,
    ik_timings,
    models,
    plain_usage,
    trtllm_metrics,
)


def rows(figures: Mapping[str, tuple[str, float]], labels: str = "") -> str:
    """An exposition: kind and value by name."""
    return "".join(
        f"# TYPE {name.removesuffix('_total')} {kind}\n{name}{labels} {value}\n"
        for name, (kind, value) in figures.items()
    )


def new_llama_metrics(totals: Totals) -> str:
    """As llama-server prints them since August 2026."""
    return rows(
        {
            "llamacpp:prompt_tokens_total": ("counter", totals.prompt - totals.cached),
            "llamacpp:prompt_tokens_cached_total": ("counter", totals.cached),
            "llamacpp:tokens_predicted_total": ("counter", totals.output),
            "llamacpp:spec_decode_num_draft_tokens_total": ("counter", totals.drafted),
            "llamacpp:spec_decode_num_accepted_tokens_total": ("counter", totals.accepted),
            "llamacpp:requests_processing": ("gauge", totals.running),
            "llamacpp:requests_deferred": ("gauge", 0),
        }
    )


LLAMA = Speaks(
    name="llama.cpp",
    routes={
        "/v1/models": models("llamacpp", "gemma"),
        "/props": lambda totals: {
            "default_generation_settings": {"n_ctx": 2048, "params": {"temperature": 0.8}},
            "total_slots": 1,
            "model_path": "/models/gemma.gguf",
            "build_info": "b11549-0c1e57098",
            "media_marker": f"<__media_Life{totals.started}__>",
        },
        "/slots": lambda totals: [
            {"id": 0, "n_ctx": 2048, "is_processing": bool(totals.running), "speculative": True},
        ],
    },
    usage=counted_usage,
    cache_flag="cache_prompt",
    metrics=new_llama_metrics,
    start_header="Process-Start-Time-Unix",
    timings=lambda prompt, cached, output: {**ik_timings(prompt, cached, output), "cache_n": cached},
    reasoning_field="reasoning_content",
)


def vllm_metrics(totals: Totals) -> str:
    """As vLLM 0.33 exports them; those of speculation are there only where a draft runs."""
    drafts: dict[str, tuple[str, float]] = {}
    if totals.drafted:
        drafts = {
            "vllm:spec_decode_num_draft_tokens_total": ("counter", totals.drafted),
            "vllm:spec_decode_num_accepted_tokens_total": ("counter", totals.accepted),
        }
    told: dict[str, tuple[str, float]] = {
        "vllm:num_requests_running": ("gauge", totals.running),
        "vllm:num_requests_waiting": ("gauge", 0),
        "vllm:prompt_tokens_total": ("counter", totals.prompt),
        "vllm:prompt_tokens_cached_total": ("counter", totals.cached),
        "vllm:prefix_cache_queries_total": ("counter", totals.prompt),
        "vllm:prefix_cache_hits_total": ("counter", totals.cached),
        "vllm:generation_tokens_total": ("counter", totals.output),
        "vllm:external_prefix_cache_hits_total": ("counter", 0),
    }
    start = rows({"process_start_time_seconds": ("gauge", 1764480000 + totals.started)})
    config = '# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size="16",cache_dtype="auto"} 1.0\n'
    return start + config + rows({**told, **drafts}, '{engine="0",model_name="llama"}')


def vllm_beside(body: Body, prompt: int, cached: int, output: int) -> Body:
    """`metrics` of --enable-per-request-metrics and --per-request-spec-decode-metrics, where the request asks."""
    if not body.get("include_metrics"):
        return {}
    cache = {"num_cached_tokens": cached, "num_computed_tokens": prompt - cached, "num_external_cached_tokens": 0}
    drafts = {"num_draft_tokens": 12, "num_accepted_draft_tokens": 9}
    return {"metrics": {"generation_time_ms": 30.0 * output, "prefix_cache": cache, "speculative_decoding": drafts}}


def card(owner: str, name: str) -> Body:
    """A /v1/models listing with what vLLM and SGLang tell of a model."""
    (entry,) = models(owner, name)["data"]
    return {"object": "list", "data": [{**entry, "root": f"/w/{name}", "max_model_len": 4096}]}


VLLM = Speaks(
    name="vllm",
    routes={"/v1/models": card("vllm", "llama"), "/version": {"version": "0.33.0"}},
    usage=counted_usage,
    salt_field="cache_salt",
    metrics=vllm_metrics,
    beside=vllm_beside,
    reasoning_field="reasoning",
)


def sglang_metrics(totals: Totals) -> str:
    """As SGLang exports them with --enable-metrics: a total of cached tokens once there were any. The server asked
    itself once before it was ready."""
    told: dict[str, tuple[str, float]] = {
        "sglang:num_running_reqs": ("gauge", 0),
        "sglang:num_queue_reqs": ("gauge", 0),
        "sglang:prompt_tokens_total": ("counter", 6 + totals.prompt),
        "sglang:generation_tokens_total": ("counter", 8 + totals.output),
    }
    if totals.cached:
        told["sglang:cached_tokens_total"] = ("counter", totals.cached)
    return rows({"process_start_time_seconds": ("gauge", 1764480000 + totals.started)}) + rows(told, '{tp_rank="0"}')


def sglang_usage(path: str, prompt: int, cached: int, output: int) -> Body:
    """Of --enable-cache-report, which leaves a zero out."""
    details = {"cached_tokens": cached} if cached else None
    return {**plain_usage(path, prompt, cached, output), "prompt_tokens_details": details, "reasoning_tokens": 0}


def sglang_beside(body: Body, prompt: int, cached: int, output: int) -> Body:
    """What is told only to a request that asks."""
    told: Body = {}
    if body.get("return_cached_tokens_details"):
        told["sglext"] = {"cached_tokens_details": {"device": cached, "host": 0}}
    if body.get("return_meta_info"):
        drafts = {"spec_num_proposed_drafts": 12, "spec_num_correct_drafts": 9}
        told["meta_info"] = {"cached_tokens": cached, "num_retractions": 0, **drafts}
    return told


SGLANG = Speaks(
    name="sglang",
    routes={
        "/v1/models": card("sglang", "qwen"),
        "/server_info": {"version": "0.5.23", "model_path": "/w/qwen", "speculative_algorithm": "EAGLE3"},
        "/model_info": {"model_path": "/w/qwen"},
        "/v1/loads": lambda totals: {
            "version": "0.5.23",
            "loads": [{"dp_rank": 0, "num_running_reqs": totals.running, "num_waiting_reqs": 0}],
        },
    },
    usage=sglang_usage,
    salt_field="cache_salt",
    metrics=sglang_metrics,
    beside=sglang_beside,
    reasoning_field="reasoning_content",
)
ANY = Speaks(name="openai-compatible", routes={"/v1/models": models("somebody", "m")}, usage=counted_usage)


def drafting_trtllm_metrics(totals: Totals) -> str:
    """With the totals of speculation, which are there once something was drafted."""
    drafts = {
        "trtllm_spec_decode_num_draft_tokens_total": ("counter", totals.drafted),
        "trtllm_spec_decode_num_accepted_tokens_total": ("counter", totals.accepted),
    }
    return trtllm_metrics(totals) + (rows(drafts) if totals.drafted else "")


@dataclass(frozen=True)
class Row:
    """A family: its server, and what that server tells. What a row leaves out its family has no word for."""

    speaks: Speaks
    proof: ColdProof | None = ColdProof.NONCE
    totals: bool = False  # the second witness: totals that move by what each reply tells
    epoch: bool = False
    idle: bool = False
    build: bool = True
    speculation: frozenset[str] = field(default_factory=frozenset)  # where drafts are told: settings, reply, totals
    routes: tuple[str, ...] = (CHAT, COMPLETIONS)  # on which the reply tells cached tokens
    elsewhere: Mapping[str, ColdProof] = field(default_factory=dict)  # proofs of routes that do not take `proof`
    without: str = ""  # what the finding says would give the counter, where it is not told

    @property
    def name(self) -> str:
        return self.speaks.name

    def proof_on(self, path: str) -> ColdProof | None:
        """The proof of cells on a route."""
        return self.elsewhere.get(path, self.proof)


EVERYWHERE = frozenset({"settings", "reply", "totals"})
CACHED = ("cached_tokens",)
TABLE: Mapping[str, Row] = {
    row.name: row
    for row in (
        Row(
            replace(LLAMA, draft=(12, 9), decides=("cache_n", "prompt_n", "cached_tokens")),
            ColdProof.CACHE_OFF,
            totals=True,
            epoch=True,
            idle=True,
            speculation=EVERYWHERE,
            without="newer builds tell `timings.cache_n`",
        ),
        Row(
            replace(IK_LLAMA, draft=(12, 9), decides=("prompt_n",)),
            ColdProof.CACHE_OFF,
            totals=True,
            epoch=True,
            idle=True,
            build=False,
            speculation=frozenset({"reply"}),
            without="builds from August 2025 on",
        ),
        Row(
            replace(VLLM, draft=(12, 9), decides=("cached_tokens", "num_cached_tokens")),
            ColdProof.SALT,
            totals=True,
            epoch=True,
            idle=True,
            speculation=EVERYWHERE,
            without="--enable-prompt-tokens-details",
        ),
        Row(
            replace(SGLANG, draft=(12, 9), decides=("cached_tokens", "device")),
            ColdProof.SALT,
            totals=True,
            epoch=True,
            idle=True,
            speculation=frozenset({"settings", "reply"}),
            without="--enable-cache-report",
        ),
        Row(
            replace(TRTLLM, draft=(12, 9), decides=CACHED, metrics=drafting_trtllm_metrics),
            ColdProof.SALT,
            totals=True,
            idle=True,
            speculation=frozenset({"settings", "totals"}),
            elsewhere={COMPLETIONS: ColdProof.NONCE},
            without="trtllm-serve 1.1",
        ),
        Row(
            replace(LMDEPLOY, decides=CACHED),
            totals=True,
            epoch=True,
            idle=True,
            build=False,
            routes=(CHAT,),
            without="--backend pytorch --enable-prefix-caching",
        ),
        Row(replace(OLLAMA, decides=CACHED), without="Ollama 0.34 or later"),
        Row(replace(ANY, decides=CACHED), build=False, without="--enable-prompt-tokens-details"),
        Row(TGI, None, idle=True, without="serve the model by an engine that tells them"),
        Row(KOBOLD, None, idle=True, without="serve the model by llama-server"),
    )
}


def nonce_stripped(words: list[str]) -> list[str]:
    """A prompt as a gateway lets it through that takes our probe's nonce out of it."""
    return [word for word in words if not word.startswith(PROBE)]


PROBE = "probe-salt"


def without_fields(told: Body, names: tuple[str, ...], put: object = ...) -> Body:
    """A reply's counts without the fields of these names, at any depth, or with `put` in their place."""

    def cleaned(value: object) -> object:
        if not isinstance(value, dict):
            return value
        kept = {key: cleaned(inner) for key, inner in value.items() if key not in names}
        return kept if put is ... else kept | {key: put for key in value if key in names}

    return json.loads(json.dumps(cleaned(told)))


def renamed_fields(told: Body, names: tuple[str, ...]) -> Body:
    """A reply's counts with these fields under other names, as another version might have them."""

    def renamed(value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {f"num_{key}_v2" if key in names else key: renamed(inner) for key, inner in value.items()}

    return json.loads(json.dumps(renamed(told)))
