"""What a user asked of the API server in a stretch of its audit log, counted by what it was about."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.support.cluster.audit import WRITES, AuditLog, Entry
from tests.support.cluster.users import GATE, User

LOGGED_SECONDS = 60.0  # within which a request that was answered stands in the audit log
OURS = ("servinglines", "profilerollouts")


class Stretch:
    """From its making on, or from the entry `since` on; `close` ends it."""

    def __init__(self, audit: AuditLog, user: User = GATE, since: int | None = None) -> None:
        self._audit, self._user = audit, user.name
        self._first = len(audit.entries()) if since is None else since
        self._last: int | None = None

    def close(self, at: Callable[[Entry], bool] | None = None) -> Stretch:
        """What comes later does not count; `at` says after which of its entries. Where a reader may see what a request
        did before the log has it, that is waited for."""
        if at is None:
            self._last = len(self._audit.entries())
            return self
        end = time.monotonic() + LOGGED_SECONDS
        while (place := next((n for n, entry in enumerate(self._since()) if at(entry)), None)) is None:
            assert time.monotonic() < end, f"not in the audit log: {self.requests()}"
            time.sleep(0.1)
        self._last = self._first + place + 1
        return self

    def _since(self) -> Sequence[Entry]:
        return self._audit.entries()[self._first :]

    def entries(self) -> Sequence[Entry]:
        """The user's requests in it."""
        return [entry for entry in self._audit.entries()[self._first : self._last] if entry.user == self._user]

    def requests(self) -> Counter[str]:
        """By verb and resource."""
        return Counter(f"{entry.verb} {_about(entry)}" for entry in self.entries())

    def writes(self, *resources: str) -> int:
        """How many meant to change one of these."""
        return sum(1 for entry in self.entries() if entry.verb in WRITES and entry.resource in resources)

    def but_for_the_lease(self) -> Counter[str]:
        """Requests that are not the leader's renewals, which come at fixed times whatever there is to do."""
        return Counter({name: count for name, count in self.requests().items() if not name.endswith(" leases")})


def tells_of_a_promotion_by(rollout: str) -> Callable[[Entry], bool]:
    """Whether an entry wrote into the status of a line that the candidate of this rollout was promoted."""

    def tells(entry: Entry) -> bool:
        if (entry.resource, entry.subresource) != ("servinglines", "status") or not isinstance(entry.request, dict):
            return False
        return bool((entry.request.get("status", {}).get("promotedProfile") or {}).get("rollout") == rollout)

    return tells


def _about(entry: Entry) -> str:
    return entry.resource + (f"/{entry.subresource}" if entry.subresource else "")
