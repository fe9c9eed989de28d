"""Bundles of runs that asked several servers at once: their cells are held against their places in the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefillgate.bundle import content
from prefillgate.core.shape import Shape
from tests.support.bundles import Bundle, Document, exported
from tests.support.runs import Watch, bench
from tests.support.simulated import start_simulated

Lines = list[Document]


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a run of three servers, both arms at once, with speed pairs."""
    folder = tmp_path_factory.mktemp("lanes")
    work = bench(folder, throughput={"mode": "Report", "maxPairs": 6})
    with (
        start_simulated(seed=1, text_seed=9) as baseline,
        start_simulated(seed=2, text_seed=9) as candidate,
        start_simulated(seed=3, text_seed=9) as other,
    ):
        shape = Shape(at_once=True, candidate_lanes=2)
        request = work.request(baseline.url, candidate.url, more_candidates=(other.url,), shape=shape)
        finished = work.run(request, Watch())
    return exported(Path(finished.journal.path), folder / "bundle").folder


@pytest.fixture
def bundle(lanes: Path, tmp_path: Path) -> Bundle:
    import shutil

    shutil.copytree(lanes, tmp_path / "bundle")
    return Bundle(tmp_path / "bundle")


def test_its_cells_are_held_against_their_places_and_what_time_decides_is_said(bundle: Bundle) -> None:
    told = bundle.verify()
    assert told.code == 0, told.text
    cells = len(bundle.documents(content.CELLS))
    assert f"{cells} cells against their places in the plan" in told.text
    assert "not recomputed: which cells were in flight together, and which places were run as pairs" in told.text
    assert "steps of the schedule" not in told.text


def screened(lines: Lines, arm: str = "candidate") -> Document:
    return next(
        line
        for line in reversed(lines)
        if line["event"]["kind"] == "CellMeasured" and line["event"]["cell"]["arm"] == arm
    )


@pytest.mark.parametrize(("name", "value"), [("seed", 1), ("nonce", "0" * 32), ("attempt", 2), ("lane", 0)])
def test_a_cell_that_is_not_its_places_is_named(bundle: Bundle, name: str, value: object) -> None:
    where: list[int] = []

    def change(lines: Lines, texts: Lines) -> None:
        line = screened(lines)
        stated = line["event"][name]
        line["event"][name] = 1 - stated if name == "lane" else value
        where.append(line["seq"])

    told = bundle.forge(change)
    assert told.code == 10
    assert told.first.startswith(f"{content.EVENTS}:{where[0]}: {name} is ")
    assert "the plan gives that place" in told.first


def test_a_cell_that_was_dropped_is_missed(bundle: Bundle) -> None:
    def change(lines: Lines, texts: Lines) -> None:
        first = next(
            line["event"]
            for line in lines
            if line["event"]["kind"] == "CellMeasured" and line["event"]["purpose"] == "baseline_pass"
        )
        dropped = first["cell_id"]
        lines[:] = [line for line in lines if line["event"].get("cell_id") != dropped]
        texts[:] = [text for text in texts if text["cell_id"] != dropped]

    told = bundle.forge(change)
    assert told.code == 10
    assert told.first.startswith(f"{content.EVENTS}:") and "of the baseline pass was not done" in told.first
