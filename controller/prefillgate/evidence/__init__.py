"""The evidence store: every fact of a run, written before anything looks at it.

`SqliteJournal` keeps it in a file, `MemoryJournal` in memory, `prefillgate.evidence.postgres.PostgresJournal` (extra
`postgres`) in a database; each is a `prefillgate.core.journal.Journal`. `open_store` and its like take either address.
"""

from prefillgate.evidence.codec import CodecError, NewerFormatError, decode_event, dumps, encode_event, loads
from prefillgate.evidence.errors import (
    StoreAway,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreExists,
    StoreFenced,
    StoreForeign,
    StoreMissing,
    StoreRefused,
    StoreVersion,
)
from prefillgate.evidence.fence import Fence
from prefillgate.evidence.kept import KeptJournal
from prefillgate.evidence.memory import MemoryJournal
from prefillgate.evidence.sqlite import SqliteJournal
from prefillgate.evidence.stores import create_store, migrate_store, open_store, read_store, store_exists, store_facts

__all__ = [
    "CodecError",
    "Fence",
    "KeptJournal",
    "MemoryJournal",
    "NewerFormatError",
    "SqliteJournal",
    "StoreAway",
    "StoreBusy",
    "StoreDamaged",
    "StoreError",
    "StoreExists",
    "StoreFenced",
    "StoreForeign",
    "StoreMissing",
    "StoreRefused",
    "StoreVersion",
    "create_store",
    "decode_event",
    "dumps",
    "encode_event",
    "loads",
    "migrate_store",
    "open_store",
    "read_store",
    "store_exists",
    "store_facts",
]
