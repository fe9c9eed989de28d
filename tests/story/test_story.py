"""`prefillgate demo --story` as a person runs it: every figure held against the store and the servers' truth."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from prefillgate.cli.errors import CouldNotMeasure
from prefillgate.cli.story import tell, truth_path
from prefillgate.cli.story_prompts import LONG
from prefillgate.cli.story_server import StoryServer
from prefillgate.cli.story_telling import not_as_told, page, read_story, verdict_lines
from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE
from prefillgate.core.evalue import pair_factor
from prefillgate.core.exact import boschloo_one_sided, fisher_one_sided
from prefillgate.core.journal import CellChecked, CellMeasured, Difference, EpochSeen, Event, Planned, Purpose
from prefillgate.evidence import MemoryJournal, SqliteJournal, StoreError

Json = dict[str, Any]
NAME = "story.db"


def command(*arguments: str, folder: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `prefillgate` as a process in `folder`."""
    return subprocess.run(
        [sys.executable, "-m", "prefillgate", *arguments],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
        **({"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}),
    )


@dataclass
class Played:
    """The story, played once, and what the other commands say of its store."""

    folder: Path
    ended: subprocess.CompletedProcess[str]

    @property
    def store(self) -> Path:
        return self.folder / NAME

    @cached_property
    def lines(self) -> list[str]:
        return [" ".join(line.split()) for line in self.ended.stdout.splitlines()]

    @cached_property
    def events(self) -> tuple[Event, ...]:
        with SqliteJournal.open_readonly(self.store) as journal:
            return journal.events()

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @cached_property
    def cells(self) -> list[Json]:
        return [json.loads(line) for line in self._cell_log.splitlines()]

    @cached_property
    def _cell_log(self) -> str:
        told = command("cells", NAME, "--json", folder=self.folder)
        assert told.returncode == 0, told.stderr
        return told.stdout

    def screen(self, arm: str) -> list[Json]:
        """Cells before the replicate, on the two long prompts."""
        return [c for c in self.cells if c["arm"] == arm and not c["replicate"] and c["case_id"] in LONG]

    @property
    def replicate(self) -> list[Json]:
        return [cell for cell in self.cells if cell["replicate"]]

    def audit(self, log: list[Json] | None = None) -> Json:
        """What `audit --json -` answers, over the whole cell log or over some of its lines."""
        text = self._cell_log if log is None else "\n".join(map(json.dumps, log))
        told = command("audit", "--json", "-", folder=self.folder, stdin=text)
        assert told.returncode == 0, told.stderr
        answer: Json = json.loads(told.stdout)
        return answer

    @cached_property
    def decided(self) -> Json:
        told = command("decide", NAME, "--json", folder=self.folder)
        assert told.returncode == 10, told.stderr
        answer: Json = json.loads(told.stdout)
        return answer

    def truth(self, arm: str) -> list[Json]:
        """What the simulated server says really happened in its counted requests, in order."""
        text = truth_path(self.store, arm).read_text(encoding="utf-8")
        return [line for line in map(json.loads, text.splitlines()) if line["ordinal"] is not None]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("story")
    return Played(folder, command("demo", "--story", "--store", NAME, folder=folder))


def bad(cells: list[Json]) -> int:
    return sum(cell["bad"] for cell in cells)


def fresh(cells: list[Json]) -> list[Json]:
    return [cell for cell in cells if cell["class"] == "fresh"]


# -- what it prints


def test_it_ends_as_told_with_rollback_refused_and_then_not_confirmed(played: Played) -> None:
    assert played.ended.returncode == 0, played.ended.stderr
    assert "NOT as told" not in played.ended.stderr
    assert played.lines[-2:] == [
        "At the alarm: rollback refused; 11 bad requests hang off 2 bad prefills.",
        "Replicate: not confirmed, 0 of 8 fresh prefills bad (rate < 0.312 at 95 %); rollback refused.",
    ]


def test_it_fits_one_screen(played: Played) -> None:
    lines = played.ended.stdout.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100


def test_it_names_its_store_first_and_says_how_to_look_further(played: Played) -> None:
    assert played.ended.stderr.splitlines()[0] == f"store: {NAME}"
    assert [line for line in played.lines if re.fullmatch(rf"store: {NAME}, \d+\.\d s", line)]
    assert {f"prefillgate cells {NAME}", f"prefillgate decide {NAME}"} < set(played.lines)
    assert f"prefillgate cells {NAME} --json | prefillgate audit -" in played.lines


def test_the_readings_are_the_counts_of_the_stored_cells(played: Played) -> None:
    candidate, baseline = played.screen(CANDIDATE), played.screen(BASELINE)
    for arm, cells in ((CANDIDATE, candidate), (BASELINE, baseline)):
        units = fresh(cells)
        wanted = f"{arm} {bad(cells)} of {len(cells)} bad {bad(units)} of {len(units)} bad"
        assert wanted in played.lines
    assert (bad(candidate), len(candidate), bad(baseline), len(baseline)) == (11, 12, 0, 20)
    assert (bad(fresh(candidate)), len(fresh(candidate)), bad(fresh(baseline)), len(fresh(baseline))) == (2, 2, 0, 2)


def test_the_tests_are_computed_from_those_counts(played: Played) -> None:
    by_request = fisher_one_sided(11, 12, 0, 20)
    by_prefill, exact = fisher_one_sided(2, 2, 0, 2), boschloo_one_sided(2, 2, 0, 2)
    wanted = f"one-sided p Fisher {by_request:.1e} Fisher {by_prefill:.3g}, Boschloo {exact:.3g}"
    assert wanted == "one-sided p Fisher 9.3e-08 Fisher 0.167, Boschloo 0.0625"
    assert wanted in played.lines
    assert (
        f"e-value - {pair_factor(True, False, 0.02, 0.40) ** 2:.3g} if they were a replicate; that confirms at 40"
        in (played.lines)
    )
    assert 'answer "Roll back!" alarm: promotion Blocked, rollback Refused, ReplicateDue' in played.lines


def test_each_row_of_the_replay_is_what_its_cells_say(played: Played) -> None:
    for case_id in LONG:
        for arm in ARMS:
            cells = [cell for cell in played.screen(arm) if cell["case_id"] == case_id]
            copies = [cell for cell in cells if cell["class"] == "copy"]
            counts = f"{len(cells)} {bad(cells)} {len(fresh(cells))} {len(copies)}"
            (tokens,) = {cell["prompt_tokens"] for cell in cells}
            ((cached, processed),) = {(cell["cached_tokens"], cell["processed_tokens"]) for cell in copies}
            assert f"{case_id} {arm} {counts} {tokens:,} {cached:,} cached + {processed:,}" in played.lines
    assert "all prompts baseline 95 0 12 83" in played.lines
    assert "all prompts candidate 12 11 2 10" in played.lines


def test_the_seconds_are_those_the_servers_reported(played: Played) -> None:
    cells = [*played.screen(BASELINE), *played.screen(CANDIDATE)]
    spans = []
    for wanted in ("fresh", "copy"):
        times = sorted((c["prefill_ms"] + c["decode_ms"]) / 1000 for c in cells if c["class"] == wanted)
        spans.append(f"{times[0]:.3g} to {times[-1]:.3g}")
    assert f"Seconds as reported, none slept: {spans[0]} with a prefill, {spans[1]} as a copy." in (played.lines)


def test_the_replicate_is_eight_clean_candidate_prefills_and_no_baseline_one(played: Played) -> None:
    assert [cell["arm"] for cell in played.replicate] == [CANDIDATE] * 8
    assert (bad(played.replicate), len(fresh(played.replicate))) == (0, 8)
    assert {cell["cached_tokens"] for cell in played.replicate} == {0}
    assert "3. THE REPLICATE: fresh prefills (cache_prompt: false), kept apart by a restart of the candidate." in (
        played.lines
    )
    assert "candidate 0 of 8 bad, cached tokens 0; baseline prefills spent: 0. Ended: clean." in played.lines
    assert "n = 10, k = 2: 65 more clean prefills would promote. Cause: Unverified." in played.lines


# -- what the other commands make of the store


def test_decide_gives_the_storys_end(played: Played) -> None:
    answer = played.decided
    assert (answer["decision"], answer["promotion"], answer["rollback"]) == ("hold", "Blocked", "Refused")
    assert (answer["reason"], answer["cause"]) == ("MoreEvidenceNeeded", "Unverified")
    assert answer["what_would_change"][0] == "65 more clean fresh prefills would promote."
    (replicate,) = answer["replicates"]
    assert (replicate["ending"], replicate["separation"], replicate["pairs"]) == ("clean", "restart", [])
    assert (replicate["candidate_bad"], replicate["candidate_units"]) == (0, 8)
    assert replicate["candidate_rate_upper"] == pytest.approx(1 - 0.05 ** (1 / 8), rel=1e-12)
    named = {difference["area"] for difference in answer["differences"]}
    assert named == {"layer placement", "draft head"}


def test_decide_and_audit_restate_the_arms_alike(played: Played) -> None:
    audited = played.audit()
    for arm in ARMS:
        for name in ("requests", "prefills", "decision_prefills", "copies", "partial", "unknown", "orphans"):
            assert audited["arms"][arm][name] == played.decided["arms"][arm][name], (arm, name)
        for name in ("bad_requests", "bad_prefills", "bad_for_promotion", "request_interval", "prefill_interval"):
            assert audited["arms"][arm][name] == played.decided["arms"][arm][name], (arm, name)


def test_audit_of_the_cell_log_gives_the_storys_end(played: Played) -> None:
    answer = played.audit()
    candidate, baseline = answer["arms"][CANDIDATE], answer["arms"][BASELINE]
    assert (candidate["requests"], candidate["prefills"], candidate["copies"]) == (20, 10, 10)
    assert (candidate["bad_requests"], candidate["bad_prefills"]) == (11, 2)
    assert (candidate["decision_prefills"], candidate["bad_for_promotion"]) == (10, 2)
    assert (baseline["requests"], baseline["prefills"], baseline["copies"]) == (95, 12, 83)
    assert (baseline["bad_requests"], baseline["bad_prefills"]) == (0, 0)
    assert (answer["promotion"], answer["rollback"], answer["reason"]) == ("Blocked", "Refused", "MoreEvidenceNeeded")
    assert answer["what_would_change"][0] == "65 more clean fresh prefills would promote."
    (replicate,) = answer["replicates"]
    assert (replicate["ending"], replicate["candidate_units"], replicate["separation"]) == ("clean", 8, "restart")


def test_audit_of_the_cells_before_the_replicate_gives_the_alarm(played: Played) -> None:
    answer = played.audit([cell for cell in played.cells if not cell["replicate"]])
    assert (answer["promotion"], answer["rollback"], answer["reason"]) == ("Blocked", "Refused", "ReplicateDue")
    assert answer["comparison"]["fisher_by_request"] == pytest.approx(9.300560637795247e-08, rel=1e-9)
    assert answer["comparison"]["fisher_by_prefill"] == pytest.approx(1 / 6, rel=1e-12)
    assert answer["comparison"]["boschloo_by_prefill"] == pytest.approx(0.0625, rel=1e-9)
    assert answer["arms"][CANDIDATE]["prefills"] == 2
    assert answer["arms"][BASELINE]["requests"] == 95


def test_audit_says_something_else_when_one_line_does(played: Played) -> None:
    log = [cell for cell in played.cells if not cell["replicate"]]
    first = next(place for place, cell in enumerate(log) if cell["arm"] == CANDIDATE)
    changed = [
        cell | {"bad": False, "flag_outcomes": None} if place == first else cell for place, cell in enumerate(log)
    ]
    answer = played.audit(changed)
    assert answer["arms"][CANDIDATE]["bad_requests"] == 10


# -- against what really happened


def test_every_cell_reports_what_the_servers_truth_files_say(played: Played) -> None:
    for arm in ARMS:
        cells, truth = [cell for cell in played.cells if cell["arm"] == arm], played.truth(arm)
        assert len(cells) == len(truth) == {BASELINE: 95, CANDIDATE: 20}[arm]
        for cell, line in zip(cells, truth, strict=True):
            for name in ("prompt_tokens", "cached_tokens", "processed_tokens", "output_tokens", "finish_reason"):
                assert cell[name] == line[name], (cell["cell_id"], name)
            assert (cell["class"] == "fresh") == line["fresh"]
            assert cell["bad"] == (line["outcome"] == "bad")
            assert f"<__media_{cell['server_epoch']}__>" == line["epoch"]
            assert cell["request_id"] == line["id"]


def test_cells_of_one_unit_ride_on_one_real_prefill(played: Played) -> None:
    for arm in ARMS:
        cells = [cell for cell in played.cells if cell["arm"] == arm]
        pairs = {(c["unit"], t["epoch"], t["prefill"]) for c, t in zip(cells, played.truth(arm), strict=True)}
        assert len(pairs) == len({unit for unit, _, _ in pairs}) == {BASELINE: 12, CANDIDATE: 10}[arm]


def test_the_replay_was_sent_without_a_knob_and_the_replicate_with_it(played: Played) -> None:
    candidate = played.truth(CANDIDATE)
    assert {line["cache_prompt"] for line in (*played.truth(BASELINE), *candidate[:12])} == {True}
    assert {line["cache_prompt"] for line in candidate[12:]} == {False}
    assert {cell["cold_proof"] for cell in played.cells if not cell["replicate"]} == {None}
    assert {cell["cold_proof"] for cell in played.replicate} == {"cache_off"}


def test_the_one_good_cell_of_the_candidate_is_a_copy_of_a_bad_prefill(played: Played) -> None:
    (good,) = [cell for cell in played.screen(CANDIDATE) if not cell["bad"]]
    (line,) = [line for line in played.truth(CANDIDATE) if line["id"] == good["request_id"]]
    assert (good["class"], good["cached_tokens"], good["processed_tokens"]) == ("copy", 16_892, 4)
    assert line["state"] == "bad"


def test_both_arms_say_the_same_where_they_are_sound(played: Played) -> None:
    said = {
        arm: {(c["case_id"], c["output_sha256"]) for c in played.cells if c["arm"] == arm and not c["bad"]}
        for arm in ARMS
    }
    assert said[CANDIDATE] <= said[BASELINE]


# -- the store itself


def test_the_journal_holds_the_storys_plan_and_every_probe(played: Played) -> None:
    (plan,) = played.of(Planned)
    assert (len(plan.cases), plan.policy.name, plan.policy.acceptance) == (12, "standard", (32, 56, 75))
    assert (plan.policy.throughput.required, plan.policy.throughput.max_pairs) == (False, 0)
    assert plan.policy.replicate.gap_seconds == 600
    assert all(isinstance(difference, Difference) and difference.declared for difference in plan.differences)
    probes = [(seen.arm, seen.engine, seen.counter_alive, seen.cold_proof) for seen in played.of(EpochSeen)]
    assert probes == [(arm, "llama.cpp", True, "cache_off") for arm in (BASELINE, CANDIDATE, CANDIDATE)]
    lives = [seen.server_epoch for seen in played.of(EpochSeen)]
    assert len(set(lives)) == 3


def test_every_cell_was_checked_by_the_real_checks(played: Played) -> None:
    checked = {event.cell_id: event.outcomes for event in played.of(CellChecked)}
    measured = played.of(CellMeasured)
    assert sorted(checked) == [event.cell_id for event in measured] == list(range(115))
    bad_ids = {cell["cell_id"] for cell in played.cells if cell["bad"]}
    for cell_id, outcomes in checked.items():
        failing = [outcome.check for outcome in outcomes if outcome.bad]
        assert failing == (["bare_verdict"] if cell_id in bad_ids else [])
    with SqliteJournal.open_readonly(played.store) as journal:
        texts = [journal.texts(cell_id) for cell_id in sorted(bad_ids)]
    assert {text.content for text in texts if text is not None} == {"VERDICT: LGTM"}


def flipped(events: tuple[Event, ...], cell_id: int) -> tuple[Event, ...]:
    """The journal with every outcome of one cell turned around, through a journal that keeps the rules."""
    planned, *rest = events
    assert isinstance(planned, Planned)
    with MemoryJournal(planned) as journal:
        for event in rest:
            if isinstance(event, CellChecked) and event.cell_id == cell_id:
                turned = [replace(o, bad=not o.bad) if o.check == "bare_verdict" else o for o in event.outcomes]
                event = replace(event, outcomes=tuple(turned))
            journal.append(event)
        return journal.events()


def test_another_outcome_in_the_store_is_another_story(played: Played) -> None:
    measured = played.of(CellMeasured)
    copy = next(e for e in measured if e.purpose is Purpose.SCREEN and e.cell.cached_tokens)
    found = read_story(flipped(played.events, copy.cell_id))
    assert "candidate, bad requests: 10 of 12, the story has 11 of 12" in not_as_told(found)
    assert "10 bad requests hang off 2 bad prefills" in verdict_lines(found)[0]


def test_a_bad_baseline_prefill_in_the_store_changes_every_reading(played: Played) -> None:
    found = read_story(flipped(played.events, 0))
    lines = [" ".join(line.split()) for line in page(found)]
    assert "baseline 1 of 20 bad 1 of 2 bad" in lines
    assert "all prompts baseline 95 1 12 83" in lines
    factors = pair_factor(True, True, 0.02, 0.40) * pair_factor(True, False, 0.02, 0.40)
    assert f"e-value - {factors:.3g} if they were a replicate; that confirms at 40" in lines


def test_a_bad_cell_in_the_replicate_is_not_told_as_clean(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    last = played.of(CellMeasured)[-1]
    assert tell(flipped(played.events, last.cell_id), played.store, 1.0) == 1
    said = capsys.readouterr()
    assert "1 of 8 fresh prefills bad" in said.out
    assert "k = 3" in said.out and "no number of clean prefills promotes" in said.out
    assert "n and k: (10, 3), the story has (10, 2)" in said.err


def test_the_unchanged_journal_tells_the_printed_page_again(played: Played) -> None:
    planned = played.of(Planned)[0]
    with MemoryJournal(planned) as journal:
        for event in played.events[1:]:
            journal.append(event)
        found = read_story(journal.events())
    printed = played.ended.stdout
    assert "\n".join(page(found)) in printed
    assert printed.endswith("\n".join(verdict_lines(found)) + "\n")


# -- around it


def test_a_store_that_is_there_is_refused_and_stays_as_it_is(played: Played) -> None:
    before = played.store.read_bytes()
    again = command("demo", "--story", "--store", NAME, folder=played.folder)
    assert again.returncode == 2
    assert f"{NAME}: something is there already, and the story overwrites nothing" in again.stderr
    assert again.stdout == ""
    assert played.store.read_bytes() == before


def listening(url: str) -> bool:
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_its_servers_end_with_it(played: Played) -> None:
    plan = played.of(Planned)[0]
    assert not listening(plan.baseline_url)
    assert not listening(plan.candidate_url)


def urls(store: Path) -> tuple[str, str] | None:
    """The servers' addresses, once the store holds its plan."""
    if not store.exists():
        return None
    try:
        with SqliteJournal.open_readonly(store) as journal:
            plan = journal.events()[0]
    except StoreError:
        return None
    assert isinstance(plan, Planned)
    return plan.baseline_url, plan.candidate_url


@pytest.mark.parametrize(("how", "code"), [("SIGTERM", 143), ("SIGKILL", -9)])
def test_its_servers_end_when_it_is_ended_in_the_middle(how: str, code: int, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "prefillgate", "demo", "--story"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        found: tuple[str, str] | None = None
        while found is None and process.poll() is None:
            stores = list(tmp_path.glob(".prefillgate/story-*/story.db"))
            found = urls(stores[0]) if stores else None
            time.sleep(0.02)
        assert found is not None
        os.kill(process.pid, getattr(signal, how))
        assert process.wait() == code
    while any(map(listening, found)):
        time.sleep(0.05)
    assert not any(map(listening, found))


def test_a_server_that_cannot_start_is_said_in_its_own_words(tmp_path: Path) -> None:
    server = StoryServer((), tmp_path / "truth.jsonl", ("no-such-fault=1",))
    with pytest.raises(CouldNotMeasure, match=r"did not start: [\s\S]*unknown fault 'no-such-fault'"), server:
        pass


def test_a_restarted_server_has_its_old_address_and_another_life(tmp_path: Path) -> None:
    import httpx

    with StoryServer((), tmp_path / "truth.jsonl") as server:
        before = server.url, httpx.get(f"{server.url}/props", trust_env=False).json()["media_marker"]
        server.restart()
        after = server.url, httpx.get(f"{server.url}/props", trust_env=False).json()["media_marker"]
    assert before[0] == after[0]
    assert before[1] != after[1]
