"""What a person set, by flag or by environment, checked: `read_settings`. The rows stand in `settings_table`."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from prefillgate.api.errors import InputError, Problem, shown
from prefillgate.api.store_address import PostgresUrl, StoreAddress, store_address
from prefillgate.app.seal_key import LEAST_KEY, kept_key
from prefillgate.app.settings_table import BY_NAME, PREFIX, ROWS, Setting

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LARGEST_FILE_BYTES = 65_536
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.%a-z]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")
_PASSWORD = re.compile(r"(?<=://)([^\s/@:]*):([^\s/@]*)@")
# What the kubelet puts into every pod for a Service whose name begins with "prefillgate".
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)$")
_OTHERS = ("DEBUG", "API_KEY", "ARM")  # of other commands


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError("no name")
    return text


def _list(text: Any) -> tuple[str, ...]:
    return tuple(part.strip() for part in str(text).split(",") if part.strip())


def _labels(text: str) -> tuple[str, ...]:
    return tuple(_label(part) for part in _list(text))


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(part, strict=False) for part in _list(text))


def _number(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text):
        raise ValueError("no number")
    return text


class Listen(BaseModel):
    """An address to listen on."""

    model_config = ConfigDict(frozen=True)

    host: str
    port: int = Field(ge=0, le=65535)


def _listen(text: str) -> Listen:
    found = _LISTEN.fullmatch(text)
    if found is None:
        raise ValueError("no HOST:PORT")
    return Listen(host=found[1] or found[2], port=int(found[3]))


Label = Annotated[str, BeforeValidator(_label)]
Seconds = Annotated[float, BeforeValidator(_number)]


class Settings(BaseModel):
    """All settings of a controller. Times are in seconds; None: nothing was set."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    kubeconfig: str | None
    context: str | None
    namespace: Label | None
    watch_namespaces: Annotated[tuple[str, ...], BeforeValidator(_labels)] = ()
    pod: Label | None = None
    lease_name: Label
    lease_duration_seconds: Annotated[int, BeforeValidator(_number), Field(ge=5, le=3600)]
    lease_renew_seconds: Annotated[Seconds, Field(gt=0)]
    lease_retry_seconds: Annotated[Seconds, Field(gt=0)]
    store: StoreAddress
    replay_sets: Path | None
    concurrent_replays: Annotated[int, BeforeValidator(_number), Field(ge=1, le=100)]
    workers: Annotated[int, BeforeValidator(_number), Field(ge=1, le=64)]
    listen: Annotated[Listen, BeforeValidator(_listen)]
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["json", "console"]
    allow_address: Annotated[tuple[Network, ...], BeforeValidator(_networks)] = ()
    deny_address: Annotated[tuple[Network, ...], BeforeValidator(_networks)] = ()
    seal_key: bytes = Field(repr=False)
    reach_attempts: Annotated[int, BeforeValidator(_number), Field(ge=1, le=100)]
    stop_seconds: Annotated[Seconds, Field(ge=0, le=3600)]

    @property
    def book(self) -> StoreAddress:
        """Where the book is: beside the stores, or in their database."""
        return self.store / "book.db" if isinstance(self.store, Path) else self.store


def read_settings(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> Settings:
    """The settings that flags and environment give; a flag goes before its variable, an empty variable is none.

    A password in the URL of a database is put into PGPASSWORD of this process and taken out of the URL. Raises
    InputError, with the flag or variable, the value unless it may be secret, and what is allowed.
    """
    given = _given(flags, environ)
    values: dict[str, Any] = {row.name: given[row.name][0] for row in ROWS if row.name in given}
    values |= {name: None for name, field in Settings.model_fields.items() if field.is_required() and name not in given}
    problems: list[Problem] = []
    try:
        values["store"] = _store(given)
    except InputError as error:
        problems += error.problems
        values["store"] = None
    try:
        values["seal_key"] = _seal_key(given, values["store"])
    except InputError as error:
        problems += error.problems
        values["seal_key"] = b""
    for other in ("store_url", "store_url_file", "seal_key_file"):
        values.pop(other, None)
    values["store"] = values["store"] or Path()
    try:
        found = Settings.model_validate(values)
    except ValidationError as error:
        raise InputError(*problems, *_problems(error, given)) from None
    if problems:
        raise InputError(*problems)
    return found


def unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that look like settings and are none; those of Service links are passed over."""
    known = {row.variable for row in ROWS} | {PREFIX + other for other in _OTHERS}
    named = sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
    return tuple(name for name in named if not _SERVICE_LINK.search(name) and "_TEST_" not in name)


_Given = dict[str, tuple[str, str]]


def _given(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> _Given:
    """Value and source (the flag or the variable; empty: the default) of every setting that has one."""
    found: _Given = {}
    for row in ROWS:
        flag, variable = flags.get(row.name) if row.flag else None, environ.get(row.variable)
        if flag is not None:
            found[row.name] = (flag, row.option)
        elif variable:
            found[row.name] = (variable, row.variable)
        elif row.default is not None:
            found[row.name] = (row.default, "")
    return found


def _problems(error: ValidationError, given: _Given) -> list[Problem]:
    problems = {}
    for each in error.errors(include_url=False, include_context=False):
        row = BY_NAME[str(each["loc"][0])]
        problems[row.name] = _wrong(row, given)
    return list(problems.values())


def _wrong(row: Setting, given: _Given, why: str = "", allowed: str = "") -> Problem:
    value, source = given.get(row.name, ("", ""))
    where = source or (row.option if row.flag else row.variable)
    told = why or (shown(value) if row.flag else "its value cannot be used (it is not shown)")
    return Problem("", where, told, allowed or row.allowed)


def _store(given: _Given) -> StoreAddress:
    set_here = [name for name in ("store", "store_url", "store_url_file") if given.get(name, ("", ""))[1]]
    if len(set_here) > 1:
        sources = " and ".join(given[name][1] for name in set_here)
        raise InputError(Problem("", sources, "more than one place for the evidence is given", "one of them"))
    name = set_here[0] if set_here else "store"
    row = BY_NAME[name]
    text = given[name][0] if name != "store_url_file" else _read(row, given)
    text = text.strip()
    if name != "store":
        text = _without_password(text)
        if "://" not in text:
            raise InputError(_wrong(row, given, "this is no URL of a database (it is not shown)", "postgresql://..."))
    try:
        address = store_address(text)
    except ValueError as error:
        raise InputError(_wrong(row, given, str(error) if name == "store" else "", row.allowed)) from None
    return PostgresUrl(address.server) if isinstance(address, PostgresUrl) else address


def _without_password(text: str) -> str:
    """The URL without its password, which is where libpq looks for one, and in no text of ours."""
    found = _PASSWORD.search(text)
    if found is None:
        return text
    os.environ["PGPASSWORD"] = unquote(found[2])
    return _PASSWORD.sub(r"\1@", text)


def _seal_key(given: _Given, store: Any) -> bytes:
    """The key, made and kept beside the book where none is given and the store is a directory."""
    if given.get("seal_key", ("", ""))[1] and given.get("seal_key_file", ("", ""))[1]:
        raise InputError(Problem("", given["seal_key_file"][1], "the key is given twice", "seal_key or seal_key_file"))
    if "seal_key" in given:
        return _long_enough(BY_NAME["seal_key"], given, given["seal_key"][0].encode("utf-8", "surrogateescape"))
    if "seal_key_file" in given:
        row = BY_NAME["seal_key_file"]
        return _long_enough(row, given, _read(row, given).strip().encode("utf-8", "surrogateescape"))
    if not isinstance(store, Path):
        row = BY_NAME["seal_key_file"]
        why = "with a database the key of sealed credentials must be given, the same for every replica"
        raise InputError(Problem("", f"{row.option} or {BY_NAME['seal_key'].variable}", why, row.allowed))
    return kept_key(store / "seal.key")


def _long_enough(row: Setting, given: _Given, key: bytes) -> bytes:
    if len(key) < LEAST_KEY:
        raise InputError(_wrong(row, given, f"the key is shorter than {LEAST_KEY} characters", "a longer one"))
    return key


def _read(row: Setting, given: _Given) -> str:
    try:
        with Path(given[row.name][0]).open("rb") as file:
            return file.read(LARGEST_FILE_BYTES).decode("utf-8", "surrogateescape")
    except OSError as error:
        why = f"{shown(given[row.name][0])} cannot be read: {error.strerror or error}"
        raise InputError(_wrong(row, given, why)) from error
