"""A run that a program carries out, not a person: cancelled and resumed, told of pods, given secrets in memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from prefillgate.api.access import Access, Held, HeldAccess
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellMeasured, Difference, EpochSeen, Event, RunResumed
from prefillgate.core.shape import Shape
from prefillgate.evidence import Fence, StoreFenced, open_store
from prefillgate.replay.runner import Watcher
from prefillgate.replay.session import RunRequest
from prefillgate.replay.swapping import SwapOrder
from prefillgate.report import render
from prefillgate.runs.around import Hooks, unsaid
from prefillgate.runs.errors import BadInput, CouldNotMeasure, RunBroken
from prefillgate.runs.running import Finished, execute
from tests.support.one_place import put_up, simulated_place
from tests.support.runs import Watch, bench, generations, measured, probes, stored
from tests.support.simulated import SimulatedServer, free_port, start_simulated
from tests.support.ways import tls_front

KEY = "sk-in-memory-0123456789abcdef"


def carried_out(request: RunRequest, watch: Watcher | None = None, hooks: Hooks | None = None) -> Finished:
    finished = asyncio.run(execute(request, watch or Watch(), None, unsaid, hooks))
    finished.journal.close()
    return finished


def epochs(gate: Gate, arm: str) -> list[str]:
    return [seen.server_epoch for seen in gate.epochs[arm]]


def cancels(task: asyncio.Task[Finished], events: int) -> Callable[[Gate, Event], None]:
    """Cancels a run with so many events told."""
    left = [events]

    def strike(gate: Gate, event: Event) -> None:
        left[0] -= 1
        if left[0] == 0:
            task.cancel()

    return strike


def test_a_task_cancelled_at_any_event_goes_on_in_the_same_loop_and_decides_the_same(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    heard: list[str] = []

    async def to_its_end(request: RunRequest) -> tuple[Finished, int]:
        for cancelled in range(100):
            watch = Watch()
            task = asyncio.create_task(execute(request, watch, None, lambda line, *_, **__: heard.append(line), None))
            watch.acts.append(cancels(task, 3 * cancelled + 1))
            try:
                return await task, cancelled
            except asyncio.CancelledError:
                continue
        raise AssertionError("it never came to its end")

    with start_simulated(seed=2, text_seed=9) as candidate:
        alone = carried_out(work.request(healthy.url, candidate.url, store="alone.db"))
        before = len(generations(healthy, candidate))
        finished, times = asyncio.run(to_its_end(work.request(healthy.url, candidate.url)))
        finished.journal.close()
        lines = generations(healthy, candidate)[before:]
    assert times > 5
    assert finished.verdict.decision == alone.verdict.decision
    gate, _ = stored(tmp_path / "run.db")
    assert list(gate.measured) == list(range(len(gate.measured)))
    told = [event.cell.request_id for event in measured(gate, status=Status.OK)]
    assert len(set(told)) == len(told) == len(measured(stored(tmp_path / "alone.db")[0], status=Status.OK))
    assert len(told) <= len(lines) - probes(lines) <= len(told) + times
    assert any(line.startswith("resumed: ") for line in heard)
    assert heard[0].startswith("seed: ")


def test_the_watcher_is_told_of_every_event_that_stands_in_the_journal(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work, heard = bench(tmp_path), list[Event]()
    watch = Watch(acts=[lambda gate, event: heard.append(event)])
    with start_simulated(seed=2, text_seed=9) as candidate:
        finished = carried_out(work.request(healthy.url, candidate.url), watch)
    assert finished.journal.events()[1:] == tuple(heard)


class Pods:
    """The candidate's pod as its caller knows it: `pods` one after another from the second look of a cell on, which is
    the one after its answer; the last one stays."""

    def __init__(self, after_cells: int, *pods: str | None) -> None:
        self.left, self.cells_left, self.looks = list(pods), after_cells, 0
        self.watch = Watch(acts=[self._event])

    def _event(self, gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell.arm == CANDIDATE:
            self.cells_left, self.looks = self.cells_left - 1, 0

    def present(self, arm: str, url: str) -> str | None:
        if arm == BASELINE:
            return "pod-b/containerd://b1"
        self.looks += 1
        begun = self.cells_left <= 0 and (self.looks > 1 or self.left[0] is None)
        if begun and len(self.left) > 1:
            del self.left[0]
        return self.left[0]


def test_a_pod_replaced_during_a_cell_voids_it_and_the_cell_is_planned_again(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate:
        pods = Pods(4, "uid-1/containerd://c1", "uid-2/containerd://c2")
        hooks = Hooks(present_epoch=pods.present)
        finished = carried_out(work.request(healthy.url, candidate.url), pods.watch, hooks)
    gate, _ = stored(tmp_path / "run.db")
    assert finished.verdict.decision.decision == "promote"
    first, second = epochs(gate, CANDIDATE)
    assert first.startswith("uid-1-containerd:--c1~") and second.startswith("uid-2-containerd:--c2~")
    assert first.partition("~")[2] == second.partition("~")[2] != ""  # the engine's own marker saw no restart
    (void,) = measured(gate, CANDIDATE, Status.INVALID)
    assert void.reason == "EpochChanged"
    place = (void.purpose, void.cell.case_id, void.pair, void.round)
    again = [e for e in measured(gate, CANDIDATE, Status.OK) if (e.purpose, e.cell.case_id, e.pair, e.round) == place]
    assert [event.attempt for event in again] == [void.attempt + 1]
    assert again[0].nonce != void.nonce
    assert {
        e.cell.server_epoch for e in gate.measured.values() if e.cell_id > void.cell_id and e.cell.arm == CANDIDATE
    } == {second}
    assert epochs(gate, BASELINE)[0].startswith("pod-b-containerd:--b1~")


def test_a_restart_inside_a_pod_that_stays_is_still_seen_by_the_engine_s_own_marker(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, fault=["restart-every=9"]) as candidate:
        hooks = Hooks(present_epoch=lambda arm, url: f"pod-of-{arm}")
        carried_out(work.request(healthy.url, candidate.url), hooks=hooks)
    found = epochs(stored(tmp_path / "run.db")[0], CANDIDATE)
    assert len(found) == len(set(found)) > 1
    assert {epoch.partition("~")[0] for epoch in found} == {"pod-of-candidate"}


def test_a_pod_that_is_not_known_for_a_while_voids_cells_and_is_no_refusal(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate:
        pods = Pods(4, "pod-1", None, None, "pod-1")
        finished = carried_out(work.request(healthy.url, candidate.url), pods.watch, Hooks(present_epoch=pods.present))
    gate, _ = stored(tmp_path / "run.db")
    assert finished.verdict.decision.decision == "promote"
    voided = measured(gate, CANDIDATE, Status.INVALID)
    assert voided and {event.reason for event in voided} == {"EpochChanged"}
    assert any("nothing is known to run at this address" in event.detail for event in voided)


def test_nothing_known_at_an_address_from_the_start_could_not_be_measured(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    request = bench(tmp_path).request(healthy.url, healthy.url)
    with pytest.raises(CouldNotMeasure, match="nothing is known to run at this address now"):
        carried_out(request, hooks=Hooks(present_epoch=lambda arm, url: None))
    assert not (tmp_path / "run.db").exists()


def called(request: RunRequest, name: str) -> RunRequest:
    return replace(request, candidate=replace(request.candidate, called=name))


def test_an_arm_with_a_name_goes_on_at_another_address_and_one_without_does_not(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)

    class Gone(Exception):
        pass

    def break_off(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 6:
            raise Gone

    with start_simulated(seed=2, text_seed=9) as first, start_simulated(seed=2, text_seed=9) as second:
        pods = {first.url: "pod-1", second.url: "pod-2", healthy.url: "pod-0"}
        hooks = Hooks(present_epoch=lambda arm, url: pods[url])
        for name, store in (("web of llm", "named.db"), (None, "bare.db")):
            request = work.request(healthy.url, first.url, store)
            request = request if name is None else called(request, name)
            with pytest.raises(Gone):
                carried_out(request, Watch(acts=[break_off]), hooks)
        moved = work.request(healthy.url, second.url, "named.db")
        finished = carried_out(called(moved, "web of llm"), hooks=hooks)
        with pytest.raises(BadInput, match="candidate: the store was begun with"):
            carried_out(work.request(healthy.url, second.url, "bare.db"), hooks=hooks)
        with pytest.raises(BadInput, match="servers of the candidate: the store was begun with 1, now 2"):
            several = work.request(healthy.url, first.url, "named.db", more_candidates=(second.url,))
            carried_out(called(several, "web of llm"), hooks=hooks)
    gate, _ = stored(tmp_path / "named.db")
    assert finished.verdict.decision.decision == "promote"
    assert finished.verdict.candidate_name == gate.plan.candidate_url == "web of llm"
    assert [epoch.partition("~")[0] for epoch in epochs(gate, CANDIDATE)] == ["pod-1", "pod-2"]
    assert sum(isinstance(event, RunResumed) for event in finished.journal.events()) == 1


def test_secrets_held_in_memory_open_the_servers_and_stand_in_nothing_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, authority = bench(tmp_path), trustme.CA()
    client = authority.issue_cert("gate@example.com")
    monkeypatch.setenv("SERVERS_OWN_KEY", KEY)
    guarded: dict[str, Any] = {"text_seed": 9, "api_key_env": "SERVERS_OWN_KEY"}
    held = HeldAccess(
        api_key=Held("Secret llm, key token", KEY.encode()),
        ca=Held("Secret llm, key ca.crt", authority.cert_pem.bytes()),
        client_cert=Held("Secret llm, key tls.crt", client.cert_chain_pems[0].bytes()),
        client_key=Held("Secret llm, key tls.key", client.private_key_pem.bytes()),
    )
    with (
        start_simulated(seed=1, **guarded) as baseline,
        start_simulated(seed=2, **guarded) as candidate,
        tls_front(baseline.url, authority.issue_cert("127.0.0.1"), authority) as old,
        tls_front(candidate.url, authority.issue_cert("127.0.0.1"), authority) as new,
    ):
        monkeypatch.delenv("SERVERS_OWN_KEY")
        request = work.request(old.url, new.url)
        with pytest.raises(CouldNotMeasure, match="Tls"):
            carried_out(request)
        access = Access(held=held)
        assert request.baseline is not None
        request = replace(
            request,
            baseline=replace(request.baseline, access=access),
            candidate=replace(request.candidate, access=access),
        )
        finished = carried_out(request)
        wrong = replace(held, api_key=Held("Secret llm, key token", b"another-key-0123456789"))
        with pytest.raises(CouldNotMeasure, match="401"):
            carried_out(
                replace(
                    request,
                    store=tmp_path / "wrong.db",
                    candidate=replace(request.candidate, access=Access(held=wrong)),
                )
            )
    assert finished.verdict.decision.decision == "promote"
    assert set(old.clients) == set(new.clients) == {f"{client_serial(client)}"}
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    shown = "".join(render(finished.verdict, name, {}) for name in ("html", "json", "markdown"))
    told = f"{finished.gate.plan!r} {request!r}"
    key_line = client.private_key_pem.bytes().splitlines()[1]
    assert KEY.encode() not in kept and KEY not in shown and KEY not in told
    assert key_line not in kept and key_line.decode() not in shown + told
    assert KEY not in "".join(os.environ.values())


def client_serial(certificate: trustme.LeafCert) -> str:
    from cryptography import x509

    return f"{x509.load_pem_x509_certificate(certificate.cert_chain_pems[0].bytes()).serial_number:X}"


def test_what_cannot_be_used_is_told_in_the_words_of_the_caller_s_own_users(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    names = {"--candidate-model": "spec.candidate.model", "--wait-ready": "spec.startSeconds"}
    with (
        start_simulated(seed=2, text_seed=9, model=["one", "two"]) as several,
        pytest.raises(BadInput, match=r"one of them, named by spec\.candidate\.model\)"),
    ):
        carried_out(work.request(healthy.url, several.url), hooks=Hooks(names=names))
    nobody = work.request(healthy.url, f"http://127.0.0.1:{free_port()}", wait_ready_seconds=0.2)
    with pytest.raises(CouldNotMeasure, match=r"not ready within the 0\.2 s of spec\.startSeconds"):
        carried_out(nobody, hooks=Hooks(names=names))


class Swapping:
    """The caller's own hand: swaps the servers of one place itself, and knows which pod is up by then."""

    how = "controller"
    keeps_word = True
    asks_again = False
    patience_seconds = 60.0
    old_life_seconds = 5.0

    def __init__(self, put: Callable[[str], None]) -> None:
        self._put = put
        self.up, self.pods = BASELINE, 1
        self.orders: list[SwapOrder] = []

    async def swap(self, order: SwapOrder) -> None:
        self.orders.append(order)
        await asyncio.to_thread(self._put, order.arm)
        self.up, self.pods = order.arm, self.pods + 1

    def present(self, arm: str, url: str) -> str | None:
        return f"pod-{self.pods}" if arm == self.up else None


def test_the_caller_s_hand_swaps_the_servers_of_a_sequential_run_and_each_window_has_its_pod(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with put_up(simulated_place(tmp_path, (), ("--build-info", "b2"))) as place:
        hand = Swapping(place.put_up)
        request = work.request(place.url, place.url, shape=Shape(sequential=True))
        request = replace(request, differences=(Difference("build", "build", None, None),))
        hooks = Hooks(hand=lambda asked, said: hand, present_epoch=hand.present)
        finished = carried_out(request, hooks=hooks)
    assert finished.verdict.decision.decision == "promote"
    assert {order.arm for order in hand.orders} == {BASELINE, CANDIDATE}
    seen = [event for event in finished.journal.events() if isinstance(event, EpochSeen)]
    assert {event.arm for event in seen} == {BASELINE, CANDIDATE}
    pods = [event.server_epoch.partition("~")[0] for event in seen]
    assert len(pods) == len(set(pods)) and all(pod.startswith("pod-") for pod in pods)
    assert not measured(finished.gate, status=Status.INVALID)


class Moving(Swapping):
    """A hand whose servers each have an address of their own, as pods do; those before it are ended."""

    def __init__(self, places: contextlib.ExitStack) -> None:
        super().__init__(self._start)
        self._places = places
        self.urls: dict[str, str] = {}
        self.used: list[str] = []
        self.up = ""

    def urls_now(self, arm: str) -> str | None:
        return self.urls.get(arm)

    def _start(self, arm: str) -> None:
        self._places.close()
        build = {"build_info": "b2"} if arm == CANDIDATE else {}
        server = self._places.enter_context(start_simulated(seed=2, text_seed=9, **build))
        self.urls = {arm: server.url}
        self.used.append(server.url)


def test_a_sequential_run_follows_its_servers_to_their_addresses(tmp_path: Path) -> None:
    work = bench(tmp_path, throughput={"minOutputTokens": 32})
    with contextlib.ExitStack() as places:
        hand = Moving(places)
        nowhere = ("http://baseline.invalid", "http://candidate.invalid")
        request = work.request(*nowhere, shape=Shape(sequential=True))
        called = {arm: replace(request.arm(arm), called=f"chat {arm}") for arm in (BASELINE, CANDIDATE)}
        differences = (Difference("build", "build", None, None),)
        request = replace(request, differences=differences, baseline=called[BASELINE], candidate=called[CANDIDATE])
        hooks = Hooks(hand=lambda asked, said: hand, present_epoch=hand.present, address=hand.urls_now)
        finished = carried_out(request, hooks=hooks)
    assert finished.verdict.decision.decision == "promote"
    assert len(hand.used) == len(set(hand.used)) >= 3
    assert len(hand.orders) == len(hand.used)
    assert not measured(finished.gate, status=Status.INVALID)


def test_a_run_whose_store_a_higher_token_took_over_ends_and_the_new_holder_goes_on(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)

    def taken_over(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 5:
            open_store(tmp_path / "run.db", Fence(8)).close()

    with start_simulated(seed=2, text_seed=9) as candidate:
        request = work.request(healthy.url, candidate.url)
        with pytest.raises(RunBroken, match="taken over by a writer with token 8") as broken:
            carried_out(request, Watch(acts=[taken_over]), Hooks(fence=Fence(7)))
        assert isinstance(broken.value.__cause__, StoreFenced)
        before = stored(tmp_path / "run.db")[0].measured
        with pytest.raises(CouldNotMeasure, match="the writer with token 7 may not write it any more"):
            carried_out(request, hooks=Hooks(fence=Fence(7)))
        finished = carried_out(request, hooks=Hooks(fence=Fence(8)))
    assert finished.verdict.decision.decision == "promote"
    assert list(before) == list(range(6))
    gate = stored(tmp_path / "run.db")[0]
    assert all(gate.measured[cell_id] == event for cell_id, event in before.items())


def test_a_new_store_is_made_with_the_token_of_its_run(healthy: SimulatedServer, tmp_path: Path) -> None:
    with start_simulated(seed=2, text_seed=9) as candidate:
        carried_out(bench(tmp_path).request(healthy.url, candidate.url), hooks=Hooks(fence=Fence(7)))
    with pytest.raises(StoreFenced, match="token 7"):
        open_store(tmp_path / "run.db", Fence(6))


def test_two_runs_at_once_in_another_thread_keep_apart_and_one_is_cancelled_from_outside(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    """As a controller keeps its own loop free of their writing."""
    work, under_way, go_on = bench(tmp_path), threading.Event(), threading.Event()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Finished]]] = []
    ended: list[Finished | BaseException] = []

    def third_cell(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 2:
            under_way.set()
            go_on.wait(60)  # the cancellation is on its way before anything else of either run

    async def both(first: RunRequest, second: RunRequest) -> None:
        tasks = [
            asyncio.create_task(execute(first, Watch(), None, unsaid)),
            asyncio.create_task(execute(second, Watch(acts=[third_cell]), None, unsaid)),
        ]
        loops.append((asyncio.get_running_loop(), tasks[1]))
        ended.extend(await asyncio.gather(*tasks, return_exceptions=True))

    with start_simulated(seed=2, text_seed=9) as one, start_simulated(seed=3, text_seed=9) as two:
        requests = (work.request(healthy.url, one.url, "first.db"), work.request(None, two.url, "second.db"))
        thread = threading.Thread(target=lambda: asyncio.run(both(*requests)))
        thread.start()
        assert under_way.wait(60)
        loop, task = loops[0]
        loop.call_soon_threadsafe(task.cancel)
        go_on.set()
        thread.join(120)
        finished, cancelled = ended
        assert isinstance(cancelled, asyncio.CancelledError)
        assert isinstance(finished, Finished) and finished.verdict.decision.decision == "promote"
        finished.journal.close()
        assert len(stored(tmp_path / "second.db")[0].measured) == 3
        carried_out(requests[1])
    assert stored(tmp_path / "second.db")[0].session == 1


def test_a_run_numbers_its_replicates_from_the_number_it_is_given_and_keeps_it_when_it_goes_on(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, replicate={"gapSeconds": 0})

    class Gone(Exception):
        pass

    def break_off(gate: Gate, event: Event) -> None:
        if gate.replicates and len(gate.replicates[0].candidate) == 2:
            raise Gone

    with start_simulated(seed=2, text_seed=9, fault=["bad-rate=0.9"]) as candidate:
        request = replace(work.request(healthy.url, candidate.url), first_replicate=4)
        with pytest.raises(Gone):
            carried_out(request, Watch(acts=[break_off]))
        finished = carried_out(replace(request, first_replicate=1))
    (replicate,) = finished.verdict.replicates
    assert (replicate.number, replicate.threshold, replicate.ending) == (4, 480.0, "confirmed")
    assert finished.verdict.decision.reason == "RegressionConfirmed"
