"""Cell logs for tests of the counting core: cells built short, the story of STATISTICS.md section 5, JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from prefillgate.core.cells import BASELINE, CANDIDATE, Cell

LONG = {"pr-412": 16_896, "pr-87": 11_136}  # the two prompts of the story and their tokens
OTHERS = tuple(f"pr-{number}" for number in range(1, 11))
START = 1_790_000_000.0
WRITTEN = (
    *("arm", "case_id", "replicate", "server_epoch", "started_at", "prompt_sha256", "prompt_tokens", "cached_tokens"),
    *("processed_tokens", "output_tokens", "prefill_ms", "decode_ms", "finish_reason", "cold_proof", "request_id"),
    *("choice_index", "status", "bad"),
)


def cell(case: str = "p", cached: int | None = 0, length: int | None = 1000, **more: Any) -> Cell:
    """A clean candidate cell with one witness, its own counter: fresh only if something else speaks for it."""
    told = {"arm": CANDIDATE, "bad": False, "server_epoch": "e", "prompt_tokens": length, "cached_tokens": cached}
    return Cell(case_id=case, **(told | more))


def fresh(case: str = "p", cached: int = 0, length: int = 1000, **more: Any) -> Cell:
    """A cell whose two counters agree: fresh, a copy or partial by its cached share alone."""
    return cell(case, cached, length, **({"processed_tokens": length - cached} | more))


def copy(case: str = "p", **more: Any) -> Cell:
    """A cell of which all but four tokens came from the cache, by consistent counters."""
    return fresh(case, cached=996, **more)


def story() -> list[Cell]:
    """What the team saw first: 11 of 12 candidate cells bad on two long prompts, the baseline 0 of 20 and 0 of 95."""
    cells: list[Cell] = []

    def ask(arm: str, case: str, times: int, good: Sequence[int] = ()) -> None:
        length = LONG.get(case, 900)
        for number in range(times):
            cached = length - 4 if number else 0
            started = START + 70.0 * len(cells)
            seconds = 2.0 if number else length / 300
            cells.append(
                Cell(
                    arm,
                    case,
                    bad=arm == CANDIDATE and number not in good,
                    server_epoch=f"{arm}-1",
                    started_at=started,
                    prompt_tokens=length,
                    cached_tokens=cached,
                    processed_tokens=length - cached,
                    output_tokens=4,
                    prefill_ms=1000 * seconds,
                )
            )

    for case in LONG:
        ask(BASELINE, case, 10)
        ask(CANDIDATE, case, 6, good=(3,) if case == "pr-87" else ())
    for number, case in enumerate(OTHERS):
        ask(BASELINE, case, 8 if number < 5 else 7)
    return cells


def story_replicate(gap_seconds: float = 600.0, number: int = 1) -> list[Cell]:
    """Eight fresh candidate prefills, none bad, half of them on the prompts that failed."""
    last_bad = max(cell.started_at or 0.0 for cell in story() if cell.bad)
    prompts = [case for pair in range(4) for case in (list(LONG)[pair % 2], OTHERS[pair])]
    return [
        Cell(
            CANDIDATE,
            case,
            bad=False,
            replicate=number,
            server_epoch="candidate-1",
            started_at=last_bad + gap_seconds + 70.0 * place,
            prompt_tokens=LONG.get(case, 900),
            cached_tokens=0,
            processed_tokens=LONG.get(case, 900),
            output_tokens=160,
            prefill_ms=LONG.get(case, 900) / 0.3,
        )
        for place, case in enumerate(prompts)
    ]


def pairs(outcomes: str, number: int = 1, start: float = START, prompts: int = 4, **more: Any) -> list[Cell]:
    """Replicate pairs from two letters each, candidate then baseline: b bad, g good, u unknown, - not there.

    "bg bg" are two pairs, each with the candidate bad and the baseline good, of the cases c0, c1, ... in turn; cells
    start a minute apart.
    """
    values = {"b": True, "g": False, "u": None}
    cells = []
    for pair, letters in enumerate(outcomes.split()):
        for arm, letter in zip((CANDIDATE, BASELINE), letters, strict=True):
            if letter != "-":
                told = {"arm": arm, "bad": values[letter], "replicate": number, "started_at": start + 60.0 * len(cells)}
                cells.append(fresh(f"c{pair % prompts}", **(told | more)))
    return cells


def line(what: Cell) -> dict[str, Any]:
    """A cell under the field names of the log, unknown ones left out."""
    return {
        name: value for name in (*WRITTEN, "ended_at", "output_sha256") if (value := getattr(what, name)) is not None
    }


def write_log(path: Path, cells: Iterable[Cell]) -> Path:
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(line(each)) + "\n" for each in cells), encoding="utf-8")
    return path
