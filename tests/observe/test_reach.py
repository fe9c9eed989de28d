"""Whether a server can be reached, and what is told where it cannot: the likely cause, and the field that mends it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trustme

from prefillgate.api.access import Access, Held, HeldAccess
from prefillgate.api.addresses import AddressRules, networks
from prefillgate.app.observe.reach import Reach, Reached, refusal
from prefillgate.app.observe.settings import ProbePace
from prefillgate.reconcile.snapshot import ArmSeen, ServerSeen
from tests.support.manual_clock import ManualClock, until

MODELS = b'{"object": "list", "data": [{"id": "m", "object": "model"}]}'
KEY = "the-key-that-is-sent"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HERE = AddressRules(networks(["127.0.0.0/8"]))


def answering(status: str, body: bytes = b"", head: str = "") -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    return talk


async def hanging_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@contextlib.asynccontextmanager
async def served(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server on a free port of 127.0.0.1."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


OK = answering("200 OK", MODELS)
WORDS: tuple[tuple[str, Talk, str], ...] = (
    (
        "401 Unauthorized",
        answering("401 Unauthorized"),
        "it answers 401: an API key is needed, or the one of apiKeySec",
    ),
    ("403 Forbidden", answering("403 Forbidden"), "it answers 403: an API key is needed"),
    ("404 Not Found", answering("404 Not Found"), "it answers 404 to /v1/models: is it the model server, and is path"),
    ("503", answering("503 Service Unavailable"), "it answers 503: it may still be loading"),
    ("a redirect", answering("302 Found", head="Location: https://x/\r\n"), "a redirect: name the address"),
    ("a page", answering("200 OK", b"<html>Sign in</html>"), "is no server of the OpenAI API. Is that its port"),
    ("an end", hanging_up, "mesh with strict mutual TLS"),
    ("silence", silent, "a NetworkPolicy may keep the controller out"),
)


@pytest.mark.parametrize(("what", "talk", "words"), WORDS, ids=[what for what, *_ in WORDS])
async def test_what_answers_wrongly_is_told_with_cause_and_remedy(what: str, talk: Talk, words: str) -> None:
    async with served(talk) as port:
        said = await refusal(f"http://127.0.0.1:{port}", Access(), 0.5 if talk is silent else 10.0)
    assert said is not None
    assert said.startswith(f"http://127.0.0.1:{port}: ")
    assert words in said


async def test_a_port_that_nothing_listens_at_is_told_as_that() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        said = await refusal(f"http://127.0.0.1:{free.getsockname()[1]}", Access(), 5.0)
    assert said is not None
    assert "nothing listens at this port" in said
    assert "not on localhost alone" in said


async def test_a_server_that_answers_is_reached_with_the_key_and_the_key_is_not_told_where_it_repeats_it() -> None:
    access = Access(held=HeldAccess(api_key=Held("Secret llm, key token", KEY.encode())))
    heard: list[bytes] = []

    async def noting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        body = b'{"error": "bad key ' + KEY.encode() + b'"}'
        writer.write(b"HTTP/1.1 401 No\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)

    async with served(OK) as port:
        assert await refusal(f"http://127.0.0.1:{port}", access, 5.0) is None
    async with served(noting) as port:
        said = await refusal(f"http://127.0.0.1:{port}", access, 5.0)
    assert f"authorization: Bearer {KEY}".encode().lower() in heard[0].lower()
    assert said is not None
    assert KEY not in said


def of(authority: trustme.CA, *names: str, client: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    if client is not None:
        client.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_tls_that_fails_is_told_by_the_field_that_mends_it() -> None:
    ours = trustme.CA()
    trusted = Access(held=HeldAccess(ca=Held("ca", ours.cert_pem.bytes())))
    async with served(OK, of(ours, "llm.example")) as port:
        url = f"https://127.0.0.1:{port}"
        assert "caBundleSecretRef names the authority" in str(await refusal(url, Access(), 5.0))
        assert "tlsServerName names what it bears" in str(await refusal(url, trusted, 5.0))
        named = Access(tls_server_name="llm.example", held=trusted.held)
        assert await refusal(url, named, 5.0) is None
        assert "is scheme: HTTPS wanted?" in str(await refusal(f"http://127.0.0.1:{port}", Access(), 5.0))
    async with served(OK) as port:
        assert "scheme: HTTP is wanted" in str(await refusal(f"https://127.0.0.1:{port}", trusted, 5.0))
    async with served(OK, of(ours, "127.0.0.1", client=trustme.CA())) as port:
        said = str(await refusal(f"https://127.0.0.1:{port}", trusted, 5.0))
        assert "clientCertificateSecretRef" in said
    assert "--" not in said  # nothing of the command line's options


class Asking:
    """A Reach on a clock that stands still, with one line whose arm has these servers."""

    def __init__(self, *ports: int, refusals: int = 3, rules: AddressRules = HERE) -> None:
        self.clock = ManualClock()
        self.told: list[str] = []
        pace = ProbePace(answer_seconds=5.0, refusals=refusals, first_seconds=1.0, longest_seconds=8.0)
        self.reach = Reach(rules, pace, self.clock, self.told.append)
        self.servers = [
            ServerSeen(f"pod-{n}", f"http://127.0.0.1:{port}", True, f"life-{n}") for n, port in enumerate(ports)
        ]
        self.access = Access()

    def seen(self) -> Reached:
        return self.reach.seen("ns/chat", ArmSeen("sha256:a", tuple(self.servers)), self.access)


async def test_an_arm_is_asked_in_the_background_and_the_line_is_told_once_it_answers() -> None:
    asked: list[int] = []

    async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(1)
        await OK(reader, writer)

    async with served(counting) as port:
        asking = Asking(port)
        assert asking.seen().arm.asked is False
        await until(lambda: asking.told)
        reached = asking.seen()
        assert (reached.arm.asked, reached.arm.unreachable, len(reached.arm.ready)) == (True, None, 1)
        for _ in range(3):  # who answered is not asked again
            asking.seen()
        asking.servers[0] = ServerSeen("pod-0", asking.servers[0].url, True, "another life")
        assert asking.seen().arm.asked is False
        await until(lambda: len(asking.told) == 2)
        asking.access = Access(host_header="llm")
        assert asking.seen().arm.asked is False
        await until(lambda: len(asking.told) == 3)
    assert (len(asked), asking.told) == (3, ["ns/chat"] * 3)


async def test_only_after_so_many_refusals_in_a_row_is_an_arm_unreachable_and_it_comes_back_by_itself() -> None:
    answers = [answering("503 Busy")] * 4 + [OK]

    async def by_turns(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answers.pop(0)(reader, writer)

    async with served(by_turns) as port:
        asking = Asking(port)
        for left in (4, 3):
            asking.seen()
            await until(lambda n=left: len(answers) == n and asking.clock.sleeping())
            assert asking.seen().arm == ArmSeen("sha256:a", tuple(asking.servers), asked=False)
            assert asking.told == []
            await asking.clock.advance(asking.clock.sleeping()[0])
        await until(lambda: asking.told)
        arm = asking.seen().arm
        assert arm.unreachable is not None
        assert "it answers 503" in arm.unreachable
        assert asking.told == ["ns/chat"]
        for _ in range(2):
            await until(asking.clock.sleeping)
            await asking.clock.advance(asking.clock.sleeping()[0])
        await until(lambda: len(asking.told) == 2)
        assert asking.seen().arm.unreachable is None


async def test_one_server_that_cannot_be_reached_is_not_asked_beside_one_that_can() -> None:
    async with served(OK) as good, served(answering("404 No")) as bad:
        asking = Asking(good, bad, refusals=1)
        asking.seen()
        await until(lambda: len(asking.told) == 2)
        arm = asking.seen().arm
    assert [each.name for each in arm.ready] == ["pod-0"]
    assert "404" in arm.servers[1].trouble
    assert arm.unreachable is None


async def test_an_address_that_is_forbidden_is_never_asked() -> None:
    asked: list[int] = []

    async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(1)

    async with served(counting) as port:
        asking = Asking(port, rules=AddressRules())
        asking.seen()
        await until(lambda: asking.told)
        reached = asking.seen()
    assert asked == []
    assert reached.forbidden is not None
    assert "--allow-address 127.0.0.1" in reached.forbidden


async def test_servers_that_are_gone_are_not_asked_any_more() -> None:
    async with served(answering("503 Busy")) as port:
        asking = Asking(port)
        asking.seen()
        await until(asking.clock.sleeping)
        asking.reach.keep("ns/chat", set())
        await until(lambda: not asking.clock.sleeping())
        assert asking.clock.sleeping() == []
