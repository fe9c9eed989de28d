"""The watch rule of STATISTICS.md section 4: how long to a false alarm, and how long to a true one."""

from __future__ import annotations

import pytest

from tests.simulation.harness import STANDARD_ERRORS, WATCH, units_to_watch_alarm


@pytest.mark.parametrize(("rate", "runs"), [(0.02, 100), (0.05, 1000), (0.30, 4000), (0.90, 4000)])
def test_the_units_to_an_alarm_are_the_printed_ones(rate: float, runs: int) -> None:
    printed, digit = WATCH[rate]
    mean, error = units_to_watch_alarm(rate, runs)
    assert abs(mean - printed) <= STANDARD_ERRORS * error + digit
