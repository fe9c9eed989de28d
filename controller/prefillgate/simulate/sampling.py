"""The sampling parameters as /props, /slots and /completion list them."""

from __future__ import annotations

from typing import Any

from prefillgate.simulate.request import GenerationRequest

DEFAULTS: dict[str, Any] = {
    "seed": 4294967295,
    "temperature": 0.800000011920929,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_k": 40,
    "top_p": 0.949999988079071,
    "min_p": 0.05000000074505806,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.10000000149011612,
    "typical_p": 1.0,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 64,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.10000000149011612,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.8999999761581421,
    "max_tokens": -1,
    "n_predict": -1,
    "n_keep": 0,
    "n_discard": 0,
    "ignore_eos": False,
    "stream": False,
    "n_probs": 0,
    "min_keep": 0,
    "chat_format": "Content-only",
    "reasoning_format": "none",
    "reasoning_in_content": False,
    "generation_prompt": "",
    "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
    "speculative.types": "none",
    "timings_per_token": False,
    "post_sampling_probs": False,
    "backend_sampling": False,
    "lora": [],
}

_ONLY_IN_ANSWERS: dict[str, Any] = {
    "dry_sequence_breakers": ["\n", ":", '"', "*"],
    "logit_bias": [],
    "grammar": "",
    "grammar_lazy": False,
    "grammar_triggers": [],
    "preserved_tokens": [],
}


def sampling(request: GenerationRequest) -> dict[str, Any]:
    """The parameters a generation ran with."""
    limit = request.max_tokens if request.limited else -1
    return {
        **DEFAULTS,
        **_ONLY_IN_ANSWERS,
        "seed": DEFAULTS["seed"] if request.seed is None else request.seed,
        "temperature": float(request.temperature),
        "stop": list(request.stop),
        "max_tokens": limit,
        "n_predict": limit,
        "stream": request.stream,
        "reasoning_format": "deepseek",
    }
