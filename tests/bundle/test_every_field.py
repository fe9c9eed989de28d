"""Any one field of any line of a bundle, changed to another legal value with every digest made right again: it is named
by file and line, unless it stands in the list of what nothing else of a bundle hangs on. Those need a signature."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prefillgate.bundle import content
from tests.support.bundles import Bundle, Document, Told, make_right
from tests.tools.golden_bundle import golden_path, unpacked

Place = tuple[str | int, ...]

#: What nothing else in a bundle hangs on, as README says: who was asked, by which policy it was to be judged (where
#: another number gives the same decision), what the server told of itself, and times that still fit between others.
UNSEEN = {
    "Planned": {
        "baseline_url",
        "candidate_url",
        "replay_set_name",
        "run_id",
        "scheduled",
        "started_at",
        "shape.at_once",
        *(f"policy.{name}" for name in ("name", "alpha", "budget", "deadline_seconds", "healthy_rate", "margin")),
        *(f"policy.{name}" for name in ("refusals", "acceptance.0", "acceptance.1", "acceptance.2")),
        *(f"policy.alarm.{name}" for name in ("bad_rate", "threshold", "watch_threshold")),
        "policy.flags.0.name",
        *(
            f"policy.replicate.{name}"
            for name in (
                "clean_units",
                "futility",
                "gap_seconds",
                "max_attempts",
                "max_cached_tokens",
                "max_pairs",
                "planned_baseline_rate",
                "planned_candidate_rate",
                "threshold",
            )
        ),
        *(
            f"policy.throughput.{name}"
            for name in (
                "alpha",
                "margin",
                "max_pairs",
                "max_prompts",
                "min_output_tokens",
                "min_pairs",
                "planned_cv",
                "slow_ratio",
            )
        ),
    },
    "EpochSeen": {
        *("context_tokens", "seen_at"),
        *(f"settings.{number}.{side}" for number in range(3) for side in range(2)),
    },
    "CellMeasured": {"cell.ended_at"},
    "ReplicateStarted": {"at"},
    "SeparationKept": {"at"},
    "CellChecked": set(),
}
#: Values that are legal in place of what stands there, where adding to it gives none.
LEGAL: dict[str, Any] = {
    "arm": "baseline",
    "isolation": "shared",
    "status": "invalid",
    "cold_proof": "nonce",
    "purpose": "compare",
    "how": "gap",
}
#: In place of null.
NULLS: dict[str, Any] = {
    "bad": True,
    "choice_index": 1,
    "place": 3,
    "deadline_seconds": 5.0,
    "pair": 1,
    "max_tokens": 3,
    "draft_tokens": 5,
    "draft_accepted_tokens": 3,
    "reasoning_tokens": 2,
    "http_status": 200,
    "time_to_first_token_ms": 7.5,
    "decode_ms": 1.0,
    "prefill_ms": 1.0,
}


def leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*place, key))
    elif isinstance(value, list):
        for number in range(min(len(value), 3)):
            yield from leaves(value[number], (*place, number))
    else:
        yield place


def other(value: Any, name: str | int) -> Any:
    """Another legal value of the same kind."""
    if value is None:
        return NULLS.get(str(name), "x")
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value + 0.0078125
    legal = LEGAL.get(str(name))
    if legal is not None:
        return legal if legal != value else {"baseline": "candidate", "nonce": "cache_off", "compare": "screen"}[legal]
    if name == "checks":
        return str(value).replace('"words":4', '"words":3')
    return f"{value}x"


def changed(document: Document, place: Place) -> Document:
    made = copy.deepcopy(document)
    owner: Any = made
    for key in place[:-1]:
        owner = owner[key]
    owner[place[-1]] = other(owner[place[-1]], place[-1])
    return made


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(golden_path("replicate"), tmp_path_factory.mktemp("golden") / "bundle")


def of_kind(golden: Path, kind: str) -> int:
    """The number, from 0, of the event of a kind that stands in the middle of its like."""
    events = Bundle(golden).documents(content.EVENTS)
    found = [number for number, line in enumerate(events) if line["event"]["kind"] == kind]
    return found[len(found) // 2]


def forged(golden: Path, folder: Path, number: int, place: Place) -> Told:
    shutil.copytree(golden, folder)
    bundle = Bundle(folder)
    lines, texts = bundle.documents(content.EVENTS), bundle.documents(content.TEXTS)
    lines[number] = changed(lines[number], ("event", *place))
    make_right(bundle, lines, texts)
    told = bundle.verify()
    shutil.rmtree(folder)
    return told


@pytest.mark.parametrize("kind", UNSEEN)
def test_a_changed_field_of_an_event_is_named_by_file_and_line(golden: Path, tmp_path: Path, kind: str) -> None:
    number = of_kind(golden, kind)
    event = Bundle(golden).documents(content.EVENTS)[number]["event"]
    silent = set()
    for place in leaves(event):
        if place[-1] == "kind":
            continue
        told = forged(golden, tmp_path / "forged", number, place)
        if told.code == 0:
            silent.add(".".join(map(str, place)))
        else:
            file, _, line = told.first.partition(": ")[0].partition(":")
            assert file in (content.EVENTS, content.TEXTS, content.REPLAY_SET, content.POLICY), told.text
            assert line.isdigit() or (file == content.REPLAY_SET and "replay_set_sha256" in told.first), told.text
    assert silent == UNSEEN[kind]


def test_a_changed_part_of_any_text_is_named_by_its_line(golden: Path, tmp_path: Path) -> None:
    for number in (0, 7):
        for part in content.PARTS:
            folder = tmp_path / f"{number}-{part}"
            shutil.copytree(golden, folder)
            bundle = Bundle(folder)
            lines, texts = bundle.documents(content.EVENTS), bundle.documents(content.TEXTS)
            was = texts[number][part]
            new = was.replace("a", "e", 1) if part in ("request", "response") else f"{was}!"
            assert new != was
            texts[number][part] = new
            make_right(bundle, lines, texts)
            told = bundle.verify()
            assert told.code == 10, (number, part)
            assert told.first.startswith(f"{content.TEXTS}:{number + 1}: "), told.text


@pytest.mark.parametrize("name", [content.CELLS, content.DECISION, content.PLAN, content.POLICY, content.REPLAY_SET])
def test_a_changed_field_of_a_file_that_follows_is_named_by_file_and_line(
    golden: Path, tmp_path: Path, name: str
) -> None:
    chosen = random.Random(name)
    lines = (golden / name).read_bytes().splitlines(keepends=True)
    for turn in range(8):
        number = chosen.randrange(len(lines))
        document = json.loads(lines[number])
        place = chosen.choice(list(leaves(document)))
        folder = tmp_path / str(turn)
        shutil.copytree(golden, folder)
        made = json.dumps(changed(document, place), sort_keys=True).encode() + b"\n"
        (folder / name).write_bytes(b"".join([*lines[:number], made, *lines[number + 1 :]]))
        Bundle(folder).sign_off()
        told = Bundle(folder).verify()
        assert told.code == 10
        assert told.first.startswith(f"{name}:{number + 1}: "), told.text
        assert str(place[0]) in told.first


@pytest.mark.parametrize("kind", ["Planned", "EpochSeen", "CellMeasured"])
def test_what_recomputation_cannot_see_a_signature_does(golden: Path, tmp_path: Path, kind: str) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = Ed25519PrivateKey.from_private_bytes(b"7" * 32)
    pem = tmp_path / "public.pem"
    pem.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    shutil.copytree(golden, tmp_path / "signed")
    bundle = Bundle(tmp_path / "signed")
    bundle.sign_with(key)
    assert bundle.verify("--public-key", str(pem)).code == 0
    unseen: Place = {
        "Planned": ("baseline_url",),
        "EpochSeen": ("context_tokens",),
        "CellMeasured": ("cell", "ended_at"),
    }[kind]
    lines, texts = bundle.documents(content.EVENTS), bundle.documents(content.TEXTS)
    number = of_kind(golden, kind)
    lines[number] = changed(lines[number], ("event", *unseen))
    make_right(bundle, lines, texts)
    told = bundle.verify("--public-key", str(pem))
    assert told.code == 10
    assert told.first.startswith(f"{content.SIGNATURE}: not the signature of the key given over {content.MANIFEST}")
