"""From a pydantic type to the structural schema that an API server keeps: no references, no unions, bounds on all.

What JSON Schema can say and an API server refuses is either said otherwise (`const` as an enum, the keys of a map as a
rule) or is no part of our types; then `CannotBeKept` names the place. Nothing has a default in the schema: a stored
object holds what a person wrote, so its digest and its owner's tools see no change, and the description tells the
default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefillgate.api.model import RULES_KEY, CelRule, WireModel

Schema = dict[str, Any]

_KEPT = ("minLength", "maxLength", "pattern", "minimum", "maximum", "minItems", "maxItems", "enum", "format")
_MAP_KEPT = ("minProperties", "maxProperties")
_LIST_KEYS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys")
_INT32 = 2**31 - 1
_NEVER = ("oneOf", "allOf", "not", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


class CannotBeKept(ValueError):
    """A type says something that the schema of a custom resource cannot."""


def structural(model: type[WireModel]) -> Schema:
    """The schema of a type with every reference inlined. Raises `CannotBeKept` with the path of the field."""
    whole = model.model_json_schema(by_alias=True)
    return _converted(whole, whole.get("$defs", {}), model.__name__)


def _converted(node: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Schema:
    node = _inlined(node, definitions, path)
    for key in _NEVER:
        if key in node:
            raise CannotBeKept(f"{path}: {key}")
    if "const" in node:
        node = {**node, "enum": [node["const"]]}
    result: Schema = {}
    described = _description(node)
    if described:
        result["description"] = described
    kind = node.get("type")
    if kind == "object":
        return {**result, **_object(node, definitions, path)}
    if kind == "array":
        return {**result, **_array(node, definitions, path)}
    if kind not in ("string", "integer", "boolean"):
        raise CannotBeKept(f"{path}: a field of type {kind}")
    result["type"] = kind
    if kind == "integer":
        result["format"] = "int32" if node.get("maximum", 0) <= _INT32 else "int64"
    return {**result, **{key: node[key] for key in _KEPT if key in node}}


def _inlined(node: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The node itself, whatever reference or `or null` stands around it; a field's description wins over its type's."""
    around = {key: value for key, value in node.items() if key not in ("$ref", "anyOf")}
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[1]
        return {**_inlined(definitions[name], definitions, path), **around}
    if "anyOf" in node:
        kinds = [kind for kind in node["anyOf"] if kind.get("type") != "null"]
        if len(kinds) != 1:
            raise CannotBeKept(f"{path}: a field of {len(kinds)} types")
        return {**_inlined(kinds[0], definitions, path), **around}
    return node


def _description(node: Mapping[str, Any]) -> str:
    text = " ".join(str(node.get("description", "")).split())
    default = node.get("default")
    if default is None or default == "" or default == [] or isinstance(default, dict):
        return text
    shown = str(default).lower() if isinstance(default, bool) else default
    shown = ", ".join(map(str, shown)) if isinstance(shown, list) else shown
    return f"{text} Default: {shown}."


def _object(node: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Schema:
    result: Schema = {"type": "object", **{key: node[key] for key in _MAP_KEPT if key in node}}
    rules = list(node.get(RULES_KEY, []))
    if "properties" in node:
        result["properties"] = {
            name: _converted(field, definitions, f"{path}.{name}") for name, field in node["properties"].items()
        }
        if node.get("required"):
            result["required"] = list(node["required"])
    elif (values := _values_of_map(node)) is not None:
        result["additionalProperties"] = _converted(values, definitions, f"{path}.*")
        rules += _rules_of_keys(node["propertyNames"])
    else:
        result["x-kubernetes-preserve-unknown-fields"] = True
    if rules:
        result[RULES_KEY] = rules
    return result


def _values_of_map(node: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What the values of a map are; None for an object of any shape."""
    for values in node.get("patternProperties", {}).values():
        return values  # type: ignore[no-any-return]
    values = node.get("additionalProperties")
    return values if isinstance(values, Mapping) else None


def _rules_of_keys(names: Mapping[str, Any]) -> list[dict[str, str]]:
    """The lengths of a map's keys, for which a structural schema has no place of its own.

    Not their pattern: the cost of matching it is estimated for the longest key that a request can hold, and refused.
    """
    low, high = names["minLength"], names["maxLength"]
    rule = f"self.all(key, size(key) >= {low} && size(key) <= {high})"
    return [CelRule(rule, f"a key has {low} to {high} characters").entry]


def _array(node: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Schema:
    result: Schema = {
        "type": "array",
        "items": _converted(node["items"], definitions, f"{path}[]"),
        **{key: node[key] for key in _KEPT if key in node},
        **{key: node[key] for key in _LIST_KEYS if key in node},
    }
    result.setdefault("x-kubernetes-list-type", "atomic")
    if RULES_KEY in node:
        result[RULES_KEY] = list(node[RULES_KEY])
    return result
