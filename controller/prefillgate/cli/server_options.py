"""The options that say how a server is reached, for every command that asks one.

A command with two arms has each option three times: `--ca-file` for both, `--baseline-ca-file` and
`--candidate-ca-file` for one, which wins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from prefillgate.api.access import Access
from prefillgate.cli.completing import ENGINE

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Option:
    """One option; `field` is the field of `Access` it fills, None for the model and the engine."""

    name: str
    field: str | None
    metavar: str | None
    help: str


_OPTIONS = (
    _Option("model", None, "NAME", "Model to ask for.  [default: the only one served]"),
    _Option("engine", None, "NAME", f"Server family: {', '.join(ENGINE.names)}.  [default: auto]"),
    _Option("api-key-env", "api_key_variable", "VARIABLE", "Environment variable that holds the API key."),
    _Option("header-file", "header_file", "FILE", "Headers to send, one `Name: value` a line."),
    _Option("ca-file", "ca_file", "FILE", "Certificates (PEM) to trust instead of the system's."),
    _Option("client-cert", "client_cert", "FILE", "Client certificate (PEM)."),
    _Option("client-key", "client_key", "FILE", "Its key (PEM), where the certificate's file does not hold it."),
    _Option("tls-server-name", "tls_server_name", "NAME", "Name the server's certificate must bear."),
    _Option("insecure", "insecure", None, "Do not check the server's certificate. The verdict says so."),
    _Option("proxy", "proxy", "URL", "HTTP proxy. The environment's proxy variables are ignored."),
)
_FILES = frozenset({"header_file", "ca_file", "client_cert", "client_key"})


class SidedCommand(click.Command):
    """A command whose `--help` tells the options of one side in one line: thirty of them would bury the others."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those of each side together."""
        rows, sides = [], dict[str, list[str]]()
        for parameter in self.get_params(ctx):
            side = _side_of(parameter.name or "")
            record = parameter.get_help_record(ctx)
            if side:
                sides.setdefault(side, []).append(parameter.opts[0].removeprefix(f"--{side}"))
            elif record is not None:
                rows.append(record)
        for side, names in sides.items():
            rows.append((f"--{side}-...", f"Options of a server for the {side} alone: {', '.join(names)}."))
        with formatter.section("Options"):
            formatter.write_dl(rows)


def _side_of(name: str) -> str:
    """The side that a parameter is of, or an empty string for one of the whole command."""
    side, _, rest = name.partition("_")
    return side if any(option.name.replace("-", "_") == rest for option in _OPTIONS) else ""


def server_options(*arms: str) -> Callable[[_F], _F]:
    """Add the options of one server, and of each of `arms` with its name in front."""

    def decorate(function: _F) -> _F:
        for prefix in reversed(("", *arms)):
            for option in reversed(_OPTIONS):
                function = _added(function, prefix, option)
        return function

    return decorate


def unvalidated_judge_option(function: _F) -> _F:
    """Add `--unvalidated-judge`, for every command that judges outputs."""
    text = "Let a judge judge although fewer than 20 labelled outputs tell what its word is worth. The verdict says so."
    return click.option("--unvalidated-judge", is_flag=True, help=text)(function)


def prefixed_options(prefix: str, *without: str) -> Callable[[_F], _F]:
    """Add the options of one server with `prefix` in front, but those named, which stand for themselves alone."""

    def decorate(function: _F) -> _F:
        for option in reversed(_OPTIONS):
            if option.name not in without:
                function = _added(function, prefix, option, beside=False)
        return function

    return decorate


def _added(function: _F, prefix: str, option: _Option, *, beside: bool = True) -> _F:
    """`beside`: the option for every server stands in the same help, and says what it is."""
    flag = f"--{prefix}-{option.name}" if prefix else f"--{option.name}"
    text = f"The same of the {prefix} alone." if prefix and beside else option.help
    if option.metavar is None:
        return click.option(flag, is_flag=True, help=text)(function)
    kind: Any = click.Path(path_type=Path) if option.field in _FILES else ENGINE if option.name == "engine" else str
    return click.option(flag, metavar=option.metavar, type=kind, help=text, callback=_not_empty)(function)


def _not_empty(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """The value. Raises `BadParameter` for an empty one: a variable of a script that was never set, no wish."""
    if isinstance(value, str) and not value.strip():
        raise click.BadParameter("it is empty (allowed: a value, or leave the option out)")
    return value


def _given(options: dict[str, Any], arm: str, name: str) -> Any:
    """The value for this arm, else the one for every arm, else None."""
    key = name.replace("-", "_")
    value = options.get(f"{arm}_{key}") if arm else None
    return value or options.get(key) or None


def access_of(options: dict[str, Any], arm: str = "", known: Access | None = None) -> Access:
    """How to reach the server of `arm`, or the one server of a command; options win over what is `known`."""
    fields = {o.field: value for o in _OPTIONS if o.field is not None and (value := _given(options, arm, o.name))}
    return replace(known or Access(), **fields)


def model_of(options: dict[str, Any], arm: str = "") -> str | None:
    """The model asked for."""
    name: str | None = _given(options, arm, "model")
    return name


def engine_of(options: dict[str, Any], arm: str = "") -> str | None:
    """The engine asked for; None where nothing was said."""
    name: str | None = _given(options, arm, "engine")
    return name
