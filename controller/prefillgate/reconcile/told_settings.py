"""A profile as its settings are written down: in the spec of a rollout, or as the promoted one in a status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from prefillgate.api.areas import AREAS
from prefillgate.profiles import Recorded, Setting, Told, each_in_words, shown_profile
from prefillgate.reconcile.answer import LONGEST_LINE, LONGEST_NAME, LONGEST_SIDE, bounded

MOST_SETTINGS, MOST_DIFFERENCES = 256, 64
_KIND_OF_AREA = {words: kind for kind, words in AREAS.items()}


class Written(Protocol):
    """One setting as it is written down."""

    @property
    def area(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str: ...


def settings_told(settings: Iterable[Setting]) -> list[dict[str, str]]:
    """Settings as they stand on the wire, by what a person calls them; the first 256."""
    return [
        {
            "area": _KIND_OF_AREA.get(each.area, "Other"),
            "name": bounded(each.words, LONGEST_NAME) or "unnamed",
            "value": bounded(each.value, LONGEST_SIDE),
        }
        for each in list(settings)[:MOST_SETTINGS]
    ]


def wire_settings(settings: Iterable[Written]) -> list[dict[str, Any]]:
    """Settings of a spec or a status as they stand on the wire."""
    return [{"area": each.area, "name": each.name, "value": each.value} for each in settings]


def as_written(settings: Iterable[dict[str, str]]) -> Recorded:
    """A profile of which no more is known than that, to be compared with another one of the kind."""
    return shown_profile((AREAS[each["area"]], each["name"], each["value"]) for each in settings)


def differences_in_words(baseline: Told, candidate: Told) -> list[str]:
    """What differs, each as `tensor split 3,1 -> 2,2`; where there are more than 64 the last one says so."""
    told = [bounded(each, LONGEST_LINE) for each in each_in_words(baseline, candidate)]
    more = [f"and {len(told) - MOST_DIFFERENCES + 1} more"] if len(told) > MOST_DIFFERENCES else []
    return [*told[: MOST_DIFFERENCES - len(more)], *more]
