"""Sample verdicts for the tests of the report, built from cells so that the counts agree with them.

The counts are counted here from the classes the samples give their cells; the core is not asked, so a
report is held against numbers that stand in this file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from scipy.stats import beta  # type: ignore[import-untyped]

from prefillgate.core.cells import BASELINE, CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.journal import CheckOutcome, Difference, Purpose, Texts
from prefillgate.core.verdict import (
    ArmCounts,
    CellClass,
    CellView,
    Comparison,
    Decision,
    Interval,
    Outcome,
    PairFactor,
    PathPoint,
    Promotion,
    ReplicateView,
    Rollback,
    ThroughputPair,
    ThroughputState,
    ThroughputView,
    Verdict,
)

CASES = (
    "pr-412", "pr-87", "pr-3", "pr-19", "pr-55", "pr-101", "pr-140", "pr-201", "pr-233", "pr-260", "pr-310", "pr-355",
)  # fmt: skip
LENGTHS = {"pr-412": 16_896, "pr-87": 11_136}
STANDARD = (32, 56, 75)
DIGEST = hashlib.sha256(b"review-bot").hexdigest()
DIFFERENCES = (
    Difference("layer placement", "--tensor-split", "1,1", "3,2"),
    Difference("draft head", "--model-draft", "draft-q4_0.gguf", "draft-q8_0.gguf"),
    Difference("build", "build", "b6710", "b6712", declared=False),
)
BARE = "VERDICT: LGTM"
REVIEWED = (
    "The new retry loop swallows the timeout of the inner call: after the third attempt it returns None and the caller "
    "reads that as an empty diff.\nThe test covers the first attempt only.\n\nVERDICT: CHANGES REQUESTED"
)
_BAD = (CheckOutcome("bare-verdict", "1", True, "a verdict line and 0 words of rationale"),)
_CLEAN = (CheckOutcome("bare-verdict", "1", False),)
_SECONDS = 60.0
_START = 1_790_000_000.0


def clopper_pearson(bad: int, total: int) -> Interval | None:
    """Two-sided 95 %, by scipy."""
    if not total:
        return None
    low = float(beta.ppf(0.025, bad, total - bad + 1)) if bad else 0.0
    high = float(beta.ppf(0.975, bad + 1, total - bad)) if bad < total else 1.0
    return low, high


def view(cell_id: int, arm: str, case: str, kind: CellClass | None = CellClass.FRESH, **more: Any) -> CellView:
    """A cell as shown. `more`: unit, bad, replicate, purpose, pair, and any field of `Cell`."""
    bad = more.pop("bad", False)
    unit = more.pop("unit", None)
    purpose = more.pop("purpose", Purpose.REPLICATE if more.get("replicate") else Purpose.SCREEN)
    pair = more.pop("pair", None)
    reason, detail = more.pop("reason", None), more.pop("detail", None)
    length = LENGTHS.get(case, 900 + 137 * (sum(map(ord, case)) % 40))
    reused = {CellClass.COPY: length - 4, CellClass.ORPHAN: length - 4, CellClass.PARTIAL: length // 4}
    cached = reused.get(kind, 0) if kind is not None else 0
    told: dict[str, Any] = {
        "prompt_tokens": length,
        "cached_tokens": None if kind is CellClass.UNKNOWN else cached,
        "processed_tokens": None if kind is CellClass.UNKNOWN else length - cached,
        "prefill_ms": 3.1 * (length - cached) + 40 + 7 * (cell_id % 11),
        "output_tokens": 4 if bad else 160,
        "decode_ms": 90.0 if bad else 4000.0 + 13 * (cell_id % 7),
        "finish_reason": "stop",
        "server_epoch": f"{arm}-1",
        "started_at": _START + _SECONDS * cell_id,
        "cold_proof": ColdProof.CACHE_OFF if kind is CellClass.FRESH else None,
    } | more
    cell = Cell(arm=arm, case_id=case, bad=bad, **told)
    known = "cache_n unknown" if cell.cached_tokens is None else f"cache_n {cell.cached_tokens}"
    outcomes = () if kind is None else _BAD if bad else (CheckOutcome("bare-verdict", "1", None, "timed out"),)
    return CellView(
        cell_id=cell_id,
        cell=cell,
        purpose=purpose,
        pair=pair,
        cell_class=kind,
        unit=unit,
        bad=bad,
        witness=f"{known}, processed {cell.processed_tokens} of {cell.prompt_tokens}",
        outcomes=_CLEAN if bad is False and kind is not None else outcomes,
        reason=reason,
        detail=detail,
    )


def counts(cells: Iterable[CellView], arm: str) -> ArmCounts:
    """An arm counted from the classes of its cells; partial and unknown bad ones and orphans each add one to k."""
    mine = [each for each in cells if each.cell.arm == arm]
    scored = [each for each in mine if each.cell_class is not None]
    of = {kind: [each for each in scored if each.cell_class is kind] for kind in CellClass}
    bad_units = {each.unit for each in scored if each.bad and each.cell_class in (CellClass.FRESH, CellClass.COPY)}
    others = [k for k in CellClass if k not in (CellClass.FRESH, CellClass.COPY)]
    loose = sum(1 for kind in others for each in of[kind] if each.bad)
    fresh, bad = len(of[CellClass.FRESH]), sum(1 for each in scored if each.bad)
    return ArmCounts(
        requests=len(scored),
        prefills=fresh,
        decision_prefills=fresh,
        copies=len(of[CellClass.COPY]),
        partial=len(of[CellClass.PARTIAL]),
        unknown=len(of[CellClass.UNKNOWN]) + len(of[CellClass.CONTRADICTED]),
        orphans=len(of[CellClass.ORPHAN]),
        bad_requests=bad,
        bad_prefills=len(bad_units),
        bad_for_promotion=len(bad_units) + loose,
        request_interval=clopper_pearson(bad, len(scored)),
        prefill_interval=clopper_pearson(len(bad_units), fresh),
        invalid=len(mine) - len(scored),
        effective_prefills=float(fresh) if fresh else None,
    )


def path_of(cells: Iterable[CellView]) -> tuple[PathPoint, ...]:
    """One point for every fresh candidate unit."""
    points, bad = [], 0
    fresh = [each for each in cells if each.cell.arm == CANDIDATE and each.cell_class is CellClass.FRESH]
    for number, each in enumerate(fresh, 1):
        bad += bool(each.bad)
        points.append(PathPoint(number, bad))
    return tuple(points)


NOT_COMPARED = ThroughputView(
    state=ThroughputState.NOT_COMPARED,
    margin=-0.05,
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
    sentence="Decode speed was not compared: no pair was run.",
)


def throughput(state: ThroughputState = ThroughputState.NOT_WORSE) -> ThroughputView:
    """Twelve pairs at about +7.5 %, one of them not used, one slow."""
    ratios = (1.071, 1.082, 1.064, 1.079, 1.09, 1.075, 1.068, 1.081, 0.78, 1.073, 1.077, 1.05)
    pairs = tuple(
        ThroughputPair(
            pair=number,
            case_id=case,
            baseline_tokens_per_second=39.5 + 0.1 * number,
            candidate_tokens_per_second=(39.5 + 0.1 * number) * ratio,
            used=number != 12,
            why_not="28 output tokens, 32 are needed" if number == 12 else "",
            identical_output=True,
            slow=ratio < 0.8,
        )
        for number, (case, ratio) in enumerate(zip(CASES, ratios, strict=True), 1)
    )
    return ThroughputView(
        state=state,
        margin=-0.05,
        pairs=pairs,
        pairs_used=11,
        prompts_in_pairs=11,
        ratio=1.0748123456789,
        ratio_interval=(1.0681234567891, 1.0813456789123),
        e_not_worse=41.25,
        e_worse=0.03125,
        baseline_ms_per_token=24.9,
        candidate_ms_per_token=23.2,
        baseline_tokens_per_second=40.15,
        candidate_tokens_per_second=43.1,
        slow_share_candidate=1 / 12,
        slow_share_baseline=0.0,
        identical_share=1.0,
        aa_identical_share=1.0,
        pairs_needed=0,
        sentence="Decode is not slower by 5 % or more, over 11 prompts, the longest among them.",
    )


def build(decision: Decision, cells: tuple[CellView, ...] = (), **more: Any) -> Verdict:
    """A verdict over `cells`, standard policy, everything else from `more`."""
    own: dict[str, Any] = {
        "title": "flash-next",
        "decision": decision,
        "policy_name": "standard",
        "margin": 0.1,
        "acceptance": STANDARD,
        "baseline": counts(cells, BASELINE),
        "candidate": counts(cells, CANDIDATE),
        "comparison": Comparison(None, None, None),
        "cells": cells,
        "path": path_of(cells),
        "alarm": False,
        "alarm_level": 0.0,
        "alarm_at": 2.302585092994046,
        "replicates": (),
        "throughput": NOT_COMPARED,
        "differences": DIFFERENCES[:2],
        "prompts": len({each.cell.case_id for each in cells}),
        "distinct_outputs": None,
        "prefills_used": sum(1 for each in cells if each.cell_class is CellClass.FRESH),
        "budget": 200,
        "replay_set_name": "review-bot",
        "replay_set_sha256": DIGEST,
        "started_at": _START,
        "ended_at": _START + _SECONDS * (len(cells) + 1),
    }
    return Verdict(**(own | more))


def promote() -> Verdict:
    """32 clean fresh prefills of 12 prompts, 12 of them paired with the baseline."""
    cells: list[CellView] = []
    for number in range(32):
        case = CASES[number % 12]
        if number < 12:
            cells.append(view(len(cells), BASELINE, case, unit=number + 1, pair=number, purpose=Purpose.PAIR))
        purpose = Purpose.PAIR if number < 12 else Purpose.SCREEN
        cells.append(view(len(cells), CANDIDATE, case, unit=number + 1, purpose=purpose))
    decision = Decision(
        Outcome.PROMOTE,
        Promotion.ALLOWED,
        Rollback.REFUSED,
        "AcceptanceReached",
        (
            "32 fresh prefills of 12 prompts, 0 bad: a bad rate of 10 % or more is excluded at 95 %.",
            "Not excluded: a candidate bad in 1 of 30 would have passed 62 % of the time.",
        ),
    )
    return build(
        decision,
        tuple(cells),
        comparison=Comparison(1.0, 1.0, 1.0),
        throughput=throughput(),
        distinct_outputs=12,
        notes=("16 prefills of 12 prompts, 12 distinct outputs.",),
    )


def _story_cells() -> list[CellView]:
    """Story of STATISTICS.md section 5.1: 12 candidate cells on two prompts, 11 bad; baseline 0 of 20."""
    cells: list[CellView] = []
    for unit, case in enumerate(CASES[:2], 1):
        for number in range(10):
            kind = CellClass.COPY if number else CellClass.FRESH
            cells.append(view(len(cells), BASELINE, case, kind, unit=unit))
    for unit, case in enumerate(CASES[:2], 1):
        for number in range(6):
            kind = CellClass.COPY if number else CellClass.FRESH
            cells.append(view(len(cells), CANDIDATE, case, kind, unit=unit, bad=not (unit == 2 and number == 4)))
    return cells


def alarm_refused() -> Verdict:
    """The story's first half: 11 of 12 cells bad, but only 2 prefills."""
    decision = Decision(
        Outcome.CONTINUE,
        Promotion.BLOCKED,
        Rollback.REFUSED,
        "ReplicateDue",
        (
            "11 of 12 cells are bad, but they hang off 2 prefills: 2 of 2 against 0 of 2 on the baseline.",
            "A rollback needs a replicate with fresh prefills; it was started.",
        ),
        what_would_change=("A replicate that reaches E 40 allows rollback.", "8 clean prefills end the replicate."),
    )
    return build(
        decision,
        tuple(_story_cells()),
        comparison=Comparison(9.300131115e-08, 1 / 6, 0.0625),
        alarm=True,
        alarm_level=3.5835189384561,
        differences=DIFFERENCES,
        notes=("The build differs between the arms and was not declared: b6710, b6712.",),
    )


def story() -> Verdict:
    """The story's end: the replicate is clean, 0 of 8; n = 10, k = 2."""
    cells = _story_cells()
    for number in range(8):
        case = CASES[number % 2] if number < 4 else CASES[number]
        cells.append(view(len(cells), CANDIDATE, case, unit=3 + number, replicate=1, server_epoch="candidate-2"))
    decision = Decision(
        Outcome.HOLD,
        Promotion.BLOCKED,
        Rollback.REFUSED,
        "RegressionNotConfirmed",
        (
            "The replicate did not confirm the alarm: 0 of 8 fresh prefills bad, candidate rate under 31.2 %.",
            "n = 10, k = 2.",
        ),
        what_would_change=("65 more clean prefills would promote.",),
    )
    replicate = ReplicateView(
        number=1,
        threshold=40.0,
        ending="clean",
        candidate_units=8,
        candidate_bad=0,
        pairs=(),
        e_value=1.0,
        separation="restart",
        separation_detail="candidate-1 to candidate-2",
        candidate_rate_upper=0.3123,
        futility=0.05,
    )
    return build(
        decision,
        tuple(cells),
        comparison=Comparison(9.300131115e-08, 0.7, 0.65),
        alarm_level=0.0,
        replicates=(replicate,),
        differences=DIFFERENCES,
    )


def confirmed() -> Verdict:
    """A replicate that reached 40: five pairs, all bad on the candidate only, but one."""
    cells = [view(number, BASELINE, CASES[number], unit=number + 1) for number in range(8)]
    cells += [view(8 + n, CANDIDATE, CASES[n], unit=n + 1, bad=n in (2, 3)) for n in range(4)]
    pairs: list[PairFactor] = []
    e_value = 1.0
    for number in range(6):
        bad = number != 3
        case = CASES[number]
        factor = 2.363 if bad else 0.942
        e_value *= factor
        pairs.append(PairFactor(number + 1, case, bad, False, factor, e_value))
        for arm, unit, is_bad in ((CANDIDATE, 5 + number, bad), (BASELINE, 9 + number, False)):
            cells.append(
                view(len(cells), arm, case, unit=unit, bad=is_bad, replicate=1, pair=number, server_epoch=f"{arm}-2")
            )
    replicate = ReplicateView(
        number=1,
        threshold=40.0,
        ending="confirmed",
        candidate_units=6,
        candidate_bad=5,
        pairs=tuple(pairs),
        e_value=e_value,
        separation="gap",
        separation_detail="612 s after the last bad cell",
        candidate_rate_upper=0.991,
        carrying_prompts=("pr-412", "pr-87", "pr-3", "pr-55", "pr-101"),
        futility=0.05,
    )
    decision = Decision(
        Outcome.ROLLBACK,
        Promotion.BLOCKED,
        Rollback.ALLOWED,
        "RegressionConfirmed",
        ("Fresh prefills confirm the regression: 5 of 6 bad on the candidate, 0 of 6 on the baseline.",),
        cause="rope base 10000 instead of 1000000 (ada)",
    )
    return build(
        decision,
        tuple(cells),
        comparison=Comparison(0.00131, 0.00131, 0.00087),
        alarm=True,
        alarm_level=2.97,
        replicates=(replicate,),
        throughput=throughput(ThroughputState.OPEN),
    )


def could_not_measure() -> Verdict:
    """The counter of the candidate is dead and no knob was shown to work: nothing is evidence."""
    cells = [view(number, BASELINE, CASES[number], unit=number + 1) for number in range(3)]
    cells += [
        view(3, CANDIDATE, CASES[0], CellClass.UNKNOWN),
        view(4, CANDIDATE, CASES[1], CellClass.UNKNOWN, bad=None),
        view(5, CANDIDATE, CASES[2], None, bad=None, reason="OtherTraffic", detail="412 tokens by somebody else"),
    ]
    decision = Decision(
        Outcome.HOLD,
        Promotion.BLOCKED,
        Rollback.REFUSED,
        "MeasurementLost",
        ("The candidate does not tell what it takes from its cache, so no prefill of it can be shown to be fresh.",),
        what_would_change=("Start the server with --metrics.",),
        measured=False,
    )
    return build(decision, tuple(cells), notes=("cached tokens are not reported",))


def empty() -> Verdict:
    """A run that ended before its first cell."""
    decision = Decision(Outcome.HOLD, Promotion.BLOCKED, Rollback.REFUSED, "Deadline", ("No cell was run.",))
    return build(decision, differences=(), prompts=12, started_at=None, ended_at=None)


def every_class() -> Verdict:
    """One of each class on the candidate, clean and bad, an invalid and a failed one."""
    cells: list[CellView] = [view(0, BASELINE, CASES[0], unit=1)]
    for kind in CellClass:
        for bad in (False, True):
            unit = len(cells) if kind is CellClass.FRESH else 1 if kind is CellClass.COPY else None
            cells.append(view(len(cells), CANDIDATE, CASES[len(cells) % 12], kind, unit=unit, bad=bad))
    cells.append(view(len(cells), CANDIDATE, CASES[1], unit=3, bad=None))
    cells.append(view(len(cells), CANDIDATE, CASES[2], unit=4, bad=True, status=Status.FAILED, reason="ConnectionLost"))
    cells.append(view(len(cells), BASELINE, CASES[3], None, bad=None, status=Status.INVALID, reason="OtherTraffic"))
    decision = Decision(
        Outcome.HOLD,
        Promotion.BLOCKED,
        Rollback.REFUSED,
        "RegressionNotConfirmed",
        ("More bad prefills than the table allows.",),
    )
    return build(decision, tuple(cells), alarm=True, alarm_level=5.0)


def large(size: int = 300) -> Verdict:
    """A long run: `size` cells, every seventh a copy, a bad one in twenty, one replicate of 30 pairs."""
    cells: list[CellView] = []
    units = {BASELINE: 0, CANDIDATE: 0}
    for number in range(size):
        arm = CANDIDATE if number % 3 else BASELINE
        copy = number % 7 == 6 and units[arm] > 0
        units[arm] += not copy
        kind = CellClass.COPY if copy else CellClass.FRESH
        bad = number % 20 == 19 and arm == CANDIDATE
        replicate = 1 if number > size * 2 // 3 else 0
        cells.append(view(number, arm, CASES[number % 12], kind, unit=units[arm], bad=bad, replicate=replicate))
    e_value, pairs = 1.0, []
    for number in range(30):
        bad = number % 6 == 0
        e_value *= 2.363 if bad else 0.942
        pairs.append(PairFactor(number + 1, CASES[number % 12], bad, False, 2.363 if bad else 0.942, e_value))
    replicate_view = ReplicateView(1, 40.0, "capped", 30, 5, tuple(pairs), e_value, "gap", futility=0.05)
    decision = Decision(
        Outcome.HOLD,
        Promotion.BLOCKED,
        Rollback.REFUSED,
        "BudgetSpent",
        ("The budget is spent.", *(f"Sentence {number} of many that a long run may bring." for number in range(4))),
        what_would_change=tuple(f"{number} more clean prefills would promote flag {number}." for number in range(12)),
    )
    return build(
        decision,
        tuple(cells),
        alarm=True,
        replicates=(replicate_view,),
        throughput=throughput(ThroughputState.OPEN),
        notes=tuple(
            f"Finding {number}: something about the servers that a person should know." for number in range(15)
        ),
        differences=DIFFERENCES * 4,
    )


Sample = Callable[[], Verdict]
SAMPLES: Mapping[str, Sample] = {
    "promote": promote,
    "alarm, rollback refused": alarm_refused,
    "the story": story,
    "confirmed": confirmed,
    "could not measure": could_not_measure,
    "empty": empty,
    "every class": every_class,
    "large": large,
}


def texts_of(verdict: Verdict) -> dict[int, Texts]:
    """A bare verdict for every bad cell, a review for every other."""
    return {each.cell_id: Texts(content=BARE if each.bad else REVIEWED) for each in verdict.cells}


HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "</style></title></textarea><img src=x onerror=document.title='owned'>",
    "<svg onload=document.title='owned'><text>x</text></svg>",
    "\"'><b id=owned>x</b>",
    "\" onmouseover=\"document.title='owned'",
    "javascript:alert(1) {{ 7 * 7 }} {% raw %} ${7*7}",
    "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x9b31m",
    "a\u202egnp.exe\u2066b\u200fc\u061c",
    "nul \x00 bell \x07 delete \x7f back \x08",
    "line \u2028 paragraph \u2029 next \x85 form \x0c tab \t lf \n cr \r crlf \r\n end",
    "lone \ud800 surrogates \udfff here",
    "\ufffe\uffff\ufdd0 noncharacters \ufeff bom \u200b zero",
    "]]> <!-- --> <![CDATA[ &lt; &#60; <?xml ?>",
    "``` ```` | [x](javascript:alert(1)) ![](http://127.0.0.1:9/x) @everyone <http://127.0.0.1:9> **b** # h",
    "w" * 3000,
    "",
)


def with_text(verdict: Verdict, text: str) -> Verdict:
    """`verdict` with `text` in every field a stranger can fill; arms and enums stay."""
    told: Verdict = _with_text(verdict, text)
    return told


def _with_text(value: Any, text: str) -> Any:
    if isinstance(value, str) and not isinstance(value, Enum):
        return text
    if isinstance(value, tuple):
        return tuple(_with_text(item, text) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: _with_text(getattr(value, f.name), text) for f in fields(value) if f.name != "arm"}
        return replace(value, **changed)
    return value


def texts_with(verdict: Verdict, text: str) -> dict[int, Texts]:
    return {each.cell_id: Texts(text, text, text, text, text) for each in verdict.cells}
