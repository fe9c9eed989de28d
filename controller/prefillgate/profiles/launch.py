"""Which engine a container starts, and with which words: what stands behind wrappers, shells and image defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from prefillgate.profiles.shell import LONGEST_EXPANDED, Command, ShellProblem, Word, read_script

LLAMA, VLLM, SGLANG = "llama-server", "vllm", "sglang"
_SHELLS = {"sh", "bash", "dash", "ash", "ksh", "zsh"}
_KEYWORDS = {"then", "do", "else", "if", "while", "until", "{", "!", "time", "elif"}
_SILENT = {"exec", "command", "nohup"}
# An image is known by the last parts of its name: `ghcr.io/ggml-org/llama.cpp:server`, `vllm/vllm-openai:v0.33.0`.
_IMAGES = (
    (re.compile(r"llama[._-]?cpp|llama-server"), LLAMA),
    (re.compile(r"sglang"), SGLANG),
    (re.compile(r"vllm|huggingface"), VLLM),
)
_EXPANSION = re.compile(r"\$(?:\$|\(([A-Za-z_.-][\w.-]*)\))")
_CONDITION = "it starts inside a condition or a loop, which only a shell can tell"


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

    Names that nothing gives are added to `unknown`. Once the budget is spent everything stays as written. The word that
    is returned remembers what was put into it.
    """
    limit = Budget() if budget is None else budget
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
    if shell is not None:
        script_at = shell
        words = command + args
        text = expand(words[script_at], variables, {}, budget)
        rest = [expand(each, variables, unknown, budget) for each in words[script_at + 1 :]]
        _from_script(launch, text, rest, variables)
        launch.unknown |= unknown
    else:
        words = [expand(each, variables, unknown, budget) for each in (command + args)]
        launch.unknown = unknown
        found = _take(launch, words)
        if not found:
            launch.words = words[1:] if command else words
            launch.program = words[0] if command else ""
    if launch.engine is None and not launch.script:
        launch.engine = engine_of_image(image) or engine_of_image(hint or "")
        if launch.engine is not None and not command:
            launch.words = _without_entry(launch.engine, launch.words)
    if budget.spent:
        launch.notes.append(f"variables longer than {LONGEST_EXPANDED} characters together were not all put in")
    return launch


def _without_entry(engine: str, words: list[str]) -> list[str]:
    return words[1:] if words[:1] == ["serve"] and engine in (VLLM, SGLANG) else words


def _shell_of(words: list[str]) -> int | None:
    """Where the script of a `sh -c` stands among `words`; None: no shell starts it."""
    if not words or _base(words[0]) not in _SHELLS:
        return None
    at = 1
    asked = False
    while at < len(words) and words[at][:1] in "-+" and len(words[at]) > 1:
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


def _from_script(launch: Launch, text: str, rest: list[str], variables: Mapping[str, str | None]) -> None:
    launch.text = text
    try:
        script = read_script(text, variables, rest)
    except ShellProblem as problem:
        launch.script = text
        launch.notes.append(f"the start script could not be read and is kept as written: {problem}")
        return
    launch.unknown = dict(script.unknown)
    launch.notes += [f"of the start script: {note}" for note in script.notes]
    for command in script.commands:
        if launch.engine is None and _take(launch, command.words):
            launch.assigned += command.assigned
            launch.beside += [[each] for each in command.redirected]
        elif not command.words:
            for name, value in command.assigned:
                whole = command.exported or name in variables
                (launch.assigned if whole else launch.local).append((name, value))
        else:
            launch.piped |= {len(launch.beside)} if command.piped else set()
            launch.beside.append(_words(command))
    if launch.engine is None:
        launch.script, launch.beside = text, []
        launch.notes.append("the start script names no known engine and is kept as written")


def _words(command: Command) -> list[str]:
    return [*(f"{name}={value}" for name, value in command.assigned), *command.words, *command.redirected]


def _take(launch: Launch, words: list[str]) -> bool:
    """Find the engine in the words of one command; what stands before it is a wrapper."""
    for at, word in enumerate(words):
        found = _engine_at(words, at)
        if found is None:
            continue
        engine, start = found
        launch.engine, launch.words = engine, words[start:]
        launch.program = words[at + 1] if word == "-m" else word
        before = words[:at]
        if before and _base(before[-1]).startswith("python"):
            before = before[:-1]
        _wrapper(launch, before)
        return True
    return False


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
    if words[at] == "-m" and following and at > 0 and _base(words[at - 1]).startswith("python"):
        module = following[0]
        if module.startswith("vllm.entrypoints.") and module.endswith(("api_server", "cli.main")):
            start = at + 2
            return VLLM, start + (words[start : start + 1] == ["serve"])
        if module == "huggingfaceserver":
            return VLLM, at + 2
        if module == "sglang.launch_server":
            return SGLANG, at + 2
    return None
