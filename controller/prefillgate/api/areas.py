"""What a difference between two profiles may belong to: the words of files and resources, and those of the core."""

from __future__ import annotations

from typing import Literal

Area = Literal["LayerPlacement", "DraftHead", "KvCache", "Weights", "Build", "Other"]

AREAS = {
    "LayerPlacement": "layer placement",
    "DraftHead": "draft head",
    "KvCache": "KV cache",
    "Weights": "weights",
    "Build": "build",
    "Other": "other",
}
