"""`prefillgate replayset`: look at a replay set before a run spends prefills on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.completing import ENGINE, REPLAY_SET
from prefillgate.cli.errors import BadInput
from prefillgate.cli.import_command import command as import_command
from prefillgate.cli.pick_command import command as pick_command
from prefillgate.cli.problems import json_line, say_problems
from prefillgate.cli.record_command import command as record_command
from prefillgate.cli.try_command import command as try_command

if TYPE_CHECKING:
    from prefillgate.api.errors import Problem
    from prefillgate.api.replay_set import Case
    from prefillgate.engines.base import Engine, PreparedRequest

MAX_KEPT_PROBLEMS = 100
MAX_SAID_PROBLEMS = 10  # what leaves room on a screen for the warnings and the command itself
EXAMPLE_SEED = 1
EXAMPLE_NONCE = "prefillgate-0123456789abcdef"
EXAMPLE_URL = "http://127.0.0.1:1"


@click.group(name="replayset")
def command() -> None:
    """Lint, show, try, import, record or thin out a replay set.

    A replay set is OpenAI Batch JSONL: one case a line with custom_id, method (POST), url (/v1/chat/completions or
    /v1/completions) and body, the request as your application sends it. The optional key `prefillgate` of a line
    holds `checks` (a list of NAME[=VALUE] or objects), `expect` (exact, contains or json) and `canary` (a string of
    this prompt that no other case may answer). demo, short and four name the sets that come with the package.

    A conversation is one case per turn: each line carries the recorded history up to its turn, so that every case is
    one prompt with one answer, whatever a model would have answered to the earlier turns.
    """


@command.command()
@click.argument("replay_set", type=REPLAY_SET, metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def lint(replay_set: str, as_json: bool) -> int:
    """Read FILE line by line; print its cases, their lengths, problems and warnings.

    Exit codes: 0 the set can be used (there may be warnings), 2 it cannot.

    With --json: {"name", "file", "sha256" (null when there are problems), "cases": [{"case_id", "line", "path",
    "sha256", "characters", "max_tokens", "greedy", "messages", "expect", "checks", "canary"}], "problems": [{"where",
    "field", "message", "allowed"}], "warnings": [...]}.
    """
    found = _Lint(replay_set)
    if as_json:
        cases = list(found.cases())
        click.echo(json_line(found.document(cases)))
    else:
        for case in found.cases():
            click.echo(_row(case))
        _say_lint(found)
    return 2 if found.problems else 0


command.add_command(try_command)
command.add_command(import_command)
command.add_command(pick_command)
command.add_command(record_command)


class _Lint:
    """One pass over a file: cases as they come, problems and warnings once they are all read."""

    def __init__(self, replay_set: str) -> None:
        from prefillgate.replay.replay_set import SetDigest, find_replay_set
        from prefillgate.replay.set_lint import SetLint

        self.file = find_replay_set(replay_set)
        self.digest = SetDigest()
        self.notes = SetLint()
        self.problems: list[Problem] = []
        self.problem_count = 0

    def cases(self) -> Iterator[dict[str, Any]]:
        from prefillgate.api.errors import Problem
        from prefillgate.replay.checks import problems_of_case
        from prefillgate.replay.replay_set import scan

        for found in scan(self.file):
            if isinstance(found, Problem):
                self._note(found)
                continue
            for problem in problems_of_case(found, str(self.file)):
                self._note(problem)
            self.digest.add(found)
            self.notes.add(found)
            yield _summary(found)

    def _note(self, problem: Problem) -> None:
        self.problem_count += 1
        if len(self.problems) < MAX_KEPT_PROBLEMS:
            self.problems.append(problem)

    def document(self, cases: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "name": self.file.stem,
            "file": str(self.file),
            "sha256": None if self.problems else self.digest.sha256,
            "cases": cases,
            "problems": [
                {"where": p.where, "field": p.field, "message": p.message, "allowed": p.allowed} for p in self.problems
            ],
            "warnings": list(self.notes.warnings()),
        }


def _summary(case: Case) -> dict[str, Any]:
    return {
        "case_id": case.case_id,
        "line": case.line,
        "path": case.path,
        "sha256": case.sha256,
        "characters": case.characters,
        "max_tokens": case.max_tokens,
        "greedy": case.greedy,
        "messages": len(case.body["messages"]) if "messages" in case.body else None,
        "expect": None if case.expect is None else case.expect.kind,
        "checks": [spec.name for spec in case.checks],
        "canary": case.canary,
    }


def _row(case: dict[str, Any]) -> str:
    from prefillgate.api.errors import clean

    limit = "no limit" if case["max_tokens"] is None else f"{case['max_tokens']} tokens out"
    judged = [*case["checks"], *([f"expect {case['expect']}"] if case["expect"] else [])]
    parts = [
        f"{case['line']:>5}  {clean(case['case_id'])}",
        case["path"],
        f"{case['characters']} characters",
        limit,
        "greedy" if case["greedy"] else "sampled",
        ", ".join(judged) or "no checks of its own",
    ]
    return "  ".join(parts)


def _say_lint(found: _Lint) -> None:
    from prefillgate.cli.speaking import say

    for problem in found.problems[:MAX_SAID_PROBLEMS]:
        say(f"prefillgate: error: {problem}", "error", "error")
    if found.problem_count > MAX_SAID_PROBLEMS:
        more = found.problem_count - MAX_SAID_PROBLEMS
        say(f"prefillgate: error: and {more} more (--json holds the first {MAX_KEPT_PROBLEMS})", "error", "error")
    for warning in found.notes.warnings():
        click.echo(f"prefillgate: warning: {warning}", err=True)
    if found.problems:
        click.echo(f"problems: {found.problem_count}; the set cannot be used")
    else:
        click.echo(f"{found.notes.cases} cases, sha256 {found.digest.sha256}")


@dataclass(frozen=True, slots=True)
class _AsSent:
    """How bodies are prepared for a server that is not asked."""

    engine: Engine

    def prepare(self, case: Case) -> PreparedRequest:
        """By the first proof of a fresh prefill that the engine has for the case's route."""
        from prefillgate.core.cells import ColdProof
        from prefillgate.engines.base import EngineError
        from prefillgate.replay.request import Sending, prepare

        why: EngineError | None = None
        for proof in ColdProof:
            try:
                return prepare(case, self.engine, Sending(None, EXAMPLE_SEED, EXAMPLE_NONCE, proof))
            except EngineError as error:
                why = error
        raise BadInput(f"case {case.case_id}: {why}") from why


@command.command()
@click.argument("replay_set", type=REPLAY_SET, metavar="FILE")
@click.option("--case", "wanted", multiple=True, metavar="ID", help="Show this case only; may be repeated.")
@click.option(
    "--as-sent", is_flag=True, help="Show the exact body that would be sent, and what the gate changes in it."
)
@click.option(
    "--engine",
    type=ENGINE,
    default="llama.cpp",
    show_default=True,
    metavar="NAME",
    help="The server family for --as-sent.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(replay_set: str, wanted: tuple[str, ...], as_sent: bool, engine: str, as_json: bool) -> int:
    """Show the cases of FILE with their bodies.

    The gate changes only model, n, seed, stream, stream_options and what forces a fresh prefill: the engine's own
    knob (llama.cpp: cache_prompt; vllm and sglang: cache_salt, with include_metrics, return_cached_tokens_details
    and return_meta_info, which make a reply tell its effect), or a nonce on the first line of the prompt. Messages,
    tools, images, response_format and chat template arguments go out as written. --as-sent shows the seed and the
    nonce with example values (each cell has its own) and leaves the model's name as it stands (a run sends the
    server's).

    With --json: {"name", "sha256", "cases": [...]}, each case as in lint and with "body"; with --as-sent also
    "as_sent": {"path", "body", "changes": [{"field", "from", "to"}]}, `from` null for a field that was not there.
    """
    from prefillgate.api.errors import ReplaySetError
    from prefillgate.replay.replay_set import load_replay_set

    try:
        loaded = load_replay_set(replay_set)
    except ReplaySetError as error:
        return say_problems(error)
    missing = sorted(set(wanted) - {case.case_id for case in loaded.cases})
    if missing:
        raise BadInput(f"--case {missing[0]}: no such case in {loaded.source} (replayset lint lists them)")
    sent = _as_sent(engine) if as_sent else None
    cases = [_shown(case, sent) for case in loaded.cases if not wanted or case.case_id in wanted]
    if as_json:
        click.echo(json_line({"name": loaded.name, "sha256": loaded.sha256, "cases": cases}))
        return 0
    for case in cases:
        _print_case(case)
    return 0


def _as_sent(name: str) -> _AsSent:
    """The engine of that name."""
    from prefillgate.engines.base import TerminalEngineError
    from prefillgate.engines.registry import create

    try:
        return _AsSent(create(name, EXAMPLE_URL))
    except TerminalEngineError as error:
        raise BadInput(f"--engine: {error}") from error


def _shown(case: Case, sent: _AsSent | None) -> dict[str, Any]:
    shown = {**_summary(case), "body": case.body}
    if sent is not None:
        request = sent.prepare(case)
        changes = [{"field": name, "from": old, "to": new} for name, old, new in request.changes]
        shown["as_sent"] = {"path": request.path, "body": request.body, "changes": changes}
    return shown


def _print_case(case: dict[str, Any]) -> None:
    click.echo(_row(case))
    sent = case.get("as_sent")
    click.echo(_pretty(sent["body"] if sent else case["body"]))
    for change in sent["changes"] if sent else ():
        from prefillgate.api.errors import shown

        click.echo(f"  changed: {change['field']} from {shown(change['from'])} to {shown(change['to'])}")
    click.echo()


def _pretty(body: Any) -> str:
    """JSON for reading: what could steer a terminal is escaped, as JSON allows inside strings."""
    from prefillgate.api.errors import clean

    text = json.dumps(body, ensure_ascii=False, indent=2)
    return "\n".join(clean(line) for line in text.split("\n"))
