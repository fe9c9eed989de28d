"""The shape of the code: which package may import which, and how long a function or a module may be."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "controller" / "prefillgate"
MODULES = sorted(PACKAGE.rglob("*.py"))

LONGEST_FUNCTION = 49  # the aim is 40; this is where the run goes red
LONGEST_MODULE = 449  # the aim is 400

NOT_ON_WINDOWS = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
NOT_ON_WINDOWS_CALLS = {
    *("os.fork", "os.killpg", "os.setsid", "os.getpgid", "os.geteuid", "os.getuid", "os.mkfifo", "os.uname"),
    *("signal.SIGKILL", "signal.SIGHUP", "signal.SIGUSR1", "signal.SIGUSR2", "signal.SIGALRM", "signal.alarm"),
    *("os.chown", "os.getloadavg", "os.sysconf", "os.wait", "os.WNOHANG", "os.O_DIRECTORY", "os.O_NOFOLLOW"),
    *("signal.SIGCHLD", "signal.SIGPIPE", "signal.pause", "signal.setitimer", "time.tzset", "socket.AF_UNIX"),
}
NOT_ON_WINDOWS_METHODS = {  # of an event loop or a child process, whatever they are called
    *("add_signal_handler", "remove_signal_handler", "create_unix_server", "create_unix_connection"),
    *("open_unix_connection", "start_unix_server"),
}
NOT_ON_WINDOWS_OPTIONS = {"preexec_fn", "shell"}  # other options of a child process are passed over there
FOLDERS_OF_POSIX = ("/dev/", "/etc/", "/proc/", "/tmp", "/usr/", "/var/")
FOR_A_POSIX_SHELL = "controller/prefillgate/cli/curl.py"  # what it prints is a command for one
TEXT_FILES = {"open", "read_text", "write_text"}


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Every module of the package, parsed, by its path from the root."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"), filename=str(path)) for path in MODULES
    }


def test_imports_keep_the_layers() -> None:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    seen = subprocess.run(
        [sys.executable, "-c", command, "--no-cache", "--no-logo"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "controller"), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert seen.returncode == 0, f"{seen.stdout}\n{seen.stderr}"
    for contract in (
        "imports point inward",
        "the core is pure",
        "what is to be done about a line is pure",
        "offline commands need no cluster",
    ):
        assert f"{contract} KEPT" in seen.stdout


def test_functions_are_short_enough_to_read(trees: dict[str, ast.Module]) -> None:
    long = [
        f"{name}:{node.lineno} {node.name}: {length} lines"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > LONGEST_FUNCTION
    ]
    assert long == []


def test_modules_are_short_enough_to_read() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").split("\n")) - 1 for path in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_MODULE} == {}


def test_every_module_says_what_it_is(trees: dict[str, ast.Module]) -> None:
    assert [name for name, tree in trees.items() if not ast.get_docstring(tree)] == []


def test_nothing_in_the_package_needs_posix(trees: dict[str, ast.Module]) -> None:
    found = [
        f"{name}:{node.lineno} {what}"  # type: ignore[attr-defined]
        for name, tree in trees.items()
        for node in ast.walk(tree)
        for what in posix_alone(node)
        if not (name == FOR_A_POSIX_SHELL and what.startswith("names the folder"))
    ]
    assert found == []


def posix_alone(node: ast.AST) -> list[str]:
    """What a piece of code does that other systems cannot."""
    if isinstance(node, ast.Import):
        return [f"imports {alias.name}" for alias in node.names if alias.name in NOT_ON_WINDOWS]
    if isinstance(node, ast.ImportFrom):
        names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        return [f"imports {name}" for name in names if name in NOT_ON_WINDOWS | NOT_ON_WINDOWS_CALLS]
    if isinstance(node, ast.Attribute):
        alone = ast.unparse(node) in NOT_ON_WINDOWS_CALLS or node.attr in NOT_ON_WINDOWS_METHODS
        return [f"uses {ast.unparse(node)}"] if alone else []
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [f"names the folder {folder}" for folder in FOLDERS_OF_POSIX if f" {node.value}".find(f" {folder}") >= 0]
    if isinstance(node, ast.Call):
        given = {keyword.arg for keyword in node.keywords}
        return [f"gives {name}" for name in sorted(NOT_ON_WINDOWS_OPTIONS & {str(each) for each in given})]
    return []


@pytest.mark.parametrize(
    "code",
    [
        "import fcntl",
        "from os import fork",
        "from pwd import getpwuid",
        "os.geteuid()",
        "loop.add_signal_handler(2, stop)",
        "Path('/tmp/store.db')",
        "open('/dev/null')",
        "subprocess.run('x', shell=True)",
        "subprocess.Popen(x, preexec_fn=f)",
    ],
)
def test_what_needs_posix_is_found(code: str) -> None:
    assert any(posix_alone(node) for node in ast.walk(ast.parse(code)))


def test_text_is_read_and_written_as_utf_8_whatever_the_system_prefers(trees: dict[str, ast.Module]) -> None:
    found = [
        f"{name}:{node.lineno} {ast.unparse(node)[:80]}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and opens_text(node) and not any(k.arg == "encoding" for k in node.keywords)
    ]
    assert found == []


def opens_text(call: ast.Call) -> bool:
    """Whether a call opens a file as text: `open` of a mode without b, `read_text`, `write_text`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in TEXT_FILES:
        return False
    of_a_path = isinstance(call.func, ast.Attribute)
    if (
        name == "open"
        and of_a_path
        and not ast.unparse(call.func).startswith(("Path(", "path.", "self.path.", "file."))
    ):
        return False
    modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return not any("b" in mode for mode in modes if len(mode) <= 3)


def test_the_core_imports_the_standard_library_and_itself_alone(trees: dict[str, ast.Module]) -> None:
    core = {name: tree for name, tree in trees.items() if Path(name).is_relative_to("controller/prefillgate/core")}
    assert core
    outside = [
        f"{name}:{node.lineno} imports {module}"
        for name, tree in core.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        if module.partition(".")[0] not in sys.stdlib_module_names and not module.startswith("prefillgate.core")
    ]
    assert outside == []
