"""The verdict as one JSON object. Numbers are never rounded; unknown is null, and so is what JSON cannot say."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.earlier import StoredFloor
from prefillgate.core.journal import BaselineShown
from prefillgate.core.stored_baseline import SECONDS_A_DAY
from prefillgate.core.verdict import ArmCounts, ReplicateView, ThroughputView, Verdict

Json = dict[str, Any]
ARM_FIELDS = (
    "requests",
    "prefills",
    "decision_prefills",
    "copies",
    "partial",
    "unknown",
    "orphans",
    "bad_requests",
    "bad_prefills",
    "bad_for_promotion",
    "request_interval",
    "prefill_interval",
)


def arm_counts_json(counts: ArmCounts) -> Json:
    """One arm under the field names of `prefillgate audit`, in their documented order."""
    return {name: plain(getattr(counts, name)) for name in ARM_FIELDS}


def verdict_json(verdict: Verdict) -> Json:
    """The documented object of `run --json`, `decide --json` and `report --format json`."""
    decision = verdict.decision
    there = {arm: counts for arm, _, counts in verdict.arms}
    arms = {arm: there.get(arm) for arm in (BASELINE, CANDIDATE)}
    return {
        "decision": decision.decision.value,
        "promotion": decision.promotion.value,
        "rollback": decision.rollback.value,
        "reason": decision.reason,
        "sentences": list(decision.sentences),
        "cause": decision.cause,
        "what_would_change": list(decision.what_would_change),
        "measured": decision.measured,
        "arms": {arm: None if counts is None else arm_counts_json(counts) for arm, counts in arms.items()},
        "comparison": plain(verdict.comparison),
        "throughput": _throughput_json(verdict.throughput),
        "differences": plain(verdict.differences),
        "replicates": [_replicate_json(replicate) for replicate in verdict.replicates],
        "gateway": plain(verdict.gateway),
        "alarm": {"raised": verdict.alarm, "level": plain(verdict.alarm_level), "threshold": plain(verdict.alarm_at)},
        "policy": {
            "name": verdict.policy_name,
            "margin": plain(verdict.margin),
            "acceptance": [{"bad": bad, "prefills": at} for bad, at in enumerate(verdict.acceptance)],
        },
        "prefills_used": verdict.prefills_used,
        "budget": verdict.budget,
        "budget_needed": verdict.budget_needed,
        "prompts": verdict.prompts,
        "distinct_outputs": verdict.distinct_outputs,
        "invalid": {arm: None if counts is None else counts.invalid for arm, counts in arms.items()},
        "effective_prefills": {
            arm: None if counts is None else plain(counts.effective_prefills) for arm, counts in arms.items()
        },
        "replay_set": {"name": verdict.replay_set_name, "sha256": verdict.replay_set_sha256},
        "title": verdict.title,
        "started_at": plain(verdict.started_at),
        "ended_at": plain(verdict.ended_at),
        "notes": list(verdict.notes),
        "shape": plain(verdict.shape),
        "stored_baseline": _stored_json(verdict.baseline_shown),
        "floor": _floor_json(verdict.floor),
        "watch": plain(verdict.watch),
        "trigger": plain(verdict.trigger),
    }


def render_json(verdict: Verdict) -> str:
    """`verdict_json` as text, ASCII only, so that hostile names can neither break a terminal nor an encoder."""
    text = json.dumps(verdict_json(verdict), indent=2, ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f") + "\n"  # the one control character json leaves as it is


def plain(value: Any) -> Any:
    """A value of the core as JSON types: dataclasses by field name, tuples as lists, NaN and infinities as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value.value if hasattr(value, "value") else value


def _stored_json(shown: BaselineShown | None) -> Json | None:
    return None if shown is None else {**plain(shown), "age_days": shown.age_seconds / SECONDS_A_DAY}


def _floor_json(floor: StoredFloor | None) -> Json | None:
    """A floor without the rates of its cells, which stand in its own store."""
    if floor is None:
        return None
    told: Json = plain(floor)
    del told["rates"]
    return {**told, "identical_share": floor.identical_share, "age_days": floor.age_seconds / SECONDS_A_DAY}


def _throughput_json(view: ThroughputView) -> Json:
    told: Json = plain(view)
    return told


def _replicate_json(view: ReplicateView) -> Json:
    told: Json = plain(view)
    told["confirmed"] = view.ending == "confirmed"
    return told
