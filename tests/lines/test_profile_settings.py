"""A profile's settings: every spelling of a flag is one, a flag counts more than a variable, nothing is dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillgate.core.differences import AREAS
from prefillgate.profiles import profile_of
from prefillgate.profiles.model import AREA_ORDER, LONGEST_VALUE
from prefillgate.profiles.quantization import precision_of
from prefillgate.profiles.tables import LLAMA_SERVER, SGLANG, TABLES, VLLM
from tests.support.manifests import (
    LLAMA_IMAGE,
    SGLANG_IMAGE,
    VLLM_IMAGE,
    container,
    deployment,
    llama,
    pod_spec,
    profile,
    sources,
    values,
)

# (image, arguments, settings by (area, name): value)
SPELLINGS: list[tuple[str, str, dict[tuple[str, str], str]]] = [
    (LLAMA_IMAGE, "-ngl 99", {("layer placement", "gpu-layers"): "99"}),
    (LLAMA_IMAGE, "--gpu-layers 99", {("layer placement", "gpu-layers"): "99"}),
    (LLAMA_IMAGE, "--n-gpu-layers=99", {("layer placement", "gpu-layers"): "99"}),
    (LLAMA_IMAGE, "--n_gpu_layers 99", {("layer placement", "gpu-layers"): "99"}),
    (LLAMA_IMAGE, "-ngl -1", {("layer placement", "gpu-layers"): "-1"}),
    (LLAMA_IMAGE, "-sm none", {("layer placement", "split-mode"): "none"}),
    (LLAMA_IMAGE, "-ts 100,0,0", {("layer placement", "tensor-split"): "100,0,0"}),
    (LLAMA_IMAGE, "-ts -1,2", {("layer placement", "tensor-split"): "-1,2"}),
    (LLAMA_IMAGE, "-ot exps=CPU -ot a=CUDA0", {("layer placement", "override-tensor"): "exps=CPU a=CUDA0"}),
    (LLAMA_IMAGE, "-cmoe --rpc a:1,b:2", {("layer placement", "cpu-moe"): "on", ("layer placement", "rpc"): "a:1,b:2"}),
    (LLAMA_IMAGE, "--fit off", {("layer placement", "fit"): "off"}),
    (LLAMA_IMAGE, "-ctkd q8_0", {("draft head", "draft-cache-type-k"): "q8_0"}),
    (LLAMA_IMAGE, "--spec-draft-type-k q8_0", {("draft head", "draft-cache-type-k"): "q8_0"}),
    (LLAMA_IMAGE, "-ngld 0", {("draft head", "draft-gpu-layers"): "0"}),
    (LLAMA_IMAGE, "--spec-ngram-mod-n-max 9", {("draft head", "spec-ngram-mod-n-max"): "9"}),
    (LLAMA_IMAGE, "-c 8192 -np 2", {("KV cache", "n_ctx"): "8192", ("KV cache", "total_slots"): "2"}),
    (LLAMA_IMAGE, "-fa", {("KV cache", "flash-attn"): "on"}),
    (LLAMA_IMAGE, "-fa auto", {("KV cache", "flash-attn"): "auto"}),
    (LLAMA_IMAGE, "-nkvo", {("KV cache", "kv-offload"): "off"}),
    (LLAMA_IMAGE, "--no-kv-offload", {("KV cache", "kv-offload"): "off"}),
    (LLAMA_IMAGE, "-kvo", {("KV cache", "kv-offload"): "on"}),
    (LLAMA_IMAGE, "--no-cache-prompt --cache-prompt", {("KV cache", "cache-prompt"): "on"}),
    (LLAMA_IMAGE, "-cram 0", {("KV cache", "cache-ram"): "0"}),
    (LLAMA_IMAGE, "-hf ggml-org/x-GGUF:Q4_K_M", {("weights", "weights-repository"): "ggml-org/x-GGUF:Q4_K_M"}),
    (LLAMA_IMAGE, "--lora a.gguf --lora b.gguf", {("weights", "lora"): "a.gguf b.gguf"}),
    (LLAMA_IMAGE, "--control-vector-layer-range 1 9", {("weights", "control-vector-layer-range"): "1 9"}),
    (LLAMA_IMAGE, "-t 4 -nocb", {("other", "threads"): "4", ("other", "cont-batching"): "off"}),
    (LLAMA_IMAGE, "--rope-freq-base 10000", {("other", "rope-freq-base"): "10000"}),
    (
        VLLM_IMAGE,
        "-tp 4 --pipeline_parallel_size=2",
        {("layer placement", "tp_size"): "4", ("layer placement", "pp_size"): "2"},
    ),
    (
        VLLM_IMAGE,
        "--tensor-parallel-size 4 org/m",
        {("layer placement", "tp_size"): "4", ("weights", "weights"): "org/m"},
    ),
    (VLLM_IMAGE, "org/m --enforce-eager", {("weights", "weights"): "org/m", ("other", "enforce-eager"): "on"}),
    (VLLM_IMAGE, "--enforce-eager org/m", {("weights", "weights"): "org/m", ("other", "enforce-eager"): "on"}),
    (VLLM_IMAGE, "serve org/m -q fp8", {("weights", "weights"): "org/m", ("weights", "quantization"): "fp8"}),
    (VLLM_IMAGE, "--model org/m", {("weights", "weights"): "org/m"}),
    (VLLM_IMAGE, "--no-enable-prefix-caching", {("KV cache", "enable_prefix_caching"): "off"}),
    (VLLM_IMAGE, "--enable-prefix-caching=False", {("KV cache", "enable_prefix_caching"): "off"}),
    (VLLM_IMAGE, "--kv-cache-dtype fp8", {("KV cache", "cache_dtype"): "fp8"}),
    (VLLM_IMAGE, "-O3", {("other", "optimization-level"): "3"}),
    (VLLM_IMAGE, "-O 3", {("other", "optimization-level"): "3"}),
    (VLLM_IMAGE, "--spec-method ngram", {("draft head", "speculative-config.method"): "ngram"}),
    (VLLM_IMAGE, "-sc.method ngram", {("draft head", "speculative-config.method"): "ngram"}),
    (VLLM_IMAGE, "--speculative-config.method=ngram", {("draft head", "speculative-config.method"): "ngram"}),
    (VLLM_IMAGE, '-sc {"method":"ngram"}', {("draft head", "speculative-config.method"): "ngram"}),
    (VLLM_IMAGE, "--served-model-name a b", {("other", "served-model-name"): "a b"}),
    (SGLANG_IMAGE, "--tp 8", {("layer placement", "tp_size"): "8"}),
    (SGLANG_IMAGE, "--tensor-parallel-size=8", {("layer placement", "tp_size"): "8"}),
    (SGLANG_IMAGE, "--ep 2 --dp-size 2", {("layer placement", "ep_size"): "2", ("layer placement", "dp_size"): "2"}),
    (
        SGLANG_IMAGE,
        "--disable-radix-cache --model m",
        {("KV cache", "disable_radix_cache"): "on", ("weights", "weights"): "m"},
    ),
    (SGLANG_IMAGE, "--speculative-draft-model x", {("draft head", "speculative_draft_model_path"): "x"}),
    (SGLANG_IMAGE, "--cuda-graph-bs 1 2 4", {("other", "cuda-graph-bs"): "1 2 4"}),
    (
        SGLANG_IMAGE,
        "--enable-flashinfer-mla extra",
        {("other", "enable-flashinfer-mla"): "on", ("other", "arguments"): "extra"},
    ),
]


@pytest.mark.parametrize(("image", "args", "expected"), SPELLINGS, ids=lambda each: str(each)[:48])
def test_every_spelling_of_a_flag_is_one_setting(image: str, args: str, expected: dict[tuple[str, str], str]) -> None:
    found = profile(image, *args.split())
    told = {(each.area, each.name): each.value for each in found.settings if each.name not in ("build", "program")}
    assert told == expected


@pytest.mark.parametrize("table", [LLAMA_SERVER, VLLM, SGLANG], ids=lambda table: table.engine)
def test_no_flag_stands_for_two_settings(table: Any) -> None:
    flags = [flag for option in table.options for flag in (*option.flags, *option.off)]
    assert sorted(flags) == sorted(set(flags)) and all(flag.startswith("-") for flag in flags)
    names = [option.name for option in table.options]
    assert sorted(names) == sorted(set(names))


PLACED: list[tuple[str, str, str]] = [
    (LLAMA_IMAGE, "layer placement", "-ngl -sm -ts -mg -ot --cpu-moe --n-cpu-moe --rpc -dev --fit"),
    (
        LLAMA_IMAGE,
        "draft head",
        "-md -ngld -ctkd -ctvd --draft-max --draft-min --draft-p-min --spec-type --spec-draft-x",
    ),
    (LLAMA_IMAGE, "KV cache", "-ctk -ctv -fa -c -np --cache-ram --cache-reuse --cache-unheard"),
    (LLAMA_IMAGE, "weights", "-m -hf --lora"),
    (
        VLLM_IMAGE,
        "layer placement",
        "--tensor-parallel-size --pipeline-parallel-size --data-parallel-size --cpu-offload-gb",
    ),
    (VLLM_IMAGE, "draft head", "--speculative-config --spec-method --speculative-unheard"),
    (VLLM_IMAGE, "KV cache", "--kv-cache-dtype --enable-prefix-caching --max-model-len --kv-unheard"),
    (VLLM_IMAGE, "weights", "--model --quantization --dtype --revision"),
    (SGLANG_IMAGE, "layer placement", "--tp-size --pp-size --dp-size --moe-a2a-backend"),
    (
        SGLANG_IMAGE,
        "draft head",
        "--speculative-algorithm --speculative-draft-model-path --speculative-num-draft-tokens",
    ),
    (SGLANG_IMAGE, "draft head", "--speculative-draft-model-quantization --speculative-unheard"),
    (SGLANG_IMAGE, "KV cache", "--kv-cache-dtype --disable-radix-cache --context-length --hicache-ratio"),
    (SGLANG_IMAGE, "weights", "--model-path --quantization --dtype"),
]


@pytest.mark.parametrize(
    ("image", "area", "flag"), [(image, area, flag) for image, area, flags in PLACED for flag in flags.split()]
)
def test_every_flag_stands_in_its_area(image: str, area: str, flag: str) -> None:
    found = [each for each in profile(image, flag, "1").settings if each.origin == flag]
    assert [each.area for each in found] == [area]


def test_areas_and_names_are_those_that_servers_tell() -> None:
    for table in TABLES.values():
        for option in table.options:
            assert option.area in AREA_ORDER
            assert AREAS.get(option.name, option.area) == option.area, option.name
    assert set(AREAS.values()) <= set(AREA_ORDER)


def test_a_flag_that_is_not_known_is_kept_with_its_values() -> None:
    found = values(
        llama("--new-thing", "a", "b", "--newer", "--no-newest", "-zz", "-1", "--twice", "1", "--twice", "2")
    )
    assert found == {"new-thing": "a b", "newer": "on", "newest": "off", "-zz": "-1", "twice": "1 2"}


def test_the_last_of_a_single_value_counts_and_that_is_said() -> None:
    found = llama("-c", "1", "-c", "2", "--fit", "off")
    assert values(found)["n_ctx"] == "2"
    assert found.notes == ("-c is given more than once; the last one counts",)


def test_a_flag_counts_more_than_its_variable() -> None:
    env = [{"name": "LLAMA_ARG_CTX_SIZE", "value": "1"}, {"name": "LLAMA_ARG_THREADS", "value": "4"}]
    found = llama("-c", "2", "--fit", "off", env=env)
    assert values(found) == {"n_ctx": "2", "threads": "4", "fit": "off"}
    assert found.notes == ("context size: -c counts, LLAMA_ARG_CTX_SIZE does not",)
    assert {each.name: each.origin for each in found.settings}["threads"] == "LLAMA_ARG_THREADS"


@pytest.mark.parametrize(
    ("name", "value", "setting", "expected"),
    [
        ("LLAMA_ARG_N_GPU_LAYERS", "99", "gpu-layers", "99"),
        ("LLAMA_ARG_KV_OFFLOAD", "false", "kv-offload", "off"),
        ("LLAMA_ARG_KV_OFFLOAD", "disabled", "kv-offload", "off"),
        ("LLAMA_ARG_NO_KV_OFFLOAD", "1", "kv-offload", "off"),
        ("LLAMA_ARG_FLASH_ATTN", "auto", "flash-attn", "auto"),
        ("LLAMA_ARG_THREADS_HTTP", "3", "threads-http", "3"),
        ("LLAMA_ARG_SPEC_DRAFT_MODEL", "d.gguf", "draft-model", "d.gguf"),
        ("LLAMA_ARG_OFFLINE", "1", "offline", "on"),
    ],
)
def test_variables_of_llama_server_are_its_flags(name: str, value: str, setting: str, expected: str) -> None:
    assert values(llama(env=[{"name": name, "value": value}]))[setting] == expected


def test_other_variables_are_settings_of_their_own() -> None:
    env = [
        {"name": "VLLM_ATTENTION_BACKEND", "value": "FLASHINFER"},
        {"name": "VLLM_CPU_KVCACHE_SPACE", "value": "40"},
        {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1"},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
    found = profile(VLLM_IMAGE, "m", "--x", "$(POD_IP)", env=env)
    assert {(each.area, each.words, each.value) for each in found.settings if each.name.startswith("env ")} == {
        ("other", "VLLM_ATTENTION_BACKEND", "FLASHINFER"),
        ("KV cache", "VLLM_CPU_KVCACHE_SPACE", "40"),
        ("layer placement", "CUDA_VISIBLE_DEVICES", "0,1"),
        ("other", "POD_IP", "the pod's status.podIP"),
        ("other", "CPUS", "the container's limits.cpu"),
    }
    assert values(found)["x"] == "$(POD_IP)" and found.notes == ()


def test_json_values_are_a_setting_for_each_field() -> None:
    config = {"method": "eagle", "model": "org/eagle", "num_speculative_tokens": 3, "deep": {"a": [1, 2], "b": True}}
    found = values(profile(VLLM_IMAGE, "m", "--speculative-config", json.dumps(config), "--hf-overrides", "{bad"))
    assert found == {
        "weights": "m",
        "hf-overrides": "{bad",
        "speculative-config.method": "eagle",
        "speculative-config.model": "org/eagle",
        "speculative-config.num_speculative_tokens": "3",
        "speculative-config.deep.a": "[1, 2]",
        "speculative-config.deep.b": "on",
    }


def test_the_order_of_fields_in_json_is_no_change() -> None:
    one = profile(VLLM_IMAGE, "m", "-sc", '{"method":"ngram","model":"x"}')
    assert one.digest == profile(VLLM_IMAGE, "m", "-sc", '{"model": "x", "method": "ngram"}').digest


MOUNT: dict[str, Any] = {"volumeMounts": [{"name": "c", "mountPath": "/etc/engine"}]}
VOLUME: dict[str, Any] = {"volumes": [{"name": "c", "configMap": {"name": "cfg"}}]}


def configured(image: str, text: str, *args: str) -> Any:
    found = sources(config_maps={"cfg": {"engine.conf": text}})
    return profile_of(deployment(pod_spec(container(image, *args, **MOUNT), **VOLUME)), found)


def test_a_config_file_out_of_a_config_map_counts_less_than_flags() -> None:
    text = "# said\nmodel: org/m\ntensor-parallel-size: 2\nmax_model_len: 8192\nenforce-eager: true\nunheard: [a, b]\n"
    text += "speculative-config: {method: ngram, num_speculative_tokens: 4}\n"
    found = configured(VLLM_IMAGE, text, "--config", "/etc/engine/engine.conf", "-tp", "4")
    assert values(found) == {
        "config": "/etc/engine/engine.conf",
        "weights": "org/m",
        "tp_size": "4",
        "max-model-len": "8192",
        "enforce-eager": "on",
        "unheard": "a b",
        "speculative-config.method": "ngram",
        "speculative-config.num_speculative_tokens": "4",
    }
    assert found.notes == ("tensor parallel size: -tp counts, /etc/engine/engine.conf does not",)
    other = text.replace("# said", "# otherwise")
    said_otherwise = configured(VLLM_IMAGE, other, "--config", "/etc/engine/engine.conf", "-tp", "4")
    assert said_otherwise.digest == found.digest


def test_sglang_reads_its_config_file_the_same_way() -> None:
    found = configured(
        SGLANG_IMAGE,
        "model-path: m\ntensor-parallel-size: 2\nlog-requests: true\n",
        "--config",
        "/etc/engine/engine.conf",
    )
    assert values(found) == {"config": "/etc/engine/engine.conf", "weights": "m", "tp_size": "2", "log-requests": "on"}


def test_presets_of_a_llama_router_are_settings_under_their_section() -> None:
    text = "version = 1\n[*]\nngl = 99\nc = 4096\n[qwen]\nmodel = /m/q.gguf\nts = 3,1\n"
    text += "LLAMA_ARG_CACHE_RAM = 0\nno-mmap = true\n"
    found = configured(LLAMA_IMAGE, text, "--models-preset", "/etc/engine/engine.conf", "--fit", "off")
    assert values(found) == {
        "models-preset": "/etc/engine/engine.conf",
        "fit": "off",
        "preset * version": "1",
        "preset * gpu-layers": "99",
        "preset * n_ctx": "4096",
        "preset qwen weights": "/m/q.gguf",
        "preset qwen tensor-split": "3,1",
        "preset qwen cache-ram": "0",
        "preset qwen mmap": "off",
    }


@pytest.mark.parametrize("text", ["- a\n", "a: &x [*x]\n", "a: [\n", "{" * 40 + "}" * 40, "a: 1\n---\nb: 2\n"])
def test_a_config_file_that_cannot_be_read_is_said_and_counts_as_a_file(text: str) -> None:
    found = configured(VLLM_IMAGE, text, "--config", "/etc/engine/engine.conf")
    assert any("could not be read" in note for note in found.notes)
    assert values(found)["file /etc/engine/engine.conf"].startswith("digest ")


def test_a_config_file_that_no_config_map_holds_is_said() -> None:
    found = profile(VLLM_IMAGE, "--config", "/baked/in.yaml")
    assert found.notes == ("config file /baked/in.yaml was not read: no ConfigMap that was given holds it",)


def test_a_draft_file_tells_the_precision_of_the_draft_head() -> None:
    found = {each.name: each for each in llama("-md", "/m/tiny-draft-Q4_K_M.gguf").settings}
    assert (found["draft-precision"].words, found["draft-precision"].value) == ("draft head", "Q4_K_M")
    told = profile(VLLM_IMAGE, "m", "-sc", '{"model":"x-FP8","quantization":"awq"}')
    assert "draft-precision" not in values(told) and values(told)["speculative-config.quantization"] == "awq"
    repository = llama("-hfd", "org/draft-GGUF:q8_0")
    assert values(repository)["draft-precision"] == "Q8_0"


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("a-Q4_K_M.gguf", "Q4_K_M"),
        ("a.q8_0.gguf", "Q8_0"),
        ("a-IQ3_XXS-00001-of-00002.gguf", "IQ3_XXS"),
        ("a-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("a-Q6_K.gguf", "Q6_K"),
        ("a-BF16.gguf", "BF16"),
        ("org/Model-AWQ", "AWQ"),
        ("org/Model-FP8", "FP8"),
        ("a-MXFP4.gguf", "MXFP4"),
        ("IQ4_NL/b.gguf", "IQ4_NL"),
        ("Qwen3-8B.gguf", None),
        ("faq8_0.gguf", None),
        ("", None),
    ],
)
def test_precision_is_read_from_names(name: str, precision: str | None) -> None:
    assert precision_of(name) == precision


@pytest.mark.parametrize(
    "given",
    [
        {"args": ["--spec-synth-len", "3.4"]},
        {"args": ["--spec-synth-rates", "0.8,0.6"]},
        {"args": ["--spec-synth-new"]},
        {"env": [{"name": "LLAMA_ARG_SPEC_SYNTH_LEN", "value": "3"}]},
        {"command": ["sh", "-c", "exec llama-server --spec_synth_len=3"]},
        {"command": ["tini", "--", "sh", "-c", "exec llama-server --spec-synth-rate 0.9"]},
        {"command": ["/usr/bin/env", "-S", "bash -c 'llama-server --spec-synth-rate 0.9'"]},
        {"command": ["su", "me", "-c", "llama-server --spec-synth-rate 0.9"]},
        {"command": ["sh", "-c", "llama-server -m a & exec llama-server --spec-synth-rate 0.9"]},
        {"command": ["sh", "-c", "/own/start --spec-synth-rate 0.9"]},
        {"command": ["sh", "-c", "A='--spec-synth-rate 0.9'; eval \"llama-server $B\""]},
        {"command": ["sh", "-c", "export LLAMA_ARG_SPEC_SYNTH_RATE=1; /own/start"]},
        {"command": ["sh", "-c", 'set -- --spec-synth-rate 1; llama-server "$@"']},
        {"command": ["own", "--then", "--spec-synth-rate=1"]},
        {"env": [{"name": "OWN_ARGS", "value": "-c 1 --spec-synth-rate 0.9"}]},
    ],
)
def test_synthetic_acceptance_is_refused(given: dict[str, Any]) -> None:
    (why,) = profile(LLAMA_IMAGE, **given).refused
    assert why.startswith("spec-synth-") and "take --spec-synth-* out" in why
    assert llama("--spec-type", "draft-simple").refused == ()


def test_synthetic_acceptance_in_a_mounted_script_is_refused_unless_it_is_a_comment() -> None:
    for text, count in (("exec llama-server \\\n  --spec-synth-rate 0.9", 1), (" # no --spec-synth-rate\nx", 0)):
        found = configured(LLAMA_IMAGE, text)
        assert len(found.refused) == count and all(why.startswith("spec-synth-rate: ") for why in found.refused)
    script = ["sh", "-c", "# never --spec-synth-rate\nllama-server -m spec-synth-rate.gguf"]
    assert profile(LLAMA_IMAGE, command=script).refused == ()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("-c 1", "--fit picks the GPU layers"),
        ("-ngl auto", "--fit picks the GPU layers"),
        ("-md d.gguf -ngl 9", "without --spec-type is ignored"),
        ("--draft-max 8 -ngl 9", "--draft-max was removed"),
    ],
)
def test_what_is_surprising_in_arguments_is_said(args: str, said: str) -> None:
    assert [said in note for note in llama(*args.split()).notes] == [True]


@pytest.mark.parametrize("args", ["-ngl 99", "--fit off", "-md d.gguf --spec-type draft-simple -ngl 9"])
def test_nothing_is_said_where_nothing_is_surprising(args: str) -> None:
    assert llama(*args.split()).notes == ()


def test_a_long_value_is_kept_by_its_beginning_and_a_digest() -> None:
    at_most, over = "x" * LONGEST_VALUE, "x" * (LONGEST_VALUE + 1)
    assert values(llama("--grammar", at_most))["grammar"] == at_most
    cut = values(llama("--grammar", over))["grammar"]
    assert cut.startswith("x" * 80 + "… (2001 characters, sha256 ") and len(cut) < 200
    assert llama("--grammar", over).digest != llama("--grammar", over[:-1] + "y").digest


words = st.text(alphabet="abcxyz0123456789", min_size=1, max_size=6)
flags = st.lists(st.tuples(words.map(lambda w: f"--f-{w}"), words), max_size=6, unique_by=lambda each: each[0])


@given(flags, words, words, st.sampled_from([LLAMA_IMAGE, VLLM_IMAGE, SGLANG_IMAGE, "other/engine"]), st.data())
def test_a_flag_more_is_always_another_digest(
    given_flags: list[tuple[str, str]], name: str, value: str, image: str, data: st.DataObject
) -> None:
    before = [word for pair in given_flags for word in pair]
    at = 2 * data.draw(st.integers(0, len(given_flags)))
    after = [*before[:at], f"--unheard-of-{name}", value, *before[at:]]
    assert profile(image, *before).digest != profile(image, *after).digest


@given(flags, st.randoms(), st.sampled_from([LLAMA_IMAGE, VLLM_IMAGE, SGLANG_IMAGE, "other/engine"]))
def test_the_order_of_independent_flags_is_no_change(
    given_flags: list[tuple[str, str]], order: Any, image: str
) -> None:
    shuffled = list(given_flags)
    order.shuffle(shuffled)
    one, other = ([word for pair in each for word in pair] for each in (given_flags, shuffled))
    assert profile(image, *one).digest == profile(image, *other).digest


@given(flags, st.sampled_from([LLAMA_IMAGE, VLLM_IMAGE, SGLANG_IMAGE]))
def test_an_equals_sign_is_no_change(given_flags: list[tuple[str, str]], image: str) -> None:
    apart = [word for pair in given_flags for word in pair]
    assert profile(image, *apart).digest == profile(image, *(f"{name}={value}" for name, value in given_flags)).digest
