"""A marked test fails when its repeats were copies of one prefill: on a real pytest, and on the real server."""

from __future__ import annotations

import pytest

from prefillgate.hosts.llama_server import LlamaServer
from tests.library.conftest import Run

BEGIN = """
import pytest
BODY = {"prompt": "Review this."}
def reply(cached, text="The loop ends early.", total=100):
    timings = {} if cached is None else {"timings": {"cache_n": cached, "prompt_n": total - cached}}
    usage = {"prompt_tokens": total, "completion_tokens": 5}
    return {"choices": [{"index": 0, "text": text, "finish_reason": "stop"}], "usage": usage, **timings}
def timed(milliseconds):
    return {**reply(0), "timings": {"cache_n": 0, "prompt_n": 100, "prompt_ms": milliseconds}}
slow, quick, alone = timed(3000.0), timed(30.0), {"shared_server": False}
"""


def test_repeats_by_parameters_that_ride_on_the_first_one_fail(run: Run) -> None:
    ended = run(
        BEGIN
        + """
@pytest.mark.prefillgate
@pytest.mark.parametrize("repeat", range(3))
def test_it(repeat, prefills):
    prefills.add(reply(96 if repeat else 0), BODY)
"""
    )
    assert ended.returncode == 1
    assert "1 passed" not in ended.stdout.splitlines()[0]
    assert ended.stdout.splitlines()[-1].startswith("2 failed, 1 passed")
    assert (
        "prefillgate: not independent: answered from an earlier prefill (2 requests so far, 1 prefills)" in ended.stdout
    )
    assert ": copy, cached 96 of 100" in ended.stdout


def test_repeats_with_a_prefill_each_pass(run: Run) -> None:
    ended = run(
        BEGIN
        + """
@pytest.mark.prefillgate(at_least=3)
def test_it(prefills):
    for _ in range(3):
        prefills.add(reply(0), BODY)
    assert (prefills.counts().requests, prefills.counts().prefills) == (3, 3)
"""
    )
    assert ended.stdout.splitlines()[-1].startswith("1 passed"), ended.stdout
    assert "Unknown" not in ended.stdout  # the marker is registered


@pytest.mark.parametrize(
    ("marker", "body", "said"),
    [
        ("", "prefills.add(reply(0), BODY); prefills.add(reply(96), BODY)", "not independent: "),
        ("", "prefills.add(reply(96), BODY)", "its fresh parent never seen"),
        ("", "prefills.add(reply(20), BODY)", "not independent: "),
        ("", "prefills.add(reply(None), BODY)", "independence unknown (1 requests so far, 0 prefills)"),
        (
            "",
            "prefills.add(slow, BODY, **alone); prefills.add(quick, BODY, **alone)",
            "prefill too fast for a fresh one",
        ),
        ("", "pass", "no request was recorded"),
        ("", "prefills.add({'error': {'message': 'busy'}}, BODY)", "every request was refused"),
        (
            "(at_least=2)",
            "prefills.add(reply(0), BODY)",
            "1 fresh prefills in the 1 requests of this test; at least 2 are wanted",
        ),
        (
            "(at_least=1, allow_unknown=True)",
            "prefills.add(reply(None), BODY)",
            "0 fresh prefills in the 1 requests of this test",
        ),
        ("(at_least=0)", "prefills.add(reply(0), BODY)", "the marker takes at_least (a whole number above 0)"),
        ("(3)", "prefills.add(reply(0), BODY)", "the marker takes at_least"),
        ("(atleast=3)", "prefills.add(reply(0), BODY)", "the marker takes at_least"),
        ("", "prefills.watch(object())", "prefills.watch: object (allowed: httpx.Client, httpx.AsyncClient)"),
        ("", "prefills.counts()", "prefills.counts: nothing was recorded yet"),
        ("", "prefills.add(reply(0))", "request: neither it nor case_id is given"),
        ("", "prefills.add(reply(0), BODY); assert not 1", "assert not 1"),
    ],
)
def test_a_marked_test_that_shows_no_independence_fails_with_the_reason(
    run: Run, marker: str, body: str, said: str
) -> None:
    ended = run(f"{BEGIN}\n@pytest.mark.prefillgate{marker}\ndef test_it(prefills):\n    {body}\n")
    assert ended.returncode == 1
    assert said in ended.stdout


def test_no_time_is_held_against_a_reply_of_a_server_that_serves_others_too(run: Run) -> None:
    body = "prefills.add(slow, BODY); prefills.add(quick, BODY)"
    ended = run(f"{BEGIN}\n@pytest.mark.prefillgate\ndef test_it(prefills):\n    {body}\n")
    assert ended.returncode == 0, ended.stdout


def test_what_cannot_be_known_passes_where_that_is_allowed(run: Run) -> None:
    body = "prefills.add(reply(None), BODY)"
    ended = run(f"{BEGIN}\n@pytest.mark.prefillgate(allow_unknown=True)\ndef test_it(prefills):\n    {body}\n")
    assert ended.returncode == 0, ended.stdout


def test_a_test_without_the_mark_is_left_alone_and_each_function_is_counted_by_itself(run: Run) -> None:
    ended = run(
        BEGIN
        + """
def test_free(prefills):
    prefills.add(reply(0), BODY)
    prefills.add(reply(96), BODY)
@pytest.mark.prefillgate
def test_marked(prefills):
    prefills.add(reply(0), BODY)
@pytest.mark.prefillgate
def test_other(prefills):
    prefills.add(reply(0), BODY)
    assert prefills.counts().requests == 1
"""
    )
    assert ended.stdout.splitlines()[-1].startswith("3 passed"), ended.stdout


ON_A_SERVER = """
import asyncio, httpx, pytest
HOW = {{"base_url": {url!r}, "timeout": 120, "limits": httpx.Limits(max_keepalive_connections=0)}}
PROMPT = "Chapter {seed}. " + " ".join("word%d" % (7 * n % 101) for n in range(60))
def body(**more):
    return {{"prompt": PROMPT, "max_tokens": 4, "temperature": 0, **more}}

@pytest.mark.prefillgate
@pytest.mark.parametrize("repeat", range(2))
def test_cached(repeat, prefills):
    with prefills.watch(httpx.Client(**HOW)) as client:
        assert client.get("/health").status_code == 200
        assert client.post("/v1/completions", json=body(cache_prompt=repeat > 0)).status_code == 200

@pytest.mark.prefillgate(at_least=2)
def test_fresh(prefills):
    with prefills.watch(httpx.Client(**HOW)) as client:
        for _ in range(2):
            with client.stream("POST", "/v1/completions", json=body(cache_prompt=False, stream=True)) as streamed:
                assert sum(1 for line in streamed.iter_lines() if line.startswith("data: ")) > 2

@pytest.mark.prefillgate(at_least=1)
def test_fresh_and_not_waited_for(prefills):
    async def ask():
        async with prefills.watch(httpx.AsyncClient(**HOW)) as client:
            assert (await client.post("/v1/completions", json=body(cache_prompt=False))).status_code == 200
            assert (await client.post("/v1/completions", json={{"prompt": 5}})).status_code >= 400
    asyncio.run(ask())
    assert prefills.counts().requests == 1
"""


def test_on_the_real_server_repeats_out_of_the_cache_fail_and_fresh_ones_pass(run: Run, llama: LlamaServer) -> None:
    ended = run(ON_A_SERVER.format(url=llama.url, seed=29), "-rA")
    told = {
        line.rpartition("::")[2].split(" - ")[0]: line.split()[0] for line in ended.stdout.splitlines() if "::" in line
    }
    assert told == {
        "test_cached[0]": "PASSED",
        "test_cached[1]": "FAILED",
        "test_fresh": "PASSED",
        "test_fresh_and_not_waited_for": "PASSED",
    }, ended.stdout
    assert (
        "prefillgate: not independent: answered from an earlier prefill (2 requests so far, 1 prefills)" in ended.stdout
    )


def test_a_pytest_that_marks_nothing_pays_for_nothing(run: Run) -> None:
    ended = run("import sys\ndef test_it():\n    assert not {'prefillgate.library', 'pydantic'} & set(sys.modules)\n")
    assert ended.returncode == 0, ended.stdout
    assert "prefillgate" in run("def test_it(): pass\n", "--markers").stdout
