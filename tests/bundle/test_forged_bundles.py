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


#: Of a cell of the screen: another legal value, the file that gives it away (with the line of this cell), and why.
CELL_FIELDS: dict[str, tuple[Any, str, str]] = {
    "cached_tokens": (77, content.TEXTS, "cached_tokens is 77, the reply tells 0"),
    "prompt_tokens": (12345, content.TEXTS, "prompt_tokens is 12345, the reply tells "),
    "processed_tokens": (3, content.TEXTS, "processed_tokens is 3, the reply tells "),
    "output_tokens": (1, content.TEXTS, "output_tokens is 1, the reply tells "),
    "prefill_ms": (0.5, content.TEXTS, "prefill_ms is 0.5, the reply tells "),
    "decode_ms": (0.25, content.TEXTS, "decode_ms is 0.25, the reply tells "),
    "finish_reason": ("length", content.TEXTS, 'finish_reason is "length", the reply tells "stop"'),
    "request_id": ("another", content.TEXTS, 'request_id is "another", the reply tells '),
    "prompt_sha256": ("0" * 64, content.TEXTS, "prompt_sha256 is "),
    "output_sha256": ("0" * 64, content.TEXTS, "output_sha256 is "),
    "cold_proof": ("nonce", content.EVENTS, 'cold_proof is "nonce", the probe of that server showed "cache_off"'),
    "counter_alive": (False, content.EVENTS, "counter_alive is false, the probe of that server showed true"),
    "shares_blocks": (True, content.EVENTS, "shares_blocks is true, the probe of that server showed false"),
    "server_epoch": ("another life", content.EVENTS, "ran on a server that no probe of the candidate met"),
    "arm": ("baseline", content.EVENTS, 'arm is "baseline", the schedule asks here for "candidate"'),
    "case_id": ("another", content.EVENTS, 'case_id is "another", the schedule asks here for '),
    "replicate": (7, content.EVENTS, "replicate is 7, the schedule asks here for 0"),
    "choice_index": (1, content.EVENTS, "choice_index is 1, in a cell of this run it is null"),
    "bad": (False, content.EVENTS, "bad is false, in a cell of this run it is null"),
    "shared_server": (True, content.EVENTS, "shared_server is true, in a cell of this run it is false"),
    "started_at": (1.0, content.EVENTS, "started_at is 1.0, and the event before it is of "),
    "ended_at": (1.0, content.EVENTS, "ended_at is 1.0, before started_at"),
}
EVENT_FIELDS: dict[str, tuple[Any, str, str]] = {
    "purpose": ("compare", content.EVENTS, 'purpose is "compare", the schedule asks here for "screen"'),
    "round": (5, content.EVENTS, "round is 5, the schedule asks here for "),
    "attempt": (9, content.EVENTS, "attempt is 9, the schedule asks here for 1"),
    "seed": (1, content.EVENTS, "seed is 1, the schedule asks here for "),
    "nonce": ("0" * 32, content.EVENTS, "nonce is "),
    "place": (40, content.EVENTS, "place is 40, the schedule asks here for "),
    "lane": (3, content.EVENTS, "lane is 3, the schedule asks here for 0"),
    "pair": (3, content.EVENTS, "pair is 3, the schedule asks here for null"),
    "draft_tokens": (9, content.TEXTS, "draft_tokens is 9, the reply tells null"),
    "draft_accepted_tokens": (9, content.TEXTS, "draft_accepted_tokens is 9, the reply tells null"),
    "reasoning_tokens": (9, content.TEXTS, "reasoning_tokens is 9, the reply tells null"),
    "time_to_first_token_ms": (None, content.TEXTS, "time_to_first_token_ms is None, and the reply has a first token"),
    "http_status": (503, content.EVENTS, "http_status is 503, in a cell of this run it is 200"),
    "reason": ("Busy", content.EVENTS, 'reason is "Busy", in a cell of this run it is null'),
    "detail": ("x", content.EVENTS, 'detail is "x", in a cell of this run it is null'),
}


@pytest.mark.parametrize("name", [*CELL_FIELDS, *EVENT_FIELDS])
def test_a_changed_field_of_a_cell_is_named_with_its_line_and_what_was_due(bundle: Bundle, name: str) -> None:
    value, file, words = CELL_FIELDS.get(name) or EVENT_FIELDS[name]
    where: list[int] = []

    def change(lines: Lines, texts: Lines) -> None:
        line = next(line for line in cells(lines) if line["event"]["purpose"] == "screen")
        fields = line["event"]["cell"] if name in CELL_FIELDS else line["event"]
        assert fields[name] != value
        fields[name] = value
        number = text_of(texts, line["event"]["cell_id"])[0]
        where.append(number if file == content.TEXTS else line["seq"])

    told = bundle.forge(change)
    assert told.code == 10
    assert f"{file}:{where[0]}: " in told.text, told.text
    assert told.first.startswith((f"{file}:{where[0]}: ", f"{content.EVENTS}:")), told.text
    assert words in told.text, told.text


def test_a_first_token_after_the_end_of_its_answer_is_found(bundle: Bundle) -> None:
    def change(lines: Lines, texts: Lines) -> None:
        cells(lines)[1]["event"]["time_to_first_token_ms"] = 9e9

    line = cells(bundle.documents(content.EVENTS))[1]["seq"]
    told = bundle.forge(change)
    assert told.code == 10
    assert told.first.startswith(f"{content.EVENTS}:{line}: time_to_first_token_ms is 9000000000.0, and the cell took ")


def test_an_answer_called_invalid_to_be_rid_of_it_is_missed(bundle: Bundle) -> None:
    where: list[int] = []

    def change(lines: Lines, texts: Lines) -> None:
        checked = bad_checked(lines)
        measured = next(line for line in cells(lines) if line["event"]["cell_id"] == checked["event"]["cell_id"])
        measured["event"]["cell"]["status"] = "invalid"
        measured["event"]["reason"] = "OtherTraffic"
        where.append(checked["seq"])
        lines.remove(checked)

    told = bundle.forge(change)
    assert told.code == 10
    assert told.first.startswith(f"{content.EVENTS}:{where[0]}: ")
    assert "the schedule asks here for" in told.first or "was due" in told.first


def test_a_bad_cell_that_was_dropped_is_missed_where_it_stood(bundle: Bundle) -> None:
    where: list[int] = []

    def change(lines: Lines, texts: Lines) -> None:
        cell_id = bad_checked(lines)["event"]["cell_id"]
        gone = [line for line in lines if line["event"].get("cell_id") == cell_id]
        where.append(gone[0]["seq"])
        for line in gone:
            lines.remove(line)
        texts.remove(text_of(texts, cell_id)[1])

    told = bundle.forge(change)
    assert told.code == 10
    assert told.first.startswith(f"{content.EVENTS}:{where[0]}: ")
    assert "the schedule asks here for" in told.first or "stands where" in told.first


def test_two_cells_that_changed_places_are_found_at_the_first(bundle: Bundle) -> None:
    where: list[int] = []

    def change(lines: Lines, texts: Lines) -> None:
        one, other = [line for line in cells(lines) if line["event"]["purpose"] == "screen"][:2]
        one["event"]["cell"], other["event"]["cell"] = other["event"]["cell"], one["event"]["cell"]
        where.append(one["seq"])

    told = bundle.forge(change)
    assert told.code == 10
    assert told.first.startswith(f"{content.EVENTS}:{where[0]}: ")


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


def other_seed(plan: Document) -> None:
    plan["seed"] += 1


def other_set(plan: Document) -> None:
    plan["replay_set_sha256"] = "0" * 64


def other_pass(plan: Document) -> None:
    plan["policy"]["baseline_pass"] = 3


def easier_checks(plan: Document) -> None:
    plan["checks"] = plan["checks"].replace('"words":4', '"words":1')


def fewer_cases(plan: Document) -> None:
    plan["cases"].pop()


def lenient_table(plan: Document) -> None:
    plan["policy"]["acceptance"] = [2, 3, 4]


@pytest.mark.parametrize(
    ("change_plan", "where", "words"),
    [
        (other_seed, "events.jsonl:4: ", "the schedule asks here for"),
        (other_set, "replay-set.jsonl: ", "replay_set_sha256 of the plan is "),
        (other_pass, "events.jsonl:", "the schedule asks here for"),
        (easier_checks, "events.jsonl:", "the check run again gives"),
        (fewer_cases, "events.jsonl:", "the schedule asks here for"),
        (lenient_table, "policy.jsonl:1: ", "numbers.acceptance promotes falsely at "),
    ],
)
def test_another_plan_than_the_one_that_was_run_is_found(
    bundle: Bundle, change_plan: Callable[[Document], None], where: str, words: str
) -> None:
    told = bundle.forge(lambda lines, texts: change_plan(lines[0]["event"]))
    assert told.code == 10
    assert any(line.partition(": ")[2].startswith(where) and words in line for line in told.text.splitlines()), (
        told.text
    )


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
        for line in lines:
            for fields in (line["event"], line["event"].get("cell", {})):
                for name in ("started_at", "ended_at", "seen_at", "at"):
                    if name in fields:
                        fields[name] += 1000.0

    assert bundle.forge(change).code == 0
