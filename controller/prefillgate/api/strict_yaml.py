"""YAML read so that no two readers can disagree: one document, one mapping, no key twice, no anchors, no tags.

The subset is what Kubernetes takes. Positions are kept, so that a problem found later can name its line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from prefillgate.api.errors import Problem, clean, shown

MAX_BYTES = 1024 * 1024
FieldPath = tuple[str | int, ...]

_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = "a whole number in decimal digits"
MAX_DEPTH = 64
MAX_VALUES = 20_000  # names, values, lists and mappings: the reader takes about 50 microseconds for each
_ALLOWED_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "bool", "null", "float", "map", "seq")}


class YamlProblem(ValueError):
    """The text is not YAML of that subset."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """The mapping of a file and the line (from 1) of every field, by path."""

    name: str
    value: dict[str, Any]
    lines: dict[FieldPath, int]

    def where(self, path: FieldPath) -> str:
        """file:line of a field, or of the nearest field around it that is there."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines[path]}" if path in self.lines else self.name


def field_name(path: FieldPath) -> str:
    """A path as a person writes it: spec.checks[2].regex."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return clean(text)


def read_yaml_file(path: Path) -> YamlDocument:
    """The document of a file. Raises `YamlProblem`, with line and column for a syntax error."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise YamlProblem(Problem(str(path), "", f"cannot be read: {error.strerror or error}")) from error
    return read_yaml(raw, str(path))


def read_yaml(raw: bytes, name: str) -> YamlDocument:
    """The document of these bytes; `name` stands for the file in messages. Raises `YamlProblem`."""
    if len(raw) > MAX_BYTES:
        raise YamlProblem(Problem(name, "", f"longer than {MAX_BYTES} bytes", f"up to {MAX_BYTES} bytes"))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        what = f"invalid UTF-8 (byte 0x{raw[error.start]:02x})"
        raise YamlProblem(Problem(f"{name}:{line}", "", what, "UTF-8 text")) from error
    node = _compose(text, name)
    lines: dict[FieldPath, int] = {}
    if not isinstance(node, yaml.MappingNode):
        raise YamlProblem(Problem(name, "", "not a mapping of fields", "one YAML mapping"))
    return YamlDocument(name, _value(node, name, (), lines), lines)


def _compose(text: str, name: str) -> yaml.Node | None:
    try:
        _check_events(text, name)
        documents: Iterator[Any] = iter(yaml.compose_all(text, Loader=yaml.SafeLoader))
        node = next(documents, None)
        if next(documents, None) is not None:
            raise YamlProblem(Problem(name, "", "more than one document", "one YAML document a file"))
    except yaml.MarkedYAMLError as error:
        raise YamlProblem(_syntax_problem(error, name)) from error
    except yaml.YAMLError as error:
        raise YamlProblem(Problem(name, "", f"not YAML: {clean(str(error).splitlines()[0])}")) from error
    return node if node is None or isinstance(node, yaml.Node) else None


def _check_events(text: str, name: str) -> None:
    """Refuse what is too deep, too much or written by reference, before anything is built of it."""
    depth = values = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        values += isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent)
        where = f"{name}:{event.start_mark.line + 1}" if event.start_mark else name
        if depth > MAX_DEPTH:
            raise YamlProblem(Problem(where, "", "nested too deep", f"up to {MAX_DEPTH} levels"))
        if values > MAX_VALUES:
            raise YamlProblem(Problem(where, "", "too many names and values", f"up to {MAX_VALUES} in a file"))
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise YamlProblem(Problem(where, "", "anchors and aliases are not taken", "every value written out"))


def _syntax_problem(error: yaml.MarkedYAMLError, name: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
    return Problem(place, "", f"not YAML: {clean(error.problem or error.context or 'syntax error')}")


def _value(node: yaml.Node, name: str, path: FieldPath, lines: dict[FieldPath, int]) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if node.tag not in _ALLOWED_TAGS:
        what = f"a value of type {clean(node.tag.removeprefix('tag:yaml.org,2002:'))}"
        where = f"{name}:{node.start_mark.line + 1}"
        raise YamlProblem(Problem(where, field_name(path), what, "quoted text, a whole number, a list, a mapping"))
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, name, path, lines)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, name, (*path, place), lines) for place, item in enumerate(node.value)]
    return _scalar(node, name, path)


def _mapping(node: yaml.MappingNode, name: str, path: FieldPath, lines: dict[FieldPath, int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        where = f"{name}:{key_node.start_mark.line + 1}"
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
            raise YamlProblem(Problem(where, field_name(path), *_no_name(key_node)))
        key = str(key_node.value)
        inner = (*path, key)
        if key in found:
            raise YamlProblem(Problem(where, field_name(inner), f"stands twice, first on line {lines[inner]}"))
        lines[inner] = key_node.start_mark.line + 1
        found[key] = _value(value_node, name, inner, lines)
    return found


def _no_name(key: yaml.Node) -> tuple[str, str]:
    """What is wrong with a key that is no text, and what is allowed."""
    if isinstance(key, yaml.ScalarNode):
        return f"the key {shown(key.value)} is not text", "a name"
    kind = "list" if isinstance(key, yaml.SequenceNode) else "mapping"
    return f"a key that is a {kind}, as of a template `{{{{ ... }}}}` that was not filled in", "a name"


def _scalar(node: yaml.Node, name: str, path: FieldPath) -> Any:
    if node.tag == "tag:yaml.org,2002:int" and not _DECIMAL.fullmatch(str(node.value)):
        # 010 is 8 to one reader and 10 to another, 1:30 is 90 or text.
        where = f"{name}:{node.start_mark.line + 1}"
        allowed = "decimal digits without a leading zero, or quoted text"
        raise YamlProblem(Problem(where, field_name(path), f"{shown(node.value)} is read in different ways", allowed))
    try:
        value = yaml.SafeLoader("").construct_object(node)
    except (ValueError, yaml.YAMLError) as error:
        where = f"{name}:{node.start_mark.line + 1}"
        raise YamlProblem(Problem(where, field_name(path), f"cannot read {shown(node.value)}", _NUMBER)) from error
    if isinstance(value, float) and not math.isfinite(value):
        where = f"{name}:{node.start_mark.line + 1}"
        raise YamlProblem(Problem(where, field_name(path), f"{shown(node.value)} is not a number", _NUMBER))
    return value
