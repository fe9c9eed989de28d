"""Swapping servers in a sequential run: who does it, how long it is waited for, and whether it happened.

A `Hand` swaps: a command, a person at a terminal, or somebody the run only waits for. The swapper believes none of them
where it can see for itself (`core.who_is_up`): a server that is still the other arm's is never measured as this one's.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Protocol

from prefillgate.core.gate import Gate
from prefillgate.core.journal import EpochSeen, WindowOpened
from prefillgate.core.who_is_up import Found, Seen, Standing, Wanted, life_of, who_is_up
from prefillgate.core.windows import FOUND, SwapServers
from prefillgate.engines.base import AmbiguousModelError, EngineError, Identity, ModelNotServedError
from prefillgate.replay.clock import Clock
from prefillgate.replay.lane import UNMARKED, Lane
from prefillgate.report.clean import one_line

WAITED = "waited for"
ARM_VARIABLE = "PREFILLGATE_ARM"
PATIENCE_SECONDS = 600.0  # for a swap and the server's start, where --wait-ready names no other
OLD_LIFE_SECONDS = 30.0  # how long the old server may still answer after somebody said that it was swapped
POLL_SECONDS = 1.0
NOTICE_EVERY_SECONDS = 60.0


class SwapFailed(Exception):
    """The server that is wanted was not put up. What was measured stands; the run can be resumed."""


@dataclass(frozen=True, slots=True)
class SwapOrder:
    """What a hand is asked to do: put up `arm` at `url`; `restart` where that arm is up, in a life that is used up."""

    arm: str
    url: str
    restart: bool
    remark: str = ""  # why the last try was not it

    @property
    def text(self) -> str:
        """The order in words."""
        what = f"restart the {self.arm}'s server" if self.restart else f"put up the {self.arm}'s server alone"
        return f"{self.remark + '; ' if self.remark else ''}{what} at {self.url}"


class Hand(Protocol):
    """Who swaps. `how` names it in the evidence."""

    how: str
    keeps_word: bool  # its return says that the server was swapped
    asks_again: bool  # a swap that did not happen is asked for once more
    patience_seconds: float | None  # for a server that does not answer; None: until the deadline
    old_life_seconds: float  # how long, on its word, the old server may still be the one that answers

    async def swap(self, order: SwapOrder) -> None:
        """Swap, or ask for it. Raises `SwapFailed`."""


@dataclass(slots=True)
class CommandHand:
    """Runs an argument list, without a shell; the arm is its last argument and stands in PREFILLGATE_ARM."""

    command: Sequence[str]
    patience_seconds: float | None = PATIENCE_SECONDS
    old_life_seconds: float = OLD_LIFE_SECONDS
    how: str = "command"
    keeps_word: bool = True
    asks_again: bool = False

    async def swap(self, order: SwapOrder) -> None:
        """Run it to its end. Raises `SwapFailed` when it cannot start, ends with a code, or takes too long."""
        words = [*self.command, order.arm]
        # Files, not pipes: a server that the command leaves running keeps its standard output open.
        with tempfile.TemporaryFile() as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=asyncio.subprocess.STDOUT,
                    env={**os.environ, ARM_VARIABLE: order.arm},
                )
            except (OSError, ValueError) as error:
                raise SwapFailed(f"the swap command {words[0]} could not be started: {error}") from error
            try:
                async with asyncio.timeout(self.patience_seconds):
                    code = await process.wait()
            except TimeoutError:
                late = f"did not end within {self.patience_seconds:g} s"
                left = "it was ended, what it started may still run"
                raise SwapFailed(f"the swap command {late}, asked for the {order.arm}; {left}") from None
            finally:
                await _end(process)
            if code:
                raise SwapFailed(f"the swap command ended with code {code}, asked for the {order.arm}{_tail(output)}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def _tail(output: IO[bytes]) -> str:
    """The last line that was written, clean, or nothing."""
    output.seek(0)
    lines = [line for line in output.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return f": {one_line(lines[-1], 500)}" if lines else ""


@dataclass(slots=True)
class WaitingHand:
    """Nobody is at a terminal: say what is waited for and watch."""

    say: Callable[[str], None]
    patience_seconds: float | None = None
    old_life_seconds: float = float("inf")
    how: str = WAITED
    keeps_word: bool = False
    asks_again: bool = True

    async def swap(self, order: SwapOrder) -> None:
        """Say it; the swapper watches."""
        self.say(f"waiting for a swap: {order.text}; the run goes on by itself once that server answers")


@dataclass(slots=True)
class Swapper:
    """Puts up the server that a sequential run needs next. `lanes` are filled as servers are met."""

    hand: Hand
    urls: Mapping[str, str]
    lanes: MutableMapping[str, Lane]
    open_lane: Callable[[str], Awaitable[Lane | str]]  # or why there is none yet
    clock: Clock
    say: Callable[[str], None]
    vet: Callable[[str, Identity], Awaitable[None]]  # raises for a server that must not be measured
    deadline_at: float | None = None
    poll_seconds: float = POLL_SECONDS
    address: Callable[[str], str | None] | None = None  # of an arm now, where it comes and goes with its servers
    _fresh: dict[str, Lane] = field(default_factory=dict)  # opened to look, not yet known to be that arm's
    _met_at: dict[str, str | None] = field(default_factory=dict)

    @property
    def same_place(self) -> bool:
        """Whether both arms have one address."""
        return len({url.rstrip("/").removesuffix("/v1") for url in self.urls.values()}) == 1

    async def put_up(self, gate: Gate, step: SwapServers) -> WindowOpened | None:
        """Have the window's server put up; None where the deadline passed first. Raises `SwapFailed`."""
        wanted = self._wanted(gate, step)
        first = not any(gate.epochs.values())
        if step.same_life:
            found = await self._look(gate, wanted)
            begun_with = first and not self.hand.keeps_word and found.standing is Standing.UNTOLD
            if found.standing is Standing.RIGHT or begun_with:
                return await self._opened(gate, step, FOUND, found)
        remark = ""
        while self._time_left() > 0:
            last = gate.windows.last
            order = SwapOrder(wanted.arm, self.urls[wanted.arm], last is not None and last.arm == wanted.arm, remark)
            if not await self._in_time(self.hand.swap(order)):
                return None
            awaited = await self._await(gate, wanted)
            if awaited is None:
                return None
            if awaited.standing in (Standing.RIGHT, Standing.UNTOLD):
                return await self._opened(gate, step, self.hand.how, awaited)
            if not self.hand.asks_again:
                raise SwapFailed(f"the servers were not swapped: {awaited.why}")
            remark = awaited.why
        return None

    def check(self, gate: Gate, seen: EpochSeen) -> None:
        """Raise `SwapFailed` when a life that was met in a window is not of the arm it is measured as."""
        wanted = Wanted(seen.arm, same_life=True, any_life=True, same_place=self.same_place)
        marker = life_of(seen)
        told = Seen(
            None if marker == UNMARKED else marker,
            *(seen.engine, seen.build, seen.model, seen.weights, seen.context_tokens, seen.settings),
        )
        found = who_is_up(told, wanted, gate.epochs)
        if found.standing is Standing.OTHER_ARM:
            raise SwapFailed(f"the wrong server is up: {found.why}")

    def _wanted(self, gate: Gate, step: SwapServers) -> Wanted:
        met = [seen for arm in gate.epochs.values() for seen in arm]
        last = max(met, key=lambda seen: seen.seen_at, default=None)
        return Wanted(
            arm=step.window.arm,
            same_life=step.same_life,
            any_life=step.window.pair is None,
            same_place=self.same_place,
            swapped=last is not None and last.arm != step.window.arm,
        )

    async def _opened(self, gate: Gate, step: SwapServers, how: str, found: Found) -> WindowOpened:
        arm = step.window.arm
        lane = self._fresh.pop(arm, None) or self.lanes[arm]
        if lane.identity is not None:
            await self.vet(arm, lane.identity)
            if lane.identity.server_epoch is None and how != FOUND:
                lane.swapped(len(gate.epochs[arm]))
        self.lanes[arm] = lane
        self._met_at[arm] = None if self.address is None else self.address(arm)
        word = {FOUND: "whoever began the run", WAITED: "a restart that was seen"}.get(how, f"the {how}")
        detail = f"taken for the {arm} on the word of {word}: {found.why}" if found.standing is Standing.UNTOLD else ""
        return WindowOpened(arm, self.clock.now(), how, step.window.pair, step.window.replicate, detail)

    async def _look(self, gate: Gate, wanted: Wanted) -> Found:
        """How the server stands that answers now."""
        arm = wanted.arm
        lane = self.lanes.get(arm)
        if lane is None or self._elsewhere(arm):
            opened = await self.open_lane(arm)
            if isinstance(opened, str):
                return Found(Standing.AWAY, f"no server answers there ({opened})")
            lane = self._fresh[arm] = opened
        try:
            identity = await lane.identify()
        except AmbiguousModelError as error:
            raise SwapFailed(f"{arm}: {error} (allowed: one of them, named by --{arm}-model)") from error
        except ModelNotServedError as error:
            return Found(Standing.OTHER_ARM, str(error))
        except EngineError as error:
            return Found(Standing.AWAY, f"no server answers there ({error})")
        return who_is_up(_seen(identity), wanted, gate.epochs)

    def _elsewhere(self, arm: str) -> bool:
        """Whether the arm's server is at another address than the one its lane leads to."""
        return self.address is not None and self.address(arm) != self._met_at.get(arm)

    async def _await(self, gate: Gate, wanted: Wanted) -> Found | None:
        """Watch until the wanted server answers, or another is too long; None where the deadline passed."""
        began = noticed = self.clock.now()
        away = False
        while self._time_left() > 0:
            found = await self._look(gate, wanted)
            away = away or found.standing is Standing.AWAY
            now = self.clock.now()
            if self._accepted(found, away) or self._too_long(found, now - began):
                return found
            if now - noticed >= NOTICE_EVERY_SECONDS:
                noticed = now
                self.say(f"still waiting for the {wanted.arm}'s server: {found.why}")
            await self.clock.sleep(min(self.poll_seconds, max(0.0, self._time_left())))
        return None

    def _accepted(self, found: Found, away: bool) -> bool:
        """A server that nothing tells is taken on a word, in a life never met, or after an outage that was seen."""
        if found.standing is Standing.UNTOLD:
            return self.hand.keeps_word or found.new_life or away
        return found.standing is Standing.RIGHT

    def _too_long(self, found: Found, waited_seconds: float) -> bool:
        if found.standing is Standing.AWAY:
            return self.hand.patience_seconds is not None and waited_seconds >= self.hand.patience_seconds
        return waited_seconds >= self.hand.old_life_seconds

    def _time_left(self) -> float:
        return float("inf") if self.deadline_at is None else self.deadline_at - self.clock.now()

    async def _in_time(self, work: Awaitable[None]) -> bool:
        """Whether it came to its end before the deadline."""
        left = self._time_left()
        try:
            async with asyncio.timeout(None if left == float("inf") else left) as limit:
                await work
        except TimeoutError:
            if limit.expired():
                return False
            raise
        return True


def _seen(identity: Identity) -> Seen:
    return Seen(
        identity.server_epoch,
        *(identity.engine, identity.build, identity.model, identity.weights, identity.context_tokens),
        identity.settings,
    )
