"""Where the journal of each replay is: a file `<folder>/<namespace>/<line>/<run>.db`, or a run of that name in the
database that all of them share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from prefillgate.api.errors import shown
from prefillgate.api.store_address import PostgresUrl, StoreAddress

SUFFIX = ".db"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_LONGEST = 100  # characters of a run's name in a database


@dataclass(frozen=True, slots=True)
class RunStores:
    """All of them. `root` is a folder or a database."""

    root: StoreAddress

    def of(self, namespace: str, line: str, run: str) -> StoreAddress:
        """The address of a line's run. Raises ValueError for a name that could lead elsewhere."""
        for name, pattern in ((namespace, _NAME), (line, _NAME), (run, _RUN)):
            if not pattern.fullmatch(name):
                raise ValueError(
                    f"{shown(name)} cannot name a store (allowed: letters, digits, dots, hyphens and underscores, a "
                    "letter or digit first)"
                )
        if isinstance(self.root, Path):
            return self.root / namespace / line / f"{run}{SUFFIX}"
        return PostgresUrl(self.root.server, f"{namespace}.{line}"[: _LONGEST - len(run) - 1] + f".{run}")


def told(address: StoreAddress) -> str:
    """The address for a status: whoever reads that may not be told who logs in where."""
    if isinstance(address, Path):
        return str(address)
    parts = urlsplit(str(address))
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
