"""The alarm: cheap, on the candidate alone, never a verdict (STATISTICS.md section 3).

A CUSUM (Lorden 1976) of the log-likelihood ratio of a bad rate against a healthy one. It blocks promotion and
starts a replicate; it never allows a rollback.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from prefillgate.core.policy import AlarmPolicy


@dataclass(frozen=True, slots=True)
class Cusum:
    """Where the CUSUM stands. Levels are in nats."""

    level: float
    peak: float
    alarmed: bool


def increments(policy: AlarmPolicy) -> tuple[float, float]:
    """(bad, clean): what a bad and a clean outcome add, +1.792 and -0.305 at the standard rates, in nats."""
    bad = math.log(policy.bad_rate / policy.healthy_rate)
    clean = math.log((1 - policy.bad_rate) / (1 - policy.healthy_rate))
    return bad, clean


def cusum(outcomes: Iterable[bool], policy: AlarmPolicy, watch: bool = False) -> Cusum:
    """Run the CUSUM over outcomes in start order (True is bad), floored at 0; the alarm is latched.

    It alarms at ln 10, or under the watch rule (months of looks after a promotion) at ln 100.
    """
    level = peak = 0.0
    added = increments(policy)
    for outcome in outcomes:
        level = _stepped(level, outcome, added)
        peak = max(peak, level)
    return Cusum(level, peak, peak >= alarm_level(policy, watch))


def stepped(level: float, bad: bool, policy: AlarmPolicy) -> float:
    """The level after one more outcome, in nats, never below 0."""
    return _stepped(level, bad, increments(policy))


def _stepped(level: float, bad: bool, added: tuple[float, float]) -> float:
    if_bad, if_clean = added
    return max(0.0, level + (if_bad if bad else if_clean))


def alarm_level(policy: AlarmPolicy, watch: bool = False) -> float:
    """The level at which the CUSUM alarms, in nats."""
    return math.log(policy.watch_threshold if watch else policy.threshold)
