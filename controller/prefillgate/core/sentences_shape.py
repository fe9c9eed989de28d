"""What an answer says of the shape of its run: which arm was not there, and who else used the servers."""

from __future__ import annotations

from collections.abc import Iterator

from prefillgate.core.cells import BASELINE
from prefillgate.core.decision import Reason
from prefillgate.core.facts import Facts
from prefillgate.core.stored_baseline import baseline_sentence

WITHOUT_BASELINE = (
    "A new run with --baseline: a replicate on both arms could answer the alarm.",
    "An override by a person with a reason.",
)


def shape_sentences(facts: Facts) -> Iterator[str]:
    """A sentence for each thing about the shape that a reader of the counts must know."""
    if BASELINE not in facts.arms:
        yield from _without_baseline(facts)
    if facts.baseline_shown is not None:
        yield baseline_sentence(facts.baseline_shown)
    if facts.plan is not None and facts.plan.shape.shared:
        yield (
            "Isolation shared: the servers served others meanwhile; a prefill counts as fresh by what its own response "
            "tells, never by the server's totals."
        )


def _without_baseline(facts: Facts) -> Iterator[str]:
    if facts.from_log:
        yield "Baseline: no cell in this log; the candidate is judged by the acceptance table alone."
        return
    unseen = "" if facts.baseline_shown is not None else ", by checks that were never seen to pass on a good server"
    yield f"Baseline: none in this run; the candidate is judged by the acceptance table alone{unseen}."
    if facts.ruling.reason is Reason.CANDIDATE_UNAVAILABLE:
        yield "What to roll back to was no part of this run."
