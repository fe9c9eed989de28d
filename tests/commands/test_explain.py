"""`explain`: for every reason a page that is true of its store, with the next command exactly as it must be typed."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from prefillgate.cli.budget import MENDABLE
from prefillgate.cli.explain import command
from prefillgate.cli.main import COMMANDS, group, main
from prefillgate.cli.next_steps import Place, next_steps
from prefillgate.core.cells import CANDIDATE
from prefillgate.core.decision import ERRORS, RULES, Reason
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CauseNoted, Difference, Event, Planned
from prefillgate.core.judge import facts_of, judge
from prefillgate.core.verdict import Promotion, Rollback, Verdict
from prefillgate.evidence import SqliteJournal
from prefillgate.report.clean import is_clean
from prefillgate.report.explain import Page, Step, render_explanation
from prefillgate.report.paper import columns_of
from prefillgate.report.reasons import RULE_SAYS
from tests.support import verdicts
from tests.unit.test_judge import JOURNALS

BEGUN = ("run", "--baseline", "http://b", "--candidate", "http://c", "--replay-set", "my set.jsonl", "--budget", "40")
HEADINGS = ("What was seen", "What follows", "What would change it", "Next")
JUDGING_NOBODY = {Reason.FLOOR_MEASURED, Reason.NO_ALARM}
GOING_ON = {Reason.REPLICATE_DUE, Reason.REPLICATE_RUNNING, Reason.MORE_EVIDENCE_NEEDED}

each_reason = pytest.mark.parametrize("reason", list(JOURNALS), ids=str)
Keep = Callable[..., "Kept"]


class Kept:
    """A store that was made for one reason, and what `explain` says of it."""

    def __init__(self, path: Path, gate: Gate) -> None:
        self.path, self.gate, self.verdict = path, gate, judge(gate)

    def page(self) -> str:
        result: Result = CliRunner().invoke(command, [str(self.path)], standalone_mode=False)
        assert (result.return_value, result.exception) == (0, None)
        return result.stdout

    def parts(self) -> dict[str, str]:
        """What stands under each heading, its lines joined."""
        found: dict[str, list[str]] = {}
        for line in self.page().splitlines()[1:]:
            if line in HEADINGS:
                found[line] = []
            elif line:
                found[list(found)[-1]].append(line.strip())
        return {heading: " ".join(lines) for heading, lines in found.items()}

    def commands(self) -> list[str]:
        return [line.strip() for line in self.page().splitlines() if line.startswith("    prefillgate ")]


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keep:
    """A store of the events that lead to a reason, each noted as the gate folds it."""

    def make(reason: Reason, begun: tuple[str, ...] = BEGUN, **plan: object) -> Kept:
        events: list[Event] = []
        apply = Gate.apply

        def noted(gate: Gate, event: Event) -> None:
            events.append(event)
            apply(gate, event)

        with monkeypatch.context() as patched:
            patched.setattr(Gate, "apply", noted)
            JOURNALS[reason]()
        first, *rest = events
        assert isinstance(first, Planned)
        first = replace(first, command=begun, **plan)
        path = tmp_path / "it's a run.db"
        with SqliteJournal.create(path, first) as journal:
            for event in rest:
                journal.append(event)
            gate = Gate()
            for event in journal.events():
                gate.apply(event)
        return Kept(path, gate)

    return make


@each_reason
def test_the_rule_it_names_is_the_first_that_answers(keep: Keep, reason: Reason) -> None:
    kept = keep(reason)
    snapshot = facts_of(kept.gate).snapshot
    place = next(number for number, rule in enumerate(RULES) if rule(snapshot) is not None)
    told = f"Why: rule {place + 1} of {len(RULES)} is the first that answers ({reason}): {RULE_SAYS[RULES[place]]}."
    assert told in kept.parts()["What follows"]


@each_reason
def test_every_page_says_what_was_seen_what_follows_what_would_change_it_and_what_is_next(
    keep: Keep, reason: Reason
) -> None:
    kept = keep(reason)
    decision, parts = kept.verdict.decision, kept.parts()
    assert tuple(parts) == HEADINGS
    seen, follows = parts["What was seen"], parts["What follows"]
    promotion, rollback = decision.promotion.value.lower(), decision.rollback.value.lower()
    permissions = "" if reason in JUDGING_NOBODY else f"Promotion is {promotion}, rollback is {rollback}. "
    assert follows.startswith(permissions + decision.sentences[0])
    for sentence in decision.sentences[1:]:
        assert (sentence in follows) is sentence.startswith("Rollback is refused")
        assert (sentence in seen) is not sentence.startswith("Rollback is refused")
    for told in decision.what_would_change:
        assert f"- {told}" in parts["What would change it"]
    lines = kept.page().splitlines()
    assert len(lines) <= 60
    assert all(columns_of(line) <= 100 for line in lines if not line.startswith("    prefillgate"))
    assert all(is_clean(line) for line in lines)


@each_reason
def test_what_an_answer_claims_is_said_with_its_bound_and_what_it_does_not_claim_too(
    keep: Keep, reason: Reason
) -> None:
    verdict = keep(reason).verdict
    follows = keep_page(verdict)
    errs = "This is an error of the measurement: it says nothing about the candidate, good or bad."
    assert (errs in follows) is (reason in ERRORS) is not verdict.decision.measured
    promotes = "at most 5 % of runs" in follows
    assert promotes is (verdict.decision.promotion is Promotion.ALLOWED)
    confirms = "E = 40" in follows and "at most 1 of 40 replicates" in follows
    quality = {Reason.REGRESSION_CONFIRMED, Reason.ALREADY_DECIDED}
    assert confirms is (reason in quality)
    if verdict.decision.rollback is Rollback.ALLOWED and reason not in quality:
        assert "availability" in follows or "a person's decision" in follows
    assert ("An alarm is no verdict" in follows) is (
        reason
        in {
            Reason.ALARM_WITHOUT_BASELINE,
            Reason.REPLICATE_DUE,
            Reason.REPLICATE_RUNNING,
            Reason.REGRESSION_NOT_CONFIRMED,
        }
    )
    assert ("An alarm stands" in seen_of(verdict)) is verdict.alarm


def keep_page(verdict: Verdict, alpha: float = 0.05) -> str:
    return " ".join(render_explanation(verdict, Page((), alpha)).partition("What follows")[2].split())


def seen_of(verdict: Verdict) -> str:
    return " ".join(render_explanation(verdict, Page((), 0.05)).partition("What follows")[0].split())


@each_reason
def test_every_command_is_one_that_this_program_takes(keep: Keep, reason: Reason) -> None:
    kept = keep(reason)
    commands = kept.commands()
    assert commands
    for line in commands:
        program, name, *words = shlex.split(line.removesuffix(" | sh"))
        assert program == "prefillgate"
        found = group.get_command(None, name)  # type: ignore[arg-type]
        assert found is not None, f"{name} is none of {[entry.name for entry in COMMANDS]}"
        found.make_context(name, list(words))  # raises for an option that is not there
        if name != "doctor":
            assert str(kept.path) in words or name == "run"


@each_reason
def test_a_run_is_resumed_where_it_can_go_on_and_begun_anew_in_another_store_where_it_cannot(
    keep: Keep, reason: Reason
) -> None:
    kept = keep(reason)
    runs = [shlex.split(line)[1:] for line in kept.commands() if line.startswith("prefillgate run")]
    goes_on = reason in MENDABLE | GOING_ON or kept.verdict.budget_needed is not None
    assert all(words[-2] == "--store" for words in runs)
    resumed = [words for words in runs if words[-1] == str(kept.path)]
    assert len(resumed) == goes_on
    for words in resumed:
        assert words[: len(BEGUN) - 2] == list(BEGUN[:-2])  # the budget of the store stands, or a larger one
    for words in (words for words in runs if words not in resumed):
        assert words[-1] == str(kept.path.with_name("it's a run-2.db"))
        assert words[: len(BEGUN)] == list(BEGUN)
    if kept.verdict.budget_needed is not None:
        assert runs[0][-4:-2] == ["--budget", str(kept.verdict.budget_needed)]
    assert (reason is Reason.BUDGET_SPENT) is (kept.verdict.budget_needed is not None)


def commands_of(kept: Kept) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in kept.commands()]


def test_a_promotion_and_a_rollback_say_that_the_gate_changes_nothing(keep: Keep) -> None:
    kept = keep(Reason.ACCEPTANCE_REACHED)
    assert "Promote the candidate the way it is deployed here" in kept.parts()["Next"]
    assert commands_of(kept) == [["report", str(kept.path), "-o", str(kept.path.with_suffix(".html"))]]


def test_a_confirmed_regression_leads_to_the_bad_answer_and_to_its_cause(keep: Keep) -> None:
    kept = keep(Reason.REGRESSION_CONFIRMED)
    assert "Put the baseline back" in kept.parts()["Next"]
    look, cause = commands_of(kept)
    assert look == ["diff", str(kept.path), "c0", "--bad"]
    assert cause == ["override", str(kept.path), "--cause", "..."]
    assert "Bad on the candidate: c0" in kept.parts()["What was seen"]
    assert "Cause: unverified." in kept.parts()["What follows"]
    with SqliteJournal.open(kept.path) as journal:
        journal.append(CauseNoted(9.0, "ann", "rope base"))
    assert "Cause: rope base." in kept.parts()["What follows"]


def test_an_undeclared_difference_is_declared_in_a_new_store(keep: Keep) -> None:
    kept = keep(Reason.UNDECLARED_DIFFERENCE)
    assert "changed during the run" not in kept.page()
    assert commands_of(kept)[-1][-4:-2] == ["--declare", "build"]
    assert "The profiles differ in build (b1 to b2, undeclared)." in kept.parts()["What was seen"]


def test_independence_unknown_asks_the_server_that_proves_nothing(keep: Keep) -> None:
    assert commands_of(keep(Reason.INDEPENDENCE_UNKNOWN))[0] == ["doctor", "--server", "http://c"]


def test_checks_that_fail_on_the_baseline_show_an_answer_of_the_baseline(keep: Keep) -> None:
    kept = keep(Reason.CHECKS_FAIL_ON_BASELINE)
    bad = next(v.cell.case_id for v in kept.verdict.cells if v.bad)
    assert commands_of(kept)[0] == ["diff", str(kept.path), bad, "--bad"]


def test_a_person_who_must_decide_is_shown_both_ways(keep: Keep) -> None:
    names = [" ".join(words) for words in commands_of(keep(Reason.REGRESSION_NOT_CONFIRMED))]
    assert names[0].startswith("diff")
    assert [name.rpartition(" --reason")[0].split()[-1] for name in names[1:]] == ["--hold", "--rollback"]


def test_a_refused_request_is_sent_again_past_the_gate() -> None:
    view = verdicts.view(
        3, CANDIDATE, "a", None, bad=None, status=verdicts.Status.INVALID, reason="HttpError", detail="HTTP 400"
    )
    base = verdicts.build(replace(verdicts.empty().decision, reason="CandidateRefuses"), (view,))
    plan = Planned("r", 0.0, 1, None, (), "set", "0", "http://b (m1)", "http://c")  # type: ignore[arg-type]
    steps = next_steps(Place(base, Path("run.db"), plan))
    assert steps[0].command == "prefillgate cells run.db --curl 3 | sh"
    assert steps[1].command == (
        "prefillgate run --baseline http://b --baseline-model m1 --candidate http://c --replay-set FILE --policy FILE "
        "--store run-2.db"
    )
    assert "the store does not hold the command that began it" in steps[1].words


def test_a_case_whose_name_would_steer_a_terminal_is_named_in_no_command() -> None:
    view = verdicts.view(3, CANDIDATE, "a\x1b[2J", bad=True)
    base = verdicts.build(replace(verdicts.empty().decision, reason="RegressionNotConfirmed"), (view,))
    plan = Planned("r", 0.0, 1, None, (), "set", "0", "http://b", "http://c")  # type: ignore[arg-type]
    assert next_steps(Place(base, Path("run.db"), plan))[0].command == "prefillgate cells run.db"


@pytest.mark.parametrize("text", verdicts.HOSTILE, ids=range(len(verdicts.HOSTILE)))
def test_hostile_text_stays_text(text: str) -> None:
    for make in (verdicts.story, verdicts.could_not_measure, lambda: verdicts.large(40)):
        told = verdicts.with_text(make(), text)
        reason = make().decision.reason
        verdict = replace(told, decision=replace(told.decision, reason=reason))
        page = render_explanation(verdict, Page((Step("Go on:", "prefillgate demo"),), 0.05, 60))
        assert all(is_clean(line) for line in page.splitlines())
        wanted = [heading for heading in HEADINGS if text or heading != "What would change it"]
        assert [line for line in page.splitlines() if line in HEADINGS] == wanted


def test_the_page_follows_the_width_it_is_given() -> None:
    wide, narrow = (render_explanation(verdicts.large(40), Page((), 0.05, width)) for width in (100, 60))
    assert max(map(columns_of, narrow.splitlines())) <= 60 < max(map(columns_of, wide.splitlines()))
    assert narrow.split() == wide.split()


def test_a_verdict_without_a_request_says_so() -> None:
    assert "No request was scored." in seen_of(verdicts.empty())
    assert "No request was scored." not in seen_of(verdicts.promote())
    assert "1 request to the candidate measured nothing" in seen_of(verdicts.could_not_measure())
    several = replace(verdicts.promote(), differences=(Difference("other", "n", None, "4"),), notes=("a", "b") * 4)
    assert "The profiles differ in n (unknown to 4)." in seen_of(several)
    assert "4 more notes in the report." in seen_of(several)
    assert "What differs between the profiles is not known" in seen_of(verdicts.empty())


def test_a_store_that_is_not_there_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(tmp_path / "nothing.db")]) == 2
    assert "nothing.db" in capsys.readouterr().err
