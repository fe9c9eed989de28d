"""How a command says what is wrong with an input: one line for each problem, then exit code 2."""

from __future__ import annotations

import json
from typing import Any

import click

from prefillgate.api.errors import InputError, clean
from prefillgate.cli.errors import BadInput

EXIT_BAD_INPUT = BadInput.exit_code


def say_problems(error: InputError) -> int:
    """Print every problem on standard error and return the exit code for bad input."""
    for line in str(error).split("\n"):
        click.echo(f"prefillgate: error: {line}", err=True)
    return EXIT_BAD_INPUT


def json_line(document: Any) -> str:
    """`document` as one line of JSON that is safe on a terminal: what is not printable is escaped in its strings."""
    return clean(json.dumps(document, ensure_ascii=False))
