"""Server-sent events are parsed from bytes: only CR, LF and CR LF end a line, and chunks may end anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillgate.engines.sse import SseEvent, SseLimitError, SseParser


def parse(*chunks: bytes, limit: int = 1000) -> list[SseEvent]:
    parser = SseParser(limit)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.close()


def data(*chunks: bytes) -> list[str]:
    return [event.data for event in parse(*chunks)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_each_line_end_separates_lines_and_events(end: bytes) -> None:
    assert data(b"data: one" + end + end + b"data: two" + end + end) == ["one", "two"]


def test_mixed_line_ends_in_one_event_are_one_event() -> None:
    assert data(b"data: a\rdata: b\r\ndata: c\n\n") == ["a\nb\nc"]


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_other_separators_stay_inside_the_data(inside: str) -> None:
    assert data(f'data: {{"text":"a{inside}b"}}\n\n'.encode()) == [f'{{"text":"a{inside}b"}}']


def test_events_come_as_soon_as_their_blank_line_is_there() -> None:
    parser = SseParser()
    assert parser.feed(b"data: one\n") == []
    assert parser.feed(b"\nda") == [SseEvent("one")]
    assert parser.feed(b"ta: two\r") == []
    assert parser.feed(b"\n") == []
    assert parser.feed(b"\r") == [SseEvent("two")]
    assert parser.close() == []


def test_a_line_feed_after_a_carriage_return_in_the_next_chunk_is_the_same_line_end() -> None:
    assert data(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\ndata: c\n\n") == ["a\nb", "c"]


def test_an_empty_chunk_between_cr_and_lf_changes_nothing() -> None:
    assert data(b"data: a\r", b"", b"\ndata: b\n\n") == ["a\nb"]


def test_comment_lines_and_unknown_fields_are_passed_over() -> None:
    assert data(b": ping\n\n: ping\n\nid: 4\nretry: 10\ndata: x\nfoo: bar\n\n") == ["x"]


def test_only_one_space_after_the_colon_belongs_to_the_syntax() -> None:
    assert data(b"data:x\n\n", b"data: x\n\n", b"data:  x\n\n", b"data\n\n") == ["x", "x", " x", ""]


def test_a_byte_order_mark_is_dropped_at_the_start_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert data(mark[:1], mark[1:] + b"data: x\n\n" + mark + b"data: lost\n\ndata: " + mark + b"y\n\n") == [
        "x",
        "\ufeffy",
    ]


def test_the_event_name_is_told_and_holds_for_one_event() -> None:
    assert parse(b"event: error\ndata: 1\n\ndata: 2\n\n") == [SseEvent("1", "error"), SseEvent("2", "message")]


def test_an_event_name_without_data_is_no_event() -> None:
    assert parse(b"event: ping\n\ndata: 1\n\n") == [SseEvent("1", "message")]


def test_the_error_line_of_older_llama_cpp_is_an_error_event() -> None:
    assert parse(b'error: {"code":500}\n\n') == [SseEvent('{"code":500}', "error")]


def test_a_last_event_without_its_blank_line_counts_at_the_end() -> None:
    assert data(b"data: one\n\ndata: two") == ["one", "two"]
    assert data(b"data: one\n\ndata: two\n") == ["one", "two"]


def test_nothing_is_no_event() -> None:
    assert parse() == []
    assert parse(b"\n\n\r\n") == []


def test_bytes_that_are_not_utf8_are_replaced_and_told() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\xff\n\n") == [SseEvent("a\ufffd")]
    assert parser.replaced
    good = SseParser()
    assert good.feed("data: ä\n\n".encode()) == [SseEvent("ä")]
    assert not good.replaced


def test_a_line_of_exactly_the_limit_passes_and_one_more_byte_does_not() -> None:
    line = b"data: " + b"x" * 4
    assert [event.data for event in parse(line, b"\n\n", limit=10)] == ["xxxx"]
    with pytest.raises(SseLimitError, match="more than 10 bytes"):
        parse(line, b"y", limit=10)


def test_the_data_of_an_event_is_bounded_over_its_lines() -> None:
    assert [event.data for event in parse(b"data: aaaaa\ndata: bbbbb\n\n", limit=10)] == ["aaaaa\nbbbbb"]
    with pytest.raises(SseLimitError, match="more than 10 bytes"):
        parse(b"data: aaaaa\ndata: bbbbbb\n\n", limit=10)


def test_the_bound_starts_anew_with_each_event() -> None:
    assert len(parse(*[b"data: aaaaaaaa\n\n"] * 5, limit=10)) == 5


def test_a_line_of_a_megabyte_in_small_chunks_arrives_whole() -> None:
    line = b"data: " + b"x" * 1_000_000 + b"\n\n"
    events = parse(*[line[i : i + 1000] for i in range(0, len(line), 1000)], limit=2_000_000)
    assert [len(event.data) for event in events] == [1_000_000]


@given(
    st.lists(st.text("ab\u2028\u0085é\U0001f600", max_size=5), max_size=4),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_where_chunks_end_never_changes_the_events(texts: list[str], end: bytes, cuts: list[int]) -> None:
    raw = b"".join(b"data: " + text.encode() + end + end for text in texts)
    places = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    chunks = [raw[a:b] for a, b in pairwise(places)]
    assert data(*chunks) == texts
