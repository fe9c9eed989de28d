"""When workloads may be scaled: days, time zones, clock changes, windows that touch, and the time to put back."""

from __future__ import annotations

from datetime import datetime

import pytest

from prefillgate.api.kinds.serving_line import Window
from prefillgate.api.model import validate
from prefillgate.reconcile.windows import Opening, next_opening, open_at, openings


def window(start: str = "22:00", seconds: int = 3600, **more: object) -> Window:
    found, wrong = validate(Window, {"startTime": start, "durationSeconds": seconds, **more})
    assert found is not None, wrong
    return found


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


NIGHT = window("22:00", 4 * 3600)


@pytest.mark.parametrize(
    ("now", "is_open"),
    [
        ("2026-11-30T21:59:59.9+00:00", False),
        ("2026-11-30T22:00:00+00:00", True),
        ("2026-12-01T01:59:59.9+00:00", True),
        ("2026-12-01T02:00:00+00:00", False),
    ],
)
def test_a_window_is_open_from_its_first_moment_to_before_its_last_also_over_midnight(now: str, is_open: bool) -> None:
    found = open_at([NIGHT], at(now))
    assert found == (Opening(at("2026-11-30T22:00+00:00"), at("2026-12-01T02:00+00:00")) if is_open else None)


def test_the_next_opening_is_after_this_moment() -> None:
    assert next_opening([NIGHT], at("2026-11-30T21:59+00:00")) == at("2026-11-30T22:00+00:00")
    assert next_opening([NIGHT], at("2026-11-30T22:00+00:00")) == at("2026-12-01T22:00+00:00")


def test_a_window_begins_on_its_days_alone() -> None:
    weekend = window("23:30", 3600, days=["Saturday", "Sunday"])
    monday = at("2026-11-30T00:15+00:00")
    assert open_at([weekend], monday) == Opening(at("2026-11-29T23:30+00:00"), at("2026-11-30T00:30+00:00"))
    assert next_opening([weekend], monday) == at("2026-12-05T23:30+00:00")
    once = window("00:00", 60, days=["Monday"])
    assert next_opening([once], at("2026-11-30T00:00+00:00")) == at("2026-12-07T00:00+00:00")


def test_a_day_is_that_of_the_windows_own_time_zone() -> None:
    tokyo = window("01:00", 3600, days=["Tuesday"], timeZone="Asia/Tokyo")
    assert open_at([tokyo], at("2026-11-30T16:30+00:00")) is not None  # Tuesday there, Monday in London
    assert open_at([tokyo], at("2026-12-01T16:30+00:00")) is None


def test_summer_time_moves_the_moment_and_not_the_time_of_day() -> None:
    berlin = window("22:00", 3600, timeZone="Europe/Berlin")
    assert open_at([berlin], at("2026-03-28T21:30+00:00")) is not None
    assert open_at([berlin], at("2026-03-29T20:30+00:00")) is not None
    assert open_at([berlin], at("2026-03-29T21:30+00:00")) is None


def test_a_time_that_a_clock_change_leaves_out_or_repeats_comes_once() -> None:
    berlin = window("02:30", 1800, timeZone="Europe/Berlin")
    spring = [each.opens_at for each in openings([berlin], at("2026-03-28T12:00+00:00"))][:2]
    assert spring == [at("2026-03-29T01:30+00:00"), at("2026-03-30T00:30+00:00")]
    autumn = [each.opens_at for each in openings([berlin], at("2026-10-24T12:00+00:00"))][:2]
    assert autumn == [at("2026-10-25T00:30+00:00"), at("2026-10-26T01:30+00:00")]


def test_a_window_is_as_long_as_it_says_whatever_the_clocks_do() -> None:
    over = window("01:00", 3 * 3600, timeZone="Europe/Berlin")
    found = open_at([over], at("2026-03-29T00:30+00:00"))
    assert found is not None and found.closes_at - found.opens_at == 3 * 3600


def test_windows_that_touch_or_overlap_are_one_opening() -> None:
    both = [window("22:00", 3600), window("23:00", 3600), window("23:30", 600), window("00:00", 60)]
    found = open_at(both, at("2026-11-30T22:30+00:00"))
    assert found == Opening(at("2026-11-30T22:00+00:00"), at("2026-12-01T00:01+00:00"))
    apart = [window("22:00", 3600), window("23:01", 3600)]
    assert open_at(apart, at("2026-11-30T22:30+00:00")) == Opening(
        at("2026-11-30T22:00+00:00"), at("2026-11-30T23:00+00:00")
    )


def test_a_window_of_a_week_is_always_open() -> None:
    always = window("12:00", 604_800)
    found = open_at([always], at("2026-11-30T11:59+00:00"))
    assert found is not None and found.opens_at <= at("2026-11-23T12:00+00:00")
    assert found.closes_at > at("2026-12-07T12:00+00:00")
    assert next_opening([always], at("2026-11-30T11:59+00:00")) == at("2026-11-30T11:59+00:00")


@pytest.mark.parametrize(("seconds", "back"), [(60, 15.0), (1200, 300.0), (1199, 299.75), (7200, 300.0)])
def test_there_is_time_left_to_put_back(seconds: int, back: float) -> None:
    assert Opening(1000.0, 1000.0 + seconds).put_back_at == 1000.0 + seconds - back


def test_a_time_zone_that_is_none_is_told_by_its_field() -> None:
    _, wrong = validate(Window, {"startTime": "22:00", "durationSeconds": 60, "timeZone": "Europe/Atlantis"})
    assert [(problem.field, problem.message) for _, problem in wrong] == [
        ("timeZone", "'Europe/Atlantis' is no time zone that is known here (allowed: an IANA name, as Europe/Berlin)")
    ]
    assert validate(Window, {"startTime": "22:00", "durationSeconds": 60, "timeZone": "America/Argentina/Ushuaia"})[0]
