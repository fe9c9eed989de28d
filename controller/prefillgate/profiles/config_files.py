"""Config files that an engine is pointed at, out of mounted ConfigMaps: YAML of vLLM and SGLang, presets in INI."""

from __future__ import annotations

import configparser
import tomllib
from typing import Any

import yaml

from prefillgate.profiles.given import Collected, Given, read_fields, read_key, read_variable

LONGEST_FILE = 4_194_304  # characters
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C where it is there: ten times as fast
DEEPEST = 32
PRESET_EVERY = "*"  # the section whose settings hold for every preset


class ConfigProblem(ValueError):
    """The file is not of the kind that its engine reads. The text says what is wrong and shows nothing of it."""


def load_yaml(text: str) -> Any:
    """The value of one YAML document. Raises `ConfigProblem` as `load_documents` does."""
    found = load_documents(text)
    if len(found) != 1:
        raise ConfigProblem("not one YAML document")
    return found[0]


def load_documents(text: str) -> list[Any]:
    """The values of YAML documents, of JSON too. Aliases and deep nesting are refused. Raises `ConfigProblem`."""
    if len(text) > LONGEST_FILE:
        raise ConfigProblem(f"longer than {LONGEST_FILE} characters")
    text = str(text)  # the loader in C takes no word that remembers its variables
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST or isinstance(event, yaml.AliasEvent):
                raise ConfigProblem("nested too deep, or with aliases")
        return list(yaml.load_all(text, Loader=_LOADER))
    except ConfigProblem:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
        raise ConfigProblem(f"not YAML{where}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigProblem("not YAML") from error


def load_sections(text: str) -> Any:
    """The fields of a TOML or an INI file by section. Raises `ConfigProblem`."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ConfigProblem("neither TOML nor INI") from error
    return {section: dict(parser.items(section)) for section in parser.sections()}


def read_yaml_config(text: str, origin: str, into: Collected) -> None:
    """The fields of a config file as settings. Raises `ConfigProblem`."""
    loaded = load_yaml(text)
    if not isinstance(loaded, dict):
        raise ConfigProblem("not a mapping of settings")
    read_fields(loaded, origin, into)


def read_presets(text: str, origin: str, into: Collected) -> None:
    """The presets of a llama-server router: a setting for each key of each section, under the section's name.

    Raises `ConfigProblem`.
    """
    if len(text) > LONGEST_FILE:
        raise ConfigProblem(f"longer than {LONGEST_FILE} characters")
    parser = configparser.RawConfigParser(
        delimiters=("=",),
        comment_prefixes=("#", ";"),
        strict=False,
        interpolation=None,
        allow_no_value=True,
        default_section="\0",
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # -C and -c are two options
    try:
        parser.read_string(text if text.lstrip().startswith("[") else f"[{PRESET_EVERY}]\n{text}")
    except configparser.Error as error:
        raise ConfigProblem("not an INI file of presets") from error
    for section in parser.sections():
        inner = Collected(into.table, into.credential)
        for key, value in parser.items(section):
            if not read_variable(key, value or "", inner):
                read_key(key, value or "", origin, inner)
        for given in inner.found.values():
            mark = f"preset {section} "
            into.add(Given(mark + given.name, mark + given.words, given.area, given.values, origin, given.takes))
