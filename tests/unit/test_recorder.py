"""The recorder and its file: what is kept, what is counted, and what a killed one leaves."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from prefillgate.api.replay_set import prompt_digest, read_line
from prefillgate.core.scrub import Scrubber
from prefillgate.recording import recorder as recorder_module
from prefillgate.recording.case_file import CaseFile, CaseFileError, scrub_key
from prefillgate.recording.recorder import Recorder, Request, Rules, in_sample

CHAT = "/v1/chat/completions"
EVERYTHING = Rules()


def body(content: str, **more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": content}], **more}).encode()


def record(path: Path, *requests: bytes, rules: Rules = EVERYTHING, scrub: bool = True) -> tuple[Recorder, list[str]]:
    said: list[str] = []
    file = CaseFile(path)
    recorder = Recorder(file, rules, Scrubber(b"k") if scrub else None, said.append)
    for request in requests:
        recorder.take(Request(CHAT, request, ("my-own-key",)))
    recorder.close()
    file.close()
    return recorder, said


def cases(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_body_becomes_a_case_under_an_id_made_of_its_prompt(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    recorder, said = record(path, body("héllo", stream=True, n=2))
    (case,) = cases(path)
    assert case["body"] == json.loads(body("héllo", stream=True, n=2))
    assert (case["method"], case["url"]) == ("POST", CHAT)
    assert case["custom_id"] == f"recorded-{prompt_digest(case['body']).hex()[:16]}"
    assert read_line(path.read_bytes().rstrip(), "", 1).case_id == case["custom_id"]
    assert recorder.counts == {"kept": 1} and said == []


def test_a_prompt_is_kept_once_also_by_the_next_recorder(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    recorder, _ = record(path, body("a"), body("a", temperature=0), body("b"))
    assert recorder.counts == {"kept": 2, "duplicate": 1}
    recorder, _ = record(path, body("b"), body("c"))
    assert recorder.counts == {"kept": 1, "duplicate": 1}
    assert [case["body"]["messages"][0]["content"] for case in cases(path)] == ["a", "b", "c"]


def test_what_is_kept_is_scrubbed_of_its_own_credentials_too_and_only_if_asked(tmp_path: Path) -> None:
    text = "my-own-key of a@b.co"
    recorder, _ = record(tmp_path / "a", body(text))
    assert recorder.scrubbed() == {"known-secret": 1, "email": 1}
    assert b"my-own-key" not in (tmp_path / "a").read_bytes() and b"a@b.co" not in (tmp_path / "a").read_bytes()
    recorder, _ = record(tmp_path / "b", body(text), scrub=False)
    assert recorder.scrubbed() == {}
    assert cases(tmp_path / "b")[0]["body"]["messages"][0]["content"] == text


def test_prompts_that_differ_in_a_secret_alone_stay_two(tmp_path: Path) -> None:
    recorder, _ = record(tmp_path / "a", body("to a@b.co"), body("to c@d.co"), body("to a@b.co"))
    assert recorder.counts == {"kept": 2, "duplicate": 1}


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b'{"messages": []}',
        b'{"messages": 7}',
        b'{"messages": [7]}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "x"}], "best_of": 3}',
        b'{"messages": [{"role": "user", "content": "x"}], "tools": 1e999}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_is_no_case_is_counted_and_nothing_of_it_is_kept(broken: bytes, tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    recorder, _ = record(path, broken, body("good"))
    assert recorder.counts == {"no_case": 1, "kept": 1}
    assert len(cases(path)) == 1


def test_max_cases_bounds_the_file_and_says_so_once(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    recorder, said = record(path, *(body(str(number)) for number in range(5)), rules=Rules(max_cases=2))
    assert recorder.counts == {"kept": 2, "enough": 3}
    assert said == ["2 cases are kept, as many as asked for; traffic is passed on as before"]
    recorder, _ = record(path, body("x"), rules=Rules(max_cases=3))
    assert recorder.counts == {"kept": 1}


def test_a_sample_is_drawn_by_the_prompt_so_the_same_prompt_has_the_same_fate(tmp_path: Path) -> None:
    bodies = [body(str(number)) for number in range(400)]
    recorder, _ = record(tmp_path / "a", *bodies, *bodies, rules=Rules(sample=0.25))
    assert recorder.counts["kept"] + recorder.counts["not_sampled"] // 2 == 400
    assert recorder.counts["duplicate"] == recorder.counts["kept"]
    assert 70 <= recorder.counts["kept"] <= 130
    record(tmp_path / "b", *bodies, rules=Rules(sample=0.25))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert all(in_sample(bytes([number]) * 16, 1.0) for number in range(100))


def test_a_torn_last_line_is_cut_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    record(path, body("a"), body("b"))
    whole = path.read_bytes()
    for cut in range(len(whole.splitlines()[0]) + 1, len(whole)):
        path.write_bytes(whole[:cut])
        file = CaseFile(path)
        file.close()
        kept = whole[: whole.index(b"\n") + 1]
        assert path.read_bytes() == kept
        assert file.cut_bytes == cut - len(kept)
        assert len(file.digests) == 1


def test_a_file_that_is_no_replay_set_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"my notes\nmore\ntorn")
    with pytest.raises(CaseFileError, match=r"notes\.txt:1: not JSON"):
        CaseFile(path)
    assert path.read_bytes() == b"my notes\nmore\ntorn"
    with pytest.raises(CaseFileError, match="cannot be written"):
        CaseFile(tmp_path)


def test_the_file_and_the_key_are_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.touch()
    path.chmod(0o644)
    CaseFile(path).close()
    scrub_key(path)
    if os.name == "posix":
        for made in (path, tmp_path / "set.jsonl.scrub-key"):
            assert stat.S_IMODE(made.stat().st_mode) == 0o600


def test_the_key_of_the_placeholders_stays_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    key = scrub_key(path)
    assert len(key) == 32 and scrub_key(path) == key
    assert scrub_key(tmp_path / "other.jsonl") != key
    (tmp_path / "set.jsonl.scrub-key").write_bytes(key[:5])
    with pytest.raises(CaseFileError, match="is no key of placeholders"):
        scrub_key(path)
    (tmp_path / "third.scrub-key").mkdir()
    with pytest.raises(CaseFileError, match="cannot be used"):
        scrub_key(tmp_path / "third")


class SlowDisk:
    """A file on a disk that takes nothing until it is let."""

    def __init__(self) -> None:
        self.digests: set[bytes] = set()
        self.let = threading.Event()
        self.begun = threading.Event()

    def append(self, line: bytes, digest: bytes) -> None:
        self.begun.set()
        self.let.wait()
        self.digests.add(digest)

    def sync(self) -> None:
        pass


def test_a_disk_that_stands_still_drops_and_counts_and_never_keeps_the_traffic_waiting() -> None:
    disk, said = SlowDisk(), list[str]()
    recorder = Recorder(disk, Rules(), None, said.append)
    recorder.take(Request(CHAT, body("first")))
    disk.begun.wait()
    for number in range(recorder_module.QUEUED_REQUESTS + 7):
        recorder.take(Request(CHAT, body(str(number))))  # would hang here if it waited
    assert recorder.counts == {"dropped": 7}
    assert said == ["the file is written too slowly: requests are passed on and not kept"]
    disk.let.set()
    recorder.close()
    assert recorder.counts == {"dropped": 7, "kept": recorder_module.QUEUED_REQUESTS + 1}


def test_the_queue_is_bounded_in_bytes_too() -> None:
    disk = SlowDisk()
    recorder = Recorder(disk, Rules(), None, lambda text: None)
    recorder.take(Request(CHAT, body("first")))
    disk.begun.wait()
    large = b"x" * (recorder_module.QUEUED_BYTES // 2)
    for _ in range(3):
        recorder.take(Request(CHAT, large))
    assert recorder.counts == {"dropped": 1}
    disk.let.set()
    recorder.close()
    assert recorder.counts == {"dropped": 1, "kept": 1, "no_case": 2}


class FullDisk(CaseFile):
    """A file on a disk that is full for a while. No test may fill a real one."""

    full = True

    def append(self, line: bytes, digest: bytes) -> None:
        if self.full:
            type(self).full = False
            raise OSError(28, "No space left on device")
        super().append(line, digest)


def test_what_a_full_disk_does_not_take_is_counted_and_the_next_is_tried(tmp_path: Path) -> None:
    said: list[str] = []
    file = FullDisk(tmp_path / "set.jsonl")
    recorder = Recorder(file, Rules(), None, said.append)
    recorder.take(Request(CHAT, body("a")))
    recorder.take(Request(CHAT, body("a")))
    recorder.close()
    file.close()
    assert recorder.counts == {"not_written": 1, "kept": 1}
    assert said == ["the file cannot be written: No space left on device"]
