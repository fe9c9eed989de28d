"""`prefillgate demo`: two real llama.cpp servers on this machine, three verdicts, each computed and none assumed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefillgate.cli.outcome import say
from prefillgate.cli.stores import STORE

if TYPE_CHECKING:
    from prefillgate.api.store_address import StoreAddress


@click.command(name="demo")
@click.option("--story", is_flag=True, help="Play the story this project was written for, on simulated servers.")
@click.option("--store", type=STORE, metavar="FILE", help="With --story: keep its evidence in this store.")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Where stores and reports go.  [default: .prefillgate/demo-TIME]"
)
def command(story: bool, store: StoreAddress | None, folder: Path | None) -> int:
    """Gate two profiles of a small real model on this machine: about four minutes on two cores.

    \b
    1. KV cache q8_0 against f16: independent prefills, ends in promote.
    2. The candidate restarted with a wrong rope base: alarm, replicate after its restart, rollback allowed.
    3. Four prompts three times in a row with the cache on: 12 requests, and how many prefills.

    Needs the extra `llama` (pip install 'prefillgate[llama]'). Exit code 0 when every part came out as expected, else
    1. The last line of standard output is the report's path.
    """
    from prefillgate.cli.errors import BadInput

    if store is not None and not story:
        raise BadInput("--store goes with --story; the demo's stores go into --folder")
    if store is not None and not isinstance(store, Path):
        raise BadInput(f"--store {store}: the story's evidence goes into a file (allowed: a file)")
    if story:
        from prefillgate.cli.story import play

        return play(store)
    from prefillgate.cli.demo_parts import play_demo

    return play_demo(folder or _default_folder())


def _default_folder() -> Path:
    from datetime import UTC, datetime

    folder = Path(".prefillgate") / f"demo-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    say(f"folder: {folder}")
    return folder
