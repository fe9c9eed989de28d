"""The commands of a `sh -c` script, as far as they can be read without running it.

Quotes, line continuations, comments, variables, assignments and redirections are read as POSIX shells do; what needs a
running shell (a command's output, arithmetic, patterns) is kept as written and noted. Time is linear in the script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LONGEST_SCRIPT = 262_144  # characters
LONGEST_EXPANDED = 1_048_576  # characters, with every variable put in
_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"([A-Za-z_]\w*|[@*]|\d)(?:(:?[-=])([^{}$`\"']*))?\}")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")
_SPECIAL = set("@*0123456789")
_SEPARATORS = ";&|\n()"
_REDIRECTS = "<>"


class Word(str):
    """A word that remembers the variables that were put into it. Any text made of it is a plain one again."""

    __slots__ = ("put",)
    put: frozenset[str]

    def __new__(cls, text: str, put: Iterable[str]) -> Word:
        word = super().__new__(cls, text)
        word.put = frozenset(put)
        return word


def put_into(text: str) -> frozenset[str]:
    """The variables that are known to have been put into a word."""
    return text.put if isinstance(text, Word) else frozenset()


class ShellProblem(ValueError):
    """The script is no shell, or too long to read."""


@dataclass(slots=True)
class Command:
    """One simple command: its words after expansion, the assignments before them, and what it redirects."""

    words: list[str] = field(default_factory=list)
    assigned: list[tuple[str, str]] = field(default_factory=list)
    exported: bool = False  # `assigned` are variables of everything that follows
    redirected: list[str] = field(default_factory=list)
    piped: bool = False  # its output goes into the next one


@dataclass(slots=True)
class Script:
    """What was read: commands in order, variables that nothing gives, and what only a shell can tell."""

    commands: list[Command]
    unknown: dict[str, None]
    notes: list[str]


def read_script(
    text: str, variables: Mapping[str, str | None], arguments: list[str], longest: int = LONGEST_EXPANDED
) -> Script:
    """Read a script. `variables` are the environment (None: known, but its value must not be put in: it stays as
    written); `arguments` are `$0`, `$1` and so on; with all of them put in it may have `longest` characters. Raises
    `ShellProblem`."""
    if len(text) > LONGEST_SCRIPT:
        raise ShellProblem(f"longer than {LONGEST_SCRIPT} characters")
    return _Reader(text, dict(variables), arguments, longest).read()


class _Reader:
    def __init__(self, text: str, variables: dict[str, str | None], arguments: list[str], longest: int) -> None:
        self.text, self.at = text, 0
        self.variables, self.arguments = variables, arguments
        self.script = Script([], {}, [])
        self.command = Command()
        self.word: list[str] | None = None
        self.put: set[str] = set()  # variables of the word
        self.redirect: str | None = None
        self.longest = self.budget = longest

    def read(self) -> Script:
        while self.at < len(self.text):
            self._step(self.text[self.at])
        self._end_command()
        return self.script

    def _step(self, char: str) -> None:
        self.at += 1
        if char == "\\":
            self._backslash()
        elif char == "'":
            self._add(self._until("'"))
        elif char == '"':
            self._double()
        elif char == "$":
            self._dollar(quoted=False)
        elif char == "`":
            self._note("a command's output stands in it")
            self._add(f"`{self._until('`')}`")
        elif char == "#" and self.word is None:
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif char in " \t\r":
            self._end_word()
        elif char in _SEPARATORS:
            self.command.piped = char == "|" and not self.text.startswith("|", self.at)
            self._end_command()
        elif char in _REDIRECTS:
            self._redirect(char)
        else:
            self._add(char)

    def _add(self, text: str) -> None:
        self.budget -= len(text)
        if self.budget < 0:
            raise ShellProblem(f"longer than {self.longest} characters once its variables are put in")
        self.word = [] if self.word is None else self.word
        self.word.append(text)

    def _note(self, text: str) -> None:
        if text not in self.script.notes:
            self.script.notes.append(text)

    def _backslash(self) -> None:
        following = self.text[self.at : self.at + 1]
        self.at += 1
        if following == "\r" and self.text[self.at : self.at + 1] == "\n":
            self.at += 1
        elif following != "\n":
            self._add(following)

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.at)
        if end < 0:
            raise ShellProblem("a quote in it does not end")
        found, self.at = self.text[self.at : end], end + 1
        return found

    def _double(self) -> None:
        self._add("")
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == '"':
                return
            if char == "\\":
                following = self.text[self.at : self.at + 1]
                self.at += 1
                if following != "\n":
                    self._add(following if following in '$`"\\' else char + following)
            elif char == "$":
                self._dollar(quoted=True)
            elif char == "`":
                self._note("a command's output stands in it")
                self._add(f"`{self._until('`')}`")
            else:
                self._add(char)
        raise ShellProblem("a quote in it does not end")

    def _dollar(self, quoted: bool) -> None:
        if self.text.startswith("(", self.at):
            self._substitution()
        elif self.text.startswith("{", self.at):
            braced = _BRACED.match(self.text, self.at + 1)
            if braced is None:
                self._note("an expansion stands in it that only a shell can tell")
                self._add("$")
                return
            self.at = braced.end()
            self._expand(braced[1], f"${{{braced[0]}", quoted, braced[3])
        elif (named := _NAME.match(self.text, self.at)) is not None:
            self.at = named.end()
            self._expand(named[0], f"${named[0]}", quoted, None)
        elif self.text[self.at : self.at + 1] in _SPECIAL and self.at < len(self.text):
            name = self.text[self.at]
            self.at += 1
            self._expand(name, f"${name}", quoted, None)
        else:
            self._add("$")

    def _substitution(self) -> None:
        """`$(...)`: kept as written. One that Kubernetes would have put a variable in for is no command."""
        start, depth = self.at - 1, 0
        while self.at < len(self.text):
            depth += {"(": 1, ")": -1}.get(self.text[self.at], 0)
            self.at += 1
            if depth == 0:
                break
        found = self.text[start : self.at]
        name = found[2:-1]
        if _NAME.fullmatch(name) and name in self.variables:
            pass
        elif re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            self._unknown(name)
        else:
            self._note("a command's output stands in it")
        self._add(found)

    def _expand(self, name: str, written: str, quoted: bool, default: str | None) -> None:
        if name in "@*":
            self._all_arguments(quoted)
            return
        if name.isdigit():
            index = int(name)
            value: str | None = self.arguments[index] if index < len(self.arguments) else default or ""
            name = ""
        elif name in self.variables:
            value = self.variables[name] if self.variables[name] != "" or not default else default
        elif default is not None:
            value = default
        else:
            self._unknown(name)
            value = None
        if value is None:
            self._add(written)
        elif quoted:
            self._add(value)
            self.put |= put_into(value) | {name}
        else:
            self._split(value, put_into(value) | {name})

    def _unknown(self, name: str) -> None:
        self.script.unknown[name] = None

    def _all_arguments(self, quoted: bool) -> None:
        for index, argument in enumerate(self.arguments[1:]):
            if index:
                self._end_word()
            if quoted:
                self._add(argument)
                self.put |= put_into(argument)
            else:
                self._split(argument, put_into(argument))

    def _split(self, value: str, put: frozenset[str]) -> None:
        """An expansion outside of quotes is split at blanks; `put` are the variables that it comes from."""
        pieces = value.split()
        if not pieces:
            return
        if value[0].isspace():
            self._end_word()
        for index, piece in enumerate(pieces):
            if index:
                self._end_word()
            self._add(piece)
            self.put |= put
        if value[-1].isspace():
            self._end_word()

    def _redirect(self, char: str) -> None:
        descriptor = "".join(self.word) if self.word is not None else ""
        if descriptor.isdigit():
            self.word = None
        else:
            self._end_word()
            descriptor = ""
        end = self.at
        while end < len(self.text) and self.text[end] in "<>&-":
            end += 1
        self.redirect = descriptor + char + self.text[self.at : end]
        if self.redirect.startswith("<<"):
            self._note("a here-document stands in it")
        self.at = end

    def _end_word(self) -> None:
        if self.word is None:
            return
        word, self.word, self.put, put = "".join(self.word), None, set(), self.put - {""}
        if self.redirect is not None:
            self.command.redirected.append(self.redirect + word)
            self.redirect = None
            return
        assigned = _ASSIGNMENT.match(word)
        if assigned is not None and not self.command.words:
            self.command.assigned.append((assigned[1], Word(word[assigned.end() :], put)))
        else:
            self.command.words.append(Word(word, put))

    def _end_command(self) -> None:
        self._end_word()
        command, self.command, self.redirect = self.command, Command(), None
        if command.words[:1] == ["export"]:
            command.exported = True
            for word in command.words[1:]:
                name, equals, value = word.partition("=")
                known = value if equals else self.variables.get(name)
                if known is not None:
                    command.assigned.append((name, known))
            command.words = []
        if not command.words:
            self.variables.update(command.assigned)
        if command.words or command.assigned or command.redirected:
            self.script.commands.append(command)
