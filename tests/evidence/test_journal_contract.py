"""What every journal promises: in memory, in a file, in a PostgreSQL database."""

import hashlib
import math
import threading

import pytest

from prefillgate.core.journal import CellChecked, CheckOutcome, DeadlinePassed, Texts
from prefillgate.evidence import MemoryJournal, SqliteJournal, StoreError, StoreRefused
from prefillgate.evidence.codec import encode_event, encode_texts
from prefillgate.evidence.postgres import PostgresJournal

KINDS = ["memory", "sqlite", "postgresql"]


@pytest.fixture
def make(request, tmp_path, plan):
    """Makes a journal of a kind. The server is started for the kind that needs it."""

    def made(kind):
        if kind == "memory":
            return MemoryJournal(plan)
        if kind == "sqlite":
            return SqliteJournal.create(tmp_path / "run.db", plan)
        return PostgresJournal.create(f"{request.getfixturevalue('database')}?run=contract", plan)

    return made


@pytest.fixture(params=KINDS)
def journal(request, make):
    with make(request.param) as journal:
        yield journal


def test_a_new_journal_holds_its_plan_and_nothing_else(journal, plan):
    assert journal.events() == (plan,)


def test_events_come_back_in_the_order_they_were_appended(journal, plan, measured):
    checked = CellChecked(0, (CheckOutcome("words", "1", None, "it erred"),))
    appended = (measured(0), checked, DeadlinePassed(3.25), measured(2), measured(1))
    for event in appended:
        journal.append(event)
    assert journal.events() == (plan, *appended)


def test_events_are_the_same_object_until_something_is_appended(journal, measured):
    before = journal.events()
    assert journal.events() is before
    journal.append(measured(0))
    assert len(before) == 1
    assert len(journal.events()) == 2


def test_a_cell_is_measured_once(journal, measured):
    journal.append(measured(4), Texts("first"))
    with pytest.raises(StoreRefused, match="cell 4 was measured already, as event 2"):
        journal.append(measured(4), Texts("second"))
    assert len(journal.events()) == 2
    assert journal.texts(4) == Texts("first")
    journal.append(measured(5))
    assert len(journal.events()) == 3


def test_a_journal_has_one_plan(journal, plan):
    with pytest.raises(StoreRefused, match="has its plan already"):
        journal.append(plan)
    assert journal.events() == (plan,)


@pytest.mark.parametrize("cell_id", [-1, 2**63])
def test_a_cell_id_that_a_database_cannot_hold_is_refused(journal, measured, cell_id):
    with pytest.raises(StoreRefused, match=f"cell_id {cell_id} is not allowed, only 0 to 9223372036854775807"):
        journal.append(measured(cell_id))


@pytest.mark.parametrize("cell_id", [0, 2**63 - 1])
def test_the_smallest_and_the_largest_cell_id_are_kept(journal, measured, cell_id):
    journal.append(measured(cell_id), Texts("here"))
    assert journal.texts(cell_id) == Texts("here")


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_refused_and_leaves_no_trace(journal, plan, number):
    with pytest.raises(StoreRefused, match=r"DeadlinePassed.at: .* is not allowed, only a finite number"):
        journal.append(DeadlinePassed(number))
    assert journal.events() == (plan,)
    journal.append(DeadlinePassed(1.0))
    assert journal.events() == (plan, DeadlinePassed(1.0))


def test_texts_belong_to_a_measured_cell(journal, plan):
    with pytest.raises(StoreRefused, match="DeadlinePassed was not written: texts belong to a measured cell"):
        journal.append(DeadlinePassed(1.0), Texts("whose?"))
    assert journal.events() == (plan,)


TEXTS = {
    "a megabyte": Texts(response="".join(chr(32 + (index * index) % 95) for index in range(1_000_000))),
    "a megabyte of one letter": Texts(content="x" * 1_000_000),
    "NUL": Texts(content="a\x00b\x00", reasoning="\x00"),
    "lone surrogates": Texts(content="\ud83d", reasoning="\ude00", tool_calls="\ude00\ud83d"),
    "a pair of surrogates that is not one character": Texts(content="\ud83d\ude00"),
    "line and paragraph separators": Texts(content="a\u2028b\u2029c\u0085d"),
    "line ends": Texts(content="a\r\nb\rc\n"),
    "terminal escapes and markup": Texts(content="\x1b[31mred\x07<script>alert('x')</script>"),
    "spaces at both ends": Texts(content="  \t x \n "),
    "a byte order mark": Texts(content="\ufeffx"),
    "each part by itself": Texts("1", "2", "3", "4", "5"),
}


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_a_text_is_kept_whole(journal, measured, texts):
    journal.append(measured(1), texts)
    assert journal.texts(1) == texts


def test_empty_texts_are_not_the_same_as_none(journal, measured):
    journal.append(measured(1), Texts())
    journal.append(measured(2))
    assert journal.texts(1) == Texts()
    assert journal.texts(2) is None
    assert journal.texts(3) is None


def test_the_tail_names_the_count_and_differs_with_every_event(journal, measured):
    tails = [journal.tail]
    for cell_id in range(3):
        journal.append(measured(cell_id), Texts("same"))
        tails.append(journal.tail)
    assert [tail.partition(":")[0] for tail in tails] == ["1", "2", "3", "4"]
    assert len({tail.partition(":")[2] for tail in tails}) == 4


def test_appending_from_many_threads_loses_nothing_and_doubles_nothing(journal, plan, measured):
    def work(worker):
        for index in range(20):
            journal.append(measured(worker * 100 + index), Texts(f"{worker}/{index}"))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [event.cell_id for event in journal.events()[1:]]
    assert sorted(ids) == [worker * 100 + index for worker in range(5) for index in range(20)]
    for worker in range(5):
        mine = [cell_id for cell_id in ids if cell_id // 100 == worker]
        assert mine == sorted(mine)
    assert journal.texts(419) == Texts("4/19")


def test_of_many_threads_that_append_one_cell_one_succeeds(journal, measured):
    refused = []

    def work():
        try:
            journal.append(measured(1))
        except StoreRefused as error:
            refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 5
    assert len(journal.events()) == 2


def test_a_closed_journal_takes_nothing_more_and_still_tells_its_events(journal, plan, measured):
    journal.close()
    journal.close()
    assert journal.events() == (plan,)
    with pytest.raises(StoreRefused, match="closed"):
        journal.append(measured(1))
    with pytest.raises(StoreRefused, match="closed"):
        journal.texts(1)


def test_the_same_events_have_the_same_tail_in_every_journal(make, measured, said):
    tails = set()
    for kind in KINDS:
        with make(kind) as journal:
            journal.append(measured(1), said(1))
            journal.append(DeadlinePassed(2.5))
            tails.add(journal.tail)
    assert len(tails) == 1


def test_the_chain_is_what_its_description_says(plan, measured):
    first, second, texts = encode_event(plan), encode_event(measured(0)), encode_texts(Texts("x"))
    start = hashlib.sha256(b"prefillgate evidence").digest()
    planned = hashlib.sha256(start + len(first).to_bytes(8, "big") + first).digest()
    cell = hashlib.sha256(
        planned + len(second).to_bytes(8, "big") + second + hashlib.sha256(texts).digest()
    ).hexdigest()
    journal = MemoryJournal(plan)
    assert journal.tail == f"1:{planned.hex()}"
    journal.append(measured(0), Texts("x"))
    assert journal.tail == f"2:{cell}"


def test_a_memory_journal_without_a_plan_begins_with_one(plan, measured):
    journal = MemoryJournal()
    assert journal.events() == ()
    with pytest.raises(StoreRefused, match="first event of a journal is its plan"):
        journal.append(measured(0))
    journal.append(plan)
    assert journal.events() == (plan,)


def test_every_refusal_is_a_store_error(journal, plan):
    with pytest.raises(StoreError):
        journal.append(plan)
