"""Outputs that people have labelled, for a judge to be measured by: one JSON object a line.

    {"output": "VERDICT: LGTM", "label": "bad"}

`prompt` holds what was asked, where the judge is shown that too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefillgate.api.errors import InputError, Problem, shown
from prefillgate.core.quality_expect import NotStrictJson, parse_json

LABELS = ("good", "bad")
KEYS = ("output", "label", "prompt")
MAX_LABELLED = 1000
_MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Labelled:
    """An output, whether a person called it bad, and what was asked (None: not told)."""

    output: str
    bad: bool
    prompt: str | None = None


def load_labelled(path: Path) -> tuple[Labelled, ...]:
    """The labelled outputs of a JSONL file. Raises `InputError` with file:line of each problem."""
    allowed = "a JSONL file of labelled outputs"
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(Problem(str(path), "", f"larger than {_MAX_BYTES} bytes", allowed))
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(Problem(str(path), "", f"cannot be read: {error.strerror or error}", allowed)) from error
    except UnicodeDecodeError as error:
        raise InputError(Problem(str(path), "", f"invalid UTF-8 at byte {error.start + 1}", "UTF-8 text")) from error
    found: list[Labelled] = []
    problems: list[Problem] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        read = _read(line, f"{path}:{number}")
        if isinstance(read, Labelled):
            found.append(read)
        else:
            problems += read
    if len(found) > MAX_LABELLED:
        problems.append(Problem(str(path), "", f"{len(found)} labelled outputs", f"up to {MAX_LABELLED}"))
    if problems:
        raise InputError(*problems[:20], more=len(problems) > 20)
    return tuple(found)


def _read(line: str, where: str) -> Labelled | list[Problem]:
    try:
        document = parse_json(line)
    except NotStrictJson as error:
        return [Problem(where, "", f"not JSON: {error}", "one JSON object a line")]
    if not isinstance(document, dict):
        return [Problem(where, "", f"not a JSON object: {shown(document)}", "one JSON object a line")]
    problems = [Problem(where, *found) for found in _problems(document)]
    return problems or Labelled(document["output"], document["label"] == "bad", document.get("prompt"))


def _problems(document: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for key in document:
        if key not in KEYS:
            yield key, "unknown field", ", ".join(KEYS)
    if not _is_text(document.get("output")):
        yield "output", shown(document.get("output")), "text"
    if document.get("label") not in LABELS:
        yield "label", shown(document.get("label")), ", ".join(LABELS)
    if document.get("prompt") is not None and not _is_text(document["prompt"]):
        yield "prompt", shown(document["prompt"]), "text"


def _is_text(value: Any) -> bool:
    """Text that UTF-8 can hold: no half of a surrogate pair."""
    return isinstance(value, str) and value.encode("utf-8", "replace").decode() == value
