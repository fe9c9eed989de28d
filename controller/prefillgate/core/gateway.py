"""Where a bad cell breaks: asked once more straight and through the gateway (DESIGN.md section 1).

One request on each way is one prefill on each way: it tells where to look and is never a rate. None of these requests
is scored, a unit, or paid for by the budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from prefillgate.core.cells import CANDIDATE, ColdProof, Status
from prefillgate.core.gate import REFUSED_BODY, Gate
from prefillgate.core.journal import CellMeasured, ExtraAnswer, GatewayCompared
from prefillgate.core.verdict import GatewayView

MAX_PER_CASE = 2
MAX_CELLS = 4
REUSED_SHARE = 0.05  # above it a prefill is not fresh (STATISTICS.md section 1)
NONCE_TOKENS = 16  # two nonces of 32 hex digits never differ by more tokens than this


class Where(StrEnum):
    """On which way the bad cell came out bad again."""

    BOTH = "both"
    GATEWAY = "gateway"  # through the gateway alone
    DIRECT = "direct"  # straight to the server alone
    NEITHER = "neither"
    UNKNOWN = "unknown"


class Knob(StrEnum):
    """What became of that which forces a fresh prefill."""

    KEPT = "kept"
    STRIPPED = "stripped"
    UNKNOWN = "unknown"


WHERE_WORDS = {
    Where.BOTH: "bad on both ways",
    Where.GATEWAY: "bad only through the gateway",
    Where.DIRECT: "bad only straight to the server",
    Where.NEITHER: "bad on neither way (not reproduced)",
    Where.UNKNOWN: "not decided",
}


# -- what to ask


def cells_to_compare(gate: Gate) -> tuple[CellMeasured, ...]:
    """The candidate's bad cells that are asked again: a first one of each case, then a second, four in all.

    A cell that was sent with the cache as it is cannot be asked again without warming its prompt, and is left out.
    """
    turns: Counter[str] = Counter()
    ranked = []
    for position, event in enumerate(gate.scored):
        cell = event.cell
        if cell.arm == CANDIDATE and cell.bad and cell.cold_proof is not None:
            ranked.append((turns[cell.case_id], position, event))
            turns[cell.case_id] += 1
    chosen = sorted((entry for entry in ranked if entry[0] < MAX_PER_CASE), key=lambda entry: entry[:2])
    return tuple(event for _, _, event in chosen[:MAX_CELLS])


def next_comparison(gate: Gate, since: int) -> CellMeasured | None:
    """The bad cell to ask again now, or None: all were, or the gateway did not take one of them.

    `since` is how many comparisons stood there when this check began: what failed before is tried anew, once.
    """
    if not all(reached(event) for event in gate.compared[since:]):
        return None
    done = {event.cell_id for event in gate.compared if reached(event)}
    return next((event for event in cells_to_compare(gate) if event.cell_id not in done), None)


def reached(event: GatewayCompared) -> bool:
    """Whether the gateway took the request, or refused its body."""
    return event.through.status is not Status.INVALID or refuses_body(event.through)


def refuses_body(answer: ExtraAnswer) -> bool:
    """Whether the body itself was refused: 400, 413 or 422."""
    return answer.status is Status.INVALID and answer.http_status in REFUSED_BODY


# -- what it tells


def gateway_views(gate: Gate) -> tuple[GatewayView, ...]:
    """What each comparison tells, in the order made; of a cell that was asked again later, the last one."""
    last = {event.cell_id: event for event in gate.compared}
    return tuple(_view(gate, event) for event in last.values())


def _view(gate: Gate, event: GatewayCompared) -> GatewayView:
    measured = gate.measured[event.cell_id]
    proof = measured.cell.cold_proof
    direct, through = bad_of(gate, event.direct), bad_of(gate, event.through)
    return GatewayView(
        gateway=event.gateway,
        cell_id=event.cell_id,
        case_id=measured.cell.case_id,
        where=str(where_of(direct, through)),
        direct_bad=direct,
        through_bad=through,
        reached=reached(event),
        asked_server=asked_server(event),
        knob=str(knob_of(event, proof)),
        from_cache=from_cache(event),
        rewrites=rewrites_of(event, proof),
        refusal=refusal_of(event),
        detail=_detail(event),
        through_failure=_failure(event.through),
    )


def bad_of(gate: Gate, answer: ExtraAnswer) -> bool | None:
    """Whether the answer is bad by the checks that decide; None where it was not accepted or a check erred."""
    if answer.status is Status.OK:
        return gate.bad_by(answer.outcomes)
    return True if answer.status is Status.FAILED else None


def where_of(direct: bool | None, through: bool | None) -> Where:
    """From both outcomes to the place; unknown on either way is unknown."""
    if direct is None or through is None:
        return Where.UNKNOWN
    if direct:
        return Where.BOTH if through else Where.DIRECT
    return Where.GATEWAY if through else Where.NEITHER


def asked_server(event: GatewayCompared) -> bool | None:
    """Whether the gateway asked the server under test, by that server's own count of prompt tokens; None: not told."""
    moved = event.through.server_processed_tokens
    return None if moved is None or event.through.status is not Status.OK else moved > 0


def from_cache(event: GatewayCompared) -> bool | None:
    """Whether the same request once more was answered from a response cache; None where nothing tells.

    The same id came twice, or the same text without any work of the server that did the first.
    """
    first, again = event.through, event.repeat
    if again is None or first.status is not Status.OK or again.status is not Status.OK:
        return None
    if first.request_id is not None and first.request_id == again.request_id:
        return True
    if asked_server(event) and again.server_processed_tokens is not None:
        return again.server_processed_tokens == 0 and first.output_sha256 == again.output_sha256
    return None


def knob_of(event: GatewayCompared, proof: ColdProof | None) -> Knob:
    """Whether what forces a fresh prefill came through.

    It is shown only against a direct answer that was fresh. The gateway's request follows the direct one at once, so
    its prompt is in the server's cache, and only the knob keeps it fresh; a nonce or a salt is tried with a new one.
    """
    if reused(event.direct) is not False:
        return Knob.UNKNOWN
    if reused(event.through):
        return Knob.STRIPPED
    again = event.repeat if proof is ColdProof.CACHE_OFF else event.renewed
    told = None if again is None or (from_cache(event) and again is event.repeat) else reused(again)
    if told is None and proof is ColdProof.CACHE_OFF and _same_prompt(event):
        told = reused(event.through)
    if told is None:
        return Knob.UNKNOWN
    return Knob.STRIPPED if told else Knob.KEPT


def _same_prompt(event: GatewayCompared) -> bool:
    prompt = event.direct.prompt_tokens
    return prompt is not None and prompt == event.through.prompt_tokens


def reused(answer: ExtraAnswer) -> bool | None:
    """Whether more than 5 % of the prompt came from the cache, by the reply, else by the server's own count."""
    prompt, cached = answer.prompt_tokens, answer.cached_tokens
    if answer.status is not Status.OK or not prompt:
        return None
    if cached is None and answer.server_processed_tokens:
        cached = prompt - answer.server_processed_tokens
    return None if cached is None else cached > REUSED_SHARE * prompt


def rewrites_of(event: GatewayCompared, proof: ColdProof | None) -> tuple[str, ...]:
    """What shows that another body arrived than was sent, a phrase each."""
    direct, through = event.direct, event.through
    found = []
    one, other = direct.prompt_tokens, through.prompt_tokens
    if one is not None and other is not None:
        allowed = NONCE_TOKENS if proof is ColdProof.NONCE else 0
        if abs(one - other) > allowed:
            found.append(f"the prompt had {other} tokens through it and {one} straight")
    if None not in (direct.model, through.model) and through.model not in (direct.model, through.asked_model):
        found.append(f"the reply names model {through.model} through it and {direct.model} straight")
    return tuple(found)


def refusal_of(event: GatewayCompared) -> str | None:
    """What the gateway says of a body that it refuses and the server takes."""
    if refuses_body(event.through) and event.direct.status is Status.OK:
        return event.through.detail or f"HTTP {event.through.http_status}"
    return None


def _detail(event: GatewayCompared) -> str:
    """Why an answer is none, of either way."""
    told = []
    for way, answer in (("straight", event.direct), ("through the gateway", event.through)):
        if answer.status is not Status.OK:
            told.append(f"{way}: {_why(answer)}")
    return "; ".join(told)


def _failure(answer: ExtraAnswer) -> str | None:
    """Why a request that was accepted got no complete answer; None where it got one, or was not accepted."""
    return _why(answer) if answer.status is Status.FAILED else None


def _why(answer: ExtraAnswer) -> str:
    return f"{answer.reason}: {answer.detail}" if answer.detail else f"{answer.reason}"


# -- in words


def gateway_sentence(views: Sequence[GatewayView]) -> str | None:
    """What all comparisons tell together; None where there are none."""
    if not views:
        return None
    unreached = [view for view in views if not view.reached]
    if unreached:
        return f"Gateway {views[0].gateway} could not be asked: {unreached[0].detail}."
    counts = Counter(Where(view.where) for view in views)
    parts = [f"{counts[where]} {words}" for where, words in WHERE_WORDS.items() if counts[where]]
    cells = "1 bad cell" if len(views) == 1 else f"{len(views)} bad cells"
    told = f"Gateway {views[0].gateway}: of {cells} asked once more, {', '.join(parts)}; one prefill each, no rate."
    return " ".join([told, *_broken_off(views), *(f"It {what}." for what in gateway_faults(views))])


def _broken_off(views: Sequence[GatewayView]) -> list[str]:
    """That answers through the gateway were none: bad in another way than a text that fails its checks."""
    why = [view.through_failure for view in views if view.through_failure is not None]
    if not why:
        return []
    return [f"Through it {len(why)} of {len(views)} got no complete answer ({why[0]}): bad by that, not by its text."]


def gateway_faults(views: Sequence[GatewayView]) -> tuple[str, ...]:
    """What the gateway was seen to do to requests, each once."""
    found = []
    if any(view.asked_server is False and not view.from_cache for view in views):
        found.append("answers without asking this server: another server stands behind it, or a cache")
    if any(view.knob == Knob.STRIPPED for view in views):
        found.append("strips what forces a fresh prefill")
    if any(view.from_cache for view in views):
        found.append("answers from a response cache")
    refusals = [view.refusal for view in views if view.refusal is not None]
    if refusals:
        found.append(f"refuses a body that the server takes ({refusals[0]})")
    rewrites = list(dict.fromkeys(what for view in views for what in view.rewrites))
    if rewrites:
        found.append(f"rewrites the request: {rewrites[0]}")
    return tuple(found)


def gateway_notes(gate: Gate) -> list[str]:
    """One finding for each comparison, and those of the way to the gateway."""
    found = [finding for event in gate.compared for finding in event.findings]
    return [f"gateway: {finding}" for finding in (*found, *(_note(view) for view in gateway_views(gate)))]


def _note(view: GatewayView) -> str:
    parts = [f"cell {view.cell_id} ({view.case_id}) {WHERE_WORDS[Where(view.where)]}"]
    parts += [view.detail] if view.detail else []
    parts += {Knob.STRIPPED: ["the knob was stripped"], Knob.KEPT: ["the knob came through"]}.get(Knob(view.knob), [])
    if view.from_cache:
        parts.append("the same request again came from a response cache")
    elif view.asked_server is False:
        parts.append("the server's own counters did not move")
    return "; ".join([*parts, *view.rewrites])
