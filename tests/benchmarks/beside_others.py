"""CPU per request and resident memory of the gate, a bare httpx loop, and guidellm, on one simulated server.

Each is a process of its own and sends prompts of about 15 kB one at a time; the server is another one, so its CPU is in
no figure. CPU is user and system time of the process and what it started; start-up is shown apart, from a run of a
quarter of the length. guidellm is installed into an environment of its own under the cache folder (or named by the
variable GUIDELLM); where it does not install it is left out with a message.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.cpu_per_cell import write_answers, write_set
from tests.support.simulated import start_simulated

CACHE = Path.home() / ".cache" / "prefillgate"
OUTPUT_TOKENS = 64
MANY, FEW = 64, 16
POLICY = """
apiVersion: prefillgate.io/v1alpha1
kind: PromotionPolicy
metadata: {{name: bench}}
spec:
  marginPercent: {margin}
  checks: [{{type: NotEmpty, name: said}}]
  flags: [{{name: bad, checks: [said]}}]
"""
BARE = """
import asyncio, json, sys, httpx
async def main(url, path, requests):
    bodies = [json.loads(line)["body"] for line in open(path, encoding="utf-8")]
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(trust_env=False, timeout=60, limits=limits) as client:
        for number in range(requests):
            body = {**bodies[number % len(bodies)], "stream": True, "cache_prompt": False}
            async with client.stream("POST", f"{url}/v1/completions", json=body) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        json.loads(line[6:])
asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a process and those it started used: CPU seconds, the largest resident set of one of them in MiB."""

    cpu_seconds: float
    resident_mib: float
    requests: int


Program = Callable[[str, Path, int], Spent]


def spend(command: list[str], requests: int, folder: Path, good: tuple[int, ...] = (0,)) -> Spent:
    """Run a command to its end. Raises RuntimeError with its last words where it fails."""
    log = folder / "output.log"
    with log.open("wb") as output:
        child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in good:
        raise RuntimeError(f"{command[0]} ended in {child.returncode}: {log.read_text(errors='replace')[-500:]}")
    return Spent(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, requests)


def bare(url: str, folder: Path, requests: int) -> Spent:
    """The plainest streaming loop."""
    return spend([sys.executable, "-c", BARE, url, str(folder / "set.jsonl"), str(requests)], requests, folder)


def gate(url: str, folder: Path, requests: int) -> Spent:
    """A run of the candidate alone, to the first entry of its policy's table."""
    store = folder / f"{requests}.db"
    policy = folder / f"{requests}.yaml"
    margin = 20 if requests == FEW else 5  # 16 and 67 fresh prefills when nothing is bad
    policy.write_text(POLICY.format(margin=margin), encoding="utf-8")
    command = [sys.executable, "-m", "prefillgate", "run", "--candidate", url, "--policy", str(policy)]
    command += ["--replay-set", str(folder / "set.jsonl"), "--store", str(store), "--quiet"]
    used = spend(command, requests, folder, good=(0, 10))
    cells = subprocess.run(
        [sys.executable, "-m", "prefillgate", "cells", str(store), "--json"], capture_output=True, check=True
    )
    return Spent(used.cpu_seconds, used.resident_mib, len(cells.stdout.splitlines()))


def guidellm_program() -> Path | None:
    """The program, installed if need be (some 6 GB); None with a message where that fails."""
    named = os.environ.get("GUIDELLM")
    place = Path(named) if named else CACHE / "guidellm" / "bin" / "guidellm"
    pip = [str(CACHE / "guidellm" / "bin" / "pip"), "install", "--quiet", "guidellm"]
    if not place.exists() and not named:
        for step in ([sys.executable, "-m", "venv", str(CACHE / "guidellm")], pip):
            if subprocess.run(step, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
                break
    if place.exists():
        return place
    print(f"guidellm is left out: it does not install here ({place} is not there)")
    return None


def guidellm(program: Path, url: str, folder: Path, requests: int) -> Spent:
    """Its synchronous benchmark over the same prompts. It needs no tokenizer where the server tells token counts."""
    options = {
        "backend": f"kind=openai_http,target={url},request_format=/v1/completions",
        "profile": "kind=synchronous",
        "constraint": f"kind=max_requests,count={requests}",
        "data": f"kind=json_file,path={folder / 'prompts.jsonl'}",
        "output": f"kind=json,path={folder / 'guidellm.json'}",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    used = spend([str(program), "run", *words, "--disable-console"], requests, folder)
    (benchmark,) = json.loads((folder / "guidellm.json").read_text(encoding="utf-8"))["benchmarks"]
    return replace(used, requests=len(benchmark["requests"]["successful"]))


def main() -> int:
    """Print a row for each program, and why one has none."""
    with tempfile.TemporaryDirectory() as outer:
        folder = Path(outer)
        write_answers(folder / "answers.jsonl")
        write_set(folder / "set.jsonl", OUTPUT_TOKENS)
        prompts = [json.loads(line)["body"]["prompt"] for line in (folder / "set.jsonl").read_text().splitlines()]
        rows = [json.dumps({"prompt": prompt, "output_tokens_count": OUTPUT_TOKENS}) for prompt in prompts]
        (folder / "prompts.jsonl").write_text("\n".join(rows * -(-MANY // len(rows))) + "\n", encoding="utf-8")
        programs: dict[str, Program] = {"httpx loop": bare, "prefillgate": gate}
        installed = guidellm_program()
        if installed is not None:
            programs["guidellm"] = partial(guidellm, installed)
        print(f"{'program':<12} {'requests':>8} {'CPU ms a request':>17} {'start-up ms':>12} {'resident MiB':>13}")
        for name, program in programs.items():
            with start_simulated(text_seed=3, answers=str(folder / "answers.jsonl")) as server:
                _row(name, program, server.url, folder)
    return 0


def _row(name: str, program: Program, url: str, folder: Path) -> None:
    try:
        few, many = (program(url, folder, requests) for requests in (FEW, MANY))
    except RuntimeError as error:
        print(f"{name:<12} no figures: {error}")
        return
    each = (many.cpu_seconds - few.cpu_seconds) / (many.requests - few.requests)
    start = few.cpu_seconds - few.requests * each
    print(f"{name:<12} {many.requests:>8} {1000 * each:>17.2f} {1000 * start:>12.0f} {many.resident_mib:>13.0f}")


if __name__ == "__main__":
    sys.exit(main())
