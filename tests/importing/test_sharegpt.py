"""ShareGPT conversations: one case a turn, refused by name where a turn is no text; never counted by an audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefillgate.cli.main import main
from prefillgate.importers.base import Prompted
from tests.support.imports import absent, as_document, as_lines, read_bytes, spoiled, unread, withstands


def turn(who: str, said: Any) -> dict[str, Any]:
    return {"from": who, "value": said}


TALK = {"id": "t1", "conversations": [turn("human", "a"), turn("gpt", "b"), turn("human", "c"), turn("gpt", "d")]}


def prompts(data: bytes) -> list[list[tuple[str, str]]]:
    found = [each for each in read_bytes(data) if isinstance(each, Prompted)]
    return [[(said["role"], said["content"]) for said in each.asked.body["messages"]] for each in found]


@pytest.mark.parametrize("data", [as_lines(TALK), as_document([TALK])])
def test_a_conversation_is_one_case_for_each_turn_of_the_assistant(data: bytes) -> None:
    one = [("user", "a")]
    assert prompts(data) == [one, [*one, ("assistant", "b"), ("user", "c")]]
    found = [each for each in read_bytes(data) if isinstance(each, Prompted)]
    assert [each.custom_id for each in found] == ["t1-turn-1", "t1-turn-2"]
    assert {each.asked.path for each in found} == {"/v1/chat/completions"}
    assert "counters, times and outputs of a server: it holds conversations" in absent(read_bytes(data))


def test_a_system_text_and_a_last_question_are_kept() -> None:
    talk = {"system": "s", "conversations": [turn("human", "a"), turn("gpt", "b"), turn("human", "c")]}
    assert prompts(as_lines(talk))[-1] == [("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c")]
    assert len(prompts(as_lines(talk))) == 2


def test_messages_of_a_fine_tuning_file_are_conversations_too() -> None:
    said = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert prompts(as_lines({"messages": said})) == [[("system", "s"), ("user", "a")]]


def test_what_is_no_text_ends_a_conversation_by_name_and_keeps_what_came_before() -> None:
    talk = {"conversations": [turn("human", "a"), turn("gpt", "b"), turn("function_call", "{}"), turn("gpt", "d")]}
    data = as_lines(TALK, talk, {"conversations": []}, {"conversations": [turn("gpt", "x"), turn("human", "y")]})
    assert unread(read_bytes(data)) == [
        ("log:2", "a turn that is no text of system, human or assistant; the turns before it are read"),
        ("log:3", "no list of turns"),
        ("log:4", "a first turn of the assistant: nobody asked anything"),
    ]
    assert prompts(data)[2:] == [[("user", "a")], [("assistant", "x"), ("user", "y")]]


def test_an_audit_of_conversations_says_that_there_is_nothing_to_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talks").write_bytes(as_lines(TALK))
    assert main(["audit", str(tmp_path / "talks")]) == 2
    told = capsys.readouterr().err
    assert "2 requests without an answer, which count for nothing; `prefillgate replayset import` makes cases" in told


def test_conversations_become_a_replay_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "talks").write_bytes(as_document([TALK, TALK]))
    assert main(["replayset", "import", str(tmp_path / "talks"), "-o", str(tmp_path / "out.jsonl")]) == 0
    assert "written: 2 cases" in capsys.readouterr().out
    names = [json.loads(line)["custom_id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert names == ["t1-turn-1", "t1-turn-2"]
    assert main(["replayset", "lint", str(tmp_path / "out.jsonl")]) == 0


def test_hostile_conversations_break_nothing() -> None:
    whole = as_document([TALK, TALK])
    withstands("sharegpt", [whole], lambda seed: [as_lines(spoiled(TALK, seed))], seeds=200)
