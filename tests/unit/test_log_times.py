"""The first look at a large log: times of fresh prefills, and where a counter was seen alive, by kind."""

from __future__ import annotations

from prefillgate.core.cells import BASELINE, CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.log_row import Block, Kind, Own, column, row_of
from prefillgate.core.log_times import EpochTimes, Survey
from tests.support.cell_logs import cell, copy, fresh


def block_of(*cells: Cell, kinds: list[Kind] | None = None) -> Block:
    """The cells as one block; with `kinds`, the list of the block before goes on."""
    rows = [row_of(each) for each in cells]
    known = [] if kinds is None else kinds
    for row in rows:
        if row.kind not in known:
            known.append(row.kind)
    numbers = [known.index(row.kind) for row in rows]
    return Block(known, numbers, [column(list(each)) for each in zip(*(row.own for row in rows), strict=True)])


def surveyed(*cells: Cell) -> Survey:
    survey, block = Survey(), block_of(*cells)
    survey.take(block)
    survey.count((block.kinds[number], 1) for number in block.numbers)
    return survey


def kind_of(made: Cell) -> Kind:
    return row_of(made).kind


def test_a_limit_is_half_of_what_fresh_prefills_of_about_that_length_took_per_token() -> None:
    survey = surveyed(*[fresh("a", prefill_ms=each) for each in (1000.0, 2000.0, 4000.0, 8000.0, 16000.0)])
    assert survey.limit(kind_of(fresh("b"))) == (1000, 4.0)  # the upper quartile of claims is 8 ms a token
    proven = surveyed(
        fresh("a", prefill_ms=100.0), cell("a", cached=None, cold_proof=ColdProof.SALT, prefill_ms=3000.0)
    )
    assert proven.limit(kind_of(fresh("b"))) == (1000, 1.5)  # the median of proven ones goes before claims


def test_no_limit_where_nothing_tells_one() -> None:
    survey = surveyed(fresh("a", prefill_ms=1000.0), copy("c", length=3000, prefill_ms=5.0), fresh("d", length=2000))
    assert survey.limit(kind_of(fresh("a", arm=BASELINE))) is None
    assert survey.limit(kind_of(fresh("a", server_epoch="f"))) is None
    assert survey.limit(kind_of(fresh("a", length=2000))) is None  # none of that length told a time
    assert survey.limit(kind_of(fresh("a", length=3000))) is None  # a copy is no reference
    assert survey.limit(kind_of(fresh("a", shared_server=True))) is None
    assert survey.limit(kind_of(cell("a", length=None, processed_tokens=9))) is None
    assert surveyed(fresh("a", prefill_ms=0.0)).limit(kind_of(fresh("a"))) is None
    invalid = surveyed(fresh("a", prefill_ms=1000.0, status=Status.INVALID))
    assert invalid.limit(kind_of(fresh("a"))) is None
    assert survey.limit(kind_of(fresh("a"))) == (1000, 0.5)


def test_a_time_without_a_reference_of_its_length_has_none() -> None:
    times = EpochTimes()
    times.claimed[100].append(3.0)
    times.cold[200].append(5.0)
    assert (times.reference(100), times.reference(200), times.reference(150)) == (3.0, 5.0, None)


def test_a_counter_is_alive_by_a_probe_or_by_another_cell_that_rode_the_cache() -> None:
    silent = surveyed(fresh("a"), fresh("b"))
    assert not silent.alive(kind_of(fresh("a")))
    once = surveyed(fresh("a"), copy("a"))
    assert once.alive(kind_of(fresh("a"))) and not once.alive(kind_of(copy("a")))  # its own is no sign
    assert surveyed(copy("a"), copy("a")).alive(kind_of(copy("a")))
    probed = surveyed(fresh("a", counter_alive=True))
    assert probed.alive(kind_of(fresh("b"))) and not probed.alive(kind_of(fresh("b", server_epoch="f")))
    assert not surveyed(copy("a", status=Status.INVALID), fresh("b")).alive(kind_of(fresh("b")))
    assert not surveyed(copy("a", arm=BASELINE)).alive(kind_of(fresh("b", arm=CANDIDATE)))


def test_kinds_go_on_from_block_to_block_until_they_begin_anew() -> None:
    survey = Survey()
    first = block_of(fresh("a", prefill_ms=1000.0))
    survey.take(first)
    survey.take(block_of(fresh("a", prefill_ms=3000.0), fresh("b", length=2000, prefill_ms=8000.0), kinds=first.kinds))
    again = block_of(fresh("a", prefill_ms=5000.0), copy("a", prefill_ms=1.0))
    again.anew = True
    survey.take(again)
    assert survey.limit(kind_of(fresh("c"))) == (1000, 2.0)  # of 1, 3 and 5 ms a token
    assert survey.limit(kind_of(fresh("c", length=2000))) == (2000, 2.0)


def test_a_column_that_tells_nothing_is_none() -> None:
    assert column([None, None]) is None
    assert column([None, 0.0]) == [None, 0.0]
    block = block_of(fresh("a", started_at=5.0), fresh("b", request_id="r"))
    assert block.column("started_at") == [5.0, None]
    assert block.column("ended_at") is None
    assert [Own(*own) for _, *own in block.rows()] == [
        Own(5.0, None, None, None, None, None),
        Own(None, None, None, "r", None, None),
    ]
