"""The capability probe of every family: a new prompt cold, its repeat warm, cold again (ENGINES.md section 1).

A family says how its knob works (`prepare`) and in what words it speaks of what is missing (`ProbeWords`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from prefillgate.core.cells import ColdProof
from prefillgate.engines.base import (
    Answer,
    AnswerStatus,
    Body,
    Capabilities,
    CellRequest,
    EngineError,
    TerminalEngineError,
    TransientEngineError,
)
from prefillgate.engines.common import CHAT, COMPLETIONS

FRESH_SHARE = 0.05  # STATISTICS.md section 1: fresh means cached / prompt <= 0.05
TWO_TOKENS: Body = {"max_tokens": 2, "temperature": 0}
TWO_TOKENS_FORCED: Body = {**TWO_TOKENS, "ignore_eos": True}
NONCE_INSTEAD = "--engine openai-compatible on both arms, which puts a nonce on the prompt's first line"
DIRECTLY = "no gateway in the path that strips the prompt's first line or answers from a cache of its own"
NO_PROMPT_TOKENS = "the server tells no prompt tokens, so cached tokens are a share of nothing: independence unknown"
_OTHER_ROUTE = (400, 404, 405, 422)  # how a server says that it has no such route, or no template for it


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One request of the probe: its name in an error, its nonce or salt, and whether the knob forces it cold."""

    name: str
    nonce: str
    proof: str | None


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """How a family is probed: its knob, the routes to try in turn, and what its requests hold beside the prompt.

    A nonce or a salt names the place where a prompt is kept, so the repeat carries the same one and the last step a new
    one; with the cache forbidden altogether, the repeat is what goes without that.
    """

    proof: str
    routes: tuple[str, ...]
    body: Body

    def steps(self, salt: str) -> tuple[ProbeStep, ...]:
        """Cold, its repeat, cold again."""
        named = self.proof != ColdProof.CACHE_OFF
        return (
            ProbeStep("a new prompt" if named else "a cold prompt", f"{salt}-1", self.proof),
            ProbeStep("its repeat", f"{salt}-1", self.proof if named else None),
            ProbeStep(f"a new {self.proof}" if named else "it cold again", f"{salt}-2", self.proof),
        )

    def request(self, step: ProbeStep, path: str, prompt: str, model: str | None) -> CellRequest:
        """What is asked for in one step."""
        body = dict(self.body)
        body |= {"messages": [{"role": "user", "content": prompt}]} if path == CHAT else {"prompt": prompt}
        return CellRequest(path, body, model, 1, step.nonce, step.proof, stream=False)


NONCE_PLAN = ProbePlan(ColdProof.NONCE, (CHAT, COMPLETIONS), TWO_TOKENS)


@dataclass(frozen=True, slots=True)
class ProbeWords:
    """What a family says of a capability that the probe did not see. Each names the flag that would give it."""

    no_counter: str  # a whole sentence
    cache_off: str  # what a dead counter may mean as well: "the prompt cache is off (--no-cache-prompt)"
    knob_ignored: str  # "`cache_prompt: false` is not honoured"
    knob_flag: str  # what would give a knob that is honoured: "a build that honours cache_prompt"
    no_metrics: str | None  # a whole sentence; None: this family has no totals at all


def nonce_words(no_counter: str, cache_off: str, no_metrics: str | None = None) -> ProbeWords:
    """The words of a family without a knob of its own."""
    return ProbeWords(no_counter, cache_off, "a new nonce does not make the prompt new", DIRECTLY, no_metrics)


async def run_probe(
    plan: ProbePlan, prompt: str, salt: str, ask: Callable[[CellRequest], Awaitable[Answer]], model: str | None
) -> list[Answer]:
    """The answers of the three steps, in order.

    Raises `TransientEngineError` or `TerminalEngineError` when a step brings no numbers.
    """
    routes = list(plan.routes)
    answers: list[Answer] = []
    for step in plan.steps(salt):
        answer = await ask(plan.request(step, routes[0], prompt, model))
        while not answers and len(routes) > 1 and _is_refused_route(answer):
            # A base model without a chat template has the other route only.
            routes.pop(0)
            answer = await ask(plan.request(step, routes[0], prompt, model))
        if answer.http_status != 200 or answer.reason not in (None, "EmptyAnswer"):
            raise probe_error(step.name, answer)
        answers.append(answer)
    return answers


def zeros_put_in(steps: Sequence[Answer]) -> list[Answer] | None:
    """The answers with 0 for cached tokens that were not told; None unless the repeat told some and the others none.

    A reading only: whoever uses it must see it confirmed by the server's own totals. Some servers leave a zero out.
    """
    cold, repeat, again = steps
    if not repeat.cached_tokens or (cold.cached_tokens, again.cached_tokens) != (None, None):
        return None
    return [step if step.cached_tokens is not None else replace(step, cached_tokens=0) for step in steps]


def judge_probe(plan: ProbePlan, words: ProbeWords, steps: Sequence[Answer], agree: bool | None) -> Capabilities:
    """What the three answers and the agreement of the server's totals with them (None: not told) show."""
    cold, repeat, again = steps
    findings = [finding for step in steps for finding in step.findings]
    # A zero that is left out, and that nothing confirmed, is an unknown like any other.
    alive = counter_moved(cold, repeat) and zeros_put_in(steps) is None
    if not alive:
        findings.append(_why_dead(words, cold, repeat))
    honoured = alive and told_fresh(cold) and told_fresh(again)
    ignored = _why_ignored(words, (cold, again), agree) if alive and not honoured else None
    if ignored is not None:
        findings.append(ignored)
    if agree is None and words.no_metrics is not None:
        told_nothing = any(step.processed_tokens is step.cached_tokens is None for step in steps)
        nothing = "the replies tell no counts that the server's totals could confirm: no second witness"
        findings.append(nothing if told_nothing else words.no_metrics)
    proof = plan.proof if honoured else None
    told = tuple(dict.fromkeys(findings))
    return Capabilities(alive, proof, agree, told, told_decode_times(steps), knob_ignored=ignored)


def _why_ignored(words: ProbeWords, forced: tuple[Answer, Answer], agree: bool | None) -> str:
    """Which witness showed that the knob does nothing, and what would give proof."""
    cold, again = forced
    totals = {
        True: "and the server's own totals agree",
        False: "though the server's own totals moved by other amounts",
        None: "and the server tells no totals that could confirm it",
    }[agree]
    return (
        f"{words.knob_ignored}: by the replies' own count {cold.cached_tokens} and {again.cached_tokens} of "
        f"{again.prompt_tokens} prompt tokens of two forced requests came from the cache, {totals}; what would give "
        f"proof: {words.knob_flag}"
    )


def _why_dead(words: ProbeWords, cold: Answer, repeat: Answer) -> str:
    if repeat.cached_tokens is None:
        return words.no_counter
    if repeat.prompt_tokens is None:
        return NO_PROMPT_TOKENS
    if cold.cached_tokens is None and repeat.cached_tokens:
        return (
            f"a cold request told no cached tokens and its repeat {repeat.cached_tokens}: whether a zero was left out "
            "shows only in the server's own totals, which do not confirm it; independence unknown"
        )
    if cold.cached_tokens is not None and not told_fresh(cold):
        return (
            f"a prompt that was never sent before was reported with {cold.cached_tokens} of {cold.prompt_tokens} "
            "tokens cached: the counter cannot be trusted; independence unknown"
        )
    return (
        f"an exact repeat was reported with {repeat.cached_tokens} cached tokens: the counter is dead or "
        f"{words.cache_off}; independence unknown"
    )


def _is_refused_route(answer: Answer) -> bool:
    return answer.status is AnswerStatus.REFUSED and answer.http_status in _OTHER_ROUTE


def counter_moved(cold: Answer, repeat: Answer) -> bool:
    """Whether an exact repeat was told with more cached tokens than the cold request, of a known number."""
    if repeat.cached_tokens is None or repeat.prompt_tokens is None:
        return False
    return repeat.cached_tokens > (cold.cached_tokens or 0)


def told_fresh(answer: Answer) -> bool:
    """Whether the reply's own counter claims a fresh prefill."""
    cached, prompt = answer.cached_tokens, answer.prompt_tokens
    return cached is not None and prompt is not None and prompt > 0 and cached <= FRESH_SHARE * prompt


def told_decode_times(steps: Sequence[Answer]) -> bool | None:
    """Whether every reply that held more than one token told its decode time; None where none did."""
    long = [answer for answer in steps if (answer.output_tokens or 0) > 1]
    return all(answer.decode_ms is not None for answer in long) if long else None


def probe_error(step: str, answer: Answer) -> EngineError:
    """The error for a probe request that brought no numbers."""
    words = f"the capability probe got no answer to {step}: {answer.reason}: {answer.detail}"
    again = answer.http_status in (None, 429, 500, 502, 503, 504) and answer.reason != "Tls"
    error = TransientEngineError(words) if again else TerminalEngineError(words)
    error.http_status = None if answer.http_status == 200 else answer.http_status
    error.retry_after_seconds = answer.retry_after_seconds
    return error
