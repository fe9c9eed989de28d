"""The evidence store: every fact of a run, written before anything looks at it.

`SqliteJournal` keeps it in a file, `MemoryJournal` in memory; both are a `prefillgate.core.journal.Journal`.
"""

from prefillgate.evidence.codec import CodecError, NewerFormatError, decode_event, dumps, encode_event, loads
from prefillgate.evidence.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreExists,
    StoreForeign,
    StoreMissing,
    StoreRefused,
    StoreVersion,
)
from prefillgate.evidence.memory import MemoryJournal
from prefillgate.evidence.sqlite import SqliteJournal

__all__ = [
    "CodecError",
    "MemoryJournal",
    "NewerFormatError",
    "SqliteJournal",
    "StoreBusy",
    "StoreDamaged",
    "StoreError",
    "StoreExists",
    "StoreForeign",
    "StoreMissing",
    "StoreRefused",
    "StoreVersion",
    "decode_event",
    "dumps",
    "encode_event",
    "loads",
]
