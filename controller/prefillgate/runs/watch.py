"""After a promotion: a small fresh replay of the promoted profile, and what answers the alarm of one.

```
after a promotion --> replay 1 --> replay 2 --> ... --> replay n, which alarms --> replicate j of the pair
                      each a store of its own that begins at the level        against a server of the previous profile,
                      the one before it ended with                            in a store of its own: nothing of the
                                                                              replays enters it
```
Every store is bounded, and killed at any instant the same request goes on: with the replay, or with the replicate.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from prefillgate.api.store_address import StoreAddress
from prefillgate.core.decision import Reason
from prefillgate.core.earlier import Watching
from prefillgate.core.places import derived_seed
from prefillgate.core.shape import Shape
from prefillgate.core.verdict import Rollback, WatchView
from prefillgate.core.watching import NoWatch, after_replay, trigger_of, watch_sentence, watch_view
from prefillgate.evidence import store_exists
from prefillgate.replay.clock import Clock
from prefillgate.replay.runner import Watcher
from prefillgate.replay.session import ArmRequest, RunRequest, named
from prefillgate.runs.around import Around, Hooks, Said
from prefillgate.runs.errors import BadInput
from prefillgate.runs.running import Finished, execute
from prefillgate.runs.stores import reading, same_store, store_errors

COMPARED = "equal_to_baseline"


class Previous(Protocol):
    """Where servers of the previous profile come from: called once an alarm is to be answered, left after it."""

    def __call__(self) -> AbstractAsyncContextManager[ArmRequest | None]:
        """The previous profile while it is asked; None where there is no server of it, and none is to be had."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """One small replay. `run.candidate` is the promoted profile and `run.store` this replay's; of `run.floor`, the
    promoted profile's floor or the run that promoted it, only whether answers were cut is taken, by the first replay.
    The run's baseline, if any, is not asked."""

    run: RunRequest
    prefills: int  # fresh ones to take
    after: StoreAddress | None = None  # the replay before; None: the first since the promotion
    replicate: StoreAddress | None = None  # the store of the replicate that answers an alarm
    previous: Previous | None = None  # None: an alarm warns, and nothing can answer it
    number: Callable[[], int] = lambda: 1  # of that replicate, among all of this pair of profiles
    also_called: tuple[str, ...] = ()  # what the replay before may call this very profile
    begins_anew: bool = False  # where the replay before cannot be gone on from; else that is `BadInput`

    def __post_init__(self) -> None:
        if self.prefills < 1:
            raise BadInput(f"prefills of a replay after a promotion: {self.prefills} (allowed: 1 or more)")


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """A replay that came to its end, and the replicate of its alarm where one was run. Journals are still open.

    `reason` is the decision's: NoAlarm, RegressionConfirmed, RegressionNotConfirmed, AlarmWithoutBaseline, or why
    something could not be measured.
    """

    replay: Finished
    replicate: Finished | None
    view: WatchView  # this replay and all since the promotion
    reason: str
    sentence: str

    @property
    def alarm(self) -> bool:
        """Whether this replay raised an alarm, whatever answered it."""
        return self.replay.gate.ever_alarmed

    @property
    def rollback(self) -> bool:
        """Whether a fresh paired replicate confirmed the alarm."""
        last = None if self.replicate is None else self.replicate.verdict.decision
        return last is not None and last.rollback is Rollback.ALLOWED and last.reason in CONFIRMED

    def close(self) -> None:
        """Let go of the journals."""
        self.replay.journal.close()
        if self.replicate is not None:
            self.replicate.journal.close()


CONFIRMED = frozenset({str(Reason.REGRESSION_CONFIRMED), str(Reason.ALREADY_DECIDED)})


async def run_watch(
    request: WatchRequest, watcher: Watcher, clock: Clock | None, said: Said, hooks: Hooks | None = None
) -> WatchEnded:
    """Take the replay, or go on with it, then answer the alarm that it raised, if it did.

    Raises what `prefillgate.runs.running.execute` raises; `BadInput` for a store before it that is none of this
    profile, unless the level may begin anew. A replicate whose servers never answer raises too: the same request goes
    on with it.
    """
    around = Around(listener=said, hooks=hooks or Hooks())
    replay = await execute(_replay_request(request, around), watcher, clock, said, hooks)
    replicate = None
    try:
        if replay.gate.ever_alarmed and request.previous is not None and request.replicate is not None:
            async with request.previous() as previous:
                if previous is not None:
                    asked = _replicate_request(request, replay, previous)
                    replicate = await execute(asked, watcher, clock, said, hooks)
    except BaseException:
        replay.journal.close()
        raise
    return _ended(replay, replicate)


def _ended(replay: Finished, replicate: Finished | None) -> WatchEnded:
    view = watch_view(replay.gate)
    assert view is not None
    last = replay if replicate is None else replicate
    first = last.verdict.decision.sentences[0]
    told = watch_sentence(view, *replay.gate.alarm_state())
    return WatchEnded(replay, replicate, view, last.verdict.decision.reason, f"{first} {told}")


def _replay_request(request: WatchRequest, around: Around) -> RunRequest:
    run = request.run
    compared = [flag.name for flag in run.policy.policy.flags if COMPARED in flag.checks]
    if compared:
        raise BadInput(
            f"flag {compared[0]} of policy {run.policy.policy.name} reads check {COMPARED}, and a replay after a "
            "promotion has no baseline (allowed: flags of other checks)"
        )
    return replace(
        run,
        baseline=None,
        shape=Shape(
            candidate_alone=True, isolation=run.shape.isolation, candidate_lanes=1 + len(run.candidate.more_urls)
        ),
        watching=_watching(request, around),
        differences=(),
        gateway=None,
        baseline_store=None,
        swap_command=(),
        budget=None,
        floor=None,
        trigger=None,
        first_replicate=1,
    )


def _watching(request: WatchRequest, around: Around) -> Watching:
    """Where the replay begins. Of one that stands in its store already the store's own word counts."""
    first = Watching(request.prefills, answers_cut=_answers_cut(request.run.floor))
    with store_errors():
        begun = store_exists(request.run.store)
    if begun or request.after is None:
        return first
    if same_store(request.after, request.run.store):
        raise BadInput(f"the replay before this one is its own store, {request.after} (allowed: another)")
    with store_errors():
        if not store_exists(request.after):
            around.said(f"the replay before this one, {request.after}, is gone: the level begins at 1 again")
            return first
    with reading(request.after) as (_, stored):
        was, flags = stored.plan.candidate_url, len(request.run.policy.policy.flags)
        try:
            now = was if was in request.also_called else named(request.run.candidate)
            return after_replay(stored, now, flags, request.prefills)
        except NoWatch as error:
            told = f"{request.after} cannot be gone on from: {error}"
            if not request.begins_anew:
                raise BadInput(told) from error
            around.said(f"{told}; the level begins at 1 again", "watch_anew", "warning")
            return first


def _answers_cut(floor: StoreAddress | None) -> bool:
    if floor is None:
        return False
    with reading(floor) as (_, stored):
        return stored.baseline_pass_cut


def _replicate_request(request: WatchRequest, replay: Finished, previous: ArmRequest) -> RunRequest:
    run = request.run
    assert request.replicate is not None
    return replace(
        run,
        baseline=previous,
        store=request.replicate,
        seed=derived_seed(replay.gate.plan.seed, "replicate of a watch"),
        shape=replace(run.shape, candidate_alone=False, baseline_lanes=1 + len(previous.more_urls)),
        trigger=trigger_of(replay.gate),
        first_replicate=request.number(),
        watching=None,
        gateway=None,
        baseline_store=None,
        budget=None,
        floor=None,
    )
