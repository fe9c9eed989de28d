"""The A/A instrument check: two passes over the baseline must look alike (STATISTICS.md section 8).

Broken means a paired e-value of 40 between the passes in either direction, the throughput test at margin 0 at 40 in
either direction, or a failed probe. Never the CUSUM: it would call a sound instrument broken in every third pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from prefillgate.core.evalue import pair_factor
from prefillgate.core.policy import Policy
from prefillgate.core.throughput import BaselinePass
from prefillgate.core.throughput_bets import e_values

AA_THRESHOLD = 40.0


@dataclass(frozen=True, slots=True)
class AaPair:
    """One prompt in both passes over the baseline. Rates in tokens per second; None is unknown."""

    case_id: str
    first_bad: bool | None
    second_bad: bool | None
    first_rate: float | None = None
    second_rate: float | None = None
    first_output_sha256: str | None = None
    second_output_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class InstrumentCheck:
    """What the check found. The e-values are the highest each test reached; 1 with nothing to test.

    `findings` says in a sentence each why the instrument is broken; empty when it is sound.
    """

    findings: tuple[str, ...]
    pairs: int
    e_second_worse: float
    e_first_worse: float
    e_second_faster: float
    e_second_slower: float
    identical_share: float | None
    identical: int  # outputs that were the same in both passes, of `compared`
    compared: int
    baseline: BaselinePass

    @property
    def broken(self) -> bool:
        return bool(self.findings)


def check_instrument(pairs: Sequence[AaPair], policy: Policy, failed_probes: Sequence[str] = ()) -> InstrumentCheck:
    """Hold the two passes against each other, in the order the pairs were planned.

    The quality test ends at the first pair with an unknown outcome, as every paired e-value does. Pairs without a rate
    on both sides are left out of the speed test, which needs the policy's `min_pairs`.
    """
    second_worse, first_worse = _quality_peaks(pairs, policy)
    differences = [
        math.log(pair.second_rate) - math.log(pair.first_rate)
        for pair in pairs
        if pair.first_rate is not None and pair.second_rate is not None
    ]
    faster, slower = (_speed_peak(differences, policy, sign) for sign in (1, -1))
    tests = (
        (second_worse, "the second pass over the baseline is worse than the first"),
        (first_worse, "the first pass over the baseline is worse than the second"),
        (faster, "the second pass over the baseline decodes faster than the first"),
        (slower, "the second pass over the baseline decodes slower than the first"),
    )
    findings = [f"{words} (E {peak:.1f})" for peak, words in tests if peak >= AA_THRESHOLD]
    findings += [f"probe failed: {probe}" for probe in failed_probes]
    same = _same_outputs(pairs)
    share = fmean(same) if same else None
    return InstrumentCheck(
        findings=tuple(findings),
        pairs=len(pairs),
        e_second_worse=second_worse,
        e_first_worse=first_worse,
        e_second_faster=faster,
        e_second_slower=slower,
        identical_share=share,
        identical=sum(same),
        compared=len(same),
        baseline=BaselinePass(identical_share=share, rates=_rates(pairs)),
    )


def _quality_peaks(pairs: Sequence[AaPair], policy: Policy) -> tuple[float, float]:
    rates = (policy.replicate.planned_baseline_rate, policy.replicate.planned_candidate_rate)
    forward = backward = forward_peak = backward_peak = 1.0
    for pair in pairs:
        if pair.first_bad is None or pair.second_bad is None:
            break
        forward *= pair_factor(pair.second_bad, pair.first_bad, *rates)
        backward *= pair_factor(pair.first_bad, pair.second_bad, *rates)
        forward_peak, backward_peak = max(forward_peak, forward), max(backward_peak, backward)
    return forward_peak, backward_peak


def _speed_peak(differences: Sequence[float], policy: Policy, sign: int) -> float:
    path = e_values(differences, 0.0, policy.throughput.planned_cv, sign)
    return max(path[policy.throughput.min_pairs - 1 :], default=1.0)


def _same_outputs(pairs: Sequence[AaPair]) -> list[bool]:
    return [
        pair.first_output_sha256 == pair.second_output_sha256
        for pair in pairs
        if pair.first_output_sha256 is not None and pair.second_output_sha256 is not None
    ]


def _rates(pairs: Sequence[AaPair]) -> dict[str, tuple[float, ...]]:
    rates: dict[str, tuple[float, ...]] = {}
    for pair in pairs:
        known = tuple(rate for rate in (pair.first_rate, pair.second_rate) if rate is not None)
        rates[pair.case_id] = rates.get(pair.case_id, ()) + known
    return rates
