"""ik_llama.cpp, a fork of llama.cpp's server from before `cache_n`: its knob and routes are those of an older build.

Witness 1: prompt tokens less `timings.prompt_n`. Its /props tells no build and no marker of a life, so the start that
heads /metrics marks one; its /slots tells a state instead of `is_processing` and nothing of a draft.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from prefillgate.engines import capability, llama_cpp
from prefillgate.engines.base import TerminalEngineError
from prefillgate.engines.http import HttpLane, HttpStatusError
from prefillgate.engines.openai_routes import as_object

NAME = "ik_llama.cpp"
WORDS = replace(
    llama_cpp.WORDS,
    no_counter="the replies tell no timings.prompt_n beside their prompt tokens: independence unknown; builds from "
    "August 2025 on tell both",
)
FLAGS: Mapping[str, str] = {
    **{name: flag for name, flag in llama_cpp.FLAGS.items() if name not in (capability.BUILD, capability.SPECULATION)},
    capability.COUNTER: "a build whose replies tell timings.prompt_n",
    capability.EPOCH: "--metrics",
}


async def recognise(lane: HttpLane) -> bool:
    """Whether the fork answers there: /props with llama-server's settings, and a model's name, which only it tells."""
    try:
        props = as_object(await lane.get_json("/props"))
    except HttpStatusError as error:
        if error.status in (401, 403):
            raise
        return False
    except TerminalEngineError:
        return False
    return "default_generation_settings" in props and "model_name" in props


class IkLlamaCpp(llama_cpp.LlamaCpp):
    """One server of ik_llama.cpp. Use as an async context manager."""

    name = NAME
    words = WORDS
