"""The watch after a promotion on real servers: small replays that are one sequence, an alarm, and what answers it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellMeasured, Event, Purpose
from prefillgate.core.judge import judge
from prefillgate.evidence import Fence, open_store
from prefillgate.replay.runner import Watcher
from prefillgate.replay.session import ArmRequest
from prefillgate.runs.around import Hooks, unsaid
from prefillgate.runs.errors import BadInput, CouldNotMeasure, RunBroken
from prefillgate.runs.floor import measure_floor
from prefillgate.runs.watch import WatchEnded, WatchRequest, run_watch
from tests.support.runs import Bench, Watch, bench, generations, probes, stored
from tests.support.simulated import SimulatedServer, free_port, start_simulated

POLICY: dict[str, Any] = {"replicate": {"gapSeconds": 0}}


@dataclass
class Servers:
    """The servers of the previous profile, and how often somebody asked for them."""

    url: str | None
    asked: int = 0
    left: int = 0
    events: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[ArmRequest | None]:
        self.asked += 1
        try:
            yield None if self.url is None else ArmRequest(self.url)
        finally:
            self.left += 1


def watch_request(work: Bench, promoted: str, number: int = 1, **more: Any) -> WatchRequest:
    """The replay of that number, after the one before it."""
    run = work.request(None, promoted, store=f"watch-{number}.db", seed=number, **more.pop("run", {}))
    after = more.pop("after", work.folder / f"watch-{number - 1}.db" if number > 1 else None)
    return WatchRequest(run, more.pop("prefills", 4), after, work.folder / f"watch-{number}-replicate.db", **more)


def carried_out(request: WatchRequest, watch: Watcher | None = None, hooks: Hooks | None = None) -> WatchEnded:
    ended = asyncio.run(run_watch(request, watch or Watch(), None, unsaid, hooks))
    ended.close()
    return ended


@pytest.fixture
def degraded() -> Iterator[SimulatedServer]:
    """A promoted profile that has become bad in nearly every answer."""
    with start_simulated(seed=2, text_seed=9, fault=["bad-rate=0.95"]) as server:
        yield server


def test_small_replays_after_a_promotion_go_on_from_each_other(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    before = len(generations(healthy))
    seen = [carried_out(watch_request(work, healthy.url, number)) for number in (1, 2, 3)]
    assert [(each.alarm, each.rollback, each.reason) for each in seen] == [(False, False, "NoAlarm")] * 3
    assert [(e.view.replays, e.view.prefills_since, e.view.prefills) for e in seen] == [
        (1, 4, 4),
        (2, 8, 4),
        (3, 12, 4),
    ]
    lines = generations(healthy)[before:]
    assert len(lines) - probes(lines) == 12
    first, second, third = (stored(tmp_path / f"watch-{number}.db")[0] for number in (1, 2, 3))
    assert third.plan.watching is not None and third.plan.watching.after == second.plan.run_id
    nonces = [{event.nonce for event in gate.measured.values()} for gate in (first, second, third)]
    assert len(set.union(*nonces)) == 12
    assert seen[2].sentence == (
        "No alarm: the small replay after the promotion is over. Watch: replay 3 since the promotion took 4 of 4 fresh "
        "prefills, 0 bad; all replays 0 of 12 bad, no alarm. The level is 1, and 100 alarms."
    )
    assert judge(third) == seen[2].replay.verdict


def test_bad_prefills_of_several_replays_add_up_to_one_alarm(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, fault=["bad-rate=1"]) as server:
        first = carried_out(watch_request(work, server.url, 1, prefills=2))
        assert (first.alarm, first.reason, first.view.bad_since) == (False, "NoAlarm", 2)
        second = carried_out(watch_request(work, server.url, 2, prefills=2))
    assert (second.alarm, second.view.prefills, second.view.bad_since) == (True, 1, 3)
    assert (second.reason, second.rollback, second.replicate) == ("AlarmWithoutBaseline", False, None)
    assert second.sentence.startswith("An alarm after the promotion: rollback is refused until a replicate")
    with start_simulated(seed=2, text_seed=9) as server:
        alone = replace(watch_request(work, server.url, 3), after=None)
        third = carried_out(alone)
    assert third.view.prefills_since == 4


def test_after_an_alarm_the_next_replay_begins_at_nothing_and_remembers_it(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    called = ArmRequest(healthy.url, called="line sha256:0123")

    def named(request: WatchRequest, url: str) -> WatchRequest:
        return replace(request, run=replace(request.run, candidate=replace(called, url=url)))

    with start_simulated(seed=2, text_seed=9, fault=["bad-rate=1"]) as server:
        first = carried_out(named(watch_request(work, server.url, 1, prefills=8), server.url))
    assert (first.alarm, first.view.prefills) == (True, 3)
    second = carried_out(named(watch_request(work, healthy.url, 2), healthy.url))
    assert (second.alarm, second.view.alarms_since, second.view.bad_since) == (False, 1, 3)
    assert second.replay.gate.alarm_state()[0] == 0.0


def test_an_alarm_is_confirmed_by_a_fresh_replicate_against_the_previous_profile(
    healthy: SimulatedServer, degraded: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, **POLICY)
    previous = Servers(healthy.url)
    asked = watch_request(work, degraded.url, prefills=8)
    request = replace(asked, previous=previous, number=lambda: 3)
    ended = carried_out(request)
    assert (ended.alarm, ended.rollback, ended.reason) == (True, True, "RegressionConfirmed")
    assert (previous.asked, previous.left) == (1, 1)
    assert ended.replicate is not None
    (replicate,) = ended.replicate.verdict.replicates
    assert (replicate.number, replicate.threshold, replicate.ending) == (3, 160.0, "confirmed")
    watch, _ = stored(tmp_path / "watch-1.db")
    answer, _ = stored(tmp_path / "watch-1-replicate.db")
    assert {event.purpose for event in answer.measured.values()} == {Purpose.REPLICATE}
    assert {event.cell.arm for event in answer.measured.values()} == {BASELINE, CANDIDATE}
    told = [
        {getattr(e, name) for e in gate.measured.values()} for gate in (watch, answer) for name in ("nonce", "seed")
    ]
    assert told[0].isdisjoint(told[2]) and told[1].isdisjoint(told[3])
    assert answer.plan.trigger is not None
    assert answer.plan.trigger.run_id == watch.plan.run_id
    assert set(answer.plan.trigger.cases) == {e.cell.case_id for e in watch.scored if e.cell.bad}
    assert judge(answer) == ended.replicate.verdict
    assert ended.sentence.startswith("A replicate with fresh prefills confirmed the regression: rollback is allowed.")


def test_an_alarm_that_both_profiles_share_is_not_confirmed(tmp_path: Path) -> None:
    work = bench(tmp_path, **POLICY)
    with (
        start_simulated(seed=2, text_seed=9, fault=["bad-rate=1"]) as promoted,
        start_simulated(seed=1, text_seed=9, fault=["bad-rate=1"]) as before,
    ):
        ended = carried_out(replace(watch_request(work, promoted.url), previous=Servers(before.url)))
    assert (ended.alarm, ended.rollback, ended.reason) == (True, False, "RegressionNotConfirmed")


@pytest.mark.parametrize("previous", [None, Servers(None)])
def test_without_a_server_of_the_previous_profile_an_alarm_warns_and_no_more(
    degraded: SimulatedServer, tmp_path: Path, previous: Servers | None
) -> None:
    ended = carried_out(replace(watch_request(bench(tmp_path), degraded.url, prefills=8), previous=previous))
    assert (ended.alarm, ended.rollback, ended.reason) == (True, False, "AlarmWithoutBaseline")
    assert not (tmp_path / "watch-1-replicate.db").exists()


def test_a_clean_replay_asks_for_no_previous_profile(healthy: SimulatedServer, tmp_path: Path) -> None:
    previous = Servers(healthy.url)
    carried_out(replace(watch_request(bench(tmp_path), healthy.url), previous=previous))
    assert previous.asked == 0


class Gone(Exception):
    """The process went away."""


def test_killed_at_any_event_the_same_request_goes_on_to_the_same_answer_and_counts_nothing_twice(
    healthy: SimulatedServer, degraded: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, cases=3, **POLICY)
    numbers: list[int] = []

    def number() -> int:
        numbers.append(1)
        return 1

    request = replace(watch_request(work, degraded.url, prefills=8), previous=Servers(healthy.url), number=number)
    times = 0
    while True:
        try:
            ended = carried_out(request, Watch(acts=[strikes(2 * times + 1)]))
            break
        except Gone:
            times += 1
    assert times > 4
    assert (ended.alarm, ended.rollback, ended.reason) == (True, True, "RegressionConfirmed")
    for name in ("watch-1.db", "watch-1-replicate.db"):
        gate, _ = stored(tmp_path / name)
        assert list(gate.measured) == list(range(len(gate.measured)))
        assert len({event.nonce for event in gate.measured.values()}) >= len(gate.measured) // 2
    assert ended.view.prefills == len(stored(tmp_path / "watch-1.db")[0].scored)
    again = carried_out(request)  # nothing is asked any more
    assert (again.reason, again.rollback) == ("RegressionConfirmed", True)
    assert again.view == ended.view


def strikes(events: int) -> Callable[[Gate, Event], None]:
    left = [events]

    def strike(gate: Gate, event: Event) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Gone

    return strike


def test_a_replay_goes_on_by_its_own_store_whatever_stands_before_it_now(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    carried_out(watch_request(work, healthy.url, 1))
    with pytest.raises(Gone):
        carried_out(watch_request(work, healthy.url, 2), Watch(acts=[strikes(4)]))
    (tmp_path / "watch-1.db").unlink()
    ended = carried_out(watch_request(work, healthy.url, 2))
    assert (ended.view.replays, ended.view.prefills_since) == (2, 8)


def test_a_replay_before_that_is_gone_is_said_and_the_level_begins_anew(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    heard: list[str] = []
    request = watch_request(bench(tmp_path), healthy.url, 2)
    ended = asyncio.run(run_watch(request, Watch(), None, lambda line, *_, **__: heard.append(line)))
    ended.close()
    assert ended.view.replays == 1
    gone = f"the replay before this one, {tmp_path / 'watch-1.db'}, is gone: the level begins at 1 again"
    assert gone in heard


def test_a_profile_by_an_earlier_name_goes_on_and_one_of_another_name_begins_anew_where_it_may(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    carried_out(watch_request(work, healthy.url, 1))
    called = replace(work.request(None, healthy.url).candidate, called="line sha256:0123")
    heard: list[str] = []
    for also, anew, replays in (((healthy.url,), False, 2), ((), True, 1), (("another",), True, 1)):
        heard.clear()
        (tmp_path / "watch-2.db").unlink(missing_ok=True)
        asked = replace(watch_request(work, healthy.url, 2), also_called=also, begins_anew=anew)
        request = replace(asked, run=replace(asked.run, candidate=called))
        ended = asyncio.run(run_watch(request, Watch(), None, lambda line, *_, **__: heard.append(line)))
        ended.close()
        assert (ended.view.replays, ended.view.prefills_since) == (replays, 4 * replays)
        told = [line for line in heard if line.endswith("the level begins at 1 again")]
        assert len(told) == (replays == 1)
        assert all("cannot be gone on from: it is of http" in line for line in told)


def test_what_cannot_be_gone_on_from_is_refused(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    carried_out(watch_request(work, healthy.url, 1))
    for after, run, words in (
        ("watch-1.db", {}, "it is of http"),
        ("other.db", {}, "it is no small replay after a promotion"),
        ("watch-2.db", {}, "the replay before this one is its own store"),
    ):
        with start_simulated(seed=3, text_seed=9) as other:
            if after == "other.db":
                work.run(work.request(None, healthy.url, store="other.db"))
            url = other.url if after == "watch-1.db" else healthy.url
            with pytest.raises(BadInput, match=words):
                carried_out(watch_request(work, url, 2, after=tmp_path / after, run=run))
    assert not (tmp_path / "watch-2.db").exists()


def test_a_flag_that_reads_the_baseline_cannot_be_watched(healthy: SimulatedServer, tmp_path: Path) -> None:
    flags = [{"name": "other", "checks": ["equal_to_baseline"]}]
    work = bench(tmp_path, checks=[{"type": "EqualToBaseline"}], flags=flags)
    with pytest.raises(BadInput, match="flag other of policy test reads check equal_to_baseline"):
        carried_out(watch_request(work, healthy.url))


@pytest.mark.parametrize("prefills", [0, -1])
def test_a_replay_takes_at_least_one_prefill(healthy: SimulatedServer, tmp_path: Path, prefills: int) -> None:
    with pytest.raises(BadInput, match=f"{prefills} \\(allowed: 1 or more\\)"):
        watch_request(bench(tmp_path), healthy.url, prefills=prefills)


def test_a_promoted_profile_that_is_away_could_not_be_measured(tmp_path: Path) -> None:
    with pytest.raises(CouldNotMeasure):
        carried_out(watch_request(bench(tmp_path), f"http://127.0.0.1:{free_port()}"))
    assert not (tmp_path / "watch-1.db").exists()


def test_a_replicate_whose_previous_profile_is_away_is_tried_again_by_the_same_request(
    healthy: SimulatedServer, degraded: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, **POLICY)
    request = watch_request(work, degraded.url, prefills=8)
    away = Servers(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(CouldNotMeasure):
        carried_out(replace(request, previous=away))
    assert away.left == 1
    ended = carried_out(replace(request, previous=Servers(healthy.url)))
    assert (ended.rollback, ended.reason) == (True, "RegressionConfirmed")


def test_a_replay_whose_writer_was_replaced_writes_nothing_more(healthy: SimulatedServer, tmp_path: Path) -> None:
    request = watch_request(bench(tmp_path), healthy.url)

    def replaced(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 1:
            open_store(tmp_path / "watch-1.db", Fence(8)).close()

    with pytest.raises(RunBroken, match="taken over by a writer with token 8"):
        carried_out(request, Watch(acts=[replaced]), Hooks(fence=Fence(7)))
    assert carried_out(request, hooks=Hooks(fence=Fence(8))).reason == "NoAlarm"


def test_answers_that_the_promoted_profile_always_cuts_raise_no_alarm(tmp_path: Path) -> None:
    work = bench(tmp_path)
    lines = work.set_path.read_text(encoding="utf-8").replace('"max_tokens": 200', '"max_tokens": 4')
    work.set_path.write_text(lines, encoding="utf-8")
    with start_simulated(seed=1, text_seed=9) as server:
        floor = asyncio.run(
            measure_floor(work.request(server.url, "http://x", store="floor.db"), Watch(), None, unsaid)
        )
        floor.finished.journal.close()
        blind = carried_out(watch_request(work, server.url, 1, prefills=8))
        by_floor = watch_request(work, server.url, 2, prefills=8, after=None, run={"floor": tmp_path / "floor.db"})
        seeing = carried_out(by_floor)
        later = carried_out(watch_request(work, server.url, 3, prefills=8))
    assert (blind.alarm, seeing.alarm, later.alarm) == (True, False, False)
    assert later.view.prefills_since == 16
