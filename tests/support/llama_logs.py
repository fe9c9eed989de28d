"""llama-server's text log as tests need it: whole requests, long enough to tell decode speed."""

from __future__ import annotations

from pathlib import Path


def llama_log(path: Path, tasks: int, first: int = 0) -> Path:
    """`tasks` requests of 50 prompt and 40 output tokens, 97.5 ms each, appended to `path`."""
    with path.open("a") as file:
        for number in range(first, first + tasks):
            at = f"0.0{number}.000.000 I slot"
            file.write(f"{at} launch_slot_: id  0 | task {number} | processing task, is_child = 0\n")
            file.write(f"{at} update_slots: id  0 | task {number} | new prompt, n_ctx_slot = 9, task.n_tokens = 50\n")
            file.write(f"{at} print_timing: id  0 | task {number} | prompt eval time = 99.0 ms / 50 tokens\n")
            file.write(f"{at} print_timing: id  0 | task {number} |        eval time = 3900.0 ms / 40 tokens\n")
            file.write(f"{at} print_timing: id  0 | task {number} |       total time = 3999.0 ms / 90 tokens\n")
            file.write(f"{at} release: id  0 | task {number} | stop processing: n_tokens = 89, truncated = 0\n")
    return path
