"""What stands in the files of a bundle, derived from the events: written from here, and held against it again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from prefillgate.api.cell_log import cell_lines, write_line
from prefillgate.bundle.lines import as_line
from prefillgate.core.gate import Gate
from prefillgate.core.journal import Planned, Texts
from prefillgate.core.verdict import Verdict
from prefillgate.evidence.codec import dumps
from prefillgate.report.json_report import verdict_json

MANIFEST, SIGNATURE, README = "manifest.json", "manifest.sig", "README.txt"
PLAN, POLICY, REPLAY_SET = "plan.jsonl", "policy.jsonl", "replay-set.jsonl"
EVENTS, TEXTS, CELLS, DECISION = "events.jsonl", "texts.jsonl", "cells.jsonl", "decision.jsonl"
#: Every file whose digest the manifest holds, in its order.
FILES = (README, CELLS, DECISION, EVENTS, PLAN, POLICY, REPLAY_SET, TEXTS)
_HEX = re.compile("[0-9a-f]{64}")
PARTS = ("content", "reasoning", "tool_calls", "request", "response")


def event_line(seq: int, payload: bytes, texts_sha256: bytes | None, digest: bytes) -> bytes:
    """One event of the journal with its place in the chain."""
    return as_line(
        {
            "seq": seq,
            "event": json.loads(payload.decode("utf-8", "surrogatepass")),
            "texts_sha256": None if texts_sha256 is None else texts_sha256.hex(),
            "digest": digest.hex(),
        }
    )


def text_line(cell_id: int, texts: Texts) -> bytes:
    """What a cell sent and was answered, whole."""
    return as_line({"cell_id": cell_id, **{part: getattr(texts, part) for part in PARTS}})


def redacted_text_line(cell_id: int, texts: Texts) -> bytes:
    """Digest and lengths of what a cell sent and was answered."""
    return as_line({"cell_id": cell_id, **{part: measure_of(getattr(texts, part)) for part in PARTS}})


def measure_of(text: str) -> dict[str, Any]:
    """Digest (SHA-256 of its UTF-8), bytes and characters of a text that is left out."""
    data = text.encode("utf-8", "surrogatepass")
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "characters": len(text)}


def is_digest(value: Any) -> bool:
    """Whether a value is a SHA-256 in hex."""
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


def is_measure(value: Any) -> bool:
    """Whether a value may be what `measure_of` gives."""
    if not isinstance(value, dict) or value.keys() != {"sha256", "bytes", "characters"}:
        return False
    lengths = (value["bytes"], value["characters"])
    return is_digest(value["sha256"]) and all(type(length) is int and length >= 0 for length in lengths)


def plan_lines(plan: Planned) -> Iterator[bytes]:
    """The plan in one line; the bodies of its cases stand in the replay set, its checks in the policy."""
    told: dict[str, Any] = json.loads(dumps(plan, Planned).decode("utf-8", "surrogatepass"))
    for name in ("checks", "policy"):
        del told[name]
    for case in told["cases"]:
        del case["line"]
    yield as_line(told)


def policy_lines(plan: Planned) -> Iterator[bytes]:
    """The policy in one line: its numbers, and the checks it declares.

    `checks` is null where it declares none (the default ones apply) and where an older store did not keep them
    (`checks_kept` false).
    """
    told: dict[str, Any] = json.loads(dumps(plan, Planned).decode("utf-8", "surrogatepass"))
    checks = None if plan.checks is None else json.loads(plan.checks)
    yield as_line({"checks": checks, "checks_kept": plan.checks is not None, "numbers": told["policy"]})


def replay_set_lines(plan: Planned, redact: bool = False) -> Iterator[bytes]:
    """The replay set as `prefillgate run` reads it, in canonical JSON.

    Of a case whose line was left out stand its lengths and digests, those of its line where it was kept.
    """
    for case in plan.cases:
        if case.line is not None and not redact:
            yield case.line.encode() + b"\n"
            continue
        told = {"custom_id": case.case_id, "sha256": case.sha256, "characters": case.characters}
        line = None if case.line is None else measure_of(case.line)
        yield as_line({**told, "line": line})


def cell_log_lines(verdict: Verdict, gate: Gate) -> Iterator[bytes]:
    """The cell log, as `prefillgate cells --json` prints and `prefillgate audit` reads it."""
    for line in cell_lines(verdict, gate.measured):
        yield write_line(line).encode() + b"\n"


def decision_lines(verdict: Verdict) -> Iterator[bytes]:
    """The verdict in one line: the object of `prefillgate decide --json`."""
    yield as_line(verdict_json(verdict))


def readme_text(program: str, redacted: bool) -> bytes:
    """README.txt: how a stranger reads and checks the bundle."""
    kept = "left out, with their digests and lengths in their place" if redacted else "kept whole"
    return _README.format(program=program, kept=kept).encode()


_README = """\
Evidence bundle of a promotion gate for LLM serving profiles, written by {program}.

The texts (prompts, answers, raw replies) are {kept}.

  decision.jsonl    the verdict, one object: decision, promotion, rollback, reason, and the numbers behind it
  cells.jsonl       one line a request: arm, case, cached beside prompt tokens, class, unit, bad
  plan.jsonl        what was compared, by which seed; policy.jsonl the numbers and checks it was judged by
  replay-set.jsonl  the prompts, in the format of the OpenAI Batch API
  texts.jsonl       what each cell sent (request) and was answered (response, and its parts), by cell_id
  events.jsonl      the journal: everything that happened, in order; the other files follow from it
  manifest.json     format, and digest, bytes and lines of each file; manifest.sig its signature, if it was signed

Without the program, with sha256sum and jq:

  jq -r '.files[] | "\\(.sha256)  \\(.name)"' manifest.json | sha256sum --check
  jq -r '[.decision, .promotion, .rollback, .reason] | @tsv' decision.jsonl
  jq -c 'select(.bad) | [.cell_id, .arm, .case_id, .class, .cached_tokens, .prompt_tokens]' cells.jsonl

An answer against the digest that its cell holds (N is a cell_id; both lines must be equal):

  jq -rj 'select(.cell_id == N) | "\\(.reasoning)\\u0000\\(.content)\\u0000\\(.tool_calls)"' texts.jsonl | sha256sum
  jq -r 'select(.cell_id == N) | .output_sha256' cells.jsonl

A signature, with the signer's public key got by another way than with this bundle:

  openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in manifest.json -sigfile manifest.sig

With the program everything that can be recomputed is recomputed, and the first difference named by file and line:

  prefillgate verify FOLDER [--public-key public.pem]

Digests alone prove nothing: who changes a file can write new ones. Recomputing finds what no longer fits together. Only
a signature shows that a bundle was not made up as a whole.
"""
