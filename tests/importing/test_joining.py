"""An audit joins the answers of one file with the requests of another, whatever their order on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from prefillgate.cli.audit import command

ASK = {"messages": [{"role": "user", "content": "hi"}]}
USAGE = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 0}}
REPLY = {"choices": [{"message": {"content": "yo"}, "finish_reason": "stop"}], "usage": USAGE}


def lines(path: Path, *documents: object) -> str:
    path.write_text("\n".join(map(json.dumps, documents)))
    return str(path)


def asked(name: str) -> dict[str, object]:
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": ASK}


def test_answers_given_before_their_requests_are_of_one_prompt(tmp_path: Path) -> None:
    answers = [{"custom_id": name, "response": {"status_code": 200, "body": REPLY}} for name in "ab"]
    out = lines(tmp_path / "out.jsonl", *answers)
    into = lines(tmp_path / "in.jsonl", *(asked(name) for name in "abc"))
    found = CliRunner().invoke(command, [out, into, "--json"], catch_exceptions=False)
    document = json.loads(found.stdout)
    assert document["prompts"] == 1, "a and b ask the same"
    assert (document["log"]["requests"], document["log"]["unanswered"]) == (2, 1)
    assert "1 request without an answer, which count for nothing" in found.stderr
    alone = json.loads(CliRunner().invoke(command, [out, "--json"], catch_exceptions=False).stdout)
    assert alone["prompts"] == 2, "without the input each name is a prompt of its own"
