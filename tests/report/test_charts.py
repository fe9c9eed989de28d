"""The charts of the report put every figure where it belongs: positions are held against the numbers they stand for."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from prefillgate.core.cells import CANDIDATE
from prefillgate.core.verdict import CellClass, Verdict
from prefillgate.report import charts
from tests.support import verdicts

CLOSE = 0.02  # coordinates have two decimals


def parsed(chart: object) -> ElementTree.Element:
    assert chart is not None
    return ElementTree.fromstring(str(chart))


def having(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    """Elements of a class, in the order drawn."""
    return [element for element in root.iter() if kind == element.get("class")]


def titled(root: ElementTree.Element) -> list[tuple[str, ElementTree.Element]]:
    """(title, mark) of every group and of every mark that carries its own title."""
    found = []
    for element in root.iter():
        title = element.find("title")
        if title is not None and element is not root:
            mark = next((child for child in element if child.tag in ("circle", "rect")), element)
            found.append((title.text or "", mark))
    return found


def place(element: ElementTree.Element, axis: str) -> float:
    """The middle of a circle or a square."""
    centre = element.get(f"c{axis}")
    return float(centre) if centre is not None else float(element.get(axis, "nan")) + 3.5


def assert_on_a_scale(values: Sequence[float], places: Sequence[float], rising: bool) -> None:
    """The places are a linear function of the values, rising or falling."""
    low, high = min(values), max(values)
    first, last = places[values.index(low)], places[values.index(high)]
    assert (last > first) is rising
    for value, at in zip(values, places, strict=True):
        assert at == pytest.approx(first + (last - first) * (value - low) / (high - low), abs=CLOSE)


def test_the_acceptance_path_ends_where_the_candidate_stands_and_crosses_each_bad_step() -> None:
    verdict = verdicts.story()
    root = parsed(charts.path_chart(verdict))
    stops = having(root, "stop")
    (now,) = having(root, "now")
    end = verdict.path[-1]
    marks, values = [*stops, now], [*verdict.acceptance, end.prefills]
    assert_on_a_scale(values, [place(mark, "x") for mark in marks], rising=True)
    assert_on_a_scale([0, 1, 2, end.bad], [place(mark, "y") for mark in marks], rising=False)
    told = [mark.findtext("title") for mark in marks]
    assert told[:3] == [f"promote at {at} prefills with at most {bad} bad" for bad, at in enumerate((32, 56, 75))]
    assert told[3] == f"now: {end.prefills} prefills, {end.bad} bad" == "now: 10 prefills, 2 bad"
    assert len(having(root, "cross-line")) == 2 * end.bad  # two strokes each
    walk = having(root, "walk")[0].get("points", "").split()
    assert walk[-1] == f"{now.get('cx')},{now.get('cy')}"


def test_the_e_value_is_drawn_on_a_log_scale_with_the_threshold_it_reached() -> None:
    (replicate,) = verdicts.confirmed().replicates
    root = parsed(charts.e_value_chart(replicate))
    pairs = [mark for title, mark in titled(root) if title.startswith("pair ")]
    (threshold,), (futility,) = having(root, "threshold"), having(root, "futility")
    assert len(pairs) == len(replicate.pairs)
    values = [*(math.log(pair.e_value) for pair in replicate.pairs), math.log(replicate.threshold), math.log(0.05)]
    levels = [float(line.get("y1", "nan")) for line in (threshold, futility)]
    assert_on_a_scale(values, [*(place(mark, "y") for mark in pairs), *levels], rising=False)
    assert_on_a_scale(range(len(pairs)), [place(mark, "x") for mark in pairs], rising=True)
    bad = [mark.get("class") == "point bad" for mark in pairs]
    assert bad == [pair.candidate_bad for pair in replicate.pairs]


def test_decode_ratios_stand_at_their_value_with_estimate_margin_and_interval() -> None:
    verdict = verdicts.promote()
    view = verdict.throughput
    assert view.ratio is not None and view.ratio_interval is not None
    root = parsed(charts.ratio_chart(verdict))
    pairs = [mark for title, mark in titled(root) if title.startswith("pair ")]
    ratios = [charts.pair_ratio(pair) or math.nan for pair in view.pairs]
    assert len(pairs) == len(view.pairs) == 12
    levels = {kind: float(having(root, kind)[0].get("y1", "nan")) for kind in ("even", "futility", "estimate")}
    (band,) = having(root, "band")
    top = float(band.get("y", "nan"))
    values = [*ratios, 1.0, 1 + view.margin, view.ratio, view.ratio_interval[1], view.ratio_interval[0]]
    ends = [top, top + float(band.get("height", "nan"))]
    assert_on_a_scale(values, [*(place(mark, "y") for mark in pairs), *levels.values(), *ends], rising=False)
    assert (band.findtext("title") or "").startswith("90 % interval +")
    unused = [mark.get("class") for mark, pair in zip(pairs, view.pairs, strict=True) if not pair.used]
    assert unused == ["point unused"]
    assert any("not used: " in title for title, _ in titled(root))


def drawn(verdict: Verdict) -> list[tuple[str, ElementTree.Element]]:
    return [(title, mark) for title, mark in titled(parsed(charts.prefill_chart(verdict))) if title.startswith("cell ")]


def test_prefill_time_stands_against_prompt_tokens_for_every_scored_cell() -> None:
    lengths, times = (400, 900, 1600, 1700), (100.0, 230.0, 380.0, 420.0)
    kinds = (CellClass.FRESH, CellClass.COPY, CellClass.UNKNOWN, CellClass.FRESH)
    cells = tuple(
        verdicts.view(number, CANDIDATE, f"case {number}", kind, bad=False, prompt_tokens=length, prefill_ms=ms)
        for number, (kind, length, ms) in enumerate(zip(kinds, lengths, times, strict=True))
    )
    marks = drawn(replace(verdicts.promote(), cells=cells))
    assert [mark.tag for _, mark in marks] == ["circle", "rect", "circle", "circle"]
    assert_on_a_scale(lengths, [place(mark, "x") for _, mark in marks], rising=True)
    assert_on_a_scale(times, [place(mark, "y") for _, mark in marks], rising=False)
    assert marks[1][0] == "cell 1, case 1, candidate: copy, 900 tokens in 230 ms"


def test_far_apart_prefill_times_are_drawn_on_a_log_scale_and_bad_ones_on_top() -> None:
    verdict = verdicts.story()
    marks = drawn(verdict)
    seen = {view.cell_id: view for view in verdict.cells}
    views = [seen[int(re.findall(r"^cell (\d+)", title)[0])] for title, _ in marks]
    assert sorted(view.cell_id for view in views) == sorted(seen)
    times = [math.log(view.cell.prefill_ms or math.nan) for view in views]
    assert max(times) - min(times) > math.log(10)
    assert_on_a_scale(times, [place(mark, "y") for _, mark in marks], rising=False)
    outcomes = [view.bad is True for view in views]
    assert outcomes == sorted(outcomes)
    assert sum(", BAD" in title for title, _ in marks) == sum(outcomes) == 11


def test_bad_rates_stand_with_the_ends_of_their_intervals() -> None:
    verdict = verdicts.story()
    root = parsed(charts.interval_chart(verdict))
    grid = [float(line.get("x1", "nan")) for line in having(root, "grid")]
    rows = [group for group in root.iter("g") if (group.get("class") or "").startswith("interval ")]
    assert [group.get("class") for group in rows] == [
        "interval naive b",
        "interval naive c",
        "interval honest b",
        "interval honest c",
    ]
    expected = []
    for counts in (verdict.baseline, verdict.candidate):
        expected.append((counts.request_interval, counts.bad_requests / counts.requests))
    for counts in (verdict.baseline, verdict.candidate):
        expected.append((counts.prefill_interval, counts.bad_prefills / counts.prefills))
    for group, (interval, rate) in zip(rows, expected, strict=True):
        assert interval is not None
        whisker, dot = group.findall("line")[0], group.find("circle")
        assert dot is not None
        places = [float(whisker.get("x1", "nan")), float(whisker.get("x2", "nan")), place(dot, "x")]
        assert_on_a_scale([0, 1, *interval, rate], [grid[0], grid[-1], *places], rising=True)


def test_without_figures_there_is_no_chart() -> None:
    empty = verdicts.empty()
    assert charts.interval_chart(empty) is None
    assert charts.ratio_chart(empty) is None
    assert charts.prefill_chart(empty) is None
    assert charts.path_chart(replace(empty, acceptance=())) is None
    (replicate,) = verdicts.confirmed().replicates
    assert charts.e_value_chart(replace(replicate, pairs=())) is None
