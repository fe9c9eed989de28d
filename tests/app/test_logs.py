"""The log of the controller: one form for everything, one line a trouble, nothing a terminal would obey."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from typing import Any

import pytest
import structlog

from prefillgate.app.logs import TELL_AGAIN_SECONDS, Troubles, logger, set_up_logs


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def rows(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_object_a_line_what_it_is_about_first(stream: io.StringIO) -> None:
    set_up_logs("info", "json", stream)
    with structlog.contextvars.bound_contextvars(term=3, line="llm/chat"):
        logger().bind(work="uid-1", rollout="chat-1").info("told", message="two\nlines", more=[1])
    (row,) = rows(stream)
    assert list(row) == ["time", "level", "event", "line", "rollout", "work", "term", "message", "more"]
    assert (row["level"], row["event"], row["message"], row["more"]) == ("info", "told", "two\nlines", [1])
    assert row["time"].endswith("Z") and stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("format_", ["json", "console"])
def test_nothing_a_terminal_would_obey(format_: str, stream: io.StringIO) -> None:
    set_up_logs("info", format_, stream)
    logger().info("told", message="\x1b[31mred\x07\x9b\u202e")
    assert not set(stream.getvalue()) & set("\x1b\x07\x9b\u202e")


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_the_least_level(level: str, stream: io.StringIO) -> None:
    set_up_logs(level, "json", stream)
    levels = ["debug", "info", "warning", "error"]
    for each in levels:
        getattr(logger(), each)("told")
    assert [row["level"] for row in rows(stream)] == levels[levels.index(level) :]


def test_a_line_for_people_has_no_braces(stream: io.StringIO) -> None:
    set_up_logs("info", "console", stream)
    logger().warning("trouble", about="Lease", message="away")
    assert "trouble" in stream.getvalue() and "about=Lease" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_a_pipe_that_was_closed_ends_nothing(stream: io.StringIO) -> None:
    set_up_logs("info", "json", stream)
    stream.close()
    logger().info("told")


def test_threads_do_not_mix_their_lines(stream: io.StringIO) -> None:
    set_up_logs("info", "json", stream)

    def tell(name: int) -> None:
        for number in range(50):
            logger().info("told", name=name, number=number, message="x" * 200)

    threads = [threading.Thread(target=tell, args=(name,)) for name in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(rows(stream)) == 200


def test_a_trouble_is_told_when_it_begins_changes_goes_on_for_half_an_hour_and_ends(stream: io.StringIO) -> None:
    set_up_logs("info", "json", stream)
    now = [0.0]
    troubles = Troubles(lambda: now[0])
    assert troubles.note("Lease", "away")
    assert not troubles.note("Lease", "away")
    assert troubles.note("Lease", "forbidden")
    now[0] = TELL_AGAIN_SECONDS - 1
    assert not troubles.note("Lease", "forbidden")
    now[0] = TELL_AGAIN_SECONDS
    assert troubles.note("Lease", "forbidden")
    assert troubles.standing == ("Lease",)
    troubles.over("Lease")
    troubles.over("Lease")
    troubles.over("another")
    told = [(row["event"], row.get("message")) for row in rows(stream)]
    assert told == [
        *(("trouble", "away"), ("trouble", "forbidden"), ("trouble", "forbidden"), ("trouble_over", None)),
    ]
    assert troubles.standing == ()


def test_troubles_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> None:
    set_up_logs("error", "json", stream)
    monkeypatch.setattr("prefillgate.app.logs.MOST_TROUBLES", 3)
    troubles = Troubles()
    for number in range(9):
        troubles.note(str(number), "x")
    assert troubles.standing == ("6", "7", "8")


def test_libraries_warnings_and_threads_say_theirs_in_the_same_form() -> None:
    code = """
        import logging, threading, warnings
        from prefillgate.app.logs import set_up_logs, take_in_the_rest
        set_up_logs("info", "json")
        take_in_the_rest()
        logging.getLogger("asyncio").error("Task exception was never retrieved")
        logging.getLogger("asyncio").info("not this")
        warnings.warn("careful")
        thread = threading.Thread(target=lambda: 1 / 0, name="replay")
        thread.start()
        thread.join()
    """
    lines = [line.removeprefix("        ") for line in code.splitlines()]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, encoding="utf-8", check=True)
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(row["event"], row["level"]) for row in said] == [
        *(("library", "error"), ("library", "warning"), ("thread_crashed", "error")),
    ]
    assert said[0]["name"] == "asyncio" and "careful" in said[1]["message"]
    assert said[2]["thread"] == "replay" and "ZeroDivisionError" in said[2]["exception"]
