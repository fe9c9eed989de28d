"""Two answers word by word: what is marked, what is said to be identical, and what hostile text cannot do."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefillgate.cli.diff import command
from prefillgate.cli.main import main
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.journal import CellMeasured, Planned, Purpose, Texts
from prefillgate.core.verdict import CellClass
from prefillgate.evidence import SqliteJournal
from prefillgate.report.clean import is_clean
from prefillgate.report.diff import CHARACTERS_SHOWN, Change, weave
from prefillgate.report.meetings import Meeting, meetings
from prefillgate.report.paper import Palette
from prefillgate.report.word_diff import render_diff
from tests.support import verdicts
from tests.support.stores import Played

MEETING = Meeting(
    verdicts.view(4, BASELINE, "a", unit=1, pair=2, purpose=Purpose.PAIR),
    verdicts.view(5, CANDIDATE, "a", unit=1, pair=2, purpose=Purpose.PAIR, bad=True),
)


def shown(baseline: Texts, candidate: Texts, palette: Palette | None = None) -> list[str]:
    text = render_diff(MEETING, {4: baseline, 5: candidate}, palette or Palette())
    assert text.endswith("\n")
    return text.splitlines()


def said(baseline: str, candidate: str) -> list[str]:
    """The lines of the content alone."""
    lines = shown(Texts(content=baseline), Texts(content=candidate))
    return lines[lines.index("") + 1 :]


def test_words_that_only_one_side_has_are_marked() -> None:
    assert said("keep the old words here", "keep the new words here, too") == [
        "content: differs, 5 words against 6",
        "  keep the [-old-]{+new+} words [-here-]{+here, too+}",
    ]


def test_blanks_between_two_changes_do_not_part_them() -> None:
    assert weave("x a b c y", "x d e f y").changes == (
        Change("x ", True, True),
        Change("a b c", True, False),
        Change("d e f", False, True),
        Change(" y", True, True),
    )


def test_common_blanks_before_and_after_a_change_stay_common() -> None:
    assert weave(" a", " b").changes == (
        Change(" ", True, True),
        Change("a", True, False),
        Change("b", False, True),
    )
    assert weave("a ", "b ").changes[-1] == Change(" ", True, True)


def test_a_line_end_of_one_side_is_shown_inside_the_marks() -> None:
    assert said("one\ntwo", "one two")[1:] == ["  one[-⏎-]", "  {+ +}two"]
    assert said("a", "a\n\nb\nc")[1:] == ["  a{+⏎+}", "  {+⏎+}", "  {+b⏎+}", "  {+c+}"]


def test_identical_texts_are_said_to_be_and_shown_once() -> None:
    lines = shown(Texts(content="the same answer"), Texts(content="the same answer"))
    assert lines[2:] == ["", "content: identical, 3 words", "  the same answer"]
    assert lines[:2] == [
        "baseline   cell 4, pair, pair 2: clean",
        "candidate  cell 5, pair, pair 2: BAD (bare-verdict: a verdict line and 0 words of rationale)",
    ]


def test_reasoning_content_and_tool_calls_stand_apart() -> None:
    calls = '[{"function":{"name":"look","arguments":"{}"}}]'
    other = calls.replace("look", "find")
    lines = shown(Texts("same", "first thought", calls), Texts("same", "", other))
    heads = [line for line in lines if re.match(r"(reasoning|content|tool calls): ", line)]
    assert heads == [
        "reasoning: in the baseline alone, 2 words",
        "content: identical, 1 word",
        "tool calls: differs, 1 word against 1",
    ]
    assert "  [-first thought-]" in lines
    assert '     "name": [-"look",-]{+"find",+}' in lines
    assert not any(line.startswith("reasoning") for line in shown(Texts("a"), Texts("b")))


def test_an_empty_answer_beside_a_whole_one_is_said() -> None:
    assert said("", "a b") == ["content: in the candidate alone, 2 words", "  {+a b+}"]
    assert said("", "") == ["content: identical, 0 words"]


def test_marks_are_doubled_until_no_text_holds_them() -> None:
    assert said("x [-no-] y", "x z y")[1:] == ["  x [--[-no-]--]{++z++} y"]
    assert said("a --]", "a ---- b")[1:] == ["  a [-----]---]{+++---- b+++}"]
    assert said("a ---- ++ [ ]", "a ---- ++ [ ")[1:][0].endswith("[-]-]")
    assert shown(Texts("{+++"), Texts("b"))[2] == "marks      [----only the baseline----] {++++only the candidate++++}"


def test_marks_of_a_text_of_a_million_signs_are_found_at_once() -> None:
    lines = said("-" * 1_000_000, "+" * 1_000_000)
    assert lines[0] == "content: differs, 1 word against 1"


def test_colours_stand_outside_of_the_marks_and_only_where_asked_for() -> None:
    palette = Palette(good="<g>", bad="<b>", reset="</>")
    lines = shown(Texts("a b\nc"), Texts("a d"), palette)
    assert lines[-2:] == ["  a <b>[-b⏎-]</>", "  <b>[-c-]</><g>{+d+}</>"]
    assert "\x1b" not in "".join(shown(Texts("a"), Texts("b")))


@pytest.mark.parametrize("text", verdicts.HOSTILE, ids=range(len(verdicts.HOSTILE)))
def test_hostile_text_is_shown_and_steers_nothing(text: str) -> None:
    for lines in (shown(Texts(text, text, text), Texts("b")), shown(Texts("b"), Texts(text, text, text))):
        assert all(is_clean(line) and "\r" not in line for line in lines)
        assert "\n".join(lines).encode("utf-8")
    fake = said("a\ncontent: identical, 1 word\nmarks", "a")
    assert [line for line in fake if line.startswith(("content", "marks"))] == ["content: differs, 6 words against 1"]


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    long = "w " * CHARACTERS_SHOWN
    lines = said(long + "end", long)
    assert lines[0] == "content: differs, 20,001 words against 20,000"
    assert lines[-3:] == [
        "(37,003 more characters of the baseline not shown; --json has all)",
        "(37,000 more characters of the candidate not shown; --json has all)",
        "(no difference lies within what is shown)",
    ]
    assert said(long, long)[-1] == "(37,000 more characters not shown; --json has all)"
    assert len(said(long, long)) == 3


def test_a_cell_without_text_or_without_a_mate_is_said() -> None:
    assert render_diff(MEETING, {4: Texts("a")}).splitlines()[2:] == [
        "",
        "content of the baseline: 1 word",
        "  a",
        "No text of the candidate was kept.",
    ]
    alone = render_diff(Meeting(MEETING.baseline, None), {4: Texts("a b")}).splitlines()
    assert alone[1:] == ["candidate  has not answered this case", "", "content of the baseline: 2 words", "  a b"]


def test_a_candidates_cell_stands_beside_its_own_pair_else_beside_the_nearest() -> None:
    cells = [
        verdicts.view(0, BASELINE, "a", purpose=Purpose.BASELINE_PASS),
        verdicts.view(1, BASELINE, "a", purpose=Purpose.PAIR, pair=0),
        verdicts.view(2, CANDIDATE, "b", purpose=Purpose.SCREEN),
        verdicts.view(3, CANDIDATE, "a", purpose=Purpose.SCREEN),
        verdicts.view(4, BASELINE, "a", None, purpose=Purpose.SCREEN, reason="NotIdle"),
        verdicts.view(5, CANDIDATE, "a", CellClass.COPY, purpose=Purpose.PAIR, pair=0),
        verdicts.view(6, CANDIDATE, "a", replicate=1, pair=0),
        verdicts.view(7, CANDIDATE, "a", replicate=2, pair=0),
        verdicts.view(8, BASELINE, "a", replicate=2, pair=0),
        verdicts.view(9, BASELINE, "a", replicate=1, pair=0),
        verdicts.view(10, BASELINE, "c"),
        verdicts.view(11, BASELINE, "c"),
    ]
    verdict = verdicts.build(verdicts.empty().decision, tuple(cells))

    def ids(case: str) -> list[tuple[int | None, int | None]]:
        found = meetings(verdict, case)
        return [(m.baseline and m.baseline.cell_id, m.candidate and m.candidate.cell_id) for m in found]

    assert ids("a") == [(1, 3), (1, 5), (9, 6), (8, 7)]
    assert ids("b") == [(None, 2)]
    assert ids("c") == [(10, None), (11, None)]
    assert ids("d") == []


def keep(folder: Path, most_cells: int = 40) -> tuple[Path, Played]:
    """A store in which every cell of the candidate says one word more."""
    played = Played(seed=3, candidate_rate=0.2, most_cells=most_cells)
    played.play()
    first, *rest = played.events
    assert isinstance(first, Planned)
    path = folder / "run.db"
    with SqliteJournal.create(path, first) as journal:
        for event in rest:
            texts = None
            if isinstance(event, CellMeasured):
                more = f" and cell {event.cell_id}" if event.cell.arm == CANDIDATE else ""
                texts = Texts(content=f"the answer to {event.cell.case_id}{more}")
            journal.append(event, texts)
    return path, played


def diff(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), standalone_mode=False)


def compared(store: Path, *options: str) -> list[dict[str, Any]]:
    result = diff(str(store), "case 2", "--json", *options)
    assert result.exception is None
    document = json.loads(result.stdout)
    assert document["case_id"] == "case 2"
    found: list[dict[str, Any]] = document["comparisons"]
    return found


def test_the_latest_comparison_is_shown_unless_others_are_asked_for(tmp_path: Path) -> None:
    store, played = keep(tmp_path)
    mine = [e for e in played.gate.measured.values() if e.cell.arm == CANDIDATE and e.cell.case_id == "case 2"]
    assert len(mine) > 2
    result = diff(str(store), "case 2")
    assert (result.return_value, result.exception) == (0, None)
    assert f"  the answer to case 2{{+ and cell {mine[-1].cell_id}+}}" in result.stdout.splitlines()
    assert f"1 of {len(mine)} comparisons of this case" in result.stdout
    assert result.stdout.splitlines()[-1].endswith(" 'case 2' --all")
    every = diff(str(store), "case 2", "--all").stdout
    assert [f"and cell {event.cell_id}+" in every for event in mine] == [True] * len(mine)
    assert "comparisons of this case" not in every
    assert [c["candidate"]["cell_id"] for c in compared(store)] == [event.cell_id for event in mine]


def test_a_pair_or_a_round_can_be_chosen(tmp_path: Path) -> None:
    store, played = keep(tmp_path)
    mine = [e for e in played.gate.measured.values() if e.cell.arm == CANDIDATE and e.cell.case_id == "case 2"]
    paired = next(event for event in mine if event.pair is not None)
    found, *replicate = compared(store, "--pair", str(paired.pair), "--round", str(paired.round))
    assert found["candidate"]["cell_id"] == paired.cell_id
    assert all(other["candidate"]["replicate"] == 1 for other in replicate)  # its pairs are numbered anew
    assert found["baseline"]["pair"] == found["candidate"]["pair"] == paired.pair
    assert found["identical"] is False
    assert found["baseline"]["content"] == "the answer to case 2"
    rounds = {event.round for event in mine}
    assert len(rounds) > 1
    for number in rounds:
        assert {c["candidate"]["round"] for c in compared(store, "--round", str(number))} == {number}


def test_bad_answers_can_be_shown_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, played = keep(tmp_path)
    found = {
        case: json.loads(diff(str(store), case, "--json").stdout)["comparisons"] for case in played.gate.places.cases
    }
    mixed = next(case for case, told in found.items() if len({c["candidate"]["bad"] for c in told}) == 2)
    bad = [c["candidate"]["cell_id"] for c in found[mixed] if c["candidate"]["bad"]]
    alone = json.loads(diff(str(store), mixed, "--bad", "--json").stdout)["comparisons"]
    assert [c["candidate"]["cell_id"] for c in alone] == bad
    assert f"and cell {bad[-1]}" in diff(str(store), mixed, "--bad").stdout
    clean = next(case for case, told in found.items() if not any(c["candidate"]["bad"] for c in told))
    assert main(["diff", str(store), clean, "--bad"]) == 2
    assert f"--bad: no answer to {clean} was bad" in capsys.readouterr().err


def test_texts_are_whole_in_json_and_null_where_none_was_kept(tmp_path: Path) -> None:
    played = Played(seed=3, most_cells=12)
    played.play()
    bare = played.keep(tmp_path / "bare.db")
    result = diff(str(bare), "case 2", "--json")
    (first, *_) = json.loads(result.stdout)["comparisons"]
    assert (first["identical"], first["candidate"]["content"]) == (None, None)


def test_a_case_or_a_pair_that_is_not_there_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, _ = keep(tmp_path, most_cells=4)
    assert main(["diff", str(store), "case 22"]) == 2
    assert "case 'case 22' is not in the replay set of this store (allowed: case 2" in capsys.readouterr().err
    assert main(["diff", str(store), "case 2", "--pair", "77"]) == 2
    assert "--pair 77: no cell of case 2 is of it (allowed: --pair" in capsys.readouterr().err
    fresh = replace(Played(most_cells=0))
    fresh.play()
    assert main(["diff", str(fresh.keep(tmp_path / "fresh.db")), "case 2"]) == 2
    assert "case 2: no answer to it is in the store yet" in capsys.readouterr().err
