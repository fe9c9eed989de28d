"""`prefillgate completion`: what makes a shell complete commands, options and names."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_PREFILLGATE_COMPLETE"


@click.command(name="completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print the completion script of a shell.

    \b
    bash  eval "$(prefillgate completion bash)"             in ~/.bashrc
    zsh   eval "$(prefillgate completion zsh)"              in ~/.zshrc, after compinit
    fish  prefillgate completion fish | source              in ~/.config/fish/config.fish

    Commands, options, packaged replay sets, policies, engines and files are completed.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    completer = kind(click.Command("prefillgate"), {}, "prefillgate", VARIABLE)
    # `source()` of bash would look for a bash on this machine first and warn where there is none.
    click.echo(completer.source_template % completer.source_vars())
    return 0
