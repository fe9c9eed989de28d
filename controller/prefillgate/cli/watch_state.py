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
    allowed = "allowed: a file that this command wrote, or none yet"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"--state {path}: cannot be read: {error} ({allowed})") from error
    if not isinstance(document, dict) or document.get("prefillgate_watch") != VERSION or set(document) != KEYS:
        raise BadInput(f"--state {path}: not the state of a watch of this version ({allowed})")
    return document


def places_document(places: dict[str, Place | None]) -> dict[str, Any]:
    """Places by the name of their log, as JSON values."""
    return {name: asdict(place) for name, place in places.items() if place is not None}


def place_of(places: dict[str, Any], name: str) -> Place | None:
    """The place of the log of that name, None where it is not known. Raises `BadInput`."""
    from prefillgate.importers.following import Place

    if name not in places:
        return None
    try:
        return Place(**places[name])
    except TypeError as error:
        raise BadInput(f"--state: the place of {name} is damaged (allowed: what this command wrote)") from error
