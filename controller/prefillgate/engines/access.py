"""From the names of an `Access` to open options: the key out of its variable, the certificates out of their files."""

from __future__ import annotations

from collections.abc import Mapping

from prefillgate.api.access import Access
from prefillgate.engines.http import EngineOptions


class AccessError(ValueError):
    """A variable or a file that an `Access` names cannot be used. The message names it and what is allowed."""


def engine_options(access: Access, model: str | None, environment: Mapping[str, str]) -> EngineOptions:
    """The options that reach a server as `access` says. Raises `AccessError`."""
    key = None
    if access.api_key_variable is not None:
        key = environment.get(access.api_key_variable)
        if not key:
            raise AccessError(
                f"{access.api_key_variable} is not set in the environment (allowed: the name of a variable)"
            )
    return EngineOptions(api_key=key, model=model)
