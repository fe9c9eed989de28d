"""Journal events as canonical JSON and back, exactly.

The codec is compiled from the dataclasses' own type hints, so a new field or a new kind of event needs no line here.
Understood are str, int, float, bool, enums, `X | None`, tuples, nested dataclasses and unions of dataclasses; the
members of such a union are told apart by a `kind` key that holds the class name.

Canonical means: keys sorted, no spaces, every field written out, numbers never rounded, UTF-8. Model text may hold lone
surrogates (a stream cut inside an escaped pair); they are written with `surrogatepass`, because escapes would join
two of them into one character on the way back.

Reading is strict: a field, a kind or an enum value that this version does not know comes from a newer one and is
refused; a field that is missing takes its default, because older versions did not have it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, NoReturn, Union

from prefillgate.core.journal import Event, Texts

KIND = "kind"


class CodecError(ValueError):
    """A value cannot be written or read. The message names the field, the value and what is allowed."""


class NewerFormatError(CodecError):
    """The bytes hold a field, a kind or an enum value that only a newer version knows."""


_Convert = Callable[[Any, str], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Codec:
    """Both directions for one type hint."""

    write: _Convert
    read: _Convert


def dumps(value: object, hint: Any) -> bytes:
    """`value` as canonical JSON under the type `hint`. Raises `CodecError`."""
    plain = _codec(hint).write(value, _name(hint, value))
    try:
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError as error:  # an integer longer than Python prints
        raise CodecError(f"{_name(hint, value)}: cannot be written as JSON: {error}") from error
    return text.encode("utf-8", "surrogatepass")


def loads(data: bytes, hint: Any) -> Any:
    """The value of type `hint` that `dumps` wrote. Raises `CodecError`, `NewerFormatError` for what is too new."""
    try:
        plain = json.loads(data.decode("utf-8", "surrogatepass"), object_pairs_hook=_unique, parse_constant=_constant)
    except CodecError:
        raise
    except ValueError as error:
        raise CodecError(f"{_name(hint, None)}: not JSON: {error}") from error
    return _codec(hint).read(plain, _name(hint, None))


def encode_event(event: Event) -> bytes:
    """One event as canonical JSON. Raises `CodecError` naming the field that does not hold what it declares."""
    return dumps(event, Event)


def decode_event(payload: bytes) -> Event:
    """The event `encode_event` wrote, equal to the original. Raises `CodecError`, `NewerFormatError`."""
    return typing.cast(Event, loads(payload, Event))


def encode_texts(texts: Texts) -> bytes:
    """The texts of a cell as canonical JSON, whole."""
    return dumps(texts, Texts)


def decode_texts(payload: bytes) -> Texts:
    """The texts `encode_texts` wrote, equal to the original. Raises `CodecError`, `NewerFormatError`."""
    return typing.cast(Texts, loads(payload, Texts))


def _name(hint: Any, value: object) -> str:
    if value is not None:
        return type(value).__name__
    return hint.__name__ if isinstance(hint, type) else "event"


def _refuse(where: str, value: object, allowed: str) -> NoReturn:
    raise CodecError(f"{where}: {reprlib.repr(value)} is not allowed, only {allowed}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise CodecError(f"an object holds a key twice: {', '.join(sorted(key for key, _ in pairs))}")
    return found


def _constant(name: str) -> NoReturn:
    raise CodecError(f"{name} is not allowed, only finite numbers (unknown is null)")


@cache
def _codec(hint: Any) -> _Codec:
    """The codec of a type hint. Raises TypeError for a hint the journal must not use."""
    if hint in _SCALARS:
        return _scalar(hint, optional=False)
    origin = typing.get_origin(hint)
    if origin is Union or origin is types.UnionType:
        return _union(typing.get_args(hint))
    if origin is tuple:
        return _tuple(typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass(hint)
    raise TypeError(f"the codec cannot write {hint!r}")


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_number(value: Any) -> bool:
    """Whole numbers stay whole in a float field: 5 comes back as 5, 5.0 as 5.0."""
    return _is_int(value) or (type(value) is float and math.isfinite(value))


_SCALARS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    str: ("a string", lambda value: isinstance(value, str)),
    int: ("a whole number", _is_int),
    float: ("a finite number", _is_number),
    bool: ("true or false", lambda value: type(value) is bool),
}


def _scalar(kind: Any, optional: bool) -> _Codec:
    allowed, accepts = _SCALARS[kind]
    offered = f"{allowed}, or null for unknown" if optional else allowed

    def convert(value: Any, where: str) -> Any:
        if value is None and optional:
            return None
        if not accepts(value):
            _refuse(where, value, offered)
        return str.__str__(value) if kind is str else value  # a StrEnum in a str field is kept as its value

    return _Codec(convert, convert)


def _enum(kind: type[Enum]) -> _Codec:
    allowed = "one of " + ", ".join(str(member.value) for member in kind)

    def write(value: Any, where: str) -> Any:
        return value.value if type(value) is kind else _refuse(where, value, allowed)

    def read(value: Any, where: str) -> Any:
        try:
            return kind(value)
        except ValueError as error:
            raise NewerFormatError(f"{where}: {reprlib.repr(value)} is not known here, only {allowed}") from error

    return _Codec(write, read)


def _tuple(members: tuple[Any, ...]) -> _Codec:
    open_ended = len(members) == 2 and members[1] is Ellipsis
    allowed = "a tuple" if open_ended else f"a tuple of {len(members)}"

    def convert(value: Any, where: str, kind: type[Any], pick: Callable[[_Codec], _Convert]) -> list[Any]:
        if type(value) is not kind or not (open_ended or len(value) == len(members)):
            _refuse(where, value, allowed)
        hints = members[:1] * len(value) if open_ended else members
        pairs = enumerate(zip(value, hints, strict=True))
        return [pick(_codec(hint))(item, f"{where}[{index}]") for index, (item, hint) in pairs]

    def write(value: Any, where: str) -> Any:
        return convert(value, where, tuple, lambda codec: codec.write)

    def read(value: Any, where: str) -> Any:
        return tuple(convert(value, where, list, lambda codec: codec.read))

    return _Codec(write, read)


def _union(members: tuple[Any, ...]) -> _Codec:
    present = tuple(member for member in members if member is not types.NoneType)
    optional = len(present) < len(members)
    if len(present) == 1 and present[0] in _SCALARS:
        return _scalar(present[0], optional)
    inner = _codec(present[0]) if len(present) == 1 else _kinds(present)
    if not optional:
        return inner
    return _Codec(
        lambda value, where: None if value is None else inner.write(value, where),
        lambda value, where: None if value is None else inner.read(value, where),
    )


def _kinds(members: tuple[Any, ...]) -> _Codec:
    """A union of dataclasses, told apart by their names."""
    if not all(dataclasses.is_dataclass(member) for member in members):
        raise TypeError(f"the codec can tell apart dataclasses only, not {members!r}")
    by_name = {member.__name__: member for member in members}
    allowed = "one of " + ", ".join(by_name)

    def write(value: Any, where: str) -> Any:
        kind = type(value)
        if by_name.get(kind.__name__) is not kind:
            _refuse(where, value, allowed)
        return {KIND: kind.__name__, **_codec(kind).write(value, kind.__name__)}

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get(KIND), str):
            _refuse(where, value, f"an object with a {KIND} ({allowed})")
        name = value[KIND]
        if name not in by_name:
            raise NewerFormatError(f"{where}: {KIND} {name!r} is not known here, only {allowed}")
        return _codec(by_name[name]).read({key: item for key, item in value.items() if key != KIND}, name)

    return _Codec(write, read)


def _dataclass(kind: type[Any]) -> _Codec:
    hints = typing.get_type_hints(kind)
    names = tuple(field.name for field in dataclasses.fields(kind))
    if KIND in names:
        raise TypeError(f"{kind.__name__} has a field named {KIND}, which the codec needs")
    required = tuple(field.name for field in dataclasses.fields(kind) if _is_required(field))
    allowed = f"a {kind.__name__}"

    def write(value: Any, where: str) -> Any:
        if type(value) is not kind:
            _refuse(where, value, allowed)
        return {name: _codec(hints[name]).write(getattr(value, name), f"{where}.{name}") for name in names}

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            _refuse(where, value, allowed)
        unknown = sorted(set(value) - set(names))
        if unknown:
            raise NewerFormatError(f"{where}: field {', '.join(unknown)} is not known here, only {', '.join(names)}")
        missing = [name for name in required if name not in value]
        if missing:
            raise CodecError(f"{where}: field {', '.join(missing)} is missing")
        return kind(**{name: _codec(hints[name]).read(item, f"{where}.{name}") for name, item in value.items()})

    return _Codec(write, read)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
