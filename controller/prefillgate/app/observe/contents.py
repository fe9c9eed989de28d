"""What stood in ConfigMaps and since when, so that a pod's is known to be another one than that of now.

An API server tells when data was written, but not of each write: a key that is taken away leaves the times of its owner
as they were, and of what was deleted nothing is left. So what a reflector saw is remembered, by digest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from prefillgate.api.kinds.moments import moment
from prefillgate.app.observe.trims import CHANGED_AT, DATA_DIGEST, is_stub
from prefillgate.kube.clock import Clock
from prefillgate.kube.objects import Object, metadata

MOST_STATES = 8  # of one ConfigMap
MOST_GONE = 4_096  # that are not there any more


@dataclass(frozen=True, slots=True)
class _Stood:
    """What stood there from a moment on (RFC 3339); `digest` None: nothing. `told`: the last write that was told."""

    digest: str | None
    since: str
    told: str = ""


@dataclass(slots=True)
class Contents:
    """Kept by `seen` of everything that is seen of a ConfigMap, in that order."""

    clock: Clock
    _stood: dict[str, tuple[_Stood, ...]] = field(default_factory=dict)
    _gone: dict[str, None] = field(default_factory=dict)

    def seen(self, key: str, obj: Object | None) -> None:
        """It is this now, as `trims.config_map` keeps it; None: it is not there."""
        if obj is not None and is_stub(obj):
            return
        states = self._stood.get(key, ())
        if obj is None:
            if states and states[-1].digest is not None:
                self._put(key, (*states, _Stood(None, self._now())))
                self._leave(key)
            return
        self._gone.pop(key, None)
        told = str(obj.get(CHANGED_AT) or metadata(obj).get("creationTimestamp") or "")
        digest = str(obj.get(DATA_DIGEST))
        if states and states[-1].digest == digest:
            self._put(key, (*states[:-1], replace(states[-1], told=max(told, states[-1].told))))
            return
        is_told = not states or told > states[-1].told
        self._put(key, (*states, _Stood(digest, told if is_told else self._now(), told)))

    def another(self, key: str, digest: str | None, at: str) -> bool | None:
        """Whether something else than this stood there at a moment (RFC 3339, to the second), or nobody can know; None
        where nothing ever was seen there."""
        states = self._stood.get(key, ())
        then = next((each for each in reversed(states) if each.since[:19] <= at[:19]), None)
        return None if not states else then is None or then.digest != digest

    def _put(self, key: str, states: tuple[_Stood, ...]) -> None:
        self._stood[key] = states[-MOST_STATES:]

    def _leave(self, key: str) -> None:
        self._gone[key] = None
        if len(self._gone) > MOST_GONE:
            oldest = next(iter(self._gone))
            del self._gone[oldest], self._stood[oldest]

    def _now(self) -> str:
        return moment(self.clock.now())
