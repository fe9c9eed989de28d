"""What one fresh prefill of each prompt says of a server taken for healthy: its bad rate, and what that promises."""

from __future__ import annotations

from dataclasses import dataclass

from prefillgate.core.acceptance import affordable_margin
from prefillgate.core.exact import clopper_pearson
from prefillgate.core.planning import WANTED_POWER, promotion_power
from prefillgate.core.policy import Policy


@dataclass(frozen=True, slots=True)
class HealthyRate:
    """A bad rate with what a candidate just as good has to expect. Rates and chances are fractions.

    `margin` is the policy's own where it promotes such a candidate with a chance of 0.8 or more, else the smallest
    one, in whole percent, that would; None where no margin does.
    """

    bad: int
    units: int
    interval: tuple[float, float]  # 95 %, Clopper-Pearson
    promote: float  # P(promote) at the rate seen
    promote_at_ends: tuple[float, float]  # at the interval's two ends
    margin: float | None

    @property
    def rate(self) -> float:
        """The share of bad ones."""
        return self.bad / self.units


def healthy_rate(bad: int, units: int, policy: Policy, prompts: int) -> HealthyRate | None:
    """What `bad` of `units` fresh prefills say, under each flag; None without units.

    Raises ValueError for impossible counts.
    """
    if not units:
        return None
    low, high = clopper_pearson(bad, units)
    rate = bad / units
    chance = promotion_power(policy, rate, prompts)
    return HealthyRate(
        bad=bad,
        units=units,
        interval=(low, high),
        promote=chance,
        promote_at_ends=(promotion_power(policy, low, prompts), promotion_power(policy, high, prompts)),
        margin=policy.margin if chance >= WANTED_POWER else _margin(rate, policy, prompts),
    )


def _margin(rate: float, policy: Policy, prompts: int) -> float | None:
    reachable = policy.budget - min(policy.baseline_pass, prompts)
    return affordable_margin(rate, WANTED_POWER ** (1 / len(policy.flags)), policy.alpha, reachable)
