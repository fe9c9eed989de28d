"""What a profile was read from, a mark of each thing: by them it is known again where it is read otherwise than before.

```
template 0f3a9c21-4be07c11d2aa        the pod templates as they stand; keyed
image server 2c26b46b68ff             the digest that a container's image was resolved to
config chat 0f3a9c21-91c0d2f3a4b5     what a ConfigMap says; keyed
```
A keyed mark begins with one of the key: those of two keys say nothing of each other. None of them depends on names that
are ignored or redacted, nor on how this program reads settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prefillgate.profiles.model import LONGEST_MARK, MOST_MARKS
from prefillgate.profiles.pod import Raw
from prefillgate.profiles.seal import Seal, Sealing
from prefillgate.profiles.sources import Sources, used_config_maps

TEMPLATE, IMAGE, CONFIG = "template", "image", "config"
_CHECKED = "how profiles are marked"
_DIGITS_OF_A_KEY, _DIGITS = 8, 12
_DEEPEST = 64


def marks_of(
    templates: Sequence[Mapping[str, Any]], around: Any, raws: Sequence[Raw], sources: Sources, sealing: Sealing
) -> tuple[str, ...]:
    """The marks of a profile; `around` is what it has beside its templates. The first 64 of them."""
    found = [f"{TEMPLATE} {_keyed(sources.seal, [templates, around])}"]
    for raw in raws:
        of = "" if raw.role == "pod" else f"{raw.role}/"
        ids = [(raw.container, raw.image_id), *((each.name, each.digest) for each in raw.others)]
        found += [f"{IMAGE} {sealing.text(of + name)} {digest[7 : 7 + _DIGITS]}" for name, digest in ids if digest]
    names = sorted({name for each in templates for name in used_config_maps(each.get("spec") or {})})
    told = [(name, sources.config_maps[name]) for name in names if name in sources.config_maps]
    found += [f"{CONFIG} {sealing.text(name)} {_keyed(sources.seal, dict(data))}" for name, data in told]
    return tuple([each for each in dict.fromkeys(found) if len(each) <= LONGEST_MARK][:MOST_MARKS])


def from_same_template(was: Iterable[str], now: Iterable[str]) -> bool:
    """Whether both were read from the same pod templates; False too where two keys leave that open."""
    one = _named(was).get(TEMPLATE)
    return one is not None and one == _named(now).get(TEMPLATE)


def told_apart(was: Iterable[str], now: Iterable[str], kinds: Sequence[str] = (IMAGE, CONFIG)) -> bool:
    """Whether an image or a ConfigMap is known to be another one now. What only one of both knows tells nothing."""
    before = _named(was)
    return any(
        name in before and mark != before[name] and not _of_other_keys(mark, before[name])
        for name, mark in _named(now).items()
        if name.partition(" ")[0] in kinds
    )


def joined(was: Iterable[str], now: Iterable[str]) -> list[str]:
    """The marks of now, and of before those of images that nobody runs at this moment."""
    kept = {name: mark for name, mark in _named(was).items() if name.startswith(f"{IMAGE} ")}
    found = sorted((kept | _named(now)).items(), key=lambda each: (each[0] != TEMPLATE, each))
    return [f"{name} {mark}" for name, mark in found][:MOST_MARKS]


def _named(marks: Iterable[str]) -> dict[str, str]:
    found = (each.rpartition(" ") for each in marks)
    return {name: mark for name, _, mark in found}


def _of_other_keys(one: str, other: str) -> bool:
    return "-" in one and one.partition("-")[0] != other.partition("-")[0]


def _keyed(seal: Seal, value: Any) -> str:
    text = json.dumps(_plain(value), sort_keys=True)
    return f"{seal.digest(_CHECKED, _DIGITS_OF_A_KEY)}-{seal.digest(text, _DIGITS)}"


def _plain(value: Any, depth: int = 0) -> Any:
    """The same for whatever was read as it, with names that can be put in order."""
    if depth > _DEEPEST:
        return ""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth + 1) for inner in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)
