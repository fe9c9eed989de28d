"""`prefillgate audit`: the documented object, exit codes, notes about what was not read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefillgate.cli.audit import command
from prefillgate.cli.main import main
from prefillgate.core.cells import ARMS, Cell, Status
from prefillgate.report.markdown import escape
from tests.support.cell_logs import START, cell, copy, fresh, line, pairs, story, write_log

CLEAN = [fresh(f"c{place % 8}") for place in range(32)]
CONFIRMED = [fresh("c0", bad=True, started_at=START - 1000), *pairs("bg bg bg bg bg")]
ARM_FIELDS = [
    *("requests", "prefills", "decision_prefills", "copies", "partial", "unknown", "orphans"),
    *("bad_requests", "bad_prefills", "bad_for_promotion", "request_interval", "prefill_interval"),
]


def audit(*arguments: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(command, list(arguments), input=stdin, standalone_mode=False)
    assert result.exception is None, result.exception
    return result


def told(path: Path, cells: list[Cell], *options: str) -> dict[str, Any]:
    return dict(json.loads(audit(str(write_log(path, cells)), "--json", *options).stdout))


def test_the_object_has_the_documented_fields(tmp_path: Path) -> None:
    seen = told(tmp_path / "log", CLEAN)
    assert list(seen) == [
        *("decision", "promotion", "rollback", "reason", "sentences", "cause", "what_would_change", "measured"),
        *("arms", "comparison", "replicates", "alarm", "policy", "prompts", "invalid", "notes"),
        *("log", "claim", "restated", "labels"),
    ]
    readme = " ".join((Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8").split())
    assert f"`audit --json` prints those that a log can tell: {', '.join(f'`{name}`' for name in seen)}." in readme
    assert list(seen["arms"]) == ["baseline", "candidate"]
    both = told(tmp_path / "both", [*CLEAN, cell(arm="baseline")])
    assert [list(arm) for arm in both["arms"].values()] == [ARM_FIELDS, ARM_FIELDS]
    assert list(seen["comparison"]) == ["fisher_by_request", "fisher_by_prefill", "boschloo_by_prefill"]


def test_numbers_are_not_rounded(tmp_path: Path) -> None:
    seen = told(tmp_path / "log", CLEAN)
    assert seen["arms"]["candidate"]["prefill_interval"] == [0.0, pytest.approx(1 - 0.025 ** (1 / 32), rel=1e-12)]
    assert len(str(seen["arms"]["candidate"]["prefill_interval"][1])) > 12


def test_an_arm_that_is_not_in_the_log_is_null_and_never_zero(tmp_path: Path) -> None:
    seen = told(tmp_path / "log", CLEAN)
    assert (seen["arms"]["baseline"], seen["invalid"]) == (None, {"baseline": None, "candidate": 0})
    assert seen["comparison"] == dict.fromkeys(seen["comparison"])


@pytest.mark.parametrize(
    ("cells", "code", "answer"),
    [
        (CLEAN, 0, ("promote", "Allowed", "Refused", "AcceptanceReached")),
        (CLEAN[:31], 10, ("hold", "Blocked", "Refused", "MoreEvidenceNeeded")),
        (CONFIRMED, 20, ("rollback", "Blocked", "Allowed", "RegressionConfirmed")),
        ([*CLEAN, *[cell(status=Status.INVALID)] * 3], 1, ("hold", "Blocked", "Refused", "InvalidCells")),
        ([cell(cached=None)], 10, ("hold", "Blocked", "Refused", "IndependenceUnknown")),
    ],
    ids=["promote", "hold", "rollback", "error", "unknown"],
)
def test_the_exit_code_is_zero_when_done_and_the_decisions_when_asked_for(
    cells: list[Cell], code: int, answer: tuple[str, ...], tmp_path: Path
) -> None:
    path = str(write_log(tmp_path / "log", cells))
    assert audit(path).return_value == 0
    result = audit(path, "--json", "--exit-decision")
    assert result.return_value == code
    seen = json.loads(result.stdout)
    assert (seen["decision"], seen["promotion"], seen["rollback"], seen["reason"]) == answer
    assert seen["measured"] is (code != 1)


def test_quality_alone_is_judged_and_said(tmp_path: Path) -> None:
    assert "Quality alone was judged; decode throughput was not compared." in told(tmp_path / "log", CLEAN)["sentences"]


def test_the_policy_is_a_name_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert told(path, CLEAN)["policy"]["name"] == "standard"
    assert told(path, CLEAN[:16])["decision"] == "hold"
    assert told(path, CLEAN[:16], "--policy", "quick")["decision"] == "promote"
    assert told(path, CLEAN, "--policy", "strict")["decision"] == "hold"
    policy = Path(__file__).parents[2] / "policies" / "quick.yaml"
    assert told(path, CLEAN[:16], "--policy", str(policy))["decision"] == "promote"


def test_a_policy_that_does_not_exist_is_bad_input(tmp_path: Path) -> None:
    result = audit(str(write_log(tmp_path / "log", CLEAN)), "--policy", "lenient")
    assert result.return_value == 2
    assert "lenient" in result.stderr
    assert "quick, standard, strict" in result.stderr
    assert result.stdout == ""


def test_standard_input_and_several_files_are_one_log(tmp_path: Path) -> None:
    whole = "".join(json.dumps(line(each)) + "\n" for each in CLEAN)
    one = audit("-", "--json", stdin=whole)
    assert json.loads(one.stdout)["arms"]["candidate"]["prefills"] == 32
    first, second = write_log(tmp_path / "a", CLEAN[:20]), write_log(tmp_path / "b", CLEAN[20:])
    assert json.loads(audit(str(first), str(second), "--json").stdout)["decision"] == "promote"
    rest = "".join(json.dumps(line(each)) + "\n" for each in CLEAN[20:])
    assert json.loads(audit(str(first), "-", "--json", stdin=rest).stdout)["decision"] == "promote"
    copies = write_log(tmp_path / "c", [copy("z")])
    parent = write_log(tmp_path / "d", [fresh("z")])
    assert json.loads(audit(str(parent), str(copies), "--json").stdout)["arms"]["candidate"]["copies"] == 1
    assert json.loads(audit(str(copies), str(parent), "--json").stdout)["arms"]["candidate"]["orphans"] == 1


def test_the_page_is_for_a_person(tmp_path: Path) -> None:
    page = audit(str(write_log(tmp_path / "cells.jsonl", CONFIRMED))).stdout
    assert page.splitlines()[0].endswith("cells.jsonl")
    for word in ("rollback        Allowed", "RegressionConfirmed", "Quality alone was judged", "replicate 1"):
        assert word in page
    two = [str(write_log(tmp_path / name, CLEAN)) for name in ("a.jsonl", "b.jsonl")]
    assert audit(*two).stdout.splitlines()[0].endswith("a.jsonl and 1 more")
    assert audit("-", stdin='{"arm": "candidate"}').stdout.splitlines()[0].endswith("standard input")


def test_names_in_a_log_cannot_steer_a_terminal(tmp_path: Path) -> None:
    hostile = [fresh("\x1b[2J\x7f\u202e<b>", bad=True, started_at=START - 1000), *CONFIRMED]
    path = str(write_log(tmp_path / "log", [*hostile, fresh("\x1b[2J", bad=True, replicate=1, started_at=START)]))
    for options in ((), ("--json",)):
        shown = audit(path, *options).stdout
        assert all(character.isprintable() or character == "\n" for character in shown)


def test_fields_that_are_not_read_are_named_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        json.dumps(line(fresh()) | {"gpu\x1b": 1}) + "\n" + json.dumps(line(fresh()) | {"gpu\x1b": 2, "x": 1})
    )
    result = audit(str(path), "--json")
    assert result.return_value == 0
    assert "note: fields ignored, with their lines: gpu" in result.stderr
    assert "(2), x (1)" in result.stderr
    assert "\x1b" not in result.stderr
    assert json.loads(result.stdout)["notes"] == ["fields ignored, with their lines: gpu\x1b (2), x (1)"]
    path.write_text(json.dumps(line(fresh()) | {f"f{place}": 1 for place in range(25)}))
    assert " and 5 more" in audit(str(path)).stderr


def test_lines_without_a_case_are_named(tmp_path: Path) -> None:
    result = audit("-", "--json", stdin='{"arm": "candidate"}\n{"arm": "candidate", "prompt_sha256": "a"}\n')
    assert "2 lines without case_id" in result.stderr
    assert json.loads(result.stdout)["prompts"] == 2


def test_cells_of_a_busy_server_are_not_three_invalid_in_a_row(tmp_path: Path) -> None:
    waiting = [json.dumps(line(cell(status=Status.INVALID)) | {"http_status": 503})] * 3
    log = "\n".join([*(json.dumps(line(each)) for each in CLEAN), *waiting])
    seen = json.loads(audit("-", "--json", stdin=log).stdout)
    assert (seen["decision"], seen["invalid"]["candidate"]) == ("promote", 3)
    other = log.replace("503", "500")
    assert json.loads(audit("-", "--json", stdin=other).stdout)["reason"] == "InvalidCells"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"arm": "canary"}', ["bad.jsonl:1: arm", "canary", "allowed: baseline, candidate"]),
        ("", ["bad.jsonl", "no cell in it"]),
        ("<html>", ["bad.jsonl", "nothing recognises its content", "lines with an `arm`"]),
        ('{"arm": "baseline"}\n<html>', ["bad.jsonl:2", "not JSON"]),
        ('{"arm": "baseline", "prompt_tokens": -1}', ["bad.jsonl:1: prompt_tokens: -1"]),
    ],
)
def test_a_log_that_cannot_be_read_is_bad_input(
    content: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content, encoding="utf-8")
    assert main(["audit", str(path), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for word in words:
        assert word in captured.err


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl: cannot be read" in capsys.readouterr().err
    assert main(["audit", str(tmp_path)]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert main(["audit", "postgresql://u:my-own@h/x?run=a"]) == 2
    told = capsys.readouterr().err
    assert "cannot be read" in told and "my-own" not in told
    assert main(["audit"]) == 2
    assert "FILE..." in capsys.readouterr().err


def test_the_help_names_every_field_it_reads(capsys: pytest.CaptureFixture[str]) -> None:
    from prefillgate.api.cell_log import FIELDS

    assert main(["audit", "--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in (*FIELDS, *ARM_FIELDS) if name not in shown] == []


def test_the_example_of_the_readme_says_what_the_readme_says(tmp_path: Path) -> None:
    files = {arm: str(write_log(tmp_path / arm, [each for each in story() if each.arm == arm])) for arm in ARMS}
    page = audit(files["candidate"], "--baseline", files["baseline"], "--markdown").stdout
    readme = " ".join((Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8").split())
    quoted = readme.split("On the cells of the story above it says: *")[1].split(".*")[0] + "."
    assert quoted.startswith("The difference is weaker than it looks. By request")
    assert escape(quoted) in page
    assert page.startswith("### Weaker than it looks: candidate and 1 more")
    assert "| candidate | 11 of 12 bad | 61.5 to 99.8 % | 2 of 2 bad | 15.8 to 100 % | 2 prefills |" in page
    assert r"73 more clean fresh prefills would promote\." in page
    assert "Promotion blocked, rollback refused (ALARM, `ReplicateDue`)." in page
    assert quoted in " ".join(audit(files["candidate"], "--baseline", files["baseline"]).stdout.split())


def test_a_comment_holds_no_markup_of_strangers(tmp_path: Path) -> None:
    hostile = [fresh("<img src=x>", bad=True), fresh("a|b\n# c @all http://x.y")]
    path = write_log(tmp_path / "x<b>`.jsonl", hostile)
    lines = path.read_text().replace('"bad"', '"<script>|\\u001b[2J": 1, "bad"')
    path.write_text(lines)
    page = audit(str(path), "--markdown").stdout
    assert page.startswith("### Prefills counted: x\\<b\\>\\`\\.jsonl")
    assert "<script" not in page.replace(r"\<", "")
    assert "\x1b" not in page
    assert all(ord(character) >= 32 or character == "\n" for character in page)


def test_a_log_without_counters_says_at_most(tmp_path: Path) -> None:
    cells = [cell("a", cached=None, bad=None), cell("a", cached=None, bad=None)]
    path = str(write_log(tmp_path / "x", cells))
    said = "candidate: 0 of 2 bad by request, none by proven prefill; at most 2 prefills, 1 if every repeat rode the"
    assert said in " ".join(audit(path).stdout.split())
    page = audit(path, "--markdown").stdout
    assert "| at most 2 prefills, 1 if every repeat rode the cache |" in page
    assert "Nothing in this log proves every prefill of candidate." in page
    assert "Nothing in this log proves" not in audit(str(write_log(tmp_path / "y", CLEAN)), "--markdown").stdout


def test_speeds_that_measured_the_cache_are_named(tmp_path: Path) -> None:
    cells = [fresh("a", prefill_ms=1000.0), *[copy("a", prefill_ms=9.0)] * 3]
    path = str(write_log(tmp_path / "x", cells))
    page, comment = " ".join(audit(path).stdout.split()), audit(path, "--markdown").stdout
    for told in (
        "3 of 4 requests (75 %) repeat an earlier prompt and are not proven to be prefills of their own",
        "prefill comes out at 3,895 tokens/s over all requests, at 1,000 over the fresh prefills",
    ):
        assert f"Measured cache hits. Candidate: {told}." in page
        assert f"- candidate: {escape(told).replace(chr(92) + '.', '.')}" in comment.replace(chr(92) + ".", ".")
    flat = [cell(f"c{n}", cached=None, length=100 * n, prefill_ms=5.0) for n in range(1, 17)]
    assert "of 8 pairs of prompt lengths at least twice apart the longer one was slower in 0" in " ".join(
        audit(str(write_log(tmp_path / "y", flat))).stdout.split()
    )
    assert "Measured cache hits" not in audit(str(write_log(tmp_path / "z", CLEAN))).stdout


def test_json_and_markdown_are_two_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(write_log(tmp_path / "x", CLEAN)), "--json", "--markdown"]) == 2
    assert "--json and --markdown are two answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bad", "counters", "words"),
    [
        (6, True, "The difference survives. By request the candidate is bad in 6 of 6 against 0 of 6, p 0.00108; by"),
        (6, None, "The difference survives even so. By request the candidate is bad in 6 of 6 against 0 of 6, p"),
        (
            6,
            False,
            "nothing proves which requests were prefills of their own, and names of cases alone do not prove that "
            "their prompts differ (prompt_sha256 would). By request the candidate is bad in 6 of 6",
        ),
        (1, True, "There never was a difference to explain: by request the candidate is bad in 1 of 6 against 0 of 6"),
    ],
)
def test_a_difference_is_told_in_words(bad: int, counters: bool | None, words: str, tmp_path: Path) -> None:
    """`counters` None: without them, and with digests of the prompts."""
    cached = 0 if counters else None
    cells = [
        cell(f"c{n}", cached=cached, arm=arm, bad=arm == "candidate" and n < bad, processed_tokens=1000)
        for n in range(6)
        for arm in ARMS
    ]
    if counters is None:
        cells = [replace(each, prompt_sha256=each.case_id) for each in cells]
    assert words in " ".join(audit(str(write_log(tmp_path / "x", cells))).stdout.split())


def test_what_no_prefill_proves_and_what_shares_no_prompt_is_told_so(tmp_path: Path) -> None:
    cells = [cell("a", cached=None, arm=arm, bad=arm == "candidate") for arm in ARMS for _ in range(9)]
    told = " ".join(audit(str(write_log(tmp_path / "x", cells))).stdout.split())
    assert "may be weaker than it looks: nothing proves which requests were prefills of their own." in told
    assert "if every repeat rode the cache the candidate is bad in 1 of 1 against 0 of 1, p 0.5." in told
    apart = [fresh("a"), fresh("b", arm="baseline")]
    assert (
        "the arms have no prompt with known outcomes in common" in audit(str(write_log(tmp_path / "y", apart))).stdout
    )
    better = [fresh(f"c{n}", arm=arm, bad=arm == "baseline") for n in range(6) for arm in ARMS]
    assert "the baseline is bad in 6 of 6 against 0 of 6" in audit(str(write_log(tmp_path / "z", better))).stdout


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "-", "-"),
        ("audit", "-", "--baseline", "-"),
        ("audit", "--baseline", "-", "--baseline", "-"),
        ("replayset", "import", "-", "-", "-o", "none.jsonl"),
    ],
)
def test_standard_input_named_twice_is_refused_by_its_name(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 2
    assert "-: standard input can be read once, and is named 2 times (allowed: one -)" in capsys.readouterr().err
