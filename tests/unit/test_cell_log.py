"""The cell log: what a line may hold, what is said when it does not, and that nothing is lost on the way through."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from prefillgate.api.cell_log import (
    EXTRA_FIELDS,
    FIELDS,
    MAX_CHARACTERS,
    MAX_LINE_BYTES,
    CellLog,
    CellLogError,
    LogLine,
    iso_time,
    line_of,
    write_line,
)
from prefillgate.core.cells import BASELINE, CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.journal import CellMeasured, Purpose
from prefillgate.core.verdict import CellClass, CellView

DOCUMENTED = [
    *("arm", "case_id", "replicate", "server_epoch", "started_at", "prompt_sha256", "prompt_tokens", "cached_tokens"),
    *("processed_tokens", "output_tokens", "prefill_ms", "decode_ms", "finish_reason", "cold_proof", "request_id"),
    *("choice_index", "status", "bad"),
]
WHOLE = Cell(
    arm=BASELINE,
    case_id="pr-7",
    status=Status.FAILED,
    bad=True,
    replicate=2,
    server_epoch="pod-1/2",
    started_at=1_790_000_000.25,
    prompt_sha256="ab" * 32,
    prompt_tokens=900,
    cached_tokens=3,
    processed_tokens=897,
    output_tokens=0,
    prefill_ms=2500.5,
    decode_ms=0.0,
    finish_reason="length",
    cold_proof=ColdProof.NONCE,
    request_id="r-1",
    choice_index=1,
    ended_at=1_790_000_003.5,
    counter_processed_tokens=897,
    counter_alive=True,
    shares_blocks=True,
    shared_server=True,
    output_sha256="cd" * 32,
    flag_outcomes=(("bad", True), ("slow", None)),
)


def read(*lines: Any, name: str = "log.jsonl") -> CellLog:
    log = CellLog()
    raw = b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines)
    log.read(io.BytesIO(raw), name)
    return log


def refused(*lines: Any) -> str:
    with pytest.raises(CellLogError) as caught:
        read(*lines)
    return str(caught.value)


def only(line: dict[str, Any]) -> Cell:
    (found,) = read(line).lines
    return found.cell


# Reading


def test_the_fields_are_those_of_the_documents() -> None:
    assert list(FIELDS) == DOCUMENTED


def test_a_line_with_nothing_but_an_arm_and_a_case_is_a_cell_of_which_nothing_is_known() -> None:
    assert only({"arm": "candidate", "case_id": "a"}) == Cell("candidate", "a")
    unknown = dict.fromkeys((*FIELDS, *EXTRA_FIELDS))
    assert only(unknown | {"arm": "candidate", "case_id": "a"}) == Cell("candidate", "a")


def test_every_field_is_read() -> None:
    line = {
        "arm": "baseline",
        "case_id": "pr-7",
        "replicate": 2,
        "server_epoch": "pod-1/2",
        "started_at": "2026-09-21T14:13:20.250000Z",
        "prompt_sha256": "ab" * 32,
        "prompt_tokens": 900,
        "cached_tokens": 3,
        "processed_tokens": 897,
        "output_tokens": 0,
        "prefill_ms": 2500.5,
        "decode_ms": 0,
        "finish_reason": "length",
        "cold_proof": "nonce",
        "request_id": "r-1",
        "choice_index": 1,
        "status": "failed",
        "bad": True,
        "ended_at": 1_790_000_003.5,
        "counter_processed_tokens": 897,
        "counter_alive": True,
        "shares_blocks": True,
        "shared_server": True,
        "output_sha256": "cd" * 32,
        "flag_outcomes": {"bad": True, "slow": None},
        "scored": True,
        "http_status": 500,
        "cell_id": 4,
        "purpose": "replicate",
        "pair": 3,
        "reason": "HttpError",
    }
    assert set(line) == {*FIELDS, *EXTRA_FIELDS}
    (found,) = read(line).lines
    assert found == LogLine(WHOLE, True, 500, 4, "replicate", 3, "HttpError")


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-11-29T08:15:00.000001Z", 1_795_940_100.000001),
        ("2026-11-29T09:15:00.000001+01:00", 1_795_940_100.000001),
        ("2026-11-29T08:15:00.000001", 1_795_940_100.000001),
        ("2026-11-29 08:15:00", 1_795_940_100.0),
        (1_795_940_100, 1_795_940_100.0),
        (1.5, 1.5),
        (-1, -1.0),
        (-62_135_596_800, -62_135_596_800.0),
        (253_402_300_799, 253_402_300_799.0),
    ],
)
def test_a_time_is_iso_8601_or_seconds(told: Any, seconds: float) -> None:
    assert only({"arm": "baseline", "started_at": told}).started_at == seconds


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("started_at", value)
            for value in ("yesterday", "", True, [], 1_795_940_100_000, -62_135_596_801, "0001-01-01T00:00:00+23:00x")
        ),
        *(
            (name, value)
            for name in ("prompt_tokens", "cached_tokens", "choice_index")
            for value in (-1, 1.5, True, "7", 10**12 + 1, [])
        ),
        *(("replicate", value) for value in (-1, 0.5, False, "1", 10**6 + 1)),
        *((name, value) for name in ("prefill_ms", "decode_ms") for value in (-0.1, True, "7", 1e13, {})),
        *(("arm", value) for value in ("canary", "Baseline", "", 1, True, ["baseline"])),
        *(("status", value) for value in ("error", "OK", "", 1)),
        *(("cold_proof", value) for value in ("erase", "", True)),
        *(("bad", value) for value in ("true", 0, 1, "")),
        *(("case_id", value) for value in ("", 7, "x" * (MAX_CHARACTERS + 1))),
        *(("request_id", value) for value in ("", 7)),
        ("finish_reason", 7),
        *(("flag_outcomes", value) for value in ([], {"a": 1}, "a")),
        ("counter_alive", 1),
        ("http_status", "500"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_line_field_and_what_is(name: str, value: Any) -> None:
    good = {"arm": "candidate", "case_id": "a"}
    message = refused(good, good | {name: value})
    assert message.startswith(f"log.jsonl:2: {name}: ")
    assert "(allowed: " in message
    assert "\n" not in message


def test_messages_say_the_value_and_what_is_allowed() -> None:
    good = {"arm": "candidate", "case_id": "a"}
    assert refused(good | {"cached_tokens": -4}) == (
        "log.jsonl:1: cached_tokens: -4 (allowed: a whole number from 0 to 1000000000000, or null)"
    )
    assert refused(good | {"arm": "canary"}) == 'log.jsonl:1: arm: "canary" (allowed: baseline, candidate)'
    assert refused(good | {"status": "odd"}) == 'log.jsonl:1: status: "odd" (allowed: ok, failed, invalid, or null)'
    assert refused(good | {"cold_proof": "x"}) == (
        'log.jsonl:1: cold_proof: "x" (allowed: cache_off, salt, nonce, or null)'
    )


def test_a_cell_must_belong_to_an_arm() -> None:
    expected = "log.jsonl:1: arm: unknown (allowed: baseline, candidate)"
    assert refused({"case_id": "a"}) == expected
    assert refused({"case_id": "a", "arm": None}) == expected


def test_whole_numbers_may_be_written_with_a_point() -> None:
    cell = only({"arm": "baseline", "prompt_tokens": 900.0, "prefill_ms": 7})
    assert (cell.prompt_tokens, type(cell.prompt_tokens)) == (900, int)
    assert (cell.prefill_ms, type(cell.prefill_ms)) == (7.0, float)


def test_a_cell_without_a_case_is_known_by_its_digest_or_stands_for_itself() -> None:
    log = read({"arm": "baseline"}, {"arm": "baseline"}, {"arm": "baseline", "prompt_sha256": "ab"})
    assert [line.cell.case_id for line in log.lines] == [
        "unknown case of log.jsonl:1",
        "unknown case of log.jsonl:2",
        "ab",
    ]
    assert log.without_case == 3


def test_unknown_fields_are_ignored_and_counted() -> None:
    good = {"arm": "candidate", "case_id": "a"}
    log = read(good | {"gpu": 1}, good | {"gpu": None, "note": [1]}, good | {"class": "x", "unit": 1, "witness": ""})
    assert log.ignored == {"gpu": 2, "note": 1}
    assert [line.cell for line in log.lines] == [Cell("candidate", "a")] * 3


def test_a_cell_that_no_check_has_read_is_told_apart() -> None:
    good = {"arm": "candidate", "case_id": "a"}
    log = read(good | {"scored": False}, good | {"scored": False, "status": "invalid"}, good | {"scored": True}, good)
    assert log.unscored == 1
    assert [line.cell.status for line in log.cells()] == [Status.INVALID, Status.OK, Status.OK]
    assert len(log.lines) == 4


# Files that are not what they should be


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", ["log.jsonl:1: not JSON", "allowed: one JSON object a line"]),
        (b"[1]", ["log.jsonl:1: not a JSON object: [1]"]),
        (b'{"arm": "baseline", "arm": "candidate"}', ['the key "arm" stands twice']),
        (b'{"arm": "baseline", "prefill_ms": NaN}', ["NaN is not a JSON number"]),
        (b'{"arm": "baseline", "prefill_ms": 1e999}', ["out of range"]),
        (b'{"arm": "base\0line"}', ["log.jsonl:1: not JSON"]),
        (b'\0{"arm": "baseline"}', ["log.jsonl:1: not JSON"]),
        (b'{"arm": "baseline", "case_id": "\xff"}', ["invalid UTF-8 at byte 33", "0xff", "allowed: UTF-8 text"]),
        (b'{"arm": "baseline", "prompt_tokens": ' + b"9" * 5000 + b"}", ["a number is too long"]),
        (b"[" * 100_000, ["nested too deep"]),
        (b'{"case_id": "' + b"x" * MAX_LINE_BYTES + b'"}', ["the line is too long", f"up to {MAX_LINE_BYTES} bytes"]),
        (b"", ["log.jsonl: no cell in it"]),
        (b"\n \n\r\n", ["log.jsonl: no cell in it"]),
    ],
)
def test_what_is_no_cell_log_is_refused_with_its_line(raw: bytes, words: list[str]) -> None:
    message = refused(raw)
    for word in words:
        assert word in message


def test_terminal_escapes_in_a_bad_line_come_out_as_text() -> None:
    message = refused({"arm": "\x1b[31mred\u202e"})
    assert "\x1b" not in message
    assert "\u202e" not in message


def test_line_numbers_count_every_line() -> None:
    good = b'{"arm": "baseline"}'
    assert refused(good, b"", b"  ", good, b"{").startswith("log.jsonl:5: ")


def test_the_longest_line_is_read_and_one_byte_more_is_not() -> None:
    head, tail = b'{"arm": "baseline", "note": "', b'"}'
    longest = head + b"x" * (MAX_LINE_BYTES - len(head) - len(tail)) + tail
    assert len(longest) == MAX_LINE_BYTES
    assert len(read(longest).lines) == 1
    assert len(read(longest + b"\r\n" + longest).lines) == 2
    assert "too long" in refused(longest.replace(b"xx", b"xxx", 1))


def test_windows_line_ends_and_a_byte_order_mark_are_taken() -> None:
    log = CellLog()
    log.read(io.BytesIO(b'\xef\xbb\xbf{"arm": "baseline"}\r\n\r\n{"arm": "candidate"}\r\n'), "log")
    assert [line.cell.arm for line in log.lines] == ["baseline", "candidate"]


def test_a_line_separator_inside_text_ends_no_line() -> None:
    assert only(json.loads('{"arm": "baseline", "case_id": "a\u2028b"}')).case_id == "a\u2028b"
    assert len(read('{"arm": "baseline", "case_id": "a\u2028b"}'.encode()).lines) == 1


def test_at_most_twenty_problems_are_told() -> None:
    message = refused(*[{"arm": "x"}] * 50)
    assert message.count("\n") == 20
    assert message.endswith("and more problems after these")
    assert refused(*[{"arm": "x"}] * 3).count("\n") == 2


def test_several_files_are_one_log_in_their_order() -> None:
    log = CellLog()
    for name in ("a", "b"):
        log.read(io.BytesIO(json.dumps({"arm": "baseline", "case_id": name}).encode()), name)
    assert [line.cell.case_id for line in log.lines] == ["a", "b"]
    with pytest.raises(CellLogError, match="c: no cell in it"):
        log.read(io.BytesIO(b""), "c")


# Writing


def view(cell: Cell, cell_class: CellClass | None = CellClass.COPY, bad: bool | None = True) -> CellView:
    return CellView(4, cell, Purpose.REPLICATE, 3, cell_class, 2, bad, "cached 3 of 900", reason="HttpError")


def test_a_line_that_was_written_is_read_as_the_same_cell() -> None:
    event = CellMeasured(4, WHOLE, Purpose.REPLICATE, pair=3, http_status=500, reason="HttpError")
    line = line_of(view(WHOLE), event)
    (found,) = read(write_line(line).encode()).lines
    assert found == LogLine(WHOLE, True, 500, 4, "replicate", 3, "HttpError")
    assert list(line)[: len(DOCUMENTED)] == DOCUMENTED
    assert set(line) == {*FIELDS, *EXTRA_FIELDS, "class", "unit", "witness"}
    assert (line["class"], line["unit"], line["witness"]) == ("copy", 2, "cached 3 of 900")
    assert (line["started_at"], line["ended_at"]) == ("2026-09-21T14:13:20.250000Z", "2026-09-21T14:13:23.500000Z")
    assert json.loads(write_line(line)) == line


def test_what_is_unknown_is_written_as_null() -> None:
    bare = Cell(CANDIDATE, "a")
    line = line_of(CellView(0, bare, Purpose.SCREEN, None, None, None, None, ""), CellMeasured(0, bare, Purpose.SCREEN))
    known = {name: value for name, value in line.items() if value is not None}
    assert known == {
        "arm": "candidate",
        "case_id": "a",
        "replicate": 0,
        "status": "ok",
        "counter_alive": False,
        "shares_blocks": False,
        "shared_server": False,
        "scored": False,
        "cell_id": 0,
        "purpose": "screen",
    }
    (found,) = read(write_line(line).encode()).lines
    assert found.cell == bare


def test_the_outcome_written_is_the_one_that_was_scored() -> None:
    cell = Cell(CANDIDATE, "a", bad=True)
    event = CellMeasured(0, cell, Purpose.SCREEN)
    assert line_of(view(cell, CellClass.FRESH, bad=None), event)["bad"] is None
    assert line_of(view(cell, None, bad=None), event)["scored"] is False


def test_no_text_can_steer_a_terminal_through_a_line() -> None:
    cell = Cell(CANDIDATE, "a\x1b[2J\u202e\x7f\n\ud800", bad=True)
    text = write_line(line_of(view(cell), CellMeasured(0, cell, Purpose.SCREEN)))
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text)["case_id"] == cell.case_id


@pytest.mark.parametrize(
    ("moment", "told"),
    [
        (None, None),
        (0.0, "1970-01-01T00:00:00.000000Z"),
        (1_795_940_100.000001, "2026-11-29T08:15:00.000001Z"),
        (-0.5, "1969-12-31T23:59:59.500000Z"),
        (1e15, 1e15),
        (float("inf"), None),
        (float("nan"), None),
    ],
)
def test_times_are_written_in_utc_with_microseconds(moment: float | None, told: Any) -> None:
    assert iso_time(moment) == told
