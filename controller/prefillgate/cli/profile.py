"""`prefillgate profile`: what a manifest or a command line says of a serving profile, and how two of them differ."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.errors import BadInput
from prefillgate.cli.outcome import say
from prefillgate.cli.problems import json_line, say_problems

if TYPE_CHECKING:
    from prefillgate.profiles import Sources
    from prefillgate.profiles.manifests import Named, Wanted

EXIT_REFUSED = 10
STDIN = "-"
MOST_BYTES = 4 * 1024 * 1024
LEAST_KEY = 16  # characters


@click.command(name="profile")
@click.argument("file", metavar="FILE")
@click.option("--other", metavar="FILE", help="Also read this one, and say how it differs from the first.")
@click.option("--workload", metavar="NAME", help="Which object of FILE: its name, or Kind/name.")
@click.option("--other-workload", metavar="NAME", help="Which object of --other.  [default: as --workload]")
@click.option(
    "--container", metavar="NAME", help="The container that serves.  [default: a known engine's, else the first]"
)
@click.option("--pod-template-path", metavar="PATH", help="Where the pod template stands in an object of another kind.")
@click.option("--engine", metavar="NAME", help="What serves, where nothing tells: vllm, llama.cpp or sglang.")
@click.option("--image", metavar="IMAGE", help="The image of a bare list of arguments: it tells the engine.")
@click.option(
    "--credential",
    "more",
    multiple=True,
    metavar="NAME",
    help="A further flag or variable that holds one; * is any text.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="NAME",
    help="A variable, sidecar or volume that admission adds to pods; * is any text.",
)
@click.option(
    "--key-env", metavar="VARIABLE", help="The key credentials are digested under.  [default: another one each time]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(file: str, as_json: bool, **options: Any) -> int:
    """Print the serving profile that FILE tells: settings by area, a digest, and what could not be told.

    FILE holds Kubernetes objects in YAML or JSON (a Deployment, a StatefulSet, a LeaderWorkerSet, a KServe
    InferenceService, or anything with a pod template, with the ConfigMaps beside it), a list of arguments, or a command
    line; `-` is standard input. llama-server, vLLM and SGLang are known: every spelling of a flag is one setting, and
    a flag that is not known is kept. Defaults are not put in: a flag that is absent is unknown.

    Values of credentials are sealed as [sealed-0123456789]. A digest that holds one compares with others only under the
    same key: name it with --key-env.

    Exit codes: 0 printed, 2 bad input, 10 a profile that must not be gated (its throughput is synthetic).

    With --json: {"profiles": [{"name", "engine", "digest", "writtenDigest", "resolved", "containers": [{"role", "name",
    "why", "engine", "digest", "writtenDigest", "resolved"}], "settings": [{"area", "name", "words", "value",
    "origin"}], "findings", "refused"}], and with --other "words" and "differences": [{"area", "name", "baseline",
    "candidate"}]}. A setting that follows from others has "derived"; one that variables were put into names them in
    "variables"; an image has "digested" and "written", what stands for it in either digest.
    """
    from prefillgate.api.errors import InputError
    from prefillgate.profiles.manifests import read_profiles

    other = options["other"]
    if other == STDIN == file:
        raise BadInput("FILE and --other: standard input can be read once (allowed: - for one of them)")
    if options["other_workload"] is not None and other is None:
        raise BadInput("--other-workload goes with --other")
    sources = _sources(options)
    try:
        found = read_profiles(_text(file), sources, _wanted(options, options["workload"]))
        named = options["other_workload"] or options["workload"]
        others = [] if other is None else read_profiles(_text(other), sources, _wanted(options, named))
    except InputError as error:
        return say_problems(error)
    if other is not None:
        _one(found, file, "--workload")
        _one(others, other, "--other-workload")
    if as_json:
        click.echo(json_line(_document(found, others)))
    else:
        _print(found, others)
    return EXIT_REFUSED if any(each.profile.refused for each in [*found, *others]) else 0


def _sources(options: dict[str, Any]) -> Sources:
    from prefillgate.profiles import Seal, Sources

    variable = options["key_env"]
    key = secrets.token_hex(32) if variable is None else os.environ.get(variable, "")
    if len(key) < LEAST_KEY:
        raise BadInput(f"--key-env {variable}: not set, or shorter than {LEAST_KEY} characters")
    seal = Seal(key.encode("utf-8", "surrogateescape"), options["more"])
    return Sources(seal, container=options["container"], engine=options["engine"], ignored=options["ignored"])


def _wanted(options: dict[str, Any], workload: str | None) -> Wanted:
    from prefillgate.profiles.manifests import Wanted

    return Wanted(workload, options["pod_template_path"], options["image"])


def _text(name: str) -> str:
    try:
        if name == STDIN:
            raw = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{name}: cannot be read: {error.strerror or error}") from error
    if len(raw) > MOST_BYTES:
        raise BadInput(f"{name}: longer than {MOST_BYTES} bytes")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{name}: invalid UTF-8 at byte {error.start}") from error


def _one(found: list[Named], file: str, option: str) -> None:
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise BadInput(f"{file}: {len(found)} workloads, and one is compared (name it with {option}: {names[:300]})")


def _print(found: list[Named], others: list[Named]) -> None:
    for index, each in enumerate([*found, *others]):
        if index:
            click.echo()
        profile = each.profile
        engine = profile.engine or "unknown engine"
        click.echo(f"{each.name}: {engine}, {profile.digest}")
        for part in profile.parts:
            if part.role != "pod" or part.container != "inline":
                click.echo(f"  {part.role}: container {part.container} ({part.why_container})")
        for line in _settings(each):
            click.echo(line)
        for text in profile.notes:
            say(f"prefillgate: {each.name}: {text}", "finding", "warning")
        for text in profile.refused:
            say(f"prefillgate: {each.name}: refused: {text}", "error", "error")
    if others:
        click.echo()
        click.echo(f"differences: {_words(found[0], others[0]) or 'none'}")


def _settings(found: Named) -> Iterator[str]:
    """A line for each setting; its area stands before the first."""
    from prefillgate.api.errors import clean
    from prefillgate.profiles.model import AREA_ORDER, brief

    width = max(map(len, AREA_ORDER))
    before = ""
    for each in found.profile.settings:
        area = "" if each.area == before else each.area
        before = each.area
        yield clean(f"  {area:<{width}}  {each.words} {brief(each.value)}").rstrip()


def _words(one: Named, other: Named) -> str:
    from prefillgate.profiles import in_words

    return in_words(one.profile, other.profile, most=1_000)


def _document(found: list[Named], others: list[Named]) -> dict[str, Any]:
    from prefillgate.profiles import differences

    document: dict[str, Any] = {
        "profiles": [{"name": each.name, **each.profile.document()} for each in [*found, *others]]
    }
    if others:
        document["words"] = _words(found[0], others[0])
        document["differences"] = [
            {"area": each.area, "name": each.name, "baseline": each.baseline, "candidate": each.candidate}
            for each in differences(found[0].profile, others[0].profile)
        ]
    return document
