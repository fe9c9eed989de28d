"""Runs without a baseline: quality by the acceptance table, a hold that nothing can answer, and a stored baseline."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.gate import Gate
from prefillgate.core.journal import BaselineShown, CellMeasured, Event
from tests.support.llama import real_llama
from tests.support.runs import Bench, Watch, bench, ended, measured, probes, start, stored, write_set
from tests.support.simulated import SimulatedServer, start_simulated

DAY = 86_400.0


@pytest.fixture(scope="module")
def earlier(healthy: SimulatedServer, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A bench with the store of a finished run on two servers, old.db."""
    work = bench(tmp_path_factory.mktemp("earlier"))
    with start_simulated(seed=2, text_seed=9) as candidate:
        assert work.child(*work.arguments(healthy.url, candidate.url, "--store", "old.db")).code == 0
    return work


def shown_in(path: Path) -> list[BaselineShown]:
    from prefillgate.evidence import SqliteJournal

    with SqliteJournal.open_readonly(path) as journal:
        return [event for event in journal.events() if isinstance(event, BaselineShown)]


def test_a_clean_candidate_alone_is_promoted_by_the_table_and_every_format_leaves_the_baseline_out(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    before = len(healthy.truth())
    run = work.child(*work.arguments(None, healthy.url, "--store", "run.db", "--json"))
    asked = healthy.truth()[before:]
    assert run.code == 0
    told = run.json
    assert (told["decision"], told["reason"]) == ("promote", "AcceptanceReached")
    assert (told["arms"]["baseline"], told["invalid"]["baseline"], told["effective_prefills"]["baseline"]) == (
        None,
    ) * 3
    assert told["arms"]["candidate"]["prefills"] == 16
    assert told["shape"]["candidate_alone"] is True
    assert (told["throughput"]["state"], told["throughput"]["pairs"]) == ("NotCompared", [])
    assert (len(asked) - probes(asked), probes(asked)) == (16, 3)  # no pass, no pair, one probe
    assert work.child("decide", "run.db", "--json").out == run.out
    for form, absent in (
        ("markdown", "| baseline"),
        ("junit", 'name="baseline.'),
        ("html", '<th scope="row">baseline'),
        ("line", "baseline"),
    ):
        text = work.child("report", "run.db", "--format", form).out.decode()
        assert absent not in text, form
    assert "baseline:" not in work.child("cells", "run.db").out.decode()
    screen = " ".join(work.child("decide", "run.db").out.decode().split())
    assert "by checks that were never seen to pass on a good server" in screen
    log = work.child("cells", "run.db", "--json").out
    (tmp_path / "cells.jsonl").write_bytes(log)
    audited = work.child("audit", "cells.jsonl", "--policy", "policy.yaml", "--json").json
    assert (audited["decision"], audited["arms"]["baseline"]) == ("promote", None)
    assert audited["arms"]["candidate"] == told["arms"]["candidate"]


def test_a_bad_candidate_alone_ends_in_a_hold_that_asks_for_a_baseline(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, fault=["bad-rate=1"]) as candidate:
        run = work.child(*work.arguments(None, candidate.url, "--store", "run.db", "--json"))
        again = work.child(*work.arguments(None, candidate.url, "--store", "run.db", "--json"))
    assert (run.code, run.json["decision"], run.json["reason"]) == (10, "hold", "AlarmWithoutBaseline")
    assert (run.json["rollback"], run.json["replicates"]) == ("Refused", [])
    assert run.json["what_would_change"][0].startswith("A new run with --baseline")
    assert "ALARM: promotion is blocked, rollback refused since a replicate needs a baseline" in run.lines
    assert again.out == run.out  # it is over: nothing is measured again
    overridden = work.child("override", "run.db", "--promote", "--reason", "a known quirk of the checks")
    assert overridden.code == 0


def test_a_body_that_a_candidate_alone_refuses_could_not_be_measured(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, fault=["http-400=#5"]) as candidate:
        run = work.child(*work.arguments(None, candidate.url, "--store", "run.db", "--json"))
    assert (run.code, run.json["reason"]) == (1, "CaseUnusable")
    assert (
        "without a baseline nothing tells whether the prompt or the candidate is at fault" in run.json["sentences"][0]
    )
    assert run.json["arms"]["candidate"]["requests"] == 1


def test_a_candidate_alone_that_dies_is_unavailable(tmp_path: Path) -> None:
    work = bench(tmp_path)

    def kill(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 3:
            candidate.kill()

    with start_simulated(seed=2) as candidate:
        decision = work.run(work.request(None, candidate.url), Watch(acts=[kill])).verdict.decision
    assert (decision.reason, decision.rollback) == ("CandidateUnavailable", "Allowed")
    assert "What to roll back to was no part of this run." in decision.sentences


def test_a_run_of_a_candidate_alone_resumes_and_is_not_taken_for_another(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)

    def stop(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work.run(work.request(None, healthy.url), Watch(acts=[stop]))
    with start_simulated(seed=2, text_seed=9) as other:
        both = work.child(*work.arguments(other.url, healthy.url, "--store", "run.db"))
    assert both.code == 2
    assert f"baseline: the store was begun with none, now {other.url} is asked for" in both.said
    shared = work.child(*work.arguments(None, healthy.url, "--store", "run.db", "--isolation", "shared"))
    assert shared.code == 2
    assert "isolation: the store was begun with exclusive, now shared is asked for" in shared.said
    run = work.child(*work.arguments(None, healthy.url, "--store", "run.db", "--json"))
    assert (run.code, run.json["arms"]["candidate"]["requests"]) == (0, 16)
    gate, _ = stored(tmp_path / "run.db")
    assert len(measured(gate, CANDIDATE)) == 16


def test_the_resume_command_of_a_candidate_alone_names_what_was_given(
    healthy: SimulatedServer, earlier: Bench, tmp_path: Path
) -> None:
    work = Bench(tmp_path, earlier.set_path, earlier.policy_path)
    files = ["--replay-set", str(earlier.set_path), "--policy", str(earlier.policy_path), "--seed", "5"]
    old = str(earlier.folder / "old.db")
    asked = ["run", "--candidate", healthy.url, *files, "--store", "run.db"]
    asked += ["--isolation", "shared", "--baseline-store", old, "--baseline-max-age", "3"]
    with start_simulated(seed=3, text_seed=9, time_scale=1) as slow:
        asked[2] = slow.url
        process = start(asked, tmp_path)
        while not (tmp_path / "run.db").exists() or not stored_cells(tmp_path / "run.db"):
            assert process.poll() is None
        process.terminate()
        stopped = ended(process)
        words = stopped.lines[-1].split()
        assert stopped.code == 143
        for pair in (["--isolation", "shared"], ["--baseline-store", old], ["--baseline-max-age", "3"]):
            assert pair[1] == words[words.index(pair[0]) + 1]
        assert "--baseline" not in words
    del work


def stored_cells(path: Path) -> int:
    try:
        return len(stored(path)[0].measured)
    except Exception:
        return 0  # it is being created


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--aa"], "the A/A check (--aa, or aaCheck of policy test) needs a baseline that serves nobody else, and no"),
        (["--baseline-model", "x"], "--baseline-model is given and --baseline is not (allowed: both, or neither)"),
        (["--baseline-insecure"], "--baseline-insecure is given and --baseline is not (allowed: both, or neither)"),
    ],
)
def test_what_needs_a_baseline_is_bad_input_without_one(more: list[str], said: str, tmp_path: Path) -> None:
    work = bench(tmp_path)
    run = work.child(*work.arguments(None, "http://127.0.0.1:9", *more))
    assert run.code == 2
    assert said in run.said


def test_a_flag_that_reads_the_baselines_text_is_bad_input_without_one(tmp_path: Path) -> None:
    flags = [{"name": "same", "checks": ["equal_to_baseline"]}]
    work = bench(tmp_path, checks=[{"type": "EqualToBaseline"}], flags=flags)
    run = work.child(*work.arguments(None, "http://127.0.0.1:9"))
    assert run.code == 2
    assert "flag same of policy test reads check equal_to_baseline, and no --baseline was given" in run.said


def test_a_run_file_may_leave_the_baseline_out_and_name_isolation_and_a_stored_one(
    healthy: SimulatedServer, earlier: Bench
) -> None:
    spec: dict[str, Any] = {"candidate": {"url": healthy.url}, "replaySet": "set.jsonl", "policy": "policy.yaml"}
    spec |= {"seed": 5, "isolation": "Shared", "baselineStore": "old.db", "baselineMaxAgeDays": 2, "store": "file.db"}
    document = {"apiVersion": "prefillgate.io/v1alpha1", "kind": "Run", "spec": spec}
    (earlier.folder / "gate.yaml").write_text(json.dumps(document), encoding="utf-8")
    run = earlier.child("run", "gate.yaml", "--json")
    assert run.code == 0
    assert (run.json["arms"]["baseline"], run.json["shape"]["isolation"]) == (None, "shared")
    assert run.json["stored_baseline"]["store"] == "old.db"
    exclusive = earlier.child("run", "gate.yaml", "--json", "--isolation", "exclusive", "--store", "other.db")
    assert exclusive.json["shape"]["isolation"] == "exclusive"


def test_a_dry_run_of_a_candidate_alone_plans_no_baseline_and_no_replicate(earlier: Bench) -> None:
    asked = earlier.arguments(None, "http://127.0.0.1:9", "--dry-run", "--baseline-store", "old.db", "--json")
    plan = earlier.child(*asked).json
    assert plan["baseline"] is None
    assert (plan["prefills"]["total"], plan["prefills"]["candidate"], plan["prefills"]["replicate_most"]) == (16, 16, 0)
    assert plan["false_rollback"] == 0
    assert plan["stored_baseline"].startswith("Stored baseline of old.db (run set-5, under an hour old")
    page = earlier.child(*asked[:-1]).out.decode()
    assert "none: the candidate alone" in page
    assert "Stored baseline of old.db" in page


# A stored baseline


def test_a_stored_baseline_is_shown_everywhere_and_decide_recomputes_it_to_the_byte(
    healthy: SimulatedServer, earlier: Bench
) -> None:
    gate, _ = stored(earlier.folder / "old.db")
    kept = sum(1 for event in gate.scored if event.cell.arm == BASELINE)
    run = earlier.child(
        *earlier.arguments(None, healthy.url, "--store", "with.db", "--json", "--baseline-store", "old.db")
    )
    assert run.code == 0
    told = run.json["stored_baseline"]
    assert (told["store"], told["run_id"], told["arm"]) == ("old.db", "set-5", "baseline")
    assert (told["requests"], told["bad_requests"], told["prefills"], told["bad_prefills"]) == (kept, 0, kept, 0)
    assert (told["model"], told["build"]) == ("simulated-7b-q8_0.gguf", "b11549-simulated")
    assert 0 <= told["age_days"] < 1
    assert run.json["arms"]["baseline"] is None
    assert run.json["comparison"]["fisher_by_prefill"] is None
    sentence = next(said for said in run.json["sentences"] if said.startswith("Stored baseline of old.db"))
    assert sentence.endswith("It is shown for comparison and decides nothing.")
    assert sentence in run.lines
    assert not [said for said in run.json["sentences"] if "never seen to pass" in said]
    assert earlier.child("decide", "with.db", "--json").out == run.out
    summary = " ".join(earlier.child("decide", "with.db").out.decode().split())
    assert re.search("stored baseline (requests )?0 of", summary)  # stacked where COLUMNS is small
    html = earlier.child("report", "with.db", "--format", "html").out.decode()
    assert "shown for comparison, decides nothing" in html
    assert (
        "stored baseline, under an hour old" in earlier.child("report", "with.db", "--format", "markdown").out.decode()
    )
    assert 'name="stored_baseline"' in earlier.child("report", "with.db", "--format", "junit").out.decode()


def test_it_may_be_shown_beside_a_run_on_two_servers_and_beside_one_that_is_over(
    healthy: SimulatedServer, earlier: Bench
) -> None:
    with start_simulated(seed=2, text_seed=9) as candidate:
        asked = earlier.arguments(healthy.url, candidate.url, "--store", "both.db", "--json")
        without = earlier.child(*asked)
        run = earlier.child(*asked, "--baseline-store", "old.db")
        again = earlier.child(*asked, "--baseline-store", "old.db")
        plain = earlier.child(*asked)
    assert (without.code, without.json["stored_baseline"]) == (0, None)
    assert (run.code, run.json["stored_baseline"]["run_id"]) == (0, "set-5")
    assert run.json["arms"] == without.json["arms"]
    assert again.out == run.out == plain.out  # written down once; its age is that of the first look
    assert len(shown_in(earlier.folder / "both.db")) == 1


def test_a_promoted_candidate_alone_serves_as_the_next_baseline(healthy: SimulatedServer, earlier: Bench) -> None:
    first = earlier.child(*earlier.arguments(None, healthy.url, "--store", "first.db", "--json"))
    assert first.code == 0
    second = earlier.child(
        *earlier.arguments(None, healthy.url, "--store", "second.db", "--json", "--baseline-store", "first.db")
    )
    assert (second.json["stored_baseline"]["arm"], second.json["stored_baseline"]["prefills"]) == ("candidate", 16)


def test_what_does_not_fit_is_bad_input_that_names_it(earlier: Bench, tmp_path: Path) -> None:
    def refused(*more: str, of: Bench = earlier) -> str:
        old = str(earlier.folder / "old.db")
        run = of.child(*of.arguments(None, "http://127.0.0.1:9", "--store", "new.db", "--baseline-store", old, *more))
        assert run.code == 2, run.said
        assert not (of.folder / "new.db").exists()
        return run.said

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    other = bench(tmp_path / "a")
    write_set(other.set_path, 5, max_tokens=100)
    assert "case case-0 differs: max_tokens was 200, now 100" in refused(of=other)
    write_set(other.set_path, 5, temperature=0.5)
    assert "case case-0 differs: sampling was greedy, now random" in refused(of=other)
    checks = bench(tmp_path / "b", checks=[{"type": "NotEmpty"}])
    assert "check loop on case case-" in refused(of=checks)
    assert "now not run" not in refused(of=checks) and "not run now" in refused(of=checks)
    flags = bench(tmp_path / "c", flags=[{"name": "empty", "checks": ["not_empty"]}])
    assert "bad meant bad (every check), now empty (not_empty)" in refused(of=flags)
    assert "more than 1e-07 days" in refused("--baseline-max-age", "0.0000001")
    missing = earlier.child(*earlier.arguments(None, "http://127.0.0.1:9", "--baseline-store", "nothing.db"))
    assert missing.code == 2 and "nothing.db" in missing.said
    itself = earlier.child(
        *earlier.arguments(None, "http://127.0.0.1:9", "--store", "old.db", "--baseline-store", "old.db")
    )
    assert itself.code == 2 and "is the store of this run itself" in itself.said


def test_fourteen_days_are_the_most_unless_another_age_is_allowed(
    healthy: SimulatedServer, earlier: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    from prefillgate.cli.errors import BadInput
    from prefillgate.cli.running import execute
    from prefillgate.replay.clock import SystemClock

    class Later(SystemClock):
        """The clock of a machine some days later."""

        def __init__(self, days: float) -> None:
            self._ahead = days * DAY

        def now(self) -> float:
            return super().now() + self._ahead

    def run(days: float, store: str, **more: Any) -> float:
        request = earlier.request(None, healthy.url, store, baseline_store=earlier.folder / "old.db", **more)
        finished = asyncio.run(execute(request, Watch(), Later(days)))
        finished.journal.close()
        assert finished.verdict.baseline_shown is not None
        return finished.verdict.baseline_shown.age_seconds / DAY

    assert 13.9 <= run(13.9, "young.db") < 14
    with pytest.raises(BadInput, match=r"it is 14\.\d days old, more than 14 days"):
        run(14.01, "old-one.db")
    assert run(20.0, "allowed.db", baseline_max_age_days=30.0) > 20
    with pytest.raises(BadInput, match="lies in the future"):
        run(-1.0, "early.db")


def test_a_damaged_baseline_store_could_not_be_measured(
    healthy: SimulatedServer, earlier: Bench, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes((earlier.folder / "old.db").read_bytes())
    connection = sqlite3.connect(broken)
    table = next(
        name for (name,) in connection.execute("select name from sqlite_master where type='table'") if "event" in name
    )
    connection.execute(f"delete from {table} where rowid = 5")
    connection.commit()
    connection.close()
    run = earlier.child(*earlier.arguments(None, healthy.url, "--store", "never.db", "--baseline-store", str(broken)))
    assert run.code == 1
    assert not (earlier.folder / "never.db").exists()


def test_a_candidate_alone_on_the_real_server(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    llama = real_llama(request, ("--metrics",))
    work = bench(tmp_path, cases=3, marginPercent=60, acceptance=[4], checks=[{"type": "NotEmpty"}], flags=FLAGS)
    write_set(work.set_path, 3, words=8, max_tokens=4)
    run = work.child(*work.arguments(None, llama.url, "--store", "run.db", "--json"))
    assert (run.code, run.json["decision"]) == (0, "promote"), run.said
    assert (run.json["arms"]["candidate"]["prefills"], run.json["arms"]["baseline"]) == (4, None)
    assert work.child("decide", "run.db", "--json").out == run.out


FLAGS = [{"name": "empty", "checks": ["not_empty"]}]  # four tokens are always cut
