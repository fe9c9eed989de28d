"""The sentence of plan and report on what the gate changed in the requests."""

from __future__ import annotations

from prefillgate.core.cells import BASELINE, CANDIDATE, Cell, ColdProof
from prefillgate.core.sent import GATE_FIELDS, sent_note

HEAD = "the gate changed only model, n, seed, stream and stream_options of each body; fresh prefills were forced by "


def test_the_gate_sets_five_fields_besides_what_forces_a_prefill() -> None:
    assert GATE_FIELDS == ("model", "n", "seed", "stream", "stream_options")


def test_without_a_cell_nothing_was_changed() -> None:
    assert sent_note(()) is None


def test_each_way_of_forcing_is_told_with_its_arms() -> None:
    off, salt, nonce = ColdProof.CACHE_OFF, ColdProof.SALT, ColdProof.NONCE
    both = (Cell(CANDIDATE, "a", cold_proof=off), Cell(BASELINE, "b", cold_proof=off))
    assert sent_note(both) == HEAD + "the cache switched off for the request (baseline and candidate)"
    unlike = (Cell(CANDIDATE, "a", cold_proof=nonce), Cell(BASELINE, "a", cold_proof=salt), Cell(BASELINE, "b"))
    assert sent_note(unlike) == (
        HEAD + "a unique cache salt and the fields that ask for its effect (baseline), a nonce on the first line "
        "(candidate), nothing (sent with the cache as it is) (baseline)"
    )
