"""A check as it is written down: in a policy, under `prefillgate.checks` of a replay set's line, on the command line.

Written as an object it has a `type`, an optional `name` and, under the type's own key, its parameters:

    - type: Regex
      name: no-apology
      regex: {mustNotMatch: "(?i)i am sorry"}

On a line of a replay set and on the command line the short form NAME[=VALUE] stands for the same: `min_words=20`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from prefillgate.api.asking_spec import Exec, Judge
from prefillgate.api.check_type import SHORT_FORMS, CheckType
from prefillgate.api.errors import Problem, shown
from prefillgate.api.model import CelRule, WireModel, validate, with_rules
from prefillgate.api.strict_yaml import FieldPath, field_name
from prefillgate.core.flags import REPORTED_ONLY
from prefillgate.core.quality_expect import NotStrictJson, parse_json

MAX_CHECKS = 50
NAME_PATTERN = "^[a-z0-9][a-z0-9_.-]{0,62}$"
WORDS_PATTERN = r"^[\p{L}\p{M}\p{N}_][\p{L}\p{M}\p{N}_ -]*$"  # not \w, which is ASCII alone where Go reads it

Text = Annotated[str, Field(min_length=1, max_length=4096)]
Word = Annotated[str, Field(min_length=1, max_length=64)]


FIXED_NAMES = (CheckType.CUT, CheckType.EQUAL_TO_BASELINE, CheckType.EXPECT, CheckType.FOREIGN_TEXT)
KEPT_NAMES = REPORTED_ONLY | {kind.default_name for kind in FIXED_NAMES}  # the gate reads these by their name


class MinWords(WireModel):
    words: int = Field(default=20, ge=1, le=100_000, description="An output with fewer words is bad.")


class BareVerdict(WireModel):
    keyword: str = Field(
        default="VERDICT",
        min_length=1,
        max_length=40,
        pattern=WORDS_PATTERN,
        description="The word before the colon of a verdict line.",
    )
    verdicts: list[Word] = Field(
        default_factory=list, max_length=20, description="The verdicts there are. Left out: whatever stands there."
    )
    rationale_words: int = Field(
        default=4, ge=1, le=10_000, description="With fewer words beside the verdict line the output is bad."
    )
    mode: Literal["IfPresent", "Require"] = Field(
        default="IfPresent", description="Require: an output without a verdict line is bad too."
    )


class Regex(WireModel):
    model_config = with_rules(
        CelRule("has(self.mustMatch) || has(self.mustNotMatch)", "mustMatch or mustNotMatch is wanted")
    )

    must_match: Text | None = Field(default=None, description="An RE2 pattern; an output without a match is bad.")
    must_not_match: Text | None = Field(default=None, description="An RE2 pattern; an output with a match is bad.")

    @model_validator(mode="after")
    def _one_of_them(self) -> Regex:
        if self.must_match is None and self.must_not_match is None:
            raise ValueError("mustMatch or mustNotMatch is wanted")
        return self


class JsonSchema(WireModel):
    json_schema: dict[str, Any] = Field(
        alias="schema", max_length=1000, description="A JSON Schema without remote references."
    )


class Cel(WireModel):
    expression: Text = Field(
        description="A CEL expression over content, reasoning, tool_calls, finish_reason, words, case_id; false is bad."
    )


class FinishReason(WireModel):
    allowed: list[Word] = Field(
        default=["stop", "tool_calls"], min_length=1, max_length=20, description="Any other finish reason is bad."
    )


class Loop(WireModel):
    repeats: int = Field(default=4, ge=2, le=1000, description="So many repeats of a block in a row are bad.")
    characters: int = Field(default=60, ge=8, le=100_000, description="How long they must be together.")


class TemplateTokens(WireModel):
    additional: list[Word] = Field(
        default_factory=list, max_length=50, description="Further texts that are control tokens."
    )
    ignored: list[Word] = Field(default_factory=list, max_length=50, description="Texts that are none after all.")


class Plugin(WireModel):
    entry_point: str = Field(
        min_length=1, max_length=100, description="The entry point, in the group prefillgate.checks."
    )
    parameters: dict[Word, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, max_length=50, description="What the plug-in is called with."
    )


PARAMETERS: dict[str, Callable[[], WireModel] | None] = {
    "min_words": MinWords,
    "bare_verdict": BareVerdict,
    "regex": None,
    "json_schema": None,
    "cel": None,
    "finish_reason": FinishReason,
    "loop": Loop,
    "template_tokens": TemplateTokens,
    "plugin": None,
    "exec": None,
    "judge": None,
}
REQUIRED_PARAMETERS = tuple(name for name, default in PARAMETERS.items() if default is None)


def _check_rules() -> tuple[CelRule, ...]:
    """What `CheckModel._own_parameters_only` says, for an API server."""
    kinds = {kind.default_name: kind.value for kind in CheckType}
    own = [f"(!has(self.{to_camel(name)}) || self.type == '{kinds[name]}')" for name in PARAMETERS]
    needed = [f"(self.type != '{kinds[name]}' || has(self.{to_camel(name)}))" for name in REQUIRED_PARAMETERS]
    fixed = [f"(self.type != '{kind}' || self.name == '{kind.default_name}')" for kind in FIXED_NAMES]
    kept = [
        f"(self.name != '{name}' || self.type == '{kinds[name]}')" if name in kinds else f"self.name != '{name}'"
        for name in sorted(KEPT_NAMES)
    ]
    return (
        CelRule("self.type != 'Expect'", "Expect is not declared: a case that carries `expect` gets it"),
        CelRule(" && ".join(own), "parameters of another check stand here; a check has those of its own type alone"),
        CelRule(" && ".join(needed), "a check of this type needs its parameters under its own key"),
        CelRule(f"!has(self.name) || ({' && '.join(fixed)})", "a check of this type keeps its own name; leave it out"),
        CelRule(f"!has(self.name) || ({' && '.join(kept)})", "this name is kept for the gate's own use; take another"),
    )


class CheckModel(WireModel):
    """One entry of a list of checks. Only the parameters of its own type may be given."""

    model_config = with_rules(*_check_rules())

    type: CheckType = Field(strict=False, description="What is looked at; its parameters stand under its own key.")
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        pattern=NAME_PATTERN,
        description="What its outcomes go by. Left out: the type in small letters, as bare_verdict.",
    )
    min_words: MinWords | None = Field(default=None, description="Of type MinWords: how many words.")
    bare_verdict: BareVerdict | None = Field(default=None, description="Of type BareVerdict: what a verdict is.")
    regex: Regex | None = Field(default=None, description="Of type Regex: the patterns.")
    json_schema: JsonSchema | None = Field(default=None, description="Of type JsonSchema: the schema.")
    cel: Cel | None = Field(default=None, description="Of type Cel: the expression.")
    finish_reason: FinishReason | None = Field(default=None, description="Of type FinishReason: the good ones.")
    loop: Loop | None = Field(default=None, description="Of type Loop: what a loop is.")
    template_tokens: TemplateTokens | None = Field(default=None, description="Of type TemplateTokens: which.")
    plugin: Plugin | None = Field(default=None, description="Of type Plugin: which one, and its parameters.")
    exec: Exec | None = Field(default=None, description="Of type Exec, in policy files alone: the program.")
    judge: Judge | None = Field(default=None, description="Of type Judge, in policy files alone: the model.")

    @model_validator(mode="after")
    def _own_parameters_only(self) -> CheckModel:
        mine = self.type.default_name
        if self.type is CheckType.EXPECT:
            raise ValueError("Expect is not declared: a case that carries `expect` gets it")
        for parameters in PARAMETERS:
            if parameters != mine and getattr(self, parameters) is not None:
                raise ValueError(f"parameters of another check stand in a check of type {self.type}")
        if mine in REQUIRED_PARAMETERS and getattr(self, mine) is None:
            raise ValueError(f"a check of type {self.type} needs its parameters under its own key")
        if self.type in FIXED_NAMES and self.name not in (None, mine):
            raise ValueError(f"a check of type {self.type} keeps its name {mine}")
        if self.name in KEPT_NAMES and self.name != mine:
            kept = f"the name {self.name} is kept for the gate's own use"
            raise ValueError(f"{kept}; a check of type {self.type} needs another")
        return self


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """A declared check: its type, the name its outcomes go by, its parameters (None where the type has none).

    Relative paths in the parameters stand relative to `folder`; None is where the command was started.
    """

    type: CheckType
    name: str
    parameters: WireModel | None = None
    folder: Path | None = None

    @property
    def version_suffix(self) -> str:
        """Eight digits of the digest of the parameters, so that an outcome tells which numbers it was made with."""
        if self.parameters is None:
            return ""
        rule = self.parameters.rule if isinstance(self.parameters, Judge) else self.parameters.model_dump(by_alias=True)
        text = json.dumps(rule, sort_keys=True, ensure_ascii=True)
        return "+" + hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class CheckList:
    """What a list of checks says, or what is wrong with it."""

    specs: tuple[CheckSpec, ...] = ()
    problems: tuple[Problem, ...] = ()


def specs_of(models: list[CheckModel], folder: Path | None = None) -> tuple[CheckSpec, ...]:
    """The checks of validated entries; an unnamed check that would share a name gets a number (`regex_2`)."""
    specs: list[CheckSpec] = []
    taken = {model.name for model in models}
    for model in models:
        mine = model.type.default_name
        name = model.name or next(n for n in _numbered(mine) if n not in taken)
        taken.add(name)
        parameters = getattr(model, mine, None) if mine in PARAMETERS else None
        default = PARAMETERS.get(mine)
        specs.append(CheckSpec(model.type, name, parameters or (default() if default else None), folder))
    return tuple(specs)


def declaration_of(spec: CheckSpec) -> dict[str, Any]:
    """A check as an object that `read_check_list` reads, every parameter written out; the folder is not part of it."""
    parameters = None if spec.parameters is None else spec.parameters.model_dump(mode="json", by_alias=True)
    own = {} if parameters is None else {to_camel(spec.type.default_name): parameters}
    return {"type": spec.type.value, "name": spec.name, **own}


def name_twice(models: list[CheckModel]) -> str | None:
    """A name that two entries were given, or None. Nor may a check of fixed name stand twice."""
    names = [m.name or (m.type.default_name if m.type in FIXED_NAMES else None) for m in models]
    given = [name for name in names if name is not None]
    return next((name for name in given if given.count(name) > 1), None)


def read_check_list(value: Any, field: str) -> CheckList:
    """The checks of a JSON list whose entries are objects or short forms."""
    if not isinstance(value, list) or len(value) > MAX_CHECKS:
        allowed = f"a list of up to {MAX_CHECKS} checks, each an object with a type or NAME[=VALUE]"
        return CheckList(problems=(Problem("", field, shown(value), allowed),))
    models: list[CheckModel] = []
    problems: list[Problem] = []
    for place, item in enumerate(value):
        base = f"{field}[{place}]"
        if isinstance(item, str):
            item = _from_short(item)
            if isinstance(item, Problem):
                problems.append(Problem("", base, item.message, item.allowed))
                continue
        model, wrong = validate(CheckModel, item)
        problems += [Problem("", _joined(base, path), p.message, p.allowed) for path, p in wrong]
        models += [model] if model is not None else []
    twice = name_twice(models)
    if twice is not None:
        problems.append(Problem("", field, f"the name {shown(twice)} stands twice", "a name of its own for each"))
    return CheckList(problems=tuple(problems)) if problems else CheckList(specs_of(models))


def _joined(base: str, path: FieldPath) -> str:
    inner = field_name(path)
    return f"{base}.{inner}" if inner else base


def _numbered(name: str) -> Iterator[str]:
    yield name
    for number in range(2, MAX_CHECKS + 2):
        yield f"{name}_{number}"


def _from_short(text: str) -> dict[str, Any] | Problem:
    """The object that a short form stands for."""
    name, equals, value = text.partition("=")
    if name not in SHORT_FORMS:
        return Problem("", "", f"unknown check {shown(name)}", ", ".join(SHORT_FORMS.values()))
    form = SHORT_FORMS[name]
    if (equals and "=" not in form) or (not value and "=" in form and "[" not in form) or (equals and not value):
        return Problem("", "", f"{shown(text)}", form)
    if name in ("min_words", "bare_verdict", "loop") and value and not re.fullmatch("[0-9]{1,9}", value):
        return Problem("", "", f"{shown(value)} is not a whole number", form)
    try:
        return _expanded(name, value)
    except NotStrictJson as error:
        return Problem("", "", f"not JSON: {error}", form)


def _expanded(name: str, value: str) -> dict[str, Any]:
    single: dict[str, Callable[[], dict[str, Any]]] = {
        "min_words": lambda: {"type": "MinWords", "minWords": {"words": int(value)}},
        "bare_verdict": lambda: {"type": "BareVerdict", "bareVerdict": {"rationaleWords": int(value)}},
        "regex": lambda: {"type": "Regex", "regex": {"mustMatch": value}},
        "not_regex": lambda: {"type": "Regex", "regex": {"mustNotMatch": value}},
        "json_schema": lambda: {"type": "JsonSchema", "jsonSchema": {"schema": parse_json(value)}},
        "cel": lambda: {"type": "Cel", "cel": {"expression": value}},
        "finish_reason": lambda: {"type": "FinishReason", "finishReason": {"allowed": value.split(",")}},
        "loop": lambda: {"type": "Loop", "loop": {"repeats": int(value)}},
        "plugin": lambda: {"type": "Plugin", "plugin": {"entryPoint": value}},
        "exec": lambda: {"type": "Exec", "exec": {"arguments": _arguments(value)}},
    }
    if value:
        return single[name]()
    return {"type": next(kind.value for kind in CheckType if kind.default_name == name)}


def _arguments(value: str) -> Any:
    """A JSON list of arguments, or one program without any."""
    return parse_json(value) if value.lstrip().startswith("[") else [value]
