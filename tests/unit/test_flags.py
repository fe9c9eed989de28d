"""Which checks reach a flag, and what their outcomes make of an answer."""

from __future__ import annotations

import pytest

from prefillgate.core.flags import counts, flag_outcome, worst
from prefillgate.core.policy import Flag
from tests.support.journals import outcome

DEFAULT, NAMED = Flag("bad", ()), Flag("tail", ("cut", "slow"))


@pytest.mark.parametrize(
    ("check", "pass_cut", "default", "named"),
    [
        ("echo", False, True, False),
        ("echo", True, True, False),
        ("cut", False, True, True),
        ("cut", True, False, True),
        ("slow", False, False, True),
        ("equal_to_baseline", False, False, False),
    ],
)
def test_a_check_reaches_the_flags_that_name_it_and_the_default_one(
    check: str, pass_cut: bool, default: bool, named: bool
) -> None:
    assert counts(DEFAULT, check, pass_cut) is default
    assert counts(NAMED, check, pass_cut) is named


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([False, False], False),
        ([False, True], True),
        ([None, True], True),
        ([None, False], None),
        ([None], None),
        ([], False),
    ],
)
def test_the_worst_outcome_is_bad_then_unknown_then_clean(values: list[bool | None], expected: bool | None) -> None:
    assert worst(values) is expected


def test_an_answer_is_as_bad_as_its_worst_check_and_unknown_where_none_applied() -> None:
    failed, passed, other = outcome(True, "cut"), outcome(False, "slow"), outcome(True, "echo")
    assert flag_outcome(NAMED, [passed, other], False) is False
    assert flag_outcome(NAMED, [passed, failed], False) is True
    assert flag_outcome(NAMED, [other], False) is None
    assert flag_outcome(DEFAULT, [failed, passed], True) is None
    assert flag_outcome(DEFAULT, [failed, passed], False) is True
