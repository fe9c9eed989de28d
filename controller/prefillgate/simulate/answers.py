"""What the simulated model says: a function of seed, prompt, request seed, temperature and hidden state.

`--answers FILE` gives the texts of a case: JSON lines with `match` (a text the prompt contains), `text`,
and optionally `bad_text`, `reasoning` and `tool_calls` (list of {"name", "arguments"}). The first line that
matches answers; without one, a plausible review ending in a verdict.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prefillgate.simulate.dice import Dice
from prefillgate.simulate.faults import Hostile

BAD_TEXT = "VERDICT: LGTM"
FOREIGN_TEXT = "As you asked, Mrs. Abernathy, here is the summary of your lease: the rent is due on the third."
LEAK = "<|im_end|>\n<|im_start|>user\n"

_SUBJECTS = ("The change", "This patch", "The new code", "The commit", "The refactoring")
_DEEDS = (
    "moves the retry logic into one place",
    "closes the file on every path",
    "adds a bound to the queue",
    "replaces the nested loops by a lookup table",
    "validates the input before it is stored",
)
_REASONS = (
    "and the tests cover both the empty and the full case",
    "which removes the race described in the ticket",
    "so the caller no longer has to know about locking",
    "and keeps the public interface as it was",
    "which makes the error message name the field at fault",
)
_REMARKS = (
    "One name could be shorter, but that is a matter of taste.",
    "The comment above the loop explains the order well.",
    "I checked the callers and none of them relied on the old behaviour.",
    "A follow-up could drop the compatibility branch.",
    "Error handling is consistent with the neighbouring modules.",
)
_HOSTILE = {
    Hostile.NUL: "before\x00after",
    Hostile.LINE_SEPARATOR: "one\u2028two\u2029three\u0085four",
    Hostile.ESCAPE: "\x1b]0;owned\x07\x1b[31mred\x1b[0m\x1b[2J",
    Hostile.HTML: "</pre><script>alert(1)</script><img src=x onerror=alert(2)>",
    Hostile.CRLF: "first\r\ndata: [DONE]\r\n\r\nlast",
    Hostile.INVALID_UTF8: "half a letter: \udcc3( and a lone byte: \udcff",
}


class AnswersError(ValueError):
    """The answers file cannot be used. The message names file, line and what is wrong."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What one answer consists of. `tool_calls` are (name, arguments as JSON text)."""

    text: str
    reasoning: str = ""
    tool_calls: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """The planned answers to prompts that contain `match`."""

    match: str
    good: Reply
    bad: Reply


@dataclass(frozen=True, slots=True)
class Asked:
    """What an answer may depend on."""

    prompt: str
    bad: bool
    seed: int | None
    temperature: float
    variant: str = ""  # anything else that makes the answer another one: a warm cache, a result's index


@dataclass(frozen=True, slots=True)
class Answers:
    """All planned answers of a server."""

    cases: tuple[Case, ...]
    dice: Dice
    bad_text: str = BAD_TEXT

    def reply(self, asked: Asked) -> Reply:
        """The answer. Equal arguments give equal answers; at temperature 0 the request's seed does not matter."""
        case = next((case for case in self.cases if case.match in asked.prompt), None)
        if case is not None:
            chosen = case.bad if asked.bad else case.good
            return replace(chosen, text=chosen.text + self._aside(asked)) if asked.variant else chosen
        return Reply(self.bad_text) if asked.bad else Reply(self._review(asked))

    def _aside(self, asked: Asked) -> str:
        return " " if self.dice.integer("aside", asked.prompt, asked.variant) % 2 else "\n"

    def _review(self, asked: Asked) -> str:
        key = (asked.prompt, asked.variant, asked.seed if asked.temperature > 0 else "greedy")
        pick = {
            part: choices[self.dice.integer("review", part, *key) % len(choices)]
            for part, choices in (("s", _SUBJECTS), ("d", _DEEDS), ("r", _REASONS), ("m", _REMARKS), ("n", _REMARKS))
        }
        tag = self.dice.integer("review", "tag", *key) % 10_000
        return (
            f"{pick['s']} {pick['d']} {pick['r']}. {pick['m']} "
            f"Looking at hunk {tag}, nothing else needs to move. {pick['n']}\nVERDICT: LGTM"
        )


def spoil(reply: Reply, hostile: tuple[Hostile, ...]) -> Reply:
    """The reply with hostile text in its middle."""
    if not hostile:
        return reply
    middle = len(reply.text) // 2
    inserted = " ".join(_HOSTILE[kind] for kind in hostile)
    return replace(reply, text=f"{reply.text[:middle]} {inserted} {reply.text[middle:]}")


def loop(reply: Reply) -> Reply:
    """The reply's first sentence again and again."""
    sentence = reply.text.split(". ")[0][:80] + ". "
    return replace(reply, text=sentence * 24)


def load_answers(path: Path | None, dice: Dice, bad_text: str = BAD_TEXT) -> Answers:
    """Read an answers file; None gives the default answers. Raises AnswersError, OSError."""
    if path is None:
        return Answers((), dice, bad_text)
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if line.strip():
            cases.append(_case(line, f"{path}, line {number}", bad_text))
    return Answers(tuple(cases), dice, bad_text)


def _case(line: str, where: str, bad_text: str) -> Case:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise AnswersError(f"{where}: not JSON ({error})") from None
    if not isinstance(data, dict):
        raise AnswersError(f"{where}: expected an object with `match` and `text`")
    unknown = set(data) - {"match", "text", "bad_text", "reasoning", "tool_calls"}
    if unknown:
        raise AnswersError(
            f"{where}: unknown field {min(unknown)!r}; known are match, text, bad_text, reasoning, tool_calls"
        )
    for field in ("match", "text"):
        if not isinstance(data.get(field), str):
            raise AnswersError(f"{where}: field {field!r} must be a string, not {data.get(field)!r}")
    for field in ("bad_text", "reasoning"):
        if not isinstance(data.get(field, ""), str):
            raise AnswersError(f"{where}: field {field!r} must be a string, not {data[field]!r}")
    good = Reply(data["text"], data.get("reasoning", ""), _tool_calls(data.get("tool_calls", []), where))
    return Case(data["match"], good, Reply(data.get("bad_text", bad_text)))


def _tool_calls(calls: Any, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(calls, list) or not all(
        isinstance(call, dict) and isinstance(call.get("name"), str) and "arguments" in call for call in calls
    ):
        raise AnswersError(f"{where}: field 'tool_calls' must be a list of objects with `name` and `arguments`")
    return tuple(
        (call["name"], call["arguments"] if isinstance(call["arguments"], str) else json.dumps(call["arguments"]))
        for call in calls
    )
