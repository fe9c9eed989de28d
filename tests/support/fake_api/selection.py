"""Label and field selectors, as far as they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def chosen(query: Mapping[str, str], obj: dict[str, Any]) -> bool:
    """Whether the object meets `labelSelector` and `fieldSelector` of a query."""
    meta = obj["metadata"]
    labels = meta.get("labels") or {}
    for term in filter(None, query.get("labelSelector", "").split(",")):
        name, sign, value = _parts(term)
        if (sign == "=" and labels.get(name) != value) or (sign == "!=" and labels.get(name) == value):
            return False
        if sign == "" and name not in labels:
            return False
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        name, sign, value = _parts(term)
        at: Any = obj
        for step in name.split("."):
            at = (at or {}).get(step)
        if ((at or "") == value) != (sign == "="):
            return False
    return True


def _parts(term: str) -> tuple[str, str, str]:
    if "!=" in term:
        name, _, value = term.partition("!=")
        return name, "!=", value
    name, sign, value = term.partition("=")
    return name, "=" if sign else "", value.removeprefix("=")
