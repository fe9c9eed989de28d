"""The types of checks: how each is named, what marks its failure, in one light table that `--help` can show."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckType(StrEnum):
    """The types of checks, as a policy writes them. In outcomes and flags a check goes by its snake_case name."""

    NOT_EMPTY = "NotEmpty"
    REASONING_ONLY = "ReasoningOnly"
    MIN_WORDS = "MinWords"
    BARE_VERDICT = "BareVerdict"
    REGEX = "Regex"
    JSON_SCHEMA = "JsonSchema"
    CEL = "Cel"
    FINISH_REASON = "FinishReason"
    CUT = "Cut"
    LOOP = "Loop"
    TEMPLATE_TOKENS = "TemplateTokens"
    FOREIGN_TEXT = "ForeignText"
    EXPECT = "Expect"
    EQUAL_TO_BASELINE = "EqualToBaseline"
    PLUGIN = "Plugin"
    EXEC = "Exec"
    JUDGE = "Judge"

    @property
    def default_name(self) -> str:
        """The name its outcomes go by unless another is given: bare_verdict."""
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in self.value).lstrip("_")

    @property
    def marker(self) -> str:
        """The word after `prefillgate: ` that `prefillgate check` prints when it fails. It never changes."""
        return ABOUT[self].marker


@dataclass(frozen=True, slots=True)
class About:
    """The marker of a failure, the short form (empty: there is none) and what is bad, in a few words."""

    marker: str
    short_form: str
    bad: str


ABOUT: dict[CheckType, About] = {
    CheckType.NOT_EMPTY: About("empty", "not_empty", "no text and no tool call (reasoning alone is nothing)"),
    CheckType.REASONING_ONLY: About("reasoning-only", "reasoning_only", "reasoning, but no text and no tool call"),
    CheckType.MIN_WORDS: About("too-short", "min_words=WORDS", "fewer words than that"),
    CheckType.BARE_VERDICT: About(
        "no-rationale", "bare_verdict[=WORDS]", "a VERDICT: line with fewer words of rationale (default 4)"
    ),
    CheckType.REGEX: About(
        "pattern", "regex=PATTERN", "the RE2 pattern does not match (not_regex=PATTERN: it does match)"
    ),
    CheckType.JSON_SCHEMA: About(
        "schema", "json_schema=JSON", "not JSON, or not of that schema (no remote references)"
    ),
    CheckType.CEL: About(
        "expression",
        "cel=EXPRESSION",
        "the CEL expression over content, reasoning, tool_calls, finish_reason, words, case_id is false",
    ),
    CheckType.FINISH_REASON: About(
        "finish-reason", "finish_reason[=REASON,REASON]", "another finish reason (default stop, tool_calls)"
    ),
    CheckType.CUT: About("cut", "cut", "ran into the token limit (finish reason length)"),
    CheckType.LOOP: About("loop", "loop[=REPEATS]", "the same text again and again in a row (default 4 times)"),
    CheckType.TEMPLATE_TOKENS: About(
        "template-token", "template_tokens", "a control token of a chat template, such as <|im_end|> or </s>"
    ),
    CheckType.FOREIGN_TEXT: About("foreign-text", "", "the canary string of another case"),
    CheckType.EXPECT: About("unexpected", "", "not the expected answer (exact, contains, or equal as JSON)"),
    CheckType.EQUAL_TO_BASELINE: About("differs", "equal_to_baseline", "not the baseline's text; reported only"),
    CheckType.PLUGIN: About("plugin", "plugin=ENTRY_POINT", "what an installed plug-in finds"),
    CheckType.EXEC: About(
        "program", "exec=PROGRAM", "the program exits 1 (0: good); PROGRAM may be a JSON list of arguments"
    ),
    CheckType.JUDGE: About("judge", "", "a model that judges by a rubric says so"),
}

#: Checks that ask others: a program on this machine, another server. No replay set may declare them.
ASKING = frozenset({CheckType.EXEC, CheckType.JUDGE})

#: Short forms by the name before the equals sign.
SHORT_FORMS = {
    **{kind.default_name: about.short_form for kind, about in ABOUT.items() if about.short_form},
    "not_regex": "not_regex=PATTERN",
}
