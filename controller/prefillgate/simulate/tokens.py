"""A deterministic tokenizer: about four characters a token, no vocabulary file.

Whitespace goes with what follows it, long words are split, so that texts with a common beginning have a
common beginning of tokens. Joining the pieces gives the text back.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

VOCABULARY = 262_144
BOS = 2

_PIECE = re.compile(r"\s?[^\W_]{1,6}|\s?[^\w\s]{1,3}|\s?_|\s")


@lru_cache(maxsize=65_536)
def token_id(piece: str) -> int:
    """The id of a piece: a checksum of its text, never a special token."""
    return 3 + zlib.crc32(piece.encode("utf-8", "surrogatepass")) % (VOCABULARY - 3)


def pieces(text: str) -> list[str]:
    """The text cut into the strings of its tokens; joined they are the text."""
    return _PIECE.findall(text)


def tokenize(text: str, bos: bool = True) -> tuple[int, ...]:
    """The token ids of a prompt, with the begin-of-sequence token in front unless `bos` is false."""
    ids = tuple(token_id(piece) for piece in pieces(text))
    return (BOS, *ids) if bos else ids


def salted(tokens: tuple[int, ...], salt: str) -> tuple[int, ...]:
    """As many tokens, which share no beginning with those of another salt, nor with those of none."""
    mixed = zlib.crc32(salt.encode("utf-8", "surrogatepass"))
    return tuple(VOCABULARY + (token ^ mixed) for token in tokens)


def common_prefix(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """How many leading tokens the two sequences share."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    return next(index for index in range(limit) if left[index] != right[index])
