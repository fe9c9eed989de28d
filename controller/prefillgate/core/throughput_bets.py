"""The sequential test of paired decode rates: a mean of four betting processes (STATISTICS.md section 8).

Each process multiplies by a factor whose mean is at most 1 while the null holds, so any number of looks is allowed
(Ville; Waudby-Smith and Ramdas, arXiv 2010.09686).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

EFFECTS = (0.03, 0.08)  # relative speed changes the bets are laid for
STAKES = (1.0, 0.5)  # with 1 alone a single outlier would end the test: its factor is near 0


def e_values(
    differences: Sequence[float], margin: float, planned_cv: float, sign: int = 1, stakes: Sequence[float] = STAKES
) -> list[float]:
    """The e-value after each difference. `sign` 1 is evidence for a ratio above 1 + margin, -1 for one below.

    Raises ValueError for a margin of -1 or less, or a planned CV that is not above 0.
    """
    if not -1 < margin < math.inf:
        raise ValueError(f"throughput margin must be above -1, got {margin!r}")
    if not 0 < planned_cv < math.inf:
        raise ValueError(f"throughput planned_cv must be above 0, got {planned_cv!r}")
    centre = math.log1p(margin)
    slopes = [math.log1p(effect) / (2 * planned_cv**2) for effect in EFFECTS]
    bets = [(slope, stake) for slope in slopes for stake in stakes]
    products = [1.0] * len(bets)
    path = []
    for difference in differences:
        for i, (slope, stake) in enumerate(bets):
            products[i] *= 1 + sign * stake * math.tanh(slope * (difference - centre))
        path.append(fmean(products))
    return path
