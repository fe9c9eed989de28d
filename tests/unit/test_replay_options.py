"""What `prefillgate floor` and `prefillgate recheck` are asked to do: every option reaches the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefillgate.cli.errors import BadInput
from prefillgate.cli.floor import command as floor
from prefillgate.cli.recheck import _requested, name_of
from prefillgate.cli.recheck import command as recheck
from prefillgate.cli.replay_options import one_arm, replay_request
from prefillgate.core.earlier import Watching
from prefillgate.core.shape import Isolation
from prefillgate.evidence import create_store
from prefillgate.replay.session import RunRequest
from prefillgate.runs.watch import WatchRequest
from tests.support.journals import planned

URL, OLD = "http://127.0.0.1:1", "http://127.0.0.1:2"


def options_of(*arguments: str) -> dict[str, Any]:
    asked = ["--baseline", URL, "--replay-set", "demo", *arguments]
    return floor.make_context("floor", asked).params


def request_of(*arguments: str) -> RunRequest:
    options = options_of(*arguments)
    baseline = one_arm("baseline", options)
    return replay_request(options, (baseline, baseline), "floor")


def watch_of(folder: Path, *arguments: str) -> WatchRequest:
    asked = ["--promoted", URL, "--replay-set", "demo", "--folder", str(folder / "again"), *arguments]
    ctx = recheck.make_context("recheck", asked)
    return _requested(ctx, ctx.params)


def test_without_options_a_floor_is_of_the_standard_policy_and_named_after_its_set() -> None:
    asked = request_of()
    assert (asked.policy.policy.name, asked.replay_set.name, asked.seed) == ("standard", "demo", None)
    assert (asked.shape.isolation, asked.wait_ready_seconds, asked.unvalidated_judge) == (Isolation.EXCLUSIVE, 0, False)
    assert (asked.times.cell_timeout_seconds, asked.baseline, asked.candidate.url) == (600.0, asked.candidate, URL)
    assert isinstance(asked.store, Path) and asked.store.name.startswith("demo-floor-")


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        (("--policy", "quick"), lambda r: r.policy.policy.name, "quick"),
        (("--replay-set", "short"), lambda r: r.replay_set.name, "short"),
        (("--store", "x.db"), lambda r: r.store, Path("x.db")),
        (("--seed", "7"), lambda r: r.seed, 7),
        (("--isolation", "shared"), lambda r: r.shape.isolation, Isolation.SHARED),
        (("--wait-ready", "9"), lambda r: r.wait_ready_seconds, 9.0),
        (("--cell-timeout", "5"), lambda r: r.times.cell_timeout_seconds, 5.0),
        (("--unvalidated-judge",), lambda r: r.unvalidated_judge, True),
        (("--model", "m"), lambda r: r.baseline.model, "m"),
        (("--engine", "vllm"), lambda r: r.baseline.engine, "vllm"),
        (("--insecure",), lambda r: r.baseline.access.insecure, True),
        (("--baseline", OLD), lambda r: r.baseline.more_urls, (OLD,)),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) and isinstance(given[0], str) else "",
)
def test_every_option_of_a_floor_reaches_its_run(given: tuple[str, ...], field: Any, value: Any) -> None:
    assert field(request_of(*given)) == value != field(request_of())


def test_a_file_of_a_floor_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match=r"baseline: .*no-such-file"):
        request_of("--ca-file", "no-such-file")


def test_a_recheck_asks_the_promoted_profile_and_keeps_its_stores_in_the_folder(tmp_path: Path) -> None:
    asked = watch_of(tmp_path)
    folder = tmp_path / "again"
    assert (asked.run.candidate.url, asked.prefills, asked.previous, asked.after) == (URL, 8, None, None)
    assert (asked.run.store, asked.replicate) == (folder / "replay-0001.db", folder / "replay-0001-replicate.db")
    assert (asked.run.must_end_at, asked.run.floor, asked.number()) == (None, None, 3)


def test_each_side_of_a_recheck_has_its_own_way(tmp_path: Path) -> None:
    sides = ("--promoted-model", "new", "--previous-model", "old", "--previous", OLD, "--engine", "vllm")
    asked = watch_of(tmp_path, *sides, "--promoted-engine", "sglang")
    assert (asked.run.candidate.model, asked.run.candidate.engine) == ("new", "sglang")
    previous = asked.previous.asked  # type: ignore[union-attr]
    assert (previous.url, previous.model, previous.engine) == (OLD, "old", "vllm")


def test_the_numbers_of_replicates_leave_room_for_what_the_judging_run_may_have_had(tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "apiVersion: prefillgate.io/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: p}\nspec: {marginPercent: 20, "
        "replicate: {maxAttempts: 4}}\n"
    )
    assert watch_of(tmp_path, "--policy", str(policy)).number() == 5
    (tmp_path / "again" / "replay-0007-replicate.db").write_bytes(b"")
    (tmp_path / "again" / "replay-0001-replicate.db").write_bytes(b"")  # its own
    assert watch_of(tmp_path).number() == 4


@pytest.mark.parametrize(("last", "after"), [(9, 8), (9_999, 40), (12_345, 9_999)])
def test_the_next_replay_of_a_folder_comes_after_the_last_one_there(tmp_path: Path, last: int, after: int) -> None:
    folder = tmp_path / "again"
    folder.mkdir()
    for number in (after, last):
        create_store(folder / name_of(number), planned(watching=Watching(8))).close()
    for other in ("replay-x.db", "replay-0001.html", "other.db", "replay-1.db"):
        (folder / other).write_bytes(b"")
    asked = watch_of(tmp_path)  # the last one is not over: it goes on
    assert (asked.run.store, asked.after) == (folder / name_of(last), folder / name_of(after))
