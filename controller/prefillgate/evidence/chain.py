"""The chain: every event's digest covers the one before it, so nothing can be changed, removed or slipped in unseen.

digest = sha256(digest before | length of payload, 8 bytes big endian | payload | sha256 of the texts, or nothing)

It is taken over the canonical bytes of `prefillgate.evidence.codec`, not over their storage: the same events have the
same digest in every kind of store. It guards against damage and editing by hand. It is no signature: who can write
the file can also write a new chain.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from prefillgate.core.journal import Event

GENESIS = hashlib.sha256(b"prefillgate evidence").digest()


class Row(NamedTuple):
    """An event as a store keeps it. `texts` are canonical bytes, uncompressed, None when nothing was kept."""

    seq: object
    cell_id: object
    payload: object
    texts_sha256: object
    digest: object
    texts: bytes | None


@dataclass(frozen=True, slots=True)
class Entry:
    """An event ready to be stored: its place, its canonical bytes and its digests."""

    seq: int  # from 1, without gaps
    event: Event
    cell_id: int | None  # of a CellMeasured
    payload: bytes
    texts: bytes | None
    texts_sha256: bytes | None
    digest: bytes


def sha256(data: bytes | None) -> bytes | None:
    """The digest of some bytes; nothing has none."""
    return None if data is None else hashlib.sha256(data).digest()


def link(previous: bytes, payload: bytes, texts_sha256: bytes | None) -> bytes:
    """The digest of an event that follows the one with the digest `previous`."""
    return hashlib.sha256(previous + len(payload).to_bytes(8, "big") + payload + (texts_sha256 or b"")).digest()
