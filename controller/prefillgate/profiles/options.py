"""How an engine's options are called: every spelling of one setting, the area it belongs to, how it takes values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prefillgate.profiles.model import BUILD, DRAFT, KV, OTHER, PLACEMENT, WEIGHTS

ONE = "one"  # one value; the last one given counts
SWITCH = "switch"  # no value; on, or off in its negated form
MANY = "many"  # every word up to the next flag
LIST = "list"  # one value each time; all of them count, in order
JSON = "json"  # one value, an object whose fields are settings; fields may be given one by one

_LETTERS = {"p": PLACEMENT, "d": DRAFT, "k": KV, "w": WEIGHTS, "b": BUILD, "o": OTHER}


@dataclass(frozen=True, slots=True)
class Option:
    """One setting of an engine. `flags` are its spellings, `off` those that negate it, `env` its variable."""

    name: str
    words: str
    area: str
    takes: str = ONE
    flags: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """The options of an engine that are known by more than their one long flag; any other flag is taken as it stands.

    `switches` tells long flags that take no value, `areas` (pattern, area) where an unlisted one belongs.
    """

    engine: str
    options: tuple[Option, ...]
    switches: re.Pattern[str]
    areas: tuple[tuple[re.Pattern[str], str], ...]
    by_flag: Mapping[str, tuple[Option, bool]] = field(default_factory=dict)
    by_env: Mapping[str, tuple[Option, bool]] = field(default_factory=dict)
    by_name: Mapping[str, Option] = field(default_factory=dict)

    def find(self, flag: str) -> tuple[Option, bool] | None:
        """The option of a flag and whether it stands in its negated form; None: not listed."""
        return self.by_flag.get(flag)

    def area(self, name: str) -> str:
        """Where a setting belongs that is not listed."""
        known = self.by_name.get(name)
        if known is not None:
            return known.area
        return next((area for pattern, area in self.areas if pattern.search(name)), OTHER)


def table(engine: str, rows: str, switches: str, areas: Iterable[tuple[str, str]]) -> Table:
    """Read a table, a row a line: `area takes | name | words | flags | negated flags | variables`."""
    options = tuple(_option(line) for line in rows.strip().splitlines())
    by_flag = {flag: (option, False) for option in options for flag in option.flags}
    by_flag |= {flag: (option, True) for option in options for flag in option.off}
    by_env = {name: (option, False) for option in options for name in option.env}
    compiled = tuple((re.compile(pattern), area) for pattern, area in areas)
    return Table(
        engine, options, re.compile(switches), compiled, by_flag, by_env, {each.name: each for each in options}
    )


def _option(line: str) -> Option:
    kind, name, words, flags, off, env = (part.strip() for part in (line + "|||||").split("|")[:6])
    area, takes = kind.split()
    return Option(
        name, words or name, _LETTERS[area], takes, tuple(flags.split()), tuple(off.split()), tuple(env.split())
    )
