"""Exact intervals, tests and effective sizes, to the printed digits and against scipy."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from prefillgate.core import exact


@pytest.mark.parametrize(
    ("bad", "units", "interval"),
    [
        (0, 8, (0.0, 0.3694166475528192)),
        (2, 2, (0.15811388300841897, 1.0)),
        (11, 12, (0.6152038348490559, 0.9978924067681399)),
        (20, 95, (0.13359325469158373, 0.3062423556894617)),
    ],
)
def test_the_two_sided_interval_is_clopper_and_pearsons(bad: int, units: int, interval: tuple[float, float]) -> None:
    assert exact.clopper_pearson(bad, units) == pytest.approx(interval, abs=1e-13)


def test_eight_clean_units_bound_the_rate_below_0_312() -> None:
    assert exact.rate_upper_bound(0, 8) == pytest.approx(1 - 0.05**0.125, abs=1e-14)
    assert exact.rate_lower_bound(8, 8) == pytest.approx(0.05**0.125, abs=1e-14)
    assert exact.rate_lower_bound(0, 8) == 0.0
    assert exact.rate_upper_bound(8, 8) == 1.0
    assert exact.rate_lower_bound(1, 1, 0.25) == pytest.approx(0.25, abs=1e-15)


@pytest.mark.parametrize(
    ("units", "rate"), [(1, 0.5), (10, 0.2), (10, 0.3), (37, 0.02), (37, 0.98), (400, 0.5), (5, 1e-20)]
)
def test_binomial_probabilities_and_tails_agree_with_scipy(units: int, rate: float) -> None:
    for bad in range(0, units + 1, max(1, units // 12)):
        assert exact.binomial_pmf(bad, units, rate) == pytest.approx(
            stats.binom.pmf(bad, units, rate), rel=1e-11, abs=0
        )
        assert exact.binomial_at_least(bad, units, rate) == pytest.approx(
            stats.binom.sf(bad - 1, units, rate), rel=1e-11, abs=0
        )
        assert exact.binomial_at_most(bad, units, rate) == pytest.approx(
            stats.binom.cdf(bad, units, rate), rel=1e-11, abs=0
        )


def test_a_bound_is_the_first_rate_that_meets_its_error() -> None:
    # One unit: P(bad) is the rate itself, so the bound of error one half is one half to the last bit.
    assert exact.rate_lower_bound(1, 1, 0.5) == 0.5
    assert 0.5 - 1e-15 < exact.rate_upper_bound(0, 1, 0.5) <= 0.5
    assert 1 - 1e-15 < exact.t_limit(exact.noncentral_t_above(1.0, 5), 5) <= 1.0


def test_binomial_ends_are_exact() -> None:
    assert [exact.binomial_pmf(k, 2, 0.0) for k in range(3)] == [1.0, 0.0, 0.0]
    assert [exact.binomial_pmf(k, 2, 1.0) for k in range(3)] == [0.0, 0.0, 1.0]
    assert [exact.binomial_at_least(k, 2, 0.0) for k in range(3)] == [1.0, 0.0, 0.0]
    assert [exact.binomial_at_least(k, 2, 1.0) for k in range(3)] == [1.0, 1.0, 1.0]
    assert [exact.binomial_at_most(k, 2, 0.0) for k in range(3)] == [1.0, 1.0, 1.0]
    assert [exact.binomial_at_most(k, 2, 1.0) for k in range(3)] == [0.0, 0.0, 1.0]
    assert exact.binomial_pmf(0, 0, 0.3) == 1.0
    assert exact.binomial_at_least(0, 0, 0.3) == exact.binomial_at_most(0, 0, 0.3) == 1.0
    assert exact.binomial_at_least(0, 5, 0.3) == 1.0
    assert exact.binomial_at_most(0, 10**4, 0.9) == 0.0


def test_fisher_reproduces_the_story() -> None:
    assert exact.fisher_one_sided(11, 12, 0, 20) == pytest.approx(9.300560637795247e-08, rel=1e-12, abs=0)
    assert exact.fisher_one_sided(2, 2, 0, 2) == pytest.approx(1 / 6, rel=1e-14)


@pytest.mark.parametrize(
    "table",
    [(0, 5, 3, 7), (5, 5, 7, 7), (0, 1, 0, 1), (3, 10, 2, 11), (1, 30, 4, 9), (9, 9, 0, 4), (400, 3000, 300, 3100)],
)
def test_fisher_agrees_with_scipy(table: tuple[int, int, int, int]) -> None:
    a, n, c, m = table
    expected = stats.fisher_exact([[a, n - a], [c, m - c]], alternative="greater").pvalue
    assert exact.fisher_one_sided(*table) == pytest.approx(expected, rel=1e-10, abs=0)


def test_boschloo_reproduces_the_story() -> None:
    assert exact.boschloo_one_sided(2, 2, 0, 2) == pytest.approx(0.0625, rel=1e-12, abs=0)
    assert exact.boschloo_one_sided(0, 2, 2, 2) == 1.0
    assert exact.boschloo_one_sided(60, 100, 40, 100) == pytest.approx(0.0028425828831722864, rel=1e-9, abs=0)


@pytest.mark.parametrize(
    "table",
    [
        (3, 8, 1, 9),
        (7, 12, 2, 20),
        (1, 1, 0, 6),
        (5, 18, 1, 17),
        (4, 4, 3, 9),
        (1, 10, 1, 10),
        (2, 3, 4, 25),
        (1, 6, 0, 1),
    ],
)
def test_boschloo_agrees_with_scipy_and_never_exceeds_fisher(table: tuple[int, int, int, int]) -> None:
    a, n, c, m = table
    ours = exact.boschloo_one_sided(*table)
    theirs = stats.boschloo_exact([[a, c], [n - a, m - c]], alternative="greater", n=256).pvalue
    assert ours == pytest.approx(theirs, rel=2e-6, abs=0)
    assert ours <= exact.fisher_one_sided(*table)


def test_the_search_for_the_supremum_is_pinned() -> None:
    # The last digits show every number that the grid and its refinement are made of.
    assert exact.boschloo_one_sided(5, 18, 1, 17) == pytest.approx(0.053769328910016984, rel=1e-13, abs=0)
    assert exact.boschloo_one_sided(2, 3, 4, 25) == pytest.approx(0.04834032696078161, rel=1e-13, abs=0)


def test_boschloo_gives_way_to_fisher_above_its_limit() -> None:
    assert exact.boschloo_one_sided(2, 2, 0, 999) == exact.fisher_one_sided(2, 2, 0, 999)
    assert exact.boschloo_one_sided(2, 2, 0, 998) < exact.fisher_one_sided(2, 2, 0, 998)


def test_kish_and_shared_prefixes_give_the_printed_units() -> None:
    assert exact.kish_effective_units((6, 6)) == 2.0
    assert exact.kish_effective_units((11, 1)) == pytest.approx(144 / 122, rel=1e-15)
    assert exact.kish_effective_units((6, 6), 0.0) == 12.0
    assert exact.kish_effective_units((6, 6), 0.5) == pytest.approx(144 / 42, rel=1e-15)
    assert exact.shared_prefix_units(32, 0.3) == pytest.approx(32 / 10.3, rel=1e-15)
    assert exact.shared_prefix_units(32, 0.0) == 32.0
    assert exact.shared_prefix_units(32, 1.0) == 1.0
    assert exact.shared_prefix_units(1, 0.3) == 1.0


@pytest.mark.parametrize("freedom", [2, 3, 4, 5, 10, 42, 300])
@pytest.mark.parametrize("noncentrality", [0.0, 1.5, 3.0])
def test_the_noncentral_t_agrees_with_scipy(freedom: int, noncentrality: float) -> None:
    expected = stats.nct.sf(1.9, freedom, noncentrality)
    allowed = 3e-6 if freedom < 10 else 1e-10
    assert exact.noncentral_t_above(1.9, freedom, noncentrality) == pytest.approx(expected, abs=allowed)


def test_the_quadrature_of_the_noncentral_t_is_pinned() -> None:
    # Where the rule is coarse its last digits show every number it is made of.
    assert exact.noncentral_t_above(1.9, 1, 1.5) == pytest.approx(0.5040080524029449, rel=1e-12, abs=0)
    assert exact.noncentral_t_above(0.0, 1, 3.0) == pytest.approx(0.9739584149415053, rel=1e-12, abs=0)
    assert exact.noncentral_t_above(1.9, 4, 1.5) == pytest.approx(0.40924385299599253, rel=1e-12, abs=0)
    assert exact.noncentral_t_above(1.9, 5) == pytest.approx(0.057931637205973274, rel=1e-12, abs=0)


def test_the_limit_of_the_central_t_is_its_quantile() -> None:
    for freedom in (4, 10, 100):
        assert exact.t_limit(0.05, freedom) == pytest.approx(stats.t.isf(0.05, freedom), abs=3e-5)
    assert exact.t_limit(0.001, 30) == pytest.approx(stats.t.isf(0.001, 30), abs=1e-7)
    assert exact.t_limit(0.45, 30) == pytest.approx(stats.t.isf(0.45, 30), abs=1e-7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exact.clopper_pearson(0, 0), "units must be a whole number of at least 1, got 0"),
        (lambda: exact.rate_lower_bound(0, 0), "units must be a whole number of at least 1, got 0"),
        (lambda: exact.rate_upper_bound(0, 0), "units must be a whole number of at least 1, got 0"),
        (lambda: exact.clopper_pearson(3, 2), "bad must be a whole number from 0 to 2, got 3"),
        (lambda: exact.rate_lower_bound(3, 2), "bad must be a whole number from 0 to 2, got 3"),
        (lambda: exact.rate_upper_bound(-1, 2), "bad must be a whole number from 0 to 2, got -1"),
        (lambda: exact.clopper_pearson(None, 2), "bad must be a whole number from 0 to 2, got None"),  # type: ignore[arg-type]
        (lambda: exact.clopper_pearson(True, 2), "bad must be a whole number from 0 to 2, got True"),
        (lambda: exact.clopper_pearson(1, 2, 1.0), "confidence must be above 0 and below 1, got 1.0"),
        (lambda: exact.rate_lower_bound(1, 2, 0.0), "alpha must be above 0 and below 1, got 0.0"),
        (lambda: exact.rate_upper_bound(1, 2, 0.0), "alpha must be above 0 and below 1, got 0.0"),
        (lambda: exact.binomial_pmf(3, 2, 0.1), "bad must be a whole number from 0 to 2, got 3"),
        (lambda: exact.binomial_pmf(0, -1, 0.1), "units must be a whole number of at least 0, got -1"),
        (lambda: exact.binomial_at_least(0, -1, 0.1), "units must be a whole number of at least 0, got -1"),
        (lambda: exact.binomial_at_least(-1, 2, 0.1), "bad must be a whole number from 0 to 2, got -1"),
        (lambda: exact.binomial_at_most(0, -1, 0.1), "units must be a whole number of at least 0, got -1"),
        (lambda: exact.binomial_at_most(3, 2, 0.1), "bad must be a whole number from 0 to 2, got 3"),
        (lambda: exact.binomial_pmf(0, 2, 1.1), "rate must be a number from 0 to 1, got 1.1"),
        (lambda: exact.binomial_at_least(0, 2, -0.1), "rate must be a number from 0 to 1, got -0.1"),
        (lambda: exact.binomial_at_most(0, 2, math.nan), "rate must be a number from 0 to 1, got nan"),
        (lambda: exact.binomial_at_most(0, 2, None), "rate must be a number from 0 to 1, got None"),  # type: ignore[arg-type]
        (lambda: exact.binomial_at_most(0, 2, True), "rate must be a number from 0 to 1, got True"),
        (lambda: exact.fisher_one_sided(0, 0, 0, 1), "candidate_units must be a whole number of at least 1, got 0"),
        (lambda: exact.fisher_one_sided(2, 1, 0, 1), "candidate_bad must be a whole number from 0 to 1, got 2"),
        (lambda: exact.fisher_one_sided(0, 1, 0, 0), "baseline_units must be a whole number of at least 1, got 0"),
        (lambda: exact.boschloo_one_sided(0, 1, 2, 1), "baseline_bad must be a whole number from 0 to 1, got 2"),
        (lambda: exact.fisher_one_sided(-1, 1, 0, 1), "candidate_bad must be a whole number from 0 to 1, got -1"),
        (lambda: exact.fisher_one_sided(0, 1, -1, 1), "baseline_bad must be a whole number from 0 to 1, got -1"),
        (lambda: exact.kish_effective_units(()), "sizes must name at least one cluster, got none"),
        (lambda: exact.kish_effective_units((3, 0)), "sizes must be a whole number of at least 1, got 0"),
        (lambda: exact.kish_effective_units((3,), 1.5), "rho must be a number from 0 to 1, got 1.5"),
        (lambda: exact.shared_prefix_units(0, 0.1), "units must be a whole number of at least 1, got 0"),
        (lambda: exact.shared_prefix_units(1, 2), "shared must be a number from 0 to 1, got 2"),
        (lambda: exact.noncentral_t_above(1.0, 0), "freedom must be a whole number of at least 1, got 0"),
        (lambda: exact.t_limit(0.0, 3), "alpha must be above 0 and below 1, got 0.0"),
        (lambda: exact.t_limit(0.5, 3), "alpha must be below 0.5, got 0.5"),
    ],
)
def test_impossible_numbers_are_named(call: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()  # type: ignore[operator]
    assert str(caught.value) == message


# What takes longest comes last, so that a change to the code is noticed soon.


@pytest.mark.parametrize(("bad", "units"), [(1, 3), (7, 40), (3, 10**6), (500_000, 10**6), (999_990, 10**6)])
def test_the_interval_agrees_with_the_beta_quantiles_up_to_a_million_units(bad: int, units: int) -> None:
    low, high = exact.clopper_pearson(bad, units, 0.9)
    assert low == pytest.approx(stats.beta.ppf(0.05, bad, units - bad + 1), abs=1e-12)
    assert high == pytest.approx(stats.beta.ppf(0.95, bad + 1, units - bad), abs=1e-12)


def test_fisher_is_exact_for_millions() -> None:
    expected = stats.hypergeom.sf(29_999, 2 * 10**6, 59_500, 10**6)
    assert exact.fisher_one_sided(30_000, 10**6, 29_500, 10**6) == pytest.approx(expected, rel=1e-7, abs=0)
