"""Writes review-bot.jsonl: twelve pull requests as a review bot sends them.

    python policies/review_bot_set.py

Ten are texts under review_bot/ (title, description, a line of ===, the diff); the two long ones are written out by
review_bot_large.py and review_bot_client.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from review_bot_client import warehouse_client  # noqa: E402
from review_bot_large import split_settings  # noqa: E402

SYSTEM = """You review pull requests. You see the title, the description and the whole diff.

Write for the author, in English, at most 250 words. Name each problem with its file and what goes wrong for whom.
Leave out praise and what a formatter would find. Say what you looked at when you find nothing.

End with one line, and nothing after it:
VERDICT: LGTM
or
VERDICT: CHANGES"""

SPLIT = """Every setting lived as JSON in one table, and a wrong type was found when a parcel was already late. Each
kind now has its own table, a Go record with bounds, and a migration that carries the rows over. The old table stays
until the next release; nothing reads it any more."""

CLIENT = """The three services that talk to the warehouse each had their own fetch calls, and each treated errors in its
own way. This is one client: a schema for what is sent and for what comes back, an error class for every refusal the
interface documents, and a test for each operation. Nothing uses it yet; the services follow one by one."""

LONG = {
    "11-split-settings": ("Split the settings table into one table for each kind", SPLIT, split_settings),
    "12-warehouse-client": ("Add a typed client for the warehouse interface", CLIENT, warehouse_client),
}


def case(name: str, title: str, description: str, diff: str) -> dict[str, Any]:
    canary = f"PR-{name.split('-')[0]}-{name.encode().hex()[6:18]}"
    text = f"Pull request {canary}: {title}\n\n{description.strip()}\n\n```diff\n{diff.strip()}\n```\n"
    body = {
        "model": "review-model",
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": 700,
    }
    return {
        "custom_id": name,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": body,
        "prefillgate": {"canary": canary},
    }


def cases() -> list[dict[str, Any]]:
    found = []
    for file in sorted((HERE / "review_bot").glob("[0-9]*.txt")):
        head, _, diff = file.read_text(encoding="utf-8").partition("\n===\n")
        title, _, description = head.partition("\n")
        found.append(case(file.stem, title, description, diff))
    found += [case(name, title, text, diff()) for name, (title, text, diff) in LONG.items()]
    return found


def text() -> bytes:
    """The bytes of the file."""
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in cases()).encode()


if __name__ == "__main__":
    (HERE / "review-bot.jsonl").write_bytes(text())
