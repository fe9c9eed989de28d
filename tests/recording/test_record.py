"""`replayset record` between a client and a server: nothing on the way changes, and what is kept is a replay set."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from aiohttp import web

from prefillgate.cli.main import main
from prefillgate.hosts.llama_server import LlamaServer
from prefillgate.replay.replay_set import load_replay_set
from tests.support.recording import Recording
from tests.support.serving import serving
from tests.support.simulated import free_port, start_simulated
from tests.support.ways import http_proxy, tls_front

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def chat(content: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 8, "temperature": 0, **more}


def post(url: str, body: Any, path: str = CHAT, **more: Any) -> httpx.Response:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json", **more.pop("headers", {})}
    with httpx.Client(timeout=120, trust_env=False) as client:
        return client.post(url + path, content=sent, headers=headers, **more)


def contents(recording: Recording) -> list[str]:
    return [case["body"]["messages"][0]["content"] for case in recording.cases()]


def without_what_changes(reply: bytes) -> bytes:
    """A reply's bytes without ids and times, which a server makes anew for each request."""
    text = re.sub(rb'"(created|id|seed)":\s*("[^"]*"|\d+)', b'"\\1":0', reply)
    return re.sub(rb'"timings":\s*\{[^}]*\}', b'"timings":0', text)


def test_replies_are_the_servers_byte_for_byte_streamed_and_not_with_the_real_server(
    llama: LlamaServer, tmp_path: Path
) -> None:
    with Recording(llama.url, tmp_path / "set.jsonl") as recording:
        for stream in (False, True):
            body = {"prompt": f"One two three {stream}", "max_tokens": 6, "temperature": 0, "stream": stream}
            body["cache_prompt"] = False
            straight, through = (post(url, body, COMPLETIONS) for url in (llama.url, recording.url))
            assert through.status_code == straight.status_code == 200
            assert without_what_changes(through.content) == without_what_changes(straight.content)
            assert through.headers["content-type"] == straight.headers["content-type"]
            assert ("content-length" in through.headers) is ("content-length" in straight.headers)
        for path in ("/health", "/v1/models", "/props", "/no/such/route?x=%20%2F"):
            straight, through = (httpx.get(url + path, trust_env=False) for url in (llama.url, recording.url))
            assert (through.status_code, len(through.content)) == (straight.status_code, len(straight.content))
        refused = post(recording.url, {"prompt": 7, "max_tokens": "x"}, COMPLETIONS)
        assert refused.content == post(llama.url, {"prompt": 7, "max_tokens": "x"}, COMPLETIONS).content
        assert refused.status_code >= 400
        assert recording.stop() == 130
        assert len(recording.cases()) == 2
        assert f"3 requests: 2 kept, 1 not answered with 200 (1 with {refused.status_code})" in recording.said


def test_a_recorded_set_lints_and_is_tried_on_the_server_it_came_from(
    llama: LlamaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "set.jsonl"
    with Recording(llama.url, output) as recording:
        for number in range(2):
            body = {"prompt": f"Count: {number}, mail a{number}@b.co,", "max_tokens": 4, "temperature": 0}
            assert post(recording.url, body, COMPLETIONS).status_code == 200
        assert recording.stop() == 130
    assert main(["replayset", "lint", str(output)]) == 0
    code = main(["replayset", "try", str(output), "--server", llama.url, "--json"])
    tried = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code in (0, 10)
    assert [case["status"] in ("clean", "bad") for case in tried["cases"]] == [True, True]
    assert "scrubbed: 2 email" in recording.said


def test_many_clients_at_once_each_get_their_own_answer(tmp_path: Path) -> None:
    with start_simulated(seed=4, slots=8) as server, Recording(server.url, tmp_path / "set.jsonl") as recording:
        bodies = [chat(f"question {number}", stream=bool(number % 2)) for number in range(40)]
        with ThreadPoolExecutor(8) as pool:
            through = list(pool.map(lambda body: post(recording.url, body), bodies))
        assert {reply.status_code for reply in through} == {200}
        assert recording.stop() == 130
        assert sorted(contents(recording)) == sorted(body["messages"][0]["content"] for body in bodies)
        truth = server.truth()
        assert len(truth) == 40  # each was sent once
        assert all(
            (body["stream"], b"[DONE]" in reply.content) in ((True, True), (False, False))
            for body, reply in zip(bodies, through, strict=True)
        )


async def echo(request: web.Request) -> web.Response:
    """What arrived."""
    headers = [[name, value] for name, value in request.headers.items()]
    body = await request.read()
    seen = {"method": request.method, "path": request.raw_path, "headers": headers, "body": body.decode("latin-1")}
    return web.json_response(seen, headers={"Set-Cookie": "a=1", "X-Two": "2", "Connection": "X-Two"})


@pytest.fixture
def echoing() -> Any:
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", echo)
    with serving(app) as url:
        yield url


def arrived(reply: httpx.Response) -> dict[str, Any]:
    seen: dict[str, Any] = reply.json()
    seen["headers"] = {name.lower(): value for name, value in seen["headers"]}
    return seen


def test_a_request_arrives_as_it_was_sent_and_only_headers_of_the_connection_stay_behind(
    echoing: str, tmp_path: Path
) -> None:
    with Recording(f"{echoing}/prefix/v1", tmp_path / "set.jsonl") as recording:
        headers = {"Authorization": "Bearer k1", "X-Mine": "yes", "Connection": "X-Gone", "X-Gone": "1"}
        odd = b'{"prompt" :\n "x\\u00e9" , "max_tokens":1}'
        seen = arrived(post(recording.url, odd, f"{COMPLETIONS}?a=%2F+b", headers=headers))
        assert (seen["method"], seen["path"]) == ("POST", f"/prefix{COMPLETIONS}?a=%2F+b")
        assert seen["body"].encode("latin-1") == odd
        assert seen["headers"]["authorization"] == "Bearer k1"
        assert seen["headers"]["x-mine"] == "yes"
        assert "x-gone" not in seen["headers"]
        assert seen["headers"]["host"] == echoing.removeprefix("http://")
        reply = httpx.request("DELETE", f"{recording.url}/v1/files/7", trust_env=False, headers={"accept": "x/y"})
        assert arrived(reply)["headers"]["accept"] == "x/y"
        assert arrived(reply)["method"] == "DELETE"
        assert reply.headers["set-cookie"] == "a=1" and "x-two" not in reply.headers
        recording.stop()
        kept = recording.output.read_text()
        assert "k1" not in kept and "authorization" not in kept.lower()
        assert recording.cases()[0]["body"] == {"prompt": "xé", "max_tokens": 1}


def test_the_upstreams_own_key_and_headers_replace_the_clients(echoing: str, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("X-Org: mine\n")
    options = ("--upstream-api-key-env", "UP_KEY", "--upstream-header-file", str(tmp_path / "headers"))
    environment = {"UP_KEY": "real-upstream-key"}
    with Recording(echoing, tmp_path / "set.jsonl", *options, environment=environment) as recording:
        body = chat("my key is real-upstream-key, theirs is client-own-key")
        headers = {"Authorization": "Bearer client-own-key", "X-Org": "theirs"}
        seen = arrived(post(recording.url, body, headers=headers))
        assert seen["headers"]["authorization"] == "Bearer real-upstream-key"
        assert seen["headers"]["x-org"] == "mine"
        recording.stop()
    assert "scrubbed: 2 known-secret" in recording.said
    assert not any(word in (tmp_path / "set.jsonl").read_text() for word in ("real-upstream", "client-own"))
    assert not any("real-upstream-key" in line for line in recording.said)


def test_a_body_above_the_limit_passes_whole_and_is_not_kept(echoing: str, tmp_path: Path) -> None:
    with Recording(echoing, tmp_path / "set.jsonl", "--max-body", "0.01") as recording:
        large = chat("x" * 3_000_000)
        assert len(arrived(post(recording.url, large))["body"]) == len(json.dumps(large))
        assert post(recording.url, chat("small")).status_code == 200
        recording.stop()
    assert contents(recording) == ["small"]
    assert "2 requests: 1 kept, 1 with a body above --max-body" in recording.said


def test_hostile_bodies_reach_the_server_and_never_the_file(echoing: str, tmp_path: Path) -> None:
    hostile = [b"", b"{", b"\x00\xff", b"[" * 200_000, b'{"messages": "x"}', b'{"messages":[{"role":"user"}],"n":NaN}']
    with Recording(echoing, tmp_path / "set.jsonl") as recording:
        for body in hostile:
            assert arrived(post(recording.url, body))["body"].encode("latin-1") == body
        assert post(recording.url, chat("fine")).status_code == 200
        recording.stop()
    assert contents(recording) == ["fine"]
    assert "7 requests: 1 kept, 6 that are no case of a replay set" in recording.said


class Streaming:
    """A server that sends one chunk, waits to be told, and notes who went away."""

    def __init__(self) -> None:
        self.requests = 0
        self.go, self.left = asyncio.Event(), asyncio.Event()
        self.break_off = False

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_post(CHAT, self.handle)
        return app

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: first\n\n")
        if self.break_off:
            assert request.transport is not None
            request.transport.close()
            return response
        while not self.go.is_set():
            if request.transport is None or request.transport.is_closing():
                self.left.set()
                return response
            await asyncio.sleep(0.01)
        await response.write(b"data: second\n\n")
        return response


async def started(streaming: Streaming) -> AsyncIterator[str]:
    runner = web.AppRunner(streaming.application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def recording_of(url: str, output: Path) -> Recording:
    return await asyncio.to_thread(Recording, url, output)


@asynccontextmanager
async def streamed(recording: Recording) -> AsyncIterator[httpx.Response]:
    async with (
        httpx.AsyncClient(trust_env=False, timeout=60) as client,
        client.stream("POST", recording.url + CHAT, json=chat("x")) as reply,
    ):
        yield reply


async def test_a_chunk_comes_through_before_the_next_is_made(tmp_path: Path) -> None:
    streaming = Streaming()
    async for url in started(streaming):
        recording = await recording_of(url, tmp_path / "set.jsonl")
        async with streamed(recording) as reply:
            chunks = reply.aiter_raw()
            assert await anext(chunks) == b"data: first\n\n"
            streaming.go.set()
            assert await anext(chunks) == b"data: second\n\n"
        await asyncio.to_thread(recording.stop)
        assert streaming.requests == 1


async def test_a_client_that_goes_away_is_gone_for_the_server_too(tmp_path: Path) -> None:
    streaming = Streaming()
    async for url in started(streaming):
        recording = await recording_of(url, tmp_path / "set.jsonl")
        async with streamed(recording) as reply:
            await anext(reply.aiter_raw())
        await asyncio.wait_for(streaming.left.wait(), 60)
        await asyncio.to_thread(recording.stop)
        assert streaming.requests == 1


async def test_a_server_that_breaks_off_is_no_complete_answer_and_is_not_asked_again(tmp_path: Path) -> None:
    streaming = Streaming()
    streaming.break_off = True
    async for url in started(streaming):
        recording = await recording_of(url, tmp_path / "set.jsonl")
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post(recording.url + CHAT, json=chat("x"))
        await asyncio.to_thread(recording.stop)
        assert streaming.requests == 1


async def test_ctrl_c_lets_an_answer_under_way_come_to_its_end(tmp_path: Path) -> None:
    streaming = Streaming()
    async for url in started(streaming):
        recording = await recording_of(url, tmp_path / "set.jsonl")
        async with streamed(recording) as reply:
            chunks = reply.aiter_raw()
            await anext(chunks)
            ending = asyncio.create_task(asyncio.to_thread(recording.stop))
            await asyncio.sleep(0.5)
            streaming.go.set()
            assert await anext(chunks) == b"data: second\n\n"
        assert await ending == 130
        assert contents(recording) == ["x"]


def wait_until_deaf(url: str) -> None:
    """Return once it takes no connections any more: it has heard that it is to end."""
    with contextlib.suppress(ConnectionRefusedError):
        while True:
            socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30).close()
            time.sleep(0.02)


async def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    streaming = Streaming()
    async for url in started(streaming):
        recording = await recording_of(url, tmp_path / "set.jsonl")
        async with streamed(recording) as reply:
            chunks = reply.aiter_raw()  # held: an iterator that is forgotten hangs up, and then nothing is under way
            await anext(chunks)
            os.kill(recording.pid, signal.SIGINT)
            await asyncio.to_thread(wait_until_deaf, recording.url)
            assert await asyncio.to_thread(recording.stop) == 130
        await asyncio.wait_for(streaming.left.wait(), 60)
        assert "1 request: 1 kept" in recording.said


def test_a_server_that_is_not_there_is_502_in_its_own_words_and_asked_once(tmp_path: Path) -> None:
    with Recording(f"http://127.0.0.1:{free_port()}", tmp_path / "set.jsonl") as recording:
        reply = post(recording.url, chat("x"))
        assert reply.status_code == 502
        assert "the server behind this recorder: Cannot connect" in reply.json()["error"]["message"]
        httpx.get(f"{recording.url}/v1/models", trust_env=False)
        assert recording.stop(signal.SIGTERM) == 143
    assert recording.cases() == []
    assert recording.said[-2] == "1 request: 0 kept, 1 that the server did not answer"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "it closed the connection before its answer was there"),
        (b"HTTP/1.1 2", "it closed the connection before its answer was there"),
        (b"key sk-of-the-server\r\n\r\n", "what it answered is no HTTP (ClientResponseError)"),
    ],
)
async def test_an_answer_that_is_no_http_is_502_unquoted_and_counted(answer: bytes, words: str, tmp_path: Path) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        recording = await asyncio.to_thread(Recording, url, tmp_path / "set.jsonl")
        with recording:
            reply = await asyncio.to_thread(post, recording.url, chat("x"))
            await asyncio.to_thread(recording.stop)
    assert (reply.status_code, reply.json()["error"]["message"]) == (502, f"the server behind this recorder: {words}")
    assert recording.said[-2] == "1 request: 0 kept, 1 that the server did not answer"


def test_what_was_refused_is_counted_by_its_status_and_not_kept(tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=(await request.json())["max_tokens"])

    app = web.Application()
    app.router.add_post(CHAT, refuse)
    with serving(app) as url, Recording(url, tmp_path / "set.jsonl") as recording:
        for status in (429, 200, 503, 429):
            assert post(recording.url, {**chat(f"q{status}"), "max_tokens": status}).status_code == status
        recording.stop()
    assert contents(recording) == ["q200"]
    assert "4 requests: 1 kept, 3 not answered with 200 (2 with 429, 1 with 503)" in recording.said


def test_sample_max_cases_and_no_scrub_do_what_they_say(echoing: str, tmp_path: Path) -> None:
    for name, arguments, least, most in (("a", ("--sample", "0.5"), 3, 37), ("b", ("--max-cases", "4"), 4, 4)):
        with Recording(echoing, tmp_path / name, *arguments) as recording:
            for number in range(40):
                post(recording.url, chat(f"q{number}"))
            recording.stop()
        assert least <= len(recording.cases()) <= most
    with Recording(echoing, tmp_path / "c", "--no-scrub") as recording:
        post(recording.url, chat("to a@b.co"))
        recording.stop()
    assert contents(recording) == ["to a@b.co"]
    assert "warning: --no-scrub keeps secrets and addresses as they are" in recording.said
    assert not any(line.startswith("scrubbed") for line in recording.said)
    assert not (tmp_path / "c.scrub-key").exists()


def test_counts_are_printed_while_they_change(echoing: str, tmp_path: Path) -> None:
    with Recording(echoing, tmp_path / "a", "--tell-every", "1") as recording:
        post(recording.url, chat("x"))
        while "1 request: 1 kept" not in recording.said:
            time.sleep(0.01)
        recording.stop()


def test_killed_it_goes_on_with_the_same_file_and_equal_secrets_stay_equal(echoing: str, tmp_path: Path) -> None:
    output = tmp_path / "set.jsonl"
    with Recording(echoing, output) as recording:
        post(recording.url, chat("first of a@b.co"))
        while not recording.cases():
            time.sleep(0.01)
        recording.kill()
    with output.open("ab") as file:
        file.write(b'{"custom_id": "torn')
    with Recording(echoing, output) as recording:
        post(recording.url, chat("first of a@b.co"))
        post(recording.url, chat("second of a@b.co"))
        recording.stop()
    first, second = contents(recording)
    assert first.split()[-1] == second.split()[-1]
    assert f"{output}: its last line was torn; 19 bytes were cut" in recording.said
    assert "2 requests: 1 kept, 1 with a prompt that is kept already" in recording.said
    assert len(load_replay_set(output).cases) == 2


def record(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prefillgate", "replayset", "record", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_an_upstream_that_is_the_recorder_itself_is_refused(tmp_path: Path) -> None:
    port = free_port()
    for host, listen in (
        ("127.0.0.1", str(port)),
        ("localhost", f"0.0.0.0:{port}"),
        ("127.0.0.1", f"127.0.0.1:{port}"),
    ):
        ended = record("--upstream", f"http://{host}:{port}/v1", "--listen", listen, "-o", str(tmp_path / "a"))
        assert ended.returncode == 2
        assert "that is where this recorder listens" in ended.stderr


BACK = web.AppKey("BACK", list[str])


async def passed_back(request: web.Request) -> web.Response:
    """Sends the request back to where it came from, as a proxy in a circle does."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        reply = await client.post(
            request.app[BACK][0] + CHAT, content=await request.read(), headers={"via": request.headers["via"]}
        )
    return web.Response(status=reply.status_code, body=reply.content, content_type="application/json")


def test_a_circle_over_another_proxy_is_broken(tmp_path: Path) -> None:
    back: list[str] = []
    app = web.Application()
    app[BACK] = back
    app.router.add_post(CHAT, passed_back)
    with serving(app) as url, Recording(url, tmp_path / "a") as recording:
        back.append(recording.url)
        reply = post(recording.url, chat("x"))
        assert reply.status_code == 508
        assert reply.json()["error"]["type"] == "upstream_is_this_recorder"
        recording.stop()


@pytest.mark.parametrize("listen", [":8080", "*:8080", "myhost:8080", "0.0.0.0", "127.0.0.1:x", "127.0.0.1:65536", ""])
def test_it_listens_beyond_this_machine_only_at_an_address_that_was_named(listen: str, tmp_path: Path) -> None:
    ended = record("--upstream", "http://127.0.0.1:1", "--listen", listen, "-o", str(tmp_path / "a"))
    assert ended.returncode == 2
    assert "--listen" in ended.stderr and "0.0.0.0:8088" in ended.stderr
    assert not (tmp_path / "a").exists()


def test_a_named_address_beyond_this_machine_is_listened_at_with_a_warning(tmp_path: Path) -> None:
    with Recording("http://127.0.0.1:1", tmp_path / "a", "--listen", "0.0.0.0:0") as recording:
        post(recording.url.replace("0.0.0.0", "127.0.0.1"), chat("x"))
        recording.stop()
    assert any("whoever reaches" in line and "with a key of their own" in line for line in recording.said)


def test_a_second_recorder_of_one_file_and_a_taken_port_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "set.jsonl"
    with Recording("http://127.0.0.1:1", output) as recording:
        ended = record("--upstream", "http://127.0.0.1:1", "--listen", "0", "-o", str(output))
        assert ended.returncode == 2 and "another recorder adds to it" in ended.stderr
        port = recording.url.rpartition(":")[2]
        ended = record("--upstream", "http://127.0.0.1:1", "--listen", port, "-o", str(tmp_path / "other"))
        assert ended.returncode == 1 and "cannot listen" in ended.stderr and "0 requests" not in ended.stderr
        recording.stop()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--upstream", "ftp://x"), "--upstream"),
        (("--upstream", "http://u:p@x"), "credentials"),
        (("--upstream-api-key-env", "NO_SUCH_KEY"), "NO_SUCH_KEY is not set"),
        (("--sample", "0"), "--sample"),
        (("--max-cases", "0"), "--max-cases"),
        (("--max-body", "17"), "--max-body"),
        (("-o", "/no/such/folder/x"), "there is no folder"),
    ],
)
def test_bad_input_is_named_before_anything_is_made(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    ended = record("--upstream", "http://127.0.0.1:1", "--listen", "0", "-o", str(tmp_path / "a"), *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_server_is_reached_by_tls_and_through_a_proxy_as_the_options_say(echoing: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("me@example.org")
    ca, cert = tmp_path / "ca.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(str(ca))
    own.private_key_and_cert_chain_pem.write_to_path(str(cert))
    with (
        tls_front(echoing, authority.issue_cert("server.internal"), trusted=authority) as front,
        http_proxy() as proxy,
    ):
        needed = {
            "--upstream-ca-file": str(ca),
            "--upstream-client-cert": str(cert),
            "--upstream-tls-server-name": "server.internal",
        }
        for left_out in (None, *needed):
            given = [word for name, value in needed.items() if name != left_out for word in (name, value)]
            given += ["--upstream-proxy", proxy.url]
            with Recording(front.url, tmp_path / "set.jsonl", *given) as recording:
                reply = post(recording.url, chat("x", stream=True))
                assert reply.status_code == (200 if left_out is None else 502), (left_out, reply.text)
                recording.stop()
        assert proxy.connections == 4
        insecure = ("--upstream-insecure", "--upstream-client-cert", str(cert))
        with Recording(front.url, tmp_path / "set.jsonl", *insecure) as recording:
            assert post(recording.url, chat("x")).status_code == 200
            recording.stop()
        assert proxy.connections == 4
        assert any("certificate was not checked" in line for line in recording.said)


def test_raw_sockets_that_talk_no_http_do_no_harm(echoing: str, tmp_path: Path) -> None:
    with Recording(echoing, tmp_path / "a") as recording:
        address = ("127.0.0.1", int(recording.url.rpartition(":")[2]))
        for data in (
            b"\x16\x03\x01",
            b"GET\r\n\r\n",
            b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\nx",
        ):
            with socket.create_connection(address) as talk:
                talk.sendall(data)
        assert post(recording.url, chat("still here")).status_code == 200
        recording.stop()
    assert contents(recording) == ["still here"]


def test_a_request_that_is_no_http_is_counted_and_never_quoted(echoing: str, tmp_path: Path) -> None:
    with Recording(echoing, tmp_path / "a") as recording:
        address = ("127.0.0.1", int(recording.url.rpartition(":")[2]))
        for data in (
            b"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer my-own-key\r\nContent-Length: -5\r\n\r\n",
            b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 1\r\n\r\n{my prompt}",
        ):
            with socket.create_connection(address) as talk:
                talk.sendall(data)
                while talk.recv(4096):
                    pass
        recording.stop()
    said = "\n".join(recording.said)
    assert "2 that are no HTTP" in said
    assert not any(word in said for word in ("Traceback", "my-own-key", "my prompt"))
