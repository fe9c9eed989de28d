"""Settings of the controller: one table for flags, variables and documents; what is wrong is told by its name."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path

import pytest

from prefillgate.api.errors import InputError
from prefillgate.api.store_address import PostgresUrl
from prefillgate.app.settings import Listen, Settings, read_settings, unknown_variables
from prefillgate.app.settings_table import BY_NAME, ROWS, Setting
from prefillgate.cli.main import main

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
KEY = "0123456789abcdef"
KEYED = {"PREFILLGATE_SEAL_KEY": KEY}
EXAMPLES = {
    "kubeconfig": ("/k", "/k"),
    "context": ("prod", "prod"),
    "namespace": ("gate", "gate"),
    "watch_namespaces": ("a, b-2,", ("a", "b-2")),
    "pod": ("controller-1", "controller-1"),
    "lease_name": ("mine", "mine"),
    "lease_duration_seconds": ("30", 30),
    "lease_renew_seconds": ("20.5", 20.5),
    "lease_retry_seconds": ("0.5", 0.5),
    "replay_sets": ("/sets", Path("/sets")),
    "concurrent_replays": ("7", 7),
    "workers": ("9", 9),
    "listen": ("[::]:9090", Listen(host="::", port=9090)),
    "log_level": ("debug", "debug"),
    "log_format": ("console", "console"),
    "allow_address": ("127.0.0.1, 10.1.2.3/8", (ipaddress.ip_network("127.0.0.1"), ipaddress.ip_network("10.0.0.0/8"))),
    "deny_address": ("fd00::/8", (ipaddress.ip_network("fd00::/8"),)),
    "reach_attempts": ("5", 5),
    "stop_seconds": ("0", 0.0),
}
PLACES = {"store", "store_url", "store_url_file", "seal_key", "seal_key_file"}
WRONG = {
    "namespace": ["Gate", "a b", "-a", "a" * 64, "../x", "a\n"],
    "watch_namespaces": ["a,B", "a;b"],
    "lease_name": ["A"],
    "lease_duration_seconds": ["4", "3601", "ten", "-15", "15.5", "1e2", "٣٠", "99999999999"],
    "lease_renew_seconds": ["0", "x", "-1", "nan", "inf"],
    "lease_retry_seconds": ["0", "2s", "1_0"],
    "concurrent_replays": ["0", "101", "4.5"],
    "workers": ["0", "65", "many"],
    "listen": ["8090", ":8090", "host:", "host:65536", "a b:1", "::1:8090", "host:-1", "http://x:1"],
    "log_level": ["INFO", "loud"],
    "log_format": ["yaml"],
    "allow_address": ["10.0.0.0/33", "localhost", "10.0.0.1-10.0.0.9"],
    "deny_address": ["x"],
    "reach_attempts": ["0", "101"],
    "stop_seconds": ["3601", "-1"],
}


def read(folder: Path, flags: dict[str, str] | None = None, **environ: str) -> Settings:
    return read_settings({"store": str(folder), **(flags or {})}, environ)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_flag_and_its_variable_say_the_same_and_the_flag_goes_first(name: str, tmp_path: Path) -> None:
    text, value = EXAMPLES[name]
    row = BY_NAME[name]
    assert getattr(read(tmp_path, {name: text}), name) == value
    assert getattr(read(tmp_path, **{row.variable: text}), name) == value
    assert getattr(read(tmp_path, {name: text}, **{row.variable: "Not ! usable"}), name) == value
    assert getattr(read(tmp_path), name) != value


def test_every_setting_is_tried_here() -> None:
    assert {row.name for row in ROWS} == set(EXAMPLES) | PLACES


@pytest.mark.parametrize("row", [row for row in ROWS if row.default is not None], ids=lambda row: row.name)
def test_the_default_in_the_table_is_the_one_in_force(row: Setting, tmp_path: Path) -> None:
    """Given as a flag it changes nothing."""
    assert row.default is not None
    usual = read_settings({}, {**KEYED})
    assert getattr(read_settings({row.name: row.default}, {**KEYED}), row.name) == getattr(usual, row.name)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_what_cannot_be_used_is_told_by_flag_or_variable_with_what_is_allowed(
    name: str, text: str, tmp_path: Path
) -> None:
    row = BY_NAME[name]
    for given, source in (({name: text}, row.option), ({}, row.variable)):
        with pytest.raises(InputError) as error:
            read(tmp_path, given, **({} if given else {row.variable: text}))
        (problem,) = error.value.problems
        assert (problem.field, problem.allowed) == (source, row.allowed)
        assert text.strip("\n")[:60] in problem.message


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, {"workers": "0", "log_level": "x"}, PREFILLGATE_LISTEN="y", PREFILLGATE_SEAL_KEY="short")
    assert [problem.field for problem in error.value.problems] == [
        "PREFILLGATE_SEAL_KEY",
        "--workers",
        "PREFILLGATE_LISTEN",
        "--log-level",
    ]
    assert "short" not in str(error.value).replace("shorter", "")


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    assert read(tmp_path, PREFILLGATE_WORKERS="").workers == 4


def test_the_store_is_a_directory_or_a_database(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.store, found.book) == (tmp_path, tmp_path / "book.db")
    database = read_settings({"store": "postgresql://gate@db/evidence?sslmode=require"}, KEYED)
    assert database.store == database.book == PostgresUrl("postgresql://gate@db/evidence?sslmode=require")


def test_a_password_in_a_flag_is_refused_and_not_repeated() -> None:
    with pytest.raises(InputError) as error:
        read_settings({"store": "postgresql://gate:hunter22@db/evidence"}, KEYED)
    assert "hunter22" not in str(error.value) and "password" in str(error.value)


@pytest.mark.parametrize("by_file", [False, True])
def test_the_url_of_a_secret_may_hold_the_password_which_goes_to_libpq_alone(
    by_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    url = "postgresql://gate:p%40ss%2Fword@db:5432/evidence"
    (tmp_path / "uri").write_text(f"{url}\n", encoding="utf-8")
    where = {"PREFILLGATE_STORE_URL_FILE": str(tmp_path / "uri")} if by_file else {"PREFILLGATE_STORE_URL": url}
    found = read_settings({}, {**KEYED, **where})
    assert found.store == PostgresUrl("postgresql://gate@db:5432/evidence")
    assert os.environ["PGPASSWORD"] == "p@ss/word"
    assert "ss" not in repr(found).replace("address", "").replace("class", "")


def test_a_url_that_is_none_is_refused_and_not_repeated() -> None:
    for text in ("hunter22", "mysql://root:hunter22@db/x", "postgresql://a:hunter22@db/x?password=hunter22"):
        with pytest.raises(InputError) as error:
            read_settings({}, {**KEYED, "PREFILLGATE_STORE_URL": text})
        assert error.value.problems[0].field == "PREFILLGATE_STORE_URL"
        assert "hunter22" not in str(error.value)


def test_one_place_for_the_evidence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--store and PREFILLGATE_STORE_URL: more than one place"):
        read_settings({"store": str(tmp_path)}, {**KEYED, "PREFILLGATE_STORE_URL": "postgresql://db/x"})


def test_a_file_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"--store-url-file: .*no-file.* cannot be read"):
        read_settings({"store_url_file": "no-file"}, KEYED)
    with pytest.raises(InputError, match=r"--seal-key-file: .*no-key.* cannot be read"):
        read(tmp_path, {"seal_key_file": "no-key"})


def test_the_seal_key_is_made_once_and_kept_beside_the_book(tmp_path: Path) -> None:
    first, second = read(tmp_path / "a"), read(tmp_path / "a")
    assert first.seal_key == second.seal_key and len(first.seal_key) == 64
    assert read(tmp_path / "b").seal_key != first.seal_key
    if os.name == "posix":
        assert (tmp_path / "a" / "seal.key").stat().st_mode & 0o077 == 0
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["seal.key"]


def test_a_key_that_is_given_goes_before_and_needs_no_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}-file\n", encoding="utf-8")
    assert read(tmp_path / "a", PREFILLGATE_SEAL_KEY=KEY).seal_key == KEY.encode()
    assert read(tmp_path / "a", {"seal_key_file": str(tmp_path / "key")}).seal_key == f"{KEY}-file".encode()
    assert not (tmp_path / "a").exists()
    with pytest.raises(InputError, match="twice"):
        read(tmp_path, {"seal_key_file": str(tmp_path / "key")}, PREFILLGATE_SEAL_KEY=KEY)


def test_with_a_database_the_key_must_be_given() -> None:
    with pytest.raises(InputError, match=r"--seal-key-file or PREFILLGATE_SEAL_KEY: .*must be given"):
        read_settings({"store": "postgresql://db/evidence"}, {})


def test_a_damaged_key_file_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "seal.key").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="no key"):
        read(tmp_path)


def test_no_secret_is_in_the_words_of_settings(tmp_path: Path) -> None:
    found = read(tmp_path, PREFILLGATE_SEAL_KEY=KEY)
    assert KEY not in repr(found) and KEY not in str(found)


def test_what_looks_like_a_setting_and_is_none_is_told_but_for_links_to_services() -> None:
    links = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP", "PORT_80_TCP_ADDR")
    environ = {f"PREFILLGATE_{name}": "x" for name in (*links, "STORE_SERVICE_HOST", "DEBUG", "WORKERS", "WORKER")}
    assert unknown_variables({**environ, "PATH": "/"}) == ("PREFILLGATE_WORKER",)


def test_no_setting_has_the_name_of_a_link_to_a_service() -> None:
    names = {row.variable for row in ROWS}
    assert not {name for name in names if re.search(r"_(SERVICE_HOST|SERVICE_PORT|PORT)$", name)}


def test_the_readme_lists_every_setting_with_its_variable_and_default() -> None:
    listed = re.findall(r"^\| (`--[a-z-]+`|none) \| `(PREFILLGATE_\w+)` \| (.*?) \| (.*) \|$", README, re.MULTILINE)
    wanted = [
        (
            f"`{row.option}`" if row.flag else "none",
            row.variable,
            "" if row.default is None else f"`{row.default}`",
            row.help,
        )
        for row in ROWS
    ]
    assert listed == wanted


def test_help_lists_every_setting_with_its_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["controller", "--help"]) == 0
    shown = "".join(capsys.readouterr().out.split())
    for row in ROWS:
        assert row.variable in shown and "".join(row.help.split()) in shown
        assert row.option in shown or not row.flag
        assert row.default is None or f"[default:{row.default}]" in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--workers", "0"], '--workers: "0" (allowed: 1 to 64)'),
        (["--lease-name", "A"], '--lease-name: "A" (allowed: a name of lower-case letters'),
        (["--kubeconfig", "nowhere", "--store", "s"], "nowhere: kubeconfig: there is no such file"),
        (["--lease-retry-seconds", "10", "--store", "s"], "lease retry, renewWithin, duration"),
    ],
)
def test_the_command_ends_in_2_and_says_which_setting_it_is(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").write_text(KUBECONFIG, encoding="utf-8")
    given = [] if "--kubeconfig" in words else ["--kubeconfig", "config"]
    assert main(["controller", *given, *words, "--listen", "127.0.0.1:0"]) == 2
    assert told in capsys.readouterr().err


def test_the_command_ends_in_1_where_the_store_cannot_be_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "book.db").write_bytes(b"no database, whatever its name says" * 100)
    assert main(["controller", "--store", str(tmp_path)]) == 1
    assert "book.db" in capsys.readouterr().err


KUBECONFIG = """apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
"""
