"""How profiles are read: a mark of all that makes other digests of the same pod template."""

from __future__ import annotations

import hashlib
import json

from prefillgate.profiles.sources import Sources

READER = 3  # raised with every change by which this program reads another digest out of the same template
_CHECKED = "how profiles are read"


def reading_of(sources: Sources) -> str:
    """The mark: names that are ignored or redacted, the engine that was told, the key of the seal, the reader."""
    seal = sources.seal
    told = [READER, sorted(sources.ignored), sorted(seal.more), sources.engine, seal.digest(_CHECKED)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
