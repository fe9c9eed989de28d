"""What a profile is made of, and its digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from prefillgate.api.errors import InputError, Problem, clean

PLACEMENT = "layer placement"
DRAFT = "draft head"
KV = "KV cache"
WEIGHTS = "weights"
BUILD = "build"
OTHER = "other"
AREA_ORDER = (PLACEMENT, DRAFT, KV, WEIGHTS, BUILD, OTHER)

ON, OFF = "on", "off"
DIGEST_VERSION = 1  # of what stands in a digest and how it is called: raised, every line has a new profile
MOST_MARKS, LONGEST_MARK = 64, 320
LONGEST_VALUE = 2_000  # characters; of a longer one the beginning and a digest are kept
SHOWN_OF_LONG = 80


class ProfileError(InputError):
    """A workload cannot be read as a profile. The problem's field is the path in the object; no value is ever shown."""


def refused(path: str, message: str, allowed: str = "") -> ProfileError:
    """The error for one field, such as `spec.template.spec.containers[0].args[3]`."""
    return ProfileError(Problem("", clean(path), message, allowed))


@dataclass(frozen=True, slots=True)
class Setting:
    """One named setting. `name` is the same for every spelling of it, `words` is what a person reads.

    A setting that is absent is unknown: the engine's default is not put in its place. `derived` ones follow from
    others (the precision in a draft file's name) and are in no digest.
    """

    area: str
    name: str
    words: str
    value: str
    origin: str  # where it was given: a flag, a variable, a file, a field of the pod
    derived: bool = False
    digested: str | None = None  # what stands in the digest in the place of `value`: an image's digest
    written: str | None = None  # of an image, as the template names it
    variables: tuple[str, ...] = ()  # those that were put into the value; in no digest


@dataclass(frozen=True, slots=True)
class Part:
    """One pod of the profile: the only one, or of a group its leader or a worker."""

    role: str  # pod, leader or worker
    engine: str | None  # llama-server, vllm, sglang; None: unknown
    container: str
    why_container: str
    settings: tuple[Setting, ...]
    findings: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    resolved: bool = False  # every image is known by its digest

    @property
    def digest(self) -> str:
        """sha256 of the settings, images by their digests where known, in no particular order."""
        return _digest([self._content()])

    @property
    def written_digest(self) -> str:
        """The same with the images as the template names them: known before any pod runs."""
        return _digest([self._content(written=True)])

    def _content(self, written: bool = False) -> Any:
        settings = {each.name: content(each, written) for each in self.settings if not each.derived}
        return {"engine": self.engine, "settings": settings}


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything that decides how a model is served. `extra` are settings of the workload around its pods, `marks` tell
    what it was read from (`profiles.marks`) and are in no digest."""

    parts: tuple[Part, ...]
    extra: tuple[Setting, ...] = ()
    findings: tuple[str, ...] = ()
    marks: tuple[str, ...] = field(default=(), compare=False)

    @property
    def engine(self) -> str | None:
        """The engine of the first pod; None where it is unknown."""
        return self.parts[0].engine

    @property
    def resolved(self) -> bool:
        """Whether every image is known by its digest, so that a tag that moves makes another profile."""
        return all(part.resolved for part in self.parts)

    @property
    def digest(self) -> str:
        """`sha256:` and 64 hex digits over engine and settings. Replicas, labels, names and probes are not in it."""
        return _digest([part._content() for part in self.parts], self.extra)

    @property
    def written_digest(self) -> str:
        """The digest with images as written, the same before and after pods have resolved them."""
        return _digest([part._content(written=True) for part in self.parts], self.extra)

    @property
    def refused(self) -> tuple[str, ...]:
        """Why this profile must not be gated; empty for one that may."""
        return tuple(dict.fromkeys(text for part in self.parts for text in part.refused))

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be told, and what is surprising about it."""
        found = [
            text if len(self.parts) == 1 else f"{part.role}: {text}" for part in self.parts for text in part.findings
        ]
        return tuple(dict.fromkeys([*self.findings, *found]))

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All settings, by area and name; those of a worker under `worker/`."""
        found = list(self.extra)
        for index, part in enumerate(self.parts):
            mark = "" if index == 0 else f"{part.role}/"
            spoken = mark.replace("/", " ")
            found += [replace(each, name=mark + each.name, words=spoken + each.words) for each in part.settings]
        return tuple(sorted(found, key=lambda each: (AREA_ORDER.index(each.area), each.words, each.name)))

    def summary(self, most: int = 40) -> tuple[str, ...]:
        """A line for each area that has settings: `KV cache: context size 8192, K cache type q8_0`. Bounded."""
        lines = []
        for area in AREA_ORDER:
            found = [f"{each.words} {brief(each.value)}" for each in self.settings if each.area == area]
            more = [f"and {len(found) - most} more"] if len(found) > most else []
            if found:
                lines.append(clean(f"{area}: {', '.join(found[:most] + more)}"))
        return tuple(lines)

    def document(self) -> dict[str, Any]:
        """As JSON: engine, digests, settings, findings. `record.recorded` reads back what is needed to compare."""
        return {
            "engine": self.engine,
            "digest": self.digest,
            "writtenDigest": self.written_digest,
            "resolved": self.resolved,
            "containers": [
                {
                    "role": part.role,
                    "name": part.container,
                    "why": part.why_container,
                    "engine": part.engine,
                    "digest": part.digest,
                    "writtenDigest": part.written_digest,
                    "resolved": part.resolved,
                }
                for part in self.parts
            ],
            "settings": [_as_json(setting) for setting in self.settings],
            "findings": list(self.notes),
            "refused": list(self.refused),
        }


def _as_json(setting: Setting) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(setting, name) for name in ("area", "name", "words", "value", "origin")}
    if setting.derived:
        found["derived"] = True
    for name in ("digested", "written"):
        if getattr(setting, name) is not None:
            found[name] = getattr(setting, name)
    if setting.variables:
        found["variables"] = list(setting.variables)
    return found


def content(setting: Setting, written: bool = False) -> str:
    """What of a setting stands in a digest: with `written`, images as the template names them."""
    if written and setting.written is not None:
        return setting.written
    return setting.value if setting.digested is None else setting.digested


def brief(value: str, most: int = 120) -> str:
    """`value` on one line, at most `most` characters."""
    text = clean(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def bounded(value: str) -> str:
    """`value`, or of one longer than `LONGEST_VALUE` its beginning, its length and its sha256."""
    if len(value) <= LONGEST_VALUE:
        return value
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{value[:SHOWN_OF_LONG]}… ({len(value)} characters, sha256 {digest})"


def _digest(parts: list[Any], extra: tuple[Setting, ...] = ()) -> str:
    around = {each.name: each.value for each in extra if not each.derived}
    content = {"version": DIGEST_VERSION, "parts": parts, "around": around}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"
