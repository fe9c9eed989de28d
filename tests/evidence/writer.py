"""A process that appends cells to a store as fast as it can and prints each id when `append` has returned.

Usage: python writer.py STORE PLAN.json PAUSE_SECONDS. STORE is a file or the URL of a run; PLAN.json holds the plan as
canonical JSON. Resumes a store it finds, and rests so long after each append.
"""

import sys
import time
from pathlib import Path

from prefillgate.api.store_address import store_address
from prefillgate.core.cells import Cell
from prefillgate.core.journal import CellMeasured, Purpose, Texts
from prefillgate.evidence import create_store, decode_event, open_store, store_exists


def main(store: str, plan: Path, pause_seconds: float) -> None:
    where = store_address(store)
    journal = open_store(where) if store_exists(where) else create_store(where, decode_event(plan.read_bytes()))
    cell_id = max((event.cell_id for event in journal.events() if isinstance(event, CellMeasured)), default=-1)
    print("ready", flush=True)
    while True:
        cell_id += 1
        cell = Cell("candidate", "a", bad=cell_id % 3 == 0, prefill_ms=cell_id / 7)
        journal.append(CellMeasured(cell_id, cell, Purpose.SCREEN), Texts(response=f"{cell_id} " * (cell_id % 2000)))
        print(cell_id, flush=True)
        time.sleep(pause_seconds)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
