"""`run --gateway`: the bad cells once more, straight and through a gateway that does one thing to them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from prefillgate.core.journal import GatewayCompared
from prefillgate.evidence import SqliteJournal
from tests.support.gateways import caching, editing, passing, refusing, saying, with_text
from tests.support.llama import real_llama
from tests.support.rewriting import Arrived
from tests.support.runs import Bench, Ended, bench, stored
from tests.support.simulated import SimulatedServer, start_simulated

GOOD = "The change is small, tested and does what its title says.\n\nVERDICT: LGTM"
DIALECTS = ("llama", "openai")
Gateway = Callable[[str], AbstractContextManager[str]]


def asked(path: Path) -> list[GatewayCompared]:
    """The comparisons that a store holds."""
    with SqliteJournal.open_readonly(path) as journal:
        return [event for event in journal.events() if isinstance(event, GatewayCompared)]


def strip(body: dict[str, Any]) -> None:
    """Drop what the gateway does not know, and a nonce on the first line."""
    body.pop("cache_prompt", None)
    first, _, rest = body["prompt"].partition("\n")
    if len(first) == 32:
        body["prompt"] = rest


def prefix(body: dict[str, Any]) -> None:
    """Put an instruction of its own in front."""
    body["prompt"] = "You are an assistant of the Example company. " * 6 + body["prompt"]


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broken(dialect: str) -> Iterator[SimulatedServer]:
    """A candidate that is bad on every prompt, each time."""
    with start_simulated(seed=2, text_seed=9, dialect=dialect, fault=["bad-prompt=1"]) as server:
        yield server


@pytest.fixture
def work(tmp_path: Path) -> Bench:
    """Ends on its budget right after the first bad cell, which no replicate can be afforded for."""
    return bench(tmp_path, marginPercent=30, acceptance=[10], budgetPrefills=12)


def run(work: Bench, candidate: SimulatedServer, gateway: str, *more: str) -> Ended:
    with start_simulated(seed=1, text_seed=9, dialect="openai" if "openai" in more else "llama") as baseline:
        options = [option for option in more if option not in DIALECTS]
        command = work.arguments(baseline.url, candidate.url, "--store", "run.db", "--json", "--gateway", gateway)
        return work.child(*command, *options)


def only(ended: Ended, work: Bench) -> dict[str, Any]:
    """The one comparison of a run; its store says the same and nothing of it was scored."""
    assert ended.code == 10, ended.said
    document = ended.json
    assert work.child("decide", "run.db", "--json").json == document
    gate, _ = stored(work.folder / "run.db")
    assert document["prefills_used"] == len(gate.scored) == 3
    (view,) = document["gateway"]
    assert view["cell_id"] == gate.scored[-1].cell_id
    assert any(sentence.startswith("Gateway ") for sentence in document["sentences"])
    assert any(note.startswith(f"gateway: cell {view['cell_id']} ") for note in document["notes"])
    return dict(view)


def test_a_gateway_that_passes_everything_on_is_not_where_it_breaks(
    work: Bench, broken: SimulatedServer, dialect: str
) -> None:
    arrived: list[Arrived] = []
    with passing(broken.url, arrived) as gateway:
        view = only(run(work, broken, gateway, dialect), work)
    assert (view["where"], view["knob"], view["rewrites"], view["refusal"]) == ("both", "kept", [], None)
    assert (view["asked_server"], view["from_cache"]) == ((True, False) if dialect == "llama" else (None, None))
    generated = [request for request in arrived if request.method == "POST"]
    (event,) = asked(work.folder / "run.db")
    texts = stored(work.folder / "run.db")[1][event.cell_id]
    sent = {json.dumps(json.loads(request.body), sort_keys=True) for request in generated}
    assert len(generated) == (2 if dialect == "llama" else 3)
    if dialect == "llama":
        assert event.direct.texts is not None
        assert event.direct.texts.request == texts.request  # the body of the cell, to the byte
        assert len(sent) == 1
    nonces = {answer.nonce for answer in (event.direct, event.through, event.renewed) if answer is not None}
    cell = stored(work.folder / "run.db")[0].measured[event.cell_id]
    assert nonces == {None} if dialect == "llama" else len(nonces) == 3 and cell.nonce not in nonces


def test_a_gateway_that_strips_the_knob_is_told(work: Bench, broken: SimulatedServer, dialect: str) -> None:
    with editing(broken.url, strip) as gateway:
        ended = run(work, broken, gateway, dialect)
    view = only(ended, work)
    assert (view["where"], view["knob"]) == ("both", "stripped")
    assert any("It strips what forces a fresh prefill." in sentence for sentence in ended.json["sentences"])


def test_a_response_cache_is_told_by_the_same_id_and_no_work_of_the_server(
    work: Bench, broken: SimulatedServer, dialect: str
) -> None:
    with caching(broken.url) as gateway:
        before = len(broken.truth())
        ended = run(work, broken, gateway, dialect)
    view = only(ended, work)
    assert (view["where"], view["from_cache"]) == ("both", True)
    assert any("It answers from a response cache." in sentence for sentence in ended.json["sentences"])
    (event,) = asked(work.folder / "run.db")
    assert event.repeat is not None
    assert event.repeat.request_id == event.through.request_id
    if dialect == "llama":
        assert (event.through.server_processed_tokens, event.repeat.server_processed_tokens) == (
            event.through.prompt_tokens,
            0,
        )
    assert before == 0


def test_a_gateway_that_rewrites_the_prompt_is_told(work: Bench, broken: SimulatedServer, dialect: str) -> None:
    with editing(broken.url, prefix) as gateway:
        ended = run(work, broken, gateway, dialect)
    view = only(ended, work)
    (event,) = asked(work.folder / "run.db")
    more = f"the prompt had {event.through.prompt_tokens} tokens through it and {event.direct.prompt_tokens} straight"
    assert view["rewrites"] == [more]
    assert any(f"It rewrites the request: {more}." in sentence for sentence in ended.json["sentences"])


def test_a_gateway_that_breaks_the_text_is_where_it_breaks(work: Bench, dialect: str) -> None:
    fault = ["bad-first=1"]
    with (
        start_simulated(seed=2, text_seed=9, dialect=dialect, fault=fault, count_match="case-") as candidate,
        saying(candidate.url, with_text("VERDICT: LGTM")) as gateway,
    ):
        ended = run(work, candidate, gateway, dialect)
    view = only(ended, work)
    assert (view["where"], view["direct_bad"], view["through_bad"]) == ("gateway", False, True)
    assert any("1 bad only through the gateway; one prefill each, no rate." in s for s in ended.json["sentences"])


def test_a_gateway_that_mends_the_text_leaves_the_server_as_the_place(
    work: Bench, broken: SimulatedServer, dialect: str
) -> None:
    with saying(broken.url, with_text(GOOD)) as gateway:
        view = only(run(work, broken, gateway, dialect), work)
    assert (view["where"], view["direct_bad"], view["through_bad"]) == ("direct", True, False)


def test_a_bad_cell_that_is_bad_on_neither_way_was_not_reproduced(work: Bench, dialect: str) -> None:
    fault = ["bad-first=1"]
    with (
        start_simulated(seed=2, text_seed=9, dialect=dialect, fault=fault, count_match="case-") as candidate,
        passing(candidate.url) as gateway,
    ):
        view = only(run(work, candidate, gateway, dialect), work)
    assert view["where"] == "neither"


def test_a_gateway_that_is_not_there_is_a_finding_and_no_error_of_the_run(
    work: Bench, broken: SimulatedServer, dialect: str
) -> None:
    ended = run(work, broken, "http://127.0.0.1:1", dialect)
    view = only(ended, work)
    assert (view["where"], view["reached"], view["direct_bad"]) == ("unknown", False, True)
    assert any(
        "Gateway http://127.0.0.1:1 could not be asked: through the gateway: ConnectionRefused" in sentence
        for sentence in ended.json["sentences"]
    )


def test_a_body_that_the_gateway_alone_refuses_is_told_with_its_words(
    work: Bench, broken: SimulatedServer, dialect: str
) -> None:
    with refusing(broken.url, 400, "unknown field: cache_prompt") as gateway:
        view = only(run(work, broken, gateway, dialect), work)
    assert (view["reached"], view["where"]) == (True, "unknown")
    assert "unknown field: cache_prompt" in view["refusal"]


def test_the_verdict_without_the_gateway_is_the_verdict_with_it(
    work: Bench, broken: SimulatedServer, dialect: str
) -> None:
    with passing(broken.url) as gateway:
        with_it = run(work, broken, gateway, dialect).json
    (work.folder / "run.db").unlink()
    broken.restart()  # the same seed means the same nonces: nothing may be warm
    with start_simulated(seed=1, text_seed=9, dialect=dialect) as baseline:
        without = work.child(*work.arguments(baseline.url, broken.url, "--store", "run.db", "--json")).json
    assert without["gateway"] == []
    for name in ("decision", "promotion", "rollback", "reason", "arms", "prefills_used", "alarm", "comparison"):
        assert with_it[name] == without[name]


def test_every_report_tells_of_the_gateway(work: Bench) -> None:
    with (
        start_simulated(seed=2, text_seed=9, fault=["bad-prompt=1"]) as candidate,
        editing(candidate.url, strip) as gateway,
    ):
        assert run(work, candidate, gateway).code == 10
    for format_, words in (
        ("html", "strips what forces a fresh prefill"),
        ("markdown", "strips what forces a fresh prefill"),
        ("junit", "strips what forces a fresh prefill"),
        ("json", '"knob": "stripped"'),
        ("line", "Gateway: bad on both ways (case-0; one prefill each)."),
    ):
        assert words in work.child("report", "run.db", "--format", format_).out.decode()
    assert "strips what forces" in " ".join(work.child("decide", "run.db").out.decode().split())


# -- when it runs


def test_no_bad_cell_no_request_to_the_gateway(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    arrived: list[Arrived] = []
    with start_simulated(seed=2, text_seed=9) as candidate, passing(candidate.url, arrived) as gateway:
        ended = work.child(*work.arguments(healthy.url, candidate.url, "--gateway", gateway, "--json"))
    assert (ended.code, arrived, ended.json["gateway"]) == (0, [], [])
    assert (
        "gateway: not asked: the candidate has no bad cell that could be sent again with a fresh prefill" in ended.lines
    )


def test_at_most_four_bad_cells_are_asked_and_only_after_the_last_scored_one(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, replicate={"gapSeconds": 0})
    arrived: list[Arrived] = []
    with (
        start_simulated(seed=2, text_seed=9, fault=["bad-prompt=1"]) as candidate,
        passing(candidate.url, arrived) as gateway,
    ):
        ended = work.child(
            *work.arguments(healthy.url, candidate.url, "--store", "run.db", "--gateway", gateway, "--json")
        )
        lines = candidate.truth()
    assert ended.code == 20, ended.said
    events = asked(tmp_path / "run.db")
    assert len(events) == len(ended.json["gateway"]) == 4
    assert len({view["case_id"] for view in ended.json["gateway"]}) == 4
    assert len(arrived) == 5  # one each, and the first once more
    assert all(line["fresh"] for line in lines if line["output_tokens"] != 2)  # nothing was warmed for another
    gate, _ = stored(tmp_path / "run.db")
    assert max(event.cell.ended_at or 0.0 for event in gate.scored) <= min(event.direct.at for event in events)


def test_a_finished_run_is_asked_once_for_its_gateway_without_a_new_probe_and_then_never_again(
    work: Bench, healthy: SimulatedServer
) -> None:
    with start_simulated(seed=2, text_seed=9, fault=["bad-prompt=1"]) as candidate, passing(candidate.url) as gateway:
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db", "--json")
        assert work.child(*command).json["gateway"] == []
        before = len(candidate.truth())
        first = work.child(*command, "--gateway", gateway)
        assert len(candidate.truth()) == before + 3
        again = work.child(*command, "--gateway", gateway)
        assert len(candidate.truth()) == before + 3
    assert first.code == again.code == 10
    assert first.json == again.json
    assert len(first.json["gateway"]) == 1


def test_a_gateway_that_was_away_is_asked_again_by_the_same_command(work: Bench, healthy: SimulatedServer) -> None:
    with start_simulated(seed=2, text_seed=9, fault=["bad-prompt=1"]) as candidate, passing(candidate.url) as gateway:
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db", "--json")
        away = work.child(*command, "--gateway", "http://127.0.0.1:1")
        there = work.child(*command, "--gateway", gateway)
    assert [view["reached"] for view in away.json["gateway"]] == [False]
    assert [(view["reached"], view["where"]) for view in there.json["gateway"]] == [(True, "both")]


def test_a_candidate_that_was_restarted_since_is_not_compared_and_the_decision_stands(
    work: Bench, healthy: SimulatedServer
) -> None:
    with start_simulated(seed=2, text_seed=9, fault=["bad-prompt=1"]) as candidate, passing(candidate.url) as gateway:
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db", "--json")
        before = work.child(*command)
        candidate.restart(build_info="another")
        after = work.child(*command, "--gateway", gateway)
        candidate.kill()
        gone = work.child(*command, "--gateway", gateway)
    assert before.json == after.json == gone.json
    assert any("the candidate was restarted since its last cell" in line for line in after.lines)
    assert any(line.startswith("gateway: not asked: candidate: ") for line in gone.lines)


@pytest.mark.parametrize("later", [False, True])
def test_a_bad_cell_is_asked_again_on_the_server_that_it_ran_on(
    tmp_path: Path, healthy: SimulatedServer, later: bool
) -> None:
    work = bench(tmp_path, marginPercent=30, acceptance=[10], budgetPrefills=12)
    with (
        start_simulated(seed=2, text_seed=9) as first,
        start_simulated(seed=3, text_seed=9, fault=["bad-prompt=1"]) as second,
        passing(second.url) as gateway,
    ):
        command = work.arguments(healthy.url, first.url, "--candidate", second.url, "--store", "run.db", "--json")
        if later:
            assert work.child(*command).json["gateway"] == []
        ended = work.child(*command, "--gateway", gateway)
    views = ended.json["gateway"]
    assert views, ended.said
    assert {view["where"] for view in views} == {"both"}  # the first server alone answers well


# -- how it is reached


def test_the_gateway_gets_its_own_key_and_never_the_servers(
    work: Bench, healthy: SimulatedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_KEY", "server-6371")
    monkeypatch.setenv("GATEWAY_KEY", "gateway-9152")
    (tmp_path / "headers").write_text("X-Team: gate\n")
    arrived: list[Arrived] = []
    with (
        start_simulated(
            {"K": "server-6371"}, seed=2, text_seed=9, fault=["bad-prompt=1"], api_key_env="K"
        ) as candidate,
        passing(candidate.url, arrived) as gateway,
    ):
        command = work.arguments(
            healthy.url, candidate.url, "--store", "run.db", "--api-key-env", "SERVER_KEY", "--json"
        )
        none = work.child(*command, "--gateway", gateway)
        assert [request.headers.get("authorization") for request in arrived] == [None]
        assert none.json["gateway"][0]["reached"] is False
        arrived.clear()
        own = ("--gateway-api-key-env", "GATEWAY_KEY", "--gateway-header-file", "headers")
        work.child(*command, "--gateway", gateway, *own)
    assert [request.headers.get("authorization") for request in arrived] == ["Bearer gateway-9152"]
    assert [request.headers.get("x-team") for request in arrived] == ["gate"]
    kept = (tmp_path / "run.db").read_bytes() + (tmp_path / "run.html").read_bytes()
    assert b"gateway-9152" not in kept
    assert b"server-6371" not in kept


def test_the_gateway_may_know_the_model_by_another_name(work: Bench, healthy: SimulatedServer) -> None:
    arrived: list[Arrived] = []
    with (
        start_simulated(seed=2, text_seed=9, fault=["bad-prompt=1"]) as candidate,
        passing(candidate.url, arrived) as gateway,
    ):
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db", "--json")
        ended = work.child(*command, "--gateway", gateway, "--gateway-model", "team/alias")
    assert {json.loads(request.body)["model"] for request in arrived} == {"team/alias"}
    assert ended.json["gateway"][0]["rewrites"] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--gateway", "ftp://x"), "--gateway: "),
        (
            ("--gateway", "http://127.0.0.1:1", "--gateway-api-key-env", "NO_SUCH"),
            "gateway: API key: NO_SUCH is not set",
        ),
        (("--gateway", "http://127.0.0.1:1", "--gateway-header-file", "none"), "none"),
        (("--gateway", "http://127.0.0.1:1", "--gateway-ca-file", "none.pem"), "none.pem"),
        (("--gateway", "http://127.0.0.1:1", "--gateway-client-cert", "none.pem"), "none.pem"),
        (("--gateway", "http://127.0.0.1:1", "--gateway-proxy", "socks5://x"), "proxy"),
        (("--gateway-model", "m"), "--gateway-model: there is no gateway (allowed: together with --gateway URL)"),
        (("--gateway-insecure",), "--gateway-insecure: there is no gateway"),
    ],
)
def test_what_cannot_be_used_is_refused_before_a_server_is_asked(
    work: Bench, options: tuple[str, ...], said: str
) -> None:
    ended = work.child(*work.arguments("http://127.0.0.1:1", "http://127.0.0.1:2", *options))
    assert ended.code == 2
    assert said in ended.said
    assert not list(work.folder.glob("*.db"))


def test_a_certificate_that_is_not_checked_is_named_in_the_verdict(work: Bench, healthy: SimulatedServer) -> None:
    with start_simulated(seed=2, text_seed=9, fault=["bad-prompt=1"]) as candidate:
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db", "--json")
        ended = work.child(*command, "--gateway", "https://127.0.0.1:1", "--gateway-insecure")
    assert any(note.startswith("gateway: the server's certificate was not checked") for note in ended.json["notes"])


# -- the real server


@pytest.fixture(scope="module")
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, list[str], str]:
    """A run on two real servers whose candidate has a wrong rope base: bench, its command, the candidate's address."""
    folder = tmp_path_factory.mktemp("real")
    work = bench(folder, marginPercent=30, acceptance=[10], budgetPrefills=11, baselinePassPrefills=1)
    baseline = real_llama(request, ("--cache-ram", "0"))
    candidate = real_llama(request, ("--cache-ram", "0", "--rope-freq-base", "10000"))
    given = ["--baseline", baseline.url, "--candidate", candidate.url, "--replay-set", "four"]
    command = ["run", *given, "--policy", work.policy_path.name, "--seed", "5", "--json"]
    ended = work.child(*command, "--store", "first.db")
    assert ended.json["reason"] == "BudgetSpent", ended.said
    assert ended.json["arms"]["candidate"]["bad_prefills"] == 1
    return work, command, candidate.url


REAL: dict[str, tuple[Gateway, dict[str, Any]]] = {
    "passes": (passing, {"where": "both", "knob": "kept", "from_cache": False, "rewrites": []}),
    "strips": (lambda url: editing(url, strip), {"where": "both", "knob": "stripped", "from_cache": False}),
    "caches": (caching, {"where": "both", "from_cache": True, "asked_server": True}),
    "rewrites": (lambda url: editing(url, prefix), {"asked_server": True, "from_cache": False}),
    "breaks": (lambda url: saying(url, with_text("")), {"direct_bad": True, "through_bad": True}),
    "refuses": (lambda url: refusing(url, 422, "no such field"), {"where": "unknown", "reached": True}),
}


@pytest.mark.parametrize("name", REAL)
def test_a_real_server_behind_a_gateway(
    finished: tuple[Bench, list[str], str], request: pytest.FixtureRequest, name: str
) -> None:
    work, command, candidate = finished
    real_llama(request, ("--cache-ram", "0", "--rope-freq-base", "10000"))
    make, expected = REAL[name]
    shutil.copyfile(work.folder / "first.db", work.folder / f"{name}.db")
    with make(candidate) as gateway:
        ended = work.child(*command, "--store", f"{name}.db", "--gateway", gateway)
    (view,) = ended.json["gateway"]
    assert {key: view[key] for key in expected} == expected, view
    if name == "rewrites":
        (event,) = asked(work.folder / f"{name}.db")
        told = (event.through.prompt_tokens, event.direct.prompt_tokens)
        assert view["rewrites"] == [f"the prompt had {told[0]} tokens through it and {told[1]} straight"]
        assert (told[0] or 0) > (told[1] or 0)


def test_a_real_server_behind_a_dead_gateway(
    finished: tuple[Bench, list[str], str], request: pytest.FixtureRequest
) -> None:
    work, command, _ = finished
    real_llama(request, ("--cache-ram", "0", "--rope-freq-base", "10000"))
    shutil.copyfile(work.folder / "first.db", work.folder / "dead.db")
    ended = work.child(*command, "--store", "dead.db", "--gateway", "http://127.0.0.1:1")
    (view,) = ended.json["gateway"]
    assert (view["reached"], view["direct_bad"], view["where"]) == (False, True, "unknown")
