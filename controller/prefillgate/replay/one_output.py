"""The checks of a policy that look at one output alone: for logs, and for outputs that somebody has in hand."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from prefillgate.api.check_type import ASKING, CheckType
from prefillgate.api.errors import PolicyError, Problem
from prefillgate.api.policy import PolicyDocument
from prefillgate.api.replay_set import COMPLETIONS, Case
from prefillgate.core.cells import Cell
from prefillgate.core.flags import flag_outcome
from prefillgate.core.journal import CheckOutcome, Texts
from prefillgate.core.policy import Flag
from prefillgate.core.quality import Output
from prefillgate.replay.checks import CheckSuite

ALLOWED = "checks that look at one output; `prefillgate run` makes the others"
_NEED_MORE = (CheckType.EQUAL_TO_BASELINE, CheckType.FOREIGN_TEXT, CheckType.EXPECT)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class OneOutputChecks:
    """The suite; `left_out` names the checks of the policy that need more than one output."""

    suite: CheckSuite
    cut_is_bad: bool  # only where the policy says so: people limit tokens for many reasons
    left_out: tuple[str, ...] = ()

    def judge(
        self, cell: Cell, texts: Texts, path: str | None, body: Mapping[str, Any]
    ) -> tuple[bool | None, tuple[CheckOutcome, ...]]:
        """Whether one output is bad (None: a check erred, or none applies), and every outcome."""
        output = Output(texts.content, texts.reasoning, texts.tool_calls, cell.finish_reason)
        outcomes = at_once(self.suite.run(Case(cell.case_id, path or COMPLETIONS, dict(body)), output))
        return flag_outcome(Flag("bad", ()), outcomes, pass_cut=not self.cut_is_bad), outcomes


def one_output_checks(document: PolicyDocument) -> OneOutputChecks:
    """Those checks of a policy. One that runs a program or asks a model is refused by name: a stranger's output must
    start neither. Raises `PolicyError`.
    """
    where = str(document.source) if document.source else f"policy {document.name}"
    declared = document.checks
    asking = [spec for spec in declared or () if spec.type in ASKING]
    if asking:
        what = "starts a program or asks a model, which is not done here"
        raise PolicyError(*(Problem(where, f"check {each.name}", f"{each.type} {what}", ALLOWED) for each in asking))
    kept = None if declared is None else tuple(spec for spec in declared if spec.type not in _NEED_MORE)
    if kept is not None and not kept:
        raise PolicyError(Problem(where, "checks", "no check is left to make", ALLOWED))
    suite = CheckSuite.from_policy(replace(document, checks=kept))
    left_out = tuple(spec.name for spec in declared or () if spec.type in _NEED_MORE)
    return OneOutputChecks(suite, any(spec.type is CheckType.CUT for spec in kept or ()), left_out)


def at_once(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that waits for nothing. A notebook has an event loop already, so none is started."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    work.close()
    raise RuntimeError("a check that looks at one output waited for something")
