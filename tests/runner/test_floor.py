"""The floor on real servers: two passes over the baseline alone, resumed, fenced, and gone by in a later run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prefillgate.core.cells import BASELINE
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellMeasured, EpochSeen, Event, Purpose
from prefillgate.core.judge import judge
from prefillgate.core.shape import Isolation, Shape
from prefillgate.evidence import Fence, StoreFenced, open_store
from prefillgate.replay.runner import Watcher
from prefillgate.replay.session import RunRequest
from prefillgate.report import Format, render
from prefillgate.runs.around import Hooks, unsaid
from prefillgate.runs.errors import BadInput, RunBroken
from prefillgate.runs.floor import FloorEnded, measure_floor
from tests.support.llama import real_llama
from tests.support.runs import Bench, Watch, bench, generations, measured, probes, stored, write_policy, write_set
from tests.support.simulated import SimulatedServer, start_simulated

SPEED = {"mode": "Require", "minOutputTokens": 8}


def floored(request: RunRequest, watch: Watcher | None = None, hooks: Hooks | None = None) -> FloorEnded:
    ended = asyncio.run(measure_floor(request, watch or Watch(), None, unsaid, hooks))
    ended.finished.journal.close()
    return ended


def test_a_sound_baseline_is_two_passes_and_tells_its_noise(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path, throughput=SPEED)
    before = len(generations(healthy))
    ended = floored(work.request(healthy.url, "http://127.0.0.1:9/nobody", store="floor.db"))
    assert ended.sound is True
    shown = ended.shown
    assert (shown.prefills, shown.bad_prefills, shown.identical, shown.compared) == (10, 0, 5, 5)
    assert shown.noise_cv is not None and 0.001 < shown.noise_cv < 0.1
    assert ended.sentence == (
        "The instrument is sound: two passes over the baseline look alike. That judges nobody. The baseline against "
        "itself: 0 of 10 fresh prefills bad, the same output in 5 of 5 prompts, decode speed varies by "
        f"{100 * shown.noise_cv:.1f} % from cell to cell."
    )
    lines = generations(healthy)[before:]
    assert len(lines) - probes(lines) == 10
    gate, texts = stored(tmp_path / "floor.db")
    assert {event.cell.arm for event in gate.measured.values()} == {BASELINE}
    assert [event.purpose for event in gate.measured.values()] == [Purpose.BASELINE_PASS] * 5 + [Purpose.AA] * 5
    assert len({json.loads(each.request)["body"]["prompt"] for each in texts.values()}) == 5
    assert judge(gate) == ended.finished.verdict


def test_every_format_of_a_floor_leaves_the_candidate_out(healthy: SimulatedServer, tmp_path: Path) -> None:
    ended = floored(bench(tmp_path).request(healthy.url, "http://x", store="floor.db"))
    told = json.loads(render(ended.finished.verdict, "json", {}))
    assert told["arms"]["candidate"] is None and told["arms"]["baseline"]["prefills"] == 10
    assert (told["reason"], told["measured"], told["floor"]["store"]) == ("FloorMeasured", True, None)
    for format in Format:
        text = render(ended.finished.verdict, format, {})
        assert "0 of 0" not in text, format
        if format not in ("json", "line"):
            assert "The baseline against itself" in text, format
    page = render(ended.finished.verdict, "html", {})
    for section in ("path", "replicates", "throughput", "differences"):
        assert f'id="{section}"' not in page and f'href="#{section}"' not in page, section
    assert "<dt>Promotion</dt>" not in page and '<h1><span class="word">SOUND</span>' in page


@pytest.mark.parametrize(
    ("faults", "reason", "words"),
    [
        (["bad-rate=#9-13"], "InstrumentBroken", "the second pass over the baseline is worse than the first (E 73.7)"),
        (["bad-rate=1"], "ChecksFailOnBaseline", "your checks fail on the baseline"),
        (["ignore-cache-prompt=1"], "KnobNotHonoured", "independence unknown on the baseline"),
        (["cached-absent=1", "timings-absent=1"], "IndependenceUnknown", "independence unknown on the baseline"),
        (["http-400=@case"], "CaseUnusable", "without a candidate nothing tells"),
    ],
)
def test_a_broken_instrument_is_said_and_no_run_goes_by_it(
    healthy: SimulatedServer, tmp_path: Path, faults: list[str], reason: str, words: str
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=1, text_seed=9, fault=faults) as baseline:
        ended = floored(work.request(baseline.url, "http://x", store="floor.db"))
        assert ended.sound is False
        assert ended.finished.verdict.decision.reason == reason
        assert words in ended.sentence
        again = floored(work.request(baseline.url, "http://x", store="floor.db"))  # nothing is asked any more
        assert again.finished.verdict.decision == ended.finished.verdict.decision
        with pytest.raises(BadInput, match=r"^--floor .*floor\.db: "):
            work.run(work.request(baseline.url, healthy.url, floor=tmp_path / "floor.db"))
    assert not (tmp_path / "run.db").exists()


def test_two_passes_of_different_speed_break_the_instrument(tmp_path: Path) -> None:
    work = bench(tmp_path, cases=8, throughput=SPEED)

    def restarted_slower(server: SimulatedServer) -> Callable[[Gate, Event], None]:
        def act(gate: Gate, event: Event) -> None:
            if isinstance(event, CellMeasured) and gate.places.passed == 8 and gate.places.passed_again == 0:
                server._options["decode_ms"] = 90.0
                server.restart()

        return act

    with start_simulated(seed=1, text_seed=9) as baseline:
        watch = Watch(acts=[restarted_slower(baseline)])
        ended = floored(work.request(baseline.url, "http://x", store="floor.db"), watch)
    assert ended.sound is False
    assert "the second pass over the baseline decodes slower than the first" in ended.sentence


class Gone(Exception):
    """The process went away."""


def test_killed_at_any_event_a_floor_goes_on_and_no_cell_is_asked_twice(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, cases=3)
    alone = floored(work.request(healthy.url, "http://x", store="alone.db"))
    before, times = len(generations(healthy)), 0
    while True:
        left = [times + 1]

        def strike(gate: Gate, event: Event, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Gone

        try:
            ended = floored(work.request(healthy.url, "http://x", store="floor.db"), Watch(acts=[strike]))
            break
        except Gone:
            times += 1
    assert times > 4
    assert ended.sound is True
    assert (ended.shown.prefills, ended.shown.identical) == (alone.shown.prefills, alone.shown.identical) == (6, 3)
    gate, _ = stored(tmp_path / "floor.db")
    assert list(gate.measured) == list(range(6))
    lines = generations(healthy)[before:]
    assert 6 <= len(lines) - probes(lines) <= 6 + times


def test_a_floor_whose_writer_was_replaced_writes_nothing_more(healthy: SimulatedServer, tmp_path: Path) -> None:
    request = bench(tmp_path).request(healthy.url, "http://x", store="floor.db")

    def replaced(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 2:
            open_store(tmp_path / "floor.db", Fence(8)).close()

    with pytest.raises(RunBroken, match="taken over by a writer with token 8") as broken:
        floored(request, Watch(acts=[replaced]), Hooks(fence=Fence(7)))
    assert isinstance(broken.value.__cause__, StoreFenced)
    assert len(stored(tmp_path / "floor.db")[0].measured) == 3
    assert floored(request, hooks=Hooks(fence=Fence(8))).sound is True


def test_a_deadline_leaves_the_instrument_unknown_and_the_same_request_goes_on(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    request = bench(tmp_path).request(healthy.url, "http://x", store="floor.db")
    cut = floored(replace(request, must_end_at=1.0))
    assert (cut.sound, cut.finished.verdict.decision.reason) == (None, "Deadline")
    assert floored(request).sound is True


def test_a_floor_needs_a_baseline(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^--baseline is missing"):
        floored(bench(tmp_path).request(None, "http://x", store="floor.db"))


def test_a_floor_s_store_is_no_run_s_and_the_other_way_round(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    floored(work.request(healthy.url, "http://x", store="floor.db"))
    with start_simulated(seed=2, text_seed=9) as candidate:
        request = work.request(healthy.url, candidate.url, store="floor.db")
        with pytest.raises(BadInput, match="what it is for: the store was begun with a floor, now a candidate is"):
            work.run(request)
        work.run(replace(request, store=tmp_path / "run.db"))
        with pytest.raises(BadInput, match="what it is for: the store was begun with a candidate, now a floor is"):
            floored(replace(request, store=tmp_path / "run.db"))


def test_a_floor_of_several_servers_uses_all_of_them(healthy: SimulatedServer, tmp_path: Path) -> None:
    with start_simulated(seed=1, text_seed=9) as other:
        request = bench(tmp_path).request(healthy.url, "http://x", store="floor.db")
        assert request.baseline is not None
        ended = floored(replace(request, baseline=replace(request.baseline, more_urls=(other.url,))))
        assert ended.sound is True
        assert {event.lane for event in ended.finished.gate.measured.values()} == {0, 1}
        assert len(generations(other)) > 3


def test_a_floor_on_a_server_that_others_use_tells_no_noise(tmp_path: Path) -> None:
    work = bench(tmp_path, throughput=SPEED)
    with start_simulated(seed=1, text_seed=9, fault=["other-traffic=1"]) as baseline:
        request = work.request(baseline.url, "http://x", store="floor.db", shape=Shape(isolation=Isolation.SHARED))
        ended = floored(request)
    assert (ended.sound, ended.shown.noise_cv, ended.shown.compared) == (True, None, 5)


# A run that goes by a floor


@pytest.fixture(scope="module")
def measured_floor(tmp_path_factory: pytest.TempPathFactory, healthy: SimulatedServer) -> Iterator[Bench]:
    """A folder with floor.db of the healthy server: 12 prompts, 24 cells, none slow."""
    work = bench(tmp_path_factory.mktemp("floor"), cases=12, throughput=SPEED, aaCheck="Enabled")
    assert floored(work.request(healthy.url, "http://x", store="floor.db")).sound is True
    yield work


def test_a_run_goes_by_the_floor_in_place_of_its_own_check(healthy: SimulatedServer, measured_floor: Bench) -> None:
    work = measured_floor
    floor = stored(work.folder / "floor.db")[0]
    with start_simulated(seed=2, text_seed=9) as candidate:
        finished = work.run(
            work.request(healthy.url, candidate.url, store="by-floor.db", floor=work.folder / "floor.db")
        )
    verdict = finished.verdict
    assert verdict.decision.decision == "promote"
    gate, _ = stored(work.folder / "by-floor.db")
    assert Purpose.AA not in {event.purpose for event in gate.measured.values()}
    assert len([e for e in gate.measured.values() if e.purpose is Purpose.BASELINE_PASS]) == 2
    assert verdict.floor is not None
    assert (verdict.floor.store, verdict.floor.run_id) == ("floor.db", floor.plan.run_id)
    assert verdict.floor.noise_cv == judge(floor).floor.noise_cv  # type: ignore[union-attr]
    assert verdict.throughput.aa_identical_share == 1.0
    assert judge(gate) == verdict
    for format in Format:
        text = render(verdict, format, {})
        assert format == "line" or "floor.db" in text.replace("\\", ""), format
    assert '<property name="floor" value="Floor of floor.db (run ' in render(verdict, "junit", {})
    assert "100 %, by the floor of floor.db)" in render(verdict, "html", {})


def test_slow_cells_count_by_the_floor_and_say_nothing_without_one(
    healthy: SimulatedServer, measured_floor: Bench
) -> None:
    work = measured_floor
    write_policy(work.policy_path, throughput={**SPEED, "maxPairs": 12}, baselinePassPrefills=2)
    with start_simulated(seed=2, text_seed=9) as candidate:
        asked = work.request(healthy.url, candidate.url, store="slow.db", floor=work.folder / "floor.db")
        by_floor = work.run(asked).verdict
        without = work.run(replace(asked, floor=None, store=work.folder / "slow-alone.db")).verdict
    write_policy(work.policy_path, throughput=SPEED, aaCheck="Enabled")
    assert by_floor.throughput.slow_share_baseline == 0.0
    assert without.throughput.slow_share_baseline is None
    assert by_floor.throughput.aa_identical_share == 1.0 and without.throughput.aa_identical_share is None


def test_a_run_keeps_the_floor_that_it_was_begun_with(healthy: SimulatedServer, measured_floor: Bench) -> None:
    work, heard = measured_floor, list[str]()

    def say(line: str, *_: Any, **__: Any) -> None:
        heard.append(line)

    def strike(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 4:
            raise Gone

    from prefillgate.runs.running import execute

    def go_on(request: RunRequest, watch: Watch | None = None) -> Any:
        finished = asyncio.run(execute(request, watch or Watch(), None, say, None))
        finished.journal.close()
        return finished.verdict

    with start_simulated(seed=2, text_seed=9) as candidate:
        request = work.request(healthy.url, candidate.url, store="kept.db", floor=work.folder / "floor.db")
        with pytest.raises(Gone):
            go_on(request, Watch(acts=[strike]))
        other = work.folder / "other-floor.db"
        verdict = go_on(replace(request, floor=other))
        assert verdict.floor.store == "floor.db"
        assert any(line.startswith("floor: floor.db, as the store has it") for line in heard)
        heard.clear()
        go_on(request)
        assert any(line.startswith("Floor of floor.db (run ") for line in heard)
        plain = replace(work.request(healthy.url, candidate.url, store="plain.db"), policy=request.policy)
        with pytest.raises(Gone):
            go_on(plain, Watch(acts=[strike]))
        heard.clear()
        assert go_on(replace(plain, floor=other)).floor is None
        assert any(line.startswith("floor: none, as the store has it") for line in heard)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"floor": "run.db", "store": "run.db"}, "is the store of this run itself"),
        ({"floor": "nothing.db"}, "there is no evidence store"),
        ({"floor_max_age_days": 1e-9}, "under an hour old, more than 1e-09 days"),
        ({"baseline": None}, "is of a baseline, and this run has none"),
    ],
)
def test_a_floor_that_does_not_fit_is_refused_by_its_name(
    healthy: SimulatedServer, measured_floor: Bench, change: dict[str, Any], words: str
) -> None:
    work = measured_floor
    floor, store = change.pop("floor", "floor.db"), change.pop("store", "never.db")
    baseline = change.pop("baseline", healthy.url)
    request = work.request(baseline, healthy.url, store=store, floor=work.folder / floor, **change)
    with pytest.raises(BadInput) as refused:
        work.run(request)
    assert str(refused.value).startswith(f"--floor {work.folder / floor}: ")
    assert words in str(refused.value) and "(allowed: " in str(refused.value)
    assert not (work.folder / store).exists()


def test_a_floor_of_other_prompts_or_checks_is_refused(
    healthy: SimulatedServer, measured_floor: Bench, tmp_path: Path
) -> None:
    floor = measured_floor.folder / "floor.db"
    for other in (bench(tmp_path, cases=11), bench(tmp_path, cases=12, checks=[{"type": "NotEmpty"}])):
        with pytest.raises(BadInput, match=r"--floor .*: (case|check) "):
            other.run(other.request(healthy.url, healthy.url, floor=floor))


def test_a_floor_of_another_build_stops_the_run_that_goes_by_it(measured_floor: Bench) -> None:
    work = measured_floor
    with (
        start_simulated(seed=1, text_seed=9, build_info="b2") as baseline,
        start_simulated(seed=2, text_seed=9, build_info="b2") as candidate,
    ):
        request = work.request(baseline.url, candidate.url, store="b2.db", floor=work.folder / "floor.db")
        decision = work.run(request).verdict.decision
    assert (decision.decision, decision.reason) == ("hold", "UndeclaredDifference")
    assert "the floor of floor.db is of another baseline: build " in decision.sentences[0]


def test_a_floor_in_a_store_can_be_resumed_by_a_pod_that_came_back_elsewhere(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    request = bench(tmp_path).request(healthy.url, "http://x", store="floor.db")
    assert request.baseline is not None
    request = replace(request, baseline=replace(request.baseline, called="line sha256:0123"))

    def strike(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 3:
            raise Gone

    with pytest.raises(Gone):
        floored(request, Watch(acts=[strike]))
    with start_simulated(seed=1, text_seed=9) as elsewhere:
        ended = floored(replace(request, baseline=replace(request.baseline, url=elsewhere.url)))
    assert ended.sound is True
    assert len({e.server_epoch for e in stored(tmp_path / "floor.db")[0].epochs[BASELINE]}) == 2
    assert isinstance(ended.finished.gate.epochs[BASELINE][0], EpochSeen)
    assert len(measured(ended.finished.gate)) == 10


def test_a_floor_of_the_real_server(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    llama = real_llama(request, ("--metrics",))
    work = bench(tmp_path, cases=3, checks=[{"type": "NotEmpty"}], flags=[{"name": "empty", "checks": ["not_empty"]}])
    write_set(work.set_path, 3, words=8, max_tokens=4)
    ended = floored(work.request(llama.url, "http://x", store="floor.db"))
    assert ended.sound is True
    assert (ended.shown.prefills, ended.shown.identical, ended.shown.compared) == (6, 3, 3)
    assert ended.shown.noise_cv is not None


# For a person


def test_the_command_measures_a_floor_and_a_run_goes_by_it(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path, cases=12, throughput=SPEED)
    asked = ["--replay-set", "set.jsonl", "--policy", "policy.yaml"]
    floor = work.child("floor", "--baseline", healthy.url, *asked, "--store", "floor.db")
    assert floor.code == 0, floor.said
    text = floor.out.decode()
    assert text.startswith("SOUND  set\nreason          FloorMeasured\n")
    assert "promotion" not in text and "override" not in text
    assert "| 24 of 24" in floor.said
    assert (tmp_path / "floor.html").exists()
    told = work.child("decide", "floor.db", "--json")
    assert (told.code, told.json["reason"], told.json["floor"]["prefills"]) == (0, "FloorMeasured", 24)
    line = work.child("report", "floor.db", "--format", "line").out.decode()
    assert line.startswith("[set] SOUND 0/24 cells bad on 24 prefills") and "Nobody is judged: FloorMeasured" in line
    junit = work.child("report", "floor.db", "--format", "junit").out.decode()
    assert '<testcase classname="prefillgate.decision" name="instrument" />' in junit
    assert 'skipped="0"' in junit and "promotion</" not in junit
    again = work.child("floor", "--baseline", healthy.url, *asked, "--store", "floor.db", "--quiet", "--json")
    assert again.out == told.out
    following = work.child("explain", "floor.db").out.decode().splitlines()[-1].split()
    assert following[:2] == ["prefillgate", "run"] and following[-2:] == ["--floor", "floor.db"]
    with start_simulated(seed=2, text_seed=9) as candidate:
        by_floor = [word.replace("URL", candidate.url) for word in following[1:]]
        run = work.child(*by_floor, "--json", "--store", "run.db")
        assert (run.code, run.json["floor"]["store"]) == (0, "floor.db"), run.said
        dry = work.child(*by_floor, "--dry-run", "--cell-seconds", "1", "--json")
    assert dry.json["prefills"]["second_pass"] == 0
    assert dry.json["minutes"]["with_aa"] is None
    assert dry.json["floor"].startswith("Floor of floor.db (run set-")
    page = work.child(*by_floor, "--dry-run", "--cell-seconds", "1").out.decode()
    assert "goes by          Floor of floor.db" in page and "A/A check" not in page


def test_a_broken_floor_is_exit_one_and_its_next_command_is_a_new_floor(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=1, text_seed=9, fault=["bad-rate=#9-13"]) as baseline:
        floor = work.child(
            "floor",
            "--baseline",
            baseline.url,
            "--replay-set",
            "set.jsonl",
            "--policy",
            "policy.yaml",
            "--store",
            "f.db",
        )
    assert floor.code == 1
    assert floor.out.decode().startswith("ERROR  set\nreason          InstrumentBroken\n")
    junit = work.child("report", "f.db", "--format", "junit").out.decode()
    assert '<error message="InstrumentBroken: Could not measure: the second pass' in junit
    last = work.child("explain", "f.db").out.decode().splitlines()[-1]
    assert last.split()[:2] == ["prefillgate", "floor"] and last.endswith("--store f-2.db")


@pytest.mark.parametrize("option", ["--seed", "--isolation", "--cell-timeout", "--model"])
def test_the_options_of_the_command_reach_the_floor(healthy: SimulatedServer, tmp_path: Path, option: str) -> None:
    work = bench(tmp_path)
    value = {"--seed": "77", "--isolation": "shared", "--cell-timeout": "0.5", "--model": "no-such-model"}[option]
    asked = ["--replay-set", "set.jsonl", "--policy", "policy.yaml", "--store", "f.db", option, value]
    floor = work.child("floor", "--baseline", healthy.url, *asked)
    if option == "--cell-timeout":
        assert (floor.code, "--cell-timeout" in floor.said) == (2, True)
        return
    if option == "--model":
        assert (floor.code, "no-such-model" in floor.said) == (2, True)
        return
    plan = stored(tmp_path / "f.db")[0].plan
    assert plan.seed == 77 if option == "--seed" else plan.shape.isolation is Isolation.SHARED


def test_what_stands_in_a_report_s_way_is_refused_before_anything_is_asked(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    asked = ["--baseline", healthy.url, "--replay-set", "set.jsonl", "--policy", "policy.yaml", "--store", "f.db"]
    for path in ("set.jsonl", "policy.yaml", "f.db"):
        refused = work.child("floor", *asked, "--report", path)
        assert (refused.code, (tmp_path / "f.db").exists()) == (2, False), path
    kept = work.child("floor", *asked, "--report", "page.html", "--quiet")
    assert kept.code == 0 and (tmp_path / "page.html").exists() and not (tmp_path / "f.html").exists()


def test_an_interrupted_floor_says_the_command_that_goes_on(tmp_path: Path) -> None:
    from tests.support.runs import ended, start

    work = bench(tmp_path)
    with start_simulated(seed=1, text_seed=9, time_scale=0.3) as baseline:
        asked = ["--baseline", baseline.url, "--replay-set", "set.jsonl", "--policy", "policy.yaml", "--store", "f.db"]
        process = start(["floor", *asked], tmp_path)
        while not (tmp_path / "f.db").exists() or not stored(tmp_path / "f.db")[0].measured:
            pass
        process.terminate()
        cut = ended(process)
        assert cut.code == 143
        words = cut.lines[-1].partition("prefillgate ")[2].split()
        assert words[0] == "floor"
        gone_on = work.child(*words)
    assert gone_on.code == 0
    assert "resumed: " in gone_on.said
