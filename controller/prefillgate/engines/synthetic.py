"""Prompts of the capability probe: new each time, no case, and long enough for two cache blocks."""

from __future__ import annotations

import random

_WORDS = (
    "river",
    "stone",
    "cloud",
    "green",
    "table",
    "small",
    "house",
    "light",
    "paper",
    "winter",
    "garden",
    "open",
    "door",
    "water",
    "blue",
    "road",
    "music",
    "fire",
    "bread",
    "silver",
    "letter",
    "quiet",
    "morning",
    "horse",
    "field",
    "window",
    "yellow",
    "market",
    "bridge",
    "island",
    "summer",
    "glass",
    "wheel",
    "forest",
)


def synthetic_prompt(salt: str, words: int) -> str:
    """A prompt of about `words` tokens that no other salt gives, from its first words on."""
    chosen = random.Random(salt)
    return "List: " + " ".join(chosen.choice(_WORDS) for _ in range(words))
