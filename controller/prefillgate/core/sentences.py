"""The words of an answer: what was seen in requests and in prefills, what follows, what would change it.

Every number is taken from the facts; a sentence never claims more than its prefills support.
"""

from __future__ import annotations

import math

from prefillgate.core.acceptance import more_clean_units_needed, power, unplanned_units
from prefillgate.core.cells import CANDIDATE
from prefillgate.core.decision import ERRORS, Reason
from prefillgate.core.evalue import replicate_threshold
from prefillgate.core.facts import Facts
from prefillgate.core.gateway import gateway_sentence
from prefillgate.core.replicate import Ending, Replicate
from prefillgate.core.sentences_shape import (
    ALARM_OF_WATCH,
    BY_A_PERSON,
    WITHOUT_BASELINE,
    judges_nobody,
    shape_sentences,
    what_would_change_alone,
)
from prefillgate.core.verdict import ArmCounts, Outcome, ThroughputState

POPULATION_PROMPTS = 48

REASON_SENTENCES: dict[Reason, str] = {
    Reason.DELETING: "The rollout is being deleted; nothing is decided.",
    Reason.SPEC_INVALID: "The specification cannot be read; nothing is decided.",
    Reason.OVERRIDE: "A person overrode the gate.",
    Reason.CANDIDATE_UNAVAILABLE: "The candidate stopped accepting requests: rollback is allowed for its "
    "availability; nothing is claimed about its quality.",
    Reason.ALREADY_DECIDED: "A regression was confirmed earlier; that stands.",
    Reason.REGRESSION_CONFIRMED: "A replicate with fresh prefills confirmed the regression: rollback is allowed.",
    Reason.FLOOR_MEASURED: "The instrument is sound: two passes over the baseline look alike. That judges nobody.",
    Reason.NO_ALARM: "No alarm: the small replay after the promotion is over.",
    Reason.DEADLINE: "The deadline passed before the evidence sufficed.",
    Reason.ALARM_WITHOUT_BASELINE: "An alarm: promotion is blocked, and rollback is refused, since only a replicate "
    "against a baseline could confirm the regression and this run has none.",
    Reason.REPLICATE_DUE: "An alarm: promotion is blocked, and rollback is refused until a replicate with fresh "
    "prefills confirms the regression.",
    Reason.REPLICATE_RUNNING: "A replicate with fresh prefills is running: promotion is blocked and rollback refused "
    "until it ends.",
    Reason.REGRESSION_NOT_CONFIRMED: "The suspected regression was not confirmed and not cleared: a person decides.",
    Reason.SLOWER: "The candidate decodes more slowly than the margin allows; that holds and never rolls back.",
    Reason.SERVER_LOST: "The acceptance table is reached, but a server of the candidate stopped taking requests: "
    "nothing is promoted until it is back or a person has looked.",
    Reason.THROUGHPUT_OPEN: "Quality is accepted, but decode throughput could not be shown to be not worse.",
    Reason.BUDGET_SPENT: "The budget of prefills is spent before the evidence sufficed.",
    Reason.MORE_EVIDENCE_NEEDED: "Not enough fresh prefills yet to promote, and no confirmed regression.",
}

SPEED_OPEN = "The fresh prefills are enough to promote; that decode throughput is not worse is not shown yet."


def percent(rate: float) -> str:
    """A rate as a person writes it: 20 %, 2.5 %, 0.4 %."""
    return f"{100 * rate:.3g} %"


def sentences(facts: Facts, arms: tuple[ArmCounts | None, ArmCounts]) -> tuple[str, ...]:
    """What a person reads first, most important first. `arms` are (baseline, candidate); None: it was not there."""
    baseline, candidate = arms
    parts = [
        _headline(facts),
        _rollback(facts, candidate),
        _seen("candidate", candidate, facts),
        _seen("baseline", baseline, facts),
        *shape_sentences(facts),
        *(_replicate(replicate) for replicate in facts.replicates),
        gateway_sentence(facts.gateway),
        facts.throughput.sentence,
        _outputs(facts),
        _population(facts),
    ]
    return tuple(part for part in parts if part)


def _headline(facts: Facts) -> str:
    reason = facts.ruling.reason
    if reason is Reason.ACCEPTANCE_REACHED:
        return _promote(facts)
    if reason is Reason.OVERRIDE:
        return f"{REASON_SENTENCES[reason]} {facts.override_note}".strip()
    if facts.snapshot.distrust is not None and reason is facts.snapshot.distrust.reason:
        prefix = "Could not measure" if reason in ERRORS else "The measurement cannot be trusted"
        return f"{prefix}: {facts.snapshot.distrust.sentence}."
    if reason is Reason.MORE_EVIDENCE_NEEDED and facts.snapshot.acceptance_reached:
        return SPEED_OPEN
    if reason is Reason.ALARM_WITHOUT_BASELINE and facts.watch is not None:
        return ALARM_OF_WATCH
    return REASON_SENTENCES[reason]


def _promote(facts: Facts) -> str:
    """What was excluded, and what was not."""
    margin, half = facts.policy.margin, facts.policy.margin / 2
    passed = power(facts.table, half).promote
    return (
        f"Promotion is allowed: {facts.bad} bad in {facts.units} fresh prefills exclude a bad rate of "
        f"{percent(margin)} or more (error at most {percent(facts.policy.alpha)}). Not excluded: a candidate bad in "
        f"{_one_in(half)} would have passed {percent(round(passed, 2))} of the time."
    )


def _one_in(rate: float) -> str:
    whole = round(1 / rate)
    return f"1 of {whole}" if math.isclose(whole * rate, 1) else percent(rate)


def _seen(name: str, arm: ArmCounts | None, facts: Facts) -> str | None:
    if arm is None or not arm.requests:
        return None
    parts = [f"{arm.copies} copies", f"{arm.partial} partial", f"{arm.unknown} unknown", f"{arm.orphans} orphans"]
    parts.append(f"{facts.unjudged(name)} never judged")
    rest = ", ".join(part for part in parts if not part.startswith("0 "))
    return (
        f"{name.capitalize()}: {arm.bad_requests} of {arm.requests} requests bad; by prefill {arm.bad_prefills} of "
        f"{arm.prefills}" + (f" ({rest})" if rest else "") + "."
    )


def _replicate(replicate: Replicate) -> str:
    view = replicate.view()
    name = f"Replicate {view.number}"
    apart = f"; kept apart by {view.separation}" if view.separation else ""
    seen = f"{view.candidate_bad} of {view.candidate_units} fresh candidate prefills bad"
    e_value = f"E = {view.e_value:.3g} against {view.threshold:g}"
    if view.ending is None:
        return f"{name} is running: {seen}, {e_value}{apart}."
    if view.ending == Ending.CONFIRMED:
        prompts = ", ".join(view.carrying_prompts)
        return f"{name} confirmed the regression: {seen}, {e_value}, carried by {prompts}{apart}."
    if view.ending == Ending.CLEAN and view.candidate_rate_upper is not None:
        return f"{name} not confirmed: {seen} (rate below {view.candidate_rate_upper:.3f} at 95 %){apart}."
    why = f", {replicate.aborted}" if replicate.aborted else ""
    return f"{name} not confirmed ({view.ending}{why}): {seen}, {e_value}{apart}."


def _outputs(facts: Facts) -> str | None:
    outputs = distinct_outputs(facts)
    fresh = facts.counts(CANDIDATE).prefills
    if outputs is None or not fresh:
        return None
    return f"Candidate: {fresh} prefills of {len(facts.cases)} prompts, {outputs} distinct outputs."


def distinct_outputs(facts: Facts) -> int | None:
    """How many different outputs the candidate's fresh units brought; None where no output digest is known."""
    return facts.outputs()


def _population(facts: Facts) -> str | None:
    if len(facts.cases) >= POPULATION_PROMPTS or facts.ruling.decision is not Outcome.PROMOTE:
        return None
    return f"This speaks of these {len(facts.cases)} prompts, not of a population of prompts (that takes 48 or more)."


def _rollback(facts: Facts, candidate: ArmCounts) -> str | None:
    if facts.ruling.decision is Outcome.ROLLBACK or not facts.ever_alarmed:
        return None
    return (
        f"Rollback is refused: {candidate.bad_requests} bad requests hang off {candidate.bad_prefills} bad "
        f"{'prefill' if candidate.bad_prefills == 1 else 'prefills'}, "
        "and no replicate with fresh prefills has confirmed a regression."
    )


def _share_of_a_prompt(facts: Facts) -> list[str]:
    """Why more are missing than n says, in a log whose prefills lie on few prompts."""
    plain = more_clean_units_needed(facts.table, facts.units, facts.bad, len(facts.cases))
    if not facts.from_log or plain == facts.clean_prefills_needed:
        return []
    most = unplanned_units(facts.policy.acceptance[facts.bad], len(facts.cases))
    return [f"In a log the gate did not plan one prompt supplies at most {most} prefills to that."]


def what_would_change(facts: Facts) -> tuple[str, ...]:
    """What would change the answer, most likely first."""
    ruling, policy = facts.ruling, facts.policy
    if ruling.decision is Outcome.PROMOTE:
        return (f"More than {len(policy.acceptance) - 1} bad prefills would block promotion again.",)
    if ruling.decision is Outcome.ROLLBACK:
        return (BY_A_PERSON,)
    if judges_nobody(facts):
        return what_would_change_alone(facts)
    if ruling.reason is Reason.ALARM_WITHOUT_BASELINE:
        return WITHOUT_BASELINE
    if ruling.reason is Reason.SERVER_LOST:
        return ("The lost server back, and the same command again.", BY_A_PERSON)
    parts = [] if facts.budget_needed is None else [facts.budget_needed.sentence]
    if facts.snapshot.distrust is not None:
        parts.append("A measurement that can be trusted: see the first sentence.")
    elif facts.clean_prefills_needed is not None:
        if facts.clean_prefills_needed:
            parts.append(f"{facts.clean_prefills_needed} more clean fresh prefills would promote.")
            parts += _share_of_a_prompt(facts)
        if facts.snapshot.throughput_required and facts.throughput.pairs_needed:
            parts.append(f"About {facts.throughput.pairs_needed} more throughput pairs would decide the speed.")
        elif facts.snapshot.throughput_required and facts.snapshot.throughput is ThroughputState.OPEN:
            parts.append("Throughput pairs that show the speed to be not worse; those so far do not lead there.")
    else:
        parts.append(
            f"No number of clean prefills promotes with {facts.bad} bad; the table allows {len(policy.acceptance) - 1}."
        )
    number = (facts.plan.first_replicate if facts.plan else 1) + len(facts.replicates)
    running = [replicate for replicate in facts.replicates if replicate.ending() is None]
    if running:
        parts.append(f"Replicate {running[0].plan.number} reaching E >= {running[0].threshold:g} would allow rollback.")
    elif facts.snapshot.alarm:
        threshold = replicate_threshold(number, policy.replicate, len(policy.flags))
        parts.append(f"A fresh replicate reaching E >= {threshold:g} would allow rollback.")
    parts.append(BY_A_PERSON)
    return tuple(parts)


__all__ = [
    "BY_A_PERSON",
    "CANDIDATE",
    "REASON_SENTENCES",
    "distinct_outputs",
    "percent",
    "sentences",
    "what_would_change",
]
