"""Policies: the three named ones and those of a file, as the plain values that the core works with."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from prefillgate.api.check_spec import CheckSpec, specs_of
from prefillgate.api.errors import PolicyError, Problem
from prefillgate.api.model import validate
from prefillgate.api.policy_model import Alarm, PolicySpec, PromotionPolicy, Replicate, Throughput
from prefillgate.api.replay_set import canonical_json
from prefillgate.api.strict_yaml import FieldPath, YamlDocument, YamlProblem, read_yaml_file
from prefillgate.core.acceptance import NAMED_POLICIES, AcceptanceTable, false_promotion, find_table
from prefillgate.core.policy import DEFAULT_FLAG, AlarmPolicy, Flag, Policy, ReplicatePolicy, ThroughputPolicy

DEFAULT_POLICY = "standard"
#: Prefills a policy without `budgetPrefills` may spend beyond its last acceptance entry, for the baseline pass, two
#: replicates and the throughput pairs: as much as the named policies have (STATISTICS.md section 2).
BUDGET_BEYOND_ACCEPTANCE = 125
MIN_BUDGET = 150


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """A policy with its checks. `checks` is None where none were declared: the default ones apply then.

    `digest` is the SHA-256 of the canonical JSON of every number and check, however they were written.
    """

    policy: Policy
    checks: tuple[CheckSpec, ...] | None
    name: str
    digest: str
    source: Path | None = None
    healthy_rate_given: bool = False  # written down, and so measured; else it is the default


def load_policy(name_or_path: str | Path) -> PolicyDocument:
    """A named policy (quick, standard, strict) or the one of a YAML file. Raises `PolicyError`."""
    name = str(name_or_path)
    if name in NAMED_POLICIES:
        return _document(NAMED_POLICIES[name], None, None)
    path = Path(name_or_path)
    if not path.exists() and path.suffix == "" and path.parent == Path():
        allowed = f"{', '.join(NAMED_POLICIES)}, or the path of a YAML file"
        raise PolicyError(Problem("", "policy", f"no policy and no file {name}", allowed))
    try:
        yaml = read_yaml_file(path)
    except YamlProblem as error:
        raise PolicyError(error.problem) from error
    return read_policy(yaml, path)


def read_policy(yaml: YamlDocument, source: Path | None = None) -> PolicyDocument:
    """The policy of a YAML document. Raises `PolicyError` with file:line and field path of each problem."""
    model, wrong = validate(PromotionPolicy, yaml.value)
    if model is None:
        raise PolicyError(*_placed(yaml, wrong))
    return policy_of(model.spec, model.metadata.name, yaml, source)


def policy_of(spec: PolicySpec, name: str, yaml: YamlDocument, source: Path | None = None) -> PolicyDocument:
    """The policy that a valid spec asks for. Raises `PolicyError` where its numbers are impossible together.

    `yaml` gives the lines of the fields of `spec`, which stands in it under the path ("spec",).
    """
    acceptance = _acceptance(spec, yaml)
    problems = list(_impossible(spec, acceptance))
    if problems:
        raise PolicyError(*_placed(yaml, tuple(problems)))
    policy = Policy(
        name=name,
        margin=spec.margin,
        alpha=spec.alpha_basis_points / 10_000,
        acceptance=acceptance,
        budget=spec.budget_prefills or max(MIN_BUDGET, acceptance[-1] + BUDGET_BEYOND_ACCEPTANCE),
        healthy_rate=spec.healthy_rate_basis_points / 10_000,
        baseline_pass=spec.baseline_pass_prefills,
        refusals=spec.refusals,
        deadline_seconds=None if spec.deadline_seconds is None else float(spec.deadline_seconds),
        aa_check=spec.aa_check == "Enabled",
        alarm=_alarm(spec.alarm),
        replicate=_replicate(spec.replicate),
        throughput=_throughput(spec.throughput),
        flags=tuple(Flag(f.name, tuple(f.checks)) for f in spec.flags) or (Flag(DEFAULT_FLAG, ()),),
    )
    folder = None if source is None else source.parent
    document = _document(policy, None if spec.checks is None else specs_of(spec.checks, folder), source)
    return replace(document, healthy_rate_given="healthy_rate_basis_points" in spec.model_fields_set)


def _document(policy: Policy, checks: tuple[CheckSpec, ...] | None, source: Path | None) -> PolicyDocument:
    declared: Any = None
    if checks is not None:
        declared = [[c.type.value, c.name, c.parameters and c.parameters.model_dump(by_alias=True)] for c in checks]
    digest = hashlib.sha256(canonical_json({"policy": asdict(policy), "checks": declared})).hexdigest()
    return PolicyDocument(policy, checks, policy.name, digest, source)


_Found = tuple[FieldPath, Problem]


def _placed(yaml: YamlDocument, found: tuple[_Found, ...]) -> Iterator[Problem]:
    for path, problem in found:
        yield Problem(yaml.where(path), problem.field, problem.message, problem.allowed)


def _acceptance(spec: PolicySpec, yaml: YamlDocument) -> tuple[int, ...]:
    alpha = spec.alpha_basis_points / 10_000
    try:
        if spec.acceptance is None:
            return find_table(spec.margin, alpha).entries
        table = AcceptanceTable(spec.margin, alpha, tuple(spec.acceptance))
    except ValueError as error:
        path: FieldPath = ("spec", "acceptance")
        raise PolicyError(*_placed(yaml, ((path, Problem("", "spec.acceptance", str(error))),))) from error
    return table.entries


def _impossible(spec: PolicySpec, acceptance: tuple[int, ...]) -> Iterator[_Found]:
    yield from _too_lenient(spec)
    if spec.budget_prefills is not None and spec.budget_prefills < acceptance[0]:
        allowed = f"at least {acceptance[0]}, the fresh prefills that promotion needs with 0 bad"
        yield _found("budgetPrefills", str(spec.budget_prefills), allowed)
    yield from _never_confirmed(spec.replicate)


def _too_lenient(spec: PolicySpec) -> Iterator[_Found]:
    """A table given by hand whose exact error exceeds alpha."""
    if spec.acceptance is None:
        return
    alpha = spec.alpha_basis_points / 10_000
    error = false_promotion(AcceptanceTable(spec.margin, alpha, tuple(spec.acceptance)))
    if error > alpha:
        bad_allowed = min(len(spec.acceptance) - 1, 2)
        possible = list(find_table(spec.margin, alpha, bad_allowed=bad_allowed).entries)
        what = (
            f"{spec.acceptance} promotes a candidate at the margin with probability {error:.6f}, above alpha {alpha:g}"
        )
        yield _found("acceptance", what, f"for example {possible}, or leave it out")


def _never_confirmed(replicate: Replicate) -> Iterator[_Found]:
    baseline = replicate.planned_baseline_rate_basis_points
    candidate = replicate.planned_candidate_rate_basis_points
    if candidate <= baseline:
        what = f"{candidate} is not above plannedBaselineRateBasisPoints {baseline}"
        yield _found("replicate.plannedCandidateRateBasisPoints", what, f"{baseline + 1} to 9999")
        return
    if replicate.clean_units > replicate.max_pairs:
        what = f"{replicate.clean_units} is above maxPairs {replicate.max_pairs}"
        yield _found("replicate.cleanUnits", what, f"1 to {replicate.max_pairs}")
    mean = (baseline + candidate) / 2
    gain = math.log(candidate / mean * (10_000 - baseline) / (10_000 - mean))
    last = replicate.threshold * (1 if replicate.max_attempts < 2 else 2)
    needed = math.ceil(math.log(last) / gain)
    if replicate.max_pairs < needed:
        what = (
            f"{replicate.max_pairs} pairs cannot reach an e-value of {last} even with every pair against the candidate"
        )
        yield _found("replicate.maxPairs", what, f"at least {needed}")


def _found(field: str, message: str, allowed: str) -> _Found:
    path: FieldPath = ("spec", *field.split("."))
    return path, Problem("", f"spec.{field}", message, allowed)


def _alarm(alarm: Alarm) -> AlarmPolicy:
    return AlarmPolicy(
        healthy_rate=alarm.healthy_rate_basis_points / 10_000,
        bad_rate=alarm.bad_rate_basis_points / 10_000,
        threshold=float(alarm.threshold),
        watch_threshold=float(alarm.watch_threshold),
    )


def _replicate(replicate: Replicate) -> ReplicatePolicy:
    return ReplicatePolicy(
        planned_baseline_rate=replicate.planned_baseline_rate_basis_points / 10_000,
        planned_candidate_rate=replicate.planned_candidate_rate_basis_points / 10_000,
        threshold=float(replicate.threshold),
        futility=replicate.futility_basis_points / 10_000,
        clean_units=replicate.clean_units,
        max_pairs=replicate.max_pairs,
        max_cached_tokens=replicate.max_cached_tokens,
        gap_seconds=float(replicate.gap_seconds),
        max_attempts=replicate.max_attempts,
    )


def _throughput(throughput: Throughput) -> ThroughputPolicy:
    return ThroughputPolicy(
        required=throughput.mode == "Require",
        margin=throughput.margin_basis_points / 10_000,
        alpha=throughput.alpha_basis_points / 10_000,
        min_pairs=throughput.min_pairs,
        max_pairs=throughput.max_pairs,
        min_output_tokens=throughput.min_output_tokens,
        planned_cv=throughput.planned_cv_basis_points / 10_000,
        max_prompts=throughput.max_prompts,
        slow_ratio=throughput.slow_ratio_percent / 100,
    )
