"""The base of every wire type, and its errors as sentences: field path, value, what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from prefillgate.api.errors import Problem, shown
from prefillgate.api.strict_yaml import FieldPath, field_name

M = TypeVar("M", bound="WireModel")
RULES_KEY = "x-kubernetes-validations"


class WireModel(BaseModel):
    """camelCase on the wire, unknown fields refused, nothing converted from another type."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
    )


@dataclass(frozen=True, slots=True)
class CelRule:
    """A rule over several fields in CEL, which an API server applies at admission; `message` says what is wanted.

    Whatever a rule says a validator of the same type says too: not every spec comes by way of an API server.
    `field_path` names a field below, where it alone is at fault (`.spec.checks`).
    """

    rule: str
    message: str
    field_path: str | None = None

    @property
    def entry(self) -> dict[str, str]:
        """The rule as a schema holds it."""
        at_field = {} if self.field_path is None else {"fieldPath": self.field_path}
        return {"rule": self.rule, "message": self.message, **at_field}


def with_rules(*rules: CelRule) -> ConfigDict:
    """The `model_config` of a type whose values also keep `rules`; they stand in its JSON schema."""
    entries: list[Any] = [each.entry for each in rules]
    return ConfigDict(json_schema_extra={RULES_KEY: entries})


def map_list(*keys: str) -> dict[str, Any]:
    """`json_schema_extra` of a list whose items are told apart by these fields, as an API server merges it."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def validate(model: type[M], value: Any) -> tuple[M | None, tuple[tuple[FieldPath, Problem], ...]]:
    """`value` as `model`, or what is wrong with it: each problem with the path of its field (`where` is empty)."""
    try:
        return model.model_validate(value), ()
    except ValidationError as error:
        return None, tuple(_problems(error, _schema_of(model)))


@cache
def _schema_of(model: type[WireModel]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True)


def _problems(error: ValidationError, schema: dict[str, Any]) -> Iterator[tuple[FieldPath, Problem]]:
    for item in error.errors(include_url=False, include_context=True):
        path: FieldPath = tuple(item["loc"])
        kind = item["type"]
        if kind == "extra_forbidden":
            yield path, Problem("", field_name(path), "unknown field", _allowed(_at(schema, path[:-1]), schema))
        elif kind == "missing":
            yield path, Problem("", field_name(path), "missing", _allowed(_at(schema, path), schema))
        elif kind == "value_error":
            yield path, Problem("", field_name(path), str(item["ctx"]["error"]))
        else:
            node = _at(schema, path)
            yield path, Problem("", field_name(path), shown(item["input"]), _allowed(node, schema) or item["msg"])


def _at(schema: dict[str, Any], path: FieldPath) -> Mapping[str, Any]:
    node: Mapping[str, Any] = schema
    for part in path:
        node = _resolved(node, schema)
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            node = node.get("properties", {}).get(part, node.get("additionalProperties") or {})
        if not isinstance(node, Mapping):
            return {}
    return _resolved(node, schema)


def _resolved(node: Mapping[str, Any], schema: dict[str, Any]) -> Mapping[str, Any]:
    """Follow a reference into the schema; an optional field is its type other than null."""
    for _ in range(4):
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
        elif "anyOf" in node:
            node = next((kind for kind in node["anyOf"] if kind.get("type") != "null"), {})
        else:
            break
    return node


def _allowed(node: Mapping[str, Any], schema: dict[str, Any]) -> str:
    if "enum" in node or "const" in node:
        return ", ".join(map(str, node.get("enum", [node.get("const")])))
    kind = node.get("type")
    if kind == "object" and "properties" in node:
        return ", ".join(node["properties"])
    if kind == "object":
        return "a mapping"
    if kind == "integer":
        return f"a whole number{_range(node, 'minimum', 'maximum')}"
    if kind == "string":
        return f"text{_range(node, 'minLength', 'maxLength', ' characters')}"
    if kind == "array":
        item = _allowed(_resolved(node.get("items", {}), schema), schema)
        return f"a list{_range(node, 'minItems', 'maxItems', ' items')}" + (f", each {item}" if item else "")
    return "true, false" if kind == "boolean" else ""


def _range(node: Mapping[str, Any], low: str, high: str, unit: str = "") -> str:
    if low in node and high in node:
        return f" of {node[low]} to {node[high]}{unit}"
    if high in node:
        return f" of up to {node[high]}{unit}"
    return f" of at least {node[low]}{unit}" if low in node else ""
