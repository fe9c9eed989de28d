"""Where credentials stand in commands, scripts and texts: under a name, behind a flag, in what `echo` says.

Nothing is run and nothing is sealed here; every pattern runs in time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from prefillgate.profiles.credentials import named_so

PASSWORD = "password"  # the name of what stands behind a flag that has no name of its own
_BLANK = re.compile(r"\s")
_SAYING = frozenset({"echo", "printf"})
_SCHEMES = frozenset({"bearer", "basic", "token", "digest"})
# Letters of flags that take a password. `login` stands for that of docker, podman, helm and their like.
_LETTERS = {
    "curl": "uU",
    "sshpass": "p",
    "redis-cli": "a",
    "mysql": "p",
    "mysqldump": "p",
    "mariadb": "p",
    "login": "p",
    "mc": "",
}
_LOGINS = frozenset({"vault login"})  # what follows is a token, where it is no flag
_LONG = frozenset({"--user", "--proxy-user"})  # of curl: name and password
_FIELD = re.compile(r"[\"'{,]*([A-Za-z_][\w.-]{0,127})[\"']?:")
_BEFORE_NAME = re.compile(r"[/?&;,{(\[\"':\s]")
_REFERENCE = re.compile(r"[\"']?\$(\w+|\{\w+\}|\(\w+\))[\"']?")
_VALUE = r"(?:(?P<quote>[\"'])(?P<quoted>[^\"'\n]{1,4096})(?P=quote)|[\"']?(?P<value>[^\s\"',;&]{1,4096}))"
_NAME = r"(?<![\w./$@-])-{0,2}(?P<name>[A-Za-z_][\w.-]{0,127})"
PAIR = re.compile(rf"{_NAME}[\"']?\]?(?:\s{{0,4}}=\s{{0,4}}|\s{{0,4}}:\s{{1,4}}|[\"']\s?:\s?){_VALUE}")
TIGHT = re.compile(rf"{_NAME}:(?!\d{{1,5}}(?!\w))(?P<value>[^\s\"',;&/]{{1,4096}})")  # a number is a port
LINE = re.compile(
    r"(?m)^[ \t]{0,64}(?:-[ \t]{1,8})?[\"']?(?P<name>[A-Za-z_][\w.-]{0,127})[\"']?[ \t]{0,8}:[ \t]{1,8}"
    r"(?P<value>[^\s#&|>][^\n]{0,4095})$"
)
FLAG = re.compile(
    r"(?<![\w-])(?P<name>--?[A-Za-z][\w.-]{0,127})(?:=|\s{1,8})(?P<quote>[\"'])(?P<quoted>[^\"'\n]{1,4096})(?P=quote)"
)
CALL = re.compile(r"\b(?P<name>login)\(\s{0,8}[\"'](?P<value>[^\"'\n]{1,4096})[\"']")  # of huggingface_hub, in Python
_DOCUMENT = re.compile(r"<<-?[ \t]{0,8}[\"']?(\w{1,64})[\"']?[^\n]{0,256}\n")
MOST_DOCUMENTS = 64
_COMMAND = re.compile(r"[^|;&\n<>]+")
_SAYS = re.compile(r"\b(?:echo|printf)\s")
_TO_COMMAND = re.compile(r"\|(?!\|)")
_TO_FILE = re.compile(r">{1,2}[ \t]{0,8}[\"']?([^\s;|&\"']{1,1024})")
_WORD = re.compile(r"\"[^\"]*\"|'[^']*'|\S+")


def has_blank(text: str) -> bool:
    """Whether a text is more than one word."""
    return _BLANK.search(text) is not None


def named(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Every word with the name that it stands under: its own before `=`, else the flag or the `name:` before it."""
    flag = program = before = ""
    left = 0  # words behind the URL of `mc alias set NAME URL KEY SECRET` that are to come
    for word in words:
        bare = word.strip("\"'")
        if has_blank(word):
            if flag:
                yield flag, word
            yield from named(word.split())
            continue
        base = re.split(r"[/\\]", bare)[-1]
        program = base if base in _LETTERS else program
        name, equals, value = bare.partition("=")
        if equals and value:
            yield _short(name), value
            yield _short(name), word.partition("=")[2]
        elif flag and bare:
            yield flag, bare
            yield flag, word
        yield from _attached(program, bare)
        if left and bare:
            left -= 1
            yield PASSWORD, word
        elif program == "mc" and bare.startswith("http"):
            left = 2
        if before == "set" and word[:1] != "-" and not equals:  # `aws configure set NAME X`
            flag = word
        elif f"{before} {base}" in _LOGINS:
            flag = PASSWORD
        elif not (flag and bare.lower() in _SCHEMES):
            flag = _flag_of(program, bare, equals)
        before = base


def _short(name: str) -> str:
    return _BEFORE_NAME.split(name)[-1]


def _flag_of(program: str, word: str, equals: str) -> str:
    """What the next word stands under; empty: nothing."""
    field = _FIELD.fullmatch(word)
    if field is not None:
        return field[1]
    if not word.startswith("-") or equals:
        return ""
    letters = _LETTERS.get(program, "")
    short = len(word) > 1 and word[1] != "-" and word[-1] in letters and word[1:].isalpha()
    return PASSWORD if short or (program == "curl" and word in _LONG) else word


def _attached(program: str, word: str) -> Iterator[tuple[str, str]]:
    """`-ume:X` of curl, `-pX` of mysql."""
    if len(word) > 2 and word[0] == "-" and word[1] in _LETTERS.get(program, "") and not word[1:].isalpha():
        yield PASSWORD, word[2:]


def spoken(words: list[str], piped: bool) -> set[str]:
    """Words of a command that are what it says to another one, or into the file of a credential.

    `piped` tells whether its output goes into another command.
    """
    if not words:
        return set()
    if re.split(r"[/\\]", words[0])[-1] in _SAYING:
        into = [word.lstrip("0123456789>") for word in words[1:] if re.match(r"\d?>", word)]
        if piped or any(named_so(each) for each in into):
            return {word for word in words[1:] if word[:1] not in "-<>" and _REFERENCE.fullmatch(word) is None}
    if any(word.endswith("-stdin") or word == "login" for word in words):
        return {word for word in words if word.startswith("<<<") and _REFERENCE.fullmatch(word[3:].strip()) is None}
    return set()


def said(text: str) -> Iterator[tuple[int, int]]:
    """Where in a script words stand that `echo` says to another command or into the file of a credential."""
    for command in _COMMAND.finditer(text):
        says = _SAYS.search(text, command.start(), command.end())
        if says is None:
            continue
        into = _TO_FILE.match(text, command.end())
        if _TO_COMMAND.match(text, command.end()) or (into is not None and named_so(into[1])):
            for word in _WORD.finditer(text, says.end(), command.end()):
                if word[0][0] != "-" and _REFERENCE.fullmatch(word[0]) is None:
                    yield word.span()


def documents(text: str) -> Iterator[str]:
    """A text of several lines, and the here-documents in it, of which at most 64 are looked at."""
    if "\n" in text:
        yield text
    for _, begin in zip(range(MOST_DOCUMENTS), _DOCUMENT.finditer(text), strict=False):
        end = re.compile(rf"^\t*{begin[1]}$", re.MULTILINE).search(text, begin.end())
        if end is not None:
            yield text[begin.end() : end.start()]
