"""Replays whose stores are runs in a database that goes away in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefillgate.api.store_address import PostgresUrl, store_address
from prefillgate.core.gate import fold
from prefillgate.evidence import book_postgres, postgres, read_store
from prefillgate.reconcile.snapshot import WorkSeen, WorkState
from tests.support.postgres import PostgresServer, recorded, running_server
from tests.support.simulated import SimulatedServer, start_simulated
from tests.support.works import PROMOTED, ROLLOUT_UID, Ahead, looks_of, order, room


@pytest.fixture
def own_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    """A server that a test may stop, waited for no longer than a second."""
    monkeypatch.setattr(postgres, "RECONNECT_SECONDS", 1.0)
    monkeypatch.setattr(book_postgres, "RECONNECT_SECONDS", 1.0)
    with running_server("fsync=off") as server:
        yield recorded(server)


def ended(seen: WorkSeen) -> bool:
    return seen.state is not WorkState.RUNNING


def test_a_database_that_goes_away_breaks_a_replay_off_and_it_goes_on_when_it_is_back(
    healthy: SimulatedServer, own_server: PostgresServer, tmp_path: Path
) -> None:
    where = store_address(own_server.address())
    assert isinstance(where, PostgresUrl)

    async def story() -> WorkSeen:
        with start_simulated(seed=2, text_seed=9, time_scale=0.05) as candidate:
            looks, clock = looks_of(tmp_path, healthy, candidate), Ahead()
            looks.spec = {"maxProductionPrefillsPerHour": 1000}
            async with room(where, clock=clock) as here:
                here.works.start(order(), looks.observed())
                await here.until(lambda seen: seen.rows > 6)
                own_server.stop()
                seen = await here.until(ended)
                assert seen.state is WorkState.BROKEN and seen.retry_at is not None, seen
                clock.seconds += 6
                here.works.start(order(), looks.observed())
                again = await here.until(ended)
                assert again.state is WorkState.BROKEN and again.retry_at is not None
                assert again.retry_at > seen.retry_at
                own_server.start()
                clock.seconds += 60
                here.works.start(order(), looks.observed())
                return await here.until(ended)

    seen = asyncio.run(story())
    assert seen.verdict is not None and seen.verdict.decision.decision == PROMOTED
    assert seen.run == ROLLOUT_UID
    assert seen.store == f"postgresql://127.0.0.1:{own_server.port}/postgres?run=prod.llm.{ROLLOUT_UID}"
    with read_store(PostgresUrl(where.server, f"prod.llm.{ROLLOUT_UID}")) as journal:
        gate = fold(journal.events())
        assert f"{seen.rows}:{seen.head}" == journal.tail
    assert list(gate.measured) == list(range(18))
    assert gate.session >= 1
