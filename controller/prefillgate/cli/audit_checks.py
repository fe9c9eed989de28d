"""`audit --checks`: filling `bad` from the outputs that a log holds, by the checks of a policy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from prefillgate.cli.speaking import say

if TYPE_CHECKING:
    from prefillgate.importers.base import Imported
    from prefillgate.replay.one_output import OneOutputChecks


@dataclass(slots=True)
class Checked:
    """What became of the outputs: how many were judged, had no text, could not be judged, or had an outcome already;
    and of the last, how often the checks say something else."""

    judged: int = 0
    without_output: int = 0
    erred: int = 0
    kept: int = 0
    disagree: int = 0
    first_error: str = ""

    def notes(self) -> tuple[str, ...]:
        """What a person must know of it."""
        told = [f"{self.judged} outputs judged by --checks"]
        if self.without_output:
            told.append(f"{self.without_output} records hold no output: --checks says nothing of them")
        if self.erred:
            told.append(f"{self.erred} outputs could not be judged ({self.first_error}): their outcome is unknown")
        if self.kept:
            told.append(f"{self.kept} records keep the outcome of their own; --checks disagrees with {self.disagree}")
        return tuple(told)


@dataclass(slots=True)
class OutputChecks:
    """The checks of a policy over the outputs of a log."""

    checks: OneOutputChecks
    told: Checked = field(default_factory=Checked)

    def fill(self, found: Imported) -> Imported:
        """The record with `bad` from its output; as it is where it has an outcome already, or no output."""
        from prefillgate.core.cells import Status

        cell = found.line.cell
        if cell.status is Status.INVALID:
            return found
        if found.texts is None:
            self.told.without_output += cell.status is Status.OK and cell.bad is None
            return found
        bad = self._judge(found)
        if cell.bad is not None or cell.status is Status.FAILED:
            self.told.kept += 1
            self.told.disagree += bad is not None and bad is not cell.outcome()
            return found
        self.told.judged += bad is not None
        return replace(found, line=replace(found.line, cell=replace(cell, bad=bad)))

    def _judge(self, found: Imported) -> bool | None:
        texts, asked = found.texts, found.asked
        assert texts is not None
        path, body = (asked.path, asked.body) if asked is not None else (None, {})
        bad, outcomes = self.checks.judge(found.line.cell, texts, path, body)
        if bad is None:
            first = next((each for each in outcomes if each.bad is None), None)
            self.told.erred += 1
            told = "no check applies" if first is None else f"{first.check}: {first.detail}"
            self.told.first_error = self.told.first_error or told
        return bad


def load_checks(policy: str) -> OutputChecks:
    """The checks of a policy that look at one output alone; those that need others are left out, and that is said.

    Raises `InputError`, also for checks that run a program or ask a model.
    """
    from prefillgate.api.policy import load_policy
    from prefillgate.replay.one_output import one_output_checks

    checks = one_output_checks(load_policy(policy))
    for name in checks.left_out:
        say(f"prefillgate: note: {name} needs more than the output and was left out")
    return OutputChecks(checks)
