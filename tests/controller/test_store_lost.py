"""The evidence store is deleted: what was promoted and rejected stands, and the store is said to be behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.support.cluster.api import condition
from tests.support.cluster.gate import Gate
from tests.support.cluster.gated import GatedLine, answer, message, reason


def clear(folder: str) -> None:
    """As `rm -rf FOLDER/*`."""
    for each in Path(folder).iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


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


def test_a_store_that_is_deleted_under_the_controller_is_told_and_it_goes_on_with_a_new_one(
    line: GatedLine, gate: Gate
) -> None:
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", "--seed", "2")
    promoted = line.decided()
    line.serve("blue", "--fault", "bad-prefill=1")
    line.decided(after=1)
    clear(gate.store)
    after = line.wait_line(lambda found: condition(found, "StoreBehind") == "True")
    assert {name in message(after, "StoreBehind") for name in (promoted["metadata"]["name"], "Restore it")} == {True}
    gone = line.until(lambda: [each for each in line.rollouts() if reason(each, "StoreBehind") == "EvidenceGone"])
    assert promoted["metadata"]["name"] in {each["metadata"]["name"] for each in gone}
    assert after["status"]["promotedProfile"]["digest"] == promoted["status"]["candidate"]["digest"]
    assert any("deleted or moved away while it was open" in each["message"] for each in gate.log(event="store_trouble"))
    assert (Path(gate.store) / "book.db").exists()


def test_a_replay_whose_store_is_deleted_under_it_begins_anew_and_comes_to_its_end(line: GatedLine, gate: Gate) -> None:
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", "--seed", "2", "--time-scale", "0.04")
    line.until(lambda: len(line.truth("green")) >= 4)
    clear(gate.store)
    ended = line.decided()
    assert answer(ended)[0] == "Promote", answer(ended)
    line.wait_line(lambda found: found["status"]["promotedProfile"]["digest"] == ended["status"]["candidate"]["digest"])
    assert Path(ended["status"]["evidence"]["store"]).exists()
