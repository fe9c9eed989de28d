"""Which rule stands behind a reason, what that rule says, and what its answer does and does not claim."""

from __future__ import annotations

from dataclasses import dataclass

from prefillgate.core import decision as rules
from prefillgate.core.decision import ERRORS, RULES, Reason, Rule
from prefillgate.core.verdict import Rollback, Verdict
from prefillgate.report.words import number, percent

RULE_SAYS: dict[Rule, str] = {
    rules.deleting: "nothing is decided about a rollout that is being deleted",
    rules.spec_invalid: "a specification that cannot be read decides nothing",
    rules.override: "a person's word goes before the evidence",
    rules.candidate_unavailable: "a candidate that stopped accepting requests may be rolled back at once",
    rules.already_decided: "a regression that was confirmed stays confirmed",
    rules.measurement_not_trustworthy: "a measurement that cannot be trusted decides nothing, in either direction",
    rules.regression_confirmed: "a replicate with fresh prefills that reaches its threshold allows rollback",
    rules.finished: "a floor, or a small replay after a promotion, judges nobody and ends once it is measured",
    rules.deadline: "when the time is over, nothing more is claimed than was shown",
    rules.alarm_without_baseline: "an alarm that no replicate can answer, for want of a baseline, is a person's to "
    "decide",
    rules.replicate_due_or_running: "an alarm blocks promotion until a replicate with fresh prefills has answered it",
    rules.not_confirmed: "with too many bad prefills, or no replicate left to run, a person decides",
    rules.throughput_worse: "a slower candidate is held, and never rolled back for that",
    rules.acceptance_reached: "promotion takes the acceptance table, every server of the candidate, and decode speed "
    "that is not worse where that is required",
    rules.budget_spent: "a run spends its budget of prefills and no more",
    rules.more_evidence_needed: "while nothing is decided the run goes on",
}
"""What each rule says, in the words of one that hit."""

RULE_OF: dict[Reason, Rule] = {
    Reason.DELETING: rules.deleting,
    Reason.SPEC_INVALID: rules.spec_invalid,
    Reason.OVERRIDE: rules.override,
    Reason.CANDIDATE_UNAVAILABLE: rules.candidate_unavailable,
    Reason.ALREADY_DECIDED: rules.already_decided,
    Reason.REGRESSION_CONFIRMED: rules.regression_confirmed,
    Reason.FLOOR_MEASURED: rules.finished,
    Reason.NO_ALARM: rules.finished,
    Reason.DEADLINE: rules.deadline,
    Reason.ALARM_WITHOUT_BASELINE: rules.alarm_without_baseline,
    Reason.REPLICATE_DUE: rules.replicate_due_or_running,
    Reason.REPLICATE_RUNNING: rules.replicate_due_or_running,
    Reason.REGRESSION_NOT_CONFIRMED: rules.not_confirmed,
    Reason.SLOWER: rules.throughput_worse,
    Reason.ACCEPTANCE_REACHED: rules.acceptance_reached,
    Reason.THROUGHPUT_OPEN: rules.acceptance_reached,
    Reason.SERVER_LOST: rules.acceptance_reached,
    Reason.BUDGET_SPENT: rules.budget_spent,
    Reason.MORE_EVIDENCE_NEEDED: rules.more_evidence_needed,
}
"""The rule of a reason; every other reason is one not to trust the measurement."""

CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class Hit:
    """The rule that answered, counted from 1 among all of them."""

    number: int
    of: int
    says: str


def rule_of(verdict: Verdict) -> Hit:
    """The rule behind the verdict's reason. Raises ValueError for a reason that is none."""
    reason = Reason(verdict.decision.reason)
    rule = RULE_OF.get(reason, rules.measurement_not_trustworthy)
    if reason is Reason.BUDGET_SPENT and verdict.alarm:  # the alarm's rule finds nothing left for its replicate
        rule = rules.replicate_due_or_running
    return Hit(RULES.index(rule) + 1, len(RULES), RULE_SAYS[rule])


def bound(verdict: Verdict, alpha: float) -> str:
    """How often an answer like this one would be wrong, or what it does not claim. `alpha` is the policy's."""
    reason = Reason(verdict.decision.reason)
    if reason in ERRORS:
        return "This is an error of the measurement: it says nothing about the candidate, good or bad."
    if reason is Reason.OVERRIDE:
        return "No error bound stands behind it: it is a person's decision, and every report says whose."
    if reason is Reason.CANDIDATE_UNAVAILABLE:
        return "This is availability: nothing is claimed about the candidate's answers."
    if reason is Reason.ACCEPTANCE_REACHED:
        return (
            f"Error bound: a candidate bad in {percent(verdict.margin)} of its prefills or more reaches this table in "
            f"at most {percent(alpha)} of runs, however often one looks."
        )
    if verdict.decision.rollback is Rollback.ALLOWED:
        return _rollback_bound(verdict)
    if reason is Reason.SLOWER:
        return "It holds for speed alone: no claim is made about the candidate's answers."
    if reason is Reason.FLOOR_MEASURED:
        return "Error bound: a sound instrument is called broken in at most 1 of 10 floors (four tests at E = 40)."
    if reason is Reason.NO_ALARM:
        return (
            "No alarm claims nothing. By the standard rates a profile bad in 2 % of its prefills raises one in 17,500 "
            "on average, one bad in 30 % after 14."
        )
    told = "A hold claims nothing: the candidate was neither shown to be good enough nor shown to be worse."
    if verdict.alarm or reason is Reason.REGRESSION_NOT_CONFIRMED:
        told += " An alarm is no verdict: healthy profiles raise one now and then, so it never allows a rollback."
    return told


def _rollback_bound(verdict: Verdict) -> str:
    for replicate in verdict.replicates:
        if replicate.ending == CONFIRMED:
            return (
                f"Error bound: replicate {replicate.number} had to reach E = {number(replicate.threshold)}, which a "
                f"candidate no worse than the baseline does in at most 1 of {number(replicate.threshold)} replicates, "
                "however often one looks."
            )
    return "It was confirmed before this run; its error bound stands in the evidence of that time."
