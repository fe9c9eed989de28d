"""What a server can prove, from what discovery, probe and one look showed: exact words, both sides of each line."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.engines import capability, openai_compatible
from prefillgate.engines.base import Activity, Answer, AnswerStatus, Capabilities, Counters, Identity, Look
from prefillgate.engines.capability import Capability, Seen, Standing, capability_report
from prefillgate.engines.probing import told_decode_times
from prefillgate.engines.registry import FAMILIES, flags_of

IDENTITY = Identity("llama.cpp", "b1", "m", ("m",), "e", "w.gguf", 4096, 2, (("speculation", "off"),))
PROBE = Capabilities(True, "cache_off", True, (), True)
LOOK = Look(Counters(draft_tokens=0.0), Activity(0, 0), "e")
WHOLE = Seen(IDENTITY, PROBE, LOOK, False, None)
BARE = Seen(
    Identity("x", None, "m", ("m",), None),
    Capabilities(False, None, None, ("it tells nothing: independence unknown; a flag would",), None),
    Look(None, Activity(), None),
    False,
    None,
)
FLAGS = {name: f"--{name}" for name in (capability.FRESH, capability.WITNESS, capability.SPECULATION)}


def report(seen: Seen, flags: dict[str, str] | None = None) -> dict[str, Capability]:
    return {each.name: each for each in capability_report(seen, flags or {})}


def test_a_server_that_proves_everything_has_every_line_ok_and_no_flag() -> None:
    found = capability_report(WHOLE, FLAGS)
    assert [each.standing for each in found] == [Standing.OK] * 11
    assert [each.flag for each in found] == [None] * 11
    assert [each.name for each in found if each.needed] == [capability.FRESH, capability.COUNTER]


def test_a_server_that_proves_nothing_is_told_what_would_give_it() -> None:
    found = report(BARE, FLAGS)
    assert {name: each.standing.value for name, each in found.items()} == {
        capability.FRESH: "unknown",
        capability.COUNTER: "missing",
        capability.WITNESS: "missing",
        capability.IDLE: "missing",
        capability.EPOCH: "missing",
        capability.TIMES: "unknown",
        capability.BUILD: "missing",
        capability.WEIGHTS: "missing",
        capability.CONTEXT: "missing",
        capability.SPECULATION: "unknown",
        capability.KEY: "ok",
    }
    assert {name: each.flag for name, each in found.items() if each.flag is not None} == {**capability.UNTOLD, **FLAGS}
    assert found[capability.EPOCH].flag == "none known: keep it from being restarted during a run"
    assert found[capability.COUNTER].sentence == "it tells nothing: independence unknown"


@pytest.mark.parametrize(
    ("changes", "name", "standing", "sentence"),
    [
        ({"cold_proof": "nonce"}, capability.FRESH, "ok", capability.KNOBS["nonce"]),
        ({"cold_proof": "salt"}, capability.FRESH, "ok", capability.KNOBS["salt"]),
        ({"cold_proof": "another"}, capability.FRESH, "ok", "forced by another"),
        ({"cold_proof": None}, capability.FRESH, "missing", "nothing forces one"),
        ({"cold_proof": None, "findings": ("not honoured; ask",)}, capability.FRESH, "missing", "not honoured"),
        ({"counter_alive": False}, capability.COUNTER, "missing", "it did not move on an exact repeat"),
        ({"decode_times": False}, capability.TIMES, "missing", None),
        ({"decode_times": None}, capability.TIMES, "unknown", None),
        ({"counters_agree": False}, capability.WITNESS, "unknown", None),
    ],
)
def test_what_the_probe_showed_is_told_as_it_was(
    changes: dict[str, Any], name: str, standing: str, sentence: str | None
) -> None:
    line = report(replace(WHOLE, probe=replace(PROBE, **changes)))[name]
    assert line.standing == standing
    assert sentence is None or line.sentence == sentence


@pytest.mark.parametrize(
    ("state", "drafted", "standing", "sentence"),
    [
        ("off", None, "ok", "off"),
        ("on", 5.0, "ok", "on, with counts of drafted and accepted tokens"),
        ("on", 0.0, "ok", "on, with counts of drafted and accepted tokens"),
        ("on", None, "ok", "on; its counts stand in the replies alone"),
        (None, 5.0, "unknown", "not told whether a draft runs: what it accepts is not shown"),
    ],
)
def test_speculation_is_told_with_where_its_counts_stand(
    state: str | None, drafted: float | None, standing: str, sentence: str
) -> None:
    settings = () if state is None else (("speculation", state),)
    for counters in (Counters(draft_tokens=drafted), *((None,) if drafted is None else ())):
        seen = replace(WHOLE, identity=replace(IDENTITY, settings=settings), look=replace(LOOK, counters=counters))
        line = report(seen)[capability.SPECULATION]
        assert (line.standing, line.sentence) == (standing, sentence)


@pytest.mark.parametrize(
    ("given", "keyless", "standing", "words"),
    [
        (False, None, "ok", "none is given"),
        (True, False, "ok", "is accepted"),
        (True, True, "unknown", "without one too"),
        (True, None, "unknown", "no clear answer"),
    ],
)
def test_a_key_is_only_called_accepted_where_the_server_refuses_without_it(
    given: bool, keyless: bool | None, standing: str, words: str
) -> None:
    line = report(replace(WHOLE, key_given=given, keyless=keyless))[capability.KEY]
    assert line.standing == standing
    assert words in line.sentence


@pytest.mark.parametrize(
    ("slots", "told"), [(1, "4096 tokens, 1 slot"), (2, "4096 tokens, 2 slots"), (None, "4096 tokens")]
)
def test_the_context_of_a_slot_is_told_with_the_slots(slots: int | None, told: str) -> None:
    assert report(replace(WHOLE, identity=replace(IDENTITY, slots=slots)))[capability.CONTEXT].sentence == told


def test_a_busy_server_tells_its_idleness_and_a_silent_one_does_not() -> None:
    for activity, standing in ((Activity(1, 0), "ok"), (Activity(None, None), "missing")):
        assert report(replace(WHOLE, look=replace(LOOK, activity=activity)))[capability.IDLE].standing == standing


def test_decode_times_are_told_of_answers_of_more_than_one_token() -> None:
    def answer(tokens: int | None, milliseconds: float | None) -> Answer:
        return Answer(AnswerStatus.OK, 0.0, 1.0, output_tokens=tokens, decode_ms=milliseconds)

    assert told_decode_times([answer(2, 5.0), answer(2, 0.0)]) is True
    assert told_decode_times([answer(2, 5.0), answer(2, None)]) is False
    assert told_decode_times([answer(1, None), answer(None, None)]) is None
    assert told_decode_times([answer(1, None), answer(2, 1.0)]) is True


def test_every_family_keeps_its_flags_in_its_own_file_under_names_that_the_report_knows() -> None:
    names = {each.name for each in capability_report(WHOLE, {})}
    assert FAMILIES[-1].flags is openai_compatible.FLAGS, "the one that takes any server is asked last"
    for family in FAMILIES:
        assert family.flags is sys.modules[family.create.__module__].FLAGS  # type: ignore[attr-defined]
        assert family.flags
        assert set(family.flags) <= names
        assert flags_of(family.name) is family.flags
    assert flags_of("nobody") == {}
