"""lm-eval samples: generated answers, choices, repeats and filters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prefillgate.core.cells import Status
from prefillgate.importers.lm_eval import SAME_REQUEST
from tests.support.imports import absent, as_lines, cells_of, imported, read_bytes, spoiled, unread, withstands

SETTINGS = {"until": ["Q:", "\n\n"], "do_sample": False, "temperature": 0.0, "max_gen_toks": 256}


def line(**more: Any) -> dict[str, Any]:
    """A line of a generating task, as the harness has written it since its version 0.4.3."""
    return {
        "doc_id": 0,
        "doc": {"question": "2+2?", "answer": "4"},
        "target": "4",
        "arguments": {"gen_args_0": {"arg_0": "Q: 2+2?\nA:", "arg_1": SETTINGS}},
        "resps": [[" 4"]],
        "filtered_resps": ["4"],
        "filter": "none",
        "metrics": ["exact_match"],
        "doc_hash": "d",
        "prompt_hash": "p",
        "target_hash": "t",
        "exact_match": 1.0,
        **more,
    }


CHOICES = {
    "arguments": [["The sky is", " blue"], ["The sky is", " green"]],
    "resps": [[["-0.5", "True"]], [["-3.25", "False"]]],
    "filtered_resps": [["-0.5", "True"], ["-3.25", "False"]],
    "metrics": ["acc", "acc_norm"],
    "acc": 1.0,
    "acc_norm": 1.0,
}
SAMPLE = as_lines(line(), line(doc_id=1))


def test_a_line_is_a_cell_with_its_prompt_its_settings_and_its_output() -> None:
    found = read_bytes(SAMPLE)
    one = imported(found)[0]
    assert one.asked is not None
    assert (one.asked.path, one.asked.body) == (
        "/v1/completions",
        {"prompt": "Q: 2+2?\nA:", "max_tokens": 256, "temperature": 0.0, "stop": ["Q:", "\n\n"]},
    )
    assert one.texts is not None and one.texts.content == " 4"
    assert (one.where, one.label, one.line.cell.bad, one.line.cell.status) == ("log:1", None, False, Status.OK)
    assert len({cell.prompt_sha256 for cell in cells_of(found)}) == 1, "the same prompt twice"


def test_counters_starts_and_the_model_are_said_to_be_absent() -> None:
    said = absent(read_bytes(SAMPLE))
    assert set(said) == {"cached tokens", "prompt length", "start times", "the model"}
    assert "server's own log" in str(said["cached tokens"])
    assert said["the model"] == "one file for each arm"


def test_each_choice_of_a_document_is_a_request_of_its_own_without_output_or_outcome() -> None:
    found = imported(read_bytes(as_lines(line(**CHOICES))))
    assert [each.asked.body["prompt"] for each in found if each.asked] == ["The sky is blue", "The sky is green"]
    assert [each.texts for each in found] == [None, None]
    assert [each.line.cell.bad for each in found] == [None, None]


def test_repeats_are_requests_for_one_prompt_and_the_score_is_that_of_the_output_that_was_judged() -> None:
    found = read_bytes(as_lines(line(resps=[["4", "5", "4"]])))
    assert [each.texts.content for each in imported(found) if each.texts] == ["4", "5", "4"]
    assert len({cell.prompt_sha256 for cell in cells_of(found)}) == 1
    assert [cell.bad for cell in cells_of(found)] == [False, None, False]
    several = read_bytes(as_lines(line(resps=[["4", "5"]], filtered_resps=["4", "5"])))
    assert {cell.bad for cell in cells_of(several)} == {None}, "no one output was judged"


def test_lines_of_a_second_filter_are_the_same_requests() -> None:
    first, second = line(filter="strict-match"), line(filter="flexible-extract")
    found = read_bytes(as_lines(first, second))
    assert len(imported(found)) == 1
    assert unread(found) == [("log:2", SAME_REQUEST)]
    assert cells_of(found)[0].bad is None, "two filters may judge differently"


@pytest.mark.parametrize(
    "kept", [[json.dumps([{"role": "user", "content": "2+2?"}])], json.dumps([{"role": "user", "content": "2+2?"}])]
)
def test_a_chat_is_its_messages(kept: Any) -> None:
    (one,) = imported(read_bytes(as_lines(line(arguments={"gen_args_0": {"arg_0": kept, "arg_1": {}}}))))
    assert one.asked is not None
    assert (one.asked.path, one.asked.body) == (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "2+2?"}]},
    )


@pytest.mark.parametrize(
    ("changed", "bad"),
    [
        ({}, False),
        ({"exact_match": 0.0}, True),
        ({"exact_match": 0}, True),
        ({"exact_match": 0.5}, None),
        ({"exact_match": True}, None),
        ({"acc": 1.0}, None),
        ({"filter": "strict-match"}, None),
    ],
)
def test_bad_is_one_score_of_one_output_and_else_unknown(changed: Any, bad: bool | None) -> None:
    assert cells_of(read_bytes(as_lines(line(**changed))))[0].bad is bad


def test_a_score_that_is_not_of_the_two_says_nothing() -> None:
    kept = line(bleu=12.5, metrics=["bleu"])
    del kept["exact_match"]
    assert cells_of(read_bytes(as_lines(kept)))[0].bad is None


def test_damaged_lines_are_named() -> None:
    found = read_bytes(
        as_lines(
            line(),
            "{",
            line(arguments={}),
            line(arguments=[[]]),
            line(resps=[]),
            line(arguments=[[7, {}]]),
        )
    )
    assert len(imported(found)) == 1
    assert [where for where, _ in unread(found)] == ["log:2", "log:3", "log:4", "log:5", "log:6"]
    assert [why for _, why in unread(found)][1:] == [
        "arguments holds no request",
        "arguments holds something that is no request",
        "resps does not match arguments",
        "a prompt that is neither text nor messages",
    ]


def test_no_hostile_input_is_a_traceback() -> None:
    came = withstands(
        "lm-eval", [SAMPLE], lambda seed: [as_lines(spoiled(line(), seed), spoiled(line(**CHOICES), seed))]
    )
    assert len(came) == 300 and min(came) > 0
