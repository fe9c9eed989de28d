"""The judges of a run: that they are neither arm, and what their word is worth, before they judge anything."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prefillgate.core.agreement import judge_notes
from prefillgate.core.journal import JudgeCompared
from prefillgate.engines.base import EngineError, Identity
from prefillgate.engines.http import base_url
from prefillgate.engines.registry import detect
from prefillgate.replay.check_parts import CheckError
from prefillgate.replay.lane import own_marker
from prefillgate.runs.errors import BadInput, CouldNotMeasure

if TYPE_CHECKING:
    from prefillgate.replay.checks import Check, CheckSuite
    from prefillgate.replay.judge_check import JudgeCheck
    from prefillgate.replay.runner import Runner
    from prefillgate.replay.session import RunRequest
    from prefillgate.runs.around import Around

_ASK_SECONDS = 10.0


async def keep_judges_apart(suite: CheckSuite, request: RunRequest, identities: Mapping[str, Identity]) -> None:
    """Raise `BadInput` for a judge that is the server of an arm: at its address, however either is written, or under
    another one, as far as servers show who they are."""
    for check, judge in suite.judges():
        place, life = await _place(judge.spec.url), await _life(judge)
        for arm, identity in identities.items():
            places = [await _place(url) for url in request.arm(arm).urls]
            if any(place & other for other in places) or (
                life is not None and life == own_marker(identity.server_epoch)
            ):
                raise BadInput(
                    f"check {check.name}: the judge {judge.spec.url} is the server of the {arm}: it would judge "
                    "itself, and its work would disturb the measurement (allowed: a server that is neither arm)"
                )


async def compare_judges(runner: Runner, unvalidated: bool, around: Around) -> None:
    """Ask every judge about its labelled outputs, say how well it agrees, and write that down.

    What stands in the journal already is not asked again. Raises `CouldNotMeasure` for a judge that does not answer,
    and unless `unvalidated` for one with too few answers.
    """
    for check, judge in runner.suite.judges():
        known = runner.gate.judges.get(check.name)
        if known is None or (known.version, known.examples_sha256) != (check.version, judge.examples_sha256):
            if judge.examples:
                around.said(f"judge {check.name}: asked about {len(judge.examples)} labelled outputs first")
            known = await _compared(runner, check, judge)
            runner.record(known)
        for note in judge_notes(check.name, known.agreement):
            around.said(note)
        if known.agreement.shortcoming is not None and not unvalidated:
            raise CouldNotMeasure(
                f"check {check.name}: this judge is not validated: {known.agreement.shortcoming} "
                "(allowed: a judge that answers, or --unvalidated-judge)"
            )


async def _compared(runner: Runner, check: Check, judge: JudgeCheck) -> JudgeCompared:
    try:
        agreement = await judge.agreement()
    except CheckError as error:
        raise CouldNotMeasure(f"check {check.name}: {error}") from error
    return JudgeCompared(runner.clock.now(), check.name, check.version, judge.examples_sha256, agreement)


async def _place(url: str) -> set[tuple[str, int, str]]:
    """Address, port and path of a server; of every address its name stands for."""
    parts = urlsplit(base_url(url).root)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return {(host, port, parts.path)}
    return {(str(address[0]), port, parts.path) for *_, address in found}


async def _life(judge: JudgeCheck) -> str | None:
    """The judge's own marker of its life; None where it shows none, or does not answer such questions."""
    options = replace(judge.options, model=None, attempts=1, read_timeout_seconds=_ASK_SECONDS)
    try:
        async with await detect(judge.spec.url, options) as engine:
            return (await engine.discover()).server_epoch
    except EngineError:
        return None
