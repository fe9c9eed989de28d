"""What lines, rollouts and pieces of work are called, so that who is killed and asks again means the same thing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from prefillgate.api.kinds.names import LONGEST_LINE_NAME
from prefillgate.reconcile.snapshot import Object

DIGITS = 8  # of a digest in names
DIGITS_OF_A_RUN = 12
SEEDS = 2**53  # whole numbers below it are the same in JSON and here


def book_line(line: Object) -> str:
    """What the book calls a line: `namespace/name/uid`. One that was deleted and made again begins anew."""
    metadata = line.get("metadata", {})
    return "/".join(str(metadata.get(part, "")) for part in ("namespace", "name", "uid"))


def digits_of(digest: str, most: int = DIGITS) -> str:
    """The first digits of a digest, without its `sha256:`."""
    return digest.rpartition(":")[2][:most]


def rollout_name(line: str, digest: str, taken: Iterable[str]) -> str:
    """The name of a line's next rollout of a candidate: `LINE-DIGITS`, and `-2`, `-3` ... when it comes again.

    `taken` are the names of the line's rollouts. The same look gives the same name.
    """
    stem = f"{line[:LONGEST_LINE_NAME].rstrip('.-')}-{digits_of(digest)}"
    numbers = [0]
    for name in taken:
        rest = name.removeprefix(stem)
        if name == stem:
            numbers.append(1)
        elif rest != name and rest.startswith("-") and rest[1:].isascii() and rest[1:].isdecimal():
            numbers.append(int(rest[1:]))
    number = max(numbers) + 1
    return stem if number == 1 else f"{stem}-{number}"


def rerun_name(line: str, digest: str, asked_on: str, value: str) -> str:
    """The name of a rerun: that of its candidate and of who was asked (a uid) with which value of the annotation."""
    return f"{line[:LONGEST_LINE_NAME].rstrip('.-')}-{digits_of(digest)}-r{_hashed(asked_on, value)[:DIGITS]}"


def floor_key(digest: str, question: str, last: str | None) -> str:
    """The key of a measurement of the floor, after the one that ended at `last` (RFC 3339): `floor-DIGITS-...`.

    `question` is what it is begun with (`question_of`): a run that was begun with another one cannot go on as this.
    """
    return f"floor-{digits_of(digest, DIGITS_OF_A_RUN)}-{_hashed(digest, question, last or '')[:DIGITS]}"


def watch_key(digest: str, since: str, question: str, number: int) -> str:
    """The key of a small replay of the profile that is the promoted one since a moment, begun with a question
    (`question_of`): `watch-DIGITS-PROMOTION-...-NUMBER`."""
    stem = f"watch-{digits_of(digest, DIGITS_OF_A_RUN)}-{_hashed(since)[:DIGITS]}"
    return f"{stem}-{_hashed(digest, question)[:DIGITS]}-{number}"


def watch_number(since: str, key: str | None) -> int:
    """The number in such a key, whatever its profile was called and its question was; 0 for one of another promotion,
    and for none. Numbers go on through a promotion: two of its replays never share one that both came to an end."""
    match (key or "").split("-"):
        case ["watch", _, promotion, _, number] if promotion == _hashed(since)[:DIGITS]:
            return int(number) if number.isascii() and number.isdecimal() else 0
    return 0


def digest_in(key: str) -> str:
    """The digest, as far as it stands there, of the profile that such a run is of."""
    return f"sha256:{key.partition('-')[2].partition('-')[0]}"


def seed_of(*parts: str) -> int:
    """A seed that the same parts always give."""
    return int(_hashed(*parts), 16) % SEEDS


def _hashed(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
