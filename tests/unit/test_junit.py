"""JUnit as CI systems read it: the structure they insist on, and one result for each replay case and each answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree as Xml

import pytest

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.decision import ERRORS, Reason
from prefillgate.core.earlier import Watching
from prefillgate.core.journal import MeasurementLost, Purpose
from prefillgate.core.judge import judge
from prefillgate.core.shape import Shape, fitted
from prefillgate.core.verdict import CellClass, Promotion, Rollback, Verdict
from prefillgate.report import render
from tests.support import verdicts
from tests.support.journals import cell, score, screen, started
from tests.support.stores import Played
from tests.unit.test_judge import JOURNALS

# What the schemas of Jenkins, Ant and GitLab have in common: allowed attributes, those required, children in order.
SCHEMA: dict[str, tuple[set[str], set[str], tuple[str, ...]]] = {
    "testsuites": ({"name", "tests", "failures", "errors", "skipped"}, set(), ("testsuite*",)),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped"},
        {"name", "tests", "failures", "errors"},
        ("properties?", "testcase*"),
    ),
    "properties": (set(), set(), ("property*",)),
    "property": ({"name", "value"}, {"name", "value"}, ()),
    "testcase": ({"name", "classname"}, {"name", "classname"}, ("skipped?", "error?", "failure?")),
    "failure": ({"message", "type"}, {"type"}, ()),
    "error": ({"message", "type"}, {"type"}, ()),
    "skipped": ({"message"}, set(), ()),
}
DECISION = ("promotion", "rollback", "throughput")
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def check(element: Xml.Element) -> None:
    """Assert that an element and all below it are as the schema has them."""
    allowed, required, order = SCHEMA[element.tag]
    assert required <= set(element.attrib) <= allowed, element.tag
    kinds = [child.tag for child in element]
    pattern = "".join(f"(?:{kind[:-1]} ){kind[-1]}" for kind in order)
    assert re.fullmatch(pattern, "".join(f"{kind} " for kind in kinds)), f"{element.tag}: {kinds}"
    for name in ("tests", "failures", "errors", "skipped"):
        if name in element.attrib:
            assert element.attrib[name].isdigit()
    if element.tag == "testcase":
        assert len(kinds) <= 1 and element.attrib["name"].strip()
    for child in element:
        check(child)


def results(document: str) -> dict[tuple[str, str], Xml.Element | None]:
    """(classname, name) to what stands in the test case, as a CI system keys it; two of one key fail."""
    root = Xml.fromstring(document.encode("utf-8"))
    check(root)
    found: dict[tuple[str, str], Xml.Element | None] = {}
    for case in root.iter("testcase"):
        key = (case.attrib["classname"], case.attrib["name"])
        assert key not in found, key
        found[key] = case[0] if len(case) else None
    return found


def kind(found: dict[tuple[str, str], Xml.Element | None], name: str, suite: str = "decision") -> str:
    element = found[(f"prefillgate.{suite}", name)]
    return "passed" if element is None else element.tag


def cases(found: dict[tuple[str, str], Xml.Element | None]) -> list[str]:
    return [name for suite, name in found if suite == "prefillgate.replay"]


@pytest.mark.parametrize("sample", list(verdicts.SAMPLES))
def test_a_document_is_as_ci_systems_want_it(sample: str) -> None:
    document = render(verdicts.SAMPLES[sample](), "junit")
    assert document.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    found = results(document)
    assert [name for suite, name in found if suite == "prefillgate.decision"] == list(DECISION)


@pytest.mark.parametrize("text", verdicts.HOSTILE, ids=range(len(verdicts.HOSTILE)))
def test_hostile_text_is_legal_xml_and_keeps_the_structure(text: str) -> None:
    for make in (verdicts.confirmed, verdicts.could_not_measure, verdicts.every_class):
        told = verdicts.with_text(make(), text or "x")
        document = render(told, "junit")
        assert NOT_XML.search(document) is None
        assert {name for suite, name in results(document) if suite == "prefillgate.decision"} == set(DECISION)


NOBODY = {Reason.FLOOR_MEASURED: "instrument", Reason.NO_ALARM: "alarm"}


@pytest.mark.parametrize("reason", list(NOBODY), ids=str)
def test_a_run_that_judges_nobody_has_one_answer(reason: Reason) -> None:
    found = results(render(judge(JOURNALS[reason]()), "junit"))
    assert [name for suite, name in found if suite == "prefillgate.decision"] == [NOBODY[reason]]
    assert kind(found, NOBODY[reason]) == "passed"
    replayed = [element for (suite, _), element in found.items() if suite == "prefillgate.replay"]
    assert replayed.count(None) == (12 if reason is Reason.FLOOR_MEASURED else 3)


def test_an_alarm_after_a_promotion_fails_and_a_floor_that_was_cut_short_is_skipped() -> None:
    alone = Shape(candidate_alone=True)
    gate = started(fitted(STANDARD, alone), shape=alone, watching=Watching(8))
    screen(gate, True, True, True)
    element = results(render(judge(gate), "junit"))[("prefillgate.decision", "alarm")]
    assert element is not None
    assert (element.tag, element.get("type")) == ("failure", "AlarmWithoutBaseline")
    floor = Shape(baseline_alone=True)
    cut = started(fitted(STANDARD, floor), shape=floor)
    assert kind(results(render(judge(cut), "junit")), "instrument") == "skipped"
    score(cut, cell(BASELINE, status=Status.OK), purpose=Purpose.BASELINE_PASS)
    cut.apply(MeasurementLost(1.0, "PowerCut", "the lights went out"))
    assert kind(results(render(judge(cut), "junit")), "instrument") == "error"


@pytest.mark.parametrize("reason", [each for each in JOURNALS if each not in NOBODY], ids=str)
def test_every_answer_is_told_by_its_kind(reason: Reason) -> None:
    verdict = judge(JOURNALS[reason]())
    found = results(render(verdict, "junit"))
    promotion, rollback = kind(found, "promotion"), kind(found, "rollback")
    assert (promotion == "passed") is (verdict.decision.promotion is Promotion.ALLOWED)
    assert (promotion == "error") is (reason in ERRORS)
    assert (rollback == "failure") is (verdict.decision.rollback is Rollback.ALLOWED)
    assert (rollback == "error") is (reason in ERRORS)
    if reason in (Reason.MORE_EVIDENCE_NEEDED, Reason.DEADLINE, Reason.BUDGET_SPENT, Reason.THROUGHPUT_OPEN):
        assert promotion == "skipped"
    if reason is Reason.SLOWER:
        assert (promotion, rollback, kind(found, "throughput")) == ("failure", "passed", "failure")
    for name in ("promotion", "rollback"):
        element = found[("prefillgate.decision", name)]
        if element is not None:
            assert f"{reason}: {verdict.decision.sentences[0]}"[:400] in (element.get("message") or "")
    assert cases(found) == list(verdict.cases)


def test_every_case_of_the_replay_set_has_its_result_whether_it_was_asked_or_not() -> None:
    played = Played(seed=3, most_cells=5, prompts=9)
    verdict = judge(played.play())
    found = results(render(verdict, "junit"))
    assert cases(found) == [f"case {number}" for number in range(9)]
    asked = {view.cell.case_id for view in verdict.cells if view.cell.arm == CANDIDATE}
    told = {name: kind(found, name, "replay") for name in cases(found)}
    assert 0 < len(asked) < 9
    assert {name for name, state in told.items() if state != "skipped"} == asked
    assert "passed" in told.values()
    skipped = found[("prefillgate.replay", next(name for name in told if name not in asked))]
    assert skipped is not None and (skipped.tag, skipped.get("message")) == ("skipped", "the candidate was not asked")


Kind = Callable[[], Verdict]


@pytest.mark.parametrize(
    ("cell_class", "bad", "state"),
    [
        (CellClass.FRESH, True, "failure"),
        (CellClass.FRESH, False, "passed"),
        (CellClass.FRESH, None, "error"),
        (CellClass.UNKNOWN, False, "error"),
        (CellClass.UNKNOWN, True, "failure"),
        (None, None, "error"),
    ],
)
def test_a_bad_fresh_unit_is_a_failure_and_what_was_not_measured_an_error(
    cell_class: CellClass | None, bad: bool | None, state: str
) -> None:
    unit = 1 if cell_class is CellClass.FRESH else None
    view = verdicts.view(0, CANDIDATE, "a", cell_class, bad=bad, unit=unit)
    found = results(render(verdicts.build(verdicts.empty().decision, (view,)), "junit"))
    assert kind(found, "a", "replay") == state


def test_cases_that_are_shown_alike_or_named_like_an_answer_keep_results_of_their_own() -> None:
    names = ("a\x1b", "a⟨ESC⟩", "promotion", "case promotion", "a⟨ESC⟩ (2)")
    verdict = replace(verdicts.empty(), cases=names)
    shown = cases(results(render(verdict, "junit")))
    assert shown == ["a⟨ESC⟩", "a⟨ESC⟩ (2)", "case promotion", "case promotion (2)", "a⟨ESC⟩ (2) (2)"]
