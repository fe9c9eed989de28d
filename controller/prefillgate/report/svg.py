"""Inline SVG out of a few functions: elements that escape, scales, axes. Colours come from the page's style sheet.

Coordinates are user units of the view box. Every element that carries a fact has a `title`, so that
nothing is told by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from prefillgate.report.clean import visible

Attributes = Mapping[str, str | float | int]


def element(name: str, attributes: Attributes, *children: Markup | str) -> Markup:
    """`<name ...>children</name>`; attribute values and text children are cleaned and escaped, `Markup` is not."""
    told = "".join(f' {key}="{_value(value)}"' for key, value in attributes.items())
    inner = "".join(child if isinstance(child, Markup) else escape(visible(child)) for child in children)
    return Markup(f"<{name}{told}>{inner}</{name}>")  # every part was escaped above


def group(*children: Markup, **attributes: str | float | int) -> Markup:
    return element("g", {_name(key): value for key, value in attributes.items()}, *children)


def title(text: str) -> Markup:
    return element("title", {}, text)


def label(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "label") -> Markup:
    return element("text", {"x": x, "y": y, "text-anchor": anchor, "class": kind}, text)


def line(start: tuple[float, float], end: tuple[float, float], kind: str, *children: Markup) -> Markup:
    return element("line", {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1], "class": kind}, *children)


def cross(x: float, y: float, radius: float, kind: str = "cross") -> Markup:
    """The mark of bad: two strokes through whatever lies below."""
    return Markup("").join(
        (
            line((x - radius, y - radius), (x + radius, y + radius), kind),
            line((x - radius, y + radius), (x + radius, y - radius), kind),
        )
    )


def polyline(points: Sequence[tuple[float, float]], kind: str) -> Markup:
    told = " ".join(f"{_value(x)},{_value(y)}" for x, y in points)
    return element("polyline", {"points": told, "class": kind})


@dataclass(frozen=True, slots=True)
class Scale:
    """Values `low`..`high` onto coordinates `start`..`end`, linear or logarithmic (then low must be above 0)."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(max(value, self.low))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values inside the scale, about `about` of them."""
        return _log_ticks(self.low, self.high, about) if self.log else _linear_ticks(self.low, self.high, about)


@dataclass(frozen=True, slots=True)
class Plot:
    """A frame with both axes. `name` and `told` are what a screen reader says of the chart."""

    name: str
    told: str
    x: Scale
    y: Scale
    x_name: str
    y_name: str
    width: float = 440
    height: float = 270

    def draw(
        self, x_ticks: Sequence[tuple[float, str]], y_ticks: Sequence[tuple[float, str]], *marks: Markup
    ) -> Markup:
        """The whole `svg` element. Ticks are (value, label)."""
        left, right, top, bottom = self.x.start, self.x.end, self.y.end, self.y.start
        parts = [title(self.name), element("desc", {}, self.told)]
        for value, text in y_ticks:
            at = self.y(value)
            parts += [line((left, at), (right, at), "grid"), label(left - 6, at + 4, text, anchor="end", kind="tick")]
        for value, text in x_ticks:
            at = self.x(value)
            parts += [
                line((at, bottom), (at, bottom + 4), "axis"),
                label(at, bottom + 18, text, anchor="middle", kind="tick"),
            ]
        parts.append(line((left, bottom), (right, bottom), "axis"))
        parts.append(label((left + right) / 2, self.height - 4, self.x_name, anchor="middle", kind="name"))
        parts.append(label(4, top - 12, self.y_name, kind="name"))
        return drawing(self.width, self.height, *parts, *marks)


def drawing(width: float, height: float, *children: Markup, kind: str = "chart") -> Markup:
    attributes: Attributes = {
        "viewBox": f"0 0 {_value(width)} {_value(height)}",
        "width": width,
        "height": height,
        "role": "img",
        "class": kind,
    }
    return element("svg", attributes, *children)


def frame(width: float = 440, height: float = 270, left: float = 52) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of the drawing area inside a plot of this size."""
    return left, width - 16, height - 42, 32


def _value(value: str | float | int) -> str:
    if isinstance(value, str):
        return str(escape(visible(value)))
    if not math.isfinite(value):
        raise ValueError(f"coordinate is {value}, allowed are finite numbers")
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _linear_ticks(low: float, high: float, about: int) -> list[float]:
    if not high > low:
        return [low]
    raw = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 12) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, about: int) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [10.0**power for power in decades if low <= 10.0**power <= high]
    if len(inside) > about:
        every = math.ceil(len(inside) / about)
        return inside[::every]
    if len(inside) >= 3:
        return inside
    fine = [factor * 10.0**power for power in decades for factor in (1, 2, 5)]
    return [value for value in fine if low <= value <= high]
