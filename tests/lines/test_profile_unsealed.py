"""No setting of an engine is sealed for its name, and no word of a script that is no credential."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from prefillgate.profiles import Profile, Seal
from prefillgate.profiles.tables import TABLES
from tests.support.manifests import KEY, LLAMA_IMAGE, SGLANG_IMAGE, VLLM_IMAGE, llama, profile, values

SEALED = re.compile(r"\[[a-z-]+-[0-9a-f]{10}\]")
ENGINES = {LLAMA_IMAGE: "llama-server", VLLM_IMAGE: "vllm serve", SGLANG_IMAGE: "sglang serve"}


def env(name: str, value: str) -> dict[str, Any]:
    return {"env": [{"name": name, "value": value}]}


def script(text: str) -> Profile:
    return profile(LLAMA_IMAGE, text, command=["sh", "-c"])


@pytest.mark.parametrize(
    ("name", "value", "credential"),
    [
        *((name, "abc", True) for name in ("tokens", "HF_TOKEN_RO", "auth.value", "max_token", "preset a/b api-key-2")),
        *((name, "12", False) for name in ("tokens", "token_limit", "max_token", "a.tokens.b", "prefill_token_size")),
        *((name, "[1, 2.5]", False) for name in ("tokens", "bucket_first_token")),
        *((name, "12", True) for name in ("token", "HF_TOKEN", "API_KEY_2", "DB_PASS", "auth.value")),
        *(
            (name, "abc", False)
            for name in ("preset my-token-model alias", "preset key/pass a", "API_KEY_FILE", "tokenDir")
        ),
        *(
            (name, "abc", False)
            for name in ("TOKENIZERS", "bypass", "compass_mode", "author", "keep", "passes", "secretFile")
        ),
        *(("api-key", state, False) for state in ("", "on", "OFF", "True", "false", "null", "None")),
        *(("api-key", state, True) for state in ("1", "yes", "onn")),
    ],
)
def test_the_value_has_a_say_where_a_name_may_be_that_of_a_count(name: str, value: str, credential: bool) -> None:
    assert Seal(KEY).names_credential(name, value) is credential


FLAGS = [
    *[(each.engine, flag) for each in TABLES.values() for flag in each.by_flag],
    *[(each.engine, name) for each in TABLES.values() for name in each.by_env],
    *[(each.engine, name) for each in TABLES.values() for name in each.by_name],
]
THEIRS = ("--api-key", "--hf-token", "-hft", "--admin-api-key", "LLAMA_API_KEY", "VLLM_API_KEY", "HF_TOKEN")


@pytest.mark.parametrize(("engine", "flag"), FLAGS)
def test_of_the_known_flags_nothing_but_keys_and_tokens_is_sealed(engine: str, flag: str) -> None:
    credential = flag in THEIRS or f"--{flag}" in THEIRS
    if flag == "-hft":  # its setting is called by its long name
        flag = "hf-token"
    value = "12" if flag.endswith("tokens") else "any text"
    assert Seal(KEY).names_credential(flag, value) is credential


SERVED = {
    LLAMA_IMAGE: """
        -c 8192|-n 128|--keep 4|--keep-alive 60|--image-min-tokens 4|--image-max-tokens 1024|--cors-credentials on
        -ctk q8_0|-ctkd q4_0|-ot token_embd.weight=CPU|-ot blk.0.attn_key=CPU,per_layer_token_embd=CUDA0
        --override-kv tokenizer.ggml.add_bos_token=bool:false,tokenizer.ggml.eos_token_id=int:3|--api-key-file /k/keys
        --override-kv llama.attention.key_length=int:64|--ssl-key-file tls/key.pem|--ssl-cert-file /tls/cert.pem
        --lora-scaled secret-lora.gguf:0.5|-hf org/monkey-token-7b:Q4_K_M|-m /models/pass-key.gguf|-a my-key-model
        --rpc key-server:50052,auth:50053|--cls-separator x|--embd-separator y|--tts-use-guide-tokens on
        --reasoning-budget 100|--spec-type draft-mtp|--reverse-prompt token:|--slot-save-path /s|--logit-bias 15043+1
    """,
    VLLM_IMAGE: """
        --max-num-batched-tokens 8192|--max-num-scheduled-tokens 4096|--long-prefill-token-threshold 512
        --num-speculative-tokens 3|--spec-tokens 2|--dbo-decode-token-threshold 32|--tokenizer org/secret-tokenizer
        --tokenizer-mode auto|--tokenizer-revision main|--tokenizer-pool-size 2|--skip-tokenizer-init on
        --return-tokens-as-token-ids on|--enable-prompt-tokens-details on|--tokens-only on|--allow-credentials on
        --ssl-keyfile /tls/tls.key|--prefix-caching-hash-algo sha256|--lora-modules key-lora=/l/a token-lora=/l/b
        --served-model-name my-token-model|--generation-tokens-step 5|--speculative-token-tree [(0,),(0,0)]
        --structured-outputs-config.backend xgrammar|--trust-request-chat-template on|--chat-template /t.jinja
    """,
    SGLANG_IMAGE: """
        --max-total-tokens 4096|--max-prefill-tokens 16384|--num-reserved-decode-tokens 512|--stream-interval 1
        --speculative-token-map /maps/hot.pt|--speculative-num-draft-tokens 4|--swa-full-tokens-ratio 0.8
        --prefill-delayer-max-delay-passes 30|--prefill-delayer-token-usage-low-watermark 0.5|--tokenizer-worker-num 2
        --prompt-tokens-buckets tse 1000 2 8|--generation-tokens-buckets default|--collect-tokens-histogram on
        --bucket-time-to-first-token 0.1 0.5 2|--bucket-inter-token-latency 0.01 0.1|--ds-heavy-token-num 256
        --tbo-token-distribution-threshold 0.48|--piecewise-cuda-graph-tokens 4 8 16|--schedule-policy routing-key
        --tokenizer-metrics-custom-labels-header x-labels|--piecewise-cuda-graph-max-tokens 4096|--ssl-keyfile /k.pem
        --uvicorn-access-log-exclude-prefixes /health|--decode-log-interval 40|--tokenizer-path org/pass-tokenizer
    """,
}


@pytest.mark.parametrize(
    ("image", "flag"),
    [(image, flag.strip()) for image, flags in SERVED.items() for flag in flags.replace("\n", "|").split("|")],
)
def test_no_setting_of_an_engine_is_sealed(image: str, flag: str) -> None:
    for found in (
        profile(image, *flag.split()),
        profile(image, command=["sh", "-c", f"exec {ENGINES[image]} {flag.replace('(', '.').replace(')', '.')}"]),
    ):
        assert not SEALED.search(json.dumps(found.document()))


@pytest.mark.parametrize(
    "fields",
    [
        {
            "pass_config": {"enable_fusion": True, "fi_allreduce_fusion_max_token_num": 512},
            "inductor_passes": {"a": "b"},
        },
        {"num_key_value_heads": 8, "linear_num_key_heads": 4, "linear_key_head_dim": 128, "bos_token": "<s>"},
        {"eos_token_id": [1, 2], "pad_token": "<pad>", "additional_special_tokens": ["<a>"], "key_value": "x"},
        {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both", "extra": {"tokens_per_block": 64}},
        {"max_tokens": 5, "stop_tokens": ["</s>"], "tokenizer": {"use_fast": "yes"}, "author": "me"},
    ],
)
def test_no_field_of_a_model_or_an_engine_is_sealed(fields: dict[str, Any]) -> None:
    for flag in ("--additional-config", "--hf-overrides", "--compilation-config", "--unheard-of"):
        found = profile(VLLM_IMAGE, "m", flag, json.dumps(fields))
        assert not SEALED.search(json.dumps(found.document()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("TOKENIZERS_PARALLELISM", "no"), ("VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE", "64"), ("NCCL_IB_PKEY", "3")),
        *(
            ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
            ("HF_TOKEN_PATH", "/t"),
            ("RPC", "http://auth:8080/x"),
            ("A", "h:80/a@b"),
        ),
        *(
            ("A", "https://h:443/a@sha256:0"),
            ("A", "user: me"),
            ("A", "a=b;c=d"),
            ("A", "tokens: 5"),
            ("A", "auth:8080"),
        ),
    ],
)
def test_no_variable_without_a_credential_is_sealed(name: str, value: str) -> None:
    assert values(llama(**env(name, value)))[f"env {name}"] == value


def test_what_echo_says_to_nobody_is_told() -> None:
    told = values(script("echo starting; echo $MODEL | cat; echo a || echo b > /log; sort -u me:x; llama-server -m a"))
    assert told["start-script"] == "echo starting; echo $MODEL; cat; echo a; echo b >/log; sort -u me:x"
