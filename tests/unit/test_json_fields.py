"""README lists every field of the JSON answer; each differs between runs, and is null only where README says when."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from prefillgate.cli.audit import command as audit_command
from prefillgate.core.acceptance import QUICK, STANDARD
from prefillgate.core.audit import audit_facts
from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.earlier import StoredFloor, Trigger, Watching
from prefillgate.core.fitted_plan import fitted_plan
from prefillgate.core.gate import Gate
from prefillgate.core.journal import (
    BaselineShown,
    CaseRef,
    CauseNoted,
    CellChecked,
    CellMeasured,
    CheckOutcome,
    Difference,
    EpochSeen,
    ExtraAnswer,
    GatewayCompared,
    Planned,
    Purpose,
    ReplicateStarted,
    SeparationKept,
)
from prefillgate.core.judge import judge, write_verdict
from prefillgate.core.policy import Policy
from prefillgate.core.schedule import CheckCell, RunCell, Separate, StartReplicate, Stop, next_step
from prefillgate.core.shape import Isolation, Shape
from prefillgate.importers import registry
from prefillgate.report import verdict_json
from prefillgate.report.json_report import ARM_FIELDS
from tests.support.cell_logs import write_log
from tests.support.tab_log import MARK, TabLog

README = Path(__file__).resolve().parents[2] / "README.md"
LISTS = ("gateway", "replicates", "replicates[].pairs", "differences", "throughput.pairs")
OTHER_SHAPE = Shape(True, Isolation.SHARED, True, True, 2, 2)
SHOWN = BaselineShown(86_400.0, "x.db", "then-1", "baseline", 0.0, 9, 2, 8, 1, (0.0, 0.6), (0.0, 0.7), "b1", "m", "w")
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]*) \|([^|]*)\|$")


def documented() -> dict[str, bool]:
    """Field path -> whether the table lets it be null."""
    section = README.read_text(encoding="utf-8").split("## JSON fields")[1].split("\n## ")[0]
    found: dict[str, bool] = {}
    for line in section.splitlines():
        row = ROW.match(line)
        if row is None:
            continue
        for name in [row[1].replace("ARM", arm) for arm in ARMS] if "ARM" in row[1] else [row[1]]:
            found[name] = bool(row[3].strip())
    return found


def flattened(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of the answer under its path; a list of plain values is one leaf, an empty list none."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flattened(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from flattened(inner, f"{path}[]")
    elif not (isinstance(value, list) and not value and path in LISTS):
        yield path, value


class Server:
    """What one arm answers in a made-up run."""

    def __init__(self, bad_rate: float, tokens_per_second: float, cv: float, outputs: str) -> None:
        self.bad_rate, self.tokens_per_second, self.cv, self.outputs = bad_rate, tokens_per_second, cv, outputs

    def said(self, noise: float) -> str:
        """The output; a server that wavers says one of two things."""
        return str(noise > 1) if self.outputs == "?" else self.outputs


def planned(policy: Policy, name: str, greedy: bool = True) -> Planned:
    cases = tuple(CaseRef(f"{name}-{i}", f"sha-{name}-{i}", 100 + i, None, greedy) for i in range(14))
    told = (
        (Difference("KV cache", "type", "q8_0", "f16"),)
        if name == "one"
        else (Difference("build", "build", None, None),)
    )
    return Planned(
        "run", 5.0 if name == "one" else 6.0, 7, policy, cases, name, f"digest-{name}", "http://b", "http://c", told
    )


def epoch(arm: str, build: str = "b1", **more: Any) -> EpochSeen:
    return EpochSeen(arm, f"epoch-{arm}", 0.0, "llama.cpp", build, "m", True, "cache_off", False, **more)


def played(gate: Gate, servers: dict[str, Server], limit: int = 400) -> Gate:
    """Let the schedule run against made-up servers."""
    generator, clock = random.Random(3), 1000.0
    for _ in range(limit):
        step = next_step(gate)
        if isinstance(step, Stop):
            return gate
        if isinstance(step, StartReplicate):
            gate.apply(ReplicateStarted(step.number, clock, step.seed))
        elif isinstance(step, Separate):
            gate.apply(SeparationKept(step.number, clock, "gap", "600 s after the last bad cell"))
        elif isinstance(step, RunCell):
            server = servers[step.arm]
            clock += 10.0
            gate.apply(answered(step, server, (clock, generator.gauss(1.0, server.cv))))
        elif isinstance(step, CheckCell):
            rate = servers[gate.measured[step.cell_id].cell.arm].bad_rate
            gate.apply(CellChecked(step.cell_id, (CheckOutcome("planted", "1", generator.random() < rate),)))
    raise AssertionError("the made-up run did not come to an end")


def answered(step: RunCell, server: Server, moment: tuple[float, float]) -> CellMeasured:
    clock, noise = moment
    cell = Cell(
        step.arm,
        step.case_id,
        replicate=step.replicate,
        server_epoch=f"epoch-{step.arm}",
        started_at=clock,
        ended_at=clock + 5,
        prompt_tokens=100,
        cached_tokens=0,
        processed_tokens=100,
        output_tokens=64,
        decode_ms=63_000 / (server.tokens_per_second * noise) if server.tokens_per_second else None,
        cold_proof=ColdProof.CACHE_OFF,
        output_sha256=f"{server.said(noise)} {step.case_id}" if server.outputs else None,
    )
    return CellMeasured(step.cell_id, cell, step.purpose, pair=step.pair, round=step.round, seed=step.seed)


def scored(gate: Gate, arm: str, case: str, bad: bool | None, **more: Any) -> None:
    """One more screen cell, checked."""
    cell = Cell(arm, case, server_epoch=f"epoch-{arm}", prompt_tokens=100, **more)
    cell_id = gate.next_cell_id()
    gate.apply(CellMeasured(cell_id, cell, Purpose.SCREEN))
    if cell.status is Status.OK:
        gate.apply(CellChecked(cell_id, (CheckOutcome("planted", "1", bad),)))


def opened(policy: Policy, name: str, greedy: bool = True) -> Gate:
    gate = Gate()
    gate.apply(planned(policy, name, greedy))
    return gate


def promoted_run() -> Gate:
    """A/A check, pairs, promotion."""
    gate = opened(replace(QUICK, aa_check=True), "one")
    for arm in ARMS:
        gate.apply(epoch(arm))
    return played(gate, {BASELINE: Server(0, 30, 0.02, "x"), CANDIDATE: Server(0, 31, 0.02, "x")})


def rolled_back_run() -> Gate:
    """A broken candidate: alarm, replicate, rollback; another build, declared; a cause written down."""
    gate = opened(replace(STANDARD, throughput=replace(STANDARD.throughput, margin=-0.02)), "two")
    gate.apply(epoch(BASELINE))
    gate.apply(epoch(CANDIDATE, "b2", findings=("something odd",)))
    gate = played(gate, {BASELINE: Server(0.02, 30, 0.1, "x"), CANDIDATE: Server(0.8, 20, 0.1, "y")})
    gate.apply(CauseNoted(1.0, "ada", "a broken card"))
    return gate


def clean_replicate_run() -> Gate:
    """An alarm from two bad prefills, then a candidate that behaves."""
    gate = opened(replace(STANDARD, replicate=replace(STANDARD.replicate, threshold=50, futility=0.04)), "two")
    for arm in ARMS:
        gate.apply(epoch(arm))
    for _ in range(2):
        scored(gate, CANDIDATE, "two-1", True, cached_tokens=0, processed_tokens=100)
    return played(gate, {BASELINE: Server(0, 30, 0.02, "x"), CANDIDATE: Server(0, 30, 0.02, "x")})


def lowered_baseline_run() -> Gate:
    """Both arms bad at times, so that pairs of every kind stand in the replicate."""
    gate = opened(replace(STANDARD, baseline_pass=0), "two")
    for arm in ARMS:
        gate.apply(epoch(arm))
    return played(gate, {BASELINE: Server(0.45, 30, 0.1, "x"), CANDIDATE: Server(0.5, 20, 0.1, "y")})


def mixed_run() -> Gate:
    """One cell of every class on both arms, an invalid one each, and an alarm that waits."""
    gate = opened(replace(STANDARD, alarm=replace(STANDARD.alarm, threshold=9.0)), "two", greedy=False)
    gate.apply(epoch(BASELINE))
    gate.apply(epoch(CANDIDATE, settings=(("n_ctx", "4096"),)))
    for arm, bad in ((BASELINE, True), (CANDIDATE, True)):
        scored(gate, arm, "two-1", bad, cached_tokens=0, processed_tokens=100)
        scored(gate, arm, "two-1", bad, cached_tokens=99, processed_tokens=1)
        scored(gate, arm, "two-1", bad, cached_tokens=30, processed_tokens=70)
        scored(gate, arm, "two-2", bad)
        scored(gate, arm, "two-3", bad, cached_tokens=99, processed_tokens=1)
        scored(gate, arm, "two-4", None, status=Status.INVALID)
        scored(gate, arm, "two-5", bad, cached_tokens=0, processed_tokens=100)
    return gate


def broken_run() -> Gate:
    """Checks that fail on the baseline: an Error."""
    gate = opened(STANDARD, "two")
    for arm in ARMS:
        gate.apply(epoch(arm))
    return played(gate, {BASELINE: Server(1, 30, 0.02, "x"), CANDIDATE: Server(0, 30, 0.02, "x")})


def noisy_run() -> Gate:
    """Two speed modes, outputs that differ at times, baseline against itself too."""
    gate = opened(replace(STANDARD, aa_check=True, throughput=replace(STANDARD.throughput, max_pairs=20)), "two")
    for arm in ARMS:
        gate.apply(epoch(arm))
    return played(gate, {BASELINE: Server(0, 30, 0.25, "?"), CANDIDATE: Server(0, 30, 0.25, "?")})


def later_replicate_run() -> Gate:
    """The third replicate of these profiles, kept apart by a restart, its clean exit after six units."""
    gate = Gate()
    policy = replace(STANDARD, replicate=replace(STANDARD.replicate, clean_units=6))
    gate.apply(replace(planned(policy, "two"), first_replicate=3))
    for arm in ARMS:
        gate.apply(epoch(arm))
    for _ in range(2):
        scored(gate, CANDIDATE, "two-1", True, cached_tokens=0, processed_tokens=100)
    gate.apply(ReplicateStarted(3, 5.0, 9))
    gate.apply(SeparationKept(3, 6.0, "restart", "one epoch before, another after"))
    return played(gate, {BASELINE: Server(0, 30, 0.02, "x"), CANDIDATE: Server(0, 30, 0.02, "x")})


def waiting_run() -> Gate:
    """A replicate that was started and not kept apart yet, and an undeclared difference nobody gave a value of."""
    gate = opened(STANDARD, "two")
    gate.apply(epoch(BASELINE, settings=(("n_ctx", "4096"),)))
    gate.apply(epoch(CANDIDATE, settings=(("n_ctx", "8192"),)))
    for _ in range(2):
        scored(gate, CANDIDATE, "two-1", True, cached_tokens=0, processed_tokens=100)
    gate.apply(ReplicateStarted(1, 5.0, 9))
    return gate


def unmeasured_pairs_run() -> Gate:
    """Pairs without decode times."""
    gate = opened(replace(STANDARD, throughput=replace(STANDARD.throughput, max_pairs=2)), "two")
    for arm in ARMS:
        gate.apply(epoch(arm))
    return played(gate, {BASELINE: Server(0, 0, 0.02, ""), CANDIDATE: Server(0, 0, 0.02, "")})


def spent_run(budget: int) -> Gate:
    """A run of clean cells that ends on its budget."""
    gate = opened(replace(QUICK, budget=budget), "two")
    for arm in ARMS:
        gate.apply(epoch(arm))
    return played(gate, {BASELINE: Server(0, 30, 0.02, "x"), CANDIDATE: Server(0, 30, 0.02, "x")})


def gateway_run() -> Gate:
    """Bad cells that went through a gateway: one that breaks and rewrites, one that cannot be told of."""
    gate = opened(STANDARD, "two")
    for arm in ARMS:
        gate.apply(epoch(arm))
    for case in ("two-1", "two-2", "two-3", "two-4", "two-1"):
        scored(gate, CANDIDATE, case, True, cached_tokens=0, processed_tokens=100, cold_proof=ColdProof.CACHE_OFF)

    def answer(bad: bool, **more: Any) -> ExtraAnswer:
        outcomes = (CheckOutcome("planted", "1", bad),)
        return ExtraAnswer(Status.OK, 1.0, prompt_tokens=100, cached_tokens=0, outcomes=outcomes, **more)

    direct = answer(False, model="one")
    through = answer(True, model="two", request_id="x", server_processed_tokens=5)
    gate.apply(GatewayCompared(0, 1.0, "http://g", direct, through, repeat=through))
    gone = ExtraAnswer(Status.INVALID, 2.0, reason="ConnectionRefused", detail="nobody there")
    gate.apply(GatewayCompared(3, 2.0, "http://h", gone, gone))
    refusal = ExtraAnswer(Status.INVALID, 2.0, reason="HttpError", detail="HTTP 400: no such field", http_status=400)
    gate.apply(GatewayCompared(2, 2.0, "http://h", answer(True), refusal))
    elsewhere = answer(False, request_id="y", server_processed_tokens=0)
    gate.apply(GatewayCompared(1, 3.0, "http://h", direct, elsewhere, repeat=answer(False, request_id="z")))
    lost = ExtraAnswer(Status.FAILED, 2.0, reason="ConnectionLost", detail="no complete answer")
    gate.apply(GatewayCompared(4, 4.0, "http://h", direct, lost))
    return gate


def other_gateway_run() -> Gate:
    """A gateway that strips the knob and asks the server each time; one refusal in other words, one that is away."""
    gate = gateway_run()
    for event in list(gate.compared):
        through = replace(event.through, detail="HTTP 413: too long", cached_tokens=90)
        repeat = None if event.repeat is None else replace(event.repeat, request_id="r", server_processed_tokens=9)
        gate.apply(replace(event, through=through, repeat=repeat, at=9.0))
    return gate


def untouched_run() -> Gate:
    """A plan and nothing else."""
    return opened(replace(STANDARD, budget=90), "two")


def other_shape_run() -> Gate:
    """A plan of a run whose every trait of shape is another than usual."""
    gate = Gate()
    gate.apply(replace(planned(STANDARD, "two"), baseline_url=None, shape=OTHER_SHAPE))
    gate.apply(SHOWN)
    return gate


def other_baseline_run() -> Gate:
    """Another earlier baseline shown, of which little is known."""
    gate = untouched_run()
    gate.apply(
        BaselineShown(9.0, "y.db", "then-2", "candidate", 7.0, 4, 0, 3, 0, None, None, cut_left_out=True),
    )
    return gate


def third_baseline_run() -> Gate:
    """The first one again, its server upgraded and a prefill worse."""
    gate = untouched_run()
    better = replace(
        SHOWN, build="b2", model="n", weights="v", request_interval=(0.1, 0.6), prefill_interval=(0.1, 0.7)
    )
    gate.apply(better)
    return gate


FLOORS = (
    StoredFloor("f.db", "floor-1", 1.0, 86_401.0, 28, 1, 0.02, 13, 14, (), "b1", "m", "w", True),
    StoredFloor("g.db", "floor-2", 2.0, 9.0, 24, 2, 0.03, 7, 12, (), "b2", "n", "v"),
    StoredFloor("h.db", "floor-3", 3.0, 9.0, 20, 3),
)
WATCHES = (Watching(3), Watching(2, (1.0,), 4, 40, 2, 3))
TRIGGERS = (
    Trigger("watch-1", ("two-1",), 5.0, ("e1",), 40, 4),
    Trigger("watch-2", ("two-2", "two-3"), 6.0, ("e2",), 50, 5, True),
    Trigger("watch-3", ("two-4",)),
)


def floor_run() -> Gate:
    """A floor's own run."""
    gate = Gate()
    gate.apply(fitted_plan(replace(planned(STANDARD, "two"), shape=Shape(baseline_alone=True))))
    gate.apply(epoch(BASELINE))
    return played(gate, {BASELINE: Server(0, 30, 0.02, "x")})


def run_by(floor: StoredFloor) -> Gate:
    """A run that goes by an earlier floor."""
    gate = Gate()
    gate.apply(fitted_plan(replace(planned(STANDARD, "two"), floor=floor)))
    return gate


def watch_run(watching: Watching) -> Gate:
    """A replay after a promotion, of a server that is bad throughout."""
    gate = Gate()
    alone = replace(planned(STANDARD, "two"), baseline_url=None, shape=Shape(candidate_alone=True), watching=watching)
    gate.apply(fitted_plan(alone))
    gate.apply(epoch(CANDIDATE))
    return played(gate, {CANDIDATE: Server(1, 30, 0.02, "x")})


def triggered_run(trigger: Trigger) -> Gate:
    """The replicate of such a replay's alarm, not begun."""
    gate = Gate()
    gate.apply(fitted_plan(replace(planned(STANDARD, "two"), trigger=trigger)))
    return gate


@pytest.fixture(scope="module")
def values() -> dict[str, list[Any]]:
    """Field path -> its values over all runs."""
    runs = (
        promoted_run,
        rolled_back_run,
        clean_replicate_run,
        lowered_baseline_run,
        mixed_run,
        broken_run,
        noisy_run,
        later_replicate_run,
        waiting_run,
        unmeasured_pairs_run,
        untouched_run,
        gateway_run,
        other_gateway_run,
        partial(spent_run, 16),
        partial(spent_run, 20),
        other_shape_run,
        other_baseline_run,
        third_baseline_run,
        floor_run,
        *(partial(run_by, floor) for floor in FLOORS),
        *(partial(watch_run, watching) for watching in WATCHES),
        *(partial(triggered_run, trigger) for trigger in TRIGGERS),
    )
    found: dict[str, list[Any]] = defaultdict(list)
    for run in runs:
        for path, value in flattened(verdict_json(judge(run()))):
            found[path].append(value)
    log = [Cell(CANDIDATE, "a", bad=False, prompt_tokens=9, cached_tokens=0, processed_tokens=9)]
    for path, value in flattened(verdict_json(write_verdict(audit_facts(log, QUICK, "log")))):
        found[path].append(value)
    return found


def test_the_readme_lists_exactly_the_fields_of_the_answer(values: dict[str, list[Any]]) -> None:
    assert set(values) == set(documented())


def test_every_field_differs_between_two_runs(values: dict[str, list[Any]]) -> None:
    objects = {path for path in values if any(other.startswith(f"{path}.") for other in values)}  # seen only as null
    told = {path: seen for path, seen in values.items() if path not in objects}
    constant = [path for path, seen in told.items() if len({repr(value) for value in seen if value is not None}) < 2]
    assert not constant, sorted(constant)


def test_a_field_is_null_only_where_the_readme_says_when(values: dict[str, list[Any]]) -> None:
    allowed = documented()
    assert [path for path, seen in values.items() if None in seen and not allowed[path]] == []


def test_where_the_readme_speaks_of_null_a_run_shows_it(values: dict[str, list[Any]]) -> None:
    seen_null = {path for path, seen in values.items() if None in seen}
    never = {path for path, null in documented().items() if null} - seen_null
    assert not never, sorted(never)


# The fields of an audit


def audit_documented() -> dict[str, bool]:
    """Field path -> whether the table of an audit lets it be null."""
    section = README.read_text(encoding="utf-8").split("## JSON fields of an audit")[1].split("\n## ")[0]
    found: dict[str, bool] = {}
    for line in section.splitlines():
        row = ROW.match(line)
        if row is None:
            continue
        names = [row[1].replace("SIDE", side) for side in ("by_request", "by_prefill", "by_prompt")]
        each = [
            name.replace("EACH", of) for name in names for of in ("restated.baseline", "restated.candidate", "labels[]")
        ]
        found.update(dict.fromkeys(each, bool(row[3].strip())))
    return found


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    """Field path -> its values over the audits of several logs."""
    folder = tmp_path_factory.mktemp("audits")

    def timed(arm: str, count: int, **more: Any) -> list[Cell]:
        return [
            Cell(arm, f"c{n}", bad=n % 2 == 0, prompt_tokens=100 * n + 100, prefill_ms=9.0 + n, **more)
            for n in range(count)
            for _ in range(2)
        ]

    known = {"cached_tokens": 0, "processed_tokens": 100}
    stamp = {"started_at": 1.5, "ended_at": 2.5, "output_sha256": "o"}
    logs = {
        "one": [*timed(CANDIDATE, 9), *timed(BASELINE, 5), Cell(BASELINE, "c0", bad=True, prompt_tokens=100, **known)],
        "two": [*timed(BASELINE, 3), Cell(CANDIDATE, "c0", bad=True, prompt_tokens=100, prefill_ms=9.0, **known)],
        "three": [Cell(arm, "a", bad=arm == BASELINE, prompt_tokens=100, **known) for arm in ARMS for _ in range(4)],
        "four": [Cell(CANDIDATE, "a", bad=False)],
        "five": [Cell(BASELINE, "a", bad=False, prompt_tokens=100, prefill_ms=99.0, **known)] * 2,
        "six": [
            Cell(arm, "a", bad=False, prompt_tokens=100, prefill_ms=ms, **known)
            for arm in ARMS
            for ms in (99.0, *[1.0] * 9)
        ],
        "seven": [
            Cell(arm, case, bad=False, prompt_tokens=100, request_id=request, **stamp, **known)
            for arm in ARMS
            for case, request in (("a", "r"), ("a", "s"), ("b", "r"))
        ],
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(registry, "FORMATS", (*registry.FORMATS, TabLog()))
        yield told_of(logs, folder)


def told_of(logs: dict[str, list[Cell]], folder: Path) -> dict[str, list[Any]]:
    """What the audits of these logs, and of one with labels and damage, tell by field path."""
    found: dict[str, list[Any]] = defaultdict(list)
    paths = [str(write_log(folder / name, cells)) for name, cells in logs.items()]
    rows = ["one|a|0|9|x", "two|a|-|9|x", "two|a|-|9|x", "x", "y"]
    tabs = folder / "tabs"
    tabs.write_bytes(MARK + "".join("\t".join(row.split("|")) + "\n" for row in rows).encode())
    for arguments in (*([path] for path in (*paths, str(tabs))), *labelled(folder)):
        told = CliRunner().invoke(audit_command, [*arguments, "--json"], standalone_mode=False)
        assert told.exception is None, told.exception
        whole = json.loads(told.stdout)
        for part in ("log", "claim", "restated", "labels"):
            for path, value in flattened({part: whole[part]}):
                empty = path in (part, "log.unread", "log.absent") and not value
                if not path.startswith(("log.formats.", "log.labels.")) and not empty:
                    found[path].append(value)
        found["log.formats"].append(whole["log"]["formats"])
        found["log.labels"].append(whole["log"]["labels"])
    return found


def labelled(folder: Path) -> Iterator[list[str]]:
    """Audits of records with labels: two that stand apart, three of which one is left out, and with requests alone."""
    names = ("label", "case_id", "prompt", "prompt_tokens", "cached_tokens", "processed_tokens", "prefill_ms", "bad")
    names += ("request_id", "started_at", "ended_at", "output_sha256")
    rows = [
        *(f"quick,q{n},prompt {n},{100 << n},0,{100 << n},{10 + n},{'true' if n % 2 else 'false'}" for n in range(6)),
        *("quick,q1,prompt 1,200,199,1,2,true", "quick,q1,prompt 1,200,60,140,5,false", "quick,q9,zz,50,49,1,1,"),
        *["quick,q2,prompt 2,400,0,400,0.1,false"] * 6,
        *(f"slow,s{n},words {n},{100 << n},,,{10 << n},false" for n in range(4)),
    ]
    rows = [f"{row},,,," for row in rows]
    rows += [
        f"quick,{case},,100,0,100,,false,{key},1790000001.5,1790000002.5,said"
        for case, key in (("m", "r"), ("m", "s"), ("n", "r"))
    ]
    table, asked = folder / "labels.csv", folder / "asked.jsonl"
    table.write_text("\n".join((",".join(names), *rows, "torn", "third,t,t,1,,,,,,,,")) + "\n")
    body = {"messages": [{"role": "user", "content": "x"}]}
    asked.write_text(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}))
    yield [str(table)]
    yield [str(table), str(asked), "--baseline-label", "slow", "--candidate-label", "quick"]


def test_the_readme_lists_exactly_the_fields_of_an_audit(audits: dict[str, list[Any]]) -> None:
    counts = {f"labels[].{name}" for name in ARM_FIELDS}
    assert set(audits) - counts == set(audit_documented())
    assert counts <= set(audits)


def test_every_field_of_an_audit_differs_between_logs(audits: dict[str, list[Any]]) -> None:
    same = [path for path, seen in audits.items() if len({json.dumps(value) for value in seen}) < 2]
    assert not same, "\n".join(same)


def test_a_field_of_an_audit_is_null_exactly_where_the_readme_says_when(audits: dict[str, list[Any]]) -> None:
    null = {path for path, seen in audits.items() if None in seen and not path.endswith("_interval")}
    allowed = {path for path, may in audit_documented().items() if may}
    assert null - allowed == set()
    assert {path.rpartition(".")[2] for path in allowed} == {path.rpartition(".")[2] for path in null}
