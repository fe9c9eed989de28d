"""Bundles without texts: nothing that was said is in them, and the verdict is recomputed all the same."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from prefillgate.bundle import content
from prefillgate.bundle.redact import hidden, redacted
from prefillgate.core.cells import Status
from prefillgate.core.journal import CellMeasured, CheckOutcome, ExtraAnswer, GatewayCompared, MeasurementLost, Texts
from prefillgate.evidence import SqliteJournal
from tests.support.bundles import Bundle, exported


@pytest.fixture
def bare(store: Path, tmp_path: Path) -> Bundle:
    return exported(store, tmp_path / "bare", "--redact")


def test_no_prompt_answer_or_reply_is_left(bare: Bundle, store: Path) -> None:
    whole = b"".join(path.read_bytes() for path in bare.folder.iterdir())
    with SqliteJournal.open_readonly(store) as journal:
        for event in journal.events():
            texts = journal.texts(event.cell_id) if isinstance(event, CellMeasured) else None
            if texts is None:
                continue
            for text in (texts.content, texts.request, texts.response, texts.reasoning):
                for piece in (text[:40], text[-40:]):
                    assert not piece.strip() or json.dumps(piece)[1:-1].encode() not in whole
    assert b"w0x1 w0x2" not in whole
    assert b"looked at it" not in whole  # what the program said of an answer


def test_it_verifies_with_the_same_decision_and_says_what_is_missing(bare: Bundle, original: Path) -> None:
    told = bare.verify()
    assert told.code == 0, told.text
    assert "not recomputed: texts, which were left out (--redact)" in told.text
    full, left = (Bundle(folder).documents(content.DECISION)[0] for folder in (original, bare.folder))
    assert left == full


def test_digests_and_lengths_of_the_texts_stay(bare: Bundle, original: Path) -> None:
    for full, left in zip(Bundle(original).documents(content.TEXTS), bare.documents(content.TEXTS), strict=True):
        for part in content.PARTS:
            data = full[part].encode()
            due = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "characters": len(full[part])}
            assert left[part] == due


def test_a_changed_outcome_or_count_or_prompt_digest_is_still_found(bare: Bundle) -> None:
    decision = bare.documents(content.DECISION)[0]
    bare.write(content.DECISION, [{**decision, "promotion": "Allowed"}])
    bare.sign_off()
    told = bare.verify()
    assert told.code == 10 and told.first.startswith('decision.jsonl:1: promotion is "Allowed"')
    bare.write(content.DECISION, [decision])
    lines = bare.documents(content.REPLAY_SET)
    lines[1]["line"]["sha256"] = "0" * 64
    bare.write(content.REPLAY_SET, lines)
    bare.sign_off()
    told = bare.verify()
    assert told.code == 10 and told.first.startswith("replay-set.jsonl: replay_set_sha256 of the plan is")
    bare.write(content.REPLAY_SET, [{**lines[0], "custom_id": "other"}, *lines[1:]])
    bare.sign_off()
    assert bare.verify().first == 'replay-set.jsonl:1: custom_id is "other", recomputed it is "case-0"'


def test_a_text_smuggled_into_a_redacted_bundle_is_found(bare: Bundle) -> None:
    texts = bare.documents(content.TEXTS)
    texts[0]["content"] = "a text"
    bare.write(content.TEXTS, texts)
    bare.sign_off()
    assert bare.verify().first.startswith("texts.jsonl:1: a bundle without texts holds digests")


def test_what_a_gateway_or_a_server_said_is_left_out_too() -> None:
    answer = ExtraAnswer(
        Status.OK,
        0.0,
        detail="quotes",
        outcomes=(CheckOutcome("c", "1", True, "quotes", "quotes"),),
        texts=Texts("quotes"),
    )
    compared = GatewayCompared(0, 0.0, "http://g", answer, answer, answer, answer)
    for event in (compared, MeasurementLost(0.0, "Lost", "quotes")):
        assert "quotes" not in repr(redacted(event))
    assert hidden("") == ""
    assert hidden("äb") == f"[left out: 2 characters, sha256 {hashlib.sha256('äb'.encode()).hexdigest()}]"
