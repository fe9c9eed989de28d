"""Folders that pose as bundles: every one is named for what it is, none ends in a traceback, none is the same."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from prefillgate.bundle import content, lines
from prefillgate.bundle.write import PROGRAM
from prefillgate.cli.errors import BadInput, CouldNotMeasure
from tests.support.bundles import Bundle

Change = Callable[[Path], object]
FLIPS = 5  # bytes changed in each file


def manifest(change: Callable[[dict[str, object]], object]) -> Change:
    def changed(folder: Path) -> None:
        path = folder / content.MANIFEST
        told = json.loads(path.read_bytes())
        change(told)
        path.write_bytes(json.dumps(told, indent=2).encode() + b"\n")

    return changed


def line(name: str, number: int, made: Callable[[bytes], bytes]) -> Change:
    def changed(folder: Path) -> None:
        path = folder / name
        found = path.read_bytes().splitlines(keepends=True)
        found[number - 1] = made(found[number - 1])
        path.write_bytes(b"".join(found))

    return changed


def crlf(name: str) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes().replace(b"\n", b"\r\n"))


def linked(folder: Path) -> None:
    target = folder.parent / "elsewhere"
    (folder / content.CELLS).rename(target)
    (folder / content.CELLS).symlink_to(target)


def file_entry(name: str, value: object) -> Change:
    return manifest(lambda told: told["files"][0].update({name: value}))  # type: ignore[index]


HOSTILE: dict[str, tuple[Change, str]] = {
    "a path out of the folder": (file_entry("name", "../../secret"), 'files[0].name is "../../secret"'),
    "an absolute path": (file_entry("name", "/etc/passwd"), 'files[0].name is "/etc/passwd"'),
    "a name that is no text": (file_entry("name", ["x"]), "files[0].name is"),
    "a name that is an object": (file_entry("name", {}), "files[0].name is {}"),
    "a digest of the wrong type": (file_entry("sha256", 7), "files[0].sha256 is 7"),
    "a negative size": (file_entry("bytes", -1), "files[0].bytes is -1"),
    "a field too many": (manifest(lambda told: told.update(more=1)), '"more" is not a field of a manifest'),
    "a field missing": (manifest(lambda told: told.pop("journal")), "journal is missing"),
    "another format": (manifest(lambda told: told.update(format="zip")), 'format is "zip"'),
    "no list of files": (manifest(lambda told: told.update(files={"a": 1})), "files is"),
    "fewer files": (manifest(lambda told: told["files"].pop()), "files names"),  # type: ignore[attr-defined]
    "a file entry of another type": (manifest(lambda told: told.update(files=[7])), "files[0] is 7, not an object"),
    "a manifest that is a list": (lambda f: (f / content.MANIFEST).write_bytes(b"[]"), "not a JSON object: []"),
    "a manifest that is not JSON": (lambda f: (f / content.MANIFEST).write_bytes(b"{"), "not JSON"),
    "a manifest of bytes": (lambda f: (f / content.MANIFEST).write_bytes(b"\xff\xfe"), "not JSON"),
    "a manifest nested deep": (lambda f: (f / content.MANIFEST).write_bytes(b"[" * 60_000), "nested too deep"),
    "a manifest in CRLF": (crlf(content.MANIFEST), "CR LF"),
    "cells in CRLF": (crlf(content.CELLS), "cells.jsonl:1: the line ends in CR LF"),
    "events in CRLF": (crlf(content.EVENTS), "events.jsonl:1: the line ends in CR LF"),
    "texts in CRLF": (crlf(content.TEXTS), "texts.jsonl:1: the line ends in CR LF"),
    "a file missing": (lambda f: (f / content.EVENTS).unlink(), "events.jsonl: the file is missing"),
    "a file too many": (lambda f: (f / "x\x1b[31m.txt").write_bytes(b""), "not a file of a bundle"),
    "a link": (linked, "cells.jsonl: not a plain file (a link or a folder)"),
    "a folder for a file": (
        lambda f: ((f / content.PLAN).unlink(), (f / content.PLAN).mkdir()),
        "plan.jsonl: not a plain file",
    ),
    "a key twice": (
        line(content.EVENTS, 2, lambda raw: raw.replace(b'{"digest"', b'{"seq":2,"digest"')),
        'events.jsonl:2: not JSON: the key "seq" stands twice',
    ),
    "NaN": (line(content.TEXTS, 1, lambda raw: b'{"cell_id":NaN}\n'), "texts.jsonl:1: not JSON: NaN"),
    "a number too long": (
        line(content.EVENTS, 3, lambda raw: b'{"seq":' + b"9" * 5000 + b"}\n"),
        "events.jsonl:3: not JSON: a number is too long",
    ),
    "another type": (line(content.EVENTS, 3, lambda raw: b"7\n"), "events.jsonl:3: not a JSON object: 7"),
    "an event that is a list": (
        line(content.EVENTS, 2, lambda raw: lines.as_line({**json.loads(raw), "event": []})),
        "events.jsonl:2: its fields are",
    ),
    "a line cut off": (
        lambda f: (f / content.TEXTS).write_bytes((f / content.TEXTS).read_bytes()[:-9]),
        "the file is cut off inside this line",
    ),
    "white space": (
        line(content.EVENTS, 2, lambda raw: raw.replace(b",", b", ", 1)),
        "events.jsonl:2: the same JSON, written in another way",
    ),
    "no events": (lambda f: (f / content.EVENTS).write_bytes(b""), "events.jsonl: the journal is empty"),
    "no texts": (lambda f: (f / content.TEXTS).write_bytes(b""), "texts.jsonl:1: the line of cell 0 is missing"),
    "a file that ends a line early": (line(content.DECISION, 1, lambda raw: raw + raw), "decision.jsonl:2: a line too"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_poses_as_a_bundle_is_named(bundle: Bundle, what: str) -> None:
    change, words = HOSTILE[what]
    change(bundle.folder)
    told = bundle.verify()
    assert told.code == 10, told.text
    assert words in told.text
    assert "\x1b" not in told.text


def test_a_huge_line_is_refused_before_it_is_read(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)  # a line of 256 MB in every run would be slow
    assert "events.jsonl:1: the line is longer than 1000 bytes" in bundle.verify().text


def test_a_bundle_of_a_newer_format_or_a_newer_program_says_to_upgrade(bundle: Bundle) -> None:
    manifest(lambda told: told.update(version=2, more=1))(bundle.folder)
    with pytest.raises(CouldNotMeasure, match=r"format version 2, this program knows versions up to 1\. Upgrade"):
        bundle.verify()


def test_an_event_that_only_a_newer_program_knows_says_to_upgrade(bundle: Bundle) -> None:
    path = bundle.folder / content.EVENTS
    told = json.loads(path.read_bytes().splitlines()[0])
    told["event"]["new_field"] = 1
    line(content.EVENTS, 1, lambda raw: lines.as_line(told))(bundle.folder)
    with pytest.raises(CouldNotMeasure, match=r"events.jsonl:1 was written by a newer prefillgate.*Upgrade"):
        bundle.verify()


def test_a_difference_of_another_version_says_so(bundle: Bundle) -> None:
    manifest(lambda told: told.update(program="prefillgate 99.1"))(bundle.folder)
    line(content.DECISION, 1, lambda raw: raw.replace(b'"hold"', b'"promote"').replace(b'"rollback"', b'"hold"'))(
        bundle.folder
    )
    told = bundle.verify()
    assert told.code == 10
    assert f"written by prefillgate 99.1, checked by {PROGRAM}" in told.text


def test_no_folder_and_no_bundle_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no such folder"):
        Bundle(tmp_path / "nowhere").verify()
    with pytest.raises(BadInput, match=r"holds no manifest.json"):
        Bundle(tmp_path).verify()


@pytest.mark.parametrize("name", [*content.FILES, content.MANIFEST])
def test_no_single_byte_of_any_file_can_be_changed(bundle: Bundle, name: str) -> None:
    """With the digests in the manifest made right, as whoever changed it would."""
    path = bundle.folder / name
    whole, original = path.read_bytes(), (bundle.folder / content.MANIFEST).read_bytes()
    chosen = random.Random(name)
    for _ in range(FLIPS):
        at = chosen.randrange(len(whole))
        byte = chosen.choice([value for value in b'0a1"{},:\n f' if value != whole[at]])
        path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
        if name != content.MANIFEST:
            bundle.sign_off()
        try:
            assert bundle.verify().code == 10, (name, at, byte)
        except CouldNotMeasure as error:  # it reads as something that only a newer version knows
            assert "newer" in str(error) or "format version" in str(error)
        (bundle.folder / content.MANIFEST).write_bytes(original)
        path.write_bytes(whole)
    assert bundle.verify().code == 0


def test_a_manifest_that_is_no_file_is_no_bundle(bundle: Bundle) -> None:
    (bundle.folder / content.MANIFEST).unlink()
    (bundle.folder / content.MANIFEST).mkdir()
    with pytest.raises(BadInput, match=r"holds no manifest.json"):
        bundle.verify()
