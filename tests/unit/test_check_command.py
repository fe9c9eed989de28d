"""`prefillgate check`: stable markers and exit codes, whatever stands on standard input."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prefillgate.api.check_type import ABOUT
from prefillgate.cli.main import main

GOOD = "The change is small, tested and correct.\n\n**VERDICT: LGTM**\n"


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command on some bytes; gives exit code, lines of standard output, standard error."""

    def run(text: str | bytes, *arguments: str) -> tuple[int, list[str], str]:
        raw = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        code = main(["check", *arguments])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err

    return run


def test_a_clean_output_says_clean(check: Any) -> None:
    assert check(GOOD) == (0, ["prefillgate: clean"], "")


@pytest.mark.parametrize(
    ("text", "arguments", "markers"),
    [
        ("VERDICT: LGTM", (), ["no-rationale"]),
        ("  **VERDICT: LGTM** \n", (), ["no-rationale"]),
        ("", (), ["empty"]),
        ("ok</s>", (), ["template-token"]),
        ("and so on " * 30, (), ["loop"]),
        ("a b", ("--check", "min_words=3"), ["too-short"]),
        ("a b", ("--check", "regex=c", "--check", "not_regex=a"), ["pattern", "pattern"]),
        ("a b", ("--check", "json_schema={}"), ["schema"]),
        ("a b", ("--check", "cel=words > 2"), ["expression"]),
        ("a b", ("--check", "finish_reason", "--finish-reason", "error"), ["finish-reason"]),
        ("a b", ("--finish-reason", "length"), ["cut"]),
        ("a b", ("--expect", "exact=a"), ["unexpected"]),
        ("a b", ("--expect", "contains=c", "--check", "min_words=9"), ["too-short", "unexpected"]),
        ('{"a": true}', ("--expect", 'json={"a": 1}'), ["unexpected"]),
        ("VERDICT: LGTM<|im_end|>", (), ["template-token", "no-rationale"]),
    ],
)
def test_each_failed_check_prints_its_marker(
    check: Any, text: str, arguments: tuple[str, ...], markers: list[str]
) -> None:
    code, lines, error = check(text, *arguments)
    assert (code, lines) == (10, [f"prefillgate: {marker}" for marker in markers])
    assert len(error.splitlines()) == len(markers)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("a b c", ("--check", "min_words=3")),
        ("a b", ("--check", "regex=^a", "--check", "not_regex=c")),
        ("{}", ("--check", 'json_schema={"type": "object"}')),
        ("a b", ("--check", "cel=words == 2")),
        ("a b", ("--check", "finish_reason=stop,eos", "--finish-reason", "eos")),
        (" a b\n", ("--expect", "exact=a b")),
        ('{"b": [], "a": 1}', ("--expect", 'json={"a": 1.0, "b": []}')),
        ("VERDICT: LGTM", ("--check", "not_empty")),
    ],
)
def test_a_declared_check_that_passes_is_clean(check: Any, text: str, arguments: tuple[str, ...]) -> None:
    assert check(text, *arguments) == (0, ["prefillgate: clean"], "")


def test_a_check_that_errs_is_neither_clean_nor_failed(check: Any) -> None:
    code, lines, error = check("x", "--check", "cel=words / 0 == 1")
    assert (code, lines) == (1, ["prefillgate: check-error"])
    assert "divide by zero" in error
    assert check("x", "--check", "cut")[:2] == (1, ["prefillgate: check-error"])


def test_a_failed_check_beside_one_that_erred_is_failed(check: Any) -> None:
    code, lines, _ = check("x", "--check", "cel=words / 0 == 1", "--check", "min_words=2")
    assert (code, lines) == (10, ["prefillgate: check-error", "prefillgate: too-short"])


def test_the_checks_of_a_policy_are_made(check: Any, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "apiVersion: prefillgate.io/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: p}\nspec:\n  marginPercent: 10\n"
        "  checks:\n  - type: MinWords\n    minWords: {words: 2}\n  - type: EqualToBaseline\n"
    )
    code, lines, error = check("word", "--policy", str(file))
    assert (code, lines) == (10, ["prefillgate: too-short"])
    assert "equal_to_baseline needs other outputs and was left out" in error
    assert check("word", "--policy", str(file), "--check", "min_words=1")[:2] == (0, ["prefillgate: clean"])
    assert check("VERDICT: LGTM", "--policy", "strict")[0] == 10


def test_nothing_left_to_check_is_no_pass(check: Any) -> None:
    code, lines, error = check("x", "--check", "equal_to_baseline")
    assert (code, lines) == (1, [])
    assert "no check was left to make" in error


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (b"ok \xff", (), "standard input: invalid UTF-8 at byte 4 (0xff) (allowed: UTF-8 text)"),
        (b"x" * (16 * 1024 * 1024 + 1), (), "standard input is longer than 16777216 bytes"),
        ("x", ("--check", "spelling"), '--check[0]: unknown check "spelling" (allowed: not_empty, '),
        ("x", ("--check", "min_words=many"), '--check[0]: "many" is not a whole number (allowed: min_words=WORDS)'),
        ("x", ("--check", "regex=("), "check regex: the pattern ( cannot be used"),
        ("x", ("--check", "cel=foo"), "undeclared reference to 'foo'"),
        ("x", ("--expect", "near=x"), "--expect near=x (allowed: exact=TEXT, contains=TEXT, json=JSON)"),
        ("x", ("--expect", "json={"), "--expect json: not JSON"),
        ("x", ("--policy", "none.yaml"), "none.yaml: cannot be read"),
        ("x", ("--check", 'json_schema={"$ref": "http://127.0.0.1:1/x"}'), "without remote references"),
    ],
)
def test_what_cannot_be_used_is_bad_input(check: Any, text: Any, arguments: tuple[str, ...], message: str) -> None:
    code, lines, error = check(text, *arguments)
    assert (code, lines) == (2, [])
    assert message in error


def test_json_is_one_object_with_every_outcome(check: Any) -> None:
    code, lines, _ = check(
        "VERDICT: LGTM\u2028\x9b", "--json", "--check", "bare_verdict", "--check", "cel=words / 0 == 1"
    )
    (line,) = lines
    assert line.isprintable()
    document = json.loads(line)
    assert code == 10
    assert document["outcome"] == "failed"
    assert document["markers"] == ["prefillgate: no-rationale", "prefillgate: check-error"]
    assert [(c["check"], c["bad"], c["marker"]) for c in document["checks"]] == [
        ("bare_verdict", True, "prefillgate: no-rationale"),
        ("cel", None, "prefillgate: check-error"),
    ]
    assert all(c["version"] and c["detail"] for c in document["checks"])


@pytest.mark.parametrize(
    ("arguments", "code", "outcome"),
    [((), 0, "clean"), (("--check", "cut"), 1, "error"), (("--check", "min_words=9"), 10, "failed")],
)
def test_json_tells_the_three_outcomes_apart(check: Any, arguments: tuple[str, ...], code: int, outcome: str) -> None:
    found, (line,), _ = check("a fine answer", "--json", *arguments)
    document = json.loads(line)
    assert (found, document["outcome"]) == (code, outcome)
    assert (document["markers"] == ["prefillgate: clean"]) == (outcome == "clean")


@pytest.mark.parametrize("text", ["\0" * 1_000_000, "\x1b[2J" * 250_000], ids=["nul", "escapes"])
def test_hostile_output_leaves_the_terminal_clean(check: Any, text: str) -> None:
    code, lines, error = check(text, "--check", "regex=zzz", "--check", "not_empty")
    assert (code, lines) == (10, ["prefillgate: pattern"])
    assert all(line.isprintable() for line in error.splitlines())


def test_help_lists_every_check_with_its_marker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--help"]) == 0
    text = capsys.readouterr().out
    for about in ABOUT.values():
        assert f"prefillgate: {about.marker}" in text
        assert about.short_form in text
    assert "Exit codes: 0 every check passed, 10 a check failed, 1 a check could not be made, 2 bad input." in text


def test_the_command_reads_a_pipe() -> None:
    command = [sys.executable, "-m", "prefillgate.cli.main", "check"]
    done = subprocess.run(command, input=b"VERDICT: LGTM\n", capture_output=True, check=False)
    assert (done.returncode, done.stdout.split(b"\n")[0].rstrip()) == (10, b"prefillgate: no-rationale")
