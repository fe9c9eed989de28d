"""lm-evaluation-harness: the samples that `lm_eval --log_samples` wrote, one document of a task a line.

A line holds one request per entry of `arguments`, and `resps` its outputs, several where the task repeats. The choices
of a multiple-choice document are requests of their own (context and continuation), without an output. The harness logs
a document once per filter; those are the same requests, so the lines of the first filter count.

`bad` is filled where a line has one request, its filter is "none" (the only one there is) and gave one output, and the
metrics of the line hold exactly one of `acc` and `exact_match`, as 0 or 1: it is that of each repeat with that very
output. Any other score judges something else than one output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prefillgate.importers.base import Absent, Asked, Found, Imported, Unread
from prefillgate.importers.records import Damaged, Record, outline, records
from prefillgate.importers.seen import CACHED, LENGTHS, Seen
from prefillgate.importers.source import Source
from prefillgate.importers.told import STARTS, Told, asked_text, messages_in, texts_of

SAME_REQUEST = "the same requests under another filter: counted once"
SERVER_LOG = "the server's own log of the run (lm_eval keeps no counters)"
JUDGES = ("acc", "exact_match")
_SETTINGS = {"max_gen_toks": "max_tokens", "max_tokens": "max_tokens", "temperature": "temperature", "until": "stop"}


class LmEvalSamples:
    """The format `lm-eval`."""

    name = "lm-eval"
    title = "lm-eval samples (--log_samples)"

    def recognise(self, head: bytes) -> bool:
        """Lines with a document, its arguments and what came back."""
        return {"doc_id", "arguments", "filtered_resps"} <= outline(head)

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each request, and for each repeat of it."""
        seen = Seen()
        first_filter: Any = None

        def told(line: Record, where: str) -> Iterable[Found]:
            nonlocal first_filter
            first_filter = line.get("filter") if not seen.requests else first_filter
            return _requests(line, where) if line.get("filter") == first_filter else [Unread(where, SAME_REQUEST)]

        yield from seen.tell(records(source), told)
        yield from seen.absent({CACHED: SERVER_LOG, LENGTHS: SERVER_LOG})
        if seen.requests:
            yield Absent(STARTS, SERVER_LOG)
            yield Absent("the model", "one file for each arm")


def _requests(line: Record, where: str) -> list[Imported]:
    asked = [_asked(each) for each in _arguments(line)]
    outputs = line.get("resps")
    if not isinstance(outputs, list) or len(outputs) != len(asked):
        raise Damaged("resps does not match arguments")
    repeats = [each if isinstance(each, list) and each else [each] for each in outputs]
    alone = len(asked) == 1
    judged = _judged(line) if alone else None
    return [
        Told(
            where,
            asked=request,
            texts=texts_of(said) if isinstance(said, str) else None,
            bad=_bad(line) if alone and (len(repeats[0]) == 1 or (said is not None and said == judged)) else None,
        ).imported()
        for request, said_of_it in zip(asked, repeats, strict=True)
        for said in said_of_it
    ]


def _arguments(line: Record) -> list[list[Any]]:
    """The arguments of each request: a list of lists, or `gen_args_0` with `arg_0`, `arg_1`."""
    told = line.get("arguments")
    if isinstance(told, dict):
        told = list(told.values())
    if not isinstance(told, list) or not told:
        raise Damaged("arguments holds no request")
    found = [list(each.values()) if isinstance(each, dict) else each for each in told]
    if not all(isinstance(each, list) and each for each in found):
        raise Damaged("arguments holds something that is no request")
    return found


def _asked(arguments: list[Any]) -> Asked:
    prompt = arguments[0]
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]  # a chat is kept as a list of its JSON
    beside = arguments[1] if len(arguments) > 1 else None
    if isinstance(beside, str) and isinstance(prompt, str):
        prompt += beside  # the continuation whose likelihood was asked
    more = {}
    if isinstance(beside, dict):
        more = {ours: beside[theirs] for theirs, ours in _SETTINGS.items() if beside.get(theirs) not in (None, [])}
    asked = asked_text(prompt, chat=messages_in(prompt) is not None, more=more)
    if asked is None:
        raise Damaged("a prompt that is neither text nor messages")
    return asked


def _judged(line: Record) -> str | None:
    """The one output that was judged; None where it is not one text."""
    told = line.get("filtered_resps")
    while isinstance(told, list) and len(told) == 1:
        told = told[0]
    return told if isinstance(told, str) else None


def _bad(line: Record) -> bool | None:
    if line.get("filter", "none") != "none":
        return None
    values = [line[name] for name in JUDGES if name in line]
    if len(values) != 1 or isinstance(values[0], bool) or values[0] not in (0, 1):
        return None
    return bool(values[0] == 0)
