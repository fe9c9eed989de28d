"""Numbers printed in STATISTICS.md that stand between the parts of the core, each computed exactly from the core.

Numbers that belong to one part are with that part's tests; what was simulated is in tests/simulation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import pytest

from prefillgate.core.acceptance import STANDARD, STRICT, AcceptanceTable, false_promotion, power
from prefillgate.core.alarm import alarm_level, increments
from prefillgate.core.exact import binomial_pmf, fisher_one_sided
from prefillgate.core.policy import AlarmPolicy
from tests.simulation.harness import WALD_PROMOTION, WALD_ROLLBACK

TABLE = AcceptanceTable(STANDARD.margin, STANDARD.alpha, STANDARD.acceptance)
REUSED = 0.05  # the cached share that a fresh prefill may have at most
COPIES = 6
ALPHA, POWER = 0.05, 0.9


# Section 1


def test_a_plain_count_of_prefills_that_each_reused_a_twentieth_would_break_the_bound_and_n_keeps_it() -> None:
    rate = 1 - (1 - STANDARD.margin) ** (1 - REUSED)  # of a prefill of which a twentieth came from the cache
    assert power(TABLE, rate).promote == pytest.approx(0.0607, abs=5e-5)
    counted = tuple(math.ceil(entry / (1 - REUSED)) for entry in STANDARD.acceptance)
    assert counted == (34, 59, 79)
    assert power(AcceptanceTable(STANDARD.margin, 0.05, counted), rate).promote == pytest.approx(0.0488, abs=5e-5)


def test_a_candidate_that_times_out_on_one_prompt_in_twelve_is_promoted_under_strict_in_seven_of_a_thousand() -> None:
    strict = AcceptanceTable(STRICT.margin, STRICT.alpha, STRICT.acceptance)
    assert power(strict, 0.9 / 12).promote == pytest.approx(0.007, abs=5e-4)


# Section 2


def test_a_table_that_allows_three_bad_has_more_power_and_costs_more() -> None:
    four = AcceptanceTable(0.10, 0.05, (30, 62, 86, 112))
    assert 0.0499 < false_promotion(four) < 0.05
    assert power(four, 0.01).promote == pytest.approx(0.984, abs=5e-4)
    assert power(four, 0.02).promote == pytest.approx(0.881, abs=5e-4)
    assert power(four, 0.01).expected_prefills == pytest.approx(41.2, abs=0.05)
    assert power(TABLE, 0.01).expected_prefills == pytest.approx(39.6, abs=0.05)


def test_walds_bound_at_power_1_and_rate_0_is_28_4_units() -> None:
    assert math.log(1 / ALPHA) / divergence(0, 0.10) == pytest.approx(28.4, abs=0.05)
    assert power(TABLE, 0.0).expected_prefills == 32


# Section 6


def divergence(true: float, other: float) -> float:
    """Kullback-Leibler divergence of two rates, in nats."""
    bad = 0.0 if true == 0 else math.inf if other == 0 else true * math.log(true / other)
    return bad + (0.0 if true == 1 else (1 - true) * math.log((1 - true) / (1 - other)))


def dearest_null(baseline: float, candidate: float, margin: float, share: float) -> float:
    """Information of a prefill, `share` of them on the candidate, against the nearest null of this margin."""

    def against(rate: float) -> float:
        mine = share * divergence(candidate, rate + margin) if share > 0 else 0.0
        return mine + ((1 - share) * divergence(baseline, rate) if share < 1 else 0.0)

    return min(against(place / 1000) for place in range(1000 - round(1000 * margin)))


def best_allocation(information: Callable[[float], float]) -> float:
    """The most information a prefill gives over the shares of the candidate, in steps of a fortieth."""
    return max(information(place / 40) for place in range(41))


WALD = POWER * math.log(POWER / ALPHA) + (1 - POWER) * math.log((1 - POWER) / (1 - ALPHA))


@pytest.mark.parametrize(("baseline", "candidate"), WALD_ROLLBACK)
def test_walds_bound_on_a_rollback_is_the_printed_one(baseline: float, candidate: float) -> None:
    bound = WALD / best_allocation(lambda share: dearest_null(baseline, candidate, 0.0, share))
    assert bound == pytest.approx(WALD_ROLLBACK[baseline, candidate], rel=0.005)


@pytest.mark.parametrize("rate", WALD_PROMOTION)
def test_walds_bound_on_a_promotion_is_the_printed_one(rate: float) -> None:
    bound = WALD / best_allocation(lambda share: dearest_null(rate, rate, 0.10, share))
    assert bound == pytest.approx(WALD_PROMOTION[rate], rel=0.005)


def naive(prefills: int, rate: float, peeking: bool) -> float:
    """Chance that Fisher's test on requests, six to a prefill, says "roll back" where nothing differs."""
    if not peeking:
        chance = [binomial_pmf(bad, prefills, rate) for bad in range(prefills + 1)]
        pairs = [(one, two) for one in range(prefills + 1) for two in range(one) if signals(one, two, prefills)]
        return math.fsum(chance[one] * chance[two] for one, two in pairs)
    running: dict[tuple[int, int], float] = {(0, 0): 1.0}
    signalled = 0.0
    for units in range(1, prefills + 1):
        after: dict[tuple[int, int], float] = defaultdict(float)
        for (one, two), chance_here in running.items():
            for bad in (0, 1):
                for other in (0, 1):
                    weight = (rate if bad else 1 - rate) * (rate if other else 1 - rate)
                    after[one + bad, two + other] += chance_here * weight
        ends = {state for state in after if signals(*state, units)}
        signalled += sum(after[state] for state in ends)
        running = {state: weight for state, weight in after.items() if state not in ends}
    return signalled


def signals(candidate_bad: int, baseline_bad: int, prefills: int) -> bool:
    if candidate_bad <= baseline_bad:
        return False
    requests = COPIES * prefills
    return fisher_one_sided(COPIES * candidate_bad, requests, COPIES * baseline_bad, requests) <= ALPHA


@pytest.mark.parametrize("prefills", [12, 24])
def test_counting_requests_signals_a_rollback_in_a_quarter_of_sound_runs(prefills: int) -> None:
    assert naive(prefills, 0.05, peeking=False) == pytest.approx(0.25, abs=0.01)


def test_with_peeking_it_does_so_in_46_percent_and_in_54_at_a_rate_of_a_tenth() -> None:
    assert naive(24, 0.05, peeking=True) == pytest.approx(0.46, abs=0.005)
    assert naive(24, 0.10, peeking=True) == pytest.approx(0.54, abs=0.005)


# Section 8


def test_the_alarm_would_call_a_sound_instrument_broken_in_29_percent_of_passes_of_32_units() -> None:
    alarm = AlarmPolicy()
    (bad, clean), limit, rate = increments(alarm), alarm_level(alarm), 0.05
    running: dict[tuple[float, int], float] = {(0.0, 0): 1.0}
    alarmed = 0.0
    for _ in range(32):
        after: dict[tuple[float, int], float] = defaultdict(float)
        for (level, seen), chance in running.items():
            for step, weight, one in ((bad, rate, 1), (clean, 1 - rate, 0)):
                state = (round(max(0.0, level + step), 9), seen + one)
                if state[0] >= limit or state[1] > TABLE.bad_allowed:
                    alarmed += chance * weight
                else:
                    after[state] += chance * weight
        running = after
    assert alarmed == pytest.approx(0.29, abs=0.005)
