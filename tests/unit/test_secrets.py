"""What a server repeats of our secrets is taken out of what it says."""

from __future__ import annotations

import pytest

from prefillgate.engines.secrets import Secrets

KEY = "sixteen-letters-"


def test_a_key_is_taken_out_of_errors_and_answers() -> None:
    secrets = Secrets(KEY, ())
    assert secrets.out_of_error(f"bad key {KEY}, {KEY}") == "bad key [secret], [secret]"
    assert secrets.out_of_answer(f"bad key {KEY}") == "bad key [secret]"


@pytest.mark.parametrize(
    ("key", "error", "answer"),
    [
        ("abc", "abc", "abc"),
        ("abcd", "[secret]", "abcd"),
        (KEY[:15], "[secret]", KEY[:15]),
        (KEY, "[secret]", "[secret]"),
    ],
)
def test_an_answer_loses_only_what_no_model_writes_by_chance(key: str, error: str, answer: str) -> None:
    secrets = Secrets(key, ())
    assert (secrets.out_of_error(key), secrets.out_of_answer(key)) == (error, answer)


def test_of_a_header_the_whole_value_goes_and_each_word_of_it() -> None:
    secrets = Secrets(None, (("Authorization", f"Basic {KEY}"), ("X-Token", "second-of-two-secrets")))
    assert secrets.out_of_error(f"got Basic {KEY}") == "got [secret]"
    assert secrets.out_of_answer(f"{KEY} and second-of-two-secrets") == "[secret] and [secret]"
    assert secrets.out_of_error("X-Token, Authorization") == "X-Token, Authorization"


def test_a_secret_written_as_json_is_one_too() -> None:
    secrets = Secrets(None, (("Cookie", 'session="a-long-value"; x'),))
    assert secrets.out_of_answer(r'{"cookie": "session=\"a-long-value\"; x"}') == '{"cookie": "[secret]"}'


def test_without_a_secret_nothing_changes() -> None:
    assert Secrets(None, ()).out_of_error("all of it") == "all of it"
