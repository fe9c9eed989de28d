"""Several foreign logs read as one, with prompts of one file joined to the answers of another."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from prefillgate.importers.aiperf import begins_with_inputs
from prefillgate.importers.base import Found, Imported, Prompted, Unread
from prefillgate.importers.openai_batch import begins_with_requests
from prefillgate.importers.otel import begins_with_events
from prefillgate.importers.records import Damaged
from prefillgate.importers.replies import known_prompt
from prefillgate.importers.seen import PROMPTS, TEXTS


def asks_only(head: bytes) -> bool:
    """Whether a file begins with requests that answers of another file may name: it is read before them."""
    return begins_with_requests(head) or begins_with_inputs(head) or begins_with_events(head)


@dataclass(slots=True)
class Joiner:
    """Gives an answer its request by `custom_id`. Requests must have come before the answers that name them."""

    asked: dict[str, Prompted] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    requests: int = 0  # requests that stood alone
    texts: bool = False  # a request that stood alone told what came back

    @property
    def unanswered(self) -> int:
        """Requests that stood alone and that no answer named."""
        return self.requests - len(self.answered)

    def gave(self, what: str) -> bool:
        """Whether another input held what an answer's own input does not hold."""
        return bool(self.answered) and (what == PROMPTS or (what == TEXTS and self.texts))

    def join(self, found: Found) -> Found:
        """`found`, an answer with the request that it names; a request is kept for the answers to come."""
        if isinstance(found, Imported):
            return found if found.custom_id is None or found.asked is not None else self._joined(found, found.custom_id)
        if isinstance(found, Prompted):
            self.requests += 1
            self.texts = self.texts or found.texts is not None
            if found.custom_id is not None:
                self.asked.setdefault(found.custom_id, found)
        return found

    def _joined(self, found: Imported, custom_id: str) -> Found:
        request = self.asked.get(custom_id)
        if request is None:
            return found
        self.answered.add(custom_id)
        try:
            known = known_prompt(request.asked, None, found.where)
        except Damaged as damage:
            return Unread(found.where, str(damage))
        texts = found.texts or request.texts
        return replace(
            found, asked=request.asked, texts=texts, line=replace(found.line, cell=replace(found.line.cell, **known))
        )
