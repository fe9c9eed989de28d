"""What a server can and cannot prove, one line per capability, with the flag that would give what is missing.

The words here are common to all families; which flag of a server gives a capability stands in the family's own file
(`FLAGS`), under the names below. Nothing is judged beyond what discovery, the capability probe and one look showed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from prefillgate.engines.base import Capabilities, EngineError, Identity, Look
from prefillgate.engines.http import EngineOptions, HttpLane, HttpStatusError

FRESH = "fresh prefill"
COUNTER = "cached-token counter"
WITNESS = "second witness"
IDLE = "idleness"
EPOCH = "restarts"
BUILD = "build"
WEIGHTS = "weights"
CONTEXT = "context per slot"
TIMES = "decode times"
SPECULATION = "speculation"
KEY = "API key"
KNOBS: Mapping[str, str] = {
    "cache_off": "`cache_prompt: false` forces one: three requests showed it",
    "salt": "a new cache salt forces one: three requests showed it",
    "nonce": "a nonce on the first line forces one: three requests showed it; what stands before it may be reused",
}

#: What helps where a family's own `FLAGS` name nothing: no flag of it is known to give the capability.
UNTOLD: Mapping[str, str] = {
    FRESH: "none known: serve the model by an engine that tells cached tokens",
    COUNTER: "none known: serve the model by an engine that tells cached tokens",
    WITNESS: "none known",
    IDLE: "none known: keep other traffic away",
    EPOCH: "none known: keep it from being restarted during a run",
    BUILD: "none known: declare another build on one arm",
    WEIGHTS: "none known: declare other weights on one arm",
    CONTEXT: "none known: keep prompts well below it",
    TIMES: "none known: a policy with throughput mode Report",
    SPECULATION: "none known: declare a draft on one arm",
}


class Standing(StrEnum):
    """How a capability stands."""

    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Capability:
    """One line: how it stands, one sentence, and what would give it. `needed`: no decision can be trusted without."""

    name: str
    standing: Standing
    sentence: str
    flag: str | None = None
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What was asked of a server. `keyless` is whether it lists its models without our key; None: not asked."""

    identity: Identity
    probe: Capabilities
    look: Look
    key_given: bool
    keyless: bool | None


def capability_report(seen: Seen, flags: Mapping[str, str]) -> tuple[Capability, ...]:
    """Every capability in the order of its weight. What is not ok gets a flag: of the family's `flags`, else what helps
    without one."""
    found = (
        _fresh(seen.probe),
        _counter(seen.probe),
        _witness(seen.probe),
        _idle(seen.look),
        _told(EPOCH, seen.look.epoch, "a marker tells one life of the process from the next", "a restart stays unseen"),
        _times(seen.probe),
        _told(BUILD, seen.identity.build, "build {}", "another build on one arm would not be seen: declare it"),
        _told(WEIGHTS, seen.identity.weights, "{}", "other weights on one arm would not be seen: declare them"),
        _context(seen.identity),
        _speculation(seen),
        _key(seen),
    )
    helps = {**UNTOLD, **flags}
    return tuple(each if each.standing is Standing.OK else replace(each, flag=helps.get(each.name)) for each in found)


async def lists_models_without_key(url: str, options: EngineOptions) -> bool | None:
    """Whether /v1/models answers somebody who shows no key; None where that was no clear answer."""
    headers = tuple(header for header in options.headers if header[0].lower() != "authorization")
    async with HttpLane(url, replace(options, api_key=None, headers=headers)) as lane:
        try:
            await lane.get_json("/v1/models")
        except HttpStatusError as error:
            return False if error.status in (401, 403) else None
        except EngineError:
            return None
    return True


def _fresh(probe: Capabilities) -> Capability:
    if probe.cold_proof is not None:
        return Capability(FRESH, Standing.OK, KNOBS.get(probe.cold_proof, f"forced by {probe.cold_proof}"), needed=True)
    if not probe.counter_alive:
        return Capability(
            FRESH, Standing.UNKNOWN, "no counter shows whether a prefill was fresh: independence unknown", needed=True
        )
    return Capability(FRESH, Standing.MISSING, _why(probe, "nothing forces one"), needed=True)


def _counter(probe: Capabilities) -> Capability:
    if probe.counter_alive:
        return Capability(COUNTER, Standing.OK, "an exact repeat was told with more cached tokens", needed=True)
    return Capability(COUNTER, Standing.MISSING, _why(probe, "it did not move on an exact repeat"), needed=True)


def _why(probe: Capabilities, otherwise: str) -> str:
    """The probe's first finding, which is the one that keeps a decision back, without its flags."""
    return probe.findings[0].partition(";")[0] if probe.findings else otherwise


def _witness(probe: Capabilities) -> Capability:
    if probe.counters_agree is None:
        return Capability(
            WITNESS,
            Standing.MISSING,
            "no total of the server's own confirms its replies: a reply's word for a fresh prefill stands alone",
        )
    if probe.counters_agree:
        return Capability(WITNESS, Standing.OK, "the server's own counters moved by what its replies told")
    return Capability(
        WITNESS,
        Standing.UNKNOWN,
        "the server's own counters moved by other amounts: other traffic, or one of them lies",
    )


def _idle(look: Look) -> Capability:
    if look.activity.idle is None:
        return Capability(IDLE, Standing.MISSING, "it does not tell whether it serves others: keep other traffic away")
    return Capability(IDLE, Standing.OK, "it tells whether other work runs, so a cell beside it is void")


def _told(name: str, value: str | None, told: str, otherwise: str) -> Capability:
    if value is None:
        return Capability(name, Standing.MISSING, f"not told: {otherwise}")
    return Capability(name, Standing.OK, told.format(value))


def _times(probe: Capabilities) -> Capability:
    if probe.decode_times is None:
        return Capability(TIMES, Standing.UNKNOWN, "the probe's answers were too short to tell")
    if probe.decode_times:
        return Capability(TIMES, Standing.OK, "a reply tells how long its decode took: speed can be compared")
    return Capability(
        TIMES,
        Standing.MISSING,
        "no reply tells how long its decode took: only a policy with throughput mode Report promotes",
    )


def _context(identity: Identity) -> Capability:
    slots = "" if identity.slots is None else f", {identity.slots} slot{'' if identity.slots == 1 else 's'}"
    if identity.context_tokens is None:
        return Capability(CONTEXT, Standing.MISSING, f"not told{slots}: prompts too long for it fail in the run")
    return Capability(CONTEXT, Standing.OK, f"{identity.context_tokens} tokens{slots}")


def _speculation(seen: Seen) -> Capability:
    state = dict(seen.identity.settings).get("speculation")
    counters = seen.look.counters
    if state == "off":
        return Capability(SPECULATION, Standing.OK, "off")
    if state is None:
        return Capability(SPECULATION, Standing.UNKNOWN, "not told whether a draft runs: what it accepts is not shown")
    if counters is None or counters.draft_tokens is None:
        return Capability(SPECULATION, Standing.OK, "on; its counts stand in the replies alone")
    return Capability(SPECULATION, Standing.OK, "on, with counts of drafted and accepted tokens")


def _key(seen: Seen) -> Capability:
    if not seen.key_given:
        return Capability(KEY, Standing.OK, "none is given, and none was asked for")
    if seen.keyless is False:
        return Capability(KEY, Standing.OK, "the one given is accepted; without it the server refuses")
    if seen.keyless:
        return Capability(
            KEY, Standing.UNKNOWN, "the server lists its models without one too: a wrong one may not show"
        )
    return Capability(KEY, Standing.UNKNOWN, "the server gave no clear answer to a question without it")
