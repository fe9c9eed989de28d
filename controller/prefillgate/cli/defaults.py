"""Options whose help shows what holds where they are not given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def default_option(*names: str, default: Any, **settings: Any) -> Callable[[Command], Command]:
    """`click.option` with a default that its help shows."""
    return click.option(*names, default=default, show_default=True, **settings)
