"""From a case to the request that is sent for it, and the guard that the gate touches nothing else of the body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefillgate.api.replay_set import Case, canonical_json
from prefillgate.core.cells import ColdProof
from prefillgate.core.sent import GATE_FIELDS as GATE_FIELDS
from prefillgate.engines.base import CellRequest, Engine, PreparedRequest

#: What forces a fresh prefill, by proof: an engine's own knob with what makes the reply tell of it, or a nonce on the
#: prompt's first line.
FRESHNESS_FIELDS: Mapping[str, tuple[str, ...]] = {
    ColdProof.CACHE_OFF: ("cache_prompt", "decoder_input_details"),
    ColdProof.SALT: (
        "cache_salt",
        "extra_key",
        "include_metrics",
        "return_cached_tokens_details",
        "return_meta_info",
    ),
    ColdProof.NONCE: ("messages", "prompt"),
}


@dataclass(frozen=True, slots=True)
class Sending:
    """What only this cell has: the model's name on its server (None keeps the body's), its seed and its nonce."""

    model: str | None
    seed: int | None
    nonce: str
    cold_proof: str | None


def prepare(case: Case, engine: Engine, sending: Sending) -> PreparedRequest:
    """The request for `case` on `engine`, streamed unless its body says `"stream": false`.

    Raises `EngineError` where the engine cannot send it, ValueError where it would change a field not the gate's.
    """
    request = CellRequest(
        path=case.path,
        body=case.body,
        model=sending.model,
        seed=sending.seed,
        nonce=sending.nonce,
        cold_proof=sending.cold_proof,
        stream=case.body.get("stream") is not False,
    )
    prepared = engine.prepare(request)
    touched = foreign_changes(case.body, prepared.body, sending.cold_proof)
    if touched:
        raise ValueError(f"case {case.case_id}: {engine.name} would change {', '.join(touched)} of the body")
    return prepared


def foreign_changes(before: Mapping[str, Any], after: Mapping[str, Any], cold_proof: str | None) -> tuple[str, ...]:
    """Fields that differ between two bodies and are neither the gate's nor the freshness knob of `cold_proof`."""
    mine = (*GATE_FIELDS, *(FRESHNESS_FIELDS.get(cold_proof, ()) if cold_proof is not None else ()))
    fields = sorted({*before, *after} - set(mine))
    return tuple(name for name in fields if _differs(before, after, name))


def _differs(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> bool:
    if (name in before) != (name in after):
        return True
    return canonical_json(before[name]) != canonical_json(after[name])
