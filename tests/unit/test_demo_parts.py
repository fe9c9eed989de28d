"""How the demo ends: its exit code and last lines from what came out, whatever was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefillgate.cli.demo_parts import Part, conclude

REPORT = Path("folder") / "rollback.html"


def test_when_all_is_as_expected_it_ends_in_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude([Part("one", "promote", 61.4, "promote"), Part("two", "x", 2.0, "x")], REPORT) == 0
    assert capsys.readouterr().out.splitlines() == [
        "",
        "    61 s  one: promote, as expected",
        "     2 s  two: x, as expected",
        str(REPORT),
    ]


def test_one_part_that_comes_out_otherwise_ends_it_in_one_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude([Part("one", "promote", 61.4, "hold"), Part("two", "x", 2.0, "x")], REPORT) == 1
    assert capsys.readouterr().out.splitlines() == [
        "",
        "    61 s  one: hold, NOT as expected (promote)",
        "     2 s  two: x, as expected",
        str(REPORT),
    ]


def test_a_part_that_was_never_finished_is_not_as_expected() -> None:
    assert conclude([Part("one", "promote")], REPORT) == 1
