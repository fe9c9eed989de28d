"""`run --dry-run` with the time of a cell given: prefills, minutes and error bounds, without asking a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click import UsageError
from click.testing import CliRunner, Result

from prefillgate.cli.errors import BadInput
from prefillgate.cli.run import command
from prefillgate.cli.time_limit import words_of
from prefillgate.core.minutes import Span

SERVERS = ["--baseline", "http://127.0.0.1:1", "--candidate", "http://127.0.0.1:2"]


def dry(*arguments: str) -> Result:
    return CliRunner().invoke(
        command, [*SERVERS, "--dry-run", "--cell-seconds", "30", *arguments], standalone_mode=False
    )


def plan(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dry("--json", *arguments).stdout)
    return found


def test_the_demo_set_under_quick_costs_38_prefills_and_states_its_exact_errors() -> None:
    told = plan("--replay-set", "demo", "--policy", "quick")
    assert told["acceptance"] == [{"bad": 0, "prefills": 16}, {"bad": 1, "prefills": 25}, {"bad": 2, "prefills": 35}]
    assert told["false_promotion"] == pytest.approx(0.04995226558545358, abs=1e-15)
    assert told["false_rollback"] == pytest.approx(1 / 40 + 1 / 80)
    assert told["prefills"]["total"] == 38
    assert told["budget"] == 150
    assert [row["rate"] for row in told["power"]] == [0.0, 0.01, 0.05, 0.10]
    assert [round(row["promote"], 3) for row in told["power"]] == [1.0, 0.996, 0.795, 0.395]


def test_the_aa_check_adds_its_second_pass() -> None:
    with_check = plan("--replay-set", "demo", "--policy", "quick", "--aa")["prefills"]
    assert (with_check["baseline_pass"], with_check["second_pass"]) == (16, 16)


def test_the_strict_policy_has_its_own_table_and_bounds() -> None:
    told = plan("--replay-set", "short", "--policy", "strict")
    assert told["acceptance"][2] == {"bad": 2, "prefills": 175}
    assert told["policy"] == "strict"
    assert told["replay_set"]["prompts"] == 8


def test_what_cannot_work_is_said_before_the_run() -> None:
    warnings = plan("--replay-set", "short", "--policy", "standard")["warnings"]
    assert any("32 tokens" in warning and "decode speed stays open" in warning for warning in warnings), warnings
    assert any("8 prompts" in warning for warning in warnings)


def test_the_page_says_the_same_numbers_as_the_json() -> None:
    page = dry("--replay-set", "demo", "--policy", "quick").stdout
    for words in (
        "0.049952",
        "0.0375",
        "0.395 at 10 % bad",
        "38 when nothing is bad",
        "16 with 0 bad",
        "150, both arms",
    ):
        assert words in page, page


def test_a_gateway_stands_in_the_plan() -> None:
    given = ("--replay-set", "demo", "--policy", "quick", "--gateway", "http://127.0.0.1:3/v1")
    assert plan(*given)["gateway"] == "http://127.0.0.1:3/v1"
    assert "bad cells go once more straight and through http://127.0.0.1:3/v1; that counts" in dry(*given).stdout
    assert plan(*given[:-2])["gateway"] is None
    assert "straight and through" not in dry(*given[:-2]).stdout


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert dry("--replay-set", "demo").return_value == 0
    assert list(tmp_path.iterdir()) == []


# Minutes


def test_minutes_follow_from_the_seconds_of_a_cell() -> None:
    told = plan("--replay-set", "demo", "--policy", "quick")
    even = {"least": 30.0, "likely": 30.0, "most": 30.0}
    assert told["cell_seconds"] == {"baseline": even, "candidate": even}
    assert told["timed"] is None and told["max_minutes"] is None
    assert told["minutes"] == {
        "expected": {"least": 19, "likely": 19, "most": 19},
        "with_aa": {"least": 31, "likely": 31, "most": 31},
        "with_replicate": {"least": 23, "likely": 33, "most": 59},
        "at_cap": {"least": 75, "likely": 75, "most": 75},
    }
    assert (
        plan("--replay-set", "demo", "--policy", "quick", "--cell-seconds", "60")["minutes"]["expected"]["likely"] == 38
    )


def test_the_page_tells_the_minutes_and_that_no_server_was_asked() -> None:
    page = dry("--replay-set", "demo", "--policy", "quick").stdout
    for words in (
        "a cell takes     30 s, as given; no server was asked",
        "minutes          about 19 min when nothing is bad",
        "minutes          about 31 min with the A/A check",
        "minutes          about 33 min (23 min to 59 min) with one replicate; its gap of 10 min may be spared",
        "minutes          about 75 min at the cap of 150 prefills",
    ):
        assert words in page, page


def test_a_candidate_alone_has_the_minutes_of_its_own_cells() -> None:
    alone = ["--candidate", "http://127.0.0.1:2", "--replay-set", "demo", "--policy", "quick", "--dry-run"]
    found = CliRunner().invoke(command, [*alone, "--cell-seconds", "30", "--json"], standalone_mode=False)
    told = json.loads(found.stdout)
    assert told["cell_seconds"]["baseline"] is None
    assert told["minutes"]["expected"]["likely"] == 8
    assert told["minutes"]["with_aa"] is told["minutes"]["with_replicate"] is None


@pytest.mark.parametrize(("minutes", "decides"), [("19", True), ("18.99", False)])
def test_a_plan_beyond_the_minutes_is_refused_with_what_would_do(minutes: str, decides: bool) -> None:
    arguments = ("--replay-set", "demo", "--policy", "quick", "--max-minutes", minutes)
    told = plan(*arguments)["max_minutes"]
    assert (told["minutes"], told["decides"]) == (float(minutes), decides)
    result = dry(*arguments)
    if decides:
        assert (result.return_value, result.exception, told["ways"]) == (0, None, [])
        return
    assert isinstance(result.exception, BadInput)
    assert str(result.exception) == (
        "--max-minutes 18.99: this plan takes about 19 min when nothing is bad (allowed: more minutes, or a change "
        "named above)"
    )
    assert "38 when nothing is bad" in result.stdout  # the plan is told all the same
    assert result.stderr.splitlines() == [
        "what decides in 18.99 min:",
        "  fewer cases          11 of 16: about 18 min",
        "  throughput: Report   mode: Report with maxPairs: 6: about 16 min",
        "  candidate alone      without --baseline; no replicate and no throughput then: about 8.0 min",
        "  lanes                2 servers of the baseline and 2 servers of the candidate: about 10 min",
        "  a wider margin       no margin: each prompt must run once: about 19 min, too long still",
    ]
    assert {way["name"]: way["fits"] for way in told["ways"]} == {
        "fewer cases": True,
        "a wider margin": False,
        "throughput: Report": True,
        "candidate alone": True,
        "lanes": True,
    }


def test_where_nothing_would_do_it_says_so() -> None:
    result = dry("--replay-set", "demo", "--policy", "quick", "--max-minutes", "0.5")
    assert isinstance(result.exception, BadInput)
    assert result.stderr.startswith("no single change decides in 0.5 min:\n")
    assert result.stderr.count("too long still") == 5


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        (Span(1, 1, 1), "about 1.0 min"),
        (Span(10.6, 10.8, 11.4), "about 11 min"),
        (Span(0.5, 0.9, 0.95), "about 54 s (30 s to 0.9 min)"),
        (Span(9.94, 9.95, 119), "about 10 min (9.9 min to 119 min)"),
        (Span(120, 150.4, 1441), "about 2 h 30 min (2 h 0 min to 24 h 1 min)"),
    ],
)
def test_minutes_are_told_as_finely_as_they_are_known(minutes: Span, words: str) -> None:
    assert words_of(minutes) == words


@pytest.mark.parametrize("option", ["--cell-seconds", "--max-minutes"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "soon"])
def test_no_time_is_bad_input(option: str, value: str) -> None:
    result = dry("--replay-set", "demo", option, value)
    assert isinstance(result.exception, UsageError)
    assert option in str(result.exception.format_message()) or value in result.exception.format_message()


def test_the_time_of_a_cell_alone_asks_for_nothing() -> None:
    result = CliRunner().invoke(
        command, [*SERVERS, "--replay-set", "demo", "--cell-seconds", "5"], standalone_mode=False
    )
    assert isinstance(result.exception, BadInput)
    assert str(result.exception).startswith("--cell-seconds is for --dry-run and --max-minutes")
