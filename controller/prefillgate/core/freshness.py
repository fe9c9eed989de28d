"""From cells to classes: which cell is a prefill of its own, which rode on another (STATISTICS.md section 1).

The class is fixed by counters, witnesses and timing alone; no text is read. Every cell that is not proven
fresh by two witnesses is something less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, Protocol

from prefillgate.core.cells import Cell, ColdProof, Status
from prefillgate.core.prefill_times import MEDIAN, TIMING_RATIO, UPPER_QUARTILE, Points, TimesTold, quartiles_near
from prefillgate.core.verdict import CellClass

FRESH_SHARE = Fraction(1, 20)  # r at most this: a claim of fresh
COPY_SHARE = Fraction(1, 2)  # r at least this: a copy by its own counter
OTHER_CHOICE, IN_FLIGHT = "another choice of one request", "in flight beside the same prompt"

_Epoch = tuple[str, str | None]
_Prompt = tuple[str, str | None, str]
_Request = tuple[str, str | None, str, str]


class Claims(Protocol):
    """What the class of a cell is read from, but for its time: a `Cell`, or a kind of a large log by the same names."""

    @property
    def status(self) -> Status: ...
    @property
    def prompt_tokens(self) -> int | None: ...
    @property
    def cached_tokens(self) -> int | None: ...
    @property
    def processed_tokens(self) -> int | None: ...
    @property
    def counter_processed_tokens(self) -> int | None: ...
    @property
    def cold_proof(self) -> ColdProof | None: ...
    @property
    def shared_server(self) -> bool: ...


class Counters(Claims, Protocol):
    """Claims, and the time of the prefill."""

    @property
    def prefill_ms(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Classified:
    """A scored cell with its class.

    `unit` numbers the fresh unit it opened or joined, from 0 within its arm, None where it joined none.
    `reused_share` is r, known only for fresh cells. `proven` says a copy is one by its own consistent counter, its
    request, or its overlap in flight: only such a copy may join a unit that is bad already.
    """

    cell: Cell
    cell_class: CellClass
    unit: int | None
    reused_share: Fraction
    proven: bool
    witness: str


@dataclass(slots=True)
class EpochTiming:
    """Prefill milliseconds per processed token of one arm and epoch, by prompt length."""

    cold: Points = field(default_factory=list)
    claimed: Points = field(default_factory=list)
    references: dict[int, float] | None = None

    def reference(self, length: int) -> float | None:
        """Median of the cold-proof cells at neighbouring lengths, else the 75th percentile of the claims.

        Known for the lengths of the cells it was made from, once all of them are in.
        """
        if self.references is None:
            lengths = sorted({length for length, _ in (*self.cold, *self.claimed)})
            self.references = quartiles_near(self.claimed, lengths, UPPER_QUARTILE)
            self.references.update(quartiles_near(self.cold, lengths, MEDIAN))
        return self.references.get(length)

    def contradicts(self, cell: Counters) -> bool:
        """Whether its prefill was too fast for a fresh one."""
        rate, length = prefill_rate(cell), cell.prompt_tokens
        reference = None if rate is None or length is None else self.reference(length)
        return rate is not None and reference is not None and rate < TIMING_RATIO * reference

    def take(self, cell: Counters) -> None:
        """Note the rate of a cell, where it is one of a fresh prefill by proof or by its own claim."""
        rate = prefill_rate(cell)
        if rate is None or cell.prompt_tokens is None:
            return
        if claims_cold(cell):
            self.cold.append((cell.prompt_tokens, rate))
        if claims_fresh(cell):
            self.claimed.append((cell.prompt_tokens, rate))


def in_time_order(cells: Iterable[Cell]) -> list[Cell]:
    """Cells as they started: line order, unless `started_at` says otherwise.

    A cell without a start stays behind the cell it followed. The choices of one request stand together at the place
    of the earliest of them, by choice index: they are one prefill, whatever order they were written in.
    """
    keyed: list[tuple[float, int, Cell]] = []
    latest = float("-inf")
    first_of: dict[_Request, tuple[float, int]] = {}
    for position, cell in enumerate(cells):
        latest = cell.started_at if cell.started_at is not None else latest
        keyed.append((latest, position, cell))
        if cell.request_id is not None:
            key = _request(cell, cell.request_id)
            first_of[key] = min(first_of.get(key, (latest, position)), (latest, position))

    def place(item: tuple[float, int, Cell]) -> tuple[float, int, int, int]:
        started, position, cell = item
        if cell.request_id is None:
            return started, position, 0, position  # equivalent mutant: nothing else shares its position
        first = first_of[_request(cell, cell.request_id)]
        return (*first, cell.choice_index or 0, position)

    return [cell for _, _, cell in sorted(keyed, key=place)]


class Classifier:
    """Classifies scored cells in time order. `add` takes one more; classes of earlier cells may change then."""

    def __init__(self) -> None:
        self._cells: list[Cell] = []
        self._result: list[Classified] = []
        self._stale = True
        self._told: dict[_Epoch, TimesTold] | None = None  # kept for those who look between the cells
        self._reset()

    def add(self, cell: Cell) -> None:
        """Take one more cell. Invalid cells are never scored and are passed over."""
        if cell.status is Status.INVALID:
            return
        if self._told is None and not self._stale:
            self._told = defaultdict(TimesTold)
            for earlier in self._cells:
                self._tell(self._told, earlier)
        self._cells.append(cell)
        moved = self._told is not None and self._tell(self._told, cell)
        if self._stale or moved or not self._leaves_earlier_alone(cell):
            self._stale = True
            return
        self._place(cell)

    def classified(self) -> list[Classified]:
        """Every scored cell with its class, in time order."""
        if self._stale:
            self._cells = in_time_order(self._cells)
            self._reset()
            self._survey()
            for cell in self._cells:
                self._place(cell)
            self._stale = False
        return self._result

    # -- what must be known of all cells before any is classified

    def _reset(self) -> None:
        self._result = []
        self._timing: dict[_Epoch, EpochTiming] = defaultdict(EpochTiming)
        self._probed: set[_Epoch] = set()
        self._hits: dict[_Epoch, int] = defaultdict(int)
        self._primary: dict[_Request, int | None] = {}
        self._parent: dict[_Prompt, int] = {}
        self._in_flight: dict[_Prompt, float] = {}  # when the last of its requests ended
        self._units: dict[str, int] = defaultdict(int)

    def _leaves_earlier_alone(self, cell: Cell) -> bool:
        """Whether this cell, coming last, cannot change the class of any earlier one; its time is another question."""
        last = self._cells[-2] if len(self._cells) > 1 else None
        in_order = last is None or (
            cell.started_at is None or (last.started_at is not None and last.started_at <= cell.started_at)
        )
        silent = (cell.arm, cell.server_epoch) in self._probed or not (cell.cached_tokens or cell.counter_alive)
        alone = cell.request_id is None or _request(cell, cell.request_id) not in self._primary
        return in_order and silent and alone

    def _tell(self, told: dict[_Epoch, TimesTold], cell: Cell) -> bool:
        """Note its prefill time; whether that makes an earlier cell too fast, or no longer so."""
        rate, length = prefill_rate(cell), cell.prompt_tokens
        if rate is None or length is None:
            return False
        return told[(cell.arm, cell.server_epoch)].take(length, rate, claims_cold(cell), claims_fresh(cell))

    def _survey(self) -> None:
        for cell in self._cells:
            self._note(cell)

    def _note(self, cell: Cell) -> None:
        """What a cell tells of its epoch."""
        epoch = (cell.arm, cell.server_epoch)
        if cell.counter_alive:
            self._probed.add(epoch)
        if cell.cached_tokens:
            self._hits[epoch] += 1
        if self._told is None:
            self._timing[epoch].take(cell)

    # -- one cell

    def _place(self, cell: Cell) -> None:
        prompt = (cell.arm, cell.server_epoch, cell.prompt_key)
        ruling = self._as_choice(cell) or self._as_in_flight(cell, prompt)
        ruling = ruling or by_counter(cell, self._standing(cell, prompt))
        if ruling.cell_class is CellClass.FRESH:
            ruling = ruling._replace(unit=self._units[cell.arm])
            self._units[cell.arm] += 1
        placed = Classified(cell, *ruling)
        if placed.unit is not None:  # a copy's unit is the latest one already
            self._parent[prompt] = placed.unit
        if cell.request_id is not None:
            self._primary.setdefault(_request(cell, cell.request_id), placed.unit)
        if cell.ended_at is not None:
            self._in_flight[prompt] = max(self._in_flight.get(prompt, cell.ended_at), cell.ended_at)
        self._result.append(placed)

    def _as_choice(self, cell: Cell) -> Ruling | None:
        """Another choice of one request (n > 1) is a copy first, whatever its counters say."""
        if cell.request_id is None:
            if not cell.choice_index:
                return None
            unit = self._parent.get((cell.arm, cell.server_epoch, cell.prompt_key))
            return copy_of(unit, OTHER_CHOICE)
        key = _request(cell, cell.request_id)
        if key not in self._primary:
            return None
        return copy_of(self._primary[key], OTHER_CHOICE)

    def _as_in_flight(self, cell: Cell, prompt: _Prompt) -> Ruling | None:
        """The same prompt in flight at the same time on a server that shares blocks is a copy."""
        if not cell.shares_blocks or cell.started_at is None or prompt not in self._in_flight:
            return None
        if cell.started_at >= self._in_flight[prompt]:
            return None
        return copy_of(self._parent.get(prompt), IN_FLIGHT)

    def _standing(self, cell: Cell, prompt: _Prompt) -> Standing:
        return Standing(self._parent.get(prompt), self._too_fast(cell), self._seen_alive(cell))

    def _too_fast(self, cell: Cell) -> bool:
        epoch = (cell.arm, cell.server_epoch)
        if self._told is None:
            return self._timing[epoch].contradicts(cell)
        rate, length = prefill_rate(cell), cell.prompt_tokens
        return rate is not None and length is not None and self._told[epoch].is_too_fast(length, rate)

    def _seen_alive(self, cell: Cell) -> bool:
        epoch = (cell.arm, cell.server_epoch)
        own = 1 if cell.cached_tokens else 0
        return epoch in self._probed or cell.counter_alive or self._hits[epoch] > own


def classify(cells: Sequence[Cell]) -> list[Classified]:
    """Every scored cell with its class, in time order."""
    classifier = Classifier()
    for cell in cells:
        classifier.add(cell)
    return classifier.classified()


class Standing(NamedTuple):
    """What is known around a cell. `parent` is the latest fresh unit of its prompt in this life of the server;
    `too_fast` says that its own time contradicts a fresh prefill, `alive` that the counter was seen to move."""

    parent: int | None
    too_fast: bool = False
    alive: bool = False


class Ruling(NamedTuple):
    """The class of a cell as in `Classified`; `unit` is that of its parent, and unknown for a fresh one."""

    cell_class: CellClass
    unit: int | None
    reused_share: Fraction
    proven: bool
    witness: str


def by_counter(cell: Claims, standing: Standing) -> Ruling:
    """The class of a cell that is no other choice and no cell in flight beside its like."""
    cached, length = cell.cached_tokens, cell.prompt_tokens
    if cell.status is Status.FAILED and cell.cold_proof is not None and not claims_reuse(cell):
        # It was accepted and came to no end, so its counts and times tell nothing of its prefill; the proof does.
        known = _share(cell)
        share = _unseen_share(cell) if known is None else known
        return _fresh(share, f"failed; cold proof {cell.cold_proof}")
    if cached is None:
        return _without_counter(cell, standing)
    if length is None or length <= 0 or cached > length:
        return _of(CellClass.UNKNOWN, f"cached {cached} of {_shown(length)} prompt tokens cannot be read")
    share = Fraction(cached, length)
    if share <= FRESH_SHARE:
        return _fresh_claim(cell, (cached, length), standing)
    witness = f"cached {cached} of {length}"
    if share >= COPY_SHARE:
        consistent = cell.processed_tokens is None or cell.processed_tokens + cached == length
        return copy_of(standing.parent, witness, proven=consistent)
    if standing.parent is None:
        return _of(CellClass.ORPHAN, f"{witness}, its fresh parent never seen")
    return _of(CellClass.PARTIAL, witness)


def _without_counter(cell: Claims, standing: Standing) -> Ruling:
    if cell.cold_proof is None:
        return _of(CellClass.UNKNOWN, "no cached-token counter and no cold proof")
    if cell.shared_server:
        return _of(CellClass.UNKNOWN, "a server in use, and the response tells no cached tokens")
    moved, length = cell.counter_processed_tokens, cell.prompt_tokens
    if moved is not None and length is not None and moved < (1 - FRESH_SHARE) * length:
        witness = f"no counter, and the server's counter moved by {moved} of {length} prompt tokens"
        return _of(CellClass.CONTRADICTED, witness)
    if standing.too_fast:
        return _of(CellClass.CONTRADICTED, "prefill too fast for a fresh one")
    return _fresh(_unseen_share(cell), f"no counter; cold proof {cell.cold_proof}")


def _fresh_claim(cell: Claims, counts: tuple[int, int], standing: Standing) -> Ruling:
    cached, length = counts
    share = Fraction(cached, length)
    processed, moved = cell.processed_tokens, cell.counter_processed_tokens
    claim = f"cached {cached} of {length}"
    if processed is not None and processed + cached != length:
        return _of(CellClass.CONTRADICTED, f"{claim}, but processed {processed}")
    if moved is not None and moved + cached != length:
        return _of(CellClass.CONTRADICTED, f"{claim}, but the server's counter moved by {moved}")
    if standing.too_fast:
        return _of(CellClass.CONTRADICTED, f"{claim}, but prefill too fast for a fresh one")
    if processed is not None:
        return _fresh(share, f"{claim}, processed {processed}")
    if moved is not None:
        return _fresh(share, f"{claim}, the server's counter moved by {moved}")
    if cell.cold_proof is not None:
        return _fresh(share, f"{claim}, cold proof {cell.cold_proof}")
    if standing.alive:
        return _fresh(share, f"{claim}, the counter seen alive in this epoch")
    return _of(CellClass.UNKNOWN, f"{claim}, but no second witness and no sign of life of the counter")


def _fresh(share: Fraction, witness: str) -> Ruling:
    return Ruling(CellClass.FRESH, None, share, True, witness)


def copy_of(unit: int | None, witness: str, proven: bool = True) -> Ruling:
    """A copy of that unit, or an orphan where there is none."""
    if unit is None:
        return Ruling(CellClass.ORPHAN, None, Fraction(0), proven, f"{witness}, its fresh parent never seen")
    return Ruling(CellClass.COPY, unit, Fraction(0), proven, witness)


def _of(cell_class: CellClass, witness: str) -> Ruling:
    return Ruling(cell_class, None, Fraction(0), False, witness)


def _shown(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _share(cell: Claims) -> Fraction | None:
    if cell.cached_tokens is None or not cell.prompt_tokens:
        return None
    return Fraction(cell.cached_tokens, cell.prompt_tokens)


def claims_cold(cell: Claims) -> bool:
    """Whether its fresh prefill was forced, and its own counter does not speak against it."""
    return cell.cold_proof is not None and not claims_reuse(cell)


def claims_fresh(cell: Claims) -> bool:
    """Whether its own counter says that it took no more from the cache than a fresh cell may."""
    share = _share(cell)
    return share is not None and share <= FRESH_SHARE


def claims_reuse(cell: Claims) -> bool:
    """Whether its own counter says that more of the prompt came from the cache than a fresh cell may take from it."""
    share = _share(cell)
    return bool(cell.cached_tokens) and (share is None or share > FRESH_SHARE)


def _unseen_share(cell: Claims) -> Fraction:
    """r where no counter told it. A nonce leaves what stands before it in the cache, so there it is taken at the limit
    of a fresh cell."""
    return FRESH_SHARE if cell.cold_proof is ColdProof.NONCE else Fraction(0)


def _request(cell: Cell, request_id: str) -> _Request:
    """What tells requests apart. One request has one prompt: an id that a server gives twice joins no two of them."""
    return cell.arm, cell.server_epoch, cell.prompt_key, request_id


def prefill_rate(cell: Counters) -> float | None:
    """Prefill milliseconds per processed token; prompt minus cached tokens where processed is not told.

    None on a server that others use: their work slows a prefill down, and one undisturbed would look like a copy.
    """
    tokens = timed_tokens(cell)
    return None if tokens is None or cell.prefill_ms is None or cell.prefill_ms <= 0 else cell.prefill_ms / tokens


def timed_tokens(cell: Claims) -> int | None:
    """The processed tokens that its prefill time is divided by; None where no time of it says anything."""
    processed = cell.processed_tokens
    if processed is None and cell.prompt_tokens is not None:
        processed = cell.prompt_tokens - (cell.cached_tokens or 0)
    return None if cell.shared_server or processed is None or processed <= 0 else processed
