"""`prefillgate plan`: exact numbers out, clear words about bad numbers in."""

from __future__ import annotations

import json
from unittest.mock import ANY

import pytest
from click import UsageError
from click.testing import CliRunner, Result

from prefillgate.cli.errors import BadInput
from prefillgate.cli.plan import command


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_the_standard_plan_as_json_is_unrounded() -> None:
    result = plan("--margin", "0.10", "--alpha", "0.05", "--rate", "0.01", "--rate", "0.02", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert list(document) == ["acceptance", "false_promotion", "power"]
    assert document["acceptance"] == [
        {"bad": 0, "prefills": 32},
        {"bad": 1, "prefills": 56},
        {"bad": 2, "prefills": 75},
    ]
    assert document["false_promotion"] == pytest.approx(0.04984889438404841, rel=1e-13)
    assert [list(row) for row in document["power"]] == [["rate", "promote", "expected_prefills"]] * 2
    assert [row["rate"] for row in document["power"]] == [0.01, 0.02]
    assert document["power"][0]["promote"] == pytest.approx(0.969783736061098, rel=1e-13)
    assert document["power"][1]["expected_prefills"] == pytest.approx(44.565277190335536, rel=1e-13)
    assert result.stderr == ""


def test_without_rates_five_usual_ones_are_shown() -> None:
    document = json.loads(plan("--margin", "0.2", "--json").stdout)
    assert [row["rate"] for row in document["power"]] == [0.0, 0.01, 0.02, 0.05, 0.1]


def test_the_cap_is_the_largest_entry() -> None:
    document = json.loads(plan("--margin", "0.10", "--cap", "61", "--json").stdout)
    assert [row["prefills"] for row in document["acceptance"]] == [48, 60, 61]
    document = json.loads(plan("--margin", "0.10", "--cap", "29", "--json").stdout)
    assert document["acceptance"] == [{"bad": 0, "prefills": 29}]


def test_the_page_shows_entries_error_and_power() -> None:
    lines = plan("--margin", "0.10", "--rate", "0.01").stdout.splitlines()
    assert [line.split() for line in lines[3:6]] == [["0", "32"], ["1", "56"], ["2", "75"]]
    assert lines[6] == "  more than 2 bad: never"
    assert "0.049849 (exact)" in lines[8]
    assert lines[11].split() == ["0.01", "0.969784", "39.61"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--margin", "nan"], ["'--margin'", "nan", "above 0 and below 1"]),
        (["--margin", "inf"], ["'--margin'", "inf", "above 0 and below 1"]),
        (["--margin", "0"], ["'--margin'", "0 is", "above 0 and below 1"]),
        (["--margin", "1"], ["'--margin'", "1 is", "above 0 and below 1"]),
        (["--margin", "ten"], ["'--margin'", "ten", "above 0 and below 1"]),
        (["--margin", "1e-9"], ["'--margin'", "1e-09", "at least 0.000300"]),
        (["--margin", "0.1", "--alpha", "0.6"], ["'--alpha'", "0.6", "at most 0.5"]),
        (["--margin", "0.1", "--alpha", "0"], ["'--alpha'", "0 is", "above 0"]),
        (["--margin", "0.1", "--cap", "28"], ["'--cap'", "28", "smallest possible is 29"]),
        (["--margin", "0.1", "--cap", "0"], ["'--cap'", "0 is", "at least 1"]),
        (["--margin", "0.1", "--cap", "1.5"], ["'--cap'", "1.5", "at least 1"]),
        (["--margin", "0.1", "--rate", "-0.1"], ["'--rate'", "-0.1", "from 0 to 1"]),
        (["--margin", "0.1", "--rate", "1.1"], ["'--rate'", "1.1", "from 0 to 1"]),
        (["--margin", "0.1", "--rate", "nan"], ["'--rate'", "nan", "from 0 to 1"]),
        ([], ["'--margin'"]),
    ],
)
def test_bad_input_exits_2_and_says_what_is_allowed(arguments: list[str], words: list[str]) -> None:
    result = plan(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    for word in words:
        assert word in result.stderr


def test_the_ends_of_a_rate_are_allowed() -> None:
    document = json.loads(plan("--margin", "0.1", "--alpha", "0.5", "--rate", "0", "--rate", "1", "--json").stdout)
    assert [row["promote"] for row in document["power"]] == [1.0, 0.0]


# By the minutes


def affordable(*arguments: str) -> dict[str, object]:
    result = plan("--minutes", "20", "--cell-seconds", "20", "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_the_smallest_margin_that_the_minutes_afford_is_told_with_its_table() -> None:
    told = affordable("--rate", "0.01")
    assert list(told) == [
        *("acceptance", "false_promotion", "power"),
        *("margin", "minutes", "cell_seconds", "prompts", "healthy_rate", "other_prefills"),
    ]
    assert (told["margin"], told["minutes"], told["cell_seconds"], told["prompts"]) == (0.12, 20, 20, 12)
    assert told["acceptance"] == [{"bad": 0, "prefills": 33}, {"bad": 1, "prefills": 38}]  # 60 cells, 22 of them others
    assert told["other_prefills"] == 22
    assert told["false_promotion"] == pytest.approx(0.0496793, abs=1e-6)
    assert told["power"] == [{"rate": 0.01, "promote": pytest.approx(0.945249, abs=1e-6), "expected_prefills": ANY}]
    one_less = plan("--margin", "0.11", "--cap", "38", "--rate", "0.01", "--json")
    assert json.loads(one_less.stdout)["power"][0]["promote"] < 0.8


def test_each_option_of_the_minutes_changes_what_is_affordable() -> None:
    def margin(*arguments: str) -> object:
        return affordable(*arguments)["margin"]

    assert margin() == 0.12
    assert margin("--minutes", "40") == 0.07
    assert margin("--cell-seconds", "25") == 0.13
    assert margin("--prompts", "3") == 0.10
    assert margin("--healthy-rate", "0.03") == 0.16
    assert margin("--candidate-alone") == 0.08
    assert margin("--cap", "20") == 0.14
    assert margin("--alpha", "0.2") == 0.08


def test_the_page_tells_the_margin_and_the_minutes_above_the_table() -> None:
    lines = plan("--minutes", "20", "--cell-seconds", "20").stdout.splitlines()
    assert lines[:3] == [
        "The smallest margin that 20 minutes afford, at 20 s a cell and 12 prompts: 12 %.",
        "A run takes about 18 min with nothing bad (33 candidate prefills and 22 others), about 20 min to the last "
        "entry of the table.",
        "A candidate that is bad at a rate of 0.01 is promoted by then with a chance of 0.8 or more.",
    ]
    assert "  more than 1 bad: never" in lines


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--minutes", "5", "--cell-seconds", "20"],
            "12 prompts once each and the 22 prefills beside them",
        ),
        (["--minutes", "5"], "--minutes needs --cell-seconds"),
        (["--margin", "0.1", "--cell-seconds", "5"], "--cell-seconds is for --minutes"),
        (["--margin", "0.1", "--prompts", "5"], "--prompts is for --minutes"),
        (["--margin", "0.1", "--healthy-rate", "0.02"], "--healthy-rate is for --minutes"),
        (["--margin", "0.1", "--candidate-alone"], "--candidate-alone is for --minutes"),
        (["--margin", "0.1", "--minutes", "5", "--cell-seconds", "20"], "give it or --margin, not both"),
    ],
)
def test_minutes_that_afford_nothing_or_say_nothing_are_bad_input(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert isinstance(result.exception, BadInput | UsageError)
    assert words in str(getattr(result.exception, "message", result.exception))
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--minutes", "0", "--cell-seconds", "5"],
        ["--minutes", "nan", "--cell-seconds", "5"],
        ["--minutes", "5", "--cell-seconds", "0"],
        ["--minutes", "5", "--cell-seconds", "5", "--prompts", "0"],
        ["--minutes", "5", "--cell-seconds", "5", "--healthy-rate", "1"],
    ],
)
def test_numbers_out_of_range_are_refused(arguments: list[str]) -> None:
    result = plan(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
