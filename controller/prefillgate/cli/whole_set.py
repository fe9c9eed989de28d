"""A replay set that a command writes: all of it or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from prefillgate.cli.errors import BadInput


def write_set(output: Path, lines: Iterable[bytes], wanted: Callable[[], bool] = lambda: True) -> None:
    """Write `lines` to `output`, which stays as it is where that fails or where it turns out not to be `wanted`.

    Folders are made. Raises `BadInput` naming --output, and what `lines` raises.
    """
    partial = output.with_name(output.name + ".partial")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.writelines(lines)
        if wanted():
            partial.replace(output)
    except OSError as error:
        raise BadInput(f"--output {output}: cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
