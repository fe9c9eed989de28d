"""Bundles that were changed and whose digests were all made right again: recomputation finds it and names the line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from prefillgate.bundle import content
from tests.support.bundles import Bundle, Document, said_digest

Lines = list[Document]


def events(lines: Lines, kind: str, **wanted: Any) -> Lines:
    return [line for line in lines if line["event"]["kind"] == kind and wanted.items() <= line["event"].items()]


def cells(lines: Lines, status: str = "ok", arm: str = "candidate") -> Lines:
    found = events(lines, "CellMeasured")
    return [line for line in found if (line["event"]["cell"]["status"], line["event"]["cell"]["arm"]) == (status, arm)]


def bad_checked(lines: Lines) -> Document:
    """The event of the first outcome that is bad."""
    return next(line for line in events(lines, "CellChecked") if any(one["bad"] for one in line["event"]["outcomes"]))


def text_of(texts: Lines, cell_id: int) -> tuple[int, Document]:
    return next((number, text) for number, text in enumerate(texts, 1) if text["cell_id"] == cell_id)


def test_made_right_without_a_change_is_the_same(bundle: Bundle, original: Any) -> None:
    told = bundle.forge(lambda lines, texts: None)
    assert told.code == 0, told.text
    assert [p.read_bytes() for p in sorted(bundle.folder.iterdir())] == [
        p.read_bytes() for p in sorted(original.iterdir())
    ]


def test_a_bad_answer_called_clean_is_found_by_the_check_run_again(bundle: Bundle) -> None:
    where: list[int] = []

    def change(lines: Lines, texts: Lines) -> None:
        line = bad_checked(lines)
        where.append(line["seq"])
        for outcome in line["event"]["outcomes"]:
            if outcome["check"] != "equal_to_baseline":
                outcome.update(bad=False, detail="")

    told = bundle.forge(change)
    assert told.code == 10
    assert told.first.startswith(f"{content.EVENTS}:{where[0]}: ")
    assert ".bad is false, the check run again gives true" in told.text or "the schedule" in told.text


CELL_FIELDS = {
    "cached_tokens": 77,
    "prompt_tokens": 12345,
    "processed_tokens": 3,
    "output_tokens": 1,
    "prefill_ms": 0.5,
    "decode_ms": 0.25,
    "finish_reason": "length",
    "request_id": "another",
    "prompt_sha256": "0" * 64,
    "output_sha256": "0" * 64,
    "cold_proof": "nonce",
    "counter_alive": False,
    "shares_blocks": True,
    "server_epoch": "another life",
    "arm": "baseline",
    "case_id": "case-1",
    "status": "invalid",
    "replicate": 7,
}
EVENT_FIELDS = {
    "purpose": "compare",
    "round": 5,
    "attempt": 9,
    "seed": 1,
    "nonce": "0" * 32,
    "place": 40,
    "lane": 3,
    "pair": 3,
}


@pytest.mark.parametrize("name", CELL_FIELDS)
def test_a_changed_field_of_a_cell_is_found(bundle: Bundle, name: str) -> None:
    def change(lines: Lines, texts: Lines) -> None:
        line = cells(lines)[1]
        assert line["event"]["cell"][name] != CELL_FIELDS[name]
        line["event"]["cell"][name] = CELL_FIELDS[name]

    told = forged_or_senseless(bundle, change)
    assert told == 10


@pytest.mark.parametrize("name", EVENT_FIELDS)
def test_a_cell_in_another_place_is_found(bundle: Bundle, name: str) -> None:
    def change(lines: Lines, texts: Lines) -> None:
        line = cells(lines)[1]
        assert line["event"][name] != EVENT_FIELDS[name]
        line["event"][name] = EVENT_FIELDS[name]

    assert forged_or_senseless(bundle, change) == 10


def forged_or_senseless(bundle: Bundle, change: Callable[[Lines, Lines], None]) -> int:
    """What `verify` ends in; 10 too where the change makes no sense even to the forger, who cannot fold it."""
    try:
        told = bundle.forge(change)
    except (ValueError, LookupError):
        return 10
    assert told.first.startswith((content.EVENTS, content.TEXTS)), told.text
    assert ":" in told.first.split(" ")[0], told.first
    return told.code


def test_a_bad_cell_that_was_dropped_is_missed(bundle: Bundle) -> None:
    def change(lines: Lines, texts: Lines) -> None:
        cell_id = bad_checked(lines)["event"]["cell_id"]
        gone = [line for line in lines if line["event"].get("cell_id") == cell_id]
        for line in gone:
            lines.remove(line)
        texts.remove(text_of(texts, cell_id)[1])

    assert forged_or_senseless(bundle, change) == 10


def test_two_cells_that_changed_places_are_found(bundle: Bundle) -> None:
    def change(lines: Lines, texts: Lines) -> None:
        one, other = cells(lines)[1], cells(lines)[2]
        one["event"]["cell"], other["event"]["cell"] = other["event"]["cell"], one["event"]["cell"]

    assert forged_or_senseless(bundle, change) == 10


def test_a_changed_text_is_not_what_the_reply_says(bundle: Bundle) -> None:
    where: list[int] = []

    def change(lines: Lines, texts: Lines) -> None:
        event = cells(lines)[0]["event"]
        number, text = text_of(texts, event["cell_id"])
        text["content"] = "A perfectly good answer of several words."
        event["cell"]["output_sha256"] = said_digest(text)
        where.append(number)

    told = bundle.forge(change)
    assert told.code == 10
    assert told.first.startswith(f"{content.TEXTS}:{where[0]}: ")
    assert 'content is "A perfectly good answer of several words.", the reply tells' in told.text


def test_a_text_that_is_not_its_cells_digest_is_found(bundle: Bundle) -> None:
    def change(lines: Lines, texts: Lines) -> None:
        text_of(texts, cells(lines)[0]["event"]["cell_id"])[1]["content"] += " and more"

    told = bundle.forge(change)
    assert told.code == 10 and "output_sha256 is" in told.text and told.first.startswith(content.TEXTS)


def test_a_changed_reply_is_found_by_the_numbers_of_its_cell(bundle: Bundle) -> None:
    def change(lines: Lines, texts: Lines) -> None:
        text = texts[3]
        assert '"completion_tokens":' in text["response"]
        text["response"] = text["response"].replace('"completion_tokens":', '"completion_tokens":9')

    told = bundle.forge(change)
    assert told.code == 10 and told.first.startswith(f"{content.TEXTS}:4: ") and "output_tokens is" in told.first


def test_an_easier_prompt_than_that_of_the_replay_set_is_found(bundle: Bundle) -> None:
    def change(lines: Lines, texts: Lines) -> None:
        texts[2]["request"] = texts[2]["request"].replace('"prompt":"case-', '"prompt":"please case-')

    told = bundle.forge(change)
    assert told.code == 10
    assert told.first.startswith(f"{content.TEXTS}:3: ") and "request.prompt is" in told.first


def test_a_changed_prompt_of_the_replay_set_is_found_though_its_digests_are_right(bundle: Bundle) -> None:
    def change(lines: Lines, texts: Lines) -> None:
        case = lines[0]["event"]["cases"][1]
        case["line"] = case["line"].replace("w1x1", "w1xx")

    told = bundle.forge(change)
    assert told.code == 10
    assert told.first.startswith(f"{content.REPLAY_SET}:2: sha256 is ")


@pytest.mark.parametrize("field", ["seed", "replay_set_sha256", "policy", "checks", "cases"])
def test_another_plan_than_the_one_that_was_run_is_found(bundle: Bundle, field: str) -> None:
    def change(lines: Lines, texts: Lines) -> None:
        plan = lines[0]["event"]
        if field == "seed":
            plan["seed"] += 1
        elif field == "replay_set_sha256":
            plan[field] = "0" * 64
        elif field == "policy":
            plan["policy"]["replicate"]["threshold"] = 41.0
            plan["policy"]["baseline_pass"] = 3
        elif field == "checks":
            plan["checks"] = plan["checks"].replace('"words":4', '"words":1')
        else:
            plan["cases"].pop()

    assert bundle.forge(change).code == 10


def test_an_outcome_left_out_or_twice_is_found(bundle: Bundle) -> None:
    def left_out(lines: Lines, texts: Lines) -> None:
        outcomes = events(lines, "CellChecked")[0]["event"]["outcomes"]
        outcomes.remove(next(one for one in outcomes if one["check"] == "min_words"))

    told = bundle.forge(left_out)
    assert told.code == 10 and "the outcome of check min_words is missing" in told.first

    def twice(lines: Lines, texts: Lines) -> None:
        left = events(lines, "CellChecked")[0]["event"]["outcomes"]
        left += [dict(left[0])]

    assert "has two outcomes" in bundle.forge(twice).text


def test_a_changed_decision_is_found_field_by_field(bundle: Bundle) -> None:
    decision = bundle.documents(content.DECISION)[0]
    decision["arms"]["candidate"]["bad_prefills"] += 1
    bundle.write(content.DECISION, [decision])
    bundle.sign_off()
    told = bundle.verify()
    assert told.code == 10
    stated = decision["arms"]["candidate"]["bad_prefills"]
    assert told.first == (
        f"{content.DECISION}:1: arms.candidate.bad_prefills is {stated}, recomputed it is {stated - 1}"
    )


def test_a_changed_line_of_the_cell_log_is_found(bundle: Bundle) -> None:
    path = bundle.folder / content.CELLS
    lines = path.read_bytes().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if json.loads(line)["bad"])
    lines[number] = lines[number].replace(b'"bad": true', b'"bad": false')
    path.write_bytes(b"".join(lines))
    bundle.sign_off()
    told = bundle.verify()
    assert told.code == 10
    assert told.first == f"{content.CELLS}:{number + 1}: bad is false, recomputed it is true"


@pytest.mark.parametrize("name", [content.CELLS, content.PLAN, content.POLICY, content.REPLAY_SET, content.DECISION])
def test_a_line_too_many_and_a_line_missing_are_found(bundle: Bundle, name: str) -> None:
    path = bundle.folder / name
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[-1]]))
    bundle.sign_off()
    told = bundle.verify()
    assert told.code == 10 and told.first == f"{name}:{len(lines) + 1}: a line too many: the events give none"
    path.write_bytes(b"".join(lines[:-1]))
    bundle.sign_off()
    told = bundle.verify()
    assert told.code == 10 and told.first == f"{name}:{len(lines)}: the line is missing"


def test_who_makes_up_the_reply_too_is_not_found_without_a_signature(bundle: Bundle) -> None:
    """What README says an unsigned bundle cannot show."""

    def change(lines: Lines, texts: Lines) -> None:
        for line in events(lines, "CellMeasured"):
            line["event"]["cell"]["started_at"] += 1000.0
            line["event"]["cell"]["ended_at"] += 1000.0

    assert bundle.forge(change).code == 0
