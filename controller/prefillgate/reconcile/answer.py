"""A verdict of the core as the parts of a rollout's status: the same numbers and words, within the bounds of the kinds.

Texts of servers and people are made harmless here. A list that is too long is cut and says so. Rates are rounded
away from what they would claim: an interval outward, a rate never to none or all where it is neither.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prefillgate.api.areas import AREAS
from prefillgate.api.kinds.moments import moment
from prefillgate.api.kinds.rollout_status import (
    DECISION_WORDS,
    MOST_REPLICATES,
    CountsStatus,
    DecisionStatus,
    DifferenceStatus,
    ReplicateStatus,
    ThroughputStatus,
)
from prefillgate.core.decision import Reason
from prefillgate.core.journal import Difference
from prefillgate.core.verdict import (
    ArmCounts,
    Decision,
    Interval,
    Outcome,
    ReplicateView,
    ThroughputView,
    Verdict,
)
from prefillgate.report.clean import one_line

LONGEST_LINE = 1024
LONGEST_WORD = 63
LONGEST_CAUSE = 256
LONGEST_NAME = 256
LONGEST_SIDE = 2048
LONGEST_SUMMARY = 4096
MOST_SENTENCES = 16
MOST_DIFFERENCES = 100
MOST_IN_WORDS = 8
_LONGEST_SIDE_IN_WORDS = 160
_ALL = 10_000
_MOST_RATIO = 10_000_000
_MOST_COUNT = 2**53 - 1
_MOST_NUMBER = 1_000_000
_FROM_BELOW, _FROM_ABOVE = 1e-9, -1e-9  # what an interval's end in binary may be off a whole hundredth of a percent
_KIND_OF_AREA = {words: kind for kind, words in AREAS.items()}
_SEPARATIONS = {"gap": "Gap", "restart": "Restart", "another_process": "AnotherProcess"}
_GOES_ON = frozenset({Reason.REPLICATE_DUE, Reason.REPLICATE_RUNNING, Reason.MORE_EVIDENCE_NEEDED})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a ProfileRollout's status says of a verdict."""

    decision: DecisionStatus
    prefills: str  # "0 bad of 32"
    counts: CountsStatus
    replicates: list[ReplicateStatus]
    throughput: ThroughputStatus
    differences: list[DifferenceStatus]
    summary: str  # the differences in one line of words; empty where none is known


def answered(verdict: Verdict, at: float) -> Answer:
    """The parts of the status that come from a verdict. `at` (seconds since the epoch) is when it became this."""
    return Answer(
        decision=decision_of(verdict.decision, at),
        prefills=prefills_of(verdict.candidate),
        counts=_counts(verdict),
        replicates=[_replicate(each) for each in verdict.replicates[-MOST_REPLICATES:]],
        throughput=_throughput(verdict.throughput),
        differences=[_difference(each) for each in _declared_first(verdict.differences)[:MOST_DIFFERENCES]],
        summary=differences_in_words(_declared_first(verdict.differences)),
    )


def decision_of(decision: Decision, at: float) -> DecisionStatus:
    """The answer of the core. What it would have gone on with is Continue here: a rollout is not asked once."""
    return DecisionStatus.model_validate(
        {
            "verdict": DECISION_WORDS[Outcome.CONTINUE if goes_on(decision) else decision.decision],
            "promotion": decision.promotion.value,
            "rollback": decision.rollback.value,
            "reason": bounded(decision.reason, LONGEST_WORD),
            "sentences": lines(decision.sentences),
            "whatWouldChange": lines(decision.what_would_change) or None,
            "cause": bounded(decision.cause, LONGEST_CAUSE),
            "measured": decision.measured,
            "at": moment(at),
        }
    )


def goes_on(decision: Decision) -> bool:
    """Whether it is no answer yet: the core holds with what it would go on for."""
    held = decision.decision is Outcome.HOLD and decision.reason in _GOES_ON
    return held or decision.decision is Outcome.CONTINUE


def prefills_of(candidate: ArmCounts) -> str:
    """Bad and all fresh prefills of the candidate: `0 bad of 32`."""
    return f"{candidate.bad_prefills} bad of {candidate.prefills}"


def bounded(text: str, most: int) -> str:
    """`text` on one line of at most `most` characters, nothing in it that a terminal would obey; a cut one ends in
    `…`."""
    line = one_line(text)
    return line if len(line) <= most else line[: most - 1] + "…"


def lines(texts: Iterable[str], most: int = MOST_SENTENCES) -> list[str]:
    """Texts as lines of a status, empty ones left out; where there are more than `most`, the last one says so."""
    told = [line for text in texts if (line := bounded(text, LONGEST_LINE))]
    if len(told) <= most:
        return told
    return [*told[: most - 1], f"and {len(told) - most + 1} more"]


def differences_in_words(differences: Sequence[Difference]) -> str:
    """`tensor split 3,1 -> 2,2; draft head Q4_K_M -> Q8_0`, and how many more there are; empty for none."""
    told = [_in_words(each) for each in differences[:MOST_IN_WORDS]]
    if len(differences) > MOST_IN_WORDS:
        told.append(f"and {len(differences) - MOST_IN_WORDS} more")
    return bounded("; ".join(told), LONGEST_SUMMARY)


def _in_words(each: Difference) -> str:
    name = bounded(each.name, _LONGEST_SIDE_IN_WORDS)
    if each.baseline is None and each.candidate is None:
        return name  # "12 more settings"
    missing = "absent" if each.declared else "unknown"  # declared by the profiles; else what a server did not tell
    before, after = (
        missing if side is None else bounded(side, _LONGEST_SIDE_IN_WORDS) for side in (each.baseline, each.candidate)
    )
    return f"{name} {before} -> {after}" + ("" if each.declared else " (undeclared)")


def _declared_first(differences: Iterable[Difference]) -> list[Difference]:
    return sorted(differences, key=lambda each: not each.declared)


def _difference(each: Difference) -> DifferenceStatus:
    return DifferenceStatus.model_validate(
        {
            "area": _KIND_OF_AREA.get(each.area, "Other"),
            "name": bounded(each.name, LONGEST_NAME),
            "baseline": None if each.baseline is None else bounded(each.baseline, LONGEST_SIDE),
            "candidate": None if each.candidate is None else bounded(each.candidate, LONGEST_SIDE),
            "declared": each.declared,
        }
    )


def _counts(verdict: Verdict) -> CountsStatus:
    return CountsStatus.model_validate(
        {
            "baseline": None if verdict.baseline is None else _arm(verdict.baseline),
            "candidate": _arm(verdict.candidate),
            "prefillsUsed": _count(verdict.prefills_used),
            "budget": _count(verdict.budget),
        }
    )


def _arm(counts: ArmCounts) -> dict[str, Any]:
    return {
        "requests": _count(counts.requests),
        "badRequests": _count(counts.bad_requests),
        "prefills": _count(counts.prefills),
        "badPrefills": _count(counts.bad_prefills),
        "decisionPrefills": _count(counts.decision_prefills),
        "copies": _count(counts.copies),
        "unproven": _count(counts.partial + counts.unknown + counts.orphans),
        "invalid": _count(counts.invalid),
        "requestRate": _rate(counts.bad_requests, counts.requests, counts.request_interval),
        "prefillRate": _rate(counts.bad_prefills, counts.prefills, counts.prefill_interval),
    }


def _rate(bad: int, total: int, interval: Interval | None) -> dict[str, int] | None:
    """A rate in hundredths of a percent; None where nothing was seen, which is no rate of zero."""
    if not total or interval is None:
        return None
    seen = round(_ALL * bad / total)
    if 0 < bad < total:
        seen = min(max(seen, 1), _ALL - 1)
    return {
        "basisPoints": min(seen, _ALL),
        "lowBasisPoints": _floor(interval[0], _ALL),
        "highBasisPoints": _ceiling(interval[1], _ALL),
    }


def _floor(share: float, most: int) -> int:
    return min(max(math.floor(share * _ALL + _FROM_BELOW), 0), most)


def _ceiling(share: float, most: int) -> int:
    return min(max(math.ceil(share * _ALL + _FROM_ABOVE), 0), most)


def _count(number: int) -> int:
    return min(max(number, 0), _MOST_COUNT)


def e_value_text(value: float) -> str:
    """An e-value as a decimal number that reads back as the same float: rounding could carry it over its threshold.
    What is beyond all floats becomes the largest one, what is no number 0."""
    if math.isnan(value) or value <= 0:
        return "0"
    number = min(value, sys.float_info.max)
    return str(int(number)) if number.is_integer() and number < _MOST_COUNT else repr(number)


def _replicate(view: ReplicateView) -> ReplicateStatus:
    return ReplicateStatus.model_validate(
        {
            "number": min(max(view.number, 1), _MOST_NUMBER),
            "ending": None if view.ending is None else view.ending.capitalize(),
            "eValue": e_value_text(view.e_value),
            "threshold": e_value_text(view.threshold),
            "candidatePrefills": _count(view.candidate_units),
            "candidateBad": _count(view.candidate_bad),
            "pairs": _count(len(view.pairs)),
            "separation": _SEPARATIONS.get(view.separation or ""),
        }
    )


def _throughput(view: ThroughputView) -> ThroughputStatus:
    low, high = view.ratio_interval or (None, None)
    return ThroughputStatus.model_validate(
        {
            "state": view.state.value,
            "pairs": _count(view.pairs_used),
            "ratioBasisPoints": None if _unknown(view.ratio) else min(round(_ALL * (view.ratio or 0)), _MOST_RATIO),
            "lowBasisPoints": None if _unknown(low) else _floor(low or 0, _MOST_RATIO),
            "highBasisPoints": None if _unknown(high) else _ceiling(high or 0, _MOST_RATIO),
            "identicalBasisPoints": None if _unknown(view.identical_share) else _floor(view.identical_share or 0, _ALL),
            "sentence": bounded(view.sentence, LONGEST_LINE) or None,
        }
    )


def _unknown(number: float | None) -> bool:
    return number is None or not math.isfinite(number)
