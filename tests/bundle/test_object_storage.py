"""Bundles in object storage, on a real S3 server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefillgate.bundle import content, objects
from prefillgate.cli.errors import BadInput, CouldNotMeasure
from prefillgate.cli.export import command as export_command
from prefillgate.cli.verify import command as verify_command
from tests.support.bundles import Told, invoke
from tests.support.s3 import ACCESS, BUCKET, SECRET, S3Server, s3_server

VARIABLES = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def server(running: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Server:
    running.recorded()
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    return running


def place(name: str) -> str:
    return f"s3://{BUCKET}/runs/{name}"


def export(store: Path, name: str, *options: str) -> Told:
    return invoke(export_command, str(store), "-o", place(name), *options)


def test_a_bundle_goes_there_whole_and_verifies_from_there(server: S3Server, store: Path, original: Path) -> None:
    assert export(store, "whole").code == 0
    there = server.folder / "runs" / "whole"
    assert {p.name: p.read_bytes() for p in there.iterdir()} == {p.name: p.read_bytes() for p in original.iterdir()}
    told = invoke(verify_command, place("whole"))
    assert told.code == 0 and told.text.startswith(f"same: {place('whole')}: ")


def test_what_is_there_already_is_refused_and_what_broke_off_is_not(
    server: S3Server, store: Path, original: Path
) -> None:
    export(store, "twice")
    with pytest.raises(BadInput, match=r"--output s3://.*: a bundle is there already"):
        export(store, "twice")
    there = server.folder / "runs" / "broken"
    there.mkdir(parents=True)
    (there / content.EVENTS).write_bytes(b"half of it")
    (there / content.SIGNATURE).write_bytes(b"of then")
    with pytest.raises(BadInput, match=r"it holds no manifest.json: no bundle, or one that was not copied to its end"):
        invoke(verify_command, place("broken"))
    export(store, "broken")
    assert invoke(verify_command, place("broken")).code == 0
    (server.folder / "runs" / "foreign").mkdir()
    (server.folder / "runs" / "foreign" / "mine.txt").write_bytes(b"mine")
    with pytest.raises(BadInput, match=r"mine.txt.* is there already"):
        export(store, "foreign")


def test_a_changed_object_and_one_too_many_are_named(server: S3Server, store: Path) -> None:
    export(store, "changed")
    there = server.folder / "runs" / "changed"
    path = there / content.CELLS
    path.write_bytes(path.read_bytes().replace(b'"bad": true', b'"bad": false', 1))
    (there / "deeper").mkdir()
    (there / "deeper" / "more.txt").write_bytes(b"more")
    told = invoke(verify_command, place("changed"))
    assert told.code == 10
    assert "deeper/more.txt: not a file of a bundle" in told.text
    assert "cells.jsonl:" in told.text and "bad is false, recomputed it is true" in told.text


def test_the_manifest_is_written_last(server: S3Server, original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    order: list[str] = []
    put = obstore.put

    def noted(store: object, name: str, *given: object, **more: object) -> object:
        order.append(name)
        if name == content.TEXTS:
            raise OSError("the network went away")  # no server can be told to fail at one object
        return put(store, name, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(obstore, "put", noted)
    reached = objects.open_objects(place("late"), server.environment, Path())
    with pytest.raises(objects.ObjectsError, match=r"without manifest\.json what is there is no bundle"):
        objects.upload(reached, original)
    assert not (server.folder / "runs" / "late" / content.MANIFEST).exists()
    monkeypatch.setattr(obstore, "put", lambda *a, **m: (order.append(a[1]), put(*a, **m))[1])
    order.clear()
    objects.upload(reached, original)
    assert order[-1] == content.MANIFEST and set(order) == {*content.FILES, content.MANIFEST}


def test_storage_that_goes_away_in_the_middle_of_a_check_is_an_error_and_no_difference(
    server: S3Server, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(store, "going")
    with s3_server(tmp_path / "other") as other:
        there = other.folder / "runs" / "going"
        shutil.copytree(server.folder / "runs" / "going", there)
        for name, value in other.environment.items():
            monkeypatch.setenv(name, value)
        assert invoke(verify_command, place("going")).code == 0
        listed = objects.names

        def gone(reached: object) -> list[str]:
            found = listed(reached)  # type: ignore[arg-type]
            other.process.kill()
            other.process.wait()
            return found

        monkeypatch.setattr(objects, "names", gone)
        with pytest.raises(CouldNotMeasure) as error:
            invoke(verify_command, place("going"))
    assert str(error.value).startswith(f"{place('going')}: ")
    assert len(str(error.value)) < 600 and SECRET not in str(error.value)


def test_a_profile_gives_the_key_where_no_variable_does(
    server: S3Server, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_REGION")
    keys, settings = tmp_path / "credentials", tmp_path / "config"
    keys.write_text(f"[gate]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n", encoding="utf-8")
    settings.write_text("[profile gate]\nregion = us-east-1\n", encoding="utf-8")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(settings))
    monkeypatch.setenv("AWS_PROFILE", "gate")
    assert export(store, "profile").code == 0
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(BadInput, match=r'AWS_PROFILE: no access key of a profile "nobody"'):
        export(store, "nobody")


def test_a_wrong_key_a_missing_bucket_and_a_server_that_is_away_are_said_without_the_key(
    server: S3Server, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CouldNotMeasure) as missing:
        invoke(export_command, str(store), "-o", "s3://no-such-bucket/x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET + "wrong")
    with pytest.raises(CouldNotMeasure) as refused:
        invoke(verify_command, place("whole"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(CouldNotMeasure) as away:
        invoke(verify_command, place("whole"))
    for error in (missing, refused, away):
        assert SECRET not in str(error.value) and "s3://" in str(error.value)


@pytest.mark.parametrize(
    "text", ["s3://", "s3://bucket", "s3://bucket/", "s3:///x", "s3://key:secret@bucket/x", "s3://b/a/../c"]
)
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(objects.AddressError, match=r"allowed: s3://BUCKET/PREFIX") as refused:
        objects.open_objects(text, {}, Path())
    assert "secret" not in str(refused.value)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(objects.AddressError, match=r"prefillgate\[s3\]"):
        objects.open_objects("s3://bucket/x", {}, Path())


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No key in a variable or a profile, and nobody where a machine in the cloud is asked for its role."""
    for name in (*VARIABLES, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    return monkeypatch


def test_without_a_key_the_variables_are_named_and_not_the_place_where_the_client_looked(
    no_key: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(BadInput, match=r"neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY nor AWS_PROFILE") as told:
        invoke(verify_command, "s3://bucket/x")
    assert "127.0.0.1" not in str(told.value) and "s3://bucket/x" in str(told.value)


@pytest.mark.parametrize(
    ("there", "missing"),
    [("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID")],
)
def test_half_a_key_names_the_missing_half_and_never_the_other(
    no_key: pytest.MonkeyPatch, there: str, missing: str
) -> None:
    no_key.setenv(there, SECRET)
    with pytest.raises(BadInput, match=rf"{missing}: not set, and {there} is") as told:
        invoke(verify_command, "s3://bucket/x")
    assert SECRET not in str(told.value)
