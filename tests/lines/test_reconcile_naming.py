"""The names of rollouts and of pieces of work: the same look gives the same name, another thing another one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from prefillgate.reconcile.naming import (
    book_line,
    digest_in,
    digits_of,
    floor_key,
    rerun_name,
    rollout_name,
    seed_of,
    watch_key,
    watch_number,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4


def test_the_book_knows_a_line_by_its_name_and_uid() -> None:
    line: dict[str, Any] = {"metadata": {"namespace": "team", "name": "chat", "uid": "u-1"}}
    assert book_line(line) == "team/chat/u-1"


def test_digits_are_the_first_of_the_digest_without_its_algorithm() -> None:
    assert digits_of(DIGEST) == "01234567"
    assert digits_of(DIGEST, 12) == "0123456789ab"
    assert digits_of("0123456789") == "01234567"


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        ((), "chat-01234567"),
        (
            ("chat-ffffffff", "chatter-01234567", "chat-01234567x", "chat-01234567-r12", "chat-01234567-²"),
            "chat-01234567",
        ),
        (("chat-01234567",), "chat-01234567-2"),
        (("chat-01234567-2",), "chat-01234567-3"),
        (("chat-01234567-9", "chat-01234567-10", "chat-01234567"), "chat-01234567-11"),
    ],
)
def test_a_candidate_that_comes_again_has_the_next_number(taken: tuple[str, ...], name: str) -> None:
    assert rollout_name("chat", DIGEST, taken) == name


def test_a_long_name_of_a_line_leaves_room_for_the_digits() -> None:
    assert rollout_name("a" * 60, DIGEST, ()) == "a" * 40 + "-01234567"
    assert rollout_name("a" * 38 + ".-b", DIGEST, ()) == "a" * 38 + "-01234567"
    assert len(rerun_name("a" * 60, DIGEST, "u-1", "x" * 256)) == 59 <= 63


def test_a_rerun_is_named_by_who_was_asked_with_which_value() -> None:
    name = rerun_name("chat", DIGEST, "u-1", "again")
    assert name == rerun_name("chat", DIGEST, "u-1", "again")
    assert name.startswith("chat-01234567-r") and len(name) == len("chat-01234567-r") + 8
    others = {rerun_name("chat", DIGEST, "u-2", "again"), rerun_name("chat", DIGEST, "u-1", "more"), name}
    assert len(others) == 3


def test_each_measurement_of_the_floor_and_each_replay_of_a_watch_has_a_key_that_can_name_its_run() -> None:
    since = "2026-11-30T10:00:00Z"
    floors = [
        floor_key(DIGEST, "a" * 64, None),
        floor_key(DIGEST, "b" * 64, None),  # another question
        floor_key(DIGEST, "a" * 64, "2026-11-30T10:00:00Z"),
        floor_key(DIGEST, "a" * 64, "2026-11-30T10:00:01Z"),
        floor_key(DIGEST[:-1] + "0", "a" * 64, None),
    ]
    watches = [
        watch_key(DIGEST, since, "a" * 64, 1),
        watch_key(DIGEST, since, "a" * 64, 12),
        watch_key(DIGEST, "2026-11-30T10:00:01Z", "a" * 64, 1),
        watch_key(DIGEST[:-1] + "0", since, "a" * 64, 1),
        watch_key(DIGEST, since, "b" * 64, 3),
        watch_key("sha256:" + "9" * 64, since, "a" * 64, 4),
    ]
    assert len({*floors, *watches}) == 11
    assert all(re.fullmatch("floor-0123456789ab-[0-9a-f]{8}", key) for key in floors)
    assert all(re.fullmatch("watch-0123456789ab-[0-9a-f]{8}-[0-9a-f]{8}-[0-9]+", key) for key in watches[:-1])
    assert floors[0] == floor_key(DIGEST, "a" * 64, None)
    assert len(f"{watches[1]}-replicate") <= 64  # what a store's run may be called


def test_numbers_of_replays_go_on_through_a_promotion_whatever_its_profile_is_called_and_is_asked() -> None:
    since = "2026-11-30T10:00:00Z"
    here = [watch_key(DIGEST, since, "a", 1), watch_key(DIGEST, since, "b", 12), watch_key(DIGEST[:-9], since, "a", 3)]
    other = [watch_key(DIGEST, "2026-11-30T10:00:01Z", "a", 1), floor_key(DIGEST, "a", None), None, "", "x-1"]
    assert [watch_number(since, key) for key in here] == [1, 12, 3]
    assert [watch_number(since, key) for key in (*other, here[0] + "x", here[0] + "²", f"{here[0]}-1")] == [0] * 8


def test_the_key_of_a_replay_tells_what_its_profile_was_called_then() -> None:
    assert digest_in(watch_key(DIGEST, "2026-11-30T10:00:00Z", "a", 7)) == "sha256:0123456789ab"
    assert digest_in("watch-0123456789ab-cdef0123-7") == "sha256:0123456789ab"  # as an earlier version made it
    assert digest_in("another") == "sha256:"


def test_a_seed_is_the_same_for_the_same_parts_and_fits_into_json() -> None:
    assert seed_of("u-1", DIGEST) == seed_of("u-1", DIGEST)
    seeds = {seed_of(str(number)) for number in range(200)}
    assert len(seeds) == 200 and all(0 <= seed < 2**53 for seed in seeds)
    assert max(seeds) > 2**52
    assert seed_of("a", "bc") != seed_of("ab", "c")
