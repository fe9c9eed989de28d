"""prefillgate as a library: replies to cells, cells to prefills, prefills to a decision. No server, store or cluster.

    from prefillgate.library import count_prefills, decide, read_reply, score

    replies = [reply for body, sent in traffic for reply in read_reply(body, sent)]
    cells = score(replies, "standard")
    count_prefills(cells)["candidate"].prefills
    decide(cells, "standard").decision.rollback

Units everywhere: tokens are counts, `*_ms` milliseconds, `started_at` and `ended_at` seconds since 1970. None is
unknown and never zero. Bad input raises `InputError`, whose text names the place, the field, the value and what is
allowed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from prefillgate.api.cell_log import EXTRA_FIELDS, FIELDS
from prefillgate.api.errors import InputError, PolicyError, Problem, shown
from prefillgate.api.policy import PolicyDocument, load_policy
from prefillgate.core.audit import audit_facts
from prefillgate.core.cells import CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.freshness import Classified
from prefillgate.core.freshness import classify as _classify
from prefillgate.core.journal import Texts
from prefillgate.core.judge import write_verdict
from prefillgate.core.units import count_arm
from prefillgate.core.verdict import ArmCounts, CellClass, Verdict
from prefillgate.importers.base import Asked
from prefillgate.importers.records import Damaged
from prefillgate.importers.replies import Beside, asked_of, whole_reply
from prefillgate.importers.replies import read_reply as _read_reply
from prefillgate.replay.one_output import OneOutputChecks, one_output_checks

__all__ = [
    "ArmCounts",
    "Cell",
    "CellClass",
    "Classified",
    "ColdProof",
    "InputError",
    "Reply",
    "Status",
    "Verdict",
    "classify",
    "count_prefills",
    "decide",
    "read_reply",
    "score",
]
_CELL_FIELDS = tuple(field.name for field in fields(Cell))
_RULES = {name: rule for name, rule in {**FIELDS, **EXTRA_FIELDS}.items() if name in _CELL_FIELDS}


@dataclass(frozen=True, slots=True)
class Reply:
    """One choice of one reply: what is counted, what it said (None: no text was kept), and what was asked."""

    cell: Cell
    texts: Texts | None
    asked: Asked | None


def read_reply(reply: Any, request: Any = None, **known: Any) -> tuple[Reply, ...]:
    """The choices of one reply of /v1/chat/completions, /v1/completions or llama.cpp's /completion, as cells.

    `reply` is its JSON as a mapping or text, a stream of events as text, or an object with `json()` (httpx, requests)
    or `model_dump()` (an SDK's). `request` is the body that was sent: it tells which prompts are equal. `known` sets
    fields of `Cell` that the reply cannot tell: `arm` (default candidate), `case_id` (needed without `request`),
    `started_at`, `ended_at`, `server_epoch`, `replicate`, `bad`, `cold_proof` ("cache_off", "salt" or "nonce", only
    where it was seen to work). n > 1 gives n cells of one request, which are one prefill (STATISTICS.md section 1).

    Raises `InputError` where it is no reply, where nothing names its prompt, and for a field or value not allowed.
    """
    named = known.get("case_id")
    if request is None and named is None:
        raise InputError(
            Problem("", "request", "neither it nor case_id is given", "the body sent, or the prompt's name")
        )
    asked = asked_of(_as_mapping(request, "request")) if request is not None else None
    if asked is None and named is None:
        raise InputError(Problem("", "request", shown(request), "a body with messages or prompt"))
    _known_fields(known)
    status = getattr(reply, "status_code", None)
    try:
        found = _read_reply(_as_mapping(reply, "reply"), Beside("reply", asked, named, http_status=status))
    except Damaged as error:
        raise InputError(Problem("", "reply", str(error), "the reply of a chat or text completion")) from error
    cells = [replace(each.line.cell, **known) for each in found]
    return tuple(Reply(_checked(cell), each.texts, each.asked) for cell, each in zip(cells, found, strict=True))


def score(replies: Iterable[Reply], policy: str | Path = "standard") -> list[Cell]:
    """The cells of `replies`, in order, with `bad` from the checks of `policy` (a name or the path of a file).

    An outcome that is there already stands. `bad` stays None where no text was kept, where no check applies and where
    one erred (the Error is no pass). An answer cut at its token limit is bad only where the policy declares `Cut`.
    Raises `PolicyError` (an `InputError`) for a policy that cannot be read, and for one with checks that run a program
    or ask a model, which this does not do. Checks that need other outputs (expected, equal, foreign) are left out.
    """
    checks = one_output_checks(_policy(policy))
    return [
        _scored(reply, checks) for reply in _each(replies, Reply, ("replies", "reply"), "what `read_reply` returns")
    ]


def classify(cells: Iterable[Cell]) -> list[Classified]:
    """Every scored cell in time order with its class: fresh, copy, partial, unknown, contradicted or orphan.

    By counters, witnesses, order and timing alone (STATISTICS.md section 1); `unit` numbers the prefill that it opened
    or joined, within its arm. Invalid cells are left out. Raises `InputError` for a field that is not allowed.
    """
    return _classify(_all_checked(cells))


def count_prefills(cells: Iterable[Cell]) -> dict[str, ArmCounts]:
    """By arm: requests beside prefills, bad ones of both, each with its 95 % Clopper-Pearson interval.

    `decision_prefills` is n and `bad_for_promotion` k of STATISTICS.md section 1. Arms without a cell are not there.
    Raises `InputError` for a field that is not allowed.
    """
    checked = _all_checked(cells)
    classified = _classify(checked)
    invalid = [cell.arm for cell in checked if cell.status is Status.INVALID]
    return {arm: count_arm(classified, arm, invalid.count(arm)) for arm in dict.fromkeys(cell.arm for cell in checked)}


def decide(cells: Iterable[Cell], policy: str | Path = "standard", title: str = "cells") -> Verdict:
    """What the rules answer from these cells alone: quality only, decode throughput is not compared.

    Error bounds are those of the policy's acceptance table and of the paired replicate (STATISTICS.md sections 2 and
    4): cells with `replicate` 1, 2, ... are that replicate's. Raises `InputError` for no cells at all or a field that
    is not allowed, `PolicyError` for the policy.
    """
    checked = _all_checked(cells)
    if not checked:
        raise InputError(Problem("", "cells", "none", "at least one"))
    return write_verdict(audit_facts(checked, _policy(policy).policy, title))


def _scored(reply: Reply, checks: OneOutputChecks) -> Cell:
    cell, texts = reply.cell, reply.texts
    if texts is None or cell.bad is not None or cell.status is not Status.OK:
        return cell
    path, body = (reply.asked.path, reply.asked.body) if reply.asked is not None else (None, {})
    return replace(cell, bad=checks.judge(cell, texts, path, body)[0])


def _as_mapping(value: Any, field: str) -> Mapping[str, Any]:
    for name in ("model_dump", "json"):
        if not isinstance(value, Mapping | str | bytes) and callable(getattr(value, name, None)):
            value = getattr(value, name)()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        value = _parsed(value, field)
    if isinstance(value, Mapping):
        return value
    raise InputError(Problem("", field, shown(value), "a JSON object"))


def _parsed(value: str, field: str) -> Any:
    if value.lstrip().startswith(("data:", "event:", ":")):
        try:
            return whole_reply(value)
        except Damaged as error:
            raise InputError(Problem("", field, str(error), "a whole stream of events")) from error
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InputError(Problem("", field, f"not JSON: {shown(value)}", "a JSON object")) from error


def _known_fields(known: Mapping[str, Any]) -> None:
    for name, value in known.items():
        if name not in _RULES:
            raise InputError(Problem("", name, shown(value), ", ".join(_RULES)))


def _all_checked(cells: Iterable[Cell]) -> list[Cell]:
    found = _each(cells, Cell, ("cells", "cell"), "a Cell, as `score(replies)` gives them, or the `cell` of a Reply")
    return [_checked(cell, f"cell {number}") for number, cell in enumerate(found)]


def _each(values: Iterable[Any], kind: type, names: tuple[str, str], allowed: str) -> list[Any]:
    """`values` as a list; `names` is what they are called, and each of them.

    Raises `InputError` where it is no list, or one of them is of another kind.
    """
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise InputError(Problem("", names[0], f"one {type(values).__name__}", f"a list; of it, {allowed}"))
    found = list(values)
    for number, value in enumerate(found):
        if not isinstance(value, kind):
            raise InputError(Problem(f"{names[1]} {number}", "", f"a {type(value).__name__}", allowed))
    return found


def _policy(policy: str | Path) -> PolicyDocument:
    if not isinstance(policy, str | Path):
        raise PolicyError(Problem("", "policy", shown(policy), "a name or the path of a file"))
    return load_policy(policy)


def _checked(cell: Cell, where: str = "") -> Cell:
    """The cell with every field as a line of a cell log would be read. Raises `InputError`."""
    read: dict[str, Any] = {}
    for name, rule in _RULES.items():
        value = getattr(cell, name)
        if value is None and name not in ("arm", "case_id"):
            continue
        try:
            read[name] = rule.read(dict(value) if name == "flag_outcomes" else value)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(Problem(where, name, shown(value), rule.allowed)) from error
    return replace(cell, **read)


DEFAULT_ARM = CANDIDATE
