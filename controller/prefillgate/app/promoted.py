"""What replays of the promoted profile alone came to: its floor, and the small replays after its promotion."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from prefillgate.app.aside import Aside
from prefillgate.app.orders import Asked, server_request
from prefillgate.app.replay_thread import Answer, Turn
from prefillgate.app.watching_run import RunWatcher
from prefillgate.core.decision import Reason
from prefillgate.reconcile.snapshot import FloorFound, WatchFound
from prefillgate.replay.session import ArmRequest
from prefillgate.runs.budget import MENDABLE
from prefillgate.runs.errors import RunBroken
from prefillgate.runs.floor import FloorEnded
from prefillgate.runs.watch import WatchEnded

ANSWERED = frozenset({str(Reason.REGRESSION_CONFIRMED), str(Reason.REGRESSION_NOT_CONFIRMED)})


def replicate_run(run: str) -> str:
    """The name of the run that answers the alarm of a small replay."""
    return f"{run}-replicate"


def may_be_mended(floor: FloorEnded) -> bool:
    """Whether the floor ended for no more than that a server was away or in use: it says nothing, and is gone on
    with."""
    reason = floor.finished.verdict.decision.reason
    return floor.sound is None and reason in {str(each) for each in MENDABLE}


def floor_answer(floor: FloorEnded, watcher: RunWatcher) -> Answer:
    """What a floor found; its journal is closed. Raises `RunBroken` where it could not be measured to its end."""
    watcher.ended(floor.finished.journal, floor.finished.verdict)
    floor.finished.journal.close()
    if may_be_mended(floor):
        raise RunBroken(floor.sentence)
    shown = floor.shown
    found = FloorFound(
        sound=floor.sound,
        sentence=floor.sentence,
        prefills=shown.prefills,
        bad_prefills=shown.bad_prefills,
        noise_cv=shown.noise_cv,
        identical=shown.identical,
        compared=shown.compared,
    )
    return Answer(floor=found)


def watch_answer(ended: WatchEnded, turn: Turn) -> Answer:
    """What a small replay found, with what the ones before it left: an alarm that no replicate answered stands, and so
    does what one confirmed. Its journals are closed."""
    last = ended.replay if ended.replicate is None else ended.replicate
    turn.watcher.ended(last.journal, last.verdict)
    ended.close()
    before = _before(turn.asked)
    stands = bool(before.get("alarm") or before.get("rollback"))
    goes_on = not ended.alarm and stands
    found = WatchFound(
        prefills=ended.view.prefills_since,
        bad_prefills=ended.view.bad_since,
        alarm=bool(before.get("alarm")) if goes_on else ended.alarm and ended.reason not in ANSWERED,
        sentence=ended.sentence,
        reason=str(before.get("reason") or "") if goes_on else ended.reason,
        rollback=ended.rollback or bool(before.get("rollback")),
        replicate_run="" if ended.replicate is None else replicate_run(turn.asked.order.key),
    )
    return Answer(watch=found)


def _before(asked: Asked) -> Mapping[str, Any]:
    """What the line's status says of the replay before this one."""
    status = asked.snapshot.line.get("status") or {}
    seen: Mapping[str, Any] = status.get("watch") or {}
    return seen if asked.order.after is not None and seen.get("lastRun") == asked.order.after else {}


@dataclass(frozen=True, slots=True)
class Previous:
    """Servers of the previous profile, for the replicate of an alarm."""

    asked: Asked
    digest: str
    aside: Aside | None = None

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[ArmRequest | None]:
        """One that runs already (`watch.previous: Retain`), or a pod that is made for it (`Scratch`)."""
        watch = self.asked.spec.watch
        if self.aside is not None and watch is not None and watch.previous == "Scratch":
            async with self.aside.scratch(self.asked, self.digest) as made:
                yield server_request(self.asked, self.digest, made.url)
            return
        arms = (self.asked.snapshot.baseline, self.asked.snapshot.candidate)
        ready = [each for arm in arms if arm is not None and arm.digest == self.digest for each in arm.ready]
        yield server_request(self.asked, self.digest, ready[0].url) if ready and ready[0].url is not None else None
