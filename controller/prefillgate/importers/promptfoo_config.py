"""promptfoo configurations (YAML or JSON), for `replayset import`: the plain subset of prompts, tests and asserts.

Read are `prompts` written out (text, or a chat as JSON or YAML messages), `tests` with plain `vars`, `defaultTest` with
`vars` and `assert`, templates of the form {{ name }}, and the asserts `equals`, `contains`, `regex` and `is-json`.
Every test on every prompt is a case. Anything else is refused by its name with its place: a part that changes a prompt
refuses the case, an assert without a check of ours is left out of the case. `equals` is compared after trimming.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from prefillgate.api.errors import Problem
from prefillgate.importers.base import Found, Prompted, Unread
from prefillgate.importers.records import Damaged, Record, outline
from prefillgate.importers.source import ImportProblem, Source
from prefillgate.importers.told import asked_text

MAX_BYTES = 16 * 1024 * 1024
MAX_CASES = 100_000
# What says whom to ask, how to run and where to write, and nothing of a prompt or of what is good.
_BESIDE = frozenset(
    {"description", "providers", "targets", "outputPath", "sharing", "env", "tags", "evaluateOptions"}
    | {"commandLineOptions", "$schema", "metadata", "writeLatestResults"}
)
_TEST = frozenset({"vars", "assert", "description", "metadata"})
_ASSERT = frozenset({"type", "value", "metric", "weight"})
_FILE = re.compile(r"\S+\.(?:txt|json|jsonl|ya?ml|md|js|ts|py|csv|j2)")
_NAME = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)\s*-?\}\}")
_TEMPLATE = re.compile(r"\{[{%#]")
_YAML = re.compile(rb"^prompts:", re.MULTILINE)
_YAML_BESIDE = re.compile(rb"^(?:tests|providers|targets|defaultTest):", re.MULTILINE)


class PromptfooConfig:
    """The format `promptfoo-config`."""

    name = "promptfoo-config"
    title = "promptfoo configurations"

    def recognise(self, head: bytes) -> bool:
        """Prompts beside tests or providers, at the top."""
        if head.lstrip()[:1] == b"{":
            keys = outline(head, 1)
            return "prompts" in keys and bool({"tests", "providers", "targets"} & keys) and "results" not in keys
        return _YAML.search(head) is not None and _YAML_BESIDE.search(head) is not None

    def read(self, source: Source) -> Iterator[Found]:
        """A `Prompted` for each test on each prompt. Raises `ImportProblem` for what is no configuration."""
        config = _document(source)
        for key in config:
            if key not in _BESIDE and key not in ("prompts", "tests", "defaultTest"):
                yield Unread(f"{source.name}: {key}", f"promptfoo's `{str(key)[:60]}` is not read")
        default = config.get("defaultTest", {})
        if not isinstance(default, dict) or not default.keys() <= _TEST:
            yield Unread(f"{source.name}: defaultTest", "a defaultTest with more than plain vars and assert: no case")
            return
        prompts = yield from _prompts(config.get("prompts"), source.name)
        tests = config.get("tests", [{}])
        if not isinstance(tests, list):
            yield Unread(f"{source.name}: tests", "tests that are not written out (a file or a generator)")
            return
        if len(prompts) * len(tests) > MAX_CASES:
            raise ImportProblem(Problem(source.name, "", "too many tests on too many prompts", f"up to {MAX_CASES}"))
        for place, test in enumerate(tests):
            where = f"{source.name}: tests[{place}]"
            try:
                variables, asserts = _test(test, default)
            except Damaged as damage:
                yield Unread(where, str(damage))
                continue
            yield from _cases(prompts, variables, asserts, where)


def _document(source: Source) -> Record:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        found = yaml.load(source.whole(MAX_BYTES), loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ImportProblem(Problem(source.name, "", "not one YAML document", "a whole file")) from error
    if not isinstance(found, dict):
        raise ImportProblem(Problem(source.name, "", "not a mapping", "a configuration of promptfoo"))
    return found


def _prompts(told: Any, name: str) -> Generator[Unread, None, list[Any]]:
    """The prompts that are written out, as text or messages; yields an `Unread` for each that is not."""
    found: list[Any] = []
    for place, prompt in enumerate(told if isinstance(told, list) else [told]):
        where = f"{name}: prompts[{place}]"
        if isinstance(prompt, dict) and prompt.keys() <= {"raw", "label", "id"}:
            prompt = prompt.get("raw")
        if not isinstance(prompt, str) or not prompt.strip():
            yield Unread(where, "a prompt that is not written out as text")
        elif prompt.startswith(("file://", "exec:")) or _FILE.fullmatch(prompt):
            yield Unread(where, "a prompt in a file of its own (write it out, or import the results of a run)")
        else:
            chat = _chat(prompt)
            if chat is None:
                yield Unread(where, "a chat whose messages stand in its template")
            else:
                found.append(chat)
    return found


def _chat(prompt: str) -> Any:
    """The messages of a prompt that is a chat in JSON or YAML, else its text. Templates are filled in afterwards.

    None for a chat whose messages cannot be told before its template is filled in.
    """
    import yaml

    if not prompt.lstrip().startswith(("[", "- role:")):
        return prompt
    try:
        told = yaml.safe_load(prompt)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None if "role" in prompt else prompt
    if isinstance(told, list) and told and all(isinstance(each, dict) and "role" in each for each in told):
        whole = all(isinstance(each.get("content"), (str, list)) for each in told)
        return told if whole else None
    return prompt


def _test(test: Any, default: Mapping[str, Any]) -> tuple[dict[str, str], list[Any]]:
    """Variables and asserts of a test, with those of every test. Raises `Damaged` for what changes a prompt."""
    if not isinstance(test, dict):
        raise Damaged("a test that is not written out")
    unknown = sorted(str(key) for key in test.keys() - _TEST)
    if unknown:
        raise Damaged(f"a test with `{unknown[0][:60]}`: no case")
    variables: dict[str, str] = {}
    asserts: list[Any] = []
    for owner in (default, test):
        told = owner.get("vars") or {}
        if not isinstance(told, dict):
            raise Damaged("vars that are not written out")
        for name, value in told.items():
            variables[str(name)] = _variable(value)
        checks = owner.get("assert") or []
        if not isinstance(checks, list):
            raise Damaged("assert is no list")
        asserts.extend(checks)
    return variables, asserts


def _variable(value: Any) -> str:
    if isinstance(value, str):
        if value.startswith(("file://", "package:")):
            raise Damaged("a variable in a file of its own")
        if _TEMPLATE.search(value):
            raise Damaged("a variable that is a template itself")
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise Damaged("a variable that is a list or an object")


def _cases(prompts: list[Any], variables: Mapping[str, str], asserts: list[Any], where: str) -> Iterator[Found]:
    """The test on each prompt. What its asserts cannot be is told once."""
    own: Record = {}
    checks: list[Record] = []
    for place, told in enumerate(asserts):
        try:
            _add_check(told, variables, own, checks)
        except Damaged as damage:
            yield Unread(f"{where}.assert[{place}]", str(damage))
    if checks:
        own["checks"] = checks
    for prompt in prompts:
        try:
            asked = asked_text(_filled(prompt, variables))
        except Damaged as damage:
            yield Unread(where, str(damage))
            continue
        if asked is not None:
            yield Prompted(asked, where, own=own or None)


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    """`value` with {{ name }} replaced in every text of it. Raises `Damaged` for any other template."""
    try:
        return _filled_in(value, variables)
    except RecursionError as error:
        raise Damaged("nested too deep") from error


def _filled_in(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_filled_in(each, variables) for each in value]
    if isinstance(value, dict):
        return {key: _filled_in(each, variables) for key, each in value.items()}
    if not isinstance(value, str):
        return value
    missing = [name for name in _NAME.findall(value) if name not in variables]
    if missing:
        raise Damaged(f"a template with {{{{ {missing[0][:60]} }}}}, which the test does not set")
    if _TEMPLATE.search(_NAME.sub("", value)):
        raise Damaged("a template beyond {{ name }}")
    return _NAME.sub(lambda match: variables[match.group(1)], value)


def _add_check(told: Any, variables: Mapping[str, str], own: Record, checks: list[Record]) -> None:
    """One assert as the case's expected answer or as a check of it. Raises `Damaged` where there is none for it."""
    if not isinstance(told, dict) or not isinstance(told.get("type"), str):
        raise Damaged("an assert without a type: left out of the case")
    kind = told["type"]
    more = sorted(str(key) for key in told.keys() - _ASSERT)
    if more or told.get("weight", 1) != 1:
        raise Damaged(f"an assert with `{more[0][:60] if more else 'weight'}`: left out of the case")
    value = _filled(told.get("value"), variables)
    if kind == "is-json" and isinstance(value, (dict, type(None))):
        checks.append(_named("json_schema", checks, "JsonSchema", {"jsonSchema": {"schema": _schema(value or {})}}))
    elif kind == "equals" and "expect" not in own and isinstance(value, (dict, list)):
        own["expect"] = {"json": value}
    elif kind == "equals" and "expect" not in own and _is_text(value):
        own["expect"] = {"exact": value}
    elif kind == "contains" and _is_text(value):
        if "expect" not in own:
            own["expect"] = {"contains": value}
        else:
            checks.append(_named("contains", checks, "Regex", {"regex": {"mustMatch": re.escape(value)}}))
    elif kind == "regex" and _is_text(value):
        checks.append(_named("regex", checks, "Regex", {"regex": {"mustMatch": _pattern(value)}}))
    else:
        raise Damaged(f"an assert `{kind[:60]}` with this value has no check here: left out of the case")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _named(name: str, checks: list[Record], kind: str, parameters: Record) -> Record:
    return {"type": kind, "name": f"{name}-{len(checks) + 1}", **parameters}


def _pattern(told: str) -> str:
    """A pattern that RE2 takes as it is."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(told, options)
    except re2.error as error:
        raise Damaged("a regex with lookaround or backreferences, which RE2 has not: left out of the case") from error
    return told


def _schema(told: Record) -> Record:
    """A JSON schema that can be used without asking anybody."""
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for(told, offline=True)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, RecursionError) as error:
        raise Damaged("a JSON schema that cannot be used: left out of the case") from error
    return told
