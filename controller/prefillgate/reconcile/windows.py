"""When workloads may be scaled: which window is open, until when, and when the next one opens. Pure.

A window opens at a time of day in its own time zone and is open for so many seconds that pass, whatever clocks do
meanwhile. A time that a clock change leaves out is the moment that the clock would have shown it without the change;
one that comes twice is the first of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as time_of_day
from zoneinfo import ZoneInfo

from prefillgate.api.kinds.serving_line import Window

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
LONGEST_PUTTING_BACK_SECONDS = 300.0
PUTTING_BACK_SHARE = 0.25  # of a short window


@dataclass(frozen=True, slots=True)
class Opening:
    """A time in which workloads may be scaled; seconds since the epoch. What touches or overlaps is one of them."""

    opens_at: float
    closes_at: float

    @property
    def put_back_at(self) -> float:
        """When replicas are put back, so that this too is done before it closes. Nothing is begun from then on."""
        whole = self.closes_at - self.opens_at
        return self.closes_at - min(LONGEST_PUTTING_BACK_SECONDS, PUTTING_BACK_SHARE * whole)


def open_at(windows: Sequence[Window], now: float) -> Opening | None:
    """The opening of this moment; None where none of the windows is open."""
    return next((each for each in openings(windows, now) if each.opens_at <= now < each.closes_at), None)


def next_opening(windows: Sequence[Window], now: float) -> float:
    """When a window opens next, after this moment; this moment itself where one is always open."""
    return next((each.opens_at for each in openings(windows, now) if each.opens_at > now), now)


def openings(windows: Sequence[Window], now: float) -> Iterator[Opening]:
    """Those that are open at this moment or open within eight days, earliest first."""
    every = (each for window in windows for each in _of_window(window, now))
    joined: list[Opening] = []
    for each in sorted(every, key=lambda one: (one.opens_at, one.closes_at)):
        if joined and each.opens_at <= joined[-1].closes_at:
            joined[-1] = Opening(joined[-1].opens_at, max(joined[-1].closes_at, each.closes_at))
        else:
            joined.append(each)
    return (each for each in joined if each.closes_at > now)


def _of_window(window: Window, now: float) -> Iterator[Opening]:
    zone = ZoneInfo(window.time_zone)
    here = datetime.fromtimestamp(now, zone).date()
    since = here - timedelta(seconds=window.duration_seconds) - timedelta(days=1)
    for number in range((here - since).days + 9):
        day = since + timedelta(days=number)
        if window.days is None or DAYS[day.weekday()] in window.days:
            opens_at = _moment(day, window.start_time, zone)
            yield Opening(opens_at, opens_at + window.duration_seconds)


def _moment(day: date, start: str, zone: tzinfo) -> float:
    hour, minute = map(int, start.split(":"))
    return datetime.combine(day, time_of_day(hour, minute), zone).astimezone(UTC).timestamp()
