"""Connections to judged addresses over real sockets, by names that are another address the next time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import trustme

from prefillgate.api.access import Access, Held, HeldAccess
from prefillgate.api.addresses import AddressRules, networks
from prefillgate.app.observe.fetching import NotFetched, fetched
from prefillgate.app.observe.reach import refusal
from prefillgate.engines.access import AccessError, engine_options
from prefillgate.engines.http import HttpLane, Sent

NAME = "llm.example"
OURS, OTHERS, NOBODY = "127.0.0.2", "127.0.0.1", "127.0.0.3"
RULES = AddressRules(networks([f"{OURS}/32", f"{NOBODY}/32"]))
BODY = b'{"object": "list", "data": []}'


@dataclass
class Heard:
    """A server on an address, and the heads of the requests that it got."""

    port: int = 0
    heads: list[bytes] = field(default_factory=list)


@contextlib.asynccontextmanager
async def served(address: str, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Heard]:
    heard = Heard()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            heard.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, address, port, ssl=tls)
    heard.port = server.sockets[0].getsockname()[1]
    try:
        yield heard
    finally:
        server.close()


Answers = Callable[..., list[tuple[str, ...]]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """The name server: what the name is at each question, in turn; nothing once all were given."""
    real, left = socket.getaddrinfo, list[tuple[str, ...]]()

    def asked(host: Any, *more: Any, **named: Any) -> Any:
        if host not in (NAME, NAME.encode()):
            return real(host, *more, **named)
        if not left or not left[0]:
            del left[:1]
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        port = named.get("port", more[0] if more else 0) or 0
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in left.pop(0)]

    def told(*given: tuple[str, ...]) -> list[tuple[str, ...]]:
        left[:] = given
        return left

    monkeypatch.setattr(socket, "getaddrinfo", asked)
    return told


async def posted(url: str, access: Access) -> Sent:
    async with HttpLane(url, engine_options(access, None, {})) as lane:
        return await lane.post("/v1/completions", b"{}", 10.0, lambda chunk: False)


async def test_what_was_judged_is_what_is_asked_whatever_the_name_is_a_moment_later(answers: Answers) -> None:
    access = Access(addresses=RULES)
    async with served(OURS) as ours, served(OTHERS, ours.port) as others:
        url = f"http://{NAME}:{ours.port}"
        left = answers((OURS,), (OTHERS,))
        assert await refusal(url, access, 5.0) is None
        assert left == [(OTHERS,)]  # it was looked up once
        said = await refusal(url, access, 5.0)
        assert said is not None
        assert f"{NAME} is {OTHERS}, and must not be asked" in said
        answers((OURS,), (OTHERS,), (OURS, OTHERS))
        assert (await posted(url, access)).http_status == 200
        for _ in range(2):  # one forbidden address of several is enough
            sent = await posted(url, access)
            assert sent.failure is not None
            assert (sent.failure.reason, sent.accepted) == ("AddressForbidden", False)
    assert others.heads == []
    assert len(ours.heads) == 2
    assert all(f"host: {NAME}:{ours.port}\r\n".encode() in head.lower() for head in ours.heads)


async def test_a_replay_set_is_fetched_from_the_address_that_was_judged(answers: Answers) -> None:
    async with served(OURS) as ours, served(OTHERS, ours.port) as others:
        url = f"http://{NAME}:{ours.port}/set.jsonl"
        answers((OURS,), (OTHERS,))
        assert await fetched(url, Access(), RULES, 1000) == BODY
        with pytest.raises(NotFetched, match="must not be asked") as refused:
            await fetched(url, Access(), RULES, 1000)
        assert refused.value.reason == "EndpointForbidden"
        answers(())
        with pytest.raises(NotFetched, match=f"the name {NAME} cannot be resolved") as unknown:
            await fetched(url, Access(), RULES, 1000)
        assert (unknown.value.reason, unknown.value.again) == ("CasesNotFound", True)
    assert others.heads == []


async def test_a_name_that_is_not_known_now_is_refused_and_asked_once_it_is(answers: Answers) -> None:
    access = Access(addresses=RULES)
    async with served(OURS) as ours:
        url = f"http://{NAME}:{ours.port}"
        left = answers((), (OURS,))
        said = await refusal(url, access, 5.0)
        assert said == (
            f"{url}: the name {NAME} cannot be resolved: is it spelled right, and does the cluster's DNS know it?"
        )
        assert left == [(OURS,)]
        assert await refusal(url, access, 5.0) is None


async def test_the_next_address_of_a_name_is_asked_where_one_takes_no_connection(answers: Answers) -> None:
    async with served(OURS) as ours:
        answers((NOBODY, OURS), (NOBODY,))
        url = f"http://{NAME}:{ours.port}"
        assert (await posted(url, Access(addresses=RULES))).http_status == 200
        said = await refusal(url, Access(addresses=RULES), 5.0)
        assert "nothing listens at this port" in str(said)


async def test_a_certificate_bears_the_name_and_not_the_address(answers: Answers) -> None:
    authority = trustme.CA()
    access = Access(addresses=RULES, held=HeldAccess(ca=Held("ca", authority.cert_pem.bytes())))
    for names, words in (((NAME,), None), ((OURS, "other.example"), "tlsServerName names what it bears")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*names).configure_cert(context)
        async with served(OURS, tls=context) as ours:
            answers((OURS,))
            said = await refusal(f"https://{NAME}:{ours.port}", access, 5.0)
            assert said is None if words is None else words in str(said)


async def test_an_address_is_judged_as_a_name_is() -> None:
    async with served(OURS) as ours, served(OTHERS, ours.port) as others:
        assert (await posted(f"http://{OURS}:{ours.port}", Access(addresses=RULES))).http_status == 200
        sent = await posted(f"http://{OTHERS}:{ours.port}", Access(addresses=RULES))
        assert sent.failure is not None
        assert sent.failure.reason == "AddressForbidden"
        assert (await posted(f"http://{OTHERS}:{ours.port}", Access())).http_status == 200  # nobody judges
    assert len(others.heads) == 1


def test_a_proxy_resolves_names_by_itself_and_is_refused_where_addresses_are_judged() -> None:
    with pytest.raises(AccessError, match="addresses are to be judged"):
        engine_options(Access(addresses=RULES, proxy="http://proxy:3128"), None, {})
