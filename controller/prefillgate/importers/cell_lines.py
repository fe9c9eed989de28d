"""prefillgate's own cell log, read line by line: a damaged line is told and passed over."""

from __future__ import annotations

import io
from collections.abc import Iterator

from prefillgate.api.cell_log import CellLog, CellLogError
from prefillgate.importers.base import Found, Imported, Unread
from prefillgate.importers.reading import CELLS, CELLS_TITLE, is_cell_log
from prefillgate.importers.source import MAX_LINE_BYTES, Source, TooLong


class CellLines:
    """The format `cells`."""

    name = CELLS
    title = CELLS_TITLE

    def recognise(self, head: bytes) -> bool:
        """Whether the first line that is not blank is an object with an `arm`."""
        return is_cell_log(head)

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each line that is one."""
        for found in source.lines():
            if isinstance(found, TooLong):
                yield Unread(f"{source.name}:{found.number}", f"the line is longer than {MAX_LINE_BYTES} bytes")
                continue
            number, raw = found
            if not raw.strip():
                continue
            where = f"{source.name}:{number}"
            log = CellLog()
            try:
                log.read(io.BytesIO(raw), where)
            except CellLogError:
                yield Unread(where, "no line of a cell log")
                continue
            for line in log.cells():
                yield Imported(line, where, arm_told=True)
