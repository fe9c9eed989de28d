"""Decode throughput: pairs of cells to a state, an estimate and what is still missing (STATISTICS.md section 8).

A pair is the same prompt on both arms, adjacent in time; its difference is d = ln(candidate rate / baseline rate).
The sequential test of `throughput_bets` allows any number of looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import fmean, median, stdev

from prefillgate.core.pair_measurement import PairMeasurement as PairMeasurement
from prefillgate.core.policy import ThroughputPolicy
from prefillgate.core.signed_rank import hodges_lehmann, signed_rank_interval
from prefillgate.core.throughput_bets import e_values
from prefillgate.core.throughput_plan import cell_cv, coverage_prompts, pairs_needed
from prefillgate.core.verdict import ThroughputPair, ThroughputState, ThroughputView

AA_CELLS = 20  # baseline cells that must show no slow one before slow may count as a flag
WILD_LENGTHS = 2.0  # output lengths further apart than this factor make rates incomparable


@dataclass(frozen=True, slots=True)
class BaselinePass:
    """What the A/A pass showed of the baseline against itself: the share of identical outputs and, by case, the rates
    of its fresh cells in tokens per second."""

    identical_share: float | None = None
    rates: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        return sum(len(rates) for rates in self.rates.values())

    def slow_cells(self, slow_ratio: float) -> int:
        """Cells under `slow_ratio` of the median of their own prompt."""
        return sum(is_slow(rate, rates, slow_ratio) for rates in self.rates.values() for rate in rates)


class SlowRule(StrEnum):
    """What slow candidate cells mean."""

    FLAG = "flag"  # one more flag under the acceptance table
    TWO_SPEED_MODES = "two_speed_modes"  # the baseline has them too: say so and print both shares
    UNKNOWN = "unknown"  # too few A/A cells to tell


def cell_rate(output_tokens: int | None, decode_ms: float | None) -> float | None:
    """Decode rate in tokens per second, (output_tokens - 1) / decode time; None where it has no meaning."""
    return _per_second(cell_ms_per_token(output_tokens, decode_ms))


def _per_second(ms_each: float | None) -> float | None:
    return None if ms_each is None else 1000.0 / ms_each


def cell_ms_per_token(output_tokens: int | None, decode_ms: float | None) -> float | None:
    """Decode milliseconds per token after the first; None where it has no meaning."""
    if output_tokens is None or decode_ms is None or output_tokens < 2 or not 0 < decode_ms < math.inf:
        return None
    return decode_ms / (output_tokens - 1)


def why_unused(pair: PairMeasurement, policy: ThroughputPolicy) -> str:
    """The first reason the pair is left out of the test, or an empty string."""
    if pair.first_after_start:
        return "first pair after a server start"
    if pair.windows:
        return "" if pair.prompts else "no prompt told its speed in both windows"
    arms = (
        ("baseline", pair.baseline_fresh, pair.baseline_output_tokens, pair.baseline_rate, pair.baseline_ms_per_token),
        (
            "candidate",
            pair.candidate_fresh,
            pair.candidate_output_tokens,
            pair.candidate_rate,
            pair.candidate_ms_per_token,
        ),
    )
    for arm, fresh, tokens, rate, ms_per_token in arms:
        if not fresh:
            return f"{arm} cell not fresh"
        if tokens is None:
            return f"{arm} output tokens unknown"
        if tokens < policy.min_output_tokens:
            return f"{arm} cell under {policy.min_output_tokens} output tokens"
        if not _positive(rate) or not _positive(ms_per_token):
            return f"{arm} decode rate unknown"
    return ""


def _positive(value: float | None) -> bool:
    return value is not None and 0 < value < math.inf


def log_ratio(pair: PairMeasurement) -> float:
    """d = ln(candidate rate) - ln(baseline rate). Raises ValueError when a rate is not known."""
    if pair.baseline_rate is None or pair.candidate_rate is None:
        raise ValueError(f"pair {pair.pair} has no decode rate on both arms")
    return math.log(pair.candidate_rate) - math.log(pair.baseline_rate)


def total_speed_ratio(pairs: Iterable[PairMeasurement]) -> float | None:
    """Baseline over candidate decode time per token, each prompt weighted equally; above 1 is faster."""
    times = ms_per_token(pairs)
    return None if times is None else times[0] / times[1]


def ms_per_token(pairs: Iterable[PairMeasurement]) -> tuple[float, float] | None:
    """Mean decode milliseconds per token of baseline and candidate, each prompt weighted equally."""
    by_prompt: dict[str, list[tuple[float, float]]] = {}
    for pair in pairs:
        for times in pair.times:
            by_prompt.setdefault(times.case_id, []).append((times.baseline_ms, times.candidate_ms))
    if not by_prompt:
        return None
    baseline = fmean(fmean(time for time, _ in times) for times in by_prompt.values())
    candidate = fmean(fmean(time for _, time in times) for times in by_prompt.values())
    return baseline, candidate


@dataclass(frozen=True, slots=True)
class SequenceState:
    """Where the sequential test stands. `latched_at` counts used pairs from 1."""

    state: ThroughputState
    latched_at: int | None
    e_not_worse: float
    e_worse: float
    slow_in_total: bool


def run_sequence(pairs: Sequence[PairMeasurement], policy: ThroughputPolicy) -> SequenceState:
    """Walk the used pairs in order and latch the first state reached, then check total speed once more."""
    differences = [log_ratio(pair) for pair in pairs]
    better = e_values(differences, policy.margin, policy.planned_cv)
    worse = e_values(differences, policy.margin, policy.planned_cv, sign=-1)
    threshold = 1 / policy.alpha
    state, latched_at, reached = ThroughputState.OPEN, None, False
    for count in range(policy.min_pairs, len(pairs) + 1):
        reached = reached or better[count - 1] >= threshold
        if worse[count - 1] >= threshold:
            state, latched_at = ThroughputState.WORSE, count
            break
        if reached and _fast_in_total(pairs[:count], policy.margin):
            state, latched_at = ThroughputState.NOT_WORSE, count
            break
    too_slow = state is not ThroughputState.WORSE and reached and not _fast_in_total(pairs, policy.margin)
    if too_slow:
        state = ThroughputState.OPEN
    return SequenceState(state, latched_at, better[-1] if better else 1.0, worse[-1] if worse else 1.0, too_slow)


def _fast_in_total(pairs: Sequence[PairMeasurement], margin: float) -> bool:
    ratio = total_speed_ratio(pairs)
    return ratio is not None and ratio >= 1 + margin


def prompt_differences(pairs: Iterable[PairMeasurement]) -> list[float]:
    """One mean log ratio per prompt, in the order the prompts were first paired."""
    by_prompt: dict[str, list[float]] = {}
    for pair in pairs:
        by_prompt.setdefault(pair.key, []).append(log_ratio(pair))
    return [fmean(differences) for differences in by_prompt.values()]


def estimated_cv(differences: Sequence[float]) -> float | None:
    """Coefficient of variation of one cell's rate, from the spread of d (which holds two); None below two pairs."""
    return None if len(differences) < 2 else cell_cv(stdev(differences))


def slow_rule(aa: BaselinePass, slow_ratio: float) -> SlowRule:
    """Whether slow cells may count as a flag: only if the A/A pass shows none in `AA_CELLS`."""
    if aa.slow_cells(slow_ratio) > 0:
        return SlowRule.TWO_SPEED_MODES
    return SlowRule.FLAG if aa.cells >= AA_CELLS else SlowRule.UNKNOWN


def is_slow(rate: float, baseline_rates: Sequence[float], slow_ratio: float) -> bool:
    """Whether a cell's rate is under `slow_ratio` of the median of that prompt's baseline rates."""
    return rate < slow_ratio * median(baseline_rates)


def slow_pairs(pairs: Sequence[PairMeasurement], aa: BaselinePass, slow_ratio: float) -> frozenset[int]:
    """Numbers of the used pairs whose candidate cell is slow, against all baseline rates known of its prompt."""
    rates = {case_id: list(known) for case_id, known in aa.rates.items()}
    for pair in pairs:
        if pair.baseline_rate is not None:
            rates.setdefault(pair.key, []).append(pair.baseline_rate)
    return frozenset(
        pair.pair
        for pair in pairs
        if pair.candidate_rate is not None and is_slow(pair.candidate_rate, rates[pair.key], slow_ratio)
    )


def identical_output(pair: PairMeasurement) -> bool | None:
    """Whether both arms gave the same output; None when a digest is unknown."""
    if pair.baseline_output_sha256 is None or pair.candidate_output_sha256 is None:
        return None
    return pair.baseline_output_sha256 == pair.candidate_output_sha256


@dataclass(frozen=True, slots=True)
class Estimate:
    """Hodges-Lehmann ratio over the prompts and its interval, candidate over baseline."""

    prompts: int
    ratio: float | None
    interval: tuple[float, float] | None


def estimate(pairs: Sequence[PairMeasurement], alpha: float) -> Estimate:
    """Typical ratio of the used pairs, averaged within a prompt first; each end has one-sided error `alpha`."""
    differences = prompt_differences(pairs)
    if not differences:
        return Estimate(0, None, None)
    interval = signed_rank_interval(differences, alpha)
    ends = None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))
    return Estimate(len(differences), math.exp(hodges_lehmann(differences)), ends)


def pairs_still_needed(
    sequence: SequenceState, used: Sequence[PairMeasurement], missing: int, policy: ThroughputPolicy
) -> int | None:
    """A guess of the pairs still missing to promotion; None when nothing seen so far leads there.

    Open, E grows on at its mean rate so far; before the first pair an equal candidate is planned for. Never fewer than
    complete `min_pairs` or give each of the `missing` prompts its pair.
    """
    least = max(missing, policy.min_pairs - len(used))
    if sequence.state is ThroughputState.NOT_WORSE:
        return missing
    if sequence.state is ThroughputState.WORSE or sequence.slow_in_total:
        return None
    if not used:
        planned = pairs_needed(1.0, policy.margin, policy.planned_cv, policy.alpha)
        return None if planned is None else max(planned, least)
    if sequence.e_not_worse <= 1:
        return None
    growth = math.log(sequence.e_not_worse) / len(used)
    return max(math.ceil((-math.log(policy.alpha) - math.log(sequence.e_not_worse)) / growth), least)


def judge_throughput(
    pairs: Sequence[PairMeasurement],
    policy: ThroughputPolicy,
    lengths: Mapping[str, int],
    aa: BaselinePass | None = None,
) -> ThroughputView:
    """State, estimate and shares over `pairs` in the order measured.

    `lengths` are the prompt lengths (tokens or characters) of the cases that can give a pair. `ratio_interval` has
    one-sided error `policy.alpha` at each end. `e_not_worse` and `e_worse` are those after the last used pair; the
    state is latched when one first reaches 1 / alpha. Output digests count only under greedy decoding: leave them None
    otherwise.
    """
    aa = aa or BaselinePass()
    judged = [(pair, why_unused(pair, policy)) for pair in pairs]
    used = [pair for pair, reason in judged if not reason]
    paired = {case for pair in used for case in pair.cases}
    missing = tuple(case for case in coverage_prompts(lengths, policy.max_prompts) if case not in paired)
    sequence = run_sequence(used, policy)
    slow = slow_pairs(used, aa, policy.slow_ratio)
    view = replace(
        _view(used, sequence, policy, aa),
        slow_share_candidate=len(slow) / len(used) if used else None,
        pairs=tuple(_pair_view(pair, reason, pair.pair in slow) for pair, reason in judged),
        pairs_needed=pairs_still_needed(sequence, used, len(missing), policy),
        missing_prompts=missing,
    )
    return replace(view, sentence=" ".join(_sentences(view, sequence, used, policy, aa)))


def _view(
    used: Sequence[PairMeasurement], sequence: SequenceState, policy: ThroughputPolicy, aa: BaselinePass
) -> ThroughputView:
    """What the used pairs say, before the pairs themselves, their slow share and what is missing are added."""
    typical = estimate(used, policy.alpha)
    baseline_ms, candidate_ms = ms_per_token(used) or (None, None)
    hashes = [identical for pair in used if (identical := identical_output(pair)) is not None]
    return ThroughputView(
        state=sequence.state if used or policy.required else ThroughputState.NOT_COMPARED,
        margin=policy.margin,
        pairs=(),
        pairs_used=len(used),
        prompts_in_pairs=len({case for pair in used for case in pair.cases}),
        ratio=typical.ratio,
        ratio_interval=typical.interval,
        e_not_worse=sequence.e_not_worse,
        e_worse=sequence.e_worse,
        baseline_ms_per_token=baseline_ms,
        candidate_ms_per_token=candidate_ms,
        baseline_tokens_per_second=_per_second(baseline_ms),
        candidate_tokens_per_second=_per_second(candidate_ms),
        slow_share_candidate=None,
        slow_share_baseline=aa.slow_cells(policy.slow_ratio) / aa.cells if aa.cells else None,
        identical_share=fmean(hashes) if hashes else None,
        aa_identical_share=aa.identical_share,
        pairs_needed=None,
        cv=estimated_cv([log_ratio(pair) for pair in used]),
    )


def _pair_view(pair: PairMeasurement, reason: str, slow: bool) -> ThroughputPair:
    return ThroughputPair(
        pair=pair.pair,
        case_id=pair.case_id,
        baseline_tokens_per_second=pair.baseline_rate,
        candidate_tokens_per_second=pair.candidate_rate,
        used=not reason,
        why_not=reason,
        identical_output=identical_output(pair),
        slow=slow,
    )


def _sentences(
    view: ThroughputView,
    sequence: SequenceState,
    used: Sequence[PairMeasurement],
    policy: ThroughputPolicy,
    aa: BaselinePass,
) -> Iterator[str]:
    yield _state_sentence(view, sequence)
    if view.ratio is not None:
        over = f"over {_count(view.pairs_used, 'pair')} of {_count(view.prompts_in_pairs, 'prompt')}"
        yield f"The typical ratio is {_ratio(view.ratio, view.ratio_interval)} {over}."
    same = [pair for pair in used if identical_output(pair)]
    typical = estimate(same, policy.alpha)
    if typical.ratio is not None and typical.interval is not None and typical.interval[0] > 1:
        yield f"Faster on identical output: {_ratio(typical.ratio, typical.interval)} over {_count(len(same), 'pair')}."
    if view.missing_prompts:
        yield f"{_count(len(view.missing_prompts), 'prompt')} must still be in a pair before promotion."
    if view.slow_share_candidate and slow_rule(aa, policy.slow_ratio) is SlowRule.TWO_SPEED_MODES:
        shares = f"{view.slow_share_candidate:.0%} of candidate and {view.slow_share_baseline:.0%} of baseline cells"
        yield f"Two speed modes: {shares} are slow, so a paired test does not settle the speed."
    if (factor := length_factor(used)) > WILD_LENGTHS:
        yield f"Output lengths differ by a factor of {factor:.1f}: the rates compare different work."


def _state_sentence(view: ThroughputView, sequence: SequenceState) -> str:
    margin = f"{view.margin:+.1%}"
    if view.state is ThroughputState.NOT_COMPARED:
        return "Decode speed was not compared."
    if view.state is ThroughputState.NOT_WORSE:
        return f"Decode speed is not worse than {margin} (settled at pair {sequence.latched_at})."
    if view.state is ThroughputState.WORSE:
        return f"Decode speed is worse than {margin} (settled at pair {sequence.latched_at})."
    if sequence.slow_in_total:
        return f"Decode speed is open: the typical pair is not worse than {margin}, the total decode time is."
    if view.pairs_needed is None:
        return f"Decode speed against {margin} is open, and the pairs so far do not lead to a promotion."
    return f"Decode speed against {margin} is open: about {_count(view.pairs_needed, 'more pair')} would settle it."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ratio(ratio: float, interval: tuple[float, float] | None) -> str:
    return f"{ratio:.3f}" if interval is None else f"{ratio:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"


def length_factor(pairs: Iterable[PairMeasurement]) -> float:
    """How far apart the output lengths of the two arms are in total, as a factor of at least 1.

    Pairs with an unknown or empty output are left out; 1 when no pair is left.
    """
    lengths = [
        (pair.baseline_output_tokens, pair.candidate_output_tokens)
        for pair in pairs
        if pair.baseline_output_tokens and pair.candidate_output_tokens
    ]
    if not lengths:
        return 1.0
    factor = sum(candidate for _, candidate in lengths) / sum(baseline for baseline, _ in lengths)
    return max(factor, 1 / factor)
