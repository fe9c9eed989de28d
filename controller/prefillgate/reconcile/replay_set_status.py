"""What the status of a ReplaySet says: a function of the object and what was read of its cases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from prefillgate.api.errors import Problem
from prefillgate.reconcile.own_status import own_status
from prefillgate.reconcile.snapshot import Object, ReplaySetSeen, Trouble


@dataclass(frozen=True, slots=True)
class CasesSeen:
    """What came of reading the cases: what they are, or why there are none."""

    seen: ReplaySetSeen | None = None
    problems: Iterable[Problem] = ()
    trouble: Trouble | None = None


def replay_set_status(thing: Object, found: CasesSeen, now: float) -> dict[str, Any]:
    """The status as it stands on the wire: how many cases and their digest, or why they cannot be used."""
    told = own_status(thing, found.problems, found.trouble, now)
    if found.seen is not None:
        told |= {"cases": found.seen.cases, "sha256": found.seen.sha256}
    return told
