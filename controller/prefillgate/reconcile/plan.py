"""One look at a serving line in, everything that is to be done about it out.

```
view --> accepted? servers? --> what is remembered --> which rollout is current --> floor
     --> the life of each rollout --> promotion --> status of the line --> what people are told
```
The same look gives the same plan, and a plan that was carried out in part is made again from where it came to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from prefillgate.api.kinds.moments import moment
from prefillgate.api.kinds.reasons import ConditionType
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.reconcile.acceptance import baseline_ready, endpoints_ready, line_accepted, rollout_accepted
from prefillgate.reconcile.candidates import candidacy_of, unanswered
from prefillgate.reconcile.effects import (
    CreateRollout,
    Effect,
    KeepFate,
    KeepFloor,
    Plan,
    StopWork,
)
from prefillgate.reconcile.findings import Finding, overridden_finding
from prefillgate.reconcile.floor_due import FloorView, floor_of
from prefillgate.reconcile.history import pruned
from prefillgate.reconcile.lifecycle import Ground, Life, life_of
from prefillgate.reconcile.line_status import line_facts, status_of_line
from prefillgate.reconcile.look import Look
from prefillgate.reconcile.override_words import name_of
from prefillgate.reconcile.overrides import considered
from prefillgate.reconcile.remembered import remembered_of
from prefillgate.reconcile.rollout_status import status_of_ended, status_of_life
from prefillgate.reconcile.seen import RolloutView, flipped, view_of
from prefillgate.reconcile.snapshot import LineSnapshot, WorkKind, WorkState
from prefillgate.reconcile.telling import noticed
from prefillgate.reconcile.told_now import told_at_this_look
from prefillgate.reconcile.watch_due import WatchView, watch_due_at, watch_of


def plan(snapshot: LineSnapshot) -> Plan:
    """What is to be done about a line. Pure."""
    look = look_at(snapshot)
    view = look.view
    read = {name_of(each.thing): each for each in snapshot.rollouts}
    lives = {each.name: life_of(_ground(look, each)) for each in view.rollouts if not each.ended}
    statuses = {each.name: _status(look, each, lives) for each in view.rollouts}
    after = flipped(view, {name: each for name, each in statuses.items() if each.ended_at is not None})
    remembered = remembered_of(after, _ended(statuses), after.promoted)
    facts = line_facts(look, after, remembered, statuses)
    said = told_at_this_look(look, facts)
    notices = noticed(view, said)
    statuses = {
        name: each.model_copy(update={"notices": notices.of_rollouts[name] or None}) for name, each in statuses.items()
    }
    line = status_of_line(facts, look).model_copy(update={"notices": notices.of_line or None})
    before: list[Effect] = [*look.words.before, *_stops(look, lives), *notices.before]
    before += [KeepFate(fate) for fate in remembered.missing]
    if look.floor is not None and look.floor.keep is not None:
        before.append(KeepFloor(look.floor.keep))
    before += look.watch.keep
    if look.candidacy.create is not None:
        before.append(CreateRollout(look.candidacy.create))
    limit = 0 if snapshot.spec is None else snapshot.spec.history_limit
    history = [] if snapshot.spec is None else pruned(view, facts.shown, limit)
    return Plan(
        line=line,
        rollouts={
            each.name: statuses[each.name]
            for each in view.rollouts
            if statuses[each.name] != each.before or each.seen is not read[each.name]  # its profiles are read otherwise
        },
        before=tuple(before),
        after=(*_starts(look, lives), *look.words.after, *notices.after, *history),
        look_again_seconds=_again(look, lives),
    )


def look_at(snapshot: LineSnapshot) -> Look:
    """What is found about the line."""
    view = view_of(snapshot)
    accepted, endpoints = line_accepted(view), endpoints_ready(view)
    ended = [(each.name, each.before) for each in view.rollouts if each.ended]
    candidacy = candidacy_of(view, remembered_of(view, ended, view.promoted), accepted)
    nothing = WatchView(Finding(ConditionType.WATCHING, "False", "WatchOff"))
    look = Look(
        view, considered(view.snapshot, unanswered(view, candidacy)), accepted, endpoints, candidacy, None, nothing
    )
    look = replace(look, floor=_floor(look))
    return replace(look, watch=watch_of(view, accepted.holds, _watch_waits_for(look)))


def _watch_waits_for(look: Look) -> str:
    """What a small replay of the promoted profile waits for, in a sentence; empty where it may begin. A candidate holds
    it back while it is judged or could be, not where it cannot run."""
    floor, judged = look.floor, _judged(look)
    if not look.may_work:
        return "The line cannot be used as it is."
    if not baseline_ready(look.view):
        return "The promoted profile takes no requests."
    if judged is not None:
        return f"{judged} is judged first."
    if floor is None or not floor.usable:
        return "The promoted profile is compared with itself first."
    if floor.broken:
        again = "" if floor.expires_at is None else f" It is compared with itself again at {moment(floor.expires_at)}."
        return f"The promoted profile differs from itself.{again}"
    return "" if look.view.settled else "The servers of the promoted profile are looked at first."


def _judged(look: Look) -> str | None:
    """The rollout that is replayed, or that would be as soon as it is its turn: not one that a person's hold or
    rollback stops, or whose replay cannot be carried out as it is asked for."""
    current, candidacy = look.candidacy.current, look.candidacy
    if current is None or candidacy.create is not None or current.running:
        return candidacy.name
    if current.refused or current.name in look.words.standing or look.endpoints.status == "False":
        return None
    return current.name if rollout_accepted(look.view, current, look.accepted).holds else None


def _floor(look: Look) -> FloorView | None:
    """The floor, where it can be known: the baseline and the cases are."""
    view = look.view
    if not look.accepted.holds or view.promoted is None:
        return None
    may_start = look.may_work and view.settled and view.snapshot.book.trouble is None and baseline_ready(view)
    return floor_of(view, look.candidacy.current, look.candidacy.name is not None, may_start, watch_due_at(view))


def _ground(look: Look, rollout: RolloutView) -> Ground:
    row = look.words.conditions.get(rollout.name)
    return Ground(
        view=look.view,
        rollout=rollout,
        candidacy=look.candidacy,
        accepted=rollout_accepted(look.view, rollout, look.accepted),
        endpoints=look.endpoints,
        floor=look.floor,
        override=look.words.standing.get(rollout.name),
        overridden=overridden_finding(row),
        handled=look.words.rollout_handled.get(rollout.name),
    )


def _status(look: Look, rollout: RolloutView, lives: Mapping[str, Life]) -> ProfileRolloutStatus:
    """The status of a rollout after this look, its wish for a rerun answered."""
    ground, life = _ground(look, rollout), lives.get(rollout.name)
    status = status_of_ended(ground) if life is None else status_of_life(ground, life)
    wish = next((each for each in look.candidacy.reruns if each.on is not None and each.on.uid == rollout.uid), None)
    return status if wish is None else status.model_copy(update={"last_handled_rerun": wish.value})


def _ended(statuses: Mapping[str, ProfileRolloutStatus]) -> list[tuple[str, ProfileRolloutStatus]]:
    return [(name, status) for name, status in statuses.items() if status.ended_at is not None]


def _starts(look: Look, lives: Mapping[str, Life]) -> list[Effect]:
    """What begins. While the servers looked at are those of an older baseline nothing does."""
    if not look.view.settled:
        return []
    started: list[Effect] = [life.start for life in lives.values() if life.start is not None]
    of_line = (None if look.floor is None else look.floor.start, look.watch.start)
    return started + [each for each in of_line if each is not None]


def _stops(look: Look, lives: Mapping[str, Life]) -> list[Effect]:
    """What runs and may not."""
    if look.accepted.status == "Unknown" and not (look.view.suspended or look.view.deleting):
        return []  # something was not read yet: no reason to end anything
    allowed = {each.uid for each in look.view.rollouts if each.name in lives and lives[each.name].may_run}
    if look.floor is not None and look.may_work:
        allowed.add(look.floor.key)
    if look.watch.key is not None and look.may_work:
        allowed.add(look.watch.key)
    running = [each for each in look.view.snapshot.works if each.state is WorkState.RUNNING]
    if look.view.snapshot.book.trouble is not None and look.may_work:  # which floor and which watch are due is unknown
        running = [each for each in running if each.kind is WorkKind.JUDGE]
    return [StopWork(each.key, _why(look)) for each in running if each.key not in allowed]


def _why(look: Look) -> str:
    if look.view.deleting:
        return "The line is being deleted."
    if look.view.suspended:
        return "The line is suspended."
    return "The line cannot be used as it is." if not look.accepted.holds else "Nothing asks for it any more."


def _again(look: Look, lives: Mapping[str, Life]) -> float | None:
    """When something is due though nothing changes."""
    times = [at for life in lives.values() for at in life.look_at]
    if look.floor is not None:
        times += [at for at in (look.floor.retry_at, look.floor.expires_at) if at is not None]
    times += look.watch.look_at
    if look.words.expires_at is not None:
        times.append(look.words.expires_at)
    left = [at - look.view.now for at in times if at > look.view.now]
    return min(left, default=None)
