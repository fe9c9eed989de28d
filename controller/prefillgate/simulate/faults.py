"""The planted faults: one table of names, kinds and meanings, and the parser of `--fault NAME=VALUE`.

A fault may be given several times; a chance hits when any of its values does. Ordinals count the
generations the server was asked for since the process began (with `--count-match TEXT` only those whose
prompt contains it), so a plan says exactly which request meets what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from prefillgate.simulate.dice import Dice


class FaultError(ValueError):
    """An unknown fault, or a value it cannot take. The message names the fault, the value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a fault may depend on of one generation. `ordinal` is None for prompts that are not counted."""

    arrival: int
    ordinal: int | None
    prompt: str


@dataclass(frozen=True, slots=True)
class Chance:
    """When a fault hits: a share of generations, or those with given ordinals; and only prompts holding `match`."""

    rate: float = 1.0
    spans: tuple[tuple[int, int], ...] = ()  # ordinals from, to, both included
    match: str = ""

    def hits(self, draw: float, turn: Turn) -> bool:
        """Whether `turn` is hit when the dice show `draw` in [0, 1)."""
        if self.match and self.match not in turn.prompt:
            return False
        if self.spans:
            return turn.ordinal is not None and any(low <= turn.ordinal <= high for low, high in self.spans)
        return draw < self.rate


@dataclass(frozen=True, slots=True)
class Window:
    """From `start` up to but without `end`, in generations (counted from 0) or in seconds since the start."""

    start: float
    end: float
    seconds: bool

    def covers(self, turn: Turn, elapsed_seconds: float) -> bool:
        """Whether the generation lies inside."""
        if self.seconds:
            return self.start <= elapsed_seconds < self.end
        return turn.ordinal is not None and self.start <= turn.ordinal - 1 < self.end


@dataclass(frozen=True, slots=True)
class Drift:
    """A bad-prefill rate that moves from `first` to `last` over `generations`, then stays."""

    first: float
    last: float
    generations: int

    def rate(self, ordinal: int) -> float:
        """The rate at the generation with this ordinal, counted from 1."""
        part = min(max(ordinal - 1, 0) / self.generations, 1.0)
        return self.first + (self.last - self.first) * part


@dataclass(frozen=True, slots=True)
class SpeedMode:
    """A share of generations decodes `factor` times as slowly."""

    share: float
    factor: float


@dataclass(frozen=True, slots=True)
class Stall:
    """The generation with this ordinal is silent for so many real seconds before its first token."""

    ordinal: int
    seconds: float


class Hostile(StrEnum):
    """What `hostile-text` puts into an answer."""

    NUL = "nul"
    LINE_SEPARATOR = "u2028"
    ESCAPE = "escape"
    HTML = "html"
    CRLF = "crlf"
    INVALID_UTF8 = "invalid-utf8"


def _number(text: str, low: float, high: float) -> float:
    value = float(text)
    if not low <= value <= high:
        raise ValueError(text)
    return value


def _span(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    first, last = int(low), int(high) if dash else int(low)
    if not 1 <= first <= last:
        raise ValueError(text)
    return first, last


def _chance(text: str) -> Chance:
    when, _, match = text.partition("@")
    if when.startswith("#"):
        return Chance(spans=tuple(_span(part) for part in when[1:].split(",")), match=match)
    if not when and not match:
        raise ValueError(text)
    return Chance(rate=_number(when, 0, 1) if when else 1.0, match=match)


def _count(text: str) -> int:
    return int(_number(str(int(text)), 1, 1_000_000))


def _factor(text: str) -> float:
    return _number(text, 0.01, 1000)


def _seconds(text: str) -> float:
    return _number(text, 0, 86_400)


def _window(text: str) -> Window:
    start, end = text.split(":")
    seconds = start.endswith("s") and end.endswith("s")
    low, high = (float(part.removesuffix("s")) if seconds else int(part) for part in (start, end))
    if not 0 <= low < high:
        raise ValueError(text)
    return Window(low, high, seconds)


def _drift(text: str) -> Drift:
    first, last, generations = text.split(":")
    return Drift(_number(first, 0, 1), _number(last, 0, 1), _count(generations))


def _speed_mode(text: str) -> SpeedMode:
    share, factor = text.split(":")
    return SpeedMode(_number(share, 0, 1), _factor(factor))


def _stall(text: str) -> Stall:
    ordinal, seconds = text.split(":")
    return Stall(_count(ordinal), _seconds(seconds))


class Kind(StrEnum):
    """The kinds of values."""

    CHANCE = "chance"
    COUNT = "count"
    FACTOR = "factor"
    SHARE = "share"
    SECONDS = "seconds"
    WINDOW = "window"
    DRIFT = "drift"
    SPEED_MODE = "speed mode"
    STALL = "stall"
    HOSTILE = "hostile text"


_PARSERS: Mapping[Kind, tuple[Callable[[str], Any], str]] = {
    Kind.CHANCE: (
        _chance,
        "a rate from 0 to 1, or ordinals such as #3 or #2,5-7; after an @ a text the prompt must contain: 0.3@diff",
    ),
    Kind.COUNT: (_count, "a whole number from 1 to 1000000"),
    Kind.FACTOR: (_factor, "a number from 0.01 to 1000"),
    Kind.SHARE: (lambda text: _number(text, 0, 1), "a number from 0 to 1"),
    Kind.SECONDS: (_seconds, "seconds from 0 to 86400"),
    Kind.WINDOW: (_window, "START:END in generations counted from 0, or in seconds: 10s:60s; START below END"),
    Kind.DRIFT: (_drift, "FROM:TO:GENERATIONS, two rates from 0 to 1 and a whole number"),
    Kind.SPEED_MODE: (_speed_mode, "SHARE:FACTOR, a share from 0 to 1 and a factor from 0.01 to 1000"),
    Kind.STALL: (_stall, "ORDINAL:SECONDS, a whole number from 1 and seconds from 0 to 86400"),
    Kind.HOSTILE: (Hostile, "one of " + ", ".join(Hostile)),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the table."""

    name: str
    kind: Kind
    meaning: str


def _rows(kind: Kind, rows: Mapping[str, str]) -> list[Fault]:
    return [Fault(name, kind, meaning) for name, meaning in rows.items()]


FAULTS: tuple[Fault, ...] = (
    *_rows(
        Kind.CHANCE,
        {
            "bad-prefill": "a real prefill draws the bad state; its copies inherit it (rates are per prefill)",
            "bad-rate": "a true regression: each answer is bad by itself; at temperature 0 a copy repeats its prefill",
            "bad-prompt": "a true regression of some prompts: this share of prompts is bad every time",
            "good-copy": "an answer riding on a bad prefill comes out good all the same",
            "warm-differs": "an answer from a warm cache has another text than the cold one, of the same quality",
            "ignore-cache-prompt": "cache_prompt:false (vllm, sglang: cache_salt) is accepted and has no effect",
            "external-cache": "vllm: an external cache serves prompts it knows whatever their salt; its counter tells",
            "retracted": "sglang: the request is taken back once and computed anew; meta_info tells",
            "cached-zero": "reports 0 cached tokens, whatever was reused",
            "cached-null": "reports null for cached tokens",
            "cached-absent": "leaves the cached-token fields out",
            "cached-minus-one-on-cold": "reports prompt - 1 tokens as cached on a cold request",
            "processed-inflated": "reports every prompt token as processed, whatever was reused",
            "metrics-inflated": "/metrics counts every prompt token as processed, whatever was reused",
            "timings-absent": "leaves `timings` out",
            "usage-absent": "leaves `usage` out",
            "old-counters": "an older build: no cache_n, no prompt_tokens_details, no cached counter in /metrics "
            "(vllm, sglang: a zero of cached tokens is left out, routes and counters have their older names)",
            "cut-stream": "the connection closes in the middle of the answer",
            "reset": "the connection is reset before a byte of the answer; nothing is computed",
            "error-in-stream": "an error object ends the stream in its middle (not streamed: status 500)",
            "malformed": "the middle of the answer is not JSON",
            "http-400": "refused with status 400 and a message",
            "http-413": "refused with status 413",
            "http-429": "refused with status 429 and Retry-After: 1",
            "http-500": "status 500, nothing computed",
            "http-502": "status 502 with a gateway's HTML page, nothing computed",
            "html": "status 200 with a log-in page instead of an answer",
            "empty-text": "an empty answer with status 200",
            "no-finish": "the answer ends without a finish_reason",
            "reasoning-only": "on the chat route all text is reasoning, the content is empty",
            "foreign-text": "answers with what another conversation was told, claiming 0 cached tokens",
            "leaked-template": "the answer ends in chat template tokens",
            "loop": "the answer repeats one sentence to its end",
            "other-traffic": "a request of 120 prompt and 30 output tokens by somebody else runs beside this one",
            "unknown-model": "status 404 for a model name that is not the served one",
            "comments": "a comment line stands before each event of the stream",
            "fragment": "the stream is written in pieces of 7 bytes",
            "restart-keeps-cache": "the prompt cache survives `restart-every`",
            "metrics-absent": "/metrics is switched off (status 501)",
            "slots-absent": "/slots is switched off (status 501)",
            "props-absent": "/props is not there (status 404)",
            "tokenize-absent": "/tokenize and .../input_tokens are not there (status 404): prompts cannot be counted",
        },
    ),
    *_rows(
        Kind.COUNT,
        {
            "bad-first": "the first N counted generations' prefills are bad",
            "restart-every": "a new epoch after every N generations: new marker, counters at 0, cache lost",
            "die-after": "the process ends in the middle of the Nth generation's answer",
            "http-503-first": "the first N generations are refused with status 503 and Retry-After: 1",
            "always-busy": "the gauges show N requests of others at all times",
        },
    ),
    *_rows(
        Kind.FACTOR,
        {
            "decode-slowdown": "decode takes this many times as long",
            "prefill-slowdown": "prefill takes this many times as long",
        },
    ),
    *_rows(Kind.SECONDS, {"load-seconds": "everything answers 503 Loading model for so long after a start or restart"}),
    *_rows(Kind.WINDOW, {"bad-window": "every prefill inside the window is bad"}),
    *_rows(Kind.DRIFT, {"drift": "the bad-prefill rate moves over time"}),
    *_rows(Kind.SPEED_MODE, {"slow-mode": "two speed modes: a share of generations decodes slower by a factor"}),
    *_rows(Kind.STALL, {"stall": "one generation is silent before its first token"}),
    *_rows(Kind.HOSTILE, {"hostile-text": "answers carry text made to break terminals, reports or parsers"}),
    *_rows(Kind.SHARE, {"draft": "speculation runs and accepts this share of its drafts"}),
)

_TABLE = {fault.name: fault for fault in FAULTS}
Value = TypeVar("Value")


def allowed(fault: Fault) -> str:
    """What values the fault takes, in words."""
    return _PARSERS[fault.kind][1]


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of one server. Asking for one that was not planted finds nothing."""

    values: Mapping[str, tuple[Any, ...]]
    dice: Dice

    def hit(self, name: str, turn: Turn) -> bool:
        """Whether the chance fault `name` meets this generation."""
        return any(
            chance.hits(self.dice.uniform("fault", name, place, turn.arrival), turn)
            for place, chance in enumerate(self.all(name, Chance))
        )

    def planted(self, name: str) -> bool:
        """Whether the server as a whole has the fault (used where there is no generation to ask about)."""
        return any(chance.rate > 0 for chance in self.all(name, Chance))

    def all(self, name: str, kind: type[Value]) -> tuple[Value, ...]:
        """The values given for `name`."""
        if name not in _TABLE:
            raise KeyError(name)
        return tuple(value for value in self.values.get(name, ()) if isinstance(value, kind))

    def last(self, name: str, kind: type[Value]) -> Value | None:
        """The value given last for `name`, or None."""
        values = self.all(name, kind)
        return values[-1] if values else None


def parse_faults(pairs: Iterable[str], seed: int) -> Faults:
    """The faults of `NAME=VALUE` strings. Raises FaultError."""
    values: dict[str, tuple[Any, ...]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if name not in _TABLE:
            raise FaultError(f"unknown fault {name!r}; known are: {', '.join(sorted(_TABLE))}")
        fault = _TABLE[name]
        parse, words = _PARSERS[fault.kind]
        try:
            if not equals:
                raise ValueError(pair)
            value = parse(text)
        except ValueError:
            raise FaultError(f"fault {name}: {text!r} is not allowed; give {words}") from None
        values[name] = (*values.get(name, ()), value)
    return Faults(values, Dice(seed))
