"""The facts a verdict is written from: the comparison, the acceptance path, n and k over several flags."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scipy.stats import boschloo_exact, fisher_exact

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.audit import audit_facts
from prefillgate.core.cells import BASELINE, CANDIDATE, Cell
from prefillgate.core.facts import acceptance_path, compare
from prefillgate.core.freshness import classify
from prefillgate.core.judge import facts_of
from prefillgate.core.units import build_ledger
from prefillgate.core.verdict import Comparison
from tests.support.cell_logs import cell, copy, fresh
from tests.support.stores import Played


def comparison(*cells: Cell) -> Comparison:
    return compare(classify(cells))


def base(case: str = "p", **more: object) -> Cell:
    return fresh(case, arm=BASELINE, **more)


def test_requests_and_prefills_are_compared_side_by_side() -> None:
    cells = [fresh(bad=True), copy(bad=True), copy(bad=True), copy(), base(), copy(arm=BASELINE), base()]
    seen = comparison(*cells)
    assert seen.fisher_by_request == pytest.approx(fisher_exact([[3, 1], [0, 3]], "greater").pvalue, rel=1e-9)
    assert seen.fisher_by_prefill == pytest.approx(fisher_exact([[1, 0], [0, 2]], "greater").pvalue, rel=1e-9)
    boschloo = boschloo_exact([[1, 0], [0, 2]], "greater").pvalue
    assert seen.boschloo_by_prefill == pytest.approx(boschloo, rel=1e-3)


def test_only_prompts_that_both_arms_saw_are_compared() -> None:
    shared = [fresh(bad=True), fresh(), base(), base()]
    lone = [fresh("mine", bad=True), copy("mine", bad=True), base("theirs"), copy("theirs", arm=BASELINE)]
    assert comparison(*shared, *lone) == comparison(*shared)
    assert comparison(*shared).fisher_by_request == pytest.approx(0.5)


def test_unknown_outcomes_are_compared_with_nothing() -> None:
    shared = [fresh(bad=True), base()]
    assert comparison(*shared, fresh(bad=None), base(bad=None)) == comparison(*shared)


def test_the_test_is_one_sided() -> None:
    worse = [fresh(bad=True), fresh(bad=True), base(), base()]
    better = [fresh(), fresh(), base(bad=True), base(bad=True)]
    assert comparison(*worse).fisher_by_prefill == pytest.approx(1 / 6)
    assert comparison(*better).fisher_by_prefill == pytest.approx(1.0)


def test_an_arm_without_anything_to_compare_leaves_it_unknown() -> None:
    nothing = Comparison(None, None, None)
    assert comparison(fresh()) == nothing
    assert comparison(base()) == nothing
    assert comparison(fresh("a"), base("b")) == nothing
    assert comparison(fresh(bad=None), base()) == nothing
    half = comparison(cell(cached=None), base())
    assert (half.fisher_by_request, half.fisher_by_prefill, half.boschloo_by_prefill) == (1.0, None, None)
    half = comparison(fresh(), cell(arm=BASELINE, cached=None))
    assert (half.fisher_by_request, half.fisher_by_prefill) == (1.0, None)


def test_the_path_steps_once_for_each_unit_and_each_bad_cell_outside_of_one() -> None:
    cells = [
        fresh("a"),
        fresh("b", bad=True),
        cell(cached=None, bad=True),
        cell(cached=None),
        fresh("c", bad=None),
        fresh("d", bad=None),
        copy("d", bad=True),
        fresh("e"),
    ]
    path = acceptance_path(build_ledger(classify(cells), CANDIDATE))
    assert [(point.prefills, point.bad) for point in path] == [(0, 0), (1, 0), (2, 1), (2, 2), (2, 3), (3, 3)]


def test_the_facts_of_a_run_are_not_those_of_a_log() -> None:
    assert not facts_of(Played(most_cells=2).play()).from_log


def test_a_replicate_is_analysed_by_itself_and_not_compared() -> None:
    shared = [fresh(bad=True), base(), base()]
    replicate = [fresh(replicate=1), fresh("q", replicate=1), base(replicate=1, bad=True), base("q", replicate=1)]
    assert comparison(*shared, *replicate) == comparison(*shared)
    assert comparison(*replicate) == Comparison(None, None, None)


def test_n_and_k_are_those_of_the_worst_flag() -> None:
    facts = audit_facts([fresh("a"), fresh("b", bad=True)], STANDARD, "log")
    assert (facts.units, facts.bad) == (2, 1)
    one = build_ledger(classify([fresh("a"), fresh("b", bad=None)]), CANDIDATE)
    two = build_ledger(classify([fresh("a", bad=True), fresh("b"), fresh("c")]), CANDIDATE)
    both = replace(facts, ledgers=(one, two))
    assert (both.units, both.bad) == (1, 1)
    assert (facts.table.margin, facts.table.alpha, facts.table.entries) == (0.10, 0.05, (32, 56, 75))
