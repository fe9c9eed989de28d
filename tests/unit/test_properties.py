"""STATISTICS.md section 10 on random cell logs and random journals.

The properties of counting are stated for epochs whose counter the probe saw alive: whether a counter is believed, and
what prefill time is compared with, are findings about the whole epoch, which one cell may rightly change.
"""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from prefillgate.core.acceptance import STANDARD, more_clean_units_needed
from prefillgate.core.audit import audit_facts
from prefillgate.core.cells import BASELINE, CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.facts import Facts
from prefillgate.core.freshness import classify
from prefillgate.core.gate import Gate, JournalError, fold
from prefillgate.core.journal import CellMeasured, Purpose, ReplicateStarted
from prefillgate.core.judge import judge, write_verdict
from prefillgate.core.policy import Policy
from prefillgate.core.replicate import Ending
from prefillgate.core.snapshot import table_of
from prefillgate.core.units import build_ledger, count_arm
from prefillgate.core.verdict import ArmCounts, CellClass, Outcome
from prefillgate.evidence import decode_event, encode_event
from tests.support.cell_logs import START, pairs
from tests.support.stores import Played

# Entries near enough to zero that random logs come to every answer; the replicate is the standard one.
SMALL = replace(STANDARD, acceptance=(3, 6, 9))
WIDE = replace(STANDARD, acceptance=(24, 40, 55))  # entries above what one prompt of a random log supplies
LENGTH = 1000
PROMPTS = ("p", "q", "r")
OUTCOMES = st.sampled_from([False, False, False, True, None])


def alive(case: str, cached: int | None, **more: object) -> Cell:
    """A cell of an epoch whose counter the probe saw alive."""
    told = {"arm": CANDIDATE, "server_epoch": "e", "prompt_tokens": LENGTH, "counter_alive": True, "bad": False}
    processed = None if cached is None else LENGTH - cached
    return Cell(case_id=case, cached_tokens=cached, **({"processed_tokens": processed} | told | more))


KINDS: tuple[dict[str, object], ...] = (
    {"cached": 0},
    {"cached": 0},
    {"cached": 5},
    {"cached": 50},
    {"cached": 0, "processed_tokens": None},
    {"cached": 0, "cold_proof": ColdProof.CACHE_OFF},
    {"cached": None, "cold_proof": ColdProof.NONCE},
    {"cached": None},
    {"cached": 996},
    {"cached": 996, "processed_tokens": LENGTH},
    {"cached": 300},
    {"cached": 0, "processed_tokens": 4},
    {"cached": None, "status": Status.FAILED},
    {"cached": None, "status": Status.FAILED, "cold_proof": ColdProof.SALT},
    {"cached": 0, "status": Status.INVALID},
)


@st.composite
def cells(draw: st.DrawFn) -> Cell:
    """Any kind of screen cell."""
    kind = draw(st.sampled_from(KINDS))
    place = {
        "arm": draw(st.sampled_from([CANDIDATE, CANDIDATE, BASELINE])),
        "server_epoch": draw(st.sampled_from("eef")),
    }
    request = draw(st.sampled_from([{}, {}, {}, {"request_id": "x", "choice_index": draw(st.integers(0, 2))}]))
    return alive(draw(st.sampled_from(PROMPTS)), bad=draw(OUTCOMES), **(kind | place | request))


@st.composite
def logs(draw: st.DrawFn) -> list[Cell]:
    """Screen cells, and now and then one or two replicates and more screen cells after them."""
    clean = [alive(PROMPTS[place % 3], 0) for place in range(draw(st.integers(0, 9)))]
    some = draw(st.lists(cells(), max_size=10))
    log = [replace(each, started_at=START - 5000) for each in (*clean, *some)]
    numbers = draw(st.sampled_from([(), (), (1,), (1, 2)]))
    for number in numbers:
        letters = st.sampled_from(["gg", "gg", "g-", "g-", "bg", "bg", "bb", "gb", "ug"])
        outcomes = " ".join(draw(st.lists(letters, min_size=1, max_size=10)))
        log += pairs(outcomes, number=number, start=START + 5000 * number, prompts=3, counter_alive=True)
    if numbers:
        log += [replace(each, started_at=START + 20_000) for each in draw(st.lists(cells(), max_size=10))]
    return log


def facts(log: list[Cell]) -> Facts:
    return audit_facts(log, SMALL, "log")


def decided(log: list[Cell]) -> Outcome:
    return facts(log).ruling.decision


def counted(log: list[Cell]) -> tuple[int, int]:
    ledger = build_ledger(classify(log), CANDIDATE)
    return ledger.decision_prefills, ledger.bad


def road(log: list[Cell], policy: Policy = SMALL) -> float:
    """Clean fresh prefills missing to promotion; infinite where no number promotes."""
    needed = audit_facts(log, policy, "log").clean_prefills_needed
    return inf if needed is None else needed


def fresh_places(log: list[Cell]) -> list[int]:
    """Where the candidate's fresh cells stand."""
    fresh = {id(item.cell) for item in classify(log) if item.cell_class is CellClass.FRESH}
    return [place for place, each in enumerate(log) if id(each) in fresh and each.arm == CANDIDATE]


def distinct(log: list[Cell]) -> list[Cell]:
    """The same log with no object twice in it."""
    return [replace(each) for each in log]


def test_the_random_logs_come_to_every_answer() -> None:
    seen: set[str] = set()

    @given(logs())
    def look(log: list[Cell]) -> None:
        seen.add(facts(log).ruling.reason.value)

    look()
    assert seen >= {
        "AcceptanceReached",
        "RegressionNotConfirmed",
        "MoreEvidenceNeeded",
        "ReplicateDue",
        "ReplicateRunning",
    }
    assert decided([alive("p", 0, bad=True, started_at=START - 5000), *pairs("bg bg bg bg bg")]) is Outcome.ROLLBACK


# Adding copies to a unit never changes n


@given(logs(), st.data())
def test_adding_copies_to_a_unit_never_changes_n(log: list[Cell], data: st.DataObject) -> None:
    log = distinct(log)
    places = fresh_places(log)
    assume(places)
    place = data.draw(st.sampled_from(places))
    unit = replace(log[place], choice_index=None, request_id=None, status=Status.OK, cold_proof=None)
    kinds = st.sampled_from(
        [{"cached_tokens": 996, "processed_tokens": 4}, {"cached_tokens": 500, "processed_tokens": 9}]
    )
    copies = [replace(unit, bad=data.draw(OUTCOMES), **data.draw(kinds)) for _ in range(data.draw(st.integers(1, 5)))]
    more = [*log[: place + 1], *copies, *log[place + 1 :]]
    assert counted(more)[0] == counted(log)[0]
    assert counted(more)[1] >= counted(log)[1]


@given(logs(), st.data())
def test_more_choices_of_a_request_never_change_n(log: list[Cell], data: st.DataObject) -> None:
    log = [replace(each, request_id=f"own {place}", choice_index=0) for place, each in enumerate(log)]
    places = fresh_places(log)
    assume(places)
    place = data.draw(st.sampled_from(places))
    others = [replace(log[place], choice_index=index, bad=data.draw(OUTCOMES)) for index in range(1, 4)]
    assert counted([*log[: place + 1], *others, *log[place + 1 :]])[0] == counted(log)[0]


# An unknown counter never raises n


@given(logs(), st.data())
def test_an_unknown_counter_never_raises_n(log: list[Cell], data: st.DataObject) -> None:
    """Cells that were sent cold and report reuse are left out: their knob was not honoured, and the log is held."""
    blind = [
        replace(each, cached_tokens=None)
        if data.draw(st.booleans()) and not (each.cold_proof and each.cached_tokens)
        else each
        for each in log
    ]
    assert counted(blind)[0] <= counted(log)[0]
    arm = count_arm(classify(blind), CANDIDATE)
    assert arm.prefills <= count_arm(classify(log), CANDIDATE).prefills


# Relabelling a clean fresh sample as copy or unknown never turns a verdict into promote


@given(logs(), st.data())
def test_relabelling_a_clean_fresh_sample_never_turns_a_verdict_into_promote(
    log: list[Cell], data: st.DataObject
) -> None:
    log = distinct(log)
    ledger = build_ledger(classify(log), CANDIDATE)
    clean = {id(unit.cell) for unit in ledger.units if unit.bad is False}
    clean |= {id(unit.cell) for unit in build_ledger(classify(log), BASELINE).units if unit.bad is False}
    places = [place for place, each in enumerate(log) if id(each) in clean]
    assume(places)
    chosen = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=3, unique=True))
    labels = st.sampled_from(
        [
            {"cached_tokens": 996, "processed_tokens": 4, "cold_proof": None},
            {"cached_tokens": None, "processed_tokens": None, "cold_proof": None},
            {"processed_tokens": 4, "cold_proof": None},
        ]
    )
    relabelled = [replace(each, **data.draw(labels)) if place in chosen else each for place, each in enumerate(log)]
    assert counted(relabelled)[0] <= counted(log)[0]
    assert counted(relabelled)[1] == counted(log)[1]
    if decided(log) is not Outcome.PROMOTE:
        assert decided(relabelled) is not Outcome.PROMOTE


# Order inside a unit is irrelevant


def arms(log: list[Cell]) -> tuple[ArmCounts, ArmCounts]:
    classified = classify(log)
    return count_arm(classified, BASELINE), count_arm(classified, CANDIDATE)


@given(
    logs(), st.lists(st.tuples(st.sampled_from([996, 500, 300, None]), st.booleans(), OUTCOMES), max_size=6), st.data()
)
def test_order_inside_a_unit_is_irrelevant(
    log: list[Cell], told: list[tuple[int | None, bool, bool | None]], data: st.DataObject
) -> None:
    """The cells that follow a fresh one, or that follow none, in any order."""
    tail = [
        alive("tail", cached, bad=bad, started_at=START + 30_000, **({} if agrees else {"processed_tokens": 7}))
        for cached, agrees, bad in told
    ]
    head = data.draw(st.sampled_from([[], [alive("tail", 0, started_at=START + 30_000, bad=data.draw(OUTCOMES))]]))
    shuffled = data.draw(st.permutations(tail))
    one, other = [*log, *head, *tail], [*log, *head, *shuffled]
    assert arms(one) == arms(other)
    assert facts(one).ruling == facts(other).ruling
    assert road(one) == road(other)


@given(st.permutations(range(4)), st.lists(OUTCOMES, min_size=4, max_size=4))
def test_the_order_in_which_choices_were_written_is_irrelevant(order: list[int], outcomes: list[bool | None]) -> None:
    choices = [alive("p", 0, request_id="x", choice_index=index, bad=bad) for index, bad in enumerate(outcomes)]
    assert arms([choices[place] for place in order]) == arms(choices)


# One more bad fresh unit never shortens the road to promote


@given(logs(), st.sampled_from(PROMPTS))
def test_one_more_bad_fresh_unit_never_shortens_the_road_to_promote(log: list[Cell], case: str) -> None:
    """Under the entries themselves. Three conditions are not theirs and any unit, bad or clean, comes nearer to them:
    each prompt seen once, as many units as prompts, and the share of a prompt where the others were seen too little."""
    units = [unit for unit in build_ledger(classify(log), CANDIDATE).units if unit.own_outcome is not None]
    counts = {name: sum(unit.case_id == name for unit in units) for name in {each.case_id for each in log}}
    assume(counts.get(case) and len(counts) <= WIDE.acceptance[0])
    assume(all(had < -(-WIDE.acceptance[0] // len(counts)) for had in counts.values()))
    more = [*log, alive(case, 0, bad=True, started_at=START + 30_000)]
    assert road(more, WIDE) >= road(log, WIDE)


@given(logs(), st.sampled_from(PROMPTS))
def test_a_bad_fresh_unit_is_never_nearer_than_a_clean_one_in_its_place(log: list[Cell], case: str) -> None:
    bad, good = (alive(case, 0, bad=outcome, started_at=START + 30_000) for outcome in (True, False))
    assert road([*log, bad]) >= road([*log, good])


@given(st.integers(0, 200), st.integers(0, 4), st.integers(0, 32))
def test_one_more_bad_unit_needs_more_clean_ones_by_the_table(units: int, bad: int, prompts: int) -> None:
    table = table_of(Played(most_cells=0).play())
    before = more_clean_units_needed(table, units, bad, prompts)
    after = more_clean_units_needed(table, units + 1, bad + 1, prompts)
    assert after is None or (before is not None and after >= before)


# Dropping or merging a bad cell never brings promotion nearer


@given(logs(), st.data())
def test_taking_its_proof_from_a_bad_cell_never_brings_promotion_nearer(log: list[Cell], data: st.DataObject) -> None:
    bad = [
        place
        for place, each in enumerate(log)
        if each.arm == CANDIDATE and each.outcome() and each.status is not Status.INVALID and each.request_id is None
    ]
    assume(bad)
    chosen = data.draw(st.lists(st.sampled_from(bad), min_size=1, max_size=3, unique=True))
    labels = st.sampled_from(
        [
            {"cached_tokens": None, "processed_tokens": None, "status": Status.FAILED},
            {"cached_tokens": None, "processed_tokens": None},
            {"cached_tokens": 996, "processed_tokens": LENGTH},
            {"cached_tokens": 300, "processed_tokens": 700},
            {"cached_tokens": 0, "processed_tokens": 4},
        ]
    )
    changed = [
        replace(each, cold_proof=None, **data.draw(labels)) if place in chosen else each
        for place, each in enumerate(log)
    ]
    assert counted(changed)[0] <= counted(log)[0]
    assert counted(changed)[1] >= counted(log)[1]
    assert road(changed) >= road(log)
    if decided(log) is not Outcome.PROMOTE:
        assert decided(changed) is not Outcome.PROMOTE


# Trigger data cannot enter a replicate; rollback implies a confirmed replicate


@given(logs(), st.data())
def test_no_outcome_of_the_screen_changes_the_e_value_of_a_replicate(log: list[Cell], data: st.DataObject) -> None:
    flipped = [
        each
        if each.replicate or each.bad is None or each.status is Status.FAILED
        else replace(each, bad=data.draw(st.booleans()))
        for each in log
    ]
    before, after = ([each.view() for each in facts(one).replicates] for one in (log, flipped))
    assert [view.pairs for view in before] == [view.pairs for view in after]
    assert [view.e_value for view in before] == [view.e_value for view in after]


@given(logs())
@example([alive("p", 0, bad=True, started_at=START - 5000), *pairs("bg bg bg bg bg")])
def test_rollback_implies_a_confirmed_replicate_apart_from_its_trigger(log: list[Cell]) -> None:
    seen = facts(log)
    if seen.ruling.decision is not Outcome.ROLLBACK:
        return
    confirmed = next(each for each in seen.replicates if each.ending() is Ending.CONFIRMED)
    number = confirmed.plan.number
    assert confirmed.separation in ("gap", "restart")
    own = [each for each in log if each.replicate == number]
    trigger = [each for each in log if each.replicate < number and each.arm == CANDIDATE and each.outcome()]
    assert trigger
    assert not {id(each) for each in own} & {id(each) for each in trigger}
    alone = [each for each in log if not each.replicate]
    assert decided(alone) is not Outcome.ROLLBACK


@pytest.mark.parametrize("seed", range(6))
def test_a_run_rolls_back_only_on_cells_measured_after_its_replicate_began(seed: int) -> None:
    played = Played(seed=seed, candidate_rate=0.7, baseline_rate=0.05, prompts=4)
    gate = played.play()
    verdict = judge(gate)
    confirmed = [each for each in gate.replicates if each.ending() is Ending.CONFIRMED]
    assert (verdict.decision.decision is Outcome.ROLLBACK) == bool(confirmed)
    for replicate in confirmed:
        began = next(
            place
            for place, event in enumerate(played.events)
            if isinstance(event, ReplicateStarted) and event.number == replicate.plan.number
        )
        before = {e.cell_id for e in played.events[:began] if isinstance(e, CellMeasured)}
        own = {i for i, e in gate.measured.items() if e.cell.replicate == replicate.plan.number}
        assert own
        assert not own & before


def test_a_cell_cannot_be_handed_to_a_replicate_that_has_not_begun() -> None:
    gate = Played(seed=1, most_cells=5).play()
    screened = next(event for event in gate.measured.values() if event.cell.arm == CANDIDATE)
    smuggled = replace(
        screened, cell_id=gate.next_cell_id(), cell=replace(screened.cell, replicate=1), purpose=Purpose.REPLICATE
    )
    with pytest.raises(JournalError, match="replicate 1"):
        gate.apply(smuggled)
    again = Played(seed=2, candidate_rate=0.9).play()
    with pytest.raises(JournalError, match="stands twice"):
        again.apply(next(iter(again.measured.values())))


# The decision is a deterministic function of the journal


@pytest.mark.parametrize(
    "played",
    [
        Played(seed=11, candidate_rate=0.9),
        Played(seed=12, candidate_rate=0.08, invalid_rate=0.05, most_cells=30),
        Played(seed=13, candidate_rate=0.3, baseline_rate=0.2, failed_rate=0.05, most_cells=40),
    ],
    ids=["rollback", "screen", "noise"],
)
def test_the_decision_is_a_function_of_the_journal(played: Played) -> None:
    verdict = judge(played.play())
    assert judge(fold(played.events)) == verdict
    stored = [decode_event(encode_event(event)) for event in played.events]
    assert judge(fold(stored)) == verdict
    watched = Gate()
    for event in played.events:
        watched.apply(event)
        judge(watched)
    assert judge(watched) == verdict


@given(logs(), st.randoms(use_true_random=False))
def test_the_answer_to_a_log_is_a_function_of_the_log(log: list[Cell], generator: random.Random) -> None:
    answer = write_verdict(facts(log))
    assert write_verdict(facts(distinct(log))) == answer
    whole = [replace(each, started_at=START + place) for place, each in enumerate(log)]
    mixed = list(whole)
    generator.shuffle(mixed)
    one, other = write_verdict(facts(whole)), write_verdict(facts(mixed))
    assert (one.baseline, one.candidate, one.comparison) == (other.baseline, other.candidate, other.comparison)
    assert one.decision.decision == other.decision.decision
