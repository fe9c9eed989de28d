"""Which bad cells go to the gateway, and what both answers tell: every line and both sides of each boundary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.cells import BASELINE, ColdProof, Status
from prefillgate.core.gate import Gate, JournalError
from prefillgate.core.gateway import (
    Knob,
    Where,
    asked_server,
    bad_of,
    cells_to_compare,
    from_cache,
    gateway_faults,
    gateway_notes,
    gateway_sentence,
    gateway_views,
    knob_of,
    next_comparison,
    reached,
    refusal_of,
    refuses_body,
    reused,
    rewrites_of,
    where_of,
)
from prefillgate.core.journal import CheckOutcome, ExtraAnswer, GatewayCompared, Purpose
from prefillgate.core.judge import judge
from tests.support.journals import cell, quality_only, score, started

BAD, CLEAN, ERRED = (CheckOutcome("check", "1", bad) for bad in (True, False, None))
OFF, NONCE, SALT = ColdProof.CACHE_OFF, ColdProof.NONCE, ColdProof.SALT


def answer(outcome: CheckOutcome = CLEAN, **changes: Any) -> ExtraAnswer:
    """A fresh answer of 1000 prompt tokens, all of them processed by the server."""
    told = ExtraAnswer(
        Status.OK,
        5.0,
        http_status=200,
        prompt_tokens=1000,
        cached_tokens=0,
        output_tokens=9,
        server_processed_tokens=1000,
        asked_model="m",
        model="m",
        request_id="id",
        output_sha256="same",
        outcomes=(outcome,),
    )
    return replace(told, **changes)


def dead(reason: str = "ConnectionRefused", **changes: Any) -> ExtraAnswer:
    return replace(ExtraAnswer(Status.INVALID, 5.0, reason=reason, detail="nobody there"), **changes)


def compared(direct: ExtraAnswer | None = None, through: ExtraAnswer | None = None, **more: Any) -> GatewayCompared:
    return GatewayCompared(
        more.pop("cell_id", 0),
        6.0,
        "http://g",
        direct or answer(request_id="d"),
        through or answer(request_id="t"),
        **more,
    )


def bad_cells(*cases: str) -> Gate:
    gate = started(quality_only())
    for case in cases:
        score(gate, cell(case=case), True)
    return gate


# -- which cells


def test_two_bad_cells_of_a_case_and_four_in_all_are_asked_again_a_first_of_each_case_before_a_second() -> None:
    gate = bad_cells("a", "a", "a", "b", "a", "c", "b")
    assert [(event.cell_id, event.cell.case_id) for event in cells_to_compare(gate)] == [
        (0, "a"),
        (3, "b"),
        (5, "c"),
        (1, "a"),
    ]
    assert [event.cell_id for event in cells_to_compare(bad_cells("a", "a", "a"))] == [0, 1]
    assert [event.cell_id for event in cells_to_compare(bad_cells(*"abcde"))] == [0, 1, 2, 3]


def test_only_bad_cells_of_the_candidate_that_forced_a_fresh_prefill_are_asked_again() -> None:
    gate = started(quality_only())
    score(gate, cell(case="clean"), False)
    score(gate, cell(case="unknown"), None)
    score(gate, cell(BASELINE, "base"), True, Purpose.BASELINE_PASS)
    score(gate, cell(case="warm", cold_proof=None), True)
    assert cells_to_compare(gate) == ()
    score(gate, cell(case="bad", cold_proof=NONCE), True)
    assert [event.cell.case_id for event in cells_to_compare(gate)] == ["bad"]


def test_each_cell_is_asked_once_and_one_that_the_gateway_did_not_take_once_more_the_next_time() -> None:
    gate = bad_cells("a", "b")
    assert (next_comparison(gate, 0) or 1) == gate.scored[0]
    gate.apply(compared(cell_id=0))
    assert (next_comparison(gate, 0) or 1) == gate.scored[1]
    gate.apply(compared(cell_id=1, through=dead()))
    assert next_comparison(gate, 0) is None  # it is not there: nothing more is tried now
    assert next_comparison(gate, 1) is None
    assert (next_comparison(gate, 2) or 1) == gate.scored[1]
    gate.apply(compared(cell_id=1))
    assert next_comparison(gate, 3) is None
    assert len(gateway_views(gate)) == 2
    assert all(view.reached for view in gateway_views(gate))


def test_a_gateway_that_refuses_the_body_was_reached() -> None:
    for status, known in ((400, True), (413, True), (422, True), (401, False), (404, False), (None, False)):
        event = compared(through=dead("HttpError", http_status=status))
        assert (refuses_body(event.through), reached(event)) == (known, known)
    assert not refuses_body(answer(http_status=400))
    assert reached(compared(through=answer(status=Status.FAILED)))


def test_a_comparison_of_a_cell_that_was_never_measured_is_no_journal() -> None:
    gate = bad_cells("a")
    with pytest.raises(JournalError, match=r"^cell 1 was sent to a gateway and never measured$"):
        gate.apply(compared(cell_id=1))


def test_nothing_that_was_asked_again_is_scored_or_paid_for() -> None:
    gate = bad_cells("a")
    before = judge(gate)
    gate.apply(compared(cell_id=0, through=answer(BAD)))
    after = judge(gate)
    assert (gate.prefills_used, gate.next_cell_id()) == (1, 1)
    for name in ("baseline", "candidate", "prefills_used", "cells", "alarm_level", "comparison"):
        assert getattr(after, name) == getattr(before, name)
    assert (after.decision.decision, after.decision.reason) == (before.decision.decision, before.decision.reason)


# -- where


@pytest.mark.parametrize(
    ("direct", "through", "where"),
    [
        (True, True, Where.BOTH),
        (False, True, Where.GATEWAY),
        (True, False, Where.DIRECT),
        (False, False, Where.NEITHER),
        (None, True, Where.UNKNOWN),
        (False, None, Where.UNKNOWN),
        (None, None, Where.UNKNOWN),
    ],
)
def test_where_it_breaks(direct: bool | None, through: bool | None, where: Where) -> None:
    assert where_of(direct, through) is where


def test_an_answer_is_bad_by_the_checks_that_decide_and_a_failed_one_always() -> None:
    gate = bad_cells("a")
    assert [bad_of(gate, answer(outcome)) for outcome in (BAD, CLEAN, ERRED)] == [True, False, None]
    assert bad_of(gate, answer(status=Status.FAILED)) is True
    assert bad_of(gate, dead()) is None
    assert bad_of(gate, answer(CheckOutcome("slow", "1", True))) is None  # only reported


# -- what the gateway does


@pytest.mark.parametrize(
    ("cached", "server", "known"),
    [
        (0, None, False),
        (50, None, False),
        (51, None, True),
        (None, 950, False),
        (None, 949, True),
        (None, None, None),
        (None, 0, None),  # it never asked this server: that tells nothing of reuse
        (0, 10, False),  # the reply's own word goes first
    ],
)
def test_reuse_is_told_by_the_reply_or_by_the_servers_own_count(
    cached: int | None, server: int | None, known: bool | None
) -> None:
    assert reused(answer(cached_tokens=cached, server_processed_tokens=server)) is known
    assert reused(answer(cached_tokens=cached, server_processed_tokens=server, status=Status.FAILED)) is None
    assert reused(answer(cached_tokens=cached, prompt_tokens=None)) is None
    assert [reused(answer(cached_tokens=share, prompt_tokens=10_000)) for share in (500, 501)] == [False, True]
    assert reused(answer(cached_tokens=cached, prompt_tokens=0)) is None


WARM = answer(cached_tokens=999, server_processed_tokens=1, request_id="w")


@pytest.mark.parametrize(
    ("changes", "proof", "knob"),
    [
        ({}, OFF, Knob.KEPT),  # the same prompt, just computed, and fresh again
        ({"through": answer(request_id="t", prompt_tokens=1001)}, OFF, Knob.UNKNOWN),  # another prompt: fresh anyway
        ({"through": answer(request_id="t", prompt_tokens=1001), "repeat": answer(request_id="r")}, OFF, Knob.KEPT),
        ({"through": answer(request_id="t", prompt_tokens=1001), "repeat": WARM}, OFF, Knob.STRIPPED),
        ({"through": WARM}, OFF, Knob.STRIPPED),
        ({"repeat": WARM}, OFF, Knob.STRIPPED),
        ({"repeat": answer(request_id="t", cached_tokens=999)}, OFF, Knob.KEPT),  # from a response cache: tells nothing
        ({"direct": WARM}, OFF, Knob.UNKNOWN),
        ({"direct": dead()}, OFF, Knob.UNKNOWN),
        ({"through": answer(cached_tokens=None, server_processed_tokens=None)}, OFF, Knob.UNKNOWN),
        ({}, NONCE, Knob.UNKNOWN),
        ({"repeat": WARM}, NONCE, Knob.UNKNOWN),  # the same nonce again: of course it is warm
        ({"repeat": WARM, "renewed": answer(request_id="n")}, NONCE, Knob.KEPT),
        ({"repeat": WARM, "renewed": WARM}, NONCE, Knob.STRIPPED),
        ({"renewed": WARM}, SALT, Knob.STRIPPED),
        ({"renewed": answer(request_id="n")}, SALT, Knob.KEPT),
        ({"through": WARM}, NONCE, Knob.STRIPPED),
        ({"direct": answer(prompt_tokens=None), "repeat": answer(request_id="r")}, OFF, Knob.UNKNOWN),
    ],
)
def test_what_became_of_the_knob(changes: dict[str, Any], proof: ColdProof, knob: Knob) -> None:
    assert knob_of(compared(**changes), proof) is knob


@pytest.mark.parametrize(
    ("again", "known"),
    [
        (None, None),
        ({"request_id": "t"}, True),
        ({"request_id": "t", "server_processed_tokens": 1000}, True),
        ({"request_id": "r"}, False),
        ({"request_id": "r", "server_processed_tokens": 1}, False),
        ({"request_id": "r", "server_processed_tokens": 0}, True),
        ({"request_id": "r", "server_processed_tokens": 0, "output_sha256": "other"}, False),
        ({"request_id": "r", "server_processed_tokens": None}, None),
        ({"request_id": None, "server_processed_tokens": 0}, True),
        ({"request_id": "t", "status": Status.FAILED}, None),
    ],
)
def test_the_same_id_again_or_no_work_for_the_same_text_is_a_response_cache(
    again: dict[str, Any] | None, known: bool | None
) -> None:
    event = compared(repeat=None if again is None else answer(**again))
    assert from_cache(event) is known


def test_where_the_first_answer_did_not_come_from_this_server_only_the_same_id_shows_a_cache() -> None:
    elsewhere = answer(request_id="t", server_processed_tokens=0)
    assert asked_server(compared(through=elsewhere)) is False
    assert from_cache(compared(through=elsewhere, repeat=answer(server_processed_tokens=0))) is None
    assert from_cache(compared(through=elsewhere, repeat=elsewhere)) is True
    nameless = answer(request_id=None, server_processed_tokens=None)
    assert from_cache(compared(through=nameless, repeat=nameless)) is None
    assert from_cache(compared(through=dead(), repeat=answer())) is None


@pytest.mark.parametrize(("moved", "asked"), [(1, True), (0, False), (None, None)])
def test_whether_the_server_under_test_was_asked_is_told_by_its_own_count(
    moved: int | None, asked: bool | None
) -> None:
    assert asked_server(compared(through=answer(server_processed_tokens=moved))) is asked
    assert asked_server(compared(through=answer(server_processed_tokens=moved, status=Status.FAILED))) is None


@pytest.mark.parametrize(
    ("through", "proof", "found"),
    [
        ({}, OFF, ()),
        ({"prompt_tokens": 1001}, OFF, ("the prompt had 1001 tokens through it and 1000 straight",)),
        ({"prompt_tokens": 999}, SALT, ("the prompt had 999 tokens through it and 1000 straight",)),
        ({"prompt_tokens": 1016}, NONCE, ()),
        ({"prompt_tokens": 984}, NONCE, ()),
        ({"prompt_tokens": 1017}, NONCE, ("the prompt had 1017 tokens through it and 1000 straight",)),
        ({"prompt_tokens": 983}, NONCE, ("the prompt had 983 tokens through it and 1000 straight",)),
        ({"prompt_tokens": None}, OFF, ()),
        ({"model": "other"}, OFF, ("the reply names model other through it and m straight",)),
        ({"model": "alias", "asked_model": "alias"}, OFF, ()),
        ({"model": None}, OFF, ()),
    ],
)
def test_another_prompt_or_another_model_is_a_rewritten_request(
    through: dict[str, Any], proof: ColdProof, found: tuple[str, ...]
) -> None:
    assert rewrites_of(compared(through=answer(**through)), proof) == found


def test_a_body_refused_by_the_gateway_alone_is_told_with_its_words() -> None:
    refusal = dead("HttpError", http_status=422, detail="HTTP 422: unknown field cache_prompt")
    assert refusal_of(compared(through=refusal)) == "HTTP 422: unknown field cache_prompt"
    assert refusal_of(compared(through=replace(refusal, detail=None))) == "HTTP 422"
    assert refusal_of(compared(direct=refusal, through=refusal)) is None
    assert refusal_of(compared(through=dead("HttpError", http_status=401, detail="HTTP 401: no"))) is None
    assert refusal_of(compared()) is None
    sentence, notes = verdict_of(compared(cell_id=0, through=refusal))
    assert sentence == (
        "Gateway http://g: of 1 bad cell asked once more, 1 not decided; one prefill each, no rate. It refuses a body "
        "that the server takes (HTTP 422: unknown field cache_prompt)."
    )
    assert notes == [
        "gateway: cell 0 (a) not decided; through the gateway: HttpError: HTTP 422: unknown field cache_prompt"
    ]


# -- in words


def verdict_of(*events: GatewayCompared) -> tuple[str | None, list[str]]:
    gate = bad_cells(*"abcd")
    for event in events:
        gate.apply(event)
    views = gateway_views(gate)
    verdict = judge(gate)
    assert verdict.gateway == views
    sentence = gateway_sentence(views)
    assert sentence is None or sentence in verdict.decision.sentences
    notes = gateway_notes(gate)
    assert [note for note in verdict.notes if note.startswith("gateway: ")] == list(dict.fromkeys(notes))
    return sentence, notes


def test_without_a_comparison_nothing_is_said() -> None:
    assert verdict_of() == (None, [])


def test_the_sentence_counts_where_they_broke_and_claims_no_rate() -> None:
    sentence, notes = verdict_of(
        compared(cell_id=0, through=answer(BAD, request_id="t")),
        compared(cell_id=1, through=answer(BAD, request_id="t")),
        compared(cell_id=2),
        compared(cell_id=3, direct=dead(), through=answer(request_id="t", cached_tokens=None)),
    )
    assert sentence == (
        "Gateway http://g: of 4 bad cells asked once more, 2 bad only through the gateway, 1 bad on neither way (not "
        "reproduced), 1 not decided; one prefill each, no rate."
    )
    assert notes == [
        "gateway: cell 0 (a) bad only through the gateway; the knob came through",
        "gateway: cell 1 (b) bad only through the gateway; the knob came through",
        "gateway: cell 2 (c) bad on neither way (not reproduced); the knob came through",
        "gateway: cell 3 (d) not decided; straight: ConnectionRefused: nobody there",
    ]
    one, _ = verdict_of(compared(cell_id=0, direct=answer(BAD, request_id="d"), through=answer(BAD, request_id="t")))
    assert one == "Gateway http://g: of 1 bad cell asked once more, 1 bad on both ways; one prefill each, no rate."


def test_one_answer_that_the_server_never_worked_for_is_told_among_others_it_did() -> None:
    elsewhere = answer(BAD, request_id="t", server_processed_tokens=0)
    sentence, _ = verdict_of(compared(cell_id=0, through=elsewhere), compared(cell_id=1))
    assert sentence is not None
    assert "It answers without asking this server: another server stands behind it, or a cache." in sentence


def test_an_answer_that_broke_off_in_the_gateway_is_told_apart_from_a_bad_text() -> None:
    html = answer(status=Status.FAILED, reason="NotJson", detail="a log-in page")
    lost = answer(status=Status.FAILED, reason="ConnectionLost", detail=None)
    sentence, _ = verdict_of(
        compared(cell_id=0, through=html),
        compared(cell_id=1, through=lost),
        compared(cell_id=2, through=answer(BAD, request_id="t")),
        compared(cell_id=3, direct=lost),
    )
    assert sentence == (
        "Gateway http://g: of 4 bad cells asked once more, 3 bad only through the gateway, 1 bad only straight to the "
        "server; one prefill each, no rate. Through it 2 of 4 got no complete answer (NotJson: a log-in page): bad by "
        "that, not by its text."
    )
    gate = bad_cells("a")
    gate.apply(compared(cell_id=0, through=lost))
    assert [view.through_failure for view in gateway_views(gate)] == ["ConnectionLost"]
    gate.apply(compared(cell_id=0, through=dead()))
    assert [view.through_failure for view in gateway_views(gate)] == [None]


def test_what_the_gateway_does_is_said_once_each() -> None:
    sentence, notes = verdict_of(
        compared(cell_id=0, through=WARM, repeat=replace(WARM, server_processed_tokens=0)),
        compared(cell_id=1, through=replace(WARM, prompt_tokens=1200)),
    )
    assert sentence is not None
    assert sentence.endswith(
        "no rate. It strips what forces a fresh prefill. It answers from a response cache. It rewrites the request: "
        "the prompt had 1200 tokens through it and 1000 straight."
    )
    assert notes == [
        "gateway: cell 0 (a) bad on neither way (not reproduced); the knob was stripped; the same request again came "
        "from a response cache",
        "gateway: cell 1 (b) bad on neither way (not reproduced); the knob was stripped; the prompt had 1200 tokens "
        "through it and 1000 straight",
    ]


def test_a_gateway_that_did_not_ask_this_server_is_told() -> None:
    elsewhere = answer(request_id="t", server_processed_tokens=0)
    sentence, notes = verdict_of(compared(cell_id=0, through=elsewhere))
    assert sentence is not None
    assert sentence.endswith(
        "no rate. It answers without asking this server: another server stands behind it, or a cache."
    )
    assert notes[0].endswith("the server's own counters did not move")
    gate = bad_cells("a")
    gate.apply(compared(cell_id=0, through=elsewhere, repeat=elsewhere))
    assert gateway_faults(gateway_views(gate)) == ("answers from a response cache",)


def test_a_gateway_that_is_not_there_is_a_finding() -> None:
    sentence, notes = verdict_of(compared(cell_id=0, through=dead()))
    said = "through the gateway: ConnectionRefused: nobody there"
    assert sentence == f"Gateway http://g could not be asked: {said}."
    assert notes == [f"gateway: cell 0 (a) not decided; {said}"]
    _, bare = verdict_of(compared(cell_id=0, through=dead(detail=None)))
    assert bare == ["gateway: cell 0 (a) not decided; through the gateway: ConnectionRefused"]


def test_what_must_be_said_of_the_way_to_the_gateway_stands_first() -> None:
    _, notes = verdict_of(compared(cell_id=0, findings=("its certificate was not checked",)))
    assert notes[0] == "gateway: its certificate was not checked"
