"""Whole runs whose checks ask a program or a judge: refused or begun, printed, kept in the store, shown in reports."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefillgate.api.policy import load_policy
from prefillgate.api.replay_set import Case
from prefillgate.cli.errors import BadInput, CouldNotMeasure
from prefillgate.core.agreement import Agreement
from prefillgate.core.journal import CheckOutcome, JudgeCompared
from prefillgate.core.quality import Output
from prefillgate.evidence import SqliteJournal
from prefillgate.replay.checks import CheckSuite
from tests.checks.conftest import Arms
from tests.support.judging import fault, judge_server, says_bad_of, write_examples
from tests.support.llama import real_llama
from tests.support.rewriting import rewriting
from tests.support.runs import Bench, bench, generations, measured, stored, write_policy

RUBRIC = "The text must end in a verdict."


def judged_bench(folder: Path, url: str, examples: int = 12, **judge: Any) -> Bench:
    """A bench whose only declared check is a judge with that many labelled outputs of each kind."""
    made = bench(folder)
    write_examples(folder / "examples.jsonl", examples, examples)
    given = {"rubric": RUBRIC, "url": url, "model": "m", "examples": "examples.jsonl", **judge}
    write_policy(made.policy_path, checks=[{"type": "Judge", "name": "useful", "judge": given}])
    return made


def compared(store: Path) -> list[JudgeCompared]:
    with SqliteJournal.open_readonly(store) as journal:
        return [event for event in journal.events() if isinstance(event, JudgeCompared)]


def test_a_program_judges_every_cell_and_its_words_stand_in_the_store_and_in_the_report(
    tmp_path: Path, arms: Arms
) -> None:
    code = "import sys\nif sys.stdin.read().strip() == 'VERDICT: LGTM':\n    print('bare approval')\n    exit(1)\n"
    (tmp_path / "judge.py").write_text(code)
    check = {"type": "Exec", "name": "rationale", "exec": {"arguments": [sys.executable, "judge.py"]}}
    work = bench(tmp_path, checks=[check], replicate={"gapSeconds": 0})
    ran = work.child(*work.arguments(arms.healthy.url, arms.sick.url, "--store", "run.db", "--json"))
    assert (ran.code, ran.json["reason"]) == (20, "RegressionConfirmed"), ran.said
    gate, _ = stored(tmp_path / "run.db")
    told = [outcome for outcomes in gate.outcomes.values() for outcome in outcomes if outcome.check == "rationale"]
    assert {(outcome.bad, outcome.detail, outcome.text) for outcome in told} == {
        (False, "", ""),
        (True, "bare approval", "bare approval\n"),
    }
    assert len(told) == len(gate.scored)
    shown = work.child("report", "run.db", "--format", "markdown").out.decode()
    assert "rationale: bare approval" in shown


def test_a_program_that_errs_on_three_cells_ends_the_run_without_a_verdict_on_the_candidate(
    tmp_path: Path, arms: Arms
) -> None:
    check = {"type": "Exec", "exec": {"arguments": [sys.executable, "-c", "print('no licence'); exit(3)"]}}
    work = bench(tmp_path, checks=[check])
    ran = work.child(*work.arguments(arms.healthy.url, arms.other.url, "--store", "run.db", "--json"))
    assert ran.code == 1
    assert ran.json["reason"] == "CheckError"
    assert "exit 3 is neither 0 (good) nor 1 (bad): no licence" in " ".join(ran.json["sentences"])


def test_a_judge_is_compared_with_people_first_and_then_judges(tmp_path: Path, arms: Arms) -> None:
    with judge_server(says_bad_of("rubbish", "\nVERDICT: LGTM\nEND")) as judge:
        work = judged_bench(tmp_path, judge.url)
        request = work.request(arms.healthy.url, arms.other.url)
        finished = work.run(request)
        asked = len(judge.bodies)
        again = work.child(*work.arguments(arms.healthy.url, arms.other.url, "--store", "run.db"))
    gate, _ = stored(tmp_path / "run.db")
    assert asked == 24 + len(gate.scored)
    assert all("text" in text for text in judge.texts[:24])
    (event,) = compared(tmp_path / "run.db")
    assert (event.check, event.agreement) == ("useful", Agreement(good_as_good=12, bad_as_bad=12))
    line = "judge useful agrees with 24 of 24 labelled outputs (95 % 0.86 to 1.00, kappa 1.00)"
    assert line in finished.verdict.notes[0]
    assert finished.verdict.decision.reason == "ChecksFailOnBaseline"
    first = measured(gate, "baseline")[0]
    outcome = next(o for o in gate.outcomes[first.cell_id] if o.check == "useful")
    assert (outcome.bad, outcome.detail) == (True, "it holds what it may not")
    assert json.loads(outcome.text)["id"] == "judged"
    assert len(judge.bodies) == asked  # a run that is over asks nobody
    assert line in again.out.decode().replace("\n                ", " ") + " ".join(finished.verdict.notes)


def test_what_is_known_of_a_judge_is_printed_and_a_resumed_run_does_not_ask_again(tmp_path: Path, arms: Arms) -> None:
    with judge_server(says_bad_of("rubbish")) as judge:
        work = judged_bench(tmp_path, judge.url)
        arguments = work.arguments(arms.healthy.url, arms.other.url, "--store", "run.db")
        write_policy(work.policy_path, **{**_spec(work), "budgetPrefills": 16})
        first = work.child(*arguments)  # which ends on its budget
        asked = sum("clean text" in text or "rubbish text" in text for text in judge.texts)
        second = work.child(*arguments, "--budget", "60")
        after = sum("clean text" in text or "rubbish text" in text for text in judge.texts)
    line = "judge useful agrees with 24 of 24 labelled outputs"
    assert any(line in said for said in first.lines)
    assert any(line in said for said in second.lines)
    assert (asked, after) == (24, 24)
    assert len(compared(tmp_path / "run.db")) == 1


def _spec(work: Bench) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(work.policy_path.read_text())["spec"]
    return spec


def test_other_labelled_outputs_are_asked_about_again(tmp_path: Path, arms: Arms) -> None:
    with judge_server(says_bad_of("rubbish")) as judge:
        work = judged_bench(tmp_path, judge.url)
        write_policy(work.policy_path, **{**_spec(work), "budgetPrefills": 16})
        arguments = work.arguments(arms.healthy.url, arms.other.url, "--store", "run.db")
        work.child(*arguments)
        write_examples(tmp_path / "examples.jsonl", 11, 11)
        work.child(*arguments, "--budget", "60")
    found = [event.agreement.answered for event in compared(tmp_path / "run.db")]
    assert found == [24, 22]


def test_a_judge_with_few_examples_needs_the_flag_and_the_verdict_names_it(tmp_path: Path, arms: Arms) -> None:
    with judge_server(says_bad_of("rubbish")) as judge:
        work = judged_bench(tmp_path, judge.url, examples=5)
        arguments = work.arguments(arms.healthy.url, arms.other.url, "--store", "run.db", "--json")
        refused = work.child(*arguments)
        assert judge.bodies == []
        assert not (tmp_path / "run.db").exists()
        ran = work.child(*arguments, "--unvalidated-judge")
    assert refused.code == 2
    assert "this judge is not validated: 10 labelled outputs with a verdict, fewer than 20" in refused.said
    assert "--unvalidated-judge" in refused.said
    note = "judge useful is NOT VALIDATED: 10 labelled outputs with a verdict, fewer than 20"
    assert ran.code == 0
    assert ran.json["notes"][0] == note
    assert note in work.child("decide", "run.db").out.decode().replace("\n                ", " ")
    assert note in work.child("report", "run.db", "--format", "html").out.decode()


def test_a_judge_that_answers_too_few_of_its_examples_is_not_validated_either(tmp_path: Path, arms: Arms) -> None:
    def plan(body: dict[str, Any], number: int) -> Any:
        text = body["messages"][-1]["content"]
        return fault(400) if "rubbish text 1" in text else {"bad": "rubbish" in text, "why": "x"}

    with judge_server(plan) as judge:
        work = judged_bench(tmp_path, judge.url, examples=10)
        request = work.request(arms.healthy.url, arms.other.url)
        with pytest.raises(CouldNotMeasure, match="19 labelled outputs with a verdict, fewer than 20"):
            work.run(request)
        finished = work.run(work.request(arms.healthy.url, arms.other.url, unvalidated_judge=True))
    assert finished.verdict.notes[0].startswith("judge useful is NOT VALIDATED: 19 labelled outputs")


def test_a_judge_that_is_away_ends_the_run_before_the_servers_are_asked(tmp_path: Path, arms: Arms) -> None:
    before = len(generations(arms.healthy, arms.other))
    with judge_server(lambda body, number: fault(404, "no such model")) as judge:
        work = judged_bench(tmp_path, judge.url)
        ran = work.child(*work.arguments(arms.healthy.url, arms.other.url, "--store", "run.db"))
    assert ran.code == 1
    assert "check useful: the judge gave no answer" in ran.said
    assert "no such model" in ran.said
    assert ran.lines[-1].startswith("prefillgate run ")
    assert len(generations(arms.healthy, arms.other)) == before


@pytest.mark.parametrize("written", ["{url}", "{url}/v1/", "http://localhost:{port}"])
def test_a_judge_that_is_an_arm_is_refused_however_it_is_written(tmp_path: Path, arms: Arms, written: str) -> None:
    for arm in ("baseline", "candidate"):
        server = arms.healthy if arm == "baseline" else arms.other
        work = judged_bench(tmp_path, written.format(url=server.url, port=server.port))
        with pytest.raises(BadInput, match=f"is the server of the {arm}"):
            work.run(work.request(arms.healthy.url, arms.other.url))
        assert not (tmp_path / "run.db").exists()


def test_a_judge_that_is_an_arm_under_another_address_is_refused_by_its_life(tmp_path: Path, arms: Arms) -> None:
    with rewriting(arms.other.url, {}) as proxy:
        work = judged_bench(tmp_path, proxy)
        with pytest.raises(BadInput, match="is the server of the candidate"):
            work.run(work.request(arms.healthy.url, arms.other.url))


def test_a_set_is_tried_with_a_judge_that_few_examples_speak_for_only_when_that_is_accepted(
    tmp_path: Path, arms: Arms
) -> None:
    with judge_server(says_bad_of("VERDICT")) as judge:
        work = judged_bench(tmp_path, judge.url, examples=5)
        words = ("replayset", "try", "set.jsonl", "--server", arms.healthy.url, "--policy", "policy.yaml")
        refused = work.child(*words)
        tried = work.child(*words, "--unvalidated-judge")
    assert (refused.code, "this judge is not validated" in refused.said) == (2, True)
    assert tried.code == 10
    assert tried.out.decode().count("useful: it holds what it may not") == 5
    assert sum("text" not in text for text in judge.texts) == 5


def test_a_check_is_made_of_one_output_by_program_and_by_judge(tmp_path: Path, check: Any) -> None:
    program = json.dumps([sys.executable, "-c", "import sys; print('seen', sys.stdin.read()); exit(1)"])
    code, out, err = check("some text", "--check", f"exec={program}")
    assert (code, out, err) == (10, ["prefillgate: program"], "prefillgate: exec: seen some text\n")
    with judge_server(says_bad_of("rubbish")) as judge:
        work = judged_bench(tmp_path, judge.url, examples=3)
        policy = ("--policy", str(work.policy_path))
        refused, _, why = check("rubbish", *policy)
        bad, (line,), _ = check("rubbish", *policy, "--unvalidated-judge", "--json")
        good = check("clean", *policy, "--unvalidated-judge")
    assert (refused, "is not validated" in why) == (2, True)
    told = json.loads(line)
    assert (bad, told["markers"]) == (10, ["prefillgate: judge"])
    assert json.loads(told["checks"][0]["text"])["id"] == "judged"
    assert good == (0, ["prefillgate: clean"], "")


def test_the_real_server_judges_by_its_grammar(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A small base model agrees with nobody; what counts is that each answer it completes is of the schema."""
    server = real_llama(request, ("--cache-ram", "0"))
    work = judged_bench(tmp_path, server.url, examples=2, model="any", maxTokens=48, rubric="Clean text is good.")
    suite = CheckSuite.from_policy(load_policy(work.policy_path), unvalidated_judge=True)
    ((check, judge),) = suite.judges()
    case = Case("one", "/v1/completions", {"prompt": "q"})

    async def ask() -> tuple[Agreement, CheckOutcome]:
        return await judge.agreement(), (await suite.run(case, Output("clean text", finish_reason="stop")))[0]

    agreement, outcome = asyncio.run(ask())
    assert agreement.answered + agreement.unanswered == 4
    said = json.loads(outcome.text)["choices"][0]
    assert said["message"]["content"].replace("\n", "").startswith('{"bad": ')
    assert (outcome.bad is None) == (said["finish_reason"] == "length")
    assert check.version == outcome.version
