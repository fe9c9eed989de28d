"""Events without the texts in them: in place of each stand its digest and its length.

What a program, a judge or a server said of an answer may quote it, so it goes too. Numbers, outcomes, identities,
declared checks and the words of a person's override stay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from prefillgate.bundle.content import measure_of
from prefillgate.core.journal import (
    CandidateUnavailable,
    CellChecked,
    CellMeasured,
    CheckOutcome,
    Event,
    ExtraAnswer,
    GatewayCompared,
    MeasurementLost,
    Planned,
)

_Detailed = TypeVar("_Detailed", CellMeasured, ExtraAnswer, CandidateUnavailable, MeasurementLost)


def redacted(event: Event) -> Event:
    """The event without any text of a prompt, an answer or a reply."""
    match event:
        case Planned():
            return replace(event, cases=tuple(replace(case, line=None) for case in event.cases))
        case CellMeasured():
            return _detail(event)
        case CandidateUnavailable():
            return _detail(event)
        case MeasurementLost():
            return _detail(event)
        case CellChecked():
            return replace(event, outcomes=_outcomes(event.outcomes))
        case GatewayCompared():
            return replace(
                event,
                direct=_answer(event.direct),
                through=_answer(event.through),
                repeat=None if event.repeat is None else _answer(event.repeat),
                renewed=None if event.renewed is None else _answer(event.renewed),
            )
        case _:
            return event


def _detail(event: _Detailed) -> _Detailed:
    return event if not event.detail else replace(event, detail=hidden(event.detail))


def _outcomes(outcomes: tuple[CheckOutcome, ...]) -> tuple[CheckOutcome, ...]:
    return tuple(replace(one, detail=hidden(one.detail), text=hidden(one.text)) for one in outcomes)


def _answer(answer: ExtraAnswer) -> ExtraAnswer:
    return replace(_detail(answer), outcomes=_outcomes(answer.outcomes), texts=None)


def hidden(text: str) -> str:
    """What stands in place of a text."""
    if not text:
        return ""
    measure = measure_of(text)
    return f"[left out: {measure['characters']} characters, sha256 {measure['sha256']}]"
