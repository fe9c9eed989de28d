"""What a replay of the promoted profile alone is begun with, beside that profile.

A run whose store was begun with other criteria, cases, isolation or model can never go on (`check_same_run`): each of
them makes it another run, which begins, instead of one that is refused for ever.
"""

from __future__ import annotations

import hashlib

from prefillgate.api.kinds.serving_line import ServingLineSpec
from prefillgate.core.shape import Isolation
from prefillgate.reconcile.snapshot import LineSnapshot


def isolation_of(spec: ServingLineSpec) -> Isolation:
    """Whether others use the servers under test meanwhile."""
    return Isolation.SHARED if spec.baseline.isolation.mode == "Shared" else Isolation.EXCLUSIVE


def question_of(snapshot: LineSnapshot) -> str:
    """A digest of all of it. What cannot be read now is nothing: no replay begins while that is so."""
    policy, cases, spec = snapshot.policy, snapshot.replay_set, snapshot.spec
    parts = (
        "" if policy is None else policy.sha256,
        "" if cases is None else cases.name,
        "" if cases is None else cases.sha256,
        "" if spec is None else isolation_of(spec).value,
        "" if spec is None else spec.model or "",
    )
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
