"""The review prompts of the story: twelve pull requests, two of them as long as the two it was about."""

from __future__ import annotations

import json

from prefillgate.api.replay_set import CHAT, canonical_json, read_line
from prefillgate.replay.replay_set import ReplaySet, SetDigest
from prefillgate.simulate.request import Route, parse
from prefillgate.simulate.tokens import tokenize

NAME = "story"
MARK = "Review this pull request"  # every prompt begins with it, and no probe does
#: The two long pull requests, longest first, and how many tokens the simulated server must count in each.
LONG = {"rebalance-ledger": 16_896, "split-settings": 11_136}
SHORT = (
    "retry-budget",
    "merge-windows",
    "accent-search",
    "worker-shutdown",
    "fixed-decimals",
    "backup-rotation",
    "lru-cache",
    "typo-in-readme",
    "tenant-isolation",
    "rate-limits",
)
SHORT_LINES = 12

_VERBS = ("load", "store", "merge", "split", "check", "close", "retry", "count", "parse")
_NOUNS = ("entry", "batch", "queue", "token", "cursor", "window", "owner", "limit", "stream", "ledger", "record")


def story_set() -> ReplaySet:
    """The twelve cases, the long ones first. Nothing in it is drawn at random."""
    ids = (*LONG, *SHORT)
    cases = tuple(read_line(_line(case_id), NAME, number) for number, case_id in enumerate(ids, start=1))
    digest = SetDigest()
    for case in cases:
        digest.add(case)
    return ReplaySet(NAME, digest.sha256, cases)


def _line(case_id: str) -> bytes:
    text = _long(case_id, LONG[case_id]) if case_id in LONG else _diff(case_id, SHORT_LINES)
    return canonical_json({"custom_id": case_id, "method": "POST", "url": CHAT, "body": _body(text)})


def _body(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 400}


def _diff(case_id: str, lines: int) -> str:
    """A pull request that adds so many lines to one file."""
    asked = "Give a rationale, then a last line VERDICT: LGTM or VERDICT: CHANGES."
    head = f"{MARK}, {case_id}. {asked}\n--- a/{case_id}.py\n+++ b/{case_id}.py\n@@ -0,0 +1,{lines} @@"
    return "\n".join((head, *(_added(case_id, number) for number in range(1, lines + 1))))


def _added(case_id: str, number: int) -> str:
    verb, noun = _VERBS[number % len(_VERBS)], _NOUNS[number % len(_NOUNS)]
    return f"+    {noun} = {verb}({case_id[:6]}, {number})  # {noun} {number}"


def _long(case_id: str, tokens: int) -> str:
    """A pull request that makes a prompt of exactly `tokens` tokens: whole lines, then single words."""
    fits = tokens // (_counted(_diff(case_id, 200)) - _counted(_diff(case_id, 199)))
    while _counted(_diff(case_id, fits)) > tokens - 10:
        fits -= 1
    text = f"{_diff(case_id, fits)}\n+    # read"
    return text + " and" * (tokens - _counted(text))


def _counted(text: str) -> int:
    """Tokens of the prompt as the simulated server counts them, its chat template included."""
    return len(tokenize(parse(Route.CHAT, json.dumps(_body(text)).encode(), 1).prompt))
