"""A real S3 server on loopback, with one bucket, ended by its own process id."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.programs import record_real_program
from tests.support.simulated import free_port
from tests.tools.s3_server import VERSION, find_s3_server

ACCESS, SECRET, BUCKET = "access-of-the-tests", "secret-key-that-must-not-be-seen", "evidence"
_START_SECONDS, _STOP_SECONDS = 60, 30


@dataclass
class S3Server:
    """A running server. `folder` holds the bucket's objects as files."""

    url: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which it is reached."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def recorded(self) -> None:
        """Note that the test that is running now spoke to it."""
        record_real_program("versitygw", VERSION)


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Start one, wait until it answers, and end it."""
    program = find_s3_server()
    assert program is not None, "no S3 server: python -m tests.tools.install_programs"
    root, sidecar = folder / "root", folder / "sidecar"
    (root / BUCKET).mkdir(parents=True)
    sidecar.mkdir()
    url = f"http://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [program, "--quiet", "--port", url.removeprefix("http://"), "posix", "--sidecar", str(sidecar), str(root)],
        env={"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(url, process)
        yield S3Server(url, root / BUCKET, process)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, "the S3 server ended at its start"
        try:
            httpx.get(url, timeout=5)
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the S3 server did not answer")
