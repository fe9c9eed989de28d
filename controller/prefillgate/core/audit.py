"""Judging a log the gate did not plan: what its cells say of prefills, and what the rules would answer from it alone.

Quality only. Replicates are read from the log: the scored candidate cells of one replicate number in time order, each
paired with the next unused baseline cell of the same case and replicate (STATISTICS.md section 4).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction

from prefillgate.core.acceptance import AcceptanceTable, more_clean_units_needed, unplanned_units
from prefillgate.core.alarm import alarm_level, cusum
from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.decision import Distrust, Reason, Snapshot, decide
from prefillgate.core.distrust import LOPSIDED_P, MAX_INVALID_RUN
from prefillgate.core.exact import fisher_one_sided
from prefillgate.core.facts import Facts
from prefillgate.core.freshness import Claims, Classified, claims_reuse, classify, in_time_order
from prefillgate.core.journal import Purpose
from prefillgate.core.policy import Policy, ReplicatePolicy
from prefillgate.core.replicate import Ending, Replicate, ReplicatePlan, is_replicate_unit
from prefillgate.core.units import UnitLedger, Units, build_ledger, floor_of_sum
from prefillgate.core.verdict import CellClass, CellView, ThroughputState, ThroughputView


def audit_facts(cells: Sequence[Cell], policy: Policy, title: str, waited: Collection[int] = ()) -> Facts:
    """The facts of a log: `cells` in line order, judged under the default flag of `policy`.

    `waited` are the positions of invalid cells of a server that asked to be left alone (429, 503): they are not among
    three in a row.
    """
    classified = classify(cells)
    counted = [cell for position, cell in enumerate(cells) if position not in waited]
    ledger = build_ledger(classified, CANDIDATE)
    cases = tuple(dict.fromkeys(cell.case_id for cell in cells if cell.status is not Status.INVALID))
    replicates = replicates_of(classified, policy.replicate)
    after = _last_replicate_start(classified)
    state = cusum(ledger.outcomes(after), policy.alarm)
    arms = tuple(arm for arm in ARMS if arm == CANDIDATE or any(cell.arm == arm for cell in cells))
    distrust = knob_not_honoured(classified) or independence_unknown(classified, ledger) or too_many_invalid(counted)
    snapshot = snapshot_of((distrust, ledger, cases), replicates, state.alarmed, policy)
    return Facts(
        title=title,
        policy=policy,
        cases=cases,
        classified=classified,
        ledgers=(ledger,),
        cells=_views(cells, classified),
        replicates=replicates,
        snapshot=snapshot,
        ruling=decide(snapshot),
        throughput=NO_THROUGHPUT,
        clean_prefills_needed=clean_needed(ledger, cases, policy),
        alarm_level=state.level,
        alarm_at=alarm_level(policy.alarm),
        ever_alarmed=snapshot.alarm or bool(replicates),
        budget=policy.budget,
        invalid=tuple((arm, sum(_invalid(cell, arm) for cell in cells)) for arm in arms),
        from_log=True,
        arms=arms,
    )


NO_THROUGHPUT = ThroughputView(
    state=ThroughputState.NOT_COMPARED,
    margin=0.0,
    pairs=(),
    pairs_used=0,
    prompts_in_pairs=0,
    ratio=None,
    ratio_interval=None,
    e_not_worse=1.0,
    e_worse=1.0,
    baseline_ms_per_token=None,
    candidate_ms_per_token=None,
    baseline_tokens_per_second=None,
    candidate_tokens_per_second=None,
    slow_share_candidate=None,
    slow_share_baseline=None,
    identical_share=None,
    aa_identical_share=None,
    pairs_needed=None,
    sentence="Quality alone was judged; decode throughput was not compared.",
)


def _invalid(cell: Cell, arm: str) -> bool:
    return cell.status is Status.INVALID and cell.arm == arm


def snapshot_of(
    seen: tuple[Distrust | None, Units, Collection[str]],
    replicates: Sequence[Replicate],
    crossed: bool,
    policy: Policy,
) -> Snapshot:
    distrust, ledger, cases = seen
    more_bad = ledger.bad >= len(policy.acceptance)
    running = bool(replicates) and replicates[-1].ending() is None
    ended = [replicate for replicate in replicates if replicate.ending() is not None]
    not_confirmed = sum(1 for replicate in ended if replicate.ending() is not Ending.CONFIRMED)
    confirmed = any(replicate.ending() is Ending.CONFIRMED for replicate in ended)
    return Snapshot(
        distrust=distrust,
        regression_confirmed=confirmed,
        alarm=crossed or (more_bad and not ended),
        replicate_running=running,
        replicates_not_confirmed=not_confirmed,
        max_replicates=policy.replicate.max_attempts,
        more_bad_than_allowed=more_bad,
        acceptance_reached=clean_needed(ledger, cases, policy) == 0,
    )


def knob_not_honoured(classified: Sequence[Classified]) -> Distrust | None:
    """A cell sent with the cache off says by its own counter that it came from the cache.

    Another choice of a request, or a cell in flight beside its like, is a copy for other reasons.
    """
    for item in classified:
        if knob_ignored(item.cell, item.cell_class):
            return ignored_knob((item.cell.arm, item.cell.case_id), item.witness, item.cell.cold_proof)
    return None


def knob_ignored(cell: Claims, cell_class: CellClass) -> bool:
    """Whether what forced a fresh prefill did not."""
    forced = cell.cold_proof in (ColdProof.CACHE_OFF, ColdProof.SALT)
    return forced and cell_class in (CellClass.COPY, CellClass.PARTIAL, CellClass.ORPHAN) and claims_reuse(cell)


def ignored_knob(arm_and_case: tuple[str, str], witness: str, proof: ColdProof | None) -> Distrust:
    """What the first cell whose knob was ignored shows."""
    arm, case = arm_and_case
    said = f"{arm} answered {case} from its cache ({witness}) although the request forced a fresh prefill ({proof})"
    return Distrust(Reason.KNOB_NOT_HONOURED, said)


UNPROVEN = (CellClass.UNKNOWN, CellClass.CONTRADICTED)


def independence_unknown(classified: Sequence[Classified], ledger: UnitLedger) -> Distrust | None:
    """No request of the candidate is proven to be a prefill of its own, and at least one might be."""
    mine = [item for item in classified if item.cell.arm == CANDIDATE]
    unproven = [item for item in mine if item.cell_class in UNPROVEN]
    return nothing_proven(len(mine), unproven[0].witness) if unproven and not ledger.units else None


def nothing_proven(requests: int, witness: str) -> Distrust:
    """What a candidate without a proven prefill is; `witness` is that of its first request that might be one."""
    return Distrust(
        Reason.INDEPENDENCE_UNKNOWN,
        f"independence unknown: none of {requests} candidate requests is proven to be a prefill of its own ({witness})",
    )


class InvalidRuns:
    """Invalid cells, in time order: three in a row for one case on one arm, or many on one arm alone."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], int] = {}
        self._total, self._invalid = dict.fromkeys(ARMS, 0), dict.fromkeys(ARMS, 0)
        self._found: Distrust | None = None

    def add(self, arm: str, case: str, invalid: bool) -> None:
        """Take one more cell."""
        self._total[arm] += 1
        if not invalid:
            self._runs.pop((arm, case), None)
            return
        self._invalid[arm] += 1
        run = self._runs[arm, case] = self._runs.get((arm, case), 0) + 1
        if run >= MAX_INVALID_RUN and self._found is None:
            said = f"{MAX_INVALID_RUN} invalid cells in a row for {case} on the {arm}"
            self._found = Distrust(Reason.INVALID_CELLS, said)

    def distrust(self) -> Distrust | None:
        """What they show, if anything."""
        return self._found or self._lopsided()

    def _lopsided(self) -> Distrust | None:
        total, invalid = self._total, self._invalid
        for arm, other in (ARMS, ARMS[::-1]):
            if not total[arm] or not total[other]:
                continue
            p_value = fisher_one_sided(invalid[arm], total[arm], invalid[other], total[other])
            if p_value < LOPSIDED_P:  # equivalent mutant: no table of two arms has a p value of exactly .01
                said = f"{invalid[arm]} of {total[arm]} cells of the {arm} were invalid, "
                said += f"{invalid[other]} of {total[other]} of the {other}"
                return Distrust(Reason.ERRORS_LOPSIDED, said)
        return None


def too_many_invalid(cells: Iterable[Cell]) -> Distrust | None:
    """Three invalid cells in a row for one case on one arm, or invalid cells that fall on one arm."""
    runs = InvalidRuns()
    for cell in in_time_order(cells):
        runs.add(cell.arm, cell.case_id, cell.status is Status.INVALID)
    return runs.distrust()


def clean_needed(ledger: Units, cases: Collection[str], policy: Policy) -> int | None:
    """Clean fresh prefills still missing to promotion; None when the bad ones forbid it.

    In a log the gate did not plan one prompt supplies at most ceil(n_k / P) units to the test at n_k; its further
    units count only if bad (STATISTICS.md section 2).
    """
    if not cases:
        return None
    table = AcceptanceTable(policy.margin, policy.alpha, policy.acceptance)
    weights = ledger.weights_by_case()
    missing = len(set(cases) - weights.keys())
    needed = []
    for allowed in range(ledger.bad, len(table.entries)):
        limit = unplanned_units(table.entries[allowed], len(cases))
        units = _capped_units(weights, limit)
        more = more_clean_units_needed(table, units, allowed, len(cases))
        if more is not None:
            needed.append(max(more, missing))
    return min(needed) if needed else None


def _capped_units(weights: Mapping[str, Sequence[Fraction]], limit: int) -> int:
    """n with at most `limit` units of one prompt, those that prefilled most; its further bad ones count in k alone."""
    return floor_of_sum(weight for own in weights.values() for weight in sorted(own, reverse=True)[:limit])


def _last_replicate_start(classified: Sequence[Classified]) -> int:
    """Position of the first cell of the last replicate: the CUSUM starts anew there. -1 without one."""
    last = max((item.cell.replicate for item in classified), default=0)
    if not last:
        return -1  # equivalent mutant: any number below the first position
    return next(position for position, item in enumerate(classified) if item.cell.replicate == last)


def replicates_of(classified: Sequence[Classified], policy: ReplicatePolicy) -> list[Replicate]:
    """The replicates a log holds, by number, with their separation from what triggered them."""
    by_number: dict[int, list[Classified]] = defaultdict(list)
    for item in classified:
        if item.cell.replicate:
            by_number[item.cell.replicate].append(item)
    found = [_replicate(number, by_number[number], classified, policy) for number in sorted(by_number)]
    for replicate in found[:-1]:
        if replicate.ending() is None:
            replicate.aborted = "the log goes on to the next replicate before it ended"
    return found


def _replicate(
    number: int, items: Sequence[Classified], classified: Sequence[Classified], policy: ReplicatePolicy
) -> Replicate:
    """One replicate. A half that is no unit, or whose outcome is unknown, leaves its pair incomplete.

    No pair is skipped, whatever its cells turned out to be: choosing among them is not valid, and a cell that lost its
    proof must not let the replicate end sooner.
    """
    candidates = [item for item in items if item.cell.arm == CANDIDATE]
    mates: defaultdict[str, deque[Classified]] = defaultdict(deque)
    for item in items:
        if item.cell.arm == BASELINE:
            mates[item.cell.case_id].append(item)
    prompts = tuple(item.cell.case_id for item in candidates)
    coins = tuple(True for _ in prompts)  # equivalent mutant: a log is not scheduled, so nothing reads its coins
    result = Replicate(ReplicatePlan(number, prompts, coins), policy)
    result.separation, result.separation_detail = separation_of(number, items, classified, policy.gap_seconds)
    if result.separation is None:
        result.aborted = result.separation_detail
    for pair, candidate in enumerate(candidates):
        waiting = mates[candidate.cell.case_id]
        for half in (candidate, waiting.popleft() if waiting else None):
            if half is None or not is_replicate_unit(half, policy.max_cached_tokens):
                continue
            outcome = half.cell.outcome()
            if outcome is not None:
                result.record(pair, half.cell.arm, (outcome,))
    return result


def separation_of(
    number: int, items: Sequence[Classified], classified: Sequence[Classified], gap_seconds: float
) -> tuple[str | None, str]:
    """How a logged replicate was kept apart from the last bad candidate cell before it: (how, detail).

    `how` is gap or restart, None where neither can be read from `started_at` and `server_epoch`.
    """
    own = {id(item) for item in items}
    position = next(index for index, item in enumerate(classified) if id(item) in own)
    earlier = (item.cell for item in classified[:position] if item.cell.arm == CANDIDATE and item.cell.outcome())
    bad = [cell for cell in earlier if cell.replicate < number]  # equivalent mutant: its own cells are not earlier
    candidates = [item.cell for item in items if item.cell.arm == CANDIDATE]
    if not bad:
        return None, "no bad candidate cell before it: nothing triggered it"
    if not candidates:
        return None, "no candidate cell in it"
    trigger, first = bad[-1], items[0].cell
    epochs = {cell.server_epoch for cell in candidates}
    if None not in epochs and trigger.server_epoch is not None and trigger.server_epoch not in epochs:
        return "restart", f"candidate epoch {trigger.server_epoch} before, {candidates[0].server_epoch} after"
    if first.started_at is not None and trigger.started_at is not None:
        ended = trigger.ended_at if trigger.ended_at is not None else trigger.started_at
        gap = first.started_at - ended
        if gap >= gap_seconds:
            return "gap", f"{gap:.0f} s after the last bad cell"
        return None, f"only {gap:.0f} s after the last bad cell, in the same server epoch"
    return None, "neither started_at nor server_epoch tells it apart from its trigger"


def _views(cells: Sequence[Cell], classified: Sequence[Classified]) -> tuple[CellView, ...]:
    classes = {id(item.cell): item for item in classified}
    return tuple(_view(number, cell, classes.get(id(cell))) for number, cell in enumerate(cells))


def _view(number: int, cell: Cell, item: Classified | None) -> CellView:
    return CellView(
        cell_id=number,
        cell=cell,
        purpose=Purpose.REPLICATE if cell.replicate else Purpose.SCREEN,
        pair=None,
        cell_class=None if item is None else item.cell_class,
        unit=None if item is None or item.unit is None else item.unit + 1,
        bad=None if item is None else cell.outcome(),
        witness="" if item is None else item.witness,
    )
