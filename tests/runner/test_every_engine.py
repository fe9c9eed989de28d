"""A whole run on each family that cannot run here, against two small servers of its schema: it ends as it must.

Where a family lets a fresh prefill be forced and counted a run promotes (speed is only reported: most of them tell no
decode times); where it tells nothing of its cache the verdict is a hold that says what would change it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prefillgate.core.cells import ARMS, ColdProof, Status
from tests.support.runs import PROBES, Bench, measured, stored, write_policy
from tests.support.small_engines import (
    CHAT,
    COMPLETIONS,
    IK_LLAMA,
    KOBOLD,
    LMDEPLOY,
    OLD_OLLAMA,
    OLLAMA,
    TGI,
    TRTLLM,
    SmallEngine,
    Speaks,
    llama_metrics,
    small_engine,
)

#: In production for long: what one cell adds to its totals is lost in the six digits they are printed with.
LONG_UP = replace(IK_LLAMA, metrics=lambda totals: llama_metrics(replace(totals, prompt=totals.prompt + 5_000_000)))


def bench_on(folder: Path, path: str, stream: bool = True) -> Bench:
    """Five cases on one route, streamed unless their bodies say otherwise."""
    lines = []
    for number in range(5):
        text = f"case-{number} " + " ".join(f"w{number}x{word}" for word in range(80))
        body = {"max_tokens": 200, "temperature": 0} | ({} if stream else {"stream": False})
        body |= {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
        lines.append(json.dumps({"custom_id": f"case-{number}", "method": "POST", "url": path, "body": body}) + "\n")
    (folder / "set.jsonl").write_text("".join(lines), encoding="utf-8")
    return Bench(folder, folder / "set.jsonl", write_policy(folder / "policy.yaml"))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("speaks", "path", "proof"),
    [
        (OLLAMA, CHAT, ColdProof.NONCE),
        (OLLAMA, COMPLETIONS, ColdProof.NONCE),
        (TRTLLM, CHAT, ColdProof.SALT),
        (TRTLLM, COMPLETIONS, ColdProof.NONCE),
        (LMDEPLOY, CHAT, ColdProof.NONCE),
        (LMDEPLOY, COMPLETIONS, ColdProof.NONCE),
        (IK_LLAMA, CHAT, ColdProof.CACHE_OFF),
        (LONG_UP, CHAT, ColdProof.CACHE_OFF),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_family_that_can_prove_its_prefills_promotes(
    tmp_path: Path, speaks: Speaks, path: str, proof: ColdProof, stream: bool
) -> None:
    work = bench_on(tmp_path, path, stream)
    with small_engine(speaks) as baseline, small_engine(speaks) as candidate:
        finished = work.run(work.request(baseline.url, candidate.url))
        prompts = [prompts_of(server, path) for server in (baseline, candidate)]
        asked = [body["stream"] for server in (baseline, candidate) for _, body in server.seen[probes(speaks) :]]
    gate, _ = stored(tmp_path / "run.db")
    assert {seen.engine for arm in ARMS for seen in gate.epochs[arm]} == {speaks.name}
    assert (finished.verdict.decision.decision, finished.verdict.decision.reason) == ("promote", "AcceptanceReached")
    cells = [event.cell for event in measured(gate)]
    assert {cell.status for cell in cells} == {Status.OK}
    assert {cell.cold_proof for cell in cells} == {proof}
    assert max(cell.cached_tokens or 0 for cell in cells) <= 1
    assert len(asked) == len(cells) and set(asked) == {stream}
    # Only a stream shows when its first token came.
    assert {event.time_to_first_token_ms is not None for event in measured(gate)} == {stream}
    if proof is ColdProof.NONCE:
        assert all(len(set(told)) == len(told) for told in prompts), "a nonce makes each prompt of a server new"


@pytest.mark.parametrize(
    ("speaks", "what_tells"),
    [
        (OLD_OLLAMA, "Ollama 0.34 or later"),
        (TGI, "serve the model by an engine that tells them"),
        (KOBOLD, "serve the model by llama-server"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_family_that_tells_nothing_of_its_cache_is_a_hold_that_says_what_would(
    tmp_path: Path, speaks: Speaks, what_tells: str
) -> None:
    work = bench_on(tmp_path, CHAT)
    with small_engine(speaks) as baseline, small_engine(speaks) as candidate:
        finished = work.run(work.request(baseline.url, candidate.url))
    decision = finished.verdict.decision
    assert (decision.decision, decision.reason) == ("hold", "IndependenceUnknown")
    assert (decision.promotion, decision.rollback) == ("Blocked", "Refused")
    said = " ".join(decision.sentences)
    assert f"independence unknown on the baseline ({speaks.name})" in said
    assert what_tells in said


def prompts_of(server: SmallEngine, path: str) -> list[str]:
    """What a server was asked on a route, behind its probe."""
    asked = server.seen[probes(server.speaks) :]
    return [json.dumps(body.get("messages", body.get("prompt"))) for sent, body in asked if sent == path]


def probes(speaks: Speaks) -> int:
    """Generations of one capability probe: trtllm-serve is probed on both routes."""
    return 2 * PROBES if speaks is TRTLLM else PROBES
