"""Five formats and the terminal say the same of every sample, and none of them breaks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.verdict import ArmCounts, CellClass, ThroughputState, Verdict
from prefillgate.report import Format, arm_counts_json, render
from prefillgate.report.clean import is_clean
from prefillgate.report.paper import WIDTH, Palette, columns_of
from prefillgate.report.terminal import LINES, SummaryOptions, render_terminal
from prefillgate.report.words import requests_of
from tests.support import verdicts

each_sample = pytest.mark.parametrize("sample", verdicts.SAMPLES.values(), ids=verdicts.SAMPLES.keys())
each_hostile = pytest.mark.parametrize("text", verdicts.HOSTILE, ids=range(len(verdicts.HOSTILE)))
Sample = Callable[[], Verdict]
Numbers = tuple[int, ...]
ARM_FIELDS = [
    "requests",
    "prefills",
    "decision_prefills",
    "copies",
    "partial",
    "unknown",
    "orphans",
    "bad_requests",
    "bad_prefills",
    "bad_for_promotion",
    "request_interval",
    "prefill_interval",
]


class Visible(HTMLParser):
    """The text a reader sees, element by element, and the structure without its text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.shape: list[tuple[str, tuple[str, ...]]] = []
        self._hidden = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shape.append((tag, tuple(sorted(name for name, _ in attrs))))
        self._hidden = tag if tag in ("style", "script", "title") else self._hidden

    def handle_endtag(self, tag: str) -> None:
        self.shape.append((f"/{tag}", ()))
        self._hidden = "" if tag == self._hidden else self._hidden

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.text.append(" ".join(data.split()))


def page_of(verdict: Verdict) -> Visible:
    parser = Visible()
    parser.feed(render(verdict, Format.HTML, verdicts.texts_of(verdict)))
    parser.close()
    return parser


def numbers_of(counts: ArmCounts) -> Numbers:
    return (counts.requests, counts.bad_requests, counts.prefills, counts.bad_prefills)


def of_bad(text: str) -> list[tuple[int, int]]:
    """Every `11 of 12 bad` as (bad, total), `none` as (0, 0)."""
    found = re.findall(r"(\d+) of (\d+) bad|\bnone\b", text)
    return [(int(bad or 0), int(total or 0)) for bad, total in found]


def rows_of_html(page: Visible) -> list[Numbers]:
    at = page.text.index("other cells") + 1
    rows: list[Numbers] = []
    for name in ("baseline", "candidate"):
        start = page.text.index(name, at)
        (requests,), (prefills,) = of_bad(page.text[start + 1]), of_bad(page.text[start + 3])
        rows.append((requests[1], requests[0], prefills[1], prefills[0]))
    return rows


def rows_of_lines(text: str, mark: str) -> list[Numbers]:
    rows: list[Numbers] = []
    for name in ("baseline", "candidate"):
        line = next(each for each in text.splitlines() if re.match(rf"{mark}{name} .*(bad|none)", each))
        requests, prefills = of_bad(line)[:2]
        rows.append((requests[1], requests[0], prefills[1], prefills[0]))
    return rows


def rows_of_junit(text: str) -> list[Numbers]:
    told = {each.get("name"): each.get("value") for each in ElementTree.fromstring(text).iter("property")}
    names = ("requests", "bad_requests", "prefills", "bad_prefills")
    return [tuple(int(told[f"{arm}.{name}"] or "") for name in names) for arm in ("baseline", "candidate")]


def cases_of(text: str) -> dict[str, str]:
    """Test case name to passed, failure, error or skipped."""
    cases = ElementTree.fromstring(text).iter("testcase")
    return {str(case.get("name")): case[0].tag if len(case) else "passed" for case in cases}


@each_sample
def test_every_format_tells_the_same_requests_and_prefills(sample: Sample) -> None:
    verdict = sample()
    wanted = [numbers_of(verdict.baseline), numbers_of(verdict.candidate)]
    arms = json.loads(render(verdict, "json"))["arms"]
    told = [tuple(arms[a][n] for n in ("requests", "bad_requests", "prefills", "bad_prefills")) for a in arms]
    assert told == wanted
    assert rows_of_html(page_of(verdict)) == wanted
    assert rows_of_lines(render(verdict, "markdown"), r"\| ") == wanted
    assert rows_of_lines(render_terminal(verdict), "") == wanted
    assert rows_of_junit(render(verdict, "junit")) == wanted


@each_sample
def test_every_format_tells_the_same_answer_for_the_same_reason(sample: Sample) -> None:
    verdict = sample()
    decision = verdict.decision
    promotion, rollback = decision.promotion.value, decision.rollback.value
    permissions = f"Promotion {promotion.lower()}, rollback {rollback.lower()}"
    told = json.loads(render(verdict, "json"))
    assert (told["promotion"], told["rollback"], told["reason"]) == (promotion, rollback, decision.reason)
    assert told["decision"] == decision.decision.value
    text = page_of(verdict).text
    at = text.index("Decision")
    assert (text[at + 1].lower(), text[at + 2], text[at + 5], text[at + 8 : at + 10]) == (
        decision.decision.value,
        "Promotion",
        "Rollback",
        ["Reason", decision.reason],
    )
    assert (text[at + 4], text[at + 7]) == (promotion, rollback)
    for format in ("markdown", "line"):
        assert permissions in render(verdict, format)
        assert decision.reason in render(verdict, format)
    properties = {
        e.get("name"): e.get("value") for e in ElementTree.fromstring(render(verdict, "junit")).iter("property")
    }
    assert (properties["promotion"], properties["rollback"]) == (promotion, rollback)
    assert (properties["decision"], properties["reason"]) == (decision.decision.value, decision.reason)


@each_sample
def test_the_line_counts_the_candidates_cells_and_prefills(sample: Sample) -> None:
    counts = sample().candidate
    line = render(sample(), "line")
    assert line.count("\n") == 1 and line.endswith("\n")
    if not counts.requests:
        assert "no cell scored" in line
        return
    assert f" {counts.bad_requests}/{counts.requests} cells bad" in line
    assert re.search(rf"\b{counts.prefills} prefill", line)


def test_the_line_of_the_story_says_that_the_rest_are_copies() -> None:
    assert render(verdicts.alarm_refused(), "line") == (
        "[flash-next] ALARM 11/12 cells bad (pr-412, pr-87), but only 2 prefills, the rest copies "
        "(2 of 2 prefills bad). Promotion blocked, rollback refused: ReplicateDue. Cause Unverified. "
        "Next: A replicate that reaches E 40 allows rollback.\n"
    )


def test_the_line_of_the_storys_end_says_that_the_replicate_did_not_confirm() -> None:
    line = render(verdicts.story(), "line")
    assert "11/20 cells bad (pr-412, pr-87), but only 10 prefills" in line
    assert "Replicate 1 did not confirm, 0/8 bad in fresh prefills." in line
    assert line.endswith("Next: 65 more clean prefills would promote.\n")


def test_the_line_of_a_promotion_is_short() -> None:
    assert render(verdicts.promote(), "line") == (
        "[flash-next] PROMOTE 0/32 cells bad on 32 prefills (0 of 32 bad). "
        "Promotion allowed, rollback refused: AcceptanceReached. Decode +7.5 %.\n"
    )


def test_json_has_the_documented_fields_in_order() -> None:
    told = json.loads(render(verdicts.story(), "json"))
    assert list(told)[:7] == [
        "decision",
        "promotion",
        "rollback",
        "reason",
        "sentences",
        "cause",
        "what_would_change",
    ]
    assert {"arms", "comparison", "throughput", "differences", "replicates", "prefills_used", "budget", "notes"} <= set(
        told
    )
    assert list(told["arms"]) == ["baseline", "candidate"]
    assert list(told["arms"]["candidate"]) == ARM_FIELDS
    assert list(told["comparison"]) == ["fisher_by_request", "fisher_by_prefill", "boschloo_by_prefill"]
    assert told["policy"]["acceptance"] == [
        {"bad": 0, "prefills": 32},
        {"bad": 1, "prefills": 56},
        {"bad": 2, "prefills": 75},
    ]
    assert told["differences"][2] == {
        "area": "build",
        "name": "build",
        "baseline": "b6710",
        "candidate": "b6712",
        "declared": False,
    }
    assert told["replicates"][0]["ending"] == "clean"
    assert told["replicates"][0]["confirmed"] is False


def test_json_numbers_are_never_rounded() -> None:
    verdict = verdicts.confirmed()
    told = json.loads(render(verdict, "json"))
    interval = verdict.candidate.prefill_interval
    assert interval is not None
    assert told["arms"]["candidate"]["prefill_interval"] == list(interval)
    assert told["replicates"][0]["e_value"] == verdict.replicates[0].e_value
    assert told["replicates"][0]["confirmed"] is True
    assert told["throughput"]["ratio"] == 1.0748123456789
    assert told["alarm"] == {"raised": True, "level": 2.97, "threshold": 2.302585092994046}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_never_holds_what_json_cannot_say(value: float) -> None:
    verdict = replace(
        verdicts.story(), alarm_level=value, comparison=replace(verdicts.story().comparison, fisher_by_request=value)
    )
    told = json.loads(render(verdict, "json"), parse_constant=pytest.fail)
    assert (told["alarm"]["level"], told["comparison"]["fisher_by_request"]) == (None, None)


def test_an_arm_where_nothing_was_seen_has_null_intervals() -> None:
    counts = arm_counts_json(verdicts.empty().candidate)
    assert list(counts) == ARM_FIELDS
    assert (counts["request_interval"], counts["prefill_interval"], counts["requests"]) == (None, None, 0)


def test_a_format_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="format is 'yaml', allowed are html, markdown, junit, json, line"):
        render(verdicts.promote(), "yaml")


def test_junit_has_a_case_for_every_replay_case_and_three_for_the_decision() -> None:
    cases = cases_of(render(verdicts.promote(), "junit"))
    assert cases == dict.fromkeys([*verdicts.CASES, "promotion", "rollback", "throughput"], "passed")


@pytest.mark.parametrize(
    ("sample", "promotion", "rollback", "throughput"),
    [
        ("alarm, rollback refused", "failure", "skipped", "skipped"),
        ("the story", "skipped", "skipped", "skipped"),
        ("confirmed", "failure", "failure", "skipped"),
        ("could not measure", "error", "error", "skipped"),
        ("empty", "skipped", "passed", "skipped"),
    ],
)
def test_junit_tells_failed_error_and_no_evidence_apart(
    sample: str, promotion: str, rollback: str, throughput: str
) -> None:
    cases = cases_of(render(verdicts.SAMPLES[sample](), "junit"))
    assert [cases[name] for name in ("promotion", "rollback", "throughput")] == [promotion, rollback, throughput]


def test_junit_fails_a_case_with_a_bad_prefill_and_errs_where_nothing_was_measured() -> None:
    cases = cases_of(render(verdicts.could_not_measure(), "junit"))
    assert (cases["pr-412"], cases["pr-87"], cases["pr-3"]) == ("error", "error", "error")
    story = cases_of(render(verdicts.story(), "junit"))
    assert [name for name, kind in story.items() if kind == "failure"] == ["pr-412", "pr-87"]
    assert story["pr-55"] == "passed"


def test_junit_skips_a_case_that_the_candidate_was_not_asked() -> None:
    cells = (verdicts.view(0, BASELINE, "a", unit=1), verdicts.view(1, CANDIDATE, "b", CellClass.UNKNOWN, bad=True))
    document = render(verdicts.build(verdicts.empty().decision, cells), "junit")
    assert cases_of(document)["a"] == "skipped"
    failure = ElementTree.fromstring(document).find(".//failure")
    assert failure is not None
    assert failure.get("type") == "BadWithoutProof"


def test_junit_counts_bad_prefills_apart_from_bad_cells() -> None:
    failure = ElementTree.fromstring(render(verdicts.alarm_refused(), "junit")).find(".//failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == ("BadPrefill", "6 of 6 cells bad, 1 of 1 prefills bad")


def test_more_bad_than_the_table_allows_is_a_failure_without_any_alarm() -> None:
    blocked = replace(verdicts.empty(), candidate=replace(verdicts.empty().candidate, bad_for_promotion=2))
    assert cases_of(render(blocked, "junit"))["promotion"] == "skipped"
    worse = replace(blocked, candidate=replace(blocked.candidate, bad_for_promotion=3))
    assert cases_of(render(worse, "junit"))["promotion"] == "failure"


def test_a_slower_candidate_fails_throughput_and_promotion_and_never_rollback() -> None:
    slower = replace(verdicts.empty(), throughput=verdicts.throughput(ThroughputState.WORSE))
    cases = cases_of(render(slower, "junit"))
    assert (cases["throughput"], cases["promotion"], cases["rollback"]) == ("failure", "failure", "passed")


@each_sample
def test_junit_totals_are_those_of_its_cases(sample: Sample) -> None:
    document = render(sample(), "junit")
    root, kinds = ElementTree.fromstring(document), list(cases_of(document).values())
    suites = [root, *root.findall("testsuite")]
    names = {"tests": None, "failures": "failure", "errors": "error", "skipped": "skipped"}
    for name, kind in names.items():
        total = len(kinds) if kind is None else kinds.count(kind)
        assert int(root.get(name) or "") == total
        assert sum(int(suite.get(name) or "") for suite in suites[1:]) == total


@each_sample
def test_a_terminal_summary_fits_one_screen(sample: Sample) -> None:
    options = SummaryOptions('prefillgate override run.db --rollback --reason "..."', "report.html")
    assert_fits(render_terminal(sample(), options))


@each_hostile
def test_a_terminal_summary_of_hostile_text_fits_one_screen(text: str) -> None:
    options = SummaryOptions('prefillgate override run.db --rollback --reason "..."', "report.html")
    for make in (verdicts.alarm_refused, lambda: verdicts.large(40)):
        assert_fits(render_terminal(verdicts.with_text(make(), text), options))


def assert_fits(summary: str) -> None:
    lines = summary.splitlines()
    assert len(lines) <= LINES == 40
    assert max(map(columns_of, lines)) <= WIDTH == 100
    assert all(is_clean(line) for line in lines)
    assert lines[-1] == "report          report.html"


def test_the_override_is_offered_only_where_promotion_is_blocked_and_rollback_refused() -> None:
    options = SummaryOptions("prefillgate override run.db")
    offered = {name: "override run.db" in render_terminal(make(), options) for name, make in verdicts.SAMPLES.items()}
    assert {name for name, told in offered.items() if not told} == {"promote", "confirmed"}


def test_colours_of_the_terminal_are_the_callers_and_change_no_word() -> None:
    palette = Palette(good="<g>", bad="<b>", warn="<w>", dim="<d>", bold="<B>", reset="</>")
    painted = render_terminal(verdicts.promote(), SummaryOptions(palette=palette))
    assert painted.startswith("<B><g>PROMOTE</>  flash-next\n")
    assert "promotion       <g>Allowed</>" in painted
    assert re.sub(r"</?[gbwdB]?>", "", painted) == render_terminal(verdicts.promote())
    assert "rollback        <b>Allowed</>" in render_terminal(verdicts.confirmed(), SummaryOptions(palette=palette))
    assert "<B><w>ALARM</>" in render_terminal(verdicts.alarm_refused(), SummaryOptions(palette=palette))


def test_wide_characters_take_two_columns_and_marks_none() -> None:
    assert [columns_of(text) for text in ("ab", "漢字", "e\u0301")] == [2, 4, 1]


def test_the_terminal_tells_what_changed_and_what_would_change_the_answer() -> None:
    text = render_terminal(verdicts.story())
    assert "what changed    layer placement: --tensor-split, 1,1 -> 3,2" in text
    assert "build: build, b6710 -> b6712 (UNDECLARED)" in text
    assert "would change it 65 more clean prefills would promote." in text
    assert "not confirmed (clean), restart, 0 of 8 candidate prefills bad, E 1 (confirms at 40)" in text


@each_sample
def test_html_is_one_small_file_without_script_or_outside_reference(sample: Sample) -> None:
    document = render(sample(), "html", verdicts.texts_of(sample()))
    assert document.startswith("<!doctype html>\n")
    assert len(document.encode()) < 1_000_000
    page = Visible()
    page.feed(document)
    tags = {tag for tag, _ in page.shape}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "image", "use", "video"}
    names = {name for _, attributes in page.shape for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("src", "style", "action", "xlink:href")]
    assert set(re.findall(r'href="([^"]{1})', document)) <= {"#"}
    assert "url(" not in document and "@import" not in document


@each_sample
def test_html_names_every_cell_with_its_cached_beside_its_prompt_tokens(sample: Sample) -> None:
    verdict = sample()
    document = render(verdict, "html")
    for view in verdict.cells:
        row = re.search(rf'<tr id="cell-{view.cell_id}".*?</tr>', document)
        assert row is not None
        columns = re.findall(r"<td[^>]*>(.*?)</td>", row[0])
        tokens = [view.cell.cached_tokens, view.cell.prompt_tokens]
        assert columns[7:9] == ["unknown" if count is None else f"{count:,}" for count in tokens]
        assert columns[13] == view.witness


@each_sample
def test_html_elements_are_closed_in_order(sample: Sample) -> None:
    open_tags: list[str] = []
    for tag, _ in page_of(sample()).shape:
        if tag.startswith("/"):
            assert open_tags.pop() == tag[1:]
        elif tag != "meta" and tag != "br":
            open_tags.append(tag)
    assert open_tags == []


def test_html_draws_every_unit_with_its_copies_and_crosses_the_bad_ones() -> None:
    document = render(verdicts.story(), "html")
    units = document.split('id="units"')[1].split('class="legend"')[0]
    assert units.count("<svg") == 4 - 0 + 8
    assert units.count('class="block fresh clean"') == 2 + 8
    assert units.count('class="block fresh bad"') == 2
    assert units.count('class="block copy clean"') == 18 + 1
    assert units.count('class="block copy bad"') == 9
    assert units.count('class="cross"') == 2 * 11
    assert "cell 20, pr-412: fresh, BAD; cached 0 of 16896 prompt tokens" in units


def test_html_tells_every_class_apart_without_colour() -> None:
    document = render(verdicts.every_class(), "html")
    units = document.split('id="units"')[1].split('class="legend"')[0]
    for kind in CellClass:
        assert f'class="block {kind.value} clean"' in units
        assert f'class="block {kind.value} bad"' in units
    assert units.count(">≠</text>") == 1
    assert units.count(">?</text>") == 1
    assert "Invalid cells, never scored (1)" in document


def test_html_sections_say_so_when_there_is_nothing_to_show() -> None:
    text = " ".join(page_of(verdicts.empty()).text)
    for told in (
        "No cell was scored, so there is no rate to show.",
        "No scored cell on this arm.",
        "No replicate was run",
        "No pair with two decode rates.",
        "No cell tells both its prompt tokens and its prefill time.",
        "No difference is known between the two profiles.",
        "No cell was run.",
    ):
        assert told in text
    no_table = replace(verdicts.empty(), acceptance=())
    assert "This policy has no acceptance table." in " ".join(page_of(no_table).text)


def test_html_shows_the_bad_text_beside_its_twin_with_its_own_words_marked() -> None:
    document = render(verdicts.story(), "html", verdicts.texts_of(verdicts.story()))
    assert '<pre class="text">VERDICT: <mark>LGTM</mark></pre>' in document
    assert "<mark>CHANGES REQUESTED</mark></pre>" in document
    assert "The text of this cell was not kept." in render(verdicts.story(), "html")


def test_html_shows_the_lines_that_decide_a_replicate() -> None:
    document = render(verdicts.confirmed(), "html")
    assert "confirms at 40" in document
    assert "futile at 0.05" in document
    assert "candidate BAD, baseline clean, factor 2.36, E 2.36" in document
    unknown = replace(verdicts.confirmed().replicates[0], futility=None)
    assert "futile at" not in render(replace(verdicts.confirmed(), replicates=(unknown,)), "html")


@each_hostile
def test_hostile_text_does_not_change_the_elements_of_the_page(text: str) -> None:
    for make in (verdicts.story, verdicts.confirmed, verdicts.every_class):
        shapes = []
        for told in (text, "harmless"):
            verdict = verdicts.with_text(make(), told)
            parser = Visible()
            parser.feed(render(verdict, "html", verdicts.texts_with(verdict, told)))
            shapes.append(parser.shape)
        if text:
            assert shapes[0] == shapes[1]
        else:
            assert {tag for tag, _ in shapes[0]} <= {tag for tag, _ in shapes[1]} | {"p", "/p"}


@each_hostile
def test_hostile_text_leaves_every_format_whole_and_clean(text: str) -> None:
    verdict = verdicts.with_text(verdicts.confirmed(), text)
    texts = verdicts.texts_with(verdict, text)
    for format in Format:
        document = render(verdict, format, texts)
        document.encode("utf-8")
        assert is_clean(document)
    assert render(verdict, "line").count("\n") == 1
    assert json.loads(render(verdict, "json"))["title"] == text
    ElementTree.fromstring(render(verdict, "junit").encode())


@each_hostile
def test_hostile_text_stays_text_in_markdown(text: str) -> None:
    verdict = verdicts.with_text(verdicts.confirmed(), text)
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    kinds: set[str] = set()
    links: list[Any] = []
    for token in parser.parse(render(verdict, "markdown", verdicts.texts_with(verdict, text))):
        kinds.add(token.type)
        links += [c for c in token.children or () if c.type in ("link_open", "image", "html_inline", "softbreak")]
    assert "html_block" not in kinds
    assert links == []


def test_markdown_shows_text_of_strangers_as_it_is() -> None:
    verdict = replace(verdicts.empty(), title="a*b* <b> [x](y) `c` @all http://h/ #1 1. x")
    html = MarkdownIt("commonmark").enable("table").render(render(verdict, "markdown"))
    assert "a*b* &lt;b&gt; [x](y) `c` @all http://h/ #1 1. x" in html


def test_markdown_of_a_long_run_is_short_enough_for_a_comment() -> None:
    document = render(verdicts.large(2000), "markdown", verdicts.texts_of(verdicts.large(2000)))
    assert len(document) < 60_000
    assert "more bad cells" in document


def test_rendering_twice_gives_the_same_bytes() -> None:
    for format in Format:
        texts = verdicts.texts_of(verdicts.large())
        assert render(verdicts.large(), format, texts) == render(verdicts.large(), format, texts)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, 1e300])
def test_strange_numbers_leave_every_format_whole(value: float) -> None:
    base = verdicts.confirmed()
    pairs = tuple(replace(pair, e_value=value) for pair in base.replicates[0].pairs)
    speeds = tuple(replace(p, candidate_tokens_per_second=value) for p in base.throughput.pairs)
    cells = tuple(replace(view, cell=replace(view.cell, prefill_ms=value, started_at=value)) for view in base.cells)
    verdict = replace(
        base,
        cells=cells,
        replicates=(replace(base.replicates[0], pairs=pairs, e_value=value),),
        throughput=replace(base.throughput, pairs=speeds),
        started_at=value,
        ended_at=value,
    )
    for format in Format:
        assert requests_of(base.candidate).split()[0] in render(verdict, format)
