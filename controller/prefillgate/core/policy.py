"""The numbers a run is judged by, as plain values. `prefillgate.api` reads them from files."""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT_FLAG = "bad"


@dataclass(frozen=True, slots=True)
class AlarmPolicy:
    """CUSUM of the log-likelihood ratio `healthy_rate` against `bad_rate` (STATISTICS.md section 3)."""

    healthy_rate: float = 0.05
    bad_rate: float = 0.30
    threshold: float = 10.0  # alarm at ln(threshold)
    watch_threshold: float = 100.0


@dataclass(frozen=True, slots=True)
class ReplicatePolicy:
    """The fresh paired replicate (STATISTICS.md section 4)."""

    planned_baseline_rate: float = 0.02
    planned_candidate_rate: float = 0.40
    threshold: float = 40.0  # of the first attempt; later ones follow from it
    futility: float = 0.05
    clean_units: int = 8
    max_pairs: int = 30
    max_cached_tokens: int = 32
    gap_seconds: float = 600.0
    max_attempts: int = 2  # per run; numbering goes on through reruns


@dataclass(frozen=True, slots=True)
class ThroughputPolicy:
    """Decode throughput (STATISTICS.md section 8). `required` False is `throughput: Report`."""

    required: bool = True
    margin: float = -0.05  # the smallest acceptable relative change of decode speed
    alpha: float = 0.05
    min_pairs: int = 6
    max_pairs: int = 40
    min_output_tokens: int = 32
    planned_cv: float = 0.04
    max_prompts: int = 12
    slow_ratio: float = 0.8


@dataclass(frozen=True, slots=True)
class Flag:
    """A named outcome: bad when any of its checks fails. `checks` are check names."""

    name: str
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything the statistics need. Rates and margins are fractions (0.10 is ten percent)."""

    name: str
    margin: float
    alpha: float
    acceptance: tuple[int, ...]  # n_k: fresh units at which k bad ones still promote
    budget: int  # total prefills, both arms
    healthy_rate: float = 0.01
    baseline_pass: int = 8  # baseline cells run before the candidate's budget is touched
    refusals: int = 3  # refusals in a row, after a probe that worked, that mean CandidateUnavailable
    deadline_seconds: float | None = None
    aa_check: bool = False
    alarm: AlarmPolicy = field(default_factory=AlarmPolicy)
    replicate: ReplicatePolicy = field(default_factory=ReplicatePolicy)
    throughput: ThroughputPolicy = field(default_factory=ThroughputPolicy)
    flags: tuple[Flag, ...] = (Flag(DEFAULT_FLAG, ()),)
