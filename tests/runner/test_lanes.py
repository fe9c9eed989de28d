"""Several servers for one arm, and arms asked at the same time: what overlaps, what never does, what dies and resumes.

Overlap is read off the servers' own truth, never off a clock of ours.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellMeasured, Event, Purpose
from tests.runner.test_interruptions import until_cells
from tests.support.llama import real_llama
from tests.support.runs import Bench, Watch, bench, ended, generations, measured, probes, start, stored
from tests.support.simulated import SimulatedServer, start_simulated

Lines = list[dict[str, Any]]
SPEED = {"mode": "Require", "minOutputTokens": 8}


@contextmanager
def servers(count: int, seed: int, **options: Any) -> Iterator[list[SimulatedServer]]:
    """So many simulated servers of one profile."""
    with ExitStack() as stack:
        given = {"text_seed": 9, **options}
        yield [stack.enter_context(start_simulated(seed=seed + number, **given)) for number in range(count)]


def arguments(work: Bench, arms: tuple[list[SimulatedServer], list[SimulatedServer]], *more: str) -> list[str]:
    """The command line with every server of both arms."""
    named = [
        (flag, server.url) for flag, arm in zip(("--baseline", "--candidate"), arms, strict=True) for server in arm
    ]
    files = ["--replay-set", work.set_path.name, "--policy", work.policy_path.name, "--seed", "5"]
    return ["run", *(word for pair in named for word in pair), *files, "--store", "run.db", *more]


def cells(*of: SimulatedServer) -> Lines:
    """What the servers were really asked to generate, without the probes, in order of time."""
    return [line for line in generations(*of) if line["output_tokens"] != 2]


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["started_at"] < other["ended_at"] and other["started_at"] < one["ended_at"])


def overlapping(ones: Lines, others: Lines) -> int:
    """How many of `ones` ran beside one of `others`."""
    return sum(1 for one in ones if any(one is not other and overlap(one, other) for other in others))


def assert_one_at_a_time(server: SimulatedServer) -> None:
    for one, other in pairwise(generations(server)):
        assert one["ended_at"] <= other["started_at"]


def assert_nothing_lost(gate: Gate, *of: SimulatedServer) -> None:
    """Every generation but the probes is one cell in the store."""
    told = [event.cell.request_id for event in measured(gate, status=Status.OK)]
    assert sorted(map(str, told)) == sorted(str(line["id"]) for line in cells(*of))


def test_the_servers_of_an_arm_are_asked_at_the_same_time_and_the_arms_in_turn(tmp_path: Path) -> None:
    work = bench(tmp_path, throughput=SPEED, baselinePassPrefills=4)
    slow = {"time_scale": 0.05}
    with servers(2, 1, **slow) as baseline, servers(2, 11, **slow) as candidate:
        run = work.child(*arguments(work, (baseline, candidate), "--json"))
        assert run.code == 0, run.said
        gate, _ = stored(tmp_path / "run.db")
        for server in (*baseline, *candidate):
            assert_one_at_a_time(server)
        for one, other in (baseline, candidate):
            assert overlapping(cells(one), cells(other)) >= 4
        assert overlapping(cells(*baseline), cells(*candidate)) == 0
        assert_nothing_lost(gate, *baseline, *candidate)
        for arm, own in ((BASELINE, baseline), (CANDIDATE, candidate)):
            asked = [len(cells(server)) for server in own]
            assert abs(asked[0] - asked[1]) <= 2
            for lane, server in enumerate(own):
                ids = {line["id"] for line in cells(server)}
                assert ids == {e.cell.request_id for e in measured(gate, arm) if e.lane == lane}
    assert run.json["arms"]["candidate"]["decision_prefills"] == 16
    assert work.child("decide", "run.db", "--json").out == run.out
    shares = [note for note in run.json["notes"] if "servers; bad of scored cells on each" in note]
    assert [note.split(":")[0] for note in shares] == list(ARMS)
    assert "candidate 2" in run.said
    named = f"{candidate[0].url}, {candidate[1].url}"
    assert gate.plan.candidate_url == named
    assert named in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_arms_at_once_run_both_halves_of_a_pair_at_the_same_time(tmp_path: Path) -> None:
    work = bench(tmp_path, throughput=SPEED)
    slow = {"time_scale": 0.05}
    with servers(1, 1, **slow) as baseline, servers(1, 11, **slow) as candidate:
        run = work.child(*arguments(work, (baseline, candidate), "--arms-at-once", "--json"))
        gate, _ = stored(tmp_path / "run.db")
        assert run.code == 0, run.said
        assert_nothing_lost(gate, *baseline, *candidate)
        for server in (*baseline, *candidate):
            assert_one_at_a_time(server)
        truth = {line["id"]: line for line in cells(*baseline, *candidate)}
    halves: dict[int, dict[str, dict[str, Any]]] = {}
    for event in gate.measured.values():
        if event.purpose is Purpose.PAIR:
            halves.setdefault(event.pair or 0, {})[event.cell.arm] = truth[event.cell.request_id]
    assert len(halves) >= 6
    assert all(overlap(*pair.values()) for pair in halves.values())
    assert any("--arms-at-once" in note for note in run.json["notes"])
    assert work.child("decide", "run.db", "--json").out == run.out


def test_a_slow_server_of_the_candidate_weighs_as_much_as_a_quick_one_and_cannot_hide(tmp_path: Path) -> None:
    work = bench(tmp_path, acceptance=[16, 25, 35], alarm={"threshold": 1000}, replicate={"gapSeconds": 0})
    with (
        servers(1, 1) as baseline,
        servers(1, 11) as quick,
        servers(1, 12, time_scale=0.1, fault=["bad-rate=0.9"]) as sick,
    ):
        run = work.child(*arguments(work, (baseline, [*quick, *sick]), "--json"))
        screened = [event for event in stored(tmp_path / "run.db")[0].scored if event.purpose is Purpose.SCREEN]
    assert run.json["decision"] != "promote"
    # Dealt in turn, whoever is free: the slow server has the places that are its own.
    assert {(event.place or 0) % 2 for event in screened if event.lane == 0} == {0}
    assert {(event.place or 0) % 2 for event in screened if event.lane == 1} == {1}


def test_a_server_that_dies_blocks_the_promotion_the_others_reach_until_it_is_back(tmp_path: Path) -> None:
    work = bench(tmp_path)

    def die(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.lane == 1 and event.place == 5:
            candidate[1].kill()

    with servers(1, 1) as baseline, servers(2, 11) as candidate:
        request = work.request(baseline[0].url, candidate[0].url, more_candidates=(candidate[1].url,))
        decision = work.run(request, Watch(acts=[die])).verdict.decision
        gate, _ = stored(tmp_path / "run.db")
        assert (decision.decision, decision.reason, decision.promotion) == ("hold", "ServerLost", "Blocked")
        lost = measured(gate, CANDIDATE, Status.INVALID)
        assert {(event.lane, event.reason) for event in lost} == {(1, "ConnectionRefused")}
        assert len(lost) == 3
        assert gate.candidate_ledgers()[0].decision_prefills == 16
        candidate[1].restart()
        again = work.run(request).verdict
    assert again.decision.decision == "promote"
    assert any("2 lives of server 2 of 2" in note for note in again.notes)


def test_a_server_that_dies_under_a_cell_makes_it_bad_and_all_of_them_gone_is_unavailable(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with servers(1, 1) as baseline, servers(1, 11) as one, servers(1, 12, fault=["die-after=6"]) as other:
        request = work.request(baseline[0].url, one[0].url, more_candidates=(other[0].url,))

        def die(gate: Gate, event: Event) -> None:
            if gate.lost_lanes(CANDIDATE) and one[0].url:
                one[0].kill()

        verdict = work.run(request, Watch(acts=[die])).verdict
    gate, _ = stored(tmp_path / "run.db")
    failed = measured(gate, CANDIDATE, Status.FAILED)
    # The other server may have had a cell in flight too when it was ended.
    assert [event.lane for event in failed] in ([1], [1, 0])
    assert all(event.cell.outcome() for event in failed)
    assert verdict.candidate.bad_for_promotion == len(failed)
    assert (verdict.decision.decision, verdict.decision.reason) == ("rollback", "CandidateUnavailable")


def test_a_run_on_many_servers_killed_at_any_instant_loses_no_cell_and_counts_none_twice(tmp_path: Path) -> None:
    work = bench(tmp_path, throughput=SPEED, baselinePassPrefills=4)
    chosen = random.Random(20261130)
    slow = {"time_scale": 0.03}
    with servers(2, 1, **slow) as baseline, servers(3, 11, **slow) as candidate:
        command = arguments(work, (baseline, candidate), "--arms-at-once", "--quiet")
        seen: list[dict[int, CellMeasured]] = []
        for kill in range(6):
            process = start(command, tmp_path)
            until_cells(tmp_path / "run.db", 4 * kill + 2, process)
            time.sleep(chosen.random() * 0.15)
            process.kill()
            process.communicate()
            seen.append(dict(stored(tmp_path / "run.db")[0].measured))
        last = ended(start([*command, "--json"], tmp_path))
        assert last.code == 0, last.said
        lines = generations(*baseline, *candidate)
        for server in (*baseline, *candidate):
            kept = [line for line in generations(server) if line["delivered"] == "complete"]
            assert all(one["ended_at"] <= other["started_at"] for one, other in pairwise(kept))
    gate, _ = stored(tmp_path / "run.db")
    for before in seen:
        assert all(gate.measured[cell_id] == event for cell_id, event in before.items())
    told = [event.cell.request_id for event in measured(gate, status=Status.OK)]
    assert len(set(told)) == len(told)
    unknown = [line for line in lines if line["id"] not in told and line["output_tokens"] != 2]
    assert len(unknown) <= 6 * 5  # at most what was in flight at each kill
    assert len(lines) == len(told) + len(unknown) + probes(lines)
    sent = [(event.cell.arm, event.nonce) for event in gate.measured.values()]
    assert len(set(sent)) == len(sent)
    done = [event.place for event in measured(gate, CANDIDATE, Status.OK) if event.purpose is Purpose.SCREEN]
    assert len(set(done)) == len(done)
    assert last.json["arms"]["candidate"]["bad_for_promotion"] == 0
    assert work.child("decide", "run.db", "--json").out == last.out


def test_a_regression_on_several_servers_is_confirmed_after_every_tainted_one_was_restarted(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with servers(1, 1) as baseline, servers(2, 11, fault=["bad-rate=0.9"]) as candidate:
        request = work.request(baseline[0].url, candidate[0].url, more_candidates=(candidate[1].url,))
        watch = Watch()

        def restart(*_: Any) -> None:
            if watch.looks in (2, 4):
                candidate[watch.looks // 2 - 1].restart()

        watch.waits.append(restart)
        verdict = work.run(request, watch).verdict
    assert (verdict.decision.decision, verdict.decision.reason) == ("rollback", "RegressionConfirmed")
    (replicate,) = verdict.replicates
    assert replicate.separation == "restart"
    assert watch.looks >= 4  # one restarted server was not enough
    assert replicate.separation_detail.count(",") == 2


def test_servers_that_show_no_marker_keep_lives_of_their_own(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with servers(1, 1, dialect="openai") as baseline, servers(2, 11, dialect="openai") as candidate:
        request = work.request(baseline[0].url, candidate[0].url, more_candidates=(candidate[1].url,))
        assert work.run(request).verdict.decision.decision == "promote"
    gate, _ = stored(tmp_path / "run.db")
    assert {(e.lane, e.cell.server_epoch) for e in measured(gate, CANDIDATE)} == {(0, "unmarked"), (1, "unmarked-2")}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--candidate", "{one}", "--candidate", "{one}/"], '--candidate: url "{one}" is named twice for one arm'),
        (["--candidate", "{one}", "--candidate", "{one}/v1"], '--candidate: url "{one}/v1" is named twice for one arm'),
        (["--candidate", "{one}", "--candidate", "{base}"], "--baseline and --candidate are the same server and model"),
        (
            ["--candidate", "{one}", "--candidate", "{base}", "--candidate-model", "x"],
            "several servers for one arm: {base} stands in both arms",
        ),
        (
            ["--candidate", "{base}", "--candidate-model", "x", "--arms-at-once"],
            "--arms-at-once: {base} stands in both",
        ),
        (["--candidate", "{one}", "--candidate", "not-a-url"], '--candidate: url "not-a-url" is no base URL'),
        (["--candidate", "{one}", "--candidate", "{other}"], "{other} is another profile than {one}: build is b2, not"),
        (["--candidate", "{one}", "--candidate", "{alias}"], "{alias} is the same server as --candidate {one}"),
    ],
)
def test_servers_that_make_no_run_are_named(
    healthy: SimulatedServer, tmp_path: Path, given: list[str], message: str
) -> None:
    work = bench(tmp_path)
    with servers(1, 11) as one, servers(1, 12, build_info="b2") as other:
        names = {
            "one": one[0].url,
            "other": other[0].url,
            "base": healthy.url,
            "alias": one[0].url.replace("127.0.0.1", "localhost"),
        }
        files = ["--replay-set", "set.jsonl", "--policy", "policy.yaml"]
        run = work.child("run", "--baseline", healthy.url, *(word.format(**names) for word in given), *files)
    assert run.code == 2, run.said
    assert message.format(**names) in run.said


def test_a_run_file_names_several_servers_and_a_store_keeps_its_shape(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    with servers(2, 11) as candidate:
        urls = ", ".join(f'"{server.url}"' for server in candidate)
        (tmp_path / "gate.yaml").write_text(
            "apiVersion: prefillgate.io/v1alpha1\nkind: Run\nspec:\n"
            f'  baseline: {{url: "{healthy.url}"}}\n  candidate: {{url: [{urls}]}}\n'
            "  replaySet: set.jsonl\n  policy: policy.yaml\n  store: run.db\n  armsAtOnce: true\n",
            encoding="utf-8",
        )
        run = work.child("run", "gate.yaml", "--json")
        gate, _ = stored(tmp_path / "run.db")
        assert run.code == 0, run.said
        assert (gate.plan.shape.candidate_lanes, gate.plan.shape.at_once) == (2, True)
        assert {event.lane for event in measured(gate, CANDIDATE)} == {0, 1}
        turned = work.child(*arguments(work, ([healthy], candidate)))
        fewer = work.child(*arguments(work, ([healthy], candidate[:1]), "--arms-at-once"))
    assert (turned.code, fewer.code) == (2, 2)
    assert "arms at once: the store was begun with True, now False is asked for" in turned.said
    assert "candidate: the store was begun with" in fewer.said


def test_a_run_on_two_real_servers_of_the_candidate(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    work = bench(tmp_path, cases=4, acceptance=[8, 12, 15], baselinePassPrefills=1, marginPercent=45)
    work.set_path.write_text(work.set_path.read_text(encoding="utf-8").replace('"max_tokens": 200', '"max_tokens": 8'))
    ones = [
        real_llama(request, ("--metrics", "--cache-ram", "0", "--alias", "m", *more)) for more in ((), ("-b", "64"))
    ]
    baseline = real_llama(request, ("--metrics", "--cache-ram", "0", "--alias", "m", "-b", "128"))
    asked = work.request(baseline.url, ones[0].url, more_candidates=(ones[1].url,))
    verdict = work.run(asked).verdict
    gate, _ = stored(tmp_path / "run.db")
    assert verdict.decision.decision == "promote", verdict.decision
    lanes: dict[int, list[CellMeasured]] = {}
    for event in measured(gate, CANDIDATE, Status.OK):
        lanes.setdefault(event.lane, []).append(event)
    assert {lane: len(events) for lane, events in lanes.items()} == {0: 4, 1: 4}
    assert all(event.cell.cached_tokens == 0 for event in measured(gate, CANDIDATE))
    epochs = {lane: {event.cell.server_epoch for event in events} for lane, events in lanes.items()}
    assert epochs[0].isdisjoint(epochs[1])
    spans = [[(e.cell.started_at or 0.0, e.cell.ended_at or 0.0) for e in events] for events in lanes.values()]
    assert any(a < d and c < b for a, b in spans[0] for c, d in spans[1])  # as measured on the wire
