"""`kubectl prefillgate`: the commands about serving lines, as a plug-in that kubectl finds by its program's name."""

from __future__ import annotations

import sys

import click

from prefillgate.cli.main import Entry, LazyGroup, Session, main

NAME = "kubectl prefillgate"
COMMANDS = (
    Entry("get", "prefillgate.cli.get", "command", "List the serving lines: decision, prefills, rollback, candidate."),
    Entry("explain", "prefillgate.cli.explain_line", "command", "Say what was seen of a line, what follows and why."),
    Entry("watch", "prefillgate.cli.watch", "command", "Follow a line until its candidate is decided."),
)
NO_FILES = ":4"  # how kubectl is told that nothing but the names before it completes


class KubectlGroup(LazyGroup):
    """The few commands that are about a cluster."""

    def entries(self) -> tuple[Entry, ...]:
        """The table."""
        return COMMANDS


@click.group(cls=KubectlGroup, name=NAME, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, envvar="PREFILLGATE_DEBUG", help="Keep the traceback of a crash in a file.")
@click.pass_context
def group(ctx: click.Context, debug: bool) -> None:
    """Whether a new LLM serving profile may replace the one in production, counted in fresh prefills.

    Exit codes of watch: 0 promote, 10 hold, 20 rollback allowed, 1 could not measure.
    """
    ctx.ensure_object(Session).debug = debug


def plugin() -> int:
    """The program `kubectl-prefillgate`."""
    return main(program=group, name=NAME)


def complete() -> int:
    """The program `kubectl_complete-prefillgate`, which kubectl asks with the words so far, the last one unfinished."""
    from click.shell_completion import ShellComplete

    *words, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(group, {}, NAME, "").get_completions(words, incomplete)
    for item in found:
        click.echo(f"{item.value}\t{item.help}" if item.help else str(item.value))
    click.echo(NO_FILES)
    return 0
