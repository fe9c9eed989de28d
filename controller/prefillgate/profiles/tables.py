"""The options of llama-server (tools/server/README.md), vLLM (vllm/engine/arg_utils.py) and SGLang (server_args.py).

Names that servers tell of themselves (`core.differences.AREAS`) are kept, so that one setting has one name.
"""

from __future__ import annotations

from prefillgate.profiles.model import DRAFT, KV, PLACEMENT, WEIGHTS
from prefillgate.profiles.options import Table, table

LLAMA_SERVER = table(
    "llama-server",
    """
p one    | gpu-layers | GPU layers | -ngl --gpu-layers --n-gpu-layers || LLAMA_ARG_N_GPU_LAYERS
p one    | split-mode | split mode | -sm --split-mode || LLAMA_ARG_SPLIT_MODE
p one    | tensor-split | tensor split | -ts --tensor-split || LLAMA_ARG_TENSOR_SPLIT
p one    | main-gpu | main GPU | -mg --main-gpu || LLAMA_ARG_MAIN_GPU
p list   | override-tensor | tensor override | -ot --override-tensor || LLAMA_ARG_OVERRIDE_TENSOR
p switch | cpu-moe | experts in the CPU | -cmoe --cpu-moe || LLAMA_ARG_CPU_MOE
p one    | n-cpu-moe | expert layers in the CPU | -ncmoe --n-cpu-moe || LLAMA_ARG_N_CPU_MOE
p one    | n-cpu-ffn | FFN layers in the CPU | -ncffn --n-cpu-ffn || LLAMA_ARG_N_CPU_FFN
p one    | moe-cache-mib | expert cache MiB | --moe-cache-mib || LLAMA_ARG_MOE_CACHE_MIB
p one    | rpc | RPC servers | --rpc || LLAMA_ARG_RPC
p one    | device | devices | -dev --device || LLAMA_ARG_DEVICE
p one    | fit | fit to memory | -fit --fit || LLAMA_ARG_FIT
p one    | fit-target | fit margin MiB | -fitt --fit-target || LLAMA_ARG_FIT_TARGET
p one    | fit-ctx | least context of fit | -fitc --fit-ctx || LLAMA_ARG_FIT_CTX
p switch | op-offload | operation offload | --op-offload | --no-op-offload |
p switch | no-host | host buffer bypassed | --no-host || LLAMA_ARG_NO_HOST
p one    | numa | NUMA | --numa || LLAMA_ARG_NUMA
p one    | load-mode | load mode | -lm --load-mode || LLAMA_ARG_LOAD_MODE
p one    | lazy-mode | lazy mode | -lzm --lazy-mode || LLAMA_ARG_LAZY_MODE
p switch | mmap | memory map | --mmap | --no-mmap | LLAMA_ARG_MMAP
p switch | mlock | memory lock | --mlock || LLAMA_ARG_MLOCK
p switch | repack | repacking | --repack | -nr --no-repack | LLAMA_ARG_REPACK
d one    | draft-model | draft model | --spec-draft-model -md --model-draft || LLAMA_ARG_SPEC_DRAFT_MODEL LLAMA_ARG_MODEL_DRAFT
d one    | draft-repository | draft repository | --spec-draft-hf -hfd -hfrd --hf-repo-draft || LLAMA_ARG_SPEC_DRAFT_HF_REPO LLAMA_ARG_HFD_REPO
d one    | draft-gpu-layers | draft GPU layers | --spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft || LLAMA_ARG_N_GPU_LAYERS_DRAFT
d one    | draft-device | draft devices | --spec-draft-device -devd --device-draft |
d list   | draft-override-tensor | draft tensor override | --spec-draft-override-tensor -otd --override-tensor-draft |
d switch | draft-cpu-moe | draft experts in the CPU | --spec-draft-cpu-moe -cmoed --cpu-moe-draft || LLAMA_ARG_SPEC_DRAFT_CPU_MOE
d one    | draft-n-cpu-moe | draft expert layers in the CPU | --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft || LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE
d one    | draft-cache-type-k | draft K cache type | --spec-draft-type-k -ctkd --cache-type-k-draft || LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K
d one    | draft-cache-type-v | draft V cache type | --spec-draft-type-v -ctvd --cache-type-v-draft || LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V
d one    | draft-threads | draft threads | --spec-draft-threads -td --threads-draft |
d one    | draft-threads-batch | draft batch threads | --spec-draft-threads-batch -tbd --threads-batch-draft |
d one    | draft-n-max | most draft tokens | --spec-draft-n-max || LLAMA_ARG_SPEC_DRAFT_N_MAX
d one    | draft-n-min | fewest draft tokens | --spec-draft-n-min || LLAMA_ARG_SPEC_DRAFT_N_MIN
d one    | draft-max | most draft tokens (removed flag) | --draft --draft-n --draft-max || LLAMA_ARG_DRAFT_MAX
d one    | draft-min | fewest draft tokens (removed flag) | --draft-min --draft-n-min || LLAMA_ARG_DRAFT_MIN
d one    | draft-p-min | least draft probability | --spec-draft-p-min --draft-p-min || LLAMA_ARG_SPEC_DRAFT_P_MIN LLAMA_ARG_DRAFT_P_MIN
d one    | draft-p-split | draft split probability | --spec-draft-p-split --draft-p-split || LLAMA_ARG_SPEC_DRAFT_P_SPLIT
d switch | draft-backend-sampling | draft sampling on the backend | --spec-draft-backend-sampling | --no-spec-draft-backend-sampling | LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING
d one    | spec-type | speculation | --spec-type || LLAMA_ARG_SPEC_TYPE
d switch | spec-default | default speculation | --spec-default |
d one    | lookup-cache-static | static lookup cache | -lcs --lookup-cache-static |
d one    | lookup-cache-dynamic | dynamic lookup cache | -lcd --lookup-cache-dynamic |
k one    | n_ctx | context size | -c --ctx-size || LLAMA_ARG_CTX_SIZE
k one    | total_slots | slots | -np --parallel || LLAMA_ARG_N_PARALLEL
k one    | cache-type-k | K cache type | -ctk --cache-type-k || LLAMA_ARG_CACHE_TYPE_K
k one    | cache-type-v | V cache type | -ctv --cache-type-v || LLAMA_ARG_CACHE_TYPE_V
k one    | flash-attn | flash attention | -fa --flash-attn || LLAMA_ARG_FLASH_ATTN
k one    | cache-ram | host cache MiB | -cram --cache-ram || LLAMA_ARG_CACHE_RAM
k one    | cache-reuse | least chunk of cache reuse | --cache-reuse || LLAMA_ARG_CACHE_REUSE
k switch | cache-prompt | prompt cache | --cache-prompt | --no-cache-prompt | LLAMA_ARG_CACHE_PROMPT
k switch | cache-idle-slots | idle slots cached | --cache-idle-slots | --no-cache-idle-slots | LLAMA_ARG_CACHE_IDLE_SLOTS
k switch | kv-offload | KV cache on the GPU | -kvo --kv-offload | -nkvo --no-kv-offload | LLAMA_ARG_KV_OFFLOAD
k switch | kv-unified | unified KV cache | -kvu --kv-unified | -no-kvu --no-kv-unified | LLAMA_ARG_KV_UNIFIED
k one    | kv-unified-per-slot | context of a slot | --kv-unified-per-slot || LLAMA_ARG_KV_UNIFIED_PER_SLOT
k one    | ctx-checkpoints | context checkpoints | -ctxcp --ctx-checkpoints --swa-checkpoints || LLAMA_ARG_CTX_CHECKPOINTS
k one    | checkpoint-min-step | least step of checkpoints | -cms --checkpoint-min-step || LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT
k switch | swa-full | full SWA cache | --swa-full || LLAMA_ARG_SWA_FULL
k switch | context-shift | context shift | --context-shift | --no-context-shift | LLAMA_ARG_CONTEXT_SHIFT
k one    | defrag-thold | defragmentation threshold | -dt --defrag-thold || LLAMA_ARG_DEFRAG_THOLD
k one    | slot-prompt-similarity | slot prompt similarity | -sps --slot-prompt-similarity |
w one    | weights | weights | -m --model || LLAMA_ARG_MODEL
w one    | weights-url | weights URL | -mu --model-url || LLAMA_ARG_MODEL_URL
w one    | weights-repository | weights repository | -hf -hfr --hf-repo || LLAMA_ARG_HF_REPO
w one    | weights-file | weights file | -hff --hf-file || LLAMA_ARG_HF_FILE
w one    | weights-image | weights image | -dr --docker-repo || LLAMA_ARG_DOCKER_REPO
w list   | lora | LoRA adapter | --lora |
w list   | lora-scaled | scaled LoRA adapter | --lora-scaled |
w list   | control-vector | control vector | --control-vector |
w list   | control-vector-scaled | scaled control vector | --control-vector-scaled |
w many   | control-vector-layer-range | control vector layers | --control-vector-layer-range |
w one    | mmproj | multimodal projector | -mm --mmproj || LLAMA_ARG_MMPROJ
w one    | mmproj-url | multimodal projector URL | -mmu --mmproj-url || LLAMA_ARG_MMPROJ_URL
w switch | mmproj-auto | multimodal projector | --mmproj-auto | --no-mmproj --no-mmproj-auto | LLAMA_ARG_MMPROJ_AUTO
w list   | override-kv | metadata override | --override-kv |
p one    | mmproj-device | projector device | -mmdev --mmproj-device || MTMD_BACKEND_DEVICE
p switch | mmproj-offload | projector on the GPU | --mmproj-offload | --no-mmproj-offload | LLAMA_ARG_MMPROJ_OFFLOAD
o one    | threads | threads | -t --threads || LLAMA_ARG_THREADS
o one    | threads-batch | batch threads | -tb --threads-batch |
o one    | batch-size | batch size | -b --batch-size || LLAMA_ARG_BATCH
o one    | ubatch-size | micro-batch size | -ub --ubatch-size || LLAMA_ARG_UBATCH
o one    | predict | most output tokens | -n --predict --n-predict || LLAMA_ARG_N_PREDICT
o switch | cont-batching | continuous batching | -cb --cont-batching | -nocb --no-cont-batching | LLAMA_ARG_CONT_BATCHING
o one    | cpu-mask | CPU mask | -C --cpu-mask |
o one    | cpu-range | CPU range | -Cr --cpu-range |
o one    | cpu-mask-batch | batch CPU mask | -Cb --cpu-mask-batch |
o one    | cpu-range-batch | batch CPU range | -Crb --cpu-range-batch |
o one    | rope-scaling | rope scaling | --rope-scaling || LLAMA_ARG_ROPE_SCALING_TYPE
o one    | temperature | temperature | --temp --temperature || LLAMA_ARG_TEMPERATURE
o one    | seed | seed | -s --seed |
o one    | alias | model alias | -a --alias || LLAMA_ARG_ALIAS
o one    | timeout | timeout | -to --timeout || LLAMA_ARG_TIMEOUT
o one    | static-path | static files | --path || LLAMA_ARG_STATIC_PATH
o switch | metrics | metrics | --metrics || LLAMA_ARG_ENDPOINT_METRICS
o switch | props | properties endpoint | --props || LLAMA_ARG_ENDPOINT_PROPS
o switch | slots | slots endpoint | --slots | --no-slots | LLAMA_ARG_ENDPOINT_SLOTS
o switch | jinja | jinja templates | --jinja | --no-jinja | LLAMA_ARG_JINJA
o one    | reasoning | reasoning | -rea --reasoning || LLAMA_ARG_REASONING
o one    | reasoning-format | reasoning format | --reasoning-format || LLAMA_ARG_THINK
o one    | reasoning-budget | reasoning budget | --reasoning-budget || LLAMA_ARG_THINK_BUDGET
o one    | reasoning-budget-message | reasoning budget message | --reasoning-budget-message || LLAMA_ARG_THINK_BUDGET_MESSAGE
o switch | embeddings | embeddings | --embedding --embeddings || LLAMA_ARG_EMBEDDINGS
o switch | reranking | reranking | --rerank --reranking || LLAMA_ARG_RERANKING
o switch | backend-sampling | sampling on the backend | -bs --backend-sampling || LLAMA_ARG_BACKEND_SAMPLING
o list   | logit-bias | logit bias | -l --logit-bias |
o one    | json-schema | JSON schema | -j --json-schema |
o one    | json-schema-file | JSON schema file | -jf --json-schema-file |
o one    | reverse-prompt | reverse prompt | -r --reverse-prompt |
o switch | ui | web interface | --ui --webui | --no-ui --no-webui | LLAMA_ARG_UI LLAMA_ARG_WEBUI
o one    | api-key | API key | --api-key || LLAMA_API_KEY
o one    | hf-token | Hugging Face token | -hft --hf-token || HF_TOKEN
o one    | verbosity | verbosity | -lv --verbosity --log-verbosity || LLAMA_ARG_LOG_VERBOSITY
o switch | verbose | verbose | -v --verbose --log-verbose |
o one    | models-preset | model presets | --models-preset || LLAMA_ARG_MODELS_PRESET
""",
    r"^--(no-|ignore-eos$|perf$|escape$|special$|warmup$|spm-infill$|check-tensors$|offline$|log-disable$|"
    r"lora-init-without-apply$|reuse-port$|agent$|models-autoload$|reasoning-preserve$|skip-chat-parsing$|"
    r"prefill-assistant$|cors-credentials$|ui-mcp-proxy$|log-(prefix|timestamps|jsonl)$|.*-default$|.*-spec$)",
    (
        (r"^(spec-|draft-|lookup-|mtp|nextn|eagle|dflash)|-draft$", DRAFT),
        (r"^(gpu-|split-|tensor-|n-cpu-|fit|moe-)|offload", PLACEMENT),
        (r"^(cache-|kv-|ctx-|swa-|slot-)", KV),
        (r"^(model($|-)|hf-(repo|file)|lora|control-vector|mmproj|.*-default$|.*-spec$)", WEIGHTS),
    ),
)

VLLM = table(
    "vllm",
    """
p one    | tp_size | tensor parallel size | --tensor-parallel-size -tp |
p one    | pp_size | pipeline parallel size | --pipeline-parallel-size -pp |
p one    | dp_size | data parallel size | --data-parallel-size -dp |
p one    | data-parallel-size-local | local data parallel size | --data-parallel-size-local -dpl |
p one    | data-parallel-address | data parallel address | --data-parallel-address -dpa |
p one    | data-parallel-rpc-port | data parallel RPC port | --data-parallel-rpc-port -dpp |
p one    | data-parallel-backend | data parallel backend | --data-parallel-backend -dpb |
p one    | data-parallel-rank | data parallel rank | --data-parallel-rank -dpn |
p one    | data-parallel-start-rank | first data parallel rank | --data-parallel-start-rank -dpr |
p switch | data-parallel-hybrid-lb | hybrid data parallel balancing | --data-parallel-hybrid-lb -dph | --no-data-parallel-hybrid-lb |
p switch | data-parallel-external-lb | external data parallel balancing | --data-parallel-external-lb -dpe | --no-data-parallel-external-lb |
p one    | decode-context-parallel-size | decode context parallel size | --decode-context-parallel-size -dcp |
p one    | prefill-context-parallel-size | prefill context parallel size | --prefill-context-parallel-size -pcp |
p switch | enable-expert-parallel | expert parallelism | --enable-expert-parallel -ep | --no-enable-expert-parallel |
p one    | nnodes | nodes | --nnodes -n |
p one    | node-rank | node rank | --node-rank -r |
p one    | cpu_offload_gb | CPU offload GB | --cpu-offload-gb |
d json   | speculative-config | speculation | --speculative-config -sc |
d one    | speculative-config.method | speculation method | --spec-method |
d one    | speculative-config.model | draft model | --spec-model --speculative-model |
d one    | speculative-config.num_speculative_tokens | draft tokens | --spec-tokens --num-speculative-tokens |
d one    | speculative-config.quantization | draft head | --speculative-model-quantization |
d one    | speculative-config.draft_tensor_parallel_size | draft tensor parallel size | --speculative-draft-tensor-parallel-size -spec-draft-tp |
k one    | cache_dtype | KV cache type | --kv-cache-dtype |
k one    | block_size | block size | --block-size |
k switch | enable_prefix_caching | prefix caching | --enable-prefix-caching | --no-enable-prefix-caching |
k one    | max-model-len | context size | --max-model-len |
k one    | max-num-seqs | most sequences at once | --max-num-seqs |
k one    | gpu-memory-utilization | GPU memory share | --gpu-memory-utilization |
k json   | kv-transfer-config | KV transfer | --kv-transfer-config |
k json   | kv-events-config | KV events | --kv-events-config |
w one    | weights | weights | --model --model-id |
w one    | quantization | quantization | --quantization -q |
w one    | dtype | weight type | --dtype |
w one    | weights-revision | weights revision | --revision |
w one    | tokenizer | tokenizer | --tokenizer |
w one    | load-format | load format | --load-format |
w many   | lora-modules | LoRA modules | --lora-modules |
w json   | hf-overrides | model config overrides | --hf-overrides |
o json   | compilation-config | compilation | --compilation-config -cc |
o one    | optimization-level | optimization level | --optimization-level -O |
o json   | attention-config | attention | --attention-config -ac |
o json   | override-generation-config | generation config | --override-generation-config |
o json   | limit-mm-per-prompt | multimodal limits | --limit-mm-per-prompt |
o json   | rope-scaling | rope scaling | --rope-scaling |
o json   | additional-config | additional config | --additional-config |
o many   | served-model-name | model name | --served-model-name |
o many   | api-key | API key | --api-key || VLLM_API_KEY
o one    | hf-token | Hugging Face token | --hf-token || HF_TOKEN
o many   | middleware | middleware | --middleware |
o many   | cudagraph-capture-sizes | CUDA graph sizes | --cudagraph-capture-sizes --cuda-graph-sizes |
o switch | trust-remote-code | remote code | --trust-remote-code | --no-trust-remote-code |
o switch | enforce-eager | eager mode | --enforce-eager | --no-enforce-eager |
o switch | headless | headless | --headless |
o switch | async-scheduling | asynchronous scheduling | --async-scheduling | --no-async-scheduling |
o one    | config | config file | --config |
""",
    r"^--(no-|enable-|disable-|use-(?!.*-level)|skip-|calculate-kv-scales$|fully-sharded-loras$|return-tokens|"
    r"language-model-only$|enforce-|allow-credentials$|numa-bind$)",
    (
        (r"^(spec-|speculative|num-speculative|ngram-)", DRAFT),
        (r"parallel|offload|^(distributed-|worker-|nnodes|device|all2all|enable-eplb|eplb)", PLACEMENT),
        (r"^(kv-|block-|cache-|prefix-|swap-|num-gpu-blocks|enable-chunked-prefill|gpu-memory)|prefix-caching", KV),
        (r"^(model($|-)|lora|enable-lora|max-lora|hf-|load-|tokenizer)", WEIGHTS),
    ),
)

SGLANG = table(
    "sglang",
    """
p one    | tp_size | tensor parallel size | --tp-size --tp --tensor-parallel-size |
p one    | pp_size | pipeline parallel size | --pp-size --pp --pipeline-parallel-size |
p one    | dp_size | data parallel size | --dp-size --dp --data-parallel-size |
p one    | ep_size | expert parallel size | --ep-size --ep --expert-parallel-size |
p one    | attention-context-parallel-size | attention context parallel size | --attn-cp-size --attention-context-parallel-size |
p one    | moe-data-parallel-size | MoE data parallel size | --moe-dp-size --moe-data-parallel-size |
p one    | decode-context-parallel-size | decode context parallel size | --dcp-size --decode-context-parallel-size |
p one    | cpu-offload-gb | CPU offload GB | --cpu-offload-gb |
p one    | dist-init-addr | group address | --dist-init-addr --nccl-init-addr |
p switch | enable-dp-attention | data parallel attention | --enable-dp-attention |
d one    | speculative_algorithm | speculation | --speculative-algorithm |
d one    | speculative_draft_model_path | draft model | --speculative-draft-model-path --speculative-draft-model |
d one    | speculative_num_draft_tokens | draft tokens | --speculative-num-draft-tokens |
d one    | speculative-draft-model-quantization | draft head | --speculative-draft-model-quantization |
d one    | speculative-num-steps | draft steps | --speculative-num-steps |
k one    | kv_cache_dtype | KV cache type | --kv-cache-dtype |
k one    | page_size | page size | --page-size |
k switch | disable_radix_cache | radix cache disabled | --disable-radix-cache |
k one    | context-length | context size | --context-length |
k one    | mem-fraction-static | memory share | --mem-fraction-static |
k one    | max-running-requests | most requests at once | --max-running-requests |
k switch | enable-hierarchical-cache | hierarchical cache | --enable-hierarchical-cache |
k switch | enable-lmcache | LMCache | --enable-lmcache |
w one    | weights | weights | --model-path --model |
w one    | quantization | quantization | --quantization |
w one    | dtype | weight type | --dtype |
w one    | weights-revision | weights revision | --revision |
w one    | tokenizer-path | tokenizer | --tokenizer-path |
w one    | load-format | load format | --load-format |
w many   | lora-paths | LoRA adapters | --lora-paths |
o many   | cuda-graph-bs | CUDA graph sizes | --cuda-graph-bs |
o json   | json-model-override-args | model config overrides | --json-model-override-args |
o switch | trust-remote-code | remote code | --trust-remote-code |
o one    | api-key | API key | --api-key |
o one    | admin-api-key | admin API key | --admin-api-key |
o one    | hf-token | Hugging Face token | --hf-token || HF_TOKEN
o one    | config | config file | --config |
""",
    r"^--(enable-|disable-|skip-(?!.*-prefixes)|log-requests$|is-embedding$|sleep-on-idle$|show-time-cost$|grpc-mode$|"
    r"quantize-and-serve$|collect-tokens-histogram$|export-metrics-to-file$|abort-on-priority)",
    (
        (r"^speculative|multi-layer-eagle", DRAFT),
        (
            r"-parallel|^(moe-|ep-|eplb|nnodes|node-rank|base-gpu|gpu-id|device|offload|kt-|deepep|elastic-ep)",
            PLACEMENT,
        ),
        (r"^(kv-|radix|hicache|hierarchical|mamba|swa-|max-total-tokens|page)|radix-cache|hicache", KV),
        (r"^(model($|-)|lora|enable-lora|max-lora|quantization|modelopt|download)", WEIGHTS),
    ),
)

UNKNOWN = table("", "o one | api-key | API key | --api-key |", r"^--no-", ())

TABLES: dict[str | None, Table] = {None: UNKNOWN, "llama-server": LLAMA_SERVER, "vllm": VLLM, "sglang": SGLANG}
