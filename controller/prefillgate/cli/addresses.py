"""Addresses, engines and ways to a server as a person wrote them: each is checked before anything is begun."""

from __future__ import annotations

import os

from prefillgate.api.run_file import check_url
from prefillgate.cli.errors import BadInput
from prefillgate.engines.access import AccessError, engine_options
from prefillgate.engines.registry import engine_names
from prefillgate.replay.session import ArmRequest


def check_access(arm: str, asked: ArmRequest) -> None:
    """Raise `BadInput` for a variable or a file that is not there, before anything is begun."""
    try:
        engine_options(asked.access, asked.model, os.environ)
    except AccessError as error:
        raise BadInput(f"{arm}: {error}") from error


def checked_url(option: str, url: str) -> str:
    """The URL without a slash at its end. Raises `BadInput` naming the option."""
    try:
        check_url(url)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from error
    return url.rstrip("/")


def checked_engine(name: str) -> str:
    """The name, if there is such an engine. Raises `BadInput` naming those there are."""
    if name not in engine_names():
        raise BadInput(f"--engine: {name!r} is not known (allowed: {', '.join(engine_names())})")
    return name
