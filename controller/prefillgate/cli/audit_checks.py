"""`audit --checks`: filling `bad` from the outputs that a log holds, by the checks of a policy."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING

from prefillgate.cli.speaking import say

if TYPE_CHECKING:
    from prefillgate.importers.base import Imported
    from prefillgate.replay.checks import CheckSuite


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
    """The checks of a policy over the outputs of a log. Use it as a context manager: it holds an event loop."""

    suite: CheckSuite
    cut_is_bad: bool  # only where the policy says so: people limit tokens for many reasons
    told: Checked = field(default_factory=Checked)
    _loop: asyncio.Runner = field(default_factory=asyncio.Runner)

    def __enter__(self) -> OutputChecks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.close()

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
        from prefillgate.api.replay_set import COMPLETIONS, Case
        from prefillgate.core.flags import flag_outcome
        from prefillgate.core.policy import Flag
        from prefillgate.core.quality import Output

        texts, asked = found.texts, found.asked
        assert texts is not None
        output = Output(texts.content, texts.reasoning, texts.tool_calls, found.line.cell.finish_reason)
        case = Case(found.line.cell.case_id, asked.path if asked else COMPLETIONS, dict(asked.body) if asked else {})
        outcomes = self._loop.run(self.suite.run(case, output))
        bad = flag_outcome(Flag("bad", ()), outcomes, pass_cut=not self.cut_is_bad)
        if bad is None:
            first = next((each for each in outcomes if each.bad is None), None)
            self.told.erred += 1
            told = "no check applies" if first is None else f"{first.check}: {first.detail}"
            self.told.first_error = self.told.first_error or told
        return bad


def load_checks(policy: str) -> OutputChecks:
    """The checks of a policy that look at one output alone.

    Those that run a program or ask a model are refused by name: a log of strangers must not start either. Those that
    need other outputs are left out, and that is said. Raises `InputError`.
    """
    from prefillgate.api.check_type import CheckType
    from prefillgate.api.errors import PolicyError, Problem
    from prefillgate.api.policy import load_policy
    from prefillgate.replay.checks import CheckSuite

    document = load_policy(policy)
    where = str(document.source) if document.source else f"policy {document.name}"
    allowed = "checks that look at one output; `prefillgate run` makes the others"
    kept, problems = [], []
    for spec in document.checks or ():
        if spec.type in (CheckType.EXEC, CheckType.JUDGE):
            what = f"{spec.type} starts a program or asks a model, which an audit never does"
            problems.append(Problem(where, f"check {spec.name}", what, allowed))
        elif spec.type in (CheckType.EQUAL_TO_BASELINE, CheckType.FOREIGN_TEXT, CheckType.EXPECT):
            say(f"prefillgate: note: {spec.name} needs more than the output and was left out")
        else:
            kept.append(spec)
    if problems:
        raise PolicyError(*problems)
    if document.checks is not None and not kept:
        raise PolicyError(Problem(where, "checks", "no check is left to make", allowed))
    suite = CheckSuite.from_policy(replace(document, checks=None if document.checks is None else tuple(kept)))
    return OutputChecks(suite, any(spec.type is CheckType.CUT for spec in kept))
