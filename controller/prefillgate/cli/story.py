"""`prefillgate demo --story`: the story of STATISTICS.md section 5, measured on two simulated servers.

The old profile's server is sound. The new one's makes bad prefills in its first life and sound ones after its restart;
the gate is told neither. The replicate stands apart by that restart: the policy's gap would be ten minutes of waiting.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefillgate.cli.errors import BadInput
from prefillgate.cli.outcome import quoted, say

if TYPE_CHECKING:
    from prefillgate.cli.story_measure import Stage
    from prefillgate.core.journal import Event

# Reported times are those of the story's cards; none is slept.
SPEED = ("--time-scale", "0", "--prefill-ms", "2.5")
# As many slots as there are prompts and probes: nothing is reused but a prompt itself, less its last four tokens.
CACHE = ("--slots", "16", "--reprocess-tokens", "4")
TEXT = ("--text-seed", "5")
BASELINE_SEED, CANDIDATE_SEED = "1", "2"
BAD_FIRST_LIFE = ("bad-first=12", "good-copy=#4")


def play(store: Path | None) -> int:
    """Play it into a new store; 0 when everything came out as told, else 1.

    Raises `BadInput` where something is at `store` already, `CouldNotMeasure` when a server does not answer.
    """
    import asyncio

    from prefillgate.cli.story_measure import measure

    began = time.monotonic()
    path = _default_store() if store is None else store
    say(f"store: {path}")
    with _stage(path) as stage, asyncio.run(measure(stage)) as journal:
        events = journal.events()
    return tell(events, path, time.monotonic() - began)


def tell(events: Sequence[Event], store: Path, seconds: float) -> int:
    """Print the story those events tell; 0 when it is the one that is told, else 1."""
    from prefillgate.cli.story_telling import not_as_told, page, read_story, verdict_lines

    story = read_story(events)
    click.echo("The story behind prefillgate on two simulated servers: bad prefills planted, all else measured.\n")
    click.echo("\n".join(page(story)))
    name = quoted(str(store))
    click.echo(f"\nstore: {name}, {seconds:.1f} s")
    click.echo("Every figure above is computed from the cells in it. To look further:")
    for command in (f"cells {name}", f"cells {name} --json | prefillgate audit -", f"decide {name}", f"report {name}"):
        click.echo(f"   prefillgate {command}")
    click.echo()
    for line in verdict_lines(story):
        click.echo(line)
    wrong = not_as_told(story)
    for line in wrong:
        say(f"story: NOT as told: {line}")
    return 1 if wrong else 0


def truth_path(store: Path, arm: str) -> Path:
    """Where a simulated server tells what really happened, one JSON line a request."""
    return store.with_name(f"{store.stem}-truth-{arm}.jsonl")


def _default_store() -> Path:
    from datetime import UTC, datetime

    return Path(".prefillgate") / f"story-{datetime.now(UTC):%Y%m%dT%H%M%SZ}" / "story.db"


@contextmanager
def _stage(store: Path) -> Iterator[Stage]:
    """The two servers, running."""
    from prefillgate.cli.story_measure import Stage
    from prefillgate.cli.story_prompts import MARK
    from prefillgate.cli.story_server import StoryServer
    from prefillgate.core.cells import BASELINE, CANDIDATE

    baseline_truth, candidate_truth = truth_path(store, BASELINE), truth_path(store, CANDIDATE)
    _refuse_existing(store, baseline_truth, candidate_truth)
    common = (*SPEED, *CACHE, *TEXT, "--count-match", MARK)
    say("story: starting two simulated servers")
    with (
        StoryServer((*common, "--seed", BASELINE_SEED), baseline_truth) as baseline,
        StoryServer((*common, "--seed", CANDIDATE_SEED), candidate_truth, BAD_FIRST_LIFE) as candidate,
    ):
        yield Stage(baseline.url, candidate.url, candidate.restart, store)


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists() or path.is_symlink():
            raise BadInput(f"{path}: something is there already, and the story overwrites nothing; name a new --store")
    folder = paths[0].parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder}: no store can be made there: {error.strerror or error}") from error
