"""The prompt cache: slots that hold their last sequence, and a host cache for those overwritten.

Pure: no clock, no I/O. A slot is chosen as llama-server does: the free slot most alike to the prompt
if it shares more than a tenth of it, else the one idle longest. A sequence that would lose more than
half of itself moves to the host cache first, and comes back when it serves a prompt better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from prefillgate.simulate.tokens import common_prefix

_ALIKE = 0.1
_KEEP = 0.5
_CHECKPOINT_BEHIND = 4  # a sliding window keeps a checkpoint this many tokens before the prompt's end
MIB_PER_TOKEN = 0.05


@dataclass(frozen=True, slots=True)
class Prefill:
    """One real prefill: its number since the process began and the hidden state it drew."""

    number: int
    bad: bool
    epoch: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """Tokens held in a slot or in the host cache, and the prefill they came from."""

    tokens: tuple[int, ...]
    prompt_tokens: int
    prefill: Prefill


@dataclass(slots=True)
class Slot:
    """One place to compute in."""

    number: int
    held: Sequence | None = None
    busy: bool = False
    last_used: int = 0
    prompt_tokens: int = 0  # of the task it has or had last


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a prompt goes: its slot, the tokens it finds there, and whose prefill they are of."""

    slot: Slot
    cached: int
    parent: Prefill | None


@dataclass(slots=True)
class PromptCache:
    """Slots and host cache of one server. `host_tokens` 0 switches the host cache off.

    `sliding_window` makes a sequence reusable only up to the checkpoint close to its prompt's end, so that
    a prompt which merely shares a prefix finds nothing.
    """

    slots: list[Slot]
    host_tokens: int
    sliding_window: bool = False
    reprocess_tokens: int = 1
    block_tokens: int = 1  # only whole blocks are reused
    host: list[Sequence] = field(default_factory=list)
    _turn: int = 0

    def free(self) -> list[Slot]:
        """Slots nothing runs in."""
        return [slot for slot in self.slots if not slot.busy]

    def place(self, tokens: tuple[int, ...], read: bool) -> Placement:
        """Take a free slot for `tokens` and tell what of it can be reused; with `read` false, nothing.

        At least `reprocess_tokens` are always left to process. Raises RuntimeError when no slot is free.
        """
        slot = self._choose(tokens)
        self._turn += 1
        slot.busy, slot.last_used, slot.prompt_tokens = True, self._turn, len(tokens)
        if not read:
            return Placement(slot, 0, None)
        held = slot.held
        reusable = self._reusable(held, tokens)
        return Placement(slot, reusable, held.prefill if held is not None and reusable else None)

    def take_extra(self, count: int) -> list[Slot]:
        """Take `count` more free slots, the longest idle first, for the other results of one request."""
        extra = sorted(self.free(), key=lambda slot: slot.last_used)[:count]
        for slot in extra:
            self._save(slot)
            self._turn += 1
            slot.busy, slot.last_used = True, self._turn
        self._make_room()
        return extra

    def write(self, slot: Slot, sequence: Sequence) -> None:
        """The slot now holds this sequence, whatever the request's cache flag was."""
        slot.held = sequence

    def sequences(self) -> Iterator[Sequence]:
        """Everything held anywhere."""
        yield from (slot.held for slot in self.slots if slot.held is not None)
        yield from self.host

    def _choose(self, tokens: tuple[int, ...]) -> Slot:
        candidates = self.free()
        if not candidates:
            raise RuntimeError("no free slot")
        best = max(candidates, key=lambda slot: (self._shared(slot.held, tokens), -slot.last_used))
        shared = self._shared(best.held, tokens)
        alike = shared > _ALIKE * len(tokens)
        if not alike:
            best = min(candidates, key=lambda slot: slot.last_used)
            shared = self._shared(best.held, tokens)
        if best.held is None or not alike or shared < _KEEP * len(best.held.tokens):
            self._swap(best, tokens)
        return best

    def _swap(self, slot: Slot, tokens: tuple[int, ...]) -> None:
        """Save, look, then make room: what is about to be dropped may still be the one that is wanted."""
        self._save(slot)
        held = self._reusable(slot.held, tokens)
        better = max(self.host, key=lambda entry: self._reusable(entry, tokens), default=None)
        if better is not None and self._reusable(better, tokens) > max(held, 1):
            self.host.remove(better)
            slot.held = better
        self._make_room()

    def _save(self, slot: Slot) -> None:
        held = slot.held
        if held is None or len(held.tokens) > self.host_tokens:
            return
        self.host = [entry for entry in self.host if common_prefix(entry.tokens, held.tokens) < len(entry.tokens)]
        self.host.append(held)

    def _make_room(self) -> None:
        while sum(len(entry.tokens) for entry in self.host) > self.host_tokens:
            self.host.pop(0)

    def _shared(self, held: Sequence | None, tokens: tuple[int, ...]) -> int:
        return 0 if held is None else common_prefix(held.tokens, tokens)

    def _reusable(self, held: Sequence | None, tokens: tuple[int, ...]) -> int:
        shared = min(self._shared(held, tokens), len(tokens) - self.reprocess_tokens)
        if held is None or not self.sliding_window:
            return max(shared - shared % self.block_tokens, 0)
        checkpoint = held.prompt_tokens - 1 - _CHECKPOINT_BEHIND
        return checkpoint if 0 < checkpoint <= shared else 0
