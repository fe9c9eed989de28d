"""`run --gateway`: its options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefillgate.cli.server_options import access_of, model_of, prefixed_options

if TYPE_CHECKING:
    from prefillgate.replay.session import ArmRequest

PREFIX = "gateway"
_F = TypeVar("_F", bound=Callable[..., Any])


def gateway_options(function: _F) -> _F:
    """Add --gateway and how it is reached. Nothing of the servers' own access is ever shown to a gateway."""
    function = prefixed_options(PREFIX, "engine")(function)
    return click.option(
        "--gateway",
        metavar="URL",
        help="Gateway in front of the candidate: bad cells are sent once more, straight and through it, at the end.",
    )(function)


def gateway_of(options: dict[str, Any], known: ArmRequest | None = None) -> ArmRequest | None:
    """The gateway asked for; options win over what a run file says of it (`known`).

    Raises `BadInput` for one that cannot be an address, or options without one.
    """
    from prefillgate.cli.addresses import check_access, checked_url
    from prefillgate.cli.errors import BadInput
    from prefillgate.replay.session import ArmRequest

    own = {name: value for name, value in options.items() if name.startswith(f"{PREFIX}_")}
    if options[PREFIX] is None and known is None:
        given = [f"--{name.replace('_', '-')}" for name, value in own.items() if value]
        if given:
            raise BadInput(f"{given[0]}: there is no gateway (allowed: together with --gateway URL)")
        return None
    known = known or ArmRequest("")
    url = known.url if options[PREFIX] is None else checked_url("--gateway", options[PREFIX])
    access = access_of(own, PREFIX, known.access)
    asked = ArmRequest(url, model=model_of(own, PREFIX) or known.model, access=access)
    check_access(PREFIX, asked)
    return asked
