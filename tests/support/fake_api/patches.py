"""JSON patch (RFC 6902: add, replace, remove, test) and JSON merge patch (RFC 7386)."""

from __future__ import annotations

import copy
from typing import Any

from tests.support.fake_api.store import Refused

REJECTED = "the server rejected our request due to an error in our request"


def merge_patch(obj: Any, patch: Any) -> Any:
    """The object with the patch merged in."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(obj: Any, operations: list[dict[str, Any]]) -> Any:
    """The object after all operations. Raises Refused, and nothing is done, where one cannot be."""
    found = copy.deepcopy(obj)
    for operation in operations:
        *above, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        try:
            at = found
            for step in above:
                at = at[int(step)] if isinstance(at, list) else at[step]
            _one(at, last, operation)
        except (KeyError, IndexError, TypeError) as error:
            raise Refused(422, "Invalid", REJECTED) from error
    return found


def _one(at: Any, last: str, operation: dict[str, Any]) -> None:
    key: Any = (len(at) if last == "-" else int(last)) if isinstance(at, list) else last
    kind = operation["op"]
    if kind == "test":
        if at[key] != operation["value"]:
            raise KeyError(last)
    elif kind == "remove":
        del at[key]
    elif kind == "add" and isinstance(at, list):
        at.insert(key, copy.deepcopy(operation["value"]))
    else:
        if kind == "replace":
            at[key]
        at[key] = copy.deepcopy(operation["value"])
