"""One input of an importer: plain or compressed, its head looked at and still there, its lines numbered."""

from __future__ import annotations

import gzip
import io

import pytest

from prefillgate.importers.source import HEAD_BYTES, MAX_LINE_BYTES, ImportProblem, Source, TooLong


def source(data: bytes) -> Source:
    return Source(io.BytesIO(data), "log")


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_the_head_is_seen_and_the_lines_are_all_still_there(packed: object) -> None:
    found = source(packed(b"\xef\xbb\xbfone\r\n\ntwo"))  # type: ignore[operator]
    assert found.head() == b"one\r\n\ntwo"
    assert list(found.lines()) == [(1, b"one"), (2, b""), (3, b"two")]


def test_an_input_longer_than_its_head_is_read_whole() -> None:
    lines = [b"%07d" % number for number in range(HEAD_BYTES // 4)]
    found = source(b"\n".join(lines))
    assert len(found.head()) == HEAD_BYTES
    assert [line for _, line in found.lines()] == lines  # type: ignore[misc]


def test_a_line_too_long_is_passed_over_by_its_number() -> None:
    found = source(b"a\n" + b"b" * (MAX_LINE_BYTES + 1) + b"\nc\n" + b"d" * MAX_LINE_BYTES)
    assert list(found.lines())[:3] == [(1, b"a"), TooLong(2), (3, b"c")]


def test_one_document_has_a_limit() -> None:
    assert source(b"\xef\xbb\xbf{}").whole(5) == b"{}"
    with pytest.raises(ImportProblem, match=r"log: the file is too large \(allowed: up to 4 bytes\)"):
        source(b"12345").whole(4)


def test_a_damaged_stream_is_named() -> None:
    damaged = gzip.compress(bytes(range(256)) * 4000)[:-20]
    with pytest.raises(ImportProblem, match="log: cannot be read to its end: "):
        list(source(damaged).lines())
    with pytest.raises(ImportProblem, match="log: cannot be read to its end: "):
        source(b"\x1f\x8b\x08 nothing of the kind")
