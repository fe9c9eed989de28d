"""Which arm's server is up, told by what it shows."""

from __future__ import annotations

from typing import Any

import pytest

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.journal import EpochSeen
from prefillgate.core.who_is_up import Found, Seen, Standing, Wanted, life_of, who_is_up
from tests.support.journals import epoch

OLD = {"engine": "llama.cpp", "build": "b1", "model": "m", "settings": ()}
NEW = {**OLD, "build": "b2"}


def met(arm: str, life: str, **changes: Any) -> EpochSeen:
    return epoch(arm, life, **changes)


def up(marker: str | None, **told: Any) -> Seen:
    return Seen(marker, **told)


def standing(seen: Seen, wanted: Wanted, *epochs: EpochSeen) -> Standing:
    found = who_is_up(seen, wanted, {arm: [e for e in epochs if e.arm == arm] for arm in (BASELINE, CANDIDATE)})
    assert bool(found.why) == (found.standing is not Standing.RIGHT)
    assert found.new_life == (found.standing is Standing.UNTOLD and seen.marker is not None)
    return found.standing


B1, B2 = met(BASELINE, "x1"), met(BASELINE, "x2")
C1, C2 = met(CANDIDATE, "y1", build="b2"), met(CANDIDATE, "y2", build="b2")
TWIN = met(CANDIDATE, "y1")  # looks like the baseline
HERE = Wanted(CANDIDATE, same_place=True, swapped=True)


@pytest.mark.parametrize("same_place", [True, False])
def test_a_life_of_the_other_arm_is_never_this_one(same_place: bool) -> None:
    for more in ({}, {"any_life": True}, {"same_life": True}):
        wanted = Wanted(CANDIDATE, same_place=same_place, **more)  # type: ignore[arg-type]
        assert standing(up("x1", **NEW), wanted, B1, B2, C1) is Standing.OTHER_ARM
        assert standing(up("x1", **OLD), wanted, met(BASELINE, "x1/2")) is Standing.OTHER_ARM
    found = who_is_up(up("x1", **OLD), HERE, {BASELINE: [B1], CANDIDATE: []})
    assert found == Found(
        Standing.OTHER_ARM, "what answers is still the baseline: the life x1 was measured as it", False
    )


@pytest.mark.parametrize("same_place", [True, False])
def test_what_looks_like_the_other_arm_and_not_like_this_one_did_is_the_other(same_place: bool) -> None:
    wanted = Wanted(CANDIDATE, same_place=same_place)
    assert standing(up("z", **OLD), wanted, B1, C1) is Standing.OTHER_ARM
    assert standing(up("z", **OLD), Wanted(BASELINE, same_place=same_place), B1, C1) is Standing.RIGHT
    assert standing(up("z", **NEW), Wanted(BASELINE, same_place=same_place), B1, C1) is Standing.OTHER_ARM
    assert standing(up("z", **NEW), wanted, B1, C1) is Standing.RIGHT
    found = who_is_up(up("z", **OLD), wanted, {BASELINE: [B1], CANDIDATE: [C1]})
    assert found.why == "what answers looks like the baseline and not like the candidate did"


@pytest.mark.parametrize(
    "field",
    [
        {"engine": "other"},
        {"build": "b2"},
        {"model": "n"},
        {"weights": "w"},
        {"context_tokens": 9},
        {"settings": (("a", "b"),)},
    ],
)
def test_everything_a_server_tells_of_its_profile_tells_it_apart(field: dict[str, Any]) -> None:
    candidate = met(CANDIDATE, "y1", **field)
    assert standing(up("z", **OLD), HERE, B1, candidate) is Standing.OTHER_ARM
    assert standing(up("z", **{**OLD, **field}), HERE, B1, candidate) is Standing.RIGHT
    assert standing(up("z", **{**OLD, **field}), HERE, B1) is Standing.RIGHT  # it is not the baseline


def test_profiles_are_held_against_the_last_life_of_each_arm() -> None:
    changed = met(BASELINE, "x3", build="b3")
    mine = (met(CANDIDATE, "y1"), met(CANDIDATE, "y2", build="b2"))  # once it looked like the baseline
    assert standing(up("z", **OLD), HERE, B1, *mine) is Standing.OTHER_ARM
    assert standing(up("z", **NEW), HERE, met(BASELINE, "x1", build="b2"), *mine) is Standing.UNTOLD
    assert standing(up("z", **OLD), HERE, B1, changed, C1) is Standing.RIGHT  # the run holds it for changed anyhow
    assert standing(up("z", engine="llama.cpp", build="b3", model="m"), HERE, B1, changed, C1) is Standing.OTHER_ARM


def test_a_life_of_an_earlier_window_is_not_a_new_one() -> None:
    again = Wanted(CANDIDATE, same_place=True)
    assert standing(up("y1", **NEW), again, B1, C1) is Standing.NOT_RESTARTED
    assert standing(up("y1", **NEW), Wanted(CANDIDATE, same_life=True), B1, C1) is Standing.RIGHT
    assert standing(up("y1", **NEW), Wanted(CANDIDATE, same_life=True), B1, C1, C2) is Standing.NOT_RESTARTED
    assert standing(up("y1", **NEW), Wanted(CANDIDATE, any_life=True), B1, C1, C2) is Standing.RIGHT
    found = who_is_up(up("y1", **NEW), again, {BASELINE: [B1], CANDIDATE: [C1]})
    assert found.why == "the candidate was not restarted: y1 is an earlier window"


def test_an_address_of_its_own_tells_an_arm_by_its_answer() -> None:
    apart = Wanted(CANDIDATE)
    assert standing(up("z", **OLD), apart, B1) is Standing.RIGHT
    assert standing(up(None, **OLD), apart, B1) is Standing.RIGHT
    assert standing(up("z", **OLD), apart, B1, TWIN) is Standing.RIGHT
    assert standing(up(None, **OLD), apart, B1, TWIN) is Standing.UNTOLD  # a restart cannot be seen
    assert standing(up(None, **OLD), Wanted(BASELINE)) is Standing.RIGHT


def test_twins_in_one_place_rest_on_somebodys_word() -> None:
    assert standing(up("z", **OLD), HERE, B1) is Standing.UNTOLD
    assert standing(up("z", **OLD), HERE, B1, TWIN) is Standing.UNTOLD
    assert standing(up(None, **OLD), HERE, B1, TWIN) is Standing.UNTOLD
    assert standing(up("z", **OLD), Wanted(BASELINE, same_place=True, any_life=True)) is Standing.UNTOLD
    found = who_is_up(up("z", **OLD), HERE, {BASELINE: [B1], CANDIDATE: []})
    assert found == Found(
        Standing.UNTOLD, "nothing the server tells shows that it is the candidate, newly started", True
    )


def test_a_server_without_a_marker_is_told_by_its_profile_where_it_cannot_be_an_old_life() -> None:
    seen = up(None, **NEW)
    unmarked = met(CANDIDATE, "unmarked", build="b2")
    assert standing(seen, HERE, B1, unmarked) is Standing.RIGHT
    assert standing(seen, Wanted(CANDIDATE, same_place=True), B1, unmarked) is Standing.UNTOLD
    assert standing(seen, Wanted(CANDIDATE, same_place=True, any_life=True), B1, unmarked) is Standing.RIGHT
    assert standing(seen, Wanted(CANDIDATE, same_place=True), B1) is Standing.RIGHT  # its first life
    assert standing(up(None, **OLD), HERE, B1, unmarked) is Standing.OTHER_ARM


def test_a_life_is_what_stands_before_the_slash() -> None:
    assert life_of(met(BASELINE, "x1/2")) == life_of(B1) == "x1"
