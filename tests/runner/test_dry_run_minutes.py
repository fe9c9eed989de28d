"""What `run --dry-run` and `--max-minutes` time on simulated and real servers, and what they make of it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefillgate.cli.main import main
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.minutes import mean_place, pace
from prefillgate.replay.replay_set import load_replay_set
from tests.support.llama import real_llama
from tests.support.runs import PROBES, Bench, bench, ended, start, stored, write_set
from tests.support.simulated import SimulatedServer, start_simulated

Dry = Callable[..., tuple[int, str, str]]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    found = bench(tmp_path)
    uneven(found.set_path)
    return found


def uneven(set_path: Path) -> None:
    """Three prompts of which the second is the shortest and the third the longest."""
    write_set(set_path, cases=3)
    lines = [json.loads(line) for line in set_path.read_text().splitlines()]
    for line, words in zip(lines, (60, 20, 400), strict=True):
        line["body"]["prompt"] = f"{line['custom_id']} " + " ".join(f"word{number}" for number in range(words))
    set_path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def dry(work: Bench, capsys: pytest.CaptureFixture[str]) -> Dry:
    def command(baseline: str, candidate: str, *more: str) -> tuple[int, str, str]:
        code = main(work.arguments(baseline, candidate, "--dry-run", *more))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def cases_of(server: SimulatedServer) -> list[dict[str, Any]]:
    return server.truth()[PROBES:]


def test_a_short_and_the_longest_case_are_timed_on_each_server_and_kept_nowhere(work: Bench, dry: Dry) -> None:
    with start_simulated() as one, start_simulated(time_scale=0.2, noise_cv=0) as slow:
        code, out, error = dry(one.url, slow.url, "--json")
        sent = [cases_of(one), cases_of(slow)]
    told = json.loads(out)
    assert code == 0
    for lines in sent:
        assert [line["fresh"] for line in lines] == [True, True]
        assert [line["cache_prompt"] for line in lines] == [False, False]
        assert lines[0]["prompt_tokens"] < lines[1]["prompt_tokens"]
    for arm, lines in zip((BASELINE, CANDIDATE), sent, strict=True):
        timed = told["timed"][arm][0]["cells"]
        assert [cell["case_id"] for cell in timed] == ["case-1", "case-2"]
        assert [cell["prompt_tokens"] for cell in timed] == [line["prompt_tokens"] for line in lines]
        assert [cell["cached_tokens"] for cell in timed] == [0, 0]
    slow_cells = told["timed"][CANDIDATE][0]["cells"]
    for cell, line in zip(slow_cells, sent[1], strict=True):
        assert cell["seconds"] > 0.2 * line["decode_ms"] / 1000
    assert sorted(path.name for path in work.folder.iterdir()) == ["policy.yaml", "set.jsonl"]
    assert "candidate: timed case-2" in error and "it counts for nothing" in error


def test_the_minutes_follow_from_what_was_timed(work: Bench, dry: Dry) -> None:
    with start_simulated() as one, start_simulated(time_scale=0.1) as slow:
        told = json.loads(dry(one.url, slow.url, "--json")[1])
    place = mean_place([case.characters for case in load_replay_set(str(work.set_path)).cases])
    paces = {}
    for arm in (BASELINE, CANDIDATE):
        short, long = (cell["seconds"] for cell in told["timed"][arm][0]["cells"])
        span = pace((short, long), place)
        paces[arm] = {"least": span.least, "likely": span.likely, "most": span.most}
    assert told["cell_seconds"] == paces
    # Without pairs: 2 cells of the baseline pass and 16 of the candidate.
    for end, minutes in told["minutes"]["expected"].items():
        assert minutes == pytest.approx((2 * paces[BASELINE][end] + 16 * paces[CANDIDATE][end]) / 60)


def test_a_set_of_one_case_is_timed_by_it(work: Bench, dry: Dry) -> None:
    write_set(work.set_path, cases=1)
    with start_simulated() as one, start_simulated() as other:
        code, out, _ = dry(one.url, other.url, "--json")
        assert [len(cases_of(one)), len(cases_of(other))] == [1, 1]
    assert code == 0 and len(json.loads(out)["timed"][BASELINE][0]["cells"]) == 1


def test_a_candidate_alone_is_timed_alone(work: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    with start_simulated() as server:
        files = ["--replay-set", work.set_path.name, "--policy", work.policy_path.name]
        code = main(["run", "--candidate", server.url, *files, "--dry-run", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert list(told["timed"]) == [CANDIDATE] and told["cell_seconds"][BASELINE] is None


# What cannot be timed


def test_a_server_that_does_not_answer_is_named_and_the_plan_is_told_without_minutes(dry: Dry) -> None:
    with start_simulated() as server:
        code, out, error = dry(server.url, "http://127.0.0.1:9")
        assert code == 1
        assert "minutes          unknown: no cell could be timed, and --cell-seconds was not given" in out
        assert "promotes at      16 with 0 bad" in out
        assert "prefillgate: error: candidate: http://127.0.0.1:9" in error
        code, out, error = dry(server.url, "http://127.0.0.1:9", "--json")
    told = json.loads(out)
    assert (code, told["minutes"], told["cell_seconds"], told["timed"]) == (1, None, None, None)


def test_with_the_time_of_a_cell_no_server_is_asked(dry: Dry) -> None:
    code, out, error = dry("http://127.0.0.1:9", "http://127.0.0.1:10", "--cell-seconds", "2")
    assert (code, error) == (0, "")
    assert "minutes          about 36 s when nothing is bad" in out


def test_a_case_that_a_server_refuses_cannot_be_timed(dry: Dry) -> None:
    with start_simulated() as one, start_simulated(fault="http-400=1@case-2") as other:
        code, _, error = dry(one.url, other.url)
    assert code == 1
    assert f"candidate: {other.url}: case case-2 could not be timed: HttpError: HTTP 400" in error


def test_a_server_in_use_is_noted(dry: Dry) -> None:
    with start_simulated() as one, start_simulated(fault="other-traffic=1@case-2") as other:
        code, out, _ = dry(one.url, other.url)
    assert code == 0
    assert "timed            candidate: in use: other work ran beside case-2 (" in out


def test_a_server_that_never_rests_is_no_place_for_a_run_that_needs_it_alone(dry: Dry) -> None:
    with start_simulated() as one, start_simulated(fault="always-busy=2") as other:
        code, _, error = dry(one.url, other.url)
        assert code == 1
        assert f"candidate: {other.url} is in use by others and did not become idle" in error
        code, out, _ = dry(one.url, other.url, "--isolation", "shared")
    assert code == 0
    assert "timed            candidate: in use when it was asked: 2 running, 0 waiting" in out


def test_what_is_not_proven_fresh_is_said(dry: Dry) -> None:
    with start_simulated() as one, start_simulated(fault=["cached-absent=1", "timings-absent=1"]) as other:
        code, out, _ = dry(one.url, other.url)
    assert code == 0
    assert "timed            candidate: case-2 is not proven fresh" in out


# A limit of minutes


def test_a_run_beyond_its_minutes_is_refused_before_its_first_cell(work: Bench) -> None:
    with start_simulated() as one, start_simulated() as other:
        arguments = work.arguments(one.url, other.url, "--store", "run.db", "--max-minutes", "3")
        refused = work.child(*arguments, "--cell-seconds", "60")
        assert refused.code == 2
        assert "what decides in 3 min:" in refused.said or "no single change decides in 3 min:" in refused.said
        assert "prefillgate: error: --max-minutes 3: this plan takes about 18 min when nothing is bad" in refused.said
        assert one.truth() == other.truth() == []
        assert not (work.folder / "run.db").exists()
        # Timed on the servers themselves it fits, and the timed cells are none of the run's.
        done = work.child(*arguments)
        gate, _ = stored(work.folder / "run.db")
        assert len(one.truth()) == 2 * PROBES + 2 + 2
    assert done.code == 0
    assert "baseline: timed case-1" in done.said
    assert len(gate.measured) == 18


def test_the_minutes_are_the_end_of_a_run_that_was_let_begin(work: Bench) -> None:
    with start_simulated() as one, start_simulated(fault="stall=9:30") as other:
        arguments = work.arguments(one.url, other.url, "--store", "run.db")
        done = work.child(*arguments, "--max-minutes", "0.08", "--cell-seconds", "0.01", "--json")
        assert done.code == 10
        assert done.json["reason"] == "Deadline"
        again = work.child(*arguments, "--max-minutes", "2", "--cell-seconds", "60")
    assert again.code == 0
    assert "this run goes on and ends in 2 min at the latest" in again.said


def test_interrupted_while_it_times_it_can_be_given_again(work: Bench) -> None:
    with start_simulated(fault=f"stall={PROBES + 1}:60") as one, start_simulated() as other:
        child = start(work.arguments(one.url, other.url, "--store", "run.db", "--max-minutes", "5"), work.folder)
        while len(one.truth()) < PROBES or not one.busy():
            time.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        done = ended(child)
    assert done.code == 143
    assert done.lines[-1].startswith("prefillgate run ") and "--max-minutes 5" in done.lines[-1]


# The real server


def test_on_real_servers_the_minutes_lie_between_the_short_and_the_long_case(
    dry: Dry, request: pytest.FixtureRequest
) -> None:
    one = real_llama(request, ("--cache-ram", "0", "--metrics"))
    other = real_llama(request, ("--cache-ram", "0", "--metrics", "-ctk", "q8_0"))
    lines = [
        {"custom_id": "short", "prompt": "Colours: red, green,", "max_tokens": 4},
        {"custom_id": "long", "prompt": "The harbour master wrote down every ship. " * 40, "max_tokens": 4},
    ]
    Path("set.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "custom_id": line["custom_id"],
                    "method": "POST",
                    "url": "/v1/completions",
                    "body": {"model": "m", "temperature": 0, "prompt": line["prompt"], "max_tokens": 4},
                }
            )
            + "\n"
            for line in lines
        )
    )
    code, out, _ = dry(one.url, other.url, "--json")
    told = json.loads(out)
    assert code == 0
    for arm in (BASELINE, CANDIDATE):
        short, long = told["timed"][arm][0]["cells"]
        assert (short["case_id"], long["case_id"]) == ("short", "long")
        assert short["cached_tokens"] == long["cached_tokens"] == 0
        assert 0 < short["seconds"] < long["seconds"]
        assert long["prompt_tokens"] > 300
    spans = told["minutes"]["expected"]
    assert 0 < spans["least"] < spans["likely"] < spans["most"]
