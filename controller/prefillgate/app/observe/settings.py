"""What a person says of how the cluster is looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from prefillgate.api.addresses import AddressRules
from prefillgate.api.store_address import StoreAddress
from prefillgate.kube.reflector import Pace


@dataclass(frozen=True, slots=True)
class ProbePace:
    """How a server is asked whether it can be reached: seconds for one answer, refusals in a row until that is told,
    seconds between two questions (doubled each time, up to the longest)."""

    answer_seconds: float = 5.0
    refusals: int = 3
    first_seconds: float = 0.5
    longest_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class ObserveSettings:
    """How the cluster is looked at.

    `seal_key` seals credentials that stand in a template; with another key every profile that holds one is another.
    `namespaces`: empty for all. `replay_sets`: the folder with a folder for each namespace; None: no such volume.
    `database`: whether the evidence store is one that Jobs can reach. `store`: where the stores of all runs are; None:
    whether they are still there is not looked at.
    """

    seal_key: bytes = field(repr=False)
    namespaces: tuple[str, ...] = ()
    replay_sets: Path | None = None
    addresses: AddressRules = field(default_factory=AddressRules)
    database: bool = False
    store: StoreAddress | None = None
    probe: ProbePace = field(default_factory=ProbePace)
    pace: Pace = field(default_factory=Pace)
    sync_seconds: float = 5.0  # how long a look waits for a first list
    again_seconds: float = 45.0  # when a line is looked at again that a Secret or a server is missing for: nobody tells
    stamped_seconds: float = 5.0  # how long an answer is believed about the policies that stamp who overrides
