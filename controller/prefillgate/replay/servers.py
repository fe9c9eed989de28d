"""The servers of a run that has several: each is its own, and those of one arm are of one profile."""

from __future__ import annotations

from collections.abc import Sequence

from prefillgate.engines.base import Identity

_PROFILE = ("engine", "build", "model", "weights", "context_tokens", "slots")


class AnotherProfile(ValueError):
    """Two servers of an arm are not of one profile, or are one server. The message names both and what differs."""


def check_one_profile(arm: str, first: tuple[str, Identity], other: tuple[str, Identity]) -> None:
    """Raise `AnotherProfile` unless both servers (URL, identity) of `arm` tell of the same profile.

    What one of them does not tell is not held against it.
    """
    for name, one, two in _told(first[1], other[1]):
        if None not in (one, two) and one != two:
            raise AnotherProfile(
                f"--{arm} {other[0]} is another profile than {first[0]}: {name} is {two}, not {one} (allowed: servers "
                "of one build, model, weights and settings)"
            )


def _told(first: Identity, other: Identity) -> list[tuple[str, object, object]]:
    pairs: list[tuple[str, object, object]] = [(n, getattr(first, n), getattr(other, n)) for n in _PROFILE]
    theirs = dict(other.settings)
    return pairs + [(name, value, theirs.get(name)) for name, value in first.settings]


def check_apart(servers: Sequence[tuple[str, str, Identity]]) -> None:
    """Raise `AnotherProfile` where two of the servers (arm, URL, identity) are one: a lane each would overlap there."""
    known: dict[str, tuple[str, str]] = {}
    for arm, url, identity in servers:
        for mark in (url, identity.server_epoch):
            if mark is None:
                continue
            if mark in known:
                other_arm, other_url = known[mark]
                raise AnotherProfile(
                    f"--{arm} {url} is the same server as --{other_arm} {other_url} (allowed with several servers or "
                    "--arms-at-once: each URL another server)"
                )
            known[mark] = (arm, url)
