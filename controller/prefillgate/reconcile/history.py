"""Which ended rollouts are removed: the oldest beyond the limit. Their evidence stays, and what they decided too."""

from __future__ import annotations

from prefillgate.reconcile.effects import DeleteRollout, Effect, Tell
from prefillgate.reconcile.seen import LineView


def pruned(view: LineView, shown: str | None, limit: int) -> list[Effect]:
    """The rollouts to be removed, each with its event. The one that the line's status tells of stays."""
    ended = [each for each in view.rollouts if each.ended and not each.deleting and each.name != shown]
    kept = limit - 1 if any(each.name == shown and each.ended for each in view.rollouts) else limit
    effects: list[Effect] = []
    for each in ended[: max(len(ended) - kept, 0)]:
        effects.append(DeleteRollout(each.name, each.uid))
        note = f"{each.name} ended at {each.before.ended_at} and was removed: spec.historyLimit is {limit}."
        effects.append(Tell("RolloutPruned", note, f"pruned/{each.uid}"))
    return effects
