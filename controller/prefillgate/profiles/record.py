"""A profile as it was written down: what telling pods apart and comparing need, after the workload has changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from prefillgate.profiles.fields import items, mapping, text_of, texts
from prefillgate.profiles.model import AREA_ORDER, BUILD, Setting, refused

IMAGE = "image"
_RESOLVED = re.compile(r"(.+) \(sha256 [0-9a-f]+\)", re.DOTALL)  # as `parts` shows an image that a pod has resolved


class PartTold(Protocol):
    """What is known of one pod of a profile."""

    @property
    def role(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def written_digest(self) -> str: ...
    @property
    def resolved(self) -> bool: ...


class Told(Protocol):
    """What is known of a profile, read just now or written down before."""

    @property
    def engine(self) -> str | None: ...
    @property
    def digest(self) -> str: ...
    @property
    def resolved(self) -> bool: ...
    @property
    def parts(self) -> tuple[PartTold, ...]: ...
    @property
    def settings(self) -> tuple[Setting, ...]: ...


@dataclass(frozen=True, slots=True)
class RecordedPart:
    """One pod of a recorded profile."""

    role: str
    digest: str
    written_digest: str
    resolved: bool


@dataclass(frozen=True, slots=True)
class Recorded:
    """A profile out of `Profile.document()`."""

    engine: str | None
    digest: str
    written_digest: str
    resolved: bool
    parts: tuple[RecordedPart, ...]
    settings: tuple[Setting, ...]


def recorded(document: Mapping[str, Any]) -> Recorded:
    """Read back what `Profile.document()` gave. Raises `ProfileError` with the path of the field."""
    engine = document.get("engine")
    return Recorded(
        None if engine is None else text_of(engine, "engine"),
        text_of(document.get("digest"), "digest"),
        text_of(document.get("writtenDigest"), "writtenDigest"),
        document.get("resolved") is True,
        tuple(_part(mapping(each, path), path) for each, path in items(document.get("containers"), "containers")),
        tuple(_setting(mapping(each, path), path) for each, path in items(document.get("settings"), "settings")),
    )


def _part(each: Mapping[str, Any], path: str) -> RecordedPart:
    role, digest, written = (text_of(each.get(name), f"{path}.{name}") for name in ("role", "digest", "writtenDigest"))
    return RecordedPart(role, digest, written, each.get("resolved") is True)


def _setting(each: Mapping[str, Any], path: str) -> Setting:
    names = ("area", "name", "words", "value", "origin")
    area, name, words, value, origin = (text_of(each.get(one), f"{path}.{one}") for one in names)
    if area not in AREA_ORDER:
        raise refused(f"{path}.area", "not an area", ", ".join(AREA_ORDER))
    digested, written = (
        None if each.get(one) is None else text_of(each[one], f"{path}.{one}") for one in ("digested", "written")
    )
    variables = tuple(texts(each.get("variables"), f"{path}.variables"))
    return Setting(area, name, words, value, origin, each.get("derived") is True, digested, written, variables)


def shown_profile(settings: Iterable[tuple[str, str, str]], digest: str = "", written_digest: str = "") -> Recorded:
    """A profile of which no more is kept than people are shown: area, words and value of each setting.

    An image without its digest was written down before any pod had resolved it: such a profile is compared with
    another one by its images as written.
    """
    found = tuple(_shown(*each) for each in settings)
    resolved = all(each.written is not None for each in found if (each.area, each.words) == (BUILD, IMAGE))
    return Recorded(None, digest, written_digest, resolved, (), found)


def _shown(area: str, words: str, value: str) -> Setting:
    if (area, words) != (BUILD, IMAGE):
        return Setting(area, words, words, value, "")
    named = _RESOLVED.fullmatch(value)
    written = named[1] if named is not None else value if "@sha256:" in value else None
    return Setting(area, words, words, value, "", written=written)
