"""Several foreign logs read as one, with prompts of one file joined to the answers of another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from prefillgate.importers.base import Asked, Format, Found, Imported, Prompted, Unread
from prefillgate.importers.openai_batch import begins_with_requests
from prefillgate.importers.records import Damaged
from prefillgate.importers.replies import known_prompt
from prefillgate.importers.source import Source


@dataclass(slots=True)
class Joiner:
    """Gives an answer its request by `custom_id`. Requests must have come before the answers that name them."""

    asked: dict[str, Asked] = field(default_factory=dict)

    def join(self, found: Found) -> Found:
        """`found`, an answer with the request that it names; a request is kept for the answers to come."""
        if isinstance(found, Prompted):
            if found.custom_id is not None:
                self.asked.setdefault(found.custom_id, found.asked)
            return found
        if not isinstance(found, Imported) or found.asked is not None or found.custom_id not in self.asked:
            return found
        asked = self.asked[found.custom_id]
        try:
            known = known_prompt(asked, None, found.where)
        except Damaged as damage:
            return Unread(found.where, str(damage))
        cell = replace(found.line.cell, **known)
        return replace(found, asked=asked, line=replace(found.line, cell=cell))


def read_together(inputs: Iterable[tuple[Source, Format]]) -> Iterator[Found]:
    """Everything in the inputs. Those that begin with requests alone come first, whatever their order."""
    joiner = Joiner()
    for source, each in sorted(inputs, key=lambda pair: not begins_with_requests(pair[0].head())):
        for found in each.read(source):
            yield joiner.join(found)
