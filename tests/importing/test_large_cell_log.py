"""A large cell log is read in blocks, decoded by type: it says what the strict reading says, of every line there is."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefillgate.api.cell_log import MAX_CHARACTERS, MAX_COUNT, MAX_LINE_BYTES, MAX_REPLICATE
from prefillgate.api.errors import MAX_PROBLEMS, InputError
from prefillgate.api.quick_lines import MAX_SHAPES, Shape, Shapes
from prefillgate.cli import audit_log
from prefillgate.cli.main import main
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.log_row import Block, Own, Row, row_of
from prefillgate.importers import cell_blocks
from prefillgate.importers.cell_blocks import CellBlocks
from prefillgate.importers.reading import BUSY, Account, Wanted, read_logs
from prefillgate.importers.source import Source
from tests.support.cell_logs import START, fresh, line, story

PLAIN = {**line(fresh("a", started_at=START)), "http_status": 200, "note": "x"}
GOOD = json.dumps(PLAIN).encode()


def rows_of(block: Block) -> list[Row]:
    return [Row(block.kinds[number], Own(*own)) for number, *own in block.rows()]


def told(account: Account) -> tuple[Any, ...]:
    cells = account.cells
    return account.formats, account.requests, account.arms_told, account.unscored, cells.ignored, cells.without_case


def strictly(data: bytes, arm: str | None) -> Any:
    account = Account()
    try:
        found = list(read_logs(Source(io.BytesIO(data), "log"), arm, Wanted(format="cells"), account))
    except InputError as error:
        return str(error)
    return [row_of(each.line.cell, None, each.line.http_status in BUSY) for each in found], *told(account)


def in_blocks(data: bytes, arm: str | None) -> Any:
    account = Account()
    try:
        blocks = list(CellBlocks(Source(io.BytesIO(data), "log"), arm, account).each())
    except InputError as error:
        return str(error)
    return [row for block in blocks for row in rows_of(block)], *told(account)


def same(*lines: bytes, arm: str | None = None, end: bytes = b"\n") -> Any:
    data = end.join(lines)
    expected = strictly(data, arm)
    assert in_blocks(data, arm) == expected
    return expected


def with_value(name: str, value: bytes) -> bytes:
    """A good line with one value written so, in place of its own or beside all."""
    body = json.dumps({key: each for key, each in PLAIN.items() if key != name}).encode()
    return body[:-1] + b', "' + name.encode() + b'": ' + value + b"}"


NUMBERS = [
    *(b"0", b"-0", b"1", b"1.0", b"1.5", b"1e3", b"1E-2", b"-1", b"01", b"1.", b".5", b"+1", b"NaN", b"Infinity"),
    *(b"1e400", b"-1e400", b"9" * 20, b"9" * 5000, str(MAX_COUNT).encode(), str(MAX_COUNT + 1).encode()),
    *(str(MAX_REPLICATE).encode(), str(MAX_REPLICATE + 1).encode(), b"253402300799", b"253402300800"),
    *(b"-62135596800", b"-62135596801", b"1e15", b"0.1e1", b"123456789012345678", b"1790000000.123456789"),
]
TEXTS = [
    *(b'""', b'"a"', b'"a:b"', b'"say \\"a\\": b"', b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\xff"', b'"\xc3\xa9"'),
    *(b'"a\x01b"', b'"\\x"', b'"\\u0000"', b'"' + b"x" * MAX_CHARACTERS + b'"', b'"' + b"x" * 1025 + b'"'),
    *(b'"' + "é".encode() * MAX_CHARACTERS + b'"', b'"' + "é".encode() * 1025 + b'"', b'"2026-11-29T08:15:00Z"'),
    *(b'"2026-11-29T08:15:00.25+02:00"', b'"2026-11-29"', b'"20261129T081500"', b'"0001-01-01T00:00:00+14:00"'),
    *(b'"ok"', b'"failed"', b'"invalid"', b'"salt"', b'"nonce"', b'"baseline"', b'"candidate"', b'"1"'),
]
OTHERS = [b"true", b"false", b"null", b"[]", b"{}", b'{"a": 1}', b'{"bad": true}', b"[1, 2]", b"[" * 2000, b"1 2", b""]
VALUES = [*NUMBERS, *TEXTS, *OTHERS]
NAMES = [*PLAIN, "ended_at", "counter_alive", "shares_blocks", "shared_server", "output_sha256", "flag_outcomes"]
NAMES += [
    "scored",
    "cell_id",
    "purpose",
    "pair",
    "reason",
    "counter_processed_tokens",
    "class",
    "unit",
    "witness",
    "new",
]


@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_a_field_is_taken_or_refused_as_by_the_strict_reading(name: str) -> None:
    for value in VALUES:
        odd = with_value(name, value)
        same(GOOD, odd, GOOD)
        same(odd, odd, GOOD, odd)  # once its shape is known


DAMAGED = [
    *(b"", b"   ", b"\t", b"\x0c", b"{", b"}", b"[]", b"null", b"1", b'"a"', GOOD[:-1], GOOD + b"x", GOOD + b"\r"),
    *(
        GOOD[:40],
        GOOD + GOOD,
        GOOD.replace(b'": ', b'" : '),
        GOOD.replace(b'": ', b'"\t:'),
        GOOD.replace(b'": ', b'":'),
    ),
    *(b"\xef\xbb\xbf" + GOOD, GOOD.replace(b'"arm"', b'"\\u0061rm"'), GOOD.replace(b'"a"', b'"\xff"'), b"{}"),
    *(b'{"arm": null}', b'{"arm": "candidate"}', b'{"case_id": "a"}', b'{"arm": "baseline", "case_id": "b"}'),
    *(GOOD.replace(b'"bad": false', b'"bad": false, "bad": true'), GOOD.replace(b', "note": "x"', b"")),
    *(GOOD[:-1] + b', "note": "y"}', GOOD[:-1] + b', "note" : "y"}', GOOD[:-1] + b', "bad":false}'),
    *(GOOD[:-1] + b', "\\u0062ad": false}', json.dumps(PLAIN | {"scored": False}).encode()),
    *(json.dumps(PLAIN | {"scored": False, "status": "invalid", "http_status": 429}).encode(),),
]


@st.composite
def lines_of_a_log(draw: st.DrawFn) -> bytes:
    if draw(st.booleans()):
        return draw(st.sampled_from([GOOD, *DAMAGED]))
    return with_value(draw(st.sampled_from(NAMES)), draw(st.sampled_from(VALUES[:-5])))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(lines_of_a_log(), max_size=12),
    st.sampled_from([None, None, CANDIDATE, BASELINE]),
    st.sampled_from([b"\n", b"\n", b"\r\n", b"\n\n"]),
)
def test_any_log_is_read_as_strictly_damaged_lines_among_them(lines: list[bytes], arm: str | None, end: bytes) -> None:
    same(*lines, arm=arm, end=end)
    same(GOOD, *lines, arm=arm, end=end)


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_line_is_told_in_the_same_words(damaged: bytes) -> None:
    same(GOOD, GOOD, damaged, GOOD)
    same(damaged, GOOD, damaged)


def test_a_key_that_stands_twice_is_refused_however_it_is_written() -> None:
    for twice in (b', "bad": true}', b', "bad" : true}', b', "bad"\t: true}', b', "\\u0062ad": true}', b',"bad":true}'):
        for before in (GOOD, GOOD.replace(b'"x"', b'"x:y"'), GOOD.replace(b'"x"', b'"x\\": y"')):
            assert "stands twice in one object" in same(before, before, before[:-1] + twice, before)
            spaced = before.replace(b'"note":', b'"note" :')
            assert "stands twice in one object" in same(before, spaced[:-1] + twice)


def test_problems_end_the_reading_after_as_many_as_ever() -> None:
    many = [GOOD, *[b"x"] * (MAX_PROBLEMS - 1)]
    assert same(*many).count("not JSON") == MAX_PROBLEMS - 1
    assert same(*many, GOOD, b"y", b"z").count("not JSON") == MAX_PROBLEMS


@pytest.mark.parametrize("more", [-1, 0, 1, 2, 3, cell_blocks.BLOCK_BYTES])
def test_a_line_is_too_long_from_the_same_byte_on(more: int) -> None:
    long = GOOD[:-1] + b', "big": "' + b"x" * (MAX_LINE_BYTES - len(GOOD) - 11 + more) + b'"}'
    assert len(long) == MAX_LINE_BYTES + more
    for end in (b"\n", b"\r\n"):
        found = same(GOOD, long, GOOD, b"x", end=end)
        assert ("the line is too long" in found) is (more > 0)
        same(*[GOOD] * 1000, long, end=end)


def test_lines_of_a_file_of_many_blocks_keep_their_numbers() -> None:
    lines = [json.dumps(PLAIN | {"case_id": f"c{number}"}).encode() for number in range(6000)]
    assert sum(map(len, lines)) > 2 * cell_blocks.BLOCK_BYTES
    assert len(same(*lines)[0]) == 6000
    lines[2500] = lines[2500].replace(b'"bad": false', b'"bad": 1')
    assert "log:2501" in same(*lines)
    lines[2500] = GOOD.replace(b'"candidate"', b'"baseline"')
    assert "log:2501" in same(*lines, arm=CANDIDATE)
    unnamed = [json.dumps({"arm": "candidate", "bad": False}).encode()] * 20_000
    assert same(*unnamed)[0][19_999].kind.case_id == "unknown case of log:20000"


def test_lines_of_several_shapes_are_read_in_their_order() -> None:
    shapes = [json.dumps(PLAIN | {f"extra{number}": 1}).encode() for number in range(MAX_SHAPES + 3)]
    assert len(same(*[GOOD, *shapes] * 5)[0]) == 5 * (MAX_SHAPES + 4)


def test_a_shape_takes_the_lines_that_have_its_keys_and_no_others() -> None:
    shape = Shape(list(PLAIN))
    assert shape.ignored == ("note",)
    assert shape.line(GOOD).case_id == "a"
    assert [each.bad for each in shape.block(GOOD + b"\n" + GOOD, (GOOD, GOOD)) or ()] == [False, False]
    assert shape.line(GOOD.replace(b', "note": "x"', b"")) is None
    assert shape.line(GOOD[:-1] + b', "pair": 1}') is None
    assert shape.line(GOOD.replace(b'"x"', b'"x:y"')).bad is False
    shapes = Shapes()
    assert (shapes.latest(), shapes.line(GOOD)) == (None, None)
    shapes.learn(["arm", 'a"b'])
    assert shapes.latest() is None  # no name that a decoder would take amiss
    shapes.learn(list(PLAIN))
    shapes.learn(["arm"])
    assert shapes.line(GOOD) is not None
    latest = shapes.latest()
    assert latest is not None and latest.ignored == ("note",)
    for number in range(MAX_SHAPES):
        shapes.learn(["arm", f"x{number}"])
    assert shapes.line(f'{{"arm": "baseline", "x{MAX_SHAPES - 3}": 1}}'.encode()) is not None
    assert shapes.line(f'{{"arm": "baseline", "x{MAX_SHAPES - 2}": 1}}'.encode()) is None


@pytest.mark.parametrize("kept", [True, False])
def test_an_audit_of_a_large_cell_log_says_what_that_of_a_small_one_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    lines = [json.dumps(line(each) | {"note": 1}) for each in story()]
    lines += [json.dumps(line(fresh("a", status=Status.INVALID)) | {"http_status": 503})] * 3
    lines += [json.dumps(line(fresh("b", bad=None)) | {"scored": False})]
    (path := tmp_path / "x").write_text("\n".join(lines), encoding="utf-8")
    assert main(["audit", str(path), "--json"]) == 0
    small = capsys.readouterr()
    size = path.stat().st_size
    monkeypatch.setattr(audit_log, "MOST_BYTES_IN_MEMORY", size if kept else size - 1)
    read = CellBlocks.each
    seen: list[str] = []
    monkeypatch.setattr(CellBlocks, "each", lambda self: (seen.append("blocks"), read(self))[1])
    assert main(["audit", str(path), "--json"]) == 0
    large = capsys.readouterr()
    assert (large.out, large.err) == (small.out, small.err)
    assert seen == ([] if kept else ["blocks"])
    assert main(["audit", str(path), "--baseline", str(path)]) == 2
    refused = capsys.readouterr().err
    monkeypatch.undo()
    assert main(["audit", str(path), "--baseline", str(path)]) == 2
    assert capsys.readouterr().err == refused
