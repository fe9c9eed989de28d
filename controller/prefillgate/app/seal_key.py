"""The key that credentials are sealed under, where none is given: made once, and kept beside the book."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from prefillgate.api.errors import InputError, Problem

LEAST_KEY = 16  # characters


def kept_key(path: Path) -> bytes:
    """The key in that file, made where there is none; of two processes that make it at once both get the same.

    Raises InputError for a file that cannot be made or read, or that holds no key.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _make(path)
        key = path.read_bytes().strip()
    except OSError as error:
        why = f"the key of sealed credentials cannot be kept: {error.strerror or error}"
        raise InputError(Problem(str(path), "", why)) from error
    if len(key) < LEAST_KEY:
        raise InputError(Problem(str(path), "", "this is no key of sealed credentials", "the file as it was made"))
    return key


def _make(path: Path) -> None:
    """Write it whole under another name first: no reader may meet half a key."""
    half = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))
        file.flush()
        os.fsync(file.fileno())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(half, path)
    finally:
        half.unlink()
