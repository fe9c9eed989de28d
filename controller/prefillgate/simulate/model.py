"""The simulated model server without its sockets: admits generations, computes them, tells the truth file.

A generation runs as a task of its own and hands its events over a queue, so it goes on when the client
has left: a streamed one until its next token after the prefill, another one to its end.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable

from prefillgate.simulate.answers import Answers
from prefillgate.simulate.cache import Sequence, Slot
from prefillgate.simulate.epoch import Epoch, begin_epoch
from prefillgate.simulate.faults import Faults, Stall, Turn
from prefillgate.simulate.jobs import Began, Ended, Job, Plan
from prefillgate.simulate.planning import Planner
from prefillgate.simulate.reporting import Figures
from prefillgate.simulate.request import GenerationRequest, Refused
from prefillgate.simulate.settings import Settings
from prefillgate.simulate.tokens import salted, token_id, tokenize
from prefillgate.simulate.truth import TruthFile, TruthLine
from prefillgate.simulate.wire import Token

OTHERS = Figures(prompt_tokens=120, cached_tokens=0, prefill_ms=500.0, output_tokens=30, decode_ms=900.0)
_SHORTEST_SLEEP_SECONDS = 0.001


class SimulatedModel:
    """One server process. Every method is called from one event loop."""

    def __init__(self, settings: Settings, faults: Faults, answers: Answers) -> None:
        self.settings = settings
        self.faults = faults
        self.epoch: Epoch = self._new_epoch(None)
        self._planner = Planner(settings, faults, answers)
        self._truth = TruthFile(settings.truth)
        self._arrivals = self._counted = 0
        self._admission = asyncio.Lock()
        self._released = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def _new_epoch(self, before: Epoch | None) -> Epoch:
        keep = before.cache if before is not None and self.faults.planted("restart-keeps-cache") else None
        epoch = begin_epoch(self.settings, self.faults.last("load-seconds", float) or 0.0, keep)
        epoch.others = self.faults.last("always-busy", int) or 0
        return epoch

    def next_turn(self, prompt: str) -> Turn:
        """Number an arriving generation."""
        self._arrivals += 1
        counted = self.settings.count_match in prompt
        self._counted += counted
        return Turn(self._arrivals, self._counted if counted else None, prompt)

    def line(self, turn: Turn, path: str) -> TruthLine:
        """A truth line with what is known at arrival."""
        digest = hashlib.sha256(turn.prompt.encode("utf-8", "surrogatepass")).hexdigest()
        return TruthLine(turn.arrival, path, self.epoch.marker, time.time(), digest, ordinal=turn.ordinal)

    def record(self, line: TruthLine) -> None:
        """Write a truth line, now."""
        line.ended_at = time.time()
        self._truth.write(line)

    def sync(self) -> None:
        """Make sure what was recorded survives the end of this process."""
        self._truth.sync()

    def submit(self, request: GenerationRequest, turn: Turn, gone: Callable[[], bool]) -> Job:
        """Start a generation. Raises Refused when the prompt does not fit into a slot."""
        tokens = tokenize(request.prompt)
        if request.cache_salt is not None and self._honours_salt(turn):
            tokens = salted(tokens, request.cache_salt)
        line = self.line(turn, request.route)
        limit = self.settings.context_tokens
        if len(tokens) >= limit:
            line.status, line.delivered, line.prompt_tokens = 400, "exceed_context_size", len(tokens)
            self.record(line)
            words = f"request ({len(tokens)} tokens) exceeds the available context size ({limit} tokens)"
            extra = {"n_prompt_tokens": len(tokens), "n_ctx": limit}
            raise Refused(400, "exceed_context_size_error", f"{words}, try increasing it", **extra)
        job = Job(request, turn, tokens, line, gone, self._break(turn))
        task = asyncio.get_running_loop().create_task(self._run(job))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._finished(done, job))
        return job

    def _honours_salt(self, turn: Turn) -> bool:
        deaf = self.faults.hit("ignore-cache-prompt", turn) or self.faults.hit("external-cache", turn)
        return self.settings.dialect.salted and not deaf

    def _finished(self, task: asyncio.Task[None], job: Job) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            job.events.put_nowait(error)

    def _break(self, turn: Turn) -> str | None:
        if turn.ordinal is not None and turn.ordinal == self.faults.last("die-after", int):
            return "die-after"
        return next((n for n in ("cut-stream", "error-in-stream", "malformed") if self.faults.hit(n, turn)), None)

    async def close(self) -> None:
        """Stop what runs and close the truth file."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._truth.close()

    async def _run(self, job: Job) -> None:
        plan = await self._admit(job)
        others = 1 if self.faults.hit("other-traffic", job.turn) else 0
        plan.epoch.others += others
        try:
            await self._prefill(job, plan)
            complete = await self._decode(job, plan)
        finally:
            plan.epoch.others -= others
            self._release(plan.slots)
        if others:
            plan.epoch.totals.prefilled(OTHERS, inflated=False)
            plan.epoch.totals.decoded(OTHERS, 1)
        if job.breaks is None:
            self._tell(job, plan, "complete" if complete else "abandoned")
        self._maybe_restart(job.turn, plan.epoch)
        job.events.put_nowait(Ended(plan.outputs, plan.report))

    async def _admit(self, job: Job) -> Plan:
        self.epoch.waiting += 1
        queued_in = self.epoch
        try:
            async with self._admission:
                while len(self.epoch.cache.free()) < job.request.n:
                    self._released.clear()
                    await self._released.wait()
                epoch = self.epoch
                placement = epoch.cache.place(job.tokens, self._planner.reads_cache(job))
                extra = epoch.cache.take_extra(job.request.n - 1)
        finally:
            queued_in.waiting -= 1
        job.line.epoch = epoch.marker
        return self._planner.plan(job, epoch, placement, (placement.slot, *extra))

    def _release(self, slots: tuple[Slot, ...]) -> None:
        for slot in slots:
            slot.busy = False
        self._released.set()

    async def _prefill(self, job: Job, plan: Plan) -> None:
        for stall in self.faults.all("stall", Stall):
            if stall.ordinal == job.turn.ordinal:
                await asyncio.sleep(stall.seconds)
        await self._pass(plan.figures.prefill_ms)
        for slot in plan.slots:
            plan.epoch.cache.write(slot, Sequence(job.tokens, len(job.tokens), plan.prefill))
        plan.epoch.totals.prefilled(plan.figures, inflated=self.faults.hit("metrics-inflated", job.turn))
        plan.epoch.totals.external += plan.figures.cached_tokens * self.faults.hit("external-cache", job.turn)
        if job.breaks is not None:
            self._tell(job, plan, job.breaks)
        job.events.put_nowait(Began(plan.scribe))

    async def _pass(self, milliseconds: float) -> None:
        seconds = milliseconds / 1000 * self.settings.speed.time_scale
        if seconds >= _SHORTEST_SLEEP_SECONDS:
            await asyncio.sleep(seconds)

    async def _decode(self, job: Job, plan: Plan) -> bool:
        """Hand out the tokens, one of each result in turn. False when the client left and it stopped."""
        due = time.monotonic()
        seen: set[tuple[int, str]] = set()
        for count in range(1, max(len(output.pieces) for output in plan.outputs) + 1):
            for index, output in enumerate(plan.outputs):
                if count <= len(output.pieces):
                    piece = output.pieces[count - 1]
                    opens = (index, piece.channel) not in seen
                    job.events.put_nowait(Token(index, piece, count, len(output.pieces), opens))
                    seen.add((index, piece.channel))
            due += plan.step_ms / 1000 * self.settings.speed.time_scale
            if (ahead := due - time.monotonic()) > _SHORTEST_SLEEP_SECONDS:
                await asyncio.sleep(ahead)
            if job.request.stream and job.gone():
                plan.epoch.totals.decoded(_shortened(plan.figures, count), job.request.n)
                return False
        for slot, output in zip(plan.slots, plan.outputs, strict=True):
            said = tuple(token_id(piece.text) for piece in output.pieces)
            plan.epoch.cache.write(slot, Sequence(job.tokens + said, len(job.tokens), plan.prefill))
        plan.epoch.totals.decoded(plan.figures, job.request.n)
        return True

    def _tell(self, job: Job, plan: Plan, delivered: str) -> None:
        line, request, figures = job.line, job.request, plan.figures
        whole = delivered == "complete"
        line.id, line.n, line.stream = plan.scribe.identifier, request.n, request.stream
        line.prompt_tokens, line.cached_tokens = figures.prompt_tokens, figures.cached_tokens
        line.processed_tokens = figures.processed_tokens
        line.output_tokens = figures.output_tokens if whole else None
        line.prefill, line.fresh = plan.prefill.number, plan.fresh
        line.state = "bad" if plan.prefill.bad else "good"
        line.outcome = ("bad" if plan.bad else "good") if whole else None
        line.cache_prompt = request.cache_prompt
        if self.settings.dialect.salted:
            line.knob_honoured = request.cache_salt is None or self._honours_salt(job.turn)
        else:
            line.knob_honoured = request.cache_prompt or not self._planner.reads_cache(job)
        line.temperature, line.seed = request.temperature, request.seed
        line.finish_reason, line.text = plan.outputs[0].finish_reason, plan.outputs[0].text("content")
        line.prefill_ms, line.decode_ms = figures.prefill_ms, figures.decode_ms if whole else None
        line.delivered, line.lies = delivered, list(plan.report.lies)
        line.reported = {"cached_tokens": plan.report.cached, "processed_tokens": plan.report.processed}
        self.record(line)

    def _maybe_restart(self, turn: Turn, epoch: Epoch) -> None:
        every = self.faults.last("restart-every", int)
        if every is not None and turn.ordinal is not None and turn.ordinal % every == 0 and epoch is self.epoch:
            self.epoch = self._new_epoch(epoch)
            self._released.set()


def _shortened(figures: Figures, count: int) -> Figures:
    share = min(count, figures.output_tokens) / figures.output_tokens
    return Figures(
        figures.prompt_tokens,
        figures.cached_tokens,
        figures.prefill_ms,
        min(count, figures.output_tokens),
        figures.decode_ms * share,
    )
