"""The two servers of the contract: the simulated one and the real llama.cpp, each in two configurations.

`server` is a test's server, one after the other; `pair` is both at once. The plain configuration has a sliding
window, as the packaged model has; the second one (`guarded`) caches every prefix and wants a key.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from prefillgate.hosts.llama_server import LlamaServer
from tests.support.programs import record_real_program
from tests.support.simulated import SimulatedServer, start_simulated

KEY = "contract-suite-key"
FEW_SHOTS = (
    "Commit: fix crash on empty input\nType: bug\nCommit: add dark mode\nType: feature\n"
    "Commit: explain install steps\nType: docs\nCommit: stop leak on reload\nType:"
)
_WORDS = ("alpha", "river", "stone", "blue", "seven", "garden", "window", "paper", "cloud", "music", "train")


def words(seed: int, count: int) -> str:
    """A prompt of `count` words that begins like no other seed's."""
    return " ".join(_WORDS[(seed * 7 + place * place + place * seed) % len(_WORDS)] for place in range(count))


@dataclass
class Subject:
    """One of the servers, and how to speak to it. A new connection for each request, as the gate does."""

    name: str
    host: LlamaServer | SimulatedServer
    headers: dict[str, str]

    def client(self) -> httpx.Client:
        headers = {"Connection": "close", **self.headers}
        return httpx.Client(base_url=self.host.url, headers=headers, timeout=120, trust_env=False, verify=False)

    def get(self, path: str) -> httpx.Response:
        with self.client() as client:
            return client.get(path)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        with self.client() as client:
            if isinstance(body, bytes):
                return client.post(path, content=body, **options)
            return client.post(path, json=body, **options)

    def complete(self, prompt: str, **fields: Any) -> dict[str, Any]:
        """A greedy completion of three tokens, unless told otherwise; its body."""
        body = {"prompt": prompt, "max_tokens": 3, "temperature": 0, **fields}
        reply = self.post("/v1/completions", body)
        assert reply.status_code == 200, reply.text
        data: dict[str, Any] = reply.json()
        return data

    def counters(self) -> dict[str, float]:
        """Every value of /metrics by its name."""
        rows = [line.split() for line in self.get("/metrics").text.split("\n") if line and not line.startswith("#")]
        return {name: float(value) for name, value in rows}

    def busy(self) -> int:
        """How many slots work."""
        return sum(slot["is_processing"] for slot in self.get("/slots").json())

    def wait_until(self, busy: bool) -> None:
        """Return once some slot works (or none does)."""
        while (self.busy() > 0) is not busy:
            time.sleep(0.02)


@dataclass(frozen=True)
class Pair:
    """The same configuration of both servers."""

    simulated: Subject
    real: Subject

    def each(self) -> tuple[Subject, Subject]:
        return self.simulated, self.real


def _answers(folder: Path) -> Path:
    path = folder / "answers.jsonl"
    rows = [{"match": "Type:", "text": " docs\nCommit: another"}, {"match": "<|im_start|>", "text": "One, two, three"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def plain_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    simulated = start_simulated(
        answers=_answers(tmp_path_factory.mktemp("contract")),
        slots=2,
        ctx_size=1024,
        swa=True,
        ping_seconds=1,
        time_scale=0.5,
        prefill_ms=6,
        fault=["load-seconds=0.3"],
    )
    arguments = ["-t", "1", "-c", "2048", "-np", "2", "--sse-ping-interval", "1", "--no-warmup"]
    with simulated, LlamaServer(arguments) as real:
        while httpx.get(simulated.url + "/health", trust_env=False).status_code != 200:
            time.sleep(0.02)
        yield Pair(Subject("simulated", simulated, {}), Subject("llama.cpp", real, {}))


@pytest.fixture(scope="session")
def guarded_pair() -> Iterator[Pair]:
    simulated = start_simulated(
        {"CONTRACT_KEY": KEY}, api_key_env="CONTRACT_KEY", slots=1, ctx_size=1024, cache_ram=0, fault="metrics-absent=1"
    )
    arguments = ["-t", "1", "-c", "1024", "-np", "1", "--cache-ram", "0", "--swa-full", "--no-warmup", "--no-metrics"]
    with simulated, LlamaServer([*arguments, "--api-key", KEY]) as real:
        headers = {"Authorization": f"Bearer {KEY}"}
        yield Pair(Subject("simulated", simulated, headers), Subject("llama.cpp", real, headers))


def _record(subject: Subject) -> None:
    if isinstance(subject.host, LlamaServer):
        record_real_program("llama-server", subject.host.version())


@pytest.fixture
def pair(plain_pair: Pair) -> Pair:
    _record(plain_pair.real)
    return plain_pair


@pytest.fixture(params=["simulated", "llama.cpp"])
def server(request: pytest.FixtureRequest, plain_pair: Pair) -> Subject:
    subject = plain_pair.simulated if request.param == "simulated" else plain_pair.real
    _record(subject)
    return subject


@pytest.fixture(params=["simulated", "llama.cpp"])
def guarded(request: pytest.FixtureRequest, guarded_pair: Pair) -> Subject:
    subject = guarded_pair.simulated if request.param == "simulated" else guarded_pair.real
    _record(subject)
    return subject
