"""Gauges of requests at work that may stand still when the work ends.

Some engines write their gauges only while they step, so the last one written may say "1 running" for good. A gauge is
believed when it says that nothing runs, and when it says that something does only after it was seen to come down behind
our own requests.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from prefillgate.engines.base import Activity, Capabilities, Look
from prefillgate.engines.openai_routes import OpenAIRoutes

STANDS_STILL = "the server's gauges of requests at work did not come down behind the probe: idleness is not told"


class RestingGauges(OpenAIRoutes):
    """A family whose gauges must be seen to come down before they can keep a cell waiting."""

    rest_seconds = 2.0  # how long a gauge may lag behind the last answer of the probe
    rest_poll_seconds = 0.05
    _rests = False

    async def probe(self, salt: str, model: str | None) -> Capabilities:
        """The capability probe, and whether the gauges come down behind it. Raises as the probe does."""
        shown = await super().probe(salt, model)
        polls = max(1, round(self.rest_seconds / self.rest_poll_seconds))
        self._rests = True  # to be asked for what the gauges say
        for _ in range(polls):
            activity = await self.activity()
            if activity.idle is not False:
                return shown
            await asyncio.sleep(self.rest_poll_seconds)
        self._rests = False
        return replace(shown, findings=(*shown.findings, STANDS_STILL))

    async def activity(self) -> Activity:
        """Requests at work and waiting; unknown where the server does not tell or its gauges cannot be believed."""
        return self._believed(await super().activity())

    async def look(self) -> Look:
        """Totals, work and life of the process from one reading of the totals."""
        look = await super().look()
        return replace(look, activity=self._believed(look.activity))

    def _believed(self, activity: Activity) -> Activity:
        return Activity() if activity.idle is False and not self._rests else activity
