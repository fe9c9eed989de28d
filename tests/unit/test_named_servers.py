"""How a plan names the servers of an arm is read back as it was written."""

from __future__ import annotations

import pytest

from prefillgate.replay.named_servers import NamedServers, named_servers
from prefillgate.replay.session import ArmRequest, named


@pytest.mark.parametrize("model", [None, "m", "a (b), c"])
def test_what_is_written_is_read_back(model: str | None) -> None:
    assert named_servers(named(ArmRequest("http://[::1]:8080/a,b/v1", model))) == NamedServers(
        ("http://[::1]:8080/a,b/v1",), model
    )


def test_several_servers_are_told_apart_and_an_arm_that_was_not_there_has_none() -> None:
    assert named_servers("http://a, http://b (m)") == NamedServers(("http://a", "http://b"), "m")
    assert named_servers(None) == named_servers("") == NamedServers((), None)


def test_an_arm_with_a_name_of_its_own_is_read_back_as_some_address_and_its_model() -> None:
    called = ArmRequest("http://10.88.0.7:8080", "m", called="Deployment llm/web")
    assert named(called) == "Deployment llm/web (m)"
    assert named_servers(named(called)) == NamedServers(("http://SERVER:PORT",), "m")
