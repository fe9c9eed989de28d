"""The rules of a CRD as an API server applies them, by another implementation of CEL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from cel_expr_python import cel

from prefillgate.api.model import RULES_KEY
from tests.support.kinds import Object, field_text, leaves, schema_paths


@dataclass(frozen=True)
class Refusal:
    """A rule that does not hold: of which field, and what it says."""

    field: str
    says: str


@cache
def _program(rule: str) -> Any:
    return cel.NewEnv(variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN}).compile(rule)


def all_rules(schema: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    """(path, rule) of every rule of a schema."""
    for place, node in schema_paths(schema, path):
        for rule in node.get(RULES_KEY, ()):
            yield place, rule


def refusals(schema: Object, thing: Object, before: Object | None = None) -> list[Refusal]:
    """Every rule that the object breaks, as created, or as it comes after `before`."""
    old = {} if before is None else {path: value for path, _, value in leaves(schema, before)}
    found = []
    for path, node, value in leaves(schema, thing):
        for rule in node.get(RULES_KEY, ()):
            if "oldSelf" in rule["rule"] and path not in old:
                continue
            if not _program(rule["rule"]).eval(data={"self": value, "oldSelf": old.get(path)}).plain_value():
                field = field_text(path) + rule.get("fieldPath", "")
                found.append(Refusal(field.lstrip("."), rule["message"]))
    return found
