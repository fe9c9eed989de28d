"""Which engine a container starts, and with which words: what stands behind wrappers, shells and image defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prefillgate.profiles.commands import has_blank
from prefillgate.profiles.shell import LONGEST_EXPANDED, Command, ShellProblem, Word, read_script

LLAMA, VLLM, SGLANG = "llama-server", "vllm", "sglang"
_SHELLS = {"sh", "bash", "dash", "ash", "ksh", "zsh"}
_KEYWORDS = {"then", "do", "else", "if", "while", "until", "{", "!", "time", "elif"}
_SILENT = {"exec", "command", "nohup"}
_WRAPPERS = {
    *("tini", "docker-init", "dumb-init", "catatonit", "env", "numactl", "nice", "ionice", "timeout", "taskset"),
    *("setsid", "stdbuf", "gosu", "su-exec", *_SILENT),
}
# Commands that name an engine and start none.
_NO_STARTERS = {
    *("echo", "printf", "which", "type", "hash", "ls", "stat", "file", "test", "[", "[[", "cat", "grep", "chmod", "cp"),
    *("mv", "ln", "rm", "kill", "pkill", "killall", "pgrep", "sha256sum"),
}
_QUESTIONS = {"--version", "--help", "-h"}
_INSIDE = re.compile(r"llama-server|(?:vllm|sglang) serve|vllm\.entrypoints|sglang\.launch_server")
MOST_FLAGS = 8  # of a shell or an interpreter
MOST_SHELLS = 8  # scripts inside of scripts that are read
LONGEST_INNER = 65_536  # characters of one, with its variables
# An image is known by the last parts of its name: `ghcr.io/ggml-org/llama.cpp:server`, `vllm/vllm-openai:v0.33.0`.
_IMAGES = (
    (re.compile(r"llama[._-]?cpp|llama-server"), LLAMA),
    (re.compile(r"sglang"), SGLANG),
    (re.compile(r"vllm|huggingface"), VLLM),
)
_EXPANSION = re.compile(r"\$(?:\$|\(([A-Za-z_.-][\w.-]*)\))")
_CONDITION = "it starts inside a condition or a loop, which only a shell can tell"
_SEVERAL = (
    "an engine is started more than once: the first one's settings are told, the others stand in the start script"
)
_UNREAD = "the command names an engine inside of a text that could not be read: its settings are not told one by one"


@dataclass(slots=True)
class Launch:
    """What a container starts. `script` is what a shell does beside it, `wrapper` what stands before the engine."""

    engine: str | None = None
    program: str = ""
    words: list[str] = field(default_factory=list)  # arguments of the engine
    assigned: list[tuple[str, str]] = field(default_factory=list)  # variables that the script or `env` gives
    local: list[tuple[str, str]] = field(default_factory=list)  # variables of the script alone
    wrapper: list[str] = field(default_factory=list)
    beside: list[list[str]] = field(default_factory=list)  # other commands of the script, word by word
    piped: set[int] = field(default_factory=set)  # which of `beside` another command reads the output of
    text: str = field(default="", repr=False)  # of the script, however it was read
    script: str = ""  # the whole of a script that could not be read
    unknown: dict[str, None] = field(default_factory=dict)  # variables that nothing gives, in order
    notes: list[str] = field(default_factory=list)


def engine_of_image(image: str) -> str | None:
    """The engine an image is known to hold; None: none of the known ones."""
    name = "/".join(image.lower().split("@")[0].split("/")[-2:])
    return next((engine for pattern, engine in _IMAGES if pattern.search(name)), None)


@dataclass(slots=True)
class Budget:
    """How many characters of variables may still be put in, in one container."""

    left: int = LONGEST_EXPANDED
    spent: bool = False


def expand(
    text: str, variables: Mapping[str, str | None], unknown: dict[str, None], budget: Budget | None = None
) -> str:
    """`$(VAR)` as Kubernetes puts variables in; `$$` is `$`. What is not there, or must not be shown, stays as written.

    Names that nothing gives are added to `unknown`. Once the budget is spent everything stays as written.
    """
    return str(_expanded(text, variables, unknown, Budget() if budget is None else budget))


def _expanded(text: str, variables: Mapping[str, str | None], unknown: dict[str, None], limit: Budget) -> Word:
    """The same as a word that remembers what was put into it."""
    names: list[str] = []

    def put(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "$"
        if name not in variables:
            unknown[name] = None
            return found[0]
        value = variables[name]
        if value is None:
            return found[0]
        limit.left -= len(value)
        limit.spent = limit.spent or limit.left < 0
        if limit.spent:
            return found[0]
        names.append(name)
        return value

    return Word(_EXPANSION.sub(put, text), names)


def read_launch(
    command: list[str], args: list[str], image: str, variables: Mapping[str, str | None], hint: str | None = None
) -> Launch:
    """What `command` and `args` of a container start. With no command the image's own entry point takes `args`.

    `hint` is a name that tells the engine (`vllm`, `llama.cpp`) where neither the words nor the image do.
    """
    launch = Launch()
    unknown: dict[str, None] = {}
    budget = Budget()
    shell = _shell_of(command + args)
    words: list[str] = [
        _expanded(each, variables, {} if shell is not None and at == shell.script else unknown, budget)
        for at, each in enumerate(command + args)
    ]
    if shell is None or not _shelled(launch, words, shell, _Around(variables), None):
        expand("" if shell is None else (command + args)[shell.script], variables, unknown)
        if not _take(launch, words, _Around(variables)):
            launch.words = words[1:] if command else words
            launch.program = str(words[0]) if command else ""
            if any(has_blank(word) and _INSIDE.search(word) for word in words):
                launch.notes.append(_UNREAD)
    launch.unknown |= unknown
    if launch.engine is None and not launch.script:
        launch.engine = engine_of_image(image) or engine_of_image(hint or "")
        if launch.engine is not None and not command:
            launch.words = _without_entry(launch.engine, launch.words)
    if budget.spent:
        launch.notes.append(f"variables longer than {LONGEST_EXPANDED} characters together were not all put in")
    return launch


def _without_entry(engine: str, words: list[str]) -> list[str]:
    return words[1:] if words[:1] == ["serve"] and engine in (VLLM, SGLANG) else words


@dataclass(frozen=True, slots=True)
class _Shell:
    """Where a `sh -c` and its script stand among words."""

    at: int
    script: int


Assigned = Sequence[tuple[str, str]]  # variables and values, in order


@dataclass(slots=True)
class _Around:
    """The variables that a command is started with, and how many scripts inside of scripts may still be read."""

    variables: Mapping[str, str | None]
    left: int = MOST_SHELLS
    longest: int = LONGEST_EXPANDED

    def inner(self, assigned: Assigned) -> _Around:
        """The same for a script inside."""
        return _Around({**self.variables, **dict(assigned)}, self.left - 1, LONGEST_INNER)


def _shell_of(words: list[str]) -> _Shell | None:
    """The first shell among `words` that is given a script, before any engine; None: there is none."""
    for at, word in enumerate(words):
        if _engine_at(words, at) is not None:
            return None
        script = _script_of(words, at) if _base(word) in _SHELLS else None
        if script is not None:
            return _Shell(at, script)
    return None


def _script_of(words: list[str], shell: int) -> int | None:
    """Where the script of the shell at word `shell` stands; None: it is given none."""
    at = shell + 1
    asked = False
    last = min(len(words), at + MOST_FLAGS)
    while at < last and words[at][:1] in "-+" and len(words[at]) > 1:
        flag = words[at]
        at += 1
        if flag.startswith("--"):
            continue
        asked = asked or (flag[0] == "-" and "c" in flag)
        if "o" in flag and at < len(words) and not words[at].startswith("-"):
            at += 1
    return at if asked and at < len(words) else None


def _base(word: str) -> str:
    return re.split(r"[/\\]", word)[-1].removesuffix(".exe")


def _shelled(launch: Launch, words: list[str], shell: _Shell, around: _Around, assigned: Assigned | None) -> bool:
    """Read the script of a shell. `assigned` stand before the command in a script; None: it is the container's own.

    What starts no engine that is known is not read as a script inside of another one, nor behind what is no known
    wrapper: any program may have an argument `sh`.
    """
    before = words[: shell.at]
    inner = Launch(assigned=list(assigned or ()))
    _wrapper(inner, before)
    outer, inner.wrapper = inner.wrapper, []
    given = [*launch.assigned, *inner.assigned]
    inside = _Around({**around.variables, **dict(given)}) if assigned is None else around.inner(given)
    _from_script(inner, str(words[shell.script]), words[shell.script + 1 :], inside)
    around.left = inside.left
    alone = assigned is None and (not before or _base(before[0]) in _WRAPPERS)
    if inner.engine is None and not alone:
        return False
    launch.engine, launch.program, launch.words = inner.engine, inner.program, inner.words
    launch.assigned += inner.assigned
    launch.local += inner.local
    launch.wrapper = outer + inner.wrapper
    launch.piped |= {len(launch.beside) + number for number in inner.piped}
    launch.beside += inner.beside
    launch.script = inner.script
    launch.text = f"{launch.text}\n{inner.text}" if launch.text else inner.text
    launch.unknown |= inner.unknown
    launch.notes += [note for note in inner.notes if note not in launch.notes]
    return True


def _from_script(launch: Launch, text: str, rest: list[str], around: _Around) -> None:
    launch.text = text
    try:
        script = read_script(text, around.variables, rest, around.longest)
    except ShellProblem as problem:
        launch.script = text
        launch.notes.append(f"the start script could not be read and is kept as written: {problem}")
        return
    launch.unknown |= dict(script.unknown)
    launch.notes += [f"of the start script: {note}" for note in script.notes]
    for command in script.commands:
        again = launch.engine is not None
        found = _take(Launch() if again else launch, command.words, around, command.assigned)
        if found and not again:
            launch.beside += [[each] for each in command.redirected]
        elif not command.words:
            for name, value in command.assigned:
                whole = command.exported or name in around.variables
                (launch.assigned if whole else launch.local).append((name, value))
        else:
            launch.piped |= {len(launch.beside)} if command.piped else set()
            launch.beside.append(_words(command))
            if found and _SEVERAL not in launch.notes:
                launch.notes.append(_SEVERAL)
    if launch.engine is None:
        launch.script, launch.beside = text, []
        launch.notes.append("the start script names no known engine and is kept as written")


def _words(command: Command) -> list[str]:
    return [*(f"{name}={value}" for name, value in command.assigned), *command.words, *command.redirected]


def _take(launch: Launch, words: list[str], around: _Around, assigned: Assigned = ()) -> bool:
    """Find the engine in the words of one command, with what is `assigned` before it; what stands before it is a
    wrapper."""
    if _starts_none(words):
        return False
    shell = _shell_of(words) if around.left > 0 else None
    if shell is not None and _shelled(launch, words, shell, around, assigned):
        return True
    for at, word in enumerate(words):
        found = _engine_at(words, at)
        if found is None:
            continue
        engine, start = found
        if words[start:] and _QUESTIONS.issuperset(words[start:]):
            return False
        launch.engine, launch.words = engine, words[start:]
        launch.program = str(words[at + 1] if word == "-m" else word)
        python = _python_of(words, at) if word == "-m" else None
        _wrapper(launch, words[: at if python is None else python])
        launch.assigned += assigned
        return True
    return False


def _starts_none(words: list[str]) -> bool:
    """Whether a command only speaks of an engine: `which llama-server`, `command -v vllm`."""
    said = [word for word in words[:3] if word not in _KEYWORDS]
    return said[:1] != [] and (_base(said[0]) in _NO_STARTERS or said[:2] in (["command", "-v"], ["command", "-V"]))


def _wrapper(launch: Launch, before: list[str]) -> None:
    kept = []
    for word in before:
        name, equals, value = word.partition("=")
        if word in _KEYWORDS:
            if _CONDITION not in launch.notes and word not in ("!", "time", "{"):
                launch.notes.append(_CONDITION)
        elif equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            launch.assigned.append((name, value))
        elif word not in _SILENT and _base(word) != "env":
            kept.append(word)
    launch.wrapper = kept


def _engine_at(words: list[str], at: int) -> tuple[str, int] | None:
    """The engine that word `at` starts, and where its arguments begin."""
    base, following = _base(words[at]), words[at + 1 : at + 2]
    if base == "llama-server":
        return LLAMA, at + 1
    if base == "vllm" and following == ["serve"]:
        return VLLM, at + 2
    if base == "sglang" and following == ["serve"]:
        return SGLANG, at + 2
    if words[at] == "-m" and following and _python_of(words, at) is not None:
        module = following[0]
        if module.startswith("vllm.entrypoints.") and module.endswith(("api_server", "cli.main")):
            start = at + 2
            return VLLM, start + (words[start : start + 1] == ["serve"])
        if module == "huggingfaceserver":
            return VLLM, at + 2
        if module == "sglang.launch_server":
            return SGLANG, at + 2
    return None


def _python_of(words: list[str], module: int) -> int | None:
    """Where the interpreter of a `-m` at word `module` stands, with flags of its own between; None: there is none."""
    at = module - 1
    while at > max(0, module - MOST_FLAGS) and words[at].startswith("-"):
        at -= 1
    return at if at >= 0 and _base(words[at]).startswith("python") else None
