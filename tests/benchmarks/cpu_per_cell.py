"""CPU per cell of the gate against a bare httpx streaming loop on the same simulated server (goal: at most 1.5).

Both send the same bodies one at a time and read the stream to its end; the loop keeps nothing, checks nothing.
Prints a row per output length. The simulated server is another process, so its CPU is in neither figure.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from prefillgate.api.policy import load_policy
from prefillgate.cli.running import execute
from prefillgate.replay.replay_set import load_replay_set
from prefillgate.replay.runner import Silent
from prefillgate.replay.session import ArmRequest, RunRequest
from tests.support.simulated import start_simulated

GOAL = 1.5
WORDS = 2500  # of a prompt: about 15 kB
CASES = 16
OUTPUT_TOKENS = (64, 512)


def write_answers(path: Path) -> None:
    """One long answer without repetition, cut by each case at its token limit."""
    text = " ".join(f"finding{(i * 37) % 1009}" for i in range(600))
    path.write_text(json.dumps({"match": "case ", "text": text}) + "\n", encoding="utf-8")


def write_set(path: Path, output_tokens: int) -> None:
    """Prompts of about 15 kB, each with its own beginning."""
    lines = []
    for number in range(CASES):
        prompt = f"case {number} " + " ".join(f"word{(number * 7919 + i * 31) % 9973}" for i in range(WORDS))
        body = {"model": "m", "prompt": prompt, "max_tokens": output_tokens, "temperature": 0}
        lines.append(json.dumps({"custom_id": f"c{number}", "method": "POST", "url": "/v1/completions", "body": body}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


async def bare(url: str, path: Path, cells: int) -> float:
    """CPU seconds a cell of the plainest streaming loop."""
    bodies = [json.loads(line)["body"] for line in path.read_text(encoding="utf-8").splitlines()]
    async with httpx.AsyncClient(
        trust_env=False, timeout=60, limits=httpx.Limits(max_keepalive_connections=0)
    ) as client:
        began = time.process_time()
        for number in range(cells):
            body = {**bodies[number % CASES], "stream": True, "cache_prompt": False}
            async with client.stream("POST", f"{url}/v1/completions", json=body) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        json.loads(line[6:])
        return (time.process_time() - began) / cells


async def gated(urls: tuple[str, str], path: Path, store: Path) -> tuple[float, int]:
    """CPU seconds a cell of a whole run, start and verdict included, and how many cells it took."""
    request = RunRequest(
        ArmRequest(urls[0]), ArmRequest(urls[1]), load_replay_set(path), load_policy("quick"), store, seed=1
    )
    began = time.process_time()
    finished = await execute(request, Silent())
    spent = time.process_time() - began
    cells = len(finished.gate.measured)
    finished.journal.close()
    return spent / cells, cells


def main() -> int:
    """Print the table; 1 when a ratio is above the goal."""
    print(f"{'output tokens':>13} {'cells':>6} {'bare ms':>8} {'gate ms':>8} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as outer:
        answers = Path(outer) / "answers.jsonl"
        write_answers(answers)
        options = {"text_seed": 3, "answers": str(answers)}
        worst = measure(options)
    print(f"goal {GOAL}: {'met' if worst <= GOAL else 'NOT met'}")
    return int(worst > GOAL)


def measure(options: dict[str, object]) -> float:
    """Print a row for each output length; the largest ratio."""
    worst = 0.0
    with start_simulated(**options) as one, start_simulated(seed=2, **options) as other:
        for tokens in OUTPUT_TOKENS:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "bench.jsonl"
                write_set(path, tokens)
                asyncio.run(bare(one.url, path, 4))
                asyncio.run(gated((one.url, other.url), path, Path(folder) / "first.db"))  # imports, caches
                gate, cells = asyncio.run(gated((one.url, other.url), path, Path(folder) / "run.db"))
                loop = asyncio.run(bare(one.url, path, cells))
            print(f"{tokens:>13} {cells:>6} {1000 * loop:>8.2f} {1000 * gate:>8.2f} {gate / loop:>6.2f}")
            worst = max(worst, gate / loop)
    return worst


if __name__ == "__main__":
    sys.exit(main())
