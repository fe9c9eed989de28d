"""Which lines an object concerns, without looking at them all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Thing = tuple[str, str]  # kind, key
Labels = Mapping[str, str]


@dataclass(slots=True)
class Index:
    """Who refers to what, both ways. Whoever refers is known by a key."""

    _of: dict[str, set[Thing]] = field(default_factory=dict)
    _to: dict[Thing, set[str]] = field(default_factory=dict)

    def put(self, who: str, things: Iterable[Thing]) -> None:
        """What `who` refers to, in the place of what it referred to before."""
        self.drop(who)
        self.add(who, things)

    def add(self, who: str, things: Iterable[Thing]) -> None:
        """What it refers to as well."""
        known = self._of.setdefault(who, set())
        for thing in things:
            known.add(thing)
            self._to.setdefault(thing, set()).add(who)

    def drop(self, who: str) -> None:
        """It is no more."""
        for thing in self._of.pop(who, ()):
            those = self._to[thing]
            those.discard(who)
            if not those:
                del self._to[thing]

    def who(self, thing: Thing) -> set[str]:
        """Those that refer to it."""
        return self._to.get(thing, set())

    def things(self) -> set[Thing]:
        """All that anybody refers to."""
        return set(self._to)

    def things_of(self, who: str) -> set[Thing]:
        """All that one refers to."""
        return self._of.get(who, set())


def selects(selector: Labels, labels: Labels) -> bool:
    """Whether an object with these labels is meant."""
    return all(labels.get(name) == value for name, value in selector.items())
