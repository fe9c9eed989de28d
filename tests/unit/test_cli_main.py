"""The entry point: what `--help` costs, and which ending has which exit code."""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from prefillgate import __version__
from prefillgate.cli import kubectl
from prefillgate.cli import main as cli
from prefillgate.cli.errors import BadInput, CouldNotMeasure

HEAVY = {
    *("aiohttp", "asyncio", "cel_expr_python", "httpx", "jinja2", "jsonschema_rs", "kubernetes", "prometheus_client"),
    *("pydantic", "re2", "rich", "scipy", "sqlite3", "structlog", "tenacity", "xllamacpp", "yaml"),
}

Answer = Callable[[], object]


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the entry point with one command `probe` that ends as the given function does."""

    def run(answer: Answer, *options: str) -> int:
        module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("probe_command", None))
        module.__dict__["command"] = click.Command("probe", callback=answer)
        monkeypatch.setitem(sys.modules, "probe_command", module)
        monkeypatch.setattr(cli, "COMMANDS", (cli.Entry("probe", "probe_command", "command", "A probe."),))
        return cli.main([*options, "probe"])

    return run


def raising(error: BaseException) -> Answer:
    def answer() -> None:
        raise error

    return answer


def interpreter(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, **environment},
    )


def test_help_imports_click_and_nothing_heavy() -> None:
    seen = interpreter(
        """
        import json, sys
        from prefillgate.cli.main import main
        code = main(["--help"])
        print(json.dumps([code, sorted(sys.modules)]))
        """
    )
    code, modules = json.loads(seen.stdout.splitlines()[-1])
    assert code == 0
    assert "click" in modules
    assert HEAVY.intersection(modules) == set()
    assert [name for name in modules if name.startswith("prefillgate")] == [
        "prefillgate",
        "prefillgate.cli",
        "prefillgate.cli.errors",
        "prefillgate.cli.main",
        "prefillgate.cli.speaking",
        "prefillgate.runs",
        "prefillgate.runs.errors",
    ]


def test_help_names_every_command_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for entry in cli.COMMANDS:
        assert f"{entry.name} {entry.help}" in shown


@pytest.mark.parametrize("entry", cli.COMMANDS, ids=lambda entry: entry.name)
def test_every_command_of_the_table_can_be_imported_and_explains_itself(
    entry: cli.Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(getattr(importlib.import_module(entry.module), entry.attribute), click.Command)
    assert cli.main([entry.name, "--help"]) == 0
    assert f"Usage: prefillgate {entry.name}" in capsys.readouterr().out


def test_the_version_is_the_packages_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.split() == ["prefillgate,", "version", __version__]


def test_the_module_runs_as_the_script_does() -> None:
    seen = subprocess.run(
        [sys.executable, "-m", "prefillgate", "--version"], capture_output=True, encoding="utf-8", check=False
    )
    assert (seen.returncode, seen.stdout.strip()) == (0, f"prefillgate, version {__version__}")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (lambda: None, 0),
        (lambda: 0, 0),
        (lambda: 10, 10),
        (lambda: 20, 20),
        (lambda: True, 0),
        (raising(SystemExit(20)), 20),
        (raising(SystemExit(None)), 0),
        (raising(CouldNotMeasure("the server never answered")), 1),
        (raising(BadInput("margin: 2 is not below 1")), 2),
        (raising(click.UsageError("no such option")), 2),
        (raising(click.FileError("set.jsonl", "is a folder")), 2),
        (raising(KeyboardInterrupt()), 130),
        (raising(BrokenPipeError()), 141),
        (raising(ZeroDivisionError("division by zero")), 1),
    ],
)
def test_each_ending_of_a_command_has_its_exit_code(
    ending: Callable[..., int], monkeypatch: pytest.MonkeyPatch, answer: Answer, code: int
) -> None:
    monkeypatch.setattr(cli, "_drop_output", lambda: None)  # it would close the test run's own output
    assert ending(answer) == code


def test_a_command_error_is_one_clean_line_on_standard_error(
    ending: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(raising(BadInput("url: \x1b[2Jhttp://x\u2028is\r\nnot allowed\x00"))) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "prefillgate: error: url: \\x1b[2Jhttp://x is not allowed\\x00\n"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://u:my-own@h/x?run=a", "postgresql://u:[secret]@h/x?run=a"),
        ("postgresql://u:my@own@h/x", "postgresql://u:[secret]@h/x"),
        ("postgresql://u%3Amy-own@h/x", "postgresql://u%3A[secret]@h/x"),
        ("postgresql://u@h/x?password=my-own&run=a", "postgresql://u@h/x?password=[secret]&run=a"),
        ("postgresql://u@h/x?sslpassword=my-own", "postgresql://u@h/x?sslpassword=[secret]"),
        ("host=h passwd=my-own user=u", "host=h passwd=[secret] user=u"),
        ("http://[::1]:8080/v1 to a@b.c", "http://[::1]:8080/v1 to a@b.c"),
        ("http://h:80/a:b@c", "http://h:80/a:b@c"),
    ],
)
def test_no_error_repeats_a_password_that_stood_in_an_address(
    given: str, shown: str, ending: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(raising(BadInput(given))) == 2
    assert ending(raising(click.UsageError(given))) == 2
    assert ending(lambda: cli.say(f"prefillgate: error: {given}")) == 0
    told = capsys.readouterr().err
    assert told.count(shown) == 3 and told.count(given) == (3 if given == shown else 0)


def test_an_unexpected_error_is_one_line_that_says_how_to_see_more(
    ending: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(raising(ZeroDivisionError("division by zero"))) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "prefillgate: internal error: ZeroDivisionError: division by zero "
        "(put --debug before the command to keep the traceback in a file)\n"
    )


def test_a_full_disk_is_told_and_is_no_internal_error(
    ending: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_drop_output", lambda: None)
    assert ending(raising(OSError(errno.ENOSPC, "No space left on device"))) == 1
    assert ending(raising(OSError(errno.ENOSPC, "No space left on device", "x.html"))) == 1
    assert capsys.readouterr().err == (
        "prefillgate: error: standard output or a file: cannot be written: No space left on device\n"
        "prefillgate: error: x.html: cannot be written: No space left on device\n"
    )
    assert ending(raising(OSError(errno.EPERM, "Operation not permitted"))) == 1
    assert "internal error" in capsys.readouterr().err


def test_a_closed_standard_output_takes_nothing_from_the_exit_code(
    ending: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert ending(lambda: 10 if not sys.stdout.isatty() and sys.stdout.write("x") else 0) == 10
    sys.stdout.close()


def test_debug_keeps_the_traceback_in_a_file_and_names_it(
    ending: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert ending(raising(ZeroDivisionError("division by zero")), "--debug") == 1
    (kept,) = tmp_path.glob("*.traceback")
    assert f"(traceback in {kept})" in capsys.readouterr().err
    assert kept.read_text(encoding="utf-8").startswith("Traceback (most recent call last):")
    assert "in raising" not in kept.read_text(encoding="utf-8")
    assert "in answer" in kept.read_text(encoding="utf-8")


def test_an_unknown_command_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["promote"]) == 2
    assert "No such command 'promote'" in capsys.readouterr().err


def test_sigterm_ends_a_command_with_143_after_its_finally(
    ending: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def answer() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            print("cleaned up")

    assert ending(answer) == 143
    assert capsys.readouterr().out == "cleaned up\n"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("error", [CouldNotMeasure("the server went away"), RuntimeError("cancelled"), None])
def test_sigterm_is_143_whatever_error_it_was_turned_into_on_the_way(
    ending: Callable[..., int], error: Exception | None
) -> None:
    def answer() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            if error is not None:
                raise error from None

    assert ending(answer) == 143


def test_output_is_utf8_whatever_the_console_says_and_lone_surrogates_are_escaped() -> None:
    seen = interpreter(
        """
        import sys, types, click
        from prefillgate.cli import main as cli
        module = types.ModuleType("probe_command")
        module.command = click.Command("probe", callback=lambda: print("ü \\ud800"))
        sys.modules["probe_command"] = module
        cli.COMMANDS = (cli.Entry("probe", "probe_command", "command", "A probe."),)
        sys.exit(cli.main(["probe"]))
        """,
        PYTHONIOENCODING="ascii:strict",
    )
    assert (seen.returncode, seen.stdout, seen.stderr) == (0, "ü \\ud800\n", "")


def test_no_color_takes_the_colours_out_even_where_a_terminal_would_show_them(
    ending: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    colours: list[bool | None] = []
    monkeypatch.setenv("NO_COLOR", "1")
    ending(lambda: colours.append(click.get_current_context().color))
    monkeypatch.delenv("NO_COLOR")
    ending(lambda: colours.append(click.get_current_context().color))
    assert colours == [False, None]


def test_a_reader_that_goes_away_is_no_error_message() -> None:
    code = """
        import os, sys, types, click
        from prefillgate.cli import main as cli
        def answer():
            for _ in range(100_000):
                click.echo("x" * 80)
        module = types.ModuleType("probe_command")
        module.command = click.Command("probe", callback=answer)
        sys.modules["probe_command"] = module
        cli.COMMANDS = (cli.Entry("probe", "probe_command", "command", "A probe."),)
        sys.exit(cli.main(["probe"]))
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        err = child.stderr.read()
    assert (child.returncode, err) == (141, b"")


def test_every_program_of_the_package_is_there_to_be_called() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    scripts = project["project"]["scripts"]
    assert set(scripts) == {"prefillgate", "kubectl-prefillgate", "kubectl_complete-prefillgate"}
    for target in scripts.values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name))


def test_what_kubectl_is_given_are_the_programs_own_commands_about_a_cluster() -> None:
    named = {entry.name: entry for entry in cli.COMMANDS}
    for entry in kubectl.COMMANDS:
        assert entry.name in named
        assert isinstance(getattr(importlib.import_module(entry.module), entry.attribute), click.Command)
    assert {entry.name for entry in kubectl.COMMANDS} == {"get", "explain", "watch"}
