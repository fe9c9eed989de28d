"""`run --budget`: a run that ended on its budget goes on with a larger one, by the same acceptance table."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import pytest

from prefillgate.core.gate import Gate
from prefillgate.core.journal import BudgetRaised, CellMeasured
from prefillgate.evidence import SqliteJournal
from tests.support.runs import Bench, Ended, bench, ended, measured, start, stored
from tests.support.simulated import SimulatedServer, start_simulated


@pytest.fixture
def work(tmp_path: Path) -> Bench:
    return bench(tmp_path)


def raises(store: Path) -> list[int]:
    """The budgets a store was raised to."""
    with SqliteJournal.open_readonly(store) as journal:
        return [event.budget for event in journal.events() if isinstance(event, BudgetRaised)]


def kept(before: Gate, after: Gate) -> bool:
    """Whether every cell of the first is in the second as it was."""
    return all(after.measured[cell_id] == event for cell_id, event in before.measured.items())


def test_a_run_that_ends_on_its_budget_names_the_one_that_would_do_and_goes_on_with_it_by_the_same_table(
    healthy: SimulatedServer, work: Bench
) -> None:
    with start_simulated(seed=2, text_seed=9) as candidate:
        first = work.child(
            *work.arguments(healthy.url, candidate.url, "--store", "run.db", "--budget", "16", "--report", "a b.html")
        )
        assert first.code == 10, first.said
        before = stored(work.folder / "run.db")[0]
        assert (before.budget, len(measured(before))) == (16, 16)
        assert "16 of 16 prefills" in first.out.decode()
        assert "A budget of 18 prefills (2 more; --budget 18) would promote" in first.out.decode()
        program, *arguments = shlex.split(first.lines[-1])
        assert first.lines[-2] == "the budget is spent; this command resumes:"
        assert program == "prefillgate"
        assert (arguments.count("--budget"), arguments[arguments.index("--budget") + 1]) == (1, "18")
        second = work.child(*arguments, "--json")
    assert second.code == 0, second.said
    assert "budget: raised from 16 to 18 prefills, 16 are spent" in second.lines
    after = stored(work.folder / "run.db")[0]
    assert kept(before, after)
    assert len(measured(after)) == 18
    assert (second.json["budget"], second.json["prefills_used"], second.json["budget_needed"]) == (18, 18, None)
    assert second.json["policy"]["acceptance"][0] == {"bad": 0, "prefills": 16}
    assert raises(work.folder / "run.db") == [18]
    assert work.child("decide", "run.db", "--json").json == second.json


def test_the_same_budget_again_spends_nothing(healthy: SimulatedServer, work: Bench) -> None:
    with start_simulated(seed=2, text_seed=9) as candidate:
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db", "--budget", "16", "--json")
        first = work.child(*command)
        asked = len(candidate.truth())
        again = work.child(*command)
        plain = work.child(*work.arguments(healthy.url, candidate.url, "--store", "run.db", "--json"))
        assert len(candidate.truth()) == asked
    assert (first.code, again.code, plain.code) == (10, 10, 10)
    assert again.json == plain.json == first.json
    assert "budget: 16 prefills, as the store has it (the policy says 150; --budget raises it)" in plain.lines
    assert raises(work.folder / "run.db") == []


def test_a_smaller_budget_than_the_store_has_is_bad_input(healthy: SimulatedServer, work: Bench) -> None:
    with start_simulated(seed=2, text_seed=9) as candidate:
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db")
        assert work.child(*command, "--budget", "17").code == 10
        smaller = work.child(*command, "--budget", "16")
    assert smaller.code == 2
    assert smaller.lines[-1] == (
        "prefillgate: error: --budget 16: the run in run.db may spend 17 prefills and has spent 17 (allowed: 17 or "
        "more)"
    )
    assert raises(work.folder / "run.db") == []


def test_a_budget_that_could_never_promote_is_bad_input_before_a_server_is_asked(work: Bench) -> None:
    refused = work.child(*work.arguments("http://127.0.0.1:1", "http://127.0.0.1:2", "--budget", "15"))
    assert refused.code == 2
    assert refused.lines == [
        "prefillgate: error: --budget 15: too few prefills (allowed: 16 or more, the fresh prefills that promotion "
        "needs with 0 bad)"
    ]
    none = work.child(*work.arguments("http://127.0.0.1:1", "http://127.0.0.1:2", "--budget", "0"))
    assert none.code == 2
    assert "--budget" in none.said


def test_the_plan_of_a_dry_run_has_the_budget_asked_for(work: Bench) -> None:
    arguments = work.arguments("http://127.0.0.1:1", "http://127.0.0.1:2", "--dry-run", "--cell-seconds", "1", "--json")
    assert work.child(*arguments, "--budget", "43").json["budget"] == 43
    assert work.child(*arguments).json["budget"] == 150


def test_a_larger_budget_changes_nothing_for_a_run_that_did_not_end_on_its_budget(
    healthy: SimulatedServer, work: Bench
) -> None:
    with start_simulated(seed=2, text_seed=9) as candidate:
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db", "--json")
        first = work.child(*command)
        larger = work.child(*command, "--budget", "300")
    assert (first.code, larger.code) == (0, 0)
    assert "--budget 300 changes nothing: the run ended with AcceptanceReached, not on its budget" in larger.lines
    assert larger.json == first.json
    assert raises(work.folder / "run.db") == []


def test_killed_right_after_the_budget_was_raised_the_same_command_goes_on(
    healthy: SimulatedServer, work: Bench
) -> None:
    store = work.folder / "run.db"
    with start_simulated(seed=2, text_seed=9) as candidate:
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db", "--json")
        assert work.child(*command, "--budget", "16").code == 10
        before = stored(store)[0]
        candidate.restart(time_scale=1)  # its probe takes long enough to be killed in
        process = start([*command, "--budget", "40"], work.folder)
        while process.poll() is None and not raises(store):
            time.sleep(0.01)
        process.kill()
        assert ended(process).code == -9
        between = stored(store)[0]
        assert (between.budget, between.measured) == (40, before.measured)
        candidate.restart(time_scale=0)
        last = work.child(*command, "--budget", "40")
    assert last.code == 0, last.said
    after = stored(store)[0]
    assert kept(before, after)
    assert [event.cell_id for event in after.measured.values()] == list(range(18))
    assert all(isinstance(event, CellMeasured) for event in after.measured.values())
    assert raises(store) == [40]
    assert (last.json["budget"], last.json["prefills_used"]) == (40, 18)


def test_a_replicate_that_could_not_be_afforded_runs_with_a_larger_budget(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, marginPercent=30, acceptance=[10], replicate={"gapSeconds": 0})
    with start_simulated(seed=2, text_seed=9, fault=["bad-prefill=1"]) as candidate:
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db", "--json")
        first = work.child(*command, "--budget", "12")
        assert first.code == 10, first.said
        assert (first.json["reason"], first.json["replicates"]) == ("BudgetSpent", [])
        used = first.json["prefills_used"]
        assert first.json["budget_needed"] == used + 60
        last = work.child(*command, "--budget", str(used + 60))
    assert last.code == 20, last.said
    assert last.json["reason"] == "RegressionConfirmed"
    assert len(last.json["replicates"]) == 1
    assert last.json["budget"] == used + 60


def test_a_run_file_may_raise_the_budget_and_keeps_the_one_that_an_option_raised(
    healthy: SimulatedServer, work: Bench
) -> None:
    with start_simulated(seed=2, text_seed=9) as candidate:
        plain = work.arguments(healthy.url, candidate.url)
        given = {flag.lstrip("-"): value for flag, value in zip(plain[1::2], plain[2::2], strict=False)}

        def run(budget: int, *more: str) -> Ended:
            spec = {
                "baseline": {"url": healthy.url},
                "candidate": {"url": candidate.url},
                "replaySet": given["replay-set"],
                "policy": given["policy"],
                "store": "run.db",
                "budgetPrefills": budget,
            }
            document = {"apiVersion": "prefillgate.io/v1alpha1", "kind": "Run", "spec": spec}
            (work.folder / "gate.yaml").write_text(json.dumps(document))
            return work.child("run", "gate.yaml", *more)

        assert run(16).code == 10
        assert stored(work.folder / "run.db")[0].budget == 16
        raised = run(17)
        assert "budget: raised from 16 to 17 prefills, 16 are spent" in raised.lines
        assert run(17, "--budget", "18").code == 0
        again = run(17)
    assert again.code == 0, again.said
    assert "budget: 18 prefills, as the store has it (spec.budgetPrefills says 17)" in again.lines
    assert raises(work.folder / "run.db") == [17, 18]
