"""A line whose status cannot be written: `get` and `explain` tell it by the controller's event, while it may hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefillgate.kube.client import Kube
from prefillgate.kube.events import WARNING, Happening, Recorder
from prefillgate.kube.objects import EVENTS, SERVING_LINES, Ref
from tests.kube.test_line_commands import fake as with_lines
from tests.kube.test_line_commands import put, said
from tests.support.fake_api import FakeApi
from tests.support.fake_api.store import Write
from tests.support.lines import LINE, SPACE, rollout, serving_line

__all__ = ["with_lines"]
NOTE = "The controller cannot go on with this line until somebody mends it. Invalid: status.x: not this"


@pytest.fixture
def stuck_fake(with_lines: FakeApi) -> FakeApi:
    """With a line and its rollout."""
    put(with_lines, serving_line())
    put(with_lines, rollout())
    return with_lines


async def tell(kube: Kube, reason: str = "CannotGoOn", name: str = LINE) -> None:
    """As the loop of a controller does."""
    thing = await kube.get(Ref(SERVING_LINES, name, SPACE))
    await Recorder(kube, "one").emit(Happening(SERVING_LINES, thing, WARNING, reason, "Reconcile", NOTE, "x"))


def told_before(fake: FakeApi, at: str = "2020-01-01T00:00:00Z") -> None:
    """Let the events be from long before the status was written."""
    for (plural, _, _), thing in fake.store.objects.items():
        if plural == EVENTS.plural:
            thing["metadata"]["creationTimestamp"] = at


@pytest.mark.parametrize("reason", ["CannotGoOn", "InternalError"])
async def test_get_and_explain_say_what_keeps_the_controller_from_going_on(
    reason: str, stuck_fake: FakeApi, kube: Kube, kubeconfig: Path
) -> None:
    await tell(kube, reason)
    await tell(kube, "SomethingElse")
    page = " ".join((await said(kubeconfig, "explain", LINE, "-n", SPACE)).out.split())
    assert NOTE in page and "the line's status has not changed since" in page
    for words in (("get", "-n", SPACE), ("get", LINE, "-n", SPACE), ("get", "-A")):
        assert f"note: {SPACE}/{LINE}: {NOTE} (Told at 2" in (await said(kubeconfig, *words)).err
    (row,) = json.loads((await said(kubeconfig, "get", "-n", SPACE, "--json")).out)["lines"]
    assert row["doubts"][0].startswith(NOTE)
    of_rollout = await said(kubeconfig, "explain", f"pro/{rollout()['metadata']['name']}", "-n", SPACE)
    assert NOTE in " ".join(of_rollout.out.split())


async def test_a_status_that_was_written_since_ends_it(stuck_fake: FakeApi, kube: Kube, kubeconfig: Path) -> None:
    await tell(kube)
    told_before(stuck_fake)
    assert NOTE not in (await said(kubeconfig, "get", "-n", SPACE)).err
    assert "cannot go on" not in (await said(kubeconfig, "explain", LINE, "-n", SPACE)).out


async def test_what_is_told_of_another_line_of_the_name_is_not_told_of_this_one(
    stuck_fake: FakeApi, kube: Kube, kubeconfig: Path
) -> None:
    await tell(kube)
    stuck_fake.store.delete(stuck_fake._of(SERVING_LINES), SPACE, LINE, None)
    stuck_fake.store.create(
        stuck_fake._of(SERVING_LINES), SPACE, {**serving_line(), "metadata": {"name": LINE}}, Write("x")
    )
    assert NOTE not in (await said(kubeconfig, "get", "-n", SPACE)).err


async def test_who_may_not_read_events_reads_all_else(
    stuck_fake: FakeApi, kube: Kube, kubeconfig: Path, tmp_path: Path
) -> None:
    await tell(kube)
    stuck_fake.denied.add(("list", "events"))
    path = tmp_path / "restricted"
    path.write_text(json.dumps(stuck_fake.kubeconfig(token="restricted")), encoding="utf-8")
    seen = await said(path, "get", "-n", SPACE)
    assert (seen.code, NOTE in seen.err) == (0, False) and LINE in seen.out
    assert (await said(path, "explain", LINE, "-n", SPACE)).code == 0
