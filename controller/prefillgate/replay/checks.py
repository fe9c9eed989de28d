"""The checks of a run: built once from the policy and the replay set, then applied to every output.

The pure text checks are `prefillgate.core.quality*`; here stand those that need a library (regular expressions,
JSON Schema, CEL) and the plug-ins. Whatever can be wrong with a check is said when the suite is built. A check that
raises gives an outcome whose `bad` is None: an Error, never a pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, replace

from prefillgate.api.check_spec import CheckSpec, read_check_list
from prefillgate.api.check_type import CheckType
from prefillgate.api.errors import InputError, PolicyError, Problem, ReplaySetError, clean
from prefillgate.api.policy import PolicyDocument
from prefillgate.api.replay_set import Case
from prefillgate.core.agreement import MIN_EXAMPLES
from prefillgate.core.journal import CheckOutcome
from prefillgate.core.quality import Finding, Output
from prefillgate.replay.check_kinds import BUILDERS
from prefillgate.replay.check_parts import Asking, CheckError, Judge, Judged, Told
from prefillgate.replay.judge_check import JudgeCheck
from prefillgate.replay.replay_set import ReplaySet

#: What an output is judged by when neither the policy nor its line declares a check.
DEFAULT_CHECKS = ("not_empty", "loop", "template_tokens", "bare_verdict")
MAX_DETAIL = 300


@dataclass(frozen=True, slots=True)
class Check:
    """A check ready to run. `judge` answers a `Finding` for a bad output and None for a good one; one that asks
    a program or a server answers an awaitable of `Told`."""

    name: str
    version: str
    judge: Judge | Asking

    async def run(self, judged: Judged) -> CheckOutcome:
        """The outcome on one output; whatever the check raises is its Error."""
        try:
            found = self.judge(judged)
            told = await found if isinstance(found, Awaitable) else Told(found)
        except CheckError as error:
            return CheckOutcome(self.name, self.version, None, _short(str(error)), error.text)
        except Exception as error:
            return CheckOutcome(self.name, self.version, None, _short(f"{type(error).__name__}: {error}"))
        if told.finding is None:
            return CheckOutcome(self.name, self.version, False, text=told.text)
        if not isinstance(told.finding, Finding):
            return CheckOutcome(self.name, self.version, None, f"answered {type(told.finding).__name__}, not a finding")
        return CheckOutcome(self.name, self.version, True, _short(told.finding.detail), told.text)


def _short(text: str) -> str:
    line = clean(" ".join(text.split()))
    return line if len(line) <= MAX_DETAIL else line[: MAX_DETAIL - 1] + "…"


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What is known beyond the output: the baseline's output of the same case and round, if there is one, and
    strings that must not appear in it (nonces of other cells)."""

    baseline: Output | None = None
    foreign: tuple[str, ...] = ()


NO_CONTEXT = CheckContext()


@dataclass(frozen=True)
class CheckSuite:
    """Every check of a run. `cases` maps a case to the checks of its own; others share `common`."""

    common: tuple[Check, ...]
    cases: Mapping[str, tuple[Check, ...]]
    canaries: tuple[tuple[str, str], ...] = ()  # case id and canary

    @staticmethod
    def from_policy(
        policy: PolicyDocument, replay_set: ReplaySet | None = None, unvalidated_judge: bool = False
    ) -> CheckSuite:
        """The checks that `policy` and the lines of `replay_set` declare.

        A line's check replaces the policy's of the same name on that case. A case with an `expect` gets `expect`;
        `cut` is always there; `foreign_text` is there when a case carries a canary. Raises `PolicyError` or
        `ReplaySetError` for a check that cannot work (a pattern, a schema, an expression, an unknown plug-in), and
        unless `unvalidated_judge` for a judge with too few labelled examples.
        """
        declared = policy.checks
        where = str(policy.source) if policy.source else f"policy {policy.name}"
        own = compile_checks(declared or (), where, PolicyError)
        base = own if declared is not None else default_checks()
        every = replay_set.cases if replay_set is not None else ()
        canaries = tuple((case.case_id, case.canary) for case in every if case.canary is not None)
        always = compile_checks(_always(bool(canaries)), "", PolicyError)
        source = str(replay_set.source or replay_set.name) if replay_set is not None else ""
        cases: dict[str, tuple[Check, ...]] = {}
        for case in every:
            if case.checks or case.expect is not None:
                mine = compile_checks(case.checks, f"{source}:{case.line}", ReplaySetError)
                start = own if declared is not None or mine else base
                cases[case.case_id] = _merged(start, mine, _expect_check(case), always)
        suite = CheckSuite(_merged(base, always), cases, canaries)
        if not unvalidated_judge:
            refuse_unvalidated(own, where)
        if replay_set is not None:
            _flags_name_checks(policy, suite, where)
        return suite

    def checks_for(self, case: Case) -> tuple[Check, ...]:
        """The checks of a case, in the order they run."""
        return self.cases.get(case.case_id, self.common)

    def names(self) -> tuple[str, ...]:
        """The name of every check of any case, each once, in order."""
        found: dict[str, None] = {}
        for checks in (self.common, *self.cases.values()):
            found.update(dict.fromkeys(check.name for check in checks))
        return tuple(found)

    def judges(self) -> tuple[tuple[Check, JudgeCheck], ...]:
        """Every check that asks a model, with what it asks."""
        return judges_of(self.common)

    async def run(self, case: Case, output: Output, context: CheckContext = NO_CONTEXT) -> tuple[CheckOutcome, ...]:
        """The outcome of every check of `case` on `output`, one after another.

        Never raises for what an output holds, nor for a program or a server that cannot be asked.
        """
        foreign = (*(canary for owner, canary in self.canaries if owner != case.case_id), *context.foreign)
        judged = Judged(case, well_formed(output), context.baseline and well_formed(context.baseline), foreign)
        return tuple([await check.run(judged) for check in self.checks_for(case)])


def _always(canaries: bool) -> tuple[CheckSpec, ...]:
    kinds = (CheckType.CUT, CheckType.FOREIGN_TEXT) if canaries else (CheckType.CUT,)
    return tuple(CheckSpec(kind, kind.default_name) for kind in kinds)


def default_checks() -> tuple[Check, ...]:
    """The checks of `DEFAULT_CHECKS`."""
    return compile_checks(read_check_list(list(DEFAULT_CHECKS), "").specs, "", PolicyError)


def compile_checks(specs: Iterable[CheckSpec], where: str, error: type[InputError]) -> tuple[Check, ...]:
    """The checks of `specs`, ready to run; `where` and `error` name the file that declared them."""
    checks: list[Check] = []
    problems: list[Problem] = []
    for spec in specs:
        try:
            built = BUILDERS[spec.type](spec)
        except CheckError as broken:
            problems.append(Problem(where, f"check {spec.name}", clean(str(broken)), broken.allowed))
        else:
            checks.append(Check(spec.name, built.version + spec.version_suffix, built.judge))
    if problems:
        raise error(*problems)
    return tuple(checks)


def problems_of_case(case: Case, name: str) -> tuple[Problem, ...]:
    """What is wrong with the checks of a case of the replay set `name`: what every reader of one refuses beside what
    `scan` finds."""
    try:
        compile_checks(case.checks, f"{name}:{case.line}", ReplaySetError)
    except ReplaySetError as error:
        return error.problems
    return ()


def judges_of(checks: Iterable[Check]) -> tuple[tuple[Check, JudgeCheck], ...]:
    """Those of `checks` that ask a model, with what they ask."""
    return tuple((check, check.judge) for check in checks if isinstance(check.judge, JudgeCheck))


def refuse_unvalidated(checks: Iterable[Check], where: str) -> None:
    """Raise `PolicyError` for a judge whose labelled examples are too few to tell what its word is worth."""
    for check, judge in judges_of(checks):
        if judge.shortcoming is not None:
            allowed = (
                f"examples: a file of {MIN_EXAMPLES} labelled outputs or more, of both labels; or --unvalidated-judge"
            )
            what = f"this judge is not validated: {judge.shortcoming}"
            raise PolicyError(Problem(where, f"check {check.name}", what, allowed))


def _expect_check(case: Case) -> tuple[Check, ...]:
    if case.expect is None:
        return ()
    return compile_checks((CheckSpec(CheckType.EXPECT, "expect"),), "", ReplaySetError)


def _merged(*lists: tuple[Check, ...]) -> tuple[Check, ...]:
    """One list; of two checks of one name the later takes the earlier's place."""
    found: dict[str, Check] = {}
    for checks in lists:
        found.update((check.name, check) for check in checks)
    return tuple(found.values())


def _flags_name_checks(policy: PolicyDocument, suite: CheckSuite, where: str) -> None:
    known = suite.names()
    problems = [
        Problem(where, f"spec.flags[{place}].checks", f"no check is named {name}", ", ".join(known))
        for place, flag in enumerate(policy.policy.flags)
        for name in flag.checks
        if name not in known
    ]
    if problems:
        raise PolicyError(*problems)


def well_formed(output: Output) -> Output:
    """`output` without lone surrogates, which a model can write as JSON escapes and no library takes."""
    return replace(
        output,
        content=_characters(output.content),
        reasoning=_characters(output.reasoning),
        tool_calls=_characters(output.tool_calls),
    )


def _characters(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
