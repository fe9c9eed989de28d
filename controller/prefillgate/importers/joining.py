"""Several foreign logs read as one, with prompts of one file joined to the answers of another."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from prefillgate.importers.aiperf import begins_with_inputs
from prefillgate.importers.base import Asked, Found, Imported, Prompted, Unread
from prefillgate.importers.openai_batch import begins_with_requests
from prefillgate.importers.otel import begins_with_events
from prefillgate.importers.records import Damaged
from prefillgate.importers.replies import known_prompt


def asks_only(head: bytes) -> bool:
    """Whether a file begins with requests that answers of another file may name: it is read before them."""
    return begins_with_requests(head) or begins_with_inputs(head) or begins_with_events(head)


@dataclass(slots=True)
class Joiner:
    """Gives an answer its request by `custom_id`. Requests must have come before the answers that name them."""

    asked: dict[str, Asked] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    requests: int = 0  # requests that stood alone

    @property
    def unanswered(self) -> int:
        """Requests that stood alone and that no answer named."""
        return self.requests - len(self.answered)

    def join(self, found: Found) -> Found:
        """`found`, an answer with the request that it names; a request is kept for the answers to come."""
        if isinstance(found, Imported):
            return found if found.custom_id is None or found.asked is not None else self._joined(found, found.custom_id)
        if isinstance(found, Prompted):
            self.requests += 1
            if found.custom_id is not None:
                self.asked.setdefault(found.custom_id, found.asked)
        return found

    def _joined(self, found: Imported, custom_id: str) -> Found:
        asked = self.asked.get(custom_id)
        if asked is None:
            return found
        self.answered.add(custom_id)
        try:
            known = known_prompt(asked, None, found.where)
        except Damaged as damage:
            return Unread(found.where, str(damage))
        return replace(found, asked=asked, line=replace(found.line, cell=replace(found.line.cell, **known)))
