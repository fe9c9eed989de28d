"""Where the screen stands: rounds, passes, pairs, attempts, seeds and nonces."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.journal import CellMeasured, Purpose
from prefillgate.core.places import Places, Walk, derived_nonce, derived_seed
from tests.support.journals import cell, planned


def places(cases: int = 12, seed: int = 7, aa_check: bool = False) -> Places:
    made = Places()
    made.begin(planned(replace(STANDARD, aa_check=aa_check), cases, seed))
    return made


def note(
    made: Places, purpose: Purpose = Purpose.SCREEN, arm: str = CANDIDATE, pair: int | None = None, **changes: object
) -> None:
    made.measured(CellMeasured(0, cell(arm, **changes), purpose, pair=pair), 0)


def test_the_baseline_pass_takes_the_policys_cases_in_a_random_order() -> None:
    made = places()
    assert len(made.baseline_pass) == 8
    assert len(set(made.baseline_pass)) == 8
    assert made.second_pass == ()
    assert made.baseline_pass != places(seed=8).baseline_pass
    order = [f"c{i}" for i in range(12)]
    random.Random("7/baseline pass").shuffle(order)
    assert made.baseline_pass == tuple(order[:8])


def test_with_an_instrument_check_both_passes_take_every_case_each_in_its_own_order() -> None:
    made = places(aa_check=True)
    assert set(made.baseline_pass) == set(made.second_pass) == set(made.cases)
    assert made.baseline_pass != made.second_pass


def test_every_round_has_every_case_once_in_a_new_order() -> None:
    made = places()
    orders = [made.round_order(number) for number in range(20)]
    assert all(sorted(order) == sorted(made.cases) for order in orders)
    assert len(set(orders)) == 20
    assert orders == [places().round_order(number) for number in range(20)]
    assert made.round_order(0) != places(seed=8).round_order(0)


def test_the_screen_walks_through_the_rounds() -> None:
    made = places()
    seen = []
    for _ in range(30):
        seen.append((made.round, made.next_case))
        note(made)
    expected = [(number, case) for number in range(3) for case in made.round_order(number)]
    assert seen == expected[:30]


def test_what_comes_up_next_is_the_rest_of_this_round_and_then_of_the_next() -> None:
    made = places(cases=5)
    assert made.upcoming() == list(made.round_order(0))
    for _ in range(3):
        note(made)
    rest = made.round_order(0)[3:]
    assert made.upcoming() == [*rest, *(case for case in made.round_order(1) if case not in rest)]
    assert len(made.upcoming()) == 5


def test_the_coins_are_fair_and_fixed() -> None:
    made = places()
    coins = [made.candidate_first(pair) for pair in range(2000)]
    assert abs(sum(coins) - 1000) < 4 * 500**0.5
    assert coins == [places().candidate_first(pair) for pair in range(2000)]
    assert coins != [places(seed=8).candidate_first(pair) for pair in range(2000)]


@pytest.mark.parametrize(
    ("purpose", "counter"),
    [(Purpose.BASELINE_PASS, "passed"), (Purpose.AA, "passed_again"), (Purpose.SCREEN, "screened")],
)
def test_each_purpose_moves_its_own_counter(purpose: Purpose, counter: str) -> None:
    made = places()
    names = ("passed", "passed_again", "screened", "pairs_begun")
    for status in (Status.OK, Status.FAILED):
        note(made, purpose, status=status)
    note(made, purpose, status=Status.INVALID)
    assert {name: getattr(made, name) for name in names} == {name: 2 * (name == counter) for name in names}


@pytest.mark.parametrize("purpose", [Purpose.REPLICATE, Purpose.COMPARE])
def test_replicates_and_comparisons_leave_the_places_alone(purpose: Purpose) -> None:
    made = places()
    note(made, purpose)
    assert (made.passed, made.passed_again, made.screened, made.pairs_begun) == (0, 0, 0, 0)


def test_a_pair_is_done_when_both_halves_were_measured() -> None:
    made = places()
    case = made.next_case
    note(made, Purpose.PAIR, BASELINE, pair=0, case=case)
    assert made.open_pair is not None
    assert (made.open_pair.number, made.open_pair.case_id, made.open_pair.first_arm) == (0, case, BASELINE)
    assert made.open_pair.done == {BASELINE}
    assert (made.pairs_begun, made.screened) == (1, 0)
    note(made, Purpose.PAIR, CANDIDATE, pair=0, case=case)
    assert (made.open_pair, made.pairs_begun, made.screened) == (None, 1, 1)
    note(made, Purpose.PAIR, CANDIDATE, pair=1, case=made.next_case)
    assert made.open_pair is not None
    assert (made.open_pair.number, made.pairs_begun) == (1, 2)


def test_a_pair_out_of_turn_leaves_the_round_where_it_is() -> None:
    made = places()
    other = made.round_order(0)[5]
    for arm in (CANDIDATE, BASELINE):
        note(made, Purpose.PAIR, arm, pair=0, case=other)
    assert (made.open_pair, made.pairs_begun, made.screened) == (None, 1, 0)


@pytest.mark.parametrize("purpose", [Purpose.COMPARE, Purpose.REPLICATE])
def test_a_cell_of_another_purpose_is_no_half_of_an_open_pair(purpose: Purpose) -> None:
    made = places()
    note(made, Purpose.PAIR, CANDIDATE, pair=0)
    note(made, purpose, BASELINE, pair=0)
    assert made.open_pair is not None
    assert made.open_pair.done == {CANDIDATE}


def test_places_begin_at_nothing() -> None:
    assert Places() == Places((), 0, (), (), Walk(), Walk(), Walk(), Walk(), {}, {})
    assert Walk() == Walk(0, set())


def test_an_invalid_first_half_opens_the_pair_and_leaves_it_undone() -> None:
    made = places()
    note(made, Purpose.PAIR, CANDIDATE, pair=0, status=Status.INVALID)
    assert made.open_pair is not None
    assert made.open_pair.done == set()
    assert (made.pairs_begun, made.screened) == (1, 0)
    assert made.attempt(Purpose.PAIR, CANDIDATE, 0) == 2
    assert made.attempt(Purpose.PAIR, CANDIDATE, 1) == 1
    assert made.attempt(Purpose.PAIR, BASELINE, 0) == 1


@pytest.mark.parametrize(
    ("purpose", "arm"),
    [
        (Purpose.BASELINE_PASS, BASELINE),
        (Purpose.AA, BASELINE),
        (Purpose.SCREEN, CANDIDATE),
        (Purpose.COMPARE, BASELINE),
    ],
)
def test_an_invalid_cell_is_tried_again_at_its_place_and_the_next_place_begins_at_one(
    purpose: Purpose, arm: str
) -> None:
    made = places()
    note(made)
    note(made, Purpose.BASELINE_PASS, BASELINE)
    note(made, Purpose.BASELINE_PASS, BASELINE)
    note(made, Purpose.AA, BASELINE)
    note(made, Purpose.AA, BASELINE)
    note(made, Purpose.AA, BASELINE)
    at: dict[Purpose, int | str] = {
        Purpose.BASELINE_PASS: 2,
        Purpose.AA: 3,
        Purpose.SCREEN: 1,
        Purpose.COMPARE: "c0",
        Purpose.PAIR: 0,
    }
    assert made.attempt(purpose, arm, at[purpose]) == 1
    note(made, purpose, arm, status=Status.INVALID)
    note(made, purpose, arm, status=Status.INVALID)
    assert made.attempt(purpose, arm, at[purpose]) == 3
    for other in at:
        if other is not purpose:
            assert made.attempt(other, arm, at[other]) == 1
    note(made, purpose, arm)
    assert made.attempt(purpose, arm, at[purpose]) == 1
    assert made.attempts == {}


def test_attempts_of_a_replicate_half_are_kept_by_pair() -> None:
    made = places()
    note(made, Purpose.REPLICATE, BASELINE, pair=4, status=Status.INVALID)
    assert made.attempts == {("replicate", BASELINE, 4): 1}
    note(made, Purpose.REPLICATE, BASELINE, pair=None, status=Status.INVALID)
    assert made.attempts == {("replicate", BASELINE, 4): 1, ("replicate", BASELINE, 0): 1}


def test_seeds_and_nonces_are_functions_of_their_parts() -> None:
    assert derived_seed(7, "run", 1) == derived_seed(7, "run", 1)
    assert len({derived_seed(seed, "run", part) for seed in range(50) for part in range(50)}) == 2500
    assert len({derived_nonce(seed, "run", part) for seed in range(50) for part in range(50)}) == 2500
    assert derived_nonce(7, 1) != derived_nonce(7, 2)
    assert derived_seed(7, "run", 0, 0, None, "c0") == 98942575
    assert [derived_seed(7, part) for part in range(6)] == [
        431379790,
        1406334331,
        462121815,
        1698595816,
        1679858510,
        601347763,
    ]
    assert derived_nonce(7, "run") == "72a5868880c670fe6791372797ecee12"


@pytest.mark.parametrize("part", range(300))
def test_a_seed_fits_31_bits_and_a_nonce_is_32_hex_digits(part: int) -> None:
    assert 1 <= derived_seed(7, part) < 2**31
    nonce = derived_nonce(7, part)
    assert len(nonce) == 32
    assert set(nonce) <= set("0123456789abcdef")
