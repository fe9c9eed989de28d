"""A trial: every case of a replay set once, fresh, on one server. What a person learns before a run is begun."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum

from prefillgate.api.replay_set import Case
from prefillgate.cli.loose import Loose, LooseCells, Sent, meet
from prefillgate.core.cells import BASELINE, Status
from prefillgate.core.gate import REFUSALS, REFUSED_BODY
from prefillgate.core.healthy import HealthyRate, healthy_rate
from prefillgate.core.journal import CheckOutcome
from prefillgate.core.units import build_ledger
from prefillgate.engines.base import CountsTokens, EngineError
from prefillgate.replay.request import Sending, prepare
from prefillgate.replay.session import ArmRequest

EXIT_BAD = 10


class Came(StrEnum):
    """What came of a case."""

    CLEAN = "clean"
    BAD = "bad"  # a check failed
    FAILED = "failed"  # accepted, then no complete answer
    ERROR = "error"  # a check could not judge the answer
    REFUSED = "refused"  # the server does not take this body
    TOO_LONG = "too_long"  # not sent: the prompt does not fit into the server's context
    INVALID = "invalid"  # not measured: other traffic, a server that is away


_EXITS = {Came.BAD: EXIT_BAD, Came.FAILED: EXIT_BAD, Came.ERROR: 1, Came.INVALID: 1, Came.REFUSED: 2, Came.TOO_LONG: 2}


@dataclass(frozen=True, slots=True)
class Tried:
    """One case. `sent` is None where it was not sent; `counted_tokens` as the server's tokenizer says, else None."""

    case: Case
    came: Came
    why: str
    sent: Sent | None
    counted_tokens: int | None
    failing: tuple[CheckOutcome, ...] = ()
    noted: tuple[CheckOutcome, ...] = ()  # failing checks that decide nothing in a run
    remark: str = ""


@dataclass(slots=True)
class Trial:
    """Run it once; `tried` grows case by case, and `show` is told of each with its number from 1."""

    asked: ArmRequest
    cells: LooseCells
    cases: tuple[Case, ...]  # of the set, those to be tried
    show: Callable[[int, Tried], None]
    server: Loose | None = None
    tried: list[Tried] = field(default_factory=list)
    unsent: int = 0  # cases left when the server was given up
    _refusals: int = 0

    async def run(self) -> None:
        """Probe the server, then send every case. Raises `BadInput` or `CouldNotMeasure` where no case can be sent."""
        async with AsyncExitStack() as stack:
            self.server = await meet("server", self.asked, self.cells, stack)
            for place, case in enumerate(self.cases, start=1):
                tried = await self._try(self.server, case)
                self.tried.append(tried)
                self.show(place, tried)
                if self._given_up(tried):
                    self.unsent = len(self.cases) - place
                    return

    def _given_up(self, tried: Tried) -> bool:
        """Whether the server refused so often in a row that the other cases are not worth their waits."""
        refused = tried.came is Came.INVALID and tried.sent is not None and tried.sent.event.reason in REFUSALS
        self._refusals = self._refusals + 1 if refused else 0
        return self._refusals >= self.cells.policy.policy.refusals

    async def _try(self, server: Loose, case: Case) -> Tried:
        tokens, context = await self._counted(server, case), server.seen.context_tokens
        if tokens is not None and context is not None and tokens >= context:
            why = (
                f"{tokens} prompt tokens do not fit into the server's context of {context} a slot; not sent (give the "
                "server a larger context, or leave the case out)"
            )
            return Tried(case, Came.TOO_LONG, why, None, tokens)
        sent = await server.send(case)
        bad = [outcome for outcome in sent.outcomes if outcome.bad]
        failing = tuple(outcome for outcome in bad if server.gate.decides(outcome.check))
        noted = tuple(outcome for outcome in bad if outcome not in failing)
        came, why = _came(sent, failing, server)
        return Tried(case, came, why, sent, tokens, failing, noted, _room(tokens, case.max_tokens, context))

    async def _counted(self, server: Loose, case: Case) -> int | None:
        """The prompt's tokens as it would be sent, where the server can be asked for them."""
        engine, seen = server.lane.engine, server.seen
        if not isinstance(engine, CountsTokens):
            return None
        try:
            request = prepare(case, engine, Sending(seen.model, None, "0" * 32, seen.proof_on(case.path)))
        except (EngineError, ValueError):
            return None  # sending it tells why
        return await engine.prompt_tokens(request)

    def count(self, *came: Came) -> int:
        """How many cases came to one of these."""
        return sum(tried.came in came for tried in self.tried)

    def bad_rate(self) -> HealthyRate | None:
        """What the fresh prefills say, under the flag that fails most; None without one whose outcome is known."""
        if self.server is None:
            return None
        gate, policy = self.server.gate, self.cells.policy.policy
        classified = gate.classified()
        known = [build_ledger(classified, BASELINE, flag.name).outcomes() for flag in gate.flags]
        worst = max(known, key=sum)
        return healthy_rate(sum(worst), len(worst), policy, len(self.cells.replay_set.cases))

    def exit_code(self) -> int:
        """2 a case that this server cannot take, else 1 one that was not measured, else 10 a bad one, else 0."""
        codes = {_EXITS.get(tried.came, 0) for tried in self.tried}
        if self.unsent or (not codes & {1, 2} and self.bad_rate() is None):
            codes.add(1)
        return next((code for code in (2, 1, EXIT_BAD) if code in codes), 0)


def _room(prompt: int | None, answer: int | None, context: int | None) -> str:
    """What to say of a prompt after which the whole answer may not fit."""
    if prompt is None or answer is None or context is None or prompt + answer <= context:
        return ""
    return f"{prompt} tokens of prompt and {answer} of answer do not fit into a context of {context}: it may be cut"


def _came(sent: Sent, failing: tuple[CheckOutcome, ...], server: Loose) -> tuple[Came, str]:
    event = sent.event
    told = f"{event.reason or event.cell.status}: {event.detail or 'no more was told'}"
    if event.cell.status is Status.INVALID:
        return (Came.REFUSED if event.http_status in REFUSED_BODY else Came.INVALID), told
    if event.cell.status is Status.FAILED:
        return Came.FAILED, told
    if failing:
        return Came.BAD, ", ".join(outcome.check for outcome in failing)
    erred = [o for o in sent.outcomes if o.bad is None and server.gate.decides(o.check)]
    if erred:
        return Came.ERROR, "; ".join(f"{outcome.check}: {outcome.detail}" for outcome in erred)
    return Came.CLEAN, ""
