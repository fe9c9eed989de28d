"""`prefillgate doctor` against the real server and the simulated one: each line by what the server really showed."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefillgate.cli import installed
from prefillgate.cli.main import main
from prefillgate.engines.registry import engine_names
from prefillgate.hosts.llama_server import LlamaServer
from prefillgate.runs import reach
from tests.support.simulated import start_simulated

Doctor = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Run `prefillgate doctor ARGUMENTS` in an empty folder: exit code, JSON or text, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, Any, str]:
        code = main(["doctor", *arguments])
        said = capsys.readouterr()
        return code, json.loads(said.out) if "--json" in arguments and said.out else said.out, said.err

    return run


def standings(document: Any) -> dict[str, str]:
    return {line["name"]: line["standing"] for line in document["server"]["capabilities"]}


def flags(document: Any) -> dict[str, str]:
    return {line["name"]: line["flag"] for line in document["server"]["capabilities"] if line["flag"]}


def test_without_a_server_it_says_what_is_installed_and_leaves_nothing_behind(doctor: Doctor, tmp_path: Path) -> None:
    code, document, _ = doctor("--json")
    assert code == 0
    assert (document["ready"], document["server"]) == (True, None)
    lines = {line["name"]: line for line in document["here"]}
    extras = ["extra llama", "extra postgres"]
    assert list(lines) == ["prefillgate", "packages", *extras, "curl", "evidence store", "terminal", "clock"]
    assert lines["extra postgres"]["sentence"].startswith("psycopg 3.3")
    assert lines["evidence store"]["sentence"] == f"{tmp_path} can be written, SQLite {sqlite3.sqlite_version}"
    assert "httpx 0.28" in lines["packages"]["sentence"]
    assert "xllamacpp 2026" in lines["extra llama"]["sentence"]
    assert list(tmp_path.iterdir()) == []
    _, page, _ = doctor()
    assert page.splitlines()[-1] == "Nothing that a run needs is missing here. Ask a server with --server URL."


def test_a_folder_where_no_store_can_be_made_is_told_before_a_run(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, document, _ = doctor("--store", "file/run.db", "--json")
    line = next(line for line in document["here"] if line["name"] == "evidence store")
    assert (code, document["ready"], line["standing"], line["needed"]) == (10, False, "missing", True)
    assert doctor("--store", "file/run.db")[1].splitlines()[-1] == "A run decides nothing here without: evidence store."


def test_a_package_that_is_not_there_and_a_clock_before_this_program_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # A package cannot be taken away from the interpreter that runs the test: the list of them is asked for one more.
    monkeypatch.setattr(
        installed.metadata, "requires", lambda name: ["click>=8", "not-there>=1", "dev-only; extra == 'x'"]
    )
    monkeypatch.setattr(installed, "LLAMA_PACKAGES", ("not-there-either",))
    lines = {line.name: line for line in installed.installed(Path("run.db"))}
    assert (lines["packages"].standing, lines["packages"].flag) == ("missing", "pip install not-there")
    assert lines["packages"].needed
    assert (lines["extra llama"].standing, lines["extra llama"].needed) == ("missing", False)
    assert installed._clock(installed.RELEASED - 1).standing == "missing"
    assert installed._clock(installed.RELEASED).standing == "ok"


def test_a_real_server_proves_what_a_run_needs(doctor: Doctor, llama: LlamaServer) -> None:
    code, document, _ = doctor("--server", llama.url, "--json")
    assert code == 0
    assert document["ready"] is True
    assert (document["server"]["engine"], document["server"]["generations"]) == ("llama.cpp", 3)
    assert set(standings(document).values()) == {"ok"}
    found = {line["name"]: line["sentence"] for line in document["server"]["capabilities"]}
    assert found["context per slot"] == "2048 tokens, 1 slot"
    assert found["weights"].startswith("gemma-3-270m")
    _, page, _ = doctor("--server", llama.url)
    assert page.splitlines()[-1] == "A run on this server can be trusted."
    assert "(asked by 3 short generations)" in page


def test_it_sends_three_generations_and_no_more(doctor: Doctor) -> None:
    with start_simulated() as server:
        assert doctor("--server", server.url)[0] == 0
        assert [line["output_tokens"] for line in server.truth()] == [2, 2, 2]
        assert doctor()[0] == 0
        assert len(server.truth()) == 3


def test_what_a_server_was_not_started_with_is_told_with_its_flag(doctor: Doctor) -> None:
    with start_simulated(fault=["metrics-absent=1", "slots-absent=1"]) as server:
        code, document, _ = doctor("--server", server.url, "--json")
        page = doctor("--server", server.url)[1]
    assert code == 0  # the replies' own counter and the knob do
    told = standings(document)
    assert (told["second witness"], told["idleness"], told["speculation"]) == ("missing", "missing", "unknown")
    assert flags(document) == {
        "second witness": "--metrics",
        "idleness": "--slots or --metrics",
        "speculation": "--slots",
    }
    assert page.splitlines()[-1] == "A run on this server can be trusted, within what is missing above."
    assert "note" not in page  # a line tells it already


@pytest.mark.parametrize(
    ("fault", "fresh", "counter"),
    [
        ("ignore-cache-prompt=1", "missing", "ok"),
        ("cached-zero=1", "unknown", "missing"),
    ],
)
def test_a_knob_or_a_counter_that_lies_leaves_nothing_to_decide_by(
    doctor: Doctor, fault: str, fresh: str, counter: str
) -> None:
    with start_simulated(fault=[fault]) as server:
        code, document, _ = doctor("--server", server.url, "--json")
    told = standings(document)
    assert (code, document["ready"]) == (10, False)
    assert (told["fresh prefill"], told["cached-token counter"]) == (fresh, counter)


def test_other_traffic_during_the_probe_is_no_second_witness(doctor: Doctor) -> None:
    with start_simulated(fault=["metrics-inflated=1"]) as server:
        _, document, _ = doctor("--server", server.url, "--json")
    assert standings(document)["second witness"] == "unknown"


def test_an_openai_server_without_its_counter_is_told_the_flags_of_the_servers_that_have_one(doctor: Doctor) -> None:
    with start_simulated(dialect="openai", fault=["cached-absent=1"]) as server:
        code, document, _ = doctor("--server", server.url, "--json")
        page = doctor("--server", server.url)[1]
    assert code == 10
    assert "--enable-prompt-tokens-details" in flags(document)["cached-token counter"]
    assert "--enable-cache-report" in flags(document)["fresh prefill"]
    last = page.splitlines()[-1]
    assert last == "A run decides nothing on this server without: fresh prefill, cached-token counter."


def test_an_openai_server_with_its_counter_can_be_trusted_for_quality_and_tells_no_decode_times(doctor: Doctor) -> None:
    with start_simulated(dialect="openai") as server:
        code, document, _ = doctor("--server", server.url, "--json")
    told = standings(document)
    assert code == 0
    assert (told["fresh prefill"], told["decode times"], told["build"]) == ("ok", "missing", "missing")


def test_the_family_can_be_named(doctor: Doctor) -> None:
    with start_simulated() as server:
        _, document, _ = doctor("--server", server.url, "--engine", "openai-compatible", "--json")
        assert document["server"]["engine"] == "openai-compatible"
        code, _, said = doctor("--server", server.url, "--engine", "olama")
    assert code == 2
    assert f"--engine: 'olama' is not known (allowed: {', '.join(engine_names())})" in " ".join(said.split())


def test_one_of_several_models_must_be_named(doctor: Doctor) -> None:
    with start_simulated(dialect="openai", model=["one", "two"]) as server:
        code, _, said = doctor("--server", server.url)
        assert (code, "allowed: one, two" in said) == (2, True)
        code, document, _ = doctor("--server", server.url, "--model", "two", "--json")
        assert (code, document["server"]["model"]) == (0, "two")
        code, _, said = doctor("--server", server.url, "--model", "three")
        assert (code, "does not serve model 'three'" in said) == (2, True)


def test_a_key_is_named_by_its_variable_and_shown_to_be_accepted(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("THE_KEY", "sesame-7261")
    (tmp_path / "headers").write_text("Authorization: Bearer sesame-7261\n")
    with start_simulated({"K": "sesame-7261"}, api_key_env="K") as server:
        code, _, said = doctor("--server", server.url)
        assert code == 1
        assert "HTTP 401" in said
        assert "--api-key-env VARIABLE" in said
        for given in (("--api-key-env", "THE_KEY"), ("--header-file", "headers")):
            code, document, said = doctor("--server", server.url, *given, "--json")
            assert (code, standings(document)["API key"]) == (0, "ok")
            assert "sesame" not in json.dumps(document) + said
    with start_simulated() as open_to_all:
        _, document, _ = doctor("--server", open_to_all.url, "--api-key-env", "THE_KEY", "--json")
    assert standings(document)["API key"] == "unknown"
    code, _, said = doctor("--server", "http://127.0.0.1:1", "--api-key-env", "NO_SUCH")
    assert (code, "NO_SUCH is not set" in said) == (2, True)


@pytest.mark.parametrize("option", ["--ca-file", "--client-cert"])
def test_a_certificate_that_is_not_there_is_bad_input(doctor: Doctor, option: str) -> None:
    code, _, said = doctor("--server", "https://127.0.0.1:1", option, "nothing.pem")
    assert code == 2
    assert "nothing.pem" in said


def test_a_proxy_is_used(doctor: Doctor) -> None:
    with start_simulated() as server:
        code, _, said = doctor("--server", server.url, "--proxy", "http://127.0.0.1:1")
    assert code == 1
    assert "the proxy http://127.0.0.1:1 cannot be reached" in said


def test_a_server_that_serves_others_is_waited_for_and_never_probed_beside_them(doctor: Doctor) -> None:
    with start_simulated(fault=["always-busy=2"]) as server:
        code, _, said = doctor("--server", server.url, "--wait-idle", "0")
        assert server.truth() == []
    assert code == 1
    assert "did not become idle within 0 s" in said


def test_a_server_that_is_not_there_could_not_be_measured_and_no_address_is_bad_input(doctor: Doctor) -> None:
    code, out, said = doctor("--server", "http://127.0.0.1:1")
    assert (code, out) == (1, "")
    assert "ConnectionRefused" in said
    assert doctor("--server", "ftp://host")[0] == 2


def test_a_server_that_takes_connections_and_is_silent_is_told_while_it_is_waited_for(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "QUIET_SECONDS", 0.05)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def be_silent() -> None:
            while not over.is_set():
                connection, _ = listener.accept()
                with connection:
                    over.wait(0.5)

        thread = threading.Thread(target=be_silent)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        code, _, said = doctor("--server", url)
        over.set()
        socket.create_connection(listener.getsockname()).close()
        thread.join()
    assert code == 1
    assert f"{url}: no answer for 0.05 s yet; waiting for it" in said.splitlines()
    assert said.splitlines()[-1].startswith("prefillgate: error: ")


def test_a_server_without_tls_and_an_empty_option_are_told_with_what_to_do(doctor: Doctor) -> None:
    with start_simulated(seed=1) as server:
        code, _, said = doctor("--server", server.url.replace("http:", "https:"))
        assert (code, "(what answers there speaks no TLS: http:// instead of https://?)" in said) == (1, True)
        assert "no answer for" not in said
        for option in ("--model", "--api-key-env", "--tls-server-name", "--proxy", "--engine"):
            code, _, said = doctor("--server", server.url, option, "")
            assert (code, f"Invalid value for '{option}': it is empty" in said) == (2, True)
        code, _, said = doctor("--server", f"{server.url}/v1/chat/completions")
        assert (code, "--server: url" in said, "is one endpoint and not the address before /v1" in said) == (
            *(2, True),
            True,
        )
