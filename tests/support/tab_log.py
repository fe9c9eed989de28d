"""A log format for tests of the seam: one request a line, label, prompt, cached and prompt tokens, output, tab between.

    fast<TAB>hello<TAB>0<TAB>1000<TAB>VERDICT: LGTM

`-` is an unknown value. It cannot hold the second witness, and says which flag would give it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prefillgate.api.cell_log import LogLine
from prefillgate.api.errors import Problem
from prefillgate.core.cells import Cell
from prefillgate.core.journal import Texts
from prefillgate.importers.base import UNKNOWN_ARM, Absent, Asked, Found, Imported, Unread
from prefillgate.importers.source import ImportProblem, Source, TooLong

MARK = b"#tabs\n"


def _known(text: str) -> str | None:
    return None if text == "-" else text


def _count(text: str) -> int | None:
    return None if text == "-" else int(text)


@dataclass(frozen=True)
class TabLog:
    name: str = "tabs"
    title: str = "a tab log"
    columns: Mapping[str, str] = field(default_factory=dict)

    def recognise(self, head: bytes) -> bool:
        return head.startswith(MARK)

    def with_columns(self, columns: Mapping[str, str]) -> TabLog:
        for name in columns:
            if name != "label":
                raise ImportProblem(Problem("", "--column", f"{name} is no field", "label"))
        return TabLog(columns=columns)

    def read(self, source: Source) -> Iterator[Found]:
        yield Absent("the processed tokens", "--verbose-tabs")
        yield Absent("when requests ended")
        for line in source.lines():
            assert not isinstance(line, TooLong)
            number, raw = line
            where = f"{source.name}:{number}"
            parts = raw.decode().split("\t")
            if raw + b"\n" == MARK:
                continue
            if len(parts) != 5:
                yield Unread(where, f"not five columns but {len(parts)}")
                continue
            label, prompt, cached, length, said = parts
            cell = Cell(
                UNKNOWN_ARM,
                prompt,
                prompt_tokens=_count(length),
                cached_tokens=_count(cached),
                processed_tokens=None if "-" in (length, cached) else int(length) - int(cached),
                finish_reason="length" if said.endswith("…") else "stop",
            )
            shown = None if said == "-" else Texts(content=said)
            label = prompt if self.columns.get("label") == "prompt" else label
            asked = Asked("/v1/completions", {"prompt": prompt})
            yield Imported(LogLine(cell), where, False, _known(label), shown, asked)
