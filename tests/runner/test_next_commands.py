"""The commands that `explain` prints are typed as they stand, on the servers of the run, and do what it says."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from tests.runner.test_interruptions import until_cells
from tests.support.runs import Bench, bench, ended, start, stored
from tests.support.simulated import SimulatedServer, start_simulated


def explained(work: Bench, store: str = "my run.db") -> tuple[str, list[list[str]]]:
    """The page of `explain` and the words of its commands."""
    page = work.child("explain", store)
    assert (page.code, page.err) == (0, b"")
    text = page.out.decode("utf-8")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    prefillgate ")]
    return text, [shlex.split(line)[1:] for line in lines]


def run(work: Bench, baseline: SimulatedServer, candidate: SimulatedServer, *more: str) -> Any:
    return work.child(*work.arguments(baseline.url, candidate.url, "--store", "my run.db", "--quiet", *more))


def test_a_rollback_leads_to_both_arms_answers_and_to_writing_down_the_cause(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, replicate={"gapSeconds": 0})
    with start_simulated(seed=2, text_seed=9, fault=["bad-rate=1.0"]) as candidate:
        assert run(work, healthy, candidate).code == 20
    page, (look, cause) = explained(work)
    assert "Promotion is blocked, rollback is allowed." in page
    shown = work.child(*look)
    assert shown.code == 0
    said = shown.out.decode("utf-8")
    bad = next(line for line in said.splitlines() if line.startswith("candidate"))
    assert ": BAD (" in bad
    assert "content: differs" in said and "[-" in said and "{+" in said
    assert work.child(*[word.replace("...", "rope base") for word in cause]).code == 20
    assert "Cause: rope base." in explained(work)[0]


def test_a_promotion_leads_to_its_report(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate:
        assert run(work, healthy, candidate, "--report", "other.html").code == 0
    page, (report,) = explained(work)
    assert "Promotion is allowed, rollback is refused." in page
    assert work.child(*report).code == 0
    assert (tmp_path / "my run.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_spent_budget_leads_to_the_budget_that_decides(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate:
        assert run(work, healthy, candidate, "--budget", "16").code == 10
        page, (larger,) = explained(work)
        assert "(BudgetSpent)" in page and larger.count("--budget") == 1
        assert work.child(*larger).code == 0


def test_a_run_that_was_killed_leads_to_its_going_on(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, time_scale=0.02) as candidate:
        process = start(work.arguments(healthy.url, candidate.url, "--store", "my run.db"), tmp_path)
        until_cells(tmp_path / "my run.db", 4, process)
        process.kill()
        ended(process)
        before = set(stored(tmp_path / "my run.db")[0].measured)
        page, (resume,) = explained(work)
        assert "(MoreEvidenceNeeded)" in page
        assert work.child(*resume).code == 0
    assert before < set(stored(tmp_path / "my run.db")[0].measured)


def test_an_undeclared_difference_leads_to_declaring_it_in_a_new_store(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, build_info="b2-other") as candidate:
        assert run(work, healthy, candidate).code == 10
        page, (declare,) = explained(work)
        assert "(UndeclaredDifference)" in page and declare[-1] == "my run-2.db"
        assert work.child(*declare).code == 0
        assert explained(work)[1][0][-1] == "my run-3.db"  # no store is written over
