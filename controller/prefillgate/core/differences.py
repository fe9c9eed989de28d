"""What differs between the two profiles: what was declared, and what the servers themselves tell."""

from __future__ import annotations

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.gate import Gate
from prefillgate.core.journal import Difference

# Where a setting that a server tells of itself belongs; what is not named here is "other".
AREAS = {
    "engine": "build",
    "build": "build",
    "weights": "weights",
    "quantization": "weights",
    "tp_size": "layer placement",
    "pp_size": "layer placement",
    "dp_size": "layer placement",
    "n_ctx": "KV cache",
    "total_slots": "KV cache",
    "context_tokens": "KV cache",
    "kv_cache_dtype": "KV cache",
    "cache_dtype": "KV cache",
    "block_size": "KV cache",
    "page_size": "KV cache",
    "enable_prefix_caching": "KV cache",
    "disable_radix_cache": "KV cache",
    "speculative": "draft head",
    "speculation": "draft head",
    "speculative_algorithm": "draft head",
    "speculative_draft_model_path": "draft head",
    "speculative_num_draft_tokens": "draft head",
}


def differences_of(gate: Gate) -> tuple[Difference, ...]:
    """Named differences, declared ones first; those only the servers told of stand as undeclared."""
    declared = {difference.name: difference for difference in gate.plan.differences}
    found = dict(declared)
    for name, baseline, candidate in told_differences(gate):
        known = declared.get(name)
        area = known.area if known is not None else AREAS.get(name, "other")
        if known is None or known.baseline is None:
            found[name] = Difference(area, name, baseline, candidate, declared=known is not None)
    return tuple(found.values())


def told_differences(gate: Gate) -> list[tuple[str, str | None, str | None]]:
    """(name, baseline, candidate) of everything both servers told and told differently."""
    if not gate.epochs[BASELINE] or not gate.epochs[CANDIDATE]:
        return []
    baseline, candidate = gate.current_epochs(BASELINE)[0], gate.current_epochs(CANDIDATE)[0]
    pairs: list[tuple[str, str | None, str | None]] = [
        ("engine", baseline.engine, candidate.engine),
        ("build", baseline.build, candidate.build),
        ("weights", baseline.weights, candidate.weights),
    ]
    theirs = dict(candidate.settings)
    pairs += [(name, value, theirs.get(name)) for name, value in baseline.settings]
    return [(name, one, other) for name, one, other in pairs if None not in (one, other) and one != other]
