"""What the line of a cell says of the decode speed once enough is clean."""

from __future__ import annotations

import pytest

from prefillgate.cli.progress import speed_words
from prefillgate.core.verdict import ThroughputState


@pytest.mark.parametrize(
    ("standing", "unpaired", "required", "words"),
    [
        (ThroughputState.OPEN, 0, True, "still open"),
        (ThroughputState.OPEN, 3, True, "still open, 3 prompts without a pair"),
        (ThroughputState.NOT_WORSE, 0, True, "not worse"),
        (ThroughputState.NOT_WORSE, 2, False, "not worse, only reported"),
        (ThroughputState.WORSE, 0, False, "worse, only reported"),
        (ThroughputState.OPEN, 2, False, "only reported"),
        (ThroughputState.NOT_COMPARED, 0, True, "not compared"),
        (ThroughputState.NOT_COMPARED, 0, False, "not compared"),
    ],
)
def test_a_speed_that_is_only_reported_keeps_no_promotion_waiting(
    standing: ThroughputState, unpaired: int, required: bool, words: str
) -> None:
    assert speed_words(standing, unpaired, required) == words
