"""Builds the S3 server that tests speak to (versitygw, Apache-2.0) from Go modules, once, into ~/.cache/prefillgate.

Needs go; the first build takes some minutes. `make_sure` does nothing where it is there already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.tools.go_programs import CACHE, find_go

MODULE, VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
NAME = "versitygw"
FOLDER = CACHE / f"{NAME}-{VERSION}"


def find_s3_server() -> str | None:
    """Path of the server; None when it was not built."""
    return shutil.which(NAME, path=str(FOLDER))


def make_sure() -> int:
    """Build it where it is missing; 0 when it is there afterwards, 1 after saying why not."""
    if find_s3_server():
        return 0
    go = find_go()
    if go is None:
        print("No S3 server for the tests: building it needs go. Install Go (https://go.dev).", file=sys.stderr)
        return 1
    print(f"Building {NAME} {VERSION} for the tests, once; this takes some minutes", flush=True)
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as folder:
        done = subprocess.run(
            [go, "install", "-p", "1", f"{MODULE}@{VERSION}"], env={**os.environ, "GOBIN": folder}, check=False
        )
        if done.returncode == 0:
            FOLDER.mkdir(exist_ok=True)
            for built in Path(folder).iterdir():
                built.replace(FOLDER / built.name)
    if find_s3_server():
        return 0
    print(f"No S3 server for the tests: go could not build {MODULE}@{VERSION}.", file=sys.stderr)
    return 1
