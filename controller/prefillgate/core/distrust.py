"""When the measurement itself cannot be trusted: rule 6 of the decision (STATISTICS.md 1, ENGINES.md 1).

Each check is a small named function over the gate; the first that answers is the reason, its sentence says what was
seen. None of them reads a bad rate of the candidate: that is what the other rules are for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import product

from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE, ColdProof, Status
from prefillgate.core.decision import Distrust, Reason
from prefillgate.core.distrust_shape import (
    SUGGEST_SHARED,
    refused_without_baseline,
    server_in_use,
    unproven_by_responses,
    voided_by_traffic,
)
from prefillgate.core.exact import fisher_one_sided, rate_lower_bound
from prefillgate.core.gate import BUSY, REFUSALS, REFUSED_BODY, Gate, cells_of
from prefillgate.core.journal import Purpose
from prefillgate.core.pairs import instrument_of, measured_cv
from prefillgate.core.throughput_plan import margin_problem
from prefillgate.core.verdict import CellClass

MAX_INVALID_RUN = 3
REUSED = frozenset({CellClass.COPY, CellClass.PARTIAL, CellClass.ORPHAN})
FOREIGN = "foreign_text"
LOPSIDED_P = 0.01
SERVER_FAULTS = frozenset({500, 502, 504})


def measurement_lost(gate: Gate) -> Distrust | None:
    """The shell saw the instrument break in a way that cells cannot show."""
    if gate.lost is None:
        return None
    known = {reason.value: reason for reason in Reason}
    return Distrust(known.get(gate.lost.reason, Reason.MEASUREMENT_LOST), gate.lost.detail)


def undeclared_difference(gate: Gate) -> Distrust | None:
    """Engine, build or weights differ between the arms and nobody declared it: any effect would be confounded."""
    declared = {difference.name for difference in gate.plan.differences if difference.declared}
    found = [(d.name, d.baseline, d.candidate) for d in gate.plan.differences if not d.declared]
    for baseline, candidate in product(gate.current_epochs(BASELINE), gate.current_epochs(CANDIDATE)):
        found.append(("engine", baseline.engine, candidate.engine))
        found += [("build", baseline.build, candidate.build), ("weights", baseline.weights, candidate.weights)]
    for name, one, other in found:
        if name not in declared and None not in (one, other) and one != other:
            return Distrust(
                Reason.UNDECLARED_DIFFERENCE,
                f"{name} differs between the arms and was not declared: baseline {one}, candidate {other}",
            )
    return None


def changed_during_run(gate: Gate) -> Distrust | None:
    """A later life of a server has another build or other weights: its cells are not of the profile under test."""
    for arm in ARMS:
        for name in ("build", "weights"):
            known = [value for seen in gate.epochs[arm] if (value := getattr(seen, name)) is not None]
            other = next((value for value in known if value != known[0]), None)
            if other is not None:
                return Distrust(
                    Reason.UNDECLARED_DIFFERENCE,
                    f"{name} of the {arm} changed during the run: {known[0]}, then {other}",
                )
    return None


def another_baseline(gate: Gate) -> Distrust | None:
    """The floor that this run goes by is of another build, or of other weights, than its baseline."""
    floor = gate.plan.floor
    if floor is None:
        return None
    for seen in gate.current_epochs(BASELINE):
        for name, then, now in (("build", floor.build, seen.build), ("weights", floor.weights, seen.weights)):
            if None not in (then, now) and then != now:
                return Distrust(
                    Reason.UNDECLARED_DIFFERENCE,
                    f"the floor of {floor.store} is of another baseline: {name} {then} then, {now} now",
                )
    return None


def independence_unknown(gate: Gate) -> Distrust | None:
    """Neither a knob nor a counter was shown to work: no cell of that arm can be proven fresh."""
    for arm in ARMS:
        for seen in gate.current_epochs(arm):
            if seen.cold_proof is None and not seen.counter_alive:
                why = "; ".join(seen.findings) or "the server told no cached tokens"
                return Distrust(
                    Reason.INDEPENDENCE_UNKNOWN, f"independence unknown on the {arm} ({seen.engine}): {why}"
                )
    return None


def knob_ignored_in_the_probe(gate: Gate) -> Distrust | None:
    """A live counter showed that nothing forces a fresh prefill: no budget is spent on what a cache happens to miss."""
    for arm in ARMS:
        for seen in gate.current_epochs(arm):
            if seen.knob_ignored is not None:
                return Distrust(
                    Reason.KNOB_NOT_HONOURED, f"independence unknown on the {arm} ({seen.engine}): {seen.knob_ignored}"
                )
    return None


def knob_not_honoured(gate: Gate) -> Distrust | None:
    """A cell sent with the cache off came back from the cache, or three cells of an arm did under a nonce.

    A nonce leaves what stands before it: on short prompts that alone is too large a share, and no budget would do.
    """
    under_nonce: Counter[str] = Counter()
    for item in gate.classified():
        cell = item.cell
        if cell.cold_proof is None or item.cell_class not in REUSED:
            continue
        if cell.cold_proof is not ColdProof.NONCE:
            return Distrust(
                Reason.KNOB_NOT_HONOURED,
                f"{cell.arm} answered {cell.case_id} from its cache ({item.witness}) although the request "
                f"forced a fresh prefill ({cell.cold_proof})",
            )
        under_nonce[cell.arm] += 1
        if under_nonce[cell.arm] == MAX_INVALID_RUN:
            return Distrust(
                Reason.KNOB_NOT_HONOURED,
                f"{cell.arm} answered {MAX_INVALID_RUN} cells from its cache under a nonce (last: {cell.case_id}, "
                f"{item.witness}): what stands before the nonce is too large a share of these prompts",
            )
    return None


def contaminated(gate: Gate) -> Distrust | None:
    """Another conversation's text came back: the cell is void and so is the server's isolation."""
    if FOREIGN not in gate.failing:
        return None
    for event in gate.scored:
        for outcome in gate.outcomes.get(event.cell_id, ()):
            if outcome.check == FOREIGN and outcome.bad:
                return Distrust(
                    Reason.CONTAMINATED,
                    f"{event.cell.arm} answered {event.cell.case_id} with text of another conversation "
                    f"({outcome.detail})",
                )
    return None


def case_unusable(gate: Gate) -> Distrust | None:
    """Both arms answer one case with the same server fault, or both refuse its body."""
    faults: dict[tuple[str, str], set[str]] = defaultdict(set)
    words: dict[tuple[str, str], str] = {}
    for event in gate.flawed:
        status = event.cell.status
        broken = status is Status.FAILED and (event.http_status in SERVER_FAULTS or event.reason == "NotJson")
        refused = status is Status.INVALID and event.http_status in REFUSED_BODY
        if broken or refused:
            what = str(event.http_status if event.http_status in SERVER_FAULTS | REFUSED_BODY else event.reason)
            faults[(event.cell.case_id, what)].add(event.cell.arm)
            words[(event.cell.case_id, what)] = f" ({event.detail})" if event.detail else ""
    for (case, what), arms in faults.items():
        if len(arms) == len(ARMS):
            told = f"both arms answer it with {what}{words[(case, what)]}"
            return Distrust(Reason.CASE_UNUSABLE, f"case {case} is unusable: {told}")
    return None


def body_refused(gate: Gate) -> Distrust | None:
    """400, 413 or 422 from one arm on a body that the other completes."""
    refused = {
        (event.cell.arm, event.cell.case_id): event
        for event in gate.flawed
        if event.cell.status is Status.INVALID and event.http_status in REFUSED_BODY
    }
    if not refused:
        return None
    completed = {(e.cell.arm, e.cell.case_id): e for e in gate.measured.values() if e.cell.status is Status.OK}
    for (arm, case), event in refused.items():
        other = BASELINE if arm == CANDIDATE else CANDIDATE
        answer = completed.get((other, case))
        if answer is None:
            continue  # the other arm is asked next, by a cell to compare
        cell = answer.cell
        said = (
            f"{arm} answers {case} with {event.http_status}: {event.detail}; the {other} completes it "
            f"({cell.prompt_tokens} prompt tokens, {cell.output_tokens} output tokens)"
        )
        return Distrust(Reason.CANDIDATE_REFUSES if arm == CANDIDATE else Reason.BASELINE_REFUSES, said)
    return None


def too_many_invalid(gate: Gate) -> Distrust | None:
    """Three invalid cells in a row for one case on one arm: an Error."""
    for arm, case, count in gate.invalid_runs():
        if count < MAX_INVALID_RUN:
            continue
        last = [e for e in gate.measured.values() if (e.cell.arm, e.cell.case_id) == (arm, case)][-1]
        if arm == CANDIDATE and last.reason in REFUSALS and gate.epochs[CANDIDATE]:
            continue  # on its way to CandidateUnavailable, an earlier rule
        reason = Reason.INVALID_CELLS
        if arm == BASELINE and last.reason in REFUSALS:
            reason = Reason.BASELINE_UNAVAILABLE
        told = f": {last.detail}" if last.detail else ""
        if voided_by_traffic(last.cell.status, last.reason):
            told += f"; {SUGGEST_SHARED}"
        return Distrust(reason, f"{count} invalid cells in a row for {case} on the {arm}: {last.reason}{told}")
    return None


def errors_lopsided(gate: Gate) -> Distrust | None:
    """Invalid cells fall on one arm (Fisher, one-sided, p < 0.01 in either direction), since the last resume."""
    if not gate.flawed:
        return None
    invalid: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for event in gate.measured.values():
        if event.http_status in BUSY or gate.session_of(event.cell_id) != gate.session:
            continue
        total[event.cell.arm] += 1
        invalid[event.cell.arm] += event.cell.status is Status.INVALID
    if gate.epochs[CANDIDATE]:
        total[CANDIDATE] -= gate.all_refusals  # on their way to CandidateUnavailable
        invalid[CANDIDATE] -= gate.all_refusals
    for arm, other in ((CANDIDATE, BASELINE), (BASELINE, CANDIDATE)):
        if not total[arm] or not total[other]:
            continue
        p_value = fisher_one_sided(invalid[arm], total[arm], invalid[other], total[other])
        if p_value < LOPSIDED_P:  # equivalent mutant: no two arms have a p value of exactly .01
            return Distrust(
                Reason.ERRORS_LOPSIDED,
                f"{invalid[arm]} of {total[arm]} cells of the {arm} were invalid, {invalid[other]} of {total[other]} "
                f"of the {other}",
            )
    return None


def check_error(gate: Gate) -> Distrust | None:
    """One check that decides erred on three cells in a row: what it would say is unknown, and that is never a pass."""
    # Equality with the baseline has no outcome on the baseline itself, and does not decide.
    deciding = {check for check in gate.erring if gate.decides(check)}
    if not deciding:
        return None
    runs: Counter[str] = Counter()
    for event in gate.scored:
        for outcome in gate.outcomes.get(event.cell_id, ()):
            if outcome.check not in deciding:
                continue
            runs[outcome.check] = runs[outcome.check] + 1 if outcome.bad is None else 0
            if runs[outcome.check] >= MAX_INVALID_RUN:
                return Distrust(
                    Reason.CHECK_ERROR,
                    f"check {outcome.check} erred on {MAX_INVALID_RUN} cells in a row: {outcome.detail}",
                )
    return None


def checks_fail_on_baseline(gate: Gate) -> Distrust | None:
    """The baseline pass is over and the checks call the baseline bad at or above the margin (95 %, one-sided)."""
    if gate.places.passed < len(gate.places.baseline_pass):
        return None
    first = [e for e in cells_of(gate, BASELINE) if e.purpose is Purpose.BASELINE_PASS and e.cell.bad is not None]
    bad = [e for e in first if e.cell.bad]
    if not bad or rate_lower_bound(len(bad), len(first)) < gate.plan.policy.margin:
        return None
    failing = Counter(
        outcome.check for e in bad for outcome in gate.outcomes.get(e.cell_id, ()) if outcome.bad
    ).most_common(3)
    named = ", ".join(f"{check} on {count}" for check, count in failing) or "no complete answer"
    return Distrust(
        Reason.CHECKS_FAIL_ON_BASELINE,
        f"your checks fail on the baseline: {len(bad)} of {len(first)} cells bad before the candidate was asked "
        f"({named}; first: {bad[0].cell.case_id})",
    )


def instrument_broken(gate: Gate) -> Distrust | None:
    """The A/A check: two passes over the baseline that differ."""
    if not gate.plan.policy.aa_check:
        return None
    findings = instrument_of(gate).findings
    return Distrust(Reason.INSTRUMENT_BROKEN, findings[0]) if findings else None


def margin_too_close(gate: Gate) -> Distrust | None:
    """The A/A pass is too noisy for a throughput margin this close to equal: the plan is refused."""
    policy = gate.plan.policy.throughput
    cv = measured_cv(gate) if policy.required else None
    problem = None if cv is None else margin_problem(policy.margin, cv)
    return None if problem is None else Distrust(Reason.INSTRUMENT_BROKEN, problem)


DISTRUSTS: tuple[Callable[[Gate], Distrust | None], ...] = (
    measurement_lost,
    undeclared_difference,
    changed_during_run,
    another_baseline,
    independence_unknown,
    unproven_by_responses,
    knob_ignored_in_the_probe,
    knob_not_honoured,
    contaminated,
    case_unusable,
    body_refused,
    refused_without_baseline,
    server_in_use,
    too_many_invalid,
    errors_lopsided,
    check_error,
    checks_fail_on_baseline,
    instrument_broken,
    margin_too_close,
)


def find_distrust(gate: Gate) -> Distrust | None:
    """The first reason not to trust the measurement, or None."""
    for check in DISTRUSTS:
        found = check(gate)
        if found is not None:
            return found
    return None
