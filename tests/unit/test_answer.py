"""A verdict as parts of a status: exact numbers, the bounds of the kinds, nothing that a terminal would obey."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.api.kinds.moments import moment, seconds_of
from prefillgate.api.kinds.rollout_status import DecisionStatus, OverrideStatus, ProfileRolloutStatus
from prefillgate.api.model import WireModel
from prefillgate.core.decision import Reason
from prefillgate.core.journal import Difference
from prefillgate.core.verdict import Outcome, Promotion, Rollback
from prefillgate.reconcile import answer, restated
from prefillgate.reconcile.answer import answered, bounded, differences_in_words, e_value_text, lines
from prefillgate.report.clean import is_clean
from tests.support import verdicts
from tests.support.kinds import schema_of

AT = 1_796_000_000.0
AT_TEXT = "2026-11-30T00:53:20Z"
DIGEST = "sha256:" + "1" * 64
OTHER = "sha256:" + "2" * 64


def wire(value: WireModel) -> dict[str, Any]:
    """As it is written, without what is left out."""
    return value.model_dump(by_alias=True, exclude_none=True)


def bounds_of(*path: str) -> dict[str, Any]:
    """The schema of a field of a rollout's status."""
    node: dict[str, Any] = schema_of("ProfileRollout")["properties"]["status"]
    for name in path:
        node = node["items"] if name == "[]" else node["properties"][name]
    return node


# The answer


def test_a_promotion_is_said_with_its_permissions_its_words_and_when() -> None:
    told = answered(verdicts.promote(), AT)
    assert wire(told.decision) == {
        "verdict": "Promote",
        "promotion": "Allowed",
        "rollback": "Refused",
        "reason": "AcceptanceReached",
        "sentences": [
            "32 fresh prefills of 12 prompts, 0 bad: a bad rate of 10 % or more is excluded at 95 %.",
            "Not excluded: a candidate bad in 1 of 30 would have passed 62 % of the time.",
        ],
        "cause": "Unverified",
        "measured": True,
        "at": AT_TEXT,
    }
    assert told.prefills == "0 bad of 32"


def test_requests_and_prefills_stand_side_by_side_with_their_rates() -> None:
    told = answered(verdicts.story(), AT)
    assert wire(told.counts) == {
        "baseline": {
            "requests": 20,
            "badRequests": 0,
            "prefills": 2,
            "badPrefills": 0,
            "decisionPrefills": 2,
            "copies": 18,
            "unproven": 0,
            "invalid": 0,
            "requestRate": {"basisPoints": 0, "lowBasisPoints": 0, "highBasisPoints": 1685},
            "prefillRate": {"basisPoints": 0, "lowBasisPoints": 0, "highBasisPoints": 8419},
        },
        "candidate": {
            "requests": 20,
            "badRequests": 11,
            "prefills": 10,
            "badPrefills": 2,
            "decisionPrefills": 10,
            "copies": 10,
            "unproven": 0,
            "invalid": 0,
            "requestRate": {"basisPoints": 5500, "lowBasisPoints": 3152, "highBasisPoints": 7695},
            "prefillRate": {"basisPoints": 2000, "lowBasisPoints": 252, "highBasisPoints": 5561},
        },
        "prefillsUsed": 12,
        "budget": 200,
    }
    assert told.prefills == "2 bad of 10"


def test_what_no_counter_proves_is_told_apart_and_no_rate_is_made_of_nothing() -> None:
    told = answered(verdicts.every_class(), AT).counts
    counts = verdicts.every_class().candidate
    assert told.candidate.unproven == counts.partial + counts.unknown + counts.orphans > 2
    invalid = replace(counts, invalid=3)
    assert answered(replace(verdicts.every_class(), candidate=invalid), AT).counts.candidate.invalid == 3
    empty = answered(verdicts.empty(), AT)
    assert wire(empty.counts.candidate).keys().isdisjoint({"requestRate", "prefillRate"})
    assert empty.prefills == "0 bad of 0"
    alone = answered(replace(verdicts.promote(), baseline=None), AT)
    assert "baseline" not in wire(alone.counts)


@pytest.mark.parametrize(
    ("bad", "total", "interval", "rate"),
    [
        (0, 7, (0.0, 0.40961), (0, 0, 4097)),
        (7, 7, (0.59039, 1.0), (10_000, 5903, 10_000)),
        (1, 100_000, (2e-7, 6e-5), (1, 0, 1)),  # one bad is never none
        (99_999, 100_000, (0.99994, 1 - 2e-7), (9999, 9999, 10_000)),  # one clean is never all
        (1, 8, (0.1, 0.3), (1250, 1000, 3000)),  # 0.3 * 10000 is 3000 in binary, and 0.1 no more than 1000
        (29, 100, (0.29, 0.57), (2900, 2900, 5700)),  # 0.57 * 10000 is 5699.999...
    ],
)
def test_a_rate_is_rounded_away_from_what_it_would_claim(
    bad: int, total: int, interval: tuple[float, float], rate: tuple[int, int, int]
) -> None:
    base = verdicts.promote()
    counts = replace(base.candidate, bad_prefills=bad, prefills=total, prefill_interval=interval)
    told = answered(replace(base, candidate=counts), AT).counts.candidate.prefill_rate
    assert told is not None
    assert (told.basis_points, told.low_basis_points, told.high_basis_points) == rate


def test_a_verdict_that_would_be_gone_on_with_is_no_hold() -> None:
    base = verdicts.promote().decision
    for reason in Reason:
        hold = replace(
            base,
            decision=Outcome.HOLD,
            promotion=Promotion.BLOCKED,
            rollback=Rollback.REFUSED,
            reason=str(reason),
        )
        goes_on = reason in {Reason.REPLICATE_DUE, Reason.REPLICATE_RUNNING, Reason.MORE_EVIDENCE_NEEDED}
        assert answer.decision_of(hold, AT).verdict == ("Continue" if goes_on else "Hold"), reason
    confirmed = answered(verdicts.confirmed(), AT).decision
    assert (confirmed.verdict, confirmed.promotion, confirmed.rollback) == ("Rollback", "Blocked", "Allowed")
    assert confirmed.cause == "rope base 10000 instead of 1000000 (ada)"
    assert answered(verdicts.alarm_refused(), AT).decision.verdict == "Continue"
    assert (
        answered(verdicts.could_not_measure(), AT).decision.measured is verdicts.could_not_measure().decision.measured
    )


def test_replicates_are_told_with_exact_e_values() -> None:
    (clean,) = answered(verdicts.story(), AT).replicates
    assert wire(clean) == {
        "number": 1,
        "ending": "Clean",
        "eValue": "1",
        "threshold": "40",
        "candidatePrefills": 8,
        "candidateBad": 0,
        "pairs": 0,
        "separation": "Restart",
    }
    (told,) = answered(verdicts.confirmed(), AT).replicates
    (view,) = verdicts.confirmed().replicates
    assert (told.ending, told.pairs, told.separation) == ("Confirmed", 6, "Gap")
    assert (float(told.e_value), told.candidate_prefills, told.candidate_bad) == (view.e_value, 6, 5)
    running = replace(view, ending=None, separation="another_process", number=2)
    (told,) = answered(replace(verdicts.confirmed(), replicates=(running,)), AT).replicates
    assert (told.number, told.ending, told.separation) == (2, None, "AnotherProcess")
    none = replace(view, separation=None)
    assert answered(replace(verdicts.confirmed(), replicates=(none,)), AT).replicates[0].separation is None


@pytest.mark.parametrize("ending", ["confirmed", "clean", "futile", "capped", "aborted"])
def test_every_ending_of_a_replicate_has_its_word(ending: str) -> None:
    view = replace(verdicts.story().replicates[0], ending=ending)
    assert answered(replace(verdicts.story(), replicates=(view,)), AT).replicates[0].ending == ending.capitalize()


def test_the_newest_twenty_replicates_are_told() -> None:
    view = verdicts.story().replicates[0]
    many = tuple(replace(view, number=number) for number in range(1, 26))
    told = answered(replace(verdicts.story(), replicates=many), AT).replicates
    assert [each.number for each in told] == list(range(6, 26))
    assert len(told) == bounds_of("replicates")["maxItems"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (19.999999999999996, "19.999999999999996"),  # never 20, its threshold
        (0.049999999999999996, "0.049999999999999996"),
        (5e-324, "5e-324"),
        (1.5e300, "1.5e+300"),
        (math.inf, repr(sys.float_info.max)),
        (math.nan, "0"),
    ],
)
def test_an_e_value_reads_back_as_it_was(value: float, text: str) -> None:
    assert e_value_text(value) == text
    view = replace(verdicts.story().replicates[0], e_value=value)
    (told,) = answered(replace(verdicts.story(), replicates=(view,)), AT).replicates
    assert told.e_value == text


def test_decode_speed_is_told_in_ten_thousandths_its_interval_outward() -> None:
    assert wire(answered(verdicts.promote(), AT).throughput) == {
        "state": "NotWorse",
        "pairs": 11,
        "ratioBasisPoints": 10748,
        "lowBasisPoints": 10681,
        "highBasisPoints": 10814,
        "identicalBasisPoints": 10000,
        "sentence": "Decode is not slower by 5 % or more, over 11 prompts, the longest among them.",
    }
    none = answered(verdicts.alarm_refused(), AT).throughput
    assert wire(none) == {
        "state": "NotCompared",
        "pairs": 0,
        "sentence": "Decode speed was not compared: no pair was run.",
    }
    wild = replace(
        verdicts.throughput(), ratio=math.inf, ratio_interval=(0.5, math.inf), sentence="", identical_share=0.99999
    )
    told = answered(replace(verdicts.promote(), throughput=wild), AT).throughput
    assert wire(told) == {"state": "NotWorse", "pairs": 11, "lowBasisPoints": 5000, "identicalBasisPoints": 9999}
    far = replace(verdicts.throughput(), ratio=5000.0, ratio_interval=(2000.0, 9000.0))
    told = answered(replace(verdicts.promote(), throughput=far), AT).throughput
    assert (told.ratio_basis_points, told.low_basis_points, told.high_basis_points) == (10**7, 10**7, 10**7)


# Differences


def test_declared_differences_stand_first_in_the_words_of_the_kinds() -> None:
    odd = (
        Difference("build", "build", "b6710", None, declared=False),
        *verdicts.DIFFERENCES[:2],
        Difference("KV cache", "cache type k", None, "q8_0"),
        Difference("sorcery", "12 more settings", None, None),
    )
    told = answered(replace(verdicts.promote(), differences=odd), AT)
    assert [wire(each) for each in told.differences] == [
        {"area": "LayerPlacement", "name": "--tensor-split", "baseline": "1,1", "candidate": "3,2", "declared": True},
        {
            "area": "DraftHead",
            "name": "--model-draft",
            "baseline": "draft-q4_0.gguf",
            "candidate": "draft-q8_0.gguf",
            "declared": True,
        },
        {"area": "KvCache", "name": "cache type k", "candidate": "q8_0", "declared": True},
        {"area": "Other", "name": "12 more settings", "declared": True},
        {"area": "Build", "name": "build", "baseline": "b6710", "declared": False},
    ]
    assert told.summary == (
        "--tensor-split 1,1 -> 3,2; --model-draft draft-q4_0.gguf -> draft-q8_0.gguf; cache type k absent -> q8_0; "
        "12 more settings; build b6710 -> unknown (undeclared)"
    )


def test_long_lists_of_differences_are_cut_and_say_so() -> None:
    many = [Difference("other", f"flag {number}", "1", "2") for number in range(120)]
    told = answered(replace(verdicts.promote(), differences=tuple(many)), AT)
    assert len(told.differences) == 100 == bounds_of("differences")["maxItems"]
    assert told.summary.endswith("flag 7 1 -> 2; and 112 more")
    assert differences_in_words(many[:8]).endswith("flag 7 1 -> 2")
    assert differences_in_words([]) == ""


# Bounds


HOSTILE = "\x1b[2J\u202e\ud800 said\nthe server\x00 " + "x" * 5000


def test_nothing_of_a_hostile_verdict_breaks_the_bounds_or_reaches_a_terminal() -> None:
    hostile = verdicts.with_text(verdicts.confirmed(), HOSTILE)
    told = answered(replace(hostile, replicates=verdicts.confirmed().replicates), AT)
    status = ProfileRolloutStatus.model_validate(
        {
            "decision": wire(told.decision),
            "prefills": told.prefills,
            "counts": wire(told.counts),
            "replicates": [wire(each) for each in told.replicates],
            "throughput": wire(told.throughput),
            "differences": [wire(each) for each in told.differences],
            "summary": told.summary,
        }
    )
    texts = [text for text in _texts(wire(status)) if len(text) > 200]
    assert texts and all(is_clean(text) and "\n" not in text for text in _texts(wire(status)))
    assert "⟨ESC⟩[2J⟨U+202E⟩⟨U+D800⟩ said ⏎ the server⟨NUL⟩ xxx" in told.decision.sentences[0]


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


def test_a_text_is_cut_where_it_is_longer_than_its_field() -> None:
    assert bounded("x" * 63, 63) == "x" * 63
    assert bounded("x" * 64, 63) == "x" * 62 + "…"
    assert bounded("a\nb", 63) == "a ⏎ b"


def test_a_list_of_lines_is_cut_where_it_is_longer_than_its_field() -> None:
    sixteen = [f"line {number}" for number in range(16)]
    assert lines(sixteen) == sixteen
    assert lines([*sixteen, "", "line 16"]) == [*sixteen[:15], "and 2 more"]
    assert lines(["", " "]) == []
    assert bounds_of("decision", "sentences")["maxItems"] == answer.MOST_SENTENCES
    assert bounds_of("decision", "whatWouldChange")["maxItems"] == answer.MOST_SENTENCES


def test_the_lengths_are_those_of_the_schema() -> None:
    assert bounds_of("decision", "sentences", "[]")["maxLength"] == answer.LONGEST_LINE
    assert bounds_of("decision", "whatWouldChange", "[]")["maxLength"] == answer.LONGEST_LINE
    assert bounds_of("throughput", "sentence")["maxLength"] == answer.LONGEST_LINE
    assert bounds_of("decision", "reason")["maxLength"] == answer.LONGEST_WORD
    assert bounds_of("decision", "cause")["maxLength"] == answer.LONGEST_CAUSE
    assert bounds_of("differences", "[]", "name")["maxLength"] == answer.LONGEST_NAME
    assert bounds_of("differences", "[]", "baseline")["maxLength"] == answer.LONGEST_SIDE
    assert bounds_of("summary")["maxLength"] == answer.LONGEST_SUMMARY


# Decisions said anew


def decision(verdict: str = "Hold", **more: Any) -> DecisionStatus:
    """A decision of the evidence."""
    return DecisionStatus.model_validate(
        {
            "verdict": verdict,
            "promotion": "Allowed" if verdict == "Promote" else "Blocked",
            "rollback": "Allowed" if verdict == "Rollback" else "Refused",
            "reason": "BudgetSpent",
            "sentences": ["The evidence says this."],
            "whatWouldChange": ["More of it."],
            "cause": "a wrong rope base",
            "measured": True,
            "at": "2026-11-29T00:00:00Z",
            **more,
        }
    )


def override(verdict: str = "Promote", **more: Any) -> OverrideStatus:
    """A person's word."""
    return OverrideStatus.model_validate(
        {
            "verdict": verdict,
            "reason": "looked at every answer",
            "actor": "alice",
            "actorVerified": True,
            "since": "2026-11-30T00:00:00Z",
            "baselineDigest": DIGEST,
            "candidateDigest": OTHER,
            **more,
        }
    )


def test_before_the_first_cell_nothing_is_allowed_and_it_goes_on() -> None:
    assert wire(restated.not_started(AT)) == {
        "verdict": "Continue",
        "promotion": "Blocked",
        "rollback": "Refused",
        "reason": "NotStarted",
        "sentences": ["Nothing was measured yet."],
        "cause": "Unverified",
        "measured": True,
        "at": AT_TEXT,
    }


def test_what_was_superseded_allows_nothing_whatever_its_evidence_says() -> None:
    told = wire(restated.superseded(decision("Promote"), "chat-2", AT))
    assert (told["verdict"], told["promotion"], told["rollback"]) == ("Hold", "Blocked", "Refused")
    assert told["reason"] == "Superseded" and told["at"] == AT_TEXT
    assert told["sentences"] == [
        "Something else took its place; nothing is decided.",
        "The rollout chat-2 took its place; the evidence of this one is kept.",
        "The evidence says this.",
    ]
    assert told["cause"] == "a wrong rope base"
    assert restated.superseded(None, None, AT).sentences == ["Something else took its place; nothing is decided."]


def test_a_line_that_tries_out_keeps_the_word_and_allows_nothing() -> None:
    for verdict in ("Promote", "Rollback"):
        told = restated.tried_out(decision(verdict))
        assert (told.verdict, told.promotion, told.rollback) == (verdict, "Blocked", "Refused")
        assert (told.reason, told.at) == ("DryRun", "2026-11-29T00:00:00Z")
        assert told.sentences == [
            "The line only tries out: nothing is allowed.",
            f"Without dryRun this would be {verdict} (BudgetSpent).",
            "The evidence says this.",
        ]
    for verdict in ("Hold", "Continue"):
        assert restated.tried_out(decision(verdict)) == decision(verdict)


@pytest.mark.parametrize(
    ("verdict", "promotion", "rollback"),
    [("Promote", "Allowed", "Refused"), ("Hold", "Blocked", "Refused"), ("Rollback", "Blocked", "Allowed")],
)
def test_a_persons_word_goes_before_the_evidence(verdict: str, promotion: str, rollback: str) -> None:
    told = restated.overridden(decision("Rollback", measured=False), override(verdict), AT)
    assert (told.verdict, told.promotion, told.rollback) == (verdict, promotion, rollback)
    assert (told.reason, told.measured, told.cause) == ("Override", True, "a wrong rope base")
    assert told.sentences == [
        "A person overrode the gate.",
        "alice: looked at every answer",
        "The evidence says this.",
    ]
    assert told.what_would_change == ["The override taken away, by removing its annotations."]


def test_an_override_says_whose_it_is_not_verified_to_be_and_until_when_it_holds() -> None:
    given = override(actorVerified=False, expires="2026-12-01T08:00:00Z")
    told = restated.overridden(None, given, AT)
    assert told.sentences[1:] == [
        "alice (not verified): looked at every answer",
        "That holds until 2026-12-01T08:00:00Z.",
    ]
    assert told.what_would_change == ["The override taken away, by removing its annotations, or over."]


def test_a_hold_and_a_lost_candidate_say_why_and_what_a_person_may_do() -> None:
    told = restated.held(Reason.DEADLINE, "It passed at noon.", decision(), AT)
    assert wire(told)["sentences"] == [
        "The deadline passed before the evidence sufficed.",
        "It passed at noon.",
        "The evidence says this.",
    ]
    assert (told.verdict, told.promotion, told.rollback, told.measured) == ("Hold", "Blocked", "Refused", True)
    assert told.what_would_change == ["An override by a person with a reason."]
    assert restated.held(Reason.INSTRUMENT_BROKEN, "", None, AT).measured is False
    lost = restated.unavailable("CrashLoopBackOff", None, AT)
    assert (lost.verdict, lost.promotion, lost.rollback) == ("Rollback", "Blocked", "Allowed")
    assert lost.reason == "CandidateUnavailable" and lost.sentences[1] == "CrashLoopBackOff"
    assert restated.deleting(None, AT).sentences == ["The rollout is being deleted; nothing is decided."]


# Moments


def test_a_moment_is_written_to_the_second_and_read_back() -> None:
    assert moment(AT) == AT_TEXT == moment(AT + 0.999)
    assert seconds_of(AT_TEXT) == AT
    assert moment(-1.0) == "1970-01-01T00:00:00Z" == moment(0.0)
    assert moment(1e18) == "9999-12-31T23:59:59Z" == moment(math.inf)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-30T01:53:20+01:00", AT),
        ("2026-11-30T00:53:20.25Z", AT + 0.25),
        ("2026-11-30T00:53:20.123456789Z", AT + 0.123456),
        ("2026-11-29T24:53:20Z", None),
        ("2026-02-30T00:00:00Z", None),
        ("2026-11-30", None),
        ("2026-11-30T00:53:20", None),
        ("2026-11-30 00:53:20Z", None),
        ("tomorrow", None),
        ("0000-01-01T00:00:00Z", None),
        (5, None),
        (None, None),
    ],
)
def test_a_moment_of_another_shape_or_no_calendar_is_none(text: object, seconds: float | None) -> None:
    assert seconds_of(text) == seconds
