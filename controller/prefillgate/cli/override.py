"""`prefillgate override`: a person's word, with a reason, written into the evidence."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

import click

from prefillgate.cli.outcome import exit_code, summary
from prefillgate.cli.stores import STORE, store_errors

if TYPE_CHECKING:
    from prefillgate.api.store_address import StoreAddress

MAX_REASON = 1000


@click.command(name="override")
@click.argument("store", type=STORE)
@click.option("--promote", is_flag=True, help="Allow promotion.")
@click.option("--hold", is_flag=True, help="Block promotion and refuse rollback.")
@click.option("--rollback", is_flag=True, help="Allow rollback.")
@click.option("--cause", help="Write down the cause that was found; until then it is Unverified.")
@click.option("--reason", help="Why. Required with --promote, --hold and --rollback.")
@click.option("--actor", help="Who says so (default: the name you are logged in by).")
def command(store: StoreAddress, cause: str | None, reason: str | None, actor: str | None, **decisions: bool) -> int:
    """Record a person's decision about STORE, or the cause of what was seen.

    An override needs a reason and goes before every other rule but a spec that cannot be read. It is evidence: it
    stands in the journal with who said it, when and why, and every report shows it.

    Exit codes are those of `decide` after it was recorded; 2 when something is missing.
    """
    from prefillgate.cli.errors import BadInput
    from prefillgate.core.gate import fold
    from prefillgate.core.journal import CauseNoted, Overridden
    from prefillgate.core.judge import judge
    from prefillgate.evidence import open_store
    from prefillgate.replay.clock import SystemClock

    chosen = [name for name, given in decisions.items() if given]
    if len(chosen) > 1:
        raise BadInput(f"{' and '.join(f'--{name}' for name in chosen)} contradict each other (allowed: one of them)")
    verdict = chosen[0] if chosen else None
    if verdict is None and cause is None:
        raise BadInput("nothing to record: give --promote, --hold, --rollback or --cause")
    if verdict is not None and not (reason or "").strip():
        raise BadInput(f"--{verdict} needs --reason (allowed: any text of up to {MAX_REASON} characters)")
    for name, text in (("--reason", reason), ("--cause", cause), ("--actor", actor)):
        if text is not None and len(text) > MAX_REASON:
            raise BadInput(f"{name}: {len(text)} characters (allowed: up to {MAX_REASON})")
    who, now = actor or _login(), SystemClock().now()
    with store_errors(), open_store(store) as journal:
        if cause is not None:
            journal.append(CauseNoted(now, who, cause.strip()))
        if verdict is not None:
            journal.append(Overridden(now, verdict, who, (reason or "").strip()))
        answer = judge(fold(journal.events()))
    click.echo(summary(answer, store, None), nl=False)
    return exit_code(answer)


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
