"""What an answer says of the shape of its run: which arm was not there, what it took over from runs before it, and who
else used the servers."""

from __future__ import annotations

from collections.abc import Iterator

from prefillgate.core.cells import BASELINE
from prefillgate.core.decision import Reason
from prefillgate.core.earlier import Trigger
from prefillgate.core.facts import Facts
from prefillgate.core.floor import floor_sentence
from prefillgate.core.stored_baseline import baseline_sentence
from prefillgate.core.watching import watch_sentence

BY_A_PERSON = "An override by a person with a reason."
WITHOUT_BASELINE = ("A new run with --baseline: a replicate on both arms could answer the alarm.", BY_A_PERSON)
ALARM_OF_WATCH = (
    "An alarm after the promotion: rollback is refused until a replicate with fresh prefills on the promoted and the "
    "previous profile confirms the regression."
)
SAME_COMMAND = "The same command again: what is measured stands, and it goes on."


def shape_sentences(facts: Facts) -> Iterator[str]:
    """A sentence for each thing about the shape that a reader of the counts must know."""
    if facts.watch is not None:
        yield watch_sentence(facts.watch, facts.alarm_level, facts.alarm_at)
    elif BASELINE not in facts.arms:
        yield from _without_baseline(facts)
    if facts.plan is not None and facts.plan.trigger is not None:
        yield _trigger(facts.plan.trigger)
    if facts.floor is not None:
        yield floor_sentence(facts.floor)
    if facts.baseline_shown is not None:
        yield baseline_sentence(facts.baseline_shown)
    if facts.plan is not None and facts.plan.shape.sequential:
        yield (
            "One server at a time: for decode speed and in a replicate a pair of windows is one observation, however "
            "many prompts it holds."
        )
    if facts.plan is not None and facts.plan.shape.shared:
        yield (
            "Isolation shared: the servers served others meanwhile; a prefill counts as fresh by what its own response "
            "tells, never by the server's totals."
        )


def _without_baseline(facts: Facts) -> Iterator[str]:
    if facts.from_log:
        yield "Baseline: no cell in this log; the candidate is judged by the acceptance table alone."
        return
    unseen = "" if facts.baseline_shown is not None else ", by checks that were never seen to pass on a good server"
    yield f"Baseline: none in this run; the candidate is judged by the acceptance table alone{unseen}."
    if facts.ruling.reason is Reason.CANDIDATE_UNAVAILABLE:
        yield "What to roll back to was no part of this run."


def _trigger(trigger: Trigger) -> str:
    return (
        f"This replicate answers the alarm of run {trigger.run_id} ({trigger.bad_prefills} of {trigger.prefills} fresh "
        f"prefills bad since the promotion, last on {', '.join(trigger.cases)}); none of those enters it."
    )


def judges_nobody(facts: Facts) -> bool:
    """Whether it is a floor or a small replay after a promotion: no number of prefills promotes by it."""
    return facts.watch is not None or (facts.plan is not None and facts.plan.shape.baseline_alone)


def what_would_change_alone(facts: Facts) -> tuple[str, ...]:
    """What would change the answer of a run that judges nobody."""
    if facts.snapshot.distrust is not None:
        return ("A measurement that can be trusted: see the first sentence.",)
    reason = facts.ruling.reason
    if reason is Reason.ALARM_WITHOUT_BASELINE:
        return ("A fresh replicate against a server of the previous profile.", BY_A_PERSON)
    if reason is Reason.FLOOR_MEASURED:
        return ("A floor decides nothing: prefillgate run --floor goes by it.",)
    if reason is Reason.NO_ALARM:
        return ("Bad prefills in a later replay that raise the level to the one that alarms.",)
    return (SAME_COMMAND,)
