"""Following a file that others write: whole lines, rotation, truncation, and the same place again after a restart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prefillgate.importers import following
from prefillgate.importers.following import Follower, Place, end_of
from prefillgate.importers.source import MAX_LINE_BYTES, TooLong


def lines(follower: Follower) -> list[bytes]:
    """What is there now, without lines given again."""
    found = []
    while (line := follower.next()) is not None:
        assert isinstance(line.raw, bytes)
        if not line.again:
            found.append(line.raw)
    return found


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_lines_come_when_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    follower = Follower(path)
    assert lines(follower) == [] and follower.place is None
    path.touch()
    assert lines(follower) == [] and follower.place is None
    add(path, b"one\ntw")
    assert lines(follower) == [b"one"]
    add(path, b"o\r\n\nthree")
    assert lines(follower) == [b"two", b""]
    assert follower.place is not None
    assert (follower.place.offset, follower.place.line) == (10, 3)
    add(path, b"\n")
    assert lines(follower) == [b"three"]
    follower.close()


def test_a_renamed_file_is_read_to_its_end_and_the_new_one_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, b"a\n")
    follower = Follower(path)
    assert lines(follower) == [b"a"]
    path.rename(tmp_path / "log.1")
    add(tmp_path / "log.1", b"b\nunfinished")
    assert lines(follower) == [b"b"]
    path.touch()
    assert lines(follower) == []  # as long as the new one is empty its writer may still hold the old one
    add(path, b"c\n")
    found = lines(follower) + lines(follower)
    assert found == [b"unfinished", b"c"]
    assert follower.place is not None and follower.place.line == 1
    follower.close()


def test_a_writer_that_still_holds_the_renamed_file_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, b"a\n")
    follower = Follower(path)
    assert lines(follower) == [b"a"]
    path.rename(tmp_path / "log.1")
    add(path, b"new\n")
    assert lines(follower) == []  # the first look at its end
    add(tmp_path / "log.1", b"late\n")
    assert lines(follower) == [b"late"]
    assert lines(follower) == [b"new"]
    follower.close()


@pytest.mark.parametrize("refilled", [b"x\n", b"longer than what was there before\n"])
def test_a_truncated_file_is_read_from_its_beginning_however_long_it_is_by_now(tmp_path: Path, refilled: bytes) -> None:
    path = tmp_path / "log"
    add(path, b"first line\nsecond\n")
    follower = Follower(path)
    assert len(lines(follower)) == 2
    path.write_bytes(refilled)
    assert lines(follower) == [refilled.rstrip()]
    assert follower.remarks == [f"{path}: truncated; reading it from its beginning"]
    follower.close()


def test_what_was_begun_before_a_truncation_is_dropped_with_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, b"a\nbeginning of")
    follower = Follower(path)
    assert lines(follower) == [b"a"]
    path.write_bytes(b"z\n")
    assert lines(follower) == [b"z"]
    follower.close()


def test_a_line_beyond_the_limit_is_told_and_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_LINE_BYTES", 100)  # 16 MiB would cost the test seconds
    assert MAX_LINE_BYTES == 16 * 1024 * 1024
    monkeypatch.setattr(following, "READ_BYTES", 64)
    path = tmp_path / "log"
    add(path, b"x" * 100 + b"\n" + b"y" * 101 + b"\n" + b"z" * 1000)
    follower = Follower(path)
    first, second = follower.next(), follower.next()
    assert first is not None and first.raw == b"x" * 100
    assert second is not None and second.raw == TooLong(2)
    assert follower.next() is None
    add(path, b"zz\nafter\n")
    third, fourth = follower.next(), follower.next()
    assert third is not None and third.raw == TooLong(3)
    assert fourth is not None and fourth.raw == b"after"
    follower.close()


def test_from_every_place_it_goes_on_with_the_very_next_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    all_lines = [f"line {number} ".encode() + b"x" * number for number in range(60)]
    add(path, b"\n".join(all_lines) + b"\n")
    follower = Follower(path)
    places: list[Place] = []
    while follower.next() is not None:
        assert follower.place is not None
        places.append(follower.place)
    follower.close()
    for number, place in enumerate(places, 1):
        again = Follower(path, place)
        assert again.place == place
        assert lines(again) == all_lines[number:]
        assert again.place == places[-1] and again.remarks == []
        again.close()


def test_some_of_what_was_read_is_given_again_marked_and_numbered_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "OVERLAP_BYTES", 25)
    path = tmp_path / "log"
    add(path, b"".join(b"line %d\n" % number for number in range(1, 10)))
    place = end_of(path)
    assert place is not None and (place.offset, place.line) == (63, 9)
    add(path, b"line 10\n")
    follower = Follower(path, place)
    seen = []
    while (line := follower.next()) is not None:
        seen.append((line.number, line.raw, line.again))
        if line.again:
            assert follower.place is not None and (follower.place.offset, follower.place.line) == (63, 9)
    assert seen == [(7, b"line 7", True), (8, b"line 8", True), (9, b"line 9", True), (10, b"line 10", False)]
    follower.close()


def test_a_file_that_was_renamed_meanwhile_is_finished_first_and_those_between_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, b"a\nb\n")
    place = end_of(path)
    add(path, b"c\n")
    path.rename(tmp_path / "log.2")
    add(tmp_path / "log.1", b"d\n")
    (tmp_path / "log.1.gz").write_bytes(b"\x1f\x8bno log")
    add(path, b"e\n")
    newer = (tmp_path / "log.2").stat().st_mtime_ns
    for seconds, name in ((1, "log.1"), (1, "log.1.gz"), (2, "log")):
        os.utime(tmp_path / name, ns=(newer + seconds * 10**9, newer + seconds * 10**9))
    follower = Follower(path, place, 1)
    assert lines(follower) == [b"c", b"d", b"e"]
    assert follower.remarks == [f"{path}: rotated while nobody watched; going on in {tmp_path / 'log.2'}"]
    follower.close()


def test_a_file_that_was_copied_and_truncated_meanwhile_is_finished_in_the_copy(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, b"a\nb\n")
    place = end_of(path)
    add(path, b"c\n")
    (tmp_path / "log.1").write_bytes(path.read_bytes())
    path.write_bytes(b"d\n")
    follower = Follower(path, place, 1)
    assert lines(follower) == [b"c", b"d"]
    follower.close()


def test_a_file_that_is_gone_is_said_to_be_and_the_new_one_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, b"a\nb\n")
    place = end_of(path)
    path.unlink()
    add(path, b"other\nlines\n")
    follower = Follower(path, place, 1)
    assert lines(follower) == [b"other", b"lines"]
    assert len(follower.remarks) == 1 and "read up to byte 4 is gone" in follower.remarks[0]
    follower.close()


def test_of_a_file_that_is_not_there_there_is_no_end(tmp_path: Path) -> None:
    assert end_of(tmp_path / "log") is None
    add(tmp_path / "log", b"a\npartial")
    place = end_of(tmp_path / "log")
    assert place is not None and place.offset == 2


def test_the_head_is_that_of_the_file_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    follower = Follower(path)
    assert follower.head(10) == b""
    add(path, b"0123456789abc\n")
    assert follower.head(10) == b"0123456789"
    assert lines(follower) == [b"0123456789abc"]
    follower.close()


def test_a_restart_in_the_middle_of_a_line_reads_that_line_whole_and_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, b"a\nhalf of ")
    follower = Follower(path)
    assert lines(follower) == [b"a"]
    place = follower.place
    follower.close()
    add(path, b"a li")
    again = Follower(path, place)
    assert lines(again) == []
    add(path, b"ne\nb\n")
    assert lines(again) == [b"half of a line", b"b"]
    assert again.place is not None and again.place.line == 3
    again.close()


def test_a_log_that_is_deleted_is_read_to_its_end_and_a_new_one_of_its_name_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, b"a\n")
    follower = Follower(path)
    assert lines(follower) == [b"a"]
    with path.open("ab") as held:
        path.unlink()
        assert lines(follower) == []
        held.write(b"still written\n")
        held.flush()
        assert lines(follower) == [b"still written"]
    add(path, b"new\n")
    assert lines(follower) + lines(follower) == [b"new"]
    follower.close()


def test_what_was_written_just_before_a_copy_and_truncation_is_read_in_the_copy(tmp_path: Path) -> None:
    path = tmp_path / "log"
    (tmp_path / "log.3").write_bytes(b"another log\n" * 9)
    add(path, b"a\n")
    (tmp_path / "log.2").write_bytes(path.read_bytes())  # a copy without anything new
    follower = Follower(path)
    assert lines(follower) == [b"a"]
    add(path, b"b\nhalf")
    (tmp_path / "log.1").write_bytes(path.read_bytes())
    path.write_bytes(b"longer than what stood there\n")
    assert [each for _ in range(3) for each in lines(follower)] == [b"b", b"half", b"longer than what stood there"]
    assert follower.remarks == [f"{path}: truncated; finishing its copy {tmp_path / 'log.1'} first"]
    path.write_bytes(b"z\n")
    assert lines(follower) == [b"z"]
    assert follower.remarks[1:] == [f"{path}: truncated; reading it from its beginning"]
    follower.close()
