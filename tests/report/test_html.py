"""Words of the HTML report that depend on what the run was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillgate.core.verdict import Verdict
from prefillgate.report import render
from tests.support import verdicts


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (verdicts.alarm_refused(), "Alarm raised: level"),
        (replace(verdicts.confirmed(), alarm=False), "Alarm answered by a replicate: level"),
        (verdicts.promote(), "Alarm not raised: level"),
    ],
)
def test_an_alarm_is_raised_answered_or_was_not_raised(verdict: Verdict, said: str) -> None:
    assert said in render(verdict, "html")
