"""Speaks to a simulated server as a client of its own, without the gate's engines."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx

from tests.support.simulated import SimulatedServer

PROMPT = "Please review this pull request, which moves the retry logic into one place. "


def case(tag: str) -> str:
    """A prompt of some length that begins with its tag and holds no other."""
    return f"[{tag}] " + PROMPT * 6


def post(server: SimulatedServer, body: dict[str, Any], path: str = "/v1/completions") -> httpx.Response:
    """One request on a connection of its own."""
    with httpx.Client(base_url=server.url, trust_env=False, verify=False, timeout=60) as client:
        return client.post(path, json=body)


def get(server: SimulatedServer, path: str) -> httpx.Response:
    with httpx.Client(base_url=server.url, trust_env=False, verify=False, timeout=60) as client:
        return client.get(path)


def ask(server: SimulatedServer, prompt: str, **fields: Any) -> dict[str, Any]:
    """A greedy completion; its body."""
    reply = post(server, {"prompt": prompt, "temperature": 0, **fields})
    assert reply.status_code == 200, reply.text
    data: dict[str, Any] = reply.json()
    return data


def text(reply: dict[str, Any]) -> str:
    """The text of the first result."""
    said: str = reply["choices"][0]["text"]
    return said


def counters(server: SimulatedServer) -> dict[str, float]:
    """Every value of /metrics, without the names' prefix."""
    rows = [line.split() for line in get(server, "/metrics").text.split("\n") if line and not line.startswith("#")]
    return {name.removeprefix("llamacpp:"): float(value) for name, value in rows}


def raw_exchange(server: SimulatedServer, body: dict[str, Any], path: str = "/v1/completions") -> bytes:
    """All bytes the server sends on one connection. Raises ConnectionResetError when it resets it."""
    payload = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(payload)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(head + payload)
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
    return received


def events(content: bytes) -> list[dict[str, Any]]:
    """The JSON events of a stream."""
    blocks = [block for block in content.split(b"\n\n") if block.startswith(b"data: {")]
    return [json.loads(block.removeprefix(b"data: ")) for block in blocks]
