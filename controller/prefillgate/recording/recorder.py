"""From request bodies to lines of the file, in a thread of its own: the traffic never waits for it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from prefillgate.api.errors import ReplaySetError
from prefillgate.api.replay_set import canonical_json, prompt_digest, read_line
from prefillgate.core.quality_expect import NotStrictJson, parse_json
from prefillgate.core.scrub import Scrubber

QUEUED_REQUESTS = 1024
QUEUED_BYTES = 64 * 1024 * 1024
PREFIX = "recorded-"
ID_DIGITS = 16


class Lines(Protocol):
    """Where cases go: `prefillgate.recording.case_file.CaseFile`."""

    digests: set[bytes]

    def append(self, line: bytes, digest: bytes) -> None: ...

    def sync(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was answered: its route, its body, and the credentials it came with."""

    path: str
    body: bytes
    secrets: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Rules:
    """What is kept. `sample` is the share of prompts (0 to 1]; `max_cases` bounds the file, None not at all."""

    sample: float = 1.0
    max_cases: int | None = None


#: What becomes of a request, in the order it is told.
ENDINGS = {
    "kept": "kept",
    "duplicate": "with a prompt that is kept already",
    "not_sampled": "not in the sample",
    "refused": "not answered with 200",
    "unanswered": "that the server did not answer",
    "unreadable": "that are no HTTP",
    "too_large": "with a body above --max-body",
    "no_case": "that are no case of a replay set",
    "enough": "after --max-cases",
    "dropped": "dropped, since the disk was too slow",
    "not_written": "lost, since the file could not be written",
}


class Recorder:
    """Takes requests from the traffic and writes cases. `say` is told what a person should know, from any thread."""

    def __init__(self, lines: Lines, rules: Rules, scrubber: Scrubber | None, say: Callable[[str], None]) -> None:
        self._lines, self._rules, self._scrubber, self._say = lines, rules, scrubber, say
        self._queue: deque[Request] = deque()
        self._queued_bytes = 0
        self._wake = threading.Condition()
        self._ending = False
        self._said: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()  # by HTTP status
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def take(self, request: Request) -> None:
        """Queue a request, or drop and count it where the queue is full. Never waits for the disk."""
        with self._wake:
            full = len(self._queue) >= QUEUED_REQUESTS or self._queued_bytes + len(request.body) > QUEUED_BYTES
            if not full:
                self._queue.append(request)
                self._queued_bytes += len(request.body)
                self._wake.notify()
                return
        self.count("dropped")
        self._say_once("dropped", "the file is written too slowly: requests are passed on and not kept")

    def count(self, ending: str) -> None:
        """Note a request that is not kept, by one of `ENDINGS`."""
        with self._wake:
            self.counts[ending] += 1

    def count_refused(self, status: int) -> None:
        """Note a request that was answered with another status than 200."""
        with self._wake:
            self.refused[status] += 1
        self.count("refused")

    def close(self) -> None:
        """Write what is queued and end."""
        with self._wake:
            self._ending = True
            self._wake.notify()
        self._thread.join()

    def scrubbed(self) -> Counter[str]:
        """How many things of each kind were replaced."""
        return Counter() if self._scrubber is None else Counter(self._scrubber.counts)

    # -- the thread

    def _work(self) -> None:
        while (request := self._next()) is not None:
            try:
                self.count(self._kept(request))
            except OSError as error:
                self.count("not_written")
                self._say_once("not_written", f"the file cannot be written: {error.strerror or error}")

    def _next(self) -> Request | None:
        with self._wake:
            if self._queue:
                return self._popped()
        self._sync()  # once for all that was queued
        with self._wake:
            while not self._queue:
                if self._ending:
                    return None
                self._wake.wait()
            return self._popped()

    def _popped(self) -> Request:
        request = self._queue.popleft()
        self._queued_bytes -= len(request.body)
        return request

    def _sync(self) -> None:
        try:
            self._lines.sync()
        except OSError as error:
            self._say_once("sync", f"the disk does not take the file: {error.strerror or error}")

    def _kept(self, request: Request) -> str:
        """What became of the request. Raises OSError."""
        most = self._rules.max_cases
        if most is not None and len(self._lines.digests) >= most:
            self._say_once("enough", f"{most} cases are kept, as many as asked for; traffic is passed on as before")
            return "enough"
        try:
            body = parse_json(request.body.decode("utf-8"))
            if not isinstance(body, dict):
                return "no_case"
            if self._scrubber is not None:
                body = self._scrubber.value(body, request.secrets)
            digest = prompt_digest(body)
            line = _line(request.path, body, digest)
            read_line(line, "", 0)
        except (UnicodeError, NotStrictJson, ReplaySetError, RecursionError, AttributeError, TypeError):
            return "no_case"
        if not in_sample(digest, self._rules.sample):
            return "not_sampled"
        if digest in self._lines.digests:
            return "duplicate"
        self._lines.append(line, digest)
        return "kept"

    def _say_once(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._say(text)


def _line(path: str, body: dict[str, object], digest: bytes) -> bytes:
    name = f"{PREFIX}{digest.hex()[:ID_DIGITS]}"
    case = {"custom_id": name, "method": "POST", "url": path, "body": body}
    canonical_json(case)  # refuses a lone surrogate
    return json.dumps(case, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def in_sample(digest: bytes, share: float) -> bool:
    """Whether the prompt of that digest is among a `share` of all prompts: the same prompt always is or never is."""
    draw = int.from_bytes(hashlib.sha256(b"sample" + digest).digest()[:8], "big")
    return draw < share * 2**64
