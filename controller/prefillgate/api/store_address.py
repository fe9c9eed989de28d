"""Where an evidence store is: a file, or one run in a PostgreSQL database that several gates share.

`postgresql://[USER@]HOST[:PORT]/DATABASE?run=NAME` is libpq's own URL with one parameter more, `run`; all else in
it (several hosts, `service`, `passfile`, `sslmode` and the other TLS parameters) is libpq's. It never holds a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from prefillgate.api.errors import shown

SCHEMES = ("postgresql://", "postgres://")
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
RUN_ALLOWED = "1 to 100 letters, digits, dots, hyphens and underscores, a letter or digit first"
ALLOWED = "a file, or postgresql://[USER@]HOST[:PORT]/DATABASE?run=NAME"
PASSWORDS = (
    "the store's URL holds a password, which every process list shows (allowed: a URL without one; the password comes "
    "from the variable PGPASSWORD, a password file or a service file)"
)
_ANY_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://", re.ASCII)


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """One run in a database. `server` is what libpq is given; `run` is None where no run was named."""

    server: str
    run: str | None = None

    def __str__(self) -> str:
        if self.run is None:
            return self.server
        return f"{self.server}{'&' if '?' in self.server else '?'}run={self.run}"

    def of_run(self, name: str) -> PostgresUrl:
        """A run in the same database, named after `name`: whatever no name may have becomes a hyphen."""
        safe = re.sub(r"[^A-Za-z0-9._]+", "-", name).lstrip("._-")[:100]
        return replace(self, run=safe or "run")


StoreAddress = Path | PostgresUrl
"""A file, or a run in a database."""


def store_address(text: str, folder: Path | None = None) -> StoreAddress:
    """The address that a person wrote; a file's is taken from `folder`.

    Raises ValueError for a URL of another kind, a run's name that none may have, and a password, which is not repeated.
    """
    scheme = _ANY_SCHEME.match(text)
    if scheme is None:
        return Path(text) if folder is None else folder / text
    if scheme[0].lower() not in SCHEMES:
        raise ValueError(f"{shown(scheme[0])} is no address of a store (allowed: {ALLOWED})")
    rest = text[scheme.end() :]
    if not text.isprintable() or " " in text:
        raise ValueError(f"the store's URL holds a space or what cannot be printed (allowed: {ALLOWED})")
    head, _, query = rest.partition("?")
    _refuse_passwords(head)
    kept: list[str] = []
    runs: list[str] = []
    for part in filter(None, query.split("&")):
        key, _, value = part.partition("=")
        name = unquote(key).lower()
        if "password" in name or "secret" in name:
            raise ValueError(PASSWORDS)
        (runs if name == "run" else kept).append(unquote(value) if name == "run" else part)
    server = f"{scheme[0].lower()}{head}{'?' if kept else ''}{'&'.join(kept)}"
    if len(runs) > 1:
        raise ValueError("the store's URL names run twice (allowed: once)")
    if runs and not RUN_NAME.fullmatch(runs[0]):
        raise ValueError(f"run {shown(runs[0])} in the store's URL is no name of a run (allowed: {RUN_ALLOWED})")
    return PostgresUrl(server, runs[0] if runs else None)


def _refuse_passwords(head: str) -> None:
    """Raise ValueError for userinfo with a password, and for an @ where only a password's would stand."""
    authority, _, path = head.partition("/")
    if ":" in authority.rpartition("@")[0] or "@" in path:
        raise ValueError(PASSWORDS)
