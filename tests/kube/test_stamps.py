"""Whether admission stamps who overrides, asked of an API server in every mood."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from prefillgate.app.observe.stamps import Stamps
from prefillgate.kube.client import Kube
from prefillgate.kube.errors import Transient
from prefillgate.kube.objects import Kind
from tests.support.fake_api import FakeApi, Fault, Resource
from tests.support.manual_clock import ManualClock

FOLDER = Path(__file__).resolve().parents[2] / "manifests" / "admission"
GROUP = "admissionregistration.k8s.io"
PLURALS = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
SECONDS = 5.0


@pytest.fixture
async def stamps(fake: FakeApi, kube: Kube, clock: ManualClock) -> AsyncIterator[Stamps]:
    """Of a server on which manifests/admission was applied."""
    kinds = {kind: Kind(GROUP, "v1", plural, kind, namespaced=False) for kind, plural in PLURALS.items()}
    for kind in kinds.values():
        fake.serve(Resource(kind, status=False))
    for file in sorted(FOLDER.glob("*.yaml")):
        for each in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if each["kind"] in kinds:
                await kube.create(kinds[each["kind"]], each)
    yield Stamps(kube, clock, SECONDS)


async def test_an_answer_is_believed_for_some_seconds_and_no_longer(
    stamps: Stamps, fake: FakeApi, clock: ManualClock
) -> None:
    assert await stamps.in_force()
    asked = fake.count("list")
    assert asked == len(PLURALS)
    clock.ran += SECONDS - 0.1
    assert await stamps.in_force() and fake.count("list") == asked
    clock.ran += 0.1
    assert await stamps.in_force() and fake.count("list") == 2 * asked


@pytest.mark.parametrize("plural", PLURALS.values())
@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (404, "NotFound")])
async def test_where_they_may_not_be_listed_or_are_unknown_no_stamp_is_believed(
    stamps: Stamps, fake: FakeApi, plural: str, code: int, reason: str
) -> None:
    fake.fail(Fault("status", plural=plural, code=code, reason=reason))
    assert not await stamps.in_force()


async def test_a_server_that_does_not_answer_is_no_word_about_its_policies(
    stamps: Stamps, fake: FakeApi, clock: ManualClock
) -> None:
    for fault in (Fault("status", code=503, reason="ServiceUnavailable", times=9), Fault("html", code=404, times=9)):
        fake.fail(fault)
        with pytest.raises(Transient):
            await stamps.in_force()
        fault.times = 0
    assert await stamps.in_force()
    clock.ran += SECONDS
    fake.fail(Fault("status", code=503, reason="ServiceUnavailable", times=9))
    with pytest.raises(Transient):  # and what was true is not taken for what is
        await stamps.in_force()
