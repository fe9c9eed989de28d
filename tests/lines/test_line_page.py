"""What a person is told of a serving line: all that the status says, nothing that it does not, and how old it is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from prefillgate.api.kinds.line_status import ServingLineStatus
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.report.clean import is_clean
from prefillgate.report.line_page import LINES, LinePage, render_line_page
from prefillgate.report.line_table import age, line_facts, render_line_table
from prefillgate.report.line_view import LeaseSeen, LineView, seconds_of, view_of
from prefillgate.report.paper import Palette, columns_of
from prefillgate.report.words import UNKNOWN
from tests.support.lines import condition, decided, rollout, serving_line

NOW = seconds_of("2026-11-30T12:00:00Z") or 0.0
NO_LEASE = "No controller has led: no Lease sys/lease (another: --controller-lease)."
OVERRIDE = f"kubectl annotate profilerollout x prefillgate.io/override=rollback {'and its reason ' * 6}x"


def seen(line: Any = None, of: Any = None, lease: LeaseSeen | None = None, **more: Any) -> LineView:
    return view_of(line or serving_line(), of if of is not None else rollout(), lease, NOW, **more)


def page(view: LineView, **options: Any) -> str:
    return render_line_page(view, LinePage(**{"commands": [("to override", OVERRIDE)], **options}))


def fields(view: LineView) -> dict[str, str]:
    """What stands beside each name in the margin, lines joined."""
    found: dict[str, str] = {}
    name = ""
    for line in page(view).splitlines()[1:]:
        if "95 % interval" in line:
            continue
        if line[:16].strip() and line[15:16] == " ":
            name = line[:16].strip()
            found[name] = f"{found[name]} | {line[16:].strip()}" if name in found else line[16:].strip()
        elif line.startswith(" " * 16):
            found[name] += f" {line.strip()}"
    return found


def test_one_screen_has_all_that_an_engineer_on_call_needs() -> None:
    told = fields(seen())
    assert page(seen()).startswith("HOLD  prod/chat  rollout chat-5f2c1e9a\n")
    assert told["decision"] == "hold (RegressionNotConfirmed, 2 h 0 min ago)"
    assert (told["promotion"], told["rollback"], told["cause"]) == ("Blocked", "Refused", "Unverified")
    assert told["what changed"] == "layer placement: tensor split, 3,1 -> 2,2"
    assert re.split(" {2,}", told["baseline"]) == ["0 of 20 bad", "0 to 16.8 %", "0 of 2 bad", "0 to 84.2 %"]
    assert told["candidate"].endswith(
        "worth 2 prefills; requests besides prefills: 18 copies; 12 of 200 prefills of the budget"
    )
    assert told["replicate 1"] == (
        "not confirmed (clean), gap, 0 of 8 candidate prefills bad, e-value 5.58 (confirms at 40)"
    )
    assert told["decode speed"] == "not worse, +7.5 % (+6 % to +9 %), 9 pairs, 100 % of the answers the same"
    assert told["floor"] == "instrument sound, 0 of 24 bad, 27 h 30 min ago, speed varies by 3.1 %"
    assert told["watch"] == "1 of 40 bad since the promotion, next at 2026-11-30T20:30:00Z"
    assert told["would change it"] == "65 more clean prefills would promote"
    assert told["evidence"] == "run r-7 in postgresql://store.internal/gate"
    assert told["to override"] == OVERRIDE
    assert "The suspected regression was not confirmed and not cleared: a person decides.\n" in page(seen())
    assert "note" not in told


def test_both_arms_stand_side_by_side_with_their_own_numbers() -> None:
    counts = rollout()["status"]["counts"]
    worse = {**counts["candidate"], "requests": 12, "badRequests": 11, "prefills": 2, "badPrefills": 1, "copies": 10}
    told = fields(seen(of=rollout(counts={**counts, "candidate": worse})))
    assert told["baseline"].startswith("0 of 20 bad") and "0 of 2 bad" in told["baseline"]
    assert told["candidate"].startswith("11 of 12 bad") and "1 of 2 bad" in told["candidate"]
    alone = fields(seen(of=rollout(counts={**counts, "baseline": None})))
    assert alone["baseline"] == "unknown: it was not there"


@pytest.mark.parametrize(
    ("decision", "alarm", "word"),
    [
        (decided("Promote", "AcceptanceReached"), False, "PROMOTE"),
        (decided("Rollback", "RegressionConfirmed"), True, "ROLLBACK"),
        (decided("Hold"), False, "HOLD"),
        (decided("Hold"), True, "ALARM"),
        (decided("Continue", "ReplicateDue"), True, "ALARM"),
        (decided("Continue", "MoreEvidenceNeeded"), False, "CONTINUE"),
        (decided("Hold", "InstrumentBroken", measured=False), True, "ERROR"),
        (None, False, "UNKNOWN"),
    ],
)
def test_the_first_word_is_the_answer(decision: Any, alarm: bool, word: str) -> None:
    conditions = [condition("AlarmRaised", "True", "Alarm")] if alarm else []
    assert page(seen(of=rollout(decision=decision, conditions=conditions))).split()[0] == word


def test_nothing_known_is_unknown_and_never_zero() -> None:
    bare = {**rollout(), "status": {}}
    line = {**serving_line(), "status": {"currentRollout": "chat-5f2c1e9a", "observedGeneration": 1}}
    told = fields(seen(line, bare))
    assert told["decision"] == "unknown: nothing was measured yet"
    assert told["prefills"] == "unknown: none was counted yet"
    assert told["floor"] == "unknown: the baseline was not compared with itself yet"
    assert told["note"] == "No controller has looked at this rollout yet: everything about it is unknown."
    assert not re.search(r"\b0\b", page(seen(line, bare)).partition("\n")[2].replace("0.2", ""))


def test_a_line_without_a_rollout_says_what_it_waits_for_and_offers_no_override() -> None:
    waits = [condition("Gating", "False", "NoCandidate")]
    line = serving_line(currentRollout=None, candidate=None, differences=None, conditions=waits)
    text = render_line_page(view_of(line, None, None, NOW), LinePage())
    assert text.startswith("NO ROLLOUT  prod/chat\n")
    assert "decision        no candidate is judged\n" in text
    assert "now             The candidate is the profile in production.\n" in text
    assert "to override" not in text and "what changed" not in text


@pytest.mark.parametrize(
    ("line", "of", "note"),
    [
        (
            {**serving_line(), "metadata": {**serving_line()["metadata"], "generation": 2}},
            None,
            "The line's spec is of generation 2, and what stands here is about generation 1.",
        ),
        ({**serving_line(), "status": {}}, None, "No controller has looked at this line yet: everything about it is"),
        (
            {**serving_line(), "metadata": {**serving_line()["metadata"], "deletionTimestamp": "2026-11-30T10:00:00Z"}},
            None,
            "The line is being deleted.",
        ),
        (
            None,
            {**rollout(), "status": {"counts": "many"}},
            "The status cannot be read, so that all is unknown: counts",
        ),
        (
            {**serving_line(), "spec": {**serving_line()["spec"], "suspend": True}},
            None,
            "Suspended: nothing new is begun",
        ),
        (
            {**serving_line(), "spec": {**serving_line()["spec"], "dryRun": True}},
            None,
            "Dry run: all is measured and told, nothing is allowed, promoted or remembered (spec.dryRun).",
        ),
    ],
    ids=["older spec", "never looked at", "deleted", "of another shape", "suspended", "dry run"],
)
def test_why_the_status_may_not_hold_is_said(line: Any, of: Any, note: str) -> None:
    assert note in fields(seen(line, of))["note"]


def lease(renewed: str | None, holder: str | None = "host_1", duration: int | None = 15) -> LeaseSeen:
    given = {"renewTime": renewed, "holderIdentity": holder, "leaseDurationSeconds": duration}
    return LeaseSeen("sys/lease", True, {key: value for key, value in given.items() if value is not None})


@pytest.mark.parametrize(
    ("found", "note"),
    [
        (None, None),
        (lease("2026-11-30T11:59:58.000000Z"), None),
        (lease("2026-11-30T11:58:00Z"), None),
        (
            lease("2026-11-30T11:57:59Z"),
            "No controller has renewed the Lease sys/lease since 2 min 1 s ago: this may be as old.",
        ),
        (lease("2026-11-30T11:50:01Z", duration=135), None),
        (lease("2026-11-30T11:49:59Z", duration=135), "No controller has renewed the Lease sys/lease since 10 min 1"),
        (
            lease("2026-11-30T11:55:00Z", ""),
            "No controller leads now: the Lease sys/lease was given back 5 min",
        ),
        (LeaseSeen("sys/lease", False, {}), NO_LEASE),
        (lease(None), None),
    ],
)
def test_a_controller_that_renews_nothing_is_told_once_it_is_clear(found: LeaseSeen | None, note: str | None) -> None:
    told = fields(seen(lease=found)).get("note")
    assert told is None if note is None else note in (told or "")


def test_a_rollout_that_is_gone_is_told_and_not_taken_for_one_that_was_never_there() -> None:
    view = view_of(serving_line(), None, None, NOW)
    assert view.doubts == ("The rollout chat-5f2c1e9a that the status names is not there (any more).",)
    assert view_of(serving_line(), None, None, NOW, alone=True).doubts == ()


def test_conditions_that_are_not_well_stand_with_their_message_and_others_do_not() -> None:
    well = [condition("Accepted", "True", "Accepted"), condition("Gating", "True", "RolloutRunning")]
    ill = [
        condition("EndpointsReady", "False", "EndpointUnreachable"),
        condition("StoreBehind", "Unknown", "StoreUnreachable"),
    ]
    blocked = [condition("PromotionAllowed", "False", "ReplicateDue")]
    told = fields(seen(serving_line(conditions=well), rollout(conditions=[*ill, *blocked])))
    assert told["not well"] == (
        "EndpointsReady is False (EndpointUnreachable): A server cannot be reached. "
        "StoreBehind is Unknown (StoreUnreachable): The evidence store cannot be reached."
    )
    assert "not well" not in fields(seen(serving_line(conditions=well), rollout(conditions=blocked)))
    newer = {**condition("Accepted", "True", "Accepted"), "reason": "OfANewerGate"}
    assert "not well" not in fields(seen(serving_line(conditions=[newer])))
    assert "OfANewerGate" in fields(seen(serving_line(conditions=[{**newer, "status": "False"}])))["not well"]


def test_a_rollback_that_the_watch_allows_is_told_beside_a_rollout_that_allows_none() -> None:
    allowed = [condition("RollbackAllowed", "True", "RegressionConfirmed")]
    line = serving_line(conditions=allowed)
    assert fields(seen(line))["not well"].startswith("RollbackAllowed is True (RegressionConfirmed): ")
    assert "not well" in fields(seen(line, rollout(decision=None)))
    said = decided("Rollback", "RegressionConfirmed")
    assert "not well" not in fields(seen(line, rollout(decision=said, conditions=allowed)))
    refused = [condition("RollbackAllowed", "False", "BudgetSpent")]
    assert "not well" not in fields(seen(serving_line(conditions=refused)))


def test_what_a_running_rollout_waits_for_is_said() -> None:
    waits = [condition("Screened", "False", "LoadLimitReached")]
    told = fields(seen(of=rollout(conditions=waits, endedAt=None, decision=None)))
    assert told["now"] == "Production has had as many prefills in this hour as it may."
    assert told["deadline"] == "2026-12-01T08:00:00Z"


def test_a_floor_that_was_not_counted_knows_no_number() -> None:
    floor = {**serving_line()["status"]["floor"], "prefills": None, "badPrefills": None}
    given = {key: value for key, value in floor.items() if value is not None}
    told = fields(seen(serving_line(floor=given)))["floor"]
    assert told.startswith("instrument sound, unknown, 27 h 30 min ago")


def test_an_override_that_stands_is_told_with_who_and_until_when() -> None:
    given = {
        "verdict": "Promote",
        "reason": "looked at every answer",
        "actor": "alice",
        "actorVerified": False,
        "since": "2026-11-30T10:00:00Z",
        "baselineDigest": "sha256:" + "1" * 64,
        "candidateDigest": "sha256:" + "2" * 64,
    }
    told = fields(seen(of=rollout(override=given)))
    assert told["override"] == "promote by alice (not verified), as long as the rollout: looked at every answer"
    bounded = {**given, "actorVerified": True, "expires": "2026-12-01T10:00:00Z"}
    told = fields(seen(of=rollout(override=bounded)))
    assert told["override"] == "promote by alice, until 2026-12-01T10:00:00Z: looked at every answer"
    assert "to take it back kubectl x" in page(
        seen(of=rollout(override=given)), commands=[("to take it back", "kubectl x")]
    )


def test_an_override_that_was_refused_is_told_with_what_to_do() -> None:
    assert fields(seen())["override"] == (
        "the last one (promote by alice) was refused: An override was refused, since its expiry is past."
    )


@pytest.mark.parametrize(("status", "told"), [("NotCompared", "too few pairs"), ("Open", "open, more")])
def test_a_speed_that_was_not_shown_is_no_number(status: str, told: str) -> None:
    speed = {"state": status, "pairs": 0, "sentence": "too few pairs"}
    assert fields(seen(of=rollout(throughput=speed)))["decode speed"].startswith(told)
    if status == "Open":
        assert "unknown (unknown), 0 pairs" in fields(seen(of=rollout(throughput=speed)))["decode speed"]


def test_a_broken_instrument_says_what_was_found() -> None:
    floor = {**serving_line()["status"]["floor"], "instrument": "Broken", "message": "Two passes differ."}
    assert fields(seen(serving_line(floor=floor)))["floor"].endswith(": Two passes differ.")


def test_differences_come_from_the_rollout_and_else_from_what_was_recorded() -> None:
    undeclared = {"area": "Build", "name": "build", "candidate": "b9999", "declared": False}
    told = fields(seen(of=rollout(differences=[undeclared])))
    assert told["what changed"] == "build: build, unknown -> b9999 (UNDECLARED)"
    written = {"area": "DraftHead", "name": "draft model", "candidate": "q8.gguf", "declared": True}
    told = fields(seen(of=rollout(differences=[written])))
    assert told["what changed"] == "draft head: draft model, absent -> q8.gguf"
    early = rollout(differences=None)
    early["spec"]["differences"] = ["tensor split 3,1 -> 2,2"]
    assert fields(seen(of=early))["what changed"] == "tensor split 3,1 -> 2,2"
    early["spec"]["differences"] = []
    assert fields(seen(of=early))["what changed"] == "tensor split 3,1 -> 2,2 draft head Q4_K_M -> Q8_0"
    assert fields(seen(serving_line(differences=None), early))["what changed"] == "unknown"
    many = [{**undeclared, "name": f"d{number}"} for number in range(6)]
    assert fields(seen(of=rollout(differences=many)))["what changed"].endswith("and 2 more differences")


def full() -> LineView:
    """A line about which there is as much to say as a screen is made for."""
    ill = [
        condition("EndpointsReady", "False", "EndpointUnreachable"),
        condition("StoreBehind", "Unknown", "StoreUnreachable"),
    ]
    long = {**decided(), "sentences": ["Word " * 30] * 3, "whatWouldChange": ["Evidence " * 15] * 3}
    return seen(serving_line(conditions=ill), rollout(decision=long), LeaseSeen("sys/lease", False, {}))


@pytest.mark.parametrize("width", [60, 80, 100])
def test_it_fits_a_screen_and_the_terminal_and_never_cuts_a_command(width: int) -> None:
    lines = page(full(), width=width).splitlines()
    assert len(lines) <= LINES * 100 / width
    assert max(columns_of(line) for line in lines if "kubectl" not in line) <= width
    assert any(line.endswith(OVERRIDE) for line in lines)


LONG = f"{'What was seen, at length. ' * 36}REMEDY"


@pytest.mark.parametrize("width", [60, 100])
def test_what_says_what_to_do_is_never_cut(width: int) -> None:
    kinds = ("Accepted", "EndpointsReady", "InstrumentChecked", "StoreBehind", "Watching", "Gating")
    ill = [
        {**condition("Accepted", "False", "SpecInvalid"), "type": each, "message": f"{LONG * 3}-{each}"}
        for each in kinds
    ]
    refused = {**rollout()["status"]["lastHandledOverride"], "message": f"{LONG}-refused"}
    floor = {**serving_line()["status"]["floor"], "instrument": "Unknown", "message": f"{LONG}-floor"}
    said = {**decided(), "sentences": [f"{LONG}-s{at}" for at in range(5)]}
    said["whatWouldChange"] = [f"{LONG}-c{at}" for at in range(5)]
    of = rollout(decision=said, lastHandledOverride=refused)
    view = seen(serving_line(conditions=ill, floor=floor), of, LeaseSeen(f"{'n' * 200}/REMEDY-lease", False, {}))
    told = page(view, width=width)
    ends = [*kinds, "refused", "floor", *(f"{letter}{at}" for letter in "sc" for at in range(5)), "lease"]
    assert [each for each in ends if f"REMEDY-{each}" not in told.replace("\n", "").replace(" ", "")] == []


def test_in_full_nothing_of_the_settings_and_of_the_evidence_is_cut() -> None:
    value = f"{'v' * 300}END"
    many = [{"area": "Other", "name": f"d{at}", "candidate": value, "declared": True} for at in range(6)]
    view = seen(of=rollout(differences=many))
    assert "and 2 more differences" in page(view) and "END" not in page(view)
    told = page(view, full=True).replace("\n", "").replace(" ", "")
    assert told.count("END") == 6 and "moredifference" not in told


def test_of_an_allowed_rollback_it_is_told_how_to_have_it() -> None:
    said = decided("Rollback", "CandidateUnavailable")
    view = elsewhere({"candidate": of_digest("2")}, decision=said, endedAt=None)
    assert view.rolls_back_candidate
    kept = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-77"}
    before = {**of_digest("1"), "template": kept, "since": "2026-11-01T08:30:00Z", "how": "FirstSeen"}
    known = elsewhere({"candidate": of_digest("2"), "promotedProfile": before}, decision=said, endedAt=None)
    assert fields(known)["rolling back"] == (
        "allowed as it stands, no override is needed; the gate changes no workload: the promoted profile 111111111111 "
        "(its template is in ReplicaSet chat-77) shall serve alone"
    )
    held = elsewhere({"candidate": of_digest("2")}, decision=decided("Hold"))
    gone = elsewhere({"candidate": of_digest("3")}, decision=said)
    serving = {
        "candidate": None,
        "promotedProfile": {**of_digest("2"), "since": "2026-11-01T08:30:00Z", "how": "Promoted"},
    }
    for other in (held, gone, elsewhere(serving, decision=said)):
        assert not other.rolls_back_candidate and "rolling back" not in fields(other)


def test_a_rollout_whose_line_is_not_there_is_told_by_its_own_status() -> None:
    ill = [condition("Accepted", "False", "LineNotFound")]
    view = view_of(None, rollout(conditions=ill), LeaseSeen("sys/lease", False, {}), NOW)
    told = fields(view)
    assert page(view, commands=()).startswith("HOLD  prod/chat  rollout chat-5f2c1e9a\n")
    assert told["note"] == (
        f"There is no ServingLine chat here (any more): nothing is done about this rollout. | {NO_LEASE}"
    )
    assert told["not well"].startswith("Accepted is False (LineNotFound): ")
    assert told["candidate"].startswith("2 of 28 bad") or "bad" in told["candidate"]
    assert "floor" not in told and "watch" not in told


def test_colours_are_only_where_there_is_a_terminal_for_them() -> None:
    painted = page(seen(), palette=Palette(warn="<w>", bold="<b>", dim="<d>", reset="<r>"))
    assert painted.startswith("<b><w>HOLD<r>  prod/chat")
    assert "<" not in page(seen())


def test_nothing_of_an_object_steers_the_terminal() -> None:
    evil = "\x1b[2Jevil\u202e"
    line = serving_line(conditions=[{**condition("Accepted", "False", "SpecInvalid"), "message": evil}])
    line["metadata"]["name"] = line["metadata"]["namespace"] = evil
    of = rollout(decision=decided(cause=evil, sentences=[evil], whatWouldChange=[evil]))
    of["metadata"]["name"] = evil
    of["status"]["differences"] = [{"area": "Other", "name": evil, "baseline": evil, "declared": True}]
    of["status"]["evidence"] |= {"store": evil, "run": evil}
    view = seen(line, of)
    for text in (page(view), render_line_table([view], namespaces=True)):
        assert "evil" in text and is_clean(text)


def test_the_table_has_a_row_for_each_line() -> None:
    bare = {"metadata": {"name": "b", "namespace": "prod", "generation": 1}, "spec": {}}
    views = [seen(alone=True), view_of(bare, None, None, NOW, alone=True)]
    assert [line.split("  ")[0] for line in render_line_table(views).splitlines()] == ["NAME", "b", "chat"]
    assert [re.split(" {2,}", line) for line in render_line_table(views).splitlines()] == [
        ["NAME", "DECISION", "PREFILLS", "ROLLBACK", "CANDIDATE", "AGE", "NOT WELL"],
        ["b", "-", "-", "-", "-", "unknown", "unknown"],
        ["chat", "Hold", "2 bad of 10", "Refused", "60303ae22b99", "2d", "-"],
    ]
    ends = zip(render_line_table(views).splitlines(), ("NOT WELL", "unknown", "-"), strict=True)
    assert len({line.rindex(last) for line, last in ends}) == 1
    assert render_line_table(views, namespaces=True).splitlines()[2].startswith("prod        chat   Hold")


def line_of(name: str, *conditions: dict[str, Any], **status: Any) -> LineView:
    line = serving_line(conditions=list(conditions), currentRollout=None, **status)
    line["metadata"]["name"] = name
    return view_of(line, None, None, NOW, alone=True)


def test_the_table_says_what_is_not_well_the_worst_first() -> None:
    refused = condition("Accepted", "False", "SecretNotUsable")
    ungated = condition("Gating", "False", "NotAccepted")
    down = condition("EndpointsReady", "False", "NoReadyPods")
    views = [
        line_of("idle", condition("Accepted", "True", "Accepted"), condition("Gating", "False", "NoCandidate")),
        line_of("floor", condition("InstrumentChecked", "Unknown", "FloorInterrupted")),
        line_of("secret", ungated, down, refused),
        line_of("worse", down, condition("RollbackAllowed", "True", "RegressionConfirmed")),
        line_of("pods", down, condition("RollbackAllowed", "False", "OtherTraffic")),
        line_of("lost", condition("PromotionAllowed", "False", "BaselineUnavailable")),
        line_of("due", condition("PromotionAllowed", "False", "ReplicateDue")),
        line_of("replay", notWell="ReplayInterrupted"),
        line_of("said", condition("Overridden", "True", "OverrideObeyed")),
    ]
    rows = [re.split(" {2,}", row) for row in render_line_table(views).splitlines()]
    assert [(row[0], row[-1]) for row in rows] == [
        ("NAME", "NOT WELL"),
        ("worse", "RegressionConfirmed, NoReadyPods"),
        ("secret", "SecretNotUsable, NoReadyPods"),
        ("pods", "NoReadyPods"),
        ("floor", "FloorInterrupted"),
        ("lost", "BaselineUnavailable"),
        ("replay", "ReplayInterrupted"),
        ("idle", "-"),
        ("due", "-"),
        ("said", "-"),
    ]
    assert [each.reason for each in views[2].not_well] == ["SecretNotUsable", "NoReadyPods"]


def test_a_floor_that_cannot_be_measured_is_told_by_why() -> None:
    broken = {**condition("InstrumentChecked", "Unknown", "FloorInterrupted"), "message": "It serves no model x."}
    told = fields(seen(serving_line(floor=None, conditions=[broken])))
    assert told["floor"] == "unknown: why stands under not well"
    assert told["not well"] == "InstrumentChecked is Unknown (FloorInterrupted): It serves no model x."
    due = [condition("InstrumentChecked", "Unknown", "FloorRunning")]
    told = fields(seen(serving_line(floor=None, conditions=due)))
    assert told["floor"] == "unknown: The baseline is being compared with itself."


def test_plain_data_has_null_where_the_status_says_nothing() -> None:
    facts = line_facts(seen(lease=LeaseSeen("sys/lease", False, {})))
    assert (facts["decision"], facts["prefills"], facts["rollout"]) == ("Hold", "2 bad of 10", "chat-5f2c1e9a")
    assert facts["doubts"] == [NO_LEASE]
    assert facts["age_seconds"] == 183_600
    bare = line_facts(view_of({"metadata": {"name": "b"}}, None, None, NOW))
    assert {key for key, value in bare.items() if value is None} == {
        *("decision", "promotion", "rollback", "reason", "prefills", "rollout", "candidate", "promoted"),
        *("differences", "age_seconds"),
    }


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86_399, "23h"),
        (86_400, "1d"),
        (None, UNKNOWN),
    ],
)
def test_an_age_is_told_in_its_largest_unit(seconds: float | None, told: str) -> None:
    assert age(seconds) == told


def test_statuses_with_every_field_are_read() -> None:
    """Otherwise the tests above would be about empty ones."""
    assert ServingLineStatus.model_validate(serving_line()["status"]).floor is not None
    assert ProfileRolloutStatus.model_validate(rollout()["status"]).counts is not None


def of_digest(digit: str, **more: Any) -> dict[str, Any]:
    return {"digest": f"sha256:{digit * 64}", "writtenDigest": f"sha256:{digit * 64}", "name": digit * 12, **more}


def elsewhere(line: dict[str, Any], **status: Any) -> LineView:
    """A line with that status beside a rollout of 1 -> 2 that has ended with Promote."""
    given = {"candidate": of_digest("2"), "endedAt": "2026-11-30T10:00:00Z", "decision": decided("Promote"), **status}
    line = {"promotedProfile": {**of_digest("1"), "since": "2026-11-01T08:30:00Z", "how": "FirstSeen"}, **line}
    return seen(serving_line(**line), rollout(**given))


PAST = (
    "What rollout chat-5f2c1e9a said of 222222222222 (promote, ended 2 h 0 min ago) is past: "
    "this line neither has nor serves that profile now."
)


def test_a_rollout_about_a_profile_that_the_line_has_no_more_is_past() -> None:
    view = elsewhere({"candidate": of_digest("3"), "decision": None, "watch": None})
    assert view.is_past and view.doubts == (PAST,) and view.rollout is not None
    assert view.of_now.rollout is None and view.of_now.doubts == (PAST,)
    told = page(view.of_now, commands=())
    assert told.startswith("NO ROLLOUT  prod/chat\n")
    assert "decision        the candidate 333333333333 is not judged yet\n" in told
    assert "Promote it is" not in told and "prefills" not in told.split("note")[0]
    assert page(view).startswith("PROMOTE  prod/chat  rollout chat-5f2c1e9a\n"), (
        "of a rollout that was asked for by name"
    )
    alone = elsewhere({"candidate": None, "decision": None, "watch": None})
    assert "decision        no candidate is judged\n" in page(alone.of_now)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ({"candidate": of_digest("2")}, {}),
        ({"candidate": of_digest("3", writtenDigest=f"sha256:{'2' * 64}")}, {}),
        ({"candidate": None, "promotedProfile": {**of_digest("2"), "since": "x", "how": "Promoted"}}, {}),
        ({"candidate": None, "promotedProfile": None}, {}),
        ({"candidate": of_digest("3")}, {"endedAt": None}),
        ({"candidate": of_digest("3")}, {"candidate": None}),
    ],
)
def test_a_rollout_about_what_the_line_has_or_of_which_that_is_not_known_is_not_past(
    line: dict[str, Any], status: dict[str, Any]
) -> None:
    view = elsewhere(line, **status)
    assert not view.is_past and view.of_now is view and PAST not in view.doubts
    assert page(view.of_now).startswith("PROMOTE  prod/chat  rollout chat-5f2c1e9a\n")


def test_beside_a_rollout_that_is_past_the_watch_of_what_serves_is_told() -> None:
    alarm = {"number": 1, "outcome": "Alarm", "alarm": True, "prefills": 8, "badPrefills": 3}
    line = {"candidate": of_digest("3"), "decision": "Rollback", "promotion": "Blocked", "rollback": "Allowed"}
    told = page(elsewhere({**line, "watch": alarm}).of_now)
    assert told.startswith("ROLLBACK  prod/chat\n")
    assert "rollback        Allowed of the promoted profile, by its watch\n" in told
    told = page(elsewhere({**line, "decision": None, "watch": alarm}).of_now)
    assert told.startswith("ALARM  prod/chat\n") and "by its watch" not in told
