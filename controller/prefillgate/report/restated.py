"""A log restated, in words: the lines of a terminal and the Markdown comment to paste on a pull request."""

from __future__ import annotations

from prefillgate.core.cache_hits import FLAT_P, SLOWER_SHARE, Sign
from prefillgate.core.restate import CLAIM_P, DOUBT_RATIO, Bounds, Claim, Doubts, Standing, Table, seems_there
from prefillgate.core.restated import Restated, Restatement
from prefillgate.core.verdict import Verdict
from prefillgate.report.markdown import escape, table
from prefillgate.report.words import (
    headline,
    number,
    percent,
    percent_interval,
    permissions,
    plural,
    prefills_of,
    requests_of,
)

MAX_LABELS = 12


def claim_sentence(claim: Claim) -> str:
    """What becomes of the difference, with its numbers, in at most three sentences."""
    if claim.standing is Standing.NOT_COMPARED:
        return "No difference is claimed: the arms have no prompt with known outcomes in common."
    naive = f"By request {_against(claim.by_request, claim)}, p {number(claim.p_by_request)}"
    prefill = f"by prefill {_against(claim.by_prefill, claim)}, p {number(claim.p_by_prefill)}"
    prompt = f"if every repeat rode the cache {_against(claim.by_prompt, claim)}, p {number(claim.p_by_prompt)}"
    if claim.standing is Standing.NO_DIFFERENCE:
        return f"There never was a difference to explain: {naive.replace('By', 'by', 1)} (above {CLAIM_P})."
    if claim.standing is Standing.WEAKER:
        return f"The difference is weaker than it looks. {naive}; {prefill}."
    if claim.standing is Standing.UNPROVEN and claim.doubts.against_counters:
        return (
            f"The difference may be weaker than it looks: {_disputed(claim.doubts)}. {naive}; {prefill} as the "
            f"counters tell; {prompt}."
        )
    if claim.standing is Standing.UNPROVEN:
        names = ", and names of cases alone do not prove that their prompts differ (prompt_sha256 would)"
        return (
            "The difference may be weaker than it looks: nothing proves which requests were prefills of their own"
            f"{names if claim.doubts.named and seems_there(claim.p_by_prompt) else ''}. {naive}; {prompt}."
        )
    if claim.p_by_prefill is None or claim.doubts.against_counters:
        return f"The difference survives even so. {naive}; {prompt}."
    return f"The difference survives. {naive}; {prefill}."


def _doubted(requests: int) -> str:
    return "1 request that counts as a prefill" if requests == 1 else f"{requests:,} requests that count as prefills"


def _disputed(doubts: Doubts) -> str:
    told = []
    if doubts.doubted:
        told.append(f"the times of {_doubted(doubts.doubted)} speak against the counters")
    if doubts.twice:
        told.append(f"standing twice in the log: {_doubted(doubts.twice)}")
    if doubts.shared:
        told.append(f"under the request id of another case: {plural(doubts.shared, 'case')}")
    return "; ".join(told)


def _against(counts: Table, claim: Claim) -> str:
    """`11 of 12 against 0 of 20 bad`, the worse arm first and named."""
    candidate = f"{counts.candidate_bad} of {counts.candidate}"
    baseline = f"{counts.baseline_bad} of {counts.baseline}"
    if not counts.whole:
        return "nothing is proven on both arms"
    if claim.candidate_worse:
        return f"the candidate is bad in {candidate} against {baseline}"
    return f"the baseline is bad in {baseline} against {candidate}"


def bounds_words(bounds: Bounds) -> str:
    """`2 prefills`, or how many there can be at the most where nothing proves them."""
    if bounds.proven:
        return plural(bounds.fewest, "prefill")
    told = f"at most {plural(bounds.most, 'prefill')}, {bounds.fewest:,} if every repeat rode the cache"
    if bounds.twice:
        told += f"; standing twice in the log (same prompt, times, tokens and output): {bounds.twice:,}"
    return f"{told}; under the request id of another case: {bounds.shared:,}" if bounds.shared else told


def speed_sentences(restated: Restated) -> tuple[str, ...]:
    """What is wrong with the prefill speeds of one arm; nothing where nothing is."""
    speed, told, doubted = restated.speed, [], restated.bounds.doubted
    if doubted:
        under = f"under {percent(DOUBT_RATIO)} of the time of an earlier request of the same prompt"
        told.append(f"{_doubted(doubted)} took {under}")
    if Sign.FLAT in speed.signs:
        told.append(
            "the time to first token does not grow with the prompt: of "
            f"{plural(speed.pairs, 'pair')} of prompt lengths at least twice apart the longer one was slower in "
            f"{speed.slower} (p {number(speed.flat_p)}; rule: at most {FLAT_P} where real prefills are slower in "
            f"{percent(SLOWER_SHARE)} of pairs)"
        )
    if Sign.REPEATED in speed.signs:
        share = percent(speed.repeats / speed.requests)
        told.append(
            f"{speed.repeats:,} of {plural(speed.requests, 'request')} ({share}) repeat an earlier prompt and are not "
            "proven to be prefills of their own"
        )
    if Sign.TOO_FAST in speed.signs:
        what = "the fresh prefills" if speed.fresh_proven else "the first time of each prompt"
        told.append(
            f"prefill comes out at {number(speed.tokens_per_second)} tokens/s over all requests, "
            f"at {number(speed.fresh_tokens_per_second)} over {what}"
        )
    return tuple(f"{restated.name}: {each}" for each in told)


def restated_lines(restatement: Restatement) -> tuple[str, ...]:
    """The restatement for a terminal, a sentence a line: the difference, the bounds where unknown, the speeds."""
    lines = [claim_sentence(restatement.claim)] if len(restatement.arms) > 1 else []
    every = (*restatement.arms, *restatement.labels[:MAX_LABELS])
    for each in every:
        if not each.bounds.proven or each in restatement.labels:
            proven = "prefill as the counters tell" if each.bounds.disputed else "proven prefill"
            told = f"{requests_of(each.counts)} by request, {prefills_of(each.counts)} by {proven}"
            lines.append(f"{each.name}: {told}; {bounds_words(each.bounds)}.")
    if len(restatement.labels) > MAX_LABELS:
        lines.append(f"and {len(restatement.labels) - MAX_LABELS} more labels")
    cached = [sentence for each in every for sentence in speed_sentences(each)]
    lines += [f"Measured cache hits. {sentence[0].upper()}{sentence[1:]}." for sentence in cached]
    return tuple(lines)


def render_restated(verdict: Verdict, restatement: Restatement) -> str:
    """A comment for a pull request: the difference, the table, what was measured, what would change it."""
    head = ["", "requests bad", "95 % by request", "prefills bad", "95 % by prefill", "prefills"]
    every = (*restatement.arms, *restatement.labels[:MAX_LABELS])
    rows = [_row(each) for each in every]
    alone = len(restatement.arms) < 2
    parts = [
        f"### {_title(restatement)}: {escape(verdict.title)}",
        "" if alone else escape(claim_sentence(restatement.claim)),
        table(head, rows),
        _cached([sentence for each in every for sentence in speed_sentences(each)]),
        f"{permissions(verdict)} ({headline(verdict)}, `{verdict.decision.reason}`). {_means(restatement)}",
        "Would change it:\n\n" + "\n".join(f"- {escape(each)}" for each in verdict.decision.what_would_change),
        "\n".join(f"> {escape(note)}\n>" for note in verdict.notes).removesuffix("\n>"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _title(restatement: Restatement) -> str:
    if len(restatement.arms) < 2:
        return "Prefills counted"
    return restatement.claim.standing.value.capitalize()


def _row(each: Restated) -> list[str]:
    counts = each.counts
    return [
        escape(each.name),
        requests_of(counts),
        percent_interval(counts.request_interval),
        prefills_of(counts),
        percent_interval(counts.prefill_interval),
        bounds_words(each.bounds),
    ]


def _cached(sentences: list[str]) -> str:
    if not sentences:
        return ""
    return "**Prefill speeds that measured cache hits:**\n\n" + "\n".join(f"- {escape(each)}" for each in sentences)


def _means(restatement: Restatement) -> str:
    what = "A prefill is one fresh computation of a prompt; a request that rode its cache is no evidence of its own."
    unknown = [each.name for each in restatement.arms if not each.bounds.proven]
    if not unknown:
        return what
    return f"{what} Nothing in this log proves every prefill of {escape(' and '.join(unknown))}."
