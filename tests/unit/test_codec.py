"""Events survive the way through JSON exactly, and what cannot is refused by name."""

import dataclasses
import json
import types
import typing
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefillgate.core.cells import Cell, ColdProof, Status
from prefillgate.core.journal import (
    CellMeasured,
    CheckOutcome,
    DeadlinePassed,
    EpochSeen,
    Event,
    Planned,
    Purpose,
    ReplicateStarted,
    Texts,
)
from prefillgate.core.policy import Policy
from prefillgate.evidence import codec
from prefillgate.evidence.codec import CodecError, NewerFormatError, decode_event, dumps, encode_event, loads

KINDS = typing.get_args(Event)
ANY_TEXT = st.text(st.characters(), max_size=8)  # lone surrogates too
SCALARS = {
    str: ANY_TEXT,
    int: st.integers(-(2**70), 2**70),
    float: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60),
    bool: st.booleans(),
    types.NoneType: st.none(),
}


def values_of(hint):
    """Every value a type hint allows."""
    if hint in SCALARS:
        return SCALARS[hint]
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
        return st.tuples(*map(values_of, arguments))
    if arguments:
        return st.one_of(*map(values_of, arguments))
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    hints = typing.get_type_hints(hint)
    return st.builds(hint, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(hint)})


def exact(value):
    """Equality with types: 5 is not 5.0, and 0.0 is not -0.0."""
    return repr(value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_event_comes_back_exactly_as_it_went_in(kind):
    @settings(max_examples=40, deadline=None)
    @given(values_of(kind))
    def check(event):
        payload = encode_event(event)
        back = decode_event(payload)
        assert type(back) is kind
        assert exact(back) == exact(event)
        assert encode_event(back) == payload

    check()


@given(values_of(Texts))
def test_texts_come_back_exactly(texts):
    assert codec.decode_texts(codec.encode_texts(texts)) == texts


@given(values_of(Planned))
@settings(max_examples=20, deadline=None)
def test_a_payload_is_canonical_json_with_sorted_keys_and_no_spaces(event):
    payload = encode_event(event)
    plain = json.loads(payload.decode("utf-8", "surrogatepass"))
    again = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert again.encode("utf-8", "surrogatepass") == payload


def test_the_bytes_of_an_event_never_change_between_versions():
    event = CellMeasured(
        cell_id=7,
        cell=Cell("baseline", "größe", status=Status.FAILED, bad=True, prefill_ms=0.1, cold_proof=ColdProof.NONCE),
        purpose=Purpose.PAIR,
        http_status=500,
    )
    assert encode_event(event).decode() == (
        '{"attempt":1,"cell":{"arm":"baseline","bad":true,"cached_tokens":null,"case_id":"größe","choice_index":null,'
        '"cold_proof":"nonce","counter_alive":false,"counter_processed_tokens":null,"decode_ms":null,"ended_at":null,'
        '"finish_reason":null,"flag_outcomes":[],"output_sha256":null,"output_tokens":null,"prefill_ms":0.1,'
        '"processed_tokens":null,"prompt_sha256":null,"prompt_tokens":null,"replicate":0,"request_id":null,'
        '"server_epoch":null,"shared_server":false,"shares_blocks":false,"started_at":null,"status":"failed"},'
        '"cell_id":7,"detail":null,'
        '"draft_accepted_tokens":null,"draft_tokens":null,"http_status":500,"kind":"CellMeasured","lane":0,'
        '"nonce":null,"pair":null,"place":null,"purpose":"pair","reason":null,"reasoning_tokens":null,"retractions":null,"round":0,"seed":null,'
        '"time_to_first_token_ms":null}'
    )


@pytest.mark.parametrize("at", [0.1, 1e-320, 1.7976931348623157e308, -0.0, 2**53 + 1, 1764457200.123456])
def test_numbers_are_never_rounded(at):
    assert exact(decode_event(encode_event(DeadlinePassed(at))).at) == exact(at)


@pytest.mark.parametrize("text", ["\ud83d\ude00", "\ude00\ud83d", "\x00", "\u2028\u2029\u0085", "\r\n", "\x1b[31m", ""])
def test_text_is_kept_character_by_character(text):
    texts = Texts(content=text)
    assert list(codec.decode_texts(codec.encode_texts(texts)).content) == list(text)


def test_an_enum_in_a_string_field_is_kept_as_its_value():
    event = EpochSeen("baseline", "e", 1.0, "llama.cpp", None, None, True, ColdProof.CACHE_OFF, False)
    back = decode_event(encode_event(event))
    assert back == event
    assert type(back.cold_proof) is str


REFUSED = [
    (DeadlinePassed(float("nan")), "DeadlinePassed.at: nan is not allowed, only a finite number"),
    (DeadlinePassed(float("inf")), "DeadlinePassed.at: inf is not allowed, only a finite number"),
    (DeadlinePassed(float("-inf")), "DeadlinePassed.at: -inf is not allowed, only a finite number"),
    (DeadlinePassed(True), "DeadlinePassed.at: True is not allowed, only a finite number"),
    (DeadlinePassed(None), "DeadlinePassed.at: None is not allowed, only a finite number"),
    (ReplicateStarted(1.0, 1.0, 1), "ReplicateStarted.number: 1.0 is not allowed, only a whole number"),
    (ReplicateStarted(True, 1.0, 1), "ReplicateStarted.number: True is not allowed, only a whole number"),
    (
        CellMeasured(1, Cell("baseline", "a", prompt_tokens="12"), Purpose.PAIR),
        "CellMeasured.cell.prompt_tokens: '12' is not allowed, only a whole number, or null for unknown",
    ),
    (
        CellMeasured(1, Cell("baseline", "a", counter_alive=1), Purpose.PAIR),
        "CellMeasured.cell.counter_alive: 1 is not allowed, only true or false",
    ),
    (
        CellMeasured(1, Cell("baseline", b"a"), Purpose.PAIR),
        "CellMeasured.cell.case_id: b'a' is not allowed, only a string",
    ),
    (
        CellMeasured(1, Cell("baseline", "a"), "pair"),
        "CellMeasured.purpose: 'pair' is not allowed, only one of baseline_pass, aa, screen, pair, replicate",
    ),
    (
        CellMeasured(1, Cell("baseline", "a", flag_outcomes=[]), Purpose.PAIR),
        "CellMeasured.cell.flag_outcomes: [] is not allowed, only a tuple",
    ),
    (
        CellMeasured(1, Cell("baseline", "a", flag_outcomes=(("bad",),)), Purpose.PAIR),
        "CellMeasured.cell.flag_outcomes[0]: ('bad',) is not allowed, only a tuple of 2",
    ),
    (
        CellMeasured(1, Cell("baseline", "a", flag_outcomes=(("x", None), ("y", 0))), Purpose.PAIR),
        "CellMeasured.cell.flag_outcomes[1][1]: 0 is not allowed, only true or false, or null for unknown",
    ),
    (CellMeasured(1, None, Purpose.PAIR), "CellMeasured.cell: None is not allowed, only a Cell"),
    (ReplicateStarted(1, 1.0, 10**5000), "ReplicateStarted: cannot be written as JSON"),
]


@pytest.mark.parametrize(("event", "message"), REFUSED, ids=[message[:60] for _, message in REFUSED])
def test_a_value_that_is_not_what_its_field_declares_is_refused_by_name(event, message):
    with pytest.raises(CodecError) as caught:
        encode_event(event)
    assert str(caught.value).startswith(message)


def test_what_is_no_event_is_refused():
    with pytest.raises(
        CodecError, match=r"CheckOutcome.* is not allowed, only one of Planned, EpochSeen, CellMeasured"
    ):
        encode_event(CheckOutcome("c", "1", True))


def without(event, **changes):
    plain = json.loads(encode_event(event))
    plain.update(changes)
    return json.dumps({key: value for key, value in plain.items() if value != "drop"}).encode()


NEWER = [
    (without(DeadlinePassed(1.0), temperature=3), "DeadlinePassed: field temperature is not known here, only at"),
    (without(DeadlinePassed(1.0), kind="CellPainted"), "event: kind 'CellPainted' is not known here, only one of"),
    (
        without(CellMeasured(1, Cell("b", "a"), Purpose.AA), purpose="guess"),
        "CellMeasured.purpose: 'guess' is not known here, only one of baseline_pass",
    ),
]


@pytest.mark.parametrize(("payload", "message"), NEWER, ids=[message for _, message in NEWER])
def test_what_only_a_newer_version_knows_is_refused_and_named(payload, message):
    with pytest.raises(NewerFormatError) as caught:
        decode_event(payload)
    assert str(caught.value).startswith(message)


MALFORMED = [
    (b"", "event: not JSON"),
    (b"\xff", "event: not JSON"),
    (b"[]", "event: [] is not allowed, only an object with a kind"),
    (b'{"at":1}', "event: {'at': 1} is not allowed, only an object with a kind"),
    (b'{"kind":"DeadlinePassed"}', "DeadlinePassed: field at is missing"),
    (b'{"kind":"DeadlinePassed","at":NaN}', "NaN is not allowed"),
    (b'{"kind":"DeadlinePassed","at":-Infinity}', "-Infinity is not allowed"),
    (b'{"kind":"DeadlinePassed","at":1e400}', "DeadlinePassed.at: inf is not allowed"),
    (b'{"kind":"DeadlinePassed","at":null}', "DeadlinePassed.at: None is not allowed"),
    (b'{"kind":"DeadlinePassed","at":1,"at":2}', "an object holds a key twice: at, at, kind"),
    (
        without(CellMeasured(1, Cell("b", "a"), Purpose.AA), cell=[]),
        "CellMeasured.cell: [] is not allowed, only a Cell",
    ),
]


@pytest.mark.parametrize(("payload", "message"), MALFORMED, ids=[message for _, message in MALFORMED])
def test_malformed_bytes_are_refused_as_damage_and_not_as_something_newer(payload, message):
    with pytest.raises(CodecError) as caught:
        decode_event(payload)
    assert type(caught.value) is CodecError
    assert str(caught.value).startswith(message)


def test_a_field_that_was_added_later_takes_its_default_in_an_old_event():
    event = CellMeasured(1, Cell("baseline", "a"), Purpose.AA)
    assert decode_event(without(event, attempt="drop", draft_tokens="drop")) == event
    policy = Policy("quick", 0.2, 0.05, (16, 25), 150)
    plain = json.loads(dumps(policy, Policy))
    del plain["alarm"], plain["flags"]
    assert loads(json.dumps(plain).encode(), Policy) == policy


@dataclasses.dataclass(frozen=True)
class WithList:
    items: list[int]


@dataclasses.dataclass(frozen=True)
class WithKind:
    kind: str


@dataclasses.dataclass(frozen=True)
class WithChoice:
    value: int | str


@pytest.mark.parametrize(
    ("value", "message"), [(WithList([1]), "list"), (WithKind("x"), "kind"), (WithChoice(1), "tell apart")]
)
def test_a_dataclass_the_codec_could_not_read_back_is_refused_when_it_is_first_used(value, message):
    with pytest.raises(TypeError, match=message):
        dumps(value, type(value))


@dataclasses.dataclass(frozen=True)
class Box:
    event: DeadlinePassed | ReplicateStarted | None = None
    cell: Cell | None = None


@pytest.mark.parametrize("box", [Box(), Box(DeadlinePassed(1.5)), Box(ReplicateStarted(1, 2.0, 3), Cell("b", "c"))])
def test_any_dataclass_of_the_core_goes_through_the_same_codec(box):
    assert loads(dumps(box, Box), Box) == box
