"""Who overrides, as a look at a real cluster tells it: by the stamp of admission, or by who manages the annotation."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from prefillgate.evidence.book_rows import HandledOverride
from prefillgate.kube.client import Kube
from prefillgate.reconcile.effects import TakeOverride
from prefillgate.reconcile.overrides import Considered, considered
from prefillgate.reconcile.snapshot import LineSnapshot
from tests.support.cluster.api import wait_for
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.users import ALICE
from tests.support.kinds import ROOT
from tests.support.looking import Eyes, config_map, line, looking, replay_set

ADMISSION = ROOT / "manifests" / "admission"
BASE, NEW = "sha256:" + "1" * 64, "sha256:" + "2" * 64


def rollout() -> dict[str, object]:
    """A rollout of the line, as the controller makes one."""
    return {
        "apiVersion": "prefillgate.io/v1alpha1",
        "kind": "ProfileRollout",
        "metadata": {"name": "chat-22222222"},
        "spec": {"lineRef": {"name": "chat"}, "baseline": {"digest": BASE}, "candidate": {"digest": NEW}},
    }


@pytest.fixture
def with_a_rollout(namespace: Namespace) -> Namespace:
    """A line whose status names its rollout, which ALICE may override."""
    namespace.apply(line())
    namespace.apply(rollout())
    status = json.dumps({"status": {"observedGeneration": 1, "currentRollout": "chat-22222222"}})
    done = namespace.kubectl("patch", "sl", "chat", "--subresource=status", "--type=merge", "-p", status)
    assert done.returncode == 0, done.stderr
    rule = {"apiGroups": ["prefillgate.io"], "resources": ["profilerollouts"], "verbs": ["get", "patch", "override"]}
    namespace.grant(ALICE, rule)
    return namespace


def override(where: Namespace, *more: str, reason: str = "why") -> None:
    """ALICE overrides."""
    words = ("prefillgate.io/override=hold", f"prefillgate.io/override-reason={reason}", *more)

    def done() -> bool:
        return where.kubectl("annotate", "--overwrite", "pro", "chat-22222222", *words, user=ALICE).returncode == 0

    wait_for(done)  # a policy hears of our kinds some moments later, and refuses until then


def judged(snapshot: LineSnapshot, reason: str = "why") -> Considered | None:
    """What comes of a look that sees the override of that reason, obeyed or refused."""
    found = considered(snapshot)
    handled = found.rollout_handled.get("chat-22222222")
    return found if handled is not None and handled.reason == reason else None


async def test_without_policies_the_actor_is_who_manages_the_annotation_whatever_name_is_written(
    eyes: Eyes, with_a_rollout: Namespace
) -> None:
    key = f"{with_a_rollout.name}/chat"
    override(with_a_rollout, "prefillgate.io/override-actor=the-king")
    found = await eyes.until(key, judged)
    standing = found.standing["chat-22222222"]
    assert (standing.actor, standing.actor_verified) == ("kubectl-annotate", False)


async def test_with_the_policies_in_force_the_stamp_is_believed(
    kube: Kube, with_a_rollout: Namespace, tmp_path: Path
) -> None:
    key, plane = f"{with_a_rollout.name}/chat", with_a_rollout.cluster.plane
    with_a_rollout.apply(config_map())
    with_a_rollout.apply(replay_set())
    assert plane.kubectl("apply", "-f", str(ADMISSION)).returncode == 0
    try:
        async with looking(kube, tmp_path, namespaces=(with_a_rollout.name,), stamped_seconds=0.0) as eyes:
            for number in range(100):  # the API server's own informers learn of policies some moments later
                override(with_a_rollout, reason=f"why {number}")
                found = await eyes.until(key, partial(judged, reason=f"why {number}"))
                standing = found.standing.get("chat-22222222")
                if standing is not None and standing.actor_verified:
                    break
                await asyncio.sleep(0.1)
            assert standing is not None
            assert (standing.actor, standing.actor_verified) == ("alice", True)
            (take,) = [each for each in found.before if isinstance(each, TakeOverride)]
            await _done_once(eyes, key, take.override)
    finally:
        assert plane.kubectl("delete", "-f", str(ADMISSION)).returncode == 0


async def _done_once(eyes: Eyes, key: str, override: HandledOverride) -> None:
    """What the book has dealt with is not obeyed again, though its status were lost."""
    eyes.book.take_override(override)
    assert (await eyes.seen(key)).book.handled == frozenset()
    eyes.book.override_done(override.key, "Obeyed", 1.0)
    seen = await eyes.seen(key)
    assert seen.book.handled == {override.key}
    assert considered(seen).standing == {}
