"""`prefillgate demo --story` without its servers: its prompts, what it refuses, and what it makes of other evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from prefillgate.cli import story, story_measure
from prefillgate.cli.errors import BadInput
from prefillgate.cli.main import main
from prefillgate.cli.story_prompts import LONG, MARK, SHORT, story_set
from prefillgate.cli.story_telling import Story, not_as_told, page, read_story, verdict_lines
from prefillgate.core.cells import BASELINE, CANDIDATE, Cell
from prefillgate.core.gate import Gate
from prefillgate.core.journal import (
    CaseRef,
    CellChecked,
    CellMeasured,
    Event,
    Purpose,
    ReplicateStarted,
    SeparationKept,
)
from prefillgate.core.schedule import RunCell, next_step
from prefillgate.engines.synthetic import synthetic_prompt
from prefillgate.simulate.request import Route, parse
from prefillgate.simulate.tokens import common_prefix, tokenize
from tests.support.journals import cell, epoch, outcome, planned, quality_only

GOOD_COPY = 3  # among the candidate's twelve cells, from 0
CASES = tuple(CaseRef(case.case_id, case.sha256, case.characters) for case in story_set().cases)


class Telling:
    """A journal of the story's shape, written by hand. Outcomes of the twelve and of the eight may be other ones."""

    def __init__(self, screen: list[bool] | None = None, replicate: list[bool] | None = None) -> None:
        self.events: list[Event] = []
        self.gate = Gate()
        self.clock = 1_000.0
        for event in (planned(quality_only(baseline_pass=8), CASES), epoch(BASELINE), epoch(CANDIDATE)):
            self._apply(event)
        for case_id, repeats in story_measure.BASELINE_REPEATS.items():
            self._prompt(BASELINE, case_id, [False] * repeats)
        bad = screen or [place != GOOD_COPY for place in range(12)]
        for place, case_id in enumerate(LONG):
            self._prompt(CANDIDATE, case_id, bad[6 * place : 6 * place + 6])
        if self.gate.alarm:
            self._replicate(replicate or [False] * 8)

    def _apply(self, event: Event) -> None:
        self.events.append(event)
        self.gate.apply(event)

    def _prompt(self, arm: str, case_id: str, outcomes: list[bool]) -> None:
        tokens = LONG.get(case_id, 270)
        for place, bad in enumerate(outcomes):
            cached = tokens - 4 if place else 0
            purpose = story_measure.PURPOSES[arm]
            self._cell(self._answer(arm, case_id, tokens, cached), bad, purpose)

    def _answer(self, arm: str, case_id: str, tokens: int, cached: int) -> Cell:
        self.clock += 1
        counts = {"prompt_tokens": tokens, "cached_tokens": cached, "processed_tokens": tokens - cached}
        times = {"started_at": self.clock, "prefill_ms": 3.0 * (tokens - cached), "decode_ms": 100.0}
        return cell(arm, case_id, counter_alive=True, cold_proof=None, **counts, **times)

    def _cell(self, what: Cell, bad: bool, purpose: Purpose, pair: int | None = None) -> None:
        cell_id = self.gate.next_cell_id()
        self._apply(CellMeasured(cell_id, what, purpose, pair=pair))
        self._apply(CellChecked(cell_id, (outcome(bad, "bare_verdict"),)))

    def _replicate(self, outcomes: list[bool]) -> None:
        self._apply(ReplicateStarted(1, self.clock, 5))
        self._apply(epoch(CANDIDATE, "e2"))
        self._apply(SeparationKept(1, self.clock, "restart", "candidate epoch e1 before, e2 after"))
        left = list(outcomes)
        while self.gate.open_replicate is not None:
            step = next_step(self.gate)
            assert isinstance(step, RunCell)
            bad = step.arm == CANDIDATE and bool(left) and left.pop(0)
            answer = self._answer(step.arm, step.case_id, LONG.get(step.case_id, 270), 0)
            answer = replace(answer, replicate=1, server_epoch="e2" if step.arm == CANDIDATE else "e1")
            self._cell(answer, bad, Purpose.REPLICATE, step.pair)

    @property
    def story(self) -> Story:
        return read_story(self.events)


def told(found: Story) -> str:
    return "\n".join((*page(found), *verdict_lines(found)))


@pytest.fixture(scope="module")
def the_story() -> Story:
    return Telling().story


def test_the_long_prompts_have_exactly_the_tokens_of_the_story() -> None:
    counted = {
        case.case_id: len(tokenize(parse(Route.CHAT, json.dumps(case.body).encode(), 1).prompt))
        for case in story_set().cases
    }
    assert {case_id: counted[case_id] for case_id in LONG} == {"rebalance-ledger": 16_896, "split-settings": 11_136}
    assert len(counted) == 12
    assert all(200 < counted[case_id] < 400 for case_id in SHORT)


def test_no_two_prompts_begin_alike_enough_to_share_a_prefill() -> None:
    prompts = [tokenize(parse(Route.CHAT, json.dumps(case.body).encode(), 1).prompt) for case in story_set().cases]
    for one, other in combinations(prompts, 2):
        assert common_prefix(one, other) <= 0.05 * min(len(one), len(other))


def test_every_prompt_is_counted_and_no_probe_is() -> None:
    assert all(MARK in case.prompt_text for case in story_set().cases)
    assert MARK not in synthetic_prompt("salt", 400)


def test_the_set_is_the_same_every_time() -> None:
    assert story_set() == story_set()
    assert len({case.sha256 for case in story_set().cases}) == 12


def test_the_replay_has_ninety_five_baseline_cells_twenty_of_them_on_the_two_long_prompts() -> None:
    baseline, candidate = story_measure.REPEATS[BASELINE], story_measure.REPEATS[CANDIDATE]
    assert (sum(baseline.values()), sum(baseline[case_id] for case_id in LONG)) == (95, 20)
    assert candidate == {"rebalance-ledger": 6, "split-settings": 6}


@pytest.mark.parametrize("taken", ["story.db", "story-truth-baseline.jsonl", "story-truth-candidate.jsonl"])
def test_a_file_that_is_there_already_is_refused_and_left_as_it_is(
    taken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / taken).write_text("mine", encoding="utf-8")
    assert main(["demo", "--story", "--store", str(tmp_path / "story.db")]) == 2
    said = capsys.readouterr()
    assert f"{taken}: something is there already, and the story overwrites nothing" in said.err
    assert said.out == ""
    assert [path.name for path in tmp_path.iterdir()] == [taken]
    assert (tmp_path / taken).read_text(encoding="utf-8") == "mine"


def test_a_store_below_a_file_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(BadInput, match="no store can be made there"):
        story.play(tmp_path / "file" / "story.db")


def test_evidence_of_the_storys_shape_is_told_as_the_story(the_story: Story) -> None:
    assert not_as_told(the_story) == []


def test_the_page_sets_the_naive_reading_beside_the_honest_one(the_story: Story) -> None:
    lines = [" ".join(line.split()) for line in page(the_story)]
    assert "candidate 11 of 12 bad 2 of 2 bad" in lines
    assert "baseline 0 of 20 bad 0 of 2 bad" in lines
    assert "one-sided p Fisher 9.3e-08 Fisher 0.167, Boschloo 0.0625" in lines
    assert "e-value - 5.58 if they were a replicate; that confirms at 40" in lines
    assert 'answer "Roll back!" alarm: promotion Blocked, rollback Refused, ReplicateDue' in lines
    assert "rebalance-ledger candidate 6 5 1 5 16,896 16,892 cached + 4" in lines
    assert "n = 10, k = 2: 65 more clean prefills would promote. Cause: Unverified." in lines


def test_the_page_fits_a_screen_of_a_hundred_columns(the_story: Story) -> None:
    lines = [*page(the_story), *verdict_lines(the_story)]
    assert len(lines) <= 33  # the command adds a title, store, seconds and where to look: 12
    assert max(map(len, lines)) <= 100


def test_one_bad_copy_less_changes_the_naive_reading_alone() -> None:
    outcomes = [place not in (GOOD_COPY, 4) for place in range(12)]
    found = Telling(screen=outcomes).story
    wrong = "\n".join(not_as_told(found))
    assert "candidate, bad requests: 10 of 12, the story has 11 of 12" in wrong
    assert "Fisher by request: 1.0e-06, the story has 9.3e-08" in wrong
    assert "prefill" not in wrong and "replicate" not in wrong
    assert "10 of 12 bad" in told(found) and "11 of 12" not in told(found)


def test_a_sound_prompt_on_the_candidate_changes_the_honest_reading() -> None:
    found = Telling(screen=[place != GOOD_COPY for place in range(6)] + [False] * 6).story
    wrong = "\n".join(not_as_told(found))
    assert "candidate, bad prefills: 1 of 2, the story has 2 of 2" in wrong
    assert "E, were the pairs a replicate: 2.23, the story has 5.58" in wrong
    assert "Fisher by prefill: 0.5, the story has 0.167" in wrong


def test_without_an_alarm_there_is_no_replicate_and_the_naive_reading_shows_nothing() -> None:
    found = Telling(screen=[False] * 12).story
    assert found.replicate is None
    assert "replicate: None, the story has ('clean', '0 of 8')" in not_as_told(found)
    assert '"No difference shown."' in told(found)
    assert verdict_lines(found) == (
        "Without an alarm: rollback refused; 0 bad requests hang off 0 bad prefills.",
        "No replicate: rollback refused.",
    )


def test_a_replicate_that_confirms_allows_the_rollback_and_is_not_the_story() -> None:
    found = Telling(replicate=[True] * 12).story
    assert verdict_lines(found)[1] == "Replicate: confirmed, 5 of 5 fresh prefills bad; rollback allowed."
    assert "replicate: ('confirmed', '5 of 5'), the story has ('clean', '0 of 8')" in not_as_told(found)


def test_what_is_not_as_told_is_said_and_is_exit_code_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert story.tell(Telling().events, tmp_path / "s.db", 1.25) == 0
    assert "NOT as told" not in capsys.readouterr().err
    assert story.tell(Telling(screen=[True] * 12).events, tmp_path / "s.db", 1.25) == 1
    said = capsys.readouterr()
    assert "story: NOT as told: candidate, bad requests: 12 of 12, the story has 11 of 12" in said.err
    assert "s.db, 1.2 s\n" in said.out


def test_the_command_says_where_to_look_with_the_store_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story.tell(Telling().events, Path("a b.db"), 0.0)
    lines = capsys.readouterr().out.splitlines()
    for wanted in ("cells {}", "cells {} --json | prefillgate audit -", "decide {}", "report {}"):
        name = story.quoted("a b.db")
        assert f"   prefillgate {wanted.format(name)}" in lines
    assert lines[-2].startswith("At the alarm: rollback refused;")
    assert lines[-1].startswith("Replicate: not confirmed,")
