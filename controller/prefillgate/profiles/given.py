"""Settings out of an engine's arguments, its variables and its config files, every spelling of one under one name.

A flag counts more than a variable and a config file, a later flag more than an earlier one. What is not known is kept
under the name it was given. Nothing here is sealed yet: values go through `Sealing` in `pod.py`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prefillgate.profiles.commands import has_blank
from prefillgate.profiles.model import OFF, ON
from prefillgate.profiles.options import JSON, LIST, MANY, ONE, SWITCH, Option, Table
from prefillgate.profiles.shell import Word, put_into

_NUMBER = re.compile(r"-(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?([,:]-?\d+(\.\d+)?)*")
_TRUE = {"true", "1", "on", "enabled", "yes"}
_FALSE = {"false", "0", "off", "disabled", "no"}
DEEPEST, MOST_FIELDS, LONGEST_JSON = 12, 256, 65_536
POSITIONALS = "arguments"


@dataclass(frozen=True, slots=True)
class Given:
    """One setting as it was given: `values` are its words, more than one where the option takes or keeps several."""

    name: str
    words: str
    area: str
    values: tuple[str, ...]
    origin: str
    takes: str = ONE


@dataclass(slots=True)
class Collected:
    """Settings by name. Of a switch and of single values the last one stays; `notes` say what was given in vain."""

    table: Table
    credential: Callable[[str], bool] = lambda name: False  # whether a flag of that name holds one
    found: dict[str, Given] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, given: Given) -> None:
        """One more, which counts more than those before."""
        known = self.found.get(given.name)
        if known is not None and known.origin.startswith("-") and given.origin.startswith("-"):
            if given.takes == LIST:
                given = Given(given.name, given.words, given.area, known.values + given.values, given.origin, LIST)
            else:
                self.note(f"{given.origin} is given more than once; the last one counts")
        elif known is not None and known.origin != given.origin:
            self.note(f"{given.words}: {given.origin} counts, {known.origin} does not")
        self.found[given.name] = given

    def note(self, text: str) -> None:
        """Something to say of it, once."""
        if text not in self.notes:
            self.notes.append(text)


def read_arguments(words: list[str], into: Collected) -> None:
    """Every flag of `words` with its values; what belongs to none is kept as `arguments`, for vLLM the first as its
    model."""
    rest: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            rest += words[at:]
            break
        if is_flag(word):
            at = _flag(words, at, into)
        else:
            rest.append(word)
    if rest and into.table.engine == "vllm" and "weights" not in into.found:
        into.add(Given("weights", "weights", "weights", (rest.pop(0),), "the model argument"))
    if rest:
        into.add(Given(POSITIONALS, POSITIONALS, "other", tuple(rest), "arguments", MANY))


def is_flag(word: str) -> bool:
    """Whether a word is a flag: it begins with a hyphen, its name has no blank (a key in PEM has), it is no number."""
    named = len(word) > 1 and word[0] == "-" and not has_blank(word.partition("=")[0])
    return named and _NUMBER.fullmatch(word) is None


def _flag(words: list[str], at: int, into: Collected) -> int:
    """Read the flag before `at` and return where the next word is."""
    flag, equals, value = _split(words[at - 1], into.table)
    inline = [value] if equals else None
    found = into.table.find(flag)
    if found is None:
        return _unlisted(flag, inline, words, at, into)
    option, negated = found
    takes = SWITCH if negated else option.takes
    values, at = _values(takes, inline, words, at, into)
    _add(option, negated, values, flag, into)
    return at


def _split(word: str, table: Table) -> tuple[str, str, str]:
    """Flag, `=` and value of a word; underscores in a long flag are hyphens, `-O3` is `-O=3`."""
    flag, equals, value = word.partition("=")
    if flag.startswith("--"):
        name, dot, inner = flag.partition(".")
        flag = name.replace("_", "-") + dot + inner
    elif not equals and table.find(flag) is None and table.engine == "vllm" and re.fullmatch(r"-O\d", flag):
        return "-O", "=", flag[2:]
    return flag, equals, Word(value, put_into(word))


def _values(takes: str, inline: list[str] | None, words: list[str], at: int, into: Collected) -> tuple[list[str], int]:
    if inline is not None:
        return inline, at
    if takes == SWITCH:
        literal = at < len(words) and words[at].lower() in _TRUE | _FALSE
        return ([words[at]], at + 1) if literal else ([], at)
    end = at
    most = len(words) if takes == MANY else at + 1
    while end < min(most, len(words)) and not is_flag(words[end]) and words[end] != "--":
        end += 1
    if end == at < len(words) and _odd_value(words[at], takes, words[at - 1], into):
        end += 1
    return words[at:end], end


def _odd_value(word: str, takes: str, flag: str, into: Collected) -> bool:
    """Whether a word that looks like a flag is the value of the one before it: a key may begin with a hyphen."""
    if word == "--" or into.table.find(_split(word, into.table)[0]) is not None:
        return False
    return into.credential(flag) or (takes in (ONE, LIST, JSON) and not word.startswith("--"))


def _unlisted(flag: str, inline: list[str] | None, words: list[str], at: int, into: Collected) -> int:
    """A flag that no table knows: its words are all that come up to the next flag, unless it reads as a switch."""
    head, dot, inner = flag.partition(".")
    owner = into.table.find(head) if dot else None
    takes = SWITCH if owner is None and into.table.switches.match(flag) else ONE if owner else MANY
    values, at = _values(takes, inline, words, at, into)
    if owner is not None:
        option = owner[0]
        known = into.table.by_name.get(f"{option.name}.{inner}")
        name = f"{option.name}.{inner}"
        words_of = known.words if known is not None else f"{option.words} {inner}"
        into.add(Given(name, words_of, option.area, tuple(values) or (ON,), flag))
        return at
    name = flag.lstrip("-") if flag.startswith("--") else flag
    if takes == SWITCH or not values:
        plain = _truth(values[0]) if values else ON
        negated = flag.startswith("--no-") and plain in (ON, OFF)
        if negated:
            name, plain = name.removeprefix("no-"), OFF if plain == ON else ON
        into.add(Given(name, name, into.table.area(name), (plain,), flag, SWITCH))
    else:
        into.add(Given(name, name, into.table.area(name), tuple(values), flag, LIST))
    return at


def _add(option: Option, negated: bool, values: list[str], origin: str, into: Collected) -> None:
    if option.takes == SWITCH or negated:
        plain = _truth(values[0]) if values else ON
        if negated:
            plain = {ON: OFF, OFF: ON}.get(plain, plain)
        into.add(Given(option.name, option.words, option.area, (plain,), origin, SWITCH))
    elif option.takes == JSON:
        _fields(option, values[0] if values else "", origin, into)
    else:
        into.add(Given(option.name, option.words, option.area, tuple(values) or (ON,), origin, option.takes))


def _truth(value: str) -> str:
    return ON if value.lower() in _TRUE else OFF if value.lower() in _FALSE else value


def _fields(option: Option, text: str, origin: str, into: Collected) -> None:
    """An object given as JSON: a setting for each of its fields, a list as JSON text. What is none stays as text."""
    loaded = load_json(text)
    fields = list(_leaves(loaded, "", 0)) if isinstance(loaded, dict) else []
    if not fields or len(fields) > MOST_FIELDS:
        into.add(Given(option.name, option.words, option.area, (text,), origin))
        return
    for path, value in fields:
        name = f"{option.name}.{path}"
        known = into.table.by_name.get(name)
        words = known.words if known is not None else f"{option.words} {path}"
        into.add(Given(name, words, option.area, (value,), origin))


def load_json(text: str) -> Any:
    """The value of a JSON text; None where it is none, or too long or too deep to be a setting."""
    if len(text) > LONGEST_JSON or text[:1] not in ("{", "["):
        return None
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return loaded if _depth(loaded) <= DEEPEST else None


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max((_depth(each) for each in inner), default=0)


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value and depth < DEEPEST:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name), depth + 1)
    else:
        yield path, plain(value)


def plain(value: Any) -> str:
    """A value of JSON or YAML as a person would write it on a command line."""
    if isinstance(value, bool):
        return ON if value else OFF
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, default=str)


def read_fields(fields: Mapping[str, Any], origin: str, into: Collected) -> None:
    """The settings of a config file: its fields are long flags without hyphens."""
    for name, value in fields.items():
        flag = "--" + str(name).replace("_", "-")
        found = into.table.find(flag)
        if found is not None and found[0].takes == JSON and isinstance(value, Mapping):
            _fields(found[0], json.dumps(value, default=str), origin, into)
        elif found is not None:
            values = [plain(each) for each in value] if isinstance(value, list) else [plain(value)]
            _add(found[0], found[1], values, origin, into)
        elif isinstance(value, Mapping):
            plain_name = flag[2:]
            _fields(
                Option(plain_name, plain_name, into.table.area(plain_name)),
                json.dumps(value, default=str),
                origin,
                into,
            )
        else:
            plain_name = flag[2:]
            values = [plain(each) for each in value] if isinstance(value, list) else [plain(value)]
            into.add(Given(plain_name, plain_name, into.table.area(plain_name), tuple(values), origin, LIST))


def read_key(key: str, value: str, origin: str, into: Collected) -> None:
    """A flag without its hyphens, in whichever spelling."""
    found = into.table.find(f"--{key}") or into.table.find(f"-{key}")
    if found is None:
        read_fields({key: value}, origin, into)
    else:
        _add(found[0], found[1], [value], origin, into)


def read_variable(name: str, value: str, into: Collected) -> bool:
    """A variable that stands for a flag of this engine. Returns whether it is one."""
    table = into.table
    found = table.by_env.get(name)
    if found is None and table.engine == "llama-server" and name.startswith("LLAMA_ARG_"):
        rest = name.removeprefix("LLAMA_ARG_")
        negated = table.by_env.get(f"LLAMA_ARG_{rest.removeprefix('NO_')}") if rest.startswith("NO_") else None
        if negated is not None and negated[0].takes == SWITCH:
            into.add(Given(negated[0].name, negated[0].words, negated[0].area, (OFF,), name, SWITCH))
            return True
        flag = "--" + rest.lower().replace("_", "-")
        listed = table.find(flag)
        if listed is not None:
            found = listed
        else:
            plain_name = flag[2:]
            values = (_truth(value),) if table.switches.match(flag) else (value,)
            into.add(Given(plain_name, plain_name, table.area(plain_name), values, name))
            return True
    if found is None:
        return False
    _add(found[0], found[1], [value], name, into)
    return True


def value_of(given: Given) -> str:
    """The words of a setting as one text from which they could be told again."""
    return str(given.values[0]) if len(given.values) == 1 else shlex.join(given.values)
