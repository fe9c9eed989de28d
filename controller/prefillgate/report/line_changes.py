"""What became of a serving line between two looks at it, a sentence for each transition."""

from __future__ import annotations

from collections.abc import Iterator

from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.report.line_view import LineView, RolloutView

_WHERE_IT_STANDS = ("Gating", "Screened")


def changes(before: LineView | None, now: LineView) -> list[str]:
    """One sentence for each thing that is another than before, the answer last. Without `before`: how it stands."""
    told = [f"note: {doubt}" for doubt in now.doubts if before is None or doubt not in before.doubts]
    told += _rollout_changes(before, now)
    told += _condition_changes(before, now)
    told += _decision_changes(before, now)
    return told


def answer(view: LineView) -> RolloutView | None:
    """The rollout that was decided, once it is; None while nothing is, and where another took its place."""
    if view.rollout is None:
        return None
    for each in view.rollout.status.conditions or ():
        if each.type == "Succeeded" and each.status != "Unknown" and each.reason != "Superseded":
            return view.rollout
    return None


def _rollout_changes(before: LineView | None, now: LineView) -> Iterator[str]:
    earlier = None if before is None else before.rollout
    if now.rollout is None:
        if before is None or earlier is not None:
            candidate = now.status.candidate
            seen = (
                "no new candidate was seen"
                if candidate is None
                else f"the candidate {candidate.name} is not judged yet"
            )
            yield f"there is no rollout yet: {seen}"
        return
    if earlier is not None and earlier.name == now.rollout.name:
        return
    told = now.rollout.spec.get("differences")
    what = f": {'; '.join(map(str, told))}" if isinstance(told, list) and told else ""
    yield f"rollout {now.rollout.name}{what}"


def _condition_changes(before: LineView | None, now: LineView) -> Iterator[str]:
    known = {} if before is None else {each.type: each for each in before.conditions}
    for each in now.conditions:
        old = known.get(each.type)
        if old is not None and (old.status, old.reason) == (each.status, each.reason):
            continue
        # at the beginning only where it stands and what is not well
        if before is not None or each.type in _WHERE_IT_STANDS or each in now.not_well:
            yield f"{each.type} {each.status} ({each.reason}): {each.message}"


def _decision_changes(before: LineView | None, now: LineView) -> Iterator[str]:
    if now.rollout is None:
        return
    status, decision = now.rollout.status, now.rollout.status.decision
    same = before is not None and before.rollout is not None and before.rollout.name == now.rollout.name
    earlier = before.rollout.status if same and before is not None and before.rollout is not None else None
    if decision is not None and _answers(earlier) != _answers(status):
        prefills = "" if status.prefills is None else f", {status.prefills}"
        why = f": {decision.sentences[0]}" if decision.sentences else ""
        permissions = f"promotion {decision.promotion.lower()}, rollback {decision.rollback.lower()}"
        yield f"{decision.verdict.upper()} ({decision.reason}{prefills}); {permissions}{why}"
    elif status.prefills is not None and (earlier is None or earlier.prefills != status.prefills):
        yield f"fresh prefills of the candidate: {status.prefills}"


def _answers(status: ProfileRolloutStatus | None) -> tuple[str, ...] | None:
    decision = None if status is None else status.decision
    if decision is None:
        return None
    return decision.verdict, decision.promotion, decision.rollback, decision.reason
