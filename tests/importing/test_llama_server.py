"""llama-server's text log: real ones of a current build, and the line shapes of older builds and of ik_llama.cpp."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillgate.core.cells import Status
from prefillgate.core.freshness import classify
from prefillgate.importers.base import Absent, Found, Imported, Unread
from prefillgate.importers.registry import find_format
from prefillgate.importers.source import Source

LOGS = Path(__file__).parent / "logs" / "llama_server"
FIGURES = """\
prompt eval time =     347.53 ms /    32 tokens (   10.86 ms per token,    92.08 tokens per second)
       eval time =     349.18 ms /     6 tokens (   69.84 ms per token,    14.32 tokens per second)
      total time =     696.71 ms /    38 tokens
"""


def read(data: str | bytes) -> list[Found]:
    source = Source(io.BytesIO(data.encode() if isinstance(data, str) else data), "log")
    found = find_format(source)
    assert found.name == "llama-server-log"
    return list(found.read(source))


def real(name: str) -> list[Found]:
    return read((LOGS / name).read_bytes())


def cells(found: list[Found]) -> list[Imported]:
    return [each for each in found if isinstance(each, Imported)]


def counts(found: list[Found]) -> list[tuple[int | None, int | None, int | None, int | None]]:
    told = [each.line.cell for each in cells(found)]
    return [(cell.prompt_tokens, cell.cached_tokens, cell.processed_tokens, cell.output_tokens) for cell in told]


def test_at_default_verbosity_a_real_log_tells_the_prompts_length_by_the_release_of_its_slot() -> None:
    found = real("default.log")
    assert counts(found) == [
        (32, 0, 32, 6),
        (34, 0, 34, 6),
        (34, 29, 5, 4),
        (34, 0, 34, 4),
        (None, None, None, None),
    ]
    classes = [item.cell_class.value for item in classify([each.line.cell for each in cells(found)[:4]])]
    assert classes == ["fresh", "fresh", "orphan", "fresh"]
    first = cells(found)[0].line.cell
    assert (first.prefill_ms, first.decode_ms, first.started_at) == (347.53, 349.18, None)
    assert cells(found)[0].label == "gemma-3-270m-q4_k_m.gguf"
    assert [each.what for each in found if isinstance(each, Absent)] == ["prompts", "outputs"]


def test_without_the_releases_of_its_slots_a_log_tells_no_length_and_the_flag_that_would() -> None:
    kept = [line for line in (LOGS / "default.log").read_bytes().split(b"\n") if b" release: " not in line]
    found = read(b"\n".join(kept))
    assert counts(found)[:4] == [(None, None, 32, 6), (None, None, 34, 6), (None, None, 5, 4), (None, None, 34, 4)]
    told = {each.what: each.flag for each in found if isinstance(each, Absent)}
    assert set(told) == {"prompts", "outputs", "prompt length", "cached tokens"}
    assert told["prompt length"] == told["cached tokens"]
    assert "--verbosity 4" in str(told["prompt length"]) and "replayset record" in str(told["prompts"])


def test_a_request_that_was_refused_is_an_invalid_cell_with_the_servers_words() -> None:
    refused = cells(real("default.log"))[-1]
    assert (refused.line.cell.status, refused.line.scored) == (Status.INVALID, False)
    assert str(refused.line.reason).startswith("request (1502 tokens) exceeds the available context size")


def test_at_more_verbosity_a_real_log_tells_length_and_reuse_as_the_replies_did() -> None:
    found = real("verbose.log")
    assert counts(found)[:4] == [(32, 0, 32, 6), (34, 0, 34, 6), (34, 29, 5, 4), (34, 0, 34, 4)]
    assert [each.what for each in found if isinstance(each, Absent)] == ["prompts", "outputs"]
    classes = [item.cell_class.value for item in classify([each.line.cell for each in cells(found)])]
    assert classes == ["fresh", "fresh", "orphan", "fresh"]


def test_the_choices_of_one_request_are_one_prefill_and_a_restart_is_another_epoch() -> None:
    found = cells(real("choices.log"))
    told = [each.line.cell for each in found]
    assert [(cell.request_id, cell.choice_index) for cell in told[:3]] == [
        ("task 0", 1),
        ("task 0", 2),
        ("task 0", None),
    ]
    assert len({cell.case_id for cell in told[:3]}) == 1
    assert [cell.server_epoch for cell in told] == ["log start 0"] * 5 + ["log start 1"]
    assert told[5].case_id != told[0].case_id, "task 0 of another life is another request"
    assert (told[4].status, found[4].line.reason) == (Status.INVALID, "cancelled")


def test_choices_share_the_length_that_only_their_parent_tells() -> None:
    log = (
        "slot launch_slot_: id  0 | task 8 | processing task, is_child = 1\n"
        "slot launch_slot_: id  1 | task 7 | processing task, is_child = 0\n"
        "slot update_slots: id  1 | task 7 | new prompt, n_ctx_slot = 512, n_keep = 0, task.n_tokens = 40\n"
        "slot update_slots: id  1 | task 7 | n_tokens = 8, memory_seq_rm [8, end)\n"
        "slot update_slots: id  1 | task 7 | n_tokens = 24, memory_seq_rm [24, end)\n"
    )
    for task in (8, 7):
        log += "".join(f"slot print_timing: id  0 | task {task} | {line}\n" for line in FIGURES.splitlines())
    assert [told[:2] for told in counts(read(log))] == [(40, 8), (40, 8)]


@pytest.mark.parametrize(
    ("between", "release", "told"),
    [
        ("", "n_tokens = 45, truncated = 0", (40, 8)),
        ("", "n_tokens = 37, truncated = 0", (32, 0)),
        ("", "n_tokens = 36, truncated = 0", (None, None)),  # less than was processed
        ("", "n_tokens = 45, truncated = 1", (None, None)),  # cut to fit
        ("", "n_past = 45, truncated = 0", (None, None)),  # an older word for something else
        ("print_timing: id  0 | task 8 | graphs reused = 4", "n_tokens = 45, truncated = 0", (40, 8)),
        ("print_timing: id  0 | task 8 | draft acceptance = 0.5", "n_tokens = 45, truncated = 0", (None, None)),
        ("launch_slot_: id  1 | task 9 | processing task, is_child = 0", "n_tokens = 45, truncated = 0", (None, None)),
    ],
)
def test_a_release_tells_the_length_only_where_nothing_else_can_stand_in_the_slot(
    between: str, release: str, told: tuple[int | None, int | None]
) -> None:
    log = "".join(f"slot print_timing: id  0 | task 8 | {line}\n" for line in FIGURES.splitlines())
    log += f"slot {between}\n" if between else ""
    log += f"slot release: id  0 | task 8 | stop processing: {release}\n"
    (found, *more) = counts(read(log))
    assert found == (*told, 32, 6)
    assert more == []


def test_the_length_that_its_own_line_tells_stands_above_what_the_slot_held() -> None:
    log = "slot update_slots: id  0 | task 8 | new prompt, n_ctx_slot = 512, n_keep = 0, task.n_tokens = 40\n"
    log += "".join(f"slot print_timing: id  0 | task 8 | {line}\n" for line in FIGURES.splitlines())
    log += "slot release: id  0 | task 8 | stop processing: n_tokens = 99, truncated = 0\n"
    assert counts(read(log)) == [(40, 8, 32, 6)]


def test_tasks_whose_lines_follow_each_other_without_a_release_are_all_told() -> None:
    log = ""
    for task in (3, 4, 3):
        log += "".join(f"slot print_timing: id  0 | task {task} | {line}\n" for line in FIGURES.splitlines())
    log += "srv  init: initializing ...\n"
    assert counts(read(log)) == [(None, None, 32, 6)] * 3


def test_figures_below_a_line_with_ids_belong_to_it() -> None:
    log = "".join(f"slot print_timing: id  {slot} | task {slot + 4} | \n{FIGURES}" for slot in (0, 1))
    told = cells(read(log))
    assert [each.line.cell.request_id for each in told] == ["task 4", "task 5"]
    assert counts(read(log)) == [(None, None, 32, 6)] * 2


IK = (
    'INFO [   launch_slot_with_task] slot is processing task | tid="1" timestamp=1748127207 id_slot=0 id_task=6\n'
    'INFO [            update_slots] kv cache rm [p0, end) | tid="1" timestamp=1748127207 id_slot=0 id_task=6 p0=9\n'
    'INFO [            update_slots] kv cache rm [p0, end) | tid="1" timestamp=1748127209 id_slot=0 id_task=6 p0=4105\n'
    "INFO [           print_timings] prompt eval time     =    1170.90 ms /    13 tokens (   90.07 ms per token) | "
    'tid="1" timestamp=1748127268 id_slot=0 id_task=6 n_prompt_tokens_processed=13\n'
    "INFO [           print_timings] generation eval time =   59250.24 ms /   514 runs   (  115.27 ms per token) | "
    'tid="1" timestamp=1748127268 id_slot=0 id_task=6\n'
    'INFO [           print_timings]           total time =   60421.14 ms | tid="1" id_slot=0 id_task=6\n'
)
JSON = (
    '{"level":"INFO","function":"print_timings","msg":"prompt eval time     =    1170.90 ms /    13 tokens",'
    '"id_slot":0,"id_task":6}\n'
    '{"level":"INFO","function":"print_timings","msg":"          total time =   60421.14 ms","id_slot":0,"id_task":6}\n'
)
FIRST = (
    "print_timings: prompt eval time =    1170.90 ms /    13 tokens\n"
    "print_timings:        eval time =   59250.24 ms /   514 runs   (  115.27 ms per token)\n"
    "print_timings:       total time =   60421.14 ms\n"
) * 2
MIDDLE = (
    "slot launch_slot_: id  0 | task 6 | processing task\n"
    "slot update_slots: id  0 | task 6 | new prompt, n_ctx_slot = 4096, n_keep = 0, n_prompt_tokens = 22\n"
    "slot update_slots: id  0 | task 6 | kv cache rm [9, end)\n"
    f"slot print_timing: id  0 | task 6 | \n{FIGURES.replace('/    32', '/    13')}"
)


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (IK, [(22, 9, 13, 514)]),
        (JSON, [(None, None, 13, None)]),
        (FIRST, [(None, None, 13, 514)] * 2),
        (MIDDLE, [(22, 9, 13, 6)]),
    ],
    ids=["ik_llama", "json", "first", "middle"],
)
def test_older_builds_and_forks_are_read(log: str, told: list[object]) -> None:
    assert counts(read(log)) == told


def test_absolute_times_of_older_builds_are_when_a_task_began() -> None:
    assert cells(read(IK))[0].line.cell.started_at == 1748127207.0


def test_the_librarys_own_sums_are_no_request() -> None:
    assert counts(read(MIDDLE + "llama_perf_context_print: prompt eval time = 1.0 ms / 5 tokens\n")) == [(22, 9, 13, 6)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("slot print_timing: id  0 | task 3 | prompt eval time = 34", "figures of a request that cannot be read"),
        ("slot print_timing: id  0 | task 3 | total time = 3.00 ms /", "a total without the figures before it"),
        (
            "slot launch_slot_: id  0 | task 3 | processing task",
            "a request that was begun and whose end is not in the log",
        ),
        (
            "slot print_timing: id 0 | task 3 | prompt eval time = " + "3" * 5000,
            "figures of a request that cannot be read",
        ),
        ("slot print_timing: id 0 | eval time" + "x" * 17_000_000, "the line is longer than 16777216 bytes"),
    ],
)
def test_damaged_and_unended_requests_are_named(line: str, why: str) -> None:
    found = read(f"{MIDDLE}{line}\n{MIDDLE}")
    assert [(each.where, each.why) for each in found if isinstance(each, Unread)] == [("log:8", why)]
    assert len(cells(found)) == 2


def test_a_restart_in_the_middle_of_a_request_is_named() -> None:
    found = read("slot launch_slot_: id 0 | task 3 | processing task\nsrv init: initializing ...\n" + MIDDLE)
    assert [each.where for each in found if isinstance(each, Unread)] == ["log:1"]


@given(st.data())
def test_nothing_in_a_log_can_break_the_reader(data: st.DataObject) -> None:
    lines = ((LOGS / "verbose.log").read_text() + IK + MIDDLE + FIRST).splitlines()
    chosen = data.draw(st.lists(st.sampled_from(lines), max_size=30))
    cut = [line[: data.draw(st.integers(0, len(line)))] + data.draw(st.text(max_size=3)) for line in chosen]
    found = read("\n".join(["slot x: id 0 | task -1 | y", *cut]))
    assert all(each.line.cell.processed_tokens is None or each.line.cell.processed_tokens >= 0 for each in cells(found))


@pytest.mark.parametrize("line", [b"eval time id " + b" " * 2_000_000, b"eval time " + b"id 1 " * 400_000])
def test_a_long_hostile_line_is_read_in_one_pass(line: bytes) -> None:
    found = read(b"slot x: id 0 | task -1 | y\n" + line)
    assert [each.where for each in found if isinstance(each, Unread)] == ["log:2"], "quadratic, it would not end"
