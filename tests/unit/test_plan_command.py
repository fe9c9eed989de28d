"""`prefillgate plan`: exact numbers out, clear words about bad numbers in."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

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
