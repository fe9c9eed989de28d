"""A log too large for memory is judged as one that fits: the same verdict, the same figures, from state per prompt."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefillgate.core.acceptance import QUICK
from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.log_row import row_of
from prefillgate.core.rising import BLOCK, Rising
from tests.support.cell_logs import START, cell, copy, fresh, pairs, story, story_replicate
from tests.support.large_logs import Log, same, same_page

FAILED = Status.FAILED
NONE = {"doubted": 0, "twice": 0, "shared": 0}
LOPSIDED = [fresh(f"c{n}", arm=BASELINE) for n in range(40)]

lengths = st.sampled_from([0, 20, 100, 110, 400])


@st.composite
def made_cells(draw: st.DrawFn) -> Cell:
    length = draw(st.none() | lengths)
    cached = draw(st.none() | st.sampled_from([0, 1, 5, 30, 60, 99, 100, 120]))
    processed = draw(st.none() | st.just((length or 0) - (cached or 0)) | st.just(7))
    return Cell(
        arm=draw(st.sampled_from(ARMS)),
        case_id=draw(st.sampled_from(["a", "b", "c"])),
        status=draw(st.sampled_from([Status.OK] * 6 + [Status.FAILED, Status.INVALID])),
        bad=draw(st.sampled_from([True, False, None])),
        replicate=draw(st.sampled_from([0, 0, 0, 1, 2])),
        server_epoch=draw(st.sampled_from(["e", "e", None, "f"])),
        started_at=draw(st.none() | st.sampled_from([START + n for n in (0.0, 1.0, 5.0, 5000.0)])),
        prompt_sha256=draw(st.sampled_from([None, None, "x"])),
        prompt_tokens=length,
        cached_tokens=cached,
        processed_tokens=processed,
        prefill_ms=draw(st.none() | st.sampled_from([0.0, 1.0, 10.0, 100.0, 5000.0])),
        cold_proof=draw(st.sampled_from([None, None, *ColdProof])),
        request_id=draw(st.sampled_from([None, None, "r", "s"])),
        choice_index=draw(st.sampled_from([None, None, 0, 1, 2])),
        ended_at=draw(st.none() | st.sampled_from([START + n for n in (2.0, 6.0)])),
        counter_processed_tokens=draw(st.sampled_from([None, None, length])),
        counter_alive=draw(st.booleans()),
        shares_blocks=draw(st.booleans()),
        shared_server=draw(st.sampled_from([False, False, True])),
        output_sha256=draw(st.sampled_from([None, "o", "p"])),
    )


@settings(max_examples=75, deadline=None)
@given(
    st.lists(made_cells(), min_size=1, max_size=25),
    st.integers(0, 3),
    st.lists(st.sampled_from([None, "m", "n", CANDIDATE]), min_size=1, max_size=3),
    st.lists(st.sampled_from([None, 1.0, 30.0]), min_size=1, max_size=3),
)
def test_both_ways_give_the_same_answer_on_any_log(
    cells: list[Cell], waits: int, labels: list[str | None], first_ms: list[float | None]
) -> None:
    if any(labels):  # what stands for itself where no arm is told
        cells = [replace(each, arm=CANDIDATE) for each in cells]
    invalid = [place for place, each in enumerate(cells) if each.status is Status.INVALID]
    same(Log(cells, frozenset(invalid[:waits]), tuple(labels), tuple(first_ms)))


@pytest.mark.parametrize(("digest", "named"), [(None, True), ("x", False), ("a", False)])
def test_both_ways_know_which_prompts_names_alone_tell_apart(digest: str | None, named: bool) -> None:
    cells = [cell("a", cached=None, arm=of, prompt_sha256=digest) for of in ARMS]
    assert same(cells)["claim"]["doubts"]["named"] is named


def test_both_ways_count_a_copied_log_and_a_shared_request_id_once() -> None:
    times = [(START + n // 2 + 0.5, START + 90.0 + n) for n in range(6)]
    cells = [
        fresh("p", arm=of, started_at=begun, ended_at=ended, output_sha256="o", request_id=f"{of} {copied} {ended}")
        for copied in (1, 2)
        for of in ARMS
        for begun, ended in times
    ]
    told = same(cells)
    assert told["restated"][CANDIDATE]["bounds"] == {"fewest": 6, "most": 6, "proven": False, **NONE, "twice": 6}
    assert told["claim"]["doubts"]["twice"] == 12
    unsure = same([replace(each, cached_tokens=None) for each in cells])["restated"][CANDIDATE]["bounds"]
    assert unsure == {"fewest": 1, "most": 6, "proven": False, **NONE, "twice": 6}
    for part in ("started_at", "ended_at", "output_sha256"):
        assert same([replace(each, **{part: None}) for each in cells])["claim"]["doubts"]["twice"] == 0
    for field, value in (("prompt_tokens", 1010), ("processed_tokens", None), ("cached_tokens", 1)):
        other = [replace(each, **{field: value}) if " 2 " in str(each.request_id) else each for each in cells]
        assert same(other)["claim"]["doubts"]["twice"] == 0
    joined = same([fresh(f"c{n}", arm=of, request_id="r") for of in ARMS for n in range(5)])
    assert joined["restated"][CANDIDATE]["bounds"] == {"fewest": 1, "most": 1, "proven": False, **NONE, "shared": 4}


@pytest.mark.parametrize("first", [None, 62_000.0])
def test_both_ways_doubt_the_same_requests(first: float | None) -> None:
    times = [first, 62_000.0, *[48.0] * 10]
    cells = [fresh("p", arm=of, bad=of == CANDIDATE, prefill_ms=ms) for of in ARMS for ms in times]
    assert same(cells)["claim"]["doubts"]["doubted"] == 20
    told = same(Log([replace(each, prefill_ms=None) for each in cells], first_ms=tuple(times)))
    assert (told["claim"]["standing"], told["claim"]["doubts"]["doubted"]) == ("not proven", 20)
    unsure = [replace(each, cached_tokens=None) if each.prefill_ms == 62_000.0 else each for each in cells]
    assert same(unsure)["claim"]["doubts"]["doubted"] == 20


@settings(max_examples=30, deadline=None)
@given(st.lists(made_cells(), min_size=1, max_size=25))
def test_both_ways_give_the_same_answer_on_any_log_in_time_order(cells: list[Cell]) -> None:
    cells = [replace(each, started_at=START + place, request_id=None) for place, each in enumerate(cells)]
    same(cells)
    same_page(cells)


def test_the_story_its_replicate_and_a_confirmed_one_are_the_same() -> None:
    assert same(story())["reason"] == "ReplicateDue"
    assert same([*story(), *story_replicate()])["replicates"][0]["ending"] == "clean"
    confirmed = [fresh("c0", bad=True, started_at=START - 1000), *pairs("bg bg bg bg bg")]
    assert same(confirmed)["reason"] == "RegressionConfirmed"
    assert same([*confirmed, *pairs("gg gg", number=2, start=START + 9000)])["decision"] == "rollback"


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([copy("a", cold_proof=ColdProof.SALT)], "KnobNotHonoured"),
        ([cell("a", cached=None)] * 3, "IndependenceUnknown"),
        ([fresh("a"), *[cell("a", status=Status.INVALID)] * 3], "InvalidCells"),
        ([*LOPSIDED, *[cell(f"d{n}", status=Status.INVALID) for n in range(9)]], "ErrorsLopsided"),
        ([fresh(f"c{n % 2}") for n in range(60)], "AcceptanceReached"),
    ],
)  # fmt: skip
def test_every_reason_of_a_log_is_the_same(cells: list[Cell], reason: str) -> None:
    assert same(cells)["reason"] == reason


def test_the_page_names_the_bad_cases_of_the_candidate_in_the_order_they_were_first_bad() -> None:
    cells = [fresh("a"), fresh("b", bad=True), fresh("c", bad=True), fresh("b", bad=True), fresh("d", status=FAILED)]
    told = same_page([*cells, fresh("e", arm=BASELINE, bad=True), fresh("f", bad=True)])
    assert "bad: b, c, d and 1 more" in " ".join(told)


def test_every_label_is_restated_as_an_arm_of_its_own() -> None:
    cells = [fresh("a", bad=True), fresh("a"), copy("a"), copy("a", bad=True), fresh("b", status=FAILED), copy("a")]
    told = same(Log(cells, labels=("new", "old", None)))
    assert [each["label"] for each in told["labels"]] == ["new", "old"]
    assert same(Log(cells))["labels"] == []


def test_more_units_of_a_case_than_any_test_counts_change_nothing() -> None:
    rng = random.Random(5)
    cells = [fresh(f"c{n % 3}", cached=rng.randrange(50), bad=rng.random() < 0.02) for n in range(300)]
    same(cells)
    same(cells, QUICK)


def test_a_log_of_thousands_is_the_same_in_whatever_order() -> None:
    rng = random.Random(7)
    cells = [
        Cell(
            rng.choice(ARMS),
            f"c{rng.randrange(40)}",
            bad=rng.random() < 0.1,
            server_epoch="e",
            started_at=START + place,
            prompt_tokens=1000,
            cached_tokens=(cached := rng.choice([0, 0, 996])),
            processed_tokens=1000 - cached,
            prefill_ms=rng.uniform(1, 100) if cached else rng.uniform(500, 3000),
            request_id=f"r{rng.randrange(1500)}",
        )
        for place in range(2500)
    ]
    told = same(cells)
    assert told["arms"][CANDIDATE]["copies"] > 250
    unnumbered = [replace(each, request_id=None) for each in cells]
    assert same(rng.sample(unnumbered, len(cells)))["arms"] == same(unnumbered)["arms"]
    same(rng.sample(cells, len(cells)))


@pytest.mark.parametrize(("started", "copies"), [(6.0, 0), (5.999, 1)])
def test_a_request_that_starts_as_its_like_ends_is_not_in_flight_beside_it(started: float, copies: int) -> None:
    first = fresh("a", started_at=START, ended_at=START + 6.0, shares_blocks=True)
    told = same([first, replace(first, started_at=START + started, ended_at=START + 9.0)])
    assert told["arms"][CANDIDATE]["copies"] == copies


def test_a_row_is_the_cell_it_was_made_of() -> None:
    whole = fresh("a", prompt_sha256="x", replicate=2, request_id="r", ended_at=9.0, output_sha256="o")
    assert row_of(whole).cell() == whole
    assert row_of(fresh("a")).cell() == fresh("a")
    assert row_of(whole).kind.waited is False, "nothing is known of the server unless it is told"
    told = row_of(whole, 5.0, True, "m")
    assert (told.own.first_token_ms, told.kind.waited, told.kind.label) == (5.0, True, "m")
    assert told.cell() == whole
    assert row_of(fresh("a", status=Status.FAILED)).kind.outcome() is True
    assert row_of(fresh("a", bad=None)).kind.outcome() is None


def test_numbers_stay_sorted_through_many_comings_and_goings() -> None:
    rng = random.Random(3)
    kept, plain = Rising(), list[float]()
    for _ in range(8 * BLOCK):
        value = float(rng.randrange(500))
        kept.add(value)
        plain.append(value)
    plain.sort()
    assert [kept[rank] for rank in (0, 1, BLOCK, 3 * BLOCK, len(plain) - 1)] == [
        plain[rank] for rank in (0, 1, BLOCK, 3 * BLOCK, len(plain) - 1)
    ]
    rng.shuffle(gone := list(plain[: 7 * BLOCK]))
    for value in gone:
        kept.remove(value)
    rest = plain[7 * BLOCK :]
    assert [kept[rank] for rank in range(len(kept))] == rest
    for missing in (-1.0, 1e9, 0.5):
        with pytest.raises(ValueError, match="is not there"):
            kept.remove(missing)
    with pytest.raises(IndexError):
        kept[len(rest)]
    assert len(kept) == len(rest) == BLOCK


def test_quick_repeats_without_counters_are_no_prefills_of_a_large_log() -> None:
    times = (100.0, 49.0, 51.0, 49.0, None)
    cells = [cell("a", cached=None, prefill_ms=ms, started_at=START + at) for at, ms in enumerate(times)]
    told = same([*cells, cell("a", cached=None, prefill_ms=180.0, started_at=START + 9, length=4000)])  # by the token
    assert told["restated"][CANDIDATE]["bounds"] == {"fewest": 1, "most": 3, "proven": False, **NONE}


def test_a_large_log_is_judged_by_the_candidate_it_names() -> None:
    assert same([fresh("a", arm=BASELINE)])["arms"][CANDIDATE]["requests"] == 0
    assert same([fresh("a")])["arms"][BASELINE] is None
