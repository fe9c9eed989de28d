"""What a run says to its caller, and how it names options in the words of the caller's own users."""

from __future__ import annotations

from typing import Any

import pytest

from prefillgate.runs.around import Around, Hooks, unsaid
from prefillgate.runs.errors import BadInput, CouldNotMeasure, RunBroken, RunError

NAMES = {"--baseline-model": "spec.baseline.model", "--wait-ready": "spec.waitSeconds"}


def test_options_are_told_as_the_caller_names_them() -> None:
    told = Hooks(names=NAMES).told(
        "named by --baseline-model, or --wait-ready-more, --wait-ready; not a--baseline-model"
    )
    assert told == "named by spec.baseline.model, or --wait-ready-more, spec.waitSeconds; not aspec.baseline.model"
    assert Hooks().told("--wait-ready") == "--wait-ready"


def test_a_listener_hears_the_line_its_word_and_its_facts() -> None:
    heard: list[tuple[str, str, str, dict[str, Any]]] = []

    def said(line: str, event: str = "note", level: str = "info", **facts: Any) -> None:
        heard.append((line, event, level, facts))

    around = Around(listener=said, hooks=Hooks(names=NAMES))
    around.said("see --wait-ready", "waiting", "warning", cells=3)
    around.said("plain")
    assert heard == [("see spec.waitSeconds", "waiting", "warning", {"cells": 3}), ("plain", "note", "info", {})]
    assert unsaid("nobody hears") is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(("kind", "code"), [(BadInput, 2), (CouldNotMeasure, 1), (RunBroken, 1), (RunError, 1)])
def test_each_ending_without_a_verdict_has_its_exit_code(kind: type[RunError], code: int) -> None:
    assert kind.exit_code == code
    assert issubclass(RunBroken, CouldNotMeasure) and not issubclass(RunBroken, BadInput)
