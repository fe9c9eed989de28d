"""Secrets and addresses out of a text: what is taken for one, what is left, and the placeholders."""

from __future__ import annotations

import hashlib
import hmac
import re

import pytest

from prefillgate.core.scrub import KINDS, PIECE_CHARACTERS, Scrubber, pieces

KEY = b"k" * 32
SK = "sk-" + "a1B2c3D4e5F6g7H8"


def placeholder(kind: str, found: str) -> str:
    return f"[{kind}-{hmac.new(KEY, found.encode(), hashlib.sha256).hexdigest()[:10]}]"


def scrub(text: str, *known: str) -> str:
    return Scrubber(KEY).text(text, known)


PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----"
PGP = "-----BEGIN PGP PRIVATE KEY BLOCK-----\nxyz\n-----END PGP PRIVATE KEY BLOCK-----"

FOUND = [
    ("private-key", "{}", PEM),
    ("private-key", "a {} b", PGP),
    ("private-key", "cut: {}", PEM[:60]),
    ("url-password", "postgres://app:{}@db:5432/x", "s3cr3t"),
    ("url-password", "redis://:{}@cache", "p%40ss"),
    ("bearer", "Authorization: Bearer {}", "abcdef12"),
    ("bearer", "bearer  {},", "0123456x.y_z~+/=-"),
    *(
        ("token", "x {} y", token)
        for token in (
            SK,
            "sk-ant-api03-abcdefgh_12345678",
            "sk_live_0123456789abcdef",
            "rk_test_0123456789abcdef",
            "ghp_0123456789abcdefghij",
            "github_pat_0123456789_abcdefghi",
            "glpat-0123456789abcdef",
            "xoxb-0123456789",
            "hf_0123456789abcdefghij",
            "gsk_0123456789abcdefghij",
            "nvapi-0123456789abcdefghij",
            "npm_0123456789abcdefghijabcdefghij",
            "pypi-0123456789abcdef",
            "AKIA0123456789ABCDEF",
            "ASIA0123456789ABCDEF",
            "AIza0123456789abcdefghijabcdefghij",
            "SG.0123456789abcdef.0123456789abcdef",
            "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln",
        )
    ),
    ("password", "password={}", "hunter"),
    ("password", '"passwd": "{}"', "correct-horse"),
    ("password", "PWD : '{}'", "abcdef"),
    ("password", "client_secret={};", "qwertz"),
    ("password", "secret_key = {}", "abc.def/ghi"),
    ("password", "passphrase={}", "x" * 256),
    ("key", "api_key={}", "abcd1234"),
    ("key", '{{"apiKey": "{}"}}', "abcd1234"),
    ("key", "token: {}", "9f8e7d6c"),
    ("key", "access-key={}", "z1" * 128),
    ("key", "credentials={}", "user1234"),
    ("email", "to {}, now", "first.last+tag@mail.example.org"),
    ("email", "<{}>", "a@b.co"),
    ("email", "({})", "x_y%z@a-b.c-d.museum"),
    ("ipv4", "at {}.", "10.0.0.255"),
    ("ipv4", "{}:8080", "192.168.1.1"),
    ("ipv4", "http://{}/x", "127.0.0.1"),
    ("ipv6", "[{}]:80", "2001:db8::1"),
    ("ipv6", "{}", "::1"),
    ("ipv6", "from {} to", "fe80:0:0:0:1:2:3:4"),
    ("ipv6", "{}", "::ffff:10.0.0.1"),
    ("ipv6", "{}", "::10.0.0.1"),
    ("ipv6", "{}", "fd00:1111:2222:3333:4444:5555:192.168.100.200"),
    ("ipv6", "{}", "fd00:1111:2222:3333:4444:5555:6666:7777"),
]


@pytest.mark.parametrize(("kind", "around", "found"), FOUND)
def test_what_looks_like_one_is_replaced_and_nothing_beside_it(kind: str, around: str, found: str) -> None:
    scrubber = Scrubber(KEY)
    assert scrubber.text(around.format(found)) == around.format(placeholder(kind, found))
    assert scrubber.counts == {kind: 1}


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PUBLIC KEY-----\nMIIE\n-----END PUBLIC KEY-----",
        "https://host:8080/path@x",
        "https://user:$PASSWORD@host",
        "a bearer certificate",
        "Bearer abcdefg",
        "the bearer 12345678 of it",
        "sk-short-1234",
        "task-abcdefghijklmnopqrst",
        "sk_prod_0123456789abcdef",
        "AKIA0123456789ABCDE",
        "password=short",
        "password=${DB_PASSWORD}",
        "password=getpass(x)",
        "password: <your password>",
        "password = [redacted1]",
        "password={{ secret }}",
        "pwd=*******",
        "pwd=%(pass)s",
        "pwd=&amp;x",
        "max_tokens: 12800000",
        "tokens=abcdefgh",
        "token=abc1234",
        "token = tokenize1(x)",
        "a@b",
        "@decorator.name",
        "a@b.c1",
        "10.0.0.256",
        "1.2.3",
        "1.2.3.4.5",
        "v1.2.3.4",
        "12:30:45",
        "aa:bb:cc:dd:ee:ff",
        "std::vector",
        "a :: b",
        "::",
        "1:2",
    ],
)
def test_what_only_resembles_one_is_left(text: str) -> None:
    scrubber = Scrubber(KEY)
    assert scrubber.text(text) == text
    assert not scrubber.counts


def test_six_characters_are_a_password_and_five_are_a_word() -> None:
    assert scrub("pwd=abcde") == "pwd=abcde"
    assert scrub("pwd=abcdef") == f"pwd={placeholder('password', 'abcdef')}"


def test_equal_things_get_equal_placeholders_and_other_keys_others() -> None:
    text = scrub("a@b.co, c@d.co, a@b.co")
    first, second, third = re.findall(r"\[email-[0-9a-f]{10}\]", text)
    assert first == third != second
    assert Scrubber(b"other").text("a@b.co") != scrub("a@b.co")


def test_every_find_is_counted() -> None:
    scrubber = Scrubber(KEY)
    scrubber.text("a@b.co c@d.co 10.0.0.1")
    scrubber.text("a@b.co")
    assert scrubber.counts == {"email": 3, "ipv4": 1}


def test_a_scrubbed_text_scrubs_to_itself() -> None:
    once = scrub("\n".join(around.format(found) for _, around, found in FOUND))
    scrubber = Scrubber(KEY)
    assert scrubber.text(once) == once
    assert not scrubber.counts


def test_a_known_secret_goes_whatever_it_looks_like_unless_a_kind_has_it_already() -> None:
    scrubber = Scrubber(KEY)
    assert scrubber.text(f"plainword and {SK} and plainword", ("plainword", SK, "", "absent")) == (
        f"{placeholder('known-secret', 'plainword')} and {placeholder('token', SK)} and "
        f"{placeholder('known-secret', 'plainword')}"
    )
    assert scrubber.counts == {"known-secret": 2, "token": 1}


def test_strings_anywhere_in_a_body_are_scrubbed_and_names_images_and_numbers_are_not() -> None:
    body = {
        "a@b.co": ["a@b.co", 7, None, True, 1.5],
        "deep": {"url": "data:image/png;base64,a@b.co", "text": "c@d.co known"},
    }
    scrubbed = Scrubber(KEY).value(body, ("known",))
    assert scrubbed == {
        "a@b.co": [placeholder("email", "a@b.co"), 7, None, True, 1.5],
        "deep": {
            "url": "data:image/png;base64,a@b.co",
            "text": f"{placeholder('email', 'c@d.co')} {placeholder('known-secret', 'known')}",
        },
    }
    assert body["a@b.co"][0] == "a@b.co"  # type: ignore[index]


def test_lone_surrogates_are_no_obstacle() -> None:
    assert scrub("pwd=\ud800abcdef").startswith("pwd=[password-")


def test_a_long_text_loses_nothing_where_it_is_cut() -> None:
    assert PIECE_CHARACTERS == 32_768
    line = "word a@b.co word\n"
    text = line * 10_000
    scrubber = Scrubber(KEY)
    assert scrubber.text(text) == line.replace("a@b.co", placeholder("email", "a@b.co")) * 10_000
    assert scrubber.counts == {"email": 10_000}
    long_line = "x " * 40_000 + "a@b.co"
    assert scrub(long_line).endswith(placeholder("email", "a@b.co"))


def test_a_text_is_cut_after_the_first_line_feed_a_piece_away() -> None:
    before, at, after = "a" * 32_767 + "\n", "b" * 32_768 + "\n", "c" * 32_769 + "\n"
    assert list(pieces("")) == [""]
    assert list(pieces(before)) == [before]
    assert list(pieces(before + "d")) == [before + "d"]
    assert list(pieces(at + "d")) == [at, "d"]
    assert list(pieces(after + before + "d\n" + at + "e")) == [after, before + "d\n", at, "e"]
    assert list(pieces("x" * 70_000)) == ["x" * 70_000]


def test_a_private_key_longer_than_a_piece_goes_whole() -> None:
    pem = PEM.replace("MIIE", "A\n" * 40_000)
    assert scrub(f"x{pem}y") == f"x{placeholder('private-key', pem)}y"


def test_the_kinds_are_those_that_are_counted() -> None:
    assert set(KINDS) == {kind for kind, _, _ in FOUND} | {"known-secret"}


@pytest.mark.parametrize(
    "hostile",
    [
        "a" * 200_000,
        "a." * 100_000 + "@",
        "a@" * 100_000,
        "://a:" * 50_000,
        "-----BEGIN PRIVATE KEY-----" * 10_000,
        "bearer " * 50_000,
        "eyJ" * 70_000,
        "eyJaaaaaaaa." * 20_000,
        "1." * 100_000,
        ":" * 200_000,
        "password" * 30_000,
        "api_key= " * 30_000,
        "f:" * 100_000,
    ],
)
def test_hostile_texts_are_read_in_linear_time(hostile: str) -> None:
    assert isinstance(scrub(hostile), str)  # a quadratic pattern would take minutes and hit the time limit


def test_a_scrubber_that_is_printed_does_not_tell_its_key() -> None:
    assert repr(Scrubber(KEY)) == "Scrubber(counts=Counter())"


def test_kinds_that_are_left_are_left_and_the_others_are_not() -> None:
    text = f"10.0.0.1 a@b.co {SK}"
    assert Scrubber(KEY, left=frozenset({"ipv4", "email"})).text(text) == f"10.0.0.1 a@b.co {placeholder('token', SK)}"
    assert Scrubber(KEY, left=frozenset()).text(text) == scrub(text) != text
