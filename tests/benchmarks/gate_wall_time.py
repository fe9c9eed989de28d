"""Wall time of a gate run over the servers' own busy time, on two real llama.cpp servers (goal: at most 1.02).

Busy time is what the servers report of themselves: prefill and decode milliseconds of every cell. Only the stretch
from the first cell's start to the last cell's end counts, so starting the servers and probing them is in neither.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from prefillgate.api.policy import load_policy
from prefillgate.cli.running import execute
from prefillgate.core.journal import Difference
from prefillgate.hosts.llama_server import LlamaServer
from prefillgate.replay.replay_set import load_replay_set
from prefillgate.replay.runner import Silent
from prefillgate.replay.session import ArmRequest, RunRequest

GOAL = 1.02
COMMON = ("-t", "1", "--cache-ram", "0", "-np", "1", "-c", "2048")


def main() -> int:
    """Print the table; 1 when the goal is missed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LlamaServer((*COMMON, "-ctk", "q8_0", "-ctv", "q8_0")) as baseline,
        LlamaServer(COMMON) as candidate,
    ):
        request = RunRequest(
            ArmRequest(baseline.url),
            ArmRequest(candidate.url),
            load_replay_set("demo"),
            load_policy("quick"),
            Path(folder) / "run.db",
            seed=1,
            differences=(Difference("KV cache", "cache type", "q8_0", "f16"),),
        )
        finished = asyncio.run(execute(request, Silent()))
        cells = [event.cell for event in finished.gate.measured.values()]
        finished.journal.close()
    busy = sum(((cell.prefill_ms or 0) + (cell.decode_ms or 0)) / 1000 for cell in cells)
    starts = [cell.started_at for cell in cells if cell.started_at is not None]
    ends = [cell.ended_at for cell in cells if cell.ended_at is not None]
    wall = max(ends) - min(starts)
    print(f"{'cells':>6} {'busy s':>8} {'wall s':>8} {'ratio':>7}")
    print(f"{len(cells):>6} {busy:>8.2f} {wall:>8.2f} {wall / busy:>7.4f}")
    print(f"goal {GOAL}: {'met' if wall / busy <= GOAL else 'NOT met'}")
    return int(wall / busy > GOAL)


if __name__ == "__main__":
    sys.exit(main())
