"""The audit of a large cell log against plain JSON parsing of the same file: CPU ratio and peak memory.

    python tests/benchmarks/audit_million.py [CELLS ...]

Each runs in a process of its own; without arguments 100,000 and 1,000,000 cells over 2,000 prompts. Goal: a ratio of at
most 2, and memory that does not grow with the cells. Measured on a busy machine: 3.4 (of which the start of the program
is 1) and 70 MiB for 100,000, 1.9 to 2.1 and 74 MiB for a million.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

PROMPTS = 2000
ENDING = """
import resource, sys, time
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, file=sys.stderr)
"""
PARSE = "import json, sys\nfor line in open(sys.argv[1], 'rb'):\n    json.loads(line)\n" + ENDING
AUDIT = "import sys\nfrom prefillgate.cli.main import main\nmain(['audit', sys.argv[1], '--json'])\n" + ENDING


def write_cells(path: Path, count: int) -> None:
    """A log in time order, most of its cells copies."""
    rng, seen = random.Random(1), set[tuple[str, int]]()
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            arm, case = rng.choice(("baseline", "candidate")), rng.randrange(PROMPTS)
            fresh = (arm, case) not in seen or rng.random() < 0.05
            seen.add((arm, case))
            length = 500 + 8 * case
            cached = 0 if fresh else length - 4
            cell = {
                "arm": arm,
                "case_id": f"pr-{case}",
                "replicate": 0,
                "server_epoch": f"{arm}-1",
                "started_at": 1_790_000_000 + number / 2,
                "prompt_sha256": f"{case:064x}",
                "prompt_tokens": length,
                "cached_tokens": cached,
                "processed_tokens": length - cached,
                "output_tokens": 160,
                "prefill_ms": round((length - cached) * rng.uniform(3, 3.6), 3),
                "decode_ms": 4312.5,
                "finish_reason": "stop",
                "cold_proof": None,
                "request_id": f"chatcmpl-{number:016x}",
                "choice_index": 0,
                "status": "ok",
                "bad": rng.random() < 0.01,
            }
            file.write(json.dumps(cell) + "\n")


def measured(program: str, path: Path) -> tuple[float, float]:
    """(CPU seconds, peak memory in MiB) of a process."""
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seconds, mebibytes = done.stderr.split()[-2:]
    return float(seconds), float(mebibytes)


def main() -> None:
    """Print a line for each size."""
    for count in [int(text) for text in sys.argv[1:]] or [100_000, 1_000_000]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cells.jsonl"
            write_cells(path, count)
            parsed, _ = measured(PARSE, path)
            audited, peak = measured(AUDIT, path)
        print(
            f"{count:,} cells: json.loads {parsed:.1f} s, audit {audited:.1f} s, ratio {audited / parsed:.1f}, "
            f"peak {peak:.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
