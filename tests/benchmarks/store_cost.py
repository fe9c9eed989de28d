"""What keeping the evidence costs: a commit in PostgreSQL beside one in SQLite, and bytes per cell beside the raw text.

One run on a simulated server gives the events and texts; they are written again into a file and into a database on this
machine, both with every commit on the disk, taking turns. Per cell: milliseconds of a commit, and bytes of the store
against the bytes of the raw text (UTF-8, uncompressed): of all that was sent and received, which the store keeps, and
of the body and the answer alone, without what streaming wraps around each token. The goal for growth is at most the
first.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from prefillgate.api.policy import load_policy
from prefillgate.api.store_address import StoreAddress, store_address
from prefillgate.cli.running import execute
from prefillgate.core.journal import CellMeasured, Event, Planned, Texts
from prefillgate.evidence import create_store
from prefillgate.replay.replay_set import load_replay_set
from prefillgate.replay.runner import Silent
from prefillgate.replay.session import ArmRequest, RunRequest
from tests.support.postgres import running_server
from tests.support.simulated import start_simulated

GOAL_GROWTH = 1.0
CASES = 16
ROUNDS = 5
SIZES = ((300, 64), (2500, 256))  # words of a prompt, output tokens

Pair = tuple[Event, Texts | None]


def write_set(path: Path, words: int, output_tokens: int) -> None:
    """Prompts of that many words, each with its own beginning."""
    lines = []
    for number in range(CASES):
        prompt = f"case {number} " + " ".join(f"word{(number * 7919 + i * 31) % 9973}" for i in range(words))
        body = {"model": "m", "prompt": prompt, "max_tokens": output_tokens, "temperature": 0}
        lines.append(json.dumps({"custom_id": f"c{number}", "method": "POST", "url": "/v1/completions", "body": body}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def a_run(folder: Path, words: int, output_tokens: int) -> list[Pair]:
    """The events and texts of one run on two simulated servers."""
    write_set(folder / "set.jsonl", words, output_tokens)
    with start_simulated(seed=1, text_seed=9) as baseline, start_simulated(seed=2, text_seed=9) as candidate:
        request = RunRequest(
            ArmRequest(baseline.url),
            ArmRequest(candidate.url),
            load_replay_set(str(folder / "set.jsonl")),
            load_policy("quick"),
            folder / f"run-{words}.db",
            seed=5,
        )
        finished = asyncio.run(execute(request, Silent()))
    with finished.journal as journal:
        return [
            (event, journal.texts(event.cell_id) if isinstance(event, CellMeasured) else None)
            for event in journal.events()
        ]


def written(where: StoreAddress, pairs: list[Pair]) -> list[float]:
    """Write it all; milliseconds of each commit of a cell."""
    (first, _), *rest = pairs
    assert isinstance(first, Planned)
    taken = []
    with create_store(where, first) as journal:
        for event, texts in rest:
            began = time.perf_counter()
            journal.append(event, texts)
            if texts is not None:
                taken.append(1000 * (time.perf_counter() - began))
    return taken


def database_bytes(url: str) -> int:
    """What the tables and their indexes take, once nothing is left of rows that were changed."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM FULL prefillgate.events")
        connection.execute("VACUUM FULL prefillgate.runs")
        tables = connection.execute(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE c.relkind = 'r' "
            "AND c.relnamespace = 'prefillgate'::regnamespace"
        ).fetchone()
        assert tables is not None
        return int(tables[0])


def raw_bytes(pairs: list[Pair]) -> tuple[int, int]:
    """All that was sent and received; and the bodies and answers alone."""
    texts = [texts for _, texts in pairs if texts is not None]
    whole = "".join(each.request + each.response for each in texts)
    alone = "".join(each.request + each.content + each.reasoning + each.tool_calls for each in texts)
    return len(whole.encode("utf-8", "surrogatepass")), len(alone.encode("utf-8", "surrogatepass"))


def measure(folder: Path, address: str, sizes: tuple[int, int]) -> bool:
    """One row for a size of prompt and answer. True when growth is within the goal."""
    pairs = a_run(folder, *sizes)
    cells = sum(1 for _, texts in pairs if texts is not None)
    in_file: list[float] = []
    in_database: list[float] = []
    for turn in range(ROUNDS):
        path = folder / f"store-{sizes[0]}-{turn}.db"
        for into in ("file", "database")[:: 1 if turn % 2 else -1]:
            if into == "file":
                in_file += written(path, pairs)
            else:
                in_database += written(store_address(f"{address}?run=r{turn}"), pairs)
    file_ms, database_ms = statistics.median(in_file), statistics.median(in_database)
    raw, alone = (count / cells for count in raw_bytes(pairs))
    file_bytes = (folder / f"store-{sizes[0]}-0.db").stat().st_size / cells
    table_bytes = database_bytes(address) / cells / ROUNDS
    print(
        f"{raw:>9.0f} {alone:>9.0f} {file_bytes:>9.0f} {file_bytes / raw:>6.2f} {file_bytes / alone:>6.2f}"
        f" {table_bytes:>11.0f} {table_bytes / raw:>6.2f} {table_bytes / alone:>6.2f}"
        f" {file_ms:>10.2f} {database_ms:>11.2f} {database_ms / file_ms:>6.2f}   {cells}"
    )
    return max(file_bytes, table_bytes) <= GOAL_GROWTH * raw


def main() -> int:
    """Print a row per size; 1 when a store grows by more than the raw text."""
    print("bytes per cell: raw text whole and alone, each store and its ratio to both")
    print("ms: median of a cell's commit, and PostgreSQL / SQLite\n")
    heads = ("raw", "alone", "SQLite", "raw", "alone", "PostgreSQL", "raw", "alone", "SQLite ms", "PostgreSQL", "ratio")
    widths = (9, 9, 9, 6, 6, 11, 6, 6, 10, 11, 6)
    print(" ".join(head.rjust(width) for head, width in zip(heads, widths, strict=True)) + "   cells")
    with tempfile.TemporaryDirectory() as folder, running_server() as server:
        met = [measure(Path(folder), server.new_database(), sizes) for sizes in SIZES]
        print(f"\nPostgreSQL {server.version}, fsync {server.ask('SHOW fsync')}, on loopback")
    print(f"goal: store / raw text at most {GOAL_GROWTH:g}: {'met' if all(met) else 'NOT met'}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
