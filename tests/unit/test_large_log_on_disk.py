"""What a large log leaves on disk: digests of request ids, and kinds that are forgotten, change no answer."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from prefillgate.importers import digests, spool
from prefillgate.importers.digests import Digests
from tests.support.cell_logs import START, copy, fresh
from tests.support.large_logs import same


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_a_number_that_comes_twice_is_found_in_memory_and_on_disk(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(digests, "IN_MEMORY", limit)
    rng = random.Random(3)
    numbers = [-(2**63), -1, 0, 1, 2**63 - 1, *(rng.randrange(-(2**63), 2**63) for _ in range(300))]
    kept = Digests()
    for number in numbers:
        kept.add((number,))
    assert not kept.repeat()
    assert not kept.repeat()
    for number in (numbers[0], numbers[4], numbers[200]):
        again = Digests()
        again.add(numbers)
        again.add((number,))
        assert again.repeat()
        again.close()
    kept.close()


def test_forgotten_kinds_small_blocks_and_digests_on_disk_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_KINDS", 5), ("BLOCK_ROWS", 3)):
        monkeypatch.setattr(spool, name, value)
    monkeypatch.setattr(digests, "IN_MEMORY", 4)
    rng = random.Random(11)
    cells = [
        replace(
            rng.choice((fresh, copy))(f"c{rng.randrange(9)}", bad=rng.random() < 0.2),
            started_at=START + place,
            request_id=f"r{place}",
            prefill_ms=rng.choice((10.0, 900.0, 1000.0)),
        )
        for place in range(200)
    ]
    same(cells)
    same(rng.sample(cells, len(cells)))
    same([replace(each, request_id=f"r{place % 150}") for place, each in enumerate(cells)])
