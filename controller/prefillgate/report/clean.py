"""Text of strangers made visible and harmless: model output, server messages, names out of files.

Everything that such text can do beyond being read is done by a character that is not printed: terminal
escapes, bidirectional overrides, NUL, line separators that only some readers know, characters XML
forbids, lone surrogates that cannot be encoded. Each is replaced by a printed stand-in, so nothing is
lost silently, the result always encodes as UTF-8 and is always legal in XML 1.0.
"""

from __future__ import annotations

import unicodedata

# The names ASCII gives its controls; the pictures Unicode has for them are missing from many fonts.
_CONTROLS = (
    *("NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "HT", "LF", "VT", "FF", "CR", "SO", "SI"),
    *("DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US"),
)
_KEPT_CONTROLS = "\n\t"
# Format characters that scripts and emoji need, or that are printed themselves.
_KEPT_FORMATS = frozenset("\u200c\u200d\u06dd\u070f\u08e2\U000110bd\U000110cd") | {chr(c) for c in range(0x600, 0x606)}
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Fillers of other categories that print as nothing.
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u034f")


def visible(text: str) -> str:
    """`text` with every unprinted character but newline and tab replaced by a printed stand-in.

    CR LF becomes a newline. A control of ASCII becomes its name, `⟨ESC⟩`, everything else its number, `⟨U+202E⟩`.
    Applying it twice changes nothing more.
    """
    if text.isascii() and text.isprintable():
        return text
    return text.replace("\r\n", "\n").translate(_TABLE)


def one_line(text: str, limit: int | None = None) -> str:
    """`visible` text on one line, newlines shown as `⏎`; over `limit` characters it is cut and says by how much.

    Raises ValueError for a limit under 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}, allowed are whole numbers from 1")
    line = " ".join(visible(text).replace("\n", " ⏎ ").split())
    if limit is None or len(line) <= limit:
        return line
    return f"{line[:limit]}… ({len(line) - limit} more characters)"


def is_clean(text: str) -> bool:
    """Whether `visible` would leave `text` as it is."""
    return visible(text) == text


def _stand_in(char: str) -> str:
    if not _is_hidden(char):
        return char
    code = ord(char)
    if code < 0x20:
        return f"⟨{_CONTROLS[code]}⟩"
    if code == 0x7F:
        return "⟨DEL⟩"
    return f"⟨U+{code:04X}⟩"


class _StandIns(dict[int, str]):
    """For `str.translate`: looks at a character once, the first time it is met."""

    def __missing__(self, code: int) -> str:
        self[code] = _stand_in(chr(code))
        return self[code]


_TABLE = _StandIns()


def _is_hidden(char: str) -> bool:
    if char in _KEPT_CONTROLS or char in _KEPT_FORMATS:
        return False
    return unicodedata.category(char) in _HIDDEN_CATEGORIES or char in _BLANK_LETTERS or _is_noncharacter(ord(char))


def _is_noncharacter(code: int) -> bool:
    return 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
