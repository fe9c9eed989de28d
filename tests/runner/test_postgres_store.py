"""Runs whose evidence goes into a PostgreSQL database, and every command that takes a store, given its URL."""

from __future__ import annotations

import json
import random
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prefillgate.api.store_address import store_address
from prefillgate.cli.main import main
from prefillgate.cli.running import RunBroken
from prefillgate.core.cells import Status
from prefillgate.core.gate import Gate, fold
from prefillgate.core.journal import CellMeasured, Event, Overridden, Planned
from prefillgate.evidence import SqliteJournal, StoreError, postgres, read_store, store_facts
from tests.support.postgres import PostgresServer, recorded, running_server
from tests.support.runs import Watch, bench, ended, generations, measured, probes, start
from tests.support.simulated import SimulatedServer, start_simulated
from tests.support.stores import Played

KILLS = 6
Said = tuple[int, str, str]


@pytest.fixture(scope="module")
def module_server() -> Iterator[PostgresServer]:
    """The database server of this file's tests."""
    with running_server("fsync=off") as server:
        yield server


@pytest.fixture
def database(module_server: PostgresServer) -> str:
    """The URL of an empty database of the test's own."""
    return recorded(module_server).new_database()


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run `prefillgate ARGUMENTS` in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Said:
        code = main(list(arguments))
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def until_cells(url: str, cells: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the run holds that many cells, or the child ended."""
    while process.poll() is None:
        try:
            if store_facts(store_address(url))[0].cells >= cells:
                return
        except StoreError:  # not there yet
            time.sleep(0.02)


def gate_of(url: str) -> Gate:
    with read_store(store_address(url)) as journal:
        return fold(journal.events())


def copied(url: str, path: Path) -> Path:
    """The same events and texts in a file."""
    with read_store(store_address(url)) as journal:
        first, *rest = journal.events()
        assert isinstance(first, Planned)
        with SqliteJournal.create(path, first) as copy:
            for event in rest:
                copy.append(event, journal.texts(event.cell_id) if isinstance(event, CellMeasured) else None)
            assert copy.tail == journal.tail
    return path


def kept(played: Played, url: str) -> str:
    """A run played without servers, kept in a database. Returns its URL."""
    from prefillgate.evidence import create_store

    played.play()
    first, *rest = played.events
    assert isinstance(first, Planned)
    with create_store(store_address(url), first) as journal:
        for event in rest:
            journal.append(event)
    return url


def test_a_run_killed_at_any_instant_resumes_and_decides_as_a_file_would(
    database: str, tmp_path: Path, said: Callable[..., Said]
) -> None:
    work = bench(tmp_path, baselinePassPrefills=5)
    url = f"{database}?run=killed"
    chosen = random.Random(20261130)
    options: dict[str, Any] = {"text_seed": 9, "time_scale": 0.02}
    with start_simulated(seed=1, **options) as baseline, start_simulated(seed=2, **options) as candidate:
        command = work.arguments(baseline.url, candidate.url, "--store", url, "--quiet")
        seen: list[dict[int, CellMeasured]] = []
        for kill in range(KILLS):
            process = start(command, tmp_path)
            until_cells(url, 2 * kill + 1, process)
            time.sleep(chosen.random() * 0.15)
            process.kill()
            process.communicate()
            seen.append(dict(gate_of(url).measured))
        last = ended(start([*command, "--json"], tmp_path))
        assert last.code == 0, last.said
        lines = generations(baseline, candidate)
    gate = gate_of(url)
    for before in seen:
        assert all(gate.measured[cell_id] == event for cell_id, event in before.items())
    assert list(gate.measured) == list(range(len(gate.measured)))
    told = [event.cell.request_id for event in measured(gate, status=Status.OK)]
    assert len(set(told)) == len(told)
    unknown = [line for line in lines if line["id"] not in told and line["output_tokens"] != 2]
    assert 0 <= len(unknown) <= KILLS
    assert len(lines) == len(told) + len(unknown) + probes(lines)
    path = copied(url, tmp_path / "copy.db")
    for words in (["decide", "--json"], ["report", "--format", "markdown"], ["report"], ["cells", "--json"], ["cells"]):
        name, *more = words
        assert said(name, url, *more) == said(name, str(path), *more)
    assert json.loads(said("decide", url, "--json")[1]) == last.json
    for name, store in (("one", url), ("other", str(path))):
        assert said("export", store, "-o", name)[0] == 0
        assert said("verify", name)[0] == 0
    one, other = (
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in (tmp_path / "one", tmp_path / "other")
    )
    assert one == other != {}
    assert (tmp_path / ".prefillgate" / "killed.html").read_text(encoding="utf-8") == said("report", url)[1]
    assert not list(tmp_path.glob("postgresql*"))


def test_a_run_goes_on_through_a_restart_of_the_database(tmp_path: Path, healthy: SimulatedServer) -> None:
    work = bench(tmp_path)
    with running_server("fsync=off") as server, start_simulated(seed=2, text_seed=9, time_scale=0.02) as candidate:
        url = f"{recorded(server).address()}?run=night"
        process = start(work.arguments(healthy.url, candidate.url, "--store", url, "--json"), tmp_path)
        until_cells(url, 4, process)
        server.stop()
        threading.Timer(0.3, server.start).start()
        run = ended(process)
        assert run.code == 0, run.said
        gate = gate_of(url)
    assert gate.session == 0  # it was never resumed
    assert list(gate.measured) == list(range(len(gate.measured)))


def test_a_database_that_stays_away_ends_the_run_and_the_same_request_goes_on(
    tmp_path: Path, healthy: SimulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "RECONNECT_SECONDS", 0.3)
    work = bench(tmp_path)

    def stop(gate: Gate, event: Event) -> None:
        if len(gate.measured) == 4:
            server.stop()

    with running_server("fsync=off") as server, start_simulated(seed=2, text_seed=9) as candidate:
        url = f"{recorded(server).address()}?run=night"
        request = replace(work.request(healthy.url, candidate.url), store=store_address(url))
        with pytest.raises(RunBroken, match=r"the server cannot be reached, or went away|is not known yet") as broken:
            work.run(request, Watch(acts=[stop]))
        assert broken.value.exit_code == 1
        server.start()
        before = gate_of(url)
        gate = work.run(request).gate
    assert len(before.measured) == 4
    assert all(gate.measured[cell_id] == event for cell_id, event in before.measured.items())
    assert list(gate.measured) == list(range(len(gate.measured)))
    assert gate.session == 1


def test_an_interrupted_run_without_a_name_ends_with_the_command_that_resumes_it(
    database: str, tmp_path: Path, healthy: SimulatedServer
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, time_scale=0.02) as candidate:
        process = start(work.arguments(healthy.url, candidate.url, "--store", database), tmp_path)
        while process.poll() is None:
            try:
                if [each for each in store_facts(store_address(database)) if each.cells >= 3]:
                    break
            except StoreError:
                time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        stopped = ended(process)
        assert stopped.code == 143
        (facts,) = store_facts(store_address(database))
        assert re.fullmatch(rf"{re.escape(database)}\?run=set-\d{{8}}T\d{{6}}Z", facts.store)
        assert stopped.lines[0] == f"store: {facts.store}"
        program, *arguments = shlex.split(stopped.lines[-1])
        assert (program, arguments[-2:]) == ("prefillgate", ["--store", facts.store])
        resumed = work.child(*arguments)
    assert resumed.code == 0, resumed.said
    assert gate_of(facts.store).session == 1
    assert len(store_facts(store_address(database))) == 1


def test_every_command_that_takes_a_store_takes_the_url_of_a_run(database: str, said: Callable[..., Said]) -> None:
    url = kept(Played(candidate_rate=0.5), f"{database}?run=bad")
    assert said("decide", url)[0] == said("decide", url, "--json")[0] != 0
    page = said("explain", url)
    assert page[0] == 0
    assert f"'{url}'" in page[1]
    assert said("diff", url, "case 1")[0] == 0
    assert said("cells", url, "--json")[1].count("\n") == store_facts(store_address(url))[0].cells
    code, out, _ = said("override", url, "--hold", "--reason", "paged")
    assert (code, "paged" in out) == (10, True)
    assert said("decide", url)[0] == 10
    with read_store(store_address(url)) as journal:
        assert isinstance(journal.events()[-1], Overridden)


def test_a_run_that_is_not_there_names_those_that_are(database: str, said: Callable[..., Said]) -> None:
    for name in ("day", "night"):
        kept(Played(most_cells=3), f"{database}?run={name}")
    for words in (("decide",), ("report",), ("cells",), ("explain",), ("override", "--cause", "x"), ("store", "list")):
        command = [*words[:2], f"{database}?run=noon"] if words[0] == "store" else [words[0], f"{database}?run=noon"]
        code, _, err = said(*command, *(words[1:] if words[0] == "override" else ()))
        assert (code, "Runs in this database, the latest first: night, day." in err) == (2, True), err
    assert "no run is named. Runs in this database" in said("decide", database)[2]


def test_a_stored_baseline_may_be_a_run_of_a_database(
    database: str, tmp_path: Path, healthy: SimulatedServer, said: Callable[..., Said]
) -> None:
    work = bench(tmp_path)
    first, second = f"{database}?run=last-week", f"{database}?run=this-week"
    with start_simulated(seed=2, text_seed=9) as candidate:
        before = work.child(*work.arguments(healthy.url, candidate.url, "--store", first))
        assert before.code == 0, before.said
        shown = work.child(*work.arguments(None, candidate.url, "--store", second, "--baseline-store", first, "--json"))
        assert shown.json["stored_baseline"]["store"] == "last-week"
        refused = work.child(*work.arguments(None, candidate.url, "--store", second, "--baseline-store", second))
        away = f"{database}?run=y"
        missing = work.child(*work.arguments(None, candidate.url, "--store", second, "--baseline-store", away))
    assert (refused.code, "is the store of this run itself" in refused.said) == (2, True)
    assert (missing.code, "there is no run y" in missing.said) == (2, True)
    assert said("explain", second)[0] == 0


def test_a_floor_and_its_run_may_be_runs_of_a_database(
    database: str, tmp_path: Path, healthy: SimulatedServer, said: Callable[..., Said]
) -> None:
    work = bench(tmp_path)
    floor, run = f"{database}?run=floor", f"{database}?run=by-floor"
    asked = ("--replay-set", "set.jsonl", "--policy", "policy.yaml")
    measured = work.child("floor", "--baseline", healthy.url, *asked, "--store", floor)
    assert measured.code == 0, measured.said
    with start_simulated(seed=2, text_seed=9) as candidate:
        judged = work.child(*work.arguments(healthy.url, candidate.url, "--store", run, "--floor", floor, "--json"))
        missing = work.child(*work.arguments(healthy.url, candidate.url, "--floor", f"{database}?run=y"))
    assert (judged.code, judged.json["floor"]["store"]) == (0, "floor"), judged.said
    assert (missing.code, "there is no run y" in missing.said) == (2, True)
    assert said("decide", floor)[0] == 0


def test_a_run_file_names_a_run_of_a_database(database: str, tmp_path: Path, healthy: SimulatedServer) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate:
        document = {
            "apiVersion": "prefillgate.io/v1alpha1",
            "kind": "Run",
            "spec": {
                "baseline": {"url": healthy.url},
                "candidate": {"url": candidate.url},
                "replaySet": "set.jsonl",
                "policy": "policy.yaml",
                "store": f"{database}?run=from-a-file",
            },
        }
        (tmp_path / "gate.yaml").write_text(json.dumps(document), encoding="utf-8")
        run = work.child("run", "gate.yaml", "--seed", "5")
    assert run.code == 0, run.said
    assert gate_of(f"{database}?run=from-a-file").measured


def test_a_run_whose_name_another_run_has_is_refused(database: str, tmp_path: Path, healthy: SimulatedServer) -> None:
    url = kept(Played(most_cells=3), f"{database}?run=taken")
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate:
        run = work.child(*work.arguments(healthy.url, candidate.url, "--store", url))
    assert run.code == 2
    assert f"{url}: " in run.said


def test_a_database_that_is_away_is_no_bad_input(said: Callable[..., Said]) -> None:
    code, _, err = said("decide", "postgresql://postgres@127.0.0.1:1/evidence?run=night")
    assert code == 1
    assert "the server cannot be reached, or went away" in err


def test_a_password_in_a_url_is_refused_everywhere_and_repeated_nowhere(
    tmp_path: Path, said: Callable[..., Said], healthy: SimulatedServer
) -> None:
    urls = ("postgresql://gate:hunter2x@db/evidence?run=a", "postgresql://gate@db/e?run=a&password=hunter2x")
    set_path, policy = str(bench(tmp_path).set_path), str(tmp_path / "policy.yaml")
    run = ["run", "--candidate", healthy.url, "--replay-set", set_path, "--policy", policy]
    for url in urls:
        commands = [
            *([name, url] for name in ("decide", "report", "cells", "explain")),
            ["diff", url, "case 1"],
            ["override", url, "--cause", "x"],
            ["store", "list", url],
            ["store", "migrate", url],
            ["doctor", "--store", url],
            [*run, "--store", url],
            [*run, "--baseline-store", url],
        ]
        for command in commands:
            code, out, err = said(*command)
            assert (code, "the store's URL holds a password" in err) == (2, True), (command, err)
            assert "hunter2x" not in out + err


def test_store_list_tells_of_every_run_and_of_a_file(database: str, tmp_path: Path, said: Callable[..., Said]) -> None:
    url = kept(Played(most_cells=4), f"{database}?run=day")
    kept(Played(most_cells=6), f"{database}?run=night")
    path = copied(url, tmp_path / "day.db")
    rows = [json.loads(line) for line in said("store", "list", database, "--json")[1].splitlines()]
    assert [(row["store"], row["cells"], row["version"], row["writer"]) for row in rows] == [
        (f"{database}?run=night", 6, 3, None),
        (f"{database}?run=day", 4, 3, None),
    ]
    (one,) = [json.loads(line) for line in said("store", "list", str(path), "--json")[1].splitlines()]
    same = ("version", "created_by", "events", "cells", "kept_bytes", "writer")
    assert {key: one[key] for key in same} == {key: rows[1][key] for key in same}
    assert abs(one["written_at"] - rows[1]["written_at"]) < 3600
    head, *lines = said("store", "list", database)[1].splitlines()
    assert head.split()[:4] == ["store", "version", "events", "cells"]
    assert [line.split()[0] for line in lines] == [f"{database}?run=night", f"{database}?run=day"]
    assert said("store", "list", str(tmp_path / "nothing.db"))[0] == 2


def test_store_migrate_goes_back_and_up_and_the_answer_stays(
    database: str, tmp_path: Path, said: Callable[..., Said]
) -> None:
    url = kept(Played(candidate_rate=0.5), f"{database}?run=day")
    path = str(copied(url, tmp_path / "day.db"))
    answer = said("decide", url, "--json")
    for store in (url, path):
        code, out, _ = said("store", "migrate", store, "--to", "1")
        assert (code, out.splitlines()[0]) == (
            0,
            f"{store}: from schema version 3 to 1; forgotten: the highest token of a writer, when each event was "
            "written",
        )
        assert said("decide", store, "--json") == answer
        assert json.loads(said("store", "list", store, "--json")[1])["written_at"] is None
        assert said("store", "migrate", store)[1].splitlines()[0] == f"{store}: from schema version 1 to 3"
        assert said("store", "migrate", store)[1] == f"{store}: it has schema version 3 already\n"
        assert said("decide", store, "--json") == answer
        code, _, err = said("store", "migrate", store, "--to", "9")
        assert (code, "does not know how to get from there to 9" in err) == (2, True)
    assert sorted(file.name for file in tmp_path.glob("*.bak")) == ["day.db-schema1.bak", "day.db-schema3.bak"]


def test_a_version_that_changes_under_a_run_waits_for_it(database: str, said: Callable[..., Said]) -> None:
    from prefillgate.evidence import open_store

    url = kept(Played(most_cells=3), f"{database}?run=day")
    with open_store(store_address(url)):
        code, _, err = said("store", "migrate", database, "--to", "1")
    assert (code, "in use and cannot be changed under a run: process" in err) == (2, True)


def test_doctor_tries_the_database_and_leaves_nothing_there(
    database: str, module_server: PostgresServer, said: Callable[..., Said]
) -> None:
    def line(*arguments: str) -> dict[str, Any]:
        document = json.loads(said("doctor", "--json", *arguments)[1])
        return next(each for each in document["here"] if each["name"] == "evidence store")

    found = line("--store", database)
    assert found["standing"] == "ok"
    assert found["sentence"].startswith("a run can be made there: PostgreSQL ")
    assert "the first run makes the tables; its fsync is off: a power cut may lose cells" in found["sentence"]
    name = database.rpartition("/")[2]
    assert module_server.ask("SELECT to_regnamespace('prefillgate')", name) is None
    kept(Played(most_cells=3), f"{database}?run=day")
    assert "its tables have version 3" in line("--store", database)["sentence"]
    assert len(store_facts(store_address(database))) == 1
    module_server.ask("DROP ROLE IF EXISTS stranger")
    module_server.ask("CREATE ROLE stranger LOGIN")
    refused = line("--store", module_server.address(name, "stranger"))
    assert (refused["standing"], refused["needed"]) == ("missing", True)
    assert "the role may not do that" in refused["sentence"]
    assert said("doctor", "--store", "postgresql://postgres@127.0.0.1:1/x")[0] == 10


def test_a_shell_completes_the_runs_of_a_database(database: str) -> None:
    import click

    from prefillgate.cli.decide import command
    from prefillgate.cli.stores import STORE

    for name in ("day", "dawn", "night"):
        kept(Played(most_cells=1), f"{database}?run={name}")
    context, parameter = click.Context(command), command.params[0]

    def offered(start: str) -> list[str]:
        return [item.value for item in STORE.shell_complete(context, parameter, start)]

    assert offered(f"{database}?run=da") == [f"{database}?run=dawn", f"{database}?run=day"]
    assert len(offered(database)) == 3
    assert [item.type for item in STORE.shell_complete(context, parameter, "run")] == ["file"]
    assert offered("postgresql://postgres@127.0.0.1:1/x") == []
    assert offered("postgresql://u:secret@h/x") == []


def test_the_story_keeps_its_evidence_in_a_file(said: Callable[..., Said]) -> None:
    code, _, err = said("demo", "--story", "--store", "postgresql://h/d?run=a")
    assert (code, "goes into a file" in err) == (2, True)
