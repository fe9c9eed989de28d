"""Wall time of `prefillgate --help` over a bare interpreter (goal: at most 150 ms more), medians of paired runs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

GOAL_MS = 150.0
RUNS = 15


def once(*arguments: str) -> float:
    """Wall milliseconds of one interpreter."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return 1000 * (time.perf_counter() - began)


def main() -> int:
    """Print the table; 1 when the goal is missed."""
    bare, helps = [], []
    for number in range(RUNS + 1):
        pair = once("-c", "pass"), once("-m", "prefillgate", "--help")
        if number:  # the first pair fills the caches
            bare.append(pair[0])
            helps.append(pair[1])
    more = statistics.median(one - other for one, other in zip(helps, bare, strict=True))
    print(f"{'':24} {'median ms':>10}")
    print(f"{'bare interpreter':24} {statistics.median(bare):>10.1f}")
    print(f"{'prefillgate --help':24} {statistics.median(helps):>10.1f}")
    print(f"{'difference, pair by pair':24} {more:>10.1f}  goal {GOAL_MS:g}: {'met' if more <= GOAL_MS else 'NOT met'}")
    return int(more > GOAL_MS)


if __name__ == "__main__":
    sys.exit(main())
