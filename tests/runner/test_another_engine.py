"""An engine is one class and one line in the registry: a family the runner never heard of is run like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefillgate.core.cells import ARMS
from prefillgate.engines import registry
from prefillgate.engines.base import Identity
from prefillgate.engines.llama_cpp import LlamaCpp, recognise
from prefillgate.engines.registry import FAMILIES, Family
from tests.support.runs import bench, stored
from tests.support.simulated import start_simulated

NAME = "another-engine"


class Another(LlamaCpp):
    """A family of its own, as far as the runner can tell."""

    name = NAME

    async def discover(self) -> Identity:
        found = await super().discover()
        return Identity(**{name: getattr(found, name) for name in Identity.__slots__} | {"engine": NAME})


# The table is the seam: a new family is one more entry, and a server of it cannot be had here.
def test_a_family_added_to_the_table_is_measured_without_a_change_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "FAMILIES", (Family(NAME, recognise, Another), *FAMILIES))
    work = bench(tmp_path)
    with start_simulated(seed=1, text_seed=9) as baseline, start_simulated(seed=2, text_seed=9) as candidate:
        finished = work.run(work.request(baseline.url, candidate.url))
    gate, _ = stored(tmp_path / "run.db")
    assert {seen.engine for arm in ARMS for seen in gate.epochs[arm]} == {NAME}
    assert finished.verdict.decision.decision == "promote"
