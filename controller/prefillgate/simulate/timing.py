"""How long things take. Reported times come from here; sleeping them is the model's business."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prefillgate.simulate.dice import Dice
from prefillgate.simulate.faults import Faults, SpeedMode, Turn
from prefillgate.simulate.settings import Speed

_PREFILL_DOUBLES_AT = 20_000
_DECODE_DOUBLES_AT = 40_000


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of one generation: its prefill and one decode step, in milliseconds."""

    prefill_ms: float
    step_ms: float


def pace(speed: Speed, faults: Faults, turn: Turn, prompt_tokens: int, cached_tokens: int) -> Pace:
    """Prefill costs one decode step and a share for each processed token that grows with its position.

    Noise is lognormal with the planned CV and mean 1, drawn once per generation.
    """
    processed = prompt_tokens - cached_tokens
    area = processed + (prompt_tokens**2 - cached_tokens**2) / (2 * _PREFILL_DOUBLES_AT)
    prefill = (speed.decode_ms + speed.prefill_ms * area) * _product(faults, "prefill-slowdown")
    step = speed.decode_ms * (1 + prompt_tokens / _DECODE_DOUBLES_AT) * _product(faults, "decode-slowdown")
    acceptance = faults.last("draft", float)
    if acceptance is not None:
        step /= 1 + acceptance
    for place, mode in enumerate(faults.all("slow-mode", SpeedMode)):
        if faults.dice.uniform("slow-mode", place, turn.arrival) < mode.share:
            step *= mode.factor
    noise = [_noise(faults.dice, speed.noise_cv, part, turn.arrival) for part in ("prefill", "decode")]
    return Pace(round(max(prefill * noise[0], 0.001), 3), step * noise[1])


def _product(faults: Faults, name: str) -> float:
    return math.prod(faults.all(name, float))


def _noise(dice: Dice, cv: float, part: str, number: int) -> float:
    sigma = math.sqrt(math.log1p(cv * cv))
    return math.exp(sigma * dice.normal("noise", part, number) - sigma * sigma / 2)
