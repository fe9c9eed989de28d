"""What a run says while it runs: what is known so far, in one line a cell, on standard error."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.runs import bench, stored
from tests.support.simulated import SimulatedServer, start_simulated


def test_every_cell_tells_units_bad_what_is_missing_and_the_time_left(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate:
        run = work.child(*work.arguments(healthy.url, candidate.url))
    (store,) = (tmp_path / ".prefillgate").glob("set-*.db")
    assert re.fullmatch(r"store: \.prefillgate/set-\d{8}T\d{6}Z\.db", run.lines[0])
    assert run.lines[1].startswith("seed: ")
    cells = [line for line in run.lines if re.match(r" +\d+ (baseline|candidate) ", line)]
    assert len(cells) == len(stored(store)[0].measured)
    counts = [int(found.group(1)) for line in cells if (found := re.search(r"\| n (\d+), bad 0, ", line))]
    assert counts == [0, 0, *range(1, 17)]
    assert all("cached     0" in line and "clean" in line for line in cells)
    assert cells[-1].endswith("n 16, bad 0, enough clean; decode speed only reported"), "the policy asks no speed"
    assert cells[3].endswith("n 2, bad 0, 14 more clean, under 1 min")
    assert "PROMOTE" in run.out.decode()
    assert run.lines[-1].startswith("report: ")


def test_a_replicate_tells_its_e_value_and_what_ends_it(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path, replicate={"gapSeconds": 1}, budgetPrefills=40)
    with start_simulated(seed=2, text_seed=9, fault=["bad-rate=0.9"]) as candidate:
        run = work.child(*work.arguments(healthy.url, candidate.url))
    assert run.code == 20
    told = [line for line in run.lines if "| replicate 1: " in line]
    assert any(re.search(r"\d units, bad \d, E [\d.]+/40", line) for line in told)
    assert any(line.startswith("ALARM: promotion is blocked") for line in run.lines)
    assert any("replicate 1: kept apart by gap (1 s after the last bad cell)" in line for line in run.lines)
    assert any(line.startswith("replicate 1: ended confirmed (E = ") for line in run.lines)


def test_quiet_leaves_out_the_cells_and_json_keeps_standard_output_for_one_object(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, budgetPrefills=16)
    with start_simulated(seed=2, text_seed=9) as candidate:
        run = work.child(*work.arguments(healthy.url, candidate.url, "--quiet", "--json"))
    assert run.json["reason"] == "BudgetSpent"
    assert not [line for line in run.lines if "| n " in line]
    assert run.lines[0].startswith("store: ")
