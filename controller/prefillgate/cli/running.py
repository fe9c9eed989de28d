"""Carrying a run out for a person at a terminal: what is said goes to standard error, and a person may swap servers."""

from __future__ import annotations

from prefillgate.cli.outcome import say
from prefillgate.cli.sequential import hand_of
from prefillgate.replay.clock import Clock
from prefillgate.replay.runner import Watcher
from prefillgate.replay.session import RunRequest
from prefillgate.runs import running
from prefillgate.runs.around import Hooks
from prefillgate.runs.errors import RunBroken
from prefillgate.runs.running import Finished

__all__ = ["Finished", "RunBroken", "execute"]


async def execute(request: RunRequest, watcher: Watcher, clock: Clock | None = None) -> Finished:
    """Run, or resume, until the decision stands. Raises what `prefillgate.runs.running.execute` raises."""
    return await running.execute(request, watcher, clock, say, Hooks(hand=hand_of))
