"""The file that a watch goes on from: how far each log was read, and everything that was counted by then."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefillgate.cli.errors import BadInput

if TYPE_CHECKING:
    from prefillgate.importers.following import Place

VERSION = 1
KEYS = {"prefillgate_watch", "policy", "rule", "places", "lives", "watch", "pending"}

_ALLOWED = "allowed: a file that this command wrote, or none yet"


def save(path: Path, document: dict[str, Any]) -> None:
    """Replace the file as a whole, on the disk before this returns. Raises OSError."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8", newline="\n") as file:
        json.dump({"prefillgate_watch": VERSION, **document}, file, separators=(",", ":"), allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Have the disk keep the new name, where a folder can be opened."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(opened)
    except OSError:
        pass
    finally:
        os.close(opened)


def load(path: Path) -> dict[str, Any] | None:
    """What `save` wrote; None where there is no such file. Raises `BadInput` for another file."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"--state {path}: cannot be read: {error.strerror or error} ({_ALLOWED})") from error
    if not text.strip():
        raise damaged(path, "it is empty")
    try:
        document = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        begun = text.lstrip().startswith(b'{"prefillgate_watch"')
        raise damaged(path, "its end is cut off or overwritten") if begun else _foreign(path) from error
    if not isinstance(document, dict) or "prefillgate_watch" not in document:
        raise _foreign(path)
    if document["prefillgate_watch"] != VERSION:
        raise BadInput(f"--state {path}: kept by another version of prefillgate ({_ALLOWED})")
    if set(document) != KEYS:
        missing = sorted(KEYS - set(document))
        raise damaged(path, f"{', '.join(missing)} missing" if missing else "it holds fields that no watch wrote")
    return document


def damaged(path: Path, how: str) -> BadInput:
    """The error for a state that was a watch's and can no more be used: what is wrong with it, and what helps."""
    return BadInput(
        f"--state {path}: damaged: {how} (put a copy back, or move it away: the watch then counts from the logs' begin,"
        " or with --from-end from now)"
    )


def _foreign(path: Path) -> BadInput:
    return BadInput(f"--state {path}: not the state of a watch ({_ALLOWED})")


def places_document(places: dict[str, Place | None]) -> dict[str, Any]:
    """Places by the name of their log, as JSON values."""
    return {name: asdict(place) for name, place in places.items() if place is not None}


def place_of(places: dict[str, Any], name: str, state: Path | None) -> Place | None:
    """The place of the log of that name, None where it is not known. Raises `BadInput`."""
    from prefillgate.importers.following import Place

    if name not in places:
        return None
    try:
        place = Place(**places[name])
    except TypeError:
        place = None
    if state is not None and (place is None or not _is_whole(place)):
        raise damaged(state, f"the place in {name} cannot be used")
    return place


def _is_whole(place: Place) -> bool:
    counts = (place.device, place.number, place.head_bytes, place.offset, place.line)
    return all(type(each) is int and each >= 0 for each in counts) and isinstance(place.head_sha256, str)
