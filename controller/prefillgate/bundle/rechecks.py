"""The checks of a run applied again to the texts of a bundle, where they look at nothing but text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from prefillgate.api.check_spec import CheckSpec, read_check_list
from prefillgate.api.check_type import ASKING, CheckType
from prefillgate.api.errors import InputError, PolicyError
from prefillgate.api.policy import PolicyDocument
from prefillgate.api.replay_set import Case
from prefillgate.bundle.findings import unlike
from prefillgate.core.acceptance import AcceptanceTable, false_promotion
from prefillgate.core.journal import CheckOutcome, Planned
from prefillgate.core.policy import Policy
from prefillgate.core.quality import Output
from prefillgate.replay.checks import CheckContext, CheckSuite, compile_checks
from prefillgate.replay.replay_set import ReplaySet

_COMPARED = ("version", "bad", "detail", "text")
RECHECKED = "check outcomes"


@dataclass(frozen=True, slots=True)
class Rechecks:
    """The checks that can be run again. `beyond` says of the others, by name, why they cannot; `complete` whether these
    and those are all there were."""

    suite: CheckSuite | None
    beyond: dict[str, str] = field(default_factory=dict)
    complete: bool = True
    missing: str = ""  # why a check that is neither cannot be run again

    async def differences(
        self, case: Case, said: tuple[Output, CheckContext], stated: tuple[CheckOutcome, ...]
    ) -> list[tuple[str | None, str]]:
        """Of each outcome (what differs or None, what it counts as)."""
        made = {} if self.suite is None else {one.check: one for one in await self.suite.run(case, *said)}
        found = [self._one(one, made) for one in stated]
        names = [one.check for one in stated]
        dropped = [name for name in made if name not in names] if self.complete else []
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        found += [(f"the outcome of check {name} is missing", RECHECKED) for name in dropped]
        return [*found, *((f"check {name} has two outcomes", RECHECKED) for name in twice)]

    def _one(self, stated: CheckOutcome, made: dict[str, CheckOutcome]) -> tuple[str | None, str]:
        again = made.get(stated.check)
        if again is not None:
            if not self.complete and again.version != stated.version:
                return None, self.missing
            for name in _COMPARED:
                told, found = getattr(stated, name), getattr(again, name)
                if told != found:
                    return unlike(f"{stated.check}.{name}", told, found, "the check run again gives"), RECHECKED
            return None, RECHECKED
        if stated.check in self.beyond:
            return None, self.beyond[stated.check]
        if not self.complete:
            return None, self.missing
        return f"no check is named {stated.check} in policy or replay set", RECHECKED


def table_differs(policy: Policy) -> str | None:
    """Why no run can have been judged by this acceptance table: it is none, or promises more than it holds."""
    try:
        error = false_promotion(AcceptanceTable(policy.margin, policy.alpha, policy.acceptance))
    except (ValueError, ArithmeticError) as problem:
        return f"numbers.acceptance is no table: {problem}"
    if error > policy.alpha:
        return f"numbers.acceptance promotes falsely at {error:.6f}, and alpha is {policy.alpha:g}"
    return None


def rechecks(plan: Planned, cases: tuple[Case, ...]) -> Rechecks:
    """The checks of a plan and its cases. Raises `InputError` for declarations that cannot be read."""
    beyond: dict[str, str] = {}
    declared = None if plan.checks is None else json.loads(plan.checks)
    specs = None if declared is None else tuple(_pure(declared, beyond))
    policy = PolicyDocument(replace(plan.policy, flags=()), specs, plan.policy.name, "")
    replay_set = ReplaySet(plan.replay_set_name, plan.replay_set_sha256, cases) if cases else None
    known = plan.checks is not None and len(cases) == len(plan.cases)
    missing = "" if known else "outcomes of checks that the store did not keep"
    try:
        suite = CheckSuite.from_policy(policy, replay_set, unvalidated_judge=True)
    except InputError as error:
        why = f"check outcomes: the checks cannot be made here ({error.problems[0]})"
        return Rechecks(None, beyond, False, why)
    return Rechecks(suite, beyond, known, missing)


def _pure(declared: object, beyond: dict[str, str]) -> Iterator[CheckSpec]:
    """The declared checks that look at text alone; the names of the others go into `beyond`."""
    found = read_check_list(declared, "checks")
    if found.problems:
        raise PolicyError(*found.problems)
    for spec in found.specs:
        if spec.type in ASKING:
            beyond[spec.name] = f"outcomes of {spec.name} (it asked {_ASKED[spec.type]})"
            continue
        try:
            compile_checks([spec], "", PolicyError)
        except PolicyError:
            if spec.type is not CheckType.PLUGIN:
                raise
            beyond[spec.name] = f"outcomes of {spec.name} (a plug-in that is not installed here)"
            continue
        yield spec


_ASKED = {CheckType.EXEC: "a program", CheckType.JUDGE: "a model"}
