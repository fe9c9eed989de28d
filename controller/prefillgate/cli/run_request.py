"""From the options of `prefillgate run`, and its run file, to what the run is asked to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefillgate.api.policy import DEFAULT_POLICY, load_policy
from prefillgate.api.run_file import Arm, load_run_file
from prefillgate.api.store_address import StoreAddress
from prefillgate.cli.addresses import check_access, checked_engine
from prefillgate.cli.budget import budget_of, with_budget
from prefillgate.cli.errors import BadInput
from prefillgate.cli.floor_options import earlier_of
from prefillgate.cli.gateway import gateway_of
from prefillgate.cli.lane_request import arm_of, two_arms, with_lanes
from prefillgate.cli.sequential import swap_command_of
from prefillgate.cli.server_options import access_of, engine_of, model_of
from prefillgate.cli.shape_options import OF_A_STORE, check_shape, max_age_of, shape_of
from prefillgate.core.differences import AREAS
from prefillgate.core.journal import Difference
from prefillgate.replay.lane import LaneTimes
from prefillgate.replay.replay_set import load_replay_set
from prefillgate.replay.session import ArmRequest, RunRequest


def requested(options: dict[str, Any]) -> RunRequest:
    """What is asked for, from a run file or from options; options win over the file.

    Raises `BadInput` or an `InputError` naming the option or the field.
    """
    from_file = _from_file(options)
    urls = _arms(options, from_file)
    set_name = options["replay_set"] or from_file.get("replay_set")
    if set_name is None:
        raise BadInput("--replay-set is missing (allowed: a JSONL file, or demo, short, four)")
    replay_set = load_replay_set(set_name)
    policy = from_file.get("policy")
    if options["policy"] is not None or policy is None:
        policy = load_policy(DEFAULT_POLICY if options["policy"] is None else options["policy"])
    if options["aa"]:
        policy = replace(policy, policy=replace(policy.policy, aa_check=True))
    budget, budget_by = budget_of(options, from_file)
    earlier = earlier_of(options, from_file, with_budget(policy, budget, budget_by))
    policy = earlier["policy"]
    shape = with_lanes(shape_of(options, from_file, baseline="baseline" in urls), urls)
    check_shape(shape, policy.policy)
    timeout = options["cell_timeout"] or from_file.get("cell_timeout") or LaneTimes().cell_timeout_seconds
    seed = options["seed"] if options["seed"] is not None else from_file.get("seed")
    return RunRequest(
        baseline=urls.get("baseline"),
        candidate=urls["candidate"],
        replay_set=replay_set,
        store=store_of(options["store"] or from_file.get("store"), replay_set.name),
        seed=seed,
        differences=(*from_file.get("differences", ()), *(_declared(text) for text in options["declare"])),
        times=LaneTimes(cell_timeout_seconds=timeout),
        budget=budget,
        budget_by=budget_by,
        gateway=gateway_of(options, from_file.get("gateway")),
        shape=shape,
        baseline_store=options["baseline_store"] or from_file.get("baseline_store"),
        baseline_max_age_days=max_age_of(options, from_file),
        wait_ready_seconds=_first(options["wait_ready"], from_file.get("wait_ready"), 0.0),
        unvalidated_judge=options["unvalidated_judge"],
        swap_command=swap_command_of(options, from_file, shape),
        **earlier,
    )


def _arms(options: dict[str, Any], from_file: dict[str, Any]) -> dict[str, ArmRequest]:
    """The arms asked for: the candidate, and the baseline unless it was left out."""
    urls = {}
    for arm in ("baseline", "candidate"):
        given = options[arm]
        known = from_file.get(arm, ArmRequest(""))
        if not given and not known.url and arm == "baseline":
            _nothing_of_a_baseline(options)
            continue
        if not given and not known.url:
            raise BadInput(f"--{arm} is missing (allowed: the base URL of a server, or a run file that names it)")
        arm_request = arm_of(arm, given) if given else known
        urls[arm] = replace(
            arm_request,
            model=model_of(options, arm) or arm_request.model,
            engine=checked_engine(engine_of(options, arm) or arm_request.engine),
            access=access_of(options, arm, arm_request.access),
        )
    if "baseline" in urls and not (options["sequential"] or from_file.get("sequential")):
        two_arms(urls["baseline"], urls["candidate"])
    for arm, asked in urls.items():
        check_access(arm, asked)
    _check_tls(urls)
    return urls


def _nothing_of_a_baseline(options: dict[str, Any]) -> None:
    """Raise `BadInput` where a baseline was described and not named: it was forgotten, not left out."""
    for name, value in options.items():
        if name.startswith("baseline_") and name not in OF_A_STORE and value:
            raise BadInput(f"--{name.replace('_', '-')} is given and --baseline is not (allowed: both, or neither)")


def _first(*values: float | None) -> float:
    """The first that was given; 0 is a value."""
    return next(value for value in values if value is not None)


def _check_tls(urls: dict[str, ArmRequest]) -> None:
    """Raise `BadInput` for certificates that nobody would look at: http:// was written where https:// was meant."""
    if any(url.lower().startswith("https:") for asked in urls.values() for url in asked.urls):
        return
    for arm, asked in urls.items():
        for name in ("ca_file", "client_cert", "tls_server_name", "insecure"):
            if getattr(asked.access, name):
                option = f"--{name.replace('_', '-')}"
                raise BadInput(
                    f"{arm}: {option} is given and no server is reached over TLS (allowed: with an https:// URL)"
                )


def _from_file(options: dict[str, Any]) -> dict[str, Any]:
    if options["run_file"] is None:
        return {}
    document = load_run_file(options["run_file"])

    def arm(wanted: Arm) -> ArmRequest:
        return ArmRequest(wanted.url, wanted.model, wanted.engine, wanted.access, wanted.more_urls)

    return {
        **({} if document.baseline is None else {"baseline": arm(document.baseline)}),
        "candidate": arm(document.candidate),
        "replay_set": document.replay_set,
        "policy": document.policy,
        "store": document.store,
        "seed": document.seed,
        "differences": document.declared_differences,
        "cell_timeout": document.cell_timeout_seconds,
        "isolation": document.isolation,
        "baseline_store": document.baseline_store,
        "baseline_max_age": document.baseline_max_age_days,
        "wait_ready": document.wait_ready_seconds,
        "arms_at_once": document.arms_at_once,
        "sequential": document.sequential,
        "swap_command": document.swap_command,
        "gateway": None if document.gateway is None else arm(document.gateway),
        "budget": document.budget_prefills,
        "floor": document.floor,
        "floor_max_age": document.floor_max_age_days,
        "first_replicate": document.first_replicate,
    }


def _declared(text: str) -> Difference:
    """`NAME` or `NAME=OLD..NEW`, with an area where NAME is written as area/name."""
    name, _, values = text.partition("=")
    area, _, short = name.rpartition("/")
    old, dots, new = values.partition("..")
    if not short or (values and not dots):
        raise BadInput(f"--declare: {text!r} cannot be read (allowed: NAME, NAME=OLD..NEW or AREA/NAME=OLD..NEW)")
    return Difference(area or AREAS.get(short, "other"), short, old or None, new or None)


def store_of(asked: StoreAddress | None, set_name: str) -> StoreAddress:
    """The store asked for; where none was, or a database without a run, one named after the set and the time."""
    name = f"{set_name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    if asked is None:
        return Path(".prefillgate") / f"{name}.db"
    return asked if isinstance(asked, Path) or asked.run is not None else asked.of_run(name)
