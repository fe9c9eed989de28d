"""The verdict as JUnit XML: one test case per replay case, and promotion, rollback and throughput.

A bad output is a failure, a case that could not be measured an error, a hold for lack of evidence is
skipped with its message. The three are never mixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree as Xml

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.floor import floor_sentence
from prefillgate.core.stored_baseline import baseline_sentence
from prefillgate.core.verdict import CellClass, CellView, Promotion, Rollback, ThroughputState, Verdict
from prefillgate.report.clean import one_line, visible
from prefillgate.report.json_report import ARM_FIELDS
from prefillgate.report.units import case_ids, failed_checks
from prefillgate.report.words import JUDGES_NOBODY, number

PASSED, FAILURE, ERROR, SKIPPED = "passed", "failure", "error", "skipped"
_DECISION_CASES = ("promotion", "rollback", "throughput")


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One test case. `kind` is passed, failure, error or skipped."""

    name: str
    kind: str
    type: str = ""
    message: str = ""
    body: str = ""


def render_junit(verdict: Verdict) -> str:
    """A `testsuites` document with two suites: the replay cases and the decision."""
    names = dict.fromkeys((*verdict.cases, *case_ids(verdict)))
    cases = [_replay_case(verdict, case_id) for case_id in names]
    decision = _decision(verdict)
    root = Xml.Element("testsuites", {"name": visible(f"prefillgate {verdict.title}"), **_totals(cases + decision)})
    _suite(root, "replay", cases)
    suite = _suite(root, "decision", decision)
    suite.insert(0, _properties(verdict))
    Xml.indent(root)
    text: str = Xml.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _decision(verdict: Verdict) -> list[CaseResult]:
    """What is answered: promotion, rollback and speed; of a floor the instrument, of a watch its alarm."""
    if not verdict.judges_nobody:
        return [_promotion(verdict), _rollback(verdict), _throughput(verdict)]
    name, decision = "instrument" if verdict.floor_alone else "alarm", verdict.decision
    message = f"{decision.reason}: {' '.join(decision.sentences)}"
    if decision.reason in JUDGES_NOBODY:
        return [CaseResult(name, PASSED)]
    kind = ERROR if not decision.measured else FAILURE if verdict.alarm else SKIPPED
    return [CaseResult(name, kind, decision.reason, message, _change(verdict))]


def _suite(root: Xml.Element, name: str, results: list[CaseResult]) -> Xml.Element:
    suite = Xml.SubElement(root, "testsuite", {"name": name, **_totals(results)})
    for result, shown in zip(results, _unlike([visible(result.name) for result in results]), strict=True):
        case = Xml.SubElement(suite, "testcase", classname=f"prefillgate.{name}", name=shown)
        if result.kind == PASSED:
            continue
        attributes = {"message": one_line(result.message, 500)}
        if result.kind != SKIPPED:
            attributes["type"] = visible(result.type)
        told = Xml.SubElement(case, result.kind, attributes)
        told.text = visible(result.body or result.message)
    return suite


def _unlike(names: list[str]) -> list[str]:
    """No two alike: a CI system keeps one result for a name, and two ids may be shown alike."""
    shown: dict[str, None] = {}
    for name in names:
        number, unlike = 2, name
        while unlike in shown:
            number, unlike = number + 1, f"{name} ({number})"
        shown[unlike] = None
    return list(shown)


def _totals(results: list[CaseResult]) -> dict[str, str]:
    kinds = [result.kind for result in results]
    return {
        "tests": str(len(kinds)),
        "failures": str(kinds.count(FAILURE)),
        "errors": str(kinds.count(ERROR)),
        "skipped": str(kinds.count(SKIPPED)),
    }


def _replay_case(verdict: Verdict, case_id: str) -> CaseResult:
    arm = BASELINE if verdict.floor_alone else CANDIDATE
    views = [v for v in verdict.cells if v.cell.case_id == case_id and v.cell.arm == arm]
    scored = [view for view in views if view.cell_class is not None]
    bad = [view for view in scored if view.bad is True]
    fresh = {view.unit for view in scored if view.cell_class is CellClass.FRESH}
    body = "\n".join(_told(view) for view in views)
    name = case_id if case_id not in _DECISION_CASES else f"case {case_id}"
    if bad:
        bad_units = {view.unit for view in bad if view.unit in fresh}
        message = f"{len(bad)} of {len(scored)} cells bad, {len(bad_units)} of {len(fresh)} prefills bad"
        return CaseResult(name, FAILURE, "BadPrefill" if bad_units else "BadWithoutProof", message, body)
    erred = [view for view in scored if view.bad is None]
    if erred:
        message = f"{len(erred)} of {len(scored)} cells without an outcome: {failed_checks(erred[0]) or 'not checked'}"
        return CaseResult(name, ERROR, "NoOutcome", message, body)
    if not fresh and views:
        message = f"no fresh prefill of the {arm} could be shown in {len(views)} cells"
        return CaseResult(name, ERROR, "NotMeasured", message, body)
    if not fresh:
        return CaseResult(name, SKIPPED, message=f"the {arm} was not asked")
    return CaseResult(name, PASSED)


def _told(view: CellView) -> str:
    state = "invalid" if view.cell_class is None else view.cell_class.value
    outcome = {True: "bad", False: "clean", None: "no outcome"}[view.bad]
    more = "; ".join(part for part in (failed_checks(view), view.reason or "", view.detail or "") if part)
    return one_line(f"cell {view.cell_id}: {state}, {outcome}; {view.witness}{f'; {more}' if more else ''}")


def _promotion(verdict: Verdict) -> CaseResult:
    decision = verdict.decision
    if decision.promotion is Promotion.ALLOWED:
        return CaseResult("promotion", PASSED)
    message = f"{decision.reason}: {' '.join(decision.sentences)}"
    if not decision.measured:
        kind = ERROR
    elif _harm_seen(verdict):
        kind = FAILURE
    else:
        kind = SKIPPED
    return CaseResult("promotion", kind, decision.reason, message, _change(verdict))


def _rollback(verdict: Verdict) -> CaseResult:
    decision = verdict.decision
    message = f"{decision.reason}: {' '.join(decision.sentences)}"
    if decision.rollback is Rollback.ALLOWED:
        return CaseResult("rollback", FAILURE, decision.reason, f"rollback allowed. {message}", _change(verdict))
    if not decision.measured:
        return CaseResult("rollback", ERROR, decision.reason, message, _change(verdict))
    if verdict.alarm or verdict.replicates:
        return CaseResult("rollback", SKIPPED, message=f"rollback refused: not confirmed by fresh prefills. {message}")
    return CaseResult("rollback", PASSED)


def _throughput(verdict: Verdict) -> CaseResult:
    view = verdict.throughput
    told = view.sentence or f"{view.state.value}: ratio {number(view.ratio)} over {view.pairs_used} pairs"
    if view.state is ThroughputState.NOT_WORSE:
        return CaseResult("throughput", PASSED)
    if view.state is ThroughputState.WORSE:
        return CaseResult("throughput", FAILURE, "Slower", told)
    return CaseResult("throughput", SKIPPED, message=told)


def _harm_seen(verdict: Verdict) -> bool:
    """Whether promotion is blocked by what was seen rather than by what is missing."""
    return (
        verdict.decision.rollback is Rollback.ALLOWED
        or verdict.alarm
        or verdict.candidate.bad_for_promotion >= max(len(verdict.acceptance), 1)
        or verdict.throughput.state is ThroughputState.WORSE
    )


def _change(verdict: Verdict) -> str:
    sentences = verdict.decision.sentences
    return "\n".join((*sentences, *(f"Would change: {each}" for each in verdict.decision.what_would_change)))


def _properties(verdict: Verdict) -> Xml.Element:
    """The counts of both arms and the answer, exact, as properties."""
    decision = verdict.decision
    element = Xml.Element("properties")
    told: list[tuple[str, object]] = [
        ("decision", decision.decision.value),
        ("promotion", decision.promotion.value),
        ("rollback", decision.rollback.value),
        ("reason", decision.reason),
        ("cause", decision.cause),
        *([] if verdict.shape is None else [("isolation", verdict.shape.isolation.value)]),
        *([] if verdict.baseline_shown is None else [("stored_baseline", baseline_sentence(verdict.baseline_shown))]),
        *([] if verdict.floor is None else [("floor", floor_sentence(verdict.floor))]),
        ("replay_set", verdict.replay_set_name),
        ("replay_set_sha256", verdict.replay_set_sha256),
    ]
    for arm, _, counts in verdict.arms:
        told += [(f"{arm}.{name}", _exact(getattr(counts, name))) for name in ARM_FIELDS]
    for name, value in told:
        Xml.SubElement(element, "property", name=name, value=visible(str(value)))
    return element


def _exact(value: object) -> str:
    if isinstance(value, tuple):
        return " to ".join(repr(end) for end in value)
    return "unknown" if value is None else str(value)
