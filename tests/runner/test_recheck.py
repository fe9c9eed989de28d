"""`prefillgate recheck`: a folder of small replays after a promotion, as a person or a timer runs it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prefillgate.core.cells import CANDIDATE
from tests.support.runs import Bench, Ended, bench, ended, start, stored
from tests.support.simulated import SimulatedServer, start_simulated

ASKED = ["--replay-set", "set.jsonl", "--policy", "policy.yaml", "--folder", "again"]


def recheck(work: Bench, promoted: str, *more: str) -> Ended:
    return work.child("recheck", "--promoted", promoted, *ASKED, *more)


def replays(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "again").glob("*.db"))


def test_each_call_takes_the_next_replay_of_the_folder(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    first = recheck(work, healthy.url, "--prefills", "3", "--seed", "9")
    assert first.code == 0, first.said
    assert first.out.decode().startswith("NO ALARM  set\nrollback        Refused\nreason          NoAlarm\n")
    assert "| fresh 3 of 3, bad 0, level 1 of 100" in first.said
    second = recheck(work, healthy.url, "--prefills", "4", "--json", "--quiet")
    assert (second.code, second.json["watch"]["replays"]) == (0, 2)
    assert (second.json["watch"]["prefills"], second.json["watch"]["prefills_since"]) == (4, 7)
    assert replays(tmp_path) == ["replay-0001.db", "replay-0002.db"]
    assert (tmp_path / "again" / "replay-0002.html").exists()
    assert stored(tmp_path / "again" / "replay-0001.db")[0].plan.seed == 9
    line = work.child("report", "again/replay-0002.db", "--format", "line").out.decode()
    assert line.startswith("[set] NO ALARM 0/4 cells bad on 4 prefills (0 of 4 bad). Rollback refused: NoAlarm.")
    assert work.child("decide", "again/replay-0002.db").code == 0
    eight = recheck(work, healthy.url, "--json", "--quiet")
    assert eight.json["watch"]["wanted"] == 8


def test_an_alarm_without_a_previous_profile_is_ten_and_the_next_call_with_one_answers_it(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, replicate={"gapSeconds": 0})
    with start_simulated(seed=2, text_seed=9, fault=["bad-rate=0.95"]) as promoted:
        alarm = recheck(work, promoted.url, "--json")
        assert (alarm.code, alarm.json["reason"]) == (10, "AlarmWithoutBaseline")
        assert "ALARM: rollback is refused until a replicate" in alarm.said
        last = work.child("explain", "again/replay-0001.db").out.decode().splitlines()[-1].split()
        assert last[:2] == ["prefillgate", "recheck"] and last[-2:] == ["--previous", "URL"]
        answered = work.child(*(word.replace("URL", healthy.url) for word in last[1:]))
    assert answered.code == 20, answered.said
    assert (answered.json["reason"], answered.json["replicates"][0]["number"]) == ("RegressionConfirmed", 3)
    assert answered.json["trigger"]["run_id"] == stored(tmp_path / "again" / "replay-0001.db")[0].plan.run_id
    assert replays(tmp_path) == ["replay-0001-replicate.db", "replay-0001.db"]


def test_replicates_are_numbered_on_from_the_run_that_promoted_and_through_the_folder(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, replicate={"gapSeconds": 0})
    judging = work.request(healthy.url, healthy.url, store="gate.db", first_replicate=5)
    with start_simulated(seed=2, text_seed=9) as candidate:
        work.run(replace(judging, candidate=replace(judging.candidate, url=candidate.url)))
    with (
        start_simulated(seed=2, text_seed=9, fault=["bad-rate=1"]) as promoted,
        start_simulated(seed=1, text_seed=9, fault=["bad-rate=1"]) as previous,
    ):
        asked = ("--previous", previous.url, "--promoted-by", "gate.db", "--json", "--quiet")
        one, two = (recheck(work, promoted.url, *asked) for _ in range(2))
    assert [(each.code, each.json["reason"]) for each in (one, two)] == [(10, "RegressionNotConfirmed")] * 2
    assert [each.json["replicates"][0]["number"] for each in (one, two)] == [5, 6]
    assert two.json["replicates"][0]["threshold"] == 80 * 4 * 5


def test_what_the_judging_run_declared_and_saw_cut_holds_for_the_replays(tmp_path: Path) -> None:
    work = bench(tmp_path, replicate={"gapSeconds": 0})
    short = work.set_path.read_text(encoding="utf-8").replace('"max_tokens": 200', '"max_tokens": 4')
    work.set_path.write_text(short, encoding="utf-8")
    with (
        start_simulated(seed=1, text_seed=9, build_info="b1") as previous,
        start_simulated(seed=2, text_seed=9, build_info="b2", fault=["bad-rate=#20-60"]) as promoted,
    ):
        asked = ("--declare", "build", "--store", "gate.db", "--quiet")
        gated = work.child(*work.arguments(previous.url, promoted.url, *asked))
        assert gated.code in (0, 20), gated.said
        again = ("--previous", previous.url, "--promoted-by", "gate.db", "--json", "--quiet")
        told = recheck(work, promoted.url, *again)
    assert told.json["reason"] == "RegressionConfirmed", told.said
    assert told.json["trigger"]["answers_cut"] is True
    assert [each["name"] for each in told.json["differences"]] == ["build"]


def test_an_interrupted_replay_says_the_command_that_goes_on_and_it_does(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=1, text_seed=9, time_scale=0.3) as server:
        process = start(["recheck", "--promoted", server.url, *ASKED, "--prefills", "6"], tmp_path)
        store = tmp_path / "again" / "replay-0001.db"
        while not store.exists() or len(stored(store)[0].measured) < 2:
            pass
        process.terminate()
        cut = ended(process)
        assert cut.code == 143
        words = cut.lines[-1].partition("prefillgate ")[2].split()
        gone_on = work.child(*words)
    assert gone_on.code == 0, gone_on.said
    assert replays(tmp_path) == ["replay-0001.db"]
    gate, _ = stored(store)
    assert gate.session == 1 and len(gate.scored) == 6


def test_a_time_limit_ends_a_replay_and_the_next_call_goes_on_with_it(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=1, text_seed=9, time_scale=0.3) as server:
        cut = recheck(work, server.url, "--max-minutes", "0.02", "--json", "--quiet")
        assert (cut.code, cut.json["reason"]) == (10, "Deadline")
        done = recheck(work, server.url, "--json", "--quiet")
    assert (done.code, done.json["reason"], done.json["watch"]["replays"]) == (0, "NoAlarm", 1)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--prefills", "0"], "--prefills"),
        (["--promoted-by", "none.db"], "none.db"),
        (["--previous", "not a url"], "--previous"),
        (["--promoted-model", "no-such-model"], "no-such-model"),
        (["--folder", "set.jsonl"], "--folder"),
        (["--folder", "set.jsonl/again"], "--folder set.jsonl/again: "),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_name(
    healthy: SimulatedServer, tmp_path: Path, more: list[str], words: str
) -> None:
    refused = recheck(bench(tmp_path), healthy.url, *more)
    assert refused.code == 2, refused.said
    assert words in refused.said


def test_a_folder_of_another_profile_is_not_gone_on_from(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    assert recheck(work, healthy.url, "--prefills", "2").code == 0
    with start_simulated(seed=2, text_seed=9) as other:
        refused = recheck(work, other.url)
    assert (refused.code, "cannot be gone on from: it is of" in refused.said) == (2, True)
    assert stored(tmp_path / "again" / "replay-0001.db")[0].measured[0].cell.arm == CANDIDATE
