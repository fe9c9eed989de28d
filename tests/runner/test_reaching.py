"""How a server is reached: each option works for both arms and for one, and a run without it goes wrong."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web

from prefillgate.cli.main import main
from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE
from tests.support.rewriting import rewriting
from tests.support.runs import Bench, bench, ended, start, stored
from tests.support.simulated import SimulatedServer, free_port, start_simulated
from tests.support.ways import asking_for, http_proxy, tls_front

KEYS = {BASELINE: "old-key-0123456789-abcdef", CANDIDATE: "new-key-fedcba-9876543210"}
TOKEN = "blue-token-42424242-zyxwv"
NAME = "llm.internal.example"


@dataclass(frozen=True)
class Servers:
    """Two healthy servers, and a folder with keys, certificates and headers."""

    urls: dict[str, str]
    folder: Path
    authority: trustme.CA
    named: trustme.LeafCert  # for NAME alone
    local: trustme.LeafCert  # for 127.0.0.1


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("reaching")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other-ca.pem")
    client = authority.issue_cert("gate@example.com")
    client.cert_chain_pems[0].write_to_path(folder / "client.pem")
    client.private_key_pem.write_to_path(folder / "client.key")
    (folder / "headers").write_text(f"# ours\nX-Token: {TOKEN}\n", encoding="utf-8")
    (folder / "other-headers").write_text("X-Token: red\n", encoding="utf-8")
    with start_simulated(seed=1, text_seed=9) as baseline, start_simulated(seed=2, text_seed=9) as candidate:
        urls = {BASELINE: baseline.url, CANDIDATE: candidate.url}
        yield Servers(urls, folder, authority, authority.issue_cert(NAME), authority.issue_cert("127.0.0.1"))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A run of a few cells: five fresh prefills promote at this margin."""
    monkeypatch.chdir(tmp_path)
    for arm, key in KEYS.items():
        monkeypatch.setenv(f"{arm.upper()}_KEY", key)
    return bench(tmp_path, marginPercent=50, acceptance=[5, 9, 12], baselinePassPrefills=1, budgetPrefills=40)


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def gate(work: Bench, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `prefillgate run` in this process."""

    def run(urls: dict[str, str], *options: str) -> Ended:
        for old in work.folder.glob("run.*"):
            old.unlink()
        arguments = work.arguments(urls[BASELINE], urls[CANDIDATE], "--store", "run.db", "--json", "--quiet", *options)
        code = main(arguments)
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return run


@contextmanager
def behind(servers: Servers, what: str, arms: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The addresses of both servers, with `what` in front of those of `arms`."""
    with ExitStack() as stack:
        urls = dict(servers.urls)
        for arm in arms:
            url, way = servers.urls[arm], None
            if what == "header":
                way = stack.enter_context(asking_for(url, "X-Token", TOKEN))
            elif what == "client":
                way = stack.enter_context(tls_front(url, servers.local, servers.authority))
            elif what in ("ca", "insecure"):
                way = stack.enter_context(tls_front(url, servers.local))
            elif what == "name":
                way = stack.enter_context(tls_front(url, servers.named))
            assert way is not None
            urls[arm] = way.url
        yield urls


def options_of(servers: Servers, what: str) -> tuple[list[str], list[str]]:
    """The option under test, and what else that way needs."""
    ca = ["--ca-file", str(servers.folder / "ca.pem")]
    client = ["--client-cert", str(servers.folder / "client.pem"), "--client-key", str(servers.folder / "client.key")]
    return {
        "header": (["--header-file", str(servers.folder / "headers")], []),
        "ca": (ca, []),
        "client": (client, ca),
        "name": (["--tls-server-name", NAME], ca),
        "insecure": (["--insecure"], []),
    }[what]


def for_arm(arm: str, options: list[str]) -> list[str]:
    return [word.replace("--", f"--{arm}-", 1) if word.startswith("--") else word for word in options]


REFUSALS = {
    "header": "HTTP 403 (an API key is needed",
    "ca": "trust its authority with --ca-file",
    "client": "Tls",
    "name": "name what it bears with --tls-server-name",
    "insecure": "or measure without checking it with --insecure",
}


@pytest.mark.parametrize("what", REFUSALS)
def test_an_option_reaches_both_servers_and_without_it_neither_is(what: str, servers: Servers, gate: Any) -> None:
    given, besides = options_of(servers, what)
    with behind(servers, what, ARMS) as urls:
        reached = gate(urls, *given, *besides)

        refused = gate(urls, *besides)
    assert (reached.code, reached.json["decision"]) == (0, "promote"), reached.err
    assert refused.code == 1
    assert f"error: baseline: {urls[BASELINE]}" in refused.err
    assert REFUSALS[what] in refused.err


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("what", REFUSALS)
def test_an_option_of_one_arm_reaches_that_arm_alone(what: str, arm: str, servers: Servers, gate: Any) -> None:
    other = CANDIDATE if arm == BASELINE else BASELINE
    given, besides = options_of(servers, what)
    with behind(servers, what, (arm,)) as urls:
        reached = gate(urls, *for_arm(arm, given), *besides)
        refused = gate(urls, *for_arm(other, given), *besides)
    assert (reached.code, reached.json["decision"]) == (0, "promote"), reached.err
    assert refused.code == 1
    assert f"error: {arm}: {urls[arm]}" in refused.err
    assert REFUSALS[what] in refused.err


def test_the_option_of_an_arm_wins_over_the_one_for_both(servers: Servers, gate: Any) -> None:
    files = {name: str(servers.folder / name) for name in ("ca.pem", "other-ca.pem", "headers", "other-headers")}
    with behind(servers, "ca", (CANDIDATE,)) as urls:
        assert gate(urls, "--ca-file", files["other-ca.pem"], "--candidate-ca-file", files["ca.pem"]).code == 0
        assert gate(urls, "--ca-file", files["ca.pem"], "--candidate-ca-file", files["other-ca.pem"]).code == 1
    with behind(servers, "header", (BASELINE,)) as urls:
        assert gate(urls, "--header-file", files["other-headers"], "--baseline-header-file", files["headers"]).code == 0
        assert gate(urls, "--header-file", files["headers"], "--baseline-header-file", files["other-headers"]).code == 1


def test_each_arm_has_its_own_key_and_none_of_them_is_kept_anywhere(work: Bench, gate: Any) -> None:
    with (
        start_simulated({"K": KEYS[BASELINE]}, seed=1, text_seed=9, api_key_env="K") as baseline,
        start_simulated({"K": KEYS[CANDIDATE]}, seed=2, text_seed=9, api_key_env="K") as candidate,
    ):
        urls = {BASELINE: baseline.url, CANDIDATE: candidate.url}
        own = gate(urls, "--baseline-api-key-env", "BASELINE_KEY", "--candidate-api-key-env", "CANDIDATE_KEY")
        kept = everything(work.folder) + own.out.encode() + own.err.encode()
        wins = gate(urls, "--api-key-env", "BASELINE_KEY", "--candidate-api-key-env", "CANDIDATE_KEY")
        common = gate(urls, "--api-key-env", "BASELINE_KEY")
        none = gate(urls)
    assert (own.code, wins.code) == (0, 0)
    assert not any(key.encode() in kept for key in KEYS.values())
    assert (common.code, none.code) == (1, 1)
    assert f"error: candidate: {candidate.url}/v1/models: HTTP 401 (an API key is needed, or the one" in common.err
    assert f"error: baseline: {baseline.url}/v1/models: HTTP 401 (an API key is needed" in none.err
    assert KEYS[BASELINE] not in common.err


def everything(folder: Path) -> bytes:
    """The bytes of every file that a run left: store, journal, report."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name.startswith("run.")]
    assert {path.suffix for path in files} >= {".db", ".html"}
    return b"".join(path.read_bytes() for path in files)


def test_a_server_that_repeats_what_we_sent_does_not_bring_it_into_errors_or_evidence(
    servers: Servers, work: Bench, gate: Any
) -> None:
    (work.folder / "auth").write_text(f"X-Token: nearly-{TOKEN}\nX-Other: {KEYS[BASELINE]}\n", encoding="utf-8")
    with behind(servers, "header", ARMS) as urls:
        refused = gate(urls, "--header-file", "auth")
    assert refused.code == 1
    assert "you sent: GET /v1/models" in refused.err
    assert TOKEN not in refused.err and KEYS[BASELINE] not in refused.err

    async def repeat(request: web.Request, body: bytes) -> bytes:
        answer = json.loads(body)
        return json.dumps(answer | {"debug": {"headers": dict(request.headers)}}).encode()

    async def refuse(request: web.Request, body: bytes) -> web.Response:
        return web.json_response({"error": {"message": f"who is {request.headers['X-Token']}?"}}, status=400)

    headers = str(servers.folder / "headers")
    with (
        rewriting(servers.urls[BASELINE], {"/v1/completions": refuse}) as refusing,
        rewriting(servers.urls[CANDIDATE], {"/props": repeat}) as repeating,
    ):
        run = gate({BASELINE: refusing, CANDIDATE: repeating}, "--header-file", headers)
    assert (run.code, TOKEN in run.err) == (1, False)
    assert "who is [secret]?" in run.err

    async def comment(request: web.Request, body: bytes) -> web.Response:
        said = f": you sent {request.headers['X-Token']}\n\n".encode() if body.startswith(b"data:") else b""
        return web.Response(body=said + body, content_type="text/event-stream" if said else "application/json")

    with rewriting(servers.urls[CANDIDATE], {"/v1/completions": comment}) as commenting:
        run = gate({**servers.urls, CANDIDATE: commenting}, "--header-file", headers)
    kept = everything(work.folder)
    assert (run.code, TOKEN.encode() in kept) == (0, False)
    texts = stored(work.folder / "run.db")[1].values()
    assert any(": you sent [secret]" in text.response for text in texts)


def test_what_was_not_checked_is_said_in_the_verdict_of_the_arm_it_is_true_of(
    servers: Servers, work: Bench, gate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = "candidate: the server's certificate was not checked (--insecure)"
    with behind(servers, "insecure", (CANDIDATE,)) as urls:
        run = gate(urls, "--insecure")
        insecure = (work.folder / "run.html").read_text(encoding="utf-8")
        assert main(["decide", "run.db"]) == 0
        screen = capsys.readouterr().out
        trusted = gate(urls, "--ca-file", str(servers.folder / "ca.pem"))
    assert [note for note in run.json["notes"] if "--insecure" in note] == [
        f"{finding}: whoever answered may be another server"
    ]
    assert f"{finding}: whoever" in run.err
    assert not any("--insecure" in note for note in trusted.json["notes"])
    assert "was not checked (--insecure)" in insecure
    assert "candidate: the server's certificate was not checked (--insecure)" in " ".join(screen.split())
    assert finding.split(": ", 1)[1] not in (work.folder / "run.html").read_text(encoding="utf-8")


# -- proxies


def test_a_proxy_is_used_where_it_is_named_and_no_other(
    servers: Servers, gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_proxy() as environment, http_proxy() as named, behind(servers, "ca", (CANDIDATE,)) as urls:
        for variable in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(variable, environment.url)
        for variable in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(variable, raising=False)
        ca = ("--ca-file", str(servers.folder / "ca.pem"))
        assert gate(urls, *ca).code == 0
        assert (environment.connections, named.connections) == (0, 0)

        both = gate(urls, *ca, "--proxy", named.url)
        assert (both.code, environment.connections) == (0, 0)
        seen = [head.split(b"\r\n")[0] for head in named.heads]
        forwarded = [line for line in seen if line.startswith(b"POST " + urls[BASELINE].encode() + b"/v1/completions ")]
        tunnels = [line for line in seen if line.startswith(b"CONNECT ")]
        scored = both.json["arms"]
        assert len(forwarded) >= scored["baseline"]["requests"] + 3  # and the probe
        assert len(tunnels) >= scored["candidate"]["requests"] + 3
        host = urls[CANDIDATE].removeprefix("https://")
        assert set(tunnels) == {f"CONNECT {host} HTTP/1.1".encode()}
        for arm in ARMS:
            assert (
                f"{arm}: requests went through the proxy {named.url}: what it adds was measured too"
                in both.json["notes"]
            )

        named.heads.clear()
        assert gate(urls, *ca, "--baseline-proxy", named.url).code == 0
        assert named.heads and not any(head.startswith(b"CONNECT") for head in named.heads)
        named.heads.clear()
        assert gate(urls, *ca, "--candidate-proxy", named.url).code == 0
        assert named.heads and all(head.startswith(b"CONNECT") for head in named.heads)


def test_what_is_for_the_proxy_goes_to_the_proxy_alone(servers: Servers, work: Bench, gate: Any) -> None:
    password = "Basic Z2F0ZTpvcGVuLXNlc2FtZS0xMjM0"
    (work.folder / "headers").write_text(f"Proxy-Authorization: {password}\n", encoding="utf-8")
    seen: list[Any] = []

    async def look(request: web.Request, body: bytes) -> bytes:
        seen.append(dict(request.headers))
        return body

    with (
        rewriting(servers.urls[BASELINE], {"/props": look}) as watched,
        http_proxy(password) as proxy,
        tls_front(watched, servers.local) as front,
    ):
        urls = {BASELINE: front.url, CANDIDATE: servers.urls[CANDIDATE]}
        options = ("--ca-file", str(servers.folder / "ca.pem"), "--proxy", proxy.url)
        run = gate(urls, *options, "--header-file", "headers")
        kept = everything(work.folder) + run.out.encode() + run.err.encode()
        refused = [gate(urls, *options), gate(servers.urls, "--proxy", proxy.url)]
    assert run.code == 0
    assert seen and not any(name.lower() == "proxy-authorization" for headers in seen for name in headers)
    assert password.encode() not in kept and password.split()[1].encode() not in kept
    for without in refused:
        assert without.code == 1
        assert "407" in without.err
        assert "the proxy asks for credentials: a line `Proxy-Authorization: Basic ...` in a header file" in without.err


def test_a_proxy_that_is_not_there_is_no_word_on_the_server(servers: Servers, gate: Any) -> None:
    with http_proxy() as proxy:
        gone = proxy.url
    for url in (servers.urls[BASELINE], "https://127.0.0.1:9"):
        run = gate({**servers.urls, BASELINE: url}, "--proxy", gone)
        assert run.code == 1
        assert f"error: baseline: {url}/v1/models: Proxy: the proxy {gone} cannot be reached: " in run.err


def test_a_proxy_that_fails_in_the_middle_is_not_held_against_the_candidate(servers: Servers, gate: Any) -> None:
    with behind(servers, "ca", (CANDIDATE,)) as urls, http_proxy(opens=19) as proxy:
        run = gate(urls, "--ca-file", str(servers.folder / "ca.pem"), "--candidate-proxy", proxy.url)
    assert (run.code, run.json["reason"], run.json["rollback"]) == (1, "InvalidCells", "Refused")
    why = (
        f"Proxy: https://{urls[CANDIDATE].removeprefix('https://')}/metrics: Proxy: the proxy {proxy.url} opens no way"
    )
    assert why in run.json["sentences"][0]
    assert "502" in run.json["sentences"][0]


def test_a_server_without_tls_behind_a_proxy_is_told_from_a_proxy_that_is_away(servers: Servers, gate: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, http_proxy() as proxy:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        run = gate({**servers.urls, CANDIDATE: url}, "--candidate-proxy", proxy.url)
    assert run.code == 1
    assert "Tls: connected, but no TLS handshake within the connect timeout" in run.err


def test_credentials_on_the_command_line_are_refused_and_not_repeated(servers: Servers, gate: Any) -> None:
    for options in (
        ("--proxy", "http://me:open-sesame@127.0.0.1:3128"),
        ("--baseline-proxy", "http://me:open-sesame@127.0.0.1:3128"),
        ("--baseline", "http://me:open-sesame@127.0.0.1:8080"),
        ("--api-key-env", "sk-open-sesame"),
    ):
        run = gate(servers.urls, *options)
        assert run.code == 2, options
        assert "(allowed: " in run.err or "name a variable that holds the key" in run.err
        assert "open-sesame" not in run.err


# -- files that cannot be used


def test_a_file_that_cannot_be_used_is_bad_input_before_anything_is_sent(servers: Servers, gate: Any) -> None:
    missing = str(servers.folder / "missing")
    for option in ("--header-file", "--ca-file", "--client-cert", "--baseline-ca-file"):
        run = gate(servers.urls, option, missing)
        assert run.code == 2, option
        assert f"error: baseline: {option.removeprefix('--baseline-').strip('-').split('-')[0]}" in run.err.lower()
        assert f"{missing} cannot be read: No such file or directory" in run.err
    run = gate(servers.urls, "--candidate-client-key", missing)
    assert (run.code, "error: candidate: client key" in run.err) == (2, True)


def test_a_certificate_that_expired_or_that_the_server_does_not_know_is_told_apart(
    servers: Servers, work: Bench, gate: Any
) -> None:
    import datetime

    ca = ("--ca-file", str(servers.folder / "ca.pem"))
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    expired = servers.authority.issue_cert("127.0.0.1", not_after=past, not_before=past - datetime.timedelta(days=9))
    with tls_front(servers.urls[CANDIDATE], expired) as front:
        run = gate({**servers.urls, CANDIDATE: front.url}, *ca)
        assert (run.code, "Tls: " in run.err) == (1, True)
        assert "certificate has expired" in run.err
        assert "(renew it, or measure without checking it with --insecure)" in run.err
        assert gate({**servers.urls, CANDIDATE: front.url}, "--insecure").code == 0
    stranger = trustme.CA().issue_cert("gate@example.com")
    stranger.private_key_and_cert_chain_pem.write_to_path(work.folder / "stranger.pem")
    with behind(servers, "client", (CANDIDATE,)) as urls:
        for options in (("--client-cert", "stranger.pem"), ()):
            run = gate(urls, *ca, *options)
            assert run.code == 1
            assert f"error: candidate: {urls[CANDIDATE]}/" in run.err
            assert "Tls: " in run.err
            assert "(the server wants a client certificate it knows: --client-cert)" in run.err


# -- a run file


def test_a_run_file_holds_the_ways_to_both_servers_and_options_win_over_it(
    servers: Servers, work: Bench, gate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("ca.pem", "client.pem", "client.key", "headers", "other-ca.pem")
    inner = work.folder / "inner"
    inner.mkdir()
    for name in names:
        (inner / name).write_bytes((servers.folder / name).read_bytes())
    with ExitStack() as stack:
        token = stack.enter_context(asking_for(servers.urls[BASELINE], "X-Token", TOKEN))
        secure = stack.enter_context(tls_front(servers.urls[CANDIDATE], servers.named, servers.authority))
        proxy = stack.enter_context(http_proxy())
        client = {"clientCert": "client.pem", "clientKey": "client.key", "tlsServerName": NAME, "proxy": proxy.url}
        spec = {
            "baseline": {"url": token.url, "headerFile": "headers"},
            "candidate": {"url": secure.url, "caFile": "ca.pem", **client},
            "replaySet": str(work.set_path),
            "policy": str(work.policy_path),
            "store": "../run.db",
        }
        head = {"apiVersion": "prefillgate.io/v1alpha1", "kind": "Run"}
        file = inner / "gate.yaml"
        file.write_text(yaml.safe_dump({**head, "spec": spec}), encoding="utf-8")
        assert main(["run", str(file), "--quiet"]) == 0
        assert (len(proxy.heads) > 3, set(secure.names)) == (True, {NAME})
        assert secure.clients
        (work.folder / "run.db").unlink()
        assert main(["run", str(file), "--quiet", "--candidate-ca-file", str(inner / "other-ca.pem")]) == 1
        assert "trust its authority with --ca-file" in capsys.readouterr().err
        spec["candidate"] = {"url": secure.url, "insecure": True, **client}
        file.write_text(yaml.safe_dump({**head, "spec": spec}), encoding="utf-8")
        assert main(["run", str(file), "--quiet"]) == 0
    assert any(
        "--insecure" in finding
        for seen in stored(work.folder / "run.db")[0].epochs[CANDIDATE]
        for finding in seen.access_findings
    )


# -- addresses


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_an_address_may_end_in_v1(suffix: str, servers: Servers, gate: Any) -> None:
    urls = {arm: url + suffix for arm, url in servers.urls.items()}
    assert gate(urls).code == 0


def test_a_server_is_reached_over_ipv6_and_through_a_proxy_to_it(servers: Servers, gate: Any) -> None:
    with start_simulated(seed=2, text_seed=9, host="::1") as candidate, http_proxy() as proxy:
        assert candidate.url.startswith("http://[::1]:")
        urls = {**servers.urls, CANDIDATE: f"{candidate.url}/v1"}
        assert gate(urls).code == 0
        assert gate(urls, "--candidate-proxy", proxy.url).code == 0
        assert all(f" {candidate.url}/".encode() in head for head in proxy.heads)
        assert proxy.heads


# -- the model


def asked_models(servers: list[SimulatedServer], gate: Any, *options: str) -> tuple[Ended, list[set[str]]]:
    """A run, and the models that the bodies named at each server."""
    seen: list[set[str]] = [set(), set()]

    def watching(place: int) -> Any:
        async def look(request: web.Request, body: bytes) -> bytes:
            seen[place].add(json.loads(await request.read()).get("model"))
            return body

        return {"/v1/completions": look}

    with rewriting(servers[0].url, watching(0)) as first, rewriting(servers[1].url, watching(1)) as second:
        return gate({BASELINE: first, CANDIDATE: second}, "--declare", "weights", *options), seen


def test_the_only_model_goes_into_every_body_and_one_of_several_must_be_named(gate: Any) -> None:
    with (
        start_simulated(seed=1, text_seed=9, model=["alone"]) as one,
        start_simulated(seed=2, text_seed=9, model=["left", "right"]) as two,
    ):
        run, seen = asked_models([one, two], gate)
        assert (run.code, seen) == (2, [set(), set()])
        assert (
            "serves 2 models and none was asked for: left, right (allowed: one of them, named by --candidate-model)"
            in run.err
        )
        run, seen = asked_models([one, two], gate, "--candidate-model", "right")
        assert (run.code, seen) == (0, [{"alone"}, {"right"}])
        run, seen = asked_models([two, one], gate, "--baseline-model", "left")
        assert (run.code, seen) == (0, [{"left"}, {"alone"}])
        run, seen = asked_models([two, two], gate, "--model", "left", "--candidate-model", "right")
        assert (run.code, seen) == (0, [{"left"}, {"right"}])
        run, seen = asked_models([one, two], gate, "--model", "middle")
        assert (run.code, "does not serve model 'middle'; it serves alone" in run.err) == (2, True)
        assert seen == [set(), set()]


# -- servers that are not ready yet


@pytest.mark.parametrize("by", ["option", "file"])
def test_a_run_waits_for_servers_that_start_and_says_what_for(
    by: str, servers: Servers, work: Bench, gate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    started: list[SimulatedServer] = []

    def start_late() -> None:
        time.sleep(3)
        started.append(start_simulated(seed=2, text_seed=9, port=port))

    urls = {**servers.urls, CANDIDATE: f"http://127.0.0.1:{port}"}
    refused = gate(urls)
    thread = threading.Thread(target=start_late)
    thread.start()
    try:
        if by == "option":
            waited = gate(urls, "--wait-ready", "60")
        else:
            spec = {arm: {"url": urls[arm]} for arm in ARMS}
            files = {"replaySet": str(work.set_path), "policy": str(work.policy_path), "waitReadySeconds": 60}
            head = {"apiVersion": "prefillgate.io/v1alpha1", "kind": "Run"}
            file = work.folder / "gate.yaml"
            file.write_text(yaml.safe_dump({**head, "spec": {**spec, **files}}), encoding="utf-8")
            code = main(["run", str(file), "--store", "file.db", "--json", "--quiet"])
            said = capsys.readouterr()
            waited = Ended(code, said.out, said.err)
    finally:
        thread.join()
        started[0].stop()
    assert (refused.code, "ConnectionRefused" in refused.err) == (1, True)
    assert (waited.code, waited.json["decision"]) == (0, "promote")
    lines = [line for line in waited.err.splitlines() if "ready" in line]
    assert lines[0].startswith("candidate: not ready yet, waiting ")
    assert f"s more at most: {urls[CANDIDATE]}/health: ConnectionRefused: " in lines[0]
    assert (len(lines), lines[1].startswith("candidate: ready after ")) == (2, True)


def test_a_run_waits_while_a_model_is_loaded_but_no_longer_than_allowed(servers: Servers, gate: Any) -> None:
    asked: list[str] = []
    load = web.json_response

    async def loading(request: web.Request, body: bytes) -> web.StreamResponse | bytes:
        asked.append(request.path)
        if len(asked) <= 2 or "for ever" in patience:
            error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
            return load({"error": error}, status=503)
        return body

    with rewriting(servers.urls[BASELINE], {"/health": loading}) as slow:
        urls = {**servers.urls, BASELINE: slow}
        patience = ["once"]
        waited = gate(urls, "--wait-ready", "30")
        patience = ["for ever"]
        given_up = gate(urls, "--wait-ready", "2")
    assert (waited.code, len(asked) > 4) == (0, True)
    assert f"{slow}/health: HTTP 503: unavailable_error: Loading model" in waited.err
    assert given_up.code == 1
    why = f"{slow}/health: HTTP 503: unavailable_error: Loading model"
    assert f"error: baseline: not ready within the 2 s of --wait-ready: {why}" in given_up.err


def test_what_will_not_change_is_not_waited_for(servers: Servers, gate: Any) -> None:
    with behind(servers, "header", (CANDIDATE,)) as header, behind(servers, "ca", (CANDIDATE,)) as untrusted:
        for urls, words in ((header, "HTTP 403"), (untrusted, "Tls: ")):
            run = gate(urls, "--wait-ready", "86400")
            assert (run.code, words in run.err, "not ready" in run.err) == (1, True, False)


def test_ctrl_c_ends_the_wait_at_once(work: Bench, servers: Servers) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    child = start(
        work.arguments(servers.urls[BASELINE], gone, "--store", "run.db", "--wait-ready", "3600"), work.folder
    )
    assert child.stderr is not None
    said = [child.stderr.readline() for _ in range(2)]
    assert said[1].startswith(b"candidate: not ready yet, waiting 3600 s more at most: ")
    child.send_signal(signal.SIGINT)
    end = ended(child)
    assert end.code == 130
    assert end.lines[-1].endswith("--wait-ready 3600 --store run.db")


def test_a_probe_waits_as_long_as_a_busy_server_asks(servers: Servers, gate: Any) -> None:
    told: list[float] = []

    async def busy(request: web.Request, body: bytes) -> web.StreamResponse | bytes:
        told.append(time.monotonic())
        if len(told) in (1, 2):
            status, headers = (429, {"Retry-After": "2"}) if len(told) == 1 else (503, {})
            return web.json_response({"error": {"message": "busy"}}, status=status, headers=headers)
        return body

    with rewriting(servers.urls[CANDIDATE], {"/v1/completions": busy}) as candidate:
        run = gate({**servers.urls, CANDIDATE: candidate})
    assert (run.code, run.json["decision"]) == (0, "promote")
    assert told[1] - told[0] >= 2.0
    assert told[2] - told[1] >= 1.0
    said = [line for line in run.err.splitlines() if "busy" in line]
    assert said == [
        "candidate: the server is busy (HTTP 429); its probe waits 2 s",
        "candidate: the server is busy (HTTP 503); its probe waits 2 s",
    ]
    assert run.json["invalid"] == {"baseline": 0, "candidate": 0}


def test_a_small_question_is_asked_again_when_the_server_said_so(servers: Servers, gate: Any) -> None:
    told: list[float] = []

    async def busy(request: web.Request, body: bytes) -> web.StreamResponse | bytes:
        told.append(time.monotonic())
        if len(told) == 1:
            return web.json_response({"error": {"message": "busy"}}, status=503, headers={"Retry-After": "2"})
        return body

    with rewriting(servers.urls[CANDIDATE], {"/props": busy}) as candidate:
        assert gate({**servers.urls, CANDIDATE: candidate}).code == 0
    assert told[1] - told[0] >= 2.0


def test_tls_options_without_a_tls_server_are_bad_input(servers: Servers, gate: Any) -> None:
    for options in (
        ("--ca-file", str(servers.folder / "ca.pem")),
        ("--tls-server-name", NAME),
        ("--insecure",),
        ("--candidate-insecure",),
    ):
        run = gate(servers.urls, *options)
        arm = CANDIDATE if "candidate" in options[0] else BASELINE
        option = options[0].replace("--candidate-", "--")
        said = f"error: {arm}: {option} is given and no server is reached over TLS (allowed: with an https:// URL)"
        assert (run.code, said in run.err) == (2, True), run.err
