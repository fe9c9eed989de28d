"""Server-side apply, as far as our own objects need it: who owns which field, what is in conflict, what is removed.

A field is a path of `f:name` and, in lists that are maps, `k:{"type":"Ready"}`. Other lists are one field as a whole.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

Path = tuple[str, ...]
MapLists = Mapping[tuple[str, ...], tuple[str, ...]]
NOBODYS = {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"}
ITEM = "."


def leaves(obj: dict[str, Any], map_lists: MapLists) -> dict[Path, Any]:
    """Every field that can be owned, with its value."""
    found: dict[Path, Any] = {}
    for key, value in obj.items():
        if key in {"apiVersion", "kind"}:
            continue
        if key == "metadata":
            value = {name: each for name, each in value.items() if name not in NOBODYS and name != "deletionTimestamp"}
            if not value:
                continue
        _walk(value, (f"f:{key}",), (key,), map_lists, found)
    return found


def _walk(value: Any, path: Path, names: Path, map_lists: MapLists, found: dict[Path, Any]) -> None:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            _walk(each, (*path, f"f:{key}"), (*names, key), map_lists, found)
    elif isinstance(value, list) and names in map_lists:
        for item in value:
            key = json.dumps({name: item[name] for name in map_lists[names]}, separators=(",", ":"), sort_keys=True)
            found[(*path, f"k:{key}", ITEM)] = None
            for name, each in item.items():
                _walk(each, (*path, f"k:{key}", f"f:{name}"), (*names, name), map_lists, found)
    else:
        found[path] = value


def put(obj: dict[str, Any], path: Path, value: Any) -> None:
    """Set a field, making what stands above it."""
    at: Any = obj
    for step, after in zip(path, (*path[1:], ""), strict=True):
        if step == ITEM:
            return
        if step.startswith("k:"):
            at = _item(at, step, make=True)
            continue
        name = step[2:]
        if not after:
            at[name] = copy.deepcopy(value)
        elif after.startswith("k:"):
            at = at.setdefault(name, [])
        else:
            if not isinstance(at.get(name), dict):
                at[name] = {}
            at = at[name]


def remove(obj: dict[str, Any], path: Path) -> None:
    """Remove a field, and what is left empty above it."""
    if len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in json.loads(path[-2][2:]):
        return  # what an item is called goes with the item
    above: list[tuple[Any, str]] = []
    at: Any = obj
    for step in path:
        if at is None:
            return
        above.append((at, step))
        if step != ITEM:
            at = _item(at, step, make=False) if step.startswith("k:") else at.get(step[2:])
    for holder, step in reversed(above):
        if step == ITEM:
            continue
        if step.startswith("k:"):
            item = _item(holder, step, make=False)
            if item is not None and set(item) <= set(json.loads(step[2:])) and path[-1] == ITEM:
                holder.remove(item)
                continue
            return
        if holder is above[-1][0] or not holder.get(step[2:]):
            holder.pop(step[2:], None)
        else:
            return


def _item(items: list[Any], step: str, make: bool) -> Any:
    wanted = json.loads(step[2:])
    for item in items:
        if all(item.get(name) == value for name, value in wanted.items()):
            return item
    if not make:
        return None
    items.append(dict(wanted))
    return items[-1]


def encode(paths: set[Path]) -> dict[str, Any]:
    """Paths as the API writes them, `fieldsV1`."""
    found: dict[str, Any] = {}
    for path in sorted(paths):
        at = found
        for step in path:
            at = at.setdefault(step, {})
    return found


def decode(fields: dict[str, Any], above: Path = ()) -> set[Path]:
    found: set[Path] = set()
    for step, below in fields.items():
        found |= decode(below, (*above, step)) if below else {(*above, step)}
    return found
