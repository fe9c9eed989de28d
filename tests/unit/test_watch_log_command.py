"""`prefillgate watch-log --once`: what it counts, when it alarms, how it goes on, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from prefillgate.cli.main import main
from prefillgate.importers import following
from tests.support.llama_logs import llama_log

POLICY = """apiVersion: prefillgate.io/v1alpha1
kind: PromotionPolicy
metadata: {name: p}
spec:
  marginPercent: 10
  budgetPrefills: 200
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def command(*arguments: object) -> tuple[int, str, str]:
        code = main(["watch-log", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def cell(prompt: str, bad: bool | None = False, cached: int = 0, **more: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": 100, "cached_tokens": cached, "processed_tokens": 100 - cached}
    return {"arm": "candidate", "case_id": prompt, **counts, "bad": bad, **more}


def reply(said: str, number: int, cached: int = 0, model: str = "m") -> dict[str, Any]:
    message = {"role": "assistant", "content": said}
    usage = {"prompt_tokens": 100, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": cached}}
    timings = {"prompt_n": 100 - cached, "prompt_ms": 10.0, "predicted_n": 30, "predicted_ms": 290.0 * number}
    answer = {
        "id": f"r{number}",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    request = {"messages": [{"role": "user", "content": f"question {number}"}]}
    return {"request": request, "response": {**answer, "usage": usage, "timings": timings}}


def write(path: Path, *documents: dict[str, Any]) -> Path:
    with path.open("a") as file:
        file.writelines(json.dumps(document) + "\n" for document in documents)
    return path


def test_bad_prefills_alarm_with_ten_and_bad_copies_do_not(run: Any, tmp_path: Path) -> None:
    copies = write(tmp_path / "copies", cell("a", True), *[cell("a", True, 99)] * 50)
    code, out, error = run(copies, "--once")
    assert (code, out) == (0, "")
    assert "candidate: 51 requests (51 bad), 1 prefills (1 bad), 50 copies (50 bad), 0 not shown" in error
    prefills = write(tmp_path / "prefills", *(cell(f"p{number}", True) for number in range(3)))
    code, out, _ = run(prefills, "--once")
    assert code == 10
    assert "[candidate]: 3 of the last 3 prefills are bad (CUSUM 5.38, alarm at 4.61)" in out
    assert f"the last was p2 at {prefills}:3" in out and "no verdict" in out


def test_with_a_state_it_goes_on_and_nothing_is_counted_or_said_twice(run: Any, tmp_path: Path) -> None:
    log, state = tmp_path / "log", tmp_path / "state"
    write(log, cell("a", True), cell("b", True))
    assert run(log, "--once", "--state", state)[0] == 0
    assert run(log, "--once", "--state", state)[0] == 0
    write(log, cell("c", True))
    assert run(log, "--once", "--state", state)[0] == 10
    code, out, error = run(log, "--once", "--state", state)
    assert (code, out) == (0, "")
    assert "3 requests" in error and "1 alarms" in error
    write(log, cell("a", True, 99))
    assert "4 requests (4 bad), 3 prefills (3 bad), 1 copies (1 bad)" in run(log, "--once", "--state", state)[2]
    assert run(log, "--once")[0] == 10  # without the state it begins anew


def test_an_alarm_that_may_not_have_been_printed_is_printed_again_and_marked(run: Any, tmp_path: Path) -> None:
    log, state = write(tmp_path / "log", *(cell(f"p{number}", True) for number in range(3))), tmp_path / "state"
    code, out, _ = run(log, "--once", "--state", state, "--json")
    alarm = json.loads(out.splitlines()[0])
    assert code == 10 and alarm["repeated"] is False
    document = json.loads(state.read_text())
    assert document["pending"] == []
    kept = {key: value for key, value in alarm.items() if key not in ("event", "time", "repeated")}
    state.write_text(json.dumps({**document, "pending": [kept]}))  # as a kill between printing and noting leaves it
    code, out, _ = run(log, "--once", "--state", state)
    assert code == 10
    assert "(repeated: it may have been printed before): 3 of the last 3" in out
    assert run(log, "--once", "--state", state)[:2] == (0, "")


def test_outputs_are_judged_by_the_policys_checks(run: Any, tmp_path: Path) -> None:
    log = write(tmp_path / "log", *(reply("VERDICT: LGTM", number) for number in range(3)))
    code, out, _ = run(log, "--once")
    assert code == 10 and "[m]: 3 of the last 3 prefills are bad" in out
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY + "  checks: [{type: NotEmpty}]\n")
    assert run(log, "--once", "--policy", policy)[0] == 0
    good = write(tmp_path / "good", *(reply("A sound answer, with its reasons.", number) for number in range(9)))
    code, _, error = run(good, "--once")
    assert code == 0 and "9 requests (0 bad), 9 prefills (0 bad)" in error


def test_the_policys_own_numbers_decide(run: Any, tmp_path: Path) -> None:
    log = write(tmp_path / "log", *(cell(f"p{number}", True) for number in range(2)))
    assert run(log, "--once")[0] == 0
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY + "  alarm: {watchThreshold: 36}\n")
    code, out, _ = run(log, "--once", "--policy", policy)
    assert code == 10 and "alarm at 3.58" in out


def test_slow_decoding_is_bad_where_it_is_asked_for(run: Any, tmp_path: Path) -> None:
    log = write(tmp_path / "log", *(reply("A sound answer, with its reasons.", number) for number in range(1, 9)))
    assert run(log, "--once")[0] == 0
    assert run(log, "--once", "--slow-decode-ms", "80")[0] == 0
    code, out, _ = run(log, "--once", "--slow-decode-ms", "59")
    assert code == 10 and "3 of the last 3 prefills are bad" in out


def test_a_log_without_outcomes_is_refused_by_name_unless_told_what_is_bad(run: Any, tmp_path: Path) -> None:
    log = llama_log(tmp_path / "log", 3)
    code, out, error = run(log, "--once")
    assert (code, out) == (2, "")
    assert "(llama-server's text log) has an outcome" in error and "--slow-decode-ms MS" in error
    code, out, error = run(log, "--once", "--count-only")
    assert (code, out) == (0, "")
    assert "3 requests (0 bad), 3 prefills (0 bad)" in error and "CUSUM" not in error
    assert run(log, "--once", "--slow-decode-ms", "101")[0] == 0
    short = tmp_path / "short"
    short.write_text(log.read_text().replace("3900.0 ms / 40 tokens", "1500.0 ms / 15 tokens"))
    code, _, error = run(short, "--once", "--slow-decode-ms", "99")
    assert code == 2 and "nor a decode time of 16 output tokens or more, so no alarm" in error
    assert "--slow-decode-ms MS" not in error, "what was given is no advice"
    short.write_text(log.read_text().replace("3900.0 ms / 40 tokens", "1600.0 ms / 16 tokens"))
    assert run(short, "--once", "--slow-decode-ms", "99")[0] == 10
    code, out, _ = run(log, "--once", "--slow-decode-ms", "99")
    assert code == 10 and "3 of the last 3 prefills are bad" in out


def test_failures_alone_are_no_outcomes(run: Any, tmp_path: Path) -> None:
    rows = [cell(f"p{number}", None, status="failed" if number % 9 == 0 else "ok") for number in range(18)]
    code, _, error = run(write(tmp_path / "log", *rows), "--once")
    assert code == 2 and "has an outcome" in error


def test_a_request_in_the_middle_of_its_lines_is_counted_by_the_run_that_sees_its_end(run: Any, tmp_path: Path) -> None:
    whole = llama_log(tmp_path / "whole", 4).read_bytes()
    log, state = tmp_path / "log", tmp_path / "state"
    counts = []
    for cut in range(0, len(whole) + 1, 97):
        log.write_bytes(whole[:cut])
        _, out, _ = run(log, "--once", "--count-only", "--state", state, "--json")
        series = json.loads(out)["series"]
        counts.append(sum(each["prefills"] for each in series.values()))
    log.write_bytes(whole)
    _, out, _ = run(log, "--once", "--count-only", "--state", state, "--json")
    (last,) = json.loads(out)["series"].values()
    assert counts == sorted(counts)
    assert (last["requests"], last["prefills"], last["others"]) == (4, 4, 0)


def test_server_lives_stay_apart_over_restarts_of_the_watch(run: Any, tmp_path: Path) -> None:
    log, state = tmp_path / "log", tmp_path / "state"
    for life in range(4):
        with log.open("a") as file:
            file.write("0.00.000.240 I srv          init: initializing ...\n")
        llama_log(log, 2)
        _, out, _ = run(log, "--once", "--count-only", "--state", state, "--json")
        (series,) = json.loads(out)["series"].values()
        assert (series["requests"], series["prefills"], series["copies"]) == (2 * life + 2, 2 * life + 2, 0)
    epochs = json.loads(state.read_text())["watch"]["classifier"]["epochs"]
    assert [epoch[1] for epoch in epochs] == [f"{log} life {number}" for number in range(4)]


def test_a_model_named_long_before_a_restart_still_names_the_series(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "OVERLAP_BYTES", 100)  # instead of 256 KiB of log
    log, state = tmp_path / "log", tmp_path / "state"
    log.write_text("0.00.000.001 I srv    load_model: loading model '/models/mine.gguf'\n")
    for count in (2, 4):
        llama_log(log, 2, count)
        _, out, _ = run(log, "--once", "--count-only", "--state", state, "--json")
        series = json.loads(out)["series"]
        assert {name: each["prefills"] for name, each in series.items()} == {"mine.gguf": count}


def test_lines_of_no_prompt_in_rotated_files_are_no_copies_of_each_other(run: Any, tmp_path: Path) -> None:
    log, state = tmp_path / "log", tmp_path / "state"
    seen = {"prompt_tokens": 100, "cached_tokens": 0, "processed_tokens": 100, "bad": False, "arm": "candidate"}
    write(log, {**seen, "started_at": 1})
    run(log, "--once", "--state", state)
    log.rename(tmp_path / "log.1")
    write(log, {**seen, "started_at": 2, "cached_tokens": 99, "processed_tokens": 1})
    _, _, error = run(log, "--once", "--state", state)
    assert "2 requests (0 bad), 1 prefills (0 bad), 0 copies (0 bad), 1 not shown to be a prefill" in error


def test_models_and_arms_are_watched_apart(run: Any, tmp_path: Path) -> None:
    rows = [reply("VERDICT: LGTM", number, model=f"m{number % 3}") for number in range(6)]
    code, _, error = run(write(tmp_path / "log", *rows), "--once")
    assert code == 0
    assert all(f"m{number}: 2 requests (2 bad), 2 prefills (2 bad)" in error for number in range(3))


def test_several_logs_are_one_watch(run: Any, tmp_path: Path) -> None:
    first = write(tmp_path / "one", cell("a", True), cell("b", True))
    second = write(tmp_path / "two", cell("c", True), cell("d", True))
    code, out, error = run(first, second, "--once")
    assert code == 10 and len(out.splitlines()) == 1
    assert "4 requests" in error


def test_from_end_leaves_out_what_stands_there(run: Any, tmp_path: Path) -> None:
    log, state = write(tmp_path / "log", *(cell(f"p{number}", True) for number in range(3))), tmp_path / "state"
    assert run(log, "--once", "--from-end", "--state", state)[0] == 0
    write(log, *(cell(f"q{number}", True) for number in range(3)))
    assert run(log, "--once", "--from-end", "--state", state)[0] == 10


def test_damaged_lines_are_counted_by_kind_and_an_unfinished_one_waits(run: Any, tmp_path: Path) -> None:
    log = write(tmp_path / "log", cell("a"))
    with log.open("ab") as file:
        file.write(b"{broken\n\xff\n\n[]\n" + json.dumps(cell("b")).encode() + b"\n" + json.dumps(cell("c")).encode())
    code, _, error = run(log, "--once")
    assert code == 0
    assert "2 requests" in error and "3 lines not used: no line of a cell log" in error


def test_a_state_of_another_rule_another_file_or_damaged_is_refused(run: Any, tmp_path: Path) -> None:
    log, state = write(tmp_path / "log", cell("a")), tmp_path / "state"
    assert run(log, "--once", "--state", state)[0] == 0
    code, _, error = run(log, "--once", "--state", state, "--policy", "strict")
    assert code == 2 and "kept under another policy" in error
    code, _, error = run(log, "--once", "--state", state, "--slow-decode-ms", "5")
    assert code == 2 and "kept under another rule" in error
    whole = state.read_text()
    for broken, how in (
        ("", "damaged: it is empty"),
        ("{}", "not the state of a watch"),
        ("[]", "not the state of a watch"),
        ("a diary", "not the state of a watch"),
        ('{"prefillgate_watch"' + "[" * 100_000, "damaged: its end is cut off or overwritten"),
        (whole[:-5], "damaged: its end is cut off or overwritten"),
        (whole.replace('"prefillgate_watch":1', '"prefillgate_watch":2'), "kept by another version of prefillgate"),
        (whole.replace('"pending"', '"spent"'), "damaged: pending missing"),
        (whole[:-1] + ',"more":1}', "damaged: it holds fields that no watch wrote"),
        (whole.replace('"series"', '"serious"'), "damaged: its counts cannot be used"),
        (whole.replace('"offset"', '"off"'), f"damaged: the place in {log} cannot be used"),
        (whole.replace('"offset":', '"offset":-'), f"damaged: the place in {log} cannot be used"),
        (whole.replace('"head_sha256":"', '"head_sha256":1,"was":"'), f"damaged: the place in {log} cannot be used"),
        (re.sub('"offset":[0-9]+', '"offset":"x"', whole), f"damaged: the place in {log} cannot be used"),
    ):
        state.write_text(broken)
        code, _, error = run(log, "--once", "--state", state)
        assert (code, len(error.splitlines())) == (2, 1), broken[:80]
        assert f"--state {state}: {how}" in error and "Expecting" not in error and "Error(" not in error
        assert ("move it away" in error) == ("damaged" in how)
    code, _, error = run(log, "--once", "--state", tmp_path / "no" / "state")
    assert code == 2 and "there is no folder" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--format", "nonsense"), "--format"),
        (("--count-only", "--slow-decode-ms", "5"), "--count-only"),
        (("--slow-decode-ms", "0"), "--slow-decode-ms"),
        (("--policy", "/no/such/policy"), "policy"),
        (("--tell-every", "0"), "--tell-every"),
    ],
)
def test_bad_options_are_named(run: Any, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    code, _, error = run(write(tmp_path / "log", cell("a")), "--once", *arguments)
    assert code == 2 and words in error


def test_a_folder_a_file_named_twice_and_an_unknown_content_are_refused(run: Any, tmp_path: Path) -> None:
    assert run(tmp_path, "--once")[0] == 2
    log = write(tmp_path / "log", cell("a"))
    code, _, error = run(log, log, "--once")
    assert code == 2 and "named twice" in error
    strange = tmp_path / "strange"
    strange.write_text("nothing that anybody knows\n")
    code, _, error = run(strange, "--once")
    assert code == 2 and "nothing recognises its content" in error


def test_a_named_format_is_believed(run: Any, tmp_path: Path) -> None:
    log = write(tmp_path / "log", {"note": "first line"}, cell("a"))
    assert run(log, "--once")[0] == 2
    code, _, error = run(log, "--once", "--format", "cells")
    assert code == 0 and "1 requests" in error


def test_a_log_that_is_not_there_yet_is_no_error(run: Any, tmp_path: Path) -> None:
    code, out, error = run(tmp_path / "later", "--once")
    assert (code, out) == (0, "") and "no request yet" in error and "later: not there yet" in error
    code, _, error = run(write(tmp_path / "there", cell("a")), "--once")
    assert code == 0 and "not there yet" not in error


def test_standard_input_is_no_log_that_can_be_followed(run: Any) -> None:
    code, out, error = run("-", "--once")
    assert (code, out) == (2, "") and "FILE -: standard input cannot be followed" in error


def test_what_a_log_says_cannot_steer_a_terminal(run: Any, tmp_path: Path) -> None:
    rows = [cell(f"\x1b[31mevil{number}\u202e", True) for number in range(3)]
    code, out, error = run(write(tmp_path / "log", *rows), "--once")
    assert code == 10 and "\x1b" not in out + error and "\u202e" not in out + error
