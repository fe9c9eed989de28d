"""The check `Exec`: a program of the user's own says whether an output is good (exit 0) or bad (exit 1)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from prefillgate.api.asking_spec import Exec
from prefillgate.api.check_spec import CheckSpec
from prefillgate.core.quality import Finding
from prefillgate.core.quality_expect import NotStrictJson, parse_json
from prefillgate.replay.check_parts import Built, CheckError, Judged, Told, parameters_of
from prefillgate.replay.program import Command, Ran, run_program

GOOD, BAD = 0, 1


def exec_check(spec: CheckSpec) -> Built:
    """The check that `spec` declares. Raises `CheckError` where its program is not there."""
    wanted = parameters_of(spec, Exec)
    folder = (spec.folder or Path()).resolve()
    program = _program(wanted.arguments[0], folder)
    command = Command((program, *wanted.arguments[1:]), folder, wanted.timeout_seconds)
    given = _as_json if wanted.input == "Json" else _as_content

    async def judge(judged: Judged) -> Told:
        try:
            ran = await run_program(command, given(judged))
        except OSError as error:
            raise CheckError(f"{wanted.arguments[0]} cannot be started: {error.strerror or error}") from error
        return _told(ran, wanted.timeout_seconds)

    return Built(judge, _version(wanted.arguments, folder))


def _program(name: str, folder: Path) -> str:
    """Where the program stands: a path relative to `folder`, or a name to be found on the search path."""
    separators = {os.sep, os.altsep, "/"} - {None}
    if any(separator and separator in name for separator in separators):
        path = folder / name
        if not path.is_file():
            raise CheckError(f"the program {path} is not there", "a file, relative to the policy's folder")
        found = shutil.which(str(path))
        if found is None:
            raise CheckError(f"{path} is no program", "a file that may be executed")
        return found
    found = shutil.which(name)
    if found is None:
        raise CheckError(f"no program {name} is on the search path", "a name on PATH, or a path such as ./check.py")
    return found


def _version(arguments: list[str], folder: Path) -> str:
    """1, and eight digits of the digest of every file among the arguments: a program, and the script it reads."""
    files = []
    for place, argument in enumerate(arguments):
        path = folder / argument
        # A bare first name is looked for on the search path, never in the folder.
        if (place or path.name != argument) and _is_file(path):
            files.append((place, hashlib.sha256(path.read_bytes()).hexdigest()))
    if not files:
        return "1"
    return "1." + hashlib.sha256(json.dumps(files).encode()).hexdigest()[:8]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _as_content(judged: Judged) -> bytes:
    return judged.output.content.encode()


def _as_json(judged: Judged) -> bytes:
    output = judged.output
    try:
        calls = parse_json(output.tool_calls) if output.has_tool_calls else []
    except NotStrictJson:
        calls = []
    document = {
        "case_id": judged.case.case_id,
        "content": output.content,
        "reasoning": output.reasoning,
        "tool_calls": calls,
        "finish_reason": output.finish_reason,
    }
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")


def _told(ran: Ran, timeout_seconds: float) -> Told:
    said = ran.stdout + (f"\n[standard error]\n{ran.stderr}" if ran.stderr.strip() else "")
    first = next((line.strip() for text in (ran.stdout, ran.stderr) for line in text.splitlines() if line.strip()), "")
    if ran.code == GOOD:
        return Told(None, said)
    if ran.code == BAD:
        return Told(Finding(first or "the program exits 1 and says nothing"), said)
    if ran.code is None:
        ending = f"not done within {timeout_seconds:g} s; it was ended with all it started"
    elif ran.code < 0:
        ending = f"ended by signal {-ran.code}"
    else:
        ending = f"exit {ran.code} is neither 0 (good) nor 1 (bad)"
    raise CheckError(f"{ending}: {first}" if first else ending, text=said)
