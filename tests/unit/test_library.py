"""The library: replies to cells, cells to prefills, prefills to a decision, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prefillgate.core.journal import Texts
from prefillgate.library import (
    Cell,
    CellClass,
    InputError,
    Reply,
    Status,
    classify,
    count_prefills,
    decide,
    read_reply,
    score,
)

ROOT = Path(__file__).resolve().parents[2]
BODY = {"messages": [{"role": "user", "content": "Review this."}]}


def reply(cached: int | None = 0, text: str = "The loop ends early.", **more: Any) -> dict[str, Any]:
    timings = {} if cached is None else {"timings": {"cache_n": cached, "prompt_n": 100 - cached}}
    choices = [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}]
    return {"choices": choices, "usage": {"prompt_tokens": 100, "completion_tokens": 5}, **timings, **more}


def cells(*told: tuple[int | None, str]) -> list[Cell]:
    return score([each for cached, text in told for each in read_reply(reply(cached, text), BODY)])


class Sdk:
    """A reply as an SDK's object holds it."""

    def model_dump(self) -> dict[str, Any]:
        return reply(96)


class Response:
    """A reply as an HTTP client holds it."""

    status_code = 200

    def json(self) -> dict[str, Any]:
        return reply(96)


STREAM = "\n\n".join(
    "data: " + json.dumps(piece)
    for piece in (
        {"choices": [{"index": 0, "delta": {"content": "The loop "}}]},
        {"choices": [{"index": 0, "delta": {"content": "ends early."}, "finish_reason": "stop"}]},
        {"choices": [], "usage": reply(96)["usage"], "timings": reply(96)["timings"]},
    )
)


@pytest.mark.parametrize(
    "given", [reply(96), json.dumps(reply(96)), json.dumps(reply(96)).encode(), Sdk(), Response(), STREAM + "\n\n"]
)
def test_a_reply_is_read_whatever_holds_it(given: object) -> None:
    (found,) = read_reply(given, BODY, server_epoch="a")
    assert (found.cell.prompt_tokens, found.cell.cached_tokens, found.cell.processed_tokens) == (100, 96, 4)
    assert (found.cell.server_epoch, found.cell.status, found.cell.finish_reason) == ("a", Status.OK, "stop")
    assert found.texts is not None and found.texts.content == "The loop ends early."


def test_equal_bodies_are_one_prompt_and_a_name_will_do_for_one() -> None:
    first, second = (read_reply(reply(), {**BODY, "temperature": heat})[0].cell for heat in (0, 1))
    assert first.prompt_key == second.prompt_key
    assert read_reply(reply(), case_id="pr 7")[0].cell.case_id == "pr 7"
    assert read_reply(reply(), BODY, case_id="pr 7")[0].cell.prompt_key == first.prompt_key


def test_several_choices_are_one_prefill() -> None:
    many = reply(id="r1")
    many["choices"] = [{**many["choices"][0], "index": index} for index in range(4)]
    found = read_reply(many, BODY)
    assert [item.cell_class for item in classify(each.cell for each in found)] == [CellClass.FRESH] + [
        CellClass.COPY
    ] * 3


def test_outputs_are_scored_by_the_default_checks_and_an_outcome_of_ones_own_stands() -> None:
    assert [cell.bad for cell in cells((0, "It ends early."), (0, ""), (0, "VERDICT: LGTM"))] == [False, None, True]
    assert cells((0, ""))[0].outcome() is True  # an empty answer is a failed delivery
    assert score(read_reply(reply(text="VERDICT: LGTM"), BODY, bad=False))[0].bad is False
    assert score([Reply(Cell("candidate", "a"), None, None)])[0].bad is None


def test_an_answer_cut_at_its_limit_is_bad_only_where_the_policy_says_so(tmp_path: Path) -> None:
    cut = reply()
    cut["choices"][0]["finish_reason"] = "length"
    spec = "spec:\n  marginPercent: 10\n  checks:\n  - {type: Cut}\n"
    policy = tmp_path / "cut.yaml"
    policy.write_text(f"apiVersion: prefillgate.io/v1alpha1\nkind: PromotionPolicy\nmetadata: {{name: cut}}\n{spec}")
    assert score(read_reply(cut, BODY))[0].bad is False
    assert score(read_reply(cut, BODY), policy)[0].bad is True


def test_checks_that_run_a_program_are_refused_by_name(tmp_path: Path) -> None:
    spec = "spec:\n  marginPercent: 10\n  checks:\n  - {type: Exec, name: lint, exec: {arguments: [lint]}}\n"
    policy = tmp_path / "exec.yaml"
    policy.write_text(f"apiVersion: prefillgate.io/v1alpha1\nkind: PromotionPolicy\nmetadata: {{name: e}}\n{spec}")
    with pytest.raises(InputError, match=r"exec\.yaml: check lint: Exec starts a program or asks a model"):
        score(read_reply(reply(), BODY), policy)


async def test_it_scores_inside_a_running_loop() -> None:
    assert asyncio.get_running_loop().is_running()
    assert cells((0, "It ends early."))[0].bad is False


def test_requests_and_prefills_are_counted_apart_for_each_arm_that_is_there() -> None:
    mine = cells((0, "VERDICT: LGTM"), (96, "VERDICT: LGTM"), (96, "Fine: it ends early."))
    counted = count_prefills([*mine, replace(mine[0], status=Status.INVALID)])
    assert list(counted) == ["candidate"]
    arm = counted["candidate"]
    assert (arm.requests, arm.prefills, arm.copies, arm.bad_requests, arm.bad_prefills, arm.invalid) == (
        3,
        1,
        2,
        2,
        1,
        1,
    )
    assert count_prefills([]) == {}


def test_a_decision_counts_prefills_and_never_requests() -> None:
    fresh = [replace(cell, case_id=f"c{n % 16}") for n, cell in enumerate(cells(*[(0, "It ends early.")] * 16))]
    assert decide(fresh, "quick").decision.promotion == "Allowed"
    copies = cells((0, "It ends early."), *[(96, "It ends early.")] * 30)
    verdict = decide(copies, "quick", "my log")
    assert (verdict.decision.promotion, verdict.decision.rollback, verdict.title) == ("Blocked", "Refused", "my log")
    assert verdict.candidate.prefills == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: read_reply(reply()), "request: neither it nor case_id is given (allowed: the body sent, "),
        (
            lambda: read_reply(reply(), {"input": "x"}),
            'request: {"input": "x"} (allowed: a body with messages or prompt)',
        ),
        (lambda: read_reply(reply(), [1]), "request: [1] (allowed: a JSON object)"),
        (lambda: read_reply("no", BODY), 'reply: not JSON: "no" (allowed: a JSON object)'),
        (lambda: read_reply("data: no\n\n", BODY), "reply: a streamed reply with an event that is not JSON"),
        (lambda: read_reply({"x": 1}, BODY), "reply: no choices: not the reply of a chat or text completion"),
        (lambda: read_reply(reply(), BODY, arm="new"), 'arm: "new" (allowed: baseline, candidate)'),
        (lambda: read_reply(reply(), BODY, arms="new"), 'arms: "new" (allowed: arm, case_id, replicate, '),
        (lambda: read_reply(reply(), BODY, cold_proof="yes"), 'cold_proof: "yes" (allowed: cache_off, salt, nonce'),
        (lambda: classify([Cell("old", "a")]), 'cell 0: arm: "old" (allowed: baseline, candidate)'),
        (
            lambda: count_prefills([Cell("baseline", "a"), Cell("baseline", 7)]),
            "cell 1: case_id: 7 (allowed: text of 1",
        ),  # type: ignore[arg-type]
        (lambda: decide([Cell("candidate", "a", prompt_tokens=-1)]), "cell 0: prompt_tokens: -1 (allowed: a whole"),
        (lambda: decide([]), "cells: none (allowed: at least one)"),
        (lambda: decide([Cell("candidate", "a")], "lenient"), "policy: no policy and no file lenient"),
    ],
)
def test_bad_input_names_the_field_the_value_and_what_is_allowed(call: Any, said: str) -> None:
    with pytest.raises(InputError) as found:
        call()
    assert said in str(found.value)


@pytest.mark.parametrize("call", [classify, count_prefills, decide])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "cells: one NoneType (allowed: a list; of it, a Cell"),
        ("abc", "cells: one str (allowed: a list"),
        ({"arm": "candidate"}, "cells: one dict (allowed: a list"),
        (Cell("candidate", "a"), "cells: one Cell (allowed: a list"),
        ([Cell("candidate", "a"), None], "cell 1: a NoneType (allowed: a Cell, as `score(replies)` gives them"),
        ([{"arm": "candidate"}], "cell 0: a dict (allowed: a Cell"),
        ([Reply(Cell("candidate", "a"), None, None)], "cell 0: a Reply (allowed: a Cell, as `score(replies)` gives"),
    ],
)
def test_what_is_no_list_of_cells_is_told_for_what_it_is(call: Any, given: Any, said: str) -> None:
    with pytest.raises(InputError) as found:
        call(given)
    assert str(found.value).startswith(said)


def test_what_is_no_list_of_replies_and_no_policy_is_told_too() -> None:
    cell = Cell("candidate", "a")
    with pytest.raises(InputError, match="reply 0: a Cell \\(allowed: what `read_reply` returns"):
        score([cell])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"replies: one NoneType \(allowed: a list; of it, what `read_reply`"):
        score(None)  # type: ignore[arg-type]
    for call in (lambda: score([], 5), lambda: decide([cell], None)):  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"policy: (5|null) \(allowed: a name or the path of a file\)"):
            call()


@pytest.mark.parametrize(("real", "believed"), [(1, 8), (2, 2), (4, 4)])
def test_counters_that_lie_are_caught_by_times_where_a_quarter_of_the_requests_is_real(
    real: int, believed: int
) -> None:
    cells = [
        Cell(
            "candidate",
            "a",
            prompt_tokens=1000,
            cached_tokens=0,
            processed_tokens=1000,
            prefill_ms=1000.0 if number < real else 10.0,
            server_epoch="e",
            request_id=str(number),
        )
        for number in range(8)
    ]
    assert count_prefills(cells)["candidate"].prefills == believed


def test_what_flags_say_survives_the_check_of_a_cell() -> None:
    cell = Cell("candidate", "a", flag_outcomes=(("tone", True),), shares_blocks=True, bad=False)
    assert classify([cell])[0].cell == cell


def test_a_cell_with_its_text_is_scored_without_its_request() -> None:
    found = Reply(Cell("candidate", "a", prompt_tokens=9), Texts("fine words here"), None)
    assert score([found])[0].bad is False


def test_the_example_shows_the_story_by_request_and_by_prefill() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "policies" / "count_prefills.py")], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines() == [
        "candidate: fresh, cached 0 of 16896, processed 16896",
        "candidate: copy, cached 16892 of 16896",
        "candidate: copy, cached 16892 of 16896",
        "candidate: 11 of 12 requests bad, 2 of 2 prefills",
        "baseline: 0 of 20 requests bad, 0 of 2 prefills",
        "p by request 9.3e-08, by prefill 0.167",
        "promotion Blocked, rollback Refused",
    ]
