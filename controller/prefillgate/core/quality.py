"""What an output is judged by: pure text checks on one generation.

Every function takes plain text and answers with a `Finding` or None. None means nothing was found. All run in
time linear in the text, because the text is hostile: a broken model may write a megabyte of anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CUT_REASONS = ("length", "max_tokens")

TEMPLATE_TOKENS = (
    "<|im_start|>",
    "<|im_end|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "</s>",
    "<bos>",
    "<eos>",
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|end|>",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|return|>",
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "<</SYS>>",
    "[gMASK]",
)

#: Scripts written without spaces, where each character counts as a word: first and last character.
_UNSPACED = (
    ("\u0e01", "\u0eff"),  # Thai, Lao
    ("\u1000", "\u109f"),  # Burmese
    ("\u1780", "\u180f"),  # Khmer
    ("\u3041", "\u3104"),  # kana
    ("\u3400", "\u9fff"),  # ideographs
    ("\uf900", "\ufaff"),  # compatibility ideographs
    ("\U00020000", "\U0010ffff"),  # ideographs of the supplementary planes
)


@dataclass(frozen=True, slots=True)
class Output:
    """What one generation said, its parts apart. `tool_calls` is a JSON array as text, or empty."""

    content: str = ""
    reasoning: str = ""
    tool_calls: str = ""
    finish_reason: str | None = None

    @property
    def has_content(self) -> bool:
        """Text other than white space."""
        return bool(self.content.strip())

    @property
    def has_tool_calls(self) -> bool:
        """At least one tool call: an empty array or `null` is none."""
        return self.tool_calls.strip() not in ("", "[]", "null")


@dataclass(frozen=True, slots=True)
class Finding:
    """Why an output is bad, as one sentence without a full stop."""

    detail: str


def count_words(text: str) -> int:
    """Words of `text`: runs between white space that hold a letter or a digit.

    In a script written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) every character is a word,
    so that a minimum of words means about the same in every language.
    """
    words = 0
    for run in text.split():
        if run.isascii():
            words += any(map(str.isalnum, run))
        else:
            words += _words_of_run(run)
    return words


def _words_of_run(run: str) -> int:
    words = 0
    inside = False  # a spaced word has begun in this run
    for character in run:
        if _is_unspaced(character):
            words += 1
        elif character.isalnum() and not inside:
            words += 1
            inside = True
    return words


def _is_unspaced(character: str) -> bool:
    return any(first <= character <= last for first, last in _UNSPACED) and character.isalnum()


def too_few_words(output: Output, minimum: int) -> Finding | None:
    """The content has fewer than `minimum` words."""
    words = count_words(output.content)
    return None if words >= minimum else Finding(f"{words} words, at least {minimum} wanted")


def nothing_said(output: Output) -> Finding | None:
    """Neither content nor a tool call. Reasoning alone is nothing said."""
    if output.has_content or output.has_tool_calls:
        return None
    return Finding("reasoning only, no content and no tool call" if output.reasoning.strip() else "nothing at all")


def reasoning_only(output: Output) -> Finding | None:
    """Reasoning, but neither content nor a tool call."""
    if output.has_content or output.has_tool_calls or not output.reasoning.strip():
        return None
    return Finding(f"{len(output.reasoning)} characters of reasoning, no content and no tool call")


def leaked_template_token(output: Output, tokens: Sequence[str] = TEMPLATE_TOKENS) -> Finding | None:
    """A control token of a chat template stands in the content or in the reasoning."""
    for part in (output.content, output.reasoning):
        for token in tokens:
            position = part.find(token)
            if position >= 0:
                return Finding(f"{token} at character {position}")
    return None


def finish_reason_outside(reason: str, allowed: Sequence[str]) -> Finding | None:
    """The generation ended for a reason that is not among `allowed`."""
    return None if reason in allowed else Finding(f"finish reason {reason}, allowed: {', '.join(allowed)}")


def cut_short(reason: str) -> Finding | None:
    """The generation ran into its token limit."""
    return Finding(f"finish reason {reason}") if reason in CUT_REASONS else None


def foreign_text(output: Output, canaries: Iterable[str], own_prompt: str) -> Finding | None:
    """A canary string of another case stands in this output and nowhere in this case's own prompt."""
    for canary in canaries:
        for part in (output.content, output.reasoning, output.tool_calls):
            if canary in part and canary not in own_prompt:
                return Finding(f"the canary {canary} of another case")
    return None


def differs_from(output: Output, baseline: Output) -> Finding | None:
    """Content or tool calls are not those of the baseline, character for character."""
    if output.content != baseline.content:
        same = _common_prefix(output.content, baseline.content)
        return Finding(f"content differs from character {same} on")
    return None if output.tool_calls == baseline.tool_calls else Finding("tool calls differ")


def _common_prefix(first: str, second: str) -> int:
    for position, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return position
    return min(len(first), len(second))
