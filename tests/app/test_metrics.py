"""What is counted: figures of real verdicts, once each, under labels that are bounded."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from prefillgate.app.metrics import MOST_LINES, Metrics
from prefillgate.app.metrics_table import ROWS
from prefillgate.core.verdict import Verdict
from prefillgate.kube.queue import Depth
from prefillgate.kube.transport import CallMade
from prefillgate.reconcile.snapshot import WorkKind, WorkSeen, WorkState
from tests.support import verdicts
from tests.support.simulated import SimulatedServer
from tests.support.works import LINE_UID, ROLLOUT_UID, looks_of, order, room

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
BEGAN = 1000.0


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def work(verdict: Verdict, state: WorkState = WorkState.RUNNING, **more: object) -> WorkSeen:
    ended = BEGAN + 9 if state is WorkState.ENDED else None
    made = WorkSeen("uid-1", WorkKind.JUDGE, state, BEGAN, verdict=verdict, ended_at=ended)
    return replace(made, **more)  # type: ignore[arg-type]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"prefillgate_{name}", labels)


def series(metrics: Metrics, name: str) -> dict[str, float]:
    """Of a metric: label values, with a comma, to the figure."""
    found = (each for each in metrics.registry.collect() if each.name == f"prefillgate_{name}")
    samples = (sample for each in found for sample in each.samples if not sample.name.endswith("_created"))
    return {",".join(sample.labels.values()): sample.value for sample in samples}


def test_cells_and_prefills_are_those_of_the_verdict(metrics: Metrics) -> None:
    metrics.saw("llm/chat", [work(verdicts.story())])
    assert series(metrics, "cells") == {
        "llm/chat,baseline,fresh": 2,
        "llm/chat,baseline,copy": 18,
        "llm/chat,candidate,fresh": 10,
        "llm/chat,candidate,copy": 10,
    }
    assert series(metrics, "prefill_units") == {
        "llm/chat,baseline,good": 2,
        "llm/chat,candidate,good": 8,
        "llm/chat,candidate,bad": 2,
    }
    assert value(metrics, "cached_share", line="llm/chat", arm="baseline") == pytest.approx(0.9)
    assert value(metrics, "cached_share", line="llm/chat", arm="candidate") == pytest.approx(0.5)
    assert value(metrics, "e_value", line="llm/chat") == 1.0


def test_every_freshness_has_a_word(metrics: Metrics) -> None:
    metrics.saw("llm/chat", [work(verdicts.every_class())])
    words = {key.rpartition(",")[2] for key in series(metrics, "cells") if ",candidate," in key}
    assert words >= {"fresh", "copy", "partial", "unknown", "orphan"}
    counts = verdicts.every_class().candidate
    got = sum(count for key, count in series(metrics, "cells").items() if ",candidate," in key)
    assert got == counts.requests + counts.invalid


def test_a_look_that_comes_again_counts_nothing_again(metrics: Metrics) -> None:
    metrics.saw("llm/chat", [work(verdicts.alarm_refused())])
    first = series(metrics, "cells")
    metrics.saw("llm/chat", [work(verdicts.alarm_refused())])
    assert series(metrics, "cells") == first
    metrics.saw("llm/chat", [work(verdicts.story())])
    assert series(metrics, "cells")["llm/chat,candidate,fresh"] == 10
    assert first["llm/chat,candidate,fresh"] == 2


def test_another_work_adds_to_the_counters(metrics: Metrics) -> None:
    for key in ("uid-1", "uid-2"):
        metrics.saw("llm/chat", [work(verdicts.promote(), key=key)])
    assert series(metrics, "cells")["llm/chat,candidate,fresh"] == 64


def test_what_a_resumed_run_had_measured_before_is_not_counted(metrics: Metrics) -> None:
    metrics.saw("llm/chat", [work(verdicts.story(), before=verdicts.alarm_refused())])
    assert series(metrics, "cells") == {"llm/chat,candidate,fresh": 8}
    metrics.saw("llm/chat", [work(verdicts.story(), before=verdicts.alarm_refused())])
    assert series(metrics, "cells") == {"llm/chat,candidate,fresh": 8}


def test_what_another_leader_measured_between_two_terms_is_not_counted(metrics: Metrics) -> None:
    metrics.leads(1)
    metrics.saw("llm/chat", [work(verdicts.alarm_refused())])
    first = series(metrics, "cells")
    metrics.leads(None)
    metrics.leads(3)
    metrics.saw("llm/chat", [work(verdicts.story(), before=verdicts.story())])
    assert series(metrics, "cells") == first


def test_a_replay_that_a_new_process_resumes_is_counted_from_there_however_often_it_moves(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    def counted(seen: WorkSeen) -> float:
        figures = Metrics()
        figures.saw("prod/llm", [seen])
        return sum(series(figures, "cells").values())

    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            here.works.start(order(), looks.observed())
            await here.until(lambda seen: seen.rows > 5)
            assert here.one().before is None
        async with room(tmp_path / "stores", token=2) as here:
            here.works.start(order(), looks.observed())
            seen = await here.until(lambda seen: seen.before is not None)
            first = counted(replace(seen, verdict=seen.before, before=None))
            await here.until(lambda found: found.rows > seen.rows + 3)
            here.works.stop(LINE_UID, ROLLOUT_UID, "The line is suspended.")
            await here.until(lambda seen: seen.state is not WorkState.RUNNING)
            here.works.start(order(), looks.observed())
            seen = await here.until(lambda seen: seen.state is WorkState.ENDED)
        assert 0 < first < counted(replace(seen, before=None))
        assert counted(seen) == counted(replace(seen, before=None)) - first

    asyncio.run(story())


def test_requests_that_were_refused_are_counted_by_reason(metrics: Metrics) -> None:
    metrics.saw("llm/chat", [work(verdicts.could_not_measure())])
    assert series(metrics, "refusals") == {"llm/chat,candidate,OtherTraffic": 1}
    assert series(metrics, "cells")["llm/chat,candidate,invalid"] == 1


@pytest.mark.parametrize(
    ("verdict", "refused"), [(verdicts.alarm_refused(), 1.0), (verdicts.confirmed(), 0.0), (verdicts.promote(), 0.0)]
)
def test_a_rollback_is_refused_while_an_alarm_stands_that_no_replicate_confirmed(
    verdict: Verdict, refused: float, metrics: Metrics
) -> None:
    metrics.saw("llm/chat", [work(verdict)])
    assert value(metrics, "rollback_refused", line="llm/chat") == refused


def test_decisions_are_counted_by_verdict_and_reason(metrics: Metrics) -> None:
    metrics.decided("llm/chat", "Promote", "AcceptanceReached")
    metrics.decided("llm/chat", "Promote", "AcceptanceReached")
    metrics.decided("llm/code", "Rollback", "CandidateUnavailable")
    assert series(metrics, "decisions") == {
        "llm/chat,Promote,AcceptanceReached": 2,
        "llm/code,Rollback,CandidateUnavailable": 1,
    }


def test_works_are_shown_by_kind_and_state_and_go_with_the_term(metrics: Metrics) -> None:
    metrics.leads(7)
    floor = WorkSeen("floor/x", WorkKind.FLOOR, WorkState.BROKEN, BEGAN)
    metrics.saw("llm/chat", [work(verdicts.promote()), floor])
    metrics.saw("llm/code", [work(verdicts.promote())])
    assert value(metrics, "works", kind="judge", state="running") == 2
    assert value(metrics, "works", kind="floor", state="broken") == 1
    waits = replace(work(verdicts.promote()), waiting="WaitingForTurn")
    metrics.saw("llm/code", [waits, replace(waits, key="b", waiting="WaitingForIdle")])
    assert value(metrics, "works", kind="judge", state="waiting") == 1  # what waits for a server has its turn
    assert value(metrics, "works", kind="judge", state="running") == 2
    assert (value(metrics, "leading"), value(metrics, "term"), value(metrics, "lines")) == (1, 7, 2)
    metrics.leads(None)
    assert value(metrics, "works", kind="judge", state="running") == 0
    assert (value(metrics, "leading"), value(metrics, "term")) == (0, 0)
    assert series(metrics, "cached_share") == {} == series(metrics, "rollback_refused")
    assert series(metrics, "cells") != {}  # counters of a process only grow
    assert value(metrics, "lines") == 0
    metrics.leads(8)
    metrics.only(["llm/code"])
    assert value(metrics, "lines") == 1
    assert {key.partition(",")[0] for key in series(metrics, "cells")} == {"llm/code"}


def test_ten_thousand_lines_have_so_many_labels_and_no_more(metrics: Metrics) -> None:
    for number in range(10_000):
        metrics.saw(f"llm/line-{number}", [work(verdicts.story())] if number % 100 == 0 else [])
    lines = {key.partition(",")[0] for key in series(metrics, "cells")}
    assert len(lines) <= MOST_LINES + 1 and "other" in lines
    assert value(metrics, "lines") == 10_000
    assert value(metrics, "cells_total", line="other", arm="candidate", freshness="fresh") == 98 * 10
    for number in range(10_000):
        metrics.gone(f"llm/line-{number}")
    assert {key.partition(",")[0] for key in series(metrics, "cells")} == {"other"} and value(metrics, "lines") == 0
    assert value(metrics, "cached_share", line="other", arm="candidate") is None  # of many lines there is no one figure
    metrics.saw("llm/new", [work(verdicts.story())])
    assert value(metrics, "cells_total", line="llm/new", arm="candidate", freshness="fresh") == 10


def test_a_line_that_is_gone_and_was_never_there_is_no_failure(metrics: Metrics) -> None:
    metrics.gone("llm/chat")
    assert value(metrics, "lines") in (None, 0)


def test_kinds_that_a_line_may_name_do_not_become_labels(metrics: Metrics) -> None:
    for number in range(50):
        metrics.called(CallMade("list", f"things-{number}", "Ok", None, 0.1))
    metrics.called(CallMade("apply", "servinglines", "Conflict", 409, 0.2))
    assert series(metrics, "api_calls") == {"list,other,Ok": 50, "apply,servinglines,Conflict": 1}
    assert value(metrics, "api_call_seconds_sum", verb="apply") == pytest.approx(0.2)


def test_a_watch_is_counted_and_its_minutes_are_not(metrics: Metrics) -> None:
    metrics.called(CallMade("watch", "pods", "Ok", None, 300.0))
    assert series(metrics, "api_calls") == {"watch,pods,Ok": 1}
    assert value(metrics, "api_call_seconds_count", verb="watch") is None


def test_queue_and_looks_and_events(metrics: Metrics) -> None:
    metrics.queued()
    metrics.retried()
    metrics.queue(lambda: Depth(3, 2, 1))
    metrics.looked("ServingLine", 0.3)
    metrics.failed("ServingLine", "Bug")
    metrics.told("Held")
    metrics.waiting(4)
    metrics.synced(True)
    assert (value(metrics, "queue_adds_total"), value(metrics, "queue_retries_total")) == (1, 1)
    assert series(metrics, "queue_depth") == {"ready": 3, "busy": 2, "later": 1}
    metrics.queue(None)
    assert series(metrics, "queue_depth") == {"ready": 0, "busy": 0, "later": 0}
    assert value(metrics, "reconcile_seconds_sum", kind="ServingLine") == pytest.approx(0.3)
    assert series(metrics, "reconcile_errors") == {"ServingLine,Bug": 1}
    assert series(metrics, "notices") == {"Held": 1}
    assert (value(metrics, "notices_waiting"), value(metrics, "synced")) == (4, 1)


def test_the_table_of_metrics_is_what_is_exposed_and_what_the_readme_lists(metrics: Metrics) -> None:
    exposed = {each.name: each for each in metrics.registry.collect() if each.name.startswith("prefillgate_")}
    assert set(exposed) == {f"prefillgate_{row.name}" for row in ROWS}
    assert {name: each.type for name, each in exposed.items()} == {f"prefillgate_{row.name}": row.kind for row in ROWS}
    listed = re.findall(r"^\| `(prefillgate_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", README, re.MULTILINE)
    labels = {row.shown: ", ".join(f"`{each}`" for each in row.labels) for row in ROWS}
    assert listed == [(row.shown, row.kind, labels[row.shown], row.help) for row in ROWS]


def test_the_processs_own_metrics_are_there(metrics: Metrics) -> None:
    names = {each.name for each in metrics.registry.collect()}
    assert "python_info" in names or any(name.startswith("python") for name in names)
