"""Makes the bundles that must verify for as long as the rules have their number: `python -m tests.tools.golden_bundle`.

Run it when `prefillgate.bundle.rules.RULES` is raised, and put the digest that tests/bundle/test_rules.py asks for
beside the new number.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from prefillgate.bundle.rules import RULES
from prefillgate.bundle.write import How, write_bundle
from prefillgate.core.shape import Shape
from prefillgate.evidence import SqliteJournal
from tests.support.runs import Bench, Watch, write_policy, write_set
from tests.support.simulated import start_simulated

GOLDEN = Path(__file__).resolve().parents[1] / "bundle" / "golden"
NAMES = ("replicate", "lanes")
CHECKS: list[dict[str, Any]] = [
    {"type": "NotEmpty"},
    {"type": "MinWords", "minWords": {"words": 4}},
    {"type": "Loop"},
    {"type": "EqualToBaseline"},
]


def golden_path(name: str, rules: int = RULES) -> Path:
    """Where the bundle of that name stands."""
    return GOLDEN / f"rules-{rules}-{name}.tar.gz"


def make(name: str, folder: Path) -> Path:
    """Measure one on simulated servers; the folder of its bundle."""
    work = Bench(
        folder,
        write_set(folder / "set.jsonl", 3, 10, stream=False, max_tokens=24),
        write_policy(folder / "policy.yaml", checks=CHECKS, throughput={"mode": "Report", "minOutputTokens": 4}),
    )
    bad = ["bad-rate=0.5"] if name == "replicate" else []
    with (
        start_simulated(seed=1, text_seed=9) as baseline,
        start_simulated(seed=4, text_seed=9, fault=bad) as candidate,
        start_simulated(seed=4, text_seed=9) as other,
    ):
        shape = Shape(candidate_lanes=2 if name == "lanes" else 1)
        more = (other.url,) if name == "lanes" else ()
        watch = Watch(waits=[lambda gate, step: candidate.restart()])
        finished = work.run(work.request(baseline.url, candidate.url, more_candidates=more, shape=shape), watch)
    out = folder / "bundle"
    out.mkdir()
    with SqliteJournal.open_readonly(Path(finished.journal.path)) as journal:
        write_bundle(journal, out, How())
    return out


def packed(folder: Path) -> bytes:
    """The folder as a tar.gz, the same bytes for the same files."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            entry = tarfile.TarInfo(path.name)
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(entry, file)
    return gzip.compress(plain.getvalue(), 9, mtime=0)


def unpacked(path: Path, folder: Path) -> Path:
    """The files of an archive in a new folder."""
    with tarfile.open(path, mode="r:gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def main() -> None:
    """Make them anew; nothing that is there is written over."""
    for name in NAMES:
        if not golden_path(name).exists():
            with tempfile.TemporaryDirectory() as folder:
                golden_path(name).write_bytes(packed(make(name, Path(folder))))


if __name__ == "__main__":
    main()
