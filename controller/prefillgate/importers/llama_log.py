"""llama-server's text log: what it prints of each task, at any verbosity, of builds since 2023 and of ik_llama.cpp.

A task is a request, or one choice of a request with n > 1 (`is_child = 1`): one prefill posing as several. Shapes of
the same figures: `slot print_timing: id 0 | task 7 | prompt eval time = X ms / P tokens`; the same without ids below a
line that has them; `... | tid=... id_slot=0 id_task=7`; and without any ids. P is what was processed. The prompt's
length stands in `new prompt` lines and what was reused in the first `seq_rm [N, end)`, `kv cache rm [N, end)` or
`p0=N` of a task, which need more verbosity in newer builds. At any verbosity a slot's release, right behind its task's
figures, tells how many tokens it holds: the prompt and all output but its last token, which was never decoded. That
tells the length too, unless the context was cut or a draft ran (its last tokens may stand there and not in the output).
Times are since the start of the server, so they tell no moment.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from prefillgate.api.cell_log import LogLine
from prefillgate.api.errors import clean
from prefillgate.core.cells import Cell, Status
from prefillgate.importers.base import UNKNOWN_ARM, Found, Imported, Unread
from prefillgate.importers.seen import CACHED, LENGTHS, PROMPTS, TEXTS, Seen
from prefillgate.importers.source import MAX_LINE_BYTES, Source, TooLong

LENGTH_FLAG = "llama-server --verbosity 4 (older builds tell it by default, or with --verbose)"
FLAGS = {
    PROMPTS: "`prefillgate replayset record` in front of the server",
    TEXTS: "its replies, kept as JSON lines",
    LENGTHS: LENGTH_FLAG,
    CACHED: LENGTH_FLAG,
}
MAX_ROOTS = 1000  # the latest tasks among which the parent of a child is looked for

_MARK = re.compile(
    rb"eval time|total time|print_timing|new prompt|prompt tokenized|processing task|seq_rm \[|kv cache rm"
    rb"|stop processing|slot released|send_error|cancel task|initializing \.\.\.|istening|loading model '"
)
_NOT_OURS = re.compile(rb"llama_perf|llama_print_timings|common_perf")  # the library's own sums, at its end
# Every repetition has an end: what a line holds may be text of anybody.
_IDS = re.compile(
    rb'(?:\bid|id_slot|slot_id)"?\s{0,4}[:=]?\s{0,4}(\d{1,12})[\s,|]{1,8}(?:task|"?id_task|"?task_id)"?\s{0,4}[:=]?\s{0,4}(-?\d{1,12})'
)
_PROMPT = re.compile(rb"prompt eval time\s{0,24}=\s{0,24}(\d{1,12}\.?\d{0,6}) ms /\s{0,24}(\d{1,12}) tokens")
_DECODE = re.compile(rb"\beval time\s{0,24}=\s{0,24}(\d{1,12}\.?\d{0,6}) ms /\s{0,24}(\d{1,12}) (?:tokens|runs)")
_TOTAL = re.compile(rb"total time\s{0,24}=\s{0,24}\d{1,12}\.?\d{0,6} ms")
_LENGTH = re.compile(rb'(?:task\.n_tokens|n_prompt_tokens)"?\s{0,24}[:=]\s{0,24}(\d{1,12})')
_REUSED = re.compile(rb'(?:seq_rm|kv cache rm) \[(\d{1,12}), end\)|p0"?\s{0,24}[:=]\s{0,24}(\d{1,12})')
_HELD = re.compile(rb"stop processing: n_tokens = (\d{1,12}), truncated = 0\b")
_CHILD = re.compile(rb"is_child = 1")
_TASK = re.compile(rb"(?:task id|id_task) = (\d{1,12})(?:, error: (.*))?")
_MODEL = re.compile(rb"loading model '([^']*)'")
_MOMENT = re.compile(rb'timestamp"?[=:](\d{9,10})\b')


@dataclass(slots=True)
class _Task:
    number: int
    where: str
    child: bool = False
    started_at: float | None = None
    length: int | None = None
    reused: int | None = None
    processed: int | None = None
    prefill_ms: float | None = None
    output: int | None = None
    decode_ms: float | None = None
    drafted: bool = False
    held: int | None = None  # tokens in its slot when that was released
    error: str | None = None


class LlamaServerLog:
    """The format `llama-server-log`."""

    name = "llama-server-log"
    title = "llama-server's text log"
    epochs_by_place = True  # server lives are numbered from the first line that is read

    def recognise(self, head: bytes) -> bool:
        """Lines about slots and tasks, or the timings of one."""
        if head.lstrip()[:2] in (b'{"', b"[{") and b'"print_timings"' not in head:
            return False
        return (
            re.search(rb"^.{0,80}?\b(?:slot|srv) +\w+(?:\(\))?: ", head, re.MULTILINE) is not None
            or re.search(rb"\bprint_timings?\b.*eval time", head) is not None
            or re.search(rb"id_slot=\d+ id_task=\d+", head) is not None
        )

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each task that was timed, refused or cancelled."""
        log = _Log(source.name)
        seen = Seen()
        search = _MARK.search
        for line in source.lines():
            if isinstance(line, TooLong):
                yield Unread(f"{source.name}:{line.number}", f"the line is longer than {MAX_LINE_BYTES} bytes")
                continue
            number, raw = line
            if search(raw) is None:
                continue
            for found in log.take(raw, f"{source.name}:{number}"):
                if isinstance(found, Imported):
                    seen.add(found)
                yield found
        for timed in log.flush():
            seen.add(timed)
            yield timed
        for task in (*log.lost, *log.open.values()):
            yield Unread(task.where, "a request that was begun and whose end is not in the log")
        yield from seen.absent(FLAGS)


@dataclass(slots=True)
class _Log:
    name: str
    starts: int = 0
    used: bool = False  # whether a task was seen since the last start
    model: str | None = None
    open: dict[int, _Task] = field(default_factory=dict)
    roots: list[int] = field(default_factory=list)  # tasks that are no child, rising
    latest: int | None = None  # the task of the last line that names one: figures may follow without ids
    unnamed: int = 0  # tasks of a log without ids
    lost: list[_Task] = field(default_factory=list)  # in flight when the server was started again
    timed: _Task | None = None  # its figures are all there; the release of its slot follows

    def take(self, raw: bytes, where: str) -> list[Imported | Unread]:
        """One line that may be of use."""
        earlier: list[Imported | Unread] = []
        if self.timed is not None and self._stands_apart(raw, self.timed.number):
            earlier += self.flush()
        found = self._line(raw, where)
        return earlier if found is None else [*earlier, found]

    def flush(self) -> list[Imported]:
        """The cell of a task whose figures are there and whose slot's release did not follow."""
        timed, self.timed = self.timed, None
        return [] if timed is None else [self._cell(timed)]

    def _stands_apart(self, raw: bytes, number: int) -> bool:
        """Whether a line shows that no release of the slot of task `number` is to come before it."""
        ids = _IDS.search(raw)
        if ids is None:
            return any(mark in raw for mark in (b"eval time", b"total time", b"initializing ...", b"istening"))
        return int(ids[2]) != number

    def _line(self, raw: bytes, where: str) -> Imported | Unread | None:
        if _NOT_OURS.search(raw):
            return None
        ids = _IDS.search(raw)
        if ids is None and (b"initializing ..." in raw or b"istening" in raw):
            self._begin()
            return None
        if ids is None and (model := _MODEL.search(raw)):
            self.model = re.split(r"[/\\]", clean(model[1].decode("utf-8", "replace")))[-1][:200] or None
            return None
        if b"send_error" in raw or b"cancel task" in raw:
            self._refuse(raw)
            return None
        if b"eval time" in raw or b"total time" in raw:
            return self._figures(raw, where, None if ids is None else int(ids[2]))
        if ids is None or int(ids[2]) < 0:
            return None
        return self._event(raw, where, int(ids[2]))

    def _begin(self) -> None:
        if self.used:
            self.starts, self.used = self.starts + 1, False
            self.lost += self.open.values()
            self.open, self.roots, self.latest = {}, [], None

    def _task(self, number: int, where: str) -> _Task:
        self.used = True
        if number not in self.open:
            self.open[number] = _Task(number, where)
        return self.open[number]

    def _event(self, raw: bytes, where: str, number: int) -> Imported | None:
        self.latest = number
        if b"processing task" in raw:
            self.open.pop(number, None)
            task = self._task(number, where)
            task.child = _CHILD.search(raw) is not None
            told = _MOMENT.search(raw)
            task.started_at = None if told is None else float(told[1])
            if not task.child:
                insort(self.roots, number)
                del self.roots[:-MAX_ROOTS]
        elif b"stop processing" in raw or b"slot released" in raw:
            return self._release(raw, number)
        elif b"draft acceptance" in raw:
            drafting = self.timed or self.open.get(number)
            if drafting is not None:
                drafting.drafted = True
        elif b"new prompt" in raw or b"prompt tokenized" in raw:
            if length := _LENGTH.search(raw):
                self._task(number, where).length = int(length[1])
        elif reused := _REUSED.search(raw):
            task = self._task(number, where)
            if task.reused is None:  # later ones tell how far it came
                task.reused = int(reused[1] or reused[2])
        return None

    def _release(self, raw: bytes, number: int) -> Imported | None:
        if self.timed is not None:  # of this task, or it would have been given already
            told = _HELD.search(raw)
            self.timed.held = None if told is None else int(told[1])
            return self.flush()[0]
        ended = self.open.pop(number, None)
        return None if ended is None else self._cell(ended, unfinished=True)

    def _refuse(self, raw: bytes) -> None:
        told = _TASK.search(raw)
        task = self.open.get(int(told[1])) if told else None
        if told and task is not None and task.error is None:
            task.error = clean((told[2] or b"cancelled").decode("utf-8", "replace"))[:200]

    def _figures(self, raw: bytes, where: str, number: int | None) -> Imported | Unread | None:
        """A line of a task's figures; the total is the last of them."""
        if number is None:
            number = self.latest if self.latest is not None else -1 - self.unnamed
        if prompt := _PROMPT.search(raw):
            task = self._task(number, where)
            task.prefill_ms, task.processed = float(prompt[1]), int(prompt[2])
        elif decode := _DECODE.search(raw):
            task = self._task(number, where)
            task.decode_ms, task.output = float(decode[1]), int(decode[2])
        elif _TOTAL.search(raw):
            if number < 0:
                self.unnamed += 1
            ended = self.open.pop(number, None)
            if ended is None or ended.processed is None:
                return Unread(where, "a total without the figures before it")
            if number < 0:
                return self._cell(ended)
            self.timed = ended
        else:
            return Unread(where, "figures of a request that cannot be read")
        return None

    def _cell(self, task: _Task, unfinished: bool = False) -> Imported:
        root = self._root(task)
        parent = self.open.get(root, task)
        length = task.length if task.length is not None else parent.length
        reused = task.reused if task.reused is not None else parent.reused
        if length is None and reused is not None and task.processed is not None:
            length = reused + task.processed
        if length is None:
            length = _length_held(task)
        if reused is None and length is not None and task.processed is not None and task.processed <= length:
            reused = length - task.processed
        epoch = f"{self.name} start {self.starts}"
        cell = Cell(
            arm=UNKNOWN_ARM,
            case_id=f"unknown case of {epoch} task {root}",
            status=Status.INVALID if unfinished else Status.OK,
            server_epoch=epoch,
            started_at=task.started_at,
            prompt_tokens=length,
            cached_tokens=None if unfinished else reused,
            processed_tokens=task.processed,
            output_tokens=task.output,
            prefill_ms=task.prefill_ms,
            decode_ms=task.decode_ms,
            request_id=f"task {root}",
            choice_index=task.number - root if task.child else None,
        )
        reason = task.error or ("it ended without timings" if unfinished else None)
        return Imported(LogLine(cell, scored=not unfinished, reason=reason), task.where, label=self.model)

    def _root(self, task: _Task) -> int:
        """The task whose prefill a child shares: its request's other tasks were numbered right after it."""
        if not task.child:
            return task.number
        at = bisect_left(self.roots, task.number)
        return self.roots[at - 1] if at else task.number


def _length_held(task: _Task) -> int | None:
    """The prompt's length by what its slot held at the end; None where that cannot tell it."""
    if task.held is None or task.drafted or not task.output:
        return None
    length = task.held - task.output + 1
    return length if length >= (task.processed or 0) else None
