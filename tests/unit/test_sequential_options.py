"""`run --sequential` and `--swap-command`: what may be asked for, by options or a run file, and the printed plan."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefillgate.api.errors import RunFileError
from prefillgate.api.run_file import load_run_file
from prefillgate.cli.errors import BadInput
from prefillgate.cli.progress import Progress, window_line
from prefillgate.cli.run import command
from prefillgate.cli.run_request import requested
from prefillgate.cli.sequential import check_swap_command, hand_of, swap_words
from prefillgate.core.journal import WindowOpened
from prefillgate.replay.session import RunMismatch, RunRequest, check_same_run, plan_run
from prefillgate.replay.swapping import PATIENCE_SECONDS, CommandHand, WaitingHand
from tests.support.journals import started
from tests.unit.test_run_file import write

HERE = ["--baseline", "http://gpu:1", "--candidate", "http://gpu:1", "--replay-set", "demo"]


def asked(*arguments: str) -> RunRequest:
    """What these arguments ask for."""
    with command.make_context("run", [*HERE, *arguments]) as context:
        return requested(context.params)


def _apart(*arguments: str) -> RunRequest:
    """The same with an address for each arm."""
    words = ["--baseline", "http://gpu:1", "--candidate", "http://gpu:2", "--replay-set", "demo", *arguments]
    with command.make_context("run", words) as context:
        return requested(context.params)


def dry(*arguments: str) -> Result:
    return CliRunner().invoke(
        command, [*HERE, "--sequential", "--dry-run", "--cell-seconds", "2", *arguments], standalone_mode=False
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("swap", ("swap",)),
        ("  swap.sh --gpu '0 1' \"a b\" ", ("swap.sh", "--gpu", "0 1", "a b")),
        ('["C:\\\\my swap.cmd", "--gpu"]', ("C:\\my swap.cmd", "--gpu")),
        ("swap $HOME; rm x", ("swap", "$HOME;", "rm", "x")),  # no shell ever reads it
    ],
)
def test_a_swap_command_is_a_list_of_words(text: str, words: tuple[str, ...]) -> None:
    assert swap_words(text) == words
    assert asked("--sequential", "--swap-command", text).swap_command == words


@pytest.mark.parametrize("text", ["", "  ", "'open", "[1]", '["a", ""]', "[]", '["a"', '""'])
def test_a_swap_command_that_is_no_list_of_words_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"--swap-command: .*allowed: words as a shell writes them, or a JSON list"):
        swap_words(text)


def test_one_address_for_both_arms_is_for_sequential_runs_alone() -> None:
    request = asked("--sequential")
    assert request.shape.sequential and request.swap_command == ()
    with pytest.raises(BadInput, match="are the same server and model"):
        asked()


def test_what_cannot_go_together_is_refused() -> None:
    with pytest.raises(BadInput, match="only a sequential run swaps servers"):
        _apart("--swap-command", "x")
    with pytest.raises(BadInput, match="--gateway with --sequential"):
        asked("--sequential", "--gateway", "http://gateway:1")
    for more in (["--arms-at-once"], ["--baseline", "http://gpu:3"]):
        with pytest.raises(BadInput, match=r"several servers for (an|one) arm|--arms-at-once"):
            asked("--sequential", *more)
        with pytest.raises(BadInput, match="--sequential with several servers for an arm or --arms-at-once"):
            _apart("--sequential", *more)
    with pytest.raises(BadInput, match="--sequential with --isolation shared"):
        asked("--sequential", "--isolation", "shared")
    alone = ["--candidate", "http://gpu:1", "--replay-set", "demo", "--sequential"]
    with (
        command.make_context("run", alone) as context,
        pytest.raises(BadInput, match="--sequential is given and --baseline is not"),
    ):
        requested(context.params)


def one_place(folder: Path, **changes: Any) -> Path:
    return write(
        folder, baseline={"url": "http://gpu:1"}, candidate={"url": "http://gpu:1"}, replaySet="demo", **changes
    )


def test_a_run_file_holds_both(tmp_path: Path) -> None:
    file = one_place(tmp_path, sequential=True, swapCommand=["./swap.sh", "a b"])
    document = load_run_file(file)
    assert (document.sequential, document.swap_command) == (True, ("./swap.sh", "a b"))
    with command.make_context("run", [str(file)]) as context:
        request = requested(context.params)
    assert request.shape.sequential and request.swap_command == ("./swap.sh", "a b")
    with command.make_context("run", [str(file), "--swap-command", "mine"]) as context:
        assert requested(context.params).swap_command == ("mine",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"swapCommand": ["x"]}, "swapCommand without sequential: true"),
        ({}, "are the same server and model"),
        ({"sequential": True, "swapCommand": [""]}, "swapCommand"),
        ({"sequential": True, "swapCommand": "x"}, "swapCommand"),
    ],
)
def test_a_run_file_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RunFileError, match=message):
        load_run_file(one_place(tmp_path, **changes))


def test_a_store_is_of_one_shape() -> None:
    request = asked("--sequential")
    planned = plan_run(request, 5, 0.0, request.policy.policy)
    assert planned.shape.sequential
    check_same_run(planned, request)
    other = plan_run(asked("--sequential"), 5, 0.0, request.policy.policy)
    with pytest.raises(RunMismatch, match=r"servers up: the store was begun with both, now one at a time"):
        check_same_run(_both_up(other), request)


def _both_up(planned: Any) -> Any:
    from dataclasses import replace

    return replace(planned, shape=replace(planned.shape, sequential=False))


def test_the_command_swaps_where_there_is_one_and_its_patience_is_that_of_wait_ready() -> None:
    command_hand = hand_of(asked("--sequential", "--swap-command", "swap it", "--wait-ready", "7"))
    assert isinstance(command_hand, CommandHand)
    assert (command_hand.command, command_hand.patience_seconds, command_hand.old_life_seconds) == (
        *(("swap", "it"), 7.0),
        7.0,
    )
    patient = hand_of(asked("--sequential", "--swap-command", "swap"))
    assert (patient.patience_seconds, patient.old_life_seconds) == (PATIENCE_SECONDS, 30.0)
    assert isinstance(hand_of(asked("--sequential")), WaitingHand)  # no terminal here


@pytest.mark.parametrize("program", ["no-such-program-here", "./no-such-file", "."])
def test_a_swap_command_that_cannot_be_started_is_refused_before_the_first_window(program: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_swap_command((program, "now"))
    check_swap_command((sys.executable,))
    check_swap_command(())
    assert str(refused.value).startswith(f"--swap-command: {program!r} is no program that can be started (allowed: ")


def test_the_plan_prints_prefills_in_windows_and_the_swaps() -> None:
    told = json.loads(dry("--policy", "quick", "--json").stdout)
    assert told["swaps"] == {"least": 11, "most": 12, "replicate_clean": 2, "replicate_confirmed": 10}
    assert told["prefills"]["warm_up"] == 12
    page = dry("--policy", "quick").stdout
    assert "swaps            11 or 12 of servers when nothing is bad; their time comes on top" in page
    assert "2 more for a replicate that ends clean, 10 or more for one that confirms" in page
    words = ["--baseline", "http://gpu:1", "--candidate", "http://gpu:2", "--replay-set", "demo"]
    plain = CliRunner().invoke(command, [*words, "--dry-run", "--cell-seconds", "2", "--json"], standalone_mode=False)
    assert json.loads(plain.stdout)["swaps"] is None


def test_a_windows_line_names_arm_hand_and_pair_and_a_word_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert window_line(WindowOpened("baseline", 1.0, "found")) == "window: the baseline is up (found)"
    assert window_line(WindowOpened("candidate", 1.0, "command", 0, 2)) == (
        "window: the candidate is up (command), replicate 2, window pair 1"
    )
    progress, gate = Progress(), started()
    for _ in range(2):
        progress.event(gate, WindowOpened("candidate", 1.0, "person", 3, detail="on a word"))
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "window: the candidate is up (person), window pair 4; on a word",
        "window: the candidate is up (person), window pair 4",
    ]


def test_the_printed_minutes_of_a_sequential_run_say_that_swaps_are_not_among_them() -> None:
    said = "of servers when nothing is bad; their time comes on top"
    assert said in dry().stdout
    both_up = ["--baseline", "http://gpu:1", "--candidate", "http://gpu:2", "--replay-set", "demo"]
    other = CliRunner().invoke(command, [*both_up, "--dry-run", "--cell-seconds", "2"], standalone_mode=False)
    assert said not in other.stdout
    assert "minutes " in other.stdout
