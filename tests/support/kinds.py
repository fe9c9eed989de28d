"""Custom resources for tests: the samples, and every way in which one of their fields can be wrong."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import re2
import yaml

from prefillgate.api.kinds.crd import RESOURCES, Resource, crd_of

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "manifests" / "examples"
MORE = (*sorted((ROOT / "policies").glob("*.yaml")), ROOT / "tests" / "support" / "every_field.yaml")
OF_KIND: dict[str, Resource] = {resource.names.kind: resource for resource in RESOURCES}
UNKNOWN = "unknown field"
FieldPath = tuple[str | int, ...]
Object = dict[str, Any]


@dataclass(frozen=True)
class Wrong:
    """An object with one thing wrong: which field is named for it, and what was done to it."""

    thing: Object
    field: str
    how: str

    def __str__(self) -> str:
        return f"{self.thing['kind']} {self.field}: {self.how}"


def examples() -> list[Object]:
    """Every object of manifests/examples. Change a copy (`changed`), not these."""
    return [thing for path in sorted(EXAMPLES.glob("*.yaml")) for thing in _objects(path)]


def samples() -> list[Object]:
    """Those, the policies of policies/, and objects with every field that none of them has."""
    return [*examples(), *(thing for path in MORE for thing in _objects(path))]


def with_status(kind: str) -> Object:
    """A sample of a kind with a status that holds every field there is."""
    statuses = yaml.safe_load((ROOT / "tests" / "support" / "every_status.yaml").read_text(encoding="utf-8"))
    return {**next(thing for thing in examples() if thing["kind"] == kind), "status": statuses[kind]}


@cache
def _objects(path: Path) -> tuple[Object, ...]:
    return tuple(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def sample(kind: str, name: str) -> Object:
    """The sample of that name; those of manifests/examples first."""
    return next(each for each in samples() if (each["kind"], each["metadata"]["name"]) == (kind, name))


@cache
def schema_of(kind: str) -> Object:
    """The schema of a kind's whole object, from its CRD."""
    schema: Object = crd_of(OF_KIND[kind])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def field_text(path: FieldPath) -> str:
    """A path as an API server writes it: spec.checks[0].type."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def changed(thing: Object, path: FieldPath, value: Any) -> Object:
    """A copy with another value at the path; None takes the field away. What is missing on the way is made."""
    result: Any = copy.deepcopy(thing)
    inner = result
    for part in path[:-1]:
        inner = inner[part] if isinstance(part, int) else inner.setdefault(part, {})
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return result  # type: ignore[no-any-return]


def leaves(schema: Object, value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Object, Any]]:
    """(path, schema, value) of everything in `value`, lists and objects before what is in them."""
    yield path, schema, value
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from leaves(schema["items"], item, (*path, place))
    elif isinstance(value, dict) and not {"properties", "additionalProperties"}.isdisjoint(schema):
        for name, inner in value.items():
            below = schema["properties"][name] if "properties" in schema else schema["additionalProperties"]
            yield from leaves(below, inner, (*path, name))


def schema_paths(schema: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    """(path, schema) of every node of a schema; `[]` stands for an item, `*` for a map's value."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schema_paths(inner, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from schema_paths(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from schema_paths(schema["additionalProperties"], f"{path}.*")


def wrong_fields(thing: Object, part: str = "spec") -> Iterator[Wrong]:
    """The object with each field of its spec, or status, wrong in every way that its schema knows."""
    whole = schema_of(thing["kind"])["properties"][part]
    for path, schema, value in leaves(whole, thing[part], (part,)):
        for how, other in wrong_values(schema, value):
            yield Wrong(changed(thing, path, other), field_text(path), how)
        if "properties" in schema:
            extra = (*path, "colour")
            yield Wrong(changed(thing, extra, "blue"), field_text(extra), UNKNOWN)
            for name in schema.get("required", ()):
                yield Wrong(changed(thing, (*path, name), None), field_text((*path, name)), "missing")


def wrong_values(schema: Object, value: Any) -> Iterator[tuple[str, Any]]:
    """(how, value) of everything that a schema forbids in one place."""
    kind = schema["type"]
    if kind == "integer":
        yield from (("text", "5"), ("a fraction", schema["minimum"] + 0.5), ("true", True))
        yield from (("too small", schema["minimum"] - 1), ("too large", schema["maximum"] + 1))
    if kind == "boolean":
        yield from (("text", "yes"), ("a number", 1))
    if kind == "string":
        yield from (("a number", 5), ("a list", ["x"]))
        if "enum" in schema:
            yield "another word", "Colour"
            return
        yield "too long", "x" * (schema["maxLength"] + 1)
        if schema.get("minLength"):
            yield "empty", ""
        if "pattern" in schema:
            length = max(schema.get("minLength", 2), 2)
            yield (
                "of another shape",
                next(wrong * length for wrong in ("?", "=") if not re2.search(schema["pattern"], wrong * length)),
            )
    if kind == "array":
        yield "text", "x"
        item = value[0]
        yield "too many", [_numbered(item, n) for n in range(schema["maxItems"] + 1)]
        if schema.get("minItems"):
            yield "empty", []
    if kind == "object":
        yield "text", "x"
        if "maxProperties" in schema:
            yield "too many", {f"k{n}": "v" for n in range(schema["maxProperties"] + 1)}


def _numbered(item: Any, number: int) -> Any:
    """Another item like this one, so that what is wrong with a long list is its length alone."""
    if isinstance(item, dict) and "name" in item:
        return {**item, "name": f"n{number}"}
    return item


def each_wrong_field_once() -> Iterator[Wrong]:
    """Every field of every spec wrong in every way, each once, whichever of the samples holds it."""
    seen = set()
    for thing in samples():
        for wrong in wrong_fields(thing):
            place = re.sub(r"\[[0-9]+\]", "[]", wrong.field.replace("spec.candidate.", "spec.baseline."))
            key = (thing["kind"], place, wrong.how)
            if key not in seen:
                seen.add(key)
                yield wrong
