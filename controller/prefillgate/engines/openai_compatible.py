"""Any server with the OpenAI routes. It has no knob of its own, so a nonce makes each prompt new.

The one witness is `usage.prompt_tokens_details.cached_tokens`, and only if the probe saw it rise on a repeat and fall
with a new nonce: many servers leave it out, send null, or send a 0 that means nothing. Otherwise independence is
unknown and the findings say which flag would give the counter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from prefillgate.core.cells import ColdProof
from prefillgate.engines import capability
from prefillgate.engines.http import HttpLane
from prefillgate.engines.openai_routes import ColdMeans, OpenAIRoutes, model_entries, put_nonce
from prefillgate.engines.probing import NONCE_PLAN, nonce_words

NAME = "openai-compatible"
_COUNTER_FLAGS = "--enable-prompt-tokens-details (vLLM), --enable-cache-report (SGLang)"
# What gives a capability that is missing, for `prefillgate doctor`. Of a family not known only this much can be said.
FLAGS: Mapping[str, str] = {
    capability.FRESH: _COUNTER_FLAGS,
    capability.COUNTER: f"{_COUNTER_FLAGS}, and prefix caching on",
}
WORDS = nonce_words(
    no_counter=(
        "the reply tells no usage.prompt_tokens_details.cached_tokens: independence unknown; vLLM tells it with "
        "--enable-prompt-tokens-details, SGLang with --enable-cache-report"
    ),
    cache_off="prefix caching is off",
)


async def recognise(lane: HttpLane) -> bool:
    """Whether /v1/models lists models there. Raises when nothing can be said: wrong server, key, connection."""
    model_entries(lane.url, await lane.get_json("/v1/models"))
    return True


class OpenAICompatible(OpenAIRoutes):
    """One server with the OpenAI routes, of a family not known. Use as an async context manager."""

    name = NAME
    shares_blocks = False  # not known to; the runner never has two requests in flight
    cold_means: ClassVar[Mapping[str, ColdMeans]] = {ColdProof.NONCE: put_nonce}
    plan = NONCE_PLAN
    words = WORDS
