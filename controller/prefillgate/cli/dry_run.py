"""`prefillgate run --dry-run`: the plan, its prefills, its minutes and its error bounds.

Two cells are sent to each server to be timed, unless the time of a cell is given.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from prefillgate.cli.dry_run_minutes import minutes_document, minutes_rows
from prefillgate.cli.errors import CommandError
from prefillgate.cli.interruptible import carry_out
from prefillgate.cli.time_limit import refuse, timed_plan
from prefillgate.cli.timing import Timed, given_paces, paces_of, time_servers
from prefillgate.core.acceptance import AcceptanceTable, false_promotion, power
from prefillgate.core.earlier import StoredFloor
from prefillgate.core.evalue import replicate_threshold
from prefillgate.core.fitting import TimedPlan
from prefillgate.core.floor import floor_sentence
from prefillgate.core.journal import Planned
from prefillgate.core.planning import expected_prefills, pairable_cases, plan_warnings, promotion_power
from prefillgate.core.stored_baseline import baseline_sentence
from prefillgate.core.window_plan import expected_swaps
from prefillgate.replay.checks import CheckSuite
from prefillgate.replay.clock import SystemClock
from prefillgate.replay.request import GATE_FIELDS
from prefillgate.replay.session import RunRequest, plan_run
from prefillgate.report.clean import one_line
from prefillgate.runs.baseline_store import stored_baseline
from prefillgate.runs.floor_store import stored_floor

RATES = (0.0, 0.01, 0.05, 0.10)


def dry_run(request: RunRequest, options: dict[str, Any]) -> int:
    """Print the plan; exit code 0.

    Raises `CouldNotMeasure` or `BadInput` where a server cannot be timed, `BadInput` for a plan beyond --max-minutes,
    each after the plan was printed.
    """
    shown, floor = _earlier(request)
    planned = plan_run(request, request.seed or 0, 0.0, request.policy.policy, floor)
    limit, seconds, broken = options["max_minutes"], options["cell_seconds"], None
    timed: Timed | None = None
    try:
        timed = carry_out(time_servers(request)) if seconds is None else None
    except CommandError as error:
        broken = error
    plan = None
    if seconds is not None or timed is not None:
        paces = given_paces(request, seconds) if timed is None else paces_of(timed, request.replay_set)
        plan = timed_plan(request, paces)
    document = plan_document(planned) | minutes_document(plan, timed, limit) | {"stored_baseline": shown}
    if floor is not None and document["minutes"] is not None:
        document["minutes"]["with_aa"] = None  # the floor stands for that check
    document["floor"] = None if floor is None else floor_sentence(floor)
    document["gateway"] = None if request.gateway is None else request.gateway.url
    click.echo(json.dumps(document, indent=2) if options["as_json"] else _page(planned, document, plan))
    if broken is not None:
        raise broken
    if plan is not None and limit is not None:
        refuse(plan, limit)
    return 0


def _earlier(request: RunRequest) -> tuple[str | None, StoredFloor | None]:
    """The stored baseline in a sentence, and the floor. Raises `BadInput` for one that does not fit."""
    suite = CheckSuite.from_policy(request.policy, request.replay_set, request.unvalidated_judge)
    shown = stored_baseline(request, suite, SystemClock().now())
    floor = stored_floor(request, suite, SystemClock().now())
    return (None if shown is None else baseline_sentence(shown)), floor


def plan_document(planned: Planned) -> dict[str, Any]:
    """The plan as one JSON object: `baseline`, `candidate`, `replay_set`, `policy`, `acceptance`, `false_promotion`,
    `false_rollback`, `power`, `prefills`, `swaps` (null but for a sequential run), `budget`, `gate_changes`,
    `warnings`; `minutes_document` has the rest."""
    policy = planned.policy
    table = AcceptanceTable(policy.margin, policy.alpha, policy.acceptance)
    pairable = pairable_cases(policy, planned.cases)
    cost = expected_prefills(policy, len(planned.cases), pairable, planned.shape)
    attempts = range(planned.first_replicate, planned.first_replicate + policy.replicate.max_attempts)
    flags = len(policy.flags)
    return {
        "baseline": planned.baseline_url,
        "candidate": planned.candidate_url,
        "replay_set": {
            "name": planned.replay_set_name,
            "sha256": planned.replay_set_sha256,
            "prompts": len(planned.cases),
        },
        "policy": policy.name,
        "margin": policy.margin,
        "acceptance": [{"bad": bad, "prefills": entry} for bad, entry in enumerate(policy.acceptance)],
        "false_promotion": false_promotion(table),
        "false_rollback": sum(flags / replicate_threshold(number, policy.replicate, flags) for number in attempts),
        "power": [
            {
                "rate": rate,
                "promote": promotion_power(policy, rate, len(planned.cases)),
                "expected_prefills": power(table, rate).expected_prefills,
            }
            for rate in RATES
        ],
        "prefills": {**asdict(cost), "total": cost.total},
        "swaps": asdict(expected_swaps(policy, pairable, planned.first_replicate))
        if planned.shape.sequential
        else None,
        "budget": policy.budget,
        "gate_changes": [*GATE_FIELDS, "the engine's freshness knob, or a nonce on the first line"],
        "warnings": list(plan_warnings(policy, planned.cases, planned.first_replicate, planned.shape)),
    }


def _replicate(cost: dict[str, Any]) -> str:
    if not cost["replicate_most"]:
        return "none: its mates would be baseline prefills; an alarm ends in hold"
    return f"{cost['replicate_least']} to {cost['replicate_most']} more, inside the cap"


def _false_rollback(bound: float) -> str:
    return f"at most {bound:.4f}; only a fresh replicate allows one" if bound else "0: no replicate, no rollback"


def _swaps(swaps: dict[str, int] | None) -> list[tuple[str, str]]:
    """The rows of a sequential run."""
    if swaps is None:
        return []
    run = f"{swaps['least']}" if swaps["least"] == swaps["most"] else f"{swaps['least']} or {swaps['most']}"
    more = f"{swaps['replicate_clean']} more for a replicate that ends clean"
    return [
        ("swaps", f"{run} of servers when nothing is bad; their time comes on top"),
        ("", f"{more}, {swaps['replicate_confirmed']} or more for one that confirms"),
    ]


def _gateway(url: str) -> str:
    return f"bad cells go once more straight and through {one_line(url)}; that counts for nothing"


def _page(planned: Planned, document: dict[str, Any], plan: TimedPlan | None) -> str:
    policy, cost = planned.policy, document["prefills"]
    entries = ", ".join(f"{row['prefills']} with {row['bad']} bad" for row in document["acceptance"])
    spent = [f"{cost['candidate']} candidate"]
    if planned.baseline_url is not None:
        spent += [f"{cost['baseline_pass']} baseline pass", f"{cost['pair_halves']} baseline halves of pairs"]
        spent += [f"{cost['warm_up']} warm-up"]
    spent += [f"{cost['second_pass']} second pass"] if cost["second_pass"] else []
    rows = [
        ("plan", f"{one_line(planned.replay_set_name)}, {len(planned.cases)} prompts, policy {policy.name}"),
        ("baseline", "none: the candidate alone" if planned.baseline_url is None else one_line(planned.baseline_url)),
        ("candidate", one_line(planned.candidate_url)),
        ("promotes at", f"{entries} fresh prefills"),
        ("excludes", f"a bad rate of {100 * policy.margin:g} % or more"),
        ("false promotion", f"{document['false_promotion']:.6f} at that rate, exact"),
        ("false rollback", _false_rollback(document["false_rollback"])),
        *(("P(promote)", f"{row['promote']:.3f} at {100 * row['rate']:g} % bad") for row in document["power"]),
        ("prefills", f"{cost['total']} when nothing is bad: {', '.join(spent)}"),
        ("at the cap", f"{cost['budget']}{'' if planned.baseline_url is None else ', both arms'}"),
        ("a replicate", _replicate(cost)),
        *minutes_rows(document, plan),
        ("isolation", planned.shape.isolation.value),
        *_swaps(document["swaps"]),
        ("the gate sets", ", ".join(document["gate_changes"])),
        *([("beside it", one_line(document["stored_baseline"], 500))] if document["stored_baseline"] else []),
        *([("goes by", one_line(document["floor"], 500))] if document["floor"] else []),
        *([("at the end", _gateway(document["gateway"]))] if document["gateway"] else []),
        *(("warning", one_line(warning)) for warning in document["warnings"]),
    ]
    return "\n".join(f"{name:<16} {text}" for name, text in rows)
