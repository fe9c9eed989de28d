"""A server's own totals and gauges in the text format of Prometheus, by names that families and versions differ in.

A family says what its series are called (`Series`); reading, summing over labels and comparing with replies is the
same for all. What is not exported is None, never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import httpx
from prometheus_client.parser import text_string_to_metric_families

from prefillgate.engines.base import Activity, Answer, Counters, TerminalEngineError
from prefillgate.engines.http import HttpLane, HttpStatusError

# Six digits with an exponent: how C++ prints a number past a million, so that what one request adds is lost in it.
_ROUNDED = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})? \d(?:\.\d{1,5})?e\+\d+$", re.MULTILINE)
_FIRST_WORD = re.compile(r"[A-Za-z]*")
MAX_CHARACTERS = 8_000_000  # of a family's own series; parsing more would hold everything up for seconds
NOT_THERE = frozenset({404, 405, 501})
Samples = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Less:
    """A total that is exported as two: `whole` less `part`. Unknown where either is."""

    whole: str
    part: str


Source = str | Less


@dataclass(frozen=True, slots=True)
class Series:
    """What a family's series are called: for each figure the names of all versions, the one to be taken first first.

    `totals` has the fields of `Counters`. `unset` is where a total that has not moved yet may be left out of the
    exposition: the series that show that its kind is exported at all.
    """

    totals: Mapping[str, tuple[Source, ...]]
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    path: str = "/metrics"
    start: tuple[str, ...] = ()  # moment at which this life of the process began
    unset: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What the names of this family's series begin with: "vllm", "process"."""
        sources = [source for sources in self.totals.values() for source in sources]
        names = [name for each in sources for name in ((each.whole, each.part) if isinstance(each, Less) else (each,))]
        return tuple({_FIRST_WORD.match(name)[0] for name in (*names, *self.running, *self.waiting, *self.start)})  # type: ignore[index]


@dataclass(frozen=True, slots=True)
class Scrape:
    """One reading of the exposition. `samples` is None where the server has none.

    `labels` are those of samples whose name ends in `_info`: what a server tells of itself in that form. `rounded`
    names samples that were printed with an exponent and six digits at most.
    """

    samples: Samples | None
    headers: Mapping[str, str]
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rounded: frozenset[str] = frozenset()


async def scrape(lane: HttpLane, series: Series) -> Scrape:
    """The samples of a family by name, summed over labels.

    Raises as `HttpLane.get` does, and for what is no exposition. A page of HTML, which gateways show in the place of
    what is not there, is none at all.
    """
    try:
        body, headers = await lane.get(series.path)
    except HttpStatusError as error:
        if error.status in NOT_THERE:
            return Scrape(None, httpx.Headers())
        raise
    if body.lstrip()[:1] == b"<":
        return Scrape(None, headers)
    where = f"{lane.url}{series.path}"
    text = own_lines(body.decode("utf-8", "replace"), series.prefixes)
    if len(text) > MAX_CHARACTERS:
        raise TerminalEngineError(f"{where} is {len(text)} characters of series, more than {MAX_CHARACTERS}")
    samples, labels = read_exposition(text, where)
    return Scrape(samples, headers, labels, frozenset(_ROUNDED.findall(text)))


def own_lines(text: str, prefixes: tuple[str, ...]) -> str:
    """An exposition without the samples of others and without buckets, which most of a page is made of."""
    return "\n".join(
        line
        for line in text.split("\n")
        if not line[:1].isalpha() or (line.startswith(prefixes) and "_bucket{" not in line)
    )


def read_exposition(text: str, where: str) -> tuple[dict[str, float], dict[str, dict[str, str]]]:
    """Samples of a Prometheus exposition by name, summed over labels, and the labels of its `_info` samples.

    Raises `TerminalEngineError` if it is none.
    """
    values: dict[str, float] = {}
    labels: dict[str, dict[str, str]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if math.isfinite(sample.value):
                    values[sample.name] = values.get(sample.name, 0.0) + sample.value
                if sample.name.endswith("_info"):
                    labels.setdefault(sample.name, dict(sample.labels))
    except (ValueError, IndexError, KeyError) as error:
        raise TerminalEngineError(f"{where} is not a Prometheus exposition: {error}") from error
    return values, labels


def counters_of(samples: Samples | None, series: Series) -> Counters | None:
    """The totals of one reading; None where the server exports nothing."""
    if samples is None:
        return None
    return Counters(**{name: _total(samples, series, sources) for name, sources in series.totals.items()})


def activity_of(samples: Samples | None, series: Series) -> Activity:
    """The gauges of one reading: requests at work and requests waiting."""
    told = (_first(samples or {}, names) for names in (series.running, series.waiting))
    # No number of requests is below 0, nor so large that it is no number of requests.
    running, waiting = (value if value is not None and 0 <= value < 2**31 else None for value in told)
    return Activity(
        running=None if running is None else int(running),
        waiting=None if waiting is None else int(waiting),
    )


def start_of(samples: Samples | None, series: Series) -> str | None:
    """The start of this life of the process as a marker, good for equality; None where it is not exported."""
    found = ((samples or {}).get(name) for name in series.start)
    # A gauge that nobody ever set stands at 0 in every life.
    return next((repr(value) for value in found if value), None)


def agreement(before: Counters | None, after: Counters | None, steps: Sequence[Answer]) -> bool | None:
    """Whether the totals moved by exactly what the replies told; None where nothing could be compared.

    A reply that does not tell its processed tokens has those that were not cached.
    """
    verdicts = []
    told = {
        "prompt_tokens_processed": [_processed(step) for step in steps],
        "prompt_tokens_cached": [step.cached_tokens for step in steps],
    }
    for total, values in told.items():
        delta = moved(before, after, total)
        known = [value for value in values if value is not None]
        if delta is not None and len(known) == len(values):
            verdicts.append(delta == sum(known))
    return all(verdicts) if verdicts else None


def moved(before: Counters | None, after: Counters | None, name: str) -> float | None:
    """By how much a counter moved, None where it is not exported."""
    first, last = (getattr(counters, name) if counters is not None else None for counters in (before, after))
    return None if first is None or last is None else last - first


def _processed(answer: Answer) -> int | None:
    if answer.processed_tokens is not None:
        return answer.processed_tokens
    if answer.prompt_tokens is None or answer.cached_tokens is None:
        return None
    return answer.prompt_tokens - answer.cached_tokens


def _total(samples: Samples, series: Series, sources: tuple[Source, ...]) -> float | None:
    for source in sources:
        value = _difference(samples, series, source) if isinstance(source, Less) else _sample(samples, series, source)
        if value is not None:
            return value
    return None


def _difference(samples: Samples, series: Series, source: Less) -> float | None:
    whole, part = _sample(samples, series, source.whole), _sample(samples, series, source.part)
    return None if whole is None or part is None else whole - part


def _sample(samples: Samples, series: Series, name: str) -> float | None:
    if name in samples:
        return samples[name]
    return 0.0 if series.unset.get(name) in samples else None


def _first(samples: Samples, names: tuple[str, ...]) -> float | None:
    return next((samples[name] for name in names if name in samples), None)
