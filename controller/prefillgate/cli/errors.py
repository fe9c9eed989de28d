"""The errors a command may end in, each with its exit code. `prefillgate.cli.main` prints them as one line.

Commands translate the errors of the packages below them into these two; anything else is a bug.
"""

from __future__ import annotations


class CommandError(Exception):
    """Base of both kinds. The message is what a person reads: the field, the value, what is allowed."""

    exit_code = 1


class CouldNotMeasure(CommandError):
    """The measurement could not be made or trusted (a server that never answered, a torn store): exit 1."""

    exit_code = 1


class BadInput(CommandError):
    """What was given cannot be used (a file, a number, a URL): exit 2."""

    exit_code = 2
