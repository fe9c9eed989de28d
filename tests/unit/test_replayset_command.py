"""`prefillgate replayset` and `prefillgate policy`: what they print before a run spends prefills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefillgate.cli.main import main
from prefillgate.core.cells import ColdProof
from prefillgate.engines.base import EngineError
from prefillgate.engines.registry import create, engine_names
from prefillgate.replay.replay_set import load_replay_set
from prefillgate.replay.request import GATE_FIELDS, Sending, foreign_changes, prepare

LINE: dict[str, Any] = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {
        "model": "mine",
        "messages": [
            {"role": "system", "content": "Be short."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": "data:,"}}],
            },
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "response_format": {"type": "json_object"},
        "chat_template_kwargs": {"enable_thinking": False},
        "n": 3,
        "temperature": 0.5,
        "logit_bias": {"7": -1.5},
    },
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def command(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def write(folder: Path, *lines: dict[str, Any]) -> Path:
    file = folder / "set.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_lint_prints_cases_warnings_and_the_digest(run: Any) -> None:
    code, out, error = run("replayset", "lint", "short")
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == 9
    assert "trace-tax-183" in lines[0] and "24 tokens out" in lines[0] and "expect exact" in lines[0]
    assert lines[-1] == f"8 cases, sha256 {load_replay_set('short').sha256}"
    assert "8 prompts: a verdict speaks about this set only" in error
    assert "8 of 8 cases allow fewer than 32 output tokens and give no throughput pair" in error


CANARY = "no case carries a canary"


def test_lint_recommends_a_canary_where_no_case_has_one(run: Any, tmp_path: Path) -> None:
    one, other = LINE, {**LINE, "custom_id": "b"}
    assert CANARY in run("replayset", "lint", str(write(tmp_path, one, other)))[2]
    carried = {**one, "prefillgate": {"canary": "Be short."}}
    assert CANARY not in run("replayset", "lint", str(write(tmp_path, carried, other)))[2]
    assert CANARY not in run("replayset", "lint", str(write(tmp_path, one)))[2]  # no other prompt it could leak into


def test_a_set_that_is_not_there_names_those_that_are(run: Any) -> None:
    servers = ("--baseline", "http://127.0.0.1:1", "--candidate", "http://127.0.0.1:2")
    for command in (("replayset", "lint", "nope"), ("run", *servers, "--replay-set", "nope")):
        code, out, error = run(*command)
        assert (code, out.replace("problems: 1; the set cannot be used\n", "")) == (2, "")
        assert "nope: cannot be read" in error
        assert "(allowed: a JSONL file, or a set that comes with the package: demo, four, short)" in error


def test_lint_tells_every_problem_and_exits_2(run: Any, tmp_path: Path) -> None:
    file = write(tmp_path, LINE, LINE, {**LINE, "custom_id": "b", "prefillgate": {"checks": ["regex=("]}})
    code, out, error = run("replayset", "lint", str(file))
    assert code == 2
    assert f'error: {file}:2: custom_id: "a" was already used on line 1' in error
    assert f"error: {file}:3: check regex: the pattern ( cannot be used" in error
    assert out.splitlines()[-1] == "problems: 2; the set cannot be used"


def test_lint_of_a_foreign_file_fits_a_screen_and_counts_the_rest(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "diary.txt"
    for lines, more in ((10, []), (11, ["and 1 more"]), (500, ["and 490 more"])):
        file.write_text("dear diary\n" * lines)
        code, out, error = run("replayset", "lint", str(file))
        assert (code, out) == (2, f"problems: {lines}; the set cannot be used\n")
        said = [line.removeprefix("prefillgate: error: ") for line in error.splitlines()]
        assert [line.partition(": not JSON")[0] for line in said[:10]] == [f"{file}:{n}" for n in range(1, 11)]
        assert said[10:] == [f"{words} (--json holds the first 100)" for words in more]
    assert len(json.loads(run("replayset", "lint", str(file), "--json")[1])["problems"]) == 100


def test_lint_as_json_is_one_object(run: Any, tmp_path: Path) -> None:
    own = {"expect": {"contains": "x"}, "canary": "canary-0001", "checks": ["min_words=3"]}
    file = write(tmp_path, {**LINE, "prefillgate": own})
    code, out, error = run("replayset", "lint", str(file), "--json")
    document = json.loads(out)
    assert (code, error) == (0, "")
    assert set(document) == {"name", "file", "sha256", "cases", "problems", "warnings"}
    loaded = load_replay_set(file)
    assert (document["name"], document["sha256"], document["problems"]) == ("set", loaded.sha256, [])
    assert document["cases"] == [
        {
            "case_id": "a",
            "line": 1,
            "path": "/v1/chat/completions",
            "sha256": loaded.cases[0].sha256,
            "characters": loaded.cases[0].characters,
            "max_tokens": None,
            "greedy": False,
            "messages": 2,
            "expect": "contains",
            "checks": ["min_words"],
            "canary": "canary-0001",
        }
    ]
    code, out, _ = run("replayset", "lint", str(write(tmp_path, {**LINE, "method": "GET"})), "--json")
    document = json.loads(out)
    assert (code, document["sha256"]) == (2, None)
    assert document["problems"] == [
        {"where": f"{file}:1", "field": "method", "message": '"GET"', "allowed": "POST"},
    ]


@pytest.mark.parametrize(
    ("body", "own", "warning"),
    [
        ({"prompt": "x"}, None, "are sampled"),
        ({"prompt": "x"}, None, "set no token limit"),
        ({"prompt": "x", "max_tokens": 31}, None, "allow fewer than 32 output tokens"),
        ({"prompt": "x"}, None, "have no check and no expected answer"),
        ({"prompt": [1, 2]}, None, "give the prompt as token numbers"),
        ({"prompt": "x", "n": 2}, None, "ask for several choices at once"),
        ({"prompt": "x", "seed": 1}, None, "set a seed"),
        ({"prompt": "x", "cache_prompt": True}, None, "set a cache knob"),
        ({"prompt": "x"}, {"canary": "canary-0001"}, "carry a canary that is not in their prompt"),
        ({"prompt": "a\0b"}, None, "hold a NUL character"),
    ],
)
def test_lint_warns_of_what_is_unwise(run: Any, tmp_path: Path, body: dict[str, Any], own: Any, warning: str) -> None:
    file = write(tmp_path, {**LINE, "url": "/v1/completions", "body": body, **({"prefillgate": own} if own else {})})
    code, _, error = run("replayset", "lint", str(file))
    assert code == 0
    assert f"1 of 1 cases {warning}" in error


def test_lint_is_silent_about_a_set_without_faults(run: Any, tmp_path: Path) -> None:
    body = {"max_tokens": 32, "temperature": 0}
    own = {"expect": {"exact": "x"}, "canary": "canary-0000"}
    lines = [
        {
            "custom_id": f"c{number}",
            "method": "POST",
            "url": "/v1/completions",
            "body": {**body, "prompt": f"canary-{number:04d}"},
            "prefillgate": {**own, "canary": f"canary-{number:04d}"},
        }
        for number in range(48)
    ]
    assert run("replayset", "lint", str(write(tmp_path, *lines)))[2] == ""
    assert "47 prompts" in run("replayset", "lint", str(write(tmp_path, *lines[:47])))[2]
    lines[47]["body"] = lines[3]["body"]
    error = run("replayset", "lint", str(write(tmp_path, *lines)))[2]
    assert "1 of 48 cases repeat the prompt of another case and may be copies of its prefill: c47 (as c3)" in error


@pytest.mark.parametrize(
    ("engine", "changed"),
    [
        ("llama.cpp", {"n", "seed", "stream", "stream_options", "cache_prompt"}),
        ("openai-compatible", {"n", "seed", "stream", "stream_options", "messages"}),
    ],
)
def test_show_as_sent_lists_every_change_and_leaves_the_rest(
    run: Any, tmp_path: Path, engine: str, changed: set[str]
) -> None:
    file = write(tmp_path, LINE)
    code, out, _ = run("replayset", "show", str(file), "--as-sent", "--engine", engine, "--json")
    (case,) = json.loads(out)["cases"]
    sent = case["as_sent"]
    assert (code, sent["path"], case["body"]) == (0, "/v1/chat/completions", LINE["body"])
    assert {change["field"] for change in sent["changes"]} == changed
    assert {name for name in sent["body"] if sent["body"][name] != LINE["body"].get(name)} == changed
    assert {"field": "n", "from": 3, "to": 1} in sent["changes"]
    for name in ("tools", "response_format", "chat_template_kwargs", "temperature", "logit_bias", "model"):
        assert sent["body"][name] == LINE["body"][name]
    assert sent["body"]["messages"][1] == LINE["body"]["messages"][1]


def test_as_sent_forces_a_fresh_prefill_by_what_each_route_has(run: Any, tmp_path: Path) -> None:
    completions = {**LINE, "custom_id": "b", "url": "/v1/completions", "body": {"prompt": "Hi"}}
    file = write(tmp_path, LINE, completions)
    _, out, _ = run("replayset", "show", str(file), "--as-sent", "--engine", "tensorrt-llm", "--json")
    changed = [{change["field"] for change in case["as_sent"]["changes"]} for case in json.loads(out)["cases"]]
    assert ["cache_salt" in fields for fields in changed] == [True, False]
    assert ["prompt" in fields for fields in changed] == [False, True]


def test_show_prints_one_case_for_reading(run: Any, tmp_path: Path) -> None:
    line = {**LINE, "url": "/v1/completions", "body": {"prompt": "esc \x1b[31m and \u202e and \U000e0001 変更"}}
    file = write(tmp_path, line, {**line, "custom_id": "b", "body": {"prompt": "other"}})
    code, out, _ = run("replayset", "show", str(file), "--case", "a", "--as-sent")
    assert code == 0
    assert all(text.isprintable() for text in out.splitlines())
    assert "\\u001b[31m and \\u202e and \\udb40\\udc01 変更" in out
    assert "changed: cache_prompt from null to false" in out
    assert "other" not in out
    body = out[out.index("{") : out.index("\n}\n") + 2]
    assert json.loads(body)["prompt"] == line["body"]["prompt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "demo", "--case", "nope"), "--case nope: no such case"),
        (("show", "none.jsonl"), "none.jsonl: cannot be read"),
        (("show", "demo", "--as-sent", "--engine", "vax"), f"allowed: {', '.join(engine_names()[1:])}"),
        (("lint", "none.jsonl"), "none.jsonl: cannot be read"),
    ],
)
def test_bad_arguments_are_bad_input(run: Any, arguments: tuple[str, ...], message: str) -> None:
    code, _, error = run("replayset", *arguments)
    assert code == 2
    assert message in error


def test_a_prompt_of_tokens_has_no_place_for_a_nonce(run: Any, tmp_path: Path) -> None:
    file = write(tmp_path, {**LINE, "url": "/v1/completions", "body": {"prompt": [1, 2]}})
    code, _, error = run("replayset", "show", str(file), "--as-sent", "--engine", "openai-compatible")
    assert code == 2
    assert "case a: prompt is not one text: no place for the nonce" in error
    assert run("replayset", "show", str(file), "--as-sent")[0] == 0


def test_the_guard_names_every_field_that_is_not_the_gates() -> None:
    before = {"model": "a", "n": 2, "prompt": "x", "temperature": 0, "stop": ["x"], "tools": [1]}
    after = {**dict.fromkeys(GATE_FIELDS, 1), "prompt": "y", "temperature": False, "tools": [1], "extra": None}
    assert foreign_changes(before, after, None) == ("extra", "prompt", "stop", "temperature")
    assert foreign_changes(before, after, ColdProof.NONCE) == ("extra", "stop", "temperature")
    knob = {**before, "cache_prompt": False}
    assert foreign_changes(before, knob, ColdProof.CACHE_OFF) == ()
    assert foreign_changes(before, knob, ColdProof.SALT) == ("cache_prompt",)
    assert foreign_changes(before, {**before, "cache_salt": "s"}, ColdProof.SALT) == ()


def test_a_case_is_prepared_with_its_own_seed_and_model() -> None:
    case = load_replay_set("four").cases[0]
    engine = create("llama.cpp", "http://127.0.0.1:1")
    sent = prepare(case, engine, Sending("other-model", 99, "nonce", ColdProof.CACHE_OFF))
    assert (sent.body["model"], sent.body["seed"], sent.body["cache_prompt"]) == ("other-model", 99, False)
    assert sent.body["prompt"] == case.body["prompt"]
    with pytest.raises(EngineError):
        prepare(case, engine, Sending(None, None, "nonce", ColdProof.SALT))


def test_policy_lint_prints_the_numbers(run: Any) -> None:
    code, out, error = run("policy", "lint", "standard")
    assert (code, error) == (0, "")
    assert "promotes at 32 with 0 bad, 56 with 1 bad, 75 with 2 bad; exact false promotion 0.049849" in out
    assert "bad rate 1%: promoted 0.970, 39.6 prefills" in out
    assert "checks: not_empty, loop, template_tokens, bare_verdict, cut" in out


def test_policy_lint_as_json_is_one_object(run: Any) -> None:
    code, out, _ = run("policy", "lint", "quick", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["acceptance"] == [
        {"bad": 0, "prefills": 16},
        {"bad": 1, "prefills": 25},
        {"bad": 2, "prefills": 35},
    ]
    assert round(document["false_promotion"], 6) == 0.049952
    assert [row["rate"] for row in document["power"]] == [0.0, 0.01, 0.05, 0.1]
    assert (document["margin"], document["budget"], document["warnings"]) == (0.2, 150, [])
    assert document["flags"] == [{"name": "bad", "checks": []}]


def test_policy_lint_names_what_cannot_be(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    top = "apiVersion: prefillgate.io/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: p}\nspec:\n"
    file.write_text(f"{top}  marginPercent: 10\n  budgetPrefills: 3\n")
    code, out, error = run("policy", "lint", str(file))
    assert (code, out) == (2, "")
    assert f"error: {file}:6: spec.budgetPrefills: 3 (allowed: at least 32" in error
    code, out, _ = run("policy", "lint", str(file), "--json")
    assert code == 2
    assert json.loads(out)["problems"][0]["field"] == "spec.budgetPrefills"
    file.write_text(f"{top}  marginPercent: 10\n  checks: [{{type: Cel, cel: {{expression: wrds > 1}}}}]\n")
    assert "undeclared reference to 'wrds'" in run("policy", "lint", str(file))[2]
    file.write_text(f"{top}  marginPercent: 10\n  flags: [{{name: x, checks: [equal_to_baseline]}}]\n")
    code, _, error = run("policy", "lint", str(file))
    assert code == 0
    assert "differ on a third or more of healthy outputs" in error


def test_policy_lint_judges_a_policy_against_a_set(run: Any, tmp_path: Path) -> None:
    code, _, error = run("policy", "lint", "quick", "--replay-set", "short")
    assert code == 0
    assert "short: only 0 prompts can give a throughput pair and 8 are wanted" in error
    assert "throughput pair" not in run("policy", "lint", "quick", "--replay-set", "demo")[2]
    lines = [{**LINE, "custom_id": f"c{number}"} for number in range(143)]
    part = "prompts, each of which must be fresh once, and a baseline pass of 8 do not fit into spec.budgetPrefills 150"
    assert f"143 {part}" in run("policy", "lint", "quick", "--replay-set", str(write(tmp_path, *lines)))[2]
    assert part not in run("policy", "lint", "quick", "--replay-set", str(write(tmp_path, *lines[:142])))[2]
