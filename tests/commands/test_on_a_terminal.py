"""What commands print on a real terminal, and without one: as wide as it is, in colour only where that is wanted."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from prefillgate.cli.outcome import columns
from prefillgate.report.paper import columns_of
from prefillgate.report.terminal import LINES, SummaryOptions, render_terminal
from tests.support import verdicts
from tests.support.stores import Played

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with an answer for every command that prints one."""
    played = Played(seed=2, candidate_rate=0.9)
    played.play()
    return played.keep(tmp_path_factory.mktemp("stores") / "run.db")


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    return {**kept, "TERM": "xterm-256color", **more}


def on_terminal(width: int, *arguments: str, **more: str) -> str:
    """What the command prints where standard output is a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "prefillgate", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment(**more),
    )
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the other end was closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    process.wait()
    return b"".join(parts).decode("utf-8").replace("\r\n", "\n")


def without_terminal(*arguments: str, **more: str) -> str:
    command = [sys.executable, "-m", "prefillgate", *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment(**more), check=False)
    return done.stdout


def widest(text: str) -> int:
    """Columns of the longest line that may be broken: a command to copy is not."""
    lines = [COLOUR.sub("", line) for line in text.splitlines()]
    return max(columns_of(line) for line in lines if "prefillgate " not in line)


@pytest.mark.parametrize("name", ["decide", "explain"])
def test_a_page_is_as_wide_as_the_terminal_from_60_to_100_columns(name: str, store: Path) -> None:
    widths = {width: widest(on_terminal(width, name, str(store))) for width in (20, 60, 80, 200)}
    assert widths[20] <= 60 and widths[60] <= 60
    assert 60 < widths[80] <= 80
    assert 80 < widths[200] <= 100


@pytest.mark.parametrize("name", ["decide", "explain"])
def test_the_variable_columns_goes_before_the_terminal_and_100_is_taken_without_either(name: str, store: Path) -> None:
    assert 60 < widest(on_terminal(60, name, str(store), COLUMNS="80")) <= 80
    assert widest(without_terminal(name, str(store), COLUMNS="64")) <= 64
    assert 80 < widest(without_terminal(name, str(store))) <= 100
    assert without_terminal(name, str(store), COLUMNS="wide") == without_terminal(name, str(store))


def test_columns_are_taken_from_60_to_100(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {}
    for given in ("59", "60", "61", "99", "100", "101"):
        monkeypatch.setenv("COLUMNS", given)
        told[given] = columns()
    assert told == {"59": 60, "60": 60, "61": 61, "99": 99, "100": 100, "101": 100}


@pytest.mark.parametrize("arguments", [("decide",), ("explain",), ("diff", "case 2")], ids=lambda a: a[0])
def test_colour_is_for_a_terminal_alone_and_not_under_no_color(arguments: tuple[str, ...], store: Path) -> None:
    name, *rest = arguments
    command = (name, str(store), *rest)
    painted = on_terminal(100, *command)
    assert COLOUR.search(painted) or name == "diff"  # no text was kept: nothing to mark
    plain = without_terminal(*command)
    assert "\x1b" not in plain
    assert "\x1b" not in on_terminal(100, *command, NO_COLOR="1")
    assert COLOUR.sub("", painted) == plain


@pytest.mark.parametrize("width", [60, 75, 89, 90, 100])
@pytest.mark.parametrize("sample", list(verdicts.SAMPLES))
def test_a_narrower_summary_loses_no_line_and_keeps_its_width(sample: str, width: int) -> None:
    text = render_terminal(verdicts.SAMPLES[sample](), SummaryOptions("prefillgate x", "report.html", width=width))
    lines = text.splitlines()
    assert max(map(columns_of, lines)) <= width
    assert len(lines) <= -(-LINES * 100 // width)
    assert lines[-1] == "report          report.html"
    heads = {"baseline": verdicts.SAMPLES[sample]().baseline, "candidate": verdicts.SAMPLES[sample]().candidate}
    for arm, counts in heads.items():
        told = f"{counts.bad_prefills:,} of {counts.prefills:,} bad" if counts and counts.prefills else "none"
        row = next(at for at, line in enumerate(lines) if re.match(rf"{arm} {{5,}}\S", line))
        assert told in " ".join(lines[row : row + 2])
