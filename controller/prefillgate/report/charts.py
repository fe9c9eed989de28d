"""The charts of the report, each from a `Verdict` alone. None where there is nothing to draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from markupsafe import Markup

from prefillgate.core.cells import CANDIDATE
from prefillgate.core.verdict import (
    ArmCounts,
    CellClass,
    CellView,
    Interval,
    PairFactor,
    ReplicateView,
    ThroughputPair,
    Verdict,
)
from prefillgate.report import svg
from prefillgate.report.clean import one_line
from prefillgate.report.words import change, number, percent, percent_interval

Ticks = list[tuple[float, str]]


def interval_chart(verdict: Verdict) -> Markup | None:
    """Bad rates with their intervals: by request, where copies pass for evidence, above by prefill."""
    rows: list[tuple[str, int, int, Interval | None, str]] = []
    for arm, _, counts in verdict.arms:
        rows += _interval_rows(arm, arm[0], counts)
    rows.sort(key=lambda row: not row[0].startswith("by request"))
    if not any(row[3] for row in rows):
        return None
    width, height = 440.0, 196.0 if len(rows) > 2 else 116.0
    left, right = 168.0, width - 24
    scale = svg.Scale(0, 1, left, right)
    parts = [svg.title("Bad rates with their 95 % intervals, by request and by prefill")]
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = scale(value)
        parts.append(svg.line((at, 10), (at, height - 28), "grid"))
        parts.append(svg.label(at, height - 12, f"{value * 100:.0f} %", anchor="middle", kind="tick"))
    for index, (name, bad, total, interval, kind) in enumerate(rows):
        y = 28.0 + index * 36 + (8 if index > 1 else 0)
        parts.append(svg.label(4, y, name, kind="name"))
        parts.append(svg.label(4, y + 14, f"{bad:,} of {total:,} bad", kind="tick"))
        parts.append(_whisker(scale, y, (bad, total), interval, kind))
    return svg.drawing(width, height, *parts)


def path_chart(verdict: Verdict) -> Markup | None:
    """The candidate's walk (fresh prefills, bad ones) against the stopping points of the acceptance table."""
    if not verdict.acceptance:
        return None
    walk = [(0, 0), *((point.prefills, point.bad) for point in verdict.path)]
    most = len(verdict.acceptance) - 1
    worst = max([bad for _, bad in walk] + [most + 1])
    left, right, bottom, top = svg.frame()
    x = svg.Scale(0, max(verdict.acceptance[-1], walk[-1][0]) * 1.05, left, right)
    y = svg.Scale(0, worst + 0.6, bottom, top)
    marks = [_acceptance_steps(verdict, x, y), svg.polyline([(x(n), y(k)) for n, k in _stairs(walk)], "walk")]
    for bad, at in enumerate(verdict.acceptance):
        told = svg.title(f"promote at {at} prefills with at most {bad} bad")
        marks.append(svg.element("circle", {"cx": x(at), "cy": y(bad), "r": 5, "class": "stop"}, told))
        marks.append(svg.label(x(at), y(bad) - 9, str(at), anchor="middle", kind="tick"))
    end = walk[-1]
    told = svg.title(f"now: {end[0]} prefills, {end[1]} bad")
    marks.append(svg.element("circle", {"cx": x(end[0]), "cy": y(end[1]), "r": 7, "class": "now"}, told))
    for before, after in pairwise(walk):
        if after[1] > before[1]:
            marks.append(svg.cross(x(after[0]), y(after[1]), 4, "cross-line"))
    plot = svg.Plot(
        "Acceptance path",
        f"{end[0]} prefills with {end[1]} bad; the table promotes at {', '.join(map(str, verdict.acceptance))}",
        x,
        y,
        "fresh prefills of the candidate",
        "bad",
    )
    ticks = [value for value in y.ticks(6) if value == int(value)]
    return plot.draw(_whole(x.ticks(6)), _whole(ticks), *marks)


def e_value_chart(replicate: ReplicateView) -> Markup | None:
    """E after every pair on a log scale, with the threshold that confirms and the line of futility."""
    if not replicate.pairs:
        return None
    points = [(0, 1.0), *((index, _positive(pair.e_value)) for index, pair in enumerate(replicate.pairs, 1))]
    values = [e for _, e in points] + [replicate.threshold, _positive(replicate.futility or 0.05)]
    left, right, bottom, top = svg.frame()
    x = svg.Scale(0, max(len(points) - 1, 5) * 1.05, left, right)
    y = svg.Scale(min(values) / 1.8, max(values) * 1.8, bottom, top, log=True)
    marks = [_level(y, replicate.threshold, (left, right), "threshold")]
    if replicate.futility is not None:
        marks.append(_level(y, replicate.futility, (left, right), "futility"))
    marks.append(svg.polyline([(x(n), y(e)) for n, e in points], "walk"))
    marks += [_pair_mark(pair, x(index), y(_positive(pair.e_value))) for index, pair in enumerate(replicate.pairs, 1)]
    marks.append(_level_name(y, replicate.threshold, f"confirms at {number(replicate.threshold)}", left))
    if replicate.futility is not None:
        marks.append(_level_name(y, replicate.futility, f"futile at {number(replicate.futility)}", left))
    plot = svg.Plot(
        f"E-value of replicate {replicate.number}",
        f"E is {number(replicate.e_value)} after {len(replicate.pairs)} pairs",
        x,
        y,
        "complete pairs",
        "E (log scale)",
    )
    return plot.draw(_whole(x.ticks(6)), [(value, _short(value)) for value in y.ticks(5)], *marks)


def ratio_chart(verdict: Verdict) -> Markup | None:
    """Decode ratio of every pair with the Hodges-Lehmann estimate, its interval and the margin."""
    view = verdict.throughput
    ratios = [(pair, ratio) for pair in view.pairs if (ratio := pair_ratio(pair)) is not None]
    if not ratios:
        return None
    seen = [ratio for _, ratio in ratios] + [1.0, 1 + view.margin, *(view.ratio_interval or ())]
    pad = max((max(seen) - min(seen)) * 0.12, 0.01)
    left, right, bottom, top = svg.frame()
    x = svg.Scale(0, len(ratios) + 1, left, right)
    y = svg.Scale(min(seen) - pad, max(seen) + pad, bottom, top)
    marks: list[Markup] = []
    if view.ratio_interval is not None:
        low, high = view.ratio_interval
        box: svg.Attributes = {
            "x": left,
            "y": y(high),
            "width": right - left,
            "height": y(low) - y(high),
            "class": "band",
        }
        marks.append(svg.element("rect", box, svg.title(f"90 % interval {change(low)} to {change(high)}")))
    marks.append(svg.line((left, y(1)), (right, y(1)), "even"))
    marks.append(_level(y, 1 + view.margin, (left, right), "futility"))
    if view.ratio is not None:
        marks.append(_level(y, view.ratio, (left, right), "estimate"))
    marks += [_ratio_mark(pair, ratio, x(index), y(ratio)) for index, (pair, ratio) in enumerate(ratios, 1)]
    marks.append(_level_name(y, 1 + view.margin, f"margin {percent(view.margin)}", left))
    if view.ratio is not None:
        marks.append(_level_name(y, view.ratio, f"estimate {change(view.ratio)}", left))
    told = f"{view.pairs_used} pairs used, estimate {change(view.ratio)}"
    plot = svg.Plot("Decode speed, candidate over baseline", told, x, y, "pair", "decode speed, candidate / baseline")
    return plot.draw(_whole(x.ticks(6)), [(value, change(value)) for value in y.ticks(5)], *marks)


def prefill_chart(verdict: Verdict) -> Markup | None:
    """Prefill time against prompt tokens: fresh prefills and copies are two clouds."""
    points = [
        (view, view.cell.prompt_tokens, view.cell.prefill_ms)
        for view in verdict.cells
        if view.cell_class is not None and view.cell.prompt_tokens and _above_zero(view.cell.prefill_ms)
    ]
    if not points:
        return None
    points.sort(key=lambda point: point[0].bad is True)  # a bad one is never hidden under a clean one
    tokens = [float(count or 0) for _, count, _ in points]
    times = [float(ms or 0.0) for _, _, ms in points]
    left, right, bottom, top = svg.frame(left=58)
    log = max(times) / min(times) > 10
    y = (
        svg.Scale(min(times) / 1.5, max(times) * 1.5, bottom, top, log=True)
        if log
        else svg.Scale(0, max(times) * 1.1, bottom, top)
    )
    pad = max((max(tokens) - min(tokens)) * 0.06, 1.0)
    x = svg.Scale(max(min(tokens) - pad, 0), max(tokens) + pad, left, right)
    marks = [_prefill_mark(view, x(at), y(ms)) for (view, _, _), at, ms in zip(points, tokens, times, strict=True)]
    name = "prefill time (log scale)" if log else "prefill time"
    plot = svg.Plot("Prefill time against prompt tokens", f"{len(points)} cells", x, y, "prompt tokens", name)
    x_ticks: Ticks = [(value, f"{value:,.0f}") for value in x.ticks(5) if value == int(value)]
    return plot.draw(x_ticks, [(value, _duration(value)) for value in y.ticks(5)], *marks)


def pair_ratio(pair: ThroughputPair) -> float | None:
    """Candidate over baseline decode rate, None where either is unknown or zero."""
    ours, theirs = pair.candidate_tokens_per_second, pair.baseline_tokens_per_second
    if not ours or not theirs or not math.isfinite(ours / theirs):
        return None
    return ours / theirs


def _interval_rows(name: str, kind: str, counts: ArmCounts) -> list[tuple[str, int, int, Interval | None, str]]:
    return [
        (f"by request, {name}", counts.bad_requests, counts.requests, counts.request_interval, f"naive {kind}"),
        (f"by prefill, {name}", counts.bad_prefills, counts.prefills, counts.prefill_interval, f"honest {kind}"),
    ]


def _whisker(scale: svg.Scale, y: float, seen: tuple[int, int], interval: Interval | None, kind: str) -> Markup:
    if interval is None:
        return svg.label(scale(0) + 4, y + 4, "nothing seen", kind="tick")
    low, high = interval
    parts = [svg.title(f"{seen[0]} of {seen[1]}, 95 % interval {percent_interval(interval)}")]
    parts.append(svg.line((scale(low), y), (scale(high), y), "whisker"))
    parts += [svg.line((scale(end), y - 5), (scale(end), y + 5), "whisker") for end in interval]
    if seen[1]:
        parts.append(svg.element("circle", {"cx": scale(seen[0] / seen[1]), "cy": y, "r": 5, "class": "rate"}))
    return svg.group(*parts, class_=f"interval {kind}")


def _acceptance_steps(verdict: Verdict, x: svg.Scale, y: svg.Scale) -> Markup:
    """The region where the table promotes: right of n_k, at most k bad."""
    corners = [(x(verdict.acceptance[0]), y(0))]
    for bad, at in enumerate(verdict.acceptance):
        corners += [(x(at), corners[-1][1]), (x(at), y(bad + 0.4))]
    corners += [(x(x.high), corners[-1][1]), (x(x.high), y(0))]
    told = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
    shape = svg.element("polygon", {"points": told, "class": "accept"}, svg.title("promotion allowed here"))
    ceiling = y(len(verdict.acceptance) - 1 + 0.5)
    name = svg.label((x.start + x.end) / 2, ceiling - 5, "above this line no promotion", anchor="middle", kind="tick")
    return shape + svg.line((x.start, ceiling), (x.end, ceiling), "futility") + name


def _stairs(walk: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Only the corners: a long clean walk needs two points, not hundreds."""
    corners = [walk[0]]
    for before, after in pairwise(walk):
        if after[1] != before[1]:
            corners += [before, after]
    return [*corners, walk[-1]]


def _level(y: svg.Scale, value: float, span: tuple[float, float], kind: str) -> Markup:
    at = y(value)
    return svg.line((span[0], at), (span[1], at), kind)


def _level_name(y: svg.Scale, value: float, name: str, left: float) -> Markup:
    """Drawn after the points, so that none hides it."""
    return svg.label(left + 6, y(value) - 5, name, kind="tick halo")


def _pair_mark(pair: PairFactor, x: float, y: float) -> Markup:
    outcome = (
        f"candidate {'BAD' if pair.candidate_bad else 'clean'}, baseline {'BAD' if pair.baseline_bad else 'clean'}"
    )
    told = f"pair {pair.pair}, {pair.case_id}: {outcome}, factor {number(pair.factor)}, E {number(pair.e_value)}"
    kind = "point bad" if pair.candidate_bad else "point clean"
    parts = [svg.title(one_line(told, 300)), svg.element("circle", {"cx": x, "cy": y, "r": 6, "class": kind})]
    if pair.candidate_bad:
        parts.append(svg.cross(x, y, 2.6, "cross small"))
    if pair.baseline_bad:
        parts.append(svg.element("circle", {"cx": x, "cy": y, "r": 9, "class": "ring"}))
    return svg.group(*parts)


def _ratio_mark(pair: ThroughputPair, ratio: float, x: float, y: float) -> Markup:
    why = "" if pair.used else f", not used: {pair.why_not}"
    slow = ", slow" if pair.slow else ""
    told = f"pair {pair.pair}, {pair.case_id}: {change(ratio)}{slow}{why}"
    kind = "point slow" if pair.slow else "point clean" if pair.used else "point unused"
    parts = [svg.title(one_line(told, 300)), svg.element("circle", {"cx": x, "cy": y, "r": 4, "class": kind})]
    return svg.group(*parts)


def _prefill_mark(view: CellView, x: float, y: float) -> Markup:
    kind = view.cell_class.value if view.cell_class else "invalid"
    arm = "c" if view.cell.arm == CANDIDATE else "b"
    bad = ", BAD" if view.bad else ""
    ms = _duration(view.cell.prefill_ms or 0.0)
    told = f"cell {view.cell_id}, {view.cell.case_id}, {view.cell.arm}: {kind}{bad}"
    told += f", {view.cell.prompt_tokens} tokens in {ms}"
    parts = [svg.title(one_line(told, 300)), _dot(view.cell_class, arm, x, y)]
    if view.bad:
        parts.append(svg.cross(x, y, 4.5, "cross-line"))
    return svg.group(*parts)


def _dot(kind: CellClass | None, arm: str, x: float, y: float) -> Markup:
    if kind is CellClass.COPY:
        return svg.element("rect", {"x": x - 3.5, "y": y - 3.5, "width": 7, "height": 7, "class": f"dot copy {arm}"})
    name = f"dot {'fresh' if kind is CellClass.FRESH else 'other'} {arm}"
    return svg.element("circle", {"cx": x, "cy": y, "r": 4, "class": name})


def _whole(values: Sequence[float]) -> Ticks:
    return [(value, f"{value:,.0f}") for value in values if value == int(value)]


def _positive(value: float) -> float:
    """A value a log scale can show; E may underflow or overflow in a very long replicate."""
    return min(max(value, 1e-12), 1e12) if math.isfinite(value) else 1e12


def _above_zero(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _duration(ms: float) -> str:
    steps: tuple[tuple[float, Callable[[float], str]], ...] = (
        (1000, lambda v: f"{v:.3g} ms"),
        (math.inf, lambda v: f"{v / 1000:,.3g} s" if v < 1e6 else f"{v / 1000:,.0f} s"),
    )
    return next(tell(ms) for below, tell in steps if ms < below)
