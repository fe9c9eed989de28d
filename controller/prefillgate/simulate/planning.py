"""Settles a generation's fate once its place in the cache is known: state, texts, figures, report."""

from __future__ import annotations

import math
import time

from prefillgate.simulate.answers import Answers
from prefillgate.simulate.cache import Placement, Prefill, Slot
from prefillgate.simulate.composing import compose, planted_reply
from prefillgate.simulate.dice import Dice
from prefillgate.simulate.epoch import Epoch
from prefillgate.simulate.faults import Faults
from prefillgate.simulate.jobs import Job, Plan
from prefillgate.simulate.plant import COPY_SHARE, Outcome, draws_bad, outcome
from prefillgate.simulate.reporting import Figures, report
from prefillgate.simulate.settings import Dialect, Settings
from prefillgate.simulate.timing import Pace, pace
from prefillgate.simulate.wire import Output, Scribe


class Planner:
    """Holds what plans need of the past: the count of prefills and the conversation heard last."""

    def __init__(self, settings: Settings, faults: Faults, answers: Answers) -> None:
        self._settings = settings
        self._faults = faults
        self._answers = answers
        self._dice = Dice(settings.seed)
        self._prefills = 0
        self._started = time.monotonic()
        self._overheard: tuple[str, str] = ("", "")  # prompt, answer

    def reads_cache(self, job: Job) -> bool:
        """Whether the request may find something in the cache; only an honoured knob forbids it."""
        deaf = self._settings.dialect is not Dialect.LLAMA or self._faults.hit("ignore-cache-prompt", job.turn)
        return job.request.cache_prompt or deaf

    def plan(self, job: Job, epoch: Epoch, placement: Placement, slots: tuple[Slot, ...]) -> Plan:
        """The plan of a generation placed in `slots`. Counts a prefill when it is a real one."""
        total = len(job.tokens)
        prefill = self._prefill(job, epoch, placement)
        fresh = prefill is not placement.parent
        fate = outcome(self._faults, job.turn, prefill, warm=not fresh, greedy=job.request.temperature <= 0)
        results = [self._result(job, fate, index) for index in range(job.request.n)]
        speed = pace(self._settings.speed, self._faults, job.turn, total, placement.cached)
        figures = self._figures(job, placement, speed, results[0][1])
        outputs = tuple(output for output, _ in results)
        self._overheard = (job.request.prompt, outputs[0].text("content"))
        return Plan(
            epoch=epoch,
            placement=placement,
            slots=slots,
            prefill=prefill,
            fresh=fresh,
            bad=fate.bad,
            outputs=outputs,
            figures=figures,
            step_ms=speed.step_ms,
            scribe=self._scribe(job, epoch, placement),
            report=report(figures, self._faults, job.turn),
        )

    def _prefill(self, job: Job, epoch: Epoch, placement: Placement) -> Prefill:
        if placement.parent is not None and placement.cached >= COPY_SHARE * len(job.tokens):
            return placement.parent
        self._prefills += 1
        bad = draws_bad(self._faults, job.turn, self._prefills, time.monotonic() - self._started)
        return Prefill(self._prefills, bad, epoch.marker)

    def _result(self, job: Job, fate: Outcome, index: int) -> tuple[Output, int]:
        overheard = ""
        if self._overheard[0] and self._overheard[0] != job.request.prompt:
            overheard = f"{self._overheard[1]} {self._overheard[0][:160]}".replace("<|", "<")
        asked = job.request.asked(fate.bad, index, fate.variant)
        reply = planted_reply(self._answers, asked, self._faults, job.turn, overheard)
        output, tokens = compose(job.request, reply)
        if self._faults.hit("no-finish", job.turn):
            output = Output(output.pieces, None)
        return output, tokens

    def _figures(self, job: Job, placement: Placement, speed: Pace, output_tokens: int) -> Figures:
        acceptance = self._faults.last("draft", float)
        drafted = output_tokens if acceptance is not None else 0
        return Figures(
            prompt_tokens=len(job.tokens),
            cached_tokens=placement.cached,
            prefill_ms=speed.prefill_ms,
            output_tokens=output_tokens,
            decode_ms=round(speed.step_ms * (output_tokens - 1), 3),
            draft_tokens=drafted,
            draft_accepted_tokens=math.floor(drafted * (acceptance or 0.0)),
        )

    def _scribe(self, job: Job, epoch: Epoch, placement: Placement) -> Scribe:
        return Scribe(
            settings=self._settings,
            request=job.request,
            identifier="chatcmpl-" + self._dice.letters(32, "id", epoch.marker, job.turn.arrival),
            created=int(time.time()),
            slot=placement.slot.number,
            prompt_tokens=len(job.tokens),
        )
