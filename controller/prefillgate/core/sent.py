"""What a run changes in a request, told in words: the rest of a body goes out as its case has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prefillgate.core.cells import ARMS, Cell, ColdProof

#: The only fields of a body that the gate sets, besides what forces a fresh prefill.
GATE_FIELDS = ("model", "n", "seed", "stream", "stream_options")
_FORCED: Mapping[ColdProof | None, str] = {
    ColdProof.CACHE_OFF: "the cache switched off for the request",
    ColdProof.SALT: "a unique cache salt and the fields that ask for its effect",
    ColdProof.NONCE: "a nonce on the first line",
    None: "nothing (sent with the cache as it is)",
}


def sent_note(cells: Iterable[Cell]) -> str | None:
    """One sentence on what was changed in the requests behind these cells, for plan and report; None without a cell."""
    ways: dict[ColdProof | None, set[str]] = {}
    for cell in cells:
        ways.setdefault(cell.cold_proof, set()).add(cell.arm)
    if not ways:
        return None
    told = [
        f"{words} ({' and '.join(arm for arm in ARMS if arm in ways[proof])})"
        for proof, words in _FORCED.items()
        if proof in ways
    ]
    fields = f"{', '.join(GATE_FIELDS[:-1])} and {GATE_FIELDS[-1]}"
    return f"the gate changed only {fields} of each body; fresh prefills were forced by {', '.join(told)}"
