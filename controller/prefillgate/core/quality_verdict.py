"""The bare verdict: a verdict line with no rationale, the failure the gate was built after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefillgate.core.quality import Finding, Output, count_words

_EMPHASIS = str.maketrans("", "", "*`~\u200b\u200c\u200d\u2060\ufeff")
_LEADING = "#>-+•_ \t\u00a0"
_COLONS = (":", "：")


@dataclass(frozen=True, slots=True)
class VerdictRule:
    """What a verdict line looks like and how many words of rationale it needs.

    `keyword` is matched without regard to case. An empty `verdicts` allows any word. With `required` an output
    without a verdict line is bad as well.
    """

    keyword: str = "VERDICT"
    verdicts: tuple[str, ...] = ()
    rationale_words: int = 4
    required: bool = False


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """A verdict and what else stood on its line."""

    verdict: str
    rest: str


def read_verdict_line(line: str, keyword: str) -> VerdictLine | None:
    """The verdict of one line, or None. Surrounding spaces and Markdown emphasis, quotes and bullets are ignored."""
    plain = line.translate(_EMPHASIS).strip().lstrip(_LEADING)
    if plain[: len(keyword)].casefold() != keyword.casefold():
        return None
    after = plain[len(keyword) :].lstrip("_ \t\u00a0")
    if not after.startswith(_COLONS):
        return None
    words = after[1:].strip("_ \t\u00a0").split(maxsplit=1)
    if not words:
        return None
    return VerdictLine(words[0].strip("_.,;!"), words[1] if len(words) > 1 else "")


def bare_verdict(output: Output, rule: VerdictRule) -> Finding | None:
    """A verdict line whose rationale has fewer than `rule.rationale_words` words.

    Rationale is every word of the content outside verdict lines and headings, and what follows the verdict on its
    own line. Reasoning does not count: nobody who reads the verdict sees it.
    """
    rationale = 0
    found: list[str] = []
    for line in output.content.splitlines():
        verdict = read_verdict_line(line, rule.keyword)
        if verdict is not None:
            found.append(verdict.verdict)
            rationale += count_words(verdict.rest)
        elif not line.lstrip().startswith("#"):
            rationale += count_words(line)
    if not found:
        return Finding(f"no {rule.keyword} line") if rule.required else None
    if rule.verdicts and not _known(found[-1], rule.verdicts):
        return Finding(f"verdict {found[-1]}, allowed: {', '.join(rule.verdicts)}")
    if rationale < rule.rationale_words:
        wanted = f"at least {rule.rationale_words} wanted"
        return Finding(f"verdict {found[-1]} with {rationale} words of rationale, {wanted}")
    return None


def _known(verdict: str, verdicts: Sequence[str]) -> bool:
    return verdict.casefold() in {name.casefold() for name in verdicts}
