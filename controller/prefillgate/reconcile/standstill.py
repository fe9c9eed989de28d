"""A replay that breaks off again and again without one new cell between: when that is told, and when it is the end."""

from __future__ import annotations

from prefillgate.api.kinds.moments import moment
from prefillgate.reconcile.snapshot import Standstill, WorkSeen

BOTH = "both"
TOLD_AFTER_SECONDS, TOLD_AFTER_TRIES = 300.0, 3  # a server that starts refuses for minutes
ENDS_AFTER_SECONDS, ENDS_AFTER_TRIES = 3600.0, 10  # one that loads a large model may take half an hour


def told(work: WorkSeen | None) -> Standstill | None:
    """A standstill that has lasted so long that a person should know of it. What counts is when it was last tried: a
    time in which nobody was asked tells nothing."""
    found = None if work is None else work.standstill
    if found is None or found.tries < TOLD_AFTER_TRIES or found.last < found.since + TOLD_AFTER_SECONDS:
        return None
    return found


def has_ended_it(work: WorkSeen | None) -> bool:
    """Whether no more is to be hoped for: a server answers and nothing of it can be measured. What is no server's
    fault (a store, the API server, a pod that cannot be put aside) is waited out."""
    found = told(work)
    if found is None or not found.arm:
        return False
    return found.tries >= ENDS_AFTER_TRIES and found.last >= found.since + ENDS_AFTER_SECONDS


def standstill_of_a_job(arm: str, trouble: str, now: float) -> Standstill:
    """What a Job that gave up has seen: it has gone by the same bounds."""
    return Standstill(now - ENDS_AFTER_SECONDS, now, ENDS_AFTER_TRIES, trouble, arm)


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
    return f"From {moment(found.since + ENDS_AFTER_SECONDS)} on it ends as not measured."
