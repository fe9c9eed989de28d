"""One builder per type of check: from its declaration to the function that judges an output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from prefillgate.api import check_spec
from prefillgate.api.check_spec import CheckSpec
from prefillgate.api.check_type import CheckType
from prefillgate.core import quality
from prefillgate.core.quality import Finding
from prefillgate.core.quality_expect import NotStrictJson, parse_json, unexpected
from prefillgate.core.quality_loop import LoopRule, repetition_loop
from prefillgate.core.quality_verdict import VerdictRule, bare_verdict
from prefillgate.replay.check_parts import Asking as Asking
from prefillgate.replay.check_parts import Built, parameters_of
from prefillgate.replay.check_parts import CheckError as CheckError
from prefillgate.replay.check_parts import Judge as Judge
from prefillgate.replay.check_parts import Judged as Judged
from prefillgate.replay.check_parts import Told as Told
from prefillgate.replay.exec_check import exec_check
from prefillgate.replay.judge_check import judge_check

ENTRY_POINT_GROUP = "prefillgate.checks"
_REGEX_MEMORY_BYTES = 64 * 1024 * 1024


def _min_words(spec: CheckSpec) -> Built:
    words = parameters_of(spec, check_spec.MinWords).words
    return Built(lambda judged: quality.too_few_words(judged.output, words))


def _bare_verdict(spec: CheckSpec) -> Built:
    wanted = parameters_of(spec, check_spec.BareVerdict)
    rule = VerdictRule(wanted.keyword, tuple(wanted.verdicts), wanted.rationale_words, wanted.mode == "Require")
    return Built(lambda judged: bare_verdict(judged.output, rule))


def _loop(spec: CheckSpec) -> Built:
    wanted = parameters_of(spec, check_spec.Loop)
    rule = LoopRule(wanted.repeats, wanted.characters)
    return Built(lambda judged: repetition_loop(judged.output, rule))


def _template_tokens(spec: CheckSpec) -> Built:
    wanted = parameters_of(spec, check_spec.TemplateTokens)
    tokens = [t for t in (*quality.TEMPLATE_TOKENS, *wanted.additional) if t not in wanted.ignored]
    return Built(lambda judged: quality.leaked_template_token(judged.output, tokens))


def _finish_reason(spec: CheckSpec) -> Built:
    allowed = tuple(parameters_of(spec, check_spec.FinishReason).allowed)
    return Built(lambda judged: quality.finish_reason_outside(_reason(judged), allowed))


def _cut(spec: CheckSpec) -> Built:
    return Built(lambda judged: quality.cut_short(_reason(judged)))


def _reason(judged: Judged) -> str:
    if judged.output.finish_reason is None:
        raise CheckError("no finish reason was reported")
    return judged.output.finish_reason


def _not_empty(spec: CheckSpec) -> Built:
    return Built(lambda judged: quality.nothing_said(judged.output))


def _reasoning_only(spec: CheckSpec) -> Built:
    return Built(lambda judged: quality.reasoning_only(judged.output))


def _foreign_text(spec: CheckSpec) -> Built:
    return Built(lambda judged: quality.foreign_text(judged.output, judged.foreign, judged.case.prompt_text))


def _expect(spec: CheckSpec) -> Built:
    def judge(judged: Judged) -> Finding | None:
        if judged.case.expect is None:
            raise CheckError("the case expects nothing")
        return unexpected(judged.output, judged.case.expect)

    return Built(judge)


def _equal_to_baseline(spec: CheckSpec) -> Built:
    def judge(judged: Judged) -> Finding | None:
        if judged.baseline is None:
            raise CheckError("no output of the baseline is known for this case")
        return quality.differs_from(judged.output, judged.baseline)

    return Built(judge)


def _regex(spec: CheckSpec) -> Built:
    wanted = parameters_of(spec, check_spec.Regex)
    must = _pattern(wanted.must_match) if wanted.must_match is not None else None
    must_not = _pattern(wanted.must_not_match) if wanted.must_not_match is not None else None

    def judge(judged: Judged) -> Finding | None:
        content = judged.output.content
        if must is not None and not must.search(content):
            return Finding(f"no match of {wanted.must_match}")
        found = must_not.search(content) if must_not is not None else None
        return Finding(f"{wanted.must_not_match} matches at character {found.start()}") if found else None

    return Built(judge)


def _pattern(text: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _REGEX_MEMORY_BYTES
    try:
        return re2.compile(text, options)
    except re2.error as error:
        why = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        raise CheckError(f"the pattern {text} cannot be used: {why}", "RE2 syntax, without look-around") from error


def _json_schema(spec: CheckSpec) -> Built:
    import jsonschema_rs

    schema = parameters_of(spec, check_spec.JsonSchema).json_schema
    try:
        validator = jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise CheckError(f"the schema cannot be used: {why}", "JSON Schema without remote references") from error

    def judge(judged: Judged) -> Finding | None:
        try:
            value = parse_json(judged.output.content.strip())
        except NotStrictJson as error:
            return Finding(f"not JSON: {error}")
        wrong = next(iter(validator.iter_errors(value)), None)
        return Finding(str(wrong.message)) if wrong is not None else None

    return Built(judge)


def _cel(spec: CheckSpec) -> Built:
    from cel_expr_python import cel

    expression = parameters_of(spec, check_spec.Cel).expression
    text, number = cel.Type.STRING, cel.Type.INT
    names = {
        "content": text,
        "reasoning": text,
        "tool_calls": cel.Type.List(cel.Type.DYN),
        "finish_reason": text,
        "words": number,
        "case_id": text,
    }
    try:
        program = cel.NewEnv(variables=names).compile(expression)
    except RuntimeError as error:
        why = str(error).splitlines()[0]
        raise CheckError(f"the expression {expression} cannot be used: {why}", f"names {', '.join(names)}") from error
    if program.return_type() != cel.Type.BOOL:
        raise CheckError(f"the expression {expression} is a {program.return_type().name()}", "a bool, true for good")
    return Built(lambda judged: _evaluate(program, judged, expression))


def _evaluate(program: Any, judged: Judged, expression: str) -> Finding | None:
    output = judged.output
    values = {
        "content": output.content,
        "reasoning": output.reasoning,
        "tool_calls": parse_json(output.tool_calls) if output.has_tool_calls else [],
        "finish_reason": output.finish_reason or "",
        "words": quality.count_words(output.content),
        "case_id": judged.case.case_id,
    }
    try:
        value = program.eval(data=values).plain_value()
    except RuntimeError as error:
        raise CheckError(f"{expression}: {error}") from error
    if not isinstance(value, bool):
        raise CheckError(f"{expression}: {value}")
    return None if value else Finding(f"{expression} is false")


def _plugin(spec: CheckSpec) -> Built:
    """The entry point is called with the parameters (a dict of texts) and gives a `Judge` with a text `version`."""
    wanted = parameters_of(spec, check_spec.Plugin)
    found = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if wanted.entry_point not in found:
        names = ", ".join(sorted(found)) or "none is installed"
        raise CheckError(f"no plug-in is named {wanted.entry_point}", names)
    try:
        judge = found[wanted.entry_point].load()(dict(wanted.parameters))
    except Exception as error:
        raise CheckError(f"the plug-in {wanted.entry_point} cannot be made: {type(error).__name__}: {error}") from error
    if not callable(judge) or not isinstance(getattr(judge, "version", None), str):
        raise CheckError(f"the plug-in {wanted.entry_point} gives no callable with a version")
    return Built(judge, judge.version)


BUILDERS: Mapping[CheckType, Callable[[CheckSpec], Built]] = {
    CheckType.MIN_WORDS: _min_words,
    CheckType.BARE_VERDICT: _bare_verdict,
    CheckType.REGEX: _regex,
    CheckType.JSON_SCHEMA: _json_schema,
    CheckType.CEL: _cel,
    CheckType.FINISH_REASON: _finish_reason,
    CheckType.NOT_EMPTY: _not_empty,
    CheckType.REASONING_ONLY: _reasoning_only,
    CheckType.LOOP: _loop,
    CheckType.FOREIGN_TEXT: _foreign_text,
    CheckType.EXPECT: _expect,
    CheckType.TEMPLATE_TOKENS: _template_tokens,
    CheckType.CUT: _cut,
    CheckType.EQUAL_TO_BASELINE: _equal_to_baseline,
    CheckType.PLUGIN: _plugin,
    CheckType.EXEC: exec_check,
    CheckType.JUDGE: judge_check,
}
