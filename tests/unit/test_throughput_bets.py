"""The sequential test of paired decode rates (STATISTICS.md section 8)."""

from __future__ import annotations

import math

import pytest

from prefillgate.core.throughput_bets import e_values


def test_the_e_value_is_the_mean_of_four_products() -> None:
    differences = [0.02, -0.07, 0.11]
    centre = math.log(0.95)
    for sign in (1, -1):
        expected = 0.0
        for effect in (0.03, 0.08):
            for stake in (1.0, 0.5):
                product = 1.0
                for d in differences:
                    product *= 1 + sign * stake * math.tanh(math.log(1 + effect) / (2 * 0.04**2) * (d - centre))
                expected += product / 4
        path = e_values(differences, -0.05, 0.04, sign)
        assert len(path) == 3
        assert path[-1] == pytest.approx(expected, rel=1e-12)
        assert path[:2] == e_values(differences[:2], -0.05, 0.04, sign)
    assert e_values(differences, -0.05, 0.04) == e_values(differences, -0.05, 0.04, 1)
    assert e_values([math.log(0.95)], -0.05, 0.04) == [pytest.approx(1.0, abs=1e-12)]
    assert e_values([1.0], 0.0, 0.04, 1, (1.0,)) == [pytest.approx(2.0)]
    assert e_values([], -0.05, 0.04) == []


@pytest.mark.parametrize(
    ("margin", "cv", "message"),
    [
        (-1.0, 0.04, "throughput margin must be above -1, got -1.0"),
        (math.nan, 0.04, "throughput margin must be above -1, got nan"),
        (math.inf, 0.04, "throughput margin must be above -1, got inf"),
        (0.0, 0.0, "throughput planned_cv must be above 0, got 0.0"),
        (0.0, math.inf, "throughput planned_cv must be above 0, got inf"),
    ],
)
def test_impossible_settings_are_named(margin: float, cv: float, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        e_values([0.1], margin, cv)
    assert str(caught.value) == message
