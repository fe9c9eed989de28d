"""What stood in ConfigMaps and since when, so that a pod's is known to be another one than that of now.

An API server tells when data was written, but not of each write: a key that is taken away leaves the times of its owner
as they were, and of what was deleted nothing is left. So what a reflector saw is remembered, by digest, and what was
true last stands in the status of lines, by a digest that nobody without the key can try out guesses on.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field, replace

from prefillgate.api.kinds.moments import moment
from prefillgate.app.observe.trims import CHANGED_AT, DATA_DIGEST, is_stub
from prefillgate.kube.clock import Clock
from prefillgate.kube.objects import Object, metadata

MOST_STATES = 8  # of one ConfigMap
_DIGITS = 8  # of the mark of a key
MOST_GONE = 4_096  # that are not there any more


@dataclass(frozen=True, slots=True)
class _Stood:
    """What stood there from a moment on (RFC 3339); `mark` None: nothing. `told`: the last write that was told."""

    mark: str | None
    since: str
    told: str = ""


@dataclass(slots=True)
class Contents:
    """Kept by `seen` of everything that is seen of a ConfigMap, in that order."""

    clock: Clock
    key: bytes = field(repr=False)
    _stood: dict[str, tuple[_Stood, ...]] = field(default_factory=dict)
    _gone: dict[str, None] = field(default_factory=dict)
    _recalled: set[str] = field(default_factory=set)

    def seen(self, key: str, obj: Object | None) -> None:
        """It is this now, as `trims.config_map` keeps it; None: it is not there."""
        if obj is not None and is_stub(obj):
            return
        states = self._stood.get(key, ())
        if obj is None:
            if states and states[-1].mark is not None:
                self._put(key, (*states, _Stood(None, self._now())))
                self._leave(key)
            return
        self._gone.pop(key, None)
        told = str(obj.get(CHANGED_AT) or metadata(obj).get("creationTimestamp") or "")
        mark = self._mark(str(obj.get(DATA_DIGEST)))
        if states and states[-1].mark == mark:
            self._put(key, (*states[:-1], replace(states[-1], told=max(told, states[-1].told))))
            return
        is_told = not states or told > states[-1].told
        self._put(key, (*states, _Stood(mark, told if is_told else self._now(), told)))

    def recall(self, key: str, mark: str | None, since: str) -> None:
        """What another controller, or this one before it was started anew, saw last; first told, first believed."""
        states = self._stood.get(key, ())
        if key in self._recalled or (mark is not None and mark[:_DIGITS] != self._key_mark):
            return
        self._recalled.add(key)
        known = _Stood(mark, since, since)
        if not states:
            self._put(key, (known,))
        elif states[0].mark == mark:
            self._put(key, (replace(states[0], since=since), *states[1:]))
        elif all(each.mark != mark for each in states):
            first = states[0] if states[0].told > since else replace(states[0], since=self._now())
            self._put(key, (known, first, *states[1:]))

    def last(self, key: str) -> tuple[str | None, str] | None:
        """The mark of what stands there and since when; None where nothing ever was seen there."""
        states = self._stood.get(key, ())
        return (states[-1].mark, states[-1].since) if states else None

    def another(self, key: str, digest: str | None, at: str) -> bool | None:
        """Whether something else than this stood there at a moment (RFC 3339, to the second), or nobody can know; None
        where nothing ever was seen there."""
        states = self._stood.get(key, ())
        then = next((each for each in reversed(states) if each.since[:19] <= at[:19]), None)
        mark = None if digest is None else self._mark(digest)
        return None if not states else then is None or then.mark != mark

    def _mark(self, digest: str) -> str:
        return f"{self._key_mark}-{self._keyed(digest)[:32]}"

    @property
    def _key_mark(self) -> str:
        return self._keyed("which key it is")[:_DIGITS]

    def _keyed(self, text: str) -> str:
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()

    def _put(self, key: str, states: tuple[_Stood, ...]) -> None:
        self._stood[key] = states[-MOST_STATES:]

    def _leave(self, key: str) -> None:
        self._gone[key] = None
        if len(self._gone) > MOST_GONE:
            oldest = next(iter(self._gone))
            del self._gone[oldest], self._stood[oldest]
            self._recalled.discard(oldest)

    def _now(self) -> str:
        return moment(self.clock.now())
