"""What differs between the two profiles: what was declared first, then what the servers tell of themselves."""

from __future__ import annotations

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.differences import differences_of, told_differences
from prefillgate.core.gate import Gate
from prefillgate.core.journal import Difference
from tests.support.journals import epoch, planned


def met(*declared: Difference, baseline: dict[str, object], candidate: dict[str, object]) -> Gate:
    """A run whose servers tell this of themselves."""
    gate = Gate()
    gate.apply(planned(differences=declared))
    for arm, told in ((BASELINE, baseline), (CANDIDATE, candidate)):
        gate.apply(epoch(arm, **told))
    return gate


def test_what_both_told_and_told_differently_is_a_difference() -> None:
    gate = met(
        baseline={"engine": "vllm", "build": "1", "weights": "a", "settings": (("n_ctx", "8"), ("speed", "x"))},
        candidate={"engine": "sglang", "build": "2", "weights": "b", "settings": (("speed", "y"), ("n_ctx", "4"))},
    )
    assert told_differences(gate) == [
        ("engine", "vllm", "sglang"),
        ("build", "1", "2"),
        ("weights", "a", "b"),
        ("n_ctx", "8", "4"),
        ("speed", "x", "y"),
    ]
    assert differences_of(gate) == (
        Difference("build", "engine", "vllm", "sglang", declared=False),
        Difference("build", "build", "1", "2", declared=False),
        Difference("weights", "weights", "a", "b", declared=False),
        Difference("KV cache", "n_ctx", "8", "4", declared=False),
        Difference("other", "speed", "x", "y", declared=False),
    )


def test_what_is_the_same_or_told_by_one_alone_is_none() -> None:
    same = {"build": "1", "weights": None, "settings": (("n_ctx", "8"), ("tp_size", "2"))}
    other = {"build": "1", "weights": "b", "settings": (("n_ctx", "8"), ("pp_size", "2"))}
    assert told_differences(met(baseline=same, candidate=other)) == []
    assert told_differences(met(baseline=other, candidate=same)) == []


def test_before_both_servers_were_met_nothing_is_told() -> None:
    for arm in (BASELINE, CANDIDATE):
        gate = Gate()
        gate.apply(planned())
        gate.apply(epoch(arm, build="1"))
        assert told_differences(gate) == []


def test_the_present_life_of_the_first_server_speaks_for_its_arm() -> None:
    gate = met(baseline={"build": "1"}, candidate={"build": "1"})
    gate.apply(epoch(CANDIDATE, "later", build="2"))
    gate.apply(epoch(CANDIDATE, "beside", build="3", lane=1))
    gate.apply(epoch(BASELINE, "beside", build="4", lane=1))
    assert told_differences(gate) == [("build", "1", "2")]


def test_a_declared_difference_keeps_its_values_and_one_without_any_takes_those_told() -> None:
    with_values = Difference("KV cache", "n_ctx", "8k", "4k")
    without = Difference("my area", "build", None, None)
    silent = Difference("draft head", "-md", "none", "draft.gguf")
    gate = met(
        with_values,
        without,
        silent,
        baseline={"build": "1", "settings": (("n_ctx", "8192"),)},
        candidate={"build": "2", "settings": (("n_ctx", "4096"),)},
    )
    assert differences_of(gate) == (with_values, Difference("my area", "build", "1", "2"), silent)
