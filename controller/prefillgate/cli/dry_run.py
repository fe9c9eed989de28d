"""`prefillgate run --dry-run`: the plan, its prefills, its error bounds, and nothing is run."""

from __future__ import annotations

from prefillgate.replay.session import RunRequest


def dry_run(request: RunRequest, as_json: bool) -> int:
    """Print the plan."""
    return 0
