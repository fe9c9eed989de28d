"""`prefillgate check`: the checks on one output, for a bot that posts markers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from prefillgate.api.check_type import ABOUT
from prefillgate.cli.completing import POLICY
from prefillgate.cli.errors import BadInput
from prefillgate.cli.problems import json_line, say_problems
from prefillgate.cli.server_options import unvalidated_judge_option

if TYPE_CHECKING:
    from prefillgate.api.check_spec import CheckSpec
    from prefillgate.core.journal import CheckOutcome
    from prefillgate.replay.checks import Check

EXIT_CLEAN, EXIT_ERRED, EXIT_FAILED = 0, 1, 10
MAX_BYTES = 16 * 1024 * 1024
CLEAN, ERRED = "prefillgate: clean", "prefillgate: check-error"


_ELSEWHERE = {
    "Expect": "--expect KIND=VALUE",
    "ForeignText": "(in a replay set only)",
    "Judge": "(in a policy only)",
}


def _epilog() -> str:
    lines = ["\b", "Checks (NAME[=VALUE], the line it prints when it fails, what is bad):"]
    for kind, about in ABOUT.items():
        name = about.short_form or _ELSEWHERE[kind]
        lines += [f"  {name}", f"      prefillgate: {about.marker}", f"      {about.bad}"]
    lines += [
        "",
        "\b",
        "Exit codes: 0 every check passed, 10 a check failed, 1 a check could not be made, 2 bad input.",
    ]
    lines += ["A check that could not be made prints `prefillgate: check-error` and is never a pass."]
    return "\n".join(lines)


@click.command(name="check", epilog=_epilog(), context_settings={"max_content_width": 120})
@click.option("--policy", type=POLICY, metavar="NAME|FILE", help="Take the checks of this policy.")
@click.option("--check", "checks", multiple=True, metavar="NAME[=VALUE]", help="Make this check; may be repeated.")
@click.option("--expect", metavar="KIND=VALUE", help="Want this answer: exact=TEXT, contains=TEXT or json=JSON.")
@click.option("--finish-reason", metavar="REASON", help="The finish reason that the server reported.")
@unvalidated_judge_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of marker lines.")
def command(
    policy: str | None,
    checks: tuple[str, ...],
    expect: str | None,
    finish_reason: str | None,
    unvalidated_judge: bool,
    as_json: bool,
) -> int:
    """Judge one output, read from standard input, and print a stable marker line for each failed check.

    Without --policy and --check the default checks are made: not empty, no loop, no leaked template token, no bare
    verdict where a verdict line occurs. With --finish-reason an answer cut at its token limit fails as well.

    \b
    Example: a review bot posts what this prints, and a merge poller looks for the marker.
        prefillgate check --check min_words=20 --check bare_verdict < review.txt

    With --json: {"outcome": "clean" | "failed" | "error", "markers": [...], "checks": [{"check", "version", "bad",
    "detail", "text", "marker"}]}; `bad` is null for a check that could not be made, `text` is what a program or a
    model that was asked said.
    """
    from prefillgate.api.errors import InputError

    request = _Request(policy, checks, expect, finish_reason, unvalidated_judge)
    try:
        answers = _judge(request, _read_stdin())
    except InputError as error:
        return say_problems(error)
    return _print_json(answers) if as_json else _print_lines(answers)


@dataclass(frozen=True, slots=True)
class _Request:
    policy: str | None
    checks: tuple[str, ...]
    expect: str | None
    finish_reason: str | None
    unvalidated_judge: bool


@dataclass(frozen=True, slots=True)
class _Answer:
    outcome: CheckOutcome
    marker: str

    @property
    def line(self) -> str | None:
        if self.outcome.bad is None:
            return ERRED
        return f"prefillgate: {self.marker}" if self.outcome.bad else None


def _read_stdin() -> str:
    raw = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise BadInput(f"standard input is longer than {MAX_BYTES} bytes (allowed: up to {MAX_BYTES} bytes)")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise BadInput(
            f"standard input: invalid UTF-8 at byte {error.start + 1} (0x{byte:02x}) (allowed: UTF-8 text)"
        ) from error


def _judge(request: _Request, content: str) -> tuple[_Answer, ...]:
    import asyncio

    from prefillgate.api.replay_set import COMPLETIONS, Case
    from prefillgate.core.quality import Output
    from prefillgate.replay.checks import CheckSuite

    specs = _specs(request)
    case = Case("stdin", COMPLETIONS, {}, expect=_expect(request.expect))
    suite = CheckSuite(_compiled(specs, request.unvalidated_judge), {})
    outcomes = asyncio.run(suite.run(case, Output(content, finish_reason=request.finish_reason)))
    return tuple(_Answer(outcome, spec.type.marker) for outcome, spec in zip(outcomes, specs, strict=True))


def _compiled(specs: tuple[CheckSpec, ...], unvalidated_judge: bool) -> tuple[Check, ...]:
    from prefillgate.api.errors import InputError
    from prefillgate.replay.checks import compile_checks, refuse_unvalidated

    checks = compile_checks(specs, "", InputError)
    if not unvalidated_judge:
        refuse_unvalidated(checks, "")
    return checks


def _specs(request: _Request) -> tuple[CheckSpec, ...]:
    """The declared checks, else the default ones; `expect` and `cut` where there is something to judge."""
    from prefillgate.api.check_spec import CheckSpec, read_check_list
    from prefillgate.api.check_type import CheckType
    from prefillgate.api.errors import InputError
    from prefillgate.api.policy import load_policy
    from prefillgate.replay.checks import DEFAULT_CHECKS

    given = read_check_list(list(request.checks), "--check")
    if given.problems:
        raise InputError(*given.problems)
    policy = load_policy(request.policy) if request.policy is not None else None
    if policy is not None and policy.checks is not None:
        base = policy.checks
    elif policy is not None or not request.checks:
        base = read_check_list(list(DEFAULT_CHECKS), "").specs
    else:
        base = ()
    added = [CheckSpec(CheckType.EXPECT, "expect")] if request.expect is not None else []
    added += [CheckSpec(CheckType.CUT, "cut")] if request.finish_reason is not None else []
    merged = {spec.name: spec for spec in (*base, *given.specs, *added)}
    return tuple(spec for spec in merged.values() if not _needs_a_run(spec))


def _needs_a_run(spec: CheckSpec) -> bool:
    """Whether the check compares with another output, which standard input does not hold."""
    from prefillgate.api.check_type import CheckType

    if spec.type not in (CheckType.EQUAL_TO_BASELINE, CheckType.FOREIGN_TEXT):
        return False
    click.echo(f"prefillgate: note: {spec.name} needs other outputs and was left out", err=True)
    return True


def _expect(text: str | None) -> Any:
    from prefillgate.api.replay_set import EXPECT_KINDS
    from prefillgate.core.quality_expect import Expect, NotStrictJson, parse_json

    if text is None:
        return None
    kind, equals, value = text.partition("=")
    if kind not in EXPECT_KINDS or not equals or not value.strip():
        raise BadInput(f"--expect {text[:80]} (allowed: exact=TEXT, contains=TEXT, json=JSON)")
    try:
        return Expect(kind, parse_json(value) if kind == "json" else value)
    except NotStrictJson as error:
        raise BadInput(f"--expect json: not JSON: {error}") from error


def _exit_code(answers: tuple[_Answer, ...]) -> int:
    """A failed check decides, even beside one that could not be made."""
    if any(answer.outcome.bad for answer in answers):
        return EXIT_FAILED
    return EXIT_ERRED if not answers or any(answer.outcome.bad is None for answer in answers) else EXIT_CLEAN


def _print_lines(answers: tuple[_Answer, ...]) -> int:
    if not answers:
        click.echo("prefillgate: error: no check was left to make", err=True)
    for answer in answers:
        if answer.line is not None:
            click.echo(answer.line)
            click.echo(f"prefillgate: {answer.outcome.check}: {answer.outcome.detail}", err=True)
    code = _exit_code(answers)
    if code == EXIT_CLEAN:
        click.echo(CLEAN)
    return code


def _print_json(answers: tuple[_Answer, ...]) -> int:
    code = _exit_code(answers)
    outcome = {EXIT_CLEAN: "clean", EXIT_FAILED: "failed", EXIT_ERRED: "error"}[code]
    lines = [answer.line for answer in answers if answer.line is not None]
    checks = [
        {
            "check": answer.outcome.check,
            "version": answer.outcome.version,
            "bad": answer.outcome.bad,
            "detail": answer.outcome.detail,
            "text": answer.outcome.text,
            "marker": answer.line,
        }
        for answer in answers
    ]
    markers = lines or ([CLEAN] if code == EXIT_CLEAN else [])
    click.echo(json_line({"outcome": outcome, "markers": markers, "checks": checks}))
    return code
