"""`prefillgate replayset import`: what logs hold as a replay set, what they do not by name, secrets by neither."""

from __future__ import annotations

import gzip
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from prefillgate.cli.main import main

REPLY = {"id": "r", "choices": [{"index": 0, "message": {"content": "yo"}, "finish_reason": "stop"}]}


def ask(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 40, "temperature": 0, **more}


def pair(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"request": ask(text, **more), "response": REPLY}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def write(path: Path, *documents: object) -> str:
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in documents))
    return str(path)


class Ran(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def run(*arguments: object, stdin: bytes = b"") -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["replayset", *map(str, arguments)])
    return Ran(code, out.getvalue(), err.getvalue())


def cases(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_prompt_becomes_one_case_that_lint_accepts(tmp_path: Path, out: Path) -> None:
    log = write(tmp_path / "log", pair("one"), pair("two"), pair("one", seed=4))
    found = run("import", log, "-o", out)
    assert found.exit_code == 0
    assert [case["body"] for case in cases(out)] == [ask("one"), ask("two")]
    assert "read: 3 requests (OpenAI-style responses as JSON lines)" in found.stdout
    assert "1  the prompt of an earlier case (--keep-duplicates keeps them) (first: " in found.stdout
    assert f"written: 2 cases to {out}" in found.stdout
    assert run("lint", out).exit_code == 0


def test_keep_duplicates_keeps_them_under_names_of_their_own(tmp_path: Path, out: Path) -> None:
    log = write(tmp_path / "log", pair(), pair(), pair(seed=4))
    assert run("import", log, "-o", out, "--keep-duplicates").exit_code == 0
    names = [case["custom_id"] for case in cases(out)]
    assert names[1] == f"{names[0]}-2" and len(set(names)) == 3
    assert run("lint", out).exit_code == 0


def test_the_same_requests_have_the_same_names_wherever_they_stand(tmp_path: Path, out: Path) -> None:
    run("import", write(tmp_path / "a", pair("one"), pair("two")), "-o", out)
    first = {case["body"]["messages"][0]["content"]: case["custom_id"] for case in cases(out)}
    run("import", write(tmp_path / "b", pair("two"), pair("zero"), pair("one")), "-o", out, "--overwrite")
    second = {case["body"]["messages"][0]["content"]: case["custom_id"] for case in cases(out)}
    assert first == {text: second[text] for text in first}


def test_batch_input_keeps_its_names_and_its_answers_are_no_further_cases(tmp_path: Path, out: Path) -> None:
    asked = [
        {"custom_id": f"n{at}", "method": "POST", "url": "/v1/chat/completions", "body": ask(str(at))} for at in (0, 1)
    ]
    answers = [{"custom_id": f"n{at}", "response": {"status_code": 200, "body": REPLY}} for at in (0, 1)]
    found = run("import", write(tmp_path / "o", *answers), write(tmp_path / "i", *asked), "-o", out)
    assert [case["custom_id"] for case in cases(out)] == ["n0", "n1"]
    assert "read: 2 requests" in found.stdout and "not written" not in found.stdout


def test_choices_of_one_request_are_one_case(tmp_path: Path, out: Path) -> None:
    reply = {**REPLY, "choices": [{**REPLY["choices"][0], "index": at} for at in (0, 1, 2)]}  # type: ignore[index,dict-item]
    found = run("import", write(tmp_path / "log", {"request": ask(n=3), "response": reply}), "-o", out)
    assert "read: 1 request (" in found.stdout and "not written" not in found.stdout


def test_secrets_stay_behind_and_are_counted(tmp_path: Path, out: Path) -> None:
    tool = {"type": "mcp", "server_url": "http://x", "authorization": "s3cret-1", "headers": {"X-Any": "s3cret-2"}}
    schema = {"type": "function", "function": {"parameters": {"properties": {"password": {"type": "string"}}}}}
    more = {
        "api_key": "s3cret-3",
        "extra_headers": {"Authorization": "s3cret-4"},
        "metadata": {"user_api_key": "s3cret-5"},
    }
    found = run("import", write(tmp_path / "log", pair(tools=[tool, schema], **more)), "-o", out)
    assert "s3cret" not in out.read_text() + found.stdout
    assert "taken out of the bodies: 5 headers, keys, tokens or passwords" in found.stdout
    (case,) = cases(out)
    assert case["body"]["tools"] == [{"type": "mcp", "server_url": "http://x"}, schema], "a schema names no secret"
    assert case["body"]["max_tokens"] == 40


def test_what_says_nothing_goes(tmp_path: Path, out: Path) -> None:
    log = write(tmp_path / "log", pair(seed=None, n_predict=-1, tools=None))
    run("import", log, "-o", out)
    assert cases(out)[0]["body"] == ask()


def test_what_cannot_be_a_case_is_named_with_its_first_places(tmp_path: Path, out: Path) -> None:
    bad = {"request": {**ask(), "messages": []}, "response": REPLY}
    log = write(tmp_path / "log", pair(), REPLY, "{", bad, bad, bad, bad)
    found = run("import", log, "-o", out)
    places = ", ".join(f"{log}:{line}" for line in (4, 5, 6))
    why = "no case, by its body.messages (allowed: a non-empty list of messages)"
    assert f"        4  {why} (first: {places})\n" in found.stdout
    assert f"1  no prompt in the log (first: {log}:2)" in found.stdout
    assert f"1  JSON that ends too early (first: {log}:3)" in found.stdout


def test_a_log_without_prompts_is_refused_with_the_flag_that_would_give_them(tmp_path: Path, out: Path) -> None:
    found = run("import", write(tmp_path / "log", REPLY, REPLY), "-o", out)
    assert found.exit_code == 2 and not out.exists() and not list(tmp_path.glob("*.partial"))
    assert "2  no prompt in the log" in found.stderr
    assert 'no request in it can be a case; what would give the prompts: lines of {"request"' in found.stderr


def test_an_output_that_is_there_is_replaced_only_when_that_is_said(tmp_path: Path, out: Path) -> None:
    out.write_text("mine")
    log = write(tmp_path / "log", pair())
    refused = run("import", log, "-o", out)
    assert refused.exit_code == 2 and out.read_text() == "mine"
    assert f"--output {out}: the file is there already (allowed: a new file, or --overwrite)" in refused.stderr
    assert run("import", log, "-o", out, "--overwrite").exit_code == 0
    assert len(cases(out)) == 1
    assert run("import", log, "-o", log, "--overwrite").exit_code == 2, "never the log itself"


def test_format_and_gzip_and_standard_input(tmp_path: Path, out: Path) -> None:
    data = gzip.compress(json.dumps({"request": ask(), "response": REPLY}).encode())
    assert run("import", "-", "-o", out, stdin=data).exit_code == 0
    assert len(cases(out)) == 1
    refused = run("import", "-", "-o", tmp_path / "other", "--format", "nonsense", stdin=data)
    assert (
        refused.exit_code == 2 and "'nonsense'" in refused.stderr.replace('"', "'") and "openai-jsonl" in refused.stderr
    )
    forced = run("import", "-", "-o", tmp_path / "other", "--format", "llama-server-log", stdin=data)
    assert forced.exit_code == 2 and "no request in it can be a case" in forced.stderr


def test_our_own_cell_log_holds_no_prompts(tmp_path: Path, out: Path) -> None:
    found = run("import", write(tmp_path / "log", {"arm": "candidate", "case_id": "a"}), "-o", out)
    assert found.exit_code == 2 and "prefillgate's cell log holds no prompts" in found.stderr


def test_json_tells_the_same_in_one_object(tmp_path: Path, out: Path) -> None:
    log = write(tmp_path / "log", pair(api_key="k" * 9), pair(), "{")
    told = json.loads(run("import", log, "-o", out, "--json").stdout)
    assert (told["output"], told["read"], told["written"], told["secrets_removed"]) == (str(out), 2, 1, 1)
    assert told["formats"] == ["OpenAI-style responses as JSON lines"] and told["flags"] == []
    assert [(kind["count"], kind["first"]) for kind in told["left"]] == [(1, [f"{log}:2"]), (1, [f"{log}:3"])]


def test_hostile_text_of_a_log_reaches_no_terminal(tmp_path: Path, out: Path) -> None:
    body = {**ask(), "temperature": "\x1b[31m"}
    found = run("import", write(tmp_path / "lo\x1bg", {"request": body, "response": REPLY}), "-o", out)
    assert found.exit_code == 2 and "\x1b" not in found.stderr


def test_a_column_map_finds_the_prompts_of_a_table(tmp_path: Path, out: Path) -> None:
    (tmp_path / "log.csv").write_text("text;n\nhello;1\nworld;2\n")
    assert run("import", tmp_path / "log.csv", "-o", out).exit_code == 2, "no column is called like a field"
    assert run("import", tmp_path / "log.csv", "-o", out, "--column", "prompt=text").exit_code == 0
    assert [case["body"] for case in cases(out)] == [{"prompt": "hello"}, {"prompt": "world"}]


def test_one_case_is_counted_as_one(tmp_path: Path, out: Path) -> None:
    found = run("import", write(tmp_path / "log", pair()), "-o", out)
    assert found.stdout == (f"read: 1 request (OpenAI-style responses as JSON lines)\nwritten: 1 case to {out}\n")
