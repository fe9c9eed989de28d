"""What `prefillgate verify` costs beside reading the same bundle, and how that grows with the run.

Two runs on simulated servers, one of four times the cells, are exported and verified. Beside each, in the same process,
what anybody must do who wants to look at such a bundle: parse every line of it as JSON, every event of a streamed reply
too, and take the SHA-256 of each file. CPU seconds; the goal is that a cell of the longer run costs at most twice one
of the shorter.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from prefillgate.api.policy import load_policy
from prefillgate.bundle import content
from prefillgate.bundle.verify import check_bundle
from prefillgate.bundle.write import How, write_bundle
from prefillgate.cli.running import execute
from prefillgate.replay.replay_set import load_replay_set
from prefillgate.replay.runner import Silent
from prefillgate.replay.session import ArmRequest, RunRequest
from tests.support.runs import HASTY, write_policy, write_set
from tests.support.simulated import start_simulated

CELLS = (400, 1600)  # `verify_cost.py 1000 4000` takes half an hour, most of it to measure the run
GOAL_GROWTH = 2.0


def bundle_of(folder: Path, cells: int) -> Path:
    """The bundle of a run whose candidate needs that many clean prefills."""
    numbers = {"marginPercent": 1, "acceptance": [cells], "budgetPrefills": 2 * cells}
    policy = write_policy(folder / "policy.yaml", **numbers, throughput={"mode": "Report"})
    with start_simulated(seed=1, text_seed=9) as baseline, start_simulated(seed=2, text_seed=9) as candidate:
        request = RunRequest(
            ArmRequest(baseline.url),
            ArmRequest(candidate.url),
            load_replay_set(str(write_set(folder / "set.jsonl", 12, 300))),
            load_policy(policy),
            folder / "run.db",
            seed=5,
            times=HASTY,
        )
        finished = asyncio.run(execute(request, Silent()))
    out = folder / "bundle"
    out.mkdir()
    with finished.journal as journal:
        write_bundle(journal, out, How())
    return out


def read(bundle: Path) -> None:
    """Parse and hash everything, and nothing else."""
    for name in content.FILES:
        data = (bundle / name).read_bytes()
        hashlib.sha256(data).hexdigest()
        if not name.endswith(".jsonl"):
            continue
        for line in data.splitlines():
            document = json.loads(line)
            for part in str(document.get("response", "")).splitlines():
                if part.startswith("data: {"):
                    json.loads(part[6:])


def verified(bundle: Path) -> None:
    """Verify it; it must be the same."""
    assert not asyncio.run(check_bundle(bundle, None)).differences


def cpu_seconds(work: Callable[[Path], None], bundle: Path) -> float:
    """CPU of one call."""
    began = time.process_time()
    work(bundle)
    return time.process_time() - began


def main() -> int:
    """Print a row per run; 1 when the cost of a cell grows beyond the goal."""
    sizes = [int(given) for given in sys.argv[1:]] or list(CELLS)
    print(f"{'cells':>7} {'verify s':>9} {'read s':>8} {'ratio':>7} {'verify ms a cell':>17}")
    each = []
    for cells in sizes:
        with tempfile.TemporaryDirectory() as folder:
            bundle = bundle_of(Path(folder), cells)
            reading, verifying = cpu_seconds(read, bundle), cpu_seconds(verified, bundle)
        each.append(verifying / cells)
        ratio = verifying / reading
        print(f"{cells:>7} {verifying:>9.2f} {reading:>8.2f} {ratio:>7.1f} {1000 * each[-1]:>17.2f}", flush=True)
    growth = each[-1] / each[0]
    print(f"a cell of the longer run costs {growth:.2f} times one of the shorter; goal at most {GOAL_GROWTH:g}")
    return 0 if growth <= GOAL_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
