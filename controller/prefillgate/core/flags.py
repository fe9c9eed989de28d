"""Flags: which checks decide, and what their outcomes make of an answer (STATISTICS.md section 7)."""

from __future__ import annotations

from collections.abc import Sequence

from prefillgate.core.journal import CheckOutcome
from prefillgate.core.policy import Flag

REPORTED_ONLY = frozenset({"equal_to_baseline", "slow"})  # never in the default flag
CONDITIONAL = "cut"  # in the default flag only if the baseline pass shows none


def counts(flag: Flag, check: str, pass_cut: bool) -> bool:
    """Whether outcomes of `check` reach `flag`; `pass_cut` says that an answer of the baseline pass was cut."""
    if flag.checks:
        return check in flag.checks
    return check not in REPORTED_ONLY and (check != CONDITIONAL or not pass_cut)


def flag_outcome(flag: Flag, outcomes: Sequence[CheckOutcome], pass_cut: bool) -> bool | None:
    """Bad when any check of the flag failed; unknown when one erred or none applied."""
    chosen = [outcome.bad for outcome in outcomes if counts(flag, outcome.check, pass_cut)]
    return worst(chosen) if chosen else None


def worst(values: Sequence[bool | None]) -> bool | None:
    """Bad when any is; unknown when none is and one of them is unknown."""
    if any(values):
        return True
    return None if None in values else False
