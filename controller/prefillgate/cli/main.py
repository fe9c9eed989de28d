"""The entry point: finds a command by name without importing the others, and maps every ending to an exit code.

Nothing but click and the standard library is imported here, so `prefillgate --help` costs no more than they do.
A command's function returns its exit code as an int; None means 0.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from prefillgate import __version__
from prefillgate.cli.errors import CommandError
from prefillgate.cli.speaking import begin_speaking, say, speaks_json, tell_beginning, without_passwords

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_UNEXPECTED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_OUTPUT_CLOSED = 141
EXIT_TERMINATED = 143
CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC)})

EPILOG = (
    "Exit codes of run, decide and watch: 0 promote, 10 hold, 20 rollback allowed, 1 could not measure, 2 bad input, "
    "130 or 143 interrupted. Each command's --help tells its own."
)


class Entry(NamedTuple):
    """Where a command is, and the line that `--help` shows for it. `attribute` is a click command in `module`."""

    name: str
    module: str
    attribute: str
    help: str


def _entry(name: str, help_line: str) -> Entry:
    return Entry(name, f"prefillgate.cli.{name}", "command", help_line)


COMMANDS: tuple[Entry, ...] = (
    _entry("run", "Replay real prompts on baseline and candidate and decide."),
    _entry("floor", "Replay the baseline against itself: is the instrument sound, how noisy is it."),
    _entry("recheck", "Replay a few prompts on a promoted profile; alarm by the watch rule, over months."),
    _entry("decide", "Recompute the verdict of a store, offline."),
    _entry("report", "Write a store's verdict as HTML, Markdown, JUnit, JSON or one line."),
    _entry("cells", "Print the cell log of a store."),
    _entry("diff", "Show what both arms answered to one case, word by word."),
    _entry("explain", "Say of a store or a serving line what was seen, what follows and why."),
    _entry("audit", "Count the prefills behind results that exist already; say what survives of them."),
    _entry("export", "Write a store as an evidence bundle that others can read and check."),
    _entry("verify", "Recompute the verdict of an evidence bundle and name the first difference."),
    Entry("watch-log", "prefillgate.cli.watch_log", "command", "Follow logs; alarm on prefills, never on requests."),
    _entry("check", "Apply the output checks to one output on standard input."),
    _entry("replayset", "Lint, show, try, import, record or thin out a replay set."),
    _entry("policy", "Lint a policy file."),
    _entry("profile", "Print the serving profile of a manifest, and how two of them differ."),
    _entry("plan", "Print an acceptance table, its exact error and its power."),
    _entry("store", "List what stores hold, or lead their tables to another version."),
    _entry("override", "Record a person's decision, or the cause, with a reason."),
    _entry("get", "List the serving lines of a cluster: decision, prefills, rollback, candidate."),
    _entry("watch", "Follow a serving line of a cluster until its candidate is decided."),
    _entry("doctor", "Say what is installed here and what a server can and cannot prove."),
    _entry("simulate", "Serve a simulated llama-server, vLLM or SGLang with planted faults."),
    Entry(
        "replay-job",
        "prefillgate.cli.replay_job",
        "command",
        "Carry out one replay: what a Job of the controller runs.",
    ),
    _entry("completion", "Print the completion script of a shell."),
    _entry("controller", "Gate the serving lines of a cluster, until told to stop."),
    _entry("demo", "Gate two profiles of a small model on real servers, on this machine."),
)


class LazyGroup(click.Group):
    """A group that knows its commands by a table and imports one only when it is called."""

    def entries(self) -> tuple[Entry, ...]:
        """The table."""
        return COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order a person meets them."""
        return [entry.name for entry in self.entries()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command, or None when there is none of that name."""
        for entry in self.entries():
            if entry.name == cmd_name:
                command = getattr(importlib.import_module(entry.module), entry.attribute)
                assert isinstance(command, click.Command)
                return command
        return None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and help lines from the table: click would import every command for them."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(e.name, help=e.help) for e in self.entries() if e.name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list under `--help`, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.help) for entry in self.entries()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """As click does it; Ctrl-C meanwhile would print a line more."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except KeyboardInterrupt:
            raise SystemExit(EXIT_INTERRUPTED) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Left to click, a closed output would be exit 1 and Ctrl-C would print one line more."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise OutputClosed from error
        except KeyboardInterrupt:
            raise SystemExit(EXIT_INTERRUPTED) from None


class OutputClosed(Exception):
    """Whoever read standard output went away (`prefillgate cells STORE | head`)."""


@dataclass
class Session:
    """What the options before the command's name set, as `ctx.obj`."""

    debug: bool = False


@click.group(cls=LazyGroup, name="prefillgate", epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="prefillgate")
@click.option("--debug", is_flag=True, envvar="PREFILLGATE_DEBUG", help="Keep the traceback of a crash in a file.")
@click.pass_context
def group(ctx: click.Context, debug: bool) -> None:
    """Decide whether a new LLM serving profile may replace the one in production.

    prefillgate replays real prompts against both, counts fresh prefills instead of requests, and answers two
    questions: is promotion allowed, is rollback allowed. Start with `prefillgate demo`.
    """
    ctx.ensure_object(Session).debug = debug


def main(argv: Sequence[str] | None = None, program: click.Group = group, name: str = "prefillgate") -> int:
    """Run one command line of `program` and return its exit code. Never raises for an ordinary ending."""
    _use_utf8()
    given = list(sys.argv[1:] if argv is None else argv)
    begin_speaking(given)
    code = _to_its_end(given, program, name)
    if code in (EXIT_INTERRUPTED, EXIT_TERMINATED):
        tell_beginning(given)
    return code


def _to_its_end(argv: list[str], program: click.Group, name: str) -> int:
    session = Session(debug=bool(os.environ.get("PREFILLGATE_DEBUG")))
    with _terminate_as_exit() as asked_to_end:
        try:
            code = _run(argv, session, program, name)
            sys.stdout.flush()
            if asked_to_end:
                return EXIT_TERMINATED
        except (OutputClosed, BrokenPipeError):
            _drop_output()
            return EXIT_OUTPUT_CLOSED
        except Exception as error:
            if asked_to_end:
                return EXIT_TERMINATED
            if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
                return _cannot_write(error)
            return _unexpected(error, session)
    return code


def _run(argv: list[str], session: Session, program: click.Group, name: str) -> int:
    """Let click run `argv`; known endings become exit codes here."""
    color = False if os.environ.get("NO_COLOR") else None
    try:
        result = program.main(argv, prog_name=name, standalone_mode=False, obj=session, color=color)
    except CommandError as error:
        _say(f"error: {error}")
        return error.exit_code
    except click.Abort as error:  # Ctrl-C outside a command, or a question without an answer
        return EXIT_INTERRUPTED if isinstance(error.__cause__, KeyboardInterrupt) else EXIT_USAGE
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and not speaks_json():
            whole = io.StringIO()
            error.show(whole)
            click.echo(without_passwords(whole.getvalue()), err=True, nl=False)
        else:
            _say(f"error: {error.format_message()}")
        return EXIT_USAGE
    except SystemExit as error:
        return _exit_code(error.code)
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _exit_code(code: object) -> int:
    """What Python itself would make of `SystemExit(code)`."""
    if code is None or isinstance(code, int):
        return code or 0
    _say(str(code))
    return EXIT_UNEXPECTED


def _cannot_write(error: OSError) -> int:
    """A full disk is no bug; what a store holds by then is safe."""
    _drop_output()
    where = error.filename or "standard output or a file"
    _say(f"error: {where}: cannot be written: {error.strerror}")
    return EXIT_UNEXPECTED


def _unexpected(error: Exception, session: Session) -> int:
    what = f"internal error: {type(error).__name__}: {error}"
    if session.debug:
        _say(f"{what} (traceback in {_keep_traceback(error)})")
    else:
        _say(f"{what} (put --debug before the command to keep the traceback in a file)")
    return EXIT_UNEXPECTED


def _keep_traceback(error: Exception) -> str:
    """Write the traceback to a new file and return its path."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", errors="backslashreplace", prefix="prefillgate-", suffix=".traceback", delete=False
    ) as file:
        file.write("".join(traceback.format_exception(error)))
    return file.name


def _say(message: str) -> None:
    """One line on standard error; a message may quote a server, so what could steer a terminal is escaped."""
    if speaks_json():
        say(f"prefillgate: {one_line(message)}", "error", "error")
    else:
        click.echo(f"prefillgate: {without_passwords(one_line(message))}", err=True)


def one_line(text: str) -> str:
    """`text` on one line: line ends become spaces, other unprintable characters their backslash escapes."""
    joined = " ".join(part.strip() for part in text.splitlines() if part.strip())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in joined)


def _use_utf8() -> None:
    """Model text holds any character; a console of another encoding, or none at all, must not end a run."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started this process
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _drop_output() -> None:
    """Point standard output at nothing, so that the flush at the interpreter's end stays quiet."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


@contextlib.contextmanager
def _terminate_as_exit() -> Iterator[list[int]]:
    """Turn SIGTERM into an ordinary exit, so that every `finally` runs. A command may set its own handler.

    Yields the signals that came: an exit that something on the way turned into another error is still that exit.
    """
    came: list[int] = []

    def stop(signum: int, frame: FrameType | None) -> None:
        came.append(signum)
        raise SystemExit(EXIT_TERMINATED)

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread: the caller keeps its own way of ending
        yield came
        return
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
