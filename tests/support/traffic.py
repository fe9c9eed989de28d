"""Other people's requests: threads that keep a server busy while something is measured on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

WAIT_SECONDS = 60.0


@dataclass
class Traffic:
    """What was asked of the server so far by others."""

    answered: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self) -> None:
        with self._lock:
            self.answered += 1


@contextmanager
def other_traffic(url: str, clients: int = 1, max_tokens: int = 8, pause_seconds: float = 0.0) -> Iterator[Traffic]:
    """Requests with new prompts, one after another in each client, until the block ends. Begins once one was answered.

    An error of a client ends the block with that error.
    """
    traffic, stop, first = Traffic(), threading.Event(), threading.Event()
    errors: list[Exception] = []

    def ask(number: int) -> None:
        try:
            with httpx.Client(timeout=WAIT_SECONDS) as client:
                while not stop.is_set():
                    prompt = f"Somebody {number} asks for the {traffic.answered}th time what the harbour is like. " * 2
                    body = {"model": None, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
                    client.post(f"{url}/v1/completions", json=body).raise_for_status()
                    traffic.count()
                    first.set()
                    stop.wait(pause_seconds)
        except Exception as error:
            errors.append(error)
            first.set()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        first.wait(WAIT_SECONDS)
        yield traffic
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
