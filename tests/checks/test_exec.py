"""The check `Exec`: a program of the user's own, asked over its standard input and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from prefillgate.api.errors import PolicyError
from prefillgate.api.policy import load_policy
from prefillgate.api.replay_set import Case
from prefillgate.core.journal import CheckOutcome
from prefillgate.core.quality import Output
from prefillgate.replay.checks import CheckSuite
from prefillgate.replay.program import KEPT_BYTES, Command, run_program
from tests.support.runs import write_policy

CASE = Case("case-7", "/v1/completions", {"prompt": "question"})
ANSWER = Output("an answer\nof two lines", "a thought", '[{"id":"c"}]', "stop")


def suite(folder: Path, code: str, **parameters: Any) -> CheckSuite:
    """A policy whose only check runs `code` with this Python."""
    (folder / "checks").mkdir(exist_ok=True)
    (folder / "checks" / "check.py").write_text(code, encoding="utf-8")
    arguments = [sys.executable, "checks/check.py", *parameters.pop("more", [])]
    return declared(folder, arguments=arguments, **parameters)


def declared(folder: Path, **parameters: Any) -> CheckSuite:
    check = {"type": "Exec", "exec": parameters}
    return CheckSuite.from_policy(load_policy(write_policy(folder / "policy.yaml", checks=[check])))


async def asked(made: CheckSuite, output: Output = ANSWER) -> CheckOutcome:
    return (await made.run(CASE, output))[0]


def ended(file: Path) -> bool:
    """Whether the process whose id stands there runs no more; one that nobody has waited for yet is a zombie."""
    try:
        return psutil.Process(int(file.read_text())).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def appears(file: Path) -> None:
    """Return once the file is there."""
    while not file.exists():
        time.sleep(0.01)


async def test_exit_0_is_good_and_1_is_bad_and_its_words_are_kept(tmp_path: Path) -> None:
    good = await asked(suite(tmp_path, "print('fine')"))
    assert (good.check, good.bad, good.detail, good.text) == ("exec", False, "", "fine\n")
    bad = await asked(
        suite(tmp_path, "import sys; print('\\nno rationale\\nmore'); print('!', file=sys.stderr); exit(1)")
    )
    assert (bad.bad, bad.detail) == (True, "no rationale")
    assert bad.text == "\nno rationale\nmore\n\n[standard error]\n!\n"
    silent = await asked(suite(tmp_path, "exit(1)"))
    assert (silent.bad, silent.detail) == (True, "the program exits 1 and says nothing")


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("exit(2)", "exit 2 is neither 0 (good) nor 1 (bad)"),
        ("import sys; sys.stderr.write('no model\\n'); exit(70)", "exit 70 is neither 0 (good) nor 1 (bad): no model"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "ended by signal 15"),
    ],
)
async def test_any_other_ending_is_an_error_and_never_a_pass(tmp_path: Path, code: str, detail: str) -> None:
    outcome = await asked(suite(tmp_path, code))
    assert (outcome.bad, outcome.detail) == (None, detail)


async def test_the_program_reads_the_answer_alone_or_all_of_it_as_json(tmp_path: Path) -> None:
    echo = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    assert (await asked(suite(tmp_path, echo))).text == ANSWER.content
    assert (await asked(suite(tmp_path, echo), Output("caf\u00e9 \ud800"))).text == "caf\u00e9 ?"
    told = json.loads((await asked(suite(tmp_path, echo, input="Json"))).text)
    assert told == {
        "case_id": "case-7",
        "content": ANSWER.content,
        "reasoning": "a thought",
        "tool_calls": [{"id": "c"}],
        "finish_reason": "stop",
    }


async def test_arguments_reach_the_program_as_they_are_written_and_no_shell_reads_them(tmp_path: Path) -> None:
    made = suite(tmp_path, "import sys; print(sys.argv[1:])", more=["$HOME; exit 1", "a b", "", "*"])
    assert (await asked(made)).text.strip() == "['$HOME; exit 1', 'a b', '', '*']"


async def test_at_the_timeout_the_program_and_everything_it_started_is_ended(tmp_path: Path) -> None:
    """The grandchild is in a session of its own and its parent is gone: only the mark in its environment tells."""
    code = (
        "import subprocess, sys, time\n"
        "inner = 'import os, sys, time; open(sys.argv[1], \"w\").write(str(os.getpid())); time.sleep(600)'\n"
        "outer = 'import subprocess, sys; subprocess.Popen([sys.executable, \"-c\", sys.argv[1], sys.argv[2]], '\n"
        "outer += 'start_new_session=True)'\n"
        "subprocess.run([sys.executable, '-c', outer, inner, 'orphan.pid'])\n"
        "subprocess.Popen([sys.executable, '-c', inner, 'child.pid'])\n"
        "print('started', flush=True)\n"
        "time.sleep(600)\n"
    )
    outcome = await asked(suite(tmp_path, code, timeoutSeconds=3))
    assert outcome.bad is None
    assert outcome.detail == "not done within 3 s; it was ended with all it started: started"
    for name in ("orphan.pid", "child.pid"):
        assert ended(tmp_path / name), name


async def test_a_process_left_behind_does_not_hold_the_answer_back(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('left.pid', 'w').write(str(left.pid))\n"
        "exit(1)\n"
    )
    outcome = await asked(suite(tmp_path, code, timeoutSeconds=600))
    assert outcome.bad is True
    assert ended(tmp_path / "left.pid")


async def test_an_input_nobody_reads_and_an_output_without_end_hold_nothing_up(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.write('x' * 3_000_000); sys.stderr.write('q' * 3_000_000)"
    outcome = await asked(suite(tmp_path, code), Output("z" * 3_000_000))
    assert outcome.bad is False
    assert outcome.text.count("x") == KEPT_BYTES
    assert outcome.text.count("q") == KEPT_BYTES
    assert outcome.text.count(f"[cut after {KEPT_BYTES} bytes]") == 2


async def test_the_event_loop_goes_on_while_a_program_thinks(tmp_path: Path) -> None:
    made = suite(tmp_path, "import time, os\nwhile not os.path.exists('go'): time.sleep(0.01)", timeoutSeconds=60)
    running = asyncio.create_task(asked(made))
    await asyncio.sleep(0.05)
    (tmp_path / "go").touch()  # a blocked loop would never come here
    assert (await running).bad is False


async def test_a_run_that_is_interrupted_ends_the_program(tmp_path: Path) -> None:
    code = "import os, time\nopen('it.pid', 'w').write(str(os.getpid()))\nopen('ready', 'w')\ntime.sleep(600)"
    running = asyncio.create_task(asked(suite(tmp_path, code, timeoutSeconds=600)))
    await asyncio.to_thread(appears, tmp_path / "ready")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended(tmp_path / "it.pid")


async def test_a_program_that_went_away_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "check"
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    made = declared(tmp_path, arguments=["./check"])
    assert (await asked(made)).bad is False
    program.unlink()
    outcome = await asked(made)
    assert (outcome.bad, outcome.detail) == (None, "./check cannot be started: No such file or directory")


async def test_a_program_stands_and_runs_where_its_policy_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policies").mkdir()
    program = tmp_path / "policies" / "check"
    program.write_text(f"#!{sys.executable}\nimport os; print(os.getcwd())\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.chdir(tmp_path)
    made = declared(Path("policies"), arguments=["./check"])
    monkeypatch.chdir(os.sep)
    assert (await asked(made)).text.strip() == str((tmp_path / "policies").resolve())


def test_a_program_that_is_not_there_is_said_before_anything_runs(tmp_path: Path) -> None:
    for arguments, words in (
        (["./missing"], "missing is not there (allowed: a file, relative to the policy's folder)"),
        (["no-such-program-here"], "no program no-such-program-here is on the search path"),
        (["./plain.txt"], "plain.txt is no program (allowed: a file that may be executed)"),
        ([" "], "the first argument is the program; it is empty"),
        (["a\0b"], "an argument holds a NUL character"),
    ):
        (tmp_path / "plain.txt").write_text("text")
        (tmp_path / "plain.txt").chmod(0o644)
        with pytest.raises(PolicyError) as error:
            declared(tmp_path, arguments=arguments)
        assert words in str(error.value)


async def test_the_version_tells_the_arguments_and_the_files_they_name(tmp_path: Path) -> None:
    async def version(code: str, **parameters: Any) -> str:
        return (await asked(suite(tmp_path, code, **parameters))).version

    first = await version("exit(0)")
    assert first == await version("exit(0)")
    others = [
        await version("exit(0) "),  # the script
        await version("exit(0)", more=["--strict"]),
        await version("exit(0)", timeoutSeconds=31),
        await version("exit(0)", input="Json"),
    ]
    assert len({first, *others}) == 5
    assert first.partition(".")[0] == "1"


async def test_a_name_on_the_search_path_is_no_file_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "my-check"
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    (tmp_path / "my-check").write_text("not the program")
    outcome = await asked(declared(tmp_path, arguments=["my-check"]))
    assert outcome.bad is False
    assert outcome.version.startswith("1+")  # no file is told of


async def test_a_program_alone_can_be_run_without_a_policy(tmp_path: Path) -> None:
    ran = await run_program(Command((sys.executable, "-c", "print(input())"), tmp_path, 30), b"given\n")
    assert (ran.code, ran.stdout, ran.stderr) == (0, "given\n", "")
