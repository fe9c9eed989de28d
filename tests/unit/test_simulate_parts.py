"""The parts of the simulated server that need no socket: tokenizer, dice, cache, faults, answers, requests."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillgate.simulate.answers import Answers, AnswersError, Asked, load_answers
from prefillgate.simulate.cache import Prefill, PromptCache, Sequence, Slot
from prefillgate.simulate.composing import compose
from prefillgate.simulate.dice import Dice
from prefillgate.simulate.faults import FAULTS, Fault, FaultError, Faults, Turn, allowed, parse_faults
from prefillgate.simulate.plant import draws_bad
from prefillgate.simulate.reporting import Figures, report
from prefillgate.simulate.request import Refused, Route, parse
from prefillgate.simulate.settings import Speed
from prefillgate.simulate.timing import pace
from prefillgate.simulate.tokens import common_prefix, pieces, tokenize

NONE = Faults({}, Dice(0))
PREFILL = Prefill(1, False, "epoch")


def turn(arrival: int = 1, prompt: str = "p") -> Turn:
    return Turn(arrival, arrival, prompt)


@given(st.text())
def test_the_pieces_of_any_text_joined_are_the_text(text: str) -> None:
    assert "".join(pieces(text)) == text


@given(st.text(), st.text(), st.text())
def test_a_common_beginning_of_words_is_a_common_beginning_of_tokens(start: str, left: str, right: str) -> None:
    shared = len(pieces(start + "\n"))
    assert tokenize(f"{start}\n {left}")[:shared] == tokenize(f"{start}\n {right}")[:shared]


def test_a_token_is_about_four_characters() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert 2.5 < len(text) / len(tokenize(text)) < 5
    prose = "The commit moves the retry logic into one place and the tests cover both cases. " * 9
    assert 3.5 < len(prose) / len(tokenize(prose)) < 5


@pytest.mark.parametrize(
    ("left", "right", "shared"), [((), (1,), 0), ((1, 2), (1, 2, 3), 2), ((1, 2, 9), (1, 2, 3), 2), ((1,), (2,), 0)]
)
def test_the_common_prefix_ends_at_the_first_difference(
    left: tuple[int, ...], right: tuple[int, ...], shared: int
) -> None:
    assert common_prefix(left, right) == common_prefix(right, left) == shared


def test_draws_depend_on_seed_and_purpose_alone() -> None:
    assert Dice(1).uniform("a", 2) == Dice(1).uniform("a", 2)
    assert len({Dice(seed).uniform(part, 2) for seed in (1, 2) for part in ("a", "b")}) == 4
    values = [Dice(3).uniform("x", place) for place in range(4000)]
    assert 0.48 < statistics.mean(values) < 0.52
    assert 0 <= min(values) < 0.01 and 0.99 < max(values) < 1
    normal = [Dice(3).normal("x", place) for place in range(4000)]
    assert -0.06 < statistics.mean(normal) < 0.06 and 0.96 < statistics.stdev(normal) < 1.04


def cache(slots: int = 1, host_tokens: int = 0, window: bool = False) -> PromptCache:
    return PromptCache([Slot(number) for number in range(slots)], host_tokens, window)


def run(store: PromptCache, tokens: tuple[int, ...], read: bool = True, output: int = 0) -> int:
    """Place a prompt, let it generate, free its slot; the cached count."""
    placement = store.place(tokens, read)
    said = tuple(range(-output, 0))
    store.write(placement.slot, Sequence(tokens + said, len(tokens), PREFILL))
    placement.slot.busy = False
    return placement.cached


A, B, C = (tuple(range(start, start + 100)) for start in (1000, 2000, 3000))


def test_a_repeat_reuses_all_but_one_token() -> None:
    store = cache()
    assert [run(store, A), run(store, A), run(store, A, output=7), run(store, A)] == [0, 99, 99, 99]


@pytest.mark.parametrize("tokens", [1, 4, 100])
def test_a_repeat_processes_the_tokens_that_are_always_left(tokens: int) -> None:
    store = PromptCache([Slot(0)], 0, reprocess_tokens=tokens)
    assert [run(store, A), run(store, A)] == [0, 100 - tokens]


def test_a_shared_prefix_is_reused_up_to_the_difference_and_a_longer_prompt_from_its_end() -> None:
    store = cache()
    run(store, A)
    assert run(store, A[:60] + B[:40]) == 60
    assert run(store, A[:60] + B[:40] + C) == 100


def test_reading_forbidden_still_writes() -> None:
    store = cache()
    assert [run(store, A, read=False), run(store, A, read=False), run(store, A)] == [0, 0, 99]


def test_an_overwritten_sequence_comes_back_from_the_host_cache_only() -> None:
    for host_tokens, found in ((0, 0), (99, 0), (100, 99), (1000, 99)):
        store = cache(host_tokens=host_tokens)
        run(store, A)
        run(store, B)
        assert run(store, A) == found


def test_the_host_cache_drops_its_oldest_entry_first() -> None:
    store = cache(host_tokens=200)
    for prompt in (A, B, C, tuple(range(4000, 4100))):
        run(store, prompt)
    assert [entry.tokens for entry in store.host] == [B, C]
    assert [run(store, A), run(store, C), run(store, B)] == [0, 99, 0]


def test_the_most_alike_slot_is_taken_else_the_one_idle_longest() -> None:
    store = cache(slots=2)
    run(store, A)
    run(store, B)
    assert store.place(A, read=True).slot.number == 0
    assert store.place(C, read=True).slot.number == 1
    with pytest.raises(RuntimeError, match="no free slot"):
        store.place(C, read=True)


def test_a_sliding_window_reuses_up_to_its_checkpoint_or_nothing() -> None:
    store = cache(window=True)
    run(store, A, output=5)
    assert run(store, A) == 95
    assert run(store, A + B) == 95
    store = cache(window=True)
    run(store, A)
    assert run(store, A[:94] + B) == 0
    store = cache(window=True)
    run(store, A)
    assert run(store, A[:95] + B) == 95


def test_extra_results_take_further_slots_and_save_what_they_held() -> None:
    store = cache(slots=2, host_tokens=1000)
    run(store, A)
    run(store, B)
    placement = store.place(B, read=True)
    assert [slot.number for slot in store.take_extra(1)] == [0]
    assert store.free() == []
    assert placement.slot.number == 1
    assert A in [entry.tokens for entry in store.host]


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("1", [1, 2, 3, 4, 5, 6]),
        ("0", []),
        ("#3", [3]),
        ("#2,4-5", [2, 4, 5]),
        ("@odd", [1, 3, 5]),
        ("1@odd", [1, 3, 5]),
        ("#1-4@odd", [1, 3]),
    ],
)
def test_a_chance_hits_by_rate_ordinal_and_prompt(text: str, hit: list[int]) -> None:
    faults = parse_faults([f"reset={text}"], seed=0)
    prompts = {number: "odd" if number % 2 else "even" for number in range(1, 7)}
    assert [n for n, prompt in prompts.items() if faults.hit("reset", turn(n, prompt))] == hit


def test_a_rate_is_met_in_the_long_run_and_several_values_add_up() -> None:
    faults = parse_faults(["reset=0.3", "reset=#5"], seed=4)
    hits = [number for number in range(1, 4001) if faults.hit("reset", turn(number))]
    assert 0.27 < len(hits) / 4000 < 0.33
    assert 5 in hits
    assert not Faults({}, Dice(4)).hit("reset", turn(5))


def test_a_prompt_that_is_not_counted_has_no_ordinal_to_hit() -> None:
    faults = parse_faults(["reset=#1", "bad-first=9", "bad-window=0:9"], seed=0)
    uncounted = Turn(1, None, "p")
    assert not faults.hit("reset", uncounted)
    assert not draws_bad(faults, uncounted, 1, 0.0)
    assert draws_bad(faults, Turn(1, 9, "p"), 1, 0.0)
    assert not draws_bad(faults, Turn(1, 10, "p"), 1, 0.0)


@pytest.mark.parametrize(
    ("text", "bad"), [("2:4", [3, 4]), ("0:1", [1]), ("2s:4s", [2, 3])], ids=["generations", "first", "seconds"]
)
def test_a_window_includes_its_start_and_not_its_end(text: str, bad: list[int]) -> None:
    faults = parse_faults([f"bad-window={text}"], seed=0)
    assert [n for n in range(1, 7) if draws_bad(faults, turn(n), n, float(n))] == bad


def test_a_drift_moves_the_rate_and_then_stays() -> None:
    faults = parse_faults(["drift=0:1:100"], seed=0)
    bad = [draws_bad(faults, turn(n), n, 0.0) for n in range(1, 301)]
    assert sum(bad[:30]) < 15 < 35 < sum(bad[50:100])
    assert all(bad[100:])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_refuses_a_foolish_value_and_says_what_it_takes(fault: Fault) -> None:
    name = fault.name
    for value in ("", "=", "nonsense", "-1", "nan", "1e9", "#0", "#5-2", "5:"):
        with pytest.raises(FaultError) as caught:
            parse_faults([f"{name}={value}"], seed=0)
        assert str(caught.value) == f"fault {name}: {value!r} is not allowed; give {allowed(fault)}"
    with pytest.raises(FaultError, match=f"fault {name}: '' is not allowed"):
        parse_faults([name], seed=0)


def test_an_unknown_fault_is_named_with_the_known_ones() -> None:
    with pytest.raises(FaultError, match=r"unknown fault 'bad-prefil'; known are: always-busy, bad-first"):
        parse_faults(["bad-prefil=0.3"], seed=0)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_the_greedy_answer_depends_on_the_prompt_and_the_sampled_one_on_the_seed_too() -> None:
    answers = Answers((), Dice(1))
    greedy = {answers.reply(Asked("p", False, seed, 0.0)).text for seed in (1, 2, None)}
    sampled = {answers.reply(Asked("p", False, seed, 0.7)).text for seed in (1, 2, 3)}
    others = {answers.reply(Asked(prompt, False, 1, 0.0)).text for prompt in ("p", "q", "r")}
    assert (len(greedy), len(sampled), len(others)) == (1, 3, 3)
    assert all(text.endswith("\nVERDICT: LGTM") and len(text.split()) > 30 for text in greedy | sampled | others)
    assert answers.reply(Asked("p", True, 1, 0.0)).text == "VERDICT: LGTM"


def test_planted_answers_are_found_by_their_match(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    rows = [
        {"match": "weather", "text": "sunny", "bad_text": "fog"},
        {"match": "tool", "text": "", "reasoning": "hm", "tool_calls": [{"name": "f", "arguments": {"a": 1}}]},
        {"match": "plain", "text": "yes"},
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8")
    answers = load_answers(path, Dice(0), bad_text="no")
    good, bad = (answers.reply(Asked("the weather", state, 1, 0.5)).text for state in (False, True))
    assert (good, bad) == ("sunny", "fog")
    assert answers.reply(Asked("plain", True, 1, 0.5)).text == "no"
    called = answers.reply(Asked("a tool", False, 1, 0))
    assert (called.reasoning, called.tool_calls) == ("hm", (("f", '{"a": 1}'),))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: expected an object"),
        ('{"match": "x"}', "line 2: field 'text' must be a string, not None"),
        ('{"match": 5, "text": ""}', "line 2: field 'match' must be a string, not 5"),
        ('{"match": "x", "text": "", "bad_text": 1}', "line 2: field 'bad_text' must be a string, not 1"),
        ('{"match": "x", "text": "", "other": 1}', "line 2: unknown field 'other'"),
        ('{"match": "x", "text": "", "tool_calls": [{}]}', "line 2: field 'tool_calls' must be a list"),
    ],
)
def test_a_bad_answers_file_is_refused_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"match": "a", "text": "b"}\n' + line, encoding="utf-8")
    with pytest.raises(AnswersError, match=words):
        load_answers(path, Dice(0))


def asked(**fields: object) -> bytes:
    return json.dumps({"prompt": "p", **fields}).encode()


def test_an_answer_is_cut_by_its_limit_and_by_its_stop_text() -> None:
    reply = Answers((), Dice(0)).reply(Asked("p", True, 1, 0))  # VERDICT: LGTM, four tokens
    for limit, reason, count in ((2, "length", 2), (4, "length", 4), (5, "stop", 5), (None, "stop", 5)):
        output, tokens = compose(parse(Route.COMPLETIONS, asked(max_tokens=limit), 4), reply)
        assert (output.finish_reason, tokens) == (reason, count)
        assert len(output.pieces) == min(count, 4)
    output, tokens = compose(parse(Route.COMPLETIONS, asked(stop=["X", ":"]), 4), reply)
    assert (output.text("content"), output.finish_reason, tokens) == ("VERDICT", "stop", 3)
    output, tokens = compose(parse(Route.COMPLETIONS, asked(max_tokens=40, ignore_eos=True), 4), reply)
    assert (tokens, len(output.pieces), output.finish_reason) == (40, 40, "length")


@pytest.mark.parametrize(("n", "slots", "fits"), [(1, 1, True), (0, 4, False), (4, 4, True), (5, 4, False)])
def test_a_request_wants_between_one_result_and_all_slots(n: int, slots: int, fits: bool) -> None:
    if fits:
        assert parse(Route.COMPLETIONS, asked(n=n), slots).n == n
        return
    with pytest.raises(Refused, match=f"between 1 <= value <= {slots}, but got {n}"):
        parse(Route.COMPLETIONS, asked(n=n), slots)


FIGURES = Figures(prompt_tokens=100, cached_tokens=60, prefill_ms=200.0, output_tokens=11, decode_ms=300.0)


def test_the_truth_is_told_when_no_lie_is_planted() -> None:
    told = report(FIGURES, NONE, turn())
    assert told.usage()["prompt_tokens_details"] == {"cached_tokens": 60}
    assert told.timings() == {
        "cache_n": 60,
        "prompt_n": 40,
        "prompt_ms": 200.0,
        "prompt_per_token_ms": 5.0,
        "prompt_per_second": 200.0,
        "predicted_n": 11,
        "predicted_ms": 300.0,
        "predicted_per_token_ms": 30.0,
        "predicted_per_second": pytest.approx(1000 / 30),
    }
    assert told.lies == ()


def test_prefill_time_grows_with_processed_tokens_and_with_their_position() -> None:
    speed = Speed(prefill_ms=4, decode_ms=30, noise_cv=0)
    assert pace(speed, NONE, turn(), 1000, 0).prefill_ms == 30 + 4 * (1000 + 1000**2 / 40_000)
    assert pace(speed, NONE, turn(), 1000, 999).prefill_ms == pytest.approx(34.2, abs=0.01)
    assert pace(speed, NONE, turn(), 20_000, 0).step_ms == 45
    assert pace(speed, parse_faults(["decode-slowdown=2"], 0), turn(), 20_000, 0).step_ms == 90
    assert pace(speed, parse_faults(["prefill-slowdown=3"], 0), turn(), 1000, 0).prefill_ms == 3 * 4130


def test_noise_has_the_planned_size_and_speed_modes_their_share() -> None:
    speed = Speed(decode_ms=30, noise_cv=0.05)
    steps = [pace(speed, NONE, turn(number), 100, 0).step_ms for number in range(1, 2001)]
    assert 0.045 < statistics.stdev(steps) / statistics.mean(steps) < 0.055
    assert statistics.mean(steps) == pytest.approx(30.075, rel=0.005)
    modes = parse_faults(["slow-mode=0.25:2"], 0)
    quiet = Speed(decode_ms=30, noise_cv=0)
    slow = [pace(quiet, modes, turn(number), 100, 0).step_ms > 50 for number in range(1, 2001)]
    assert 0.22 < statistics.mean(slow) < 0.28
