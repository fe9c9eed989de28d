"""Fields of an object from an API server or a file, each with its path, so that an error can name it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from prefillgate.profiles.model import refused

MOST_ITEMS = 4_096  # of a list: arguments, variables, volumes
_STEP = re.compile(r"([^.\[\]]+)|\[(\d{1,6})\]")


def mapping(value: Any, path: str) -> Mapping[str, Any]:
    """`value` if it is a mapping, an empty one for None. Raises `ProfileError` for anything else."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refused(path, f"{kind_of(value)} stands where fields are expected", "a mapping")
    return value


def items(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Every item of a list with its path; nothing for None. Raises `ProfileError` for another kind or a longer list."""
    if value is None:
        return
    if not isinstance(value, list | tuple):
        raise refused(path, f"{kind_of(value)} stands where a list is expected", "a list")
    if len(value) > MOST_ITEMS:
        raise refused(path, f"{len(value)} items", f"up to {MOST_ITEMS}")
    for index, each in enumerate(value):
        yield each, f"{path}[{index}]"


def text_of(value: Any, path: str) -> str:
    """`value` if it is text. Raises `ProfileError`, which names its kind and never shows it: it may be a credential."""
    if not isinstance(value, str):
        raise refused(path, f"{kind_of(value)} stands where text is expected", "text; quote numbers and true or false")
    return value


def texts(value: Any, path: str) -> list[str]:
    """A list of texts, such as `args`."""
    return [text_of(each, at) for each, at in items(value, path)]


def kind_of(value: Any) -> str:
    """What `value` is, in words."""
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "text", type(None): "nothing"}
    other = "a mapping" if isinstance(value, Mapping) else "a list" if isinstance(value, list | tuple) else "a date"
    return kinds.get(type(value), other)


def at_path(value: Any, path: str) -> Any:
    """The field at a path such as `spec.template` or `spec.pools[0].template`. Raises `ProfileError` naming it."""
    steps = list(_STEP.finditer(path))
    if not steps or "".join(step[0] for step in steps) != path.replace(".", ""):
        raise refused("podTemplatePath", "not a path of fields", "such as spec.template or spec.pools[0].template")
    walked = ""
    for step in steps:
        walked += step[0] if step[2] is not None else f".{step[0]}" if walked else step[0]
        if step[2] is not None:
            value = value[int(step[2])] if isinstance(value, list) and int(step[2]) < len(value) else None
        else:
            value = value.get(step[1]) if isinstance(value, Mapping) else None
        if value is None:
            raise refused(walked, "not there", "a path that leads to a pod template")
    return value
