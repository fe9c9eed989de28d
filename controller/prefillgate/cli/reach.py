"""The server that a command with `--server` names."""

from __future__ import annotations

from typing import Any

from prefillgate.api.run_file import check_url
from prefillgate.cli.errors import BadInput
from prefillgate.cli.server_options import access_of, engine_of, model_of
from prefillgate.engines.registry import AUTO, engine_names
from prefillgate.replay.session import ArmRequest


def one_server(options: dict[str, Any]) -> ArmRequest:
    """The server that a command with `--server` and the options of one server names. Raises `BadInput`."""
    url, engine = options["server"], engine_of(options) or AUTO
    try:
        check_url(url)
    except ValueError as error:
        raise BadInput(f"--server: {error}") from error
    if engine not in engine_names():
        raise BadInput(f"--engine: {engine!r} is not known (allowed: {', '.join(engine_names())})")
    return ArmRequest(url.rstrip("/"), model_of(options), engine, access_of(options))
