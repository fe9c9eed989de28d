"""`prefillgate demo` as a person calls it: two real llama.cpp servers, three parts, all read back from its stores.

Minutes long, so it is played once for all tests of this module.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from prefillgate.core.cells import BASELINE, CANDIDATE, ColdProof, Status
from prefillgate.core.freshness import classify
from prefillgate.core.gate import Gate
from prefillgate.core.verdict import CellClass
from tests.support.programs import record_real_program
from tests.support.runs import ended, measured, start, stored

SECONDS = 840
SIXTEEN = 16


@dataclass(frozen=True)
class Played:
    """The demo, to its end."""

    folder: Path
    code: int
    out: str
    said: str


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "prefillgate", "demo", "--folder", "played"],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    return Played(folder, done.returncode, done.stdout, done.stderr)


def test_every_part_comes_out_as_expected_and_the_last_line_is_the_reports_path(demo: Played) -> None:
    versions = set(re.findall(r"^demo: baseline \S+ (.+), candidate \S+ (.+)$", demo.said, re.MULTILINE)[0])
    assert len(versions) == 1
    record_real_program("llama-server", versions.pop())
    assert demo.code == 0, demo.out + demo.said
    lines = demo.out.splitlines()
    told = [re.fullmatch(r" +\d+ s  (.+), as expected", line) for line in lines[-4:-1]]
    assert [line.group(1) for line in told if line] == [
        "baseline q8_0 against candidate f16: promote",
        "candidate with a wrong rope base: rollback after replicate",
        "four prompts three times with the cache on: 12 requests, 4 prefills",
    ]
    report = demo.folder / lines[-1]
    assert report == demo.folder / "played" / "rollback.html"
    assert "<svg" in report.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "code", "decision"), [("promote", 0, "promote"), ("rollback", 20, "rollback")])
def test_each_verdict_is_that_of_its_store(demo: Played, name: str, code: int, decision: str) -> None:
    again = ended(start(["decide", f"played/{name}.db", "--json"], demo.folder))
    assert (again.code, again.json["decision"]) == (code, decision)
    assert (demo.folder / "played" / f"{name}.html").is_file()


def test_the_promotion_stands_on_sixteen_or_more_fresh_prefills_of_sixteen_cases(demo: Played) -> None:
    gate, _ = stored(demo.folder / "played" / "promote.db")
    cells = [event.cell for event in measured(gate, CANDIDATE, Status.OK)]
    assert len({cell.case_id for cell in cells}) == SIXTEEN
    assert {cell.cold_proof for cell in cells} == {ColdProof.CACHE_OFF}
    assert {item.cell_class for item in classify(cells)} == {CellClass.FRESH}
    assert len(cells) >= SIXTEEN
    lengths = {cell.prompt_tokens for cell in cells}
    assert all(length is not None and 300 <= length <= 350 for length in lengths)
    assert all(cell.output_tokens is not None and cell.output_tokens >= 40 for cell in cells if cell.bad is False)


def test_the_arms_alternate_and_never_run_at_once(demo: Played) -> None:
    for name in ("promote", "rollback"):
        gate, _ = stored(demo.folder / "played" / f"{name}.db")
        cells = [event.cell for event in measured(gate)]
        assert {cell.arm for cell in cells} == {BASELINE, CANDIDATE}
        for first, second in pairwise(cells):
            assert first.ended_at is not None and second.started_at is not None
            assert second.started_at >= first.ended_at


def test_the_rollback_stands_on_a_replicate_in_a_restarted_candidate(demo: Played) -> None:
    gate, _ = stored(demo.folder / "played" / "rollback.db")
    before, after = (epochs(gate, replicate) for replicate in (0, 1))
    assert before and after
    assert before.isdisjoint(after)
    verdict = ended(start(["decide", "played/rollback.db", "--json"], demo.folder)).json
    (replicate,) = verdict["replicates"]
    assert (replicate["ending"], replicate["separation"]) == ("confirmed", "restart")
    assert replicate["e_value"] >= replicate["threshold"] == 40
    assert verdict["cause"] == "Unverified"


def epochs(gate: Gate, replicate: int) -> set[str | None]:
    """Lives of the candidate in which the cells of one replicate ran (0: the screen)."""
    return {event.cell.server_epoch for event in measured(gate, CANDIDATE) if event.cell.replicate == replicate}


def test_twelve_requests_with_the_cache_on_show_their_true_counts(demo: Played) -> None:
    line = re.compile(r"^   (\S+) +prompt +(\d+), cached +(\d+), processed +(\d+)$", re.MULTILINE)
    rows = [(case, *map(int, counts)) for case, *counts in line.findall(demo.out)]
    assert len(rows) == 12
    assert [case for case, *_ in rows[::3]] == list(dict.fromkeys(case for case, *_ in rows))
    for number, (_, prompt, cached, processed) in enumerate(rows):
        assert cached + processed == prompt
        assert cached <= 0.05 * prompt if number % 3 == 0 else cached >= 0.9 * prompt
    assert "   12 requests, 4 prefills, 8 copies" in demo.out.splitlines()
