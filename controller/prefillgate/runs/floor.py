"""A floor as a run of its own: two passes over the baseline, no candidate, in a store like any other.

Killed at any instant the same request goes on with it. What it finds is taken over by a run whose request names its
store (`RunRequest.floor`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from prefillgate.core.earlier import StoredFloor
from prefillgate.core.floor import floor_sentence, is_sound, own_floor
from prefillgate.core.shape import Shape
from prefillgate.replay.clock import Clock
from prefillgate.replay.runner import Watcher
from prefillgate.replay.session import RunRequest
from prefillgate.runs.around import Hooks, Said
from prefillgate.runs.errors import BadInput
from prefillgate.runs.running import Finished, execute


@dataclass(frozen=True, slots=True)
class FloorEnded:
    """A floor that came to its end; its journal is still open.

    `sound` is None where something else than the instrument ended it: the same request goes on. `shown` is what was
    measured until then.
    """

    finished: Finished
    sound: bool | None
    sentence: str
    shown: StoredFloor


async def measure_floor(
    request: RunRequest, watcher: Watcher, clock: Clock | None, said: Said, hooks: Hooks | None = None
) -> FloorEnded:
    """Replay the baseline against itself, or go on with it. Of the request's candidate nothing is asked.

    Raises what `prefillgate.runs.running.execute` raises, `BadInput` for a request without a baseline.
    """
    finished = await execute(floor_request(request), watcher, clock, said, hooks)
    return floor_ended(finished)


def floor_request(request: RunRequest) -> RunRequest:
    """The floor's run of a request that names a baseline: both sides of its plan are the baseline."""
    if request.baseline is None:
        raise BadInput("--baseline is missing (allowed: the base URL of the server with the profile in production)")
    shape = Shape(
        baseline_alone=True, isolation=request.shape.isolation, baseline_lanes=1 + len(request.baseline.more_urls)
    )
    return replace(
        request,
        candidate=request.baseline,
        shape=shape,
        differences=(),
        gateway=None,
        baseline_store=None,
        swap_command=(),
        budget=None,
        floor=None,
        watching=None,
        trigger=None,
        first_replicate=1,
    )


def floor_ended(finished: Finished) -> FloorEnded:
    """What a floor's run came to."""
    shown = own_floor(finished.gate)
    assert shown is not None
    first = finished.verdict.decision.sentences[0]
    return FloorEnded(finished, is_sound(finished.gate), f"{first} {floor_sentence(shown)}", shown)
