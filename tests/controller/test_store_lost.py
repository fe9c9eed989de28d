"""The evidence store is deleted: what was promoted and rejected stands, and the store is said to be behind."""

from __future__ import annotations

import shutil
from typing import Any

from tests.support.cluster.api import condition
from tests.support.cluster.gate import Gate
from tests.support.cluster.gated import GatedLine, answer, reason


def told(profiles: Any) -> Any:
    """Without the marks of how and from what they were read: the key of texts lay in the folder of the store."""
    rows = profiles if isinstance(profiles, list) else [profiles]
    return [{name: value for name, value in row.items() if name not in ("reading", "marks")} for row in rows]


def test_a_deleted_store_never_un_promotes_and_never_forgets_a_rejection(line: GatedLine, gate: Gate) -> None:
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", "--seed", "2")
    promoted = line.decided()["status"]["candidate"]["digest"]
    line.serve("blue", "--fault", "bad-prefill=1")
    rejecting = line.decided(after=1)
    assert answer(rejecting)[0] == "Rollback"
    before = line.wait_line(lambda found: found["status"].get("rejectedProfiles"))["status"]
    assert before["promotedProfile"]["digest"] == promoted
    assert gate.stop() == 0
    shutil.rmtree(gate.store)
    gate.start()
    after = line.wait_line(lambda found: condition(found, "StoreBehind") == "True")["status"]
    for name in ("promotedProfile", "previousProfile", "rejectedProfiles"):
        assert told(after[name]) == told(before[name]), name
    line.serve("blue")
    line.decided(after=1)
    line.serve("blue", "--fault", "bad-prefill=1")
    line.wait_line(lambda found: reason(found, "Gating") == "RejectedBefore")
