"""Text of strangers is visible and harmless wherever it is shown."""

from __future__ import annotations

import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillgate.report.clean import is_clean, one_line, visible

ANY_TEXT = st.text(st.characters(codec=None, categories=None))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, 1 to 3", "plain text, 1 to 3"),
        ("\x1b[31mred\x1b[0m", "⟨ESC⟩[31mred⟨ESC⟩[0m"),
        ("nul \x00 bell \x07", "nul ⟨NUL⟩ bell ⟨BEL⟩"),
        ("delete \x7f", "delete ⟨DEL⟩"),
        ("csi \x9b31m", "csi ⟨U+009B⟩31m"),
        ("next line \x85", "next line ⟨U+0085⟩"),
        ("a\u202egnp.exe", "a⟨U+202E⟩gnp.exe"),
        ("\u2066x\u2069\u200e\u200f\u061c", "⟨U+2066⟩x⟨U+2069⟩⟨U+200E⟩⟨U+200F⟩⟨U+061C⟩"),
        ("a\u2028b\u2029c", "a⟨U+2028⟩b⟨U+2029⟩c"),
        ("\ud800 and \udfff", "⟨U+D800⟩ and ⟨U+DFFF⟩"),
        ("\ufffe\uffff\ufdd0\U0010ffff", "⟨U+FFFE⟩⟨U+FFFF⟩⟨U+FDD0⟩⟨U+10FFFF⟩"),
        ("\ufdcf\ufdf0\ufffd", "\ufdcf\ufdf0\ufffd"),
        ("\ufeff\u200b\u00ad\u2060", "⟨U+FEFF⟩⟨U+200B⟩⟨U+00AD⟩⟨U+2060⟩"),
        ("hangul \u3164 filler", "hangul ⟨U+3164⟩ filler"),
        ("tag \U000e0041", "tag ⟨U+E0041⟩"),
        ("one\r\ntwo\nthree\tfour", "one\ntwo\nthree\tfour"),
        ("back\rover", "back⟨CR⟩over"),
        ("ünïcode 漢字 👩\u200d💻", "ünïcode 漢字 👩\u200d💻"),
    ],
)
def test_what_does_not_print_is_replaced_by_what_does(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert is_clean(shown)
    assert is_clean(text) is (text == shown)


@given(ANY_TEXT)
def test_any_text_becomes_utf8_and_xml_and_nothing_that_acts(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    element = ElementTree.Element("x")
    element.text = shown
    assert (ElementTree.fromstring(ElementTree.tostring(element)).text or "") == shown
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} and c not in "\n\t"]
    assert not [c for c in shown if unicodedata.bidirectional(c) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI"}]


@given(ANY_TEXT)
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    assert visible(visible(text)) == visible(text)


def test_one_line_shows_where_lines_ended_and_says_how_much_it_left_out() -> None:
    assert one_line("a\r\nb\n\n  c\td") == "a ⏎ b ⏎ ⏎ c d"
    assert one_line("abcdef", 6) == "abcdef"
    assert one_line("abcdefg", 6) == "abcdef… (1 more characters)"
    assert one_line("x\x1by", 6) == "x⟨ESC⟩… (1 more characters)"


def test_a_limit_under_one_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="limit is 0, allowed are whole numbers from 1"):
        one_line("x", 0)
    assert one_line("xy", 1) == "x… (1 more characters)"
