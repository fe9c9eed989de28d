"""What is allowed in a replay set and still unwise: warnings, fed case by case so that memory stays flat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from prefillgate.api.replay_set import Case, prompt_digest

POPULATION_PROMPTS = 48  # STATISTICS.md section 2: fewer speak only about this set
PAIR_TOKENS = 32  # STATISTICS.md section 8: shorter outputs give no throughput pair
MAX_NAMED = 5
KNOBS = ("cache_prompt", "cache_salt", "extra_key", "decoder_input_details")


@dataclass(slots=True)
class SetLint:
    """Feed every case to `add`, then read `warnings`."""

    cases: int = 0
    found: dict[str, list[str]] = field(default_factory=dict)
    prompts: dict[bytes, str] = field(default_factory=dict)
    canaries: dict[str, str] = field(default_factory=dict)

    def add(self, case: Case) -> None:
        """Take note of one case."""
        self.cases += 1
        for kind in _remarks(case):
            self.found.setdefault(kind, []).append(case.case_id)
        first = self.prompts.setdefault(prompt_digest(case.body), case.case_id)
        if first != case.case_id:
            self.found.setdefault("same prompt", []).append(f"{case.case_id} (as {first})")
        if case.canary is not None:
            self.canaries[case.case_id] = case.canary

    def warnings(self, healthy_rate_known: bool = False) -> tuple[str, ...]:
        """One sentence for each kind of remark, naming the first cases it is about.

        Sampled cases are no remark where the rate at which a healthy server fails on them is known.
        """
        return tuple(self._sentences(("sampled",) if healthy_rate_known else ()))

    def _sentences(self, left_out: tuple[str, ...]) -> Iterator[str]:
        if self.cases and self.cases < POPULATION_PROMPTS:
            yield (
                f"{self.cases} prompts: a verdict speaks about this set only; for a claim about prompts like these use "
                f"at least {POPULATION_PROMPTS}"
            )
        for kind, sentence in _SENTENCES.items():
            cases = self.found.get(kind, [])
            if cases and kind not in left_out:
                named = ", ".join(cases[:MAX_NAMED]) + (", ..." if len(cases) > MAX_NAMED else "")
                yield f"{len(cases)} of {self.cases} cases {sentence}: {named}"
        if self.cases > 1 and not self.canaries:
            yield (
                "no case carries a canary (prefillgate.canary: a string that stands in its prompt alone), so text of "
                "one prompt in the answer to another may go unseen"
            )


_SENTENCES = {
    "sampled": (
        "are sampled (temperature above 0 or not set), so healthy outputs vary and some may fail by chance; measure "
        "how many (prefillgate replayset try) and write that into the policy as healthyRateBasisPoints"
    ),
    "no limit": "set no token limit, so a loop may run to the end of the context",
    "short": f"allow fewer than {PAIR_TOKENS} output tokens and give no throughput pair",
    "no checks": "have no check and no expected answer, so the policy's or the default checks judge them",
    "same prompt": "repeat the prompt of another case and may be copies of its prefill",
    "tokens": "give the prompt as token numbers, so no nonce can be put into it",
    "several": "ask for several choices at once (n above 1); the gate asks for one",
    "seed": "set a seed, which the gate replaces in every round",
    "knob": f"set a cache knob ({', '.join(KNOBS)}), which goes out as written unless the engine uses it itself",
    "canary": "carry a canary that is not in their prompt, so it can never leak from there",
    "nul": "hold a NUL character in their text",
}


def _remarks(case: Case) -> Iterator[str]:
    body = case.body
    if not case.greedy:
        yield "sampled"
    if case.max_tokens is None:
        yield "no limit"
    elif case.max_tokens < PAIR_TOKENS:
        yield "short"
    if case.expect is None and not case.checks:
        yield "no checks"
    if isinstance(body.get("prompt"), list):
        yield "tokens"
    if body.get("n") not in (None, 1):
        yield "several"
    if body.get("seed") is not None:
        yield "seed"
    if any(knob in body for knob in KNOBS):
        yield "knob"
    text = case.prompt_text
    if case.canary is not None and case.canary not in text:
        yield "canary"
    if "\0" in text:
        yield "nul"
