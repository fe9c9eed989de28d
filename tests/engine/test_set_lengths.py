"""How long the packaged prompts and the review-bot's are, counted by the real server's tokenizer."""

from __future__ import annotations

from pathlib import Path

import httpx

from prefillgate.api.replay_set import Case
from prefillgate.hosts.llama_server import LlamaServer
from prefillgate.replay.replay_set import load_replay_set

REVIEW_BOT = Path(__file__).resolve().parents[2] / "policies" / "review-bot.jsonl"


def tokens(server: LlamaServer, case: Case) -> int:
    body = {"content": case.prompt_text, "add_special": True}
    reply = httpx.post(server.url + "/tokenize", json=body, timeout=60, trust_env=False)
    return len(reply.json()["tokens"])


def lengths(server: LlamaServer, name: str | Path) -> list[int]:
    return sorted(tokens(server, case) for case in load_replay_set(name).cases)


def test_the_demo_set_has_sixteen_prompts_of_300_to_350_tokens(llama: LlamaServer) -> None:
    found = lengths(llama, "demo")
    assert len(found) == 16
    assert 300 <= found[0] <= found[-1] <= 350


def test_the_review_bot_set_has_prompts_of_over_10_000_tokens(llama: LlamaServer) -> None:
    found = lengths(llama, REVIEW_BOT)
    assert len(found) == 12
    assert [length > 10_000 for length in found] == [False] * 10 + [True] * 2
