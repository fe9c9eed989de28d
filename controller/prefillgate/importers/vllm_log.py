"""vLLM's text log with `--enable-log-requests`: what it prints of each request, of versions from 0.3 on.

`Received request ID: prompt: '...', params: SamplingParams(...), prompt_token_ids: [...]` (to 0.11), the same without
a prompt beside `Request ID details: prompt: '...'` at DEBUG (later), `Generated response ID: output: '...',
output_token_ids: [...], finish_reason: stop` with `--enable-log-outputs`, `Aborted request ID`, and the access lines
of its server. A prompt is the rendered one, so as a case it goes to /v1/completions. What was cached is told of no
request, and times are without a year.
"""

from __future__ import annotations

import ast
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from prefillgate.api.cell_log import LogLine
from prefillgate.api.replay_set import COMPLETIONS
from prefillgate.core.cells import Cell, Status
from prefillgate.core.journal import Texts
from prefillgate.importers.base import UNKNOWN_ARM, Absent, Asked, Found, Imported, Unread
from prefillgate.importers.records import Damaged
from prefillgate.importers.replies import known_prompt
from prefillgate.importers.seen import CACHED, LENGTHS, PROMPTS, TEXTS, Seen
from prefillgate.importers.source import MAX_LINE_BYTES, Source, TooLong

FLAGS = {
    PROMPTS: "vLLM --enable-log-requests without --max-log-len, from 0.11.1 on with VLLM_LOGGING_LEVEL=DEBUG too",
    LENGTHS: "vLLM --enable-log-requests, for requests to /v1/completions,",
    TEXTS: "vLLM --enable-log-outputs",
}
CACHED_FLAG = "vLLM's replies with --enable-prompt-tokens-details, and none of its logs,"
MAX_WAITING = 10_000  # requests of which more lines may come; beyond that the oldest is told as it is
PREVIEW = 4096  # characters of a prompt that is only previewed

_MARK = re.compile(
    rb"Received request |Request \S+ details: |Generated response |Aborted request |HTTP/1\.|max_log_len|hit rate"
)
_LITERAL = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_STRING = re.compile(rf"(?<!\\)(?:{_LITERAL})")  # an escaped quote opens nothing: else a line of them takes for ever
_IDS = r"(\[[\d, ]*\]|None)"
# Whatever comes first in a line is what it is; the rest may be text of anybody.
_LINE = re.compile(
    r"(Received|Aborted) request (\S+?)(?:: |\.?$)|Request (\S+) details: "
    r"|Generated response (\S+?)( \(streaming \w+\))?: "
)
_OUTPUT = re.compile(rf"output: ({_LITERAL}|None)(.*)", re.DOTALL)
_PROMPT_IDS = re.compile(rf"prompt_token_ids: {_IDS}")
_OUTPUT_IDS = re.compile(rf"output_token_ids: (\((?:[\d, ]*)\)|{_IDS})")
_FINISH = re.compile(r"finish_reason: (\w+)")
_ACCESS = re.compile(r'"POST \S*/completions\S* HTTP/1\.\d" (\d{3})')
_LIMIT = re.compile(r"max_log_len['\"]?[=:] ?(\d{1,9})\b")
_RATE = re.compile(r"refix cache hit rate: (?:GPU: )?(\d{1,3}\.?\d{0,3})%")
_NUMBERS = re.compile(r"\b(temperature|top_p|max_tokens|seed|top_k|min_p|repetition_penalty)=(-?\d[\d.e-]{0,20})")
_STOP = re.compile(r"\bstop=(\[(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[, ])*\])")
_OFF = {"top_k": (-1, 0), "top_p": (1.0,), "min_p": (0.0,), "repetition_penalty": (1.0,)}


@dataclass(slots=True)
class _Request:
    request_id: str
    where: str
    told: bool = False  # by its "Received request"; details alone are told before it
    prompt: str | None = None
    prompt_tokens: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    output: str | None = None
    output_tokens: int | None = None
    finish: str | None = None
    ended: bool = False
    aborted: bool = False


class VllmLog:
    """The format `vllm-log`."""

    name = "vllm-log"
    title = "vLLM's log"

    def recognise(self, head: bytes) -> bool:
        """Lines of requests, statistics or the start of vLLM."""
        return (
            re.search(
                rb"Received request \S+: (?:prompt|params): |Request \S+ details: prompt|Avg prompt throughput: "
                rb"|vLLM API server version|\(APIServer pid=\d+\)",
                head,
            )
            is not None
        )

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each request that was received, in that order, or seen in an access line alone."""
        log, seen = _Log(source.name), Seen()
        for line in source.lines():
            if isinstance(line, TooLong):
                yield Unread(f"{source.name}:{line.number}", f"the line is longer than {MAX_LINE_BYTES} bytes")
                continue
            number, raw = line
            if _MARK.search(raw) is None:
                continue
            problem = log.take(raw.decode("utf-8", "replace"), f"{source.name}:{number}")
            if problem is not None:
                yield problem
            for found in log.ready(MAX_WAITING):
                seen.add(found)
                yield found
        for found in log.ready(0):
            seen.add(found)
            yield found
        if log.cut:
            yield Absent(f"{log.cut} prompts whole: they are cut", FLAGS[PROMPTS])
        yield from seen.absent(FLAGS)
        if seen.requests:
            rate = (
                "" if log.hit_rate is None else f" (of all requests together, its statistics: up to {log.hit_rate:g} %)"
            )
            yield Absent(f"{CACHED} of a request{rate}", CACHED_FLAG)


@dataclass(slots=True)
class _Log:
    name: str
    limit: int | None = None  # --max-log-len, where the log tells it
    hit_rate: float | None = None
    cut: int = 0
    unanswered: int = 0  # received, and no access line yet
    waiting: OrderedDict[str, _Request] = field(default_factory=OrderedDict)

    def take(self, line: str, where: str) -> Unread | None:
        """One line that may be of use."""
        found = _LINE.search(line)
        if found is None:
            return self._beside(line, where)
        rest = line[found.end() :]
        if found[1] == "Received":
            request = self._request(found[2], where)
            request.told, request.where = True, where
            self.unanswered += 1
            return self._asked(request, rest, where)
        if found[3] is not None:
            return self._asked(self._request(found[3], where), rest, where)
        if found[4] is not None:
            return None if found[5] == " (streaming delta)" else self._answered(found[4], rest, where)
        if found[2] in self.waiting:
            self.waiting[found[2]].ended = self.waiting[found[2]].aborted = True
        return None

    def _beside(self, line: str, where: str) -> Unread | None:
        """A line that is of no request by name."""
        if "Received request " in line or "Generated response " in line:
            return Unread(where, "a line of a request that is cut or damaged")
        if found := _ACCESS.search(line):
            self._accessed(int(found[1]), where)
        elif found := _RATE.search(line):
            self.hit_rate = max(self.hit_rate or 0.0, float(found[1]))
        if found := _LIMIT.search(line):
            self.limit = int(found[1])
        return None

    def ready(self, most: int) -> Iterator[Imported]:
        """The oldest requests, as long as they have ended or more than `most` wait."""
        while self.waiting:
            first = next(iter(self.waiting.values()))
            if not first.ended and len(self.waiting) <= most:
                return
            self.waiting.popitem(last=False)
            yield self._cell(first)

    def _request(self, request_id: str, where: str) -> _Request:
        return self.waiting.setdefault(request_id, _Request(request_id, where))

    def _asked(self, request: _Request, rest: str, where: str) -> Unread | None:
        bare = _STRING.sub("''", rest)
        prompt = next((each for each in _STRING.finditer(rest) if rest.endswith("prompt: ", 0, each.start())), None)
        params_at, ids = bare.find("params: "), _PROMPT_IDS.search(bare)
        if prompt is None and ids is None and params_at < 0:
            return self._unread(request, where, "a line of a request that is cut or damaged")
        preview = 0 <= params_at < bare.find("prompt: ")
        if prompt is not None:
            try:
                request.prompt = str(ast.literal_eval(prompt[0]))
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return self._unread(request, where, "a prompt that cannot be read")
            limit = PREVIEW if preview and self.limit is None else self.limit
            if limit is not None and len(request.prompt) >= limit:
                self.cut += 1
                request.prompt = None
        if ids is not None and ids[1] != "None":
            length = ids[1].count(",") + 1 if ids[1] != "[]" else 0
            request.prompt_tokens = length if self.limit is None or length < self.limit else None
        if params_at >= 0:
            request.params.update(_params(bare, rest if prompt is None or preview else rest[prompt.end() :]))
        return None

    def _unread(self, request: _Request, where: str, why: str) -> Unread:
        """A request is counted as read or as unread, never as both."""
        self.waiting.pop(request.request_id, None)
        return Unread(where, why)

    def _answered(self, request_id: str, rest: str, where: str) -> Unread | None:
        found = _OUTPUT.match(rest)
        if found is None:
            return Unread(where, "a line of a request that is cut or damaged")
        request = self._request(request_id, where)
        try:
            request.output = None if found[1] == "None" else str(ast.literal_eval(found[1]))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return Unread(where, "a response that cannot be read")
        ids, finish = _OUTPUT_IDS.search(found[2]), _FINISH.search(found[2])
        if ids is not None and ids[1] not in ("None", "[]", "()"):
            request.output_tokens = len(re.findall(r"\d+", ids[1]))
        request.finish = None if finish is None or finish[1] in ("None", "streaming_complete") else finish[1]
        request.ended = True
        return None

    def _accessed(self, status: int, where: str) -> None:
        """An access line is that of a request that was received, in no known order; else it is a request by itself."""
        if status == 200 and self.unanswered:
            self.unanswered -= 1
            return
        alone = self._request(f"access line {where}", where)
        alone.ended = True
        alone.params["status"] = status

    def _cell(self, request: _Request) -> Imported:
        status = request.params.pop("status", None)
        asked = None
        if request.prompt:
            asked = Asked(COMPLETIONS, {"prompt": request.prompt, **request.params})
        try:
            known = known_prompt(asked, None, request.where)
        except Damaged:
            asked, known = None, known_prompt(None, None, request.where)
        refused = request.aborted or status not in (None, 200)
        empty = request.output == "" and not refused
        cell = Cell(
            arm=UNKNOWN_ARM,
            status=Status.INVALID if refused else Status.FAILED if empty else Status.OK,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            finish_reason=request.finish,
            request_id=None if status is not None else request.request_id[:256],
            **known,
        )
        reason = "aborted" if request.aborted else "EmptyAnswer" if empty else None
        line = LogLine(cell, scored=not refused, http_status=status, reason=reason)
        texts = None if request.output is None else Texts(content=request.output)
        return Imported(line, request.where, texts=texts, asked=asked)


def _params(bare: str, told: str) -> dict[str, Any]:
    """The sampling parameters that a body of /v1/completions has; `bare` is without the strings in it."""
    found: dict[str, Any] = {}
    for name, value in _NUMBERS.findall(bare):
        try:
            number = float(value)
        except ValueError:
            continue
        if number not in _OFF.get(name, ()):
            found[name] = int(number) if name in ("max_tokens", "seed", "top_k") and number.is_integer() else number
    if stop := _STOP.search(told):
        try:
            stops = ast.literal_eval(stop[1])
        except (ValueError, SyntaxError):
            stops = []
        if stops:
            found["stop"] = stops
    return found
