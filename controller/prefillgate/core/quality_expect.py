"""The expected answer: exact after trimming, contained, or equal as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from prefillgate.core.quality import Finding, Output


@dataclass(frozen=True, slots=True)
class Expect:
    """What a case's content must be. `kind` is exact, contains or json; `value` is text, or a JSON value for json."""

    kind: str
    value: Any


class NotStrictJson(ValueError):
    """The text is not one JSON value: bad syntax, a key twice, NaN or Infinity, nested too deep, a number too long."""


def parse_json(text: str) -> Any:
    """One JSON value (RFC 8259), refusing what two readers would read differently. Raises `NotStrictJson`."""
    try:
        return json.loads(text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_float=_finite)
    except NotStrictJson:
        raise
    except json.JSONDecodeError as error:
        raise NotStrictJson(f"{error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise NotStrictJson("nested too deep") from error
    except ValueError as error:  # an integer of thousands of digits
        raise NotStrictJson("a number is too long") from error


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise NotStrictJson(f"the key {json.dumps(twice[:80], ensure_ascii=False)} stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise NotStrictJson(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise NotStrictJson(f"the number {digits[:40]} is out of range")
    return value


def equal_as_json(first: Any, second: Any) -> bool:
    """Equal JSON values: key order does not matter, 1 equals 1.0, true does not equal 1."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(equal_as_json(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(equal_as_json, first, second))
    return bool(first == second)


def unexpected(output: Output, expect: Expect) -> Finding | None:
    """The content is not what the case expects. `expect.kind` other than exact, contains, json is a ValueError."""
    content = output.content.strip()
    if expect.kind == "exact":
        return None if content == expect.value.strip() else Finding("not the expected answer")
    if expect.kind == "contains":
        return None if expect.value in output.content else Finding("the expected text is missing")
    if expect.kind != "json":
        raise ValueError(f"expect kind {expect.kind}, allowed: exact, contains, json")
    try:
        found = parse_json(content)
    except NotStrictJson as error:
        return Finding(f"not JSON: {error}")
    return None if equal_as_json(found, expect.value) else Finding("JSON, but not the expected value")
