"""Moments as the resources write them, and the seconds since the epoch that the rest of the program reckons in."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from pydantic import TypeAdapter, ValidationError

from prefillgate.api.kinds.common import Moment

_MOMENT: TypeAdapter[str] = TypeAdapter(Moment)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST, _LATEST = 0.0, 253_402_300_799.0  # the year 9999 ends with the latter
_DIGITS_KEPT = re.compile("([.][0-9]{6})[0-9]+")  # of a second: Python reads microseconds


def moment(seconds: float) -> str:
    """Seconds since the epoch as `2026-11-30T10:00:00Z`, the part of a second cut off. A time out of the years 1970 to
    9999 becomes the nearest one in them."""
    bounded = min(max(seconds, _EARLIEST), _LATEST)
    return (_EPOCH + timedelta(seconds=int(bounded))).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: object) -> float | None:
    """Seconds since the epoch of a moment as a status or an annotation has it (RFC 3339 with an offset or `Z`); None
    where it is no such moment, a day that no calendar has included."""
    try:
        told = datetime.fromisoformat(_DIGITS_KEPT.sub(r"\1", _MOMENT.validate_python(text, strict=True)))
        return (told - _EPOCH) / timedelta(seconds=1)
    except (ValidationError, ValueError, OverflowError):
        return None
