"""Where a store is: a file or a run in a database, and never a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefillgate.api.errors import RunFileError
from prefillgate.api.run_file import load_run_file
from prefillgate.api.store_address import PASSWORDS, PostgresUrl, store_address
from prefillgate.cli.stores import anew_beside, keep_from_overwriting, report_beside, same_store, short_name


@pytest.mark.parametrize("text", ["run.db", "/a/b/run.db", "C:\\x\\run.db", "a?run=b", "postgresql:/x", "x:y//z"])
def test_what_is_no_url_is_a_file(text: str) -> None:
    assert store_address(text) == Path(text)


def test_a_file_is_taken_from_the_folder_of_what_names_it_and_a_url_is_not() -> None:
    assert store_address("run.db", Path("/somewhere")) == Path("/somewhere/run.db")
    assert store_address("postgresql://h/d?run=a", Path("/somewhere")) == PostgresUrl("postgresql://h/d", "a")


@pytest.mark.parametrize(
    ("text", "server", "run"),
    [
        ("postgresql://h/d", "postgresql://h/d", None),
        ("postgres://h/d?run=a", "postgres://h/d", "a"),
        ("PostgreSQL://h/d?run=a", "postgresql://h/d", "a"),
        ("postgresql://u@h1:1,h2:2/d?run=a.b-c_9", "postgresql://u@h1:1,h2:2/d", "a.b-c_9"),
        (
            "postgresql://h/d?sslmode=require&run=a&connect_timeout=3",
            "postgresql://h/d?sslmode=require&connect_timeout=3",
            "a",
        ),
        ("postgresql://?service=s&run=a", "postgresql://?service=s", "a"),
        ("postgresql:///d?host=/tmp&%72un=%61", "postgresql:///d?host=/tmp", "a"),
        ("postgresql://u@[::1]:5432/d?run=a", "postgresql://u@[::1]:5432/d", "a"),
        ("postgresql://h/d?passfile=/x/y&run=" + "a" * 100, "postgresql://h/d?passfile=/x/y", "a" * 100),
    ],
)
def test_the_run_is_taken_out_and_everything_else_is_left_to_libpq(text: str, server: str, run: str | None) -> None:
    address = store_address(text)
    assert address == PostgresUrl(server, run)
    assert store_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:hunter2@h/d",
        "postgresql://u:@h/d",
        "postgresql://:hunter2@h/d",
        "postgresql://u:hun@ter2@h/d",
        "postgresql://u:hun/ter2@h/d",
        "postgresql://h/d?password=hunter2",
        "postgresql://h/d?PASSWORD=hunter2",
        "postgresql://h/d?run=a&sslpassword=hunter2",
        "postgresql://h/d?pass%77ord=hunter2",
        "postgresql://h/d?oauth_client_secret=hunter2",
    ],
)
def test_a_password_is_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds a password") as caught:
        store_address(text)
    assert str(caught.value) == PASSWORDS
    for field in ("store", "baselineStore"):
        path = tmp_path / "gate.yaml"
        path.write_text(
            "apiVersion: prefillgate.io/v1alpha1\nkind: Run\nspec:\n  candidate: {url: 'http://h:1'}\n"
            f"  replaySet: demo\n  {field}: '{text}'\n",
            encoding="utf-8",
        )
        with pytest.raises(
            RunFileError, match=rf"gate.yaml:6: spec.{field}: the store's URL holds a password"
        ) as refused:
            load_run_file(path)
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mysql://h/d", r'"mysql://" is no address of a store \(allowed: a file, or postgresql://'),
        ("http://h/d", "is no address of a store"),
        ("sqlite:///x", "is no address of a store"),
        ("postgresql://h/d?run=", 'run "" in the store\'s URL is no name'),
        ("postgresql://h/d?run=-a", "is no name of a run"),
        ("postgresql://h/d?run=a%2Fb", 'run "a/b" in'),
        ("postgresql://h/d?run=" + "a" * 101, "is no name of a run"),
        ("postgresql://h/d?run=ä", "is no name of a run"),
        ("postgresql://h/d?run=a&run=b", "names run twice"),
        ("postgresql://h/d e", "holds a space or what cannot be printed"),
        ("postgresql://h/d\x1b", "holds a space or what cannot be printed"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        store_address(text)


def test_a_run_is_named_after_whatever_without_what_no_name_may_have() -> None:
    url = PostgresUrl("postgresql://h/d")
    assert url.of_run("my set (2)-2026").run == "my-set-2-2026"
    assert url.of_run("--ä").run == "run"
    assert url.of_run("x" * 200).run == "x" * 100


def test_what_stands_beside_a_store_is_named_after_it(tmp_path: Path) -> None:
    url, path = PostgresUrl("postgresql://h/d?sslmode=require", "a"), tmp_path / "run.db"
    assert str(url) == "postgresql://h/d?sslmode=require&run=a"
    assert report_beside(url) == Path(".prefillgate/a.html")
    assert report_beside(path) == tmp_path / "run.html"
    assert anew_beside(url) == PostgresUrl("postgresql://h/d?sslmode=require")
    (tmp_path / "run-2.db").touch()
    assert anew_beside(path) == tmp_path / "run-3.db"
    assert (short_name(url), short_name(path)) == ("a", "run.db")
    assert same_store(path, tmp_path / "x" / ".." / "run.db")
    assert same_store(url, PostgresUrl(url.server, "a"))
    assert not same_store(url, PostgresUrl(url.server, "b"))
    assert not same_store(url, path)
    keep_from_overwriting("--report", tmp_path / "x.html", url)
