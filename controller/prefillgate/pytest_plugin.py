"""The pytest plug-in: a test marked `prefillgate` fails when its repeats were copies of one prefill.

    @pytest.mark.prefillgate
    @pytest.mark.parametrize("repeat", range(8))
    def test_the_review_names_the_bug(repeat, prefills, client):
        reply = client.post("/v1/chat/completions", json=BODY)
        prefills.add(reply, BODY)
        assert "off by one" in reply.json()["choices"][0]["message"]["content"]

The repeats may be parameters, runs of a repeating plug-in, or a loop in one test. Nothing heavy is imported until a
test asks for the fixture.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from prefillgate.core.cells import Cell
    from prefillgate.core.freshness import Classified
    from prefillgate.core.verdict import ArmCounts

MARKER = "prefillgate"
OPTIONS = ("at_least", "allow_unknown")
SHOWN = 10
_ROUTES = ("/chat/completions", "/completions", "/completion")


@dataclass(slots=True)
class Recorded:
    """Every cell that the repeats of one test function brought; those from `begun` on are the running repeat's."""

    cells: list[Cell] = field(default_factory=list)
    begun: int = 0


_KEY = pytest.StashKey[dict[str, Recorded]]()


class Prefills:
    """What a test says of its requests: the fixture `prefills`."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        recorded.begun = len(recorded.cells)

    def add(self, reply: Any, request: Any = None, **known: Any) -> None:
        """Count one reply; arguments and errors as `prefillgate.library.read_reply`.

        A server under test is taken to serve others too, so no time is held against a reply that tells its counters;
        `shared_server=False` says that it does not.
        """
        from prefillgate.library import read_reply

        known.setdefault("shared_server", True)
        self._recorded.cells += [each.cell for each in read_reply(reply, request, **known)]

    def watch(self, client: Any) -> Any:
        """Count every reply of an httpx.Client or AsyncClient to a completions route, and return the client.

        A streamed reply is read to its end before the test sees it: no time to a first token can be measured so.
        """
        import httpx

        if isinstance(client, httpx.AsyncClient):
            client.event_hooks["response"].append(self._after_async)
        elif isinstance(client, httpx.Client):
            client.event_hooks["response"].append(self._after)
        else:
            raise TypeError(f"prefills.watch: {type(client).__name__} (allowed: httpx.Client, httpx.AsyncClient)")
        return client

    def counts(self) -> ArmCounts:
        """Requests and prefills of this function's repeats so far, the candidate arm. Raises ValueError before any."""
        from prefillgate.library import DEFAULT_ARM, count_prefills

        counted = count_prefills(self._recorded.cells)
        if DEFAULT_ARM not in counted:
            raise ValueError("prefills.counts: nothing was recorded yet")
        return counted[DEFAULT_ARM]

    def _after(self, response: Any) -> None:
        if _is_completion(response.request):
            response.read()
            self._note(response)

    async def _after_async(self, response: Any) -> None:
        if _is_completion(response.request):
            await response.aread()
            self._note(response)

    def _note(self, response: Any) -> None:
        if response.status_code != 200:
            return  # a refusal is no prefill
        ended = time.time()
        times = {"started_at": ended - response.elapsed.total_seconds(), "ended_at": ended}
        self.add(response.text, json.loads(response.request.content), **times)


def _is_completion(request: Any) -> bool:
    return bool(request.method == "POST" and request.url.path.rstrip("/").endswith(_ROUTES))


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(at_least=None, allow_unknown=False): fail when the repeats of this test were copies of one prefill",
    )


@pytest.fixture
def prefills(request: pytest.FixtureRequest) -> Prefills:
    """Takes the replies of a test, so that its prefills can be counted."""
    by_function = request.session.stash.setdefault(_KEY, {})
    return Prefills(by_function.setdefault(_function(request.node), Recorded()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """After a marked test passed, hold its requests against each other and against those of earlier repeats."""
    result = yield
    marker = item.get_closest_marker(MARKER)
    problem = _problem(item, marker) if marker is not None else None
    if problem:
        pytest.fail(problem, pytrace=False)
    return result


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _problem(item: pytest.Item, marker: pytest.Mark) -> str | None:
    """Why the test fails for its prefills, None where it does not."""
    wrong = [name for name in marker.kwargs if name not in OPTIONS]
    at_least, lenient = marker.kwargs.get("at_least"), marker.kwargs.get("allow_unknown", False)
    if wrong or marker.args or not (at_least is None or (type(at_least) is int and at_least > 0)):
        return "prefillgate: the marker takes at_least (a whole number above 0) and allow_unknown (True or False) only"
    recorded = item.session.stash.get(_KEY, {}).get(_function(item))
    if recorded is None or len(recorded.cells) == recorded.begun:
        return "prefillgate: no request was recorded, so nothing shows what this test repeats (prefills.add or watch)"
    return _judged(recorded, at_least, bool(lenient))


def _judged(recorded: Recorded, at_least: int | None, allow_unknown: bool) -> str | None:
    from prefillgate.core.freshness import classify
    from prefillgate.core.verdict import CellClass

    mine = {id(cell) for cell in recorded.cells[recorded.begun :]}
    classified = classify(recorded.cells)  # keeps the very cells, so that each is known again
    own = [item for item in classified if id(item.cell) in mine]
    fresh = [item for item in own if item.cell_class is CellClass.FRESH]
    unknown = [item for item in own if item.cell_class is CellClass.UNKNOWN]
    reused = [item for item in own if item.cell_class not in (CellClass.FRESH, CellClass.UNKNOWN)]
    so_far = (
        f"{len(classified)} requests so far, {sum(item.cell_class is CellClass.FRESH for item in classified)} prefills"
    )
    if not own:
        return "prefillgate: every request was refused, so nothing shows what this test repeats"
    if reused:
        return _listed(f"prefillgate: not independent: answered from an earlier prefill ({so_far})", reused)
    if unknown and not allow_unknown:
        return _listed(f"prefillgate: independence unknown ({so_far})", unknown)
    if len(fresh) < (at_least or 0):
        counts = f"{len(fresh)} fresh prefills in the {len(own)} requests of this test"
        return f"prefillgate: {counts}; at least {at_least} are wanted"
    return None


def _listed(what: str, items: list[Classified]) -> str:
    from prefillgate.api.errors import clean

    lines = [f"  {clean(item.cell.case_id[:60])}: {item.cell_class}, {item.witness}" for item in items[:SHOWN]]
    more = [f"  and {len(items) - SHOWN} more"] if len(items) > SHOWN else []
    return "\n".join([what, *lines, *more])
