"""`prefillgate replayset try`: every case once, fresh, on simulated and real servers."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefillgate.cli.main import main
from prefillgate.core.acceptance import QUICK, STANDARD
from prefillgate.core.healthy import HealthyRate, healthy_rate
from prefillgate.core.policy import Policy
from tests.support.judging import judge_server, says_bad_of, write_examples
from tests.support.llama import real_llama
from tests.support.runs import PROBES, bench, ended, start, write_policy, write_set
from tests.support.simulated import SimulatedServer, start_simulated

Try = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Try:
    def command(server: str, set_path: Path | str, *arguments: str) -> tuple[int, str, str]:
        code = main(["replayset", "try", str(set_path), "--server", server, *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def cases_of(server: SimulatedServer) -> list[dict[str, Any]]:
    """What the server was asked for beside the probe."""
    return server.truth()[PROBES:]


def rate(bad: int, units: int, policy: Policy, prompts: int) -> dict[str, Any]:
    found = healthy_rate(bad, units, policy, prompts)
    assert isinstance(found, HealthyRate)
    return {
        "bad": bad,
        "prefills": units,
        "rate": bad / units,
        "interval": list(found.interval),
        "promote": found.promote,
        "promote_at_ends": list(found.promote_at_ends),
        "margin": found.margin,
    }


# What is sent, and what is said of it


def test_every_case_is_sent_once_and_fresh_and_nothing_is_kept(
    run: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=4)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    with start_simulated() as server:
        code, out, error = run(server.url, set_path)
        sent = cases_of(server)
    assert (code, error, list(empty.iterdir())) == (0, "", [])
    assert [line["fresh"] for line in sent] == [True] * 4
    assert len({line["prompt_sha256"] for line in sent}) == 4
    lines = out.splitlines()
    for number, line in enumerate(sent):
        row, text = lines[2 * number : 2 * number + 2]
        assert row.startswith(f"{number + 1}/4  case-{number}  {line['prompt_tokens']} tokens in (0 cached)")
        assert f"{line['output_tokens']} out" in row and row.endswith("clean")
        said = line["text"].replace("\n", " ⏎ ")
        assert text.startswith(f"    | {said[:160]}") and text.endswith(said[-80:])
    assert "4 clean, 0 bad" in out
    assert "0 of 4 fresh prefills, 0 % (95 % interval 0 % to 60.2 %)" in out
    assert "the policy's 10 % works at the rate seen" in out


def test_a_case_that_fails_a_check_is_told_with_its_text_and_the_margin_that_would_work(
    run: Try, tmp_path: Path
) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=6)
    with start_simulated(fault="bad-prefill=1@case-2", bad_text="VERDICT: LGTM") as server:
        code, out, _ = run(server.url, set_path)
        assert code == 10
        assert "    bare_verdict: " in out and "    | VERDICT: LGTM\n" in out
        assert "1 of 6 fresh prefills, 16.7 %" in out
        expected = rate(1, 6, STANDARD, 6)
        assert f"{100 * expected['margin']:.3g} % would work at the rate seen" in out
        assert f"{expected['promote']:.2f} for a candidate just as bad, by policy standard" in out
        code, out, _ = run(server.url, set_path, "--json")
    told = json.loads(out)
    assert code == 10
    assert told["bad_rate"] == expected
    assert [case["status"] for case in told["cases"]] == ["clean", "clean", "bad", "clean", "clean", "clean"]
    assert told["cases"][2]["content"] == "VERDICT: LGTM"
    assert [check["check"] for check in told["cases"][2]["checks"] if check["bad"]] == ["bare_verdict"]
    assert {case["freshness"] for case in told["cases"]} == {"fresh"}
    assert told["counts"]["clean"] == 5 and told["interrupted"] is False


def test_the_policy_says_what_is_checked_and_what_would_promote(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=5)
    own = write_policy(tmp_path / "policy.yaml", checks=[{"type": "Regex", "regex": {"mustMatch": "nowhere said"}}])
    with start_simulated() as server:
        code, out, _ = run(server.url, set_path, "--policy", "quick", "--json")
        assert (code, json.loads(out)["policy"]) == (0, "quick")
        assert json.loads(out)["bad_rate"] == rate(0, 5, QUICK, 5)
        code, out, _ = run(server.url, set_path, "--policy", str(own), "--json")
    told = json.loads(out)
    assert code == 10
    assert told["bad_rate"]["bad"] == 5 and told["bad_rate"]["margin"] is None


def test_a_cut_is_noted_as_a_run_would_count_it(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=2, max_tokens=3)
    with start_simulated() as server:
        code, out, _ = run(server.url, set_path)
    assert code == 0
    assert out.count("    cut: finish reason length (noted; decides nothing in a run)") == 2


def test_only_the_cases_asked_for_are_tried_and_the_chance_is_that_of_the_set(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=40)
    with start_simulated() as server:
        code, out, _ = run(server.url, set_path, "--case", "case-3", "--case", "case-1", "--json")
        assert len(cases_of(server)) == 2
    told = json.loads(out)
    assert (code, [case["case_id"] for case in told["cases"]]) == (0, ["case-1", "case-3"])
    assert told["bad_rate"] == rate(0, 2, STANDARD, 40)
    assert told["bad_rate"]["promote_at_ends"] != rate(0, 2, STANDARD, 2)["promote_at_ends"]


def test_texts_are_shortened_unless_asked_for_whole_and_never_steer_a_terminal(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=1)
    answers = tmp_path / "answers.jsonl"
    long = "Erste Zeile\nzweite \x1b[31mrot " + "".join(f"wort {number} " for number in range(90))
    answers.write_text(json.dumps({"match": "case-0", "text": long}) + "\n")
    with start_simulated(answers=answers) as server:
        _, short, _ = run(server.url, set_path)
        _, whole, _ = run(server.url, set_path, "--full")
        _, document, _ = run(server.url, set_path, "--json")
    assert "    | Erste Zeile ⏎ zweite ⟨ESC⟩[31mrot wort" in short and " characters … " in short
    assert "    | Erste Zeile\n    | zweite ⟨ESC⟩[31mrot wort" in whole and " characters … " not in whole
    assert whole.count("wort ") >= 89 > short.count("wort ")
    assert "\x1b" not in short + whole + document
    assert json.loads(document)["cases"][0]["content"].count("wort") == 90


# A prompt that does not fit


def with_a_long_case(folder: Path, prompt_words: int = 300) -> Path:
    set_path = write_set(folder / "set.jsonl", cases=2, words=12, max_tokens=20)
    first, second = set_path.read_text().splitlines()
    long = json.loads(first)
    long["custom_id"] = "long"
    long["body"]["prompt"] = " ".join(f"long{word}" for word in range(prompt_words))
    set_path.write_text("\n".join([first, json.dumps(long), second]) + "\n")
    return set_path


def test_a_prompt_longer_than_a_slots_context_is_refused_before_it_is_sent(run: Try, tmp_path: Path) -> None:
    set_path = with_a_long_case(tmp_path)
    with start_simulated(ctx_size=500) as server:
        code, out, _ = run(server.url, set_path, "--json")
        sent = cases_of(server)
    told = json.loads(out)
    assert code == 2
    assert [case["status"] for case in told["cases"]] == ["clean", "too_long", "clean"]
    tokens = told["cases"][1]["prompt_tokens"]
    assert told["cases"][1]["why"].startswith(
        f"{tokens} prompt tokens do not fit into the server's context of 500 a slot"
    )
    assert tokens >= 500 and len(sent) == 2


def test_the_context_is_full_at_its_last_token(run: Try, tmp_path: Path) -> None:
    set_path = with_a_long_case(tmp_path)
    with start_simulated() as server:
        _, out, _ = run(server.url, set_path, "--json")
    tokens = json.loads(out)["cases"][1]["prompt_tokens"]
    for context, status in ((tokens, "too_long"), (tokens + 1, "clean")):
        with start_simulated(ctx_size=context) as server:
            _, out, _ = run(server.url, set_path, "--json")
            assert json.loads(out)["cases"][1]["status"] == status
            assert [line["status"] for line in cases_of(server)] == [200] * (2 if status == "too_long" else 3)


@pytest.mark.parametrize("options", [{"dialect": "openai"}, {"fault": "tokenize-absent=1"}])
def test_a_server_that_tells_it_only_then_is_quoted(run: Try, tmp_path: Path, options: dict[str, Any]) -> None:
    set_path = with_a_long_case(tmp_path)
    with start_simulated(ctx_size=500, **options) as server:
        code, out, _ = run(server.url, set_path, "--json")
        refused = [line for line in cases_of(server) if line["status"] == 400]
    told = json.loads(out)["cases"][1]
    assert (code, told["status"], len(refused)) == (2, "refused", 1)
    assert "exceeds the available context size (500 tokens)" in told["why"]


def test_an_answer_that_may_not_fit_is_pointed_out(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=1, words=300)
    with start_simulated() as server:
        _, out, _ = run(server.url, set_path, "--json")
        tokens = json.loads(out)["cases"][0]["prompt_tokens"]
    words = f"{tokens} tokens of prompt and 200 of answer do not fit into a context of {tokens + 199}: it may be cut"
    for context, told in ((tokens + 199, True), (tokens + 200, False)):
        with start_simulated(ctx_size=context) as server:
            assert (words in run(server.url, set_path)[1]) is told


# What cannot be measured


def test_a_server_that_does_not_answer_is_no_measurement(run: Try, tmp_path: Path) -> None:
    code, out, error = run("http://127.0.0.1:9", write_set(tmp_path / "set.jsonl"))
    assert (code, out) == (1, "")
    assert error.startswith("prefillgate: error: server: http://127.0.0.1:9")


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:80"])
def test_what_is_no_address_is_bad_input(run: Try, tmp_path: Path, url: str) -> None:
    code, _, error = run(url, write_set(tmp_path / "set.jsonl"))
    assert code == 2 and "--server" in error


def test_a_case_beside_other_traffic_is_not_measured(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=3)
    with start_simulated(fault="other-traffic=1@case-1") as server:
        code, out, _ = run(server.url, set_path)
    assert code == 1
    assert "2/3  case-1  not measured: OtherTraffic: " in out
    assert "2 clean, 0 bad, 1 not measured" in out and "0 of 2 fresh prefills" in out


def test_a_check_that_cannot_judge_is_an_error_and_no_bad_case(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=2)
    own = write_policy(tmp_path / "policy.yaml", checks=[{"type": "Cel", "cel": {"expression": "1 / 0 > 1"}}])
    with start_simulated() as server:
        code, out, _ = run(server.url, set_path, "--policy", str(own))
    assert code == 1
    assert "1/2  case-0" in out and "error: cel: " in out
    assert "0 clean, 0 bad, 2 not measured" in out


def test_a_server_that_dies_is_given_up_and_what_was_known_is_kept(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=9)
    with start_simulated(fault=f"die-after={PROBES + 3}") as server:
        code, out, _ = run(server.url, set_path, "--json")
    told = json.loads(out)
    assert code == 1
    assert [case["status"] for case in told["cases"]] == ["clean", "clean", "failed", "invalid", "invalid", "invalid"]
    assert told["counts"]["unsent"] == 3


def test_a_prefill_that_is_not_proven_fresh_says_so_and_gives_no_rate(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=2)
    with start_simulated(fault=["cached-absent=1", "timings-absent=1"]) as server:
        code, out, _ = run(server.url, set_path)
    assert code == 1
    assert out.count("    not proven fresh: unknown, ") == 2
    assert "bad rate     unknown: no prefill was proven fresh and judged" in out
    assert "finding      the server tells no cached tokens: independence unknown" in out


def test_a_case_that_does_not_exist_is_bad_input(run: Try, tmp_path: Path) -> None:
    code, _, error = run("http://127.0.0.1:9", write_set(tmp_path / "set.jsonl"), "--case", "nope")
    assert code == 2 and "--case nope: no such case" in error
    code, _, error = run("http://127.0.0.1:9", "nope")
    assert code == 2 and "a set that comes with the package: demo, four, short" in error


# Reaching the server


def test_the_options_of_a_server_are_heeded(run: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=1)
    monkeypatch.setenv("TRIAL_KEY", "only-for-this-trial")
    with start_simulated(api_key_env="TRIAL_KEY", model=["one", "two"]) as server:
        assert run(server.url, set_path)[0] == 1
        code, out, error = run(server.url, set_path, "--api-key-env", "TRIAL_KEY", "--model", "two", "--json")
        assert (code, json.loads(out)["model"]) == (0, "two")
        assert run(server.url, set_path, "--api-key-env", "TRIAL_KEY", "--model", "three")[0] == 2
        options = ("--api-key-env", "TRIAL_KEY", "--model", "one")
        engine = json.loads(run(server.url, set_path, *options, "--engine", "openai-compatible", "--json")[1])["engine"]
    assert engine == "openai-compatible"
    assert "only-for-this-trial" not in out + error
    code, _, error = run("http://127.0.0.1:9", set_path, "--engine", "nope")
    assert code == 2 and "--engine: 'nope' is not known" in error


def test_a_server_that_starts_is_waited_for(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=1)
    with start_simulated(fault="load-seconds=4") as server:
        assert run(server.url, set_path)[0] == 1
        code, _, error = run(server.url, set_path, "--wait-ready", "30")
    assert code == 0 and "server: not ready yet" in error


def test_a_generation_may_take_as_long_as_it_is_told(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=1)
    with start_simulated(fault=f"stall={PROBES + 1}:20") as server:
        code, out, _ = run(server.url, set_path, "--cell-timeout", "1")
    assert code == 10
    assert "failed: Timeout: no complete answer within 1 s" in out


# Interrupted


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_tells_what_is_known(tmp_path: Path, number: signal.Signals, code: int) -> None:
    place = bench(tmp_path, cases=4)
    with start_simulated(fault=f"stall={PROBES + 3}:60") as server:
        child = start(["replayset", "try", place.set_path.name, "--server", server.url, "--json"], tmp_path)
        while len(server.truth()) < PROBES + 2 or not server.busy():  # into the third case
            time.sleep(0.05)
        child.send_signal(number)
        done = ended(child)
    assert done.code == code
    assert done.json["interrupted"] is True
    assert [case["case_id"] for case in done.json["cases"]] == ["case-0", "case-1"]
    assert done.json["bad_rate"]["prefills"] == 2
    assert [line.split("  ")[0] for line in done.lines[:4:2]] == ["1/4", "2/4"]


# The real server


def test_on_the_real_server_the_demo_set_is_clean(run: Try, request: pytest.FixtureRequest) -> None:
    server = real_llama(request, ("--cache-ram", "0", "--metrics"))
    wanted = ("log-printer-503", "log-deploy-200")
    code, out, _ = run(server.url, "demo", "--json", *(word for name in wanted for word in ("--case", name)))
    told = json.loads(out)
    assert code == 0
    assert [case["case_id"] for case in told["cases"]] == list(wanted)
    for case in told["cases"]:
        assert case["status"] == "clean" and case["freshness"] == "fresh"
        assert case["cached_tokens"] == 0 and case["prompt_tokens"] > 250 and case["seconds"] > 0
        assert json.loads(case["content"])["level"]
    assert told["context_tokens"] == 2048


def test_on_the_real_server_what_fails_and_what_does_not_fit_is_told(
    run: Try, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = real_llama(request, ("--cache-ram", "0", "--metrics"))
    set_path = with_a_long_case(tmp_path, prompt_words=1200)
    lines = [json.loads(line) for line in set_path.read_text().splitlines()]
    lines[2]["prefillgate"] = {"expect": {"exact": "no such answer"}}
    for line in lines:
        line["body"]["max_tokens"] = 4
    set_path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, out, _ = run(server.url, set_path)
    assert code == 2
    assert "2/3  long  too long: " in out and "the server's context of 2048 a slot" in out
    assert "bad: expect" in out and "    expect: not the expected answer" in out


# Judges and other people's traffic


def judged_policy(folder: Path, url: str, examples: int) -> Path:
    write_examples(folder / "examples.jsonl", examples, examples)
    judge = {"rubric": "It ends in a verdict.", "url": url, "model": "m", "examples": "examples.jsonl"}
    return write_policy(folder / "judged.yaml", checks=[{"type": "Judge", "name": "useful", "judge": judge}])


def test_a_judge_is_compared_with_people_first_as_in_a_run(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=2)
    with start_simulated() as server, judge_server(says_bad_of("rubbish", "\nVERDICT: LGTM\nEND")) as judge:
        code, out, error = run(server.url, set_path, "--policy", str(judged_policy(tmp_path, judge.url, 12)))
        assert code == 10 and out.count("bad: useful") == 2
        assert "judge useful agrees with 24 of 24 labelled outputs" in error
        few = ("--policy", str(judged_policy(tmp_path, judge.url, 2)))
        code, out, error = run(server.url, set_path, *few)
        assert code in (1, 2) and "--unvalidated-judge" in error and out == ""
        assert run(server.url, set_path, *few, "--unvalidated-judge")[0] == 10
        code, _, error = run(server.url, set_path, "--policy", str(judged_policy(tmp_path, server.url, 12)))
        assert code == 2 and "would judge itself" in error


def test_a_server_that_others_use_is_tried_by_its_responses_alone(run: Try, tmp_path: Path) -> None:
    set_path = write_set(tmp_path / "set.jsonl", cases=2)
    with start_simulated(fault=["always-busy=1", "other-traffic=1@case-1"]) as server:
        code, out, _ = run(server.url, set_path, "--isolation", "shared")
    assert code == 0
    assert "2 clean, 0 bad" in out
    assert "finding      in use when it was asked: 1 running, 0 waiting" in out
