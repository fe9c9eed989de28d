"""The expected answer, and the strict reader of JSON behind it."""

from __future__ import annotations

from typing import Any

import pytest

from prefillgate.core.quality import Finding, Output
from prefillgate.core.quality_expect import Expect, NotStrictJson, equal_as_json, parse_json, unexpected


@pytest.mark.parametrize("content", ["LGTM", "  LGTM\n", "\tLGTM"])
def test_an_exact_answer_is_compared_after_trimming(content: str) -> None:
    assert unexpected(Output(content), Expect("exact", " LGTM ")) is None


def test_an_exact_answer_with_anything_more_is_not_the_expected_one() -> None:
    assert unexpected(Output("LGTM."), Expect("exact", "LGTM")) == Finding("not the expected answer")
    assert unexpected(Output("lgtm"), Expect("exact", "LGTM")) == Finding("not the expected answer")


def test_a_contained_answer_may_stand_anywhere_in_the_content() -> None:
    assert unexpected(Output("so 42 it is"), Expect("contains", "42")) is None
    missing = Finding("the expected text is missing")
    assert unexpected(Output("so 43 it is", reasoning="42"), Expect("contains", "42")) == missing


@pytest.mark.parametrize("content", ['{"a":1,"b":[true,null]}', ' {"b": [true, null], "a": 1.0}\n'])
def test_json_is_equal_whatever_its_spaces_and_order(content: str) -> None:
    assert unexpected(Output(content), Expect("json", {"a": 1, "b": [True, None]})) is None


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        ('{"a":2}', "JSON, but not the expected value"),
        ('{"a":1,"b":2}', "JSON, but not the expected value"),
        ("{", "not JSON: Expecting property name enclosed in double quotes at character 2"),
        ("", "not JSON: Expecting value at character 1"),
        ('```json\n{"a":1}\n```', "not JSON: Expecting value at character 1"),
        ('{"a":1} {"a":1}', "not JSON: Extra data at character 9"),
        ('{"a":1,"é":1,"é":1}', 'not JSON: the key "é" stands twice in one object'),
        ('{"a":NaN}', "not JSON: NaN is not a JSON number"),
        ('{"a":-Infinity}', "not JSON: -Infinity is not a JSON number"),
        ('{"a":1e999}', "not JSON: the number 1e999 is out of range"),
        ('{"a":-1e999}', "not JSON: the number -1e999 is out of range"),
        ("9" * 5000, "not JSON: a number is too long"),
        ("[" * 100_000, "not JSON: nested too deep"),
    ],
)
def test_what_is_not_the_expected_json_says_why(content: str, finding: str) -> None:
    assert unexpected(Output(content), Expect("json", {"a": 1})) == Finding(finding)


def test_the_shown_part_of_a_key_or_number_is_bounded() -> None:
    with pytest.raises(NotStrictJson, match=f'^the key "{"k" * 80}" stands twice in one object$'):
        parse_json('{"' + "k" * 81 + '":1,"' + "k" * 81 + '":2}')
    with pytest.raises(NotStrictJson, match=f"^the number {'9' * 40} is out of range$"):
        parse_json("9" * 400 + ".5")


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (False, True, False),
        (None, None, True),
        (None, False, False),
        ("1", 1, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        ([1, 2], [1, 3], False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        ([True], [1], False),
        ({"a": [1]}, {"a": [1.0]}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": True}, {"a": 1}, False),
        ({}, [], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
    ],
)
def test_json_equality_tells_true_from_one(first: Any, second: Any, equal: bool) -> None:
    assert equal_as_json(first, second) is equal
    assert equal_as_json(second, first) is equal


def test_an_unknown_kind_is_an_error_and_no_pass() -> None:
    with pytest.raises(ValueError, match=r"^expect kind near, allowed: exact, contains, json$"):
        unexpected(Output("x"), Expect("near", "x"))
