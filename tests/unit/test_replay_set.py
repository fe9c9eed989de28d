"""Reading a replay set: what a line may hold, what it says when it does not, and what the digest covers."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from prefillgate.api.errors import Problem, ReplaySetError
from prefillgate.api.replay_set import Case, canonical_json
from prefillgate.core.quality_expect import Expect
from prefillgate.replay.replay_set import SetDigest, load_replay_set, packaged_sets, scan


def line(**changes: Any) -> dict[str, Any]:
    case: dict[str, Any] = {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/completions",
        "body": {"prompt": "1 + 1 =", "max_tokens": 8, "temperature": 0},
    }
    case.update(changes)
    return {name: value for name, value in case.items() if value is not ...}


def chat(**body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hello"}]
    return line(url="/v1/chat/completions", body={"messages": messages, **body})


def write(folder: Path, *lines: dict[str, Any] | bytes) -> Path:
    file = folder / "set.jsonl"
    raw = [item if isinstance(item, bytes) else json.dumps(item, ensure_ascii=False).encode() for item in lines]
    file.write_bytes(b"\n".join(raw))
    return file


def problems(file: Path, **options: Any) -> list[str]:
    with pytest.raises(ReplaySetError) as caught:
        load_replay_set(file, **options)
    return [str(problem).replace(f"{file.parent}/", "") for problem in caught.value.problems]


def test_a_case_is_read_with_what_the_gate_needs_to_know(tmp_path: Path) -> None:
    own = {"expect": {"exact": "2"}, "canary": "canary-0001", "checks": ["min_words=1"]}
    found = load_replay_set(write(tmp_path, line(prefillgate=own)))
    assert found.name == "set"
    case = found.cases[0]
    assert (case.case_id, case.path, case.line) == ("a", "/v1/completions", 1)
    assert case.body == {"prompt": "1 + 1 =", "max_tokens": 8, "temperature": 0}
    assert (case.expect, case.canary, case.max_tokens, case.greedy) == (Expect("exact", "2"), "canary-0001", 8, True)
    assert case.characters == 7
    assert [spec.name for spec in case.checks] == ["min_words"]
    assert case.sha256 == hashlib.sha256(b'{"max_tokens":8,"prompt":"1 + 1 =","temperature":0}').hexdigest()
    assert found.case("a") is case
    with pytest.raises(KeyError):
        found.case("b")


def test_the_digest_of_a_set_is_over_its_canonical_lines(tmp_path: Path) -> None:
    text = canonical_json(line())
    expected = hashlib.sha256(hashlib.sha256(text).hexdigest().encode() + b"\n").hexdigest()
    assert load_replay_set(write(tmp_path, line())).sha256 == expected
    spaced = json.dumps(dict(reversed(line().items())), indent=None, separators=(" , ", " : ")).encode()
    assert load_replay_set(write(tmp_path, spaced)).sha256 == expected
    assert load_replay_set(write(tmp_path, line(prefillgate={"expect": {"exact": "2"}}))).sha256 != expected
    assert load_replay_set(write(tmp_path, line(), line(custom_id="b"))).sha256 != expected


def test_canonical_json_is_sorted_unspaced_utf8() -> None:
    assert canonical_json({"b": 1, "a": ["é", 1.5, None, True]}) == '{"a":["é",1.5,null,true],"b":1}'.encode()


@pytest.mark.parametrize(
    ("body", "max_tokens", "greedy"),
    [
        ({}, None, False),
        ({"temperature": 0}, None, True),
        ({"temperature": 0.0, "max_tokens": 5}, 5, True),
        ({"temperature": 0.1, "max_completion_tokens": 7, "max_tokens": 5}, 7, False),
        ({"temperature": 1, "top_k": 1, "n_predict": 9}, 9, True),
        ({"top_k": 40, "max_tokens": None}, None, False),
    ],
)
def test_limits_and_greediness_are_read_from_the_body(
    tmp_path: Path, body: dict[str, Any], max_tokens: int | None, greedy: bool
) -> None:
    case = load_replay_set(write(tmp_path, chat(**body))).cases[0]
    assert (case.max_tokens, case.greedy) == (max_tokens, greedy)


def test_the_length_of_a_chat_counts_its_texts_and_tools_and_no_image(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "abc"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "de"}, {"type": "image_url", "image_url": {"url": "data:x"}}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}],
        },
        {"role": "assistant", "reasoning_content": "ghij", "content": "k"},
    ]
    tools = [{"type": "function", "function": {"name": "tool"}}]
    case = load_replay_set(write(tmp_path, chat(messages=messages, tools=tools))).cases[0]
    assert case.prompt_text == "abc\nde\nf\nk\nghij\ntool"
    assert case.characters == 3 + 2 + 1 + 1 + 4 + 4


def test_line_ends_marks_and_blank_lines_of_other_systems_are_taken(tmp_path: Path) -> None:
    raw = json.dumps(line()).encode()
    plain = load_replay_set(write(tmp_path, raw)).sha256
    for text in (raw + b"\r\n", b"\xef\xbb\xbf" + raw, b"\r\n\n  \n" + raw + b"\n\n"):
        file = tmp_path / "other.jsonl"
        file.write_bytes(text)
        assert load_replay_set(file).sha256 == plain


def test_line_separators_of_unicode_inside_a_string_do_not_end_a_line(tmp_path: Path) -> None:
    text = "one\u2028two\u2029three\u0085four\x0bfive"
    case = load_replay_set(write(tmp_path, line(body={"prompt": text}))).cases[0]
    assert case.body["prompt"] == text


ROUTES = "/v1/chat/completions, /v1/completions"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"custom_id": ...}, "custom_id: missing"),
        ({"custom_id": ""}, 'custom_id: "" (allowed: a string of 1 to 256 printable characters)'),
        ({"custom_id": 7}, "custom_id: 7 (allowed: a string of 1 to 256 printable characters)"),
        ({"custom_id": "a\nb"}, 'custom_id: "a\\nb" (allowed: a string of 1 to 256 printable characters)'),
        ({"method": "GET"}, 'method: "GET" (allowed: POST)'),
        ({"url": "/v1/embeddings"}, f'url: unknown route "/v1/embeddings" (allowed: {ROUTES})'),
        ({"url": ["x"]}, f'url: unknown route ["x"] (allowed: {ROUTES})'),
        ({"body": "x"}, 'body: "x" (allowed: a JSON object)'),
        (
            {"body": {"prompt": ["a", "b"]}},
            'body.prompt: ["a", "b"] (allowed: one non-empty string, or one list of token numbers)',
        ),
        ({"body": {}}, "body.prompt: null (allowed: one non-empty string, or one list of token numbers)"),
        ({"body": {"prompt": "x", "best_of": 3}}, "body.best_of: 3 hides several generations in one cell (allowed: 1)"),
        ({"body": {"prompt": "x", "temperature": "0"}}, 'body.temperature: "0" (allowed: a number of 0 or more)'),
        ({"body": {"prompt": "x", "temperature": -1}}, "body.temperature: -1 (allowed: a number of 0 or more)"),
        ({"body": {"prompt": "x", "max_tokens": 0}}, "body.max_tokens: 0 (allowed: a whole number of 1 or more)"),
        ({"body": {"prompt": "x", "max_tokens": True}}, "body.max_tokens: true (allowed: a whole number of 1 or more)"),
        ({"extra": 1}, "extra: unknown field (allowed: custom_id, method, url, body, prefillgate)"),
        ({"prefillgate": []}, "prefillgate: [] (allowed: an object with checks, expect, canary)"),
        ({"prefillgate": {"x": 1}}, "prefillgate.x: unknown field (allowed: checks, expect, canary)"),
        (
            {"prefillgate": {"expect": "2"}},
            'prefillgate.expect: "2" (allowed: one of {"exact": ...}, {"contains": ...}, {"json": ...})',
        ),
        (
            {"prefillgate": {"expect": {"exact": " "}}},
            'prefillgate.expect.exact: " " (allowed: a string that is not blank)',
        ),
        (
            {"prefillgate": {"canary": "short"}},
            'prefillgate.canary: "short" (allowed: a string of 8 to 200 printable characters, no spaces around)',
        ),
        ({"prefillgate": {"checks": ["min_words"]}}, 'prefillgate.checks[0]: "min_words" (allowed: min_words=WORDS)'),
        (
            {"prefillgate": {"checks": [{"type": "Loop", "loop": {"repeats": 1}}]}},
            "prefillgate.checks[0].loop.repeats: 1 (allowed: a whole number of 2 to 1000)",
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_allowed(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert problems(write(tmp_path, line(custom_id="good"), line(**changes))) == [f"set.jsonl:2: {message}"]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "body.messages: [] (allowed: a non-empty list of messages)"),
        (None, "body.messages: null (allowed: a non-empty list of messages)"),
        ([{"role": "user"}, "x"], 'body.messages[1]: "x" (allowed: an object with a role)'),
        ([{"content": "x"}], 'body.messages[0]: {"content": "x"} (allowed: an object with a role)'),
    ],
)
def test_a_chat_needs_messages_with_roles(tmp_path: Path, messages: Any, message: str) -> None:
    assert problems(write(tmp_path, chat(messages=messages))) == [f"set.jsonl:1: {message}"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "not JSON: Expecting property name enclosed in double quotes at character 2"),
        (b"[1]", "not a JSON object: [1]"),
        (b'{"custom_id":"a","custom_id":"b"}', 'not JSON: the key "custom_id" stands twice in one object'),
        (b'{"temperature":NaN}', "not JSON: NaN is not a JSON number"),
        (b'{"temperature":-Infinity}', "not JSON: -Infinity is not a JSON number"),
        (b'{"temperature":1e400}', "not JSON: the number 1e400 is out of range"),
    ],
)
def test_what_is_not_strict_json_is_refused(tmp_path: Path, raw: bytes, message: str) -> None:
    assert problems(write(tmp_path, raw)) == [f"set.jsonl:1: {message} (allowed: one JSON object a line)"]


def test_bytes_that_are_no_text_are_refused_by_their_place(tmp_path: Path) -> None:
    assert problems(write(tmp_path, b'{"a":"\xff"}')) == [
        "set.jsonl:1: invalid UTF-8 at byte 7 of the line (0xff) (allowed: UTF-8 text)"
    ]
    assert problems(write(tmp_path, b'{"a":\0}')) == [
        "set.jsonl:1: a NUL byte at byte 6 of the line (allowed: UTF-8 text)"
    ]
    assert problems(write(tmp_path, b"\xff\xfe{\0")) == ["set.jsonl:1: UTF-16 or UTF-32 text (allowed: UTF-8 text)"]
    raw = json.dumps(line(body={"prompt": "x"})).replace('"x"', '"\\ud800"').encode()
    assert problems(write(tmp_path, raw)) == ["set.jsonl:1: a lone surrogate (\\ud800 to \\udfff) is not a character"]


def test_an_id_or_a_canary_used_twice_names_the_first_line(tmp_path: Path) -> None:
    own = {"canary": "canary-0001"}
    found = problems(write(tmp_path, line(prefillgate=own), line(), line(custom_id="b", prefillgate=own)))
    assert found == [
        'set.jsonl:2: custom_id: "a" was already used on line 1 (allowed: an id of its own)',
        'set.jsonl:3: prefillgate.canary: "canary-0001" was already used on line 1 (allowed: its own)',
    ]


@pytest.mark.parametrize("raw", [b"", b"\n\n", b"\xef\xbb\xbf", b" \r\n"])
def test_a_file_without_cases_is_no_set(tmp_path: Path, raw: bytes) -> None:
    assert problems(write(tmp_path, raw)) == ["set.jsonl: holds no case (allowed: one JSON object a line)"]


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    assert problems(tmp_path / "none.jsonl") == [
        "none.jsonl: cannot be read: No such file or directory (allowed: a JSONL file, or a set that comes with the "
        "package: demo, four, short)"
    ]


def test_a_line_is_taken_to_its_limit_and_not_beyond(tmp_path: Path) -> None:
    first, second = json.dumps(line()).encode(), json.dumps(line(custom_id="b")).encode()
    file = write(tmp_path, first, second)
    assert len(load_replay_set(file, max_line_bytes=len(first)).cases) == 2
    limit = len(first) - 1
    message = f"the line is longer than {limit} bytes (allowed: up to {limit} bytes)"
    assert problems(file, max_line_bytes=limit) == [f"set.jsonl:1: {message}", f"set.jsonl:2: {message}"]
    file.write_bytes(first + b"\r\n" + second + b"\r\n")
    assert len(load_replay_set(file, max_line_bytes=len(first)).cases) == 2


def test_a_line_of_a_megabyte_is_taken(tmp_path: Path) -> None:
    text = "naïve \u2028 text " * 90_000
    assert load_replay_set(write(tmp_path, line(body={"prompt": text}))).cases[0].characters == len(text)


def test_a_file_is_scanned_in_flat_memory(tmp_path: Path) -> None:
    file = write(tmp_path, *(line(custom_id=f"c{n}", body={"prompt": f"{n} " * 200_000}) for n in range(40)))
    digest = SetDigest()
    tracemalloc.start()
    try:
        cases = 0
        for found in scan(file):
            assert isinstance(found, Case)
            digest.add(found)
            cases += 1
            del found
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert cases == 40
    assert peak < file.stat().st_size / 2


def test_only_twenty_problems_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ReplaySetError, match=r"and more problems after these$") as caught:
        load_replay_set(write(tmp_path, *[b"{"] * 30))
    assert len(caught.value.problems) == 20


def test_a_message_holds_nothing_that_a_terminal_would_obey(tmp_path: Path) -> None:
    (message,) = problems(write(tmp_path, line(custom_id="\x1b[31m\u202e\U000e0001")))
    assert message.startswith('set.jsonl:1: custom_id: "\\u001b[31m\\u202e\\udb40\\udc01"')
    assert message.isprintable()


def test_the_packaged_sets_are_found_by_name() -> None:
    assert set(packaged_sets()) == {"demo", "four", "short"}
    assert load_replay_set("demo").name == "demo"


def test_a_problem_without_place_or_field_is_its_message() -> None:
    assert str(Problem("", "", "what")) == "what"
