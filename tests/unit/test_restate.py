"""How many prefills can stand behind requests, and whether a difference between two arms survives their counting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillgate.core.cells import BASELINE, CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.exact import fisher_one_sided
from prefillgate.core.freshness import classify
from prefillgate.core.restate import (
    NO_DOUBTS,
    Bounds,
    Claim,
    Doubts,
    Prompt,
    PromptLedger,
    Seen,
    Standing,
    Table,
    claim_of,
    fold_prompts,
    seems_there,
    seen_of,
)
from prefillgate.core.restated import Request, Restatement, restate
from prefillgate.core.verdict import CellClass
from prefillgate.report.restated import claim_sentence, restated_lines
from tests.support.cell_logs import cell, copy, fresh, story

UNKNOWN, FRESH, COPY = CellClass.UNKNOWN, CellClass.FRESH, CellClass.COPY


def seen(prompt: str = "p", cell_class: CellClass = UNKNOWN, outcome: bool | None = False, **more: object) -> Seen:
    told = {"arm": CANDIDATE, "epoch": "e", "case": prompt} | more
    return Seen(prompt=prompt, cell_class=cell_class, outcome=outcome, **told)  # type: ignore[arg-type]


def bounds(*each: Seen) -> Bounds:
    return fold_prompts(each).bounds(CANDIDATE)


def restated(cells: list[Cell], labelled: bool = False) -> Restatement:
    return restate([Request(each) for each in cells], labelled)


# Bounds


def test_without_counters_there_are_at_most_as_many_prefills_as_requests_and_at_least_one_a_prompt() -> None:
    assert bounds(seen("a"), seen("a"), seen("b")) == Bounds(2, 3, False)
    assert bounds(seen("a"), seen("a", epoch="f")) == Bounds(2, 2, False)
    assert bounds() == Bounds(0, 0, True)


def test_with_counters_the_bounds_meet() -> None:
    assert bounds(seen(cell_class=FRESH), seen(cell_class=COPY), seen(cell_class=FRESH)) == Bounds(2, 2, True)
    assert bounds(seen(cell_class=CellClass.ORPHAN), seen(cell_class=CellClass.ORPHAN)) == Bounds(1, 1, True)


def test_what_its_own_time_contradicts_is_no_prefill() -> None:
    assert bounds(seen(cell_class=FRESH), seen(cell_class=CellClass.CONTRADICTED)) == Bounds(1, 1, True)


def test_a_partial_request_may_be_a_prefill() -> None:
    assert bounds(seen(cell_class=FRESH), seen(cell_class=CellClass.PARTIAL)) == Bounds(1, 2, False)


@pytest.mark.parametrize(("ms", "most"), [(49.9, 1), (50.0, 2), (None, 2)])
def test_a_repeat_in_under_half_the_time_of_the_first_is_no_prefill(ms: float | None, most: int) -> None:
    assert bounds(seen(length=50, ms=100.0), seen(length=50, ms=ms)) == Bounds(1, most, False)


def test_a_first_request_without_a_time_bounds_nothing() -> None:
    assert bounds(seen(length=100), seen(length=100, ms=1.0)) == Bounds(1, 2, False)
    assert bounds(seen(length=None, ms=100.0), seen(length=100, ms=1.0)) == Bounds(1, 2, False)
    assert bounds(seen(length=100, ms=0.0), seen(length=100, ms=1.0)) == Bounds(1, 2, False)


def test_quick_repeats_that_are_proven_count_as_they_are_proven() -> None:
    quick = seen(cell_class=FRESH, length=100, ms=20.0)
    assert bounds(seen(length=100, ms=100.0), quick) == Bounds(1, 2, False)


@pytest.mark.parametrize(("ms", "doubted"), [(10.0, 0), (9.99, 1), (20.0, 0), (None, 0)])
def test_a_fresh_one_in_under_a_tenth_of_the_time_of_an_earlier_one_is_doubted(ms: float | None, doubted: int) -> None:
    found = bounds(seen(cell_class=FRESH, length=100, ms=100.0), seen(cell_class=FRESH, length=100, ms=ms))
    assert found == Bounds(2 - doubted, 2 - doubted, not doubted, doubted)
    more = bounds(*(seen(cell_class=FRESH, length=100, ms=each) for each in (100.0, ms, ms)), seen("other"))
    assert found.doubted * 2 == more.doubted
    assert (more.fewest, more.most) == (4 - 2 * doubted, 4 - 2 * doubted)


def test_the_time_of_a_doubted_one_is_held_against_the_slowest_before_it() -> None:
    def doubted(*each: tuple[float | None, CellClass]) -> int:
        return bounds(*(seen(cell_class=of, length=100, ms=ms) for ms, of in each)).doubted

    assert doubted((None, FRESH), (100.0, FRESH), (9.0, FRESH)) == 1
    assert doubted((50.0, FRESH), (100.0, FRESH), (9.0, FRESH)) == 1
    assert doubted((100.0, FRESH), (50.0, FRESH), (9.0, FRESH)) == 1
    assert doubted((9.0, FRESH), (100.0, FRESH)) == 0  # it came before
    assert doubted((100.0, UNKNOWN), (9.0, FRESH)) == 1
    assert doubted((20.0, FRESH), (100.0, UNKNOWN), (9.0, FRESH)) == 1
    assert doubted((20.0, FRESH), (100.0, COPY), (9.0, FRESH)) == 0  # a copy is no prefill, whatever kept it waiting
    assert doubted((100.0, FRESH), (9.0, COPY), (9.0, UNKNOWN)) == 0
    assert bounds(seen(ms=100.0, length=100), seen("q", FRESH, ms=1.0, length=100)).doubted == 0


def test_doubted_requests_are_counted_over_the_common_cases_of_both_arms() -> None:
    told = [
        seen(cell_class=FRESH, case=case, prompt=case, arm=arm, length=10, ms=ms)
        for arm in (CANDIDATE, BASELINE, "a label")
        for case in ("a", "b")
        for ms in (100.0, 1.0, 1.0)
    ]
    ledger = fold_prompts(told)
    assert [ledger.doubts(cases).doubted for cases in ({"a", "b"}, {"a"}, ())] == [8, 4, 0]
    assert ledger.bounds(CANDIDATE) == Bounds(2, 2, False, 4)
    assert fold_prompts([seen("p")]).doubts({"p"}) == NO_DOUBTS


def test_arms_are_bounded_apart() -> None:
    ledger = fold_prompts([seen("a"), seen("a", arm=BASELINE), seen("b", arm=BASELINE)])
    assert (ledger.bounds(CANDIDATE).most, ledger.bounds(BASELINE).most) == (1, 2)


def test_a_repeat_is_the_same_prompt_of_the_same_arm_in_the_same_life_of_a_server() -> None:
    ledger = PromptLedger()
    asked = [seen("a"), seen("a"), seen("b"), seen("a", epoch="f"), seen("a", arm=BASELINE), seen("b")]
    assert [ledger.add(each) for each in asked] == [False, True, False, False, False, True]


def test_by_prompt_every_repeat_rode_the_cache() -> None:
    ledger = fold_prompts(
        [
            seen("a", outcome=True),
            seen("a", outcome=False),
            seen("b", outcome=None),
            seen("c", outcome=False),
            seen("c", outcome=None),
            seen("d", outcome=True),
            seen("a", arm=BASELINE, outcome=False),
            seen("a", arm=BASELINE, outcome=True, screen=False),
            seen("a", arm="third", outcome=True),
        ]
    )
    assert ledger.by_prompt({"a", "b", "c"}) == Table(1, 2, 0, 1)
    assert ledger.by_prompt(()) == Table(0, 0, 0, 0)


def test_prompts_told_apart_by_names_alone_may_be_one() -> None:
    def named(*each: Seen, cases: tuple[str, ...] = ("a", "p")) -> bool:
        return fold_prompts(each).doubts(cases).named

    assert named(seen("a", named=True))
    assert not named(seen("a"))
    assert named(seen("a"), seen("a", named=True))  # one of its requests tells its digest: it may be another prompt's
    assert named(seen("a", named=True), seen("a"))
    assert not named(seen("a", named=True), cases=())
    assert not named(seen("a", named=True, outcome=None))
    assert not named(seen("a", named=True, arm="a label"))
    assert not named(seen("a", FRESH, named=True))
    rode = [seen("a", FRESH, named=True, length=10, ms=ms) for ms in (100.0, 1.0)]
    assert not named(*rode)  # the first of them is one
    assert named(seen("a", UNKNOWN, named=True, length=10, ms=100.0), rode[1])
    assert named(seen("p"), seen("a", COPY, named=True, arm=BASELINE))


def test_a_request_that_stands_twice_is_counted_once() -> None:
    def doubled(*each: tuple[object, CellClass]) -> Bounds:
        return bounds(*(seen(cell_class=of, same=same, length=1, ms=1.0) for same, of in each))  # type: ignore[arg-type]

    one, other, later = (1.0, 2.0, "o"), (1.0, 3.0, "o"), (5.0, 6.0, "o")
    assert doubled((one, FRESH), (one, FRESH)) == Bounds(1, 1, False, 0, 1)
    assert doubled((one, FRESH), (other, FRESH), (one, FRESH), (other, FRESH), (one, FRESH)) == Bounds(
        2, 2, False, 0, 3
    )
    assert doubled((one, FRESH), (later, FRESH), (later, FRESH)) == Bounds(2, 2, False, 0, 1)
    assert doubled((one, FRESH), (later, FRESH)) == Bounds(2, 2, True)
    assert doubled((None, FRESH), (None, FRESH)) == Bounds(2, 2, True)
    assert doubled((one, UNKNOWN), (one, UNKNOWN), (other, UNKNOWN)) == Bounds(1, 2, False, 0, 1)
    assert doubled((one, FRESH), (one, COPY)) == Bounds(1, 1, True)
    assert doubled((one, FRESH), (other, COPY), (other, FRESH)) == Bounds(2, 2, True)
    assert bounds(seen("a", FRESH, same=one), seen("b", FRESH, same=one)) == Bounds(2, 2, True)
    prompt = Prompt("p")
    assert [prompt.stands_twice(each) for each in (None, one, one, other, later, one)] == [False, False, True] + 3 * [
        False
    ]
    quick = [seen(cell_class=FRESH, same=one, length=1, ms=ms) for ms in (100.0, 1.0)]
    assert bounds(*quick) == Bounds(1, 1, False, 0, 1)  # not doubted as well
    assert fold_prompts(quick).doubts({"p"}) == Doubts(0, 1)
    assert fold_prompts([seen(same=one), seen(same=one)]).doubts({"p"}) == NO_DOUBTS  # no counter claims them


def test_cases_that_no_digest_tells_apart_under_one_request_id_are_one() -> None:
    def ledger(*each: tuple[str, str | None, bool], of: CellClass = FRESH, **more: object) -> PromptLedger:
        return fold_prompts([seen(case, of, named=named, request=key, **more) for case, key, named in each])

    def bound(*each: tuple[str, str | None, bool], of: CellClass = FRESH) -> Bounds:
        return ledger(*each, of=of).bounds(CANDIDATE)

    assert bound(*((f"c{n}", "r", True) for n in range(40))) == Bounds(1, 1, False, 0, 0, 39)
    assert bound(*((f"c{n}", "r", True) for n in range(40)), of=UNKNOWN) == Bounds(1, 1, False, 0, 0, 39)
    assert bound(("a", "r", True), ("b", "r", True), ("b", "s", True), ("c", "t", True)) == Bounds(3, 3, False, 0, 0, 1)
    assert bound(("a", "r", False), ("b", "r", False)) == Bounds(2, 2, True)
    assert bound(("a", None, True), ("b", None, True)) == Bounds(2, 2, True)
    assert bound(("a", "r", True), ("b", "s", True)) == Bounds(2, 2, True)
    told = ledger(("a", "r", True), ("b", "r", True), ("c", "r", True), outcome=True)
    assert told.doubts({"a", "b"}) == Doubts(shared=1)
    assert (told.by_prompt({"a", "b"}), told.by_prompt({"a"})) == (Table(1, 1, 0, 0), Table(1, 1, 0, 0))
    mixed = [seen(case, named=True, request="r", outcome=bad) for case, bad in (("a", None), ("b", False), ("c", True))]
    assert [fold_prompts(mixed[:count]).by_prompt("abc").candidate for count in (1, 2, 3)] == [0, 1, 1]
    assert [fold_prompts(mixed[:count]).by_prompt("abc").candidate_bad for count in (1, 2, 3)] == [0, 0, 1]
    apart = [seen(case, FRESH, named=True, request="r", arm=of) for case, of in (("a", CANDIDATE), ("b", BASELINE))]
    assert fold_prompts([*apart, seen("d", FRESH, named=True, request="r", epoch="f")]).doubts("abd") == NO_DOUBTS


def test_what_speaks_against_the_counters_is_named() -> None:
    def arm(of: str, **more: object) -> list[Cell]:
        told = {"started_at": 1.5, "ended_at": 2.5, "output_sha256": "o"} | more
        return [fresh("p", arm=of, bad=of == CANDIDATE, request_id=f"r{n}", **told) for n in range(4)]

    twice = restated(arm(CANDIDATE) + arm(BASELINE))
    assert (twice.claim.standing, twice.claim.doubts) == (Standing.UNPROVEN, Doubts(twice=6))
    assert "looks: standing twice in the log: 6 requests that count as prefills. By request" in claim_sentence(
        twice.claim
    )
    assert restated_lines(twice)[2] == (
        "candidate: 4 of 4 bad by request, 4 of 4 bad by prefill as the counters tell; at most 1 prefill, 1 if every "
        "repeat rode the cache; standing twice in the log (same prompt, times, tokens and output): 3."
    )
    cases = [
        fresh(f"c{n}", arm=of, bad=of == CANDIDATE, request_id="r") for of in (CANDIDATE, BASELINE) for n in range(9)
    ]
    shared = restated(cases)
    assert (shared.claim.standing, shared.claim.doubts) == (Standing.UNPROVEN, Doubts(shared=16))
    assert "looks: under the request id of another case: 16 cases. By request" in claim_sentence(shared.claim)
    assert restated_lines(shared)[2] == (
        "candidate: 9 of 9 bad by request, 9 of 9 bad by prefill as the counters tell; at most 1 prefill, 1 if every "
        "repeat rode the cache; under the request id of another case: 8."
    )
    both = replace(twice.claim, doubts=Doubts(1, 1, 1))
    assert (
        "the times of 1 request that counts as a prefill speak against the counters; "
        "standing twice in the log: 1 request that counts as a prefill; under the request id of another case: 1 case."
    ) in claim_sentence(both)


def test_a_cell_is_seen_with_what_it_measured() -> None:
    (item,) = classify([fresh("a", bad=True, prefill_ms=7.0, replicate=2, length=50)])
    assert seen_of(item, 9.0) == Seen(CANDIDATE, "e", "a", "a", FRESH, True, False, 50, 7.0, True)
    (item,) = classify([fresh("a", started_at=1.0, ended_at=2.0, output_sha256="o", cached=1, request_id="r")])
    assert (seen_of(item).same, seen_of(item).request) == ((1.0, 2.0, "o", 1000, 1, 999), "r")
    for part in ("started_at", "ended_at", "output_sha256"):
        told = {"started_at": 1.0, "ended_at": 2.0, "output_sha256": "o"} | {part: None}
        assert seen_of(classify([fresh("a", **told)])[0]).same is None
    (item,) = classify([fresh("a", prompt_sha256="x")])
    assert (seen_of(item, 9.0).ms, seen_of(item).ms, seen_of(item).prompt) == (9.0, None, "x")
    assert seen_of(item).screen
    assert not seen_of(item).named
    assert seen(length=50, ms=100.0).rate == 2.0


# Claims


def claim(request: tuple[int, ...], prefill: tuple[int, ...], prompt: tuple[int, ...] = (0, 0, 0, 0)) -> Claim:
    return claim_of(Table(*request), Table(*prefill), Table(*prompt))


def test_the_story_is_weaker_than_it_looks() -> None:
    found = restated(story()).claim
    assert (found.standing, found.candidate_worse) == (Standing.WEAKER, True)
    assert (found.by_request, found.by_prefill) == (Table(11, 12, 0, 20), Table(2, 2, 0, 2))
    assert found.p_by_request == pytest.approx(9.3e-8, rel=0.001)
    assert found.p_by_prefill == pytest.approx(1 / 6)


def test_a_difference_that_prefills_show_as_well_survives() -> None:
    found = claim((5, 5, 0, 5), (4, 4, 0, 4))
    assert found.standing is Standing.SURVIVES
    assert found.p_by_prefill == pytest.approx(1 / 70)


def test_the_limit_is_five_percent_in_the_direction_of_the_requests() -> None:
    assert claim((3, 3, 0, 3), (3, 3, 0, 3)).p_by_request == pytest.approx(0.05)  # 1/20, at the limit
    assert claim((3, 3, 0, 3), (3, 3, 0, 3)).standing is Standing.SURVIVES
    assert claim((3, 3, 0, 3), (2, 2, 0, 2)).standing is Standing.WEAKER
    assert claim((2, 2, 0, 2), (5, 5, 0, 5)).standing is Standing.NO_DIFFERENCE
    assert claim((1, 2, 0, 38), (1, 2, 0, 38)).standing is Standing.SURVIVES  # 2/40
    above = claim((3, 11, 0, 17), (5, 5, 0, 5))
    assert above.p_by_request == pytest.approx(0.0503663, rel=1e-6)
    assert above.standing is Standing.NO_DIFFERENCE
    assert claim((5, 5, 0, 5), (3, 11, 0, 17)).standing is Standing.WEAKER


@pytest.mark.parametrize(
    ("p_value", "there"), [(0.0, True), (0.05, True), (0.05 + 4e-13, True), (0.05 + 6e-13, False), (None, False)]
)
def test_a_p_is_held_against_the_limit_to_twelve_digits(p_value: float | None, there: bool) -> None:
    assert seems_there(p_value) is there


def test_a_better_candidate_is_a_difference_too() -> None:
    found = claim((0, 9, 9, 9), (0, 2, 2, 2))
    assert (found.standing, found.candidate_worse) == (Standing.WEAKER, False)
    assert found.p_by_prefill == fisher_one_sided(2, 2, 0, 2)
    assert claim((0, 9, 0, 9), (0, 9, 0, 9)).candidate_worse


def test_without_proven_prefills_the_least_evidence_decides() -> None:
    none = (0, 0, 0, 0)
    assert claim((9, 9, 0, 9), none, (2, 2, 0, 2)).standing is Standing.UNPROVEN
    assert claim((9, 9, 0, 9), none, (4, 4, 0, 4)).standing is Standing.SURVIVES
    assert claim((9, 9, 0, 9), none, none).standing is Standing.UNPROVEN
    assert claim((9, 9, 0, 9), (2, 2, 0, 2), (4, 4, 0, 4)).standing is Standing.WEAKER


def test_one_arm_or_no_common_prompt_is_not_compared() -> None:
    assert claim((1, 1, 0, 0), (1, 1, 0, 0)).standing is Standing.NOT_COMPARED
    assert claim((0, 0, 1, 1), (0, 0, 1, 1)).p_by_request is None
    found = restated([fresh("a", bad=True), fresh("b", arm=BASELINE)]).claim
    assert (found.standing, found.by_request) == (Standing.NOT_COMPARED, Table(0, 0, 0, 0))


def test_by_names_alone_nothing_survives_without_proven_prefills() -> None:
    def standing(prefill: tuple[int, ...], doubted: int, named: bool) -> Standing:
        found = claim_of(Table(9, 9, 0, 9), Table(*prefill), Table(4, 4, 0, 4), Doubts(doubted, named=named))
        assert found.doubts.named is named
        return found.standing

    assert standing((0, 0, 0, 0), 0, False) is Standing.SURVIVES
    assert standing((0, 0, 0, 0), 0, True) is Standing.UNPROVEN
    assert standing((9, 9, 0, 9), 1, False) is Standing.SURVIVES
    assert standing((9, 9, 0, 9), 1, True) is Standing.UNPROVEN
    assert standing((9, 9, 0, 9), 0, True) is Standing.SURVIVES
    assert claim((9, 9, 0, 9), (9, 9, 0, 9)).doubts.named is False


@pytest.mark.parametrize("kind", ["doubted", "twice", "shared"])
def test_with_doubted_prefills_the_least_evidence_decides(kind: str) -> None:
    def standing(prefill: tuple[int, ...], prompt: tuple[int, ...], doubted: int) -> Standing:
        tables = [Table(*each) for each in ((9, 9, 0, 9), prefill, prompt)]
        doubts = Doubts(**{kind: doubted})
        found = claim_of(*tables, doubts)
        assert found.doubts == doubts
        return found.standing

    assert standing((9, 9, 0, 9), (2, 2, 0, 2), 0) is Standing.SURVIVES
    assert standing((9, 9, 0, 9), (2, 2, 0, 2), 1) is Standing.UNPROVEN
    assert standing((9, 9, 0, 9), (4, 4, 0, 4), 1) is Standing.SURVIVES
    assert standing((2, 2, 0, 2), (4, 4, 0, 4), 1) is Standing.WEAKER
    assert claim((9, 9, 0, 9), (9, 9, 0, 9)).doubts == NO_DOUBTS


# Whole logs


@pytest.mark.parametrize("proof", [None, ColdProof.CACHE_OFF])
def test_counters_that_lie_together_are_not_believed_against_their_own_times(proof: ColdProof | None) -> None:
    """One real prefill of 62 s and eleven copies of 48 ms; every counter calls all of them fresh."""

    def arm(of: str, slow: float, quick: float) -> list[Cell]:
        times = [slow] + [quick] * 11
        return [fresh("p", arm=of, bad=of == CANDIDATE, prefill_ms=ms, cold_proof=proof) for ms in times]

    found = restated(arm(CANDIDATE, 62_000.0, 48.0) + arm(BASELINE, 62_000.0, 48.0))
    assert (found.claim.standing, found.claim.doubts.doubted) == (Standing.UNPROVEN, 22)
    assert [each.bounds for each in found.arms] == [Bounds(1, 1, False, 11)] * 2
    assert claim_sentence(found.claim) == (
        "The difference may be weaker than it looks: the times of 22 requests that count as prefills speak against the "
        "counters. By request the candidate is bad in 12 of 12 against 0 of 12, p 3.70e-07; by prefill the candidate "
        "is bad in 12 of 12 against 0 of 12, p 3.70e-07 as the counters tell; if every repeat rode the cache the "
        "candidate is bad in 1 of 1 against 0 of 1, p 0.5."
    )
    lines = restated_lines(found)
    assert lines[2] == (
        "candidate: 12 of 12 bad by request, 12 of 12 bad by prefill as the counters tell; "
        "at most 1 prefill, 1 if every repeat rode the cache."
    )
    assert lines[3] == (
        "Measured cache hits. Baseline: 11 requests that count as prefills took under 10 % of the time of an earlier "
        "request of the same prompt."
    )
    honest = restated(arm(CANDIDATE, 310.0, 62.0) + arm(BASELINE, 62.0, 62.0))  # a server that had to warm up
    assert (honest.claim.standing, honest.claim.doubts.doubted) == (Standing.SURVIVES, 0)
    one = restated([cell("p", cached=None, prefill_ms=62_000.0), fresh("p", prefill_ms=48.0)])
    assert "1 request that counts as a prefill took under 10 % of the time" in restated_lines(one)[1]


def test_a_difference_that_is_there_by_prompt_survives_counters_that_lie() -> None:
    cells = [
        fresh(case, arm=of, bad=of == CANDIDATE, prefill_ms=ms)
        for of in (CANDIDATE, BASELINE)
        for case in "abcd"
        for ms in (62_000.0, *[48.0] * 5)
    ]
    found = restated(cells).claim
    assert (found.standing, found.by_prompt, found.doubts.doubted) == (Standing.SURVIVES, Table(4, 4, 0, 4), 40)
    assert claim_sentence(found).startswith("The difference survives even so. By request")
    assert "if every repeat rode the cache the candidate is bad in 4 of 4 against 0 of 4" in claim_sentence(found)


def test_a_log_without_counters_claims_less() -> None:
    told = [
        cell(f"c{number % 2}", cached=None, arm=arm, bad=arm == CANDIDATE)
        for number in range(12)
        for arm in (CANDIDATE, BASELINE)
    ]
    found = restated(told)
    assert [each.name for each in found.arms] == [BASELINE, CANDIDATE]
    assert [each.bounds for each in found.arms] == [Bounds(2, 12, False)] * 2
    assert [each.counts.prefills for each in found.arms] == [0, 0]
    assert (found.claim.standing, found.claim.by_prompt) == (Standing.UNPROVEN, Table(2, 2, 0, 2))
    assert found.labels == ()


def test_invalid_requests_are_not_there() -> None:
    assert restated([fresh("a"), fresh("b", status=Status.INVALID)]).arms[0].bounds == Bounds(1, 1, True)


def test_times_to_first_token_stand_in_for_prefill_times() -> None:
    cells = [cell("a", cached=None), cell("a", cached=None)]
    timed = restate([Request(cells[0], 100.0), Request(cells[1], 1.0)], False)
    assert timed.arms[0].bounds == Bounds(1, 1, False)
    assert timed.arms[0].speed.timed == 2


def test_every_label_is_restated_where_arms_are_not_told() -> None:
    requests = [
        Request(fresh("a", bad=True, cold_proof=ColdProof.SALT), 5.0, "x"),
        Request(copy("a"), 4.0, "x"),
        Request(fresh("a"), None, "y"),
        Request(fresh("a"), None, None),
    ]
    x, y = restate(requests, True).labels
    assert (x.name, x.counts.requests, x.counts.prefills, x.counts.bad_prefills) == ("x", 2, 1, 1)
    assert (x.bounds, x.speed.timed) == (Bounds(1, 1, True), 2)
    assert (y.name, y.counts.requests, y.speed.timed) == ("y", 1, 0)
    assert restate(requests, False).labels == ()
