"""A decision said anew where something goes before the evidence: a person, a newer candidate, a line that tries out.

Each takes the decision that the evidence comes to and leaves its words standing after its own first sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

from prefillgate.api.kinds.common import DecisionWord
from prefillgate.api.kinds.moments import moment
from prefillgate.api.kinds.reasons import ROWS, ConditionType
from prefillgate.api.kinds.rollout_status import DecisionStatus, OverrideStatus
from prefillgate.core.decision import ERRORS, Reason
from prefillgate.core.sentences import BY_A_PERSON
from prefillgate.reconcile.answer import lines

NOT_STARTED, NO_ROLLOUT, SUPERSEDED, DRY_RUN = "NotStarted", "NoRollout", "Superseded", "DryRun"
_TO_GO_ON = {  # beside a person's word
    Reason.SPEC_INVALID: "What is named put right: it goes on from where it was.",
    "NotAccepted": "What is named made anew or put right: it goes on from where it was.",
    "DigestMismatch": "What was changed put back, or a rerun (annotation prefillgate.io/rerun): a rollout by what the "
    "line says now.",
}


def sentence_of(reason: str) -> str:
    """The sentence of a decision's reason, as the condition PromotionAllowed has it. Raises KeyError for another."""
    return ROWS[ConditionType.PROMOTION_ALLOWED, reason].sentence


def not_started(at: float) -> DecisionStatus:
    """Before the first cell: nothing is allowed, and it goes on."""
    return _decision("Continue", NOT_STARTED, (), at)


def superseded(decision: DecisionStatus | None, by: str | None, at: float) -> DecisionStatus:
    """Something else took its place (`by`: the rollout's name): nothing is allowed by it any more."""
    own = [] if by is None else [f"The rollout {by} took its place; the evidence of this one is kept."]
    return _decision("Hold", SUPERSEDED, (*own, *_words(decision)), at, decision)


def deleting(decision: DecisionStatus | None, at: float) -> DecisionStatus:
    """The object is going away."""
    return _decision("Hold", Reason.DELETING, _words(decision), at, decision)


def held(reason: str, detail: str, decision: DecisionStatus | None, at: float) -> DecisionStatus:
    """Held by what is no evidence: a spec that cannot be read, a deadline, an instrument that is broken. `detail`: a
    sentence of what a person must know, or nothing."""
    return _by_a_person(_decision("Hold", reason, (detail, *_words(decision)), at, decision))


def not_accepted(accepted: str, detail: str, decision: DecisionStatus | None, at: float) -> DecisionStatus:
    """Held since it cannot be used: `accepted` is the reason of its condition Accepted, `detail` what that says."""
    reason = accepted if accepted in _TO_GO_ON else "NotAccepted"
    told = held(reason, detail, decision, at)
    return told.model_copy(update={"what_would_change": [_TO_GO_ON[reason], *(told.what_would_change or ())]})


def unavailable(detail: str, decision: DecisionStatus | None, at: float) -> DecisionStatus:
    """The candidate takes no requests: rollback at once, and no claim about its quality."""
    return _by_a_person(_decision("Rollback", Reason.CANDIDATE_UNAVAILABLE, (detail, *_words(decision)), at, decision))


def tried_out(decision: DecisionStatus) -> DecisionStatus:
    """On a line that only tries out (`dryRun`): the word is kept, and nothing is allowed. What allows nothing anyway
    stays as it is."""
    if decision.promotion == "Blocked" and decision.rollback == "Refused":
        return decision
    would = f"Without dryRun this would be {decision.verdict} ({decision.reason})."
    sentences = lines([sentence_of(DRY_RUN), would, *decision.sentences])
    update = {"promotion": "Blocked", "rollback": "Refused", "reason": DRY_RUN, "sentences": sentences}
    return decision.model_copy(update=update)


def overridden(decision: DecisionStatus | None, override: OverrideStatus, at: float) -> DecisionStatus:
    """A person's word goes before the evidence, whose sentences stand after it."""
    verified = "" if override.actor_verified else " (not verified)"
    until = [] if override.expires is None else [f"That holds until {override.expires}."]
    own = (f"{override.actor}{verified}: {override.reason}", *until)
    told = _decision(override.verdict, Reason.OVERRIDE, (*own, *_words(decision)), at, decision)
    over = "The override taken away, by removing its annotations" + (", or over." if until else ".")
    return told.model_copy(update={"what_would_change": [over]})


def _by_a_person(decision: DecisionStatus) -> DecisionStatus:
    return decision.model_copy(update={"what_would_change": [BY_A_PERSON]})


def _words(decision: DecisionStatus | None) -> Sequence[str]:
    return () if decision is None else decision.sentences


def _decision(
    verdict: DecisionWord, reason: str, after: Sequence[str], at: float, evidence: DecisionStatus | None = None
) -> DecisionStatus:
    """A decision that begins with its reason's sentence. What is allowed follows from the word alone."""
    return DecisionStatus.model_validate(
        {
            "verdict": verdict,
            "promotion": "Allowed" if verdict == "Promote" else "Blocked",
            "rollback": "Allowed" if verdict == "Rollback" else "Refused",
            "reason": str(reason),
            "sentences": lines(dict.fromkeys([sentence_of(reason), *after])),
            "cause": "Unverified" if evidence is None else evidence.cause,
            "measured": reason not in ERRORS,
            "at": moment(at),
        }
    )
