"""CSV with a header: a cell log's names or a map, any usual delimiter, and what is not read by name."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from prefillgate.cli.audit import command
from prefillgate.core.cells import Status
from prefillgate.importers.base import Found
from prefillgate.importers.csv_table import CsvTable
from prefillgate.importers.registry import find_format
from prefillgate.importers.source import ImportProblem, Source
from tests.support.imports import absent, cells_of, imported, read_bytes, unread

ROWS = "prompt_tokens,cached_tokens,processed_tokens,status,bad\n100,0,100,ok,true\n100,99,1,ok,false\n,,,failed,\n"


def mapped(text: str, **columns: str) -> list[Found]:
    return list(CsvTable().with_columns(columns).read(Source(io.BytesIO(text.encode()), "log")))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_table_with_the_names_of_a_cell_log_is_read_by_any_usual_delimiter(delimiter: str) -> None:
    data = ROWS.replace(",", delimiter).encode()
    assert find_format(Source(io.BytesIO(data), "log")).name == "csv"
    first, second, third = cells_of(read_bytes(data))
    assert (first.prompt_tokens, first.cached_tokens, first.processed_tokens, first.bad) == (100, 0, 100, True)
    assert (second.cached_tokens, second.bad, second.case_id) == (99, False, "unknown case of log:3")
    assert (third.prompt_tokens, third.status, third.bad) == (None, Status.FAILED, None), "an empty cell is unknown"


def test_columns_of_other_names_are_mapped_and_the_rest_is_named() -> None:
    found = mapped("in_tok,hit,note\n100,40,x\n", prompt_tokens="in_tok", cached_tokens="hit")
    assert (cells_of(found)[0].prompt_tokens, cells_of(found)[0].cached_tokens) == (100, 40)
    assert unread(found) == [("log:1", "columns not read: note (--column FIELD=NAME reads one)")]


def test_a_mapped_column_wins_over_one_that_is_called_like_the_field() -> None:
    found = mapped("prompt_tokens,real\n1,100\n", prompt_tokens="real")
    assert cells_of(found)[0].prompt_tokens == 100
    assert unread(found)[0][1].startswith("columns not read: prompt_tokens ")


def test_prompts_outputs_labels_times_and_arms_are_read() -> None:
    head = "arm,label,started_at,ended_at,prompt,output,http_status,time_to_first_token_ms"
    row = 'baseline,old,2026-11-29T08:15:00Z,1764404101500,"two\nlines, and ""quotes""",yes,200,12.5'
    (found,) = imported(mapped(f"{head}\n{row}\n"))
    cell = found.line.cell
    assert (found.arm_told, cell.arm, found.label, found.line.http_status) == (True, "baseline", "old", 200)
    assert (cell.started_at, cell.ended_at, found.time_to_first_token_ms) == (1795940100.0, 1764404101.5, 12.5)
    assert found.asked is not None and found.asked.body == {"prompt": 'two\nlines, and "quotes"'}
    assert found.texts is not None and found.texts.content == "yes"
    assert cell.case_id == cell.prompt_sha256


def test_rows_after_a_text_of_several_lines_keep_their_places() -> None:
    found = mapped('prompt,prompt_tokens\n"a\nb",1\nc,2\nd,x\n')
    assert [each.where for each in imported(found)] == ["log:2", "log:4"]
    assert unread(found) == [("log:5", "prompt_tokens is not a whole number from 0 to 1000000000000")]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("1,2", "more or fewer cells than the header has names"),
        ("1,2,3,4", "more or fewer cells than the header has names"),
        ("-1,,", "prompt_tokens is not a whole number from 0 to 1000000000000"),
        ("1.5,,", "prompt_tokens is not a whole number from 0 to 1000000000000"),
        ("9" * 5000 + ",,", "prompt_tokens is not a whole number from 0 to 1000000000000"),
        (",maybe,", "bad is not true, false"),
        (",,red", "arm is not baseline, candidate"),
    ],
)
def test_a_damaged_row_is_named_and_the_others_are_read(row: str, why: str) -> None:
    found = mapped(f"prompt_tokens,bad,arm\n1,,candidate\n{row}\n3,,candidate\n")
    assert unread(found) == [("log:3", why)]
    assert [cell.prompt_tokens for cell in cells_of(found)] == [1, 3]


def test_bytes_that_are_no_text_and_lines_too_long_are_named() -> None:
    data = b"prompt_tokens,bad\n1,\n\xff\xfe,\n" + b"x" * 17_000_000 + b"\n2,\n"
    found = read_bytes(data)
    assert sorted(unread(found)) == [("log:3", "not UTF-8 text"), ("log:4", "the line is longer than 16777216 bytes")]
    assert [cell.prompt_tokens for cell in cells_of(found)] == [1, 2]


def test_what_no_row_holds_is_said_with_the_column_that_would_give_it() -> None:
    told = absent(mapped("prompt_tokens,bad\n1,true\n"))
    assert told == {
        "prompts": "a column of prompts: --column prompt=NAME",
        "cached tokens": "a column of cached tokens: --column cached_tokens=NAME",
    }


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("a,b\n1,2\n", {}, "no column is called like a field, and --column names none"),
        ("a,a\n1,2\n", {"bad": "a"}, 'two columns are called "a"'),
        ("a,b\n1,2\n", {"bad": "c"}, 'bad: there is no column "c" (allowed: "a", "b")'),
        ("a,b\n1,2\n", {"tokens": "a", "bad": "a", "len": "b"}, '"tokens", "len": no fields'),
        ("", {"bad": "a"}, "the first line is no header"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(text: str, columns: dict[str, str], message: str) -> None:
    with pytest.raises(ImportProblem) as problem:
        mapped(text, **columns)
    assert message in str(problem.value)


@pytest.mark.parametrize(
    "data", [b"hello, world: this is no table\nx,y\n", b"INFO 12-06 a:1] A, B\n1,2\n", b"{a,b\n1,2\n"]
)
def test_text_with_commas_is_no_table(data: bytes) -> None:
    assert not CsvTable().recognise(data)


def test_an_audit_reads_a_table_with_a_map(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("tok,hit,arm,case_id\n100,0,candidate,a\n100,100,candidate,a\n")
    options = ["--column", "prompt_tokens=tok", "--column", "cached_tokens=hit", "--json"]
    found = CliRunner().invoke(command, [str(tmp_path / "log.csv"), *options], catch_exceptions=False)
    assert (
        json.loads(found.stdout)["arms"]["candidate"]["copies"]
        + json.loads(found.stdout)["arms"]["candidate"]["orphans"]
        == 1
    )


def errors_of(log: Path, *columns: str) -> list[str]:
    options = [word for each in columns for word in ("--column", each)]
    found = CliRunner().invoke(command, [str(log), *options], catch_exceptions=False, standalone_mode=False)
    assert found.return_value == 2 and found.stdout == ""
    return [line.removeprefix("prefillgate: error: ") for line in found.stderr.splitlines()]


def test_every_wrong_column_option_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("tok,hit\n100,0\n")
    wrong = ("tokens=tok", "prompt_tokens", "prompt_tokens=tok", "prompt_tokens=hit", "length=hit", "\x1b=x", "bad=")
    told = errors_of(tmp_path / "log.csv", *wrong)
    assert [line.partition(" (allowed: ")[0] for line in told] == [
        '--column "prompt_tokens": no map',
        "--column prompt_tokens: given twice",
        '--column "bad=": no map',
        '--column: "tokens", "length", "\\u001b" are no fields',
    ]
    assert "(allowed: arm, case_id, " in told[3] and told[3].endswith(", output_sha256)")
    assert errors_of(tmp_path / "log.csv", "tokens=tok")[0].startswith('--column: "tokens" is no field (allowed: arm, ')


def test_every_column_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("tok,hit\n100,0\n")
    told = errors_of(tmp_path / "log.csv", "prompt_tokens=a", "cached_tokens=hit", "bad=b")
    where = f"{tmp_path / 'log.csv'}:1: --column"
    assert told == [
        f'{where}: prompt_tokens: there is no column "a" (allowed: "tok", "hit")',
        f'{where}: bad: there is no column "b" (allowed: "tok", "hit")',
    ]


@given(st.text(max_size=60), st.binary(max_size=60))
def test_nothing_in_a_table_can_break_the_reader(text: str, raw: bytes) -> None:
    read_bytes(f"prompt_tokens,prompt\n1,a\n{text}\n".encode("utf-8", "replace") + raw, "csv")
