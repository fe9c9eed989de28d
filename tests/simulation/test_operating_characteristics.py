"""The table of STATISTICS.md section 6, re-simulated on the shipped schedule, decision and replicate, cell by cell."""

from __future__ import annotations

import pytest

from tests.simulation.harness import ROWS, Row, differences, simulate_run, summarize

RUNS = 2000


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_lies_within_four_standard_errors_of_the_printed_one(row: Row) -> None:
    runs = [simulate_run(seed, row.baseline, row.candidate) for seed in range(RUNS)]
    assert differences(row, summarize(runs)) == []
