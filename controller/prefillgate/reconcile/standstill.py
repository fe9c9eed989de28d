"""A replay that breaks off again and again without one new cell between: when that is told, and when it is the end."""

from __future__ import annotations

from prefillgate.api.kinds.moments import moment
from prefillgate.reconcile.snapshot import Standstill, WorkSeen

BOTH = "both"
TOLD_AFTER_SECONDS, TOLD_AFTER_TRIES = 300.0, 3  # a server that starts refuses for minutes
ENDS_AFTER_SECONDS, ENDS_AFTER_TRIES = 3600.0, 10  # one that loads a large model may take half an hour


def told(work: WorkSeen | None, now: float) -> Standstill | None:
    """A standstill that has lasted so long that a person should know of it."""
    found = None if work is None else work.standstill
    if found is None or found.tries < TOLD_AFTER_TRIES or now < found.since + TOLD_AFTER_SECONDS:
        return None
    return found


def has_ended_it(work: WorkSeen | None, now: float) -> bool:
    """Whether no more is to be hoped for: a server answers and nothing of it can be measured. What is no server's
    fault (a store, the API server, a pod that cannot be put aside) is waited out."""
    found = told(work, now)
    if found is None or not found.arm:
        return False
    return found.tries >= ENDS_AFTER_TRIES and now >= found.since + ENDS_AFTER_SECONDS


def due_at(work: WorkSeen | None, now: float) -> tuple[float, ...]:
    """When it is to be told, and when it is the end, though nothing changes."""
    found = None if work is None else work.standstill
    if found is None:
        return ()
    ends = (found.since + ENDS_AFTER_SECONDS,) if found.arm else ()
    return tuple(at for at in (found.since + TOLD_AFTER_SECONDS, *ends) if at > now)


def standstill_of_a_job(arm: str, trouble: str, now: float) -> Standstill:
    """What a Job that gave up has seen: it has gone by the same bounds."""
    return Standstill(now - ENDS_AFTER_SECONDS, ENDS_AFTER_TRIES, trouble, arm)


def sentence(found: Standstill) -> str:
    """Since when not one cell came, and what the last try said."""
    return f"Since {moment(found.since)} not one cell could be measured: {found.trouble}"


def remedy(found: Standstill) -> str:
    """What a person can look at."""
    if not found.arm:
        return "What is named put right; the replay then goes on by itself."
    whose = "the servers of both arms" if found.arm == BOTH else f"the {found.arm}'s server"
    return f"Look at the log of {whose}, and at what it answers: prefillgate doctor URL."


def when_it_ends(found: Standstill) -> str:
    """What comes of it where nothing is done."""
    if not found.arm:
        return ""
    return f"It ends as not measured at {moment(found.since + ENDS_AFTER_SECONDS)}."
