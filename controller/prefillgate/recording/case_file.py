"""The file that a recorder adds to: one case a line, on the disk before the next, and going on where it ended."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from prefillgate.api.errors import MAX_PROBLEMS, InputError, Problem, ReplaySetError
from prefillgate.api.replay_set import prompt_digest, read_line

OWNER_ONLY = 0o600
KEY_BYTES = 32


class CaseFileError(InputError):
    """The file cannot be gone on with."""


class CaseFile:
    """Cases are appended; a line that a killed recorder left torn is cut first.

    `digests` are those of the prompts in it, `cut_bytes` what was torn.
    """

    def __init__(self, path: Path) -> None:
        """Open or make it, readable by its owner alone. Raises `CaseFileError` for a file that is no replay set."""
        self.path = path
        self.digests: set[bytes] = set()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), OWNER_ONLY)
        except OSError as error:
            raise _problem(
                path, f"cannot be written: {error.strerror or error}", "a file in a folder that is there"
            ) from error
        try:
            self._end = self._whole_lines()
            self.cut_bytes = os.fstat(self._file).st_size - self._end
            os.ftruncate(self._file, self._end)
            path.chmod(OWNER_ONLY)
            os.fsync(self._file)
        except OSError as error:
            os.close(self._file)
            raise _problem(path, f"cannot be gone on with: {error.strerror or error}", "a regular file") from error
        except BaseException:
            os.close(self._file)
            raise

    def append(self, line: bytes, digest: bytes) -> None:
        """Add a line without its line end. Raises OSError; then nothing of it stays."""
        data = memoryview(line + b"\n")
        os.lseek(self._file, self._end, os.SEEK_SET)
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:
            os.ftruncate(self._file, self._end)
            raise
        self._end += len(line) + 1
        self.digests.add(digest)

    def sync(self) -> None:
        """Have the disk keep what was added. Raises OSError."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close it."""
        os.close(self._file)

    def _whole_lines(self) -> int:
        """Reads the prompts of the lines there are, and returns the bytes they take."""
        problems: list[Problem] = []
        end = 0
        with self.path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                if not raw.endswith(b"\n"):
                    break
                end += len(raw)
                try:
                    if raw.strip():
                        case = read_line(raw.removesuffix(b"\n").removesuffix(b"\r"), f"{self.path}:{number}", number)
                        self.digests.add(prompt_digest(case.body))
                except ReplaySetError as error:
                    problems += error.problems
                    if len(problems) >= MAX_PROBLEMS:
                        break
        if problems:
            raise CaseFileError(*problems[:MAX_PROBLEMS])
        return end


def _problem(path: Path, what: str, allowed: str) -> CaseFileError:
    return CaseFileError(Problem(str(path), "", what, allowed))


def scrub_key(file: Path) -> bytes:
    """The key of the placeholders in `file`, kept beside it in `FILE.scrub-key`, made when there is none.

    Raises `CaseFileError`.
    """
    path = file.with_name(f"{file.name}.scrub-key")
    try:
        try:
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), OWNER_ONLY)
        except FileExistsError:
            key = path.read_bytes()
        else:
            key = secrets.token_bytes(KEY_BYTES)
            with os.fdopen(opened, "wb") as made:
                made.write(key)
                made.flush()
                os.fsync(made.fileno())
    except OSError as error:
        raise _problem(path, f"cannot be used: {error.strerror or error}", "a file of its own beside FILE") from error
    if len(key) != KEY_BYTES:
        raise _problem(
            path,
            "is no key of placeholders",
            "as it was made, or none: then equal secrets of before and after have other placeholders",
        )
    return key
