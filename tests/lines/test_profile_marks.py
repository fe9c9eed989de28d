"""What tells a profile again that is read otherwise: marks of its template, its images and its ConfigMaps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefillgate.profiles import (
    IMAGE,
    Seal,
    Sources,
    from_same_template,
    inline_profile,
    joined,
    profile_of,
    told_apart,
)
from prefillgate.profiles.model import LONGEST_MARK, MOST_MARKS

SECRET = "secret-value-123456"
SOURCES = Sources(
    Seal(b"k" * 32),
    config_maps={"chat": {"chat.jinja": "{{ x }}", "more": "1"}, "other": {"a": "b"}},
    image_ids={"engine": f"a@sha256:{'a' * 64}", "proxy": f"b@sha256:{'b' * 64}"},
)


def workload(*words: str, **container: Any) -> dict[str, Any]:
    engine = {
        "name": "engine",
        "image": "registry.example/llama:server",
        "args": ["llama-server", "-m", "/m/a.gguf", *words],
        "env": [{"name": "API_KEY", "value": SECRET}],
        "volumeMounts": [{"name": "chat", "mountPath": "/chat"}],
        **container,
    }
    others = [{"name": name, "image": f"registry.example/{name}:1"} for name in ("proxy", "istio-proxy")]
    spec = {"containers": [engine, *others], "volumes": [{"name": "chat", "configMap": {"name": "chat"}}]}
    return {"kind": "Deployment", "spec": {"template": {"spec": spec}}}


def marks(sources: Sources = SOURCES, *words: str, **container: Any) -> dict[str, str]:
    found = [each.rpartition(" ") for each in profile_of(workload(*words, **container), sources).marks]
    return {name: mark for name, _, mark in found}


def test_there_is_a_mark_of_the_template_of_each_image_that_counts_and_of_each_config_map_that_is_used() -> None:
    found = marks()
    assert list(found) == ["template", "image engine", "image proxy", "config chat"]
    assert (found["image engine"], found["image proxy"]) == ("a" * 12, "b" * 12)
    key, _, digest = found["template"].partition("-")
    assert (len(key), len(digest)) == (8, 12)
    assert found["config chat"].startswith(f"{key}-")
    assert SECRET not in str(profile_of(workload(), SOURCES).marks)


def test_an_image_that_no_pod_has_resolved_and_a_config_map_that_was_not_read_have_none() -> None:
    assert list(marks(replace(SOURCES, image_ids={}, config_maps={}))) == ["template"]


def test_they_are_the_same_whatever_is_ignored_or_redacted_and_whatever_engine_is_told() -> None:
    for other in (
        replace(SOURCES, seal=Seal(b"k" * 32, ("model", "m"))),
        replace(SOURCES, ignored=("API_KEY",)),
        replace(SOURCES, engine="vllm"),
        replace(SOURCES, config_maps={**SOURCES.config_maps, "other": {"a": "c"}}),
    ):
        assert marks(other) == marks()


def test_each_tells_of_its_own_thing_alone() -> None:
    plain, of_words, of_image, of_config = (
        marks(),
        marks(SOURCES, "--jinja"),
        marks(replace(SOURCES, image_ids={**SOURCES.image_ids, "engine": f"a@sha256:{'c' * 64}"})),
        marks(replace(SOURCES, config_maps={"chat": {"chat.jinja": "{{ x }}", "more": "2"}})),
    )
    for other, name in ((of_words, "template"), (of_image, "image engine"), (of_config, "config chat")):
        assert {each for each in plain if plain[each] != other[each]} == {name}


def test_the_same_in_another_order_is_the_same_and_another_key_makes_other_keyed_marks() -> None:
    turned = workload()
    spec = turned["spec"]["template"]["spec"]
    turned["spec"]["template"]["spec"] = dict(reversed(spec.items()))
    assert profile_of(turned, SOURCES).marks == profile_of(workload(), SOURCES).marks
    other = marks(replace(SOURCES, seal=Seal(b"o" * 32)))
    assert {name for name in other if other[name] != marks()[name]} == {"template", "config chat"}
    assert other["template"].partition("-")[0] != marks()["template"].partition("-")[0]


def test_they_are_in_no_digest_and_make_no_other_profile() -> None:
    profile = profile_of(workload(), SOURCES)
    bare = replace(profile, marks=())
    assert (profile, profile.digest, profile.document()) == (bare, bare.digest, bare.document())


def test_a_group_has_the_images_of_its_leader_and_of_its_worker_and_is_marked_with_its_size() -> None:
    def group(size: int) -> dict[str, str]:
        pod = {"spec": {"containers": [{"name": "engine", "image": "registry.example/vllm:1", "args": ["vllm"]}]}}
        held = {"size": size, "leaderTemplate": pod, "workerTemplate": pod}
        made = profile_of({"kind": "LeaderWorkerSet", "spec": {"leaderWorkerTemplate": held}}, SOURCES)
        return dict(each.rsplit(" ", 1) for each in made.marks)

    assert [name for name in group(2) if name.startswith("image")] == ["image leader/engine", "image worker/engine"]
    assert group(2)["template"] != group(3)["template"]


def test_one_that_is_written_out_is_marked_too() -> None:
    one, other = (inline_profile({"image": "llama:1", "args": [each]}, SOURCES).marks for each in ("-c", "-b"))
    assert from_same_template(one, inline_profile({"image": "llama:1", "args": ["-c"]}, SOURCES).marks)
    assert not from_same_template(one, other)


def test_names_that_hold_a_credential_are_sealed_and_too_many_or_too_long_ones_are_left_out() -> None:
    assert SECRET not in str(
        profile_of(workload(name=SECRET), replace(SOURCES, image_ids={SECRET: "sha256:" + "a" * 64}))
    )
    volumes = [{"name": f"v{n}", "configMap": {"name": f"c{n}"}} for n in range(100)]
    many = workload()
    many["spec"]["template"]["spec"]["volumes"] = [*volumes, {"name": "x", "configMap": {"name": "c" * LONGEST_MARK}}]
    maps = {f"c{n}": {"a": "b"} for n in range(100)} | {"c" * LONGEST_MARK: {"a": "b"}}
    found = profile_of(many, replace(SOURCES, config_maps=maps)).marks
    assert (len(found), found[0].partition(" ")[0]) == (MOST_MARKS, "template")
    assert max(map(len, profile_of(many, replace(SOURCES, config_maps={"c" * LONGEST_MARK: {}})).marks)) < 100


def test_a_template_as_deep_as_can_be_read_is_marked() -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = {"matchExpressions": [deep]}
    made = workload()
    made["spec"]["template"]["metadata"] = {"labels": {1: "x", "a": deep}}
    assert profile_of(made, SOURCES).marks[0].startswith("template ")


def test_told_apart_by_an_image_or_by_a_config_map_under_the_same_key() -> None:
    was = ("template 0f3a9c21-1", "image engine 1", "config chat 0f3a9c21-1")
    assert not told_apart(was, was)
    assert told_apart(was, ("image engine 2",))
    assert told_apart(was, ("config chat 0f3a9c21-2",))
    assert not told_apart(was, ("config chat 00000000-2",))
    assert not told_apart(was, ("template 0f3a9c21-2", "image proxy 2", "config more 0f3a9c21-2"))
    assert not told_apart(was, ("config chat 0f3a9c21-2",), (IMAGE,))
    assert told_apart(was, ("image engine 2",), (IMAGE,))
    assert not told_apart((), was) and not told_apart(was, ())


def test_the_template_is_the_same_where_both_say_so() -> None:
    assert from_same_template(("template 0f3a9c21-1",), ("template 0f3a9c21-1", "image engine 1"))
    assert not from_same_template(("template 0f3a9c21-1",), ("template 0f3a9c21-2",))
    assert not from_same_template(("image engine 1",), ("image engine 1",))


def test_joined_are_those_of_now_and_images_of_before_that_nobody_runs() -> None:
    was = ("config chat 0f3a9c21-1", "config gone 0f3a9c21-1", "image engine 1", "image proxy 1", "template 0f3a9c21-1")
    now = ("image engine 2", "config chat 0f3a9c21-2", "template 0f3a9c21-2")
    assert joined(was, now) == [
        "template 0f3a9c21-2",
        "config chat 0f3a9c21-2",
        "image engine 2",
        "image proxy 1",
    ]
    assert joined((), now) == joined(now, now)
    assert len(joined([f"image {n} 1" for n in range(100)], now)) == MOST_MARKS
