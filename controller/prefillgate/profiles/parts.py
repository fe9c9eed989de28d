"""A pod that was read, as the part of a profile: every text sealed and bounded, findings in words."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from itertools import islice

from prefillgate.api.errors import clean
from prefillgate.profiles.commands import has_blank
from prefillgate.profiles.environment import Variable
from prefillgate.profiles.given import Given, load_json, plain, value_of
from prefillgate.profiles.launch import LLAMA
from prefillgate.profiles.model import BUILD, DRAFT, KV, OTHER, PLACEMENT, WEIGHTS, Part, Setting, bounded
from prefillgate.profiles.pod import SELECTED, Beside, Raw, is_listed, refers
from prefillgate.profiles.quantization import precision_of
from prefillgate.profiles.seal import Sealing
from prefillgate.profiles.shell import put_into
from prefillgate.profiles.sources import Mounts
from prefillgate.profiles.volumes import MountedVolume, Start, below

MOST_NOTES = 40
# Variables that every pod has, or every pod of a group, in values of their own.
GIVEN_BY_PLATFORM = ("HOSTNAME", "HOME", "PATH", "PWD", "LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX")
SHORT_DIGEST = 12
LONGEST_FLAG = 60
_SYNTHETIC = re.compile(r"(?i)(?:--|LLAMA_ARG_)(spec[-_]synth[\w-]*)")
DRAFT_PRECISION = "draft-precision"  # the setting that follows from a draft file's name
_STORED = {"storage-initializer-sourceuri": "storage URI", "storage-spec-key": "storage entry"}
_DRAFT_NAMES = ("draft-model", "draft-repository", "speculative-config.model", "speculative_draft_model_path")
_DRAFT_TOLD = ("speculative-config.quantization", "speculative-draft-model-quantization")


def part_of(raw: Raw, sealing: Sealing) -> Part:
    """The part of a profile that a pod makes. `sealing` has learned the credentials of all pods of the profile."""
    settings: dict[str, Setting] = {}
    for setting in _settings(raw, sealing):
        settings[setting.name] = setting
    derived = _draft_precision(raw, settings)
    if derived is not None:
        settings[derived.name] = derived
    notes = [sealing.text(note) for note in [*raw.notes, *raw.collected.notes, *raw.launch.notes, *_findings(raw)]]
    notes += [f"variable {sealing.text(name)} is not known here and stays as written" for name in _unknown(raw)]
    more = ["and more findings"] if len(notes) > MOST_NOTES else []
    return Part(
        raw.role,
        raw.engine,
        sealing.text(raw.container),
        raw.why,
        tuple(settings.values()),
        tuple([bounded(clean(note)) for note in dict.fromkeys(notes)][:MOST_NOTES] + more),
        tuple(_refusals(raw)),
        bool(raw.image_id) and all(each.digest for each in raw.others),
    )


def _unknown(raw: Raw) -> list[str]:
    given = {*raw.variables, *GIVEN_BY_PLATFORM}
    found = (name for name in raw.launch.unknown if name not in given and not name.startswith("KUBERNETES_"))
    return list(islice(found, MOST_NOTES))


def _settings(raw: Raw, sealing: Sealing) -> Iterator[Setting]:
    for given in raw.collected.found.values():
        yield _from_given(given, raw, sealing)
    if raw.image:
        yield _image("build", "image", raw.image, raw.image_id, sealing)
    if raw.launch.program:
        yield Setting(BUILD, "program", "program", bounded(sealing.text(raw.launch.program)), "command")
    if raw.launch.wrapper:
        yield Setting(
            OTHER, "wrapper", "wrapper", bounded(sealing.loose(" ".join(sealing.words(raw.launch.wrapper)))), "command"
        )
    script = _script(raw, sealing)
    if script:
        yield Setting(OTHER, "start-script", "start script", bounded(script), "command")
    for name, value in raw.placement:
        shown = sealing.text(name)
        sealed = sealing.given(name, value) if name.startswith(SELECTED) else sealing.text(value)
        yield Setting(PLACEMENT, shown, shown, bounded(sealed), "pod spec")
    yield from _variables(raw, sealing)
    yield from _mounted(raw.mounts, "", "", raw, sealing)
    yield from _started(raw.start, "", "", sealing)
    yield from _beside(raw, sealing)
    for name, value in raw.storage:
        shown = sealing.text(name)
        words = _STORED.get(name.rpartition("/")[2], f"storage {shown.rpartition('/storage-')[2]}")
        told = bounded(sealed_value(name, value, sealing))
        yield Setting(WEIGHTS, f"annotation {shown}", words, told, "annotation")
    for name, value in raw.checksums:
        shown = sealing.text(name)
        yield Setting(OTHER, f"annotation {shown}", shown, sealing.seal.value(value), "annotation")


def _script(raw: Raw, sealing: Sealing) -> str:
    if raw.launch.script:
        return sealing.script(raw.launch.script)
    told = [sealing.words(words, at in raw.launch.piped) for at, words in enumerate(raw.launch.beside)]
    return sealing.loose("; ".join(" ".join(words) for words in told))


def _from_given(given: Given, raw: Raw, sealing: Sealing) -> Setting:
    values = tuple(
        sealing.text(value) if refers(value, raw.variables) else _sealed(given, value, raw, sealing)
        for value in given.values
    )
    listed = is_listed(given.name, raw)  # our own word: it must not look like a credential by chance
    name, words = (given.name, given.words) if listed else (sealing.text(given.name), sealing.text(given.words))
    origin = sealing.text(given.origin)
    whole = value_of(Given(given.name, given.words, given.area, values, given.origin))
    put = sorted({sealing.text(each) for value in given.values for each in put_into(value)})
    return Setting(given.area, bounded(name), bounded(words), bounded(whole), bounded(origin), variables=tuple(put))


def _sealed(given: Given, value: str, raw: Raw, sealing: Sealing) -> str:
    """`-ot token_embd=CPU` and the names of adapters are what a listed option takes: no names of credentials."""
    plain_value = is_listed(given.name, raw) and not has_blank(value) and load_json(value) is None
    if plain_value and not sealing.seal.names_credential(given.name, value):
        return sealing.text(value)
    return sealed_value(given.name, value, sealing)


def sealed_value(name: str, value: str, sealing: Sealing) -> str:
    """A value under its name; in a JSON object every field under its own, and under those of what it stands in."""
    if sealing.seal.names_credential(name, value):
        return sealing.seal.value(value)
    loaded = load_json(value)
    return sealing.given(name, value) if loaded is None else plain(sealing.json(loaded, name))


def _image(name: str, words: str, image: str, digest: str | None, sealing: Sealing) -> Setting:
    text = sealing.text(image)
    pinned = digest is not None and digest in image
    short = f" (sha256 {digest[7 : 7 + SHORT_DIGEST]})" if digest is not None and not pinned else ""
    written = digest if pinned else text
    return Setting(BUILD, name, words, bounded(text + short), "image", digested=digest or text, written=written)


def _variables(raw: Raw, sealing: Sealing) -> Iterator[Setting]:
    told = dict(raw.variables)
    for name, value in raw.launch.assigned:
        told[name] = Variable(name, str(value), "")
    for name, each in told.items():
        if f"env {name}" in raw.read_files:
            continue
        value = each.told if each.value is None else sealed_value(name, each.value, sealing)
        if each.value is None and each.checksums:
            value += f", checksum {' '.join(sealing.seal.value(text) for text in each.checksums)}"
        shown = sealing.text(name)
        yield Setting(_area_of(name), f"env {shown}", shown, bounded(sealing.text(value)), "env")


def _area_of(name: str) -> str:
    if name.endswith("_VISIBLE_DEVICES"):
        return PLACEMENT
    if name.startswith(("VLLM_", "SGLANG_", "GGML_", "LLAMA_")):
        plain_name = name.replace("_", "")
        return KV if "KVCACHE" in plain_name else DRAFT if "SPEC" in plain_name else OTHER
    return OTHER


def _mounted(mounts: Mounts, mark: str, words: str, raw: Raw, sealing: Sealing) -> Iterator[Setting]:
    """The mounts of a container. Those of the one that serves have no `mark`; `words` is what a person reads for it."""
    for file in mounts.files:
        if not mark and file.path in raw.read_files:
            continue
        path, owner = sealing.text(file.path), sealing.text(file.config_map)
        value = f"ConfigMap {owner}, not read" if file.text is None else f"digest {sealing.seal.digest(file.text)}"
        if file.text is None:
            raw.collected.note(f"ConfigMap {file.config_map} has no key {file.key or 'that is known'}, or was not read")
        yield Setting(OTHER, f"{mark}file {path}", f"{words}file {path}", value, f"ConfigMap {owner}")
    for where, name, keys in mounts.secrets:
        path, told = sealing.text(where), sealing.text(f"Secret {name}, {keys}")
        yield Setting(OTHER, f"{mark}secret {path}", f"{words}secret at {path}", told, "volume")
    areas = {} if mark else _areas_of_paths(raw)
    for volume in mounts.volumes:
        path, area = sealing.text(volume.path), areas.get(volume.path, OTHER)
        told = bounded(_source(volume, sealing))
        yield Setting(area, f"{mark}volume {path}", f"{words}volume {path}", told, "volume")


def _source(volume: MountedVolume, sealing: Sealing) -> str:
    """`claim models-v1, sub-path q8`."""
    told = [sealing.text(volume.source)]
    told += [plain(sealing.json(dict(volume.more)))] if volume.more else []
    told += [f"sub-path {sealing.text(volume.sub_path)}"] if volume.sub_path else []
    return ", ".join(told)


def _areas_of_paths(raw: Raw) -> dict[str, str]:
    """Mount paths of the volumes that hold weights or a draft model, by what the arguments name."""
    found: dict[str, str] = {}
    mounted = [volume.path for volume in raw.mounts.volumes]
    for given in raw.collected.found.values():
        for value in given.values if given.area in (WEIGHTS, DRAFT) else ():
            named = posixpath.normpath(posixpath.join(raw.start.directory, value))
            holders = [path for path in mounted if below(named, path) is not None]
            if holders:
                holder = max(holders, key=len)
                found[holder] = WEIGHTS if found.get(holder) == WEIGHTS else given.area
    return found


def _started(start: Start, mark: str, words: str, sealing: Sealing) -> Iterator[Setting]:
    if start.directory:
        told = bounded(sealing.text(start.directory))
        yield Setting(OTHER, f"{mark}working directory", f"{words}working directory", told, "pod spec")
    if start.hook is not None:
        kind, given = start.hook
        shown = " ".join(sealing.words(given)) if kind == "exec" else f"digest {sealing.seal.digest(given[0])}"
        told = bounded(f"{sealing.text(kind)} {shown}")
        yield Setting(OTHER, f"{mark}hook after start", f"{words}hook after start", told, "pod spec")


def _beside(raw: Raw, sealing: Sealing) -> Iterator[Setting]:
    """Init containers in their order, sidecars by content: what they are called is in no digest."""
    shown = [(each, *_command(each, sealing)) for each in raw.others]
    for kind in ("init container", "sidecar"):
        group = [each for each in shown if each[0].kind == kind]
        if kind == "sidecar":
            group.sort(key=lambda each: (each[2], repr(each[0].mounts), repr(each[0].start)))
        for number, (each, text, digested) in enumerate(group, 1):
            words = f"{kind} {sealing.text(each.name)}"
            written = f"{sealing.text(each.image)} {text}".strip()
            yield Setting(
                OTHER,
                f"{kind} {number}",
                words,
                bounded(written),
                "pod spec",
                False,
                bounded(digested),
                bounded(written),
            )
            yield from _mounted(each.mounts, f"{kind} {number} ", f"{words} ", raw, sealing)
            yield from _started(each.start, f"{kind} {number} ", f"{words} ", sealing)


def _command(each: Beside, sealing: Sealing) -> tuple[str, str]:
    words = sealing.loose(" ".join(sealing.words(each.words)))
    told = {
        name: each_one.told if each_one.value is None else sealed_value(name, each_one.value, sealing)
        for name, each_one in sorted(each.variables.items())
    }
    text = " ".join([words, *(f"{name}={value}" for name, value in told.items())]).strip()
    return text, f"{each.digest or sealing.text(each.image)} {text}"


def _draft_precision(raw: Raw, settings: dict[str, Setting]) -> Setting | None:
    """What the name of the draft file tells of its precision, where nothing else does."""
    if any(name in settings for name in _DRAFT_TOLD):
        return None
    for name in _DRAFT_NAMES:
        found = precision_of(settings[name].value) if name in settings else None
        if found is not None:
            return Setting(DRAFT, DRAFT_PRECISION, "draft head", found, settings[name].origin, derived=True)
    return None


def _refusals(raw: Raw) -> Iterator[str]:
    """What stands anywhere that the engine could read it from, told as a setting or not."""
    names = [name.split()[-1] for name in raw.collected.found if "spec-synth-" in name]
    names += [
        found[1].lower().replace("_", "-")[:LONGEST_FLAG]
        for text in _texts_of(raw)
        for found in _SYNTHETIC.finditer(text)
    ]
    for name in dict.fromkeys(names):
        yield (
            f"{name}: drafts are accepted synthetically (ggml-org/llama.cpp#27711), which makes any throughput untrue; "
            "take --spec-synth-* out of the arguments, variables and scripts"
        )


def _texts_of(raw: Raw) -> Iterator[str]:
    """Every word, variable and mounted file of the container that serves; of files without comments."""
    launch = raw.launch
    yield from (*launch.words, *launch.wrapper, launch.script)
    for words in launch.beside:
        yield from words
    for name, value in (*launch.assigned, *launch.local, *((v.name, v.value or "") for v in raw.variables.values())):
        yield f"{name}={value}"
    for file in raw.mounts.files:
        yield "\n".join(line for line in (file.text or "").splitlines() if not line.lstrip().startswith("#"))


def _findings(raw: Raw) -> Iterator[str]:
    found = raw.collected.found
    if not raw.image:
        yield "the image is not told here"
    if raw.engine is None and not raw.launch.script:
        yield "no known engine was found; flags are kept as they stand"
    if raw.engine == LLAMA:
        layers = found.get("gpu-layers")
        fitted = found.get("fit")
        if (layers is None or layers.values[0] == "auto") and (fitted is None or fitted.values[0] != "off"):
            yield "--fit picks the GPU layers from free memory at start: equal arguments can differ in placement"
        drafted = [name for name in ("draft-model", "draft-repository") if name in found]
        if drafted and "spec-type" not in found and "spec-default" not in found:
            yield "a draft model without --spec-type is ignored by newer builds"
        for name in ("draft-max", "draft-min"):
            if name in found:
                yield f"{found[name].origin} was removed and stops newer builds"
    if any(
        given.area == WEIGHTS and given.name == "load-format" and given.values[0] == "dummy" for given in found.values()
    ):
        yield "load format dummy: the weights are random"
